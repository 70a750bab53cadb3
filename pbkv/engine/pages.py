"""From segments of content to ids of pages: pages get the same id exactly when all from the prompt's start to their end is equal.

Equal means equal segments, the last one possibly in part: segments of different keys differ from their first token on.
"""

from collections.abc import Iterable

from pbkv.workloads.tokens import Segment

#: Page ids kept, counted once per beginning of a prompt that has them, before those of old prompts are dropped. Content that comes back
#: after that gets new ids, which costs hits but is never wrong.
MAX_IDS = 8_000_000


class _Beginning:
    """The first segments of some prompts: ids of their full pages, and how much of the next page they fill."""

    __slots__ = ("after", "runs", "ids", "filled", "tokens", "used")

    def __init__(self, ids: tuple[int, ...], filled: int, tokens: int) -> None:
        self.after: dict[Segment, _Beginning] = _NOTHING
        self.runs: dict[int, tuple[int, ...]] = {}  # by key of the next segment: ids of the pages that end inside it
        self.ids, self.filled, self.tokens = ids, filled, tokens
        self.used = 0


#: Stands for "no longer prompt yet" without a dictionary of its own; never written to.
_NOTHING: dict[Segment, _Beginning] = {}


class PageNamer:
    """Ids of the full pages of prompts given as segments. One namer per tree, one call after the other."""

    def __init__(self, page_size: int, max_ids: int = MAX_IDS) -> None:
        self._page_size, self._max_ids, self._sweep_at = page_size, max_ids, max_ids
        self._root = _Beginning((), 0, 0)
        self._next = 1
        self._kept = self._calls = self._swept = 0

    def call(self, prompt: Iterable[Segment], output: Segment) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """(prompt tokens, ids of the prompt's full pages, ids of the further full pages that prompt and output make together)."""
        at = self._root
        for segment in prompt:
            at = at.after.get(segment) or self._extend(at, segment)
        self._calls += 1
        at.used = self._calls
        if self._kept > self._sweep_at:
            self._sweep()
        return at.tokens, at.ids, self._run(at, output.key, (at.filled + output.tokens) // self._page_size)

    def _extend(self, at: _Beginning, segment: Segment) -> _Beginning:
        if not segment.tokens:
            return at
        pages, filled = divmod(at.filled + segment.tokens, self._page_size)
        ids = at.ids + self._run(at, segment.key, pages)
        longer = _Beginning(ids, filled, at.tokens + segment.tokens)
        if at.after is _NOTHING:
            at.after = {}
        at.after[segment] = longer
        self._kept += len(ids) + 1
        return longer

    def _run(self, at: _Beginning, key: int, pages: int) -> tuple[int, ...]:
        """Ids of the pages that end inside the segment after `at`. A longer segment begins with the pages of a shorter one."""
        known = at.runs.get(key, ())
        short = pages - len(known)
        if short > 0:
            known = at.runs[key] = (*known, *range(self._next, self._next + short))
            self._next += short
        return known if short >= 0 else known[:pages]

    def _sweep(self) -> None:
        """Drop beginnings that no prompt has used during the newer half of the calls since the last sweep."""
        order = [self._root]
        for each in order:  # grows while it is walked: a beginning comes before what goes on from it
            order.extend(each.after.values())
        for each in reversed(order):
            each.used = max([each.used, *(after.used for after in each.after.values())])
        cutoff, self._swept = (self._swept + self._calls) // 2, self._calls
        kept = [each for each in order if each.used > cutoff]
        for each in kept:
            gone = {segment.key for segment, after in each.after.items() if after.used <= cutoff}
            each.after = {segment: after for segment, after in each.after.items() if after.used > cutoff} or _NOTHING
            # Not those of outputs: the prompt that goes on from one may be still to come.
            each.runs = {key: run for key, run in each.runs.items() if key not in gone}
        self._kept = sum(len(each.ids) + 1 for each in kept)
        self._sweep_at = max(self._max_ids, 2 * self._kept)
