"""The trained network in NumPy, for the scheduler's thread: the arithmetic of `network.py`, with everything that does not depend on the
moment worked out before. Needs neither torch nor torch-geometric.

Rows of the tables stand for agents: those of the training first, then those that the cache met besides, then one row for all beyond
MAX_ROWS, then the row of "no run". An agent that training did not know is embedded by its name alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pbkv.knobs import K_MAX
from pbkv.predictor.callgraph import new_agent
from pbkv.predictor.features import LENGTHS, MAX_COUNT, NODE_DIM, RUNS, TURNS, Floats, Ints

#: Agents told apart. It bounds the time of a prediction, which grows with the candidates.
MAX_ROWS = 512
HEADS = 4
COUNTS = 128
Weights = Mapping[str, Floats]


def shapes(agents: int, text_dim: int, widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shape of every array of the weights file."""
    node, path, text, hidden, candidate = (widths[name] for name in ("node", "path", "text", "hidden", "candidate"))
    found: dict[str, tuple[int, ...]] = {"nodes": (agents, node)}
    for n, wide in enumerate((NODE_DIM, node)):
        found |= {f"own.{n}.weight": (node, wide), f"own.{n}.bias": (node,)}
    for name in ("query", "key", "value"):
        found |= {f"{name}.weight": (path, node), f"{name}.bias": (path,)}
    for kind in ("key", "value"):
        found |= {f"{kind}_length.weight": (LENGTHS, path), f"{kind}_turn.weight": (TURNS, path), f"{kind}_place.weight": (RUNS, path)}
    for moment in (0, 1):
        found |= {f"said.{moment}.weight": (hidden, text), f"said.{moment}.bias": (hidden,)}
    return found | {
        "project.weight": (text, max(1, text_dim)), "absent": (text,), "current.weight": (hidden, node), "history.weight": (hidden, path),
        "length.weight": (LENGTHS, hidden), "turn.weight": (TURNS, hidden),
        "gated.weight": (hidden, node), "gate.weight": (LENGTHS, hidden), "calls.weight": (hidden, 2),
        "count.weight": (COUNTS, hidden), "heads.weight": (K_MAX * candidate, hidden),
        "heads.bias": (K_MAX * candidate,), "candidate.weight": (candidate, node), "candidate.bias": (candidate,), "end": (candidate,),
        "place.weight": (RUNS + 1, candidate),
    }


@dataclass(frozen=True)
class Encoded:
    """B moments as arrays. `agents`: [B, RUNS] rows, "no run" where the path has fewer; `run`: [B, RUNS] length * TURNS + turn;
    `counts`: [B] calls - 1 below MAX_COUNT; `reply`: [B] 0 or 1; `said`: [B, hidden], what the text adds to the hidden layer.
    """

    agents: Ints
    run: Ints
    counts: Ints
    reply: Ints
    said: Floats


class Common:
    """Tables that do not depend on the agents."""

    def __init__(self, weights: Weights, temperatures: Floats, doubts: Floats) -> None:
        """`weights`: see `shapes`; `temperatures`, `doubts`: [2, K_MAX], see `calibration.py`."""
        w = self.weights = weights
        self.split = w["query.weight"].shape[0] // HEADS
        self.key_run = (w["key_length.weight"][:, None] + w["key_turn.weight"]).reshape(-1, HEADS, self.split)
        self.value_run = (w["value_length.weight"][:, None] + w["value_turn.weight"]).reshape(LENGTHS * TURNS, -1)
        self.history = np.ascontiguousarray(w["history.weight"].T)
        moments = [(w[f"said.{m}.weight"], w[f"said.{m}.bias"]) for m in (0, 1)]
        self.said = [np.ascontiguousarray((said @ w["project.weight"]).T) for said, _ in moments]
        self.said_bias, self.unsaid = [bias for _, bias in moments], [said @ w["absent"] + bias for said, bias in moments]
        self.run = (w["length.weight"][:, None] + w["turn.weight"]).reshape(LENGTHS * TURNS, -1)
        self.gate = np.repeat(w["gate.weight"], TURNS, 0)
        counts = np.arange(1, MAX_COUNT + 1)
        logs = np.stack([np.log(counts) / 4, counts == 1], 1).astype(np.float32)
        self.count = logs @ w["calls.weight"].T + w["count.weight"][np.minimum(counts, COUNTS) - 1]
        self.heads, self.heads_bias = w["heads.weight"].reshape(K_MAX, len(w["end"]), -1), w["heads.bias"].reshape(K_MAX, -1)
        self.placed = np.ascontiguousarray(np.einsum("kdh,pd->kph", self.heads, w["place.weight"]).reshape(K_MAX * (RUNS + 1), -1))
        self.placed_bias = np.einsum("kd,pd->kp", self.heads_bias, w["place.weight"]).reshape(-1, 1)
        self.cooling, self.doubts = np.ascontiguousarray(1 / temperatures.T, np.float32), np.ascontiguousarray(doubts.T, np.float32)


class Scratch:
    """Arrays that are written anew at each pass. Large temporaries would be mapped and unmapped by the allocator each time, which costs
    more than the arithmetic; nothing that leaves a pass may lie here. For one thread.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Floats] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """One array per name, of the shape asked for last."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape:
            kept = self._kept[name] = np.empty(shape, np.float32)
        return kept

    def take(self, name: str, table: Floats, index: Ints) -> Floats:
        """Rows of a table; every index must be within it."""
        return table.take(index, 0, out=self.array(name, (*index.shape, *table.shape[1:])), mode="clip")


class Tables:
    """What a set of agents makes of the weights. `forward` is the one pass from moments to probabilities."""

    def __init__(self, common: Common, names: Sequence[str]) -> None:
        """`names`: agents beside those of the training."""
        self._common, self._scratch = common, Scratch()
        extra = [embed_new(common.weights, name) for name in (*names, "")]
        nodes = np.concatenate([common.weights["nodes"], np.stack(extra)]).astype(np.float32)
        self.rows, self.none = len(nodes), len(nodes)
        self._attention(nodes)
        self._scores(nodes)
        nodes = np.concatenate([nodes, np.zeros((1, nodes.shape[1]), np.float32)])
        self._current, self._gated = (nodes @ common.weights[f"{name}.weight"].T for name in ("current", "gated"))

    def _attention(self, nodes: Floats) -> None:
        w, common = self._common.weights, self._common
        shape = (-1, HEADS, common.split)
        query = ((nodes @ w["query.weight"].T + w["query.bias"]) / math.sqrt(common.split)).reshape(shape)
        keys = (nodes @ w["key.weight"].T + w["key.bias"]).reshape(shape)
        # Logits of "no run" are so low that their weight is exactly 0 in float32.
        by_agent = np.concatenate([_products(query, keys), np.full((self.rows, 1, HEADS), -1e4)], 1)
        self._by_agent, self._by_run = _flat(by_agent), _flat(_products(query, common.key_run))
        self._by_place = np.ascontiguousarray(_products(query, w["key_place.weight"].reshape(shape)), np.float32)
        values = nodes @ w["value.weight"].T + w["value.bias"]
        self._value_agent = np.concatenate([values, np.zeros((1, values.shape[1]), np.float32)])

    def _scores(self, nodes: Floats) -> None:
        """Scores of all candidates at all steps are one product with the hidden layer: [(candidates + END) * K, hidden]."""
        w, common = self._common.weights, self._common
        # The row of all further agents is no candidate: it has no name to score. END is never in the path.
        end = (w["end"] + w["place.weight"][RUNS])[None]
        candidates = np.concatenate([nodes[:-1] @ w["candidate.weight"].T + w["candidate.bias"], end])
        self.candidates = len(candidates) - 1
        self._out = np.ascontiguousarray(np.einsum("kdh,cd->ckh", common.heads, candidates).reshape(-1, common.heads.shape[2]))
        self._out_bias = np.einsum("kd,cd->ck", common.heads_bias, candidates).reshape(-1, 1)

    def said(self, texts: Floats | None, reply: int) -> Floats:
        """What text signals of unit length, [dim] or [B, dim], add to the hidden layer; None = there is none. Once per output is enough."""
        return self._common.unsaid[reply] if texts is None else texts @ self._common.said[reply] + self._common.said_bias[reply]

    def forward(self, moments: Encoded) -> tuple[Floats, Floats]:
        """(visits [candidates, K_MAX, B], ends [K_MAX, B]) as in `Prediction`: s^(k) P^(k), s^(k) = prod_{j<k} (1 - P^(j)[END])."""
        take, first, agents = self._scratch.take, moments.run[:, 0], moments.agents[:, 0]
        hidden = take("hidden", self._gated, agents)
        hidden *= take("part", self._common.gate, first)
        hidden += take("part", self._current, agents)
        hidden += take("part", self._common.run, first)
        hidden += take("part", self._common.count, moments.counts)
        hidden += moments.said
        hidden += self._attend(moments) @ self._common.history
        np.maximum(hidden, 0, out=hidden)
        return self._probabilities(self._logits(hidden.T, moments), self._common.doubts.take(moments.reply, 1))

    def _attend(self, moments: Encoded) -> Floats:
        take, current = self._scratch.take, moments.agents[:, :1]
        weights = take("weights", self._by_agent, moments.agents + current * (self.rows + 1))
        weights += take("weight", self._by_run, moments.run + current * (LENGTHS * TURNS))
        weights += take("weight", self._by_place, current[:, 0])
        # Run 0 is always there: relative to its logit the sum is at least 1, and the ceiling keeps it finite.
        weights -= weights[:, :1].copy()
        np.minimum(weights, 80, out=weights)
        np.exp(weights, out=weights)
        weights /= np.einsum("brh->bh", weights)[:, None]  # five times as fast as sum over a middle axis
        values = take("values", self._value_agent, moments.agents)
        values += take("value", self._common.value_run, moments.run)
        values += self._common.weights["value_place.weight"]
        split = values.reshape(len(values), RUNS, HEADS, -1).transpose(0, 2, 1, 3)
        return (weights.transpose(0, 2, 1)[:, :, None] @ split).reshape(len(values), -1)

    def _logits(self, hidden: Floats, moments: Encoded) -> Floats:
        size = hidden.shape[1]
        logits = self._out @ hidden
        logits += self._out_bias
        logits = logits.reshape(self.candidates + 1, K_MAX, size)
        placed = np.matmul(self._common.placed, hidden, out=self._scratch.array("placed", (len(self._common.placed), size)))
        placed += self._common.placed_bias
        placed = placed.reshape(K_MAX, (RUNS + 1) * size)
        column = np.arange(size, dtype=np.int64)
        places: Ints = np.full((self.rows + 1, size), RUNS)
        for place in range(RUNS - 1, -1, -1):
            places[moments.agents[:, place], column] = place
        index: Ints = places[: self.candidates] * size + column
        for k in range(K_MAX):
            logits[:-1, k] += placed[k].take(index)
        logits *= self._common.cooling.take(moments.reply, 1)
        return logits

    @staticmethod
    def _probabilities(logits: Floats, doubts: Floats) -> tuple[Floats, Floats]:
        logits -= logits.max(0)
        np.exp(logits, out=logits)
        scale, least = (1 - doubts) / logits.sum(0), doubts / len(logits)
        survival = np.ones_like(scale)
        np.cumprod(1 - (logits[-1, :-1] * scale[:-1] + least[:-1]), 0, out=survival[1:])  # row 0 stays 1: s^(1)
        logits *= scale * survival
        logits += least * survival
        return logits[:-1], logits[-1]


def embed_new(weights: Weights, name: str) -> Floats:
    """[node] of an agent without edges: both layers of the backbone see the agent alone."""
    first = np.maximum(weights["own.0.weight"] @ new_agent(name) + weights["own.0.bias"], 0)
    return weights["own.1.weight"] @ first + weights["own.1.bias"]


def _products(query: Floats, keys: Floats) -> Floats:
    """[queries, keys, HEADS] of [queries, HEADS, d] and [keys, HEADS, d]."""
    return np.matmul(query.transpose(1, 0, 2), keys.transpose(1, 2, 0)).transpose(1, 2, 0)


def _flat(table: np.ndarray[Any, Any]) -> Floats:
    return np.ascontiguousarray(table.reshape(-1, HEADS), np.float32)
