"""Whether workflows of a log started by themselves, or each one when another had ended: so many at a time."""

from collections.abc import Sequence

from pbkv.whatif.recording import RecordedWorkflow

#: Share of the time that places may stand empty where so many workflows at a time are kept up. Starts that do not wait for ends leave far
#: more of the largest number empty.
EMPTY = 0.1
#: Workflows below which nothing is concluded.
LEAST = 8


def find_concurrency(workflows: Sequence[RecordedWorkflow]) -> int | None:
    """How many workflows at a time were kept up; None = they started by themselves. Workflows in order of their starts."""
    spans = [(each.start_s, _end(each)) for each in workflows]
    places = _most_at_a_time(spans)
    followers = len(spans) - places
    if len(spans) < LEAST or followers < max(LEAST // 2, places // 2):
        return None
    ends = sorted(end for _, end in spans)
    empty = sum(spans[places + n][0] - ends[n] for n in range(followers)) / followers
    took = sum(end - start for start, end in spans) / len(spans)
    return places if empty <= EMPTY * (empty + took) else None


def started_by_ends(workflows: Sequence[RecordedWorkflow], places: int) -> tuple[RecordedWorkflow, ...]:
    """The workflows, each but the first `places` started when the one whose place it took had ended; its first calls wait for so much
    longer.
    """
    ends = sorted(_end(each) for each in workflows)
    followers = [_since(each, min(ends[n], each.start_s)) for n, each in enumerate(workflows[places:])]
    return (*workflows[:places], *followers)


def _since(workflow: RecordedWorkflow, start: float) -> RecordedWorkflow:
    gap = workflow.start_s - start
    calls = tuple(call._replace(delay_s=call.delay_s + gap) if call.after < 0 else call for call in workflow.calls)
    return workflow._replace(start_s=start, calls=calls)


def _end(workflow: RecordedWorkflow) -> float:
    return max(call.ended for call in workflow.calls)


def _most_at_a_time(spans: Sequence[tuple[float, float]]) -> int:
    """Most workflows under way at any moment; one that starts when another ends takes its place."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most
