"""Which SQL a reader may run: exactly one SELECT that can neither change nor stop anything.

"One SELECT" alone is not safe in DuckDB: a table function in its FROM clause may write a log file, abort the process or open a
listener. So table functions are admitted by name, and scalars with side effects are refused by name.
"""

import json
import threading
from collections.abc import Collection, Iterator
from typing import Any, cast

import duckdb

from pbkv.errors import UsageError

#: Longest statement, bytes of UTF-8. Checked before parsing: DuckDB needs seconds to parse a much longer one.
MAX_SQL = 64 << 10

TABLE_FUNCTIONS = frozenset({
    "range", "generate_series", "unnest", "json_each", "json_tree", "summary",
    "duckdb_tables", "duckdb_views", "duckdb_columns", "duckdb_schemas", "duckdb_databases", "duckdb_constraints", "duckdb_indexes",
    "duckdb_types", "duckdb_functions", "duckdb_keywords", "pragma_table_info", "pragma_version", "pragma_database_size",
})

#: Scalars that wait, write, keep state between queries or show configuration; those that take SQL as text, which would hide what is in
#: it; and those that make one value of gigabytes in a single step, which neither DuckDB's memory limit nor an interrupt stops.
REFUSED_SCALARS = frozenset({
    "sleep_ms", "nextval", "currval", "setseed", "write_log", "getvariable", "current_setting", "quack_check_token", "getenv",
    "json_execute_serialized_sql", "json_deserialize_sql", "json_serialize_plan", "json_serialize_sql",
    "repeat", "lpad", "rpad", "format", "printf", "bitstring", "list_resize", "array_resize", "list_reduce", "array_reduce", "reduce",
})
#: Table functions that are scalars too, and then make a list of any length.
REFUSED_AS_SCALARS = frozenset({"range", "generate_series"})


class Guard:
    """Checks statements by DuckDB's own parser on a connection without data. Thread-safe."""

    def __init__(self, macros: Collection[str] = ()) -> None:
        """`macros`: table macros of the store itself, admitted besides TABLE_FUNCTIONS."""
        self._tables = TABLE_FUNCTIONS | {m.lower() for m in macros}
        self._lock = threading.Lock()
        self._parser = duckdb.connect(config={
            "autoinstall_known_extensions": False, "autoload_known_extensions": False, "enable_external_access": False, "threads": 1,
        })

    def check(self, sql: str) -> None:
        """Raise UsageError with the reason unless `sql` may run."""
        try:
            size = len(sql.encode())
        except UnicodeEncodeError:
            raise UsageError("SQL is not valid Unicode text") from None
        if size > MAX_SQL:
            raise UsageError(f"SQL of {size} bytes: expected at most {MAX_SQL}; shorten it")
        tree = self._parse(sql)
        if tree.get("error"):
            raise UsageError(_parse_error(tree))
        statements = cast(list[Any], tree["statements"])
        if len(statements) != 1:
            raise UsageError(f"SQL with {len(statements)} statements: expected exactly one SELECT")
        for place, name in _functions(statements[0]):
            self._check_function(place, name.lower())

    def _check_function(self, place: str, name: str) -> None:
        if place == "table" and name not in self._tables:
            raise UsageError(f"table function {name}: not allowed in a query; allowed are {', '.join(sorted(self._tables))}")
        if place == "scalar" and name in REFUSED_AS_SCALARS:
            raise UsageError(f"function {name}: not allowed in a query as a scalar; use it as a table, FROM {name}(...)")
        if name in REFUSED_SCALARS:
            raise UsageError(
                f"function {name}: not allowed in a query, because it can wait, write, show configuration or use memory without a limit"
            )

    def _parse(self, sql: str) -> dict[str, Any]:
        try:
            with self._lock:
                row = self._parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
            return json.loads(row[0]) if row else {"statements": []}
        except duckdb.Error as error:
            raise UsageError(f"SQL does not parse: {str(error).splitlines()[0]}") from None
        except RecursionError:
            raise UsageError("SQL is nested too deeply; write it flatter") from None


def _parse_error(tree: dict[str, Any]) -> str:
    if tree.get("error_type") == "not implemented":
        return "SQL is not a SELECT: a reader may only run one SELECT (SUMMARIZE, DESCRIBE, SHOW TABLES and VALUES are SELECTs too)"
    position = tree.get("position")
    where = f" (at character {position})" if position is not None else ""
    return f"SQL does not parse: {tree.get('error_message')}{where}"


def _functions(root: object) -> Iterator[tuple[str, str]]:
    """("table" or "scalar", name) of every function in a serialized statement, at any depth."""
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        key, node = todo.pop()
        if isinstance(node, list):
            todo.extend((key, child) for child in cast(list[object], node))
        elif isinstance(node, dict):
            fields = cast(dict[str, object], node)
            name = fields.get("function_name")
            if isinstance(name, str):
                # A table function hangs under the key "function" of its FROM item; scalars, aggregates and windows never do.
                yield ("table" if key == "function" else "scalar"), name
            todo.extend(fields.items())
