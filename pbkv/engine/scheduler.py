"""Which calls run: SGLang's continuous batching with chunked prefill, admission by memory, and retraction when decoding outgrows it.

First come, first served; prefill before decode; a call is admitted when its prompt and its whole announced output fit beside what running
calls may still take, of whose announced output a share is counted that falls while all goes well (SGLang's new_token_ratio).
"""

from collections import deque

from pbkv.engine.decoding import Decoding
from pbkv.engine.node import Node
from pbkv.engine.requests import DECODING, PREFILLING, WAITING, Call
from pbkv.engine.settings import EngineSettings
from pbkv.engine.tiers import TwoTierTree

#: SGLang's share of announced output that is counted: at first, at least, and what a decode step takes off it.
FIRST_RATIO, LEAST_RATIO = 0.7, 0.7 * 0.14
RATIO_DECAY = (FIRST_RATIO - LEAST_RATIO) / 600
#: Decode steps that a retraction makes room for, per call that stays.
RETRACT_STEPS = 20

Chunk = tuple[Call, int]


class Scheduler:
    """Queue, running calls and their memory. Time is the engine's."""

    def __init__(self, tree: TwoTierTree, settings: EngineSettings) -> None:
        self.tree, self.device = tree, tree.device
        self.page_size, self.chunk_tokens, self.max_running = settings.page_size, settings.chunk_tokens, settings.max_running
        self.waiting: deque[Call] = deque()
        self.decoding = Decoding(settings.page_size)
        self.chunked: Call | None = None  # admitted, not all of its prompt prefilled
        self.full = False  # nothing more is admitted until a call leaves
        self.leaving = 0  # calls that have ended and whose end is not taken in yet
        self.ratio = FIRST_RATIO
        self.loaded_pages = 0
        self._room = self._reserved = 0

    # ---- prefill -----------------------------------------------------------------------------------------------------------

    def prefill_batch(self) -> list[Chunk]:
        """The next prefill step: calls and how many new tokens of each, allocated; empty = nothing to prefill (now)."""
        if not self.decoding.calls:
            self.full = False
        capacity = self.max_running - len(self.decoding.calls) - self.leaving
        if capacity <= 0 and self.chunked is None:
            self.full = True
            return []
        batch: list[Chunk] = []
        self._room, self._reserved = self.chunk_tokens, int(self.decoding.remaining() * self.ratio)
        if self.chunked is not None:
            self._continue(self.chunked, batch)
        while self.waiting and self._room > 0:
            if len(batch) >= capacity:
                self.full = True
                break
            if not self._admit(self.waiting[0], batch):
                break
        if batch:
            self._allocate(batch)
        return batch

    def _budget(self) -> int:
        """Tokens that are free or can be made so, beyond what is reserved."""
        return (self.device.free + self.device.cached) * self.page_size - self._reserved

    def _continue(self, call: Call, batch: list[Chunk]) -> None:
        """The next chunk of a prompt that is being prefilled, shorter if memory is short. It holds pages, so it must get on."""
        left, page = call.fill - call.done, self.page_size
        within, budget = min(self._room, (self.device.free + self.device.cached) * page), self._budget()
        if budget >= page:
            within = min(within, budget)
        new = left if left <= within else within // page * page
        if new > 0:
            batch.append((call, new))
            if new == left:
                self.chunked = None
            self._reserve(new, call.announced - call.generated if new == left else 0)

    def _reserve(self, new: int, output: int) -> None:
        pages = -(-new // self.page_size) * self.page_size
        self._reserved += pages + self.page_size + output
        self._room -= pages

    def _admit(self, call: Call, batch: list[Chunk]) -> bool:
        """Take the head of the queue into the batch if it fits; False ends the pass."""
        tree, page = self.tree, self.page_size
        found = tree.match(call.prefix, (call.fill - 1) // page)
        tree.lock(found.device)
        if call.fill - found.device_pages * page + call.announced - call.generated + page >= self._budget():
            tree.unlock(found.device)
            self.full = bool(batch or self.decoding.calls)
            return False
        end, cached, host = found.device, found.device_pages, found.host_pages
        new = self._first_chunk(call, cached + host)
        if new and host:
            end = self._load(found.device, found.best)
            host = host if end is found.best else 0
            new = self._first_chunk(call, cached + host)
        if not new:
            tree.unlock(end)
            return False
        self._commit(call, batch, end, cached, host, new)
        if self._budget() <= 0:
            self.full = True
            return False
        return True

    def _first_chunk(self, call: Call, cached: int) -> int:
        """New tokens of a call's first step behind `cached` pages; whole pages unless it is the last step; 0 = no room in this step."""
        left = call.fill - cached * self.page_size
        pages = -(-left // self.page_size) * self.page_size
        return left if pages <= self._room else self._room // self.page_size * self.page_size

    def _load(self, device: Node, best: Node) -> Node:
        """Load the host part of a match; returns the end of the locked path: `best`, or `device` when it has to be computed again."""
        pages = self.tree.load_back(best)
        if not pages:
            return device
        self.loaded_pages += pages
        self.tree.lock(best)
        self.tree.unlock(device)
        return best

    def _commit(self, call: Call, batch: list[Chunk], end: Node, device: int, host: int, new: int) -> None:
        page = self.page_size
        self.waiting.popleft()
        call.where, call.node, call.fresh = PREFILLING, end, True
        call.tree_pages = call.allocated = device + host
        call.done = call.tree_pages * page
        if call.admitted < 0:
            call.device_hit, call.host_hit = device * page, host * page
        batch.append((call, new))
        whole = call.done + new == call.fill
        if not whole:
            self.chunked = call
        self._reserve(new, call.announced - call.generated if whole else 0)

    def _allocate(self, batch: list[Chunk]) -> None:
        """Pages for the whole batch at once; like SGLang, room is made for one page per call more than is taken."""
        page = self.page_size
        tokens = pages = 0
        for call, new in batch:
            after = -(-(call.done + new) // page)
            pages += after - call.allocated
            call.allocated = after
            tokens += new
        self.tree.make_room(-(-tokens // page) + (len(batch) if page > 1 else 0))
        self.device.take(pages)

    def prefilled(self, call: Call, new: int) -> bool:
        """A step has computed `new` more tokens of a call; True when its prefill is complete."""
        call.done += new
        call.generated += call.done == call.fill
        return call.done == call.fill

    def checkpoint(self, call: Call) -> None:
        """The call's full pages become the tree's, and its lock reaches to their end."""
        total = call.done // self.page_size
        call.node = self.tree.insert(call.node, call.page_ids(call.tree_pages, total), 0, 0, 0, first=call.fresh, lock=True)
        call.tree_pages, call.fresh = total, False

    # ---- decode ------------------------------------------------------------------------------------------------------------

    def make_decode_room(self, steps: int) -> int:
        """Allocate for up to `steps` decode steps, evicting what that takes; returns the steps there is room for, 0 = retract."""
        decoding, device = self.decoding, self.device
        pages = decoding.pages_needed(steps)
        if pages > device.free + device.cached:
            steps = decoding.steps_within(device.free + device.cached, steps)
            pages = decoding.pages_needed(steps)
        if steps and not self.tree.make_room(self.pages_wanted(steps)) and pages > device.free:
            steps = decoding.steps_within(device.free, steps)
            pages = decoding.pages_needed(steps)
        device.take(pages)
        return steps

    def pages_wanted(self, steps: int) -> int:
        """Pages that `steps` decode steps evict for: like SGLang, each makes room for a page per call, most of which it does not take."""
        return self.decoding.pages_needed(steps - 1) + len(self.decoding.calls)

    def decoded(self, steps: int) -> list[Call]:
        """Run the steps there is room for; returns the calls that have their last token."""
        self.ratio = max(LEAST_RATIO, self.ratio - steps * RATIO_DECAY)
        return self.decoding.run(steps)

    def retract(self) -> Call | None:
        """Take calls back into the queue until the next step fits: fewest tokens generated first, then the longest prompt. Returns the last
        call if even alone it does not fit: it has to be aborted.
        """
        decoding = self.decoding
        kept = sorted(decoding.calls, key=lambda c: (decoding.generated(c), -c.request.prompt_tokens), reverse=True)
        first = True
        while len(kept) > 1 and (first or not self._step_fits()):
            first = False
            call = kept.pop()
            decoding.leave(call)
            self._give_up(call)
            call.again()
            self.waiting.append(call)
            self.tree.make_room(-(-len(kept) * RETRACT_STEPS // self.page_size))
        self.full = False
        done = sum(decoding.generated(c) for c in kept)
        self.ratio = min(1.0, (done + RETRACT_STEPS * len(kept)) / (done + decoding.remaining() + 1))
        return None if self._step_fits() else kept[0]

    def _step_fits(self) -> bool:
        return self.tree.make_room(self.decoding.pages_needed(1))

    # ---- leaving -----------------------------------------------------------------------------------------------------------

    def finish(self, call: Call) -> None:
        """The call has its last token: its pages stay in the tree, unlocked, its last partial page is freed."""
        page = self.page_size
        call.allocated = -(-call.done // page)
        start, total = call.node, call.done // page
        call.node = self.tree.insert(start, call.page_ids(call.tree_pages, total), 0, 0, 0)
        self.device.give_back(call.allocated - total)
        self.tree.unlock(start)
        self.full = False

    def drop(self, call: Call) -> None:
        """The call is aborted, wherever it is: what it had computed beyond the tree is lost."""
        if call.where == WAITING:
            self.waiting.remove(call)
            return
        if call.where == DECODING:
            self.decoding.leave(call)
        if self.chunked is call:
            self.chunked = None
        self._give_up(call)
        self.full = False

    def _give_up(self, call: Call) -> None:
        call.allocated = -(-call.done // self.page_size)
        self.device.give_back(call.allocated - call.tree_pages)
        self.tree.unlock(call.node)
        call.tree_pages = call.allocated = 0
