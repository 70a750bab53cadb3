"""Numbers for narrow columns: 950, 12.3k, 1.2 MiB, 34 ms, 71%. Unknown is an en dash."""

from collector.views.scale import COUNTS, SIZES, UNKNOWN, scaled


def _digits(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def count(value: float) -> str:
    """A count or a number of tokens: 950, 12.3k, 4.1M."""
    shown, suffix = scaled(value, 1000, COUNTS)
    return _digits(shown) + suffix if suffix else f"{shown:.0f}"


def brief(value: float) -> str:
    """The same in at most four characters: 950, 1.2k, 12k, 4.1M."""
    shown, suffix = scaled(value, 1000, COUNTS)
    return f"{shown:.1f}{suffix}" if suffix and abs(shown) < 9.95 else f"{shown:.0f}{suffix}"


def size(value: float) -> str:
    """Bytes: 640 B, 1.2 MiB."""
    shown, unit = scaled(value, 1024, SIZES)
    return f"{shown:.0f} B" if unit == "B" else f"{_digits(shown)} {unit}"


def percent(share: float | None) -> str:
    """A fraction of 1: 71%. What is small but not nothing never reads as 0%, what is not all never as 100%."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"


def millis(value: float | None) -> str:
    """Milliseconds: 0.4 ms, 34 ms, 1.2 s, 3.1 min."""
    if value is None:
        return UNKNOWN
    if value < 9.95:
        return f"{value:.1f} ms"
    if value < 999.5:
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s" if value < 59_950 else f"{value / 60_000:.1f} min"


def age(seconds: float) -> str:
    """How long ago: 0.4s, 12s, 5m, 3h, 2d."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f}s"
    for limit, unit, name in ((99.5, 1, "s"), (5970, 60, "m"), (129_600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f}{name}"
    return f"{seconds / 86_400:.0f}d"


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells; the middle of a long one gives way, since names differ at their ends."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head):]


def knob_value(value: object, unit: str) -> str:
    """A knob's value with its unit, bytes scaled: 0.8, 3 steps, 64.0 MiB (of a step)."""
    if unit == "bytes per decode step" and isinstance(value, int | float):
        return size(value) if value else "0 (off)"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".strip()
