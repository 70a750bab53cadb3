"""Plays a workload against an engine through the OpenAI API: `python -m console.demo.driver`, a process of its own.

Several workflows at once, each waiting between its calls as its tools would. SIGTERM lets the calls in flight end.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from pbkv.errors import PbkvError
from pbkv.workloads.base import Call, Play, Workload
from pbkv.workloads.catalog import WORKLOADS, make_workload
from pbkv.workloads.trace import load_trace

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

#: Calls in a row that may fail to connect before the driver gives up; between them it waits a second.
_ATTEMPTS = 5


@dataclass
class Tally:
    """What has been played."""

    workflows: int = 0
    calls: int = 0
    retried: int = 0


class Driver:
    """Plays `workload`, `concurrency` workflows at a time, until stopped."""

    def __init__(self, client: "AsyncOpenAI", model: str, workload: Workload, concurrency: int) -> None:
        self._client = client
        self._model = model
        self._plays: Iterator[Play] = workload.plays()
        self._concurrency = concurrency
        self._stopping = asyncio.Event()
        self.tally = Tally()

    def stop(self) -> None:
        """Start no further call."""
        self._stopping.set()

    async def run(self) -> None:
        """Returns after `stop` once the calls in flight have ended. Raises PbkvError when the engine is gone or refuses a call."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _worker(self) -> None:
        while not self._stopping.is_set():
            await self._play(next(self._plays))

    async def _play(self, play: Play) -> None:
        try:
            call = next(play.script)
            while await self._think(call.think_s):
                call = play.script.send(await self._ask(play.name, call))
        except StopIteration:
            self.tally.workflows += 1

    async def _think(self, seconds: float) -> bool:
        """Wait; False when the driver is to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _ask(self, workflow: str, call: Call) -> str:
        import openai

        for _ in range(_ATTEMPTS):
            try:
                reply = cast("ChatCompletion", await self._client.chat.completions.create(**request(self._model, workflow, call)))
                self.tally.calls += 1
                return reply.choices[0].message.content or ""
            except openai.APIConnectionError:
                self.tally.retried += 1
                await self._think(1.0)
            except openai.APIStatusError as error:
                raise PbkvError(f"the engine refused a call of {workflow} ({error.status_code}): {error.message[:300]}") from None
        raise PbkvError(f"the engine has not answered {_ATTEMPTS} times in a row")


def request(model: str, workflow: str, call: Call) -> dict[str, Any]:
    """The chat request of a call: greedy, exactly `max_tokens` long, with its identity."""
    return {
        "model": model,
        "messages": [asdict(m) for m in call.messages],
        "max_tokens": call.max_tokens,
        "temperature": 0.0,
        "extra_body": {
            "ignore_eos": True,
            "custom_params": {"pbkv": {"workflow": workflow, "agent": call.agent, "final": call.final}},
        },
    }


async def drive(url: str, model: str, workload: Workload, concurrency: int) -> Tally:
    """Play until SIGTERM or SIGINT."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(trust_env=False)  # never through a proxy: the engine is ours
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120.0, http_client=http) as client:
        driver = Driver(client, model, workload, concurrency)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, driver.stop)
        await driver.run()
        return driver.tally


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m console.demo.driver")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="hover")
    parser.add_argument("--trace")
    parser.add_argument("--concurrency", type=int, default=6)
    parser.add_argument("--limit", type=int, default=2048, help="bytes of a prompt and its reply")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=1.0)
    return parser.parse_args()


def main() -> int:
    """Run from the command line; prints what was played as JSON."""
    args = _arguments()
    try:
        tally = asyncio.run(drive(args.url, args.model, _workload(args), args.concurrency))
    except PbkvError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(asdict(tally)))
    return 0


def _workload(args: argparse.Namespace) -> Workload:
    if args.trace:
        return load_trace(args.trace, limit=args.limit, pace=args.pace)
    return make_workload(args.workload, seed=args.seed, limit=args.limit, pace=args.pace)


if __name__ == "__main__":
    sys.exit(main())
