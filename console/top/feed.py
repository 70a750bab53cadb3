"""Two threads that read: one the event source, one the server's knobs. A slow or dead one never holds up the other, nor the screen."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from collector.reader import Reader
from collector.views.models import Overview
from collector.views.overview import load_overview
from pbkv.control.client import ControlClient
from pbkv.control.tuning import KnobStates, load_knobs
from pbkv.errors import PbkvError

log = logging.getLogger("pbkv.top")

#: Seconds between two looks at the knobs; they change at human speed.
KNOBS_EVERY_S = 2.0


@dataclass(frozen=True)
class Snapshot:
    """The newest overview that could be read; `error` says why there is no newer one, `since` (monotonic) from when on."""

    overview: Overview | None
    error: str | None = None
    since: float | None = None


@dataclass(frozen=True)
class Control:
    """What the control interface says. `url` None: no server has named one yet. `states` outlives an error."""

    url: str | None = None
    states: KnobStates | None = None
    error: str | None = None


class Feed:
    """Calls `on_data` and `on_control` from its threads.

    `interval_s`, `window_s` and `paused` may be set at any time; `wake` applies them at once.
    """

    def __init__(
        self, open_reader: Callable[[], Reader], open_control: Callable[[str], ControlClient], *, control_url: str | None = None,
        interval_s: float = 1.0, window_s: float = 60.0,
    ) -> None:
        self.interval_s, self.window_s, self.paused = interval_s, window_s, False
        self.control_url = control_url
        self._follow = control_url is None
        self._open_reader, self._open_control = open_reader, open_control
        self._stop = threading.Event()
        self._data_wake, self._control_wake = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, on_data: Callable[[Snapshot], None], on_control: Callable[[Control], None]) -> None:
        """Begin reading."""
        for run, tell in ((self._data, on_data), (self._control, on_control)):
            self._threads.append(threading.Thread(target=run, args=(tell,), name=f"pbkv-top{run.__name__}", daemon=True))
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Read now."""
        self._data_wake.set()
        self._control_wake.set()

    def stop(self) -> None:
        """End both threads; does not wait for a request that hangs."""
        self._stop.set()
        self.wake()
        for thread in self._threads:
            thread.join(timeout=1)

    def client(self) -> ControlClient | None:
        """A control client for one change, or None while no server has named its URL."""
        return self._open_control(self.control_url) if self.control_url else None

    def _rest(self, wake: threading.Event, seconds: float) -> None:
        wake.wait(seconds)
        wake.clear()
        while self.paused and not self._stop.is_set():
            wake.wait(0.5)
            wake.clear()

    def _data(self, tell: Callable[[Snapshot], None]) -> None:
        reader: Reader | None = None
        last = Snapshot(None)
        while not self._stop.is_set():
            try:
                reader = reader or self._open_reader()
                last = Snapshot(load_overview(reader, self.window_s))
                self._learn_url(last.overview)
            except PbkvError as error:
                last = Snapshot(last.overview, str(error), last.since or time.monotonic())
            except Exception as error:  # whatever it is, the screen keeps its last data and says so
                log.exception("reading the source")
                last = Snapshot(last.overview, f"reading failed: {type(error).__name__}: {error}", last.since or time.monotonic())
            if last.error is not None and reader is not None:
                # Opened anew: the collector that comes back may be one with another token.
                reader.close()
                reader = None
            tell(last)
            self._rest(self._data_wake, self.interval_s)
        if reader is not None:
            reader.close()

    def _learn_url(self, overview: Overview | None) -> None:
        # A recording names the server it was made on; that server is not this recording's to change.
        if not self._follow or overview is None or overview.server is None or overview.status == "recorded":
            return
        if self.control_url != (url := overview.server.control_url):
            self.control_url = url
            self._control_wake.set()

    def _control(self, tell: Callable[[Control], None]) -> None:
        client: ControlClient | None = None
        last = Control()
        while not self._stop.is_set():
            url = self.control_url
            if url:
                if client is None or client.url != url.rstrip("/"):
                    client, last = self._open_control(url), Control(url)
                last = self._ask(client, last)
                tell(last)
            self._rest(self._control_wake, KNOBS_EVERY_S)

    def _ask(self, client: ControlClient, last: Control) -> Control:
        try:
            return Control(last.url, load_knobs(client, last.states))
        except PbkvError as error:
            return Control(last.url, last.states, str(error))
        except Exception as error:
            log.exception("reading the knobs")
            return Control(last.url, last.states, f"reading the knobs failed: {type(error).__name__}: {error}")
