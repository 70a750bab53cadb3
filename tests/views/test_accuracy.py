"""The accuracy join: cases worked out on paper, then random histories against a plain reference."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.client import open as open_source
from collector.views.models import Overview
from collector.views.scope import find_scope
from collector.views.sql.accuracy import ACCURACY
from tests.support.hand import Hand

Load = Callable[..., Overview]
Scores = dict[int, tuple[int, int, float]]


def scores(o: Overview) -> Scores:
    return {a.horizon: (a.scored, a.correct, round(a.end_share, 9)) for a in o.accuracy}


def test_each_horizon_is_compared_with_the_call_that_many_steps_later(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "w", "a", 0)
        h.predict(2, "w", 0, ["b", "c", "x"])
        h.call(3, "w", "b", 1)
        h.call(4, "w", "x", 2)

    # Horizon 3 has no outcome yet.
    assert scores(overview(fill)) == {1: (1, 1, 0.0), 2: (1, 0, 0.0)}


def test_end_is_the_outcome_of_the_first_horizon_after_it_only(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(1, "w", 0, ["b", "END", "END", "c"])
        h.call(2, "w", "b", 1)
        h.row("workflow", 3, workflow="w", event="end", reason="final", steps=2)

    assert scores(overview(fill)) == {1: (1, 1, 0.0), 2: (1, 1, 1.0)}


def test_a_final_call_is_an_end_and_both_signs_of_it_count_once(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(1, "w", 0, ["a", "b"])
        h.call(2, "w", "a", 1, final=1)
        h.row("workflow", 3, workflow="w", event="end", reason="final", steps=2)

    assert scores(overview(fill)) == {1: (1, 1, 0.0), 2: (1, 0, 1.0)}


def test_retirement_is_not_an_end(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(1, "w", 0, ["END"])
        h.row("workflow", 3, workflow="w", event="retire", reason="idle", steps=1)

    assert scores(overview(fill)) == {}


def test_only_the_likeliest_agent_is_scored(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("prediction", 1, workflow="w", step=0, horizon=1, position=0, agent="x")
        h.row("prediction", 1, workflow="w", step=0, horizon=1, position=1, agent="a")
        h.call(2, "w", "a", 1)

    assert scores(overview(fill)) == {1: (1, 0, 0.0)}


def test_an_outcome_counts_in_the_window_it_became_known(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(0, "w", 0, ["a", "b"])
        h.call(1, "w", "a", 1)
        h.call(100, "w", "b", 2)

    assert scores(overview(fill, 60.0)) == {2: (1, 1, 0.0)}


def test_workflows_and_streams_are_kept_apart(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("other")
        h.call(1, "w", "b", 1)
        h.stream("shown")
        h.predict(2, "w", 0, ["a"])
        h.predict(2, "v", 0, ["b"])
        h.call(3, "w", "a", 1)
        h.call(4, "v", "a", 1)

    assert scores(overview(fill, server="shown")) == {1: (2, 1, 0.0)}


def test_a_name_used_by_a_second_workflow_does_not_change_the_first(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.predict(1, "w", 0, ["END"])
        h.row("workflow", 2, workflow="w", event="end", reason="closed", steps=1)
        h.predict(3, "w", 0, ["b"])
        h.call(4, "w", "b", 1)

    assert scores(overview(fill)) == {1: (2, 2, 0.5)}


@dataclass(frozen=True)
class Life:
    """One workflow: the agents called at steps 0.., how it ended (or not), and what was predicted at each step."""

    agents: list[str]
    end: str
    predicted: list[list[str]]


AGENTS = st.sampled_from(["a", "b", "c"])
PREDICTED = st.lists(st.sampled_from(["a", "b", "c", "END"]), max_size=4)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    agents = draw(st.lists(AGENTS, min_size=1, max_size=6))
    predicted = draw(st.lists(PREDICTED, min_size=len(agents), max_size=len(agents)))
    return Life(agents, draw(st.sampled_from(["open", "final", "event", "both"])), predicted)


def reference(all_lives: list[Life]) -> Scores:
    """What the docstring of the query says, in plain Python."""
    found: dict[int, list[tuple[bool, bool]]] = {}
    for life in all_lives:
        last = len(life.agents) - 1
        for step, horizons in enumerate(life.predicted):
            for horizon, agent in enumerate(horizons, 1):
                target = step + horizon
                if target <= last:
                    found.setdefault(horizon, []).append((agent == life.agents[target], False))
                elif life.end != "open" and target == last + 1:
                    found.setdefault(horizon, []).append((agent == "END", True))
    return {
        h: (len(rows), sum(right for right, _ in rows), round(sum(end for _, end in rows) / len(rows), 9))
        for h, rows in sorted(found.items())
    }


def write(h: Hand, all_lives: list[Life]) -> None:
    """The lives interleaved step by step; predictions of a step follow its call, as a server sends them."""
    h.stream()
    at = 0.0
    for step in range(max((len(life.agents) for life in all_lives), default=0)):
        for n, life in enumerate(all_lives):
            if step >= len(life.agents):
                continue
            at += 0.01
            last = step == len(life.agents) - 1
            h.predict(at, f"w{n}", step, life.predicted[step])
            h.call(at, f"w{n}", life.agents[step], step, final=int(last and life.end in ("final", "both")))
            if last and life.end in ("event", "both"):
                h.row("workflow", at, workflow=f"w{n}", event="end", reason="closed", steps=step + 1)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lives(), min_size=1, max_size=4))
def test_random_histories_match_the_reference(all_lives: list[Life]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "h.duckdb"
        with Hand(path) as hand:
            write(hand, all_lives)
        with open_source(str(path)) as reader:
            rows = ACCURACY.run(reader, find_scope(reader).params).to_pylist()
    found = {r["horizon"]: (r["scored"], r["correct"], round(r["end_share"], 9)) for r in rows}
    assert found == reference(all_lives)
