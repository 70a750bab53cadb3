"""The forecast beside what is staged in the knob form: one question per page, the newest counts."""

import asyncio
from typing import Any

from dash import ALL, Input, Output, State, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from dashboards.knobs import form
from dashboards.knobs.form import Loaded
from dashboards.page import Prefs
from dashboards.site import Site
from pbkv.errors import UsageError
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import Answer, Found
from pbkv.whatif.setting import KNOB_FIELDS
from pbkv.whatif.units import change, shown
from pbkv.whatif.words import NAMES, basis, give_or_take, setting_of, verdict

_INPUTS = {"type": "knob-input", "knob": ALL}
#: Figures of the card.
SHOWN = ("hit", "ttft_p95", "moved_bytes")
#: The longest that a page waits for an answer; reading a large log for the first time takes the most of it, s.
PATIENCE_S = 60.0


class Questions:
    """Who waits for what. One event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: dict[str, asyncio.Future[Answer | None]] = {}

    async def ask(self, page: str, knobs: Any) -> Answer | None:
        """The answer; None when a newer question of the page took its place."""
        self.drop(page)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer | None] = loop.create_future()
        self._waiting[page] = future

        def tell(answer: Answer) -> None:
            if answer.done:
                loop.call_soon_threadsafe(_settle, future, answer)

        try:
            # The first question starts the process; that is not the event loop's to wait for.
            await asyncio.to_thread(self._site.desk.quick.ask, page, (setting_of(knobs),), tell)
            return await asyncio.wait_for(future, PATIENCE_S)
        except UsageError as error:
            return Answer(error=str(error), done=True)
        except TimeoutError:
            self._site.desk.quick.withdraw(page)
            return Answer(error="no answer came in time; ask again", done=True)
        finally:
            if self._waiting.get(page) is future:
                del self._waiting[page]

    def drop(self, page: str) -> None:
        """Whoever waits for this page waits no more."""
        if (future := self._waiting.pop(page, None)) is not None:
            _settle(future, None)


def _settle(future: "asyncio.Future[Answer | None]", answer: Answer | None) -> None:
    if not future.done():
        future.set_result(answer)


def register(app: Any, site: Site) -> None:
    """Forecast what is staged, whenever that changes."""
    questions = Questions(site)

    @app.callback(
        Output("knob-forecast", "children"),
        Input(_INPUTS, "value"),
        Input("knob-loaded", "data"),
        State(_INPUTS, "id"),
        State("prefs", "data"),
        running=[(Output("knob-forecast", "className"), "knob-forecast busy", "knob-forecast")],
    )
    async def forecast(given: list[Any], data: Any, ids: form.Ids, preferences: Any) -> Any:
        prefs, loaded = Prefs.read(preferences), Loaded.read(data)
        if prefs is None or loaded is None:
            raise PreventUpdate
        _, now, _ = form.summary(site.watch.state, loaded, form.typed(ids, given))
        if now.errors or not any(name in KNOB_FIELDS for name in now.changes):
            questions.drop(prefs.page)
            site.desk.quick.withdraw(prefs.page)
            return unforecast(list(now.changes)) if now.changes and not now.errors else ""
        answer = await questions.ask(prefs.page, {**loaded.values, **now.changes})
        if answer is None:
            raise PreventUpdate
        return card(answer, [name for name in now.changes if name not in KNOB_FIELDS])


def unforecast(names: list[str]) -> Component:
    """What is staged makes no difference that a replay could find."""
    return html.Div(f"No forecast: {', '.join(names)} {'is' if len(names) == 1 else 'are'} no part of one.", className="forecast-note")


def card(answer: Answer, left: list[str]) -> list[Component]:
    """Present and forecast of three figures, or the reason why there is none."""
    found = answer.found.get(0, Found(setting_of({})))
    if answer.error or found.refused:
        return [html.Div(f"No forecast: {answer.error or found.refused}", className="forecast-note bad")]
    rows = [_row(name, found) for name in SHOWN if name in found.estimates]
    about = answer.about
    note = f"Forecast of the last {basis(about)}, replayed in {answer.took_s:.1f} s." if about else ""
    head = html.Tr([html.Th(text) for text in ("", "present", "forecast", "")])
    parts = [html.Table([html.Thead(head), html.Tbody(rows)], className="forecast-table"), html.Div(note, className="forecast-note")]
    return [*parts, *([unforecast(left)] if left else [])]


def _row(name: str, found: Found) -> Component:
    estimate, unit = found.estimates[name], FIGURES[name].unit
    words, sign = verdict(name, estimate)
    error = give_or_take(name, estimate)
    by = f"{change(estimate.change, unit)}, " if sign else ""
    return html.Tr(
        [
            html.Td(NAMES[name]),
            html.Td(shown(estimate.present, unit)),
            html.Td([html.Strong(shown(estimate.value, unit)), f" ±{error}" if error else ""]),
            html.Td(by + words, className={1: "better", -1: "worse", 0: "same"}[sign]),
        ]
    )
