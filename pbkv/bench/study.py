"""`pbkv bench paper` without the command line: which experiments, run and summed up, written as report and data."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pbkv import __version__
from pbkv.bench.cell import Cell, Source
from pbkv.bench.cellcache import CellCache
from pbkv.bench.claims import findings
from pbkv.bench.compare import Finding
from pbkv.bench.experiment import Experiment, Summary, summarise
from pbkv.bench.page import page
from pbkv.bench.paper import Scope, experiments
from pbkv.bench.pool import run_cells
from pbkv.bench.progress import Progress
from pbkv.bench.report import markdown, table
from pbkv.errors import UsageError

#: Workflow sets of a full run and of a quick one.
SEEDS, QUICK_SEEDS = 5, 1
HEAD = ("claim", "paper or aim", "here", "where", "holds")


@dataclass(frozen=True)
class Study:
    """What was run, and what came of it."""

    scope: Scope
    seeds: Sequence[int]
    summaries: Mapping[str, Summary]
    found: Sequence[Finding]

    @property
    def about(self) -> dict[str, str]:
        """One line on the run, by name."""
        calls = sum(f["calls"].mean for s in self.summaries.values() for f in s.figures.values()) * len(self.seeds)
        places = sum(len(s.figures) for s in self.summaries.values())
        return {
            "pbkv": __version__, "workflow sets": ", ".join(map(str, self.seeds)), "places": str(places),
            "calls measured": f"{calls:,.0f}", "recorded runs": ", ".join(name for name, _ in self.scope.traces) or "none",
        }


def run_study(scope: Scope, seeds: Sequence[int], only: Iterable[str], cache: CellCache, jobs: int) -> Study:
    """Run what is not known yet and sum all up. Raises UsageError for an unknown experiment."""
    chosen = choose(experiments(scope), list(only))
    cells = {cell.plain() for experiment in chosen for cell in experiment.cells(seeds)}
    progress = Progress(len(cells), "runs")
    results = run_cells(sorted(cells, key=repr), cache, jobs, progress)
    progress.close()
    summaries = {experiment.name: summarise(experiment, results, seeds) for experiment in chosen}
    return Study(scope, seeds, summaries, findings(summaries))


def choose(all_: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Those named, all without a name."""
    names = {experiment.name for experiment in all_}
    for name in only:
        if name not in names:
            raise UsageError(f"--only {name!r}: no such experiment; expected one of {', '.join(e.name for e in all_)}")
    return [e for e in all_ if e.points and (not only or e.name in only)]


def as_json(study: Study) -> dict[str, object]:
    """Everything for scripts: settings, findings, and each figure as [mean, least, largest]."""
    return {
        "about": study.about,
        "defaults": asdict(Cell(Source("hover"))),
        "findings": [asdict(finding) for finding in study.found],
        "experiments": {
            name: [
                {
                    "panel": panel, "series": series, "x": x,
                    "figures": {n: [round(s.mean, 4), round(s.low, 4), round(s.high, 4)] for n, s in figures.items()},
                }
                for (panel, series, x), figures in summary.figures.items()
            ]
            for name, summary in study.summaries.items()
        },
    }


def line(finding: Finding) -> list[str]:
    """A finding as texts under HEAD."""
    return [finding.claim, finding.paper, finding.here, finding.where, {True: "yes", False: "no", None: ""}[finding.holds]]


def as_text(study: Study) -> str:
    """The table beside the paper, then all figures, as Markdown."""
    head = "; ".join(f"{name}: {value}" for name, value in study.about.items())
    claims = table(HEAD, (line(finding) for finding in study.found))
    return "\n".join([f"# The paper's experiments\n\n{head}\n", claims, *(markdown(s) for s in study.summaries.values())])


def write(study: Study, folder: Path) -> list[Path]:
    """report.html, report.md and results.json. Raises UsageError when the folder cannot be written."""
    files = {
        "report.html": page(study.summaries.values(), study.found, study.about), "report.md": as_text(study),
        "results.json": json.dumps(as_json(study), indent=1),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"output folder {str(folder)!r} cannot be written ({error.strerror}); name another with -o") from None
    return [folder / name for name in files]
