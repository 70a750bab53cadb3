"""A column of the store, and how what it says is written into the database."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its DuckDB type, what it says and in which unit."""

    name: str
    sql_type: str
    meaning: str
    unit: str = ""

    @property
    def comment(self) -> str:
        return f"{self.meaning} ({self.unit})" if self.unit else self.meaning


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def comments(what: str, name: str, row: str, columns: tuple[Column, ...]) -> list[str]:
    """COMMENT ON statements of a TABLE or VIEW and its columns."""
    lines = [f"COMMENT ON {what} {name} IS {quoted('one row per ' + row)}"]
    return lines + [f"COMMENT ON COLUMN {name}.{c.name} IS {quoted(c.comment)}" for c in columns]
