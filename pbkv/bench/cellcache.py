"""Results of cells as files named by content, so that a run can be stopped and goes on where it was."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pbkv
from pbkv.bench.cell import Cell, Result
from pbkv.errors import UsageError

_ROOT = Path(pbkv.__file__).parent
#: What every run depends on, and what only some do. A change elsewhere leaves results valid.
_CORE = (
    "engine", "manager.py", "state.py", "record.py", "workflow.py", "knobs.py", "eviction/base.py", "eviction/queue.py", "workloads",
    "bench/run.py", "bench/source.py",
)
_OF_POLICY = {
    "lru": ("eviction/lru.py",),
    "lae": ("eviction/lae.py",),
    "session_lae": ("eviction/session_lae.py",),
    "kvflow": ("eviction/kvflow.py",),
    "kvflow_all": ("eviction/kvflow.py",),
    "he": ("eviction/he.py",),
    "first_use": ("eviction/first_use.py", "reads.py"),
    "clairvoyant": ("eviction/clairvoyant.py", "bench/future.py"),
    "belady": ("eviction/clairvoyant.py", "bench/future.py", "bench/replay.py"),
}
_OF_PREDICTOR = {
    "": (),
    "bayes": ("predictor/base.py",),
    "perfect": ("predictor/perfect.py",),
    "uniform": ("predictor/uniform.py",),
    "markov": ("predictor/markov.py",),
    "online": ("predictor/markov.py",),
}
#: Largest file that can be a result, bytes.
_MAX_RESULT = 1 << 16


class CellCache:
    """A folder of results. A result is valid until what it depends on changes; nothing is deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[tuple[str, ...], str] = {}
        self._folders: dict[str, str] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cell folder {str(folder)!r} cannot be made ({error.strerror}); name another with --cells") from None

    def path(self, cell: Cell) -> Path:
        """Where the cell's result is or will be."""
        key = cell.key(self._digest(depends_on(cell)) + self._trained(cell.plain().predictor))
        return self._folder / key[:2] / f"{key}.json"

    def get(self, cell: Cell) -> Result | None:
        """The stored result, None when there is none that can be read."""
        path = self.path(cell)
        try:
            return _result(json.loads(path.read_bytes())) if path.stat().st_size <= _MAX_RESULT else None
        except (OSError, ValueError):
            return None

    def put(self, cell: Cell, result: Result) -> None:
        """Store a result; a reader never sees half of it."""
        path = self.path(cell)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            path.parent.mkdir(exist_ok=True)
            part.write_text(json.dumps(result))
            part.replace(path)
        except OSError as error:
            raise UsageError(f"cell {str(path)!r} cannot be written ({error.strerror}); name another folder with --cells") from None

    def _trained(self, predictor: str) -> str:
        """Digest of a trained predictor's files; empty for the others."""
        if predictor.startswith("dir:") and predictor not in self._folders:
            files = sorted(f for f in Path(predictor.removeprefix("dir:")).iterdir() if f.is_file())
            self._folders[predictor] = hashlib.blake2b(b"".join(f.read_bytes() for f in files), digest_size=16).hexdigest()
        return self._folders.get(predictor, "")

    def _digest(self, places: tuple[str, ...]) -> str:
        if places not in self._digests:
            self._digests[places] = source_digest(places)
        return self._digests[places]


def depends_on(cell: Cell) -> tuple[str, ...]:
    """Source files and folders that the cell's result depends on."""
    plain = cell.plain()
    places = (*_CORE, *_OF_POLICY.get(plain.policy, ("eviction",)), *_OF_PREDICTOR.get(plain.predictor, ("predictor",)))
    return (*places, *(("predictor/noisy.py",) if plain.noise else ()), *(("prefetch",) if plain.prefetch != "off" else ()))


def source_digest(places: Iterable[str], root: Path = _ROOT) -> str:
    """Digest of the Python files at these places below `root`; what serves HTTP is left out."""
    digest = hashlib.blake2b(digest_size=16)
    for place in places:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if "server" not in file.relative_to(root).parts:
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _result(raw: object) -> Result | None:
    """`raw` when it maps names to numbers."""
    if not isinstance(raw, dict):
        return None
    items = cast("dict[str, Any]", raw)
    return items if all(isinstance(value, int | float) for value in items.values()) else None
