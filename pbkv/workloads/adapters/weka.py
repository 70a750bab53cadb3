"""Coding-agent sessions of kv-cache-tester: prompts as hashed blocks of 64 tokens, with times, and sub-agents nested.

Only full blocks have a hash; the rest of a prompt is content of its own. The blocks do not tell where an output stands in later prompts,
so an output is its call's alone: a later prompt reuses prompts, not outputs. Calls are ordered by their start, sub-agents included, and
follow each other: where sub-agents ran at the same time they are played one call after the other. The delay of a call is its start minus
the end of the one before, never below 0; a call without `api_time` counts as ended at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.workloads.adapters.reading import Row, files_of, parse_json, read_bytes
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, content_key

MAIN = "main"
_SUBAGENT = "subagent"


class Request(NamedTuple):
    """One call of a session. `rest`: prompt tokens after the last full block."""

    start_s: float
    end_s: float
    agent: str
    blocks: tuple[int, ...]
    rest: int
    output: int


@dataclass(frozen=True)
class Session:
    """One recorded session; hashes mean something within it alone."""

    name: str
    block: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class WekaSessions:
    """A finite workload; the seed decides the order of the sessions."""

    name: str
    sessions: tuple[Session, ...]

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        """Each session once."""
        for session in Random(f"{self.name} order {seed}").sample(self.sessions, len(self.sessions)):
            yield _workflow(session)


def load_weka(path: str | Path) -> WekaSessions:
    """A folder of sessions, or one file. Raises UsageError that names file, request and field of the first fault."""
    files = files_of(Path(path), ".json")
    return WekaSessions(Path(path).stem, tuple(_session(file) for file in files))


def _session(file: Path) -> Session:
    place = f"trace file {str(file)!r}"
    document = Row(place, parse_json(place, read_bytes(file)))
    block = document.whole("block_size", low=1, high=1 << 16)
    requests = sorted(_requests(document, block, 0.0, MAIN), key=lambda request: request.start_s)
    if not requests:
        raise UsageError(f"{place}: requests: expected at least one call")
    return Session(document.text("id"), block, tuple(requests))


def _requests(parent: Row, block: int, offset_s: float, agent: str) -> Iterator[Request]:
    for n, entry in enumerate(parent.list("requests")):
        row = Row(f"{parent.place}: requests[{n}]", entry)
        start = offset_s + row.number("t")
        if row.text("type") == _SUBAGENT:
            if agent != MAIN:
                raise row.bad("type", "no sub-agent within a sub-agent")
            yield from _requests(row, block, start, row.text("subagent_type"))
            continue
        blocks, rest = divmod(row.whole("in"), block)
        took = 0.0 if row.get("api_time") is None else row.number("api_time")
        yield Request(start, start + took, agent, row.ids("hash_ids", blocks), rest, row.whole("out"))


def _workflow(session: Session) -> TokenWorkflow:
    blocks: dict[int, Segment] = {}
    calls: list[TokenCall] = []
    last = session.requests[0].start_s
    for n, request in enumerate(session.requests):
        for block in request.blocks:
            if block not in blocks:
                blocks[block] = Segment(content_key(session.name, block), session.block)
        prompt = [blocks[block] for block in request.blocks]
        if request.rest or not prompt:
            prompt.append(Segment(content_key(session.name, "rest", n), max(request.rest, 1)))
        output = Segment(content_key(session.name, "output", n), max(request.output, 1))
        final = n == len(session.requests) - 1
        calls.append(TokenCall(request.agent, tuple(prompt), output, max(request.start_s - last, 0.0), final))
        last = request.end_s
    return TokenWorkflow(session.name, tuple(calls))
