"""Control commands as an engine carries them out between two of its steps: one implementation for the plugin and the embedded engine."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from pbkv import __version__
from pbkv.control.models import KnobPatch
from pbkv.errors import StaleVersion, UsageError
from pbkv.knobs import Change
from pbkv.manager import CacheManager

log = logging.getLogger("pbkv")
#: Applied changes kept for GET /pbkv/knobs/history.
MAX_HISTORY = 256
Body = dict[str, Any]


class Commands:
    """Runs commands by name. `facts()` adds to the answer of "state" what only the engine knows: its name, its endpoints.

    `clock` drives the expiry of unconfirmed changes, seconds; without one it is the clock of "tick", the same on all ranks.
    """

    def __init__(self, manager: CacheManager, facts: Callable[[], Body], clock: Callable[[], float] | None = None) -> None:
        self._manager, self._facts = manager, facts
        self._clock = clock or (lambda: manager.state.now)
        self.history: list[Body] = []
        self._ops: dict[str, Callable[[Body], Any]] = {
            "knobs": self._knobs, "patch": self._patch, "confirm": self._confirm, "history": self._history, "tick": self._tick,
            "record": self._record,
            "state": self._state, "close": self._close,
        }

    def run(self, op: str, **body: Any) -> Any:
        """The answer, which is JSON. Raises StaleVersion or UsageError."""
        return self._ops[op](body)

    def answer(self, op: str, body: str) -> tuple[int, str]:
        """For commands that travel as messages: (status like HTTP, JSON). Never raises: the scheduler that asks goes on."""
        try:
            return 200, json.dumps(self.run(op, **json.loads(body)))
        except StaleVersion as error:
            return 409, json.dumps({"error": str(error)})
        except UsageError as error:
            return 422, json.dumps({"error": str(error)})
        except Exception as error:
            log.exception("pbkv command %s failed", op)
            return 500, json.dumps({"error": f"{op} failed: {error}"})

    def _knobs(self, body: Body) -> Body:
        return self._manager.knobs.describe()

    def _patch(self, body: Body) -> Body:
        patch = KnobPatch.model_validate(body["patch"])
        manager = self._manager
        changes = manager.knobs.apply(
            patch.changes, if_version=patch.if_version, step=manager.step, actor=patch.actor, reason=patch.reason, source=patch.source,
            now=self._clock(), expires_s=patch.expires_s,
        )
        self._applied(changes, body["wall_ns"])
        named = [{"name": c.name, "old": c.old, "new": c.new} for c in changes]
        return {"version": manager.knobs.version, "step": manager.step, "changes": named}

    def set_by_guard(self, changes: dict[str, Any], reason: str) -> None:
        """The engine itself changes knobs, because `reason` left it no choice; the caller sees to the effect."""
        knobs, step = self._manager.knobs, self._manager.step
        made = knobs.apply(
            changes, if_version=knobs.version, step=step, actor="engine", reason=reason, source="guard", now=self._clock(),
        )
        knobs.keep(changes)  # the end of a trial would otherwise undo it
        self._note(made, time.time_ns())

    def _applied(self, changes: list[Change], wall_ns: int) -> None:
        self._manager.knobs_changed({c.name for c in changes})
        self._note(changes, wall_ns)

    def _note(self, changes: list[Change], wall_ns: int) -> None:
        manager, telemetry = self._manager, self._manager.telemetry
        for change in changes:
            self.history.append({
                "version": change.version, "step": manager.step, "wall_ns": wall_ns, "name": change.name, "old": change.old,
                "new": change.new, "actor": change.actor, "source": change.source, "reason": change.reason,
            })
            if telemetry:
                telemetry.knob(change)
        if telemetry:
            # Sent under this very step, so that the log and the answer name the same one.
            telemetry.end_step(manager.step)
        del self.history[:-MAX_HISTORY]

    def _confirm(self, body: Body) -> Body:
        self._manager.knobs.confirm(int(body["version"]))
        return {"version": self._manager.knobs.version, "step": self._manager.step}

    def _history(self, body: Body) -> list[Body]:
        return self.history

    def _tick(self, body: Body) -> Body:
        """Time comes from one process for all ranks: retire idle workflows, take back unconfirmed changes."""
        manager = self._manager
        manager.knobs.catch_up(int(body.get("version", 0)))
        manager.tick(float(body["now"]))
        manager.end_recording(self._clock())
        changes = manager.knobs.expire(self._clock(), manager.step)
        if changes:
            self._applied(changes, body["wall_ns"])
        return {"version": manager.knobs.version}

    def _close(self, body: Body) -> Body:
        return {"closed": self._manager.close(str(body["workflow"]))}

    def _record(self, body: Body) -> Body:
        return self._manager.record(int(body["epoch"]), int(body["after"]), self._clock())

    def _state(self, body: Body) -> Body:
        manager = self._manager
        return {
            "pbkv": __version__, "step": manager.step, "knob_version": manager.knobs.version, "workflows": len(manager.state.live),
            "leaves": len(manager.device), "counts": dict(manager.counts), "wall_ns": time.time_ns(), **self._facts(),
        }
