"""One line of the doctor's report."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """ok; warn = something optional is missing or unusual; fail = a command will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and, unless it is ok, what to do."""

    level: Level
    topic: str
    found: str
    todo: str = ""


def ok(topic: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(Level.OK, topic, found)


def warn(topic: str, found: str, todo: str) -> Finding:
    """Works without it, or works for now."""
    return Finding(Level.WARN, topic, found, todo)


def fail(topic: str, found: str, todo: str) -> Finding:
    """Has to be mended."""
    return Finding(Level.FAIL, topic, found, todo)
