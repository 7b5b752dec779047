"""Writes texts, lines and colours of SVG: with the page's colours inside it, with fixed ones in files of their own."""

from __future__ import annotations

import math
from html import escape
from typing import Tuple

from harness.report.colours import css_value, light_value

_HATCH = (
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.4" height="5" {fill} fill-opacity="0.55"/></pattern>'
)


class Brush:
    """Writes colours and tips as the page or as a file of its own needs them."""

    def __init__(self, standalone: bool) -> None:
        """Choose which."""
        self.standalone = standalone

    def paint(self, **colours: str) -> str:
        """Attributes for `fill="stall"`, `stroke="ink"`, ...; with the page's variables outside a standalone file."""
        if self.standalone:
            return " ".join(f'{name}="{light_value(colour)}"' for name, colour in colours.items())
        return 'style="' + ";".join(f"{name}:{css_value(colour)}" for name, colour in colours.items()) + '"'

    def tip(self, text: str) -> Tuple[str, str]:
        """The attribute and the child that say something on hovering."""
        if not text:
            return "", ""
        return ("", f"<title>{escape(text)}</title>") if self.standalone else (f' data-tip="{escape(text)}"', "")

    def text(self, x: float, y: float, content: str, anchor: str = "start", colour: str = "ink", more: str = "") -> str:
        """A text."""
        return (
            f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" {self.paint(fill=colour)}{more}>'
            f"{escape(content)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
        """A line, a pixel wide."""
        return f'<line x1="{px(x1)}" y1="{px(y1)}" x2="{px(x2)}" y2="{px(y2)}" {self.paint(stroke=colour)}{more}/>'

    def hatch(self) -> str:
        """The pattern of what is simulated; once in a document."""
        return _HATCH.format(fill=self.paint(fill="page"))


def px(value: float) -> str:
    """A length with a tenth of a pixel."""
    text = f"{value:.1f}" if math.isfinite(value) else "0"
    return text[:-2] if text.endswith(".0") else text
