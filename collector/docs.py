"""docs/events.md, made from the schema table: what every view and column says. `python -m collector.docs` writes it."""

from pathlib import Path

from collector.columns import Column
from collector.names import source_columns, view_columns
from collector.rollup import ROLLUPS
from collector.tables import LOSS, kind_columns
from pbkv.events.schema import BY_NAME, DIGEST, EVENT_KINDS, FORMAT_VERSION, SCHEMA_VERSION

_HEAD = f"""# Events

Made from the schema table in `pbkv/events/schema.py` by `python -m collector.docs`; do not edit.
Format {FORMAT_VERSION}, schema {SCHEMA_VERSION}, digest `{DIGEST.hex()}`.

Every kind is a view of its own name in the event store, for example `SELECT agent, ttft_ms FROM call`. `server`, `epoch` and `rank`
name the stream; (`server`, `epoch`, `rank`, `seq`, `idx`) orders all events of all kinds, `t` is for people. `sched_step` is the
server's scheduler step; a column `step` is the position of a call in its workflow. A name that is not known (its message was lost)
shows as `#id`. The views read insert-only tables of the same names in schema `raw`, which hold ids and codes instead of text and
`src` instead of the stream; a query over a long time range may read those directly.
"""


def events_markdown() -> str:
    """The whole file as text."""
    parts = [_HEAD]
    for name in EVENT_KINDS:
        kind = BY_NAME[name]
        parts.append(_section(name, f"One row per {kind.row}.", view_columns(kind)))
    position = tuple(c for c in view_columns(BY_NAME["call"]) if c.name in ("server", "epoch", "rank"))
    parts.append(_section("loss", "One row per range of messages that were lost.", (*position, *LOSS[1:])))
    parts.append(_section("source", "One row per stream: a server epoch and rank.", source_columns()))
    parts.append(_section("raw.name", "One row per string behind an id; `id` is unique within a `src`.", kind_columns(BY_NAME["name"])))
    for rollup in ROLLUPS:
        row = f"One row per stream, run of the rollups, {rollup.row}; see store.md."
        parts.append(_section(f"raw.roll_{rollup.name}_1s, raw.roll_{rollup.name}_1m", row, rollup.columns))
    return "\n".join(parts)


def _section(name: str, row: str, columns: tuple[Column, ...]) -> str:
    lines = [f"## {name}", "", row, "", "| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{c.name}` | {c.sql_type} | {c.unit} | {c.meaning} |" for c in columns]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path("docs/events.md").write_text(events_markdown())
