"""What only a CUDA machine can show: `python -m tests.gpu [PART ...]`, or tests/gpu/run.sh, which also makes the environment.

    prefetch   real streams and events under delayed loads: same answers, and without the plugin's wait wrong ones
    bandwidth  between host memory and the device
    predictor  latency of a prediction on this machine
    ttft       hit rate, TTFT and the plugin's time per step beside stock SGLang

Writes gpu.json and gpu.md. Exit status: 0, 1 when a part failed or does not hold, 2 when something is missing.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pbkv.errors import UsageError
from tests.gpu import bandwidth, prefetch, ttft
from tests.gpu.environment import machine, missing
from tests.gpu.report import TITLES, write


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options. Raises UsageError for a model that is none."""
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*TITLES, []], help="of the above; all of them when none is named")
    parser.add_argument("--model", type=Path, help="folder of a model for ttft; without it the shape of one with random weights")
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="where gpu.json and gpu.md go")
    parser.add_argument("--calls", type=int, default=150, help="calls of each configuration in ttft")
    parser.add_argument("--device-tokens", type=int, default=0, help="device pool in ttft, tokens; 0 = 40 %% of what the workflows keep")
    parser.add_argument("--delay-cycles", type=int, default=80_000_000, help="delay of a load per layer in prefetch, GPU cycles")
    parser.add_argument("--link-bytes-per-s", type=float, default=25e9, help="the plugin's setting in ttft")
    parser.add_argument("--server-args", default="", help="more flags for every SGLang server, in one word")
    options = parser.parse_args(argv)
    for name, least in (("calls", 20), ("device_tokens", 0), ("delay_cycles", 1), ("link_bytes_per_s", 1)):
        if not least <= (value := getattr(options, name)) <= 1e13:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected a number from {least} to 1e13")
    if options.model is not None:
        ttft.vocabulary(options.model)
    return options


def parts(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """The parts that were asked for, in the order of the report."""
    flags = options.server_args.split()
    every: dict[str, Callable[[], dict[str, Any]]] = {
        "prefetch": lambda: prefetch.run(folder, options.delay_cycles, flags),
        "bandwidth": bandwidth.run,
        "predictor": predictor,
        "ttft": lambda: ttft.run(folder, options.model, options.calls, options.device_tokens, options.link_bytes_per_s, flags),
    }
    return {name: part for name, part in every.items() if not options.parts or name in options.parts}


def predictor() -> dict[str, Any]:
    """Microseconds of a batch of 1,024 and of one prediction, four agents and text."""
    from tests.benchmarks.bench_predict import network_us

    return dict(network_us(4, 128, 300))


def run(wanted: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Each part's results; a part that fails is said to have failed, and the others go on."""
    found: dict[str, Any] = {}
    for name, part in wanted.items():
        sys.stderr.write(f"gpu: {name} ...\n")
        try:
            found[name] = part()
        except Exception as error:  # a driver's or server's failure of any kind is a result
            found[name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[-2000:]}"}
    return found


def failed(found: dict[str, Any]) -> bool:
    """Whether a part has failed or does not hold."""
    return any("error" in part or part.get("holds") is False for part in found.values())


def main(argv: list[str] | None = None) -> int:
    """Run the parts and write the report; returns the exit status."""
    try:
        options = parse(argv)
        if reason := missing():
            raise UsageError(reason)
    except UsageError as error:
        sys.stderr.write(f"gpu: {error}\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        found = run(parts(options, Path(folder)))
    command = " ".join(["tests/gpu/run.sh", *(argv if argv is not None else sys.argv[1:])])
    files = write({"machine": machine(), "command": command, "parts": found}, options.out)
    print(files[1].read_text())
    sys.stderr.write(f"gpu: written: {files[0]}, {files[1]}\n")
    return int(failed(found))


if __name__ == "__main__":
    sys.exit(main())
