"""Every kind the policy writes, decoded again from the wire: right values, right names, and no value that breaks the writer."""

from typing import Any

import numpy as np
import pytest

from pbkv.events.schema import BY_NAME, EVENT_KINDS, Namespace
from pbkv.events.wire import decode
from pbkv.events.writer import EventWriter
from pbkv.knobs import Change
from pbkv.predictor.base import Prediction
from pbkv.record import PROMPT, SCORE_ONE, Access, NodeRecord
from pbkv.telemetry import SCORES_PER_STEP, CallReport, Telemetry
from pbkv.workflow import Workflow
from tests.core import fakes
from tests.core.fakes import Node, record
from tests.support.stream import Recorder


class Bench:
    """A telemetry on a recorder. Tier and parent are whatever a test says."""

    def __init__(self) -> None:
        self.sink = Recorder()
        self.tier, self.parent = "device", 11
        self.agents = ["planner", "coder", "critic", "(unnamed)"]
        self.writer = EventWriter("t", self.sink, epoch=1)
        self.telemetry = Telemetry(self.writer, lambda r: self.tier, lambda r: self.parent, self.agents)
        self.telemetry.now_s, self.telemetry.arrivals = lambda: 1.25, lambda: 7
        self._names: dict[int, tuple[str, str]] = {}

    def rows(self, kind: str, step: int = 5) -> list[dict[str, Any]]:
        """End the step; the rows of `kind` with codes and names in words."""
        self.telemetry.end_step(step)
        rows: list[dict[str, Any]] = []
        for payload in self.sink.payloads:
            message = decode(payload)
            assert message.header.step == step
            for name in message.tables.get("name", ()):
                self._names[int(name["id"])] = (Namespace(int(name["namespace"])).name, name["text"].decode())
            rows += [self._row(kind, row) for row in message.tables.get(kind, ())]
        self.sink.payloads.clear()
        return rows

    def _row(self, kind: str, row: np.void) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in BY_NAME[kind].fields:
            value = row[field.name].item()
            if field.values:
                value = field.values[value]
            elif field.ref is not None:
                namespace, text = self._names[value] if value else (field.ref.name, None)
                assert namespace == field.ref.name
                value = text
            found[field.name] = value
        return found


def workflow(name: str, number: int = 1) -> Workflow:
    """One that has made its first call, as every workflow has that is written about."""
    made = fakes.workflow(name, number)
    made.calls = 1
    return made


@pytest.fixture
def bench() -> Bench:
    return Bench()


def report(**fields: Any) -> CallReport:
    values: dict[str, Any] = {
        "workflow": workflow("w"), "agent": "coder", "step": 3, "final": False, "aborted": False, "prompt_tokens": 100,
        "device_hit_tokens": 60, "host_hit_tokens": 16, "output_tokens": 7, "queue_ms": 1.5, "prefill_ms": 2.5, "ttft_ms": 4.0,
        "e2e_ms": 9.25, "end_node": 2**40, "end_page": 2**63 + 1, "pages": 6, "arrived_s": 1 / 3, "ended_s": 2 / 3, "max_tokens": 9,
        "place": 4,
    }
    return CallReport(**{**values, **fields})


def test_a_call(bench: Bench) -> None:
    bench.telemetry.call(report())
    bench.telemetry.call(report(workflow=None, agent="", step=0, final=True, aborted=True, device_hit_tokens=90, host_hit_tokens=90))
    named, other = bench.rows("call")
    assert named == {
        "workflow": "w", "agent": "coder", "step": 3, "attributed": 1, "final": 0, "status": "done", "prompt_tokens": 100,
        "device_hit_tokens": 60, "host_hit_tokens": 16, "recomputed_tokens": 24, "output_tokens": 7, "queue_ms": 1.5, "prefill_ms": 2.5,
        "ttft_ms": 4.0, "e2e_ms": 9.25, "end_node": 2**40, "end_page": 2**63 + 1, "pages": 6, "arrived_s": 1 / 3, "ended_s": 2 / 3,
        "max_tokens": 9, "place": 4,
    }
    assert (other["workflow"], other["agent"], other["attributed"], other["final"], other["status"]) == (None, None, 0, 1, "aborted")
    assert other["recomputed_tokens"] == 0


def test_a_page(bench: Bench) -> None:
    bench.telemetry.page(2**64 - 1, 0, 1)
    assert bench.rows("page") == [{"page": 2**64 - 1, "parent": 0, "depth": 1}]


@pytest.mark.parametrize("reason", BY_NAME["workflow"].field("reason").values)
def test_a_workflow(bench: Bench, reason: str) -> None:
    made = workflow("w")
    made.calls = 4
    bench.telemetry.workflow(made, "start")
    bench.telemetry.workflow(made, "end", reason)
    bench.telemetry.workflow(made, "retire", reason, 320, 640)
    rows = bench.rows("workflow")
    assert [r["event"] for r in rows] == ["start", "end", "retire"]
    assert rows[2] == {
        "workflow": "w", "event": "retire", "reason": reason, "steps": 4, "retired_device_tokens": 320, "retired_host_tokens": 640,
        "at_s": 1.25,
    }


def test_a_prediction_is_written_given_that_the_workflow_goes_on(bench: Bench) -> None:
    made = workflow("w")
    made.calls = 3
    made.prediction = Prediction(({0: 0.5, 1: 0.25, 2: 0.125, 3: 0.0625}, {1: 0.4}, {}), (0.0625, 0.5375, 0.4))
    bench.telemetry.prediction(made, 7, 12.5)
    rows = bench.rows("prediction")
    first = [r for r in rows if r["horizon"] == 1]
    assert [(r["position"], r["agent"], r["p"]) for r in first] == [(0, "planner", 0.5), (1, "coder", 0.25), (2, "critic", 0.125)]
    assert {(r["workflow"], r["step"], r["predictor"], r["latency_us"], r["survival"]) for r in first} == {("w", 2, 7, 12.5, 1.0)}
    second = [r for r in rows if r["horizon"] == 2]
    assert [(r["position"], r["agent"]) for r in second] == [(0, None), (1, "coder")]
    assert second[0]["p"] == second[0]["p_end"] == pytest.approx(0.5375 / 0.9375)
    assert second[1]["p"] == pytest.approx(0.4 / 0.9375)
    third = [r for r in rows if r["horizon"] == 3]
    assert [(r["agent"], r["p"]) for r in third] == [(None, pytest.approx(1.0))]


def test_horizons_after_a_certain_end_are_not_written(bench: Bench) -> None:
    made = workflow("w")
    made.prediction = Prediction(({}, {0: 0.0}, {}), (1.0, 0.0, 0.0))
    bench.telemetry.prediction(made, 1, 0.0)
    assert [(r["horizon"], r["agent"], r["p"]) for r in bench.rows("prediction")] == [(1, None, 1.0)]


def test_equal_probabilities_are_in_a_fixed_order(bench: Bench) -> None:
    made = workflow("w")
    made.prediction = Prediction(({3: 0.25, 1: 0.25, 2: 0.25, 0: 0.25},), (0.0,))
    bench.telemetry.prediction(made, 1, 0.0)
    assert [r["agent"] for r in bench.rows("prediction")] == ["planner", "coder", "critic"]


def scored() -> NodeRecord:
    made = record(Node(42.75), tokens=48)
    made.touched, made.score, made.value, made.hits = True, SCORE_ONE * 3 // 2, SCORE_ONE // 4, 5
    w, v = Access(0, PROMPT, 0), Access(1, PROMPT, 0)
    v.value = 9
    made.live = {workflow("w", 1): w, workflow("v", 2): v}
    return made


@pytest.mark.parametrize("tier", BY_NAME["node_score"].field("tier").values)
def test_a_node_score(bench: Bench, tier: str) -> None:
    bench.tier, made = tier, scored()
    made.page = 2**63 + 5
    bench.telemetry.node_score(made, snapshot=True, workflow=bench.writer.intern(Namespace.WORKFLOW, "past"))
    assert bench.rows("node_score") == [{
        "node": made.node_id, "parent": 11, "tokens": 48, "tier": tier, "score": 1.5, "value": 0.25, "live_workflows": 2, "retired": 0,
        "last_access": 42, "hits": 5, "snapshot": 1, "page": 2**63 + 5, "workflow": "past",
    }]


def test_a_change_of_rank_is_written_once_with_the_values_at_the_end_of_the_step(bench: Bench) -> None:
    made = scored()
    for _ in range(3):
        bench.telemetry.changed(made)
    made.score = SCORE_ONE * 2
    rows = bench.rows("node_score")
    assert [(r["score"], r["snapshot"]) for r in rows] == [(2.0, 0)]
    assert bench.rows("node_score") == []


def test_changes_of_rank_are_bounded_per_step(bench: Bench) -> None:
    for _ in range(SCORES_PER_STEP + 50):
        bench.telemetry.changed(record())
    assert len(bench.rows("node_score")) == SCORES_PER_STEP


def test_a_node_that_left_the_tree_is_not_written(bench: Bench) -> None:
    made = scored()
    bench.telemetry.changed(made)
    bench.telemetry.forget(made)
    bench.telemetry.forget(made)
    assert bench.rows("node_score") == []


@pytest.mark.parametrize("decision", BY_NAME["eviction"].field("decision").values)
def test_an_eviction(bench: Bench, decision: str) -> None:
    made = scored()
    made.created_ns, made.access_ns = 1_000_000, 3_000_000
    bench.telemetry.now_ns = lambda: 9_000_000
    name = bench.writer.intern(Namespace.WORKFLOW, "past")
    bench.telemetry.eviction(made, "device", "host", decision, 17, 2**40, name)
    assert bench.rows("eviction") == [{
        "node": made.node_id, "tokens": 48, "from_tier": "device", "to_tier": "host", "decision": decision, "score": 1.5, "age_ms": 8.0,
        "idle_ms": 6.0, "reuse": 5, "leaves": 17, "decision_ns": 2**32 - 1, "workflow": "past",
    }]


@pytest.mark.parametrize("result", BY_NAME["prefetch"].field("result").values)
def test_a_prefetch(bench: Bench, result: str) -> None:
    made = scored()
    bench.telemetry.prefetch(3, "outcome", result, made, 48, 2**40)
    bench.telemetry.prefetch(0, "decision", result, None, 0, 0)
    with_node, without = bench.rows("prefetch")
    assert with_node == {
        "prefetch": 3, "phase": "outcome", "result": result, "node": made.node_id, "tokens": 48, "bytes": 2**40, "value": 0.25,
        "workflow": "v",
    }
    assert (without["prefetch"], without["phase"], without["node"], without["value"], without["workflow"]) == (0, "decision", 0, 0.0, None)


def test_a_prefetch_of_a_node_nobody_needs_any_more(bench: Bench) -> None:
    bench.telemetry.prefetch(1, "outcome", "evicted_unused", record(), 16, 1600)
    assert bench.rows("prefetch")[0]["workflow"] is None


def test_a_window_an_occupancy_and_a_batch(bench: Bench) -> None:
    bench.telemetry.window(2**50, 1250.5, 10**12, 5, 7)
    bench.telemetry.occupancy(*range(11))
    for mode in BY_NAME["batch"].field("mode").values:
        bench.telemetry.batch(mode, 2, 300, 12.5)
    bench.telemetry.end_step(5)
    payloads = list(bench.sink.payloads)
    assert bench.rows("pcie_window") == [{"start_ns": 2**50, "length_us": 1250.5, "capacity_bytes": 10**12, "h2d_bytes": 5, "d2h_bytes": 7}]
    bench.sink.payloads[:] = payloads
    assert list(bench.rows("occupancy")[0].values()) == list(range(11))
    bench.sink.payloads[:] = payloads
    assert [(r["mode"], r["requests"], r["tokens"], r["duration_us"]) for r in bench.rows("batch")] == [
        (mode, 2, 300, 12.5) for mode in ("idle", "prefill", "decode", "mixed")
    ]


@pytest.mark.parametrize("source", BY_NAME["knob"].field("source").values)
def test_a_knob(bench: Bench, source: str) -> None:
    bench.telemetry.knob(Change(4, "gamma", 0.8, 0.5, "me", source, ""))
    assert bench.rows("knob") == [
        {"version": 4, "name": "gamma", "old": "0.8", "new": "0.5", "actor": "me", "source": source, "reason": None, "at_s": 1.25,
         "arrivals": 7}
    ]


def test_settings(bench: Bench) -> None:
    bench.telemetry.settings({"page_size": "64", "timing.prefill_base_s": repr(1 / 3), "empty": ""})
    assert bench.rows("setting") == [
        {"name": "page_size", "value": "64", "at_s": 1.25}, {"name": "timing.prefill_base_s", "value": repr(1 / 3), "at_s": 1.25},
        {"name": "empty", "value": None, "at_s": 1.25},
    ]


def test_every_kind_is_covered_here(bench: Bench) -> None:
    """One message with all twelve kinds decodes, in the order they were written."""
    made, flow = scored(), workflow("w")
    flow.prediction = Prediction(({0: 1.0},), (0.0,))
    t = bench.telemetry
    t.call(report())
    t.page(1, 0, 1)
    t.workflow(flow, "start")
    t.prediction(flow, 1, 1.0)
    t.node_score(made, snapshot=False)
    t.eviction(made, "host", "none", "tie", 1, 1, 0)
    t.prefetch(1, "decision", "issued", made, 1, 1)
    t.window(1, 1.0, 1, 1, 1)
    t.occupancy(*[0] * 11)
    t.batch("decode", 1, 1, 1.0)
    t.knob(Change(1, "k", 3, 4, "a", "manual", "r"))
    t.settings({"page_size": "64"})
    t.end_step(9)
    assert len(bench.sink.payloads) == 1
    tables = decode(bench.sink.payloads[0]).tables
    assert set(tables) == {*EVENT_KINDS, "name"}
    order = sorted((int(i), kind) for kind, table in tables.items() if kind != "name" for i in table["idx"])
    assert [kind for _, kind in order] == list(EVENT_KINDS)


def test_nothing_to_say_sends_nothing(bench: Bench) -> None:
    bench.telemetry.end_step(1)
    assert bench.sink.payloads == []


def test_many_live_workflows_fit(bench: Bench) -> None:
    made = record()
    made.live = {workflow(f"w{n}", n): Access(0, PROMPT, 0) for n in range(70_000)}
    bench.telemetry.node_score(made, snapshot=False)
    assert bench.rows("node_score")[0]["live_workflows"] == 65_535


def test_hostile_names_are_written(bench: Bench) -> None:
    for name in ("\ud800", "a\0b", "ü" * 256, "x" * 256, "x" * 255 + "y"):
        bench.telemetry.workflow(Workflow(name, 1, 0.0), "start")
    rows = [r["workflow"] for r in bench.rows("workflow")]
    assert len(set(rows)) == 5
    assert all(len(r.encode()) <= 120 for r in rows)
