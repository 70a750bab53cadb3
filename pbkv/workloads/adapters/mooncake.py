"""Requests of a chat service (Mooncake): arrival times and prompts as hashed blocks of 512 tokens; no session, no agent.

The last block of a prompt may be partial: it equals another one only when both hash and length are equal. Every request is a workflow of
one call without identity, and arrives at its recorded time whatever the load (open loop).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.workloads.adapters.reading import Row, parse_json, read_bytes
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, content_key

#: Tokens of a full block.
BLOCK = 512
AGENT = "chat"


class Arrival(NamedTuple):
    """One request."""

    start_s: float
    prompt: int
    output: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class MooncakeRequests:
    """A finite workload in order of arrival, which the times fix: the seed changes nothing."""

    name: str
    arrivals: tuple[Arrival, ...]

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        """Each request once."""
        del seed
        for n, arrival in enumerate(self.arrivals):
            yield _workflow(f"{self.name}-{n}", arrival)


def load_mooncake(path: str | Path) -> MooncakeRequests:
    """The requests of a JSONL file. Raises UsageError that names file, row and field of the first fault."""
    file = Path(path)
    arrivals: list[Arrival] = []
    for n, line in enumerate(read_bytes(file).splitlines()):
        place = f"trace file {str(file)!r}: row {n}"
        row = Row(place, parse_json(place, line))
        arrival = _arrival(row)
        if arrivals and arrival.start_s < arrivals[-1].start_s:
            raise row.bad("timestamp", "no time before that of the row above")
        arrivals.append(arrival)
    if not arrivals:
        raise UsageError(f"trace file {str(file)!r} holds no request")
    return MooncakeRequests(file.stem, tuple(arrivals))


def _arrival(row: Row) -> Arrival:
    prompt = row.whole("input_length", low=1)
    blocks = row.ids("hash_ids", -(-prompt // BLOCK))
    return Arrival(row.number("timestamp") / 1000, prompt, row.whole("output_length"), blocks)


def _workflow(name: str, arrival: Arrival) -> TokenWorkflow:
    full, rest = divmod(arrival.prompt, BLOCK)
    prompt = [Segment(content_key("mooncake", block), BLOCK) for block in arrival.blocks[:full]]
    if rest:
        prompt.append(Segment(content_key("mooncake", arrival.blocks[-1], rest), rest))
    output = Segment(content_key(name, "output"), max(arrival.output, 1))
    return TokenWorkflow(name, (TokenCall(AGENT, tuple(prompt), output, 0.0),), arrival.start_s, attributed=False)
