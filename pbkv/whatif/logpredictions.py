"""Predictions of a log, for a replay that does not make its own."""

from collections.abc import Iterable, Iterator
from typing import Any

from pbkv.whatif.logwindow import Query, Span, columns_of, fetch, named
from pbkv.whatif.recording import RecordedPrediction

#: Rows read; predictions beyond are not known.
MAX_ROWS = 3_000_000
_COLUMNS = ("seq", "workflow", "step", "horizon", "agent", "p", "p_end", "survival")
Key = tuple[str, int]


def read_predictions(query: Query, span: Span, after: int, first_steps: dict[str, int]) -> dict[Key, tuple[RecordedPrediction, ...]]:
    """By workflow and number of its calls since `first_steps`, the position of its first call that is replayed. A log has the likeliest
    agents of each horizon only.
    """
    tables = fetch(query, "prediction", f"{named('workflow')}, step, horizon, {named('agent')}, p, p_end, survival", span, after=after)
    columns = columns_of(tables)
    rows = zip(*(columns[name].tolist()[:MAX_ROWS] for name in _COLUMNS), strict=True) if columns else ()
    made: dict[Key, list[RecordedPrediction]] = {}
    for (workflow, step), said in _together(rows):
        first = first_steps.get(workflow)
        if first is not None and step >= first:
            made.setdefault((workflow, step - first + 1), []).append(said)
    return {key: tuple(found[:2]) for key, found in made.items()}


def _together(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Key, RecordedPrediction]]:
    """Rows of one prediction follow each other, by horizon."""
    key: Key | None = None
    ends, visits = list[float](), list[dict[str, float]]()
    for _, workflow, step, horizon, agent, p, p_end, survival in rows:
        if (workflow, step) != key or horizon < len(ends):
            if key is not None:
                yield key, RecordedPrediction(tuple(ends), tuple(visits))
            key, ends, visits = (workflow, step), [], []
        if horizon > len(ends):
            ends.append(p_end * survival)
            visits.append({})
        if agent is not None:
            visits[-1][agent] = p * survival
    if key is not None:
        yield key, RecordedPrediction(tuple(ends), tuple(visits))
