"""Recorded multi-agent conversations, played again: each speaker is an agent and each message one call of it.

A file is `{"history": [{"name", "role", "content"}, ...]}`; `content` is what the speaker said, `name` (or, without one, `role`) who.
The prompt of a call is the speaker's own history and the conversation so far; the recorded text, not the engine's reply, goes on.
"""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError
from pbkv.workloads.base import Call, Play, Script
from pbkv.workloads.conversation import Conversation, clip

#: Tokens asked for per call: as many as the recorded message has bytes, within these bounds.
MIN_TOKENS, MAX_TOKENS = 16, 48
_MAX_FILE = 64 << 20


@dataclass(frozen=True)
class Turn:
    """One recorded message."""

    speaker: str
    text: str


@dataclass(frozen=True)
class TraceFolder:
    """Conversations in file order, over and over; `limit`: bytes of a prompt and its reply; `pace` scales think times."""

    conversations: tuple[tuple[str, tuple[Turn, ...]], ...]
    limit: int = 2048
    pace: float = 1.0
    name: str = "trace"

    def plays(self) -> Iterator[Play]:
        """Workflows named after their files; from the second round on with the round's number."""
        for lap in itertools.count(1):
            for stem, turns in self.conversations:
                name = stem if lap == 1 else f"{stem}-{lap}"
                yield Play(name, self._script(turns, random.Random(name)))

    def _script(self, turns: tuple[Turn, ...], rng: random.Random) -> Script:
        conversation = Conversation(lambda name: f"You are {name}.", self.limit - MAX_TOKENS)
        for n, turn in enumerate(turns):
            tokens = min(max(len(turn.text), MIN_TOKENS), MAX_TOKENS)
            think = self.pace * rng.uniform(0.3, 1.5)
            yield Call(turn.speaker, conversation.prompt(turn.speaker), tokens, think, n == len(turns) - 1)
            conversation.replied(turn.speaker, clip(turn.text, self.limit // 4))


def load_trace(path: str | Path, *, limit: int = 2048, pace: float = 1.0) -> TraceFolder:
    """A folder of conversations, or one file. Raises UsageError that names the file and what is wrong with it."""
    place = Path(path)
    if place.is_dir():
        files = sorted(f for f in place.iterdir() if f.suffix == ".json")
        if not files:
            raise UsageError(f"trace folder {str(path)!r} holds no .json file; expected files with {{\"history\": [...]}}")
    elif place.exists():
        files = [place]
    else:
        raise UsageError(f"trace {str(path)!r} does not exist; expected a folder of conversations or one .json file")
    return TraceFolder(tuple((file.stem, _turns(file)) for file in files), limit, pace)


def _turns(file: Path) -> tuple[Turn, ...]:
    document = _read(file)
    history = cast("dict[str, Any]", document).get("history") if isinstance(document, dict) else None
    if not isinstance(history, list) or not history:
        raise UsageError(f"trace file {str(file)!r}: expected an object with a non-empty list \"history\"")
    return tuple(_turn(file, n, entry) for n, entry in enumerate(cast("list[Any]", history)))


def _read(file: Path) -> object:
    try:
        if file.stat().st_size > _MAX_FILE:
            raise UsageError(f"trace file {str(file)!r} is larger than {_MAX_FILE >> 20} MiB; split it")
        return json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"trace file {str(file)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"trace file {str(file)!r} is not JSON: {str(error)[:100]}") from None


def _turn(file: Path, n: int, entry: object) -> Turn:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    speaker = fields.get("name") or fields.get("role")
    text = fields.get("content")
    if not isinstance(speaker, str) or not isinstance(text, str):
        raise UsageError(f"trace file {str(file)!r}: history[{n}]: expected an object with texts \"name\" (or \"role\") and \"content\"")
    return Turn(speaker[:256], text)
