"""Waiting for a condition with a deadline."""

import threading
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 30, what: str = "condition") -> None:
    """Until the condition holds; fails the test when it does not within `seconds`."""
    tick, left = threading.Event(), seconds
    while not condition():
        assert left > 0, f"{what} did not hold within {seconds} s"
        tick.wait(0.05)
        left -= 0.05
