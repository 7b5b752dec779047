"""Sphinx's configuration of the site; `tools.docs.build` gives it the folder of sources."""

from typing import Dict, List

from docutils import nodes
from sphinx.application import Sphinx

import harness

project = "jetwatt"
author = "the authors of jetwatt"
release = version = harness.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "index"

myst_enable_extensions = ["deflist", "html_image"]
myst_heading_anchors = 4  # links such as install.md#on-a-board, as GitHub has them
highlight_language = "text"
smartquotes = False  # two dashes begin an option

default_role = "code"  # docstrings have single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
add_module_names = False
maximum_signature_line_length = 88
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"jetwatt {release}"
html_static_path = ["static"]
html_css_files = ["jetwatt.css"]
html_js_files = ["search_offline.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_domain_indices = False
html_theme_options: Dict[str, List[str]] = {"top_of_page_buttons": [], "footer_icons": []}


def _write_dashes(_: Sphinx, page: nodes.document) -> None:
    """Sphinx separates an argument from its meaning by two hyphens, of which `smartquotes` would make a dash."""
    for field in page.findall(nodes.field_body):
        for text in list(field.findall(nodes.Text)):
            if " -- " in text and not isinstance(text.parent, (nodes.literal, nodes.literal_block)):
                text.parent.replace(text, nodes.Text(text.replace(" -- ", " \N{EN DASH} ")))


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("doctree-read", _write_dashes)
