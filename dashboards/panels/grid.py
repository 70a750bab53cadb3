"""The frame of a grid panel, themed with the page and keyed by row, so that a refresh keeps scroll, sort and filter."""

import json
from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import html

from dashboards.panels.panel import Props, header

Row = dict[str, Any]
#: Rows sent to a page; the CSV has all of them.
MAX_ROWS = 200
_ROW_PX, _HEAD_PX = 30, 38
#: Follows data-ag-theme-mode on the document, which the theme switch sets. dag.themes would load from a CDN.
_PARAMS = {
    "backgroundColor": "var(--c-panel)", "foregroundColor": "var(--c-text)", "borderColor": "var(--c-border)",
    "headerBackgroundColor": "var(--c-panel)", "headerTextColor": "var(--c-muted)", "chromeBackgroundColor": "var(--c-panel)",
    "oddRowBackgroundColor": "var(--c-panel)", "fontFamily": "inherit", "fontSize": 13, "headerFontSize": 12, "rowHeight": _ROW_PX,
    "headerHeight": _HEAD_PX - 6, "wrapperBorder": False, "wrapperBorderRadius": 0,
}  # fmt: skip
_THEME = {"function": f"themeQuartz.withPart(agGrid.colorSchemeVariable).withParams({json.dumps(_PARAMS)})"}


#: Never display: none: a grid without a width cannot lay out its columns.
_OUT_OF_SIGHT = {"height": 0, "overflow": "hidden", "visibility": "hidden"}


def column(field: str, name: str, **more: Any) -> dict[str, Any]:
    """A column; `tip` becomes the header tooltip."""
    tip = more.pop("tip", None)
    return {"field": field, "headerName": name, **({"headerTooltip": tip} if tip else {}), **more}


def number_column(field: str, name: str, shown: str, **more: Any) -> dict[str, Any]:
    """A column that sorts by the number in `field` and shows the text in the row's `shown`."""
    return column(
        field,
        name,
        type="rightAligned",
        filter=False,
        valueFormatter={"function": f"params.data.{shown}"},
        **more,
    )


def frame(
    name: str, title: str, meaning: str, columns: Sequence[dict[str, Any]], height: int, *, csv: bool = True, selectable: bool = False
) -> dmc.Paper:
    """The grid without rows. `csv`: with a link to its table; `selectable`: one row may be selected."""
    grid = dag.AgGrid(
        id=f"{name}-grid",
        columnDefs=list(columns),
        rowData=[],
        getRowId="params.data.id",
        # Not flex columns: ag-grid keeps their rows invisible until it has measured them, and at times never does.
        columnSize="responsiveSizeToFit",
        defaultColDef={"sortable": True, "resizable": True, "filter": True, "minWidth": 64},
        style={"height": height, "width": "100%"},
        dashGridOptions={
            "animateRows": False,
            "theme": _THEME,
            "tooltipShowDelay": 300,
            "enableCellTextSelection": True,
            "suppressCellFocus": False,
            **({"rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}} if selectable else {}),
        },
    )
    return dmc.Paper(
        [
            header(name, title, meaning, csv=csv),
            html.Div(grid, id=f"{name}-plot", style=_OUT_OF_SIGHT),
            html.Div("Waiting for data …", id=f"{name}-empty", className="empty", style={"minHeight": 90}),
        ],
        className="panel",
        id=f"{name}-panel",
    )


def props(name: str, height: int, rows: Sequence[Row], total: int, noun: str, empty: str) -> Props:
    """What changes with the data. With no rows a sentence stands where the grid would."""
    if not rows:
        return {
            f"{name}-summary": {"children": ""},
            f"{name}-plot": {"style": _OUT_OF_SIGHT},
            f"{name}-empty": {"children": empty, "style": {"minHeight": 90}},
            f"{name}-grid": {"rowData": []},
        }
    shown = f"{total:,} {noun}" if total <= len(rows) else f"{len(rows):,} of {total:,} {noun} shown, all in the CSV"
    return {
        f"{name}-summary": {"children": shown},
        f"{name}-plot": {"style": {}},
        f"{name}-empty": {"style": {"display": "none"}},
        f"{name}-grid": {"rowData": list(rows), "style": {"height": min(height, _HEAD_PX + _ROW_PX * len(rows)), "width": "100%"}},
    }
