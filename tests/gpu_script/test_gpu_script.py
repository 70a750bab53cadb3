"""The script for a GPU machine as far as it goes without one: what it says is missing, what it would start, how it judges and reports."""

import itertools
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pbkv.errors import UsageError
from tests.gpu import __main__ as gpu
from tests.gpu import environment, prefetch, report, ttft
from tests.gpu.models import VOCABULARY, shape_only, with_weights
from tests.gpu.servers import Servers

ROOT = Path(__file__).parents[2]


def shell(*argv: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **({"PATH": path} if path else {})}
    return subprocess.run([ROOT / "tests/gpu/run.sh", *argv], capture_output=True, text=True, env=environment, check=False, timeout=120)


# ---- what is missing -------------------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_script_says_so_in_one_sentence_and_leaves_nothing_behind() -> None:
    done = shell("--venv", "never-made")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no CUDA GPU is at hand" in done.stderr
    assert not (ROOT / "never-made").exists()


def fake_gpu(folder: Path) -> str:
    """A PATH on which nvidia-smi lists a GPU."""
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: a GPU'\n")
    tool.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_driver_without_a_cuda_torch_is_told_apart(tmp_path: Path) -> None:
    done = shell("--python", sys.executable, path=fake_gpu(tmp_path))
    assert done.returncode == 2
    assert "sees no CUDA device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_python_that_is_none_and_an_option_without_value(tmp_path: Path) -> None:
    path = fake_gpu(tmp_path)
    assert "no such program" in shell("--python", "/nowhere/python", path=path).stderr
    done = shell("--model", "x", "--venv")
    assert (done.returncode, "needs a value" in done.stderr) == (2, True)
    assert shell("--help").stdout.startswith("What only a CUDA machine can show")


@pytest.mark.parametrize(("cuda", "problem", "plugins", "says"), [
    (False, None, ["pbkv"], "no CUDA device"), (True, "sglang 0.6 is installed", ["pbkv"], "sglang 0.6"), (True, None, [], "pip install"),
    (True, None, ["pbkv"], None),
])
def test_each_thing_that_can_be_missing(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, problem: str | None, plugins: list[str], says: str | None,
) -> None:
    import torch

    class Point:
        def __init__(self, name: str) -> None:
            self.name = name

    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(environment, "problem", lambda: problem)
    monkeypatch.setattr(environment, "entry_points", lambda group: [Point(name) for name in plugins])
    sentence = environment.missing()
    assert (sentence is None) if says is None else (sentence is not None and says in sentence and "\n" not in sentence)


def test_pytest_collects_nothing_from_it() -> None:
    """A run of the suite must never start a GPU part."""
    assert not [p for p in (ROOT / "tests" / "gpu").rglob("*.py") if p.name.startswith("test_") or p.name.endswith("_test.py")]


# ---- options ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("argv", "says"), [
    (["--calls", "3"], "--calls 3"), (["--delay-cycles", "0"], "--delay-cycles 0"), (["--device-tokens", "-1"], "--device-tokens -1"),
    (["--link-bytes-per-s", "nan"], "--link-bytes-per-s nan"), (["--model", "/nowhere"], "--model '/nowhere'"),
])
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(argv) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        gpu.parse(["nonsense"])
    assert end.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_parts_are_those_asked_for_in_the_order_of_the_report(tmp_path: Path) -> None:
    assert list(gpu.parts(gpu.parse([]), tmp_path)) == list(report.TITLES)
    assert list(gpu.parts(gpu.parse(["ttft", "bandwidth"]), tmp_path)) == ["bandwidth", "ttft"]


# ---- servers ---------------------------------------------------------------------------------------------------------------------


def test_the_command_line_of_a_server(tmp_path: Path) -> None:
    servers = Servers(shape_only(tmp_path / "m"), dummy=True, page=64, flags=("--dtype", "float32"))
    argv = servers.command(1000, 7, plugin=True, extra=("--tp", "2"), module="tests.gpu.unguarded")
    assert argv[1:3] == ["-m", "tests.gpu.unguarded"]
    pairs = {a: b for a, b in itertools.pairwise(argv) if a.startswith("--")}
    given = {"--max-total-tokens": "960", "--load-format": "dummy", "--radix-cache-backend": "pbkv", "--port": "7"}
    assert pairs.items() >= given.items()
    assert "--skip-tokenizer-init" in argv
    assert argv[-4:] == ["--dtype", "float32", "--tp", "2"]
    assert "--radix-cache-backend" not in servers.command(1000, 7, plugin=False)


def test_a_model_with_a_tokenizer_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    argv = Servers(tmp_path).command(640, 1, plugin=False)
    assert "--skip-tokenizer-init" not in argv
    assert "--load-format" not in argv


def test_models_are_what_sglang_reads(tmp_path: Path) -> None:
    from transformers import AutoConfig

    assert AutoConfig.from_pretrained(shape_only(tmp_path / "shape")).num_hidden_layers == 36
    small = with_weights(tmp_path / "small")
    assert (small / "model.safetensors").stat().st_size > 1 << 20
    assert AutoConfig.from_pretrained(small).vocab_size == VOCABULARY


@pytest.mark.parametrize(("config", "ids"), [
    ({"vocab_size": 4096}, 3685), ({"vocab_size": 151_936}, 28_800), ({"text_config": {"vocab_size": 100}}, 89),
])
def test_prompts_use_ids_that_the_model_has(tmp_path: Path, config: dict[str, Any], ids: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ttft.vocabulary(tmp_path) == ids


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"vocab_size": "many"}'])
def test_a_folder_that_is_no_model_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match="name the folder of a model"):
        ttft.vocabulary(tmp_path)


#: Run in a process of its own: what it hooks and takes away must not be gone here.
IN_SGLANG = """
import json, sys
from pbkv.sglang.cache import PbkvCache
print("ready_to_load_host_cache" in vars(PbkvCache))
import tests.gpu.unguarded
print("ready_to_load_host_cache" in vars(PbkvCache))
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
for argv in json.loads(sys.argv[1]):
    args = prepare_server_args(argv)
    print(args.radix_cache_backend, args.max_total_tokens, args.skip_tokenizer_init)
"""


def test_sglang_takes_the_flags_and_the_unguarded_server_has_no_wait(tmp_path: Path) -> None:
    servers = [Servers(shape_only(tmp_path / "m"), dummy=True, flags=(*flags, "--device", "cpu")) for flags in (prefetch.FLAGS, ())]
    commands = [each.command(4096, 30_000, plugin=True)[3:] for each in servers]
    done = subprocess.run(
        [sys.executable, "-c", IN_SGLANG, json.dumps(commands)], capture_output=True, text=True, cwd=ROOT, check=False, timeout=800,
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "do not wait" in done.stderr
    assert [line for line in done.stdout.splitlines() if line] == ["True", "False", "pbkv 4096 True", "pbkv 4096 True"]


# ---- verdicts and report ---------------------------------------------------------------------------------------------------------


def rows(plain: int, guarded: int, unguarded: int, prefetches: int = 9) -> dict[str, dict[str, Any]]:
    def row(differ: int) -> dict[str, Any]:
        return {"calls": 50, "differ": differ, "cached tokens": 1, "prefetches": prefetches}

    return dict(zip(prefetch.RUNS, (row(0), row(plain), row(guarded), row(unguarded)), strict=True))


@pytest.mark.parametrize(("found", "holds", "says"), [
    (rows(0, 0, 12), True, "without the wait 12 differ"),
    (rows(0, 0, 0), True, "make the delay longer"),
    (rows(0, 3, 12), False, "Fails: 3 of 50"),
    (rows(2, 2, 12), True, "48 of 50"),
    (rows(0, 0, 12, prefetches=0), False, "Shows nothing"),
])
def test_what_the_runs_under_delay_show(found: dict[str, dict[str, Any]], holds: bool, says: str) -> None:
    assert prefetch.holds(found) is holds
    assert says in prefetch.verdict(found)


def test_answers_are_compared_one_by_one() -> None:
    truth = [[1, 2], [3], [4]]
    found = prefetch.row(truth, [[1, 2], [9], [4]], 70, {"prefetches_issued": 5})
    assert found == {"calls": 3, "differ": 1, "cached tokens": 70, "prefetches": 5}
    with pytest.raises(ValueError, match="zip"):
        prefetch.row(truth, truth[:2], 0, {})


def test_gains_are_against_stock() -> None:
    rows = {ttft.STOCK[0]: {"ttft_ms_mean": 300.0}, "pbkv he": {"ttft_ms_mean": 150.0}}
    assert ttft.gains(rows) == {"TTFT gain of pbkv he": 2.0}


def test_a_part_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("out of\nmemory")

    found = gpu.run({"prefetch": broken, "bandwidth": lambda: {"host to device": {"GB/s": 20.0}}})
    assert found["prefetch"] == {"error": "RuntimeError: out of memory"}
    assert gpu.failed(found)
    assert not gpu.failed({"bandwidth": found["bandwidth"], "prefetch": {"holds": True}})
    assert gpu.failed({"prefetch": {"holds": False}})
    results = {"machine": {"gpu": "X", "cuda": "13"}, "command": "tests/gpu/run.sh", "parts": found}
    as_json, as_text = report.write(results, tmp_path / "a" / "b")
    assert json.loads(as_json.read_text()) == results
    text = as_text.read_text()
    assert "Machine: gpu X, cuda 13." in text
    assert "Failed: RuntimeError: out of memory" in text
    assert "| host to device | 20.0 |" in text
    assert "Stock against PBKV" not in text


def test_a_table_has_a_cell_for_every_column() -> None:
    lines = report.table({"a": {"x": 1}, "b": {"x": 2, "y": 3}})
    assert lines == ["| | x | y |", "|---|---|---|", "| a | 1 |  |", "| b | 2 | 3 |"]
    assert report.table({}) == []


def test_verdict_and_single_figures_stand_around_the_table() -> None:
    text = report.markdown({"machine": {}, "command": "c", "parts": {"prefetch": {"verdict": "Holds.", "holds": True, "run": {"n": 1}}}})
    assert text.index("Holds.") < text.index("| run | 1 |") < text.index("holds: True")


def test_the_module_ends_with_the_status_of_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--calls", "1"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("tests.gpu", run_name="__main__")
    assert end.value.code == 2
