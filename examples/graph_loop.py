"""A graph of agents in the manner of LangGraph: nodes that change a state, edges chosen by looking at it.

    python examples/graph_loop.py --url http://127.0.0.1:30000

With LangGraph itself the identity is in the node's config; `extra_body` goes to the model:

    def node(state, config: RunnableConfig):
        identity = {"workflow": config["configurable"]["thread_id"], "agent": config["metadata"]["langgraph_node"]}
        answer = ChatOpenAI(base_url=..., model=..., extra_body={"custom_params": {"pbkv": identity}}).invoke(state["messages"])

and after graph.invoke(...) has returned or raised: POST /close_session {"session_id": thread_id}.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from workflow import Message, Workflow, run

QUESTION = "Which of the two claims about the river is supported by the gauge readings?"
FACTS = ("gauge 7 read 3.1 m on Monday", "gauge 9 read 2.4 m on Tuesday", "gauge 7 was replaced in May")
END = "end"


@dataclass
class State:
    """What the nodes pass on."""

    messages: list[Message]
    facts: list[str] = field(default_factory=list[str])


def _say(state: State, workflow: Workflow, agent: str, task: str, *, final: bool = False) -> None:
    state.messages.append({"role": "user", "content": task})
    answer = workflow.ask(agent, state.messages, final=final)
    state.messages.append({"role": "assistant", "content": answer})


def plan(state: State, workflow: Workflow) -> str:
    """Always to the search."""
    _say(state, workflow, "planner", f"Plan how to answer: {QUESTION}")
    return "search"


def search(state: State, workflow: Workflow) -> str:
    """The tool's result is part of the next prompt."""
    _say(state, workflow, "searcher", "Name the next thing to look up.")
    state.facts.append(FACTS[len(state.facts)])
    return "judge"


def judge(state: State, workflow: Workflow) -> str:
    """Back to the search until the facts are all there."""
    _say(state, workflow, "judge", f"Found: {state.facts[-1]}. Is that enough?")
    return "search" if len(state.facts) < len(FACTS) else "write"


def write(state: State, workflow: Workflow) -> str:
    """Known to be the last call, and said so."""
    _say(state, workflow, "writer", "Write the answer.", final=True)
    return END


NODES: dict[str, Callable[[State, Workflow], str]] = {"plan": plan, "search": search, "judge": judge, "write": write}


def program(workflow: Workflow) -> None:
    """From the first node along the edges to the end."""
    state = State([{"role": "system", "content": "You answer questions about rivers from readings, step by step. " * 6}])
    node = "plan"
    while node != END:
        node = NODES[node](state, workflow)


if __name__ == "__main__":
    run("A graph of agents.", program)
