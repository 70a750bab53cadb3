"""Identities as other systems write them: Dynamo's session headers and ThunderAgent's `program_id`. Read where HTTP requests come in."""

from collections.abc import Mapping
from typing import Any, cast

from pbkv.errors import UsageError
from pbkv.identity import CallIdentity, session_workflow

#: Dynamo ("Session IDs" in its documentation): one id per reasoning chain, a subagent has its own; `true` on a chain's last request.
SESSION_HEADER = "x-dynamo-session-id"
FINAL_HEADER = "x-dynamo-session-final"
#: ThunderAgent: a field of the body, or of an `extra_body` that was sent as it stands.
PROGRAM_FIELD = "program_id"
_TRUE = frozenset({"1", "true", "yes", "on", "enabled"})
#: A whole number as `program_id` is taken by its digits, up to this size.
_MOST = 1 << 63


def adapted_identity(headers: Mapping[str, str], program: object = None) -> CallIdentity | None:
    """The identity in a request's `headers` (names in lower case), else that of its `program_id`; None when there is neither.

    For requests without an identity of PBKV's or SGLang's own. Raises UsageError for a `program_id` of the wrong kind.
    """
    session = headers.get(SESSION_HEADER, "").strip()
    # Dynamo reads visible ASCII alone and takes anything else for absent.
    if session and session.isascii():
        return CallIdentity(session_workflow(session), final=headers.get(FINAL_HEADER, "").strip().lower() in _TRUE)
    return None if program is None else CallIdentity(program_workflow(program))


def program_workflow(program: object) -> str:
    """Name of the workflow a program stands for; the same for its calls and for its release. Raises UsageError."""
    if isinstance(program, int) and not isinstance(program, bool) and abs(program) < _MOST:
        program = str(program)
    if not isinstance(program, str) or not program:
        got = "an empty string" if program == "" else type(program).__name__
        raise UsageError(f"{PROGRAM_FIELD}: got {got}, expected a string or a whole number")
    return session_workflow(program)


def program_in(body: object) -> object:
    """`program_id` of a decoded body, None when it has none."""
    fields = _fields(body)
    found = fields.get(PROGRAM_FIELD)
    return _fields(fields.get("extra_body")).get(PROGRAM_FIELD) if found is None else found


def _fields(value: object) -> Mapping[Any, Any]:
    return cast(Mapping[Any, Any], value) if isinstance(value, Mapping) else {}
