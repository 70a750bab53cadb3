"""Workflows of cells, what predictors are fitted on, and the size of the working set."""

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pbkv.bench.cell import Source
from pbkv.bench.export import fitting_source, write_runs
from pbkv.bench.predictors import make_predictor
from pbkv.bench.regimes import finance, generated, hover, recorded, swe
from pbkv.bench.source import FIT_SEED, fit_runs, generator, live_tokens, workflows, workload
from pbkv.errors import UsageError
from pbkv.predictor.base import END, Moment
from pbkv.workloads.adapters.agent_calls import load_agent_calls
from pbkv.workloads.finance_like import CHAIN, FinanceLike
from pbkv.workloads.hover_like import ROSTER, HoverLike
from tests.bench.small import small


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Ten runs of two agents that take turns."""
    calls = [(run, step) for run in range(10) for step in range(4 + run % 3)]
    rows = [{"workflow": f"r{run}", "step": step, "agent": "ab"[step % 2], "output_tokens": 40} for run, step in calls]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "calls.parquet")
    return str(tmp_path / "calls.parquet")


def test_options_reach_the_generator() -> None:
    made = generator(Source("hover", "group", (("output_scale", 0.25), ("claim_tokens", 300.0))))
    assert made == HoverLike(layout="group", output_scale=0.25, claim_tokens=300)
    assert generator(Source("finance", "shared", (("turns", 2.0),))) == FinanceLike(layout="shared", turns=2)
    with pytest.raises(UsageError, match="'chess'"):
        generator(Source("chess"))


def test_workflows_are_those_of_the_set() -> None:
    source = Source("hover")
    assert workflows(source, 3, 4) == tuple(islice(HoverLike().workflows(3), 4))


def test_predictors_are_fitted_on_other_workflows() -> None:
    played = {w.name for w in workflows(Source("hover"), 0, 50)}
    assert not played & {w.name for w in islice(HoverLike().workflows(FIT_SEED), 50)}
    assert len(fit_runs(Source("finance"))) == 1000
    assert {run.agents for run in fit_runs(Source("finance"))} == {CHAIN}


def test_the_halves_of_a_trace_share_no_run(trace: str) -> None:
    whole, held = Source("t", "shared", (), trace), Source("t", "shared", (), trace, held_out=True)
    played = {w.name for w in workload(held).workflows(0)}
    assert len(list(workload(whole).workflows(0))) == len(fit_runs(whole)) == 10
    assert len(played) == len(fit_runs(held)) == 5
    assert played == {w.name for w in workload(held).workflows(1)}, "the same half for every seed"


def test_other_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [9]}')
    with pytest.raises(UsageError, match=r"m\.jsonl.*table of agent calls"):
        workload(Source("m", trace=str(tmp_path / "m.jsonl")))


def test_live_tokens_count_each_place_once() -> None:
    source = Source("finance", "shared")
    total, calls = 0, 0
    for workflow in workflows(source, 0, 60):
        seen: dict[tuple[int, ...], int] = {}
        for call in workflow.calls:
            path: tuple[int, ...] = ()
            for segment in (*call.prompt, call.output):
                path = (*path, segment.key)
                seen[path] = segment.tokens
            total += sum(seen.values())
            calls += 1
    assert live_tokens(source) == pytest.approx(total / calls)


def test_regimes_are_sized_in_live_tokens(trace: str) -> None:
    for regime in (*generated(), recorded("t", trace, "group")):
        cell = regime.sized(0.5)
        assert cell.device_tokens % cell.page_size == 0
        assert cell.device_tokens == pytest.approx(0.5 * cell.concurrency * live_tokens(cell.source), abs=cell.page_size)
        assert list(regime.shares) == sorted(regime.shares)
    assert hover("private").sized(0.4, k=5).k == 5
    assert len({r.name for r in [*generated(), swe("private"), finance("shared", 3)]}) == len(generated()) + 2


def test_each_predictor_predicts_in_ids_of_the_cache(trace: str) -> None:
    from pbkv.bench.run import make_engine

    for name in ("markov", "online", "bayes", "perfect", "uniform"):
        engine = make_engine(small(policy="he", predictor=name))
        state = engine.manager.state
        for agent in ROSTER:
            state.agent_id(agent)
        workflow = workflows(small().source, 0, 42)[0]
        ids = [state.agent_id(agent) for agent in workflow.agents]
        predictor = engine.manager.predictor
        for n in range(len(ids)):
            predictor.observe(ids[:n], ids[n])
        predictor.observe(ids, END)
        prediction = predictor.predict(Moment(workflow.name, ids[:2], 2))
        assert sum(prediction.visits[0].values()) + prediction.ends[0] == pytest.approx(1.0), name
        if name == "perfect":
            assert prediction.visits[0] == {ids[2]: 1.0}
    with pytest.raises(UsageError, match="'bayes'"):
        make_predictor(small(policy="he", predictor="bayes", source=Source("t", "group", (), trace, held_out=True)))
    with pytest.raises(UsageError, match="'oracle'"):
        make_predictor(small(policy="he", predictor="oracle"))


def test_a_fitted_predictor_learns_no_more() -> None:
    made = make_predictor(small(policy="he", predictor="markov"))
    before = made.predictor.predict(Moment("w", [0], 1))
    for _ in range(500):
        made.predictor.observe([0], 1)
    assert made.predictor.predict(Moment("w", [0], 1)) == before


def test_runs_to_fit_on_are_written_as_a_table(trace: str, tmp_path: Path) -> None:
    for name in (trace, "finance"):
        source, file = fitting_source(name), tmp_path / "fit.parquet"
        assert write_runs(source, file) == sum(len(run.agents) for run in fit_runs(source))
        assert list(load_agent_calls(file).runs) == fit_runs(source)
    assert not {w.name for w in workload(fitting_source(trace)).workflows(0)} & {run.name for run in fit_runs(fitting_source(trace))}
    with pytest.raises(UsageError, match=r"'chess'.*hover"):
        fitting_source("chess")
    with pytest.raises(UsageError, match=r"cannot be written.*-o"):
        write_runs(Source("finance"), tmp_path / "none" / "fit.parquet")


def test_text_signals_are_written_as_they_are(tmp_path: Path) -> None:
    rows = [{"workflow": f"r{n}", "step": 0, "agent": "a", "output_tokens": 1, "text_hash": [-128, 127] * 64} for n in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "calls.parquet")
    write_runs(fitting_source(str(tmp_path / "calls.parquet")), tmp_path / "fit.parquet")
    assert [run.texts for run in load_agent_calls(tmp_path / "fit.parquet").runs] == [(b"\x80\x7f" * 64,)] * 2
