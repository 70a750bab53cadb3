"""Hypothesis without wall-clock deadlines and with fixed seeds: the machine may be busy, and a failure must repeat."""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
