"""What was in the cache, whose it was and what had been learned when a recording begins, from the rows before it."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pbkv.whatif.logcalls import LogCall, Paths, read_calls
from pbkv.whatif.logpages import PageTrie, Path
from pbkv.whatif.logwindow import Query, Span
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, WarmNode

#: Workflows that a predictor learns from, and calls before the recording that are read for that.
MAX_HISTORY, MAX_EARLIER = 4096, 50_000
#: Snapshots may be so far back, as a multiple of the time between two.
FRESH = 3.0
_NODES = """
SELECT node, arg_max(page, p) AS page, arg_max(tier, p) AS tier, arg_max(tokens, p) AS tokens, arg_max(live_workflows, p) AS live,
arg_max(retired, p) AS retired, arg_max(last_access, p) AS last_access, arg_max(hits, p) AS hits, max(seq) AS seq
FROM (SELECT *, seq::HUGEINT * 4294967296 + idx AS p FROM raw.node_score WHERE src = $src AND seq <= $at AND snapshot = 1
AND t > (SELECT max(t) FROM raw.node_score WHERE src = $src AND seq <= $at AND snapshot = 1) - to_microseconds($far)) GROUP BY node"""
_GONE = "SELECT node, max(seq) AS seq, arg_max(from_tier, seq) AS from_tier, arg_max(to_tier, seq) AS to_tier FROM raw.eviction " \
    "WHERE src = $src AND seq <= $at AND t > (SELECT max(t) FROM raw.node_score WHERE src = $src AND seq <= $at AND snapshot = 1) " \
    "- to_microseconds($far) GROUP BY node"
DEVICE, HOST = 1, 2


class WarmRow(NamedTuple):
    """A node of a snapshot."""

    page: int
    tokens: int
    tier: int
    live: int
    retired: int
    last_access: int
    hits: int


def read_nodes(query: Query, span: Span, at: int, snapshot_s: float) -> list[WarmRow]:
    """Nodes in the cache at message `at`: the last snapshot before, less what was evicted since. Nodes without a name are left out."""
    given = {"src": span.src, "at": at, "far": round(FRESH * snapshot_s * 1e6)}
    gone = {row["node"]: row for row in query(_GONE, given).to_pylist()}
    rows: list[WarmRow] = []
    for row in query(_NODES, given).to_pylist():
        tier, left = row["tier"], gone.get(row["node"])
        if left is not None and left["seq"] > row["seq"]:
            tier = left["to_tier"]
        if tier and row["page"]:
            rows.append(WarmRow(row["page"], row["tokens"], tier, row["live"], row["retired"], row["last_access"], row["hits"]))
    return rows


def warm_nodes(rows: Sequence[WarmRow], trie: PageTrie) -> tuple[WarmNode, ...]:
    """Nodes below each other by their pages; those whose pages the log does not know are left out."""
    told = [(path, row) for row in rows if (path := trie.path(row.page))]
    paths = sorted([*told, *_forks(told)], key=lambda each: len(each[0]))
    places: dict[int, int] = {}
    made: list[WarmNode] = []
    for path, row in paths:
        if path[-1] in places:
            continue  # of a node that was split and told of twice
        parent, start = _above(path, places)
        places[path[-1]] = len(made)
        on_device, on_host = bool(row.tier & DEVICE), bool(row.tier & HOST)
        anonymous = not row.live and not row.retired
        made.append(WarmNode(parent, path[start:], on_device, on_host, row.last_access, bool(row.retired), anonymous, row.hits))
    return tuple(made)


def _forks(told: Sequence[tuple[Path, WarmRow]]) -> list[tuple[Path, WarmRow]]:
    """Nodes that were not told of: what is above a cached node is cached, and where two paths part a node ends. Without them two children
    of one node would begin with the same page.
    """
    ends, after, forks = {path[-1] for path, _ in told}, dict[int, int](), set[int]()
    for path, _ in told:
        forks.update(page for page, below in pairwise(path) if after.setdefault(page, below) != below)
    forks -= ends
    made: dict[int, tuple[Path, WarmRow]] = {}
    for path, row in told:
        for depth, page in enumerate(path, 1):
            if page in forks:
                made[page] = path[:depth], _joined(made[page][1], row) if page in made else row
    return list(made.values())


def _joined(one: WarmRow, other: WarmRow) -> WarmRow:
    """What is known of a node from two below it."""
    return WarmRow(
        one.page, one.tokens, one.tier | other.tier, max(one.live, other.live), min(one.retired, other.retired),
        max(one.last_access, other.last_access), one.hits + other.hits,
    )


def _above(path: Path, places: dict[int, int]) -> tuple[int, int]:
    """(place of the deepest node above the end of `path`, pages down to its end)."""
    for depth in range(len(path) - 1, 0, -1):
        if path[depth - 1] in places:
            return places[path[depth - 1]], depth
    return NOWHERE, 0


def read_earlier(query: Query, span: Span, at: int) -> list[LogCall]:
    """The newest calls that had ended by message `at`, in order."""
    sql = "SELECT seq FROM raw.call WHERE src = $src AND seq <= $at ORDER BY seq DESC LIMIT 1 OFFSET $most"
    oldest = query(sql, {"src": span.src, "at": at, "most": MAX_EARLIER}).to_pylist()
    after = int(oldest[0]["seq"]) if oldest else span.first - 1
    bounded = Span(span.src, span.server, span.epoch, span.engine, span.first, after, at, span.start, span.end)
    return read_calls(query, bounded)


def history_of(earlier: Iterable[LogCall], live: set[str]) -> tuple[tuple[str, ...], ...]:
    """Agents of the newest workflows that are not `live`, in order of their calls."""
    lives: dict[str, list[str]] = {}
    kept: deque[list[str]] = deque(maxlen=MAX_HISTORY)
    for call in sorted(earlier, key=lambda each: each.arrived_s):
        if call.workflow is None or call.workflow in live or call.aborted:
            continue
        if call.workflow not in lives:
            lives[call.workflow] = []
            kept.append(lives[call.workflow])
        lives[call.workflow].append(call.agent)
        if call.final:
            del lives[call.workflow]
    return tuple(tuple(agents) for agents in kept)


def before_of(earlier: Iterable[LogCall], live: set[str], paths: Paths) -> tuple[RecordedWorkflow, ...]:
    """The calls that workflows under way had made."""
    made: dict[str, list[RecordedCall]] = {}
    for call in sorted(earlier, key=lambda each: each.arrived_s):
        if call.workflow in live and not call.aborted:
            pages, more = paths.of(call, max(1, call.output_tokens))
            made.setdefault(call.workflow or "", []).append(RecordedCall(call.agent, pages, call.prompt_tokens, call.output_tokens, more))
    return tuple(RecordedWorkflow(name, tuple(calls)) for name, calls in made.items())
