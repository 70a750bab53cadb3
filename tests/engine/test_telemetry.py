"""The engine's event stream: the same play writes the same bytes, and what it writes agrees with what happened."""

from typing import Any

import numpy as np
import pytest

from pbkv.engine.engine import Engine
from pbkv.engine.play import Played, PlaySettings, play
from pbkv.events.schema import BY_NAME, EVENT_KINDS
from pbkv.events.wire import decode
from pbkv.events.writer import EventWriter
from tests.engine.test_engine import engine
from tests.engine.workloads import Mixed
from tests.support.stream import Recorder

SHAPE: dict[str, Any] = {
    "policy": "he", "prefetch": "aggressive", "page_size": 16, "device_tokens": 1200, "host_tokens": 3000, "chunk_tokens": 128, "seed": 3,
}


def logged(made: Engine, **settings: Any) -> tuple[list[bytes], Played]:
    sink = Recorder()
    clock = lambda: int(made.now * 1e9)  # noqa: E731
    made.report_to(EventWriter("embedded", sink, epoch=1, monotonic_ns=clock, wall_ns=clock))
    return sink.payloads, play(made, Mixed(), PlaySettings(**{"concurrency": 10, "workflows": 60, **settings}))


def tables(payloads: list[bytes]) -> dict[str, np.ndarray]:
    """All records of each kind, in order."""
    found: dict[str, list[np.ndarray]] = {}
    for payload in payloads:
        for kind, table in decode(payload).tables.items():
            found.setdefault(kind, []).append(table)
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


@pytest.fixture(scope="module")
def recorded() -> tuple[Engine, dict[str, np.ndarray], Played]:
    made = engine(**SHAPE)
    payloads, result = logged(made)
    return made, tables(payloads), result


def test_the_same_seed_and_calls_write_the_same_log_byte_for_byte() -> None:
    assert logged(engine(**SHAPE))[0] == logged(engine(**SHAPE))[0]
    assert logged(engine(**SHAPE))[0] != logged(engine(**{**SHAPE, "seed": 4}))[0], "page ids are of the run"


def test_reporting_changes_nothing() -> None:
    with_log, without = logged(engine(**SHAPE))[1], play(engine(**SHAPE), Mixed(), PlaySettings(concurrency=10, workflows=60))
    assert with_log.calls.tobytes() == without.calls.tobytes()


def test_every_kind_of_event_is_there(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    assert set(recorded[1]) >= set(EVENT_KINDS) - {"knob"}


def test_calls_are_what_was_played(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    made, found, result = recorded
    calls = found["call"]
    assert len(calls) == result.calls_played
    assert (calls["device_hit_tokens"] + calls["host_hit_tokens"] + calls["recomputed_tokens"] == calls["prompt_tokens"]).all()
    assert (calls["queue_ms"] + calls["prefill_ms"] <= calls["ttft_ms"] * 1.001 + 0.01).all()
    assert (calls["ttft_ms"] <= calls["e2e_ms"]).all()
    assert (calls["attributed"] == 1).all()
    assert (calls["pages"] >= calls["prompt_tokens"] // 16).all()
    ours = calls[np.isin(calls["prompt_tokens"], result.calls["prompt"])]
    assert ours["device_hit_tokens"].sum() >= result.calls["device_hit"].sum()
    assert made.manager.counts["calls"] >= len(calls)


def test_batches_cover_all_tokens(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    made, found, _ = recorded
    batches, modes = found["batch"], BY_NAME["batch"].field("mode")
    prefill, decoded = (batches[batches["mode"] == modes.code(mode)] for mode in ("prefill", "decode"))
    assert (decoded["tokens"] % decoded["requests"] == 0).all(), "a whole number of steps each"
    computed = int(found["call"]["recomputed_tokens"].sum())
    assert prefill["tokens"].sum() >= computed
    generated = int(found["call"]["output_tokens"].sum())
    assert decoded["tokens"].sum() + len(found["call"]) >= generated
    assert batches["duration_us"].sum() / 1e6 <= made.now * 1.001


def test_occupancy_adds_up_to_the_pools(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    made, found, _ = recorded
    samples = found["occupancy"]
    device = sum(samples[f"device_{part}"].astype(int) for part in ("free", "active", "retired", "locked"))
    host = sum(samples[f"host_{part}"].astype(int) for part in ("free", "used", "retired"))
    assert (device == made.tree.device.size * 16).all()
    assert (host == made.tree.host.size * 16).all()
    assert samples["device_retired"].max() > 0
    assert samples["running"].max() <= 8


def test_evictions_are_counted_once(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    made, found, _ = recorded
    tiers = BY_NAME["eviction"].field("from_tier")
    gone = found["eviction"]
    assert (gone["from_tier"] == tiers.code("device")).sum() == made.manager.counts["evicted_nodes"]
    assert gone["tokens"][gone["from_tier"] == tiers.code("device")].sum() == made.manager.counts["evicted_tokens"]
    assert (gone["from_tier"] == tiers.code("host")).any()
    assert (gone["idle_ms"] <= gone["age_ms"] + 0.01).all()


def test_pages_form_a_trie_without_content(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    pages = recorded[1]["page"]
    assert len(set(pages["page"])) == len(pages)
    depth = {0: 0, **dict(zip(pages["page"].tolist(), pages["depth"].tolist(), strict=True))}
    assert all(depth[parent] + 1 == at for parent, at in zip(pages["parent"].tolist(), pages["depth"].tolist(), strict=True))
    assert set(recorded[1]["call"]["end_page"].tolist()) <= set(depth)


def test_prefetches_are_told_from_decision_to_outcome(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    _, found, result = recorded
    rows, results = found["prefetch"], BY_NAME["prefetch"].field("result")
    issued = rows[rows["result"] == results.code("issued")]
    assert len(issued) == result.prefetches > 0
    assert issued["bytes"].sum() == result.prefetch_bytes
    outcomes = [results.code(name) for name in ("used", "evicted_unused", "late")]
    told = rows["prefetch"][np.isin(rows["result"], outcomes)]
    assert len(set(told)) == len(told) <= len(issued)
    assert (rows["result"] == results.code("used")).any()


def test_windows_of_the_link_hold_what_moved_in_them(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    made, found, result = recorded
    windows = found["pcie_window"]
    assert (windows["length_us"] >= 0).all()
    assert windows["h2d_bytes"].sum() <= result.prefetch_bytes
    assert (windows["h2d_bytes"] <= windows["capacity_bytes"] * 1.01 + made.copies.bytes_per_page * 80).all()


def test_a_snapshot_of_a_large_tree_is_told_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the next one is due before it is complete."""
    monkeypatch.setattr("pbkv.engine.reporter.SNAPSHOT_CHUNK", 1)
    made = engine(**SHAPE)
    made.knobs.values["score_snapshot_s"] = 0.5
    payloads, _ = logged(made)
    rows = tables(payloads)["node_score"]
    told = set(rows["node"][rows["snapshot"] == 1].tolist())
    assert len(told) > 40


def test_a_snapshot_names_pages_and_who_touched_them_last(recorded: tuple[Engine, dict[str, np.ndarray], Played]) -> None:
    found = recorded[1]
    rows = found["node_score"][found["node_score"]["snapshot"] == 1]
    assert set(rows["page"].tolist()) <= set(found["page"]["page"].tolist())
    named = set(found["name"]["id"].tolist())
    assert set(rows["workflow"].tolist()) - {0} <= named and (rows["workflow"] != 0).mean() > 0.9
