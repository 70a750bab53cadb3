"""Another SGLang than the one the plugin was written for stops the server in one sentence, and no other server at all."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from pbkv.sglang import compat
from pbkv.sglang.register import _selected

#: Runs SGLang's own plugin loader after a fault was put in, as a server does before it parses its flags.
SCRIPT = """
import sys
from pbkv.sglang import compat
{fault}
sys.argv = ["sglang", *{argv!r}]
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.mem_cache.registry import registered_radix_cache_backends, get_radix_cache_factory
print("backends", registered_radix_cache_backends())
{then}
print("still here")
"""
WRONG_VERSION = "compat.version = lambda name: '0.5.99'"
MISSING_TARGET = "compat.TARGETS['sglang.srt.managers.scheduler.Scheduler.no_such_method'] = ()"


def load(fault: str, *argv: str, then: str = "") -> "subprocess.CompletedProcess[str]":
    script = SCRIPT.format(fault=fault, argv=list(argv), then=then)
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=240, check=False)


def test_this_sglang_fits() -> None:
    assert compat.problem() is None


def test_another_version_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda name: "0.6.0")
    sentence = compat.problem()
    assert sentence is not None
    assert "0.6.0" in sentence
    assert f"sglang=={compat.REQUIRED}" in sentence
    assert "\n" not in sentence


def test_no_sglang_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", missing)
    assert (compat.problem() or "").startswith("sglang is not installed")


@pytest.mark.parametrize("target", [t for t in compat.TARGETS if "." in t.removeprefix("sglang.srt.")])
def test_each_target_that_is_gone_is_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pkgutil

    owner, name = target.rsplit(".", 1)
    monkeypatch.delattr(pkgutil.resolve_name(owner), name)
    inherited = hasattr(pkgutil.resolve_name(owner), name)
    sentence = compat.problem()
    assert inherited or (sentence is not None and target in sentence)


@pytest.mark.parametrize(("target", "parameters"), [(t, p) for t, p in compat.TARGETS.items() if p])
def test_each_parameter_that_is_gone_is_named(target: str, parameters: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    import pkgutil

    def changed(self: Any, *args: Any) -> None:
        """The same name, another signature."""

    owner, name = target.rsplit(".", 1)
    monkeypatch.setattr(pkgutil.resolve_name(owner), name, changed)
    sentence = compat.problem()
    assert sentence is not None
    assert target in sentence
    assert parameters[0] in sentence


def test_the_targets_are_all_the_plugin_overrides() -> None:
    """An override that compat does not check would be silently bypassed by a renamed method."""
    from sglang.srt.mem_cache.unified_cache.components import FullComponent
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    from pbkv.sglang.cache import PbkvCache
    from pbkv.sglang.full import PbkvFull

    for ours, theirs in ((PbkvCache, UnifiedRadixCache), (PbkvFull, FullComponent)):
        for name, value in vars(ours).items():
            if callable(value) and hasattr(theirs, name) and not name.startswith("__"):
                assert any(t.endswith(f"{theirs.__name__}.{name}") for t in compat.TARGETS), f"{theirs.__name__}.{name} is not checked"


@pytest.mark.parametrize(("fault", "names"), [(WRONG_VERSION, "0.5.99"), (MISSING_TARGET, "Scheduler.no_such_method")])
def test_the_process_ends_when_pbkv_was_asked_for(fault: str, names: str) -> None:
    done = load(fault, "--model-path", "x", "--radix-cache-backend", "pbkv")
    assert done.returncode == 2
    assert "still here" not in done.stdout
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("pbkv: ")]
    assert names in sentence
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "chosen"),
    [
        (["x", "--radix-cache-backend", "pbkv"], True),
        (["x", "--radix-cache-backend=pbkv", "--tp", "2"], True),
        (["x", "--radix-cache-backend", "flexkv"], False),
        (["x", "--model-path", "pbkv"], False),
        (["pbkv", "--radix-cache-backend"], False),
        ([], False),
    ],
)
def test_both_ways_to_write_the_flag(argv: list[str], chosen: bool) -> None:
    assert _selected(argv) is chosen


def test_a_stock_server_is_not_disturbed_and_the_python_interface_is_refused() -> None:
    """Not asked for on the command line: nothing is hooked, and whoever builds the cache through the Python API is refused."""
    then = """
from sglang.srt.plugins.hook_registry import HookRegistry
print("hooked", any(h.__module__.startswith("pbkv.") for hooks in HookRegistry._hooks.values() for _, h, _ in hooks))
try:
    get_radix_cache_factory("pbkv")(None)
except SystemExit as end:
    print("refused", end.code)
"""
    done = load(WRONG_VERSION, "--model-path", "x", then=then)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "still here" in done.stdout
    assert "hooked False" in done.stdout
    assert "refused 2" in done.stdout
    assert "pbkv: sglang 0.5.99" in done.stderr


def test_a_right_sglang_has_the_backend_and_goes_on() -> None:
    then = """
from sglang.srt.plugins.hook_registry import HookRegistry
print("hooked", any(h.__module__.startswith("pbkv.") for hooks in HookRegistry._hooks.values() for _, h, _ in hooks))
"""
    done = load("", "--model-path", "x", "--radix-cache-backend", "pbkv", then=then)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'pbkv'" in done.stdout
    assert "hooked True" in done.stdout
    assert "still here" in done.stdout
    assert "Failed to execute" not in done.stderr
