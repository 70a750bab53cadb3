"""The network: where a workflow stands on the call graph, the path that led there and the text of the newest output, in one pass to
K_MAX distributions over agents and END. Training only; serving runs the same arithmetic on exported weights (`serving.py`).

    h_cur   embedding of the current agent by a graph network (`graphsage.py`, `rgcn.py`), as such and gated by the length of its run
    h_path  scaled dot-product attention: query the current agent, keys and values the newest runs (agent, length, turn, position)
    h_txt   linear projection of the text signal, or a learned vector where there is none
    hidden  = relu(W [h_cur, h_path, h_txt, length, turn, calls] + b), one W for the text and one b for each of the two moments
    logit   of candidate a at step k = g_k . (S E_a + T[position of a's newest run]), g = V hidden; END has a vector of its own

Candidates are scored by their embeddings and by where they stand in the path, never by their place in a list: agents that training did
not know take part.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pbkv.knobs import K_MAX
from pbkv.predictor.features import LENGTHS, MAX_COUNT, RUNS, TURNS

HEADS = 4
#: Calls of a workflow told apart one by one; above, their logarithm counts alone.
COUNTS = 128
#: How often training hides what it must not lean on: the exact count of calls, the text signal, an agent's edges and structure.
HIDE_COUNT, HIDE_TEXT, HIDE_EDGES = 0.5, 0.1, 0.1


@dataclass(frozen=True)
class Widths:
    """Sizes of the parts: node embeddings, path attention, projected text, hidden layer, candidates."""

    node: int = 32
    path: int = 32
    text: int = 64
    hidden: int = 64
    candidate: int = 16


@dataclass(frozen=True)
class Batch:
    """Rows as tensors, see `dataset.Rows`; `agents` has A where there is no run. `texts`: [B, dim], `has_text`: [B]."""

    agents: Tensor
    lengths: Tensor
    turns: Tensor
    calls: Tensor
    reply: Tensor
    texts: Tensor
    has_text: Tensor


class Network(nn.Module):
    """`forward(embeddings [A, node], batch)` -> logits [B, K_MAX, A + 1]; the last class is END."""

    def __init__(self, text_dim: int, widths: Widths, dropout: float) -> None:
        super().__init__()
        w = widths
        self.widths, self.text_dim = widths, text_dim
        self.query = nn.Linear(w.node, w.path)
        self.key, self.value = nn.Linear(w.node, w.path), nn.Linear(w.node, w.path)
        self.key_length, self.value_length = nn.Embedding(LENGTHS, w.path), nn.Embedding(LENGTHS, w.path)
        self.key_turn, self.value_turn = nn.Embedding(TURNS, w.path), nn.Embedding(TURNS, w.path)
        self.key_place, self.value_place = nn.Embedding(RUNS, w.path), nn.Embedding(RUNS, w.path)
        self.project = nn.Linear(max(1, text_dim), w.text, bias=False)
        self.absent = nn.Parameter(torch.zeros(w.text))
        self.current, self.history = nn.Linear(w.node, w.hidden, bias=False), nn.Linear(w.path, w.hidden, bias=False)
        self.length, self.turn = nn.Embedding(LENGTHS, w.hidden), nn.Embedding(TURNS, w.hidden)
        self.said = nn.ModuleList(nn.Linear(w.text, w.hidden) for _ in range(2))
        self.gated, self.gate = nn.Linear(w.node, w.hidden, bias=False), nn.Embedding(LENGTHS, w.hidden)
        self.calls, self.count = nn.Linear(2, w.hidden, bias=False), nn.Embedding(COUNTS, w.hidden)
        self.heads = nn.Linear(w.hidden, K_MAX * w.candidate)
        self.candidate = nn.Linear(w.node, w.candidate)
        self.end = nn.Parameter(torch.randn(w.candidate) * 0.1)
        self.place = nn.Embedding(RUNS + 1, w.candidate)  # the last: not in the path
        self.dropout = nn.Dropout(dropout)
        for table in (self.key_length, self.key_turn, self.key_place, self.value_length, self.value_turn, self.value_place):
            nn.init.normal_(table.weight, std=0.3)
        for table in (self.length, self.turn, self.place, self.gate):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.normal_(self.count.weight, std=0.02)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        nodes = torch.cat([embeddings, embeddings.new_zeros(1, embeddings.shape[1])])  # row A: no run
        hidden = self.dropout(torch.relu(self._hidden(nodes, batch)))
        heads = self.heads(hidden).view(-1, K_MAX, self.widths.candidate)
        candidates = torch.cat([self.candidate(embeddings), self.end[None]])
        placed = (heads @ self.place.weight.T).gather(2, self._places(batch, len(embeddings))[:, None].expand(-1, K_MAX, -1))
        return heads @ candidates.T + placed

    def _hidden(self, nodes: Tensor, batch: Batch) -> Tensor:
        current, length = nodes[batch.agents[:, 0]], batch.lengths[:, 0]
        text = torch.where(batch.has_text[:, None], self.project(batch.texts), self.absent)
        said = torch.where(batch.reply[:, None] > 0, self.said[1](text), self.said[0](text))
        run = self.length(length) + self.turn(batch.turns[:, 0]) + self.gated(current) * self.gate(length)
        path = self.dropout(self._attend(nodes, batch))
        return self.current(current) + self.history(path) + said + run + self._counted(batch.calls)

    def _counted(self, calls: Tensor) -> Tensor:
        exact = self.count(calls.clamp(max=COUNTS) - 1)
        if self.training:
            exact = exact * (torch.rand(len(calls), 1) >= HIDE_COUNT)
        logs = torch.log(calls.clamp(max=MAX_COUNT).float()) / 4
        return exact + self.calls(torch.stack([logs, (calls == 1).float()], 1))

    def _attend(self, nodes: Tensor, batch: Batch) -> Tensor:
        size, split = len(batch.calls), self.widths.path // HEADS
        runs = nodes[batch.agents]
        keys = self.key(runs) + self.key_length(batch.lengths) + self.key_turn(batch.turns) + self.key_place.weight
        values = self.value(runs) + self.value_length(batch.lengths) + self.value_turn(batch.turns) + self.value_place.weight
        query = self.query(runs[:, 0]).view(size, 1, HEADS, split)
        logits = (query * keys.view(size, RUNS, HEADS, split)).sum(-1) / math.sqrt(split)
        absent = batch.agents == len(nodes) - 1
        weights = logits.masked_fill(absent[:, :, None], -torch.inf).softmax(1)
        return (weights[..., None] * values.view(size, RUNS, HEADS, split)).sum(1).flatten(1)

    @staticmethod
    def _places(batch: Batch, agents: int) -> Tensor:
        """[B, A + 1]: position of each agent's newest run; RUNS for agents not in the path, and for END."""
        places = torch.full((len(batch.calls), agents + 1), RUNS)
        for place in reversed(range(RUNS)):
            # Absent runs write column A, which is set back below.
            places.scatter_(1, batch.agents[:, place : place + 1], place)
        places[:, agents] = RUNS
        return places
