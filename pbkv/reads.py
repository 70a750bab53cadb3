"""What a call of each agent reads of its workflow's nodes, learned from what calls read before: structural access.

The paper's A_w(c) says who HAS accessed a node. A workflow's shared context is read by agents that never saw it, and a private suffix is
not read again by the agent that wrote it. Both follow from the layout of the prompts, which nobody declares but every call shows.
"""

from collections.abc import Iterable

from pbkv.record import Access
from pbkv.workflow import Workflow

#: What an agent did with a node since the node is known: wrote it and has not called since, has not called at all, read it at its newest
#: call, went around it at its newest call.
WROTE, NEVER, READ, SKIPPED = 0, 1, 2, 3
#: What the workflow's newest call did: it wrote the node, read it, went around it.
_FRESH, _LAST_READ, _LAST_SKIPPED = 0, 1, 2
CELLS = 3 * 4 * 3 * 2
#: Pairs of agents told apart; beyond it all pairs share one estimate per cell.
MAX_PAIRS = 1 << 16
#: Weight of the shared estimate beside a pair's own counts, and of the literal rule beside the shared counts.
PAIR_PRIOR, LITERAL_PRIOR = 4, 2
#: Counts are halved here, so that a layout that changed is learned anew.
MOST = 512


def cell_of(workflow: Workflow, access: Access, agent: int, newest: int) -> int:
    """Number of the case: kind of node x what `agent` did with it x what call `newest` (position) did with it x who wrote it."""
    mine, called = access.agents.get(agent, -1), workflow.last_call_of.get(agent, -1)
    if called < access.first:
        since = NEVER
    elif mine != called:
        since = SKIPPED
    else:
        since = WROTE if mine == access.first else READ
    last = _FRESH if newest <= access.first else _LAST_READ if access.last == newest else _LAST_SKIPPED
    return ((access.kind * 4 + since) * 3 + last) * 2 + (agent == access.creator)


def literal(cell: int) -> bool:
    """What the paper's A_w(c) would say: whoever accessed it will again, unless it has gone around it since."""
    return cell // 6 % 4 in (WROTE, READ)


_LITERAL = tuple(literal(cell) for cell in range(CELLS))


class Reads:
    """P(the next call of an agent reads a node), from whole-number counts: equal on all ranks that saw the same calls.

    Per cell and pair (writer, reader), backed by the cell over all pairs, backed by the literal rule:
    r = (hits_pair + PAIR_PRIOR r_cell) / (n_pair + PAIR_PRIOR), r_cell = (hits + LITERAL_PRIOR literal) / (n + LITERAL_PRIOR).
    """

    def __init__(self) -> None:
        self._cells = [[0, 0] for _ in range(CELLS)]
        self._shared = [_shared(0, 0, cell) for cell in range(CELLS)]  # r_cell
        self._pairs: dict[tuple[int, int, int], list[int]] = {}

    def learn(self, cell: int, writer: int, reader: int, read: int, skipped: int) -> None:
        """A call of `reader` read so many nodes of this case and went around so many."""
        counts = self._cells[cell]
        _count(counts, read, skipped)
        self._shared[cell] = _shared(counts[0], counts[1], cell)
        pair = self._pairs.get((cell, writer, reader))
        if pair is None:
            if len(self._pairs) >= MAX_PAIRS:
                return
            pair = self._pairs[cell, writer, reader] = [0, 0]
        _count(pair, read, skipped)

    def probability(self, cell: int, writer: int, reader: int) -> float:
        """That the next call of `reader` reads a node of this case written by `writer`."""
        shared = self._shared[cell]
        pair = self._pairs.get((cell, writer, reader))
        return shared if pair is None else (pair[0] + PAIR_PRIOR * shared) / (pair[1] + PAIR_PRIOR)

    def of(self, workflow: Workflow, access: Access, agents: Iterable[int], newest: int) -> list[float]:
        """The same for nodes with this history and each of `agents`, as `cell_of` and `probability` say it; scores are made of these."""
        cells, pairs, called_of, read_of = self._shared, self._pairs, workflow.last_call_of, access.agents
        creator, first = access.creator, access.first
        last = _FRESH if newest <= first else _LAST_READ if access.last == newest else _LAST_SKIPPED
        base = access.kind * 24 + last * 2
        found: list[float] = []
        for agent in agents:
            mine, called = read_of.get(agent, -1), called_of.get(agent, -1)
            since = NEVER if called < first else SKIPPED if mine != called else WROTE if mine == first else READ
            cell = base + since * 6 + (agent == creator)
            shared = cells[cell]
            pair = pairs.get((cell, creator, agent))
            found.append(shared if pair is None else (pair[0] + PAIR_PRIOR * shared) / (pair[1] + PAIR_PRIOR))
        return found


def _shared(hits: int, n: int, cell: int) -> float:
    return (hits + LITERAL_PRIOR * _LITERAL[cell]) / (n + LITERAL_PRIOR)


def _count(counts: list[int], read: int, skipped: int) -> None:
    counts[0] += read
    counts[1] += read + skipped
    if counts[1] > MOST:
        counts[0] //= 2
        counts[1] //= 2
