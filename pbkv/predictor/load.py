"""A predictor from the folder that `pbkv train` made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pbkv.errors import UsageError
from pbkv.predictor import backoff, learned, store
from pbkv.predictor.base import Predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.mixed import Mixed
from pbkv.predictor.names import Roster

KINDS: dict[str, Callable[[Path, dict[str, Any], Roster], Predictor]] = {
    "graphsage": learned.load, "rgcn": learned.load, "markov": backoff.load,
}


def load_predictor(directory: str | Path, roster: Roster) -> Predictor:
    """Ready to serve a cache whose agent names `roster` is bound to. Needs neither torch nor torch-geometric. Raises UsageError that
    names the file and what is wrong with it.
    """
    place = Path(directory)
    config = store.read_config(place)
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{str(place / store.CONFIG)!r}: kind = {kind!r}: expected one of {', '.join(KINDS)}")
    return KINDS[kind](place, config, roster)


def serving_predictor(directory: str | Path, roster: Roster) -> Predictor:
    """What a server predicts with: the trained predictor of `directory` mixed with an online Markov chain, or without one the chain alone.
    Raises UsageError like `load_predictor`.
    """
    return Mixed(load_predictor(directory, roster)) if directory else OnlineMarkov()


def signal_of(directory: str | Path) -> str:
    """Kind of the text signals that the predictor of `directory` was trained on; empty = none, or those of a trace. Raises UsageError."""
    config = store.read_config(Path(directory))
    kind = config.get("signal", "")
    return kind if isinstance(kind, str) and config.get("text_dim") else ""
