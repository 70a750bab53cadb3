"""Control messages: typed commands that SGLang broadcasts to all ranks and every rank applies at the same scheduler step."""

from typing import TYPE_CHECKING

from sglang.srt.managers.io_struct import BaseReq

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime


class PbkvCommandReq(BaseReq, kw_only=True):
    """One command; `body` is JSON, so that the message's shape never changes."""

    op: str
    body: str


class PbkvCommandOutput(BaseReq, kw_only=True):
    """The answer of one scheduler: status like HTTP, body JSON; `replica` counts data-parallel replicas from 0."""

    status: int
    body: str
    replica: int = 0


def handle(runtime: "Runtime", req: PbkvCommandReq) -> PbkvCommandOutput:
    """Run a command in the scheduler. Never raises: a bad command is answered, the scheduler goes on."""
    status, body = runtime.commands.answer(req.op, req.body)
    return PbkvCommandOutput(status=status, body=body, replica=runtime.replica)
