"""What an engine is, as text for the event log, and back: numbers are written so that they read back exactly."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Gpu, Linear, Model, Roofline, Timing
from pbkv.errors import UsageError
from pbkv.knobs import KnobSet
from pbkv.predictor.base import Predictor
from pbkv.predictor.markov import OnlineMarkov

#: Timings by the value of the fact `timing`.
TIMINGS: dict[str, type[Any]] = {"linear": Linear, "roofline": Roofline}
_PARTS: dict[str, type[Any]] = {"model": Model, "gpu": Gpu}
KNOB_PREFIX = "knob."


def engine_facts(settings: EngineSettings) -> dict[str, str]:
    """Sizes, rules and timing by name; the fields of the timing under `timing.`."""
    facts = {f.name: str(getattr(settings, f.name)) for f in fields(settings) if f.name != "timing"}
    kind = next((name for name, each in TIMINGS.items() if isinstance(settings.timing, each)), "other")
    return {**facts, "timing": kind, **(_flat("timing.", settings.timing) if kind in TIMINGS else _rates(settings.timing))}


def serving_facts(knobs: KnobSet, predictor: Predictor) -> dict[str, str]:
    """Knobs as they are now, and what predicts: "markov" = the online chain alone."""
    name = "markov" if type(predictor) is OnlineMarkov else type(predictor).__name__.lower()
    return {"predictor": name, **{KNOB_PREFIX + knob: str(value) for knob, value in knobs.values.items()}}


def settings_of(facts: Mapping[str, str]) -> EngineSettings:
    """The settings behind `facts`; what is missing has its default, `timing` too unless it is one of TIMINGS. Raises UsageError."""
    try:
        given = {f.name: _value(f.type, facts[f.name]) for f in fields(EngineSettings) if f.name != "timing" and f.name in facts}
        timing = TIMINGS.get(facts.get("timing", ""))
        return EngineSettings(**given, **({} if timing is None else {"timing": _build(timing, "timing.", facts)}))
    except ValueError:
        raise UsageError("settings of the log: a value is not a number; record again with this release") from None


def _rates(timing: Timing) -> dict[str, str]:
    return {f"timing.{name}": str(getattr(timing, name)) for name in ("bytes_per_token", "link_bytes_per_s", "layers")}


def _flat(prefix: str, part: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in fields(part):
        value = getattr(part, each.name)
        found |= _flat(f"{prefix}{each.name}.", value) if is_dataclass(value) else {prefix + each.name: str(value)}
    return found


def _build(made: type[Any], prefix: str, facts: Mapping[str, str]) -> Any:
    values: dict[str, Any] = {}
    for each in fields(made):
        if each.name in _PARTS and made is Roofline:
            values[each.name] = _build(_PARTS[each.name], f"{prefix}{each.name}.", facts)
        elif (text := facts.get(prefix + each.name)) is not None:
            values[each.name] = _value(each.type, text)
    try:
        return made(**values)
    except TypeError:
        raise UsageError(f"settings of the log: {prefix}* of {made.__name__.lower()} is not complete; record for longer") from None


def _value(kind: object, text: str) -> Any:
    """`text` as a field of type `kind`: int, float, bool or text."""
    if kind is bool:
        return text in ("True", "1")
    return int(text) if kind is int else float(text) if kind is float else text
