"""From the page trie of a log to the pages of each call, as small numbers: equal numbers on equal paths, which is all that replay asks.

A path is a tuple. A new one shares nothing with older ones but its numbers, which are the same objects, so that a reference to a page costs
eight bytes.
"""

from collections.abc import Iterable

import numpy as np

from pbkv.whatif.logwindow import Query, Span, columns_of, fetch

Path = tuple[int, ...]
#: Steps by which the trie is looked for further back: each covers so many times the messages of the one before.
WIDEN = 4
#: Pages of a log that are read; beyond them calls are counted as unknown.
MAX_PAGES = 8_000_000


class PageTrie:
    """Parents of pages. `path(page)` is the way from the root down to it, None where the log does not have all of it."""

    def __init__(self, page: np.ndarray, parent: np.ndarray) -> None:
        """`page`, `parent`: [N] u64 ids; a page may come twice, parent 0 = root."""
        self._ids, first = np.unique(page, return_index=True)
        above = parent[first]
        place = np.minimum(np.searchsorted(self._ids, above), max(len(self._ids) - 1, 0))
        known = self._ids[place] == above if len(self._ids) else np.zeros(0, bool)
        #: By number: number of the parent, -1 = root, -2 = not in the log.
        self._parent: list[int] = np.where(above == 0, -1, np.where(known, place, -2)).tolist()
        self._through: list[Path | None] = [None] * len(self._parent)
        self._depth: list[int] = [0] * len(self._parent)

    def __len__(self) -> int:
        return len(self._parent)

    def number(self, page: int) -> int:
        """Number of a page, -1 = not in the log."""
        place = int(np.searchsorted(self._ids, np.uint64(page)))
        return place if place < len(self._ids) and int(self._ids[place]) == page else -1

    def path(self, page: int) -> Path | None:
        """Numbers of the pages from the root down to `page`, both ends included; () for page 0."""
        if not page:
            return ()
        at = self.number(page)
        if at < 0:
            return None
        parents, through, new = self._parent, self._through, list[int]()
        while at >= 0 and through[at] is None:
            new.append(at)
            at = parents[at]
        if at == -2:
            return None
        known = () if at < 0 else (through[at] or ())[: self._depth[at]]
        new.reverse()
        return self._keep((*known, *new), len(known)) if new else known

    def _keep(self, path: Path, known: int) -> Path:
        """Remember which path leads through the pages that are new on it."""
        through, depth = self._through, self._depth
        for place in range(known, len(path)):
            through[path[place]], depth[path[place]] = path, place + 1
        return path


def read_trie(query: Query, span: Span, ends: Iterable[int]) -> PageTrie:
    """The trie above the pages `ends`: from the messages of the span, then from more and more before them until all is found."""
    wanted = np.unique(np.fromiter((end for end in ends if end), np.uint64))
    after, width = span.after, max(1, span.upto - span.after)
    while True:
        rows = columns_of(fetch(query, "page", "page, parent", span, after=after))
        page, parent = (rows.get(name, np.zeros(0, np.uint64)).astype(np.uint64) for name in ("page", "parent"))
        whole = np.isin(wanted, page).all() and np.isin(parent[parent != 0], page).all()
        if whole or after < span.first or len(page) >= MAX_PAGES:
            return PageTrie(page, parent)
        width *= WIDEN
        after = max(span.first - 1, span.upto - width)
