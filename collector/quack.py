"""DuckDB's own remote protocol, for other DuckDB clients: the DuckDB command line, harlequin. The one module that knows it.

The statement guard applies as SQL, since the extension asks a macro about every statement. A query cannot be cancelled in this version: the
one way to end a runaway is to end the process, which `overdue` is for.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb

from collector.address import answers
from collector.columns import quoted
from collector.extension import load
from collector.guard import MAX_SQL, REFUSED_AS_SCALARS, REFUSED_SCALARS, TABLE_FUNCTIONS
from collector.macros import MACROS
from pbkv.errors import UsageError


@dataclass(frozen=True)
class Quack:
    """Where to serve, and the token clients must show."""

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """What clients attach."""
        return f"quack:{self.host}:{self.port}"

    def serve(self, db: duckdb.DuckDBPyConnection) -> None:
        """Serve `db` from now on; call before its configuration is locked. Raises UsageError: extension missing, address in use."""
        if answers(self.host, self.port):
            raise UsageError(self._failure("address already in use"))
        load(db, ("httpfs", "quack"), "quack")
        db.execute(f"CREATE MACRO pbkv_authorize(sid, q) AS {authorize_sql()}")
        db.execute("SET quack_authorization_function = 'pbkv_authorize'")
        loopback = self.host in ("localhost", "127.0.0.1", "[::1]")
        try:
            db.execute(
                f"CALL quack_serve({quoted(self.url)}, token = {quoted(self.token)}, allow_other_hostname = {str(not loopback).lower()})"
            )
        except duckdb.Error as error:
            raise UsageError(self._failure(str(error).splitlines()[0].replace(self.token, "..."))) from None

    def _failure(self, reason: str) -> str:
        return f"quack address {self.host}:{self.port}: cannot be served ({reason}); name a free port with --quack"


def authorize_sql() -> str:
    """The guard of collector.guard as an expression on `q`: true for exactly one SELECT that uses nothing refused.

    The length is checked in a WHERE below the parsing: AND does not keep DuckDB from parsing first, which takes seconds for a long text.
    """
    tables = "coalesce(list_transform(json_extract_string(j, '$..function.function_name'), lambda f: lower(f)), [])"
    names = "coalesce(list_transform(json_extract_string(j, '$..function_name'), lambda f: lower(f)), [])"
    both = " AND ".join(f"{_count(names, f)} = {_count(tables, f)}" for f in sorted(REFUSED_AS_SCALARS))
    return f"""coalesce((
        SELECT json_extract_string(j, '$.error') = 'false' AND json_array_length(j, '$.statements') = 1
            AND list_has_all([{_list(TABLE_FUNCTIONS | set(MACROS))}], {tables})
            AND NOT list_has_any([{_list(REFUSED_SCALARS)}], {names}) AND {both}
        FROM (SELECT json_serialize_sql(t) AS j FROM (SELECT q::VARCHAR AS t) WHERE strlen(t) <= {MAX_SQL})), false)"""


def _list(names: set[str] | frozenset[str]) -> str:
    return ", ".join(quoted(name) for name in sorted(names))


def _count(names: str, name: str) -> str:
    return f"len(list_filter({names}, lambda f: f = {quoted(name)}))"


def overdue(db: duckdb.DuckDBPyConnection, seconds: float) -> str | None:
    """Text of a query that has run for longer than `seconds`, or None."""
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=seconds)
    sql = "SELECT query FROM quack_active_connections() WHERE state = 'active' AND query_started_at < $before"
    row = db.execute(sql, {"before": before}).fetchone()
    return str(row[0]) if row else None
