"""Page ids: a keyed digest chain over page contents, so that the log has the trie a replay needs but no content."""

import hashlib
import secrets
from collections import OrderedDict
from typing import Any

from pbkv.record import NodeRecord
from pbkv.sglang.tree import record_of
from pbkv.telemetry import Telemetry

#: Page ids remembered as already written; a forgotten one is written again, which readers tolerate.
MAX_SEEN = 1_000_000


class Pages:
    """Names the pages of paths and writes each once. The key is new in every server epoch and never leaves the process."""

    def __init__(self, page_size: int, telemetry: Telemetry) -> None:
        self._page_size, self._telemetry = page_size, telemetry
        self._key = secrets.token_bytes(16)
        self._seen: OrderedDict[int, None] = OrderedDict()

    def name_path(self, path: list[Any]) -> tuple[int, int]:
        """(id of the last page, pages) of a path of nodes from the root down."""
        parent, depth = 0, 0
        for node in path:
            record = record_of(node)
            pages = record.tokens // self._page_size
            parent = record.page or self._name(node, record, parent, depth)
            depth += pages
        return parent, depth

    def _name(self, node: Any, record: NodeRecord, parent: int, depth: int) -> int:
        key = node.key
        tokens = key.raw_token_ids()
        # Namespaces split the tree at its root, so they enter the digest there.
        salt = b"" if parent else repr((key.extra_key, key.cache_salt)).encode()
        for n, start in enumerate(range(0, record.tokens, self._page_size), start=1):
            data = parent.to_bytes(8, "little") + tokens[start : start + self._page_size].tobytes() + salt
            page = int.from_bytes(hashlib.blake2b(data, key=self._key, digest_size=8).digest(), "little") or 1
            self._write(page, parent, depth + n)
            parent, salt = page, b""
        record.page = parent
        return parent

    def _write(self, page: int, parent: int, depth: int) -> None:
        if page in self._seen:
            return
        self._seen[page] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        self._telemetry.page(page, parent, depth)
