"""One run of an experiment, described in full: what is not in here cannot change its result."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from pbkv.workloads.layouts import LayoutName

#: Policies that need no predictions; their cells are the same whatever predictor an experiment is about.
BLIND = ("lru", "lae", "session_lae", "clairvoyant", "belady")


@dataclass(frozen=True)
class Source:
    """Where workflows come from: a generator by name with options, or a recorded trace (a path) with a layout."""

    name: str
    layout: LayoutName = "private"
    options: tuple[tuple[str, float], ...] = ()
    trace: str = ""
    held_out: bool = False  #: the half of a trace's runs that predictors are not fitted on; False = all runs


@dataclass(frozen=True)
class Cell:
    """Closed loop of `concurrency` workflows; measured are `workflows` of them from number `warm` on, under load to the end. Units: tokens,
    seconds, bytes/s.

    `predictor`: markov (first order, fitted on other workflows), online (learns as it goes), bayes, perfect, uniform, or dir:PATH of a
    trained one. `noise`: share of predicted steps replaced. `parts`: switches of a policy that are turned off (ablations).
    """

    source: Source
    seed: int = 0
    workflows: int = 120
    warm: int = 96
    concurrency: int = 96
    stagger_s: float = 60.0
    device_tokens: int = 600_000
    host_tokens: int = 0
    page_size: int = 64
    max_running: int = 32
    chunk_tokens: int = 8192
    write_policy: str = "write_through"
    replay: bool = False
    timing: str = "linear"
    link_bytes_per_s: float = 25e9
    link_share: float = 1.0
    policy: str = "lru"
    parts: tuple[str, ...] = ()
    predictor: str = "markov"
    noise: float = 0.0
    gamma: float = 0.8
    k: int = 3
    prefetch: str = "off"
    host_order: str = "recency"

    def plain(self) -> "Cell":
        """The same run without settings that nothing reads: two cells that must give the same result have the same key."""
        cell = self
        if cell.policy in BLIND and cell.prefetch == "off":
            cell = replace(cell, predictor="", noise=0.0, gamma=0.8, k=3)
        if not cell.host_tokens:
            cell = replace(cell, prefetch="off", host_order="recency", link_bytes_per_s=25e9, link_share=1.0)
        return cell

    def key(self, digest: str) -> str:
        """Name of the cell's result under source digest `digest`."""
        text = json.dumps([digest, asdict(self.plain())], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


#: Figures of a run by name.
Result = dict[str, float]


def describe(cell: Cell) -> dict[str, Any]:
    """Every setting of a cell, for reports."""
    return asdict(cell)
