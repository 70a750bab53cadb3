"""Grids that were run, kept as files under names that can be passed on: what a permalink leads to."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pbkv.errors import UsageError
from pbkv.whatif.question import About, Answer, Found, Present

#: Results kept; the oldest go. Largest file of one, bytes.
MOST_RESULTS, MOST_BYTES = 100, 8 << 20
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Result:
    """A grid: what was asked of which source, and what was found. `asked` settings, of which `cells` are those that were reached.

    `made_at`: ISO time in UTC. `under`, `best`: the constraint and the figure by which the best setting is named.
    """

    source: str
    made_at: str
    axes: Mapping[str, str]
    asked: int
    about: About
    present: Present | None
    cells: tuple[Found, ...]
    under: str = ""
    best: str = ""

    @property
    def stopped(self) -> bool:
        """Whether it ended before all settings were reached."""
        return len(self.cells) < self.asked


_FORM = TypeAdapter(Result)


def result_of(answer: Answer, source: str, axes: Mapping[str, str], *, under: str = "", best: str = "") -> Result:
    """What a grid's answer came to. Its cells stand in the order of its settings. The answer must have begun."""
    assert answer.about is not None
    cells = tuple(answer.found[place] for place in sorted(answer.found))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(source, now, dict(axes), len(answer.settings), answer.about, answer.present, cells, under, best)


class Results:
    """The results in a folder, which any number of front ends may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, result: Result) -> str:
        """Store it; returns its id, which is the same for the same content. Raises UsageError."""
        content = _FORM.dump_json(result)
        if len(content) > MOST_BYTES:
            raise UsageError(f"the result has {len(content):,} bytes: expected up to {MOST_BYTES:,}; give the grid fewer settings")
        id_ = hashlib.blake2b(_FORM.dump_json(replace(result, made_at="")), digest_size=6).hexdigest()
        path = self._folder / f"{id_}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise UsageError(f"result {str(path)!r}: cannot be written ({error.strerror}); set PBKV_STATE_DIR to another folder") from None
        self._prune()
        return id_

    def get(self, id_: str) -> Result:
        """Raises UsageError for an id that is none, or that nothing is kept under (any more)."""
        if not _ID.fullmatch(id_):
            raise UsageError(f"result {id_[:40]!r}: expected twelve hexadecimal digits, as in a permalink")
        path = self._folder / f"{id_}.json"
        try:
            if path.stat().st_size > MOST_BYTES:
                raise UsageError(f"result {id_}: its file is larger than any result; delete it")
            return _FORM.validate_json(path.read_bytes())
        except FileNotFoundError:
            raise UsageError(f"result {id_}: not kept here (any more); the newest {MOST_RESULTS} are") from None
        except OSError as error:
            raise UsageError(f"result {id_}: cannot be read ({error.strerror})") from None
        except ValidationError:
            raise UsageError(f"result {id_}: its file is damaged, or of another release; run the grid again") from None

    def newest(self, count: int = 20) -> list[tuple[str, Result]]:
        """Ids and results, newest first; what cannot be read is left out."""
        found: list[tuple[str, Result]] = []
        for path in self._files()[:count]:
            try:
                found.append((path.stem, self.get(path.stem)))
            except UsageError:
                continue
        return found

    def _files(self) -> list[Path]:
        return sorted((path for path in self._folder.glob("*.json") if _ID.fullmatch(path.stem)), key=_age)

    def _prune(self) -> None:
        for path in self._files()[MOST_RESULTS:]:
            path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    """Youngest first; another front end may delete it meanwhile."""
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0
