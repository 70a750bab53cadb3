"""`pbkv bench NAME`: the benchmarks of the source tree from the command line."""

import json
from pathlib import Path

import pytest

from console.cli import measure
from console.main import run
from pbkv.errors import UsageError


def test_every_name_has_a_benchmark() -> None:
    root = Path(__file__).parents[2] / "tests" / "benchmarks"
    assert all((root / f"{module}.py").is_file() for module, _ in measure.MEASURED.values())


def test_a_benchmark_prints_its_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "scores", "--quick", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found["us_per_victim"]["10000"]) >= {"lru", "he", "first_use"}
    assert all(us > 0 for us in found["us_per_victim"]["10000"].values())


def test_options_reach_the_benchmark(capfd: pytest.CaptureFixture[str]) -> None:
    assert measure.measure("bench_scores", ["--nonsense"]) == 2
    assert "--nonsense" in capfd.readouterr().err


def test_an_installed_pbkv_says_where_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in a checkout"):
        measure.measure("bench_scores", [], tmp_path)
