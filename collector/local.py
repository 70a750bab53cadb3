"""Reads what lies on this machine: a .duckdb file that no collector has open, an archive folder, or a lake."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from collector.archive import cold_tables
from collector.catalog import Sources, install
from collector.database import Database, lock, memory
from collector.guard import Guard
from collector.lake import Lake
from collector.macros import MACROS
from collector.migrate import versions
from collector.query import MAX_DEADLINE_S, Watcher, run
from collector.reader import Closing
from collector.roller import unrolled
from collector.segment import load_segments
from collector.summary import archive_status, file_status, lake_status
from collector.tables import raw_tables
from pbkv.errors import PbkvError, UsageError

Status = Callable[[duckdb.DuckDBPyConnection], dict[str, Any]]


class LocalReader(Closing):
    """Queries on a database of this process. One per thread."""

    live = False

    def __init__(self, source: str, connection: duckdb.DuckDBPyConnection, status: Status, close: Callable[[], None]) -> None:
        self.source = source
        self._connection, self._status, self._close = connection, status, close
        self._guard = Guard(MACROS)
        self._watcher = Watcher()

    def sql(self, query: str, params: Mapping[str, Any] | None = None, *, deadline_s: float = 10.0) -> pa.Table:
        self._guard.check(query)
        with self._connection.cursor() as cursor:
            return run(cursor, self._watcher, query, params, min(deadline_s, MAX_DEADLINE_S))

    def status(self) -> dict[str, Any]:
        with self._connection.cursor() as cursor:
            return self._status(cursor)

    def close(self) -> None:
        self._watcher.close()
        self._close()


def open_file(path: Path) -> LocalReader:
    """A reader of a .duckdb file, of this or an earlier release. Raises UsageError."""
    if not path.is_file():
        raise UsageError(
            f"source {str(path)!r}: no such file; name a .duckdb file written by `pbkv collect`, an archive folder, or grpc://HOST:PORT"
        )
    database = Database(path, read_only=True)
    db = database.connection
    try:
        install(db, Sources(rolled=unrolled(db)))
        version, digest, _ = versions(db, path, "store.main")
    except BaseException:
        database.close()
        raise
    about = {"schema_version": version, "digest": digest}
    return LocalReader(str(path), db, lambda cursor: {**file_status(cursor, path), **about}, database.close)


def open_archive(folder: Path) -> LocalReader:
    """A reader of an archive folder, as it is now: segments that come later are seen by the next reader. Raises UsageError."""
    segments = load_segments(folder)
    if not segments:
        raise UsageError(f"source {str(folder)!r}: a folder without archived segments; name a .duckdb file, an archive or grpc://HOST:PORT")
    db = memory()
    try:
        lock(db, [folder])
        install(db, Sources(cold=cold_tables(folder, segments, raw_tables())), attached=False)
    except duckdb.Error as error:
        db.close()
        raise UsageError(f"archive {str(folder)!r}: cannot be read ({str(error).splitlines()[0]})") from None
    return LocalReader(str(folder), db, lambda cursor: archive_status(cursor, folder, segments), db.close)


def open_lake(source: str) -> LocalReader:
    """A reader of a lake: all servers of a fleet. Raises UsageError, and PbkvError when its catalog does not answer."""
    lake = Lake(source, data=None, read_only=True)
    try:
        install(lake.connection, Sources())
    except duckdb.Error as error:
        lake.close()
        raise PbkvError(f"lake {source!r}: cannot be read ({str(error).splitlines()[0]})") from None
    return LocalReader(source, lake.connection, lambda cursor: lake_status(cursor, source), lake.close)
