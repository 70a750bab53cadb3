"""Callbacks of the knob form. Edits go to the engine with the version the form was loaded from; the engine has the last word."""

import asyncio
import hmac
from dataclasses import dataclass
from typing import Any

from dash import ALL, Input, Output, State, no_update

from dashboards.knobs import card, form
from dashboards.knobs.form import Loaded
from dashboards.knobs.staging import describe, others
from dashboards.knobs.watch import Control
from dashboards.site import Site
from pbkv.errors import PbkvError, StaleVersion
from pbkv.knobs import Value

_INPUTS = {"type": "knob-input", "knob": ALL}
_NOWS = {"type": "knob-now", "knob": ALL}
_ROWS = {"type": "knob-row", "knob": ALL}
_ERRORS = {"type": "knob-error", "knob": ALL}
_GOOD, _BAD = "knob-result good", "knob-result bad"


def register(app: Any, site: Site) -> None:
    """Add the callbacks; a read-only page only shows values."""
    _register_form(app, site)
    if not site.readonly:
        _register_staging(app, site)
        _register_apply(app, site)


def _register_form(app: Any, site: Site) -> None:
    @app.callback(Output("knob-form", "children"), Output("knob-loaded", "data"), Input("knob-shape", "data"))
    def build(shape: Any) -> Any:
        control = site.watch.state
        if not shape or not control.knobs:
            return [], None
        return card.rows(control.knobs, readonly=site.readonly), Loaded.of(control).data()

    @app.callback(
        Output(_NOWS, "children"),
        Output(_INPUTS, "value"),
        Output("knob-loaded", "data", allow_duplicate=True),
        Input("knob-live", "data"),
        State(_NOWS, "id"),
        State(_INPUTS, "id"),
        State(_INPUTS, "value"),
        State("knob-loaded", "data"),
        prevent_initial_call=True,
    )
    def reload(live: Any, nows: form.Ids, ids: form.Ids, given: list[Any], data: Any) -> Any:
        control, loaded = site.watch.state, Loaded.read(data)
        shown = form.by_id(nows, {k.name: k.show(k.value) for k in control.knobs}, no_update)
        if loaded is None or not form.may_reload(control, loaded, form.typed(ids, given)):
            return shown, [no_update] * len(ids), no_update
        fresh = Loaded.of(control)
        return shown, form.by_id(ids, form.controls(control.knobs, fresh.values), no_update), fresh.data()


def _register_staging(app: Any, site: Site) -> None:
    @app.callback(
        Output(_ERRORS, "children"),
        Output(_ROWS, "className"),
        Output("knob-staged", "children"),
        Output("knob-staged", "className"),
        Output("knob-apply", "disabled"),
        Output("knob-discard", "disabled"),
        Input(_INPUTS, "value"),
        Input("knob-loaded", "data"),
        Input("knob-live", "data"),
        State(_INPUTS, "id"),
    )
    def stage(given: list[Any], data: Any, live: Any, ids: form.Ids) -> Any:
        text, now, may_apply = form.summary(site.watch.state, Loaded.read(data), form.typed(ids, given))
        classes = {**dict.fromkeys(now.changes, "knob-row staged"), **dict.fromkeys(now.errors, "knob-row invalid")}
        tone = "knob-staged" + (" some" if now.any else "")
        return form.by_id(ids, now.errors, ""), form.by_id(ids, classes, "knob-row"), text, tone, not may_apply, not now.any

    @app.callback(
        Output(_INPUTS, "value", allow_duplicate=True),
        Output("knob-loaded", "data", allow_duplicate=True),
        Output("knob-result", "children", allow_duplicate=True),
        Input("knob-discard", "n_clicks"),
        State(_INPUTS, "id"),
        prevent_initial_call=True,
    )
    def discard(clicks: Any, ids: form.Ids) -> Any:
        control = site.watch.state
        fresh = Loaded.of(control)
        return form.by_id(ids, form.controls(control.knobs, fresh.values), no_update), fresh.data(), ""


def _register_apply(app: Any, site: Site) -> None:
    @app.callback(
        Output("knob-result", "children"),
        Output("knob-result", "className"),
        Output("knob-loaded", "data", allow_duplicate=True),
        Output(_INPUTS, "value", allow_duplicate=True),
        Output("knob-reason", "value"),
        Input("knob-apply", "n_clicks"),
        State(_INPUTS, "id"),
        State(_INPUTS, "value"),
        State("knob-loaded", "data"),
        State("knob-actor", "value"),
        State("knob-reason", "value"),
        State("knob-token", "value"),
        prevent_initial_call=True,
        running=[(Output("knob-apply", "loading"), True, False)],
    )
    async def apply(clicks: Any, ids: form.Ids, given: list[Any], data: Any, actor: Any, reason: Any, token: Any) -> Any:
        control, loaded = site.watch.state, Loaded.read(data)
        _, now, _ = form.summary(control, loaded, form.typed(ids, given))
        if loaded is None or now.errors or not now.changes:
            return "Nothing was sent: stage a valid change first.", _BAD, no_update, [no_update] * len(ids), no_update
        request = Edit(loaded, now.changes, str(actor or "web")[:100], str(reason or "")[:100])
        outcome = await asyncio.to_thread(submit, site, request, token)
        site.watch.refresh()
        if outcome.loaded is None:
            return outcome.text, _BAD, no_update, [no_update] * len(ids), no_update
        filled = form.by_id(ids, form.controls(control.knobs, outcome.loaded.values), no_update)
        return outcome.text, _GOOD if outcome.applied else _BAD, outcome.loaded.data(), filled, "" if outcome.applied else no_update


@dataclass(frozen=True)
class Edit:
    """One press of Apply."""

    loaded: Loaded
    changes: dict[str, Value]
    actor: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What to tell the operator. `loaded`: what the form is to be refilled from; None leaves it as it is."""

    text: str
    applied: bool = False
    loaded: Loaded | None = None


def submit(site: Site, edit: Edit, token: object) -> Outcome:
    """Send an edit to the engine and put its answer in words. Never raises: every refusal is an outcome."""
    if site.readonly:
        return Outcome("This page is read-only.")
    if site.page_token is not None and not hmac.compare_digest(str(token or "").encode(), site.page_token.encode()):
        return Outcome("The token is not this page's: nothing was changed.")
    try:
        answer = site.watch.client(edit.actor).set(edit.changes, if_version=edit.loaded.version, reason=edit.reason)
    except StaleVersion:
        return _conflict(site, edit)
    except PbkvError as error:
        return Outcome(f"Not applied: {error}")
    knobs = site.watch.state.knobs
    text = f"Version {answer['version']} took effect at step {answer['step']:,}: {describe(knobs, edit.loaded.values, edit.changes)}"
    return Outcome(text, True, Loaded(int(answer["version"]), {**edit.loaded.values, **edit.changes}))


def _conflict(site: Site, edit: Edit) -> Outcome:
    lost = describe(site.watch.state.knobs, edit.loaded.values, edit.changes)
    try:
        client = site.watch.client(edit.actor)
        history, answer = client.history(), client.knobs()
        fresh = Loaded(int(answer["version"]), {name: k["value"] for name, k in answer["knobs"].items()})
    except PbkvError as error:
        return Outcome(f"Not applied: the knobs were changed meanwhile, and reading them again failed: {error}")
    text = (
        f"Not applied, the knobs were changed meanwhile: {others(history, edit.loaded.version)}. "
        f"The form shows version {fresh.version} now; your change was {lost}."
    )
    return Outcome(text, False, fresh)


def note(control: Control, *, recorded: bool, readonly: bool) -> str:
    """The sentence above the form: why it cannot be edited, or nothing."""
    if control.url is None:
        if recorded:
            return "A recording: knobs are changed on a running server. Name one with --server URL."
        return "No control address is known: the stream has not named one yet. Name it with --server URL."
    if control.error is not None:
        return f"{control.error} " + ("Values are the last ones read." if control.knobs else "") + " Editing is off until it answers."
    return "Read-only: this page was started with --readonly." if readonly else ""
