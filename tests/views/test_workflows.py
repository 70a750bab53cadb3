"""Which workflows are live, and what was predicted for them."""

from collections.abc import Callable

from collector.views.models import LiveWorkflow, Overview
from tests.support.hand import Hand

Load = Callable[..., Overview]


def one(o: Overview) -> LiveWorkflow:
    assert len(o.workflows) == 1
    return o.workflows[0]


def test_predicted_and_actual_agent_side_by_side(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("workflow", 0.5, workflow="w", event="start")
        h.predict(1, "w", 0, ["coder", "END"], p=0.75)
        h.call(2, "w", "planner", 0, prompt_tokens=100, device_hit_tokens=20)
        h.predict(3, "w", 1, ["tester"], p=0.5)
        h.call(4, "w", "coder", 1, prompt_tokens=300, host_hit_tokens=80)

    w = one(overview(fill))
    assert (w.workflow, w.step, w.agent, w.calls, w.prompt_tokens) == ("w", 1, "coder", 2, 400)
    assert (w.predicted_last, w.hit, w.predicted_next, w.p_next) == ("coder", True, "tester", 0.5)
    assert (w.hit_rate, w.idle_s) == (0.25, 0.0)


def test_a_wrong_prediction_and_a_predicted_end(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(1, "w", 0, ["END"], p_end=0.9)
        h.call(2, "w", "a", 0)
        h.predict(3, "w", 1, ["END"], p_end=0.625)
        h.call(4, "w", "b", 1)

    w = one(overview(fill))
    assert (w.predicted_last, w.hit, w.agent) == ("END", False, "b")
    assert (w.predicted_next, w.p_next) == ("END", 0.625)


def test_without_predictions_nothing_is_right_or_wrong(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(2, "w", "a", 3)

    w = one(overview(fill))
    assert (w.step, w.predicted_last, w.hit, w.predicted_next, w.p_next) == (3, None, None, None, None)


def test_ended_retired_and_final_workflows_are_not_live(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        for name in ("ended", "retired", "running", "started"):
            h.row("workflow", 1, workflow=name, event="start")
        for name in ("ended", "retired", "running"):
            h.call(2, name, "a", 0)
        h.row("workflow", 3, workflow="ended", event="end", reason="closed", steps=1)
        h.row("workflow", 3, workflow="retired", event="retire", reason="idle", steps=1)
        h.call(4, "final", "a", 0, final=1)

    o = overview(fill)
    assert {(w.workflow, w.calls, w.agent) for w in o.workflows} == {("running", 1, "a"), ("started", 0, "")}


def test_a_workflow_that_starts_again_is_live_again(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("workflow", 1, workflow="w", event="start")
        h.row("workflow", 2, workflow="w", event="end", reason="closed", steps=0)
        h.row("workflow", 3, workflow="w", event="start")

    assert one(overview(fill)).workflow == "w"


def test_unattributed_calls_make_no_workflow(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, None, None, 0)

    assert overview(fill).workflows == ()


def test_a_quiet_workflow_stays_live_beyond_the_window(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "quiet", "a", 0)
        h.row("batch", 300, mode="decode")

    o = overview(fill, 60.0)
    assert (one(o).workflow, one(o).idle_s, o.hit_rate.calls) == ("quiet", 299.0, 0)


def test_the_most_recently_active_come_first(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        for at, name in ((1, "first"), (3, "third"), (2, "second")):
            h.call(at, name, "a", 0)

    assert [w.workflow for w in overview(fill).workflows] == ["third", "second", "first"]


def test_a_lost_name_is_shown_by_its_id(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("call", 1, workflow=77, agent=78, attributed=1)

    w = one(overview(fill))
    assert (w.workflow, w.agent) == ("#77", "#78")


def test_the_same_name_as_workflow_and_agent_is_kept_apart(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "same", "same", 0)

    w = one(overview(fill))
    assert (w.workflow, w.agent) == ("same", "same")
