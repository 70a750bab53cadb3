"""What `pbkv.launch` knows of SGLang without importing it, against SGLang itself."""

import argparse
import contextlib
import inspect
import io
import random
from typing import Any

import pytest

from pbkv.launch.flags import FIELDS, Flags
from pbkv.launch.kinds import RECURRENT_TYPES, SLIDING, SLIDING_ARCHITECTURES, unsupported

#: The plugin's own flag.
OURS = {"pbkv_config"}


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    made = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(made)
    return made


def parsed(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace | None:
    """None when SGLang refuses the command line itself."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parser.parse_args(["--model-path", "m", *argv])
    except (argparse.ArgumentError, SystemExit):
        return None


def test_every_field_and_flag_is_sglangs(parser: argparse.ArgumentParser) -> None:
    options = {option: action.dest for action in parser._actions for option in action.option_strings}
    for field, more in FIELDS.items():
        for option in (f"--{field.replace('_', '-')}", *more):
            assert field in OURS or options[option] == field
        theirs = {o for o, dest in options.items() if dest == field}
        assert field in OURS or theirs == {f"--{field.replace('_', '-')}", *more}


def words(parser: argparse.ArgumentParser, rng: random.Random) -> list[str]:
    """A flag of SGLang's, spelled out or cut short, with a value where it takes one."""
    actions = [a for a in parser._actions if a.option_strings and a.dest not in ("help", "config")]
    action = rng.choice([a for a in actions if a.dest in FIELDS] if rng.random() < 0.7 else actions)
    option = rng.choice([o for o in action.option_strings if o.startswith("--")])
    option = option[: rng.randrange(4, len(option) + 1)] if rng.random() < 0.5 else option
    if action.nargs == 0:
        return [option]
    value = str(rng.choice(list(action.choices))) if action.choices else "2" if action.type in (int, float) else "x"
    return [f"{option}={value}"] if rng.random() < 0.5 else [option, value]


@pytest.mark.parametrize("seed", range(8))
def test_a_command_line_that_sglang_takes_is_read_alike(parser: argparse.ArgumentParser, seed: int) -> None:
    rng, taken = random.Random(seed), 0
    defaults = parsed(parser, [])
    for _ in range(60):
        argv = [w for _ in range(rng.randrange(1, 4)) for w in words(parser, rng)]
        theirs = parsed(parser, argv)
        if theirs is None:
            continue
        taken += 1
        flags = Flags(argv)
        for field in FIELDS.keys() - OURS - {"model_path"}:
            expected = getattr(theirs, field)
            given: Any = flags.get(field)
            same = expected == getattr(defaults, field) if given is None else str(expected) == str(given) or float(expected) == float(given)
            assert same, f"{argv}: {field} is {expected!r} for SGLang and {given!r} for us"
    assert taken > 10


def test_the_architectures_with_a_pool_of_their_own_are_sglangs() -> None:
    """All that SGLang names or can serve; those it decides by more than the name are left to it."""
    import re

    from sglang.srt.configs import model_config
    from sglang.srt.models.registry import ModelRegistry

    judge = model_config.is_hybrid_swa_model
    named = set(re.findall(r'"([A-Z]\w+)"', inspect.getsource(judge))) | set(ModelRegistry.get_supported_archs())
    named |= {*model_config.SWA_SINK_ARCHS, *model_config.MIMO_V2_MODEL_ARCHS}
    theirs = {name for name in named if judge([name])}
    assert theirs - SLIDING_ARCHITECTURES == {"BeamForCausalLM", "LagunaForCausalLM"}
    assert theirs >= SLIDING_ARCHITECTURES
    assert all(unsupported({"architectures": [name]}) == SLIDING for name in SLIDING_ARCHITECTURES)


def test_the_types_with_a_state_are_sglangs() -> None:
    from sglang.srt.configs import hybrid_arch
    from sglang.srt.configs.linear_attn_model_registry import _LINEAR_ATTN_MODEL_REGISTRY

    classes = [c for name, c in vars(hybrid_arch).items() if name.endswith("Config") and isinstance(c, type)]
    theirs = {c.model_type for c in [*classes, *(spec.config_class for spec in _LINEAR_ATTN_MODEL_REGISTRY)]}
    # These have a state in some configurations only, or are refused for their sliding layers.
    assert theirs - RECURRENT_TYPES == {"granitemoehybrid", "inkling_mm_model", "inkling_model", "minicpm_sala"}
    assert RECURRENT_TYPES - theirs <= {"gigachat3_5"}
