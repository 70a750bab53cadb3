"""Numbers with units, as people type and read them."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal

COUNTS: Mapping[str, int] = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
SIZES: Mapping[str, int] = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}
SECONDS: Mapping[str, Decimal] = {"": Decimal(1), "us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "m": Decimal(60)}
SHARES: Mapping[str, Decimal] = {"": Decimal(1), "%": Decimal("0.01")}
PLAIN: Mapping[str, int] = {"": 1}
_NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,12})?|\.\d{1,12})\s*([A-Za-z%]*)")


def number(text: str, units: Mapping[str, int] | Mapping[str, Decimal]) -> Decimal | None:
    """A number that is not negative, in the smallest unit; None for anything else, NaN and infinity included."""
    match = _NUMBER.fullmatch(text.strip())
    unit = units.get(match[2]) if match else None
    return Decimal(match[1]) * unit if match and unit is not None else None


def units_of(unit: str) -> Mapping[str, int] | Mapping[str, Decimal]:
    """How a figure of this unit (pbkv.whatif.outcome) may be written."""
    return {"share": SHARES, "s": SECONDS, "bytes": SIZES, "1/s": PLAIN}.get(unit, COUNTS)


def shown(value: float, unit: str) -> str:
    """A figure for people: 52.1 %, 340 ms, 1.2 GiB, 4.1M; an en dash for what never happened."""
    if math.isnan(value):
        return "–"
    if unit == "share":
        return f"{round(100 * value, 1) + 0.0:.1f} %"  # never -0.0
    if unit == "s":
        return _time(value)
    return size(value) if unit == "bytes" else f"{value:.3g}/s" if unit == "1/s" else count(value)


def change(value: float, unit: str) -> str:
    """A difference with its sign; shares in points."""
    sign = "-" if value < 0 else "+"
    return f"{100 * value:+.1f}" if unit == "share" else sign + shown(abs(value), unit)


def size(value: float) -> str:
    """Bytes: 640 B, 1.2 MiB."""
    return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def count(value: float) -> str:
    """A count or tokens: 950, 12.3k, 4.1M."""
    return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def _time(seconds: float) -> str:
    if abs(seconds) < 5e-8:
        return "0 s"
    for limit, factor, unit in ((0.000_999_5, 1e6, "us"), (0.9995, 1e3, "ms"), (99.95, 1.0, "s")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds / 60:.1f} min" if abs(seconds) >= 600 else f"{seconds:.0f} s"


def _scaled(value: float, base: int, names: tuple[str, ...]) -> str:
    n = 0
    while abs(value) >= 0.9995 * base and n + 1 < len(names):
        value, n = value / base, n + 1
    return (f"{value:.1f}" if n and abs(value) < 99.95 else f"{value:.0f}") + names[n]
