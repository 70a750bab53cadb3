"""Training of the network: cross-entropy over K_MAX steps, early stopping on the validation runs, exactly resumable after each epoch."""

# torch is untyped where it matters here; what leaves this module is typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportCallIssue=false
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pbkv.errors import PbkvError, UsageError
from pbkv.predictor import calibration
from pbkv.predictor.callgraph import CallGraph, estimate
from pbkv.predictor.dataset import Rows, Trace, digest, roster, rows, text_dim
from pbkv.predictor.features import NAME_DIM, Floats
from pbkv.predictor.graphsage import GraphSage
from pbkv.predictor.network import HIDE_EDGES, HIDE_TEXT, Batch, Network, Widths
from pbkv.predictor.rgcn import Rgcn
from pbkv.predictor.serving import MAX_ROWS

BACKBONES: dict[str, Callable[[int], GraphSage | Rgcn]] = {"graphsage": GraphSage, "rgcn": Rgcn}
#: Steps that early stopping looks at: those that the knob k uses unless it is turned far up.
JUDGED = 3
#: Small data are divided into this many batches all the same, of no fewer rows than LEAST_BATCH, or an epoch would be a few steps.
LEAST_STEPS, LEAST_BATCH = 64, 32


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The learning rate rises over the first epoch and falls to zero along a cosine; the count of calls is
    decayed harder than the rest, so that only counts that many runs agree on keep a weight.
    """

    backbone: str = "graphsage"
    epochs: int = 14
    patience: int = 6
    batch: int = 512
    rate: float = 6e-3
    decay: float = 0.05
    count_decay: float = 2.0
    dropout: float = 0.2
    seed: int = 0


def use_threads(count: int) -> None:
    """CPU threads of this process for training. Only with one does the same seed give the same weights to the bit."""
    torch.set_num_threads(count)


class Trainer:
    """One training. Raises UsageError for more agents than can be served.

    `state()` and `restore()` hold everything that the next epoch depends on; each epoch seeds its own randomness, so a
    training that was stopped and restored ends bit for bit like one that was not.
    """

    def __init__(self, train: Sequence[Trace], validation: Sequence[Trace], recipe: Recipe) -> None:
        self.recipe, self.names = recipe, roster([*train, *validation])
        if len(self.names) >= MAX_ROWS:
            raise UsageError(f"traces name {len(self.names)} agents: expected fewer than {MAX_ROWS}, or none could be served")
        torch.manual_seed(recipe.seed)
        self.graph = _graph(train, self.names)
        self.data = digest([*train, *validation])
        self._nodes, self._edges = torch.as_tensor(self.graph.nodes()), torch.as_tensor(self.graph.edges())
        self._alone = torch.cat([self._nodes[:, :NAME_DIM], torch.zeros_like(self._nodes[:, NAME_DIM:])], 1)
        dim = text_dim([*train, *validation])
        self._train, self._validation = (_Tensors(rows(part, self.names), len(self.names), dim) for part in (train, validation))
        widths = Widths()
        self.network, self.backbone = Network(dim, widths, recipe.dropout), BACKBONES[recipe.backbone](widths.node)
        self.model = nn.ModuleDict({"network": self.network, "backbone": self.backbone})
        self._optimiser = torch.optim.AdamW(self._groups(), lr=recipe.rate)
        self.epoch, self.best_epoch, self.best_loss = 0, 0, math.inf
        self._best: dict[str, Tensor] = {}

    def _groups(self) -> list[dict[str, Any]]:
        count = self.network.count.weight
        others = [p for p in self.model.parameters() if p is not count]
        return [{"params": others, "weight_decay": self.recipe.decay}, {"params": [count], "weight_decay": self.recipe.count_decay}]

    @property
    def done(self) -> bool:
        """All epochs are over, or the validation loss has not fallen for `patience` of them."""
        return self.epoch >= self.recipe.epochs or self.epoch - self.best_epoch >= self.recipe.patience

    def run_epoch(self) -> float:
        """One pass over the training rows; returns the validation loss (nats per outcome) after it."""
        torch.manual_seed(self.recipe.seed * 100_003 + self.epoch + 1)
        self.model.train()
        size = len(self._train.targets)
        batches = torch.randperm(size).split(max(LEAST_BATCH, min(self.recipe.batch, size // LEAST_STEPS)))
        for n, chosen in enumerate(batches):
            for group in self._optimiser.param_groups:
                group["lr"] = self._rate(self.epoch + n / len(batches))
            self._step(chosen)
        self.epoch += 1
        loss = self.loss()
        if loss < self.best_loss:
            self.best_loss, self.best_epoch = loss, self.epoch
            self._best = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return loss

    def _rate(self, time: float) -> float:
        if time < 1:
            return self.recipe.rate * (0.1 + 0.9 * time)
        return self.recipe.rate * (1 + math.cos(math.pi * (time - 1) / max(1, self.recipe.epochs - 1))) / 2

    def _step(self, chosen: Tensor) -> None:
        hidden = torch.rand(len(self.names), 1) < HIDE_EDGES
        embeddings = torch.where(hidden, self.backbone.alone(self._alone), self.backbone(self._nodes, self._edges))
        batch = self._train.batch(chosen)
        batch.has_text.logical_and_(torch.rand(len(chosen)) >= HIDE_TEXT)
        loss = _loss(self.network(embeddings, batch), self._train.targets[chosen])
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimiser.step()

    def loss(self) -> float:
        """Validation loss of the model as it is, over the first JUDGED steps."""
        return float(_loss(self._logits()[:, :JUDGED], self._validation.targets[:, :JUDGED]))

    def _logits(self) -> Tensor:
        self.model.eval()
        with torch.inference_mode():
            embeddings = self.backbone(self._nodes, self._edges)
            parts = torch.arange(len(self._validation.targets)).split(4096)
            return torch.cat([self.network(embeddings, self._validation.batch(part)) for part in parts])

    # ---- results -----------------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[dict[str, Floats], dict[str, Any]]:
        """Weights for serving, and the config that goes with them, from the best epoch."""
        if not self._best:
            raise PbkvError("training diverged: the validation loss was never a number; train with another seed")
        self.model.load_state_dict(self._best)
        logits, targets, reply = self._logits().numpy(), self._validation.targets.numpy(), self._validation.reply.numpy()
        fitted = [calibration.fit(logits[reply == moment], targets[reply == moment]) for moment in (0, 1)]
        with torch.inference_mode():
            exported = {name: t.numpy() for name, t in self.network.state_dict().items()}
            exported["nodes"] = self.backbone(self._nodes, self._edges).numpy()
            for n, (weight, bias) in enumerate(self.backbone.own()):
                exported[f"own.{n}.weight"], exported[f"own.{n}.bias"] = weight.numpy(), bias.numpy()
        config = {
            "kind": self.recipe.backbone, "agents": self.names, "text_dim": self.network.text_dim, "widths": asdict(self.network.widths),
            "temperatures": [[t for t, _ in moment] for moment in fitted], "doubts": [[d for _, d in moment] for moment in fitted],
            "recipe": asdict(self.recipe), "epochs": self.epoch, "best_epoch": self.best_epoch,
            "validation_loss": round(self.best_loss, 6), "parameters": self.parameters,
        }
        return {name: np.ascontiguousarray(array, np.float32) for name, array in exported.items()}, config

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return sum(p.numel() for p in self.model.parameters())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values to go on from."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        for n, moments in self._optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{n}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        plain = {"epoch": self.epoch, "best_epoch": self.best_epoch, "best_loss": self.best_loss}
        return tensors, plain | {"data": self.data, "recipe": asdict(self.recipe)}

    def restore(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Continue from `state()`. Raises KeyError, ValueError or RuntimeError when it is not one of this training."""
        if (plain["data"], plain["recipe"]) != (self.data, asdict(self.recipe)):
            raise ValueError("made from other data or with other settings")
        self.model.load_state_dict(_below(tensors, "model."))
        self._best = _below(tensors, "best.")
        adam: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "adam.").items():
            number, field = name.split(".", 1)
            adam.setdefault(int(number), {})[field] = tensor
        self._optimiser.load_state_dict(self._optimiser.state_dict() | {"state": adam})
        self.epoch, self.best_epoch, self.best_loss = plain["epoch"], plain["best_epoch"], plain["best_loss"]


class _Tensors:
    """Rows as tensors; absent runs become agent A with length and turn 0."""

    def __init__(self, table: Rows, agents: int, dim: int) -> None:
        self._agents = torch.as_tensor(np.where(table.agents < 0, agents, table.agents))
        self._lengths, self._turns = torch.as_tensor(table.lengths.clip(0)), torch.as_tensor(table.turns.clip(0))
        self._calls, self.reply, self._text = map(torch.as_tensor, (table.calls, table.reply, table.text))
        self._texts = torch.as_tensor(table.texts) if table.texts.size else torch.zeros(1, max(1, dim))
        self.targets = torch.as_tensor(table.targets)

    def batch(self, chosen: Tensor) -> Batch:
        text = self._text[chosen]
        return Batch(
            self._agents[chosen], self._lengths[chosen], self._turns[chosen], self._calls[chosen], self.reply[chosen],
            self._texts[text.clamp(min=0)], text >= 0,
        )


def _graph(traces: Sequence[Trace], names: Sequence[str]) -> CallGraph:
    ids = {name: n for n, name in enumerate(names)}
    return estimate([[ids[agent] for agent in trace.agents] for trace in traces], names)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
