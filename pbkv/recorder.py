"""Calls as training rows, kept for whoever comes for them: who called, and signals of what was said, never the text. Bounded, in memory."""

import base64
import time
from collections import deque
from typing import Any, NamedTuple

from pbkv.workflow import Workflow

#: Rows kept for the reader, and most handed over at a time.
MAX_ROWS, MAX_ANSWER = 16_384, 512
#: Seconds after which a reader that no longer asks is taken to be gone.
LEASE_S = 60.0


class Row(NamedTuple):
    """A call that has ended, or, with `end`, a workflow that has. `workflow` tells lives of one name apart."""

    workflow: int
    name: str
    step: int
    agent: str
    output_tokens: int
    prompt: bytes | None
    reply: bytes | None
    end: str = ""

    def plain(self, number: int) -> dict[str, Any]:
        """As JSON; signals in base64."""
        if self.end:
            return {"n": number, "w": self.workflow, "end": self.end}
        signals = {"prompt": _text(self.prompt), "reply": _text(self.reply)}
        return {"n": number, "w": self.workflow, "workflow": self.name, "step": self.step, "agent": self.agent,
                "output_tokens": self.output_tokens, **signals}


class Recorder:
    """The newest rows, numbered from 1. `signal` names the kind of the signals, empty = there are none."""

    def __init__(self, signal: str) -> None:
        self.signal = signal
        #: Tells this recording from others of the same server.
        self.epoch = time.time_ns()
        self.asked = 0.0
        self._rows: deque[Row] = deque(maxlen=MAX_ROWS)
        self._last = 0

    def call(
        self, workflow: Workflow, agent: str, step: int, output_tokens: int, prompt: bytes | None = None, reply: bytes | None = None,
    ) -> None:
        """A call has ended."""
        self._add(Row(workflow.name_id, workflow.name, step, agent, output_tokens, prompt, reply))

    def ended(self, workflow: Workflow, reason: str) -> None:
        """The workflow is over; its last call may be told after this."""
        self._add(Row(workflow.name_id, workflow.name, workflow.step, "", 0, None, None, reason))

    def _add(self, row: Row) -> None:
        self._rows.append(row)
        self._last += 1

    def since(self, epoch: int, after: int) -> dict[str, Any]:
        """Rows after number `after` of recording `epoch`; of another one, all there are. {"epoch", "signal", "rows", "lost", "more"}."""
        first = self._last - len(self._rows) + 1
        begin = max(first, after + 1 if epoch == self.epoch else 1)
        rows = [self._rows[n - first].plain(n) for n in range(begin, min(self._last + 1, begin + MAX_ANSWER))]
        lost = max(0, first - after - 1) if epoch == self.epoch else first - 1
        return {
            "epoch": self.epoch, "signal": self.signal, "rows": rows, "lost": lost, "more": begin + len(rows) <= self._last,
        }


def _text(signal: bytes | None) -> str | None:
    return None if signal is None else base64.b64encode(signal).decode()
