"""Traces of hashed blocks: coding-agent sessions and chat requests."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.workloads.adapters.detect import load_workload
from pbkv.workloads.adapters.mooncake import BLOCK, MooncakeRequests, load_mooncake
from pbkv.workloads.adapters.weka import MAIN, WekaSessions, load_weka
from tests.workloads.test_adapters_tables import complaint


def request(t: float, tokens: int, out: int = 5, api: float | None = 1.0, first: int = 1) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": tokens, "out": out, "hash_ids": list(range(first, first + tokens // 64)), "api_time": api}


SESSION: dict[str, Any] = {
    "id": "s1",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        request(0.0, 130),
        {"t": 5.0, "type": "subagent", "subagent_type": "Explore", "requests": [request(0.0, 64, first=50), request(3.0, 100, first=50)]},
        {"t": 6.0, "type": "subagent", "subagent_type": "Review", "requests": [request(0.5, 64, out=0, first=70)]},
        request(20.0, 256, api=None),
        request(20.5, 300),
    ],
}


def weka(folder: Path, document: Any, name: str = "s.json") -> Path:
    (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return folder / name


def test_a_session_is_one_workflow_in_order_of_start(tmp_path: Path) -> None:
    (workflow,) = load_weka(weka(tmp_path, SESSION)).workflows(0)
    assert workflow.name == "s1" and workflow.start_s is None and workflow.attributed
    assert workflow.agents == (MAIN, "Explore", "Review", "Explore", MAIN, MAIN)
    assert [c.delay_s for c in workflow.calls] == [0.0, 4.0, 0.5, 0.5, 11.0, 0.5], "never below 0; without api_time a call ends at once"
    assert [c.final for c in workflow.calls] == [False] * 5 + [True]
    assert [c.output.tokens for c in workflow.calls] == [5, 5, 1, 5, 5, 5]


def test_prompts_have_the_recorded_length_and_share_the_recorded_blocks(tmp_path: Path) -> None:
    (workflow,) = load_weka(weka(tmp_path, SESSION)).workflows(0)
    assert [c.prompt_tokens for c in workflow.calls] == [130, 64, 64, 100, 256, 300]
    first, explore, _, again, later, last = (c.prompt for c in workflow.calls)
    assert first[:2] == later[:2] == last[:2] and later == last[:4]
    assert again[0] == explore[0] and explore[0] not in first
    assert first[2].tokens == 2 and first[2].key not in {s.key for c in workflow.calls[1:] for s in c.prompt}


def test_blocks_of_different_sessions_differ(tmp_path: Path) -> None:
    weka(tmp_path, SESSION, "a.json")
    weka(tmp_path, {**SESSION, "id": "s2"}, "b.json")
    one, other = load_weka(tmp_path).workflows(0)
    keys = [{s.key for c in w.calls for s in c.prompt} for w in (one, other)]
    assert not keys[0] & keys[1]


def test_the_seed_orders_the_sessions(tmp_path: Path) -> None:
    for n in range(6):
        weka(tmp_path, {**SESSION, "id": f"s{n}"}, f"{n}.json")
    workload = load_weka(tmp_path)
    orders = {tuple(w.name for w in workload.workflows(seed)) for seed in range(5)}
    assert len(orders) > 1 and all(sorted(order) == [f"s{n}" for n in range(6)] for order in orders)


def broken(**at: Any) -> dict[str, Any]:
    """SESSION with fields of requests[0] replaced."""
    document = copy.deepcopy(SESSION)
    document["requests"][0].update(at)
    return document


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([1], "expected an object"),
        ({**SESSION, "block_size": 0}, "block_size = 0: expected a whole number from 1"),
        ({**SESSION, "requests": []}, "requests: expected at least one call"),
        ({**SESSION, "requests": 7}, "requests = 7: expected a list"),
        ({**SESSION, "requests": [3]}, "requests[0]: expected an object, found 3"),
        ({**SESSION, "id": 5}, "id = 5: expected a text"),
        (broken(t=-1), "requests[0]: t = -1: expected a number from 0"),
        (broken(t="x"), "requests[0]: t = 'x'"),
        (broken(t=True), "requests[0]: t = True"),
        (broken(out=1.5), "requests[0]: out = 1.5"),
        (broken(hash_ids=[1]), "requests[0]: hash_ids has 1 entries where the length asks for 2"),
        (broken(hash_ids=[1, "a"]), "requests[0]: hash_ids = [1, 'a']: expected whole numbers"),
        (broken(hash_ids=None), "requests[0]: hash_ids = None"),
        (broken(api_time="long"), "requests[0]: api_time = 'long'"),
        (broken(type=None), "requests[0]: type = None"),
        (broken(type="subagent", subagent_type="A", requests=[{"t": 0, "type": "subagent"}]), "no sub-agent within a sub-agent"),
        (broken(type="subagent", subagent_type="A", requests=[{"t": 0, "type": "n"}]), "requests[0]: requests[0]: in = None"),
    ],
)
def test_a_bad_session_is_told_by_request_and_field(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_weka(weka(tmp_path, document))
    assert says in str(caught.value) and "s.json" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["t", "type", "in", "out", "hash_ids", "requests"]), inner),
    max_leaves=12,
)


FIELDS = st.sampled_from(["t", "type", "in", "out", "hash_ids", "api_time", "requests"])


@given(st.integers(0, 4), FIELDS, JSON)
def test_any_value_is_a_usage_error_or_a_session(tmp_path_factory: pytest.TempPathFactory, at: int, field: str, value: Any) -> None:
    document = copy.deepcopy(SESSION)
    document["requests"][at][field] = value
    file = weka(tmp_path_factory.mktemp("w"), document)

    def read() -> None:
        (workflow,) = load_weka(file).workflows(0)
        assert all(c.prompt_tokens > 0 and c.output.tokens > 0 and c.delay_s >= 0 for c in workflow.calls)

    said = complaint(read)
    assert said is None or ("s.json" in said and "\n" not in said)


CHAT = [
    {"timestamp": 0, "input_length": 600, "output_length": 10, "hash_ids": [0, 1]},
    {"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [0, 1]},
    {"timestamp": 2500, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]},
    {"timestamp": 2500, "input_length": 5, "output_length": 3, "hash_ids": [9]},
]


def chat(folder: Path, rows: list[Any]) -> Path:
    (folder / "m.jsonl").write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return folder / "m.jsonl"


def test_chat_requests_arrive_at_their_time_without_identity(tmp_path: Path) -> None:
    workflows = list(load_mooncake(chat(tmp_path, CHAT)).workflows(3))
    assert [w.name for w in workflows] == ["m-0", "m-1", "m-2", "m-3"]
    assert [w.start_s for w in workflows] == [0.0, 0.0, 2.5, 2.5]
    assert not any(w.attributed or w.calls[0].final for w in workflows)
    assert [w.calls[0].prompt_tokens for w in workflows] == [600, 1024, 600, 5]
    assert [w.calls[0].output.tokens for w in workflows] == [10, 1, 3, 3]


def test_a_partial_block_equals_only_one_of_its_length(tmp_path: Path) -> None:
    a, b, c, _ = (w.calls[0].prompt for w in load_mooncake(chat(tmp_path, CHAT)).workflows(0))
    assert a == c and a[0] == b[0] and a[0].tokens == BLOCK
    assert a[1].key != b[1].key and (a[1].tokens, b[1].tokens) == (88, BLOCK)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "holds no request"),
        ([*CHAT, "{"], "row 4 is not JSON"),
        ([*CHAT, ""], "m-"),
        ([{**CHAT[0], "timestamp": -5}], "row 0: timestamp = -5"),
        ([CHAT[2], CHAT[0]], "row 1: timestamp = 0: expected no time before that of the row above"),
        ([{**CHAT[0], "input_length": 0}], "row 0: input_length = 0"),
        ([{**CHAT[0], "input_length": 5000}], "row 0: hash_ids has 2 entries where the length asks for 10"),
        ([{**CHAT[0], "output_length": None}], "row 0: output_length = None"),
        ([7], "row 0: expected an object, found 7"),
    ],
)
def test_bad_chat_requests_are_told_by_row_and_field(tmp_path: Path, rows: list[Any], says: str) -> None:
    if says == "m-":  # a newline at the end is no row
        assert len(list(load_mooncake(chat(tmp_path, rows)).workflows(0))) == len(CHAT)
        return
    with pytest.raises(UsageError) as caught:
        load_mooncake(chat(tmp_path, rows))
    assert says in str(caught.value) and "m.jsonl" in str(caught.value)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 3000), st.integers(0, 9)), min_size=1, max_size=10))
def test_chat_prompts_keep_every_token(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]) -> None:
    times = sorted(t for t, _, _ in rows)
    entries = [
        {"timestamp": t, "input_length": n, "output_length": o, "hash_ids": list(range(-(-n // BLOCK)))}
        for t, (_, n, o) in zip(times, rows, strict=True)
    ]
    workflows = load_mooncake(chat(tmp_path_factory.mktemp("m"), list(entries))).workflows(0)
    for workflow, entry in zip(workflows, entries, strict=True):
        assert workflow.calls[0].prompt_tokens == entry["input_length"]
        assert workflow.start_s == entry["timestamp"] / 1000  # type: ignore[operator]


def test_detection_knows_both(tmp_path: Path) -> None:
    assert isinstance(load_workload(chat(tmp_path, CHAT)), MooncakeRequests)
    assert isinstance(load_workload(weka(tmp_path, SESSION)), WekaSessions)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbkv.workloads.adapters.reading.MAX_FILE", 100)
    with pytest.raises(UsageError, match=r"m.jsonl.*at most 100 are read"):
        load_mooncake(chat(tmp_path, CHAT))
