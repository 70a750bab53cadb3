"""Reading trace files with care: every fault is one sentence that names the file, the row and the field."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError

#: Largest file that is read into memory, bytes.
MAX_FILE = 256 << 20
#: Largest prompt or output of one call, tokens; longest session, calls.
MAX_TOKENS = 16 << 20
MAX_CALLS = 1 << 20


class Row:
    """The fields of one entry; `place` is how messages name it."""

    def __init__(self, place: str, entry: object) -> None:
        if not isinstance(entry, dict):
            raise UsageError(f"{place}: expected an object, found {_show(entry)}")
        self.place = place
        self._fields = cast("dict[str, Any]", entry)

    def whole(self, field: str, low: int = 0, high: int = MAX_TOKENS) -> int:
        """A whole number within bounds."""
        value = self._fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(field, f"a whole number from {low} to {high}")
        return value

    def number(self, field: str, low: float = 0.0, high: float = 1e12) -> float:
        """A number within bounds."""
        value = self._fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.bad(field, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, field: str) -> str:
        """A text that is not empty, at most 256 characters."""
        value = self._fields.get(field)
        if not isinstance(value, str) or not 0 < len(value) <= 256:
            raise self.bad(field, "a text of 1 to 256 characters")
        return value

    def list(self, field: str) -> Sequence[object]:
        """A list of anything, at most MAX_CALLS long."""
        value = self._fields.get(field)
        if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_CALLS:
            raise self.bad(field, f"a list of at most {MAX_CALLS} entries")
        return cast("list[object]", value)

    def ids(self, field: str, count: int) -> tuple[int, ...]:
        """A list of exactly `count` whole numbers."""
        values = self.list(field)
        if len(values) != count:
            raise UsageError(f"{self.place}: {field} has {len(values)} entries where the length asks for {count}")
        if not all(type(value) is int for value in values):
            raise self.bad(field, "whole numbers")
        return tuple(cast("Sequence[int]", values))

    def get(self, field: str) -> object:
        """The value as it stands, None without one."""
        return self._fields.get(field)

    def bad(self, field: str, expected: str) -> UsageError:
        """The message for a field that is not what was expected."""
        return UsageError(f"{self.place}: {field} = {_show(self._fields.get(field))}: expected {expected}")


def read_bytes(file: Path) -> bytes:
    """The whole file. Raises UsageError when there is none, it cannot be read or is larger than MAX_FILE."""
    try:
        if (size := file.stat().st_size) > MAX_FILE:
            raise UsageError(f"trace file {str(file)!r} has {size} bytes; at most {MAX_FILE} are read, split it")
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"trace file {str(file)!r} cannot be read: {error.strerror}") from None


def parse_json(place: str, raw: bytes) -> object:
    """A JSON document. Raises UsageError that names `place`."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {str(error)[:100]}") from None


def files_of(path: Path, suffix: str) -> list[Path]:
    """`path` itself, or the files with that suffix in the folder `path`, by name. Raises UsageError when there are none."""
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.iterdir() if f.suffix == suffix)
    if not files:
        raise UsageError(f"trace folder {str(path)!r} holds no {suffix} file")
    return files


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
