"""Makes the rollups: every few seconds the sums of the messages that came since, in a transaction of their own that only inserts."""

import contextlib
from collections.abc import Mapping

import duckdb

from collector.columns import quoted
from collector.rollup import ROLLUPS, WIDTHS
from collector.store import Store

#: How far back a prediction may lie whose outcome is counted, seconds.
PAST_S = 900
#: Most such predictions one run looks at, about: the join sorts them in memory.
MAX_PAST = 500_000


def rolled(db: duckdb.DuckDBPyConnection) -> dict[int, dict[int, int]]:
    """Per width (seconds) and stream, the message up to which the rollups are made."""
    marks: dict[int, dict[int, int]] = {width: {} for width in WIDTHS.values()}
    for src, width, seq in db.execute("SELECT src, width_s, max(seq) FROM store.raw.rolled GROUP BY ALL").fetchall():
        marks.setdefault(width, {})[src] = seq
    return marks


class Roller:
    """Rollups of one store; one thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.cursor() as db:
            self._rolled = rolled(db)

    def roll(self, high_water: Mapping[int, int], *, minutes: bool) -> int:
        """Add the rows of every message up to `high_water` (per stream); those per minute only with `minutes`. Returns how many streams
        had news. Raises duckdb.Error and PbkvError; nothing of the stream at hand is then added."""
        news = 0
        with self._store.cursor() as db:
            for src, upto in high_water.items():
                news += self._add(db, src, 1, upto)
                if minutes:
                    # Minutes are made of rows per second, which end where their runs ended.
                    self._add(db, src, 60, self._rolled[1].get(src, 0))
        return news

    def done(self) -> dict[int, int]:
        """Per stream, the message up to which the rollups of every width are made."""
        return {src: min(seq, self._rolled[60].get(src, 0)) for src, seq in self._rolled[1].items()}

    def _add(self, db: duckdb.DuckDBPyConnection, src: int, width: int, upto: int) -> bool:
        after = self._rolled[width].get(src, 0)
        if upto <= after:
            return False
        db.execute("BEGIN")
        try:
            for statement in _inserts(db, src, width, after, upto):
                db.execute(statement)
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(duckdb.Error):  # DuckDB may have ended the transaction itself
                db.execute("ROLLBACK")
            raise
        self._rolled[width][src] = upto
        return True


def _inserts(db: duckdb.DuckDBPyConnection, src: int, width: int, after: int, upto: int) -> list[str]:
    rows = f"src = {src:d} AND seq > {after:d} AND seq <= {upto:d}"
    suffix = next(s for s, w in WIDTHS.items() if w == width)
    past = _past(db, src, rows, after, upto) if width == 1 else ""
    statements = [f"INSERT INTO store.raw.rolled (src, width_s, seq) VALUES ({src:d}, {width}, {upto:d})"]
    for rollup in ROLLUPS:
        if width == 1:
            select = rollup.from_events(f"{upto:d}::UBIGINT", 1, rows, past)
        else:
            select = rollup.from_rows(f"store.raw.{rollup.table('1s')}", f"{upto:d}::UBIGINT", width, rows)
        statements.append(f"INSERT INTO store.raw.{rollup.table(suffix)} BY NAME {select}")
    return statements


def _past(db: duckdb.DuckDBPyConnection, src: int, rows: str, after: int, upto: int) -> str:
    """Predictions that the outcomes in `rows` may belong to, as a condition with constants: only then are older ones skipped."""
    outcomes = f"SELECT t FROM raw.call WHERE {rows} UNION ALL SELECT t FROM raw.workflow WHERE {rows}"
    row = db.execute(f"SELECT min(t) - INTERVAL {PAST_S} SECOND FROM ({outcomes})").fetchone()
    if not row or not row[0]:
        return "false"
    count = db.execute(f"SELECT count(*) FROM raw.prediction WHERE {rows} AND position = 0").fetchone()
    # As many messages back as hold MAX_PAST of them at the rate of this run.
    messages = (upto - after) * MAX_PAST // max(1, int(count[0]) if count else 0)
    return f"src = {src:d} AND t > TIMESTAMP {quoted(str(row[0]))} AND seq > {max(0, upto - max(messages, upto - after)):d}"


def unrolled(db: duckdb.DuckDBPyConnection) -> dict[int, dict[int, int]] | None:
    """Per width and stream of the attached store, how far its rollups are made; None when they all are. For a store nobody writes."""
    try:
        marks = rolled(db)
    except duckdb.CatalogException:  # an older file has none
        return {}
    high = dict(db.execute("SELECT src, max(seq) FROM store.raw.high_water GROUP BY src").fetchall())
    return None if all(m == high for m in marks.values()) else marks


