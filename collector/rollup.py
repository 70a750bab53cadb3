"""Sums per second and per minute of what a screen asks over long ranges, kept beside the events they were made from.

A row covers a range of messages of one stream, not a whole second: rows are only ever added, several may share a second, and readers sum
them. Because the ranges are ranges of sequence numbers, every event is in exactly one row, whatever the clocks did.
"""

from dataclasses import dataclass

from collector.columns import Column
from pbkv.events.schema import BY_NAME

#: Bins of a logarithmic histogram: 8 per octave, so that a percentile read from it is within 4.5 %; bin 64 is 1.
_PER_OCTAVE, _UNIT = 8, 64
#: Widths of a row, seconds, by the suffix of the tables.
WIDTHS: dict[str, int] = {"1s": 1, "1m": 60}


def bin_sql(value: str) -> str:
    """SQL of the histogram bin (0..255) of a positive value; 0 for none."""
    place = f"round({_PER_OCTAVE} * log2(greatest({value}, 1e-9)))"
    return f"greatest(0, least(255, {place} + {_UNIT}))::UTINYINT"


def unbin_sql(number: str) -> str:
    """SQL of the middle of a histogram bin."""
    return f"pow(2, ({number}::INT - {_UNIT}) / {_PER_OCTAVE}.0)"


@dataclass(frozen=True)
class Part:
    """A column: how it is made from events (`sql`) and how rows are put together (`merge`; "" = they are grouped by it)."""

    column: Column
    sql: str
    merge: str = ""


@dataclass(frozen=True)
class Rollup:
    """Tables raw.roll_<name>_1s and _1m. `events` is the FROM clause; {rows} stands in it for the condition on src and seq of the events
    summed, {past} for one on src and t of older events they are compared with."""

    name: str
    row: str
    events: str
    parts: tuple[Part, ...]

    def table(self, suffix: str) -> str:
        """Name of its table of rows of a width, without the schema."""
        return f"roll_{self.name}_{suffix}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of its tables."""
        return (*_POSITION, *(p.column for p in self.parts))

    def from_events(self, upto: str, width_s: int, rows: str, past: str = "true") -> str:
        """SELECT of the rows of a width. `upto` is the SQL of the column `seq`, `rows` and `past` as in `events`."""
        parts = ", ".join(f"{p.sql} AS {p.column.name}" for p in self.parts)
        keys = "".join(f", {p.column.name}" for p in self.parts if not p.merge)
        events = self.events.format(rows=rows, past=past)
        return f"SELECT src, {upto} AS seq, {_start(width_s)} AS t, {parts} FROM {events} GROUP BY src, 3{keys}"

    def from_rows(self, table: str, upto: str, width_s: int, rows: str) -> str:
        """SELECT of wider rows from the rows of `table` (with schema) that `rows` names."""
        parts = ", ".join(f"{p.merge.format(c=p.column.name) if p.merge else p.column.name} AS {p.column.name}" for p in self.parts)
        keys = "".join(f", {p.column.name}" for p in self.parts if not p.merge)
        return f"SELECT src, {upto} AS seq, {_start(width_s)} AS t, {parts} FROM {table} WHERE {rows} GROUP BY src, 3{keys}"


_POSITION = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("seq", "UBIGINT", "last message of the range of messages the row was made with"),
    Column("t", "TIMESTAMP", "start of the second or minute, UTC"),
)


def _start(width_s: int) -> str:
    return f"make_timestamp(epoch_us(t) - epoch_us(t) % {width_s * 1_000_000})"


def _key(kind: str, field: str) -> Part:
    of_kind = BY_NAME[kind].field(field)
    values = "; " + ", ".join(f"{n} = {v}" for n, v in enumerate(of_kind.values)) if of_kind.values else ""
    return Part(Column(field, of_kind.sql_type, of_kind.meaning + values, of_kind.unit), field)


def _bin(field: str, unit: str) -> Part:
    return Part(Column(f"{field}_bin", "UTINYINT", f"bin of {field}, 8 per octave, 64 = 1 {unit}"), bin_sql(field))


def _count(name: str, meaning: str, condition: str = "") -> Part:
    where = f" FILTER ({condition})" if condition else ""
    return Part(Column(name, "UBIGINT", meaning), f"count(*){where}::UBIGINT", "sum({c})::UBIGINT")


def _sum(kind: str, field: str, sql_type: str = "UBIGINT") -> Part:
    of_kind = BY_NAME[kind].field(field)
    cast = "{c}::DOUBLE" if sql_type == "DOUBLE" else "{c}"
    return Part(
        Column(field, sql_type, f"sum of: {of_kind.meaning}", of_kind.unit),
        _bounded(f"sum({cast.format(c=field)})", sql_type), _bounded("sum({c})", sql_type),
    )


def _bounded(total: str, sql_type: str) -> str:
    """A sum that ends at the largest value of its type: one absurd record must not keep every later rollup from being made."""
    return f"least({total}, {2**64 - 1})::UBIGINT" if sql_type == "UBIGINT" else f"{total}::{sql_type}"


def _last(kind: str, field: str) -> Part:
    of_kind = BY_NAME[kind].field(field)
    meaning = f"last sample: {of_kind.meaning}"
    return Part(Column(field, of_kind.sql_type, meaning, of_kind.unit), f"max_by({field}, (seq, idx))", "max_by({c}, at_seq)")


_CALL = Rollup(
    "call", "second or minute, agent, status and bin of the time to first token, of calls that ended", "raw.call WHERE {rows}",
    (
        _key("call", "agent"), _key("call", "status"), _key("call", "attributed"), _bin("ttft_ms", "ms"), _count("calls", "calls"),
        *(_sum("call", f) for f in ("prompt_tokens", "device_hit_tokens", "host_hit_tokens", "recomputed_tokens", "output_tokens")),
        *(_sum("call", f, "DOUBLE") for f in ("queue_ms", "prefill_ms", "e2e_ms")),
    ),
)
_EVICTION = Rollup(
    "eviction", "second or minute, decision and tiers, of victims", "raw.eviction WHERE {rows}",
    (
        _key("eviction", "decision"), _key("eviction", "from_tier"), _key("eviction", "to_tier"), _count("nodes", "victims"),
        _sum("eviction", "tokens"), _sum("eviction", "reuse"),
    ),
)
_PREFETCH = Rollup(
    "prefetch", "second or minute and result, of prefetch rows", "raw.prefetch WHERE {rows}",
    (_key("prefetch", "result"), _count("rows", "rows of that result"), _sum("prefetch", "tokens"), _sum("prefetch", "bytes")),
)
_WINDOW = Rollup(
    "window", "second or minute and bin of the length, of idle windows", "raw.pcie_window WHERE {rows}",
    (
        _bin("length_us", "us"), _count("windows", "windows"), _sum("pcie_window", "length_us", "DOUBLE"),
        *(_sum("pcie_window", f) for f in ("capacity_bytes", "h2d_bytes", "d2h_bytes")),
    ),
)
_OCCUPANCY = Rollup(
    "occupancy", "second or minute, its last sample", "raw.occupancy WHERE {rows}",
    (
        Part(Column("at_t", "TIMESTAMP", "time of the sample, UTC"), "max_by(t, (seq, idx))", "max_by({c}, at_seq)"),
        Part(Column("at_seq", "UBIGINT", "message of the sample"), "max(seq)", "max({c})"),
        *(_last("occupancy", f.name) for f in BY_NAME["occupancy"].fields),
    ),
)
_BATCH = Rollup(
    "batch", "second or minute and mode, of scheduler steps", "raw.batch WHERE {rows}",
    (
        _key("batch", "mode"), _count("steps", "scheduler steps"), _sum("batch", "requests"), _sum("batch", "tokens"),
        _sum("batch", "duration_us", "DOUBLE"),
    ),
)

_END = BY_NAME["workflow"].field("event").code("end")
#: (workflow, step) -> what happened there, as in collector.views.sql.accuracy: an agent, or 0 for END.
_OUTCOMES = f"""
    SELECT src, workflow, step::BIGINT AS step, agent, seq::HUGEINT * 2 AS place, t FROM raw.call WHERE {{rows}} AND workflow <> 0
    UNION ALL
    SELECT src, workflow, step::BIGINT + 1, 0, seq::HUGEINT * 2 + 1, t FROM raw.call WHERE {{rows}} AND workflow <> 0 AND final = 1
    UNION ALL
    SELECT src, workflow, steps, 0, seq::HUGEINT * 2 + 1, t FROM raw.workflow WHERE {{rows}} AND event = {_END}"""
_ACCURACY = Rollup(
    "accuracy", "second or minute and horizon, of predictions whose outcome became known",
    f"""(SELECT p.src, p.horizon, p.agent AS predicted, o.agent AS came, o.t
         FROM (SELECT src, workflow, step::BIGINT + horizon AS target, horizon, agent, seq::HUGEINT * 2 AS place FROM raw.prediction
               WHERE {{past}} AND position = 0) p
         ASOF JOIN ({_OUTCOMES}) o ON p.src = o.src AND p.workflow = o.workflow AND p.target = o.step AND p.place <= o.place)""",
    (
        _key("prediction", "horizon"), _count("scored", "predictions whose outcome is known"),
        _count("correct", "of these, predictions that named it", "predicted = came"), _count("ends", "outcomes that were END", "came = 0"),
    ),
)

ROLLUPS: tuple[Rollup, ...] = (_CALL, _EVICTION, _PREFETCH, _WINDOW, _OCCUPANCY, _BATCH, _ACCURACY)


def rollup_tables() -> dict[str, tuple[str, tuple[Column, ...]]]:
    """Name (without schema) of every rollup table -> (what a row is, columns)."""
    return {r.table(suffix): (r.row, r.columns) for r in ROLLUPS for suffix in WIDTHS}
