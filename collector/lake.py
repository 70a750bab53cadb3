"""A fleet's store: the same tables in DuckLake, its catalog in PostgreSQL and its data as Parquet on storage that all collectors share.

Every collector only inserts, under stream numbers that need no agreement: a digest of (server, epoch, rank). A stream belongs to one
collector at a time; two that follow the same server would store it twice.
"""

import contextlib
import hashlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from collector.batch import Batch
from collector.columns import Column, quoted
from collector.database import MEMORY_LIMIT, lock, memory
from collector.extension import load
from collector.migrate import versions
from collector.store import Store
from collector.stream import Item, Key
from collector.tables import META, meta_row, raw_tables
from pbkv.errors import PbkvError, UsageError

PREFIX = "postgres:"
#: Between two compactions by one collector, seconds; they are spread at random so that collectors do not meet.
COMPACT_S = 600.0
#: Files a query may still read stay for this long after a compaction has replaced them, minutes.
_KEEP_MINUTES = 10


class Lake:
    """An attached lake: `connection` is the root of all cursors."""

    def __init__(self, source: str, *, data: Path | None, read_only: bool, memory_limit: str = MEMORY_LIMIT) -> None:
        """Attach `source` ("postgres:host=... dbname=..."), made when missing and not `read_only`; `data` is then its folder.

        Raises UsageError: a password in it, no lake, extensions missing; PbkvError: the catalog does not answer.
        """
        self.path = Path(source)
        self.connection = memory(memory_limit, {} if read_only else {"threads": 1})
        try:
            self._attach(source, data, read_only)
        except duckdb.Error as error:
            self.connection.close()
            raise PbkvError(f"lake {source!r}: cannot be opened ({_reason(error)})") from None
        except BaseException:
            self.connection.close()
            raise

    def _attach(self, source: str, data: Path | None, read_only: bool) -> None:
        db = self.connection
        load(db, ("postgres_scanner", "ducklake"), "lake")
        options = ["READ_ONLY"] if read_only else []
        if data is not None:
            _make_folder(data)
            options.append(f"DATA_PATH {quoted(str(data.resolve()) + '/')}")
        target = quoted("ducklake:" + check_source(source))
        db.execute(f"ATTACH {target} AS store" + (f" ({', '.join(options)})" if options else ""))
        row = db.execute("SELECT value FROM ducklake_options('store') WHERE option_name = 'data_path'").fetchone()
        if not read_only:
            _create(db)
        versions(db, self.path, "store.main")
        lock(db, [Path(str(row[0]))] if row else [])

    def close(self) -> None:
        """Detach."""
        self.connection.close()


class LakeStore(Store):
    """A `Store` that writes a lake. Larger, rarer transactions: each makes a file per table."""

    src_type = pa.int64()
    batch_bytes, commit_s, roll_s = 32 << 20, 5.0, 30.0

    def __init__(self, source: str, data: Path | None, *, memory_limit: str = MEMORY_LIMIT) -> None:
        self._source, self._data = source, data
        self._mine: set[int] = set()
        self._next_compaction = time.monotonic() + random.uniform(0.5, 1.0) * COMPACT_S
        super().__init__(Path(source), memory_limit=memory_limit)

    def _connect(self) -> Lake:
        return Lake(self._source, data=self._data, read_only=False, memory_limit=self._memory_limit)

    def _number(self, key: Key, keys: dict[Key, int]) -> int:
        return stream_number(key)

    def commit(self, items: Sequence[Item]) -> Batch:
        batch = super().commit(items)
        self._mine |= {self._keys[key] for key in batch.done}
        return batch

    def stored(self) -> dict[int, int]:
        """Only of the streams this collector has written since it started: others make their own rollups."""
        return {src: seq for src, seq in self._stored.items() if src in self._mine}

    def checkpoint(self, wal_bytes: int) -> bool:
        """Put small files together, when it is time."""
        if time.monotonic() < self._next_compaction:
            return False
        self._next_compaction = time.monotonic() + random.uniform(0.75, 1.25) * COMPACT_S
        with self.cursor() as db:
            compact(db)
        return True


def compact(db: duckdb.DuckDBPyConnection, keep_minutes: int = _KEEP_MINUTES) -> None:
    """Merge small files, and delete those that no snapshot of the last minutes needs. Raises duckdb.Error, for example when another
    collector does the same at this moment."""
    db.execute("CALL ducklake_flush_inlined_data('store')")
    db.execute("CALL ducklake_merge_adjacent_files('store')")
    older = f"older_than => now() - INTERVAL {keep_minutes} MINUTE"
    db.execute(f"CALL ducklake_expire_snapshots('store', {older})")
    db.execute(f"CALL ducklake_cleanup_old_files('store', {older})")


def stream_number(key: Key) -> int:
    """Number of a stream in a lake: 63 bits of a digest."""
    text = f"{key.server}\0{key.epoch}\0{key.rank}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def check_source(source: str) -> str:
    """`source` if it can be one. Raises UsageError: not postgres:..., or with a password, which other readers would see."""
    if not source.startswith(PREFIX) or "=" not in source:
        raise UsageError("lake: expected postgres:KEY=VALUE ..., for example 'postgres:host=127.0.0.1 dbname=pbkv user=pbkv'")
    if "password" in source.lower():
        raise UsageError("lake: a password cannot stand here, readers could see it; put it into the file PGPASSFILE names")
    return source


def _make_folder(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"lake data folder {str(data)!r}: cannot be made ({error.strerror}); name another folder") from None


def _create(db: duckdb.DuckDBPyConnection) -> None:
    """Tables of a new lake. Of collectors that start together one makes them, and the others find that it has."""
    if _exists(db):
        return
    try:
        _create_all(db)
    except duckdb.Error:
        with contextlib.suppress(duckdb.Error):  # DuckDB may have ended the transaction itself
            db.execute("ROLLBACK")
        if not _exists(db):
            raise


def _exists(db: duckdb.DuckDBPyConnection) -> bool:
    row = db.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'store' AND table_name = 'meta'").fetchone()
    return bool(row and row[0])


def _create_all(db: duckdb.DuckDBPyConnection) -> None:
    statements = ["CREATE SCHEMA IF NOT EXISTS store.raw"]
    statements += [f"CREATE TABLE store.raw.{name} ({_columns(columns)})" for name, (_, columns) in raw_tables().items()]
    now = db.execute("SELECT now()::TIMESTAMP").fetchone()
    created: Any = now[0] if now else None
    statements += [f"CREATE TABLE store.main.meta ({_columns(META)})", meta_row(created).replace("INTO meta", "INTO store.main.meta")]
    db.execute("; ".join(["BEGIN", *statements, "COMMIT"]))


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{c.name} {'BIGINT' if c.name == 'src' else c.sql_type}" for c in columns)


def _reason(error: duckdb.Error) -> str:
    # A connection error repeats the connection string; its first line says what is wrong.
    return str(error).splitlines()[0]
