"""What is set for the caller, why, and that nothing the caller has set is touched."""

import pytest

from pbkv.launch.flags import Flags
from pbkv.launch.plan import Plan, make_plan

BASE = ("--model-path", "m")


def plan(*argv: str, settings: str | None = None, **environ: str) -> Plan:
    return make_plan([*BASE, *argv], Flags([*BASE, *argv]), environ, settings)


def test_what_every_server_gets() -> None:
    made = plan()
    assert made.arguments == ("--radix-cache-backend", "pbkv", "--enable-metrics", "--enable-cache-report", *BASE)
    assert made.environment == {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}
    assert len(made.notes) == 1 and "--hicache-ratio" in made.notes[0]


@pytest.mark.parametrize("flag", ["--hicache-ratio=2", "--hicache-size=10", "--hicache-write-policy=write_back"])
def test_a_host_tier_is_switched_on_where_its_size_is_given(flag: str) -> None:
    made = plan(flag)
    assert "--enable-hierarchical-cache" in made.arguments
    assert made.notes == ()
    assert "--hicache-io-backend" not in made.arguments


def test_what_the_caller_set_stays_the_only_one() -> None:
    given = ("--radix-cache-backend=pbkv", "--enable-metrics", "--enable-cache-report", "--enable-hicache", "--hicache-io-backend=kernel")
    made = plan(*given, "--device", "cpu", SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND="python", SGLANG_USE_CPU_ENGINE="1")
    assert made.arguments == ("--hicache-mem-layout", "layer_first", *BASE, *given, "--device", "cpu")
    assert made.environment == {}


def test_the_caller_has_the_last_word() -> None:
    made = plan("--enable-met", "--hicache-ratio", "2")  # however it is spelled, SGLang reads the caller's after ours
    assert made.arguments[-len(BASE) - 3 :] == (*BASE, "--enable-met", "--hicache-ratio", "2")


def test_a_cpu_gets_what_a_cpu_needs() -> None:
    made = plan("--device", "cpu", "--hicache-ratio", "4")
    assert made.environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert {"--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first"} <= set(made.arguments)
    alone = plan("--device", "cpu")
    assert "--hicache-io-backend" not in alone.arguments


def test_the_settings_file_travels_by_the_environment() -> None:
    assert plan(settings="/etc/pbkv.json").environment["PBKV_CONFIG"] == "/etc/pbkv.json"
    assert "PBKV_CONFIG" not in plan(PBKV_CONFIG="/other").environment


def test_each_setting_has_a_reason() -> None:
    made = plan("--device", "cpu", "--hicache-ratio", "4", settings="f")
    assert all(setting.why and setting.text for setting in made.settings)
    flags = [word for setting in made.settings for word in setting.flags]
    assert (*flags, *BASE, "--device", "cpu", "--hicache-ratio", "4") == made.arguments
