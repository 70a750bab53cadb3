"""The one way to read events: a live collector, a .duckdb file, an archive folder or a lake behind one protocol."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa


class Reader(Protocol):
    """SQL in, Arrow out. The same SQL works on every source. Not thread-safe: one reader per thread.

    Raises UsageError for a statement that is refused or does not bind, Unreachable when the collector is gone (a later call
    reconnects by itself), PbkvError when the deadline passed.
    """

    source: str
    live: bool

    def sql(self, query: str, params: Mapping[str, Any] | None = None, *, deadline_s: float = 10.0) -> pa.Table: ...

    def status(self) -> dict[str, Any]:
        """Counters of the collector (live) or of the file: lag, queue, drops, gaps, rows per table, schema version."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Closing:
    """A context manager that closes itself."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
