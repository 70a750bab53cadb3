"""CacheState where an example says more than a random walk: retirement, late checkpoints, bounds, flush."""

import pytest

from pbkv import state as state_module
from pbkv.eviction.base import next_vector, reuse_vector
from pbkv.eviction.he import He
from pbkv.identity import CallIdentity
from pbkv.knobs import K_MAX, KnobSet
from pbkv.predictor.base import END, Moment, Prediction
from pbkv.reads import Reads
from pbkv.record import SCORE_ONE, NodeRecord
from pbkv.state import MAX_PATH, CacheState
from tests.core.fakes import Notes, Scripted, record


class Fixed(Scripted):
    """Always predicts the same."""

    def __init__(self, prediction: Prediction) -> None:
        super().__init__()
        self.prediction = prediction

    def predict(self, moment: Moment) -> Prediction:
        return self.prediction


TWO_STEPS = Prediction(({0: 0.5, 1: 0.25}, {0: 0.25, 1: 0.5}, *({} for _ in range(K_MAX - 2))), (0.25, 0.0) + (0.0,) * (K_MAX - 2))


def make(prediction: Prediction = TWO_STEPS, **knobs: object) -> tuple[CacheState, Notes, Fixed]:
    notes, predictor, knob_set = Notes(), Fixed(prediction), KnobSet()
    knob_set.values.update(knobs)  # type: ignore[arg-type]
    return CacheState(knob_set, predictor, He(), Reads(), notes), notes, predictor


def call(state: CacheState, name: str, agent: str, path: list[NodeRecord], *, final: bool = False) -> None:
    workflow, agent_id = state.begin_call(CallIdentity(name, agent, final))
    state.touch(workflow, agent_id, path)
    state.end_call(workflow, final=final)


def test_the_score_of_one_agent_is_worked_out_by_hand() -> None:
    state, _, _ = make(gamma=0.5, k=2)
    shared = record()
    call(state, "w", "a", [shared])
    assert shared.score / SCORE_ONE == 0.5 + 0.5 * 0.25
    assert shared.value / SCORE_ONE == 0.5
    call(state, "w", "b", [shared])  # agents 0 and 1 have touched it now
    assert shared.score / SCORE_ONE == (0.5 + 0.25) + 0.5 * (0.25 + 0.5)


def test_scores_of_workflows_add_up_and_are_taken_back_exactly() -> None:
    state, _, _ = make()
    shared = record()
    call(state, "first", "a", [shared])
    alone = shared.score
    for n in range(50):
        call(state, f"other {n}", "b", [shared])
    for n in range(50):
        state.close(f"other {n}")
    assert shared.score == alone


@pytest.mark.parametrize(("gamma", "k", "expected"), [(0.0, 8, 0.5), (1.0, 1, 0.5), (1.0, 2, 0.75), (0.5, 2, 0.625), (0.8, 8, 0.7)])
def test_gamma_and_k_rescore_from_the_stored_prediction(gamma: float, k: int, expected: float) -> None:
    state, _, predictor = make()
    node = record()
    call(state, "w", "a", [node])
    predictor.prediction = Prediction()  # not asked again
    state.knobs.values.update(gamma=gamma, k=k)
    state.rescore()
    assert node.score / SCORE_ONE == pytest.approx(expected, abs=1e-11)


def test_after_a_final_call_nothing_is_expected() -> None:
    state, notes, predictor = make()
    node = record()
    workflow, agent = state.begin_call(CallIdentity("w", "a", final=True))
    state.touch(workflow, agent, [node])
    assert node.score == 0
    assert not node.retired  # it still runs
    state.end_call(workflow, final=True)
    assert node.retired
    assert notes.retirements == [(workflow, "final", [node])]
    assert predictor.seen[-1] == (0, END)


def test_a_workflow_retires_with_its_last_running_call() -> None:
    state, notes, _ = make()
    node = record()
    first, agent = state.begin_call(CallIdentity("w", "a"))
    state.touch(first, agent, [node])
    state.begin_call(CallIdentity("w", "b"))
    assert state.close("w")
    state.end_call(first)
    assert not node.retired
    state.end_call(first)
    assert node.retired
    assert [reason for _, reason, _ in notes.retirements] == ["closed"]
    assert not state.close("w")


def test_a_late_checkpoint_does_not_revive_nodes() -> None:
    state, _, _ = make()
    node, late = record(), record()
    workflow, agent = state.begin_call(CallIdentity("w", "a"))
    state.touch(workflow, agent, [node])
    state.end_call(workflow, final=True)
    state.touch(workflow, agent, [node, late])
    assert node.retired
    assert not late.touched
    assert not workflow.records


def test_a_name_that_comes_back_is_another_workflow() -> None:
    state, notes, _ = make()
    old, new = record(), record()
    call(state, "w", "a", [old], final=True)
    call(state, "w", "a", [new])
    assert old.retired
    assert not new.retired
    first, second = notes.starts
    assert first is not second
    assert first.name_id != second.name_id
    assert second.step == 0


def test_a_shared_node_retires_with_the_last_of_its_workflows() -> None:
    state, notes, _ = make()
    shared, own = record(), record()
    call(state, "one", "a", [shared, own])
    call(state, "two", "a", [shared])
    state.close("one")
    assert (shared.retired, own.retired) == (False, True)
    assert notes.retirements[-1][2] == [own]
    state.close("two")
    assert shared.retired
    assert notes.retirements[-1][2] == [shared]


def test_an_unattributed_call_keeps_a_node_from_retiring() -> None:
    state, notes, _ = make()
    node = record()
    call(state, "w", "a", [node])
    state.touch_anonymous([node])
    state.close("w")
    assert not node.retired
    assert notes.retirements[-1][2] == []


def test_idle_workflows_retire_whatever_began_before_them() -> None:
    """The order of retirement is the order of last calls, not of first ones: a long call must not hide an idle workflow behind it."""
    state, notes, _ = make(retire_idle_s=100.0)
    slow, _ = state.begin_call(CallIdentity("slow", "a"))
    state.tick(1.0)
    call(state, "quick", "a", [])
    state.tick(90.0)
    state.end_call(slow)
    state.tick(102.0)
    assert [(w.name, r) for w, r, _ in notes.retirements] == [("quick", "idle")]
    state.tick(190.0)
    assert [w.name for w, _, _ in notes.retirements] == ["quick", "slow"]


def test_a_running_workflow_is_never_idle_and_never_hides_idle_ones() -> None:
    state, notes, _ = make(retire_idle_s=10.0)
    running, _ = state.begin_call(CallIdentity("running", "a"))
    call(state, "idle", "a", [])
    state.tick(1000.0)
    assert [w.name for w, _, _ in notes.retirements] == ["idle"]
    state.end_call(running)
    state.tick(1009.0)
    assert list(state.live) == ["running"]
    state.tick(1010.0)
    assert not state.live


def test_the_clock_never_goes_back() -> None:
    state, _, _ = make()
    state.tick(50.0)
    state.tick(10.0)
    assert state.now == 50.0


def test_room_is_made_by_retiring_the_longest_idle_and_never_a_running_one() -> None:
    notes, knobs = Notes(), KnobSet()
    state = CacheState(knobs, Fixed(TWO_STEPS), He(), Reads(), notes, max_workflows=2)
    running, _ = state.begin_call(CallIdentity("running", "a"))
    call(state, "idle", "a", [])
    call(state, "new", "a", [])
    assert [(w.name, r) for w, r, _ in notes.retirements] == [("idle", "idle")]
    state.begin_call(CallIdentity("new", "a"))
    state.begin_call(CallIdentity("third", "a"))  # all run: nobody is thrown out
    assert set(state.live) == {"running", "new", "third"}
    assert running.ended is None


def test_agent_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MAX_AGENTS", 5)
    state, _, _ = make()
    ids = [state.agent_id(f"agent {n}") for n in range(50)]
    assert len(state.agents) == len(state.agent_names) == 6
    assert len(set(ids)) == 6
    assert state.agent_names[ids[-1]] == "(other)"
    assert state.agent_id("agent 0") == ids[0]
    assert state.agent_id("(other)") == ids[-1]


def test_an_unnamed_agent_has_a_name_of_its_own() -> None:
    state, _, _ = make()
    assert state.agent_names[state.agent_id("")] == "(unnamed)"
    assert state.agent_id("") == state.agent_id("(unnamed)")


def test_paths_are_bounded_and_steps_go_on() -> None:
    state, _, _ = make()
    for _ in range(MAX_PATH + 50):
        call(state, "w", "a", [])
    workflow = state.live["w"]
    assert len(workflow.path) == MAX_PATH
    assert workflow.step == MAX_PATH + 49


def test_transitions_are_learned_in_order() -> None:
    state, _, predictor = make()
    for agent in "aba":
        call(state, "w", agent, [])
    state.close("w")
    assert predictor.seen == [(None, 0), (0, 1), (1, 0), (0, END)]


def test_an_aborted_end_teaches_nothing() -> None:
    state, _, predictor = make()
    call(state, "w", "a", [])
    state.close("w", "aborted")
    assert predictor.seen == [(None, 0)]


def test_a_flush_leaves_nothing_behind_and_workflows_go_on() -> None:
    state, notes, _ = make()
    old, new = record(), record()
    call(state, "w", "a", [old])
    state.reset()
    workflow = state.live["w"]
    assert not workflow.records
    assert not old.live
    call(state, "w", "a", [new])
    assert list(workflow.records) == [new]
    state.close("w")
    assert notes.retirements[-1][2] == [new]


def test_a_split_in_the_middle_of_a_call_counts_for_both_parts() -> None:
    state, _, _ = make()
    whole = record()
    workflow, agent = state.begin_call(CallIdentity("w", "a"))
    state.touch(workflow, agent, [whole])
    whole.hits, whole.evicted_step, whole.access_ns = 3, 17, 99
    prefix = record()
    state.split(prefix, whole)
    assert (prefix.score, prefix.value, prefix.hits) == (whole.score, whole.value, 3)
    assert (prefix.evicted_step, prefix.access_ns, prefix.last_workflow) == (17, 99, workflow.name_id)
    state.touch(workflow, 99, [prefix])
    assert 99 not in whole.live[workflow].agents, "from then on the parts have histories of their own"
    state.end_call(workflow, final=True)
    assert prefix.retired
    assert whole.retired


def test_vectors_of_an_empty_prediction_are_empty() -> None:
    assert reuse_vector(Prediction(), 0.8, 3) == {}
    assert next_vector(Prediction()) == {}


def test_survival_is_what_ends_leave() -> None:
    prediction = Prediction(({}, {}, {}), (0.25, 0.5, 0.5))
    assert [prediction.survival(k) for k in (1, 2, 3, 4)] == [1.0, 0.75, 0.25, 0.0]


def test_a_value_that_changes_under_an_equal_score_is_announced_and_kept() -> None:
    state, notes, predictor = make(Prediction(({0: 0.5}, {0: 0.25}), (0.0, 0.0)), gamma=1.0, k=2)
    node = record()
    call(state, "w", "a", [node])
    score = node.score
    notes.changes.clear()
    predictor.prediction = Prediction(({0: 0.25}, {0: 0.5}), (0.0, 0.0))
    call(state, "w", "a", [])
    assert node.score == score
    assert node.value == SCORE_ONE // 4
    assert notes.changes == [node]
    assert not notes.falls[1:]
