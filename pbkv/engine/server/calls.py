"""From a request's text and identity to the engine's request, and from what became of it to the numbers a client reads."""

import itertools
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pbkv.adapters import adapted_identity, program_in
from pbkv.engine.requests import EngineRequest, Finished, pages_of
from pbkv.engine.server.errors import BadRequest
from pbkv.engine.server.models import Identified
from pbkv.engine.server.text import PageIds, reply_to
from pbkv.errors import UsageError
from pbkv.identity import CallIdentity, identity_of

log = logging.getLogger("pbkv")
#: Seconds between two warnings about malformed identities.
_WARN_S = 10.0


@dataclass(frozen=True)
class Written:
    """A request under way and what it will write."""

    request: EngineRequest
    reply: bytes


class Calls:
    """Makes engine requests. `counts` is the cache manager's; malformed identities are served unattributed and counted there."""

    def __init__(self, pages: PageIds, context: int, counts: dict[str, int]) -> None:
        self._pages, self.context, self._counts = pages, context, counts
        self._ids = itertools.count(1)
        self._warned = -_WARN_S

    def make(
        self, asked: Identified, custom_params: Any, prompt: bytes, tokens: int, headers: Mapping[str, str] | None = None,
    ) -> Written:
        """Raises BadRequest when prompt and reply do not fit into the context."""
        if not prompt:
            raise BadRequest("the prompt is empty; expected at least one token")
        if len(prompt) + tokens > self.context:
            wanted = f"the prompt has {len(prompt)} tokens and {tokens} more are asked for"
            raise BadRequest(f"{wanted}; the context holds {self.context}: shorten one of them")
        identity = self._identity(asked, custom_params, headers or {})
        reply = reply_to(prompt, tokens)
        full, further = pages_of(len(prompt), tokens, self._pages.page_size)
        pages = self._pages.of(prompt + reply)
        return Written(EngineRequest(
            id=next(self._ids), workflow=identity.workflow if identity else "", agent=identity.agent if identity else "",
            final=identity is not None and identity.final, attributed=identity is not None, pages=pages[:full],
            prompt_tokens=len(prompt), output_tokens=tokens, output_pages=pages[full : full + further],
        ), reply)

    def _identity(self, asked: Identified, custom_params: Any, headers: Mapping[str, str]) -> CallIdentity | None:
        hints = asked.kv_hints.actions if asked.kv_hints else []
        try:
            own = identity_of(custom_params, [(a.action_type, a.payload) for a in hints], asked.session_id)
            return own or adapted_identity(headers, program_in({"program_id": asked.program_id, "extra_body": asked.extra_body}))
        except UsageError as error:
            self._counts["malformed"] += 1
            if (now := time.monotonic()) - self._warned >= _WARN_S:
                self._warned = now
                log.warning("a call is served but not attributed: %s", error)
            return None


def usage(written: Written, done: Finished) -> dict[str, Any]:
    """OpenAI's usage object; the two tiers stand beside the sum."""
    request = written.request
    return {
        "prompt_tokens": request.prompt_tokens, "completion_tokens": request.output_tokens,
        "total_tokens": request.prompt_tokens + request.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": done.device_hit + done.host_hit, "device": done.device_hit, "host": done.host_hit,
        },
    }
