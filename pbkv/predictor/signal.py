"""Text signals: SIGNAL small numbers that say where a call's text points to, and no more. They are all that is kept of it.

Two kinds: the hidden state of a served model, projected; and the ids of tokens, hashed. A network is trained on one kind of one model, and
the name of the kind travels with recordings and weights, since numbers of another kind look the same and mean nothing to it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbkv.predictor.features import Floats

#: Numbers in a signal, as in tables of agent calls.
SIGNAL = 128
#: Newest ids of a text that are hashed, and those that are hashed a second time by themselves: how a text ends says most.
MAX_IDS, LAST_IDS = 2048, 100
_HALF = SIGNAL // 2
_LARGEST = 127
Signal = NDArray[np.int8]


def hidden_kind(model_type: str, layers: int, hidden: int) -> str:
    """Name of the signals made of the hidden states of such a model."""
    return f"hidden {model_type} {layers}x{hidden}"


def ids_kind(vocabulary: int) -> str:
    """Name of the signals made of the token ids of such a vocabulary."""
    return f"ids {vocabulary}"


def is_served(kind: str) -> bool:
    """Whether signals of this kind come from a server, rather than from the text of a trace."""
    return kind.startswith(("hidden ", "ids "))


def projection(hidden: int) -> NDArray[np.int8]:
    """[hidden, SIGNAL] of +1 and -1, the same on every machine for all time. Products with it keep angles (Johnson and Lindenstrauss 1984;
    with signs alone, Achlioptas 2003).
    """
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(b"pbkv text signal").digest(hidden * SIGNAL // 8), np.uint8))
    return (bits.astype(np.int8) * 2 - 1).reshape(hidden, SIGNAL)


def quantised(row: Floats) -> Signal | None:
    """[SIGNAL] int8 with the direction of the row; None for one that has none, or is not finite."""
    largest = float(np.abs(row).max(initial=0))
    if not 0 < largest < np.inf:
        return None
    # In float64, which holds the scale of the smallest float32.
    return np.rint(row.astype(np.float64) * (_LARGEST / largest)).astype(np.int8)


def of_ids(ids: Sequence[int]) -> Signal | None:
    """Signed hashing of the newest ids: half of the signal for all of them, half for the last ones. None without ids."""
    if not ids:
        return None
    codes = _mixed(np.array(ids[-MAX_IDS:], np.int64).astype(np.uint64))
    return np.concatenate([_bag(codes), _bag(codes[-LAST_IDS:])])


def _mixed(codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Well mixed bits (the finaliser of splitmix64, Steele, Lea and Flood 2014)."""
    codes = codes + np.uint64(0x9E3779B97F4A7C15)
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


def _bag(codes: NDArray[np.uint64]) -> Signal:
    places, signs = (codes % np.uint64(_HALF)).astype(np.int64), np.where(codes >> np.uint64(63), 1.0, -1.0)
    bag = np.bincount(places, signs, _HALF)
    length = float(np.linalg.norm(bag))
    return np.rint(bag * (_LARGEST / length if length else 0.0)).astype(np.int8)
