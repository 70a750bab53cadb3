"""What stands between PBKV and SGLang's hot path: an exception of ours ends our steering, never the scheduler."""

import logging
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pbkv.sglang.steptimes import StepTimes
from pbkv.telemetry import Telemetry

log = logging.getLogger("pbkv")
P = ParamSpec("P")
T = TypeVar("T")
#: Longest text of a fault that is kept.
MAX_TEXT = 200


class Guard:
    """Runs our work until it fails once; from then on it is skipped, and SGLang's own code decides, until an operator re-arms.

    All ranks run the same work on the same state, so all of them fail at the same point. Work that one rank alone does (telemetry) must
    not pass through here. `steps` has the time that scheduler steps spent in our work, this rank's alone; it decides nothing.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed
        self.fault = ""  # empty = armed
        self.faults = 0
        self.steps = StepTimes()
        self._spent_ns = 0
        self._inside = False

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result, or None when the work failed or is not done any more."""
        if self.fault:
            return None
        # Our work calls SGLang, which calls us: only the outermost call is timed.
        outermost, self._inside = not self._inside, True
        started = time.perf_counter_ns() if outermost else 0
        try:
            return work(*args, **kwargs)
        except Exception as error:
            self._trip(getattr(work, "__qualname__", repr(work)), error)
            return None
        finally:
            if outermost:
                self._inside = False
                self._spent_ns += time.perf_counter_ns() - started

    def end_step(self, *, idle: bool) -> None:
        """A turn of the scheduler's loop is over. What an idle one took delays nobody and is not kept."""
        if not idle:
            self.steps.add(self._spent_ns)
        self._spent_ns = 0

    def _trip(self, where: str, error: Exception) -> None:
        self.fault = f"{where}: {type(error).__name__}: {error}"[:MAX_TEXT]
        self.faults += 1
        # Once per fault, and a fault needs an operator's hand before there can be another: the rate is bounded.
        log.exception("pbkv failed in %s; SGLang goes on with its own LRU until the knob policy is set again", where)
        self._failed()


class GuardedTelemetry(Telemetry):
    """Telemetry whose failures end the reports of this rank and nothing else: other ranks have none and must go on alike."""

    def __init__(self, *args: Any, failed: Callable[[], None]) -> None:
        super().__init__(*args)
        self.fault = ""
        self._failed = failed
        for name in REPORTS:
            setattr(self, name, self._guarded(getattr(self, name)))

    def _guarded(self, report: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.fault:
                return 0
            try:
                return report(*args, **kwargs)
            except Exception as error:
                self.fault = f"{report.__qualname__}: {type(error).__name__}: {error}"[:MAX_TEXT]
                log.exception("pbkv cannot report any more in this process; the cache is not affected")
                self._failed()
                return 0

        return guarded


#: Everything Telemetry offers.
REPORTS = tuple(name for name in vars(Telemetry) if not name.startswith("_"))
