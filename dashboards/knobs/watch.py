"""A thread that keeps the knobs in force at hand: pages never wait for the engine's control interface."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from dashboards.knobs.spec import KnobSpec, read_specs
from pbkv.control.client import ControlClient
from pbkv.errors import PbkvError


@dataclass(frozen=True)
class Control:
    """What is known of the control interface. `error` says why `version` and `knobs` may be old."""

    url: str | None = None
    version: int | None = None
    step: int | None = None
    knobs: tuple[KnobSpec, ...] = ()
    error: str | None = None


class Watch:
    """Reads the knobs of `address()` once per `interval_s` while `wanted()`; None for an address that is not known (yet)."""

    def __init__(
        self,
        address: Callable[[], str | None],
        wanted: Callable[[], bool],
        *,
        token: str | None,
        interval_s: float = 1.0,
        timeout_s: float = 3.0,
    ) -> None:
        self._address, self._wanted, self._token = address, wanted, token
        self._interval, self._timeout = interval_s, timeout_s
        self.state = Control()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pbkv-web-knobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def refresh(self) -> None:
        """Read again at once, after a change."""
        self._wake.set()

    def client(self, actor: str) -> ControlClient:
        """A client of the present address for `actor`. Raises PbkvError when no address is known."""
        url = self.state.url
        if url is None:
            raise PbkvError("no control address is known for this server; start the page with --server URL")
        return ControlClient(url, token=self._token, actor=actor, timeout_s=self._timeout + 2)

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._wanted():
                self.state = self._read(self._address())
            self._wake.wait(self._interval)
            self._wake.clear()

    def _read(self, url: str | None) -> Control:
        if url is None:
            return Control()
        known = self.state if self.state.url == url else Control(url)
        try:
            answer = ControlClient(url, token=self._token, actor="web", timeout_s=self._timeout).knobs()
            return Control(url, int(answer["version"]), int(answer["step"]), read_specs(answer))
        except PbkvError as error:
            return replace(known, error=str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return replace(known, error=f"{url}/pbkv/knobs is not understood ({error!r}); is it a PBKV server of this version?")
