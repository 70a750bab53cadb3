"""The results of a run as one JSON file and as Markdown for docs/benchmarks.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Parts in the order of the report, and what their tables are called.
TITLES = {
    "prefetch": "Prefetch under delayed loads", "bandwidth": "Host-device bandwidth", "predictor": "Predictor latency",
    "ttft": "Stock against PBKV",
}


def write(results: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """gpu.json and gpu.md in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_text = folder / "gpu.json", folder / "gpu.md"
    as_json.write_text(json.dumps(results, indent=2) + "\n")
    as_text.write_text(markdown(results))
    return as_json, as_text


def markdown(results: Mapping[str, Any]) -> str:
    """Machine and command, then one section per part that was run; a part that failed says so."""
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    lines = ["# On a GPU", "", f"Machine: {machine}.", "", f"Command: `{results['command']}`", ""]
    for part, title in TITLES.items():
        if part in results["parts"]:
            lines += [f"## {title}", "", *_section(results["parts"][part]), ""]
    return "\n".join(lines)


def _section(found: Mapping[str, Any]) -> list[str]:
    if "error" in found:
        return [f"Failed: {found['error']}"]
    verdict = [f"{found['verdict']}", ""] if "verdict" in found else []
    return [*verdict, *table({name: row for name, row in found.items() if isinstance(row, Mapping)}), *_scalars(found)]


def _scalars(found: Mapping[str, Any]) -> list[str]:
    named = {name: value for name, value in found.items() if name != "verdict" and not isinstance(value, Mapping)}
    return ["", ", ".join(f"{name}: {value}" for name, value in named.items())] if named else []


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A Markdown table: a line per row, a column per name that any row has, empty where one has it not."""
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return lines + ["| " + " | ".join([name, *(str(row.get(c, "")) for c in columns)]) + " |" for name, row in rows.items()]
