"""The form of a grid: an axis to a line, and by what the best setting is named."""

from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Grid, Horizontal
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label

from console.top.palette import MUTED
from pbkv.errors import UsageError
from pbkv.knobs import HOST_ORDERS, POLICIES, PREFETCH_MODES
from pbkv.whatif.choice import Limit, parse_figure, parse_limits
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.service import MOST_SPAN_S
from pbkv.whatif.units import SECONDS, number

#: Axis -> what it is called on the screen, and an example.
AXES = {
    "policy": ("policy", "lru,he,first_use"),
    "device_tokens": ("device-tokens", "x0.5,x1,x2"),
    "gamma": ("gamma", "0.5:1:0.1"),
    "host_tokens": ("host-tokens", "x0.5,x1,x2"),
    "k": ("k", "1,2,3,4"),
    "concurrency": ("concurrency", "16,32"),
    "prefetch_budget": ("budget", "0,64MiB,link"),
    "prefetch": ("prefetch", "off,conservative"),
    "host_order": ("host-order", "recency,score"),
}
_MORE = {"last": ("last", "10m"), "under": ("under", "ttft_p95<800ms"), "best": ("best", "moved_bytes")}
#: What the form begins with.
DEFAULTS = {"policy": "lru,lae,he,first_use", "gamma": "0.6:1:0.2", "k": "1,3,5", "last": "10m", "best": "hit"}
_WORDS = {
    "policy": POLICIES, "prefetch": PREFETCH_MODES, "host_order": HOST_ORDERS, "best": [f.name for f in FIGURES.values() if f.better],
}


@dataclass(frozen=True)
class Asked:
    """What the form says."""

    axes: dict[str, str]
    span_s: float
    limits: tuple[Limit, ...]
    under: str
    best: str


class Form(Grid):
    """Two columns of lines. `texts`: field -> text, kept by the app while the screen is closed."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__(id="grid-form")
        self._texts = texts

    def compose(self) -> ComposeResult:
        for field, (label, example) in {**AXES, **_MORE}.items():
            with Horizontal(classes="field"):
                yield Label(Text(f"{label:>13} ", MUTED))
                yield Input(
                    self._texts.get(field, ""), id=f"field-{field}", placeholder=example, compact=True, max_length=200,
                    select_on_focus=False, suggester=SuggestFromList(_WORDS[field]) if field in _WORDS else None,
                )

    def on_input_changed(self, event: Input.Changed) -> None:
        assert event.input.id is not None
        self._texts[event.input.id.removeprefix("field-")] = event.value

    def fill(self, texts: dict[str, str]) -> None:
        """Put these texts into the lines and empty the others."""
        for box in self.query(Input):
            assert box.id is not None
            box.value = texts.get(box.id.removeprefix("field-"), "")

    def asked(self) -> Asked:
        """Raises UsageError for what can be told to be wrong here."""
        texts = {field: text for field, value in self._texts.items() if (text := value.strip())}
        axes = {field: texts[field] for field in AXES if field in texts}
        under, best = texts.get("under", ""), texts.get("best", DEFAULTS["best"])
        return Asked(axes, _span(texts.get("last", DEFAULTS["last"])), parse_limits(under), under, parse_figure(best))


def _span(text: str) -> float:
    seconds = number(text, {**SECONDS, "h": 3600})  # pyright: ignore[reportArgumentType]
    if seconds is None or not 1 <= seconds <= MOST_SPAN_S:
        raise UsageError(f"last {text!r}: expected a time such as 90s, 10m or 2h, up to {MOST_SPAN_S / 3600:g}h")
    return float(seconds)
