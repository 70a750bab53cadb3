"""The frame of the command line: help, version, usage errors, imports, exit statuses."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
import typer

from console.main import COMMANDS, root, run
from pbkv import __version__
from tests.console.cli import pbkv


def test_help_lists_every_command_that_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert (f"\n  {name} " in out) == (find_spec(command.module) is not None)


@pytest.mark.parametrize("name", ["collect", "top", "web", "knobs", "query"])
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: pbkv {name}" in capsys.readouterr().out


def test_every_listed_command_loads() -> None:
    group = root()
    context = typer.Context(group)
    for name in group.list_commands(context):
        found, command, rest = group.resolve_command(context, [name, "x"])
        assert (found, rest) == (name, ["x"]) and command is not None


def test_version() -> None:
    done = pbkv("--version")
    assert (done.status, done.out, done.err) == (0, f"pbkv {__version__}\n", "")


@pytest.mark.parametrize(("args", "words"), [
    (["frobnicate"], ["No such command 'frobnicate'", "pbkv --help"]),
    (["knobz"], ["Did you mean 'knobs'"]),
    (["--frobnicate"], ["No such option", "--frobnicate"]),
    (["knobs", "set", "--server"], ["--server"]),
    (["knobs", "set", "gamma=0.5"], ["--server"]),
    (["knobs", "set", "--server", "http://127.0.0.1:1"], ["NAME=VALUE"]),
    (["knobs", "set", "k=1", "--server", "http://x:1", "--if-version", "x"], ["--if-version"]),
    (["web", "x.duckdb", "--port", "0"], ["--port"]),
    (["web", "x.duckdb", "--port", "99999"], ["--port"]),
    (["query"], ["SOURCE"]),
    (["top"], ["SOURCE"]),
    (["collect"], ["--db"]),
])
def test_usage_errors_are_one_sentence_and_exit_2(args: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    for word in words:
        assert word in captured.err


def test_without_a_command_the_help_says_which_there_are() -> None:
    done = pbkv()
    assert (done.status, done.out) == (2, "")
    assert "Commands:" in done.err


def test_an_interrupt_exits_130_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import console.cli.query as module

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "open_source", interrupted)
    assert run(["query", "x.duckdb", "loss"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "console.cli.query", raising=False)
    monkeypatch.setitem(sys.modules, "collector.client", None)
    assert run(["query", "x", "y"]) == 1
    err = capsys.readouterr().err
    assert "which is not installed" in err and len(err.strip().splitlines()) == 1


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    script = f"import sys\n{code}\nprint(*{{m.split('.')[0] for m in sys.modules}})"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(out.stdout.splitlines()[-1].split())


def test_the_frame_of_the_command_line_loads_nothing_heavy() -> None:
    heavy = {
        "torch", "sglang", "textual", "textual_plot", "duckdb", "pyarrow", "dash", "requests", "numpy", "zmq", "fastapi",
        "collector", "dashboards",
    }
    assert not loaded("import console.main") & heavy
    assert not loaded("from console.main import run; run(['--help'])") & heavy


def test_the_front_ends_load_neither_torch_nor_sglang() -> None:
    front = "import collector, console, dashboards, console.main, console.cli.top, console.cli.query, console.cli.collect, console.top.app"
    assert not loaded(front) & {"torch", "sglang", "dash"}


def test_a_reader_that_leaves_early_is_no_error_to_shout_about(tmp_path: object) -> None:
    command = f"{sys.executable} -m console.main query --help | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
