"""The only writer of the DuckDB file: every batch is one insert-only transaction together with its high-water rows.

A message is therefore stored exactly once whatever crashes: after a restart the collector asks for what comes behind the
high-water mark, and everything up to it is in the tables or in raw.loss.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa

from collector.batch import Batch, build
from collector.catalog import Sources, install, swap
from collector.database import MEMORY_LIMIT, Database
from collector.quack import Quack
from collector.stream import Item, Key, Loss, key_of
from collector.summary import rows_per_kind
from pbkv.errors import PbkvError


class Connected(Protocol):
    """An open database: cursors come from `connection`."""

    connection: duckdb.DuckDBPyConnection

    def close(self) -> None: ...


class Store:
    """An open store. `commit` belongs to one thread; `cursor` may be called from any."""

    #: Arrow type of stream numbers; bytes and seconds of messages in one transaction; seconds between rollups.
    src_type: pa.DataType = pa.uint16()
    batch_bytes, commit_s, roll_s = 8 << 20, 0.15, 2.0

    def __init__(self, path: Path, *, memory_limit: str = MEMORY_LIMIT, archive: Path | None = None, quack: Quack | None = None) -> None:
        """Open or create `path`; segments of it are in the folder `archive`. `quack`: serve DuckDB's own protocol too.

        Raises UsageError: no DuckDB file, locked, newer or other schema, folder missing; PbkvError: disk full.
        """
        self.path = path
        self._memory_limit = memory_limit
        self._folders = [archive] if archive else []
        self._quack = quack
        self._sources = Sources()
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        self._database = self._connect()
        self._db = self._database.connection
        try:
            install(self._db, self._sources)
            self._load()
        except duckdb.Error as error:
            self._database.close()
            raise PbkvError(f"database {str(self.path)!r}: cannot be opened for writing ({str(error).splitlines()[0]})") from None
        except BaseException:
            self._database.close()
            raise

    def _connect(self) -> Connected:
        serve = self._quack.serve if self._quack else None
        return Database(self.path, read_only=False, memory_limit=self._memory_limit, folders=self._folders, before_lock=serve)

    def _number(self, key: Key, keys: dict[Key, int]) -> int:
        """The number of a stream that is not in `keys`."""
        return len(keys) + 1

    def _load(self) -> None:
        """What the file already knows of streams and names."""
        self._writer = self._db.cursor()
        self._keys: dict[Key, int] = {}
        self._names: dict[int, set[int]] = {}
        self._stored: dict[int, int] = dict(
            self._writer.execute("SELECT src, max(seq) FROM store.raw.high_water GROUP BY src").fetchall()
        )
        for src, server, epoch, rank in self._writer.execute("SELECT src, server, epoch, rank FROM store.raw.source").fetchall():
            self._keys[Key(server, epoch, rank)] = src
        for src, name_id in self._writer.execute("SELECT src, id FROM store.raw.name").fetchall():
            self._names.setdefault(src, set()).add(name_id)

    def show(self, sources: Sources) -> None:
        """What queries see from now on besides the file itself. Raises PbkvError."""
        with self.cursor() as cursor:
            try:
                swap(cursor, sources)
            except duckdb.Error as error:
                raise PbkvError(f"database {str(self.path)!r}: views cannot be made ({str(error).splitlines()[0]})") from None
        self._sources = sources

    def forget_names(self, src: int, ids: set[int]) -> None:
        """Names that were deleted; they are stored again when they are sent again."""
        with self._lock:
            self._names.get(src, set()).difference_update(ids)

    def high_water(self) -> dict[Key, int]:
        """Per stream, the sequence number up to which everything is stored or recorded as lost."""
        return {key: int(self._stored.get(src, 0)) for key, src in self._keys.items()}

    def stored(self) -> dict[int, int]:
        """Per stream number, the message up to which everything is stored; for any thread."""
        return dict(self._stored)

    def counts(self) -> dict[str, int]:
        """Rows per kind in the file."""
        with self.cursor() as cursor:
            return rows_per_kind(cursor)

    def checkpoint(self, wal_bytes: int) -> bool:
        """Move the write-ahead log into the file when it is larger than `wal_bytes`. Raises duckdb.Error: a full disk."""
        wal = Path(f"{self.path}.wal")
        if not wal.exists() or wal.stat().st_size <= wal_bytes:
            return False
        with self.cursor() as cursor:
            cursor.execute("CHECKPOINT store")
        return True

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one query of one thread. Raises PbkvError while the file is closed after a failed write."""
        with self._lock:
            try:
                return self._db.cursor()
            except duckdb.Error:
                raise PbkvError(f"database {str(self.path)!r} is closed after a failed write and is being opened again") from None

    def commit(self, items: Sequence[Item]) -> Batch:
        """Store `items` (in stream order) in one transaction. On an error nothing of them is stored and PbkvError is raised."""
        keys = dict(self._keys)

        def src_of(key: Key) -> int:
            if key not in keys:
                keys[key] = self._number(key, keys)
            return keys[key]

        def known(src: int, name_id: int) -> bool:
            return name_id in self._names.get(src, ())

        batch = build(self._new(items), src_of, known, time.time_ns() // 1000, self.src_type)
        fresh = [(src, key, batch.first_wall[key]) for key, src in keys.items() if key not in self._keys]
        self._transaction(batch, fresh)
        self._keys = keys
        self._stored = {**self._stored, **{keys[key]: seq for key, seq in batch.done.items()}}
        with self._lock:
            for src, ids in batch.names.items():
                self._names.setdefault(src, set()).update(ids)
        return batch

    def _new(self, items: Sequence[Item]) -> Sequence[Item]:
        """Items that are not stored yet. After a transaction whose end was not heard, as when a catalog server dies, all of it may be."""
        return [i for i in items if not (seq := _last_seq(i)) or seq > self._stored.get(self._keys.get(_key(i), -1), 0)]

    def _transaction(self, batch: Batch, fresh: list[tuple[int, Key, int]]) -> None:
        db = self._writer
        try:
            db.execute("BEGIN")
            for src, key, wall_ns in fresh:
                t = datetime.fromtimestamp(wall_ns / 1e9, UTC).replace(tzinfo=None)
                db.execute("INSERT INTO store.raw.source VALUES (?, ?, ?, ?, ?)", [src, key.server, key.epoch, key.rank, t])
            for name, table in batch.tables.items():
                db.register("incoming", table)
                db.execute(f"INSERT INTO store.raw.{name} BY NAME SELECT * FROM incoming")
            db.execute("COMMIT")
        except duckdb.Error as error:
            self._roll_back()
            raise PbkvError(f"database {str(self.path)!r}: write failed ({str(error).splitlines()[0]})") from None
        finally:
            with contextlib.suppress(duckdb.Error):  # a failed write may have closed the connection
                db.unregister("incoming")

    def _roll_back(self) -> None:
        with contextlib.suppress(duckdb.Error):  # DuckDB may have ended the transaction itself
            self._writer.execute("ROLLBACK")

    def reopen(self) -> None:
        """Close and open again: DuckDB refuses all work after a failed write to its file. Raises PbkvError like opening."""
        with self._lock:
            self._database.close()
            self._open()

    def close(self) -> None:
        """Checkpoint and close; no write-ahead log stays behind."""
        with self._lock:
            self._database.close()


def _key(item: Item) -> Key:
    return item.key if isinstance(item, Loss) else key_of(item.header)


def _last_seq(item: Item) -> int:
    """The message an item brings its stream to; 0 for names, which stand outside the sequence."""
    return item.last if isinstance(item, Loss) else item.header.seq
