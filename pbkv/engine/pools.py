"""How many pages of KV each tier has, and who holds them. Counting only: contents and places are the tree's business."""

from pbkv.errors import UsageError


class Pool:
    """Pages of one tier: free + cached + locked + held = size at every moment.

    `cached` and `locked` belong to the tree: `cached` may be evicted, `locked` is on the path of a running call or in a copy. `held` was
    allocated to running calls and is not in the tree (yet).
    """

    __slots__ = ("size", "free", "cached", "locked", "held")

    def __init__(self, tokens: int, page_size: int) -> None:
        """`tokens` is rounded down to whole pages, as SGLang does."""
        self.size = self.free = tokens // page_size
        self.cached = self.locked = self.held = 0

    @property
    def used(self) -> int:
        """Pages that are not free."""
        return self.size - self.free

    def take(self, pages: int) -> None:
        """Allocate to a running call. The caller has made room."""
        assert 0 <= pages <= self.free, f"{pages} pages wanted, {self.free} free"
        self.free -= pages
        self.held += pages

    def give_back(self, pages: int) -> None:
        """A running call frees pages that are not in the tree."""
        assert 0 <= pages <= self.held, f"{pages} pages given back, {self.held} held"
        self.held -= pages
        self.free += pages

    def balanced(self) -> bool:
        """Conservation: no page is lost or counted twice."""
        return min(self.free, self.cached, self.locked, self.held) >= 0 and self.free + self.cached + self.locked + self.held == self.size


def check_sizes(page_size: int, device_tokens: int, host_tokens: int) -> None:
    """Refuse sizes no server could run with. Raises UsageError."""
    if not 1 <= page_size <= 1024:
        raise UsageError(f"page_size = {page_size}: expected 1 to 1024 tokens")
    if not 2 * page_size <= device_tokens <= 1 << 40:
        raise UsageError(f"device_tokens = {device_tokens}: expected at least two pages ({2 * page_size}) and at most {1 << 40}")
    if not 0 <= host_tokens <= 1 << 40:
        raise UsageError(f"host_tokens = {host_tokens}: expected 0 (no host tier) to {1 << 40}")
