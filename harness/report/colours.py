"""Colours and markers of the report: a colour for each workload, a marker for each device, safe for colour blindness.

The list follows Okabe and Ito's palette, darkened until the colours stand out from a white page and in print; each
has a lighter form for dark pages.
"""

from __future__ import annotations

import itertools
from typing import Dict, Iterable

PALETTE = {
    "#0072b2": "#5aaeea",
    "#d55e00": "#f2904a",
    "#00875f": "#3fc79d",
    "#b8568f": "#e79ac7",
    "#9a7400": "#e2c044",
    "#6b51a8": "#ad9aec",
    "#2a93b8": "#8fd6f4",
    "#8a4b32": "#b5765a",
    "#4d5a13": "#b3c45a",
    "#6f6f6f": "#b5b5b5",
}
"""Light to dark."""

LISTED = tuple(PALETTE)
PARTS = {
    "fetch stall": "#d9640a",
    "compute": "#1f6fb5",
    "framework overhead": "#8b919b",
    "baseload energy": "#8b919b",
    "incremental energy": "#0a8a68",
    "energy, baseload not measured": "#6b51a8",
}
"""Colours of the parts of time and energy, the same in every figure."""

INK, MUTED, GRID, PAGE = "#1b1f24", "#5b6470", "#e2e6ea", "#ffffff"
DARK = {
    **PALETTE,
    "#d9640a": "#f2994a",
    "#1f6fb5": "#63aef0",
    "#8b919b": "#99a1ad",
    "#0a8a68": "#3fc79d",
    INK: "#e8eaed",
    MUTED: "#a3acb8",
    GRID: "#343a42",
}
"""Every colour of a figure except the ramp, on a dark page."""

RAMP = ("#3f6fd1", "#4aa0c4", "#95a08a", "#d9a23c", "#d4600f")
"""From low to high, of medium lightness throughout: readable on light and dark pages."""

MARKERS = {
    "circle": "\u25cf",
    "square": "\u25a0",
    "triangle-up": "\u25b2",
    "diamond": "\u25c6",
    "triangle-down": "\u25bc",
    "cross": "\u271a",
}
"""Vega's names of markers, and their characters in a legend."""

OF_DEVICES = ("circle", "triangle-up", "diamond", "triangle-down", "cross", "square")


def colours_of(names: Iterable[str]) -> Dict[str, str]:
    """A colour for each name, in alphabetical order; colours repeat from the eleventh on."""
    return dict(zip(sorted(set(names)), itertools.cycle(LISTED)))


def dark_rules() -> str:
    """CSS that draws figures in the dark page's colours: it overrides the attributes of their elements."""
    return "".join(
        f'.panel [{attribute}="{light}"]{{{attribute}:{dark}}}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    )
