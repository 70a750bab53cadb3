"""The name of a recording by its content: equal recordings have equal digests, in every process."""

import hashlib
import marshal
from dataclasses import fields

from pbkv.whatif.recording import Recording

#: Of marshal, the last one that writes equal objects the same whether or not they are shared.
_PLAIN_FORMAT = 2


def digest(recording: Recording) -> str:
    """32 hexadecimal digits over everything a replay of the recording depends on."""
    found = hashlib.blake2b(digest_size=16)
    for workflow in recording.workflows:
        found.update(repr((workflow._replace(calls=()), len(workflow.calls))).encode())
        for call in workflow.calls:
            found.update(marshal.dumps(tuple(call[:9]), _PLAIN_FORMAT))
            found.update(repr(call[9:]).encode())
    for field in fields(recording):
        if field.name not in ("name", "workflows", "engine", "knobs", "measured"):
            found.update(repr((field.name, getattr(recording, field.name))).encode())
    found.update(repr((recording.engine, sorted(recording.knobs.items()), sorted(recording.measured.items()))).encode())
    return found.hexdigest()
