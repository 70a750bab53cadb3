"""Serving: equal to the network that was trained, open to agents it never saw, deaf to signals that make no sense."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.dataset import rows
from pbkv.predictor.learned import LEAST, Learned
from pbkv.predictor.names import Roster
from pbkv.predictor.serving import MAX_ROWS
from tests.predictor.conftest import AGENTS, runs

WHO = Path(__file__).parents[3] / "shared" / "data" / "who_and_when"


def serve(trained, names: list[str]) -> Learned:
    weights, config, _ = trained
    fitted = (np.array(config[field], np.float32) for field in ("temperatures", "doubts"))
    return Learned(weights, config["agents"], config["text_dim"], *fitted, Roster(names))


def moments(names: list[str], count: int = 20) -> list[Moment]:
    """As `rows` orders them."""
    made = []
    for trace in runs(count, 5, texts=8):
        path = [names.index(a) for a in trace.agents]
        for n in range(len(path)):
            for reply in (0, 1):
                text = trace.texts[n - 1 + reply] if n + reply else None
                made.append(Moment(trace.name, path[: n + 1], n + 1, bool(reply), text))
    return made


def test_serving_computes_what_the_network_computes(trained) -> None:
    """The whole chain from torch's logits to probabilities, done here once more with torch."""
    import torch

    from pbkv.predictor.train import _Tensors

    _, config, trainer = trained
    names = list(config["agents"])
    table = rows(runs(20, 5, texts=8), names)
    kept, trainer._validation = trainer._validation, _Tensors(table, len(names), 8)
    logits = trainer._logits()
    trainer._validation = kept
    heat, doubt = (torch.tensor(np.array(config[f], np.float32)[table.reply])[..., None] for f in ("temperatures", "doubts"))
    p = (1 - doubt) * (logits / heat).softmax(-1) + doubt / logits.shape[-1]
    alive = torch.cumprod(torch.cat([torch.ones(len(p), 1), 1 - p[:, :-1, -1]], 1), 1)
    expected = (p * alive[..., None]).numpy()
    served = serve(trained, names).predict_many(moments(names))
    assert np.abs(served.visits.transpose(2, 1, 0) - expected[..., :-1]).max() < 1e-5
    assert np.abs(served.ends.T - expected[..., -1]).max() < 1e-5


def test_each_step_is_a_distribution_and_one_is_like_many(trained) -> None:
    names = list(AGENTS)
    predictor, asked = serve(trained, names), moments(names, 5)
    many = predictor.predict_many(asked)
    for n, moment in enumerate(asked):
        one = predictor.predict(moment)
        assert len(one.visits) == len(one.ends) == K_MAX
        for k in range(1, K_MAX + 1):
            assert sum(one.visits[k - 1].values()) + one.ends[k - 1] == pytest.approx(one.survival(k), abs=4 * LEAST + 1e-5)
            assert one.visits[k - 1] == pytest.approx(many[n].visits[k - 1], abs=1e-5)


def test_ids_are_the_caches_own_in_whatever_order_it_met_them(trained) -> None:
    """Two caches that met the agents in another order predict the same of the same names."""
    orders = [list(AGENTS), list(reversed(AGENTS))]
    found = []
    for names in orders:
        prediction = serve(trained, names).predict(Moment("w", [names.index("Planner"), names.index("Coder")], 2))
        found.append({names[a]: p for a, p in prediction.visits[0].items()})
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_it_has_learned_who_follows_and_reads_the_text_at_the_reply(trained) -> None:
    names = list(AGENTS)
    predictor = serve(trained, names)
    planner, coder, tester, reviewer = range(4)
    assert predictor.predict(Moment("w", [planner], 1)).visits[0][coder] > 0.8
    one, three = np.eye(8, dtype=np.float32)[1], np.eye(8, dtype=np.float32)[3]
    assert predictor.predict(Moment("w", [planner], 1, True, one)).visits[1].get(tester, 0) > 0.8
    assert predictor.predict(Moment("w", [planner], 1, True, three)).visits[1].get(coder, 0) > 0.8
    assert predictor.predict(Moment("w", [planner, coder, tester, reviewer], 4)).ends[0] > 0.8


def test_agents_that_the_cache_has_not_met_have_no_id_yet(trained) -> None:
    names = ["Planner"]
    predictor = serve(trained, names)
    assert set(predictor.predict(Moment("w", [0], 1)).visits[0]) <= {0}
    names.append("Coder")
    assert predictor.predict(Moment("w", [0], 1)).visits[0][1] > 0.8


def test_an_agent_that_training_never_saw_takes_part(trained) -> None:
    names = list(AGENTS)
    predictor = serve(trained, names)
    before = predictor.predict(Moment("w", [0], 1))
    names.append("Researcher")
    after = predictor.predict(Moment("w", [0, 4], 2))
    assert all(0 <= p <= 1 for visit in after.visits for p in visit.values())
    assert 4 in set().union(*predictor.predict(Moment("w", [0, 4, 0], 3)).visits)
    assert predictor.predict(Moment("w", [0], 1)).visits[0][1] == pytest.approx(before.visits[0][1], abs=0.2)


def test_more_agents_than_are_told_apart(trained) -> None:
    """Beyond the limit all share one row; the time of a prediction stays bounded."""
    names = [f"agent {n}" for n in range(MAX_ROWS + 50)]
    predictor = serve(trained, names)
    many = predictor.predict_many([Moment("w", [n], 1) for n in (0, MAX_ROWS + 10, MAX_ROWS + 49)])
    assert many.visits.shape[0] <= MAX_ROWS
    assert (many.visits[:, :, 1] == many.visits[:, :, 2]).all()
    assert np.isfinite(many.visits).all()


def test_the_roster_can_be_bound_to_another_cache(trained) -> None:
    names = list(AGENTS)
    predictor = serve(trained, names)
    first = predictor.predict(Moment("w", [0], 1))
    predictor.roster.bind(["Reviewer", "Coder", "Planner", "Tester"])
    assert predictor.predict(Moment("w", [2], 1)).visits[0][1] == pytest.approx(first.visits[0][1], abs=1e-6)


@pytest.mark.parametrize("text", [np.zeros(3), np.full(8, np.nan), np.full(8, np.inf), np.zeros((2, 8)), [1.0]])
def test_a_signal_that_makes_no_sense_counts_as_absent(trained, text) -> None:
    predictor = serve(trained, list(AGENTS))
    assert predictor.predict(Moment("w", [0], 1, True, text)) == predictor.predict(Moment("w", [0], 1, True, None))


def test_the_scale_of_a_signal_says_nothing(trained) -> None:
    predictor, signal = serve(trained, list(AGENTS)), np.arange(8)
    small, large = (predictor.predict(Moment("w", [0], 1, True, signal * scale)) for scale in (1, 127.0))
    assert small.visits[0] == pytest.approx(large.visits[0], abs=1e-5)


def test_no_call_no_prediction(trained) -> None:
    assert serve(trained, list(AGENTS)).predict(Moment("w", [], 0)) == Prediction()


@settings(deadline=None, max_examples=60, derandomize=True)
@given(path=st.lists(st.integers(0, 6), min_size=1, max_size=256), calls=st.integers(0, 10**9), reply=st.booleans())
def test_any_path_is_answered(trained, path: list[int], calls: int, reply: bool) -> None:
    prediction = serve(trained, [*AGENTS, "x", "", "Ω" * 300]).predict(Moment("w", path, calls, reply))
    assert sum(prediction.visits[0].values()) + prediction.ends[0] == pytest.approx(1.0, abs=1e-3)
    assert np.isfinite(prediction.ends).all()


def conversations() -> list[tuple[str, list[str]]]:
    """Recorded ones where they are at hand, else made-up ones with as many names: (name, speakers)."""
    if WHO.is_dir():
        turns = [(file.stem, json.loads(file.read_bytes())["history"]) for file in sorted(WHO.glob("*.json"))[:60]]
        return [(name, [turn.get("name") or turn["role"] for turn in history]) for name, history in turns]
    return [(f"talk {n}", [f"Expert_{(n * 3 + turn) % 191} of field {n}" for turn in range(8)]) for n in range(60)]


def test_the_many_names_of_conversations(trained) -> None:
    names: list[str] = []
    predictor = serve(trained, names)
    for talk, speakers in conversations():
        path = []
        for name in speakers:
            if name not in names:
                names.append(name)
            path.append(names.index(name))
            prediction = predictor.predict(Moment(talk, path[-256:], len(path)))
            # The agents of the training were never met: what they would have had is left out.
            assert 0 <= sum(prediction.visits[0].values()) + prediction.ends[0] < 1 + 1e-3
    assert len(names) > 60
