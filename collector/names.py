"""Views for people: one per kind under the kind's own name, with ids and codes as text and the stream's name in front."""

from collector.columns import Column, comments, quoted
from collector.tables import LOSS, POSITION, SOURCE
from pbkv.events.schema import BY_NAME, EVENT_KINDS, Field, Kind

_SERVER: tuple[Column, ...] = tuple(c for c in SOURCE if c.name in ("server", "epoch", "rank"))
_POSITION: tuple[Column, ...] = tuple(c for c in POSITION if c.name != "src")
_OF_STREAM = ", ".join(f"s.{c.name}" for c in _SERVER)


def view_field(field: Field) -> Column:
    """Column of a kind's own field as the view shows it."""
    if field.values:
        return Column(field.name, "VARCHAR", f"{field.meaning}: {', '.join(field.values)}")
    if field.ref is not None:
        return Column(field.name, "VARCHAR", field.meaning + "; NULL = none, #id = its name was lost")
    return Column(field.name, field.sql_type, field.meaning, field.unit)


def view_columns(kind: Kind) -> tuple[Column, ...]:
    """Columns of the view of a kind: server, epoch, rank, seq, idx, sched_step, t, then its fields."""
    return (*_SERVER, *_POSITION, *(view_field(f) for f in kind.fields))


def _expression(field: Field) -> str:
    if field.values:
        cases = " ".join(f"WHEN {code} THEN {quoted(value)}" for code, value in enumerate(field.values))
        return f"CASE e.{field.name} {cases} END AS {field.name}"
    if field.ref is not None:
        # An id without a row in raw.name must not vanish: the call happened, only its name is unknown.
        shown = f"CASE WHEN e.{field.name} = 0 THEN NULL ELSE coalesce(n_{field.name}.text, '#' || e.{field.name}) END"
        return f"{shown} AS {field.name}"
    return f"e.{field.name}"


def _view(kind: Kind) -> str:
    columns = [f"e.{c.name}" for c in _POSITION] + [_expression(f) for f in kind.fields]
    joins = [
        f"LEFT JOIN raw.name n_{f.name} ON n_{f.name}.src = e.src AND n_{f.name}.id = e.{f.name}"
        for f in kind.fields if f.ref is not None
    ]
    source = f"FROM raw.{kind.name} e JOIN raw.source s ON s.src = e.src"
    return f"CREATE OR REPLACE VIEW {kind.name} AS SELECT {_OF_STREAM}, {', '.join(columns)} {' '.join([source, *joins])}"


def view_statements() -> list[str]:
    """Statements that (re)make every view: the twelve kinds, `loss` and `source`."""
    statements: list[str] = []
    for name in EVENT_KINDS:
        kind = BY_NAME[name]
        statements += [_view(kind), *comments("VIEW", name, kind.row, view_columns(kind))]
    lost = tuple(c for c in LOSS if c.name != "src")
    of_loss = ", ".join(f"l.{c.name}" for c in lost)
    statements.append(f"CREATE OR REPLACE VIEW loss AS SELECT {_OF_STREAM}, {of_loss} FROM raw.loss l JOIN raw.source s ON s.src = l.src")
    statements += comments("VIEW", "loss", "range of messages that were lost", (*_SERVER, *lost))
    statements.append(f"CREATE OR REPLACE VIEW source AS SELECT {_OF_STREAM}, s.first_t, {_named()} FROM raw.source s")
    return statements + comments("VIEW", "source", "stream of one server epoch and rank", source_columns())


def source_columns() -> tuple[Column, ...]:
    """Columns of the view `source`."""
    return (*_SERVER, SOURCE[-1], *(Column(n, "VARCHAR", m) for n, m in _SOURCE_NAMES))


_SOURCE_NAMES = (
    ("engine", "engine behind the stream, as it names itself"),
    ("model", "model it serves"),
    ("control_url", "where it answers /pbkv/knobs"),
)


def _named() -> str:
    """The newest name of each namespace that says something about the stream itself."""
    codes = BY_NAME["name"].field("namespace")
    return ", ".join(
        f"(SELECT max_by(n.text, n.id) FROM raw.name n WHERE n.src = s.src AND n.namespace = {codes.code(name)}) AS {name}"
        for name, _ in _SOURCE_NAMES
    )
