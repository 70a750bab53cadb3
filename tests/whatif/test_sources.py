"""Traces as recordings: every format, what a trace is enough for, and what is refused in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pbkv.engine.timing import Linear, preset
from pbkv.errors import UsageError
from pbkv.whatif import sources
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from pbkv.whatif.sources import check_policy, names_agents, open_trace

DEVICE = 20_000


def mooncake(folder: Path, rows: int = 6) -> Path:
    file = folder / "chats.jsonl"
    lines = [{"timestamp": 1000 * n, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2 + n % 3]} for n in range(rows)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def weka(folder: Path, *, subagents: bool = False) -> Path:
    file = folder / "session.json"
    calls: list[dict[str, Any]] = [
        {"t": 10.0 * n, "type": "n", "in": 64 * (n + 2), "out": 30, "hash_ids": [*range(n + 2)], "api_time": 2.0} for n in range(4)
    ]
    if subagents:
        calls.append({"t": 50.0, "type": "subagent", "subagent_type": "Explore", "requests": [
            {"t": 0.0, "type": "n", "in": 128, "out": 5, "hash_ids": [90, 91]},
        ]})
    file.write_text(json.dumps({"id": "s1", "block_size": 64, "hash_id_scope": "session", "requests": calls}))
    return file


def table(folder: Path) -> Path:
    file = folder / "runs.parquet"
    columns = {
        "workflow": ["a", "a", "a", "b", "b"], "step": [0, 1, 2, 0, 1], "agent": ["Planner", "Editor", "Planner", "Planner", "Editor"],
        "output_tokens": [200, 300, 100, 250, 50],
    }
    pq.write_table(pa.table(columns), file)
    return file


def conversations(folder: Path) -> Path:
    place = folder / "talks"
    place.mkdir()
    for n in range(2):
        turns = [{"name": name, "role": "x", "content": f"{name} says {'word ' * 100}"} for name in ("Web", "Coder", "Web")]
        (place / f"talk_{n}.json").write_text(json.dumps({"history": turns}))
    return place


FORMATS: dict[str, Callable[[Path], Path]] = {"mooncake": mooncake, "weka": weka, "table": table, "conversations": conversations}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_replayed_alone_and_in_time(name: str, tmp_path: Path) -> None:
    made = open_trace(FORMATS[name](tmp_path), device_tokens=DEVICE, page_size=16)
    assert made.calls == {"mooncake": 6, "weka": 4, "table": 5, "conversations": 6}[name]
    alone, timed = replay_cache(made, Setting(policy="lru")), replay(made, Setting(policy="lru"))
    assert len(alone.calls) == len(timed.calls) == made.calls
    assert alone.figures["hit"] > 0.1
    assert not made.measured and not made.losses and not made.warm_nodes


def test_what_a_setting_needs_is_given(tmp_path: Path) -> None:
    file = table(tmp_path)
    made = open_trace(file, device_tokens=DEVICE, host_tokens=40_000, page_size=32, timing="qwen3-14b@h100/2", concurrency=5)
    assert (made.engine.device_tokens, made.engine.host_tokens, made.engine.page_size) == (DEVICE, 40_000, 32)
    assert made.engine.timing == preset("qwen3-14b@h100", 2) and made.concurrency == 5
    assert open_trace(file, device_tokens=DEVICE).engine.timing == Linear()
    assert [workflow.name for workflow in open_trace(file, device_tokens=DEVICE, workflows=1).workflows] in (["a"], ["b"])
    assert max(len(w.calls) for w in open_trace(file, device_tokens=DEVICE, max_calls=2).workflows) == 2
    shared = open_trace(file, device_tokens=DEVICE, layout="shared")
    assert shared.page_refs != open_trace(file, device_tokens=DEVICE, layout="private").page_refs


def test_a_chat_service_keeps_its_times(tmp_path: Path) -> None:
    made = open_trace(mooncake(tmp_path), device_tokens=DEVICE)
    assert made.concurrency is None and [workflow.start_s for workflow in made.workflows] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_one_call_is_enough(tmp_path: Path) -> None:
    made = open_trace(mooncake(tmp_path, 1), device_tokens=DEVICE)
    assert made.calls == 1 and replay(made, Setting(policy="lru")).figures["hit"] == 0.0


# ---- which policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "agents"), [("mooncake", False), ("weka", False), ("table", True), ("conversations", True)])
def test_policies_that_need_agents_are_refused_without_them(name: str, agents: bool, tmp_path: Path) -> None:
    made = open_trace(FORMATS[name](tmp_path), device_tokens=DEVICE)
    assert names_agents(made) == agents
    for policy in ("lru", "lae", "session_lae"):
        check_policy(made, policy)
    for policy in ("he", "first_use", "kvflow", "kvflow_all"):
        if agents:
            check_policy(made, policy)
        else:
            with pytest.raises(UsageError, match=f"policy {policy} needs agents, and no .* choose one of lru, lae, session_lae"):
                check_policy(made, policy)


def test_sub_agents_are_agents(tmp_path: Path) -> None:
    made = open_trace(weka(tmp_path, subagents=True), device_tokens=DEVICE)
    assert names_agents(made)
    check_policy(made, "he")


# ---- bad input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "message"), [
    ({"device_tokens": -1}, "device_tokens = -1: expected at least two pages"),
    ({"device_tokens": 1 << 41}, "device_tokens"),
    ({"host_tokens": -1}, "host_tokens = -1: expected 0"),
    ({"page_size": 0}, "page_size = 0: expected 1 to 1024 tokens"),
    ({"concurrency": 0}, "concurrency = 0: expected 1 to 1000000 workflows at a time"),
    ({"workflows": 0}, "workflows = 0: expected at least one, or none given for all"),
    ({"max_calls": -2}, "max_calls = -2: expected 0"),
    ({"layout": "pile"}, "layout = 'pile': expected one of"),
    ({"timing": "gpt@h100"}, "model preset 'gpt@h100': expected MODEL@GPU"),
    ({"timing": "qwen3-14b@h100/many"}, "timing = 'qwen3-14b@h100/many': expected a number of GPUs"),
    ({"timing": "qwen3-14b@h100/0"}, "tp = 0: expected 1 to 64 GPUs"),
])
def test_figures_that_cannot_be(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        open_trace(table(tmp_path), **{"device_tokens": DEVICE, **given})


@pytest.mark.parametrize(("name", "text", "message"), [
    ("a.jsonl", "", "holds no request"),
    ("a.jsonl", "\n", "row 0 is not JSON"),
    ("a.jsonl", '{"timestamp": 0}\n', "row 0: input_length = None: expected a whole number"),
    ("a.jsonl", '{"timestamp": NaN, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n', "row 0: timestamp = nan: expected"),
    ("a.jsonl", '{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [1]}\n', "row 0: input_length = -5: expected"),
    ("a.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}\n', "row 0: hash_ids has 2 entries where"),
    ("a.json", '{"history": []}', "non-empty list"),
    ("a.json", '{"requests": []}', "block_size = None"),
    ("a.json", "[1, 2", "is not JSON"),
    ("a.parquet", "no table", "cannot be read as Parquet"),
])
def test_traces_that_cannot_be_read(name: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        open_trace(file, device_tokens=DEVICE)
    assert "\n" not in str(error.value)


def test_a_table_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "other.parquet"
    pq.write_table(pa.table({"workflow": ["a"], "latency": [float("nan")]}), file)
    with pytest.raises(UsageError, match="column 'step' is missing; expected workflow, step, agent, output_tokens"):
        open_trace(file, device_tokens=DEVICE)
    with pytest.raises(UsageError, match="does not exist"):
        open_trace(tmp_path / "nothing.jsonl", device_tokens=DEVICE)


def test_too_many_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = mooncake(tmp_path)
    monkeypatch.setattr(sources, "MAX_PAGE_REFS", 6 * 1100 // 16)
    assert open_trace(file, device_tokens=DEVICE, page_size=16).page_refs == 6 * 68
    with pytest.raises(UsageError, match="chats: too many pages at page_size = 8; take larger pages or fewer workflows"):
        open_trace(file, device_tokens=DEVICE, page_size=8)
