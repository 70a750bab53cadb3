"""Recorded conversations: what is played, and what is said about files that are not one."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from pbkv.errors import UsageError
from pbkv.workloads.base import Call
from pbkv.workloads.conversation import size
from pbkv.workloads.trace import MAX_TOKENS, MIN_TOKENS, load_trace

HISTORY = [
    {"name": "Boss", "role": "user", "content": "Find the bug."},
    {"name": "Coder", "role": "assistant", "content": "I read the file and found it." * 3},
    {"role": "user", "content": "Then fix it."},
    {"name": "Coder", "role": "assistant", "content": ""},
]


def write(folder: Path, name: str, document: Any) -> Path:
    file = folder / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def calls_of(path: Path, index: int = 0, **options: Any) -> tuple[str, list[Call]]:
    play = next(itertools.islice(load_trace(path, **options).plays(), index, None))
    calls = [next(play.script)]
    try:
        while True:
            calls.append(play.script.send("not what was recorded"))
    except StopIteration:
        return play.name, calls


def test_each_message_is_a_call_of_its_speaker(tmp_path: Path) -> None:
    write(tmp_path, "talk.json", {"history": HISTORY})
    name, calls = calls_of(tmp_path)
    assert name == "talk"
    assert [c.agent for c in calls] == ["Boss", "Coder", "user", "Coder"]
    assert [c.final for c in calls] == [False, False, False, True]
    assert [c.max_tokens for c in calls] == [MIN_TOKENS, MAX_TOKENS, MIN_TOKENS, MIN_TOKENS]


def test_prompt_is_own_history_and_conversation_with_recorded_text(tmp_path: Path) -> None:
    write(tmp_path, "talk.json", {"history": HISTORY})
    last = calls_of(tmp_path)[1][-1].messages
    assert [(m.role, m.content) for m in last] == [
        ("system", "You are Coder."), ("user", "Boss: Find the bug."), ("assistant", HISTORY[1]["content"]), ("user", "user: Then fix it."),
    ]


def test_files_are_played_in_order_and_over_again(tmp_path: Path) -> None:
    for name in ("b.json", "a.json"):
        write(tmp_path, name, {"history": HISTORY})
    write(tmp_path, "notes.txt", "not a conversation")
    assert [p.name for p in itertools.islice(load_trace(tmp_path).plays(), 5)] == ["a", "b", "a-2", "b-2", "a-3"]


def test_one_file_will_do(tmp_path: Path) -> None:
    assert calls_of(write(tmp_path, "one.json", {"history": HISTORY}))[0] == "one"


def test_long_messages_are_cut_to_the_context(tmp_path: Path) -> None:
    long = [{"name": f"S{n % 3}", "role": "user", "content": "é" * 5000} for n in range(12)]
    write(tmp_path, "long.json", {"history": long})
    _, calls = calls_of(tmp_path, limit=1024)
    assert all(size(c.messages) + c.max_tokens <= 1024 for c in calls)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "non-empty list \"history\""),
        ({"history": []}, "non-empty list \"history\""),
        ({"history": {"a": 1}}, "non-empty list \"history\""),
        ({"history": ["text"]}, r"history\[0\]: expected an object"),
        ({"history": [HISTORY[0], {"name": "A"}]}, r"history\[1\]: expected an object"),
        ({"history": [{"name": 3, "content": "x"}]}, r"history\[0\]: expected an object"),
        ({"history": [{"name": "A", "content": None}]}, r"history\[0\]: expected an object"),
    ],
)
def test_bad_file_is_one_sentence_with_its_name(tmp_path: Path, document: Any, says: str) -> None:
    file = write(tmp_path, "bad.json", document)
    with pytest.raises(UsageError, match=says) as caught:
        load_trace(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(UsageError, match="is not JSON"):
        load_trace(file)


def test_missing_and_empty_places(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; expected a folder"):
        load_trace(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"holds no \.json file"):
        load_trace(tmp_path)
