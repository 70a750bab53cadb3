"""One ZMQ message = one header + one section of packed records per kind that occurred in the step.

The decoder trusts nothing: every length, count and code is checked before a record is looked at, so a torn, foreign or
hostile message is refused as a whole (`WireError`) and can never put a wrong row into the store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np

from pbkv.events.schema import BY_CODE, DIGEST, FORMAT_VERSION, Kind

MAGIC = b"PBKV"
#: Largest message that is sent or accepted, bytes.
MAX_MESSAGE = 4 << 20
#: Frame 0 of every published message; subscribers filter on it.
TOPIC = b"pbkv1"

FLAG_NAMES = 1  # answer to a names request: name records only, not part of the sequence (seq = 0)
FLAG_HEARTBEAT = 2  # no records; seq is the last one sent, so that a lost tail is noticed

HEADER = Struct("<4sHH8s32sQHHIQQqqQ")
SECTION = Struct("<HHI")

REPLAY_REQUEST = Struct("<4sHQQ")  # magic, op, first seq, last seq (inclusive)
REPLAY_END = Struct("<4sQQ")  # magic, oldest seq still held, newest seq sent
OP_REPLAY = 1
OP_NAMES = 2


class WireError(ValueError):
    """The bytes are not a message of this format; the text says which check failed."""


@dataclass(frozen=True)
class Header:
    """Where a message stands in its stream. Clocks are nanoseconds; `dropped` counts messages lost at the sender so far."""

    server: str
    epoch: int
    rank: int
    seq: int
    step: int
    mono_ns: int
    wall_ns: int
    dropped: int
    records: int
    flags: int = 0


@dataclass(frozen=True)
class Message:
    """A decoded message: `tables[kind]` is a read-only structured array with the dtype of that kind."""

    header: Header
    tables: Mapping[str, np.ndarray]


def encode(header: Header, sections: Sequence[tuple[Kind, int, bytes | memoryview]]) -> bytes:
    """Pack a header and (kind, record count, packed records) sections into one payload."""
    head = HEADER.pack(
        MAGIC, FORMAT_VERSION, header.flags, DIGEST, header.server.encode()[:32], header.epoch, header.rank,
        len(sections), header.records, header.seq, header.step, header.mono_ns, header.wall_ns, header.dropped,
    )
    parts: list[bytes | memoryview] = [head]
    for kind, count, data in sections:
        parts.append(SECTION.pack(kind.code, 0, count))
        parts.append(data)
    return b"".join(parts)


def decode(payload: bytes | memoryview) -> Message:
    """Check and unpack one payload. Raises WireError; never reads outside `payload`."""
    size = len(payload)
    if not HEADER.size <= size <= MAX_MESSAGE:
        raise WireError(f"length {size} outside {HEADER.size}..{MAX_MESSAGE}")
    magic, fmt, flags, digest, server, epoch, rank, sections, records, seq, step, mono, wall, dropped = HEADER.unpack_from(payload)
    if magic != MAGIC:
        raise WireError("not a PBKV message")
    if fmt != FORMAT_VERSION:
        raise WireError(f"format {fmt}, expected {FORMAT_VERSION}")
    if digest != DIGEST:
        raise WireError(f"schema {digest.hex()}, expected {DIGEST.hex()}")
    try:
        name = server.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise WireError("server name is not UTF-8") from None
    tables = _sections(payload, sections, records)
    return Message(Header(name, epoch, rank, seq, step, mono, wall, dropped, records, flags), tables)


def _sections(payload: bytes | memoryview, sections: int, records: int) -> dict[str, np.ndarray]:
    tables: dict[str, np.ndarray] = {}
    offset, found = HEADER.size, 0
    for _ in range(sections):
        if offset + SECTION.size > len(payload):
            raise WireError("torn section header")
        code, reserved, count = SECTION.unpack_from(payload, offset)
        offset += SECTION.size
        kind = BY_CODE.get(code)
        if kind is None or reserved or kind.name in tables or not count:
            raise WireError(f"bad section: kind {code}, count {count}")
        end = offset + count * kind.struct.size
        if end > len(payload):
            raise WireError(f"torn section of kind {kind.name}")
        table = np.frombuffer(payload, kind.dtype, count, offset)
        _check(kind, table, records)
        tables[kind.name] = table
        offset, found = end, found + count
    if offset != len(payload) or found != records:
        raise WireError(f"{len(payload) - offset} bytes left over, {found} records of {records}")
    return tables


def _check(kind: Kind, table: np.ndarray, records: int) -> None:
    idx = table["idx"]
    if idx[-1] >= records or (len(idx) > 1 and not (idx[1:] > idx[:-1]).all()):
        raise WireError(f"record order broken in kind {kind.name}")
    for field in kind.fields:
        if field.values and table[field.name].max() >= len(field.values):
            raise WireError(f"{kind.name}.{field.name}: code {table[field.name].max()} has no meaning")
