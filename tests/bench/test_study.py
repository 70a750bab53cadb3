"""The experiments as they are defined, and `pbkv bench paper` as a whole."""

import io
import json
import os
import select
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pbkv.bench import pool
from pbkv.bench.cell import Cell, Result
from pbkv.bench.cellcache import CellCache
from pbkv.bench.experiment import Experiment, Point
from pbkv.bench.paper import ABLATIONS, Contender, Scope, experiments
from pbkv.bench.pool import run_cells
from pbkv.bench.progress import Progress
from pbkv.bench.study import choose, run_study, write
from pbkv.errors import UsageError
from tests.bench.small import small
from tests.console.cli import pbkv, refused

FULL, QUICK = experiments(Scope()), experiments(Scope(quick=True))


def tiny(scope: Scope) -> list[Experiment]:
    """Two experiments of the same cells, and one that replays."""
    del scope
    contenders = [Contender("lru"), Contender("lae"), Contender("he", "bayes")]
    points = tuple(Point("HoVer, private", c.label, 0.5, c.of(small())) for c in contenders)
    more = tuple(replace(point, x=3.0) for point in points)
    replayed = tuple(Point("HoVer, private", c.label, 0.5, c.of(small(replay=True))) for c in (*contenders, Contender("belady")))
    return [
        Experiment("pressure", "Pressure", "share", points), Experiment("horizon", "Horizon", "K", more),
        Experiment("regret", "Regret", "share", replayed),
    ]


def test_names_are_unique_and_the_quick_version_is_a_part() -> None:
    assert len({e.name for e in FULL}) == len(FULL)
    assert [e.name for e in QUICK] == [e.name for e in FULL]
    full, quick = ({c.plain() for e in some for c in e.cells([0])} for some in (FULL, QUICK))
    assert len(quick) < len(full) / 4 < 500


@pytest.mark.parametrize("scope", [Scope(), Scope(quick=True)])
def test_no_two_points_share_a_place_and_every_panel_has_its_base(scope: Scope) -> None:
    for e in experiments(scope):
        places = Counter((p.panel, p.series, p.x) for p in e.points)
        assert not [place for place, n in places.items() if n > 1], e.name
        for panel in {p.panel for p in e.points}:
            xs = {p.x for p in e.points if p.panel == panel}
            assert {p.x for p in e.points if p.panel == panel and p.series == e.base} == xs, (e.name, panel)


def test_cells_differ_only_in_what_the_experiment_is_about() -> None:
    by_name = {e.name: e for e in FULL}
    load = {"concurrency", "warm", "workflows"}
    for name, fields in (("horizon", {"k"}), ("discount", {"gamma"}), ("noise", {"noise"}), ("regret", {"noise"}), ("concurrency", load)):
        for panel, series in {(p.panel, p.series) for p in by_name[name].points}:
            cells = [vars(p.cell) for p in by_name[name].points if (p.panel, p.series) == (panel, series)]
            assert {k for cell in cells for k in cell if cell[k] != cells[0][k]} <= fields, (name, series)


def test_ablations_turn_off_one_part_each() -> None:
    ablation = next(e for e in FULL if e.name == "ablation")
    parts = {p.cell.parts for p in ablation.points if p.panel == "HoVer, shared"}
    assert parts == {(), *((part,) for part in ABLATIONS), ABLATIONS}


def test_a_trace_is_played_in_all_layouts_without_bayes(tmp_path: Path) -> None:
    rows = [{"workflow": f"r{n}", "step": s, "agent": "ab"[s % 2], "output_tokens": 9} for n in range(8) for s in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "calls.parquet")
    pressure = experiments(Scope(traces=(("real", str(tmp_path / "calls.parquet")),)))[0]
    panels = {p.panel for p in pressure.points if p.cell.source.trace}
    assert panels == {"real, private", "real, shared", "real, group"}
    assert not [p for p in pressure.points if p.cell.source.trace and p.cell.predictor == "bayes"]
    assert all(p.cell.source.held_out for p in pressure.points if p.cell.source.trace)


def test_trained_predictors_are_used_where_they_were_made_for() -> None:
    backbones = next(e for e in experiments(Scope(trained=(("hover", "models/mine"),))) if e.name == "backbones")
    used = {p.panel for p in backbones.points if p.cell.predictor == "dir:models/mine"}
    assert used == {"HoVer, private", "HoVer, shared"}
    assert {p.series for p in backbones.points} >= {"he mine", "first_use mine"}


def test_experiments_are_chosen_by_name() -> None:
    assert [e.name for e in choose(FULL, ["noise", "pressure"])] == ["pressure", "noise"]
    with pytest.raises(UsageError, match=r"--only 'magic'.*pressure"):
        choose(FULL, ["magic"])


def test_known_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Cell] = []

    def counted(cell: Cell) -> Result:
        runs.append(cell)
        return {"hit": float(len(runs)), "calls": 1.0}

    monkeypatch.setattr("pbkv.bench.run.run_cell", counted)
    cells = [small(policy="he", seed=seed) for seed in range(3)] + [small(policy="lru", gamma=g) for g in (0.1, 0.2)]
    first = run_cells(cells, CellCache(tmp_path), 1)
    assert len(runs) == len(first) == 4, "two of them are the same run"
    out = io.StringIO()
    assert run_cells([*cells, small(policy="lae")], CellCache(tmp_path), 1, Progress(5, "runs", out)).items() > first.items()
    assert len(runs) == 5
    assert "5/5, 4 known" in out.getvalue()


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(cell: Cell) -> Result:
        if cell.seed == 2:
            raise KeyboardInterrupt
        return {"hit": float(cell.seed), "calls": 1.0}

    monkeypatch.setattr("pbkv.bench.run.run_cell", breaks)
    with pytest.raises(KeyboardInterrupt):
        run_cells([small(seed=seed) for seed in range(4)], CellCache(tmp_path), 1)
    assert [CellCache(tmp_path).get(small(seed=seed)) for seed in range(2)] == [{"hit": 0.0, "calls": 1.0}, {"hit": 1.0, "calls": 1.0}]


def test_processes_and_one_process_give_the_same(tmp_path: Path) -> None:
    cells = [small(policy=policy, predictor="markov", workflows=4, warm=2, concurrency=4) for policy in ("lru", "he", "first_use")]
    assert run_cells(cells, CellCache(tmp_path / "a"), 2) == run_cells(cells, CellCache(tmp_path / "b"), 1)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    cells = f"--cells {tmp_path}/cells -o {tmp_path}".split()
    line = [sys.executable, "-m", "console.main", "bench", "paper", "--quick", "--only", "noise", "--jobs", "2", *cells]
    parent = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert parent.stderr is not None
    assert "left" in parent.stderr.readline(), "the first run is done, so the workers are there"
    children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    assert len(children) >= 2
    ends = [os.pidfd_open(pid) for pid in children]
    parent.kill()
    parent.wait()
    parent.stderr.close()
    for end in ends:
        assert select.select([end], [], [], 60)[0], "a worker goes on without its parent"
        os.close(end)


def test_cells_of_one_workflow_set_follow_each_other() -> None:
    cells = [small(layout, seed=seed, policy=policy) for policy in ("lru", "lae") for seed in (0, 1) for layout in ("private", "shared")]
    ordered = sorted(cells, key=pool._neighbours)
    assert [(c.source.layout, c.seed) for c in ordered[::2]] == [(c.source.layout, c.seed) for c in ordered[1::2]]


def test_progress_tells_the_time_left() -> None:
    times = iter([0.0, 30.0, 60.0, 61.0])
    out = io.StringIO()
    progress = Progress(10, "runs", out, lambda: next(times))
    progress.known(4)
    progress.step()
    progress.step()
    assert out.getvalue().splitlines()[-1] == "runs [" + "#" * 18 + "." * 12 + "] 6/10, 4 known, 2 min 00 s left"
    progress.close()


def test_a_study_is_written_as_report_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbkv.bench.study.experiments", tiny)
    study = run_study(Scope(), range(2), [], CellCache(tmp_path / "cells"), 1)
    html, text, data = (path.read_text() for path in write(study, tmp_path / "out"))
    assert "<svg" in html and "### HoVer, private" in text
    results = json.loads(data)
    assert results["defaults"]["gamma"] == 0.8 and results["about"]["workflow sets"] == "0, 1"
    assert [row["series"] for row in results["experiments"]["pressure"]] == ["lru", "lae", "he bayes"]
    mean, low, high = results["experiments"]["pressure"][2]["figures"]["hit"]
    assert low <= mean <= high and low != high
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"output folder .*file.*-o"):
        write(study, tmp_path / "file")


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    refused(pbkv("bench", "paper", "--only", "magic", "--cells", str(tmp_path)), "--only 'magic'", "pressure")
    refused(pbkv("bench", "paper", "--trace", "nothing", "--cells", str(tmp_path)), "--trace 'nothing'", "NAME=PATH")
    refused(pbkv("bench", "paper", "--trace", f"a={tmp_path}/none", "--cells", str(tmp_path)), "does not exist")
    refused(pbkv("bench", "paper", "--jobs", "0"), "--jobs")


def test_the_command_runs_an_experiment(tmp_path: Path) -> None:
    folders = ["--cells", str(tmp_path / "cells"), "-o", str(tmp_path)]
    line = ["bench", "paper", "--quick", "--only", "discount", "--json", "--jobs", "1", *folders]
    done = pbkv(*line, timeout=300)
    assert done.status == 0, done.err
    assert json.loads(done.out)["about"]["workflow sets"] == "0"
    assert "left" in done.err and "report.html" in done.err
    again = pbkv(*line, timeout=300)
    assert json.loads(again.out) == json.loads(done.out)
