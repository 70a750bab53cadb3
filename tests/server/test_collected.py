"""A real server with two ranks as the producer: its events survive a kill of the collector in the middle of the load."""

import threading
from pathlib import Path

import pytest
import zmq

from tests.server.test_same_answers import play, workload
from tests.support.collector import CollectorProcess, eventually
from tests.support.faults import Seen, audit, witness_of
from tests.support.server import running_server

pytestmark = pytest.mark.server


def test_two_ranks_into_a_store_that_is_killed(tiny_model: Path, tmp_path: Path) -> None:
    sent: Seen = {}
    db = tmp_path / "events.duckdb"
    context = zmq.Context()
    with running_server(tiny_model, config={"server": "tp2"}, max_total_tokens=3072, hicache_ratio=4, tp=2) as server:
        state = server.state()
        witness = witness_of(context, state["events"])
        pairs = [(state["events"], state["replay"])]
        with CollectorProcess(pairs, db) as collector:
            play(server, workload(seed=1, workflows=3, turns=3))
            witness.drain(sent)
            first = max(seq for _, seq in sent)
            epoch = next(iter(sent))[0]
            eventually(lambda: collector.stored(epoch) >= first, "the first load is stored")
            lanes = [threading.Thread(target=play, args=(server, workload(20 + n, 2, 3, context=200))) for n in range(2)]
            for lane in lanes:
                lane.start()
            collector.kill()
            for lane in lanes:
                lane.join()
        with CollectorProcess(pairs, db) as collector:
            play(server, workload(seed=2, workflows=1, turns=2))
            witness.drain(sent)
            last = max(seq for _, seq in sent)
            eventually(lambda: collector.stored(epoch) >= last, "all of it is stored")
            code, status, err = collector.stop()
    witness.close()
    context.term()
    assert (code, err, status["refused"], {s["rank"] for s in status["sources"]}) == (0, "", 0, {0})
    books = audit(db, sent, 0.0)
    assert (books.epochs, books.lost) == (1, 0)
    assert books.messages >= len([k for k in sent.values() if set(k) != {"name"}])
