"""An experiment's figures as Markdown: one table per panel, places down, curves across."""

from collections.abc import Iterable

from pbkv.bench.experiment import Summary

#: What is shown of a run without and with a host tier.
_PLAIN, _HOSTED = ("hit", "ttft_gain", "latency_gain"), ("hit_device", "hit", "ttft_gain", "latency_gain")
LEGEND = {
    "hit": "token hit rate %", "hit_device": "hit rate on the device %", "ttft_gain": "mean TTFT of the base / this",
    "latency_gain": "mean workflow latency of the base / this",
}


def label(figure: str) -> str:
    """Short name of a figure, for axes."""
    return {"hit": "hit rate, %", "hit_device": "device hit rate, %", "ttft_gain": "TTFT gain", "latency_gain": "latency gain"}[figure]


def shown(value: float, figure: str) -> str:
    """Percentages with one digit, ratios with two."""
    return f"{value:.1f}" if figure.startswith("hit") else f"{value:.2f}"


def columns(summary: Summary) -> tuple[str, ...]:
    """Figures that a table of this experiment shows."""
    if summary.experiment.points[0].cell.replay:
        return ("hit",)
    return _HOSTED if any(p.cell.host_tokens for p in summary.experiment.points) else _PLAIN


def markdown(summary: Summary) -> str:
    """All panels of an experiment."""
    names = columns(summary)
    head = f"## {summary.experiment.title}\n\nCells: {' / '.join(LEGEND[n] for n in names)} (base: {summary.experiment.base}); "
    spread = "means over the workflow sets, +- half the range of the hit rate.\n"
    return head + spread + "\n" + "\n".join(_panel(summary, panel, names) for panel in summary.panels)


def _panel(summary: Summary, panel: str, names: tuple[str, ...]) -> str:
    series, xs = summary.series(panel), summary.xs(panel)
    rows = [[f"{x:g}", *(_cell(summary, panel, s, x, names) for s in series)] for x in xs]
    return f"### {panel}\n\n" + table([summary.experiment.x_label, *series], rows)


def _cell(summary: Summary, panel: str, series: str, x: float, names: tuple[str, ...]) -> str:
    figures = summary.figures.get((panel, series, x))
    if figures is None:
        return ""
    parts = [shown(figures[n].mean, n) for n in names if n in figures]
    hit = figures["hit"]
    return "/".join(parts) + f" +-{(hit.high - hit.low) / 2:.1f}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = ["|" + "|".join(header) + "|"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    lines += ["|" + "|".join(row) + "|" for row in rows]
    return "\n".join(lines) + "\n"
