"""A server that cannot work with the cache is refused by the plugin as soon as SGLang has read its flags, in the words of `pbkv serve`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pbkv.launch.kinds import RECURRENT, SLIDING
from pbkv.launch.limits import LIMITS
from pbkv.sglang import register
from pbkv.sglang.start import model_problem

#: Does for each line of stdin what `python -m sglang.launch_server LINE` does up to the point where it would start processes.
SCRIPT = """
import json, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
for line in sys.stdin:
    try:
        prepare_server_args(json.loads(line)).resolve_once()
        end = "starts"
    except SystemExit as exit:
        end = f"exit {exit.code}"
    except Exception as error:
        end = f"SGLang itself: {type(error).__name__}: {error}"
    print(f"VERDICT {end}", file=sys.stderr, flush=True)
"""
CPU = ("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph")
PBKV = ("--radix-cache-backend", "pbkv")


def verdicts(lines: list[tuple[str, ...]], **environment: str) -> list[tuple[str, str]]:
    """(how it ended, what the plugin said) of each command line."""
    env = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input="\n".join(json.dumps(line) for line in lines), capture_output=True, text=True, env=env,
        timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ends, said = [], ""
    for line in done.stderr.splitlines():
        if line.startswith("pbkv: "):
            said += line.removeprefix("pbkv: ")
        elif line.startswith("VERDICT "):
            ends.append((line.removeprefix("VERDICT "), said))
            said = ""
    assert len(ends) == len(lines), done.stderr[-3000:]
    return ends


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, str]:
    """Folders with a tokenizer and a config.json: a flag is judged before weights are looked for."""
    from transformers import GptOssConfig, Lfm2Config

    sizes: Any = {
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    configs: dict[str, Any] = {
        "sliding": GptOssConfig(**sizes, head_dim=16, num_local_experts=4, num_experts_per_tok=2, architectures=["GptOssForCausalLM"]),
        "recurrent": Lfm2Config(**sizes, full_attn_idxs=[1], architectures=["Lfm2ForCausalLM"]),
    }
    folders = {"dense": str(tiny_model)}
    for name, config in configs.items():
        folder = tmp_path_factory.mktemp(name)
        config.save_pretrained(folder)
        for file in tiny_model.glob("*token*"):
            (folder / file.name).write_bytes(file.read_bytes())
        folders[name] = str(folder)
    return folders


@pytest.fixture(scope="module")
def judged(models: dict[str, str]) -> dict[str, tuple[str, str]]:
    """All command lines of this file in one process, by name."""
    dense, sliding = ("--model-path", models["dense"], *CPU), ("--model-path", models["sliding"], "--device", "cpu")
    lines = {
        "good": (*dense, *PBKV),
        "stock": (*dense, "--disable-radix-cache"),
        "no cache": (*dense, *PBKV, "--disable-radix-cache"),
        "sessions": (*dense, *PBKV, "--enable-session-radix-cache"),
        "workers": (*dense, *PBKV, "--tokenizer-worker-num", "2"),
        "abbreviated": (*dense, *PBKV, "--tokenizer-worker", "2"),
        "sliding": (*sliding, "--attention-backend", "intel_amx", *PBKV),
        "one pool": (*sliding, "--attention-backend", "intel_amx", *PBKV, "--disable-hybrid-swa-memory"),
        "stock sliding": (*sliding, "--attention-backend", "intel_amx"),
        "recurrent": ("--model-path", models["recurrent"], *CPU, *PBKV),
        "no model": ("--model-path", "dummy", *PBKV),
        "no model, no cache": ("--model-path", "dummy", *PBKV, "--disable-radix-cache"),
    }
    return dict(zip(lines, verdicts(list(lines.values())), strict=True))


@pytest.mark.parametrize("name", ["good", "stock", "one pool", "stock sliding", "no model"])
def test_what_can_work_starts(judged: dict[str, tuple[str, str]], name: str) -> None:
    assert judged[name] == ("starts", "")


@pytest.mark.parametrize(("name", "says"), [
    ("no cache", "--disable-radix-cache does not go with the pbkv cache"),
    ("no model, no cache", "--disable-radix-cache does not go with the pbkv cache"),
    ("sessions", "--enable-session-radix-cache does not go with the pbkv cache"),
    ("workers", "--tokenizer-worker-num 2 does not go with the pbkv cache"),
    ("abbreviated", "--tokenizer-worker-num 2 does not go with the pbkv cache"),
    ("sliding", f"this kind of model {SLIDING}"),
    ("recurrent", f"this kind of model {RECURRENT}"),
])
def test_what_cannot_is_refused_in_one_sentence_and_exit_2(judged: dict[str, tuple[str, str]], name: str, says: str) -> None:
    end, said = judged[name]
    assert (end, says in said) == ("exit 2", True), (end, said)


def test_a_core_that_was_chosen_by_the_environment(models: dict[str, str]) -> None:
    line = ("--model-path", models["dense"], *CPU, *PBKV)
    ((end, said),) = verdicts([line], SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND="rust")
    assert (end, "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=rust" in said) == ("exit 2", True)


def test_every_limit_is_a_setting_of_this_sglang() -> None:
    import msgspec
    from sglang.srt.server_args import ServerArgs

    fields = {field.name: field.default for field in msgspec.structs.fields(ServerArgs)}
    for limit in LIMITS:
        assert limit.field in fields
        assert not limit.clashes(fields[limit.field]), f"{limit.field}: SGLang's default is refused"


@pytest.mark.parametrize(("sliding", "recurrent", "why"), [
    (False, False, None), (True, False, SLIDING), (False, True, RECURRENT), (True, True, RECURRENT),
])
def test_kinds_as_sglang_tells_them(sliding: bool, recurrent: bool, why: str | None) -> None:
    said = model_problem(sliding=sliding, recurrent=recurrent, name="m")
    assert said == (f"--model-path m: this kind of model {why}" if why else None)


@pytest.mark.parametrize(("hybrid", "why"), [({"is_hybrid_swa": True}, SLIDING), ({"is_hybrid_ssm": True}, RECURRENT)])
def test_the_factory_refuses_too(capsys: pytest.CaptureFixture[str], hybrid: dict[str, bool], why: str) -> None:
    """Schedulers built without SGLang's launcher never pass the check of the flags."""
    from sglang.srt.server_args import ServerArgs

    args = ServerArgs(model_path="dummy")
    ctx = SimpleNamespace(**{"server_args": args, "is_hybrid_swa": False, "is_hybrid_ssm": False, **hybrid})
    with pytest.raises(SystemExit) as end:
        register._factory(ctx)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"pbkv: --model-path dummy: this kind of model {why}\n"
