"""A run of the plugin on a real server, collected into a store, and read back stretch by stretch as recordings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector import client
from pbkv.knobs import Value
from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logwindow import Window
from pbkv.whatif.recording import Recording
from tests.support.collector import CollectorProcess, eventually
from tests.support.lanes import Lanes, Traffic
from tests.support.server import Server, running_server, wait_for

#: Device pool in tokens and host pool as a multiple of it: about half of what eight workflows would keep, so that both tiers evict.
SHAPE: dict[str, Any] = {"max_total_tokens": 4096, "hicache_ratio": 1.5}
_IDLE = "SELECT count(*) AS n FROM raw.occupancy WHERE running = 0 AND waiting = 0 AND t > $t"


@dataclass
class Served:
    """A running server and its collector. Every `play` begins with an empty cache."""

    server: Server
    collector: CollectorProcess
    lanes: int = 8

    def play(self, traffic: Traffic, run: str, knobs: Mapping[str, Value] | None = None) -> Window:
        """Play with these knobs; the window of the log that has it, which ends when the server is idle and the log says so."""
        wait_for(lambda: self.server.call("POST", "/flush_cache").status_code == 200)
        if knobs:
            self._turn(knobs)
        self._wait_idle()
        window = Lanes(self.server, self.lanes).play(traffic, run)
        return replace(window, end=self._wait_idle())

    def _turn(self, knobs: Mapping[str, Value]) -> None:
        version = self.server.call("GET", "/pbkv/knobs").json()["version"]
        answer = self.server.call("PATCH", "/pbkv/knobs", {"if_version": version, "changes": dict(knobs), "actor": "test"})
        assert answer.status_code == 200, answer.text

    def _wait_idle(self) -> datetime:
        """Until an idle server has told so; returns a moment after that."""
        asked = datetime.now(UTC).replace(tzinfo=None)

        eventually(lambda: self.stored(_IDLE, t=asked), "an idle server says so")
        return datetime.now(UTC).replace(tzinfo=None)

    def stored(self, sql: str, **given: Any) -> int:
        """`n` of the answer to a query of the collector's store."""
        with self.collector.reader() as reader:
            return int(reader.sql(sql, given).to_pylist()[0]["n"])


@contextmanager
def served(model: Path, db: Path, *, knobs: Mapping[str, Value] | None = None, lanes: int = 8, **shape: Any) -> Iterator[Served]:
    """A plugin server of `model` with a collector that writes to `db`."""
    config = {"server": "whatif", "knobs": dict(knobs or {})}
    with running_server(model, config=config, **{**SHAPE, "max_running_requests": lanes, **shape}) as server:
        state = server.state()
        with CollectorProcess([(state["events"], state["replay"])], db) as collector:
            yield Served(server, collector, lanes)
            collector.stop()


def read_stretch(db: Path, window: Window, **how: Any) -> Recording:
    """The calls of a window that began with an empty cache."""
    with client.open(str(db)) as reader:
        return read_log(lambda sql, given: reader.sql(sql, given, deadline_s=60), Reading(window, warm_calls=0, start="cold", **how))

