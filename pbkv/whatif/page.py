"""A grid as one HTML file without anything from elsewhere: what was replayed and how well, pictures, the table, where it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from pbkv.whatif.pictures import BoundCurve, curve_axes, curves_over, gamma_maps, pareto
from pbkv.whatif.report import WITHIN, Report, conclusion, heading
from pbkv.whatif.table import axes_of, fidelity_rows, table

_STYLE = """:root{color-scheme:light dark;--bg:#fff;--fg:#1f2328;--dim:#59636e;--line:#d8dee4;--grid:#e8ebef;--tint:#f3f5f8;--mark:#2b86c8;
--good:#e2f3e6}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e9ee;--dim:#9aa4b0;--line:#333a44;--grid:#2a3038;--tint:#1c2128;--mark:#58a9e6;
--good:#173d26}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1220px;margin:2em auto;padding:0 1.2em;background:var(--bg);color:var(--fg)}
h1{font-size:1.45em;margin-bottom:.2em}h2{font-size:1.1em;margin:2em 0 .6em;border-bottom:1px solid var(--line);padding-bottom:.2em}
p{margin:.4em 0}.dim,.lead{color:var(--dim)}.best{background:var(--tint);border-left:3px solid var(--mark);padding:.5em .9em;margin:1em 0}
table{border-collapse:collapse;font-size:.85em;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}
td,th{border-bottom:1px solid var(--line);padding:3px 10px;text-align:right;white-space:nowrap}th{color:var(--dim);font-weight:600}
td.w,th.w{text-align:left}td.p{white-space:normal;text-align:left}tr.top td{background:var(--good)}tr.now td{background:var(--tint)}
.u{color:var(--dim)}.plots{display:flex;flex-wrap:wrap;gap:14px}.plots svg{width:384px;max-width:100%}
svg text{font:10.5px system-ui,sans-serif;fill:var(--dim)}svg .t{text-anchor:middle;font-weight:600;fill:var(--fg)}.x,.l{text-anchor:middle}
.y{text-anchor:end}.g{stroke:var(--grid);fill:none}.c{fill:none;stroke-width:1.8}.b{opacity:.16}.h{fill:var(--mark)}
svg .m1{fill:var(--bg)}svg .m0{fill:var(--fg)}
.f{stroke:var(--fg);stroke-width:1.6}.keys{font-size:.85em;color:var(--dim)}.k{margin-right:1.3em;white-space:nowrap}
.k i{display:inline-block;width:22px;margin-right:6px;vertical-align:middle}code{font-size:.9em;overflow-wrap:anywhere}"""
_TITLES = {
    "device_tokens": "Device tier: the miss-ratio curve", "host_tokens": "Host tier", "prefetch_budget": "Prefetch budget",
    "concurrency": "Load", "gamma": "Gamma", "k": "Horizon",
}


def page(report: Report, about: Mapping[str, str], bound: BoundCurve = ()) -> str:
    """The whole document. `about`: where it comes from, by name. `bound`: for the miss-ratio curve."""
    title = f"What if: {report.source}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>",
        *(f"<p class=lead>{escape(line)}</p>" for line in heading(report)),
    ]
    if report.grid.cells:
        parts += [f"<div class=best>{''.join(f'<p>{escape(line)}</p>' for line in _summary(report))}</div>", *_pictures(report, bound)]
        parts += ["<h2>Settings</h2>", _settings(report), *_failures(report)]
    parts += ["<h2>The recorded setting, replayed</h2>", _fidelity(report), "<h2>Where this comes from</h2>", _about(about)]
    return "\n".join(parts) + "\n"


def _summary(report: Report) -> list[str]:
    stopped = f"stopped: {len(report.grid.cells)} of {len(report.grid.asked)} settings are finished"
    return [*([stopped] if report.grid.stopped else []), *conclusion(report)]


def _pictures(report: Report, bound: BoundCurve) -> list[str]:
    maps = gamma_maps(report)
    axes = [axis for axis in curve_axes() if not (maps and axis in ("gamma", "k"))]
    made = [(_TITLES[axis], curves_over(report, axis, bound)) for axis in axes]
    made += [("Gamma and K", maps), ("What each setting costs and brings", pareto(report))]
    return [f"<h2>{escape(title)}</h2>{html}" for title, html in made if html]


def _settings(report: Report) -> str:
    header, rows = table(report)
    words = len(axes_of([cell.setting for cell in report.found]))
    body = [_row([row[-1], *row[:-1]], words + 1) for row in rows]
    return f"<div class=wide><table>{_head(['', *header[:-1]], words + 1)}{''.join(body)}</table></div>"


def _failures(report: Report) -> list[str]:
    return [f"<p>failed: {escape(cell.setting.label)}: {escape(cell.error)}</p>" for cell in report.failed]


def _fidelity(report: Report) -> str:
    header, rows = fidelity_rows(report)
    body = "".join(f"<tr><td class=w>{escape(row[0])}</td>{_cells(row[1:-1])}<td class=p>{escape(row[-1])}</td></tr>" for row in rows)
    head = f"<tr><th class=w>{header[0]}</th>{''.join(f'<th>{name}</th>' for name in header[1:-1])}<th class=w>{header[-1]}</th></tr>"
    return f"<div class=wide><table>{head}{body}</table></div>"


def _about(about: Mapping[str, str]) -> str:
    rows = (f"<tr><td class=w>{escape(name)}</td><td class=p><code>{escape(value)}</code></td></tr>" for name, value in about.items())
    return f"<table>{''.join(rows)}</table>"


def _head(header: Sequence[str], words: int) -> str:
    return "<tr>" + "".join(f"<th{' class=w' if n < words else ''}>{escape(name)}</th>" for n, name in enumerate(header)) + "</tr>"


def _row(row: Sequence[str], words: int) -> str:
    """Marks first, since the last column of a wide table is out of sight."""
    kind = "top" if row[0].startswith("best") else "now" if row[0].endswith("present") else ""
    fields = "".join(f"<td class=w>{escape(text)}</td>" for text in row[:words])
    return f"<tr{f' class={kind}' if kind else ''}>{fields}{_cells(row[words:])}</tr>"


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"<td{' class=u' if text.startswith(WITHIN) else ''}>{escape(text)}</td>" for text in texts)
