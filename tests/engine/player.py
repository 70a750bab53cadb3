"""Plays the moves of `tests.sglang_cache.moves` on the embedded engine's tree, in the words of the real cache's player."""

from collections.abc import Callable, Sequence
from typing import Any

from pbkv.engine.node import Node
from pbkv.engine.tiers import TwoTierTree
from pbkv.identity import CallIdentity


class Paging:
    """Content ids of pages of real tokens, and the way back."""

    def __init__(self, page: int) -> None:
        self.page = page
        self._ids: dict[tuple[int, ...], int] = {}
        self._tokens: list[tuple[int, ...]] = []

    def pages(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Ids of the full pages."""
        return tuple(self._id(tuple(tokens[i : i + self.page])) for i in range(0, len(tokens) // self.page * self.page, self.page))

    def _id(self, content: tuple[int, ...]) -> int:
        number = self._ids.setdefault(content, len(self._tokens))
        if number == len(self._tokens):
            self._tokens.append(content)
        return number

    def tokens(self, pages: Sequence[int]) -> tuple[int, ...]:
        """The tokens behind ids."""
        return tuple(token for page in pages for token in self._tokens[page])


class TreePlayer:
    """Same moves, same words as `tests.sglang_cache.moves.Player`."""

    def __init__(self, tree: TwoTierTree) -> None:
        self.tree = tree
        self.paging = Paging(tree.page_size)
        self.log: list[Any] = []
        self._locks: list[Node] = []
        self._watch_victims()

    def _watch_victims(self) -> None:
        keeper = self.tree.keeper
        for tier in ("device", "host"):
            setattr(keeper, f"next_{tier}_victim", self._watched(getattr(keeper, f"next_{tier}_victim"), f"{tier} victim"))

    def _watched(self, choose: Callable[[], Any], what: str) -> Callable[[], Any]:
        def chosen() -> Any:
            record = choose()
            if record is not None:
                self.log.append((what, self.path(record.node)))
            return record

        return chosen

    def path(self, node: Node) -> tuple[int, ...]:
        pages: list[int] = []
        while node is not self.tree.root:
            pages[:0] = node.key
            node = node.parent
        return self.paging.tokens(pages)

    def play(self, move: tuple[Any, ...], after: Callable[[], None] = lambda: None) -> None:
        result = getattr(self, move[0])(*move[1:])
        device, page = self.tree.device, self.tree.page_size
        self.log.append((move[0], result, device.free * page, device.cached * page, device.locked * page))
        after()

    def put(self, tokens: list[int]) -> Any:
        tree, pages = self.tree, self.paging.pages(tokens)
        found = tree.match(pages, len(pages))
        tree.lock(found.device)
        need = len(pages) - found.device_pages
        tree.make_room(need)
        end = None
        if need <= tree.device.free:
            tree.device.take(need)
            end = tree.insert(tree.root, pages, 0, found.device_pages, 0)
        tree.unlock(found.device)
        return None if end is None else len(self.path(end))

    def call(self, workflow: str, agent: str, tokens: list[int], final: bool) -> Any:
        """A whole call, as the harness makes one: its path enters the tree, is read, and belongs to the workflow."""
        end = self.put(tokens)
        if end is None:
            return None
        pages = self.paging.pages(tokens)
        node, path = self.tree.match(pages, len(pages)).best, list[Any]()
        while node is not self.tree.root:
            path.append(node.record)
            node = node.parent
        state = self.tree.keeper.state
        made, agent_id = state.begin_call(CallIdentity(workflow, agent, final))
        state.touch(made, agent_id, path[::-1])
        state.end_call(made, final=final)
        return end

    def close(self, workflow: str) -> bool:
        return self.tree.keeper.state.close(workflow)

    def match(self, tokens: list[int]) -> Any:
        pages = self.paging.pages(tokens)
        found = self.tree.match(pages, len(pages))
        return found.device_pages * self.tree.page_size, found.host_pages * self.tree.page_size

    def evict(self, count: int) -> int:
        return self.tree.evict(-(-count // self.tree.page_size)) * self.tree.page_size

    def lock(self, tokens: list[int]) -> int:
        pages = self.paging.pages(tokens)
        found = self.tree.match(pages, len(pages))
        if found.device_pages and len(self._locks) < 3:
            self.tree.lock(found.device)
            self._locks.append(found.device)
        return len(self._locks)

    def unlock(self, number: int) -> int:
        if self._locks:
            self.tree.unlock(self._locks.pop(number % len(self._locks)))
        return len(self._locks)

    def load_back(self, tokens: list[int]) -> bool:
        pages = self.paging.pages(tokens)
        found = self.tree.match(pages, len(pages))
        return bool(found.host_pages) and bool(self.tree.load_back(found.best))

    def settle(self) -> int:
        if self.tree.host.size:
            self.tree.copies.settle()
        return self.tree.host.free * self.tree.page_size

    def evict_host(self, count: int) -> int:
        return self.tree.evict_host(-(-count // self.tree.page_size)) * self.tree.page_size
