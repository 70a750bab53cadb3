"""In CI a skipped test fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest
def test_one():
    assert True
@pytest.mark.skip(reason="no browser")
def test_two():
    ...
"""


def suite(folder: Path, text: str, ci: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("test_it.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | ({"CI": ci} if ci else {})
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(folder), str(folder)]
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_skip_fails_only_in_ci(tmp_path: Path, ci: str, status: int) -> None:
    done = suite(tmp_path, SUITE, ci)
    assert done.returncode == status, done.stdout
    assert ("a skipped test is a failure" in done.stdout) == bool(status)


def test_module_that_skips_itself_counts(tmp_path: Path) -> None:
    done = suite(tmp_path, "import pytest\npytest.importorskip('no_such_module')\n", "true")
    assert done.returncode != 0


def test_nothing_skipped_is_good_in_ci(tmp_path: Path) -> None:
    assert suite(tmp_path, "def test_one():\n    assert True\n", "true").returncode == 0
