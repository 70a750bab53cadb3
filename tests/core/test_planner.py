"""The prefetch planner over rooms of every shape: it never overspends, never loads what is not worth it, never hurts live cache."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.prefetch.planner import COOLDOWN_STEPS, MAX_LOOKS, MAX_PER_STEP, MIN_VALUE, Decision, Planner, Room
from pbkv.record import NodeRecord
from tests.core.fakes import Node, record

BYTES = 100  # per token
STEP = 1000


@dataclass
class FakeRoom:
    """Device memory of three states. The planner may only turn retired into free, and free into loaded."""

    tokens: dict[NodeRecord, int]
    free: int
    retired: int
    refuse: set[NodeRecord] = field(default_factory=set)
    loaded: list[NodeRecord] = field(default_factory=list)
    reclaimed: int = 0

    def load_tokens(self, record: NodeRecord) -> int:
        return 0 if record in self.loaded else self.tokens[record]

    def free_tokens(self) -> int:
        return self.free

    def evict(self, tokens: int) -> int:
        assert tokens > 0
        freed = min(tokens, self.retired)
        self.retired -= freed
        self.free += freed
        self.reclaimed += freed
        return freed

    def load(self, record: NodeRecord) -> bool:
        if record in self.refuse:
            return False
        assert self.tokens[record] <= self.free, "a load without room would evict live cache"
        self.free -= self.tokens[record]
        self.loaded.append(record)
        return True


@dataclass
class FakeJudge:
    """Finds nothing to say against a load except for those in `leaving`."""

    leaving: set[NodeRecord] = field(default_factory=set)
    asked: list[bool] = field(default_factory=list)

    def would_stay(self, record: NodeRecord) -> bool:
        return record not in self.leaving

    def reclaim(self, room: Room, tokens: int, record: NodeRecord, *, aggressive: bool) -> int:
        self.asked.append(aggressive)
        return room.evict(tokens)


def candidate(value: int, tokens: int = 10, evicted: int = STEP - COOLDOWN_STEPS) -> tuple[NodeRecord, int]:
    made = record(tokens=tokens)
    made.value, made.evicted_step = value, evicted
    return made, tokens


def planner(*records: NodeRecord, judge: FakeJudge | None = None) -> Planner:
    made = Planner(BYTES, judge or FakeJudge())
    for r in records:
        made.queue.add(r)
    return made


CANDIDATES = st.lists(
    st.tuples(
        st.integers(0, 4 * MIN_VALUE),
        st.integers(0, 60),
        st.integers(STEP - 2 * COOLDOWN_STEPS, STEP),
        st.booleans(),
    ),
    max_size=30,
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(CANDIDATES, st.integers(0, 20_000), st.integers(-50, 200), st.integers(0, 200))
def test_limits_hold_in_every_room(rows: list[tuple[int, int, int, bool]], budget: int, free: int, retired: int) -> None:
    made = [candidate(value, tokens, evicted) for value, tokens, evicted, _ in rows]
    room = FakeRoom(dict(made), free, retired, {r for (r, _), row in zip(made, rows, strict=True) if row[3]})
    plan = planner(*dict(made))
    decisions = plan.plan(room, budget, STEP)
    issued = [d for d in decisions if d.result == "issued"]
    assert [d.record for d in issued] == room.loaded
    assert sum(d.bytes for d in issued) <= budget
    assert len(issued) <= MAX_PER_STEP
    for d in issued:
        assert d.tokens == room.tokens[d.record] > 0
        assert d.bytes == d.tokens * BYTES
        assert d.record.value >= MIN_VALUE
        assert STEP - d.record.evicted_step >= COOLDOWN_STEPS
        assert d.record not in plan.queue
    values = [d.record.value for d in issued]
    assert values == sorted(values, reverse=True)
    assert decisions[len(issued) :] == [d for d in decisions if d.result != "issued"], "skips come last"
    assert len(decisions) - len(issued) <= 1
    check_greedy(plan, room, decisions)


def check_greedy(plan: Planner, room: FakeRoom, decisions: list[Decision]) -> None:
    """Nothing more valuable was passed over except what must not be loaded now."""
    issued = {d.record for d in decisions if d.result == "issued"}
    if not issued:
        return
    least = min(r.value for r in issued)
    for r in room.tokens:
        if r.value > least and r not in issued:
            assert room.tokens[r] <= 0 or STEP - r.evicted_step < COOLDOWN_STEPS


@settings(deadline=None, derandomize=True)
@given(CANDIDATES, st.integers(0, 20_000))
def test_what_was_not_loaded_stays_a_candidate(rows: list[tuple[int, int, int, bool]], budget: int) -> None:
    made = dict(candidate(value, tokens, evicted) for value, tokens, evicted, _ in rows)
    room = FakeRoom(made, 100, 0)
    plan = planner(*made)
    plan.plan(room, budget, STEP)
    for r, tokens in made.items():
        assert r in plan.queue or r in room.loaded or tokens <= 0


def results(decisions: list[Decision]) -> list[str]:
    return [d.result for d in decisions]


def test_highest_value_first_and_shallower_first_among_equals() -> None:
    deep, shallow, best = (candidate(v)[0] for v in (MIN_VALUE, MIN_VALUE, 3 * MIN_VALUE))
    for r, above in ((deep, 3), (shallow, 2), (best, 9)):
        for _ in range(above):
            r.node.parent = Node(0.0, r.node.parent)  # type: ignore[attr-defined]
    plan = planner(deep, shallow, best)
    room = FakeRoom(dict.fromkeys((deep, shallow, best), 10), 100, 0)
    plan.plan(room, 10**6, STEP)
    assert room.loaded == [best, shallow, deep]


def test_the_budget_is_of_the_step_not_of_the_load() -> None:
    made = dict(candidate(MIN_VALUE) for _ in range(4))
    room = FakeRoom(made, 1000, 0)
    decisions = planner(*made).plan(room, 25 * BYTES, STEP)
    assert results(decisions) == ["issued", "issued", "skip_budget"]


def test_budget_zero_loads_nothing() -> None:
    made, tokens = candidate(MIN_VALUE)
    assert results(planner(made).plan(FakeRoom({made: tokens}, 100, 0), 0, STEP)) == ["skip_budget"]


def test_low_value_ends_the_search() -> None:
    made = dict(candidate(MIN_VALUE - 1) for _ in range(9))
    decisions = planner(*made).plan(FakeRoom(made, 1000, 0), 10**6, STEP)
    assert results(decisions) == ["skip_low_value"]


def test_just_evicted_is_passed_over_for_the_next() -> None:
    hot, _ = candidate(9 * MIN_VALUE, evicted=STEP - COOLDOWN_STEPS + 1)
    cold, _ = candidate(MIN_VALUE)
    plan = planner(hot, cold)
    room = FakeRoom({hot: 10, cold: 10}, 100, 0)
    assert results(plan.plan(room, 10**6, STEP)) == ["issued", "skip_just_evicted"]
    assert room.loaded == [cold]
    assert results(plan.plan(room, 10**6, STEP + 1)) == ["issued"], "the cooldown is over one step later"


def test_retired_room_is_taken_only_as_far_as_needed() -> None:
    made, _ = candidate(MIN_VALUE, tokens=50)
    room = FakeRoom({made: 50}, 20, 200)
    assert results(planner(made).plan(room, 10**6, STEP)) == ["issued"]
    assert room.reclaimed == 30


def test_headroom_counts_against_free_room() -> None:
    made, _ = candidate(MIN_VALUE, tokens=50)
    room = FakeRoom({made: 50}, -10, 59)  # 10 tokens are promised to running calls
    assert results(planner(made).plan(room, 10**6, STEP)) == ["skip_no_space"]
    assert not room.loaded


def test_a_refused_load_ends_the_step_and_stays_a_candidate() -> None:
    made, _ = candidate(MIN_VALUE)
    plan = planner(made)
    assert results(plan.plan(FakeRoom({made: 10}, 100, 0, {made}), 10**6, STEP)) == ["skip_no_space"]
    assert made in plan.queue


def test_gone_candidates_leave_in_silence() -> None:
    gone = dict(candidate(9 * MIN_VALUE, tokens=0) for _ in range(3))
    there, _ = candidate(MIN_VALUE)
    plan = planner(*gone, there)
    assert results(plan.plan(FakeRoom({**gone, there: 10}, 100, 0), 10**6, STEP)) == ["issued"]
    assert len(plan.queue) == 0


def test_a_step_looks_at_few_candidates() -> None:
    made = dict(candidate(9 * MIN_VALUE, evicted=STEP) for _ in range(100))
    looked: list[NodeRecord] = []
    room = FakeRoom(made, 10_000, 0)
    ask = room.load_tokens
    room.load_tokens = lambda r: looked.append(r) or ask(r)  # type: ignore[method-assign]
    plan = planner(*made)
    assert results(plan.plan(room, 10**6, STEP)) == ["skip_just_evicted"]
    assert len(looked) == MAX_LOOKS
    assert len(plan.queue) == 100


def test_an_empty_queue_decides_nothing() -> None:
    assert planner().plan(FakeRoom({}, 100, 100), 10**6, STEP) == []


def test_what_would_go_next_is_not_loaded_and_stays_a_candidate() -> None:
    leaving, staying = candidate(9 * MIN_VALUE)[0], candidate(MIN_VALUE)[0]
    plan = planner(leaving, staying, judge=FakeJudge({leaving}))
    room = FakeRoom({leaving: 10, staying: 10}, 100, 0)
    assert results(plan.plan(room, 10**6, STEP)) == ["issued", "skip_low_value"]
    assert room.loaded == [staying]
    assert leaving in plan.queue


def test_the_mode_reaches_whoever_makes_room() -> None:
    for aggressive in (False, True):
        made, tokens = candidate(MIN_VALUE)
        judge = FakeJudge()
        plan = planner(made, judge=judge)
        assert results(plan.plan(FakeRoom({made: tokens}, 0, 10), 10**6, STEP, aggressive=aggressive)) == ["issued"]
        assert judge.asked == [aggressive]
