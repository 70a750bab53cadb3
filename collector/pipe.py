"""The bounded queue between the thread that reads sockets and the one that writes the store."""

import threading
import time
from collections import deque
from collections.abc import Sequence

from collector.stream import Item, Loss
from pbkv.events.wire import Message

#: Memory that waiting messages may take, bytes; the publisher's replay buffer holds what does not fit.
MAX_BYTES = 64 << 20


def item_bytes(item: Item) -> int:
    """Memory that keeps `item` alive, about."""
    return 128 if isinstance(item, Loss) else _message_bytes(item)


def _message_bytes(message: Message) -> int:
    return 512 + sum(table.nbytes for table in message.tables.values())


class Pipe:
    """Items in stream order. `put` waits while the queue is full, so the sockets are simply not read meanwhile."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._change = threading.Condition()
        self._closed = False

    def put(self, items: Sequence[Item], stop: threading.Event) -> bool:
        """Append `items`; False when `stop` was set before there was room, and nothing was appended."""
        sized = [(item, item_bytes(item)) for item in items]
        with self._change:
            while self._bytes >= self._max_bytes:
                if stop.is_set():
                    return False
                self._change.wait(0.1)
            self._items.extend(sized)
            self._bytes += sum(size for _, size in sized)
            self._change.notify_all()
        return True

    def take(self, max_bytes: int, linger_s: float) -> list[Item]:
        """Items of about `max_bytes` at most; waits up to `linger_s` for so many. Empty only after `close`."""
        with self._change:
            while not self._items and not self._closed:
                self._change.wait()
            until = time.monotonic() + linger_s
            while self._bytes < max_bytes and not self._closed and (left := until - time.monotonic()) > 0:
                self._change.wait(left)
            taken: list[Item] = []
            size = 0
            while self._items and size < max_bytes:
                item, of_item = self._items.popleft()
                taken.append(item)
                size += of_item
            self._bytes -= size
            self._change.notify_all()
            return taken

    def close(self) -> None:
        """Nothing more comes; `take` hands out what is left."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    @property
    def depth(self) -> tuple[int, int]:
        """Items and bytes that wait."""
        return len(self._items), self._bytes
