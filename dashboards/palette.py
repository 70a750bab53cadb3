"""One colour per state, in both themes, everywhere. Okabe-Ito hues: told apart with any colour vision, and never by colour alone."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of one theme. The first block is the surface, the second states, tiers and outcomes."""

    text: str
    muted: str
    grid: str
    border: str
    panel: str
    page: str

    active: str
    retired: str
    locked: str
    free: str
    device: str
    host: str
    right: str
    wrong: str
    late: str
    neutral: str
    knob: str


DARK = Palette(
    text="#e6e9ee",
    muted="#9aa4b2",
    grid="#262d37",
    border="#2a323d",
    panel="#171c23",
    page="#0f1318",
    active="#56b4e9",
    retired="#e69f00",
    locked="#d55e00",
    free="#39434f",
    device="#2fb88c",
    host="#cc79a7",
    right="#2fb88c",
    wrong="#e8743b",
    late="#f0e442",
    neutral="#7d8896",
    knob="#f0e442",
)
LIGHT = Palette(
    text="#1b2129",
    muted="#596474",
    grid="#e8ebef",
    border="#dde1e7",
    panel="#ffffff",
    page="#f4f6f8",
    active="#3a9bd6",
    retired="#e69f00",
    locked="#c44f00",
    free="#d5dae1",
    device="#009e73",
    host="#b8558d",
    right="#00875f",
    wrong="#c44f00",
    late="#b59a00",
    neutral="#7b8694",
    knob="#8a6d00",
)
BY_SCHEME = {"dark": DARK, "light": LIGHT}


def variables() -> str:
    """Both palettes as CSS variables (--c-active, ...), switched by the colour scheme of the page."""

    def block(palette: Palette) -> str:
        return "".join(f"--c-{name}:{value};" for name, value in asdict(palette).items())

    return f":root{{{block(DARK)}}}:root[data-mantine-color-scheme=light]{{{block(LIGHT)}}}"
