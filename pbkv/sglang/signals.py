"""Text signals of the calls of a SGLang server, on the one rank that predicts.

Hidden states are projected on the device as they arise, so that a step copies SIGNAL numbers a request; ids are hashed where a call begins
and ends. Nothing here decides anything, and what fails here ends the signals alone: other ranks have none and must go on alike.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.auxiliary_output import append_auxiliary_output

from pbkv.predictor.signal import Signal, of_ids, projection, quantised
from pbkv.sglang.sources import Source

if TYPE_CHECKING:
    from pbkv.sglang.calls import Call
    from pbkv.sglang.runtime import Runtime

log = logging.getLogger("pbkv")


@dataclass
class _Over:
    """A call that ended in this step; what its last token says arrives later in the same step."""

    req: Any
    call: "Call"
    reply: Signal | None = None


class Signals:
    """`feeds`: the predictor reads them. They are taken while it does, or a recording is kept."""

    def __init__(self, runtime: "Runtime", source: Source, *, feeds: bool) -> None:
        self._runtime, self.source, self._feeds = runtime, source, feeds
        self.fault = ""
        self._over: dict[int, _Over] = {}
        self._matrix: Any = None
        self._watching = False
        self.update()

    @property
    def active(self) -> bool:
        """Whether anybody wants them."""
        return not self.fault and (self._feeds or self._runtime.recorder is not None)

    def update(self) -> None:
        """Begin or cease to look at the model's output. While nobody wants it, the model runner is untouched."""
        wanted = self.active and self.source.runner is not None
        if wanted == self._watching:
            return
        self._watching, runner = wanted, self.source.runner
        if wanted:
            runner.sample = _observed(runner.sample, self._observe)
        else:
            del runner.sample

    # ---- hidden states -----------------------------------------------------------------------------------------------------

    def _observe(self, logits_output: Any, forward_batch: Any) -> None:
        self._quietly(self._project, logits_output, forward_batch)

    def _project(self, logits_output: Any, forward_batch: Any) -> None:
        hidden, size = logits_output.hidden_states, int(forward_batch.batch_size)
        if hidden is None or len(hidden) < size:
            return
        if self._matrix is None or self._matrix.dtype != hidden.dtype:
            width = hidden.shape[-1]
            # Scaled so that the products are about as large as what goes in, whatever the type holds.
            self._matrix = (torch.as_tensor(projection(width)) / width**0.5).to(hidden.device, hidden.dtype)
        # The product is new memory: the rows themselves may be overwritten by the next replay of a graph.
        rows = _DeviceRows(hidden[:size] @ self._matrix, self._arrived)
        logits_output.auxiliary_device_output = append_auxiliary_output(logits_output.auxiliary_device_output, rows)

    def _arrived(self, batch: Any, commits: Sequence[Any], rows: Any) -> None:
        self._quietly(self._take, batch.reqs, commits, rows)

    def _take(self, reqs: Sequence[Any], commits: Sequence[Any], rows: Any) -> None:
        """A row without a commit belongs to a chunk that is not the last, or to a call that was over before."""
        for n, (req, commit) in enumerate(zip(reqs, commits, strict=True)):
            if commit is None:
                continue
            over = self._over.get(id(req))
            if over is None and commit.output_index:
                continue
            signal = quantised(rows[n].float().numpy())
            if not commit.output_index:
                self._heard(req, over.call if over else req.__dict__.get("pbkv_call"), signal)
            if over is not None:
                over.reply = signal

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def began(self, req: Any, call: "Call") -> None:
        """The call's first checkpoint; with hidden states, what its prompt says arrives with the end of its prefill."""
        if self.active:
            self._quietly(self._began, req, call)

    def _began(self, req: Any, call: "Call") -> None:
        self._heard(req, call, of_ids(req.origin_input_ids) if self.source.runner is None else None)

    def _heard(self, req: Any, call: "Call | None", signal: Signal | None) -> None:
        req.pbkv_heard = signal
        if self._feeds and call is not None and call.workflow is not None:
            call.workflow.text = signal

    def ended(self, req: Any, call: "Call") -> None:
        """The call is over."""
        if self.active and call.ran and call.workflow is not None:
            self._over[id(req)] = _Over(req, call)

    def settle(self) -> None:
        """At the end of a step: whatever arrives of the calls that ended in it has arrived."""
        if self._over:
            over, self._over = self._over, {}
            for one in over.values():
                self._quietly(self._settle, one)

    def _settle(self, over: _Over) -> None:
        req, call = over.req, over.call
        assert call.workflow is not None
        reply = over.reply if self.source.runner is not None else of_ids(req.output_ids)
        if self._feeds:
            call.workflow.text = reply
        if recorder := self._runtime.recorder:
            heard = req.__dict__.get("pbkv_heard")
            recorder.call(call.workflow, call.agent_name, call.step, len(req.output_ids), _bytes(heard), _bytes(reply))

    def _quietly(self, work: Callable[..., None], *args: Any) -> None:
        if self.fault:
            return
        try:
            work(*args)
        except Exception as error:
            self.fault = f"{work.__qualname__}: {type(error).__name__}: {error}"[:200]
            log.exception("pbkv takes no text signals any more in this process; predictions go on without")
            self._over.clear()
            self.update()


class _DeviceRows:
    """SGLang's `DeviceAuxiliaryOutput`: [requests, SIGNAL] on the device."""

    def __init__(self, rows: Any, arrived: Callable[[Any, Sequence[Any], Any], None]) -> None:
        self._rows, self._arrived = rows, arrived

    def copy_to_host(self, copy_tensor: Callable[[Any], Any]) -> "_HostRows":
        return _HostRows(copy_tensor(self._rows), self._arrived)


class _HostRows:
    """SGLang's `HostAuxiliaryOutput`; rows are aligned with the batch."""

    def __init__(self, rows: Any, arrived: Callable[[Any, Sequence[Any], Any], None]) -> None:
        self._rows, self._arrived = rows, arrived

    def consume(self, batch: Any, commits: Sequence[Any]) -> None:
        self._arrived(batch, commits, self._rows)


def _observed(sample: Callable[..., Any], observe: Callable[[Any, Any], None]) -> Callable[..., Any]:
    def sample_and_observe(logits_output: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        tokens = sample(logits_output, forward_batch, *args, **kwargs)
        observe(logits_output, forward_batch)
        return tokens

    return sample_and_observe


def _bytes(signal: Signal | None) -> bytes | None:
    return None if signal is None else signal.tobytes()
