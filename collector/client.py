"""Opens SOURCE: a live collector (grpc://HOST:PORT), a .duckdb file, an archive folder or a lake (postgres:...), all as a `Reader`."""

from pathlib import Path

from collector.lake import PREFIX
from collector.local import open_archive, open_file, open_lake
from collector.reader import Reader
from collector.remote import FlightReader
from collector.token import reader_token
from pbkv.errors import UsageError


def open(source: str, token: str | None = None) -> Reader:
    """A reader of `source`. Raises UsageError for a source that can never be read; a collector that is down raises Unreachable on use."""
    if source.startswith(("grpc://", "grpc+tls://")):
        return FlightReader(source, reader_token(token))
    if source.startswith(PREFIX):
        return open_lake(source)
    if "://" in source:
        raise UsageError(
            f"source {source!r}: expected grpc://HOST:PORT of a collector, a .duckdb file, an archive folder or postgres:... of a lake"
        )
    path = Path(source)
    return open_archive(path) if path.is_dir() else open_file(path)
