"""The stand-ins that let SGLang run without a GPU, and the tiny model."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def with_standin(code: str) -> None:
    """Run `code` in a process whose `triton` is the stand-in, whatever is installed."""
    path = str(ROOT / "tests" / "sglang_cpu" / "triton_standin")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_torch_sees_triton_without_a_driver_and_dynamo_can_be_imported() -> None:
    with_standin("""
import torch._dynamo, torch.utils._triton as probe, triton
assert probe.has_triton_package() and not probe.has_triton()
try:
    triton.runtime.driver.active
except RuntimeError as error:
    assert "0 active drivers" in str(error)
else:
    raise SystemExit("a driver is active")
""")


def test_triton_helpers_that_run_on_the_host_are_real() -> None:
    with_standin("""
import triton
assert [triton.cdiv(x, 4) for x in (0, 1, 4, 5)] == [0, 1, 1, 2]
assert [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [0, 1, 2, 4, 64, 128]
""")


def test_triton_kernels_can_be_defined_and_not_launched() -> None:
    with_standin("""
import triton

@triton.autotune(configs=[], key=[])
@triton.jit(do_not_specialize=["n"])
def add(x, n):
    "Adds."

assert add.__doc__ == "Adds."
try:
    add[(1,)](None, 3)
except RuntimeError as error:
    assert "kernel add needs a GPU" in str(error)
else:
    raise SystemExit("launched")
""")


def test_any_triton_name_can_be_imported_and_camel_case_ones_are_types() -> None:
    with_standin("""
import triton.language as tl
from triton.anything.at.all import Config, thing
assert isinstance(Config(1, a=2), Config) and not isinstance(3, tl.Tensor)
assert tl.Tensor is tl.Tensor
assert list(thing) == []
class Sub(Config, thing): ...
assert issubclass(Sub, Config)
assert thing.a.b()[3] is not None
""")


def test_missing_kernels_raise_when_called_not_when_imported() -> None:
    from sgl_kernel import rmsnorm
    from sgl_kernel.kvcacheio import transfer_kv_all_layer

    with pytest.raises(RuntimeError, match="rmsnorm does not exist on a CPU-only machine"):
        rmsnorm(1)
    with pytest.raises(RuntimeError, match=r"kvcacheio\.transfer_kv_all_layer"):
        transfer_kv_all_layer()


def test_slots_go_to_each_requests_row_in_order() -> None:
    from sgl_kernel import assign_req_to_token_pool_cpu

    pool = torch.full((3, 8), -1, dtype=torch.int32)
    rows, start, end = torch.tensor([2, 0]), torch.tensor([1, 4]), torch.tensor([4, 6])
    assign_req_to_token_pool_cpu(rows, pool, start, end, torch.arange(10, 15), 8)
    assert pool[2].tolist() == [-1, 10, 11, 12, -1, -1, -1, -1]
    assert pool[0].tolist() == [-1, -1, -1, -1, 13, 14, -1, -1]
    assert pool[1].tolist() == [-1] * 8


def test_kv_rows_are_copied_layer_by_layer() -> None:
    from sgl_kernel.kvcacheio import transfer_kv_direct

    source = [torch.arange(12.0).reshape(6, 2) + 100 * layer for layer in range(2)]
    target = [torch.zeros(4, 2) for _ in range(2)]
    transfer_kv_direct(source, target, torch.tensor([5, 1]), torch.tensor([0, 3]), page_size=1)
    for layer in range(2):
        assert target[layer][0].tolist() == source[layer][5].tolist()
        assert target[layer][3].tolist() == source[layer][1].tolist()
        assert target[layer][1:3].abs().sum() == 0


def test_hicache_plugin_is_inert_without_the_cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from pbkv_sglang_cpu.hicache import register

    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    monkeypatch.setitem(sys.modules, "sgl_kernel.kvcacheio", None)  # importing it would fail
    register()


def test_model_is_made_once_and_the_same_for_one_seed(tmp_path: Path) -> None:
    from pbkv_sglang_cpu.model import make_model

    first = make_model(tmp_path / "a")
    weights = (first / "model.safetensors").read_bytes()
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert make_model(tmp_path / "a") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert (make_model(tmp_path / "b") / "model.safetensors").read_bytes() == weights
    assert (make_model(tmp_path / "c", seed=1) / "model.safetensors").read_bytes() != weights
    assert {p.name for p in tmp_path.iterdir()} == {"a", "b", "c"}, "no half-made folder is left"


def test_half_made_or_old_model_is_made_anew(tmp_path: Path) -> None:
    from pbkv_sglang_cpu.model import make_model

    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    make_model(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3"


@pytest.mark.parametrize(("kind", "architecture"), [("moe", "Qwen3MoeForCausalLM"), ("mla", "DeepseekV2ForCausalLM")])
def test_other_kinds_replace_what_lies_in_their_folder(tmp_path: Path, tiny_model: Path, kind: str, architecture: str) -> None:
    from pbkv_sglang_cpu.model import make_model

    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    config = json.loads((make_model(folder, kind=kind) / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert (folder / "tokenizer.json").read_bytes() == (tiny_model / "tokenizer.json").read_bytes()
    with pytest.raises(KeyError):
        make_model(tmp_path / "n", kind="other")


def test_one_byte_is_one_token_and_output_depends_on_the_whole_prompt(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    text = "The claim holds: naïve façade, 東京."
    assert len(tokenizer(text)["input_ids"]) == len(text.encode())
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    assert chat == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    replies: list[str] = []
    for first in "AB":
        ids = torch.tensor([tokenizer(first + " prompt whose first byte matters" * 8)["input_ids"]])
        out = model.generate(ids, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)[0, ids.shape[1] :]
        replies.append(tokenizer.decode(out))
    assert replies[0] != replies[1]
    assert all(" " <= c <= "~" for reply in replies for c in reply)


def test_command_line_of_a_server() -> None:
    from pbkv_sglang_cpu.launch import server_command

    argv, env = server_command("m", 7, plugin=True, config="c.json", max_total_tokens=99, tp=2, extra=("--page-size", "1"), env={"X": "y"})
    text = " ".join(argv)
    assert "--radix-cache-backend pbkv" in text
    assert "--max-total-tokens 99" in text
    assert text.endswith("--tp 2 --page-size 1")
    assert (env["PBKV_CONFIG"], env["SGLANG_USE_CPU_ENGINE"], env["X"], env["SGLANG_CPU_OMP_THREADS_BIND"]) == ("c.json", "1", "y", "0|1")


def test_stock_server_gets_no_plugin_even_if_the_shell_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from pbkv_sglang_cpu.launch import server_command

    monkeypatch.setenv("PBKV_CONFIG", "from-the-shell.json")
    argv, env = server_command("m", 7, hicache_ratio=None)
    assert "--radix-cache-backend" not in argv
    assert "--enable-hierarchical-cache" not in argv
    assert "PBKV_CONFIG" not in env
