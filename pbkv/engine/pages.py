"""From segments of content to content ids of pages.

A page is made of pieces of segments, each (key, first token within the segment, tokens); pages with equal pieces get equal ids. Segments of
different keys differ from their first token on, so comparing pieces is comparing tokens.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

#: Pages whose pieces are remembered; a forgotten one that comes back gets a new id, which costs a hit but is never wrong.
MAX_MIXED = 1_000_000
#: Segments whose pages are remembered, by key and offset.
MAX_SEGMENTS = 200_000


class Segment(Protocol):
    """A run of `tokens` tokens whose content is named by `key`."""

    @property
    def key(self) -> int: ...

    @property
    def tokens(self) -> int: ...


class PageNamer:
    """Ids of the full pages of token sequences given as segments. One namer per tree."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._next = 1
        self._mixed: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._runs: OrderedDict[tuple[int, int], tuple[int, ...]] = OrderedDict()

    def pages(self, segments: Iterable[Segment]) -> tuple[int, ...]:
        """Ids of the full pages of the segments, one after the other; the partial page at the end has none."""
        size = self._page_size
        ids: list[int] = []
        pieces: list[int] = []  # of the page being filled: key, first token, tokens, ...
        filled = 0
        for segment in segments:
            key, tokens = segment.key, segment.tokens
            start = 0
            if filled:
                start = min(size - filled, tokens)
                pieces += (key, 0, start)
                filled += start
                if filled < size:
                    continue
                ids.append(self._intern(tuple(pieces)))
                filled = 0
            full = (tokens - start) // size
            if full:
                ids += self._run(key, start, full)
            rest = start + full * size
            if rest < tokens:
                pieces = [key, rest, tokens - rest]
                filled = tokens - rest
        return tuple(ids)

    def _intern(self, pieces: tuple[int, ...]) -> int:
        mixed = self._mixed
        known = mixed.get(pieces)
        if known is not None:
            mixed.move_to_end(pieces)
            return known
        known = mixed[pieces] = self._next
        self._next += 1
        if len(mixed) > MAX_MIXED:
            mixed.popitem(last=False)
        return known

    def _run(self, key: int, start: int, pages: int) -> tuple[int, ...]:
        """Ids of `pages` whole pages of one segment, from token `start` on. A longer run begins with the ids of a shorter one."""
        runs = self._runs
        known = runs.get((key, start), ())
        if known:
            runs.move_to_end((key, start))  # what every prompt begins with must outlive what only one has
        if len(known) < pages:
            fresh = pages - len(known)
            known = runs[key, start] = (*known, *range(self._next, self._next + fresh))
            self._next += fresh
            if len(runs) > MAX_SEGMENTS:
                runs.popitem(last=False)
        return known if len(known) == pages else known[:pages]
