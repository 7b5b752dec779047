"""Colours of the report: distinguishable for colour-blind people, each in a form for light and one for dark pages.

The eight of a list follow Okabe and Ito's palette, darkened or lightened until they stand out from the page.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence


class Colour(NamedTuple):
    """A colour on a light page, and on a dark one."""

    light: str
    dark: str


COLOURS: Dict[str, Colour] = {
    "stall": Colour("#d9640a", "#f2994a"),
    "compute": Colour("#1f6fb5", "#63aef0"),
    "overhead": Colour("#8b919b", "#99a1ad"),
    "baseload": Colour("#8b919b", "#99a1ad"),
    "incremental": Colour("#0a8a68", "#3fc79d"),
    "c0": Colour("#0072b2", "#5aaeea"),
    "c1": Colour("#d55e00", "#f2904a"),
    "c2": Colour("#00875f", "#3fc79d"),
    "c3": Colour("#b8568f", "#e79ac7"),
    "c4": Colour("#9a7400", "#e2c044"),
    "c5": Colour("#6b51a8", "#ad9aec"),
    "c6": Colour("#2a93b8", "#8fd6f4"),
    "c7": Colour("#6f6f6f", "#b5b5b5"),
    "c8": Colour("#8a4b32", "#cfa08c"),
    "ink": Colour("#1b1f24", "#e8eaed"),
    "muted": Colour("#5b6470", "#a3acb8"),
    "grid": Colour("#e2e6ea", "#343a42"),
    "page": Colour("#ffffff", "#15181c"),
    "card": Colour("#f7f8fa", "#1d2126"),
    "good": Colour("#00744f", "#4fd0a4"),
    "bad": Colour("#b3261e", "#ff8f87"),
    "unsure": Colour("#7a5c00", "#e2c044"),
}

_LISTED = tuple(name for name in COLOURS if name[0] == "c" and name[1:].isdigit())
RAMP = ("#3f6fd1", "#4aa0c4", "#95a08a", "#d9a23c", "#d4600f")
"""From little to much, of middling lightness throughout: readable on light and dark pages."""


def listed(place: int) -> str:
    """The name of the colour of the entry at a place of a legend."""
    return _LISTED[place % len(_LISTED)]


def ramp(share: float) -> str:
    """The colour of the ramp at a share from 0 to 1, as `#rrggbb`."""
    place = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    lower = min(int(place), len(RAMP) - 2)
    rest = place - lower
    low, high = _channels(RAMP[lower]), _channels(RAMP[lower + 1])
    return "#" + "".join(f"{round(a + (b - a) * rest):02x}" for a, b in zip(low, high))


def css_variables(dark: bool) -> str:
    """Declarations of every colour as `--name`."""
    return "".join(f"--{name}:{colour.dark if dark else colour.light};" for name, colour in COLOURS.items())


def css_value(colour: str) -> str:
    """What stands in a style for the name of a colour; `#rrggbb` stays as it is."""
    return colour if colour.startswith("#") else f"var(--{colour})"


def light_value(colour: str) -> str:
    """`#rrggbb` on a light page."""
    return colour if colour.startswith("#") else COLOURS[colour].light


def _channels(hexadecimal: str) -> Sequence[int]:
    return [int(hexadecimal[place : place + 2], 16) for place in (1, 3, 5)]
