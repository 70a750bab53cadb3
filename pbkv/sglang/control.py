"""Control messages: typed commands that SGLang broadcasts to all ranks and every rank applies at the same scheduler step."""

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.io_struct import BaseReq

from pbkv import __version__
from pbkv.control.models import KnobPatch
from pbkv.errors import StaleVersion, UsageError
from pbkv.knobs import Change

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

log = logging.getLogger("pbkv")
#: Applied changes kept for GET /pbkv/knobs/history.
MAX_HISTORY = 256


class PbkvCommandReq(BaseReq, kw_only=True):
    """One command; `body` is JSON, so that the message's shape never changes."""

    op: str
    body: str


class PbkvCommandOutput(BaseReq, kw_only=True):
    """The answer of one scheduler: status like HTTP, body JSON."""

    status: int
    body: str


def handle(runtime: "Runtime", req: PbkvCommandReq) -> PbkvCommandOutput:
    """Run a command in the scheduler. Never raises: a bad command is answered, the scheduler goes on."""
    try:
        body: dict[str, Any] = json.loads(req.body)
        return PbkvCommandOutput(status=200, body=json.dumps(_OPS[req.op](runtime, body)))
    except StaleVersion as error:
        return PbkvCommandOutput(status=409, body=json.dumps({"error": str(error)}))
    except UsageError as error:
        return PbkvCommandOutput(status=422, body=json.dumps({"error": str(error)}))
    except Exception as error:
        log.exception("pbkv command %s failed", req.op)
        return PbkvCommandOutput(status=500, body=json.dumps({"error": f"{req.op} failed: {error}"}))


def _knobs(runtime: "Runtime", body: dict[str, Any]) -> dict[str, Any]:
    return runtime.knobs.describe()


def _patch(runtime: "Runtime", body: dict[str, Any]) -> dict[str, Any]:
    patch = KnobPatch.model_validate(body["patch"])
    changes = runtime.knobs.apply(
        patch.changes, if_version=patch.if_version, step=runtime.step, actor=patch.actor, reason=patch.reason, source=patch.source,
        now=runtime.state.now, expires_s=patch.expires_s,
    )
    _applied(runtime, changes, body["wall_ns"])
    return {
        "version": runtime.knobs.version, "step": runtime.step,
        "changes": [{"name": c.name, "old": c.old, "new": c.new} for c in changes],
    }


def _applied(runtime: "Runtime", changes: list[Change], wall_ns: int) -> None:
    runtime.knobs_changed({c.name for c in changes})
    for change in changes:
        runtime.history.append({
            "version": change.version, "step": runtime.step, "wall_ns": wall_ns, "name": change.name, "old": change.old,
            "new": change.new, "actor": change.actor, "source": change.source, "reason": change.reason,
        })
        if runtime.telemetry:
            runtime.telemetry.knob(change)
    if runtime.telemetry:
        # Sent under this very step, so that the log and the answer name the same one.
        runtime.telemetry.end_step(runtime.step)
    del runtime.history[:-MAX_HISTORY]


def _confirm(runtime: "Runtime", body: dict[str, Any]) -> dict[str, Any]:
    runtime.knobs.confirm(int(body["version"]))
    return {"version": runtime.knobs.version, "step": runtime.step}


def _history(runtime: "Runtime", body: dict[str, Any]) -> list[dict[str, Any]]:
    return runtime.history


def _tick(runtime: "Runtime", body: dict[str, Any]) -> dict[str, Any]:
    """Time comes from one process for all ranks: retire idle workflows, take back unconfirmed changes."""
    runtime.state.tick(float(body["now"]))
    changes = runtime.knobs.expire(runtime.state.now, runtime.step)
    if changes:
        _applied(runtime, changes, body["wall_ns"])
    return {}


def _state(runtime: "Runtime", body: dict[str, Any]) -> dict[str, Any]:
    stream = runtime.stream
    return {
        "engine": "sglang", "pbkv": __version__, "server": runtime.config.server, "step": runtime.step,
        "epoch": stream.writer.epoch if stream else None, "events": stream.events if stream else None,
        "replay": stream.replay if stream else None, "control_url": stream.control_url if stream else None,
        "dropped_messages": stream.writer.dropped if stream else 0, "knob_version": runtime.knobs.version,
        "workflows": len(runtime.state.live), "leaves": len(runtime.device), "counts": dict(runtime.counts), "wall_ns": time.time_ns(),
    }


_OPS = {"knobs": _knobs, "patch": _patch, "confirm": _confirm, "history": _history, "tick": _tick, "state": _state}
