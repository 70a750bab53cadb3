"""The real traces, where they are at hand; without them, generated files of the same shape, so that nothing is skipped."""

import json
from pathlib import Path

import pytest

from pbkv.workloads.adapters.agent_calls import load_agent_calls
from pbkv.workloads.adapters.mooncake import load_mooncake
from pbkv.workloads.adapters.runs import RecordedRuns
from pbkv.workloads.adapters.weka import load_weka
from pbkv.workloads.adapters.who_and_when import load_conversations
from tests.workloads.test_adapters_blocks import CHAT, SESSION
from tests.workloads.test_adapters_tables import ROWS, table

DATA = Path(__file__).parents[3] / "shared" / "data"


def at_hand(name: str, instead: Path) -> tuple[Path, bool]:
    return (DATA / name, True) if (DATA / name).exists() else (instead, False)


@pytest.mark.parametrize(
    ("name", "runs", "calls", "agents"), [("agent_calls_hyperagent.parquet", 221, 23_894, 4), ("agent_calls_ag2.parquet", 959, 8_844, 4)]
)
def test_agent_calls(tmp_path: Path, name: str, runs: int, calls: int, agents: int) -> None:
    path, real = at_hand(name, table(tmp_path / "calls.parquet", ROWS))
    workload = load_agent_calls(path)
    expected = (runs, calls, agents) if real else (2, 4, 2)
    assert (len(workload.runs), sum(len(r.agents) for r in workload.runs), len({a for r in workload.runs for a in r.agents})) == expected
    assert all(run.texts is not None and len(run.texts) == len(run.agents) for run in workload.runs)
    assert len(list(RecordedRuns(workload.name, workload.runs, "shared", max_calls=10).workflows(0))) == expected[0]


def test_conversations(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps({"history": [{"name": "a", "content": "b"}]}))
    path, real = at_hand("who_and_when", tmp_path)
    workload = load_conversations(path)
    assert len(workload.runs) == (128 if real else 1)
    assert all(c.prompt_tokens > 0 for w in workload.workflows(0) for c in w.calls)


def test_sessions(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SESSION))
    path, real = at_hand("weka", tmp_path)
    workflows = list(load_weka(path).workflows(0))
    assert (len(workflows), sum(len(w.calls) for w in workflows)) == ((40, 1938) if real else (1, 6))
    assert max(c.prompt_tokens for w in workflows for c in w.calls) == (max_prompt(path) if real else 300)


def max_prompt(folder: Path) -> int:
    """Longest prompt, read straight from the files."""
    longest = 0
    for file in folder.iterdir():
        for entry in json.loads(file.read_bytes())["requests"]:
            longest = max(longest, *(request["in"] for request in entry.get("requests", [entry])))
    return longest


def test_chat(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps(r) for r in CHAT))
    path, real = at_hand("mooncake_conversation_trace.jsonl", tmp_path / "m.jsonl")
    workflows = list(load_mooncake(path).workflows(0))
    assert len(workflows) == (12_031 if real else 4)
    assert workflows[-1].start_s == (3536.999 if real else 2.5)
