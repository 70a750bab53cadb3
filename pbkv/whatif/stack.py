"""Least recently used at the granularity of blocks, at all pool sizes in one pass, by stack distances.

The stack (R. L. Mattson et al., Evaluation techniques for storage hierarchies, 1970) holds blocks by the last call that had them, newest
first, and those of one call in order of their path. A pool of c blocks keeps the upper c. That is to evict, block by block, the leaf whose
last call is oldest, since what is above a leaf on its path is never older. A block is a hit in pools from its place on.

Blocks of a path that last were had by the same call stand side by side. Such a run is placed as a whole: above the run of call r whose
blocks call t had last are the blocks that calls in between had last,

    S(r, t) = refs(t < call < r) - sum of the lengths of runs of calls before r whose blocks a call after t had had before.

So beside a sort of the references it costs what the runs cost, of which a call has a few.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pbkv.whatif.blocks import BlockTrace, Ints

#: Runs that are compared with each other at once.
_CHUNK = 128
#: Mean length of paths from which on a loop over calls is faster than a sort of all references.
_LONG = 100


@dataclass(frozen=True)
class Runs:
    """One row per run, in order of calls: the call, the one before that had its blocks, its first reference, its length, and the number of
    blocks above it on the stack.
    """

    call: Ints
    before: Ints
    first: Ints
    length: Ints
    above: Ints


def lru_hits(trace: BlockTrace, measured_from: int = 0) -> Ints:
    """Hits of the prompts of calls `measured_from` and later, by pool size in blocks from 0: shape (distinct blocks + 1,)."""
    runs = runs_of(trace)
    reads = np.clip(trace.reads[runs.call] - (runs.first - trace.starts[runs.call]), 0, runs.length)
    counted = (runs.call >= measured_from) & (reads > 0)
    above, reads = runs.above[counted], reads[counted]
    sizes = trace.distinct + 2
    step = np.bincount(above + 1, minlength=sizes) - np.bincount(above + reads + 1, minlength=sizes)
    return np.cumsum(np.cumsum(step))[: trace.distinct + 1].astype(np.int64)


def runs_of(trace: BlockTrace) -> Runs:
    """The runs of a trace with their places."""
    before = _one_by_one(trace) if len(trace.blocks) > _LONG * trace.calls else _by_sort(trace)
    parts = np.ones(len(before), np.bool_)
    np.not_equal(before[1:], before[:-1], out=parts[1:])
    parts[trace.starts[:-1][np.diff(trace.starts) > 0]] = True
    begins = np.flatnonzero(parts)
    length = np.diff(begins, append=len(before))
    known = before[begins] >= 0
    first, length = begins[known], length[known]
    call, last = trace.starts.searchsorted(first, "right") - 1, before[first].astype(np.int64)
    between = trace.starts[call] - trace.starts[last + 1]
    return Runs(call, last, first, length, between - _nested(call, last, length, trace.calls))


def _one_by_one(trace: BlockTrace) -> npt.NDArray[np.int32]:
    """For each reference the last call before its own that had the block, -1 = none; for long paths."""
    before, last = np.empty(len(trace.blocks), np.int32), np.full(trace.distinct, -1, np.int32)
    starts = trace.starts.tolist()
    for call, (first, end) in enumerate(pairwise(starts)):
        path = trace.blocks[first:end]
        before[first:end] = last[path]
        last[path] = call
    return before


def _by_sort(trace: BlockTrace) -> npt.NDArray[np.int32]:
    """The same; for short paths."""
    calls = np.repeat(np.arange(trace.calls, dtype=np.int32), np.diff(trace.starts))
    order = by_block(trace.blocks)
    ranked = trace.blocks[order]
    again = np.flatnonzero(ranked[1:] == ranked[:-1])
    before = np.full(len(calls), -1, np.int32)
    before[order[again + 1]] = calls[order[again]]
    return before


def by_block(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """References in order of their blocks, those of a block as they come; sorting 16 bits at a time, NumPy counts instead of comparing."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    high = (numbers >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def _nested(call: Ints, before: Ints, length: Ints, calls: int) -> Ints:
    """For each run the blocks of runs of earlier calls that a call after `before` had had before."""
    found = np.empty(len(call), np.int64)
    by_before = np.zeros(calls, np.int64)  # blocks of the runs passed so far, by call before
    size = length.astype(np.float64)  # for a fast product; whole up to 2^53
    chunk = max(_CHUNK, int(len(call) ** 0.5) // 2)
    low = passed = 0
    while low < len(call):
        # Runs of one call must be in one chunk: those of chunks before count as of calls before.
        high = int(call.searchsorted(int(call[min(low + chunk, len(call)) - 1]), "right"))
        part = slice(low, high)
        mine, last = call[part], before[part]
        inside = (mine[None, :] < mine[:, None]) & (last[None, :] > last[:, None])
        found[part] = passed - np.cumsum(by_before)[last] + (inside.astype(np.float64) @ size[part]).astype(np.int64)
        np.add.at(by_before, last, length[part])
        passed += int(length[part].sum())
        low = high
    return found
