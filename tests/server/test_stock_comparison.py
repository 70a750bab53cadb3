"""What the comparison with stock servers rests on: the same calls on both, and the plugin's own account of its time."""

import itertools

import pytest

from tests.benchmarks.stock_server import Conversations, Scale, play, play_watched
from tests.gpu.prefetch import ask
from tests.support.recorded import Step, order, recorded
from tests.support.server import Server

pytestmark = pytest.mark.server
SCALE = Scale(divisor=48, running=3, vocabulary=256)


def steps(calls: int, running: int = SCALE.running) -> list[Step]:
    _, workflows = recorded("hyperagent", "private", max_calls=5)
    return list(itertools.takewhile(lambda step: step.number <= calls, order(workflows, 4, running)))


def test_the_same_calls_on_both_servers(plugin: Server, stock: Server) -> None:
    made = steps(16)
    on_stock, ours = play(stock, made, SCALE), play_watched(plugin, made, SCALE)
    assert on_stock.calls == ours.calls >= 12
    assert 0 < on_stock.hit < 100
    assert 0 < ours.hit < 100
    assert ours.calls_per_s > 0
    assert 0 < ours.ttft_ms_mean <= ours.ttft_ms_p95 * ours.calls
    assert on_stock.plugin_us_per_step is None
    assert ours.plugin_us_per_step is not None and ours.plugin_us_per_call is not None
    assert 0 < ours.plugin_us_per_step < ours.plugin_us_per_call, "a call takes many steps"
    assert plugin.state()["counts"]["retired_workflows"] > 0, "the plugin did not see who called"


def test_a_prompt_goes_on_from_what_was_generated() -> None:
    first, *later = [step for step in steps(16) if step.kind == "begin" and step.workflow == steps(1)[0].workflow]
    conversations = Conversations(SCALE)
    before = conversations.prompt(first)
    said = [SCALE.vocabulary + n for n in range(conversations.output(first))]
    conversations.said(first, said)
    following = next(step for step in later if first.call.output in step.call.prompt)
    assert [token for token in conversations.prompt(following) if token >= SCALE.vocabulary] == said
    assert conversations.prompt(first) == before


def test_answers_one_at_a_time_are_the_same(plugin: Server, stock: Server) -> None:
    """As the GPU script asks for them, here without a race."""
    made = steps(10, running=1)
    assert [a for a, _ in (ask(server, made, SCALE) for server in (plugin, stock))] == [ask(stock, made, SCALE)[0]] * 2
