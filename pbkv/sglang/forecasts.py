"""A trained predictor in the scheduler: asked once per step for all workflows that the step concerned, by one rank for all."""

import time
from collections.abc import Sequence
from typing import Any

from pbkv.config import ServerConfig
from pbkv.errors import UsageError
from pbkv.predictor.base import Moment
from pbkv.predictor.budget import Answer, Budgeted
from pbkv.predictor.load import serving_predictor
from pbkv.predictor.mixed import Mixed
from pbkv.predictor.names import Roster
from pbkv.sglang.ranks import Ranks, ranks_of
from pbkv.state import CacheState


class Forecasts:
    """Answers what the state put off. Whether there is anything to answer, and for how many, is the same on all ranks at the same step,
    because workflows fall due by requests and control messages alone. So all ranks enter the collective or none does.
    """

    def __init__(self, state: CacheState, asked: Budgeted, ranks: Ranks | None) -> None:
        self._state, self.asked, self._ranks = state, asked, ranks
        state.due = {}

    def flush(self) -> None:
        """At the end of a step, and before a batch is made up of what is known."""
        due = self._state.take_due()
        if not due:
            return
        started = time.perf_counter_ns()
        answers = self._answers([moment for _, moment in due])
        took = (time.perf_counter_ns() - started) // len(due)
        for (workflow, _), answer in zip(due, answers, strict=True):
            self._state.answered(workflow, answer.prediction, answer.version, took)

    def _answers(self, moments: Sequence[Moment]) -> list[Answer]:
        if self._ranks is None:
            return self.asked.answer(moments)
        return self._ranks.share(self.asked.answer(moments) if self._ranks.leader else (), len(moments))

    def facts(self) -> dict[str, Any]:
        """What GET /pbkv/state says of predictions: by outcome, and the newest failure."""
        return {**self.asked.counts, "fault": self.asked.fault or None}


def predictor_of(config: ServerConfig, roster: Roster, ctx: Any) -> Any:
    """What the cache learns with, and predicts with at once unless it is trained. Raises UsageError."""
    if config.predictor and (ctx.params.pp_size > 1 or ctx.params.attn_cp_size > 1):
        given = f"predictor = {config.predictor!r}"
        raise UsageError(
            f"{given}: a trained predictor serves tensor-parallel ranks only; set --pp-size and --attn-cp-size to 1 or remove the setting"
        )
    return serving_predictor(config.predictor, roster)


def forecasts_of(state: CacheState, predictor: Any, config: ServerConfig, ctx: Any) -> Forecasts | None:
    """None without a trained predictor: the online chain is the same on every rank, and each asks its own at once."""
    if not isinstance(predictor, Mixed):
        return None
    budget_ns = max(1, int(config.predict_budget_ms * 1e6))
    return Forecasts(state, Budgeted(predictor, budget_ns), ranks_of(ctx.params.tp_cache_group))
