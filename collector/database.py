"""Opening a DuckDB file the way every part of the product opens one: no extensions, no files but its own, nothing to configure."""

from pathlib import Path
from typing import Any

import duckdb

from pbkv.errors import UsageError
from pbkv.events.schema import SCHEMA_VERSION

#: Memory DuckDB may use for everything: ingest and all queries.
MEMORY_LIMIT = "1GB"


def connect(path: Path, *, read_only: bool, memory_limit: str = MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """A connection to `path`. Raises UsageError with one sentence when it is not a DuckDB file, is locked or cannot be opened."""
    if path.name.partition(".")[0].lower() == "raw":
        # DuckDB names the catalog after the file, and raw.call would then be ambiguous.
        raise UsageError(f"database {str(path)!r}: a file cannot have this name, because schema raw is inside it; name it otherwise")
    config: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_access": False,
        "memory_limit": memory_limit,
        "temp_directory": "",  # a query that needs more memory fails; it must not fill the disk the events go to
        "lock_configuration": True,
    }
    try:
        return duckdb.connect(str(path), read_only=read_only, config=config)
    except duckdb.Error as error:
        raise UsageError(_explain(path, str(error))) from None


def _explain(path: Path, text: str) -> str:
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


def schema_version(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[int, str]:
    """(schema version, digest) of the open store. Raises UsageError when it is no store of ours, or a newer release wrote it."""
    try:
        row = connection.execute("SELECT schema_version, digest FROM meta").fetchone()
    except duckdb.Error:
        row = None
    if row is None:
        raise UsageError(f"database {str(path)!r}: a DuckDB file, but not an event store; name one written by `pbkv collect`")
    version = int(row[0])
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"database {str(path)!r}: event schema {version} is newer than this release's {SCHEMA_VERSION}; "
            "use a newer release of this package"
        )
    return version, str(row[1])
