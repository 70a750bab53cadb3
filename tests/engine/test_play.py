"""The player: who is started when, what is measured, open and closed loop."""

from collections.abc import Iterator

import numpy as np
import pytest

from pbkv.engine.engine import Engine
from pbkv.engine.play import PlaySettings, play
from pbkv.engine.requests import EngineRequest
from pbkv.errors import UsageError
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow
from tests.engine.test_engine import engine
from tests.engine.workloads import Mixed


class Script:
    """A workload that is a list."""

    name = "script"

    def __init__(self, *workflows: TokenWorkflow) -> None:
        self._workflows = workflows

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        return iter(self._workflows)


def chain(name: str, *delays: float, start: float | None = None, tokens: int = 20) -> TokenWorkflow:
    """Calls one after the other, each with a prompt of its own."""
    key = sum(name.encode()) * 1000
    last = len(delays) - 1
    calls = tuple(
        TokenCall("A", (Segment(key + n, tokens),), Segment(key + 500 + n, 5), delay, n == last) for n, delay in enumerate(delays)
    )
    return TokenWorkflow(name, calls, start)


def watched(made: Engine) -> list[tuple[str, float]]:
    """(workflow, arrival) of every call that enters the engine."""
    seen: list[tuple[str, float]] = []
    submit = made.submit

    def note(request: EngineRequest, at: float | None = None) -> None:
        seen.append((request.workflow, -1.0 if at is None else at))
        submit(request, at)

    made.submit = note  # type: ignore[method-assign]
    return seen


def test_delays_run_from_the_end_of_the_call_before() -> None:
    made = engine(device_tokens=4000)
    seen = watched(made)
    result = play(made, Script(chain("w", 0.0, 2.0, 0.5)), PlaySettings(concurrency=1, workflows=1))
    arrived, ended = result.calls["arrived"], result.calls["ended"]
    assert arrived.tolist() == [at for _, at in seen]
    assert arrived[0] == 0.0
    assert arrived[1:] - ended[:-1] == pytest.approx([2.0, 0.5])
    assert result.workflow_latency_mean == pytest.approx(ended[-1])


def test_so_many_workflows_at_a_time_and_the_first_ones_staggered() -> None:
    made = engine(device_tokens=4000)
    seen = watched(made)
    workflows = [chain(f"w{n}", 0.0, 1.0) for n in range(9)]
    play(made, Script(*workflows), PlaySettings(concurrency=3, workflows=9, stagger_s=0.3))
    first: dict[str, float] = {}
    for name, at in seen:
        first.setdefault(name, at)
    assert list(first) == [f"w{n}" for n in range(9)]
    assert [first[f"w{n}"] for n in range(3)] == pytest.approx([0.0, 0.1, 0.2])
    assert first["w3"] > 1.0, "the fourth waits for the end of one"


@pytest.mark.parametrize("policy", ["lae", "he", "first_use"])
def test_every_policy_is_given_the_same_workflows(policy: str) -> None:
    def prompts(name: str) -> dict[tuple[int, int], int]:
        rows = play(engine(name, page_size=16, device_tokens=900), Mixed(), PlaySettings(concurrency=9, workflows=40)).calls
        return {(row["workflow"], row["step"]): row["prompt"] for row in rows}

    assert prompts(policy) == prompts("lru")


def test_only_the_window_is_measured_and_the_load_kept_up() -> None:
    result = play(engine(page_size=16, device_tokens=900), Mixed(), PlaySettings(concurrency=8, workflows=20, warm=15))
    assert set(result.calls["workflow"]) == set(range(15, 35))
    assert result.workflows_measured == 20
    assert result.calls_played > result.calls_measured + 15


def test_figures_are_those_of_the_rows() -> None:
    result = play(engine(page_size=16, device_tokens=900, host_tokens=900), Mixed(), PlaySettings(concurrency=8, workflows=30))
    rows = result.calls
    ttft = rows["first_token"] - rows["arrived"]
    assert result.device_hit == pytest.approx(rows["device_hit"].sum() / rows["prompt"].sum())
    assert result.hit == pytest.approx((rows["device_hit"] + rows["host_hit"]).sum() / rows["prompt"].sum())
    assert (result.ttft_mean, result.ttft_p50) == pytest.approx((ttft.mean(), np.median(ttft)))
    assert result.ttft_p50 <= result.ttft_p95
    assert "calls" not in result.summary() and result.summary()["calls_measured"] == len(rows)
    assert (rows["arrived"] <= rows["admitted"]).all() and (rows["admitted"] < rows["first_token"]).all()
    assert (rows["first_token"] <= rows["ended"]).all()


def test_an_open_loop_starts_by_the_clock() -> None:
    made = engine(device_tokens=4000)
    seen = watched(made)
    workflows = [chain(f"w{n}", 0.0, 0.2, start=0.5 * n, tokens=50) for n in range(6)]
    result = play(made, Script(*workflows), PlaySettings(concurrency=1, workflows=6))
    first: dict[str, float] = {}
    for name, at in seen:
        first.setdefault(name, at)
    assert list(first.values()) == pytest.approx([0.5 * n for n in range(6)])
    assert result.workflows_measured == 6


def test_calls_without_identity_leave_no_workflows() -> None:
    made = engine("he", page_size=16, device_tokens=900)
    play(made, Mixed(attributed=False), PlaySettings(concurrency=6, workflows=20))
    assert made.manager.counts["unattributed"] == made.manager.counts["calls"] > 0
    assert not made.manager.state.live


def test_a_workload_that_ends_early_gives_what_it_had() -> None:
    result = play(engine(device_tokens=4000), Mixed(limit=5), PlaySettings(concurrency=3, workflows=100))
    assert result.workflows_measured == 5


def test_nothing_to_play_is_refused() -> None:
    with pytest.raises(UsageError, match="no call of workflows 0 to 9 ended"):
        play(engine(), Script(), PlaySettings(workflows=10))
    with pytest.raises(UsageError, match="it has 3"):
        play(engine(), Mixed(limit=3), PlaySettings(workflows=10, warm=50))


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"workflows": 0}, {"warm": -1}, {"stagger_s": -0.1}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        PlaySettings(**wrong)  # type: ignore[arg-type]


def test_a_play_leaves_no_garbage_behind_per_call() -> None:
    import gc

    made = engine("he", page_size=16, device_tokens=900, host_tokens=900)
    gc.collect()
    gc.disable()
    try:
        result = play(made, Mixed(), PlaySettings(concurrency=8, workflows=150))
        assert gc.collect() < result.calls_played, "the collector rests while a play runs"
    finally:
        gc.enable()
