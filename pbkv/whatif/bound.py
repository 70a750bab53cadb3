"""What nobody can better in a recorded order: Belady's rule on the leaves of the tree. Blind to the sizes of nodes, as policies are."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from pbkv.engine.node import Node
from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord
from pbkv.whatif.blocks import flat, numbered, one_path_each
from pbkv.whatif.order import Turn, in_order
from pbkv.whatif.recording import RecordedCall, RecordedWorkflow, Recording
from pbkv.whatif.stack import by_block


class NextReads:
    """For each page of a recording with `plain` ids: which call, by position in the order, reads it next. `reach` moves on."""

    def __init__(self, recording: Recording, turns: Sequence[Turn]) -> None:
        calls = in_order(recording, turns)
        ids, starts, reads = flat([call.pages for call in calls], [call.output_pages for call in calls])
        self.never = len(calls)
        self._pages, self._starts = ids.astype(np.int32), starts.tolist()
        length = np.diff(starts)
        position = np.arange(len(ids)) - np.repeat(starts[:-1], length)
        order = by_block(self._pages)
        call_of = np.repeat(np.arange(len(calls)), length)[order]
        reading = np.where((position < np.repeat(reads, length))[order], np.arange(len(ids)), len(ids))
        following = np.append(np.minimum.accumulate(reading[::-1])[::-1][1:], len(ids))  # next read in order of blocks, of any block
        known = np.minimum(following, len(ids) - 1)
        again = (following < len(ids)) & (self._pages[order[known]] == self._pages[order])
        self._after = np.empty(len(ids), np.int32)
        self._after[order] = np.where(again, call_of[known], self.never)
        self._next = np.full(int(ids.max()) + 1, self.never, np.int32)

    def reach(self, position: int) -> None:
        """The call at this position runs: from then on the pages it has are next read after it."""
        part = slice(self._starts[position], self._starts[position + 1])
        self._next[self._pages[part]] = self._after[part]

    def of(self, page: int) -> int:
        """Position of the next call that reads the page; `never`."""
        return self._next.item(page)


class Bound(Policy):
    """Furthest next read first, what is never read again before all. `rekeyed` is told of nodes whose place became earlier."""

    name = "bound"
    meaning = "clairvoyant: furthest next read in a recorded order first"
    follows = True

    def __init__(self, reads: NextReads) -> None:
        self._reads = reads
        self.rekeyed: Callable[[NodeRecord], None] = _nobody

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        # The suffix begins with a page that is read later. All other nodes keep their first page, and its next read until it is read.
        self.rekeyed(suffix)

    def key(self, record: NodeRecord) -> Key:
        after = self._reads.of(cast(Node, record.node).key[0])
        used = record.node.last_access_time
        return (1.0, -after, used) if after < self._reads.never else (0.0, 0.0, used)


def _nobody(record: NodeRecord) -> None:
    """No queue yet."""


def plain(recording: Recording) -> Recording:
    """The same with small page ids, each of which names one path; mostly the recording itself."""
    calls = [call for workflow in recording.workflows for call in workflow.calls]
    ids, starts, _ = flat([call.pages for call in calls], [call.output_pages for call in calls])
    if int(ids.min()) >= 0 and int(ids.max()) < 4 * len(ids) + 1024 and one_path_each(ids.astype(np.int32), starts):
        return recording
    numbers = numbered(ids, starts).tolist()
    first = 0
    workflows: list[RecordedWorkflow] = []
    for workflow in recording.workflows:
        renamed: list[RecordedCall] = []
        for call in workflow.calls:
            middle = first + len(call.pages)
            end = middle + len(call.output_pages)
            renamed.append(call._replace(pages=tuple(numbers[first:middle]), output_pages=tuple(numbers[middle:end])))
            first = end
        workflows.append(workflow._replace(calls=tuple(renamed)))
    return replace(recording, workflows=tuple(workflows))
