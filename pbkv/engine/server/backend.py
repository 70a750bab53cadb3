"""The control interface's way to an engine in the same event loop."""

import time
from typing import Any

from pbkv.control.commands import Commands
from pbkv.control.models import KnobPatch, RecordAsk


class EngineBackend:
    """Commands run between two steps of the engine, since both belong to one event loop."""

    def __init__(self, commands: Commands) -> None:
        self._run = commands.run

    async def knobs(self) -> dict[str, Any]:
        return self._run("knobs")

    async def patch(self, patch: KnobPatch) -> dict[str, Any]:
        return self._run("patch", patch=patch.model_dump(), wall_ns=time.time_ns())

    async def confirm(self, version: int) -> dict[str, Any]:
        return self._run("confirm", version=version)

    async def history(self) -> list[dict[str, Any]]:
        return self._run("history")

    async def state(self) -> dict[str, Any]:
        return self._run("state")

    async def record(self, ask: RecordAsk) -> dict[str, Any]:
        return self._run("record", **ask.model_dump())
