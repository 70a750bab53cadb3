"""python -m dashboards SOURCE: the web page over a live collector or a recording."""

import argparse
import sys
from collections.abc import Sequence

from pbkv.errors import PbkvError


def parser() -> argparse.ArgumentParser:
    """The options; heavy imports wait until they have been understood."""
    result = argparse.ArgumentParser(
        prog="python -m dashboards", description="Serve the PBKV web page over a live collector or a recording."
    )
    result.add_argument("source", metavar="SOURCE", help="grpc://host:port of a collector, or a .duckdb file")
    result.add_argument("--host", default="127.0.0.1", help="address to bind (default %(default)s)")
    result.add_argument("--port", type=int, default=8050, help="port to bind; 0 = a free one (default %(default)s)")
    result.add_argument("--readonly", action="store_true", help="show knobs without controls")
    result.add_argument("--server", metavar="URL", help="control interface of the engine; default: the address its events name")
    result.add_argument(
        "--token-file", metavar="FILE", help="token for the control interface; off loopback visitors type it before an edit"
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run until interrupted; returns the exit code."""
    options = parser().parse_args(argv)
    from dashboards.serve import run

    try:
        run(
            options.source,
            host=options.host,
            port=options.port,
            readonly=options.readonly,
            server=options.server,
            token_file=options.token_file,
        )
    except PbkvError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
