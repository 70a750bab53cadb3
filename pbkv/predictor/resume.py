"""A training that can be killed at any moment: its state after the last full epoch lies beside the predictor until it is finished."""

import json
from pathlib import Path
from typing import Any

from pbkv.errors import PbkvError
from pbkv.predictor.store import MAX_CONFIG, MAX_WEIGHTS, write_text
from pbkv.predictor.train import Trainer

STATE = "training.safetensors"
_PLAIN = "training.json"


def keep(directory: Path, trainer: Trainer) -> None:
    """Write the state. Tensors and plain values name the same epoch, so a kill between the two files is noticed. Raises PbkvError."""
    from safetensors.torch import save  # pyright: ignore[reportUnknownVariableType]

    tensors, plain = trainer.state()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial = directory / f"{STATE}.part"
        partial.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"epoch": str(trainer.epoch)}))
        partial.replace(directory / STATE)
        write_text(directory / _PLAIN, json.dumps(plain) + "\n")
    except OSError as error:
        raise PbkvError(f"training state in {str(directory)!r} cannot be written: {error.strerror or error}") from None


def resume(directory: Path, trainer: Trainer) -> str:
    """Bring `trainer` to where an earlier training of the same data and settings stopped. Returns what was found, for people; a state that
    is damaged or belongs to another training is left aside and training starts anew.
    """
    if not (directory / STATE).exists():
        return ""
    try:
        _restore(directory, trainer)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        return f"the state found in {str(directory)!r} is not of this training ({' '.join(str(error).split())[:100]}); starting anew"
    return f"going on after epoch {trainer.epoch}"


def _restore(directory: Path, trainer: Trainer) -> None:
    from safetensors import SafetensorError, safe_open

    if (directory / STATE).stat().st_size > MAX_WEIGHTS or (directory / _PLAIN).stat().st_size > MAX_CONFIG:
        raise ValueError("too large")
    plain: dict[str, Any] = json.loads((directory / _PLAIN).read_bytes())
    try:
        opened: Any = safe_open(directory / STATE, "pt")
        with opened as stream:
            if stream.metadata() != {"epoch": str(plain["epoch"])}:
                raise ValueError("its two files are of different epochs")
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    trainer.restore(tensors, plain)


def drop(directory: Path) -> None:
    """Remove the state of a finished training."""
    for name in (STATE, _PLAIN):
        (directory / name).unlink(missing_ok=True)
