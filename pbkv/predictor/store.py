"""A trained predictor on disk: `config.json` to read, `weights.safetensors` to compute with. Nothing is unpickled, nothing is trusted."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from pbkv.errors import PbkvError, UsageError
from pbkv.knobs import K_MAX

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
#: Raised when older files can no longer be read.
FORMAT = 1
MAX_CONFIG, MAX_WEIGHTS = 4 << 20, 1 << 30
MAX_AGENTS, MAX_TEXT_DIM = 4096, 65_536
Arrays = Mapping[str, np.ndarray[Any, Any]]


def save(directory: Path, arrays: Arrays, config: Mapping[str, Any]) -> None:
    """Write both files, the config last: a directory with a config is complete. Raises PbkvError when the disk refuses."""
    from safetensors.numpy import save as serialise  # pyright: ignore[reportUnknownVariableType]

    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / CONFIG).unlink(missing_ok=True)
        partial = directory / f"{WEIGHTS}.part"
        partial.write_bytes(serialise(dict(arrays)))
        partial.replace(directory / WEIGHTS)
        write_text(directory / CONFIG, json.dumps({"format": FORMAT, "k_max": K_MAX, **config}, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise PbkvError(f"predictor {str(directory)!r} cannot be written: {error.strerror or error}") from None


def write_text(file: Path, text: str) -> None:
    """Replace a file at once: a reader sees the old or the new text, also when this process is killed."""
    partial = file.with_name(file.name + ".part")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def read_config(directory: Path) -> dict[str, Any]:
    """The config, with its format and agents checked. Raises UsageError."""
    file = directory / CONFIG
    if not directory.is_dir():
        raise UsageError(f"predictor {str(directory)!r} is not a folder; expected one made by 'pbkv train TRACES -o DIR'")
    config = _json(file)
    if config.get("format") != FORMAT:
        raise _bad(file, "format", config.get("format"), f"{FORMAT}; train it again with this version")
    if config.get("k_max") != K_MAX:
        raise _bad(file, "k_max", config.get("k_max"), str(K_MAX))
    agents: object = config.get("agents")
    if not isinstance(agents, list) or not _names(cast("list[object]", agents)):
        raise _bad(file, "agents", config.get("agents"), f"1 to {MAX_AGENTS} different names")
    return config


def _names(agents: list[object]) -> bool:
    return 1 <= len(agents) <= MAX_AGENTS and all(isinstance(a, str) and len(a) <= 1024 for a in agents) and len(set(agents)) == len(agents)


def _json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MAX_CONFIG:
            raise UsageError(f"{str(file)!r} is larger than {MAX_CONFIG >> 20} MiB: not a predictor's config")
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be read: {error.strerror}; expected a folder made by 'pbkv train TRACES -o DIR'") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(file)!r} is not JSON: {str(error)[:100]}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{str(file)!r}: expected an object")
    return cast("dict[str, Any]", document)


def read_weights(
    directory: Path, shapes: Mapping[str, tuple[int, ...]], dtype: type[np.generic] = np.float32
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays named in `shapes`; -1 in a shape fits any length. Raises UsageError that names the array that is not as expected."""
    file = directory / WEIGHTS
    arrays = _arrays(file)
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None:
            raise UsageError(f"{str(file)!r}: array {name!r} is missing; train the predictor again")
        if array.dtype != dtype or len(array.shape) != len(shape) or any(w not in (-1, n) for n, w in zip(array.shape, shape, strict=True)):
            raise UsageError(f"{str(file)!r}: array {name!r} is {array.dtype}{list(array.shape)}, expected {np.dtype(dtype)}{list(shape)}")
        if not np.isfinite(array).all():
            raise UsageError(f"{str(file)!r}: array {name!r} holds values that are not finite; train the predictor again")
    return {name: arrays[name] for name in shapes}


def _arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

    try:
        if file.stat().st_size > MAX_WEIGHTS:
            raise UsageError(f"{str(file)!r} is larger than {MAX_WEIGHTS >> 20} MiB: not a predictor's weights")
        return load_file(file)
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be read: {error.strerror or str(error)[:100]}; train the predictor again") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise UsageError(f"{str(file)!r} is not a safetensors file: {str(error)[:100]}") from None


def whole(directory: Path, config: Mapping[str, Any], field: str, low: int, high: int) -> int:
    """A whole number of the config within bounds. Raises UsageError."""
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _bad(directory / CONFIG, field, value, f"a whole number from {low} to {high}")
    return value


def per_step(directory: Path, config: Mapping[str, Any], field: str, low: float, high: float) -> np.ndarray[Any, Any]:
    """[2, K_MAX]: a number per moment and step. Raises UsageError."""
    value = config.get(field)
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    if len(rows) != 2 or any(not isinstance(row, list) or not _numbers(cast("list[object]", row), low, high) for row in rows):
        raise _bad(directory / CONFIG, field, config.get(field), f"two lists of {K_MAX} numbers from {low:g} to {high:g}")
    return np.array(rows, np.float32)


def _numbers(row: list[object], low: float, high: float) -> bool:
    numbers = [v for v in row if isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high]
    return len(numbers) == len(row) == K_MAX


def _bad(file: Path, field: str, value: Any, expected: str) -> UsageError:
    shown = repr(value)
    return UsageError(f"{str(file)!r}: {field} = {shown if len(shown) <= 60 else shown[:57] + '...'}: expected {expected}")
