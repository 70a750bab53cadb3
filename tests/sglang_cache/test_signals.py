"""Text signals: what a model's last rows say reaches the call they belong to, projected; and costs nothing where nobody wants it."""

import json
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sglang.srt.managers.auxiliary_output import CommittedTokens, append_auxiliary_output

from pbkv.errors import UsageError
from pbkv.predictor.signal import SIGNAL, of_ids, projection, quantised
from pbkv.recorder import LEASE_S
from pbkv.sglang import signals as signals_module
from pbkv.sglang.signals import Signals
from pbkv.sglang.sources import Source, source_for, sources_of
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_calls import identity, request
from tests.sglang_cache.test_forecasts import A, B, C, Trained, forecasting

WIDTH = 16


class Runner:
    """Samples token 9 everywhere."""

    def sample(self, logits_output: Any, forward_batch: Any) -> str:
        logits_output.auxiliary_device_output = None
        return "tokens"


def hearing(source: Source | None = None, *, feeds: bool = True) -> tuple[Bench, Trained]:
    trained = Trained()
    bench = forecasting(trained)
    source = source or Source("hidden test 1x16", Runner())
    bench.runtime.hears = source.runner is not None and feeds
    bench.runtime.signals = Signals(bench.runtime, source, feeds=feeds)
    return bench, trained


def forward(bench: Bench, reqs: Sequence[Any], hidden: torch.Tensor | None, commits: Sequence[int | None]) -> Any:
    """A batch through the model runner and back: sampled, copied, consumed. `commits`: how many tokens each request had before."""
    output = SimpleNamespace(hidden_states=hidden, auxiliary_device_output=None)
    assert bench.runtime.signals.source.runner.sample(output, SimpleNamespace(batch_size=len(reqs))) == "tokens"
    if output.auxiliary_device_output is not None:
        if hidden is not None:
            hidden.zero_()  # the buffer of a graph is overwritten by its next replay
        host = output.auxiliary_device_output.copy_to_host(lambda tensor: tensor.clone())
        host.consume(SimpleNamespace(reqs=reqs), [None if n is None else CommittedTokens(n, (9,)) for n in commits])
    return output


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def expected(row: torch.Tensor) -> np.ndarray:
    signal = quantised((row.double().numpy() @ projection(WIDTH)).astype(np.float32))
    assert signal is not None
    return signal


def close_to(one: Any, other: np.ndarray) -> bool:
    return one is not None and one.dtype == np.int8 and bool(np.abs(one.astype(int) - other).max() <= 1)


# ---- hidden states -----------------------------------------------------------------------------------------------------------


def test_prompt_and_reply_reach_the_predictor_at_their_moments() -> None:
    bench, trained = hearing()
    req, hidden = request(bench, A, custom=identity("w", "a")), rows(3)
    req.output_ids = [9]
    bench.runtime.calls.checkpoint(req)
    forward(bench, [req], hidden[:1].clone(), [0])
    bench.runtime.settle()
    forward(bench, [req], hidden[1:2].clone(), [1])  # a decode step in the middle says nothing
    bench.runtime.settle()
    req.output_ids = [9, 9, 9]
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    forward(bench, [req], hidden[2:].clone(), [2])
    bench.runtime.settle()
    (prefill,), (reply,) = trained.asked
    assert (prefill.reply, reply.reply) == (False, True)
    assert close_to(prefill.text, expected(hidden[0])) and close_to(reply.text, expected(hidden[2]))


def test_a_call_of_one_token_says_the_same_twice() -> None:
    bench, trained = hearing(feeds=True)
    bench.runtime.record(0, 0, 0.0)
    req, hidden = request(bench, A, custom=identity("w", "a")), rows(1)
    req.output_ids = [9]
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    forward(bench, [req], hidden.clone(), [0])
    bench.runtime.settle()
    assert close_to(trained.asked[0][0].text, expected(hidden[0]))
    (row,) = bench.runtime.record(0, 0, 0.0)["rows"]
    assert row["prompt"] == row["reply"] is not None


def test_rows_of_chunks_that_are_not_the_last_and_of_calls_that_are_over_are_skipped() -> None:
    bench, trained = hearing()
    chunked, over = (request(bench, tokens, custom=identity(name, "a")) for name, tokens in (("w", A), ("v", B)))
    chunked.output_ids = []
    for req in (chunked, over):
        bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(over)
    bench.runtime.settle()
    forward(bench, [chunked, over], rows(2), [None, None])
    assert {m.workflow: m.text for m in trained.asked[0]} == {"w": None, "v": None}
    assert "pbkv_heard" not in over.__dict__ or over.pbkv_heard is None
    hidden = rows(1, 1)
    chunked.output_ids = [9]
    bench.runtime.calls.checkpoint(chunked)
    forward(bench, [chunked], hidden.clone(), [0])
    bench.runtime.settle()
    assert close_to(trained.asked[1][0].text, expected(hidden[0]))


def test_a_new_prompt_is_not_taken_for_what_was_said_before() -> None:
    """Between the first chunk of a prompt and its last there is no signal; the reply before it would be a wrong one."""
    bench, trained = hearing()
    first = request(bench, A, custom=identity("w", "a"))
    bench.runtime.calls.checkpoint(first)
    bench.runtime.calls.finish(first)
    forward(bench, [first], rows(1), [2])
    second = request(bench, B, custom=identity("w", "b"))
    second.output_ids = []
    bench.runtime.settle()
    bench.runtime.calls.checkpoint(second)
    bench.runtime.settle()
    assert trained.asked[0][0].text is not None and trained.asked[1][0].text is None


def test_rows_go_to_their_requests_in_a_mixed_batch_and_padding_to_nobody() -> None:
    bench, trained = hearing()
    reqs = [request(bench, tokens, custom=identity(f"w{n}", "a")) for n, tokens in enumerate((A, B, C))]
    hidden = rows(5)
    for req in reqs:
        req.output_ids = [9]
        bench.runtime.calls.checkpoint(req)
    reqs[1].output_ids = [9] * 7
    forward(bench, reqs, hidden.clone(), [0, 6, 0])  # the second one decodes in the same batch
    bench.runtime.settle()
    texts = {m.workflow: m.text for m in trained.asked[0]}
    assert close_to(texts["w0"], expected(hidden[0])) and close_to(texts["w2"], expected(hidden[2]))
    assert texts["w1"] is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_type_of_a_model_gives_the_same_direction(dtype: torch.dtype) -> None:
    bench, trained = hearing()
    req, hidden = request(bench, A, custom=identity("w", "a")), rows(1) * 50
    bench.runtime.calls.checkpoint(req)
    forward(bench, [req], hidden.to(dtype), [0])
    bench.runtime.settle()
    text = trained.asked[0][0].text.astype(float)
    wanted = expected(hidden[0]).astype(float)
    assert text @ wanted / np.linalg.norm(text) / np.linalg.norm(wanted) > 0.999


def test_without_rows_and_with_rows_that_are_no_numbers_there_is_no_signal() -> None:
    bench, trained = hearing()
    req = request(bench, A, custom=identity("w", "a"))
    bench.runtime.calls.checkpoint(req)
    assert forward(bench, [req], None, [0]).auxiliary_device_output is None
    forward(bench, [req, req], rows(1), [0, 0])  # fewer rows than requests
    forward(bench, [req], torch.full((1, WIDTH), torch.nan), [0])
    bench.runtime.settle()
    assert trained.asked[0][0].text is None and not bench.runtime.signals.fault


def test_others_may_send_something_along() -> None:
    """SGLang carries several such outputs; ours must not take the place of another's."""
    bench, _ = hearing()
    runner: Any = bench.runtime.signals.source.runner
    seen: list[str] = []

    class Other:
        def copy_to_host(self, copy_tensor: Any) -> Any:
            return SimpleNamespace(consume=lambda batch, commits: seen.append("other"))

    observed = runner.sample
    runner.sample = lambda out, batch: (observed(out, batch), setattr(
        out, "auxiliary_device_output", append_auxiliary_output(out.auxiliary_device_output, Other())
    ))[0]
    req, hidden = request(bench, A, custom=identity("w", "a")), rows(1)
    bench.runtime.calls.checkpoint(req)
    forward(bench, [req], hidden.clone(), [0])
    assert seen == ["other"] and close_to(req.pbkv_heard, expected(hidden[0]))


def test_what_fails_ends_the_signals_and_nothing_else(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, trained = hearing()
    runner: Any = bench.runtime.signals.source.runner
    monkeypatch.setattr(signals_module, "quantised", lambda row: 1 / 0)
    req = request(bench, A, custom=identity("w", "a"))
    bench.runtime.calls.checkpoint(req)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            forward(bench, [req], rows(1), [0])
    assert "ZeroDivisionError" in bench.runtime.signals.fault
    assert len(caplog.records) == 1
    assert "sample" not in vars(runner)  # the model runner is SGLang's own again
    bench.runtime.calls.finish(req)
    bench.runtime.settle()
    assert [m.text for m in trained.asked[0]] == [None]
    assert not bench.runtime.guard.fault


# ---- ids ---------------------------------------------------------------------------------------------------------------------


def test_without_hidden_states_the_ids_speak() -> None:
    bench, trained = hearing(Source("ids 512"))
    req = request(bench, A, custom=identity("w", "a"))
    bench.runtime.calls.checkpoint(req)
    bench.runtime.settle()
    req.output_ids = [5, 6, 7, 8]
    bench.runtime.calls.finish(req)
    bench.runtime.settle()
    (prefill,), (reply,) = trained.asked
    assert np.array_equal(prefill.text, of_ids(A)) and np.array_equal(reply.text, of_ids([5, 6, 7, 8]))


def test_calls_without_identity_are_nobodys_text() -> None:
    bench, trained = hearing(Source("ids 512"))
    req = request(bench, A)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    bench.runtime.settle()
    assert trained.asked == [] and bench.runtime.signals._over == {}


# ---- who wants them ----------------------------------------------------------------------------------------------------------


def test_the_model_runner_is_untouched_until_a_recording_begins_and_after_it_ends() -> None:
    bench, trained = hearing(feeds=False)
    runner, runtime = bench.runtime.signals.source.runner, bench.runtime
    assert "sample" not in vars(runner)
    runtime.commands.answer("record", json.dumps({"epoch": 0, "after": 0}))
    assert "sample" in vars(runner)
    req, hidden = request(bench, A, custom=identity("w", "a", final=True)), rows(2)
    req.output_ids = [9]
    runtime.calls.checkpoint(req)
    forward(bench, [req], hidden[:1].clone(), [0])
    runtime.settle()
    req.output_ids = [9, 9]
    runtime.calls.finish(req)
    forward(bench, [req], hidden[1:].clone(), [1])
    runtime.settle()
    status, body = runtime.commands.answer("record", json.dumps({"epoch": 0, "after": 0}))
    told = json.loads(body)
    assert (status, told["signal"], told["more"]) == (200, "hidden test 1x16", False)
    end, call = sorted(told["rows"], key=lambda row: "agent" in row)
    assert (end["end"], call["workflow"], call["agent"], call["step"], call["output_tokens"]) == ("final", "w", "a", 0, 2)
    assert trained.asked == []  # nothing of it is the predictor's: this one was not trained on it
    for now in (LEASE_S / 2, LEASE_S * 3):
        runtime.commands.answer("tick", json.dumps({"now": now, "wall_ns": 1}))
    assert "sample" not in vars(runner) and runtime.recorder is None


def test_a_recording_says_nothing_of_texts() -> None:
    """Numbers of 128 bytes, names and counts; no id of a token, no text."""
    bench, _ = hearing(Source("ids 512"), feeds=False)
    bench.runtime.record(0, 0, 0.0)
    req = request(bench, A, custom=identity("w", "a"))
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    bench.runtime.settle()
    (row,) = bench.runtime.record(0, 0, 0.0)["rows"]
    assert set(row) == {"n", "w", "workflow", "step", "agent", "output_tokens", "prompt", "reply"}
    assert all(isinstance(row[name], str) and len(row[name]) == 4 * -(-SIGNAL // 3) for name in ("prompt", "reply"))


def test_a_rank_that_does_not_lead_records_nothing() -> None:
    bench, _ = hearing()
    bench.runtime.leads, bench.runtime.signals = False, None
    assert bench.runtime.record(0, 0, 0.0) == {} and bench.runtime.recorder is None
    bench.call("w", "a", A, final=True)
    bench.runtime.settle()


# ---- which ones --------------------------------------------------------------------------------------------------------------


def server(mode: str | None = "last", speculative: str | None = None, stages: int = 1) -> Any:
    model = SimpleNamespace(vocab_size=512, num_hidden_layers=2, hidden_size=64, hf_config=SimpleNamespace(model_type="qwen3"))
    return SimpleNamespace(
        model_config=model, server_args=SimpleNamespace(return_hidden_states_mode=mode, speculative_algorithm=speculative),
        params=SimpleNamespace(pp_size=stages), tp_worker=SimpleNamespace(model_runner=Runner()),
    )


@pytest.mark.parametrize(("given", "kinds"), [
    (server(), ["hidden qwen3 2x64", "ids 512"]), (server(None), ["ids 512"]), (server("full"), ["ids 512"]),
    (server(speculative="EAGLE"), ["ids 512"]), (server(stages=2), ["ids 512"]),
])
def test_a_server_gives_what_its_flags_allow(given: Any, kinds: list[str]) -> None:
    assert [source.kind for source in sources_of(given)] == kinds


def test_a_predictor_gets_what_it_was_trained_on_or_is_refused() -> None:
    both, ids = sources_of(server()), sources_of(server(None))
    assert source_for("ids 512", both) == both[1] and source_for("hidden qwen3 2x64", both) == both[0]
    assert source_for("", both) is None and source_for("words", both) is None
    with pytest.raises(UsageError, match="start it with --return-hidden-states-mode last, or name a predictor"):
        source_for("hidden qwen3 2x64", ids)
    for wanted in ("hidden qwen3 40x5120", "ids 7"):
        with pytest.raises(UsageError, match="this server gives 'hidden qwen3 2x64' or 'ids 512'; name a predictor"):
            source_for(wanted, both)
