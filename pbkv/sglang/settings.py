"""The settings file at start: `--pbkv-config FILE` among SGLang's own flags, or PBKV_CONFIG, checked before a model is loaded."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from pbkv.config import ENV, ServerConfig, load_config
from pbkv.errors import UsageError
from pbkv.predictor.load import load_predictor, signal_of
from pbkv.predictor.names import Roster


def stop(reason: str) -> NoReturn:
    """End the process with one sentence. SGLang logs exceptions of a plugin and goes on without it."""
    sys.stderr.write(f"pbkv: {reason}\n")
    sys.stderr.flush()
    raise SystemExit(2)


def check_settings(path: str | None = None) -> ServerConfig:
    """The settings of the file `path` or of PBKV_CONFIG; ends the process when it, its token or its predictor is not as it should be."""
    try:
        config = load_config(path)
        config.token()
        if config.predictor:
            load_predictor(config.predictor, Roster())
            signal_of(config.predictor)
        return config
    except UsageError as error:
        stop(str(error))


class ConfigFlag(argparse.Action):
    """Checks the file and hands its name to every process of the server, by the environment they inherit."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        path = os.path.abspath(str(values))  # noqa: PTH100  (a name that is not there is not to be resolved)
        check_settings(path)
        os.environ[ENV] = path


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Make SGLang's parser know the flag."""
    parser.add_argument(
        "--pbkv-config", metavar="FILE", action=ConfigFlag, default=argparse.SUPPRESS,
        help=f"Settings of --radix-cache-backend pbkv, JSON. The variable {ENV} names the file as well.",
    )
