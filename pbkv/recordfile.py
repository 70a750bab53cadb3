"""A recording on disk: JSON lines, only ever appended, in two parts of half the allowed size; when both are full the older one goes.

Written by one process at a time, which may be killed at any moment: a line cut short is removed by the next writer and ignored by readers.
The format is described in `pbkv.workloads.adapters.recording`.
"""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pbkv.errors import PbkvError, UsageError
from pbkv.workloads.adapters.recording import FORMAT, HEAD, OLDER, is_recording

#: Least size of a recording, bytes: some thousand calls.
MIN_BYTES = 1 << 20


class RecordFile:
    """`epoch` and `last` say how far the file goes: the session of the server and the number of its newest row; 0 = it is new.
    `signal` is the kind of the text signals, `rows` how many rows this process has added.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Raises UsageError when the file is something else, or another process writes it."""
        if max_bytes < MIN_BYTES:
            raise UsageError(f"--max-bytes {max_bytes}: expected at least {MIN_BYTES}")
        self._path, self._half = path, max_bytes // 2
        self.epoch = self.last = self.rows = 0
        self.signal = ""
        self._stream = self._open("r+b" if path.exists() else "x+b")
        if self._stream.seek(0, os.SEEK_END):
            self._resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()

    def _open(self, mode: str) -> IO[bytes]:
        try:
            stream = self._path.open(mode)
        except OSError as error:
            raise UsageError(f"--output {str(self._path)!r}: {error.strerror}; name a file that can be written") from None
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            raise UsageError(f"--output {str(self._path)!r}: another process records into it; name another file") from None
        return stream

    def _resume(self) -> None:
        if not is_recording(self._path):
            self._stream.close()
            raise UsageError(f"--output {str(self._path)!r} is not a recording; name another file")
        self._stream.seek(0)
        whole = 0
        for line in self._stream:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            self._take(line)
        self._stream.truncate(whole)
        self._stream.seek(whole)

    def _take(self, line: bytes) -> None:
        try:
            row: dict[str, Any] = json.loads(line)
            if HEAD in row:
                self.epoch, self.last, self.signal = int(row["epoch"]), int(row["after"]), str(row["signal"])
            else:
                self.last = int(row["n"])
        except (ValueError, KeyError, TypeError):
            self._stream.close()
            raise UsageError(f"--output {str(self._path)!r}: the recording is damaged; name another file") from None

    def add(self, answer: dict[str, Any]) -> None:
        """Append the rows of an answer of the server, on disk when this returns. Raises PbkvError when the disk refuses."""
        rows = answer["rows"]
        self.signal = answer["signal"]
        if not rows:
            return
        try:
            if answer["epoch"] != self.epoch:
                self.epoch, self.last = answer["epoch"], rows[0]["n"] - 1
                self._head()
            elif self._stream.tell() > self._half:
                self._turn()
            self._stream.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
            self._sync()
        except OSError as error:
            raise PbkvError(f"recording {str(self._path)!r} cannot be written: {error.strerror or error}") from None
        self.last = rows[-1]["n"]
        self.rows += len(rows)

    def _head(self) -> None:
        head = {HEAD: FORMAT, "epoch": self.epoch, "signal": self.signal, "after": self.last}
        self._stream.write(json.dumps(head, separators=(",", ":")).encode() + b"\n")

    def _turn(self) -> None:
        """What was written so far becomes the older part."""
        self._path.replace(self._path.with_name(self._path.name + OLDER))
        self._stream.close()
        self._stream = self._open("x+b")
        self._head()

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())
