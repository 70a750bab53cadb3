"""A call as it enters the engine, as it runs, and as it leaves."""

from typing import NamedTuple

from pbkv.engine.node import Node
from pbkv.workflow import Workflow


class EngineRequest(NamedTuple):
    """One call. `pages` are the content ids of the prompt's full pages, `output_pages` those of the further full pages that prompt and
    output make together; the last output token has no KV (see `pages_of`). `max_tokens` 0 = the output's length is announced exactly.
    """

    id: int
    workflow: str
    agent: str
    pages: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    output_pages: tuple[int, ...] = ()
    final: bool = False
    attributed: bool = True
    max_tokens: int = 0
    text: object = None  #: text signal of the output, a vector of numbers, for predictors


def pages_of(prompt_tokens: int, output_tokens: int, page_size: int) -> tuple[int, int]:
    """(len(pages), len(output_pages)) a request must have."""
    prompt = prompt_tokens // page_size
    return prompt, (prompt_tokens + output_tokens - 1) // page_size - prompt


class Finished(NamedTuple):
    """An ended call. Times are engine seconds; hit tokens as at its first admission."""

    request: EngineRequest
    arrived: float
    admitted: float
    first_token: float
    ended: float
    device_hit: int
    host_hit: int
    output_tokens: int
    aborted: bool
    retracted: int


#: Where a call is.
WAITING, PREFILLING, DECODING, OVER = range(4)


class Call:
    """A call inside the engine."""

    __slots__ = (
        "request", "number", "announced", "where", "fill", "prefix", "done", "generated", "node", "fresh", "tree_pages", "allocated",
        "joined", "finish_step", "arrived", "admitted", "first_token", "device_hit", "host_hit", "retracted",
        "workflow", "agent", "step", "touched", "place",
    )

    node: Node

    def __init__(self, request: EngineRequest, number: int, arrived: float) -> None:
        self.request = request
        self.number = number  # order of entering the queue
        self.place = number  # order of arrival
        self.announced = max(request.max_tokens, request.output_tokens)  # output tokens the client said it may take
        self.where = WAITING
        self.fill = request.prompt_tokens  # tokens its prefill has to cover: the prompt, after a retraction also what it had generated
        self.prefix = request.pages  # full pages of `fill`
        self.done = 0  # tokens whose KV exists, up to the end of prefill
        self.generated = 0
        self.fresh = True  # nothing of this prefill is in the tree yet
        self.tree_pages = 0  # pages of its path that are the tree's, all locked
        self.allocated = 0  # pages its `done` tokens take, the tree's included
        self.joined = 0  # number of its joining the decoding calls
        self.finish_step = 0  # decode step at whose start its last token exists
        self.arrived = arrived
        self.admitted = self.first_token = -1.0
        self.device_hit = self.host_hit = 0
        self.retracted = 0
        self.workflow: Workflow | None = None
        self.agent = 0
        self.step = -1  # position in its workflow; -1 = not told to the manager yet
        self.touched: Node | None = None  # end of the path that the manager was told of

    def again(self) -> None:
        """Back to the queue after a retraction: the next prefill covers what it has generated, too."""
        self.retracted += 1
        self.where, self.done, self.touched = WAITING, 0, None
        self.fill = self.request.prompt_tokens + self.generated
        self.prefix = self.request.pages + self.request.output_pages

    def page_ids(self, start: int, stop: int) -> tuple[int, ...]:
        """Content ids of pages `start` to `stop` of prompt and output."""
        request = self.request
        prompt = len(request.pages)
        if stop <= prompt:
            return request.pages[start:stop]
        if start >= prompt:
            return request.output_pages[start - prompt : stop - prompt]
        return request.pages[start:] + request.output_pages[: stop - prompt]
