"""An experiment's figures as Markdown: one table per panel, curves down, places across."""

from collections.abc import Iterable

from pbkv.bench.experiment import Summary

#: What is shown of a run without and with a host tier.
_PLAIN, _HOSTED = ("hit", "latency_gain"), ("hit_device", "hit", "ttft_gain", "latency_gain")
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
    head = f"## {summary.experiment.title}\n\n{about(summary)}\n"
    return head + "\n" + "\n".join(_panel(summary, panel) for panel in summary.panels)


def about(summary: Summary) -> str:
    """What the cells of an experiment's tables are, and how far workflow sets differ."""
    names = columns(summary)
    what = " / ".join(LEGEND[name] for name in names)
    base = f" (base: {summary.experiment.base})" if any(name.endswith("gain") for name in names) else ""
    halves = sorted((f["hit"].high - f["hit"].low) / 2 for f in summary.figures.values())
    spread = f"half the range of the hit rate over the workflow sets: median {halves[len(halves) // 2]:.1f}, largest {halves[-1]:.1f}"
    return f"{what}{base}, by {summary.experiment.x_label}; {spread}."


def _panel(summary: Summary, panel: str) -> str:
    xs = summary.xs(panel)
    rows = [[series, *(_cell(summary, panel, series, x) for x in xs)] for series in summary.series(panel)]
    return f"### {panel}\n\n" + table(["", *(f"{x:g}" for x in xs)], rows)


def _cell(summary: Summary, panel: str, series: str, x: float) -> str:
    figures = summary.figures.get((panel, series, x), {})
    return " / ".join(shown(figures[name].mean, name) for name in columns(summary) if name in figures)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = ["|" + "|".join(header) + "|"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    lines += ["|" + "|".join(row) + "|" for row in rows]
    return "\n".join(lines) + "\n"
