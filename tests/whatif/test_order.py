"""The order of calls where nothing depends on the cache."""

from dataclasses import replace

from pbkv.engine.settings import EngineSettings
from pbkv.whatif.order import in_order, order_of
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording
from tests.whatif.small import small

CALL = RecordedCall("a", (1,), 65, 40, (), False, 0, NOWHERE, 2.0)  # alone: 5 ms + 65 / 12,000 s + 40 x 25 ms


def chain(name: str, calls: int, start_s: float = 0.0) -> RecordedWorkflow:
    return RecordedWorkflow(name, tuple(CALL._replace(after=n - 1 if n else NOWHERE) for n in range(calls)), start_s)


def recording(*workflows: RecordedWorkflow, concurrency: int | None = None) -> Recording:
    return Recording("made", workflows, EngineSettings(), concurrency=concurrency)


def test_a_call_waits_for_the_one_before_and_its_delay() -> None:
    turns = order_of(recording(chain("w", 3, 5.0)))
    assert [round(turn.at, 3) for turn in turns] == [7.0, 10.01, 13.021]


def test_an_open_loop_keeps_its_starts() -> None:
    turns = order_of(recording(chain("a", 2), chain("b", 1, 0.5), chain("c", 1, 9.0)))
    assert [(turn.workflow, turn.call) for turn in turns] == [(0, 0), (1, 0), (0, 1), (2, 0)]


def test_so_many_workflows_at_a_time() -> None:
    made = small(workflows=40)
    assert made.concurrency == 12
    for concurrency in (None, 1, 3, 500):
        turns = order_of(made, concurrency)
        assert sorted((turn.workflow, turn.call) for turn in turns) == [
            (n, m) for n, workflow in enumerate(made.workflows) for m in range(len(workflow.calls))
        ]
        live, most = dict[int, int](), 0
        for turn in turns:
            live[turn.workflow] = live.get(turn.workflow, 0) + 1
            most = max(most, len(live))
            if live[turn.workflow] == len(made.workflows[turn.workflow].calls):
                del live[turn.workflow]
        assert most <= (concurrency or 12)
        assert [turn.at for turn in turns] == sorted(turn.at for turn in turns)


def test_calls_that_wait_for_the_same_one_come_together() -> None:
    fan = RecordedWorkflow("w", (CALL, CALL._replace(after=0), CALL._replace(after=0, delay_s=1.0), CALL._replace(after=2)))
    assert [turn.call for turn in order_of(recording(fan))] == [0, 2, 1, 3]


def test_arrivals_that_were_seen_decide_unless_a_concurrency_is_asked_for() -> None:
    late = chain("a", 2)._replace(calls=(CALL._replace(arrived=4.0), CALL._replace(arrived=9.0, after=0)))
    early = chain("b", 1)._replace(calls=(CALL._replace(arrived=5.0),))
    made = recording(late, early)
    assert [(turn.workflow, turn.at) for turn in order_of(made)] == [(0, 4.0), (1, 5.0), (0, 9.0)]
    assert [turn.workflow for turn in order_of(made, 1)] == [0, 0, 1]
    unseen = replace(made, workflows=(late, chain("b", 1)))
    assert order_of(unseen)[0].at == 2.0


def test_calls_in_their_order() -> None:
    made = recording(chain("a", 2), chain("b", 1, 0.5))
    assert [call.after for call in in_order(made, order_of(made))] == [NOWHERE, NOWHERE, 0]
