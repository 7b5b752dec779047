"""Filling a page's template: every text is escaped; each page has the style, its date and the version of jetwatt."""

from __future__ import annotations

import datetime
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness.core.errors import DependencyError
from harness.report.colours import dark_rules
from harness.report.figure import cell_text

if TYPE_CHECKING:
    from markupsafe import Markup

HERE = Path(__file__).parent
_CODE = re.compile(r"`([^`]+)`")


def require_drawing(what: str, otherwise: str = "") -> None:
    """Refuse, before any work, if a drawing package is not installed; `otherwise` ends the hint."""
    for package in ("jinja2", "vl_convert"):
        if importlib.util.find_spec(package) is None:
            raise DependencyError(f"{what} needs {package}", f"pip install 'jetwatt[report]'{otherwise}")


def prose(text: str) -> Markup:
    """A text as HTML, escaped; words in backticks are code."""
    from markupsafe import Markup, escape

    parts = _CODE.split(text)
    escaped = [escape(part) for part in parts]
    escaped[1::2] = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    return Markup("").join(escaped)


def fill(template: str, made_from: str = "", **values: Any) -> str:
    """A template of this folder with its values; `made_from` ends the line with its date."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(HERE)),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["cell"] = cell_text
    environment.filters["prose"] = prose
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return environment.get_template(template).render(
        made=f"made {now} by jetwatt {harness.__version__}{made_from}",
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        dark_rules=Markup(dark_rules()),
        **values,
    )
