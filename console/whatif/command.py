"""`pbkv whatif`: recorded traffic at other settings, with the error of the answer."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from collector.token import state_dir
from console.cli.options import Json, TokenFile
from console.cli.output import print_table
from console.whatif.running import Interrupt, bound_curve, progress
from console.whatif.source import facts_of, open_recording, window_of
from console.whatif.traces import TraceOptions
from pbkv import __version__
from pbkv.control.client import read_token
from pbkv.errors import UsageError
from pbkv.whatif.axes import AXES
from pbkv.whatif.cache import GridCache
from pbkv.whatif.choice import Limit, parse_figure, parse_limits
from pbkv.whatif.digest import digest
from pbkv.whatif.grid import parse_axes
from pbkv.whatif.page import page
from pbkv.whatif.report import Report, as_json, conclusion, heading
from pbkv.whatif.run import run_grid
from pbkv.whatif.table import axes_of, fidelity_rows, table

SourceOrTrace = Annotated[str, typer.Argument(
    metavar="SOURCE", help="A live collector (grpc://host:port), a .duckdb file, an archive folder, a lake (postgres:...), or a trace: "
    "Mooncake .jsonl, agent calls .parquet, sessions .json or a folder of them.",
)]


def _axis(field: str, help_: str) -> typer.models.OptionInfo:
    return typer.Option(f"--{AXES[field].option}", metavar="LIST", help=help_)


Policy = Annotated[str | None, _axis("policy", "Eviction policies: lru, lae, he, first_use, ...")]
Gamma = Annotated[str | None, _axis("gamma", "Confidence decay: 0.8 or 0.5:1:0.1 (start:stop:step, both included).")]
Horizon = Annotated[str | None, _axis("k", "Steps of the reuse score: 1,2,3 or 1:8:1.")]
Budget = Annotated[str | None, _axis("prefetch_budget", "Prefetch budget per decode step: 0,64MiB,link (what the link moves in a step).")]
Prefetch = Annotated[str | None, _axis("prefetch", "off, conservative, aggressive.")]
HostOrder = Annotated[str | None, _axis("host_order", "Order of host victims: recency, score.")]
DeviceTokens = Annotated[str | None, _axis("device_tokens", "Device tier: 500k, 1.2M, x0.5,x1,x2 (times the recorded).")]
HostTokens = Annotated[str | None, _axis("host_tokens", "Host tier, likewise; 0 = none.")]
Concurrency = Annotated[str | None, _axis("concurrency", "So many workflows at a time, instead of starts as recorded.")]
Predictor = Annotated[str | None, _axis("predictor", "Who predicts: recorded, markov, uniform, or the folder of a trained one.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Start of the window, ISO time (UTC unless it says otherwise).")]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the window.")]
Last = Annotated[str | None, typer.Option("--last", metavar="TIME", help="The last 10m, 1h, 1d of the recording instead.")]
ServerName = Annotated[str | None, typer.Option("--server", metavar="NAME", help="Which server, where the source has several.")]
Given = Annotated[list[str] | None, typer.Option(
    "--given", metavar="NAME=VALUE", help="What a log does not say of its server, such as device_tokens=500000; may be repeated.",
)]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with curves and maps that needs nothing else.")]
Sort = Annotated[str, typer.Option("--sort", metavar="FIGURE", help="Order of the settings, best first: hit, ttft_p95, moved_bytes, ...")]
Under = Annotated[list[str] | None, typer.Option(
    "--under", metavar="LIMIT", help='A limit the best setting must keep, such as "ttft_p95<800ms"; may be repeated.',
)]
Best = Annotated[str, typer.Option("--best", metavar="FIGURE", help="What the best setting is the best in.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, max=64, help="Processes.")]
Cells = Annotated[Path | None, typer.Option("--cells", metavar="DIR", help="Where finished settings are kept, so that a grid can go on.")]
PageSize = Annotated[int, typer.Option("--page-size", metavar="N", help="Of a trace: tokens of a page.")]
Timing = Annotated[str, typer.Option("--timing", metavar="NAME", help="Of a trace: whose speed, linear or MODEL@GPU.")]
Layout = Annotated[str, typer.Option("--layout", metavar="NAME", help="Of a trace without prompts: private, shared or group.")]
Workflows = Annotated[int | None, typer.Option("--workflows", metavar="N", help="Of a trace: only the first so many.")]


def whatif(
    source: SourceOrTrace, policy: Policy = None, gamma: Gamma = None, k: Horizon = None, budget: Budget = None, prefetch: Prefetch = None,
    host_order: HostOrder = None, device_tokens: DeviceTokens = None, host_tokens: HostTokens = None, concurrency: Concurrency = None,
    predictor: Predictor = None, from_: From = None, to: To = None, last: Last = None,
    server: ServerName = None, given: Given = None, json_: Json = False, html: Html = None, sort: Sort = "", under: Under = None,
    best: Best = "hit", workers: Workers = 2, cells: Cells = None, page_size: PageSize = 64, timing: Timing = "linear",
    layout: Layout = "group", workflows: Workflows = None, token_file: TokenFile = None,
) -> None:
    """Replay what SOURCE recorded at other settings: hit rates, TTFT and bytes moved, beside the present and with their error.

    Without any setting: how well the recorded one is replayed, which is the error of everything else.
    """
    axes = {
        "policy": policy, "gamma": gamma, "k": k, "prefetch_budget": budget, "prefetch": prefetch, "host_order": host_order,
        "device_tokens": device_tokens, "host_tokens": host_tokens, "concurrency": concurrency, "predictor": predictor,
    }
    asked = {name: text for name, text in axes.items() if text is not None}
    judged = _Judged(parse_limits(",".join(under or []), "--under"), parse_figure(best, "--best"), sort and parse_figure(sort, "--sort"))
    _check_folder(html)
    window = window_of(from_, to, last, server)
    options = TraceOptions(page_size, timing, layout, workflows)
    opened = open_recording(source, asked, window, facts_of(given or []), options, read_token(token_file))
    settings = parse_axes(asked, opened.recording)
    cache = GridCache(cells or state_dir() / "whatif-cells", opened.recording)
    with Interrupt().heard() as stop:
        with progress(len(settings)) as on_pace:
            grid = run_grid(opened.recording, settings, workers=workers, cache=cache, on_pace=on_pace, stop=stop)
        sizes = [setting.device_tokens for setting in settings if setting.device_tokens]
        bound = bound_curve(opened.recording, sizes, workers, stop) if html and len(set(sizes)) > 1 and not stop() else []
    report = Report(grid, source, opened.window, judged.limits, judged.figure, judged.sort)
    if html is not None and grid.fidelity is not None:
        _write(html, page(report, _about(report, source, opened.window), bound))
    _show(report, json_)
    raise typer.Exit(_say(report, html))


class _Judged(NamedTuple):
    limits: tuple[Limit, ...]
    figure: str
    sort: str


def _check_folder(html: Path | None) -> None:
    """Raises UsageError before a long run for a page that cannot be written."""
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise UsageError(f"--html {str(html)!r}: expected a file in a folder that exists")


def _write(html: Path, text: str) -> None:
    try:
        html.write_text(text)
    except OSError as error:
        raise UsageError(f"--html {str(html)!r}: cannot be written ({error.strerror}); name another file") from None


def _about(report: Report, source: str, window: str) -> dict[str, str]:
    """Where a page comes from."""
    recording, grid = report.grid.recording, report.grid
    engine = recording.engine
    return {
        "command": shlex.join(["pbkv", *sys.argv[1:]]),
        "source": source, **({"window": window} if window else {}),
        "content": f"{recording.calls:,} calls, {recording.page_refs:,} page references, digest {digest(recording)}",
        "engine": f"page size {engine.page_size}, {engine.write_policy}, {engine.max_running} running calls, {engine.timing}",
        "knobs": ", ".join(f"{name}={value}" for name, value in recording.knobs.items()),
        "settings": f"{len(grid.cells)} of {len(grid.asked)} settings from {grid.replayed} replays in {grid.took_s:.1f} s",
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by pbkv {__version__}",
    }


def _show(report: Report, json_: bool) -> None:
    """The answer, on stdout."""
    if json_:
        json.dump(as_json(report), sys.stdout, allow_nan=False)
        print()
        return
    print("\n".join(heading(report)) + "\n")
    if not report.grid.asked:
        _table(*fidelity_rows(report), 1, words_last=True)
        print("\nask about other settings with " + " ".join(f"--{axis.option}" for axis in AXES.values()) + " (see --help)")
    elif report.found:
        _table(*table(report), len(axes_of([cell.setting for cell in report.found])), words_last=True)
        print("\n" + "\n".join(conclusion(report)))


def _table(header: list[str], rows: list[list[str]], words: int, *, words_last: bool) -> None:
    print_table(header, rows, frozenset(range(words, len(header) - words_last)))


def _say(report: Report, html: Path | None) -> int:
    """What went wrong and what was written, on stderr; returns the exit status."""
    grid = report.grid
    for cell in report.failed:
        print(f"failed: {cell.setting.label}: {cell.error}", file=sys.stderr)
    if html is not None and grid.fidelity is not None:
        print(f"written: {html}", file=sys.stderr)
    if grid.stopped:
        done = f"{len(grid.cells)} of {len(grid.asked)} settings are finished" if grid.asked else "the recorded setting is not finished"
        print(f"interrupted: {done}; the same command goes on from there", file=sys.stderr)
        return 130
    return 1 if report.failed and not report.found else 0
