"""The wire format: what is packed comes back, and nothing that is not a message ever decodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.events.schema import BY_NAME, DIGEST, KINDS, NAME_BYTES, Kind
from pbkv.events.wire import FLAG_HEARTBEAT, HEADER, MAGIC, MAX_MESSAGE, SECTION, Header, Message, WireError, decode, encode
from tests.support.stream import record

HEAD = Header("server-0", 17, 0, 5, 9, 11, 13, 2, 0)
RECORDED = record(3, epoch=1)

_VALUES = {
    "u8": st.integers(0, 255), "u16": st.integers(0, 2**16 - 1), "u32": st.integers(0, 2**32 - 1), "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1), "f32": st.floats(width=32, allow_nan=False), "f64": st.floats(allow_nan=False),
    f"s{NAME_BYTES}": st.binary(max_size=NAME_BYTES).map(lambda b: b.rstrip(b"\0")),
}


def section(kind: Kind, rows: list[tuple], first: int = 0) -> tuple[Kind, int, bytes]:
    return kind, len(rows), b"".join(kind.struct.pack(first + n, *row) for n, row in enumerate(rows))


def with_records(count: int) -> Header:
    return Header(HEAD.server, HEAD.epoch, HEAD.rank, HEAD.seq, HEAD.step, HEAD.mono_ns, HEAD.wall_ns, HEAD.dropped, count)


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, dict[str, list[tuple]]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), unique_by=lambda k: k.code, max_size=4))
    rows: dict[str, list[tuple]] = {}
    sections, total = [], 0
    for kind in kinds:
        fields = [st.integers(0, len(f.values) - 1) if f.values else _VALUES[f.dtype] for f in kind.fields]
        of_kind = draw(st.lists(st.tuples(*fields), min_size=1, max_size=4))
        rows[kind.name] = of_kind
        sections.append(section(kind, of_kind, total))
        total += len(of_kind)
    return encode(with_records(total), sections), rows


@given(messages())
def test_what_is_packed_comes_back(case):
    payload, rows = case
    message = decode(payload)
    assert message.header == with_records(sum(map(len, rows.values())))
    assert set(message.tables) == set(rows)
    for name, of_kind in rows.items():
        got = [tuple(r)[1:] for r in message.tables[name].tolist()]
        assert got == [tuple(v for v in row) for row in of_kind]


def only_wire_errors(payload: bytes) -> Message | None:
    try:
        return decode(payload)
    except WireError:
        return None


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data):
    assert only_wire_errors(data) is None


@given(st.binary(max_size=300))
def test_random_bytes_behind_a_good_header_are_refused(data):
    head = encode(with_records(3), [])
    broken = head[:-len(data)] + data if data else head
    only_wire_errors(broken)
    if data:
        assert only_wire_errors(head + data) is None


@settings(max_examples=400)
@given(st.sampled_from(RECORDED), st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=8))
def test_mutated_messages_decode_to_something_valid_or_are_refused(payload, changes):
    data = bytearray(payload)
    for at, value in changes:
        data[at % len(data)] = value
    message = only_wire_errors(bytes(data))
    if message is not None:
        assert_valid(message)


@settings(max_examples=300)
@given(st.sampled_from(RECORDED), st.integers(0, 4000), st.integers(0, 4000), st.binary(max_size=40))
def test_spliced_messages_decode_to_something_valid_or_are_refused(payload, start, length, insert):
    start %= len(payload)
    message = only_wire_errors(payload[:start] + insert + payload[start + length % len(payload):])
    if message is not None:
        assert_valid(message)


def assert_valid(message: Message) -> None:
    assert sum(len(t) for t in message.tables.values()) == message.header.records
    for name, table in message.tables.items():
        kind = BY_NAME[name]
        assert table.dtype == kind.dtype
        assert (np.diff(table["idx"].astype(np.int64)) > 0).all()
        assert table["idx"].max() < message.header.records
        for field in kind.fields:
            if field.values:
                assert table[field.name].max() < len(field.values)


@pytest.mark.parametrize("cut", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 3, HEADER.size + SECTION.size, -1])
def test_a_torn_message_is_refused(cut: int):
    payload = RECORDED[0]
    with pytest.raises(WireError):
        decode(payload[:cut])


def test_every_prefix_of_a_message_is_refused():
    payload = min(RECORDED, key=len)
    for end in range(len(payload)):
        with pytest.raises(WireError):
            decode(payload[:end])


def patched(**changes: object) -> bytes:
    """A one-record message with header fields changed."""
    names = "magic format flags digest server epoch rank sections records seq step mono wall dropped".split()
    payload = encode(with_records(1), [section(BY_NAME["page"], [(1, 0, 1)])])
    fields = dict(zip(names, HEADER.unpack_from(payload), strict=True)) | changes
    return HEADER.pack(*fields.values()) + payload[HEADER.size:]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": b"NOPE"}, "not a PBKV message"), ({"format": 2}, "format 2"), ({"digest": b"\0" * 8}, "schema 0000000000000000"),
        ({"server": b"\xff\xfe"}, "not UTF-8"), ({"sections": 0}, "left over"), ({"sections": 2}, "torn section header"),
        ({"records": 0}, "record order"), ({"records": 2}, "records of 2"), ({"records": 2**32 - 1}, "records of"),
    ],
)
def test_each_header_check_names_itself(changes, reason):
    decode(patched())
    with pytest.raises(WireError, match=reason):
        decode(patched(**changes))


@pytest.mark.parametrize(
    ("code", "reserved", "count", "reason"),
    [
        (99, 0, 1, "kind 99"), (2, 1, 1, "bad section"), (2, 0, 0, "count 0"), (2, 0, 2, "torn section"),
        (2, 0, 2**32 - 1, "torn section"), (1, 0, 1, "torn section"),
    ],
)
def test_each_section_check_names_itself(code, reserved, count, reason):
    payload = bytearray(patched())
    SECTION.pack_into(payload, HEADER.size, code, reserved, count)
    with pytest.raises(WireError, match=reason):
        decode(bytes(payload))


def test_a_kind_twice_is_refused():
    one = section(BY_NAME["page"], [(1, 0, 1)])
    with pytest.raises(WireError, match="bad section"):
        decode(encode(with_records(2), [one, section(BY_NAME["page"], [(2, 1, 2)], 1)]))


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0, 2), (5, 6)])
def test_records_out_of_order_or_range_are_refused(order):
    kind = BY_NAME["page"]
    data = b"".join(kind.struct.pack(idx, 1, 0, 1) for idx in order)
    with pytest.raises(WireError, match="record order"):
        decode(encode(with_records(2), [(kind, 2, data)]))


def test_a_code_without_meaning_is_refused():
    kind = BY_NAME["batch"]
    with pytest.raises(WireError, match=r"batch\.mode: code 9"):
        decode(encode(with_records(1), [section(kind, [(9, 0, 0, 0.0)])]))


def test_a_message_above_the_limit_is_refused():
    with pytest.raises(WireError, match="length"):
        decode(b"PBKV" + b"\0" * MAX_MESSAGE)


def test_a_heartbeat_has_no_records():
    message = decode(encode(Header("s", 1, 0, 40, 0, 0, 0, 0, 0, FLAG_HEARTBEAT), []))
    assert (message.header.flags, message.header.seq, message.tables) == (FLAG_HEARTBEAT, 40, {})


@pytest.mark.parametrize("server", ["", "a", "é" * 16, "x" * 32])
def test_server_names_survive(server: str):
    assert decode(encode(Header(server, 1, 0, 1, 0, 0, 0, 0, 0), [])).header.server == server


@pytest.mark.parametrize("server", ["x" * 33, "é" * 17, "ab" + "é" * 16])
def test_a_server_name_that_is_too_long_is_cut_not_broken(server: str):
    shown = decode(encode(Header(server, 1, 0, 1, 0, 0, 0, 0, 0), [])).header.server
    assert server.startswith(shown)
    assert len(shown.encode()) in (31, 32)


def test_decoded_tables_cannot_be_written():
    message = decode(RECORDED[0])
    for table in message.tables.values():
        with pytest.raises(ValueError, match="read-only"):
            table["idx"][0] = 1


def test_a_memoryview_decodes_like_bytes():
    assert decode(memoryview(RECORDED[0])).header == decode(RECORDED[0]).header


def test_layout_is_frozen():
    """Another layout needs another FORMAT_VERSION: collectors in the field read this one."""
    assert (HEADER.size, SECTION.size, MAGIC, len(DIGEST)) == (104, 8, b"PBKV", 8)
