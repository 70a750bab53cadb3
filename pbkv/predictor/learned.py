"""A trained network as a predictor of a live cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pbkv.errors import UsageError
from pbkv.predictor import store
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.features import MAX_COUNT, RUNS, TURNS, Floats, normalised, view
from pbkv.predictor.names import Roster
from pbkv.predictor.serving import MAX_ROWS, Common, Encoded, Tables, Weights, shapes

#: Visits less likely than this are left out of a prediction's dicts.
LEAST = 1e-4
_RANGES = {"temperatures": (0.01, 100.0), "doubts": (0.0, 0.5)}
_WIDTHS = {"node": 256, "path": 256, "text": 1024, "hidden": 1024, "candidate": 256}


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """B predictions at once. `visits`: [candidates, K_MAX, B], `ends`: [K_MAX, B]; `ids[c]`: the cache's id of candidate c, -1 while it
    has not met that agent.
    """

    visits: Floats
    ends: Floats
    ids: Sequence[int]

    def __len__(self) -> int:
        return self.ends.shape[1]

    def __getitem__(self, n: int) -> Prediction:  # type: ignore[override]
        if not 0 <= n < len(self):
            raise IndexError(n)
        steps = self.visits[:, :, n].T.tolist()
        visits = [{agent: p for agent, p in zip(self.ids, step, strict=True) if p >= LEAST and agent >= 0} for step in steps]
        return Prediction(tuple(visits), tuple(self.ends[:, n].tolist()))


class Learned:
    """Predicts at prefill and again at the reply of a call, when the text of its output is known. Learns nothing while it serves."""

    version = 6
    at_reply = True

    def __init__(
        self, weights: Weights, agents: Sequence[str], text_dim: int, temperatures: Floats, doubts: Floats, roster: Roster
    ) -> None:
        """`weights`: see `serving.shapes`; `agents`: those of the training; `temperatures`, `doubts`: [2, K_MAX], see `calibration.py`."""
        self._common = Common(weights, temperatures, doubts)
        self._text_dim, self.roster = text_dim, roster
        self._row_of_name = {name: row for row, name in enumerate(agents)}
        self._extra: list[str] = []
        self._rows: list[int] = []
        self._list: Sequence[str] = roster.names
        self._tables = Tables(self._common, ())
        self._ids: list[int] = []
        self._meet()

    def observe(self, path: Sequence[int], agent: int) -> None:
        """It learns from traces only."""

    def predict(self, moment: Moment) -> Prediction:
        """Empty for a workflow without calls."""
        return self.predict_many((moment,))[0] if moment.path else Prediction()

    def predict_many(self, moments: Sequence[Moment]) -> Predictions:
        """All in one pass; every path must have a call."""
        encoded = self.encode(moments)
        return Predictions(*self._tables.forward(encoded), self._ids)

    def forward(self, encoded: Encoded) -> Predictions:
        """The pass alone, for moments that were encoded with the agents known now."""
        return Predictions(*self._tables.forward(encoded), self._ids)

    def encode(self, moments: Sequence[Moment]) -> Encoded:
        """Moments as arrays, text signals projected."""
        if len(self._rows) < len(self.roster.names) or self._list is not self.roster.names:
            self._meet()
        size, rows = len(moments), self._rows
        agents = np.full((size, RUNS), self._tables.none)
        run = np.zeros((size, RUNS), np.int64)
        for n, moment in enumerate(moments):
            seen = view(moment.path)
            agents[n, : len(seen.agents)] = [rows[agent] for agent in seen.agents]
            run[n, : len(seen.agents)] = [length * TURNS + turn for length, turn in zip(seen.lengths, seen.turns, strict=True)]
        reply = np.array([int(moment.reply) for moment in moments])
        counts = np.array([min(max(moment.calls, 1), MAX_COUNT) - 1 for moment in moments])
        return Encoded(agents, run, counts, reply, np.stack([self._said(moment) for moment in moments]))

    def _said(self, moment: Moment) -> Floats:
        """A signal that does not fit, or is not finite, counts as absent."""
        if moment.text is None or not self._text_dim:
            return self._tables.said(None, int(moment.reply))
        text = np.asarray(moment.text, np.float32)
        if text.shape != (self._text_dim,) or not np.isfinite(text).all():
            return self._tables.said(None, int(moment.reply))
        return self._tables.said(normalised(text[None])[0], int(moment.reply))

    def _meet(self) -> None:
        """Rows for agents that the cache met since; the tables are made anew when training did not know one of them."""
        if self._list is not self.roster.names:
            self._list, self._rows = self.roster.names, []
        known = len(self._extra)
        for name in self._list[len(self._rows) :]:
            if name not in self._row_of_name and len(self._row_of_name) < MAX_ROWS:
                self._row_of_name[name] = len(self._row_of_name)
                self._extra.append(name)
            self._rows.append(self._row_of_name.get(name, -1))
        if len(self._extra) > known:
            self._tables = Tables(self._common, self._extra)
        self._rows = [self._tables.rows - 1 if row in (-1, self._tables.rows - 1) else row for row in self._rows]
        self._ids = [-1] * self._tables.candidates
        for agent, row in enumerate(self._rows):
            if row < self._tables.candidates:
                self._ids[row] = agent


def load(directory: Path, config: dict[str, Any], roster: Roster) -> Learned:
    """A network from its folder. Raises UsageError that names what is missing or wrong."""
    agents = cast("list[str]", config["agents"])
    if len(agents) >= MAX_ROWS:
        raise UsageError(f"predictor {str(directory)!r} knows {len(agents)} agents; at most {MAX_ROWS - 1} can be served")
    text_dim = store.whole(directory, config, "text_dim", 0, store.MAX_TEXT_DIM)
    found = config.get("widths")
    given = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    widths = {name: store.whole(directory, given, name, 4, most) for name, most in _WIDTHS.items()}
    if widths["path"] % 4:
        raise UsageError(f"predictor {str(directory)!r}: widths.path = {widths['path']}: expected a multiple of 4")
    weights = store.read_weights(directory, shapes(len(agents), text_dim, widths))
    temperatures, doubts = (store.per_step(directory, config, name, *range_) for name, range_ in _RANGES.items())
    return Learned(weights, agents, text_dim, temperatures, doubts, roster)
