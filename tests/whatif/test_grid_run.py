"""Grids over processes: every setting once, in order, whatever fails, stops or is known already."""

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pbkv.errors import UsageError
from pbkv.whatif.cache import GridCache
from pbkv.whatif.digest import digest
from pbkv.whatif.forecast import fidelity, forecast
from pbkv.whatif.grid import parse_axes, plain
from pbkv.whatif.pool import Done, Lost, work_through
from pbkv.whatif.recording import KnobChange
from pbkv.whatif.run import Grid, GridCell, Pace, run_grid
from pbkv.whatif.setting import Setting
from tests.whatif.small import small

RECORDING = small(12)
SETTINGS = parse_axes({"policy": "lru,he", "gamma": "0.2,0.8", "device_tokens": "x0.75,x1"}, RECORDING)


def same(a: Grid, b: Grid) -> bool:
    def plain(grid: Grid) -> object:
        return [(cell.setting, cell.error, cell.forecast and cell.forecast.estimates) for cell in grid.cells]

    return plain(a) == plain(b)


@pytest.fixture(scope="module")
def whole() -> Grid:
    return run_grid(RECORDING, SETTINGS)


def test_a_grid_is_what_its_forecasts_are_one_by_one(whole: Grid) -> None:
    known = fidelity(RECORDING)
    assert [cell.setting for cell in whole.cells] == SETTINGS and not whole.stopped
    for cell in whole.cells:
        assert cell.forecast is not None and cell.forecast.setting == cell.setting
        assert cell.forecast.estimates == forecast(RECORDING, known, cell.setting).estimates
        assert not len(cell.forecast.outcome.calls)


def test_the_number_of_processes_changes_nothing(whole: Grid) -> None:
    assert same(whole, run_grid(RECORDING, SETTINGS, workers=1)) and same(whole, run_grid(RECORDING, SETTINGS, workers=5))


def test_what_comes_to_the_same_is_replayed_once(whole: Grid) -> None:
    # lru at two sizes, he at two gammas and sizes; he at 0.8 and x1 is the recorded setting.
    assert len(SETTINGS) == 6 and whole.replayed == 6
    cells = {cell.setting: cell for cell in whole.cells}
    assert [s for s, cell in cells.items() if cell.known] == [Setting(policy="he", gamma=0.8, device_tokens=60_032)]
    again = run_grid(RECORDING, [Setting(policy="lru"), Setting(policy="lru", prefetch="off"), Setting(policy="lru", device_tokens=60_050)])
    assert again.replayed == 2 and len({json.dumps(f.outcome.figures) for f in again.forecasts}) == 1


def test_no_settings_is_the_recorded_one() -> None:
    grid = run_grid(RECORDING, [])
    assert grid.cells == () and grid.fidelity is not None and grid.replayed == 1
    assert grid.fidelity.present.figures["hit"] > 0 and not len(grid.fidelity.present.calls)


def test_a_setting_that_fails_is_reported_and_the_rest_goes_on() -> None:
    settings = [Setting(device_tokens=1024), Setting(policy="lru")]
    told: list[GridCell] = []
    grid = run_grid(RECORDING, settings, on_cell=told.append)
    bad, good = grid.cells
    assert bad.forecast is None and "tokens" in bad.error and "\n" not in bad.error
    assert good.forecast is not None and not grid.stopped and sorted(told, key=lambda c: settings.index(c.setting)) == list(grid.cells)


def test_a_recorded_setting_that_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(UsageError, match="no calls to replay"):
        run_grid(replace(RECORDING, workflows=()), SETTINGS)
    with pytest.raises(UsageError, match="tokens"):
        run_grid(replace(RECORDING, engine=replace(RECORDING.engine, device_tokens=1024)), SETTINGS)


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_processes_are_bounded(workers: int) -> None:
    with pytest.raises(UsageError, match="expected 1 to 64"):
        run_grid(RECORDING, SETTINGS, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_leaves_what_was_found(workers: int, whole: Grid) -> None:
    told: list[GridCell] = []
    # While the recorded setting is replayed the other process is ahead by a few settings.
    settings = [*SETTINGS, *(Setting(policy="lae", device_tokens=64 * n) for n in range(700, 730))]
    grid = run_grid(RECORDING, settings, workers=workers, on_cell=told.append, stop=lambda: len(told) >= 2)
    assert grid.stopped and 2 <= len(grid.cells) < len(settings)
    known = {cell.setting: cell.forecast for cell in whole.cells if cell.forecast}
    for cell in grid.cells:
        assert cell.forecast is not None
        assert cell.setting not in known or cell.forecast.estimates == known[cell.setting].estimates


def test_a_stop_in_the_first_replay_finds_nothing() -> None:
    grid = run_grid(small(60), SETTINGS, stop=lambda: True)
    assert grid.stopped and grid.fidelity is None and grid.cells == ()


def test_the_pace_counts_up_to_all() -> None:
    paces: list[Pace] = []
    run_grid(small(60), [Setting(policy="lru"), Setting(policy="lae"), Setting(policy="lru", prefetch="off")], on_pace=paces.append)
    assert paces and all(p.total == 3 and 0 <= p.done <= 3 for p in paces)
    assert [p.done for p in paces] == sorted(p.done for p in paces)
    assert all(math.isnan(p.left_s) or p.left_s >= 0 for p in paces)


# ---- the cache ---------------------------------------------------------------------------------------------------------------


def test_what_is_known_is_not_replayed(tmp_path: Path, whole: Grid) -> None:
    cache = GridCache(tmp_path, RECORDING)
    first = run_grid(RECORDING, SETTINGS[:3], cache=cache)
    assert first.replayed == 4
    more = run_grid(RECORDING, SETTINGS, cache=cache)
    assert more.replayed == 3 - 1 and same(more, whole)  # one of the three is the recorded setting
    again = run_grid(RECORDING, SETTINGS, cache=GridCache(tmp_path, RECORDING))
    assert again.replayed == 0 and same(again, whole) and all(cell.known for cell in again.cells)
    assert again.fidelity is not None and whole.fidelity is not None
    assert again.fidelity.present.figures == whole.fidelity.present.figures
    assert run_grid(RECORDING, [], cache=cache).replayed == 0


def test_other_recordings_and_other_code_are_other_cells(tmp_path: Path) -> None:
    other = replace(RECORDING, engine=replace(RECORDING.engine, max_running=9))
    setting = Setting(policy="lru")
    paths = {
        GridCache(tmp_path, RECORDING).path(setting), GridCache(tmp_path, other).path(setting), GridCache(tmp_path, RECORDING).path(None),
        GridCache(tmp_path, RECORDING).path(Setting(policy="lae")), GridCache(tmp_path, RECORDING, ("eviction",)).path(setting),
    }
    assert len(paths) == 5


def test_a_trained_predictor_counts_with_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    cache, setting = GridCache(tmp_path / "cells", RECORDING), Setting(predictor=str(folder))
    before = cache.path(setting)
    (folder / "config.json").write_text("{ }")
    assert cache.path(setting) != before


@pytest.mark.parametrize("content", [
    b"", b"{", b"[]", b"null", b'{"figures": 5}', b'{"figures": {"hit": "x"}}', pytest.param(b" " * 70_000, id="large"),
])
def test_a_file_that_is_no_cell_is_replayed_again(tmp_path: Path, content: bytes) -> None:
    cache, setting = GridCache(tmp_path, RECORDING), plain(Setting(policy="lru"), RECORDING)
    first = run_grid(RECORDING, [setting], cache=cache)
    cache.path(setting).write_bytes(content)
    cache.path(None).write_bytes(content)
    assert cache.outcome(setting) is None and cache.fidelity() is None
    again = run_grid(RECORDING, [setting], cache=cache)
    assert again.replayed == 2 and same(first, again)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--cells"):
        GridCache(tmp_path / "file" / "cells", RECORDING)


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path, whole: Grid) -> None:
    cache = GridCache(tmp_path / "cells", RECORDING)
    (tmp_path / "cells").rmdir()
    assert same(run_grid(RECORDING, SETTINGS, cache=cache), whole)


def test_the_oldest_cells_go(tmp_path: Path) -> None:
    cache = GridCache(tmp_path, RECORDING)
    for n in range(5):
        (tmp_path / f"{n}.json").write_text("{}")
        os.utime(tmp_path / f"{n}.json", (n, n))
    cache.prune(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.json", "4.json"]


def test_digests_follow_content_alone() -> None:
    assert digest(small(12)) == digest(RECORDING)
    workflow = RECORDING.workflows[3]
    call = workflow.calls[1]
    first = workflow.calls[0]
    others = [
        replace(RECORDING, workflows=RECORDING.workflows[:-1]),
        *(
            replace(RECORDING, workflows=(*RECORDING.workflows[:3], workflow._replace(calls=(first, changed))))
            for changed in (
                call, call._replace(agent="x"), call._replace(pages=call.pages[:-1]), call._replace(delay_s=call.delay_s + 1e-9),
                call._replace(arrived=1.0), call._replace(aborted=True), call._replace(final=not call.final),
            )
        ),
        replace(RECORDING, workflows=(workflow._replace(closed_s=1.0), *RECORDING.workflows[1:])),
        replace(RECORDING, knobs={**RECORDING.knobs, "gamma": 0.7}),
        replace(RECORDING, changes=(KnobChange(1.0, "gamma", 0.7),)),
        replace(RECORDING, concurrency=None),
        replace(RECORDING, measured={"hit": 0.5}),
    ]
    assert len({digest(RECORDING), *(digest(other) for other in others)}) == len(others) + 1


# ---- processes ---------------------------------------------------------------------------------------------------------------


def slow(task: int, progress: Callable[[int], None], stop: Callable[[], bool]) -> int:
    """Goes on until it is told to stop."""
    count = 0
    while not stop():
        count += 1
        progress(count)
    return count


def test_a_process_that_dies_takes_one_task_with_it() -> None:
    def work(task: int, progress: Callable[[int], None], stop: Callable[[], bool]) -> int:
        if task in (1, 4):
            os.kill(os.getpid(), signal.SIGKILL)
        return task * task

    for count in (1, 2, 3):
        done = {d.task: d for d in work_through(range(6), work, count)}
        assert [n for n, d in sorted(done.items()) if isinstance(d.error, Lost)] == [1, 4]
        assert [done[n].value for n in (0, 2, 3, 5)] == [0, 4, 9, 25] and "-9" in str(done[1].error)


def test_an_error_in_a_task_is_handed_back() -> None:
    def work(task: int, progress: Callable[[int], None], stop: Callable[[], bool]) -> float:
        return 1 / task

    good, bad = sorted(work_through([0, 2], work, 1), key=lambda done: done.error is not None)
    assert good == Done(2, 0.5) and isinstance(bad.error, ZeroDivisionError)


def test_a_stop_reaches_tasks_under_way_and_no_more_are_begun() -> None:
    under_way = [0]

    def tick(progress: list[int]) -> None:
        under_way[:] = progress or under_way

    done = list(work_through(range(10), slow, 2, stop=lambda: min(under_way) > 0, tick=tick, every_s=0.01))
    assert len(done) == 2 and all(d.value > 0 for d in done)


def test_no_tasks_no_processes() -> None:
    assert list(work_through([], slow, 0)) == []


def test_processes_are_gone_when_the_consumer_leaves() -> None:
    pids: list[int] = []

    def work(task: int, progress: Callable[[int], None], stop: Callable[[], bool]) -> int:
        return os.getpid() if task == 0 else slow(task, progress, stop)

    results = work_through(range(3), work, 1)
    pids.append(next(results).value)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_what_workers_see_is_what_the_parent_had() -> None:
    table = np.arange(1000)

    def work(task: int, progress: Callable[[int], None], stop: Callable[[], bool]) -> int:
        return int(table[task])

    assert [d.value for d in work_through([7, 500], work, 1)] == [7, 500]
