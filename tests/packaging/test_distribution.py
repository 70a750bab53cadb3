"""What is declared is what there is: entry points, dependencies, pins, documents."""

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib import import_module, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pbkv import __version__
from pbkv.config import ServerConfig
from pbkv.knobs import KNOBS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def table(text: str, header: str) -> dict[str, list[str]]:
    """Rows of the Markdown table whose header starts so, by their first cell."""
    lines = text[text.index(header) :].splitlines()[2:]
    rows: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1:]
    return rows


def test_every_knob_is_documented_as_it_is() -> None:
    rows = table(OPERATIONS, "| knob |")
    assert list(rows) == list(KNOBS)
    for name, (default, range_, unit, meaning) in rows.items():
        knob = KNOBS[name]
        assert knob.parse_text(default) == knob.default
        assert (unit, meaning) == (knob.unit, knob.meaning)
        if knob.choices:
            assert range_ == ", ".join(knob.choices)
        else:
            low, high = range_.removesuffix(", whole").split(" to ")
            assert float(low) == knob.minimum
            assert float(high) == pytest.approx(knob.maximum, rel=1e-5)
            assert range_.endswith(", whole") == knob.integer


def test_every_setting_is_documented_with_its_default() -> None:
    rows = table(OPERATIONS, "| setting |")
    assert list(rows) == [f.name for f in fields(ServerConfig)]
    defaults = ServerConfig()
    for name, (default, _) in rows.items():
        value = getattr(defaults, name)
        if isinstance(value, int | float):
            assert float(default) == value
        elif value and isinstance(value, str):
            assert default == value


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{f.name}" for f in sorted((ROOT / "docs").glob("*.md")))])
def test_links_of_documents_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{document} links to {target}"


def test_folders_named_in_the_readme_exist() -> None:
    for name in re.findall(r"`([a-z_/]+/)`", (ROOT / "README.md").read_text()):
        assert (ROOT / name).is_dir()


def test_commands_in_documents_exist() -> None:
    from console.main import COMMANDS

    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/operations.md", "docs/architecture.md")]
    named = {m for text in texts for m in re.findall(r"\bpbkv (demo|collect|top|web|knobs|query|doctor|[a-z]+)\b(?= |`|,|$)", text, re.M)}
    prose = {"manages", "imports", "knows"}
    assert named - prose <= set(COMMANDS), named


def test_installed_distribution_is_this_source() -> None:
    assert metadata.version("pbkv-console") == __version__
    entries = {(e.group, e.name, e.value) for e in metadata.distribution("pbkv-console").entry_points}
    assert entries == {("console_scripts", "pbkv", "console.main:main"), ("sglang.srt.plugins", "pbkv", "pbkv.sglang.register:register")}


@pytest.mark.parametrize("group", ["console_scripts", "sglang.srt.plugins", "torch.backends"])
def test_entry_points_lead_to_functions(group: str) -> None:
    ours = [e for e in metadata.entry_points(group=group) if e.dist and e.dist.name in ("pbkv-console", "pbkv-sglang-cpu")]
    assert ours
    for entry in ours:
        assert callable(getattr(import_module(entry.module), entry.attr))


def test_pins_are_exact_and_free_of_local_builds() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line) for line in lines)
    names = [canonicalize_name(line.split("==")[0]) for line in lines]
    assert len(set(names)) == len(names)
    assert "triton" not in names, "real triton is a gigabyte; torch's own CUDA build asks for another version"


def requirements() -> list[Requirement]:
    extras = [r for name, group in PROJECT["optional-dependencies"].items() if name != "sglang" for r in group]
    files = [line for file in (ROOT / "requirements").glob("*.txt") for line in file.read_text().splitlines()]
    return [Requirement(line) for line in [*PROJECT["dependencies"], *extras, *files] if line and not line.startswith("#")]


def test_everything_that_is_installed_is_pinned_within_its_range() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in requirements():
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_a_console_needs_neither_torch_nor_sglang() -> None:
    base = {canonicalize_name(Requirement(r).name) for r in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["web"]}
    assert not base & {"torch", "sglang", "transformers", "torch-geometric"}


def imported(package: str) -> set[str]:
    """Top-level modules that the source of a package imports anywhere."""
    names: set[str] = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names)


OURS = {"pbkv", "collector", "console", "dashboards", "pbkv_sglang_cpu"}
#: Come with sglang itself.
WITH_SGLANG = {"torch", "sglang", "pyyaml", "prometheus-client"}


def test_every_import_is_declared_and_every_dependency_imported() -> None:
    providers = metadata.packages_distributions()
    used = {canonicalize_name(d) for p in ("pbkv", "collector", "console", "dashboards") for m in imported(p) - OURS for d in providers[m]}
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in ("web", "demo", "predictor", "sglang"))]
    declared = {canonicalize_name(Requirement(r).name) for group in groups for r in group}
    assert used - WITH_SGLANG - {"starlette"} <= declared
    # pytz is needed by duckdb for TIMESTAMPTZ, which does not ask for it.
    assert declared - {"pytz"} <= used


def test_no_machine_paths_and_no_package_hosts_in_what_is_shipped() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    bad = re.compile(r"(/work/|/root/|--extra-index-url|--index-url|pypi\.org)")
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".sql", ".css", ""} and path.is_file() and path != Path(__file__):
            assert not bad.search(path.read_text(errors="replace")), name
