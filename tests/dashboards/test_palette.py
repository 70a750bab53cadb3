"""Colours that can be told apart and read, in both themes, with any colour vision."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest

from dashboards.palette import DARK, LIGHT, Palette, variables
from dashboards.panels.evictions import DECISIONS
from dashboards.panels.occupancy import DEVICE

#: Linear-RGB simulations of full deuteranopia and protanopia (Vienot, Brettel and Mollon 1999).
_BLINDNESS = {
    "none": np.eye(3),
    "deuteranopia": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
    "protanopia": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
}
_BESIDE = [[role for _, _, role in DEVICE], [role for _, _, role in DECISIONS], ["device", "host"], ["right", "wrong"]]


def linear(color: str) -> np.ndarray:
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_text_is_readable(palette: Palette):
    for surface in (palette.panel, palette.page):
        assert contrast(palette.text, surface) >= 7
        assert contrast(palette.muted, surface) >= 4.5
    for role in ("right", "wrong"):
        assert contrast(getattr(palette, role), palette.panel) >= 4.5


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("blindness", list(_BLINDNESS))
@pytest.mark.parametrize("roles", _BESIDE, ids=["states", "decisions", "tiers", "marks"])
def test_colours_side_by_side_differ(palette: Palette, blindness: str, roles: list[str]):
    seen = {role: lab(np.clip(_BLINDNESS[blindness] @ linear(getattr(palette, role)), 0, 1)) for role in roles}
    for a, b in itertools.combinations(roles, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 12, (a, b)


def test_both_palettes_become_css_variables():
    css = variables()
    for name in asdict(DARK):
        assert css.count(f"--c-{name}:") == 2
    assert css.index("data-mantine-color-scheme=light") > css.index(DARK.page)
