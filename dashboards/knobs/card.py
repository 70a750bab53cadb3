"""The knob card: one row per knob with value, bounds, unit and meaning; editing controls unless the page is read-only."""

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from dashboards.knobs.spec import KnobSpec
from dashboards.knobs.staging import form_value


def ident(part: str, name: str) -> dict[str, str]:
    """Id of one part of a knob's row."""
    return {"type": f"knob-{part}", "knob": name}


def card(*, readonly: bool, ask_token: bool) -> dmc.Paper:
    """The card without knobs; the form is filled when the engine has described them."""
    return dmc.Paper(
        [
            html.Div(
                [html.H2("Knobs", className="panel-title"), html.Span("", id="knob-version", className="summary")], className="panel-head"
            ),
            html.Div(id="knob-note", className="knob-note"),
            html.Div(id="knob-form", className="knob-form"),
            html.Div(id="knob-past", className="knob-form"),
            *([] if readonly else [_footer(ask_token)]),
            dcc.Store(id="knob-shape"),
            dcc.Store(id="knob-live"),
            dcc.Store(id="knob-loaded"),
        ],
        className="panel knob-card",
        id="knob-panel",
    )


def _footer(ask_token: bool) -> html.Div:
    token = dmc.PasswordInput(id="knob-token", placeholder="token of this page", size="xs", **_label("Token"))
    return html.Div(
        [
            dmc.TextInput(
                id="knob-actor",
                placeholder="web",
                inputProps={"maxLength": 100},
                size="xs",
                persistence=True,
                **_label("Your name"),
            ),
            dmc.TextInput(
                id="knob-reason",
                placeholder="why, for the event log",
                inputProps={"maxLength": 100},
                size="xs",
                **_label("Reason"),
            ),
            token if ask_token else dcc.Input(id="knob-token", type="hidden"),
            html.Div("Nothing staged", id="knob-staged", className="knob-staged"),
            html.Div(id="knob-forecast", className="knob-forecast", role="status"),
            html.Div(
                [
                    dmc.Button("Apply", id="knob-apply", size="xs", disabled=True),
                    dmc.Button("Discard", id="knob-discard", size="xs", variant="default", disabled=True),
                ],
                className="knob-buttons",
            ),
            html.Div(id="knob-result", className="knob-result", role="status"),
        ],
        id="knob-footer",
        className="knob-footer",
        style={"display": "none"},
    )


def _label(text: str) -> dict[str, Any]:
    return {"label": text, "className": "knob-field"}


def rows(knobs: Sequence[KnobSpec], *, readonly: bool) -> list[Component]:
    """The form: values are filled in by the callbacks, so that a reload never rebuilds a control under someone's cursor."""
    return [_row(k, readonly) for k in knobs]


def _row(knob: KnobSpec, readonly: bool) -> Component:
    facts = [knob.bounds] if not knob.choices else []
    facts.append(f"default {knob.show(knob.default)}")
    return html.Div(
        [
            html.Div(
                [
                    html.Span(knob.name, className="knob-name"),
                    html.Span(knob.show(knob.value), id=ident("now", knob.name), className="knob-now", title="value in force"),
                    html.Span(knob.unit_text, className="knob-unit"),
                ],
                className="knob-line",
            ),
            *([] if readonly else [_control(knob)]),
            html.Div(f"{knob.meaning} ({', '.join(facts)})", className="knob-meaning"),
            html.Div("", id=ident("error", knob.name), className="knob-error", role="alert"),
        ],
        className="knob-row",
        id=ident("row", knob.name),
    )


#: Choices that fit beside the knob's name; more are offered in a list.
MOST_SIDE_BY_SIDE = 3


def _control(knob: KnobSpec) -> Component:
    common: dict[str, Any] = {
        "id": ident("input", knob.name),
        "size": "xs",
        "aria-label": f"{knob.name}: new value",
        "className": "knob-input",
    }
    value = form_value(knob, knob.value)
    if len(knob.choices) > MOST_SIDE_BY_SIDE:
        return dmc.Select(data=list(knob.choices), value=str(value), allowDeselect=False, **common)
    if knob.choices:
        return dmc.SegmentedControl(data=list(knob.choices), value=str(value), **{k: v for k, v in common.items() if k != "aria-label"})
    if knob.is_size:
        return dmc.TextInput(value=str(value), **common)
    # No debounce on any control: Apply reads what stands there at the click, and a value typed again after a reload must count as typed.
    # No clamping: a value out of bounds is shown as an error, never silently made another one.
    return dmc.NumberInput(value=value, min=knob.minimum, max=knob.maximum, step=_step(knob), clampBehavior="none", **common)


def _step(knob: KnobSpec) -> float:
    if knob.integer:
        return 1
    return 0.05 if (knob.maximum or 0) <= 1 else 1
