"""Running one guarded query on a cursor, within a deadline and a result cap. Used by the live server and by file readers."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import duckdb
import pyarrow as pa

from pbkv.errors import PbkvError, UsageError

#: Longest deadline a caller may ask for, seconds.
MAX_DEADLINE_S = 30.0
MAX_ROWS = 200_000
MAX_BYTES = 64 << 20
_BATCH_ROWS = 8192
_TICK_S = 0.05

#: Errors by which the caller can tell that the query, not the store, is wrong.
_USAGE = (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, pa.ArrowInvalid)
#: What binding a parameter that DuckDB cannot take raises.
_PYTHON = (RuntimeError, ValueError, TypeError, OverflowError)


class DeadlinePassed(PbkvError):
    """The query was interrupted at its deadline."""


class Cancelled(PbkvError):
    """The client left before the answer was ready."""


@dataclass
class _Call:
    cursor: duckdb.DuckDBPyConnection
    deadline: float
    gone: Callable[[], bool]
    why: str = ""


class Watcher:
    """One thread that interrupts cursors whose deadline passed or whose client left. It runs only while there are calls."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Call] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pbkv-deadlines", daemon=True)
        self._thread.start()

    def add(self, call: _Call) -> None:
        with self._wake:
            self._by_id[id(call)] = call
            self._wake.notify()

    def remove(self, call: _Call) -> None:
        """After this returns the call's cursor is never interrupted again."""
        with self._wake:
            self._by_id.pop(id(call), None)

    def close(self) -> None:
        """Interrupt whatever runs and end the thread."""
        with self._wake:
            self._closed = True
            for call in self._by_id.values():
                call.why = call.why or "stopped"
                call.cursor.interrupt()
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._wake:
            while not self._closed:
                self._wake.wait(_TICK_S if self._by_id else None)
                now = time.monotonic()
                for call in self._by_id.values():
                    self._look(call, now)

    @staticmethod
    def _look(call: _Call, now: float) -> None:
        if not call.why:
            call.why = "deadline" if now >= call.deadline else "gone" if call.gone() else ""
        if call.why:
            # Again at every tick: an interrupt that comes before the query has begun has no effect.
            call.cursor.interrupt()


def run(
    cursor: duckdb.DuckDBPyConnection, watcher: Watcher, sql: str, params: Mapping[str, Any] | None, deadline_s: float,
    *, gone: Callable[[], bool] = lambda: False, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES,
) -> pa.Table:
    """Rows of a checked SELECT.

    Raises UsageError (does not bind, bad parameter, result too large), DeadlinePassed, Cancelled, or PbkvError for the rest.
    """
    if not 0 < deadline_s <= MAX_DEADLINE_S:
        raise UsageError(f"deadline_s = {deadline_s}: expected seconds above 0 and up to {MAX_DEADLINE_S:g}")
    call = _Call(cursor, time.monotonic() + deadline_s, gone)
    watcher.add(call)
    try:
        return _fetch(cursor, sql, params, max_rows, max_bytes)
    except (duckdb.Error, OSError, pa.ArrowException, *_PYTHON) as error:
        raise _explain(error, call, deadline_s) from None
    finally:
        watcher.remove(call)


def _fetch(cursor: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, Any] | None, max_rows: int, max_bytes: int) -> pa.Table:
    result = cursor.execute(sql, dict(params) if params else None)
    reader = cast(pa.RecordBatchReader, result.to_arrow_reader(_BATCH_ROWS))  # pyright: ignore[reportUnknownMemberType]
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > max_rows or size > max_bytes:
            raise UsageError(
                f"result larger than {max_rows:,} rows or {max_bytes >> 20} MiB: narrow the time range, aggregate, or add a LIMIT"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _explain(error: Exception, call: _Call, deadline_s: float) -> PbkvError:
    if call.why == "deadline":
        return DeadlinePassed(f"query took longer than its {deadline_s:g} s and was stopped; narrow the time range")
    if call.why == "gone":
        return Cancelled("the client left")
    if call.why == "stopped":
        return PbkvError("the collector is stopping")
    # DuckDB draws a caret under the place in a block of its own; what is wrong stands before it.
    text = " ".join(str(error).partition("\n\nLINE ")[0].split()) or type(error).__name__
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in text:
        return PbkvError("query needs more memory than the collector gives to queries; narrow the time range or aggregate")
    if isinstance(error, _PYTHON) and not isinstance(error, pa.ArrowException):
        return UsageError(f"query failed: a parameter cannot be used ({text.partition(' (#define')[0]})")
    kind = UsageError if isinstance(error, _USAGE) else PbkvError
    return kind(f"query failed: {text}")
