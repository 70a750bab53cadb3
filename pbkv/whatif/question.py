"""What is asked of a forecast process, and what it answers: plain values that both sides know."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pbkv.knobs import Value
from pbkv.whatif.forecast import Estimate, Residual
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting

#: Length of the window a forecast rests on unless another is asked for, s.
SPAN_S = 600.0


@dataclass(frozen=True)
class Loaded:
    """A recording as it was read, of the last `span_s` seconds up to `ended` (ISO in UTC; "" where the source has no dates).

    `left_out`: calls of the asked span before them that were too many. `live`: a later read finds more. `calls`: those that are in the
    figures, 0 = all; the others warm the cache up.
    """

    recording: Recording
    span_s: float = 0.0
    ended: str = ""
    left_out: int = 0
    live: bool = False
    calls: int = 0


#: Reads the last so many seconds, at most so many calls. Goes to the process by pickle.
Load = Callable[[float, int], Loaded]


class Question(NamedTuple):
    """`owner`'s newest question; it takes the place of the one before.

    With `axes` it is a grid (pbkv.whatif.grid.parse_axes), which takes all calls and all cores, and has no `settings`.
    """

    owner: str
    number: int
    settings: tuple[Setting, ...] = ()
    axes: Mapping[str, str] | None = None
    span_s: float = SPAN_S


class Withdrawn(NamedTuple):
    """`owner` asks nothing any more."""

    owner: str


@dataclass(frozen=True)
class About:
    """What a forecast rests on; fields as in Loaded, knobs and sizes as recorded."""

    name: str
    calls: int
    span_s: float
    ended: str
    left_out: int
    knobs: Mapping[str, Value]
    device_tokens: int
    host_tokens: int


@dataclass(frozen=True)
class Present:
    """The recorded setting: its figures, as measured where the source measured them, else as replayed; and how far replay is off."""

    figures: Mapping[str, float]
    residuals: tuple[Residual, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a setting would have come to: estimates by figure, or the sentence by which it was refused."""

    setting: Setting
    estimates: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    refused: str = ""


class Began(NamedTuple):
    """The recording is there. `settings`: what will be answered, in this order.

    `present` None: it is not known yet, or cannot be trusted; Ended has it or says why not.
    """

    owner: str
    number: int
    settings: tuple[Setting, ...]
    about: About
    present: Present | None


class Cell(NamedTuple):
    """The setting at position `place` of the question is answered."""

    owner: str
    number: int
    place: int
    found: Found


class Pace(NamedTuple):
    """How far a grid is: settings answered, and seconds left (nan: nothing to go by yet)."""

    owner: str
    number: int
    done: int
    left_s: float


class Ended(NamedTuple):
    """All is answered, or `error` says in a sentence why not."""

    owner: str
    number: int
    error: str
    took_s: float
    present: Present | None = None


#: What a forecast process says.
Said = Began | Cell | Pace | Ended


@dataclass(frozen=True)
class Answer:
    """How far a question is answered. `found` by position in `settings`, which a grid has from its beginning on (`about` is known).

    `left_s` nan: not known.
    """

    settings: tuple[Setting, ...] = ()
    about: About | None = None
    present: Present | None = None
    found: Mapping[int, Found] = field(default_factory=dict[int, Found])
    error: str = ""
    done: bool = False
    took_s: float = 0.0
    left_s: float = math.nan

    def said(self, message: Said) -> "Answer":
        """With one message more."""
        match message:
            case Began():
                return replace(self, settings=message.settings, about=message.about, present=message.present)
            case Cell():
                return replace(self, found={**self.found, message.place: message.found})
            case Pace():
                return replace(self, left_s=message.left_s)
            case Ended():
                return replace(self, error=message.error, took_s=message.took_s, done=True, present=message.present or self.present)
