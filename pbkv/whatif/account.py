"""Why least recently used finds more or fewer blocks in the tree than in a simulator of blocks: rule by rule, to the last block.

Each step changes one rule of the step before, so the differences add up to the whole. A block is a full page of a prompt.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pbkv.errors import UsageError
from pbkv.whatif.blocks import BlockTrace, Ints, blocks_of
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.order import Turn, in_order, order_of
from pbkv.whatif.recording import RecordedCall, Recording
from pbkv.whatif.setting import Setting
from pbkv.whatif.stack import lru_hits


class Step(NamedTuple):
    """`hits`: blocks of prompts found in the cache, of `refs`."""

    rule: str
    hits: int
    refs: int


def account(recording: Recording, device_tokens: int, turns: Sequence[Turn] | None = None) -> list[Step]:
    """From blocks that know nothing of each other to the tree. Raises UsageError for a pool that does not hold every call, since simulators
    differ in what they do with such a call.
    """
    calls = in_order(recording, order_of(recording) if turns is None else turns)
    page = recording.engine.page_size
    size = device_tokens // page
    longest = max(len(call.pages) + len(call.output_pages) for call in calls)
    if longest > size:
        raise UsageError(f"device_tokens = {device_tokens}: expected at least {longest * page}, the longest call of {recording.name}")
    prompts = prompt_blocks(calls)
    alone = flat_hits(prompts, size)
    tree = replay_cache(recording, Setting(policy="lru", device_tokens=device_tokens, host_tokens=0), turns=turns).calls
    found = [
        ("each block by itself, in order of the path", int(alone.sum())),
        ("of these, behind no block that is missing", int(behind_hits(prompts, alone).sum())),
        ("a path from its end: leaves go first", at_size(lru_hits(prompts), size)),
        ("the last token of a prompt is computed", at_size(lru_hits(readable(prompts, calls, page)), size)),
        ("outputs are kept: they take room, and may be read", at_size(lru_hits(readable(call_blocks(calls), calls, page)), size)),
        ("whole nodes go", int(tree["device_hit"].sum()) // page),
    ]
    return [Step(rule, hits, len(prompts.blocks)) for rule, hits in found]


def prompt_blocks(calls: Sequence[RecordedCall]) -> BlockTrace:
    """Prompts alone."""
    return blocks_of([call.pages for call in calls])


def call_blocks(calls: Sequence[RecordedCall]) -> BlockTrace:
    """Prompts, and outputs written behind them."""
    return blocks_of([call.pages for call in calls], [call.output_pages for call in calls])


def readable(trace: BlockTrace, calls: Sequence[RecordedCall], page_size: int) -> BlockTrace:
    """What a call can read of its prompt: all but the page of the last token, whose output is needed."""
    reads = np.array([(call.prompt_tokens - 1) // page_size for call in calls], np.int64)
    return replace(trace, reads=np.minimum(trace.reads, reads))


def at_size(hits: Ints, size: int) -> int:
    """Of hits by pool size: larger pools than there are blocks find no more."""
    return int(hits[min(size, len(hits) - 1)])


def flat_hits(trace: BlockTrace, size: int) -> npt.NDArray[np.bool_]:
    """Plain least recently used over single references: which of them are hits in a pool of `size` blocks."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = np.zeros(len(trace.blocks), np.bool_)
    for n, block in enumerate(trace.blocks.tolist()):
        if block in cached:
            cached.move_to_end(block)
            hits[n] = True
        else:
            if len(cached) >= size:
                cached.popitem(last=False)
            cached[block] = None
    return hits


def behind_hits(trace: BlockTrace, hits: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Those hits of each path that have no miss before them on it."""
    missed = np.cumsum(~hits)
    length = np.diff(trace.starts)
    before = np.concatenate([np.zeros(1, np.int64), missed])[trace.starts[:-1]]
    return hits & (missed == np.repeat(before, length))
