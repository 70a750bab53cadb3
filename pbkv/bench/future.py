"""What a clairvoyant knows: which call of which workflow will read a node, and about when."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import cast

from pbkv.engine.node import Node
from pbkv.record import NodeRecord
from pbkv.workflow import Workflow

#: Prompts of a workflow as content ids of their full pages, and its delays, s.
Script = tuple[Sequence[tuple[int, ...]], Sequence[float]]
#: Weight of the newest call in the running mean of how long calls take.
_NEWEST = 0.02


class Places:
    """Numbers for places in prompts: a page of content at the end of one particular path. 0 is where all prompts begin."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}

    def add(self, pages: Iterable[int]) -> list[int]:
        """Places of a prompt's pages, the first page first."""
        at, path, places = 0, list[int](), self._places
        for page in pages:
            at = places.setdefault((at, page), len(places) + 1)
            path.append(at)
        return path

    def after(self, at: int, page: int) -> int:
        """The place of `page` behind place `at`; -1 when no prompt that was added has it."""
        return self._places.get((at, page), -1)


class NodePlaces:
    """Where the nodes of one tree are among places."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._ends: dict[int, int] = {}

    def start(self, node: Node) -> int:
        """Place of a node's first page; -1 when no prompt has it."""
        return self._places.after(self._end(node.parent), node.key[0])

    def _end(self, node: Node) -> int:
        """Place of a node's last page. A node keeps it, and its id, when it is split: that takes pages away in front."""
        if not node.key:
            return 0
        at = self._ends.get(node.id)
        if at is None:
            at = self._end(node.parent)
            for page in node.key:
                at = self._places.after(at, page)
            self._ends[node.id] = at
        return at


class Scripts:
    """By name of workflow: the calls that read each place, ascending, and the sums of delays before each call."""

    def __init__(self, scripts: Iterable[tuple[str, Script]]) -> None:
        self.places = Places()
        self.uses: dict[str, dict[int, list[int]]] = {}
        self.due: dict[str, list[float]] = {}
        for name, (prompts, delays) in scripts:
            uses = self.uses[name] = {}
            for call, prompt in enumerate(prompts):
                for place in self.places.add(prompt):
                    uses.setdefault(place, []).append(call)
            self.due[name] = _running_sum(delays)


class FutureReads:
    """pbkv.eviction.clairvoyant.Future from the scripts of all workflows.

    The time of a read is the end of the workflow's last call, plus the true delays up to the reading call, plus the running mean of how
    long calls take for each call before it. Only the last part is an estimate.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts, self._nodes = scripts, NodePlaces(scripts.places)
        self._ended: dict[str, tuple[int, float]] = {}
        self.call_s = 1.0

    def ended(self, workflow: str, arrived: float, ended: float) -> None:
        """A call of the workflow has ended."""
        calls = self._ended.get(workflow, (0, 0.0))[0] + 1
        self._ended[workflow] = (calls, ended)
        self.call_s += _NEWEST * (ended - arrived - self.call_s)

    def next_use(self, workflow: Workflow, record: NodeRecord) -> float | None:
        uses = self._scripts.uses.get(workflow.name, {}).get(self._nodes.start(cast(Node, record.node)), ())
        n = bisect_left(uses, workflow.calls)
        if n == len(uses):
            return None
        call, due = uses[n], self._scripts.due[workflow.name]
        done, at = self._ended.get(workflow.name, (0, workflow.last_call))
        return at + due[call + 1] - due[done] + self.call_s * (call - done)


def _running_sum(values: Iterable[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums
