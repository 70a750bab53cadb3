"""`make install` says what is wrong in one sentence, goes on where it stopped, and does nothing twice."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the installer reads, with a Python that only pretends to install, in a folder with a blank in its name."""
    tree = tmp_path / "a tree"
    (tree / "tests").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tree)
    for name in ("requirements", "scripts"):
        shutil.copytree(ROOT / name, tree / name)
    made = shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
    shutil.copytree(ROOT / "tests" / "sglang_cpu", tree / "tests" / "sglang_cpu", ignore=made)
    return tree


def fake_python(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "python3"
    python.write_text(f"#!/bin/bash\n{body}\n")
    python.chmod(0o755)
    return python


#: Makes a "venv" whose python logs its calls and fails where FAIL says.
PRETEND = """
case "$*" in
  *"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  *"-m pip"*|*"import"*) echo "$*" >> calls; if [ -n "$FAIL" ] && [[ "$*" == *"$FAIL"* ]]; then exit 7; fi ;;
esac
"""


def install(tree: Path, tools: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{tools}:/usr/bin:/bin"
    for version in ("python3.11", "python3.12"):
        if not (tools / version).exists():
            (tools / version).symlink_to(tools / "python3")
    return subprocess.run([tree / "scripts" / "install"], env={"PATH": path, **env}, capture_output=True, text=True, check=False)


def test_old_python_is_refused_with_what_to_do(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", "exit 1")
    done = install(tree, tmp_path / "bin")
    assert done.returncode == 1
    assert "needs Python 3.11 or 3.12" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (tree / ".venv").exists()


def test_missing_venv_module_is_told(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", 'case "$*" in *ensurepip*) exit 1 ;; esac')
    done = install(tree, tmp_path / "bin")
    assert done.returncode == 1
    assert "has no venv module; on Debian: apt-get install python3-venv" in done.stderr


def test_says_what_it_does_and_does_it_once(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", PRETEND)
    done = install(tree, tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    assert "about 2.5 GB" in done.stderr
    calls = (tree / "calls").read_text()
    assert "-c constraints.txt" in calls
    assert "--no-deps -r requirements/sglang-cpu-no-deps.txt" in calls
    again = install(tree, tmp_path / "bin")
    assert (again.returncode, again.stderr) == (0, "")
    assert (tree / "calls").read_text() == calls


def test_goes_on_where_it_stopped(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", PRETEND)
    failed = install(tree, tmp_path / "bin", FAIL="sglang-cpu.txt")
    assert failed.returncode == 1
    assert "failed (exit 7); run it again, it goes on where it stopped" in failed.stderr
    (tree / "calls").unlink()
    done = install(tree, tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    assert "page and test tools: done before" in done.stderr
    assert "[web,demo,predictor,lake,quack,test]" not in (tree / "calls").read_text()


def test_changed_pins_install_again(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", PRETEND)
    install(tree, tmp_path / "bin")
    (tree / "calls").unlink()
    with (tree / "constraints.txt").open("a") as pins:
        pins.write("new-package==1.0\n")
    assert install(tree, tmp_path / "bin").returncode == 0
    assert "[web,demo,predictor,lake,quack,test]" in (tree / "calls").read_text()


def test_triton_standin_is_left_out_where_triton_is_installed(tree: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", PRETEND)
    install(tree, tmp_path / "bin")
    assert "triton_standin" not in (tree / "calls").read_text(), "the pretended Python says that triton is there"
    shutil.rmtree(tree / ".venv")
    install(tree, tmp_path / "bin", FAIL='m.version("triton")')
    assert "--no-deps ./tests/sglang_cpu/triton_standin" in (tree / "calls").read_text()


def test_scripts_are_valid_bash_and_fail_on_errors() -> None:
    for script in (ROOT / "scripts" / "install", ROOT / ".ci" / "run"):
        assert os.access(script, os.X_OK)
        assert "set -euo pipefail" in script.read_text()
        subprocess.run(["bash", "-n", script], check=True)
