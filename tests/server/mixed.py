"""Mixed requests as agents make them, and a player that sends them to a server and keeps every answer.

A step is what is sent at once: mostly one request, sometimes a fan-out of one workflow, sometimes one that is aborted meanwhile. Steps
follow each other, so the same steps give a greedy server the same answers, whatever its cache does.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.support.server import Server

AGENTS = ("plan", "code", "test", "review")
#: What a request is sent as, and how often.
KINDS = {"generate": 5, "chat": 2, "stream": 2, "chat_stream": 1}


@dataclass(frozen=True)
class Ask:
    """One request. `tokens` is its prompt, for chat the letters of its text; `who` = custom_params.pbkv, kv_hints, or session_id."""

    kind: str
    tokens: tuple[int, ...]
    n: int
    who: str = ""
    identity: dict[str, Any] = field(default_factory=dict[str, Any])
    aborted: bool = False


@dataclass(frozen=True)
class Step:
    """Requests sent at once; `closes` is a session that is closed afterwards."""

    asks: tuple[Ask, ...]
    closes: str = ""


def mixed(seed: int, count: int, *, pool: int = 3072, live: int = 3, context: int = 420) -> list[Step]:
    """Steps with at least `count` requests that are answered. About `live` workflows at a time over a device pool of `pool` tokens, so that
    with some 3 agents of `context` tokens each they do not fit.
    """
    return list(_Maker(random.Random(seed), seed, pool, live, context).steps(count))


class _Maker:
    def __init__(self, rng: random.Random, seed: int, pool: int, live: int, context: int) -> None:
        self.rng, self.seed, self.pool, self.count, self.context = rng, seed, pool, live, context
        self.common = self.random(64)
        self.live: list[_Workflow] = []
        self.made = 0

    def random(self, length: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(256) for _ in range(length))

    def steps(self, count: int) -> Iterator[Step]:
        answered = 0
        while answered < count:
            step = self._step()
            answered += sum(not a.aborted for a in step.asks)
            yield step

    def _step(self) -> Step:
        roll, rng = self.rng.random(), self.rng
        if roll < 0.08:  # nobody's, short
            return Step((Ask("generate", self.common + self.random(rng.randrange(1, 60)), rng.randrange(1, 8)),))
        if roll < 0.11:  # nobody's, longer than several chunks of prefill
            return Step((Ask("generate", self.random(rng.randrange(self.pool // 3, self.pool // 2)), 4),))
        workflow = self._workflow()
        if roll < 0.17:
            return Step(tuple(workflow.ask(branch=True) for _ in range(rng.randint(2, 10))))
        if roll < 0.27:
            return Step((workflow.ask(), workflow.ask(aborted=True)))
        final = workflow.calls >= 8
        if final:
            self.live.remove(workflow)
        return Step((workflow.ask(final=final),), workflow.name if final and workflow.who == "session" else "")

    def _workflow(self) -> "_Workflow":
        if len(self.live) < self.count:
            self.made += 1
            self.live.append(_Workflow(self, f"m{self.seed}-{self.made}", ("custom", "session", "hints")[self.made % 3]))
        return self.rng.choice(self.live)


class _Workflow:
    def __init__(self, maker: _Maker, name: str, who: str) -> None:
        self.maker, self.name, self.who, self.calls = maker, name, who, 0
        self.kinds = [k for k in KINDS if who != "hints" or not k.startswith("chat")]  # chat requests cannot carry hints
        self.prompts: dict[str, tuple[int, ...]] = {}

    def ask(self, *, branch: bool = False, final: bool = False, aborted: bool = False) -> Ask:
        """The next call: an agent's last prompt, grown; a branch starts from the first agent's and is not kept."""
        rng, maker = self.maker.rng, self.maker
        agent = AGENTS[self.calls % 3] if not branch else rng.choice(AGENTS)
        start = AGENTS[0] if branch else agent
        prompt = self.prompts.get(start) or maker.common + maker.random(rng.randrange(maker.context // 2, maker.context))
        prompt = (prompt + maker.random(rng.randrange(10, 60)))[-maker.pool // 3 :]
        if not branch and not aborted:
            self.prompts[agent] = prompt
            self.calls += 1
        kind = "generate" if aborted else rng.choices(self.kinds, [KINDS[k] for k in self.kinds])[0]
        identity = {"workflow": self.name, "agent": agent, "final": final}
        return Ask(kind, prompt, 200 if aborted else rng.randrange(2, 32), self.who, identity, aborted)


# ---- sending ---------------------------------------------------------------------------------------------------------------------


def play(server: Server, steps: Sequence[Step], between: Callable[[int], None] = lambda n: None) -> list[Any]:
    """Every answer in the order of the requests; aborted ones count for nothing. `between(n)` runs before step n."""
    answers: list[Any] = []
    with ThreadPoolExecutor(12) as threads:
        for number, step in enumerate(steps):
            between(number)
            sent = [(ask, threads.submit(_send, server.url, ask, f"{number}-{n}")) for n, ask in enumerate(step.asks)]
            for n, (ask, future) in enumerate(sent):
                while ask.aborted and not wait([future], 0.05).done:  # SGLang forgets an abort that is faster than its request
                    _post(server.url, "/abort_request", {"rid": f"{number}-{n}"})
            answers += [answer for ask, future in sent if (answer := future.result()) is not None and not ask.aborted]
            if step.closes:
                _post(server.url, "/close_session", {"session_id": step.closes})
    return answers


def _send(url: str, ask: Ask, rid: str) -> Any:
    body, path = _chat(ask) if ask.kind.startswith("chat") else _generate(ask, rid)
    answer = _post(url, path, body)
    if ask.aborted:
        return None
    assert answer.status_code == 200, answer.text[:500]
    if ask.kind == "generate":
        return answer.json()["output_ids"]
    if ask.kind == "chat":
        return answer.json()["choices"][0]["message"]["content"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    if ask.kind == "stream":
        return events[-1]["output_ids"]
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])


def _post(url: str, path: str, body: dict[str, Any]) -> requests.Response:
    with requests.Session() as http:
        http.trust_env = False
        return http.post(url + path, json=body, timeout=600)


def _generate(ask: Ask, rid: str) -> tuple[dict[str, Any], str]:
    sampling: dict[str, Any] = {"max_new_tokens": ask.n, "temperature": 0, "ignore_eos": True}
    body: dict[str, Any] = {"input_ids": list(ask.tokens), "sampling_params": sampling, "stream": ask.kind == "stream"}
    if ask.aborted:
        body["rid"] = rid
    if ask.who == "custom":
        sampling["custom_params"] = {"pbkv": ask.identity}
    elif ask.who == "hints":
        action = {"action_id": "1", "action_type": "pbkv.step", "action_version": "1", "payload": ask.identity}
        body["kv_hints"] = {"protocol_version": "1", "message_id": "m", "actions": [action]}
    elif ask.who == "session":
        body["session_id"] = ask.identity["workflow"]
    return body, "/generate"


def _chat(ask: Ask) -> tuple[dict[str, Any], str]:
    text = "".join(chr(97 + t % 26) for t in ask.tokens)
    body: dict[str, Any] = {
        "model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": ask.n, "temperature": 0, "ignore_eos": True,
        "stream": ask.kind == "chat_stream",
    }
    if ask.who == "custom":
        body["custom_params"] = {"pbkv": ask.identity}
    elif ask.who == "session":
        body["session_id"] = ask.identity["workflow"]
    return body, "/v1/chat/completions"
