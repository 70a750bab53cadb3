"""Finished cells of grids as files named by content: recording, setting and the code that replays it."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from pbkv.bench.cellcache import source_digest
from pbkv.errors import UsageError
from pbkv.whatif.digest import digest
from pbkv.whatif.forecast import Fidelity, Residual
from pbkv.whatif.outcome import CALL_DTYPE, Outcome
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting

#: What an outcome depends on besides recording and setting.
_CODE = (
    "engine", "eviction", "predictor", "prefetch", "whatif", "knobs.py", "manager.py", "reads.py", "record.py", "state.py", "workflow.py",
    "workloads",
)
#: Largest file that can be a cell, bytes, and files kept; the oldest go.
_MAX_CELL, MAX_FILES = 1 << 16, 10_000
_FIDELITY = "fidelity"


class GridCache:
    """Cells of one recording in a folder, which others may share."""

    def __init__(self, folder: Path, recording: Recording, code: tuple[str, ...] = _CODE) -> None:
        self._folder, self._recording, self._code = folder, recording, code
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cell folder {str(folder)!r} cannot be made ({error.strerror}); name another with --cells") from None

    @cached_property
    def _content(self) -> str:
        return source_digest(self._code) + digest(self._recording)

    def path(self, setting: Setting | None) -> Path:
        """Where the cell is or will be; None = the fidelity of the recorded setting."""
        what = _FIDELITY if setting is None else json.dumps(asdict(setting), sort_keys=True) + _files_of(setting.predictor)
        key = hashlib.blake2b((self._content + what).encode(), digest_size=16).hexdigest()
        return self._folder / f"{key}.json"

    def outcome(self, setting: Setting) -> Outcome | None:
        """The stored outcome, None when there is none that can be read."""
        raw = self._read(setting)
        try:
            return _outcome(raw) if raw else None
        except (KeyError, TypeError, AttributeError, ValueError):
            return None

    def keep(self, setting: Setting, outcome: Outcome) -> None:
        """Store an outcome, without rows per call."""
        self._write(setting, _plain(outcome))

    def fidelity(self) -> Fidelity | None:
        """How well the recorded setting is replayed, None as above."""
        raw = self._read(None)
        try:
            residuals = {name: Residual(**residual) for name, residual in raw["residuals"].items()} if raw else {}
            return Fidelity(_outcome(raw), residuals, **raw["more"]) if raw else None
        except (KeyError, TypeError, AttributeError, ValueError):
            return None

    def keep_fidelity(self, known: Fidelity) -> None:
        """Store it."""
        more = {field.name: getattr(known, field.name) for field in fields(known) if field.name not in ("present", "residuals")}
        residuals = {name: asdict(residual) for name, residual in known.residuals.items()}
        self._write(None, {"residuals": residuals, "more": more, **_plain(known.present)})

    def _read(self, setting: Setting | None) -> dict[str, Any] | None:
        path = self.path(setting)
        try:
            raw = json.loads(path.read_bytes()) if path.stat().st_size <= _MAX_CELL else None
        except (OSError, ValueError):
            return None
        return cast("dict[str, Any]", raw) if isinstance(raw, dict) else None

    def _write(self, setting: Setting | None, content: Mapping[str, Any]) -> None:
        """A reader never sees half of a file. A full disk costs the cache, not the answer."""
        path = self.path(setting)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            part.write_text(json.dumps(content))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)

    def prune(self, most: int = MAX_FILES) -> None:
        """Delete the oldest cells beyond `most`."""
        files = [(path.stat().st_mtime, path) for path in self._folder.glob("*.json")]
        for _, path in sorted(files)[:-most] if len(files) > most else []:
            path.unlink(missing_ok=True)


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"figures": outcome.figures, "engine_s": outcome.engine_s}


def _outcome(raw: Mapping[str, Any]) -> Outcome:
    return Outcome({name: float(value) for name, value in raw["figures"].items()}, np.empty(0, CALL_DTYPE), float(raw["engine_s"]))


def _files_of(predictor: str | None) -> str:
    """Digest of a trained predictor's files; "" for one that is no folder."""
    folder = Path(predictor or "")
    if not predictor or not folder.is_dir():
        return ""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=16).hexdigest()
