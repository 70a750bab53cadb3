"""How long a batch took, as the log says it: the time of the turns in which it ran, not of those before it."""

from types import SimpleNamespace
from typing import Any

import pytest

from pbkv.events.schema import MODES
from pbkv.sglang import occupancy
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_calls import rows


class Turns:
    """Turns of a scheduler's loop on a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **scheduler: Any) -> None:
        self.bench = Bench(plugin={}, page=4, size=256, host=None, observe=True)
        self._now = 0
        monkeypatch.setattr(occupancy, "time", SimpleNamespace(monotonic_ns=lambda: self._now))
        self.bench.runtime.sampler = occupancy.Sampler(self.bench.runtime)
        self._scheduler = SimpleNamespace(
            waiting_queue=[], running_batch=SimpleNamespace(reqs=[]), max_running_requests=8, **scheduler,
        )

    def turn(self, batch: Any, after_us: int) -> None:
        self._now += after_us * 1000
        self.bench.runtime.after_plan(self._scheduler, batch)

    def told(self) -> list[tuple[Any, ...]]:
        found = [(MODES[r["mode"]], int(r["requests"]), int(r["tokens"]), float(r["duration_us"])) for r in rows(self.bench, "batch")]
        self.bench.close()
        return found


def batch(mode: str, requests: int, tokens: int = 0) -> Any:
    kind = {f"is_{name}": (lambda name=name: name == mode) for name in ("decode", "mixed", "extend")}
    return SimpleNamespace(forward_mode=SimpleNamespace(**kind), reqs=[object()] * requests, extend_num_tokens=tokens)


SCHEDULERS: list[tuple[dict[str, Any], bool]] = [
    ({}, False), ({"enable_overlap": True, "device": "cpu"}, False), ({"enable_overlap": False, "device": "cuda"}, False),
    ({"enable_overlap": True, "device": "cuda"}, True),
]


@pytest.mark.parametrize(("scheduler", "overlaps"), SCHEDULERS)
def test_a_batch_has_the_time_in_which_it_ran(scheduler: dict[str, Any], overlaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without overlap the turn that follows its choice, with overlap the turn after that one, in which SGLang waits for its result."""
    turns = Turns(monkeypatch, **scheduler)
    plan = [("idle", 900_000), ("extend", 800_000), ("decode", 50), ("decode", 7), ("idle", 11), ("idle", 13), ("idle", 400_000)]
    for mode, after_us in plan:
        turns.turn(None if mode == "idle" else batch(mode, 2, 96), after_us)
    took = (7, 11, 13) if overlaps else (50, 7, 11)
    assert turns.told() == [("prefill", 2, 96, took[0]), ("decode", 2, 2, took[1]), ("decode", 2, 2, took[2])]


def test_waiting_for_work_is_nobodys_time(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(monkeypatch)
    for n, mode in enumerate(["idle", "extend", "idle"] * 3):
        turns.turn(None if mode == "idle" else batch(mode, 1, 16), 30 if n % 3 == 2 else 1_000_000)
    assert [row[3] for row in turns.told()] == [30.0] * 3


def test_what_runs_is_told_as_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang merges and filters batches while they run."""
    turns, ran = Turns(monkeypatch), batch("mixed", 3, 40)
    turns.turn(ran, 10)
    ran.reqs.clear()
    turns.turn(None, 25)
    assert turns.told() == [("mixed", 3, 40, 25.0)]
