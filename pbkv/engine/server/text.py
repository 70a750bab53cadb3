"""Text as tokens, one a byte: the chat template, page ids of a prompt, and what the engine "writes"."""

import hashlib
import random
import secrets
from collections.abc import Sequence

from pbkv.workloads.base import Message
from pbkv.workloads.text import prose

_OPENING = "<|assistant|>\n"


def chat_bytes(messages: Sequence[Message]) -> bytes:
    """The prompt of a chat, ending where the reply begins. A reply sent back as a message is the same bytes again, so its KV is reused."""
    turns = "".join(f"<|{m.role}|>\n{m.content}<|end|>\n" for m in messages)
    return (turns + _OPENING).encode(errors="replace")


def reply_to(prompt: bytes, tokens: int) -> bytes:
    """`tokens` bytes of ASCII prose; the same prompt gets the same reply."""
    seed = hashlib.blake2b(prompt, digest_size=8).digest()
    # Prose counts the space after its last sentence, which is not there.
    return prose(random.Random(int.from_bytes(seed, "little")), tokens + 1).encode()[:tokens]


class PageIds:
    """Names pages by their content: equal ids for equal bytes. The key is new in every process and never leaves it, so that ids in an
    event log tell nothing about the text.
    """

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self._key = secrets.token_bytes(16)

    def of(self, text: bytes) -> tuple[int, ...]:
        """Ids of the full pages of `text`, each 63 bits; a last page that is not full has none."""
        size, key = self.page_size, self._key
        return tuple(
            int.from_bytes(hashlib.blake2b(text[start : start + size], key=key, digest_size=8).digest(), "little") >> 1
            for start in range(0, len(text) - size + 1, size)
        )
