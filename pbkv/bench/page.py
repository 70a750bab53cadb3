"""A report as one HTML file without anything from elsewhere: the table beside the paper, plots, figures, settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape

from pbkv.bench.cell import Cell, Source
from pbkv.bench.compare import Finding
from pbkv.bench.experiment import Summary
from pbkv.bench.report import LEGEND, columns, label, shown
from pbkv.bench.svg import COLOURS, Line, legend, plot

_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:1240px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{margin-top:2em;border-bottom:1px solid #ddd}table{border-collapse:collapse;font-size:.85em}
td,th{border:1px solid #ddd;padding:2px 7px;text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}
.words td,.words th{text-align:left;white-space:normal}
.wide{overflow-x:auto}.yes{background:#e3f4e8}.no{background:#fbe6e2}.plots{display:flex;flex-wrap:wrap;gap:6px}.plots svg{width:390px}
svg text{font:10px system-ui,sans-serif;fill:#444}.t{text-anchor:middle;font-weight:600}.x,.l{text-anchor:middle}.y{text-anchor:end}
.g{stroke:#e5e5e5;fill:none}.c{fill:none;stroke-width:1.6}.b{opacity:.13}.keys{font-size:.8em}.k{margin-right:1.2em;white-space:nowrap}
.k i{display:inline-block;width:22px;margin-right:5px;vertical-align:middle}"""
#: Curves keep their colour in every plot of a report.
_FIXED = {
    "lru": "#999999", "session_lae": "#BBBB55", "lae": "#666666", "clairvoyant": "#000000", "belady": "#000000", "kvflow": "#E69F00",
    "kvflow_all": "#CC79A7", "he": "#0072B2", "first_use": "#D55E00",
}


def page(summaries: Iterable[Summary], found: Sequence[Finding], about: Mapping[str, str]) -> str:
    """The whole document. `about`: what was run, by name."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>PBKV: the paper's experiments</title>", f"<style>{_STYLE}</style>"]
    parts.append("<h1>The paper's experiments on the embedded engine</h1>")
    parts.append("<p>" + "; ".join(f"{escape(k)}: {escape(v)}" for k, v in about.items()) + "</p>")
    parts.append(_findings(found))
    parts += [_experiment(summary) for summary in summaries if summary.figures]
    parts.append(_settings())
    return "\n".join(parts) + "\n"


def _findings(found: Sequence[Finding]) -> str:
    marks = {True: ' class="yes"', False: ' class="no"', None: ""}
    rows = "".join(f"<tr{marks[f.holds]}>{_cells((f.claim, f.paper, f.here, f.where))}</tr>" for f in found)
    head = "<tr><th>claim</th><th>paper or aim</th><th>here</th><th>where</th></tr>"
    return f'<h2>Beside the paper</h2><table class="words">{head}{rows}</table>'


def _experiment(summary: Summary) -> str:
    parts = [f"<h2>{escape(summary.experiment.title)}</h2>"]
    names = list(dict.fromkeys(s for panel in summary.panels for s in summary.series(panel)))
    looks = {name: _look(name, n) for n, name in enumerate(names)}
    parts.append(legend([(name, *looks[name]) for name in names]))
    for figure in columns(summary):
        plots = (plot(panel, summary.experiment.x_label, label(figure), _lines(summary, panel, figure, looks)) for panel in summary.panels)
        parts.append(f"<p>{escape(LEGEND[figure])}</p><div class=plots>{''.join(plots)}</div>")
    return "".join((*parts, *(_table(summary, panel) for panel in summary.panels)))


def _look(name: str, number: int) -> tuple[str, bool]:
    """Colour and whether dashed: predictors of one policy share its colour but for the best one, which is solid."""
    policy, _, rest = name.partition(" ")
    if policy in _FIXED and rest in ("", "bayes", "perfect", "markov", "uniform", "online"):
        return _FIXED[policy], rest not in ("", "bayes")
    return COLOURS[number % len(COLOURS)], False


def _lines(summary: Summary, panel: str, figure: str, looks: Mapping[str, tuple[str, bool]]) -> list[Line]:
    lines: list[Line] = []
    for series in summary.series(panel):
        points = [(x, f[figure]) for x in summary.xs(panel) if figure in (f := summary.figures.get((panel, series, x), {}))]
        if points:
            xs, spreads = zip(*points, strict=True)
            colour, dashed = looks[series]
            band = [s.low for s in spreads], [s.high for s in spreads]
            lines.append(Line(series, colour, xs, [s.mean for s in spreads], *band, dashed))
    return lines


def _table(summary: Summary, panel: str) -> str:
    xs, names = summary.xs(panel), columns(summary)
    head = "".join(f"<th>{x:g}</th>" for x in xs)
    rows = ""
    for series in summary.series(panel):
        figures = (summary.figures.get((panel, series, x), {}) for x in xs)
        cells = "".join(f"<td>{' / '.join(shown(f[n].mean, n) for n in names if n in f)}</td>" for f in figures)
        rows += f"<tr><td>{escape(series)}</td>{cells}</tr>"
    table = f'<div class="wide"><table><tr><th></th>{head}</tr>{rows}</table></div>'
    return f"<details><summary>{escape(panel)}: figures</summary>{table}</details>"


def _settings() -> str:
    """Every default of a run; what an experiment changes is in its title, axes and regimes."""
    rows = "".join(f"<tr>{_cells((name, str(value)))}</tr>" for name, value in asdict(Cell(Source("hover"))).items())
    return f"<h2>Defaults of a run</h2><table>{rows}</table>"


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)
