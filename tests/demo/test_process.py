"""Processes of the demo: their end, and the end of what they started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.demo.process import Child, uninterrupted
from pbkv.errors import PbkvError, UsageError
from tests.support.processes import gone, until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1; done"


def shell(script: str, tmp_path: Path, *, grace_s: float = 5.0) -> Child:
    return Child("part", ["bash", "-c", script], tmp_path / "part.log", grace_s=grace_s)


def text(child: Child) -> str:
    return child.log.read_text()


def test_stop_ends_a_willing_process_by_sigterm(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    child = Child("part", [sys.executable, "-c", code], tmp_path / "part.log")
    until(lambda: "ready" in text(child), "child runs")
    child.check()
    child.stop()
    assert child.exit_code == 0
    assert text(child) == "ready\nbye\n"


def test_stop_kills_a_stubborn_process_and_its_children(tmp_path: Path) -> None:
    child = shell(f"bash -c \"{STUBBORN}\" & echo $!; {STUBBORN}", tmp_path, grace_s=0.2)
    until(lambda: text(child).count("ready") == 2, "both run")
    grandchild = int(text(child).split()[0] if text(child)[0].isdigit() else text(child).split()[1])
    child.stop()
    assert child.exit_code == -signal.SIGKILL
    assert gone(grandchild)


def test_children_of_a_process_that_died_go_too(tmp_path: Path) -> None:
    child = shell(f"bash -c \"{STUBBORN}\" & echo $!; wait $!", tmp_path)
    until(lambda: "ready" in text(child), "grandchild runs")
    grandchild = int(next(word for word in text(child).split() if word.isdigit()))
    subprocess.run(["kill", "-KILL", str(child.pid)], check=True)
    until(lambda: child.exit_code is not None, "death is seen")
    assert gone(grandchild)
    child.stop()  # stopping a dead one is no error


def test_death_is_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    child = shell("for i in $(seq 30); do echo line $i; done; exit 3", tmp_path)
    until(lambda: child.exit_code == 3, "exit")
    with pytest.raises(PbkvError, match=r"part ended with exit 3") as caught:
        child.check()
    assert str(caught.value).endswith("line 29\nline 30")
    assert "line 18\n" not in str(caught.value)


def test_death_by_signal_names_it(tmp_path: Path) -> None:
    child = shell("kill -SEGV $$", tmp_path)
    until(lambda: child.exit_code is not None, "exit")
    with pytest.raises(PbkvError, match="part was ended by SIGSEGV"):
        child.check()


def test_usage_error_of_a_part_is_passed_on_as_one(tmp_path: Path) -> None:
    child = shell("echo noise; echo 'port 1 is in use; name another' >&2; exit 2", tmp_path)
    until(lambda: child.exit_code == 2, "exit")
    with pytest.raises(UsageError, match="part: port 1 is in use; name another"):
        child.check()


def test_parts_end_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from console.demo.process import Child\n"
        f"c = Child('part', ['sleep', '1000'], Path({str(tmp_path / 'log')!r})); print(c.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
    until(lambda: gone(pid), "orphan ends")


def test_interrupts_wait_for_the_block_and_children_do_not_inherit_that(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    codes: list[int | None] = []
    # What a shell's background jobs start with ignores the signal; here it must do what it does in a terminal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012 - what must not be interrupted is the whole block
        signal.raise_signal(signal.SIGINT)
        child = shell("echo ready; while :; do sleep 0.1; done", tmp_path)
        until(lambda: "ready" in text(child), "child runs")
        child.stop()
        codes.append(child.exit_code)
    assert codes == [-signal.SIGTERM], "the interrupt came after the block"
