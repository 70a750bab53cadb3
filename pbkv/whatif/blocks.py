"""The calls of a recording as references to blocks, in flat arrays: a block is a page at the end of one particular path."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from pbkv.errors import UsageError

Ints = npt.NDArray[np.int64]
#: References of one trace: their numbers are kept in 32 bits.
MAX_REFS = (1 << 31) - 1


@dataclass(frozen=True)
class BlockTrace:
    """References of call n are `blocks[starts[n]:starts[n + 1]]`, a path from the root of a tree; the first `reads[n]` of them are its
    prompt's, the others are written only. `blocks` int32 from 0, dense; `starts` (calls + 1,) and `reads` (calls,) int64.
    """

    blocks: npt.NDArray[np.int32]
    starts: Ints
    reads: Ints

    @property
    def calls(self) -> int:
        """Calls in all."""
        return len(self.reads)

    @property
    def distinct(self) -> int:
        """Blocks in all."""
        return int(self.blocks.max()) + 1 if len(self.blocks) else 0


def blocks_of(prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]] | None = None) -> BlockTrace:
    """From ids that are equal on equal paths exactly where the content is. `outputs[n]`: what follows prompt n. Raises UsageError for
    nothing at all, and for more than MAX_REFS references.
    """
    ids, starts, reads = flat(prompts, outputs)
    return BlockTrace(numbered(ids, starts), starts, reads)


def flat(prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]] | None = None) -> tuple[Ints, Ints, Ints]:
    """(ids of all calls one after the other, where each call's begin, how many of each call's are its prompt's)."""
    reads = np.fromiter(map(len, prompts), np.int64, len(prompts))
    more = np.zeros_like(reads) if outputs is None else np.fromiter(map(len, outputs), np.int64, len(prompts))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(reads + more)])
    total = int(starts[-1])
    if not 0 < total <= MAX_REFS:
        raise UsageError(f"{total} references to blocks: expected 1 to {MAX_REFS}; choose another page size, or fewer workflows")
    parts: Iterable[Sequence[int]] = prompts if outputs is None else chain.from_iterable(zip(prompts, outputs, strict=True))
    return np.fromiter(chain.from_iterable(parts), np.int64, total), starts, reads


def numbered(ids: npt.NDArray[np.signedinteger[Any]], starts: Ints) -> npt.NDArray[np.int32]:
    """Dense numbers of blocks for the ids of all calls, one after the other."""
    dense = _dense(ids)
    return dense if one_path_each(dense, starts) else _by_path(ids, starts)


def _dense(ids: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int32]:
    """Numbers from 0 in order of ids; a table does it where ids are small."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > 4 * len(ids) + 1024:
        return np.unique(ids, return_inverse=True)[1].astype(np.int32)
    offsets = ids - low if low else ids
    there = np.zeros(high - low + 1, np.bool_)
    there[offsets] = True
    return (np.cumsum(there, dtype=np.int32) - 1)[offsets]


def one_path_each(numbers: npt.NDArray[np.int32], starts: Ints) -> bool:
    """Whether a number (from 0, small) always follows the same one: then it names a path, not only content."""
    before = np.empty_like(numbers)
    before[1:] = numbers[:-1]
    before[starts[:-1][np.diff(starts) > 0]] = -1
    parent = np.empty(int(numbers.max()) + 1, np.int32)
    parent[numbers] = before
    return bool((parent[numbers] == before).all())


def _by_path(ids: npt.NDArray[np.signedinteger[Any]], starts: Ints) -> npt.NDArray[np.int32]:
    """Numbers for (path before, id), in order of appearance."""
    known: dict[tuple[int, int], int] = {}
    numbers: list[int] = []
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        at = -1
        for page in ids[first:end].tolist():
            at = known.setdefault((at, page), len(known))
            numbers.append(at)
    return np.array(numbers, np.int32)
