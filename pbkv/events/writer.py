"""Packing of events in the scheduler thread.

The hot path never allocates a message, never blocks and never raises: a record is packed into a preallocated buffer of its
kind; `flush` copies the filled parts into one message per scheduler step and offers it to a sink. One thread only.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from pbkv.events.schema import BY_NAME, KINDS, NAME_BYTES, Kind, Namespace
from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, Header, encode

#: Records of one kind that one message can hold; a fuller step is split into several messages.
SECTION_RECORDS = 1024
#: Names kept for late subscribers. Names of agents and knobs are few; workflow names are forgotten oldest first.
MAX_NAMES = 65_536


class Sink(Protocol):
    """Takes finished messages. `offer` must return at once and must not raise."""

    def offer(self, seq: int, payload: bytes) -> bool: ...


Emit = Callable[..., None]

#: Source of the pair of closures over one kind's buffer: `emit` packs a record, `take` hands out what is packed and starts over.
_EMITTER = """
def make(pack_into, size, buffer, view, index, flush):
    offset, capacity = 0, len(buffer)

    def emit({fields}):
        nonlocal offset
        n = index[0]
        pack_into(buffer, offset, n, {fields})
        index[0] = n + 1
        offset += size
        if offset == capacity:
            flush()

    def take():
        nonlocal offset
        if not offset:
            return None
        filled, offset = offset, 0
        return filled // size, view[:filled]

    return emit, take
"""


class EventWriter:
    """Packs records of every kind: `writer.emit["eviction"](node, tokens, ...)` with the fields of the schema, in order.

    Bind the emitters once; each is a closure over its buffer. Sequence numbers count messages from 1 within `epoch`.
    """

    def __init__(
        self,
        server: str,
        sink: Sink,
        *,
        rank: int = 0,
        epoch: int | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.server = server
        self.rank = rank
        self.epoch = wall_ns() if epoch is None else epoch
        self.seq = 0
        self.step = 0
        self.dropped = 0
        self._sink = sink
        self._mono, self._wall = monotonic_ns, wall_ns
        self._index = [0]
        self._names: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._last_id = 0
        self._sections: list[tuple[Kind, Callable[[], tuple[int, memoryview] | None]]] = []
        self.emit: dict[str, Emit] = {}
        for kind in KINDS:
            self.emit[kind.name] = self._section(kind)
        self._emit_name = self.emit["name"]

    def _section(self, kind: Kind) -> Emit:
        # Fields are named parameters of a function made for the kind: passing them through *fields would build two tuples per event.
        scope: dict[str, Any] = {}
        exec(_EMITTER.format(fields=", ".join(f.name + "_" for f in kind.fields)), scope)
        buffer = bytearray(kind.struct.size * SECTION_RECORDS)
        emit, take = scope["make"](kind.struct.pack_into, kind.struct.size, buffer, memoryview(buffer), self._index, self.flush)
        self._sections.append((kind, take))
        return emit

    def flush(self, step: int | None = None) -> None:
        """Send what was packed since the last call as one message; nothing packed, nothing sent."""
        if step is not None:
            self.step = step
        records = self._index[0]
        if not records:
            return
        self._index[0] = 0
        self.seq += 1
        filled = [(kind, part[0], part[1]) for kind, take in self._sections if (part := take())]
        if not self._sink.offer(self.seq, encode(self._header(records), filled)):
            self.dropped += 1

    def _header(self, records: int, flags: int = 0, seq: int | None = None) -> Header:
        return Header(
            self.server, self.epoch, self.rank, self.seq if seq is None else seq, self.step, self._mono(), self._wall(),
            self.dropped, records, flags,
        )

    def intern(self, namespace: Namespace, text: str) -> int:
        """Id of a string; its `name` record goes out before the first record that can use the id. Empty text is 0."""
        if not text:
            return 0
        key = (int(namespace), shorten(text))
        known = self._names.get(key)
        if known is not None:
            if namespace == Namespace.WORKFLOW:
                self._names.move_to_end(key)
            return known
        self._last_id += 1
        self._names[key] = self._last_id
        self._emit_name(self._last_id, key[0], key[1].encode())
        if len(self._names) > MAX_NAMES:
            self._forget_oldest()
        return self._last_id

    def _forget_oldest(self) -> None:
        # Ids are never reused, so a forgotten name that comes back gets a new id and stays unambiguous.
        for key in self._names:
            if key[0] == Namespace.WORKFLOW:
                del self._names[key]
                return
        self._names.popitem(last=False)

    def heartbeat(self, last_sent: int) -> Header:
        """Header of a message without records that tells a subscriber how far the stream has got."""
        return self._header(0, FLAG_HEARTBEAT, last_sent)

    def _copy_names(self) -> dict[tuple[int, str], int]:
        while True:
            try:
                return dict(self._names)
            except RuntimeError:  # the scheduler thread added a name meanwhile
                continue

    def names_message(self) -> list[bytes]:
        """All remembered names as messages outside the sequence, for a subscriber that came late."""
        kind = BY_NAME["name"]
        items = [(i, ns, text) for (ns, text), i in self._copy_names().items()]
        messages: list[bytes] = []
        for start in range(0, len(items), SECTION_RECORDS):
            part = items[start : start + SECTION_RECORDS]
            data = b"".join(kind.struct.pack(n, i, ns, text.encode()) for n, (i, ns, text) in enumerate(part))
            messages.append(encode(self._header(len(part), FLAG_NAMES, 0), [(kind, len(part), data)]))
        return messages


def shorten(text: str) -> str:
    """`text` in at most NAME_BYTES bytes of UTF-8 without NUL; a cut name ends in a digest, so different names stay different."""
    raw = text.replace("\0", "�").encode(errors="replace")
    if len(raw) <= NAME_BYTES:
        return raw.decode()
    mark = "~" + hashlib.blake2b(raw, digest_size=6).hexdigest()
    return raw[: NAME_BYTES - len(mark)].decode(errors="ignore") + mark
