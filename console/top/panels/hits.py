"""Hit rate by tier now and over time, and time to first token."""

from datetime import timedelta

from rich.text import Text
from textual.app import ComposeResult
from textual.reactive import reactive
from textual_plot import AxisFormatter, HiResMode, PlotWidget

from collector.views.models import HitPoint, Overview
from console.top.chart import share_bar, spark
from console.top.format import age, count, millis, percent
from console.top.guard import has_charts
from console.top.palette import DEVICE, HOST, MUTED, TEXT, WARN
from console.top.panels.base import Framed, Panel, View, facts


class HitNumbers(Panel, can_focus=False):
    """The four lines of numbers; its frame is the panel's."""

    def caption(self, text: str = "", count: str = "") -> None:
        return

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        rate = overview.hit_rate
        return [
            self._tier(overview, "device", rate.device, DEVICE, width),
            self._tier(overview, "host", rate.host, HOST, width),
            facts(("TTFT p50", millis(rate.ttft_p50_ms), TEXT), ("p95", millis(rate.ttft_p95_ms), TEXT)),
            self._calls(overview),
        ]

    def _tier(self, overview: Overview, tier: str, share: float | None, colour: str, width: int) -> Text:
        line = Text.assemble((f"{tier:<7}", colour), (f"{percent(share):>5} ", f"bold {TEXT}" if share is not None else MUTED))
        if has_charts(self):
            return line.append_text(share_bar(share, width - line.cell_len, colour))
        values = _columns(overview, tier, width - line.cell_len)
        return line.append_text(spark(values, colour))

    def _calls(self, overview: Overview) -> Text:
        rate = overview.hit_rate
        line = facts(("calls", count(rate.calls), TEXT), ("prompt", f"{count(rate.prompt_tokens)} tok", TEXT))
        if rate.unattributed_calls:
            line.append(f"  {count(rate.unattributed_calls)} anon", WARN)
        return line


def _columns(overview: Overview, tier: str, width: int) -> list[float | None]:
    """Hit rates of `tier` in `width` equal parts of the window; None where no call ended."""
    start = overview.now - timedelta(seconds=overview.window_s)
    width = max(width, 1)
    tokens, hits = [0.0] * width, [0.0] * width
    for point in overview.hit_series:
        at = min(max(int((point.t - start).total_seconds() / overview.window_s * width), 0), width - 1)
        tokens[at] += point.calls
        hits[at] += point.calls * (point.device if tier == "device" else point.host)
    return [h / n if n else None for h, n in zip(hits, tokens, strict=True)]


class _Ago(AxisFormatter):
    """Ticks at seconds before now."""

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        return [min_ + (max_ - min_) * part / 4 for part in range(5)]

    def get_labels_for_ticks(self, ticks: object) -> list[str]:
        assert isinstance(ticks, list)
        return ["now" if not t else f"-{age(abs(float(t)))}".replace(".0s", "s") for t in ticks]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class _Percent(AxisFormatter):
    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        return [0.0, 50.0, 100.0]

    def get_labels_for_ticks(self, ticks: object) -> list[str]:
        return ["0%", "50%", "100%"]


class HitChart(PlotWidget, can_focus=False):
    """Hit rate of both tiers together (host colour) and of the device alone, over the window."""

    def __init__(self) -> None:
        super().__init__(id="hit-chart", allow_pan_and_zoom=False)

    def on_mount(self) -> None:
        self.margin_top, self.margin_bottom, self.margin_left = 0, 2, 6
        self.set_x_formatter(_Ago())
        self.set_y_formatter(_Percent())

    def draw(self, overview: Overview) -> None:
        """Replace the lines by those of `overview`."""
        self.clear()
        self.set_xlimits(-overview.window_s, 0)
        self.set_ylimits(0, 100)
        x = [(p.t - overview.now).total_seconds() for p in overview.hit_series]
        for value, colour in ((_both, HOST), (_device, DEVICE)):
            if x:
                self.plot(x, [100 * value(p) for p in overview.hit_series], colour, HiResMode.BRAILLE)


def _both(point: HitPoint) -> float:
    return point.device + point.host


def _device(point: HitPoint) -> float:
    return point.device


class HitsPanel(Framed, can_focus=True):
    """Panel 2: numbers, and on a large screen the chart under them."""

    heading = "Hit rate"

    view: reactive[View] = reactive(View())

    def __init__(self, digit: int, *, id: str) -> None:
        super().__init__(id=id, classes="panel")
        self.digit = digit

    def on_mount(self) -> None:
        self.caption()

    def compose(self) -> ComposeResult:
        numbers = HitNumbers(0, id="hit-numbers")
        numbers.remove_class("panel")
        yield numbers
        yield HitChart()

    def watch_view(self, view: View) -> None:
        if not self.is_mounted or not self.children:
            return
        self.query_one(HitNumbers).view = view
        chart = self.query_one(HitChart)
        # An invisible chart costs nothing.
        if chart.display and view.overview is not None:
            chart.draw(view.overview)
        self.border_subtitle = f"[{DEVICE}]device[/]  [{HOST}]device+host[/]" if chart.display else None


