"""Errors that a person sees: one sentence naming the field, the value, what was expected and what to do."""


class PbkvError(Exception):
    """Something failed that the user can act on; the command line prints it and exits 1."""

    exit_code = 1


class UsageError(PbkvError):
    """Bad input or usage; the command line prints it and exits 2."""

    exit_code = 2


class StaleVersion(UsageError):
    """The knob version named by the caller is not the current one (HTTP 409)."""


class Unreachable(PbkvError):
    """A server, collector or file that should answer does not; callers may retry."""
