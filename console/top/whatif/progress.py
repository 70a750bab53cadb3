"""How far a grid is: a bar, counts, and the time left."""

import math

from rich.text import Text

from console.top.chart import share_bar
from console.top.palette import ACTIVE, MUTED, TEXT, WARN
from pbkv.whatif.question import Answer


def progress_line(answer: Answer, width: int) -> Text:
    """For an answer on its way."""
    if answer.about is None:
        return Text("reading the log …", WARN)
    done, total = len(answer.found), max(len(answer.settings), 1)
    left = f", {span(answer.left_s)} left" if not math.isnan(answer.left_s) else ""
    words = f" {done:,} of {total:,} settings{left}; esc stops and keeps them"
    return share_bar(done / total, max(10, min(40, width - len(words))), ACTIVE).append(words, TEXT if done else MUTED)


def span(seconds: float) -> str:
    """12 s, 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
