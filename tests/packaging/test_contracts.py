"""Import contracts hold, and would notice a breach; the front ends load neither torch nor sglang."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("pbkv", "collector", "console", "dashboards")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    # -c: the contracts of the folder we are in, on the packages of that folder.
    code = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--config", "pyproject.toml"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_contracts_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert "6 kept, 0 broken" in done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages somewhere else, to be broken."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("pbkv/knobs.py", "import collector", "pbkv imports nothing of ours"),
        ("console/main.py", "import dashboards", "console and dashboards never import each other"),
        ("collector/reader.py", "import console.main", "collector lies below the front ends"),
        ("collector/reader.py", "import pbkv.workflow", "of pbkv, collector knows events, knobs and errors"),
        ("pbkv/record.py", "import sglang", "sglang is imported in pbkv.sglang alone"),
        ("dashboards/__init__.py", "import torch", "torch is imported in pbkv.predictor and pbkv.sglang alone"),
    ],
)
def test_a_breach_is_noticed(copy: Path, file: str, line: str, contract: str) -> None:
    with (copy / file).open("a") as source:
        source.write(f"\n{line}\n")
    done = lint(copy)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in " ".join(done.stdout.split())


HEAVY = "{'torch', 'sglang', 'transformers', 'triton'}"


FRONT_ENDS = ("collector, console, dashboards", "console.main", "collector.service", "console.demo.stack", "dashboards.serve")


@pytest.mark.parametrize("modules", FRONT_ENDS)
def test_front_ends_load_neither_torch_nor_sglang(modules: str) -> None:
    code = f"import sys, {modules}; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from console.main import run; run(['--help'])\n"
        "print(sorted({'duckdb', 'pyarrow', 'textual', 'dash', 'fastapi', 'numpy', 'openai'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
