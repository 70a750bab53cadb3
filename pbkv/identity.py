"""Who makes a call: workflow, agent, and whether it is the workflow's last. Hostile input is bounded here, once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pbkv.errors import UsageError

#: Longest workflow or agent name that is kept, characters; a longer one makes the identity malformed.
MAX_NAME = 256
#: Action type of a kv_hints action that carries an identity.
HINT_ACTION = "pbkv.step"
_FIELDS = frozenset({"workflow", "agent", "final"})


@dataclass(frozen=True)
class CallIdentity:
    """A call's workflow, its agent ("" = not named), and whether the workflow ends with it."""

    workflow: str
    agent: str = ""
    final: bool = False


def parse_payload(payload: object) -> CallIdentity:
    """The identity in {"workflow", "agent", "final"}. Raises UsageError that names the field, the value and what was expected."""
    if not isinstance(payload, Mapping):
        raise UsageError(f"pbkv: got {type(payload).__name__}, expected an object with workflow, agent and final")
    fields = cast(Mapping[Any, Any], payload)
    unknown = [k for k in fields if k not in _FIELDS]
    if unknown:
        raise UsageError(f"pbkv: {_show(unknown[0])} is no field of it; expected workflow, agent, final")
    final = fields.get("final", False)
    if not isinstance(final, bool):
        raise UsageError(f"pbkv.final = {_show(final)}: expected true or false")
    return CallIdentity(_name(fields.get("workflow"), "workflow"), _name(fields.get("agent", ""), "agent", empty=True), final)


def _name(value: object, field: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME or not (value or empty) or not _is_utf8(value):
        got = f"a string of {len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise UsageError(f"pbkv.{field}: got {got}, expected a string of {0 if empty else 1} to {MAX_NAME} characters that is valid UTF-8")
    return value


def _is_utf8(text: str) -> bool:
    """False for half a surrogate pair, which JSON can carry but messages between processes and event names cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _show(value: object) -> str:
    # Only short texts are shown: to print a hostile number or a deep list can itself fail.
    return ascii(value[:40]) if isinstance(value, str) else str(value) if isinstance(value, bool | float | None) else type(value).__name__


def session_workflow(session_id: str) -> str:
    """Name of the workflow a session stands for; the same for its calls and for its end."""
    return session_id[:MAX_NAME].encode(errors="replace").decode()


def identity_of(
    custom_params: object, hint_actions: Sequence[tuple[str, object]] = (), session_id: str | None = None
) -> CallIdentity | None:
    """First identity present: `custom_params["pbkv"]`, a kv_hints action, then the session as workflow. None = unattributed.

    Raises UsageError for a malformed one: it is not silently replaced by a weaker source.
    """
    if isinstance(custom_params, Mapping):
        fields = cast(Mapping[Any, Any], custom_params)
        if "pbkv" in fields:
            return parse_payload(fields["pbkv"])
    for action, payload in hint_actions:
        if action == HINT_ACTION:
            return parse_payload(payload)
    if session_id:
        return CallIdentity(session_workflow(session_id))
    return None
