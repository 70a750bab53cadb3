"""Agent workflows in a closed loop against a real server: so many lanes, each of which takes the next workflow when its own has ended."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from pbkv.whatif.logwindow import Window
from pbkv.workloads.tokens import Segment, TokenWorkflow
from tests.support.recorded import Tokens, recorded
from tests.support.server import Server


@dataclass(frozen=True)
class Traffic:
    """Recorded workflows, segments a `divisor`-th as long and delays shortened alike. Lengths of outputs are fixed, so what is said is the
    same whenever the prompts are.
    """

    workflows: Sequence[TokenWorkflow]
    divisor: int = 12
    hurry: float = 10.0
    vocabulary: int = 256

    @property
    def calls(self) -> int:
        return sum(len(workflow.calls) for workflow in self.workflows)


def agent_traffic(count: int, *, calls: int = 10, first: int = 0) -> tuple[str, Traffic]:
    """(source, `count` workflows of a recording from the `first` on, or generated ones of its shape, of at most `calls` calls each)."""
    source, workflows = recorded("hyperagent", "private", max_calls=calls)
    return source, Traffic(workflows[first : first + count])


class Lanes:
    """`play` returns the wall-clock window in which everything happened, UTC."""

    def __init__(self, server: Server, lanes: int = 8) -> None:
        self._server, self._lanes = server, lanes

    def play(self, traffic: Traffic, run: str) -> Window:
        """Every workflow to its end. `run` makes their names differ from those of other runs."""
        supply, lock = deque(traffic.workflows), threading.Lock()

        def lane() -> None:
            while True:
                with lock:
                    if not supply:
                        return
                    workflow = supply.popleft()
                self._workflow(traffic, workflow, run)

        start = _now()
        with ThreadPoolExecutor(self._lanes) as pool:
            for done in [pool.submit(lane) for _ in range(self._lanes)]:
                done.result()
        return Window(start=start, end=_now())

    def _workflow(self, traffic: Traffic, workflow: TokenWorkflow, run: str) -> None:
        tokens, said = Tokens(traffic.vocabulary, traffic.divisor), dict[int, list[int]]()
        for call in workflow.calls:
            time.sleep(call.delay_s / traffic.hurry)  # the agent's tool runs
            prompt = [token for segment in call.prompt for token in said.get(segment.key) or tokens.of([segment])]
            identity = {"workflow": f"{run}/{workflow.name}", "agent": call.agent, "final": call.final}
            reply = self._server.generate(prompt, _length(call.output, traffic), sampling={"custom_params": {"pbkv": identity}})
            said[call.output.key] = reply["output_ids"]


def _length(output: Segment, traffic: Traffic) -> int:
    return max(1, output.tokens // traffic.divisor)


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
