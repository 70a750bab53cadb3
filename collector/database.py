"""Opening a store the way every part of the product opens one: no extensions, no files but its own, nothing to configure.

The file is attached as `store` to an empty database in memory, which holds only views: `raw.<table>` and the views for people. So the same
SQL reads a file, an archive, both together or a lake, and a reader's connection has nothing it could write to.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from collector.columns import quoted
from collector.migrate import prepare, versions
from pbkv.errors import PbkvError, UsageError

#: Memory DuckDB may use for everything: ingest and all queries. Events stay in memory, about 100 bytes each, until a checkpoint.
MEMORY_LIMIT = "2GB"

_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "temp_directory": "",  # a query that needs more memory fails; it must not fill the disk the events go to
    # Upkeep makes the checkpoints, beside the commits; this is for a writer without it.
    "checkpoint_threshold": "320MB",
}
#: Files this process has open for writing. Locks do not hold within a process, and a second writer would destroy the file.
_writing: set[Path] = set()
_writing_lock = threading.Lock()


class Database:
    """An open store: `connection` is the root of all cursors. `close` checkpoints."""

    def __init__(
        self, path: Path, *, read_only: bool, memory_limit: str = MEMORY_LIMIT, folders: Sequence[Path] = (),
        before_lock: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    ) -> None:
        """Open `path`, made or brought up to date unless `read_only`; `folders` may be read, and written unless `read_only`. `before_lock`
        may load and configure what cannot be afterwards.

        Raises UsageError with one sentence when it is no store, is locked, is of a newer release or cannot be opened.
        """
        if path.name.partition(".")[0].lower() == "raw":
            # DuckDB names the catalog after a file that it opens itself, and raw.call would then be ambiguous.
            raise UsageError(f"database {str(path)!r}: a file cannot have this name, because schema raw is inside it; name it otherwise")
        self.path = path
        self._read_only, self._place = read_only, path.resolve()
        self._claim()
        try:
            if not read_only:
                _make(path, memory_limit)
            self.connection = _attached(path, read_only, memory_limit, folders, before_lock)
        except BaseException:
            self._release()
            raise

    def _claim(self) -> None:
        with _writing_lock:
            if self._place in _writing:
                raise UsageError(f"database {str(self.path)!r}: in use by this process; close it there first")
            if not self._read_only:
                _writing.add(self._place)

    def _release(self) -> None:
        if not self._read_only:
            with _writing_lock:
                _writing.discard(self._place)

    def close(self) -> None:
        """Checkpoint and close; no write-ahead log stays behind."""
        self.connection.close()
        self._release()


def memory(memory_limit: str = MEMORY_LIMIT, more: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that can still attach and load; `lock` ends that. `more`: further settings."""
    return duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": memory_limit, **(more or {})})


def lock(db: duckdb.DuckDBPyConnection, folders: Sequence[Path] = ()) -> None:
    """From now on nothing can be attached, loaded or configured, and no file be touched outside `folders` and what is attached."""
    allowed = ", ".join(quoted(str(folder.resolve())) for folder in folders)
    db.execute(f"SET allowed_directories = [{allowed}]; SET enable_external_access = false; SET lock_configuration = true")


def _make(path: Path, memory_limit: str) -> None:
    """Create, migrate or just check the file. DuckDB itself has it open here, so that its views work without us."""
    # In this order: without access to files, what comes after the first may only be what it is then already.
    config = {"enable_external_access": False, **_CONFIG, "memory_limit": memory_limit, "lock_configuration": True}
    try:
        db = duckdb.connect(str(path), config=config)
    except duckdb.Error as error:
        raise UsageError(explain(path, str(error))) from None
    try:
        prepare(db, path)
    except duckdb.Error as error:
        raise PbkvError(f"database {str(path)!r}: cannot be opened for writing ({str(error).splitlines()[0]})") from None
    finally:
        db.close()


def _attached(
    path: Path, read_only: bool, memory_limit: str, folders: Sequence[Path], before_lock: Callable[[duckdb.DuckDBPyConnection], None] | None
) -> duckdb.DuckDBPyConnection:
    # A writer runs every statement on the thread that asks for it: with a pool of its own DuckDB needs twice the processor time for the
    # same inserts, and a query could take both cores from them.
    db = memory(memory_limit, {} if read_only else {"threads": 1})
    try:
        try:
            db.execute(f"ATTACH {quoted(str(path))} AS store" + (" (READ_ONLY)" if read_only else ""))
        except duckdb.Error as error:
            raise UsageError(explain(path, str(error))) from None
        versions(db, path, "store.main")
        if before_lock is not None:
            before_lock(db)
        lock(db, folders)
    except BaseException:
        db.close()
        raise
    return db


def explain(path: Path, text: str) -> str:
    """One sentence for a DuckDB error on opening `path`."""
    if "not a valid DuckDB" in text:
        return f"database {str(path)!r}: not a DuckDB file; name a .duckdb file written by `pbkv collect`"
    if "Could not set lock" in text:
        holder = text.partition("(PID ")[2].partition(")")[0]
        who = f"process {holder}" if holder else "another process"
        return (f"database {str(path)!r}: in use by {who}, probably a running collector; read it through that collector "
                "(grpc://HOST:PORT), or stop it first")
    if "newer version" in text:
        return f"database {str(path)!r}: written by a newer DuckDB; use a newer release of this package"
    return f"database {str(path)!r}: cannot be opened ({text.splitlines()[0]})"
