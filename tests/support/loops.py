"""Running coroutines in tests."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a loop of its own in a thread of its own: browser tests leave their loop running in the thread of the tests."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(test())).result()
