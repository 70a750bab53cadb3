"""What a network sees of a path and of an agent's name; one implementation for training and for serving. NumPy only."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

#: Newest runs of a path that are seen (a run is an agent called several times in a row), lengths of a run told apart, and turns of an
#: agent told apart. The limits of serving time: a prediction costs RUNS keys of attention.
RUNS = 8
LENGTHS = 32
TURNS = 12
#: Calls of a workflow beyond this one make no difference.
MAX_COUNT = 4096
#: Signed hashing of a name's words and letter triples: similar names get similar vectors, and any name gets one.
NAME_DIM = 32
#: Features of an agent from the call graph, see `Graph.structure`.
STRUCTURE_DIM = 8
NODE_DIM = NAME_DIM + STRUCTURE_DIM
_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class PathView:
    """The newest runs of a path, newest first, at most RUNS: agent ids, lengths (below LENGTHS), and turns: the how-maniest run of its
    agent each is (from 0, below TURNS).
    """

    agents: list[int]
    lengths: list[int]
    turns: list[int]


def view(path: Sequence[int]) -> PathView:
    """Runs of a path (newest last)."""
    agents: list[int] = []
    lengths: list[int] = []
    turns: list[int] = []
    met: dict[int, int] = {}
    last = None
    for agent in path:
        if agent == last:
            lengths[-1] += 1
            continue
        last = agent
        turn = met.get(agent, 0)
        met[agent] = turn + 1
        agents.append(agent)
        lengths.append(1)
        turns.append(turn if turn < TURNS else TURNS - 1)
    return PathView(agents[: -RUNS - 1 : -1], [min(n, LENGTHS - 1) for n in lengths[: -RUNS - 1 : -1]], turns[: -RUNS - 1 : -1])


def name_vector(name: str) -> Floats:
    """[NAME_DIM] of unit length. The hash is CRC-32 of the UTF-8 bytes: the same on every machine and in every process."""
    vector = np.zeros(NAME_DIM, np.float32)
    for part in _parts(name[:_MAX_NAME].lower()):
        code = zlib.crc32(part.encode(errors="surrogatepass"))
        vector[code % NAME_DIM] += 1.0 if code & 0x8000_0000 else -1.0
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


def _parts(name: str) -> list[str]:
    padded = f"^{name}$"
    words = "".join(c if c.isalnum() else " " for c in name).split()
    return [name, *words, *(padded[i : i + 3] for i in range(len(padded) - 2))]


def normalised(signals: Floats) -> Floats:
    """Each row of [N, dim] at unit length: what a signal says is its direction, whatever scale it comes in. Zero rows stay zero."""
    lengths = np.sqrt((signals * signals).sum(1, keepdims=True))
    return (signals / np.where(lengths > 0, lengths, 1)).astype(np.float32)
