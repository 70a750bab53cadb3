"""`pbkv train --record URL`: training rows of a serving system, as calls end, into a file that `pbkv train` learns from."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pbkv.control.client import ControlClient
from pbkv.errors import Unreachable, UsageError
from pbkv.recordfile import RecordFile

#: Seconds between two questions while nothing is left to fetch. The server forgets a reader who has not asked for a minute.
PERIOD_S = 1.0


def record(
    client: ControlClient, output: Path, *, seconds: float | None, max_bytes: int, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Fetch until `seconds` are over, None = until interrupted; returns the rows written. A server that goes away is waited for once it has
    answered. Raises UsageError, or Unreachable when it never answered.
    """
    if output.suffix != ".jsonl":
        raise UsageError(f"--output {str(output)!r}: a recording is a .jsonl file, for example recording.jsonl")
    end = None if seconds is None else clock() + seconds
    with RecordFile(output, max_bytes) as file:
        fetch(client, file)
        try:
            _say(f"recording {client.url} into {output}, text signals: {file.signal or 'none'}; Ctrl-C ends it")
            while end is None or clock() < end:
                pause(PERIOD_S)
                _fetch_or_wait(client, file)
        finally:
            _say(f"{file.rows} rows written to {output}")
        return file.rows


def fetch(client: ControlClient, file: RecordFile) -> None:
    """All rows that the server has and the file has not."""
    more = True
    while more:
        answer = client.record(file.epoch, file.last)
        if answer["lost"]:
            _say(f"{answer['lost']} rows were gone before they could be fetched; their workflows are left out of training")
        file.add(answer)
        more = answer["more"]


def _fetch_or_wait(client: ControlClient, file: RecordFile) -> None:
    try:
        fetch(client, file)
    except Unreachable as error:
        _say(f"{error}; trying again")


def _say(text: str) -> None:
    print(f"record: {text}", file=sys.stderr, flush=True)
