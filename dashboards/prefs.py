"""Window, pause, theme and time zone live in the browser: in the URL and its storage; the server only reads them."""

from typing import Any

from dash import ClientsideFunction, Input, Output


def _js(name: str) -> ClientsideFunction:
    return ClientsideFunction("pbkv", name)


def register(app: Any) -> None:
    """Wire the functions of assets/page.js."""
    app.clientside_callback(
        _js("window_in_url"),
        Output("url", "search"),
        Output("window", "value"),
        Input("url", "search"),
        Input("window", "value"),
    )
    app.clientside_callback(_js("scheme"), Output("mantine", "forceColorScheme"), Output("scheme", "children"), Input("scheme", "n_clicks"))
    app.clientside_callback(_js("pause"), Output("pause", "children"), Input("pause", "n_clicks"))
    app.clientside_callback(
        _js("view"),
        Output("board-view", "className"),
        Output("whatif-view", "className"),
        Output("to-board", "className"),
        Output("to-whatif", "className"),
        Input("url", "pathname"),
    )
    app.clientside_callback(
        _js("prefs"),
        Output("prefs", "data"),
        Input("url", "pathname"),
        Input("window", "value"),
        Input("pause", "n_clicks"),
        Input("mantine", "forceColorScheme"),
    )
    # The links follow the window by themselves: page.js reads it at the click.
