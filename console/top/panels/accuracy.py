"""How often the predicted agent was the one that came, by steps ahead."""

from rich.text import Text

from collector.views.models import Overview, StepAccuracy
from console.top.chart import share_bar
from console.top.format import count, percent
from console.top.palette import GOOD, MUTED, TEXT, WARN
from console.top.panels.base import Panel


class AccuracyPanel(Panel):
    """Panel 3. Horizons beyond the knob k are predicted but not used; they are drawn muted."""

    heading = "Predictor"

    def summary(self, overview: Overview) -> str:
        return _summary(overview, self.view.horizon)

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        rows = overview.accuracy
        if not rows:
            return [Text("no prediction has met its outcome yet", MUTED)]
        if len(rows) <= height:
            return [self._row(r, width, count(r.scored)) for r in rows]
        per_column = -(-len(rows) // 2)
        half = (width - 2) // 2
        left, right = rows[:per_column], rows[per_column:]
        lines: list[Text] = []
        for i, row in enumerate(left):
            line = self._row(row, half)
            if i < len(right):
                line = Text.assemble(line, "  ", self._row(right[i], half))
            lines.append(line)
        return lines

    def _row(self, row: StepAccuracy, width: int, tail: str = "") -> Text:
        k = self.view.horizon
        used = k is None or row.horizon <= k
        top1 = row.top1 or 0.0
        colour = (GOOD if top1 >= 0.5 else WARN) if used else MUTED
        line = Text.assemble((f"+{row.horizon} ", TEXT if used else MUTED), (f"{percent(row.top1):>4} ", f"bold {TEXT}" if used else MUTED))
        tail = f" of {tail}" if tail else ""
        line.append_text(share_bar(row.top1, width - line.cell_len - (12 if tail else 0), colour))
        return line.append(f"{tail:>12}" if tail else "", MUTED)


def _summary(overview: Overview, k: int | None) -> str:
    ends = sum(a.end_share * a.scored for a in overview.accuracy)
    scored = sum(a.scored for a in overview.accuracy)
    parts = [f"k={k}"] if k is not None else []
    if scored:
        parts.append(f"{percent(ends / scored)} of outcomes END")
    return "  ".join(parts)
