"""What does not go with the cache: one sentence each, from text as on a command line and from values as SGLang resolves them."""

from typing import Any

import pytest

from pbkv.launch.flags import FIELDS, Flags
from pbkv.launch.limits import ENVIRONMENT, LIMITS, conflict, plugin_left_out


@pytest.mark.parametrize(("argv", "says"), [
    (["--radix-cache-backend", "flexkv"], "--radix-cache-backend flexkv does not go with the pbkv cache: it names another cache"),
    (["--disable-radix-cache"], "leaves no cache to manage"),
    (["--enable-session-radix-cache"], "session_lae"),
    (["--enable-lmcache"], "is another cache"),
    (["--enable-flexkv"], "is another cache"),
    (["--enable-unified-cache-external-linker"], "no host tier"),
    (["--enable-hisparse"], "by itself"),
    (["--hicache-host-memory-mode", "buffer_only"], "keeps nothing in host memory"),
    (["--disaggregation-mode", "prefill"], "--disaggregation-mode prefill"),
    (["--disaggregation-mode=decode"], "--disaggregation-mode decode"),
    (["--speculative-algorithm", "EAGLE"], "--speculative-algorithm EAGLE"),
    (["--dllm-algorithm", "LowConfidence"], "by diffusion"),
    (["--pp-size", "2"], "tensor parallelism"),
    (["--pipeline-parallel-size=2"], "--pp-size 2"),
    (["--tokenizer-worker-num", "4"], "leave it at 1"),
    (["--smg-grpc-mode"], "no HTTP server"),
    (["--grpc-mode"], "no HTTP server"),
    (["--encoder-only"], "no KV cache"),
    (["--use-ray"], "never run in"),
])
def test_each_is_one_sentence(argv: list[str], says: str) -> None:
    sentence = conflict(Flags(argv).get, {})
    assert sentence is not None and says in sentence
    assert "\n" not in sentence and len(sentence) < 250


@pytest.mark.parametrize("argv", [
    [], ["--radix-cache-backend", "pbkv"], ["--pp", "1"], ["--tokenizer-worker-num", "1"], ["--disaggregation-mode", "null"],
    ["--hicache-host-memory-mode", "cache"], ["--tp", "8", "--dp", "2", "--enable-lora", "--hicache-ratio", "2"], ["--pp-size", "x"],
])
def test_what_goes(argv: list[str]) -> None:
    assert conflict(Flags(argv).get, {}) is None


def test_every_limit_is_reached_from_the_command_line() -> None:
    assert {limit.field for limit in LIMITS} <= FIELDS.keys()


@pytest.mark.parametrize(("field", "value", "clashes"), [
    ("disable_radix_cache", False, False), ("disable_radix_cache", True, True), ("speculative_algorithm", None, False),
    ("pp_size", 1, False), ("pp_size", 2, True), ("disaggregation_mode", "null", False), ("enable_lmcache", True, True),
    ("tokenizer_worker_num", 2, True),
])
def test_values_as_sglang_resolves_them(field: str, value: Any, clashes: bool) -> None:
    assert (conflict(lambda name: value if name == field else None, {}) is not None) == clashes


@pytest.mark.parametrize(("name", "value", "clashes"), [
    ("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "rust", True), ("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", " Rust ", True),
    ("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "python", False), ("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "", False),
    ("SGLANG_RUST_SERVER", "1", True), ("SGLANG_RUST_SERVER", "true", True), ("SGLANG_RUST_SERVER", "0", False), ("OTHER", "rust", False),
])
def test_the_environment(name: str, value: str, clashes: bool) -> None:
    sentence = conflict(lambda field: None, {name: value})
    assert (sentence is not None) == clashes
    assert sentence is None or name in sentence
    assert not clashes or name in ENVIRONMENT


@pytest.mark.parametrize(("chosen", "out"), [("", False), (" ", False), ("pbkv", False), ("a, pbkv", False), ("a", True), ("pbkv2", True)])
def test_a_choice_of_plugins(chosen: str, out: bool) -> None:
    sentence = plugin_left_out({"SGLANG_PLUGINS": chosen})
    assert (sentence is not None) == out
    assert plugin_left_out({}) is None
