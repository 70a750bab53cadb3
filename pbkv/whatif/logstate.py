"""What a log says of the server beside its calls: what it is, its knobs, and how long its steps took."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pbkv.engine.facts import KNOB_PREFIX, settings_of
from pbkv.engine.refit import StepRow, refit
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear, Timing
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS, KnobSet, Value
from pbkv.whatif.logwindow import Query, Span, columns_of, fetch, named
from pbkv.whatif.recording import KnobChange

#: A message beyond all others. What a server is and what its knobs were may have been told first behind the window: to a collector that
#: came late it is told again once a minute.
_BEYOND = 1 << 62
#: Newest steps that a timing is fitted to.
MAX_STEPS = 50_000
_OCCUPANCY = """
SELECT max(device_free::BIGINT + device_active + device_retired + device_locked) AS device_tokens,
max(host_free::BIGINT + host_used + host_retired) AS host_tokens FROM raw.occupancy WHERE src = $src AND seq <= $upto"""


class _Told(NamedTuple):
    """A knob's value by an event: `before` it and `after` it; None = it does not say."""

    position: tuple[int, int]
    name: str
    before: str | None
    after: str
    at_s: float
    arrivals: int


def read_facts(query: Query, span: Span) -> dict[str, str]:
    """Facts about the server as it told them last; empty for a log of an earlier release."""
    whole = replace(span, upto=_BEYOND)
    columns = columns_of(fetch(query, "setting", f"{named('name')}, {named('value')}", whole, after=span.first - 1))
    return {name: value or "" for name, value in zip(columns["name"], columns["value"], strict=True)} if columns else {}


def read_knobs(query: Query, span: Span, after: int) -> tuple[dict[str, Value], tuple[KnobChange, ...], bool]:
    """(values in force at message `after`, changes behind it, whether all values are known rather than the defaults)."""
    whole = replace(span, upto=_BEYOND)
    told = sorted([*_settings(query, whole), *_changes(query, whole)])
    values, known = dict(KnobSet().values), set[str]()
    for each in told:
        if each.position[0] <= after:
            values[each.name] = KNOBS[each.name].parse_text(each.after)
            known.add(each.name)
        elif each.name not in known:
            values[each.name] = KNOBS[each.name].parse_text(each.after if each.before is None else each.before)
            known.add(each.name)
    changes = tuple(
        KnobChange(each.at_s, each.name, KNOBS[each.name].parse_text(each.after), each.arrivals)
        for each in told
        if each.before is not None and after < each.position[0] <= span.upto and not math.isnan(each.at_s)
    )
    return values, changes, known == KNOBS.keys()


def _settings(query: Query, span: Span) -> list[_Told]:
    columns = columns_of(fetch(query, "setting", f"{named('name')}, {named('value')}, at_s", span, after=span.first - 1))
    rows = zip(*(columns[name].tolist() for name in ("seq", "idx", "name", "value", "at_s")), strict=True) if columns else ()
    return [
        _Told((seq, idx), name.removeprefix(KNOB_PREFIX), None, value, at, 0)
        for seq, idx, name, value, at in rows if name.startswith(KNOB_PREFIX) and name.removeprefix(KNOB_PREFIX) in KNOBS
    ]


def _changes(query: Query, span: Span) -> list[_Told]:
    wanted = (
        f"{named('name')}, {named('old')}, {named('new')}, coalesce(at_s, epoch_us(t) / 1e6)::DOUBLE AS at_s, "
        "coalesce(arrivals, 0) AS arrivals"
    )
    columns = columns_of(fetch(query, "knob", wanted, span, after=span.first - 1))
    fields = ("seq", "idx", "name", "old", "new", "at_s", "arrivals")
    rows = zip(*(columns[name].tolist() for name in fields), strict=True) if columns else ()
    return [_Told((seq, idx), name, old, new, at, arrivals) for seq, idx, name, old, new, at, arrivals in rows if name in KNOBS]


def read_engine(
    query: Query, span: Span, facts: Mapping[str, str], given: Mapping[str, str], page_size: int | None,
) -> tuple[EngineSettings, list[str]]:
    """The settings of the server and what is not known of them, a sentence each. `given` goes before what the log says; `page_size` is
    what its calls say. Raises UsageError where neither says enough.
    """
    missing: list[str] = []
    said = dict(facts)
    if not facts:
        missing.append("the log is of a release that did not record what the server is: sizes are derived and timing is fitted")
        row = query(_OCCUPANCY, {"src": span.src, "upto": span.upto}).to_pylist()[0]
        said = {name: str(value) for name, value in row.items() if value} | ({"page_size": str(page_size)} if page_size else {})
    said |= given
    for name in ("page_size", "device_tokens"):
        if name not in said:
            raise UsageError(f"{name}: the log does not say it; give it, as in --given {name}=N")
    settings = settings_of(said)
    if said.get("timing") in ("linear", "roofline"):
        return settings, missing
    return replace(settings, timing=fitted(query, span, said, missing)), missing


def fitted(query: Query, span: Span, facts: Mapping[str, str], missing: list[str]) -> Timing:
    """A timing by the steps of the log; the defaults where it has too few, which `missing` then says."""
    start = Linear()
    for name, kind in (("bytes_per_token", int), ("link_bytes_per_s", float)):
        if (value := facts.get(f"timing.{name}")) is not None:
            start = replace(start, **{name: kind(float(value))})
    try:
        return refit(read_steps(query, span), start)
    except UsageError as error:
        missing.append(f"{error}; the default timing is used, so times are not to be trusted")
        return start


def read_steps(query: Query, span: Span) -> list[StepRow]:
    """The newest steps of the span."""
    sql = """SELECT mode, requests, tokens, duration_us FROM raw.batch WHERE src = $src AND seq > $after AND seq <= $upto AND mode IN (1, 2)
        ORDER BY seq DESC, idx DESC LIMIT $most"""
    rows = query(sql, {"src": span.src, "after": span.after, "upto": span.upto, "most": MAX_STEPS}).to_pydict()
    modes = ("idle", "prefill", "decode", "mixed")
    return [
        StepRow(modes[mode], requests, tokens, us / 1e6)
        for mode, requests, tokens, us in zip(rows["mode"], rows["requests"], rows["tokens"], rows["duration_us"], strict=True)
    ]
