"""Mutated messages against a running collector: none stops it, each refusal is counted, and a good stream beside them stays whole."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import zmq

from pbkv.events.wire import HEADER, TOPIC, WireError, decode
from tests.support.collector import CollectorProcess, eventually
from tests.support.faults import Counting, audit
from tests.support.stream import record

#: Mutated messages on their way at most: ZMQ drops what a subscriber has no room for, and a dropped one cannot be counted.
_WINDOW = 500


@dataclass(frozen=True)
class Fuzzed:
    """What became of them."""

    sent: int
    refused: int
    accepted: int
    good_messages: int
    seconds: float


def mutate(payload: bytes, rng: random.Random) -> bytes:
    """One of: bytes flipped, cut, lengthened, a part doubled or removed, extremes written over a number."""
    data = bytearray(payload)
    kind = rng.randrange(6)
    at = rng.randrange(len(data))
    if kind == 0:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data += rng.randbytes(rng.randint(1, 300))
    elif kind == 3:
        data[at:at] = data[at : at + rng.randint(1, 200)]
    elif kind == 4:
        del data[at : at + rng.randint(1, 200)]
    else:
        # In the header: lengths, counts and the identity of the stream.
        at = rng.randrange(min(len(data), HEADER.size + 8))
        data[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, (2**63).to_bytes(8, "little"), rng.randbytes(8)])
    return bytes(data)


def fuzz(folder: Path, count: int, seed: int = 0) -> Fuzzed:
    """Send `count` of them from an endpoint of their own, beside a live producer whose stream is audited afterwards."""
    start, rng = time.monotonic(), random.Random(seed)
    originals = record(20, seed=seed, server="hostile", epoch=7)
    context = zmq.Context()
    hostile = context.socket(zmq.PUB)
    hostile.setsockopt(zmq.SNDHWM, 0)
    hostile.bind(f"ipc://{folder}/h")
    with Counting(events=f"ipc://{folder}/e", replay=f"ipc://{folder}/r", speed=5, server="good") as producer:
        pairs = [(producer.endpoint, producer.replay_endpoint), (f"ipc://{folder}/h", f"ipc://{folder}/hr")]
        with CollectorProcess(pairs, folder / "events.duckdb") as collector, collector.reader() as reader:

            def joined() -> bool:
                hostile.send_multipart([TOPIC, b"first"])
                return reader.status()["refused"] > 0

            eventually(joined, "the collector listens to the hostile endpoint")
            # For greetings still on the way, which are refused too: one that took longer would make the exact count below fail, never pass.
            time.sleep(0.2)
            before = reader.status()["refused"]
            refused = accepted = 0
            for n in range(count):
                payload = mutate(rng.choice(originals), rng)
                try:
                    decode(payload)
                    accepted += 1
                except WireError:
                    refused += 1
                hostile.send_multipart([TOPIC, payload])
                if n % _WINDOW == 0:
                    want = before + refused
                    eventually(lambda w=want: reader.status()["refused"] >= w, "what was sent has been looked at")
            eventually(lambda: reader.status()["refused"] == before + refused, "every refusal is counted")
            producer.stop()
            eventually(lambda: collector.stored(producer.writer.epoch) == producer.writer.seq, "the good stream is stored")
            code, status, err = collector.stop()
            assert (code, err, status["failing"]) == (0, "", ""), err
        sent = producer.sent
    hostile.close()
    context.term()
    good = whole(folder / "events.duckdb", sent, producer.writer.epoch)
    return Fuzzed(count, refused, accepted, good, time.monotonic() - start)


def whole(db: Path, sent: dict[tuple[int, int], dict[str, int]], epoch: int) -> int:
    """Messages of the good stream; fails unless it is complete. What came in under other names may have any holes."""
    with duckdb.connect(str(db)) as connection:
        others = [s for (s,) in connection.execute("SELECT src FROM raw.source WHERE epoch <> ?", [epoch]).fetchall()]
        tables = [t for (t,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'raw'").fetchall()]
        for table in tables:
            connection.execute(f"DELETE FROM raw.{table} WHERE src IN (SELECT unnest(?::INT[]))", [others])
    books = audit(db, sent, 0.0)
    assert (books.epochs, books.lost) == (1, 0)
    assert books.messages == sum(set(kinds) != {"name"} for kinds in sent.values())
    return books.messages
