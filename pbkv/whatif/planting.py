"""Puts the recorded content of a cache into a fresh engine, before the first call."""

from pbkv.engine.engine import Engine
from pbkv.whatif.recording import Recording


def plant(engine: Engine, recording: Recording) -> None:
    """The warm nodes that fit, in the order of their last accesses."""
    if not recording.warm_nodes:
        return
