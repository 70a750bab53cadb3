"""The start-up file: an empty one is valid, a bad one is one sentence that names the file and the setting."""

import argparse
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pbkv.config import ENV, ServerConfig, load_config
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.names import Roster
from pbkv.sglang.forecasts import predictor_of
from pbkv.sglang.settings import add_flag, check_settings


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "pbkv.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    sentence.encode()
    return sentence


def test_no_file_gives_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV, raising=False)
    assert load_config() == ServerConfig()


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, write(tmp_path, '{"server": "gpu7"}'))
    assert load_config().server == "gpu7"


def test_an_empty_object_is_valid(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "{}")) == ServerConfig()


def test_knobs_start_from_the_file_and_the_budget_from_the_link(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, json.dumps({"link_bytes_per_s": 1e9, "decode_step_s": 0.01, "knobs": {"gamma": 0.5}})))
    values = config.knob_values()
    assert values["prefetch_budget"] == 10_000_000
    assert values["gamma"] == 0.5
    assert set(values) == set(KNOBS)
    given = load_config(write(tmp_path, '{"knobs": {"prefetch_budget": 7}}'))
    assert given.knob_values()["prefetch_budget"] == 7


def test_the_budget_never_leaves_the_bounds_of_its_knob(tmp_path: Path) -> None:
    for bandwidth, step in ((1e30, 1e9), (1e-30, 1e-9)):
        config = load_config(write(tmp_path, json.dumps({"link_bytes_per_s": bandwidth, "decode_step_s": step})))
        KNOBS["prefetch_budget"].parse(config.knob_values()["prefetch_budget"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        (b"\xff\xfe{}", "not JSON"),
        ("[]", "object"),
        ("null", "object"),
        ('"x"', "object"),
        ('{"serve": 1}', "serve"),
        ('{"": 1}', "no such setting"),
        ('{"server": 5}', "server"),
        ('{"server": ""}', "server"),
        ('{"server": "0123456789012345678901234567890123"}', "server"),
        ('{"server": "\\ud800"}', "server"),
        ('{"\\ud800": "x"}', "no such setting"),
        ('{"events": null}', "events"),
        ('{"events": ["tcp://x"]}', "events"),
        ('{"link_bytes_per_s": "fast"}', "link_bytes_per_s"),
        ('{"link_bytes_per_s": 0}', "link_bytes_per_s"),
        ('{"link_bytes_per_s": true}', "link_bytes_per_s"),
        ('{"link_bytes_per_s": NaN}', "link_bytes_per_s"),
        ('{"link_bytes_per_s": Infinity}', "link_bytes_per_s"),
        ('{"decode_step_s": -1}', "decode_step_s"),
        ('{"decode_step_s": Infinity}', "decode_step_s"),
        ('{"predict_budget_ms": 0}', "predict_budget_ms"),
        ('{"predict_budget_ms": 1001}', "predict_budget_ms = 1001: expected a number above 0, at most 1000"),
        ('{"predict_budget_ms": "2"}', "predict_budget_ms"),
        ('{"predictor": 1}', "predictor"),
        ('{"replay_bytes": 5}', "replay_bytes"),
        ('{"replay_bytes": 1e400}', "replay_bytes"),
        ('{"replay_bytes": 2000000.5}', "replay_bytes"),
        ('{"knobs": []}', "knobs"),
        ('{"knobs": {"gama": 1}}', "gama"),
        ('{"knobs": {"gamma": 1.5}}', "gamma"),
        ('{"knobs": {"gamma": NaN}}', "gamma"),
        ('{"knobs": {"k": 0}}', "k = 0"),
        ('{"knobs": {"policy": "belady"}}', "policy"),
        ('{"token_file": 1}', "token_file"),
        pytest.param('{"server": ' + "[" * 500 + "]" * 500 + "}", "server", id="deep server"),
        pytest.param('{"events": {"a": "' + "x" * 10_000 + '"}}', "events", id="long"),
        pytest.param('{"server": "' + "x" * 10_000 + '"}', "server", id="long server"),
        pytest.param('{"' + "x" * 10_000 + '": 1}', "no such setting", id="long name"),
        ('{"server": "a\\u0000b"}', "server"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str | bytes, names: str) -> None:
    assert names in refusal(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    assert "No such file" in refusal(str(tmp_path / "missing.json"))
    assert "directory" in refusal(str(tmp_path)).lower()


def test_a_token_is_read_and_stripped(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" secret\n")
    assert ServerConfig(token_file=str(path)).token() == "secret"
    assert ServerConfig().token() is None


@pytest.mark.parametrize("content", [b"", b"\n", b"  ", b"\xff\xfe\xff", "t\u00f6ken".encode(), b"two words"])
def test_a_token_that_guards_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="token_file"):
        ServerConfig(token_file=str(path)).token()


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"token_file.*No such file"):
        ServerConfig(token_file=str(tmp_path / "nothing")).token()


def ranks(pipeline: int = 1, context: int = 1) -> SimpleNamespace:
    return SimpleNamespace(params=SimpleNamespace(pp_size=pipeline, attn_cp_size=context))


def test_a_trained_predictor_is_refused_where_ranks_do_not_share_their_steps(tmp_path: Path) -> None:
    """Stages of a pipeline decide each for itself, and what one measured or summed up the others do not know."""
    config = ServerConfig(predictor=str(tmp_path))
    for ctx in (ranks(pipeline=2), ranks(context=2)):
        with pytest.raises(UsageError, match="tensor-parallel ranks only; set --pp-size and --attn-cp-size to 1"):
            predictor_of(config, Roster(), ctx)
    with pytest.raises(UsageError, match=str(tmp_path)):  # it is asked for, and there is none
        predictor_of(config, Roster(), ranks())
    assert isinstance(predictor_of(ServerConfig(), Roster(), ranks(pipeline=2)), OnlineMarkov)


# ---- the flag ----------------------------------------------------------------------------------------------------------------


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flag(parser)
    return parser.parse_args(argv)


def test_the_flag_hands_the_file_to_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, "")  # so that it is put back
    monkeypatch.delenv(ENV)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '{"server": "gpu7"}')
    assert vars(parsed()) == {}
    assert ENV not in os.environ
    assert vars(parsed("--pbkv-config", "pbkv.json")) == {}  # SGLang takes its own settings from what the parser returns
    assert os.environ[ENV] == str(tmp_path / "pbkv.json")
    assert load_config().server == "gpu7"


@pytest.mark.parametrize(("text", "names"), [
    ('{"serve": 1}', "no such setting"), ('{"predictor": "gone"}', "'gone' is not a folder"), ('{"token_file": "gone"}', "token_file"),
])
def test_a_bad_file_ends_the_process_with_one_sentence_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, names: str
) -> None:
    monkeypatch.delenv(ENV, raising=False)
    path = write(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        parsed("--pbkv-config", path)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("pbkv: ") and said.count("\n") == 1 and names in said
    assert ENV not in os.environ


def test_a_file_that_is_not_there_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check_settings(str(tmp_path / "gone.json"))
    assert "gone.json" in capsys.readouterr().err
