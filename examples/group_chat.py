"""A group chat in the manner of AutoGen: a manager picks who speaks next, and nobody knows beforehand which message is the last.

    python examples/group_chat.py --url http://127.0.0.1:30000

With AutoGen itself, a model client per agent that names it, and the end where the run ends:

    class Named(OpenAIChatCompletionClient):
        async def create(self, messages, *, extra_create_args={}, **rest):
            named = {"extra_body": {"custom_params": {"pbkv": {"workflow": RUN, "agent": self.agent}}}}
            return await super().create(messages, extra_create_args={**extra_create_args, **named}, **rest)

and after team.run(...) has returned or raised: POST /close_session {"session_id": RUN}.
"""

from dataclasses import dataclass

from workflow import Message, Workflow, run

TASK = "Make the date parser accept ISO weeks."
#: Each speaker sees the whole conversation behind a system message of its own.
SPEAKERS = {
    "coder": "You write code. Answer with a change and nothing else. ", "tester": "You run the tests and report what fails. ",
    "reviewer": "You say whether the change can go in. ",
}
MAX_ROUNDS = 12


@dataclass
class Tests:
    """A tool: the tests fail until the third change."""

    changes: int = 0

    def run(self) -> str:
        """Their report."""
        return "all passed" if self.changes >= 3 else f"{3 - self.changes} failed"


def next_speaker(last: str, report: str) -> str | None:
    """The manager's rule; None ends the chat."""
    if last == "reviewer":
        return None
    if last == "coder":
        return "tester"
    return "reviewer" if last == "tester" and report == "all passed" else "coder"


def program(workflow: Workflow) -> None:
    """Until the manager has nobody left to ask; `Workflow` then ends the workflow on the server."""
    chat: list[Message] = [{"role": "user", "content": TASK}]
    tests, report = Tests(), ""
    speaker: str | None = "coder"
    for _ in range(MAX_ROUNDS):
        if speaker is None:
            return
        said = workflow.ask(speaker, [{"role": "system", "content": SPEAKERS[speaker] * 8}, *chat])
        chat.append({"role": "user", "content": f"{speaker}: {said}"})
        if speaker == "coder":
            tests.changes += 1
        elif speaker == "tester":
            report = tests.run()
            chat.append({"role": "user", "content": f"tests: {report}"})
        speaker = next_speaker(speaker, report)


if __name__ == "__main__":
    run("A group chat.", program)
