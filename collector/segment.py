"""One segment of an archive: a folder of Parquet files, one per table, with a manifest that says what is in them.

A segment is complete or it does not exist: it is written under another name, flushed to the disk and then renamed. Its rollups are sums
over exactly its events and its names are those its events use, so a folder of segments can be read without the database it came from.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError
from pbkv.events.schema import SCHEMA_VERSION

#: Version of the manifest and of the layout of a segment.
FORMAT = 1
MANIFEST = "manifest.json"
_MAX_MANIFEST = 8 << 20


@dataclass(frozen=True)
class Table:
    """A Parquet file of a segment, named after its table."""

    rows: int
    bytes: int
    columns: tuple[str, ...]
    last_t: str


@dataclass(frozen=True)
class Segment:
    """What a manifest says. `marks`: per stream (as text) the messages after..upto whose events are here."""

    id: int
    owner: str
    schema_version: int
    made: str
    marks: Mapping[str, tuple[int, int]]
    tables: Mapping[str, Table]
    format: int = FORMAT

    @property
    def folder(self) -> str:
        """Name of its folder in the archive."""
        return f"segment-{self.id:08d}"

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self.tables.values())

    @property
    def rows(self) -> int:
        """Events in it, of all kinds."""
        return sum(t.rows for name, t in self.tables.items() if name not in _NO_EVENTS and not name.startswith("roll_"))

    @property
    def last_t(self) -> datetime:
        """Time of its newest event; the time it was made when it has none."""
        times = [t.last_t for name, t in self.tables.items() if name not in _NO_EVENTS and t.last_t]
        return datetime.fromisoformat(max(times, default=self.made))


_NO_EVENTS = frozenset({"name", "source", "high_water", "loss"})


def write_manifest(folder: Path, segment: Segment) -> None:
    """Write it and flush the folder to the disk."""
    with (folder / MANIFEST).open("w") as file:
        json.dump(asdict(segment), file)
        file.flush()
        os.fsync(file.fileno())
    for path in folder.glob("*.parquet"):
        _sync(path)
    _sync(folder)


def publish(folder: Path, target: Path) -> None:
    """Give a written segment its name; after this returns it survives a loss of power."""
    folder.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def load_segments(archive: Path) -> list[Segment]:
    """Segments of a folder in order. Raises UsageError: no archive, a damaged manifest, a segment of a newer release."""
    found = [_read(path) for path in sorted(archive.glob("segment-*")) if (path / MANIFEST).is_file()]
    owners = {segment.owner for segment in found}
    if len(owners) > 1:
        raise UsageError(f"archive {str(archive)!r}: holds segments of {len(owners)} databases; keep them in folders of their own")
    return sorted(found, key=lambda segment: segment.id)


def _read(folder: Path) -> Segment:
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _MAX_MANIFEST:
            raise ValueError
        segment = _parse(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"archive segment {str(folder)!r}: its manifest cannot be read; restore or remove the folder") from None
    if segment.format > FORMAT or segment.schema_version > SCHEMA_VERSION:
        raise UsageError(
            f"archive segment {str(folder)!r}: event schema {segment.schema_version}, format {segment.format}, is newer than this "
            f"release's {SCHEMA_VERSION} and {FORMAT}; use a release of this package that has them"
        )
    missing = [name for name in segment.tables if not (folder / f"{name}.parquet").is_file()]
    if missing or segment.folder != folder.name:
        what = ", ".join(missing) or "its name"
        raise UsageError(f"archive segment {str(folder)!r}: {what} does not fit its manifest; restore or remove the folder")
    return segment


def _parse(data: Any) -> Segment:
    fields = cast(dict[str, Any], data)
    tables = {
        str(name): Table(int(t["rows"]), int(t["bytes"]), tuple(str(c) for c in t["columns"]), _time(t["last_t"]))
        for name, t in fields["tables"].items()
    }
    if not all(name.isidentifier() for name in tables) or not all(c.isidentifier() for t in tables.values() for c in t.columns):
        raise ValueError
    marks = {str(int(src)): (int(after), int(upto)) for src, (after, upto) in fields["marks"].items()}
    return Segment(
        int(fields["id"]), str(fields["owner"]), int(fields["schema_version"]), _time(fields["made"]), marks, tables, int(fields["format"]),
    )


def _time(text: object) -> str:
    """`text` when it is a time or "" ; raises ValueError."""
    return datetime.fromisoformat(str(text)).isoformat(" ") if text else ""
