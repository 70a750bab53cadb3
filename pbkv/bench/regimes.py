"""The settings that experiments are run in: workloads of the paper and recorded runs, each with the load and sizes that go with it."""

from dataclasses import dataclass, replace

from pbkv.bench.cell import Cell, Source
from pbkv.bench.source import live_tokens
from pbkv.workloads.layouts import LAYOUTS


@dataclass(frozen=True)
class Regime:
    """A name for people, a cell to vary, and device sizes along its pressure curve, as shares of `concurrency` live workflows' tokens."""

    name: str
    cell: Cell
    shares: tuple[float, ...]

    def sized(self, share: float, **changes: object) -> Cell:
        """The cell with a device tier of that share of the live tokens, whole pages."""
        cell = replace(self.cell, **changes)  # type: ignore[arg-type]
        tokens = share * cell.concurrency * live_tokens(cell.source)
        return replace(cell, device_tokens=max(1, round(tokens / cell.page_size)) * cell.page_size)


#: Output and delay scale, concurrent workflows, running calls.
_HOVER = {"private": (0.5, 8.0, 96, 32), "shared": (0.25, 3.0, 96, 32), "group": (0.25, 8.0, 64, 64)}


def hover(layout: str) -> Regime:
    """HoVer-like: private with long tool times, shared and group chat with short outputs."""
    scale, delay, concurrency, running = _HOVER[layout]
    source = Source("hover", layout, (("output_scale", scale), ("delay_scale", delay)))  # type: ignore[arg-type]
    cell = Cell(source, workflows=80, warm=concurrency, concurrency=concurrency, max_running=running)
    return Regime(f"HoVer, {layout}", cell, _SHARES["hover", layout])


def decoding() -> Regime:
    """HoVer-like with private histories and so little load that most time goes into decoding: prefetch waits for an empty queue."""
    regime = hover("private")
    source = replace(regime.cell.source, options=(("output_scale", 1.0), ("delay_scale", 8.0)))
    cell = replace(regime.cell, source=source, concurrency=48, warm=48, max_running=64)
    return replace(regime, name="HoVer, private, light load", cell=cell)


def swe(layout: str) -> Regime:
    """SWE-bench-like: 24 workflows of up to 60 calls."""
    cell = Cell(Source("swe", layout), workflows=30, warm=12, concurrency=24, max_running=16)  # type: ignore[arg-type]
    return Regime(f"SWE-bench, {layout}", cell, _SHARES["swe", layout])


def finance(layout: str, turns: int = 1) -> Regime:
    """FinanceBench-like: a static chain, each agent called `turns` times in a row."""
    cell = Cell(Source("finance", layout, (("turns", turns),)), workflows=200 if turns == 1 else 80, warm=96)  # type: ignore[arg-type]
    name = f"FinanceBench, {layout}" + (f", {turns} turns" if turns > 1 else "")
    return Regime(name, cell, _SHARES["finance", layout])


def recorded(name: str, path: str, layout: str) -> Regime:
    """Recorded runs of which half is held out from what predictors are fitted on; cut after 60 calls."""
    source = Source(name, layout, (("max_calls", 60),), path, held_out=True)  # type: ignore[arg-type]
    cell = Cell(source, workflows=50, warm=12, concurrency=24, max_running=16)
    return Regime(f"{name}, {layout}", cell, _SHARES["swe", layout])


#: Shares of live tokens along the curves: from a pool in which little survives to one in which nearly everything does.
_SHARES: dict[tuple[str, str], tuple[float, ...]] = {
    ("hover", "private"): (0.2, 0.35, 0.5, 0.65, 0.8, 0.95),
    ("hover", "shared"): (0.2, 0.3, 0.36, 0.38, 0.4, 0.45),
    ("hover", "group"): (0.35, 0.45, 0.55, 0.7, 0.85, 1.0),
    ("swe", "private"): (0.18, 0.24, 0.32, 0.42, 0.6),
    ("swe", "shared"): (0.18, 0.22, 0.27, 0.33, 0.45),
    ("swe", "group"): (0.25, 0.35, 0.45, 0.6, 0.8),
    ("finance", "private"): (0.15, 0.2, 0.25, 0.33, 0.45),
    ("finance", "shared"): (0.25, 0.35, 0.45, 0.55, 0.65),
}


def generated() -> list[Regime]:
    """The generated workflows of the pressure curves."""
    return [*(hover(layout) for layout in LAYOUTS), swe("shared"), swe("group"), finance("shared"), finance("private", 3)]
