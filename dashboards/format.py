"""Numbers as people read them: 12.3k tokens, 1.2 MiB, 340 ms, 71 %. Unknown is an en dash."""

from datetime import UTC, datetime, tzinfo

from collector.views.scale import COUNTS, SIZES, UNKNOWN, scaled


def _digits(value: float) -> str:
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def count(value: float) -> str:
    """A count or a number of tokens: 950, 12.3k, 4.1M."""
    shown, suffix = scaled(value, 1000, COUNTS)
    return f"{shown:.0f}" if not suffix else _digits(shown) + suffix


def size(value: float) -> str:
    """Bytes: 640 B, 1.2 MiB."""
    shown, unit = scaled(value, 1024, SIZES)
    return f"{shown:.0f} B" if unit == "B" else f"{_digits(shown)} {unit}"


def percent(share: float | None) -> str:
    """A fraction of 1: 71 %. A share that is small but not nothing never reads as 0 %."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.005:
        return "< 1 %"
    return f"{100 * share:.0f} %"


def millis(value: float | None) -> str:
    """Milliseconds: 0.4 ms, 34 ms, 1.24 s, 3.1 min."""
    if value is None:
        return UNKNOWN
    if value < 9.95:
        return f"{value:.1f} ms"
    if value < 999.5:
        return f"{value:.0f} ms"
    return f"{value / 1000:.2f} s" if value < 59_995 else f"{value / 60_000:.1f} min"


def age(seconds: float) -> str:
    """How long ago: 4 s, 12 min, 3 h, 5 d."""
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if seconds < limit:
            return f"{max(seconds, 0) / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def number(value: float) -> str:
    """A whole number with thousands separators: 12,345."""
    return f"{value:,.0f}"


def utc(moment: datetime) -> datetime:
    """`moment` as an aware UTC time; a naive one is UTC already."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def clock(moment: datetime, zone: tzinfo, with_date: bool = False) -> str:
    """Wall clock in the viewer's zone: 14:03:22, with the date where the day may differ."""
    return utc(moment).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def axis_time(moment: datetime, zone: tzinfo) -> str:
    """A point on a time axis. Plotly shows what it is given, so the zone is applied here and left off."""
    return utc(moment).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def plural(n: int, one: str, many: str | None = None) -> str:
    """1 message, 2 messages."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"
