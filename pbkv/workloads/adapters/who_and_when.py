"""Recorded conversations, `{"history": [{"name", "role", "content"}]}`: each message is a call of its speaker.

Output tokens are UTF-8 bytes / 4, rounded up. Tool results are messages of their own here, so calls are told next to nothing else.
"""

from dataclasses import replace
from pathlib import Path

from pbkv.workloads.adapters.runs import RecordedRuns, Run, SizeRule
from pbkv.workloads.layouts import LayoutName
from pbkv.workloads.trace import load_trace

#: Bytes that one token stands for.
BYTES_PER_TOKEN = 4
_RULE = replace(SizeRule(), news_tokens=16)


def load_conversations(
    path: str | Path, *, layout: LayoutName = "group", rule: SizeRule = _RULE, max_calls: int = 0
) -> RecordedRuns:
    """A folder of conversations, or one file. Raises UsageError that names file and message of the first fault."""
    runs: list[Run] = []
    for name, turns in load_trace(path).conversations:
        sizes = tuple(-(-len(turn.text.encode(errors="replace")) // BYTES_PER_TOKEN) for turn in turns)
        runs.append(Run(name, tuple(turn.speaker for turn in turns), sizes))
    return RecordedRuns(Path(path).stem, tuple(runs), layout, rule, max_calls)
