"""The writer: packed records come out as they went in, names precede their use, nothing grows without bound, nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.events import writer as module
from pbkv.events.schema import BY_NAME, KINDS, NAME_BYTES, Namespace
from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, decode, encode
from pbkv.events.writer import SECTION_RECORDS, EventWriter, shorten


class Sink:
    """Keeps messages; refuses those whose number is in `full`."""

    def __init__(self, full: frozenset[int] = frozenset()) -> None:
        self.messages, self.full = [], full

    def offer(self, seq: int, payload: bytes) -> bool:
        if seq in self.full:
            return False
        self.messages.append(decode(payload))
        return True


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def writer(sink: Sink) -> EventWriter:
    return EventWriter("s", sink, epoch=7, rank=3, monotonic_ns=lambda: 11, wall_ns=lambda: 13)


def test_one_message_per_flush_with_everything_in_order(writer: EventWriter, sink: Sink):
    writer.emit["page"](1, 0, 1)
    writer.emit["batch"](2, 3, 4, 5.0)
    writer.emit["page"](2, 1, 2)
    writer.flush(42)
    (message,) = sink.messages
    header = message.header
    assert (header.server, header.epoch, header.rank, header.seq, header.step) == ("s", 7, 3, 1, 42)
    assert (header.mono_ns, header.wall_ns, header.records, header.dropped) == (11, 13, 3, 0)
    assert message.tables["page"].tolist() == [(0, 1, 0, 1), (2, 2, 1, 2)]
    assert message.tables["batch"].tolist() == [(1, 2, 3, 4, 5.0)]


def test_nothing_packed_nothing_sent(writer: EventWriter, sink: Sink):
    writer.flush(1)
    writer.flush(2)
    assert sink.messages == []
    assert (writer.seq, writer.step) == (0, 2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_every_kind_can_be_emitted(writer: EventWriter, sink: Sink, kind):
    row = tuple(b"x" if f.dtype.startswith("s") else 1 for f in kind.fields)
    writer.emit[kind.name](*row)
    writer.flush()
    assert sink.messages[0].tables[kind.name].tolist() == [(0, *row)]


def test_booleans_are_numbers(writer: EventWriter, sink: Sink):
    fields = BY_NAME["call"].fields
    writer.emit["call"](*(True if f.name in ("attributed", "final") else 0 for f in fields))
    writer.flush()
    row = sink.messages[0].tables["call"][0]
    assert (row["attributed"], row["final"]) == (1, 1)


@pytest.mark.parametrize("count", [SECTION_RECORDS - 1, SECTION_RECORDS, SECTION_RECORDS + 1, 3 * SECTION_RECORDS + 5])
def test_a_full_section_is_split_over_messages(writer: EventWriter, sink: Sink, count: int):
    for n in range(count):
        writer.emit["page"](n, 0, 1)
    writer.flush()
    pages = [p for m in sink.messages for p in m.tables["page"]["page"].tolist()]
    assert pages == list(range(count))
    assert [m.header.seq for m in sink.messages] == list(range(1, len(sink.messages) + 1))


def test_a_refused_message_is_counted_and_its_number_is_missing(sink: Sink):
    sink.full = frozenset({2, 3})
    writer = EventWriter("s", sink)
    for n in range(5):
        writer.emit["page"](n, 0, 1)
        writer.flush()
    assert [m.header.seq for m in sink.messages] == [1, 4, 5]
    assert [m.header.dropped for m in sink.messages] == [0, 2, 2]
    assert writer.dropped == 2


def test_a_name_goes_out_before_the_first_record_that_uses_it(writer: EventWriter, sink: Sink):
    workflow = writer.intern(Namespace.WORKFLOW, "wf")
    writer.emit["workflow"](workflow, 0, 0, 0, 0, 0, 0.0)
    writer.flush()
    tables = sink.messages[0].tables
    assert tables["name"].tolist() == [(0, workflow, Namespace.WORKFLOW, b"wf")]
    assert tables["name"]["idx"][0] < tables["workflow"]["idx"][0]


def test_names_are_interned_once_and_by_namespace(writer: EventWriter, sink: Sink):
    ids = [writer.intern(ns, text) for ns, text in ((Namespace.AGENT, "a"), (Namespace.AGENT, "a"), (Namespace.KNOB, "a"))]
    assert ids[0] == ids[1] != ids[2]
    assert writer.intern(Namespace.AGENT, "") == 0
    writer.flush()
    assert len(sink.messages[0].tables["name"]) == 2


def test_forgotten_workflow_names_come_back_under_a_new_id(sink: Sink, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_NAMES", 4)
    writer = EventWriter("s", sink)
    agent = writer.intern(Namespace.AGENT, "planner")
    first = writer.intern(Namespace.WORKFLOW, "w0")
    for n in range(1, 20):
        writer.intern(Namespace.WORKFLOW, f"w{n}")
    assert writer.intern(Namespace.AGENT, "planner") == agent, "agents are kept, workflows are forgotten"
    assert writer.intern(Namespace.WORKFLOW, "w0") > first
    assert len(writer._names) <= 4


def test_a_workflow_in_use_is_not_the_one_forgotten(sink: Sink, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_NAMES", 4)
    writer = EventWriter("s", sink)
    busy = writer.intern(Namespace.WORKFLOW, "busy")
    for n in range(20):
        writer.intern(Namespace.WORKFLOW, f"w{n}")
        assert writer.intern(Namespace.WORKFLOW, "busy") == busy


def test_heartbeat_and_names_messages_stand_outside_the_sequence(writer: EventWriter):
    ids = {writer.intern(Namespace.AGENT, f"agent-{n}"): f"agent-{n}" for n in range(SECTION_RECORDS + 10)}
    writer.flush()
    seq = writer.seq
    beat = decode(encode(writer.heartbeat(99), []))
    assert (beat.header.flags, beat.header.seq, beat.header.epoch) == (FLAG_HEARTBEAT, 99, 7)
    messages = [decode(p) for p in writer.names_message()]
    assert [len(m.tables["name"]) for m in messages] == [SECTION_RECORDS, 10]
    assert {(m.header.flags, m.header.seq) for m in messages} == {(FLAG_NAMES, 0)}
    assert {int(r["id"]): r["text"].decode() for m in messages for r in m.tables["name"]} == ids
    assert writer.seq == seq


def test_no_names_no_message(writer: EventWriter):
    assert writer.names_message() == []


@given(st.text(max_size=300))
def test_shortened_names_fit_decode_and_stay_short(text):
    short = shorten(text)
    raw = short.encode()
    assert len(raw) <= NAME_BYTES
    assert b"\0" not in raw
    if len(text.encode(errors="replace")) <= NAME_BYTES and "\0" not in text and text.isprintable():
        assert short == text


@given(st.text(min_size=NAME_BYTES, max_size=200), st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_long_names_that_differ_stay_different(head, a, b):
    if (head + a).encode(errors="replace") != (head + b).encode(errors="replace"):
        assert shorten(head + a) != shorten(head + b)


@given(st.lists(st.tuples(st.sampled_from(["page", "batch", "flush"]), st.integers(0, 3)), max_size=200))
def test_any_interleaving_comes_out_complete_and_in_order(actions):
    sink = Sink()
    writer = EventWriter("s", sink)
    sent = []
    for n, (what, value) in enumerate(actions):
        if what == "flush":
            writer.flush(n)
        else:
            sent.append((what, n))
            writer.emit[what](*((n, 0, 1) if what == "page" else (value, n, 0, 0.0)))
    writer.flush()
    got = []
    for message in sink.messages:
        of_message = [(r["idx"], "page", int(r["page"])) for r in message.tables.get("page", ())]
        of_message += [(r["idx"], "batch", int(r["requests"])) for r in message.tables.get("batch", ())]
        got += [(what, n) for _, what, n in sorted(of_message)]
    assert got == sent
