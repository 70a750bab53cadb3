"""The HTTP side, in the process that runs SGLang's web server: mounts the control router, drives the clock, cleans identities."""

import asyncio
import json
import logging
import time
from operator import attrgetter
from typing import Any, cast

from pbkv.config import ServerConfig
from pbkv.control.access import require_token
from pbkv.control.models import KnobPatch, RecordAsk
from pbkv.control.programs import programs_router
from pbkv.control.router import control_router
from pbkv.errors import PbkvError, StaleVersion, UsageError
from pbkv.identity import parse_payload
from pbkv.sglang.arrivals import Arrivals
from pbkv.sglang.control import PbkvCommandReq
from pbkv.sglang.replicas import one_history, one_state

log = logging.getLogger("pbkv")
#: Seconds between clock messages to the schedulers.
TICK_S = 1.0
#: Longest wait for the schedulers' answer, seconds.
ANSWER_S = 30.0


class SchedulerBackend:
    """Sends commands to all schedulers; with data parallelism every replica applies them, and the answers are made one."""

    def __init__(self, tokenizer_manager: Any) -> None:
        self._manager = tokenizer_manager

    async def command(self, op: str, **body: Any) -> Any:
        """Run a command and return its answer. Raises StaleVersion, UsageError or PbkvError."""
        return (await self._ask(op, body))[0]

    async def close(self, workflow: str) -> bool:
        """End a workflow; whether any replica had it."""
        return any(answer["closed"] for answer in await self._ask("close", {"workflow": workflow}))

    async def _ask(self, op: str, body: dict[str, Any]) -> list[Any]:
        self._manager.auto_create_handle_loop()
        request = PbkvCommandReq(op=op, body=json.dumps(body))
        try:
            answers = await asyncio.wait_for(self._manager.pbkv_command_communicator(request), ANSWER_S)
        except TimeoutError:
            raise PbkvError(f"the scheduler did not answer within {ANSWER_S:g} s; it may be stuck or gone") from None
        answers.sort(key=attrgetter("replica"))
        bad = next((a for a in answers if a.status != 200), None)
        if bad is None:
            return [json.loads(a.body) for a in answers]
        raise {409: StaleVersion, 422: UsageError}.get(bad.status, PbkvError)(str(json.loads(bad.body)["error"]))

    async def knobs(self) -> dict[str, Any]:
        return await self.command("knobs")

    async def patch(self, patch: KnobPatch) -> dict[str, Any]:
        return await self.command("patch", patch=patch.model_dump(), wall_ns=time.time_ns())

    async def confirm(self, version: int) -> dict[str, Any]:
        return await self.command("confirm", version=version)

    async def history(self) -> list[dict[str, Any]]:
        return one_history(await self._ask("history", {}))

    async def state(self) -> dict[str, Any]:
        return one_state(await self._ask("state", {}))

    async def tick(self, version: int) -> int:
        """Move the clock of all replicas, and their knobs to the newest version of any; returns the newest."""
        body = {"now": time.monotonic(), "wall_ns": time.time_ns(), "version": version}
        return max(answer["version"] for answer in await self._ask("tick", body))

    async def record(self, ask: RecordAsk) -> dict[str, Any]:
        return await self.command("record", **ask.model_dump())


def mount(app: Any, tokenizer_manager: Any, config: ServerConfig, host: str) -> None:
    """Add /pbkv, and other systems' ways to name calls, to SGLang's app. Off loopback a token is required: anyone who reaches the port
    could change the knobs.
    """
    token = config.token()
    require_token(host, token, "PBKV_CONFIG")
    backend = SchedulerBackend(tokenizer_manager)
    app.include_router(control_router(backend, token))
    app.include_router(programs_router(backend.close))
    app.add_middleware(Arrivals)


def start_clock(tokenizer_manager: Any) -> None:
    """Send ticks from the running event loop, once per manager."""
    if tokenizer_manager.__dict__.get("pbkv_clock") is None:
        tokenizer_manager.pbkv_clock = asyncio.get_running_loop().create_task(_ticks(SchedulerBackend(tokenizer_manager)))


async def _ticks(backend: SchedulerBackend) -> None:
    version = 0
    while True:
        await asyncio.sleep(TICK_S)
        try:
            version = await backend.tick(version)
        except PbkvError as error:
            log.warning("clock message failed: %s", error)


def clean_identity(obj: Any) -> None:
    """Make `custom_params.pbkv` safe before it travels: SGLang's typed messages cannot carry nested values, and a name may be huge.
    A malformed one is replaced by a short text that the scheduler counts as malformed; the request is served.
    """
    sampling = _as_dict(getattr(obj, "sampling_params", None))
    custom = _as_dict(sampling.get("custom_params"))
    if "pbkv" not in custom:
        return
    try:
        parse_payload(custom["pbkv"])
    except UsageError as error:
        obj.sampling_params = {**sampling, "custom_params": {**custom, "pbkv": str(error)[:200]}}


def _as_dict(value: object) -> dict[Any, Any]:
    return cast(dict[Any, Any], value) if isinstance(value, dict) else {}
