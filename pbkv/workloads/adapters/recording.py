"""Recordings of a serving system (`pbkv train --record`): JSON lines, a head per session of the server, then ended calls and workflows.

    {"pbkv_record": 1, "epoch": N, "signal": KIND}
    {"n": N, "w": LIFE, "workflow": NAME, "step": N, "agent": NAME, "output_tokens": N, "prompt": BASE64|null, "reply": BASE64|null}
    {"n": N, "w": LIFE, "end": REASON}

Only runs that were heard from their first call to their end can be learned from; the others are left out.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pbkv.errors import UsageError
from pbkv.workloads.adapters.reading import MAX_CALLS, Row, parse_json, read_bytes
from pbkv.workloads.adapters.runs import RecordedRuns, Run
from pbkv.workloads.layouts import LayoutName

#: Name of the field that opens a recording, and its format.
HEAD, FORMAT = "pbkv_record", 1
#: What an older part of a recording is called beside it.
OLDER = ".1"
SIGNAL = 128
_NOTHING = bytes(SIGNAL)
#: Ends after which a workflow would not have gone on.
_ENDS = ("final", "closed", "idle")


@dataclass
class _Life:
    """One workflow of one session of the server."""

    name: str = ""
    calls: dict[int, Row] = field(default_factory=dict[int, Row])
    end: str = ""

    def whole(self) -> bool:
        return self.end in _ENDS and bool(self.calls) and sorted(self.calls) == list(range(len(self.calls)))


def is_recording(file: Path) -> bool:
    """Whether the file opens like one."""
    try:
        with file.open("rb") as stream:
            return stream.readline(200).startswith(b'{"%s"' % HEAD.encode())
    except OSError as error:
        raise UsageError(f"trace file {str(file)!r} cannot be read: {error.strerror}") from None


def load_recording(path: str | Path, *, layout: LayoutName = "group", max_calls: int = 0) -> RecordedRuns:
    """The whole runs of a recording and of its older part, if that is there. Raises UsageError that names file, line and field."""
    file = Path(path)
    older = file.with_name(file.name + OLDER)
    kinds: set[str] = set()
    lives: dict[tuple[int, int], _Life] = {}
    for part in ([older] if older.exists() else []) + [file]:
        _read(part, lives, kinds)
    runs = tuple(_run(life, number) for number, life in enumerate(lives.values()) if life.whole())
    if not runs:
        raise UsageError(f"recording {str(file)!r} holds no workflow from its first call to its end; record for longer")
    if len(kinds) > 1:
        raise UsageError(f"recording {str(file)!r} has text signals of {len(kinds)} kinds: the server's model changed; record it anew")
    return RecordedRuns(file.stem, runs, layout, max_calls=max_calls, signal=kinds.pop() if kinds else "")


def _read(file: Path, lives: dict[tuple[int, int], _Life], kinds: set[str]) -> None:
    epoch = 0
    for row in _rows(file):
        if row.get(HEAD) is not None:
            row.whole(HEAD, FORMAT, FORMAT)
            epoch = row.whole("epoch", high=1 << 63)
            if kind := row.get("signal"):
                kinds.add(str(kind)[:256])
            continue
        life = lives.setdefault((epoch, row.whole("w", high=1 << 63)), _Life())
        if row.get("end") is not None:
            life.end = row.text("end")
        else:
            life.name = row.text("workflow")
            life.calls[row.whole("step", high=MAX_CALLS)] = row


def _rows(file: Path) -> Iterator[Row]:
    raw = read_bytes(file)
    lines = raw.split(b"\n")
    # The writer may have been killed in the middle of the last line.
    for n, line in enumerate(lines[:-1], 1):
        place = f"recording {str(file)!r}: line {n}"
        yield Row(place, parse_json(place, line))


def _run(life: _Life, number: int) -> Run:
    rows = [life.calls[step] for step in range(len(life.calls))]
    replies, prompts = ([_signal(row, name) for row in rows] for name in ("reply", "prompt"))
    known = any(replies) or any(prompts)
    # A name may have been used for several workflows, which are told apart by their place in the recording.
    return Run(
        f"{life.name} #{number}", tuple(row.text("agent") for row in rows), tuple(row.whole("output_tokens") for row in rows),
        _filled(replies) if known else None, _filled(prompts) if any(prompts) else None,
    )


def _filled(signals: list[bytes | None]) -> tuple[bytes, ...]:
    return tuple(signal or _NOTHING for signal in signals)


def _signal(row: Row, name: str) -> bytes | None:
    if row.get(name) is None:
        return None
    try:
        signal = base64.b64decode(row.text(name), validate=True)
    except binascii.Error:
        raise row.bad(name, "base64") from None
    if len(signal) != SIGNAL:
        raise row.bad(name, f"{SIGNAL} numbers in base64")
    return signal
