"""The comparison with stock SGLang measures what it says: the same calls everywhere, and differences that come from the order alone."""

import itertools
from functools import cache

import pytest

from tests.benchmarks.stock_cache import CONFIGURATIONS, PAGE, Alone, Found, play
from tests.support.recorded import Step, Tokens, live_tokens, order, recorded

CONCURRENCY, RUNNING, CALLS, DIVISOR = 16, 4, 260, 8
LRU = {"plugin": {"policy": "lru"}}


@cache
def steps() -> tuple[list[Step], int]:
    _, workflows = recorded("hyperagent", "private", max_calls=16)
    made = list(itertools.takewhile(lambda step: step.number <= CALLS, order(workflows, CONCURRENCY, RUNNING)))
    return made, int(CONCURRENCY * live_tokens(workflows)) // DIVISOR


@cache
def found(name: str, share: float, host: float | None = None) -> Found:
    made, live = steps()
    return play(CONFIGURATIONS.get(name, LRU), made, int(live * share), host=host, divisor=DIVISOR)


def test_every_configuration_sees_the_same_calls() -> None:
    assert len({(f.calls, f.prompt) for f in (found(name, 0.3) for name in CONFIGURATIONS)}) == 1
    assert all(f.refused == 0 and f.cpu_ns > 0 for f in (found(name, 0.3) for name in CONFIGURATIONS))


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_three_times_lru_is_the_same_hits_call_for_call(share: float) -> None:
    rust, python, ours = (found(name, share).hits for name in ("SGLang lru, Rust core", "SGLang lru, Python core", "pbkv lru"))
    assert rust == python == ours


def test_closed_sessions_go_first_in_both() -> None:
    """lae is SGLang's session radix cache in what it knows, so their rates lie close; neither is plain lru."""
    lru, session, lae = (found(name, 0.3) for name in ("SGLang lru, Python core", "SGLang session radix cache", "pbkv lae"))
    assert session.hits != lru.hits
    assert abs(session.hit - lae.hit) < 3


def test_prediction_pays_under_pressure_and_not_without() -> None:
    lru = found("SGLang lru, Rust core", 0.3)
    assert all(found(name, 0.3).hit > lru.hit + 3 for name in ("pbkv he", "pbkv first_use"))
    roomy = {found(name, 3.0).hit for name in CONFIGURATIONS}
    assert len(roomy) == 1, "where everything fits, every order gives the same"


def test_the_host_tier_counts_as_hits() -> None:
    with_host = found("pbkv he", 0.3, 1.5)
    assert with_host.host > 0
    assert with_host.hit > found("pbkv he", 0.3).hit


def test_what_does_not_fit_beside_the_running_calls_is_counted() -> None:
    made, _ = steps()
    tight = play(CONFIGURATIONS["pbkv he"], made, 40 * PAGE, divisor=DIVISOR)
    assert tight.refused > 0
    assert tight.calls == found("pbkv he", 0.3).calls


def test_warm_calls_are_played_but_not_measured() -> None:
    made, live = steps()
    warmed = play(CONFIGURATIONS["pbkv he"], made, int(live * 0.3), warm=100, divisor=DIVISOR)
    whole = found("pbkv he", 0.3)
    assert warmed.hits == whole.hits[100:]
    assert warmed.calls == whole.calls - 100


def test_a_fault_of_the_plugin_stops_the_comparison() -> None:
    """Or the figures of SGLang's fallback would be reported as the plugin's."""
    made, _ = steps()
    alone, step = Alone(CONFIGURATIONS["pbkv he"], 4096), made[0]
    alone._runtime.state.begin_call = None
    with pytest.raises(AssertionError, match="NoneType"):
        alone.begin(step.number, step.workflow, step.call, Tokens(divisor=DIVISOR).of(step.call.prompt))
