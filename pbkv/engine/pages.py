"""From segments of content to ids of pages: pages get the same id exactly when all from the prompt's start to their end is equal.

Equal means equal segments, the last one possibly in part: segments of different keys differ from their first token on.
"""

from pbkv.workloads.tokens import Segment

Ids = tuple[int, ...]
Segments = tuple[Segment, ...]
#: Page ids kept, counted once per stretch that leads to them, before those of old prompts are dropped. Content that comes back after that
#: gets new ids, which costs hits but is never wrong.
MAX_IDS = 8_000_000


class _Stretch:
    """Segments that prompts have one after the other; what comes before them is above it in a tree. `ids` and `tokens` count from the start
    of the prompt to its end.
    """

    __slots__ = ("segments", "after", "runs", "ids", "tokens", "used")

    def __init__(self, segments: Segments, ids: Ids, tokens: int) -> None:
        self.segments, self.ids, self.tokens = segments, ids, tokens
        self.after: dict[Segment, _Stretch] = {}  # by first segment
        self.runs: dict[int, Ids] = {}  # by key of a segment that came after: ids of the pages that end inside it
        self.used = 0


class PageNamer:
    """Ids of the full pages of prompts given as segments. One namer per tree, one call after the other."""

    def __init__(self, page_size: int, max_ids: int = MAX_IDS) -> None:
        self._page_size, self._max_ids, self._sweep_at = page_size, max_ids, max_ids
        self._root = _Stretch((), (), 0)
        self._next = 1
        self._kept = self._calls = self._swept = 0

    def call(self, prompt: Segments, output: Segment) -> tuple[int, Ids, Ids]:
        """(prompt tokens, ids of the prompt's full pages, ids of the further full pages that prompt and output make together)."""
        at, done, total = self._root, 0, len(prompt)
        while done < total:
            below = at.after.get(prompt[done])
            if below is None:
                if not all(segment.tokens for segment in prompt[done:]):  # an empty segment is as if it were not there
                    return self.call(tuple(segment for segment in prompt if segment.tokens), output)
                at = self._grow(at, prompt[done:])
                break
            end = done + len(below.segments)
            if prompt[done:end] != below.segments:
                below = self._split(at, below, prompt[done:end])
                end = done + len(below.segments)
            at, done = below, end
        self._calls += 1
        at.used = self._calls
        if self._kept > self._sweep_at:
            self._sweep()
        return at.tokens, at.ids, self._run(at, output.key, at.tokens + output.tokens)

    def _grow(self, at: _Stretch, segments: Segments) -> _Stretch:
        """What comes after `at` for the first time."""
        first, tokens = segments[0], at.tokens + sum([segment.tokens for segment in segments])
        ids = at.ids + self._run(at, first.key, at.tokens + first.tokens)
        ids += tuple(self._fresh(tokens // self._page_size - len(ids)))
        longer = at.after[first] = _Stretch(segments, ids, tokens)
        self._kept += len(ids) + 1
        return longer

    def _split(self, at: _Stretch, below: _Stretch, segments: Segments) -> _Stretch:
        """Part `below` where `segments`, which begin like it, end or differ; returns the upper part."""
        old = below.segments
        common = next((n for n, (one, other) in enumerate(zip(old, segments, strict=False)) if one != other), len(segments))
        tokens = at.tokens + sum([segment.tokens for segment in old[:common]])
        upper = at.after[old[0]] = _Stretch(old[:common], below.ids[: tokens // self._page_size], tokens)
        below.segments = old[common:]
        following = below.segments[0]
        upper.after[following] = below
        upper.runs[following.key] = below.ids[len(upper.ids) : (tokens + following.tokens) // self._page_size]
        upper.used = below.used
        self._kept += len(upper.ids) + 1
        return upper

    def _run(self, at: _Stretch, key: int, tokens: int) -> Ids:
        """Ids of the pages that end inside a segment after `at` which reaches to `tokens`."""
        known = at.runs.get(key, ())
        pages = tokens // self._page_size - len(at.ids)
        if pages > len(known):
            known = at.runs[key] = (*known, *self._fresh(pages - len(known)))
        return known if pages == len(known) else known[:pages]

    def _fresh(self, pages: int) -> range:
        first = self._next
        self._next += pages
        return range(first, self._next)

    def _sweep(self) -> None:
        """Drop stretches that no prompt has used during the newer half of the calls since the last sweep."""
        order = [self._root]
        for each in order:  # grows while it is walked: a stretch comes before what is below it
            order.extend(each.after.values())
        for each in reversed(order):
            each.used = max([each.used, *(after.used for after in each.after.values())])
        cutoff, self._swept = (self._swept + self._calls) // 2, self._calls
        kept = [each for each in order if each.used > cutoff]
        for each in kept:
            gone = {segment.key for segment, after in each.after.items() if after.used <= cutoff}
            each.after = {segment: after for segment, after in each.after.items() if after.used > cutoff}
            # Not those of outputs: the prompt that goes on from one may be still to come.
            each.runs = {key: run for key, run in each.runs.items() if key not in gone}
        self._kept = sum(len(each.ids) + 1 for each in kept)
        self._sweep_at = max(self._max_ids, 2 * self._kept)
