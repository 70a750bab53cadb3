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

import duckdb

from collector.batch import Batch, build
from collector.database import MEMORY_LIMIT, connect, schema_version
from collector.names import view_statements
from collector.stream import Item, Key
from collector.summary import macros, rows_per_kind
from collector.tables import create_statements
from pbkv.errors import PbkvError, UsageError
from pbkv.events.schema import DIGEST, SCHEMA_VERSION


class Store:
    """An open store. `commit` belongs to one thread; `cursor` may be called from any."""

    def __init__(self, path: Path, *, memory_limit: str = MEMORY_LIMIT) -> None:
        """Open or create `path`. Raises UsageError: no DuckDB file, locked, newer or other schema, folder missing; PbkvError: disk full."""
        self.path = path
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        self._db = connect(self.path, read_only=False, memory_limit=self._memory_limit)
        try:
            self._prepare()
            self._load()
        except duckdb.Error as error:
            self._db.close()
            raise PbkvError(f"database {str(self.path)!r}: cannot be opened for writing ({str(error).splitlines()[0]})") from None
        except BaseException:
            self._db.close()
            raise

    def _load(self) -> None:
        """What the file already knows of streams and names."""
        self._writer = self._db.cursor()
        self._sources: dict[Key, int] = {}
        self._names: dict[int, set[int]] = {}
        for src, server, epoch, rank in self._writer.execute("SELECT src, server, epoch, rank FROM raw.source").fetchall():
            self._sources[Key(server, epoch, rank)] = src
        for src, name_id in self._writer.execute("SELECT src, id FROM raw.name").fetchall():
            self._names.setdefault(src, set()).add(name_id)

    def _prepare(self) -> None:
        row = self._db.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
        if row and row[0]:
            version, digest = schema_version(self._db, self.path)
            if digest != DIGEST.hex():
                raise UsageError(
                    f"database {str(self.path)!r}: event schema {version} ({digest}) differs from this release's "
                    f"{SCHEMA_VERSION} ({DIGEST.hex()}); collect into a new file"
                )
        statements = [] if row and row[0] else create_statements(datetime.now(UTC).replace(tzinfo=None))
        self._db.execute("; ".join(["BEGIN", *statements, *view_statements(), "COMMIT"]))

    def high_water(self) -> dict[Key, int]:
        """Per stream, the sequence number up to which everything is stored or recorded as lost."""
        with self.cursor() as cursor:
            marks = dict(cursor.execute("SELECT src, max(seq) FROM raw.high_water GROUP BY src").fetchall())
        return {key: int(marks.get(src, 0)) for key, src in self._sources.items()}

    def counts(self) -> dict[str, int]:
        """Rows per kind in the file."""
        with self.cursor() as cursor:
            return rows_per_kind(cursor)

    def macros(self) -> list[str]:
        """Table macros of the file, which readers may call."""
        with self.cursor() as cursor:
            return macros(cursor)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one query of one thread. Raises PbkvError while the file is closed after a failed write."""
        with self._lock:
            try:
                return self._db.cursor()
            except duckdb.Error:
                raise PbkvError(f"database {str(self.path)!r} is closed after a failed write and is being opened again") from None

    def commit(self, items: Sequence[Item]) -> Batch:
        """Store `items` (in stream order) in one transaction. On an error nothing of them is stored and PbkvError is raised."""
        sources = dict(self._sources)

        def src_of(key: Key) -> int:
            return sources.setdefault(key, len(sources) + 1)

        def known(src: int, name_id: int) -> bool:
            return name_id in self._names.get(src, ())

        batch = build(items, src_of, known, time.time_ns() // 1000)
        fresh = [(src, key, batch.first_wall[key]) for key, src in sources.items() if key not in self._sources]
        self._transaction(batch, fresh)
        self._sources = sources
        for src, ids in batch.names.items():
            self._names.setdefault(src, set()).update(ids)
        return batch

    def _transaction(self, batch: Batch, fresh: list[tuple[int, Key, int]]) -> None:
        db = self._writer
        try:
            db.execute("BEGIN")
            for src, key, wall_ns in fresh:
                t = datetime.fromtimestamp(wall_ns / 1e9, UTC).replace(tzinfo=None)
                db.execute("INSERT INTO raw.source VALUES (?, ?, ?, ?, ?)", [src, key.server, key.epoch, key.rank, t])
            for name, table in batch.tables.items():
                db.register("incoming", table)
                db.execute(f"INSERT INTO raw.{name} SELECT * FROM incoming")
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
            self._db.close()
            self._open()

    def close(self) -> None:
        """Checkpoint and close; no write-ahead log stays behind."""
        with self._lock:
            self._db.close()
