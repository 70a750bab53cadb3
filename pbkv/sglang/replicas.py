"""The answers of data-parallel replicas, made one."""

from typing import Any

Body = dict[str, Any]


def one_state(answers: list[Body]) -> Body:
    """The state of the first replica, with what adds up added up, the first fault of any, and the event streams of all.

    `streams` is a list of [events, replay] by rank and there only with several replicas.
    """
    first = answers[0]
    if len(answers) == 1:
        return first
    fault = next((f"replica {n}: {a['fault']}" for n, a in enumerate(answers) if a["fault"]), None)
    counts = {name: sum(a["counts"][name] for a in answers) for name in first["counts"]}
    added = {name: sum(a[name] for a in answers) for name in ("workflows", "leaves", "faults", "dropped_messages")}
    streams = [[a["events"], a["replay"]] for a in answers]
    return {**first, **added, "counts": counts, "fault": fault, "step": max(a["step"] for a in answers), "streams": streams}


def one_history(answers: list[list[Body]]) -> list[Body]:
    """Changes of all replicas in order of their versions; one that several made is told once, at the step of the first of them."""
    changes: dict[tuple[Any, ...], Body] = {}
    for answer in answers:
        for change in answer:
            changes.setdefault(tuple(change[name] for name in ("version", "name", "old", "new", "source", "reason")), change)
    return sorted(changes.values(), key=lambda change: change["version"])
