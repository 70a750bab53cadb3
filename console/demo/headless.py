"""`pbkv demo --headless`: run for a while, change a knob on the way, check the ends, and report what was stored."""

import json
from typing import Any

from collector import client
from console.demo.stack import Stack, say
from console.demo.summary import empty_kinds, summarise
from pbkv.errors import PbkvError

#: The change that is made half-way.
KNOB, VALUE = "gamma", 0.7
#: How long SGLang is watched after the last call: it checks its pools for leaks when it has nothing to do, s.
IDLE_S = 3.0
#: What SGLang writes when that check fails.
_LEAK = "memory leak detected"


def run_headless(stack: Stack, seconds: float, json_: bool) -> None:
    """Play for `seconds`, print the summary, raise PbkvError when something is missing from it."""
    stack.watch(seconds / 2)
    step = set_and_read_back(stack)
    say(f"{KNOB} set to {VALUE}, in effect at step {step}")
    stack.watch(seconds / 2)
    stack.stop("driver")
    if stack.settings.engine == "sglang":
        stack.watch(IDLE_S)
        check_log(stack)
    stack.stop()
    with client.open(str(stack.settings.database)) as reader:
        summary = summarise(reader, int(stack.state["epoch"]))
    print(json.dumps(summary, indent=None if json_ else 2))
    judge(summary)


def set_and_read_back(stack: Stack) -> int:
    """Change the knob, read it back; returns the scheduler step from which it holds. Raises PbkvError when it does not."""
    answer = stack.control.set({KNOB: VALUE}, reason="demo")
    now = stack.control.knobs()
    value = now["knobs"][KNOB]["value"]
    if value != VALUE or now["version"] != answer["version"] or now["step"] != answer["step"]:
        raise PbkvError(f"knob {KNOB}: set to {VALUE} at step {answer['step']}, but the server says {value} at step {now['step']}")
    return int(answer["step"])


def check_log(stack: Stack) -> None:
    """Raise PbkvError when the server's idle check complained."""
    log = stack.child("server").log
    for line in log.read_text(errors="replace").splitlines():
        if _LEAK in line:
            raise PbkvError(f"the server's idle check found a leak: {line.strip()[:300]}; see {log}")


def judge(summary: dict[str, Any]) -> None:
    """Raise PbkvError that names what the run should have produced and did not."""
    problems: list[str] = []
    if empty := empty_kinds(summary):
        problems.append("no event of kind " + ", ".join(empty))
    if summary["gaps"]:
        problems.append(f"{summary['gaps']} gaps in the event stream")
    if not summary["retired_tokens"]:
        problems.append("no tokens were retired")
    if not summary["prefetches_issued"]:
        problems.append("no prefetch was issued")
    if problems:
        raise PbkvError("demo: " + "; ".join(problems) + "; a longer --seconds may help")
