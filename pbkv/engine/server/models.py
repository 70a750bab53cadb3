"""Request bodies of the embedded engine. What the OpenAI API knows and this engine does not need is ignored, as SGLang does."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from pbkv.workloads.base import Message, Role

#: Messages in one chat, and parts in one message.
MAX_MESSAGES = 4096
#: Tokens written when the request does not say how many; there is no stop token.
DEFAULT_TOKENS = 128
#: Whose words a message counts as: a tool's answer reads like a user's.
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "tool": "user", "assistant": "assistant"}


class Part(BaseModel):
    """One part of a message; only text has tokens here."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None

    def plain(self) -> Message:
        """As workloads have it."""
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content[:MAX_MESSAGES])
        return Message(_ROLES[self.role], text)


class StreamOptions(BaseModel):
    """What a stream ends with."""

    include_usage: bool = False


class HintAction(BaseModel):
    """One action of SGLang's kv_hints."""

    action_type: str = ""
    payload: Any = None


class KvHints(BaseModel):
    """SGLang's kv_hints."""

    actions: list[HintAction] = Field(default_factory=list[HintAction], max_length=64)


class Identified(BaseModel):
    """Where a request may carry the identity of its call."""

    custom_params: Any = None
    kv_hints: KvHints | None = None
    session_id: str | None = None
    program_id: Any = None
    extra_body: Any = None


class ChatRequest(Identified):
    """POST /v1/chat/completions."""

    model: str = ""
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: Literal[1] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def tokens(self) -> int:
        """How many tokens are asked for."""
        return self.max_completion_tokens or self.max_tokens or DEFAULT_TOKENS


class Sampling(BaseModel):
    """SGLang's sampling_params, as far as they matter here."""

    max_new_tokens: int = Field(default=DEFAULT_TOKENS, ge=1)
    custom_params: Any = None


class GenerateRequest(Identified):
    """POST /generate: `text`, or `input_ids` (bytes)."""

    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: Sampling = Field(default_factory=Sampling)


class CloseSession(BaseModel):
    """POST /close_session."""

    session_id: str = Field(min_length=1)
