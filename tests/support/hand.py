"""Tiny databases written row by row, with the product's own tables: the expected numbers can be worked out on paper."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import duckdb

from collector.names import view_statements
from collector.tables import create_statements
from pbkv.events.schema import BY_NAME, Namespace

#: Time zero of a hand-made stream.
T0 = datetime(2026, 1, 2, 3, 4, 5)

_SIMPLE: Mapping[str, Namespace] = {"workflow": Namespace.WORKFLOW, "agent": Namespace.AGENT}


@cache
def _empty() -> bytes:
    """An empty store as bytes: its several hundred statements run once per test session."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        with duckdb.connect(str(path)) as db:
            db.execute("; ".join(["BEGIN", *create_statements(T0), *view_statements(), "COMMIT"]))
        return path.read_bytes()


class Hand:
    """`with Hand(path) as h: h.call(1.0, workflow="w", agent="a", step=0)`. Times are seconds after T0; every row is its own message."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_empty())
        self._db = duckdb.connect(str(path))
        self._db.execute("BEGIN")
        self._seq: dict[int, int] = {}
        self._names: dict[tuple[int, int, str], int] = {}
        self.src = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for src, seq in self._seq.items():
            self._db.execute("INSERT INTO raw.high_water VALUES (?, ?, ?, ?)", [src, seq, T0, seq])
        self._db.execute("COMMIT")
        self._db.close()

    def stream(self, server: str = "gpu0", epoch: int = 1, rank: int = 0) -> int:
        """Begin another stream; the rows that follow belong to it."""
        self.src += 1
        self._db.execute("INSERT INTO raw.source VALUES (?, ?, ?, ?, ?)", [self.src, server, epoch, rank, T0])
        self._seq[self.src] = 0
        return self.src

    def name(self, namespace: Namespace, text: str | None) -> int:
        """Id of a string; 0 for None and "END"."""
        if text is None or text == "END":
            return 0
        key = (self.src, int(namespace), text)
        if key not in self._names:
            self._names[key] = len(self._names) + 1
            self.row("name", 0.0, id=self._names[key], namespace=int(namespace), text=text)
        return self._names[key]

    def row(self, kind: str, at: float, **fields: Any) -> None:
        """One record; fields not named are 0. Names of enumerated codes and of workflows and agents are given as text."""
        spec = BY_NAME[kind]
        unknown = set(fields) - {f.name for f in spec.fields}
        assert not unknown, f"{kind} has no {unknown}"
        values: list[Any] = []
        for f in spec.fields:
            value = fields.get(f.name, 0)
            if f.ref is not None and not isinstance(value, int):
                value = self.name(f.ref, value)
            elif f.values and isinstance(value, str):
                value = f.code(value)
            values.append(value)
        self._seq[self.src] += 1
        seq = self._seq[self.src]
        head = [self.src, seq, 0, seq * 10, T0 + timedelta(seconds=at)]
        marks = ", ".join("?" * (len(head) + len(values)))
        self._db.execute(f"INSERT INTO raw.{kind} VALUES ({marks})", [*head, *values])

    def call(self, at: float, workflow: str | None, agent: str | None, step: int, **fields: Any) -> None:
        """One finished call."""
        self.row("call", at, workflow=workflow, agent=agent, step=step, attributed=int(workflow is not None), **fields)

    def predict(self, at: float, workflow: str, step: int, agents: list[str], p: float = 0.75, p_end: float = 0.25) -> None:
        """Predictions made at `step`: the likeliest agent (or "END") of horizons 1, 2, ..."""
        for horizon, agent in enumerate(agents, 1):
            self.row("prediction", at, workflow=workflow, step=step, horizon=horizon, agent=agent, p=p, p_end=p_end)

    def lost(self, first: int, last: int) -> None:
        """Messages first..last are recorded as lost."""
        row = [self.src, first, last, last - first + 1, "not held", T0]
        self._db.execute("INSERT INTO raw.loss VALUES (?, ?, ?, ?, ?, ?)", row)
