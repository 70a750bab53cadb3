"""The time windows of the picker, as they stand in the URL: ?window=5m."""

#: text in the URL -> (label, seconds)
WINDOWS: dict[str, tuple[str, float]] = {"1m": ("1 min", 60.0), "5m": ("5 min", 300.0), "15m": ("15 min", 900.0), "1h": ("1 h", 3600.0)}
DEFAULT = "5m"


def seconds(text: object) -> float:
    """Length of a window in seconds; anything unknown is the default window."""
    known = WINDOWS.get(text) if isinstance(text, str) else None
    return (known or WINDOWS[DEFAULT])[1]
