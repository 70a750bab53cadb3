"""A recording from an event log: a stretch of one server's calls, with what is known of its cache at the start and of itself."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pbkv.errors import UsageError
from pbkv.whatif.logcalls import LogCall, Paths, page_size_of, read_calls, read_closes, workflows_of
from pbkv.whatif.logpages import read_trie
from pbkv.whatif.logpredictions import read_predictions
from pbkv.whatif.logstate import read_engine, read_facts, read_knobs
from pbkv.whatif.logwarm import WarmRow, before_of, history_of, read_earlier, read_nodes, warm_nodes
from pbkv.whatif.logwindow import Query, Span, Window, find_span
from pbkv.whatif.measured import measure
from pbkv.whatif.predictors import default_name
from pbkv.whatif.recording import RecordedWorkflow, Recording
from pbkv.whatif.starts import find_concurrency, started_by_ends

#: References to pages that a recording may hold, eight bytes each.
MAX_PAGE_REFS = 60_000_000
#: So long before the end of a stretch that is cut off while calls run, as a quantile of what calls take, nearly all that came have ended.
LONG = 0.95
_CALLS = "SELECT count(*) AS n FROM raw.call WHERE src = $src AND seq > $after AND seq <= $upto"
_BACK = "SELECT seq FROM raw.call WHERE src = $src AND seq <= $upto ORDER BY seq DESC, idx DESC LIMIT 1 OFFSET $calls"
_CLOCK = "SELECT max(coalesce(ended_s, epoch_us(t) / 1e6))::DOUBLE AS at FROM raw.call WHERE src = $src AND seq <= $upto"
_BUSY = "SELECT running + waiting AS n FROM raw.occupancy WHERE src = $src AND seq <= $upto ORDER BY seq DESC, idx DESC LIMIT 1"
_MESSAGE = "SELECT max(seq) AS seq FROM raw.call WHERE src = $src AND seq > $after AND coalesce(ended_s, epoch_us(t) / 1e6) <= $at"
_LOST = "SELECT coalesce(sum(messages), 0)::BIGINT AS n FROM raw.loss WHERE src = $src AND last_seq > $after AND first_seq <= $upto"


@dataclass(frozen=True)
class Reading:
    """How a log is read. `given`: facts that go before those of the log, by the names of pbkv.engine.facts.

    `warm_calls`: calls before the window that warm the cache up, None = as many as are in it. `start`: "snapshot" plants what the log says
    was cached where the warm-up begins, "cold" begins empty. `most_calls`: only the newest so many of the window. `predictions`: read them
    where the replay needs them; they are most of a log.
    """

    window: Window = field(default_factory=Window)
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    warm_calls: int | None = None
    start: Literal["snapshot", "cold"] = "snapshot"
    most_calls: int | None = None
    predictions: bool = True

    def __post_init__(self) -> None:
        if self.most_calls is not None and self.most_calls < 1:
            raise UsageError(f"calls = {self.most_calls}: expected at least 1")
        if self.warm_calls is not None and self.warm_calls < 0:
            raise UsageError(f"warm_calls = {self.warm_calls}: expected 0 or more")


def read_log(query: Query, reading: Reading | None = None) -> Recording:
    """The recording. Raises UsageError when there is nothing to replay, or a fact is neither in the log nor given."""
    reading = reading or Reading()
    span = find_span(query, reading.window)
    if reading.most_calls is not None:
        span = replace(span, after=max(span.after, _back(query, span, span.upto, reading.most_calls)))
    return _Stretch(query, span, reading).recording()


def _back(query: Query, span: Span, upto: int, calls: int) -> int:
    """The message behind which the newest `calls` calls up to `upto` are; before the first one if there are fewer."""
    found = query(_BACK, {"src": span.src, "upto": upto, "calls": calls}).to_pylist()
    return int(found[0]["seq"]) if found else span.first - 1


class _Stretch:
    """`measured` is the span that is asked about, `read` begins earlier, where the warm-up does."""

    def __init__(self, query: Query, measured: Span, reading: Reading) -> None:
        self._query, self._reading, self._measured = query, reading, measured
        warm = self._count(measured) if reading.warm_calls is None else reading.warm_calls
        back = _back(query, measured, measured.after, warm) if warm else measured.after
        self._read = replace(measured, after=max(measured.first - 1, back))

    def _count(self, span: Span) -> int:
        return int(self._query(_CALLS, {"src": span.src, "after": span.after, "upto": span.upto}).to_pylist()[0]["n"])

    def recording(self) -> Recording:
        query, span = self._query, self._read
        calls, facts = read_calls(query, span), read_facts(query, span)
        engine, losses = read_engine(query, span, facts, self._reading.given, page_size_of(calls))
        knobs, changes, known = read_knobs(query, span, span.after)
        live = {call.workflow for call in calls if call.workflow is not None}
        earlier = [] if span.whole else read_earlier(query, span, span.after)
        planted = not span.whole and self._reading.start == "snapshot"
        rows = read_nodes(query, span, span.after, float(knobs["score_snapshot_s"])) if planted else []
        trie = read_trie(query, span, _ends(calls, [call for call in earlier if call.workflow in live], rows))
        paths = Paths(trie, engine.page_size)
        workflows = workflows_of(calls, read_closes(query, span), paths)
        _check_size(workflows)
        unknown = paths.unknown
        began, from_s, (to_s, upto) = self._began(facts, calls), self._measured_from(), self._measured_to(calls)
        policies = {str(knobs["policy"]), *(str(change.value) for change in changes if change.name == "policy")}
        concurrency = find_concurrency(workflows)
        recording = Recording(
            span.server, workflows if concurrency is None else started_by_ends(workflows, concurrency), engine, knobs, changes,
            facts.get("predictor", "markov"), concurrency, warm_nodes=warm_nodes(rows, trie),
            measured=measure(query, replace(self._measured, upto=upto), calls, workflows, engine, policies, from_s, to_s, began),
            losses=(*losses, *self._losses(calls, paths, known=known, planted=bool(rows))), began_s=began,
            measured_from_s=from_s, measured_to_s=to_s,
            history=history_of(earlier, live), before=before_of(earlier, live, paths), unknown_calls=unknown,
        )
        return self._predicted(recording, calls) if self._reading.predictions else recording

    def _began(self, facts: Mapping[str, str], calls: Sequence[LogCall]) -> float:
        """The embedded engine's clock begins with it, that of another server with its machine."""
        own = self._read.whole and facts.get("timing") in ("linear", "roofline")
        return 0.0 if own else min(call.arrived_s for call in calls)

    def _measured_from(self) -> float:
        """The server's clock where the measured part begins; -inf = with the first call."""
        if self._measured.whole:
            return -math.inf
        at = self._query(_CLOCK, {"src": self._measured.src, "upto": self._measured.after}).to_pylist()[0]["at"]
        return -math.inf if at is None else float(at)

    def _measured_to(self, calls: Sequence[LogCall]) -> tuple[float, int]:
        """(the server's clock, the message) where the measured part ends. Calls that run when the stretch ends are not in it, so those that
        came about when they did are missing beside the others.
        """
        span = self._measured
        busy = self._query(_BUSY, {"src": span.src, "upto": span.upto}).to_pylist()
        if not busy or not busy[0]["n"]:
            return math.inf, span.upto
        usual = sorted(call.ended_s - call.arrived_s for call in calls)[int(LONG * (len(calls) - 1))]
        to_s = max(call.ended_s for call in calls) - usual
        upto = self._query(_MESSAGE, {"src": span.src, "at": to_s, "after": span.after}).to_pylist()[0]["seq"]
        return (math.inf, span.upto) if upto is None else (to_s, int(upto))

    def _predicted(self, recording: Recording, calls: Sequence[LogCall]) -> Recording:
        """With predictions, where they are not made again. The first call of a workflow under way has a number of its own."""
        if recording.predictor == "markov":
            return recording
        steps: dict[str, int] = {}
        for call in calls:
            if call.workflow is not None:
                steps[call.workflow] = min(steps.get(call.workflow, call.step), call.step)
        first = {name: step - before for name, step in steps.items() if (before := _made(recording.before, name)) <= step}
        made = replace(recording, predictions=read_predictions(self._query, self._read, self._read.after, first))
        if default_name(made) == "recorded":
            return made
        return replace(made, losses=(*made.losses, f"predictions of {made.predictor} are not in the log: a Markov chain makes them"))

    def _losses(self, calls: Sequence[LogCall], paths: Paths, *, known: bool, planted: bool) -> list[str]:
        """What is missing, a sentence each."""
        span, found = self._read, list[str]()
        lost = int(self._query(_LOST, {"src": span.src, "after": span.after, "upto": span.upto}).to_pylist()[0]["n"])
        anonymous = sum(call.workflow is None for call in calls)
        for missing, said in (
            (lost, f"{lost:,} messages of the log were lost on the way"),
            (paths.unknown, f"the pages of {paths.unknown:,} of {len(calls):,} calls are not in the log, so they are replayed as new ones"),
            (anonymous, f"{anonymous:,} calls name no workflow: they come when they came, whatever happens to the ones before"),
            (not known, "the values of some knobs are not in the log: their defaults are taken"),
            (span.others, f"{span.others} earlier runs of the server are in the window and left out"),
            (not all(call.exact for call in calls), "times are those at which messages were sent, exact to a scheduler step"),
            (not (span.whole or planted), "what was cached at the start is not in the log: the cache begins empty"),
        ):
            if missing:
                found.append(said)
        return found


def _made(before: Iterable[RecordedWorkflow], name: str) -> int:
    """Calls that a workflow under way is known to have made."""
    return sum(len(each.calls) for each in before if each.name == name)


def _ends(calls: Iterable[LogCall], earlier: Iterable[LogCall], rows: Iterable[WarmRow]) -> list[int]:
    return [*(call.end_page for call in calls), *(call.end_page for call in earlier), *(row.page for row in rows)]


def _check_size(workflows: Iterable[RecordedWorkflow]) -> None:
    refs = sum(len(call.pages) + len(call.output_pages) for each in workflows for call in each.calls)
    if refs > MAX_PAGE_REFS:
        raise UsageError(f"window: its calls refer to {refs:,} pages, more than {MAX_PAGE_REFS:,}; take a shorter one")
