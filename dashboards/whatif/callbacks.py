"""Callbacks of the What-if page. A grid's progress comes over the page's stream; pictures are drawn here."""

from typing import Any, cast
from urllib.parse import parse_qs

from dash import ALL, Input, Output, State, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.knobs import form as knob_form
from dashboards.page import Prefs
from dashboards.panels import grid
from dashboards.paths import WHATIF
from dashboards.scene import palette
from dashboards.site import Site
from dashboards.whatif import draw
from dashboards.whatif.runs import read_form
from dashboards.whatif.view import TABLE, TABLE_HEIGHT
from pbkv.errors import UsageError
from pbkv.whatif.asked import FIELDS, asked
from pbkv.whatif.results import Result
from pbkv.whatif.winner import choice_of, winner
from pbkv.whatif.words import basis, changes_of

_FIELDS = {"type": "wi-field", "field": ALL}
_INPUTS = {"type": "knob-input", "knob": ALL}


def register(app: Any, site: Site) -> None:
    """Add them all."""
    _register_run(app, site)
    _register_result(app, site)
    _register_picture(app, site)
    if not site.readonly:
        _register_stage(app, site)


def result_id(search: Any) -> str:
    """The permalink's id in the URL, "" without one."""
    return parse_qs(str(search or "").lstrip("?")).get("result", [""])[0]


def shown(site: Site, page: str, search: Any) -> tuple[Result | None, str]:
    """What the page looks at: its grid while that runs, else the result its URL names; and why there is none."""
    run, id_ = site.runs.get(page), result_id(search)
    if run is not None and (run.running or run.id == id_ or not id_):
        return site.runs.result(run), ""
    if not id_:
        return None, ""
    try:
        return site.desk.results.get(id_), ""
    except UsageError as error:
        return None, str(error)


def _register_run(app: Any, site: Site) -> None:
    @app.callback(
        Output("wi-note", "children"),
        Output("wi-note", "className"),
        Input("wi-run", "n_clicks"),
        State(_FIELDS, "id"),
        State(_FIELDS, "value"),
        State("prefs", "data"),
        prevent_initial_call=True,
    )
    def run(clicks: Any, ids: Any, values: list[Any], preferences: Any) -> Any:
        prefs = Prefs.read(preferences)
        if not clicks or prefs is None:
            raise PreventUpdate
        try:
            site.runs.start(prefs.page, asked(read_form(ids, values)))
        except UsageError as error:
            return str(error), "wi-note bad"
        return "Reading the log …", "wi-note"

    @app.callback(Output("wi-stop", "n_clicks"), Input("wi-stop", "n_clicks"), State("prefs", "data"), prevent_initial_call=True)
    def stop(clicks: Any, preferences: Any) -> Any:
        if clicks and (prefs := Prefs.read(preferences)) is not None:
            site.runs.stop(prefs.page)
        return no_update

    @app.callback(
        Output("wi-note", "children", allow_duplicate=True),
        Output("wi-note", "className", allow_duplicate=True),
        Output("wi-bar", "value"),
        Output("wi-stop", "disabled"),
        Output("url", "search", allow_duplicate=True),
        Input("wi-live", "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def progress(data: Any, search: Any) -> Any:
        if not isinstance(data, dict):
            raise PreventUpdate
        url = f"?result={data['id']}" if data["id"] and data["id"] != result_id(search) else no_update
        return data["note"], "wi-note bad" if data["bad"] else "wi-note", data["share"] if data["running"] else 0, not data["running"], url


def _register_result(app: Any, site: Site) -> None:
    @app.callback(
        Output("wi-basis", "children"),
        Output("wi-best", "children"),
        Output(f"{TABLE}-grid", "rowData"),
        Output(f"{TABLE}-grid", "style"),
        Output(f"{TABLE}-plot", "style"),
        Output(f"{TABLE}-empty", "children"),
        Output(f"{TABLE}-empty", "style"),
        Output(f"{TABLE}-summary", "children"),
        Output("wi-kept", "children"),
        Output(_FIELDS, "value"),
        Input("wi-live", "data"),
        Input("url", "search"),
        Input("url", "pathname"),
        State("prefs", "data"),
        State(_FIELDS, "id"),
    )
    def look(data: Any, search: Any, path: Any, preferences: Any, ids: Any) -> Any:
        if path != WHATIF:
            raise PreventUpdate
        prefs = Prefs.read(preferences)
        result, why = shown(site, prefs.page if prefs else "", search)
        rows = draw.rows(result) if result else []
        p = grid.props(TABLE, TABLE_HEIGHT, rows, len(result.cells) if result else 0, "settings", why or "No result yet.")
        table = p[f"{TABLE}-grid"]
        mine = cast(dict[str, Any], data).get("id") if isinstance(data, dict) else None
        opened = result is not None and result_id(search) not in ("", mine)
        return (
            f"the last {basis(result.about)}" if result else "",
            best(result),
            table["rowData"],
            table.get("style", no_update),
            p[f"{TABLE}-plot"]["style"],
            p[f"{TABLE}-empty"].get("children", no_update),
            p[f"{TABLE}-empty"]["style"],
            p[f"{TABLE}-summary"]["children"],
            kept(site, result_id(search)),
            [texts(result).get(i["field"], "") for i in ids] if opened and result else [no_update] * len(ids),
        )


def texts(result: Result) -> dict[str, str]:
    """The form as it was for this result."""
    return {**dict.fromkeys(FIELDS, ""), **result.axes, "under": result.under, "best": result.best, "last": f"{result.about.span_s:.0f}s"}


def best(result: Result | None) -> Any:
    """The best setting in a sentence."""
    if result is None or not result.cells:
        return ""
    found = winner(result)
    text = found.asked[0].upper() + found.asked[1:]
    if not found.name:
        return f"{text}: {found.facts}"
    return [f"{text}: ", html.Strong(f"★ {found.name}", className="wi-star"), f" ({found.facts})"]


def kept(site: Site, current: str) -> list[Any]:
    """Links to the newest results."""
    found = site.desk.results.newest()
    if not found:
        return [html.Div("None yet: every grid that was run is kept, and its link can be passed on.", className="key")]
    return [_link(id_, result, current) for id_, result in found]


def _link(id_: str, result: Result, current: str) -> Any:
    axes = " ".join(f"{name}={text}" for name, text in result.axes.items())
    many = f"{len(result.cells):,} of {result.asked:,} settings" if result.stopped else f"{result.asked:,} settings"
    return html.A(
        [html.Code(id_), html.Span(result.made_at[:16].replace("T", " ") + " UTC"), html.Span(many), html.Span(axes, className="wi-axes")],
        href=f"{WHATIF}?result={id_}",
        className="wi-link" + (" current" if id_ == current else ""),
    )


def _register_picture(app: Any, site: Site) -> None:
    @app.callback(
        Output("wi-graph", "figure"),
        Output("wi-graph-box", "style"),
        Output("wi-none", "children"),
        Output("wi-none", "style"),
        Output("wi-axis", "data"),
        Output("wi-axis", "value"),
        Output("wi-slice", "data"),
        Output("wi-slice", "value"),
        Output("wi-slice", "style"),
        Input("wi-live", "data"),
        Input("url", "search"),
        Input("url", "pathname"),
        Input("wi-picture-kind", "value"),
        Input("wi-figure", "value"),
        Input("wi-axis", "value"),
        Input("wi-slice", "value"),
        Input("mantine", "forceColorScheme"),
        State("prefs", "data"),
    )
    def picture(data: Any, search: Any, path: Any, kind: Any, name: Any, chosen: Any, part: Any, scheme: Any, preferences: Any) -> Any:
        if path != WHATIF:
            raise PreventUpdate
        prefs = Prefs.read(preferences)
        result, why = shown(site, prefs.page if prefs else "", search)
        cells = result.cells if result else ()
        figure_name = name if isinstance(name, str) and name in draw.NAMES else "hit"
        offered = draw.axes_of(cells, "map" if kind == "map" else "curve")
        values = [entry["value"] for entry in offered]
        over = chosen if chosen in values else values[0] if values else None
        colours = palette(str(scheme))
        drawn, names, part = _drawn(cells, kind, over, figure_name, part, colours)
        none = why or ("Run a grid, or open a result that was kept." if not cells else _needs(kind))
        return (
            drawn if drawn is not None else no_update, {} if drawn is not None else {"display": "none"},
            none, {"display": "none"} if drawn is not None else {"minHeight": 120},
            offered, over, names, part, {} if len(names) > 1 else {"display": "none"},
        )


def _drawn(cells: Any, kind: Any, over: str | None, name: str, part: Any, colours: Any) -> tuple[Any, list[str], str | None]:
    """The figure, the maps there are, and the one that is drawn."""
    if over is None:
        return None, [], None
    if kind != "map":
        return draw.curve(cells, over, name, colours), [], None
    found = draw.slices_of(cells, over, name)
    if not found:
        return None, [], None
    chosen = part if part in found else next(iter(found))
    return draw.heat(found[chosen], over, name, colours), list(found), chosen


def _needs(kind: Any) -> str:
    if kind == "map":
        return "A map needs two axes with several numbers, for example gamma 0.5:1:0.1 and k 1,2,3,4."
    return "A curve needs an axis with several numbers, for example device-tokens x0.5,x1,x2."


def _register_stage(app: Any, site: Site) -> None:
    @app.callback(
        Output("wi-stage", "disabled"),
        Input(f"{TABLE}-grid", "rowData"),
        Input("knob-shape", "data"),
    )
    def may_stage(rows: Any, shape: Any) -> Any:
        return not rows or not shape

    @app.callback(
        Output(_INPUTS, "value", allow_duplicate=True),
        Output("url", "pathname"),
        Output("wi-note", "children", allow_duplicate=True),
        Output("knob-result", "children", allow_duplicate=True),
        Input("wi-stage", "n_clicks"),
        State(f"{TABLE}-grid", "selectedRows"),
        State("url", "search"),
        State("prefs", "data"),
        State(_INPUTS, "id"),
        prevent_initial_call=True,
    )
    def stage(clicks: Any, selected: Any, search: Any, preferences: Any, ids: knob_form.Ids) -> Any:
        prefs = Prefs.read(preferences)
        result, _ = shown(site, prefs.page if prefs else "", search)
        place = _place(selected, result)
        if not clicks or result is None or place is None:
            return [no_update] * len(ids), no_update, "Select a row of the table first.", no_update
        knobs = site.watch.state.knobs
        staged, cannot = changes_of(result.cells[place].setting, {k.name: k.value for k in knobs})
        held = knob_form.controls(knobs, {**{k.name: k.value for k in knobs}, **staged})
        words = f"Not a knob of a running server: {', '.join(cannot)}." if cannot else ""
        return knob_form.by_id(ids, held, no_update), "/", words, words


def _place(selected: Any, result: Result | None) -> int | None:
    """The selected row, else the best one."""
    if result is None:
        return None
    if not selected:
        choice = choice_of(result)
        return choice.place if choice else None
    try:
        place = int(selected[0]["id"])
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return place if 0 <= place < len(result.cells) else None
