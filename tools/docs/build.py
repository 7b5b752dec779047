"""Builds the site: `python -m tools.docs.build`, which `make docs` runs. A warning is an error.

The sources are docs/, some pages from elsewhere in the project, and the generated reference. docs/index.md is the
navigation: a list below each of its four headings, a line for each page. Sphinx refuses a link or an anchor that does
not exist; this module a page that is not in the navigation exactly once, and more words than `MOST_WORDS`.

Sphinx, MyST and Furo refuse broken anchors, search without a server and read docstrings by themselves, so that only the
generated tables need code of ours. Material for MkDocs is in maintenance mode.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from tools.docs import reference
from tools.docs.markdown import UndocumentedError
from tools.figure_blocks import BLOCK

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
OUT = PROJECT / "out" / "docs"

KINDS = ("Tutorials", "How-to", "Reference", "Explanation")
"""The kinds of pages, the headings of docs/index.md. A page is of one kind."""

INDEX = "index.md"
OTHER_PAGES = {
    "baselines/published/README.md": "papers.md",
    "baselines/measured/README.md": "measured-tables.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files outside docs/ that are pages too, and the pages' names. The README is none: docs/index.md replaces it."""

MOST_WORDS = 23_000
"""Of all pages that people write together, as `wc -w` counts: docs/*.md and `OTHER_PAGES`.

Blocks that `make record` writes are not counted, nor are the pages that `tools.docs.reference` generates.
"""

ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#\s]+)\)", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"(^```.*?^```$|^~~~.*?^~~~$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


class SiteError(Exception):
    """The site cannot be built; a fault per line."""


def main(argv: Optional[List[str]] = None) -> int:
    """Build the site and print where it is."""
    parser = argparse.ArgumentParser("python -m tools.docs.build", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the site, which is replaced")
    arguments = parser.parse_args(argv)
    if importlib.util.find_spec("sphinx") is None:
        print("Sphinx is not installed: run `make docs` with Python 3.11 or later", file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        pages, words = build(arguments.out)
    except (SiteError, UndocumentedError) as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{pages} pages in {time.monotonic() - began:.0f} s, {words} words of at most {MOST_WORDS} outside the "
        f"generated reference: {arguments.out / 'index.html'}"
    )
    return 0


def build(out: Path, docs: Path = DOCS) -> Tuple[int, int]:
    """Build the site with the pages in `docs` and return how many pages it has, and the words that people wrote.

    Raises:
        SiteError: a fault of the navigation, of a link, of a text; or too many words.
        UndocumentedError: something that users see has no documentation.
    """
    words = count_words(docs)
    if words > MOST_WORDS:
        raise SiteError(f"the site has {words} words, at most {MOST_WORDS} are allowed: shorten a page")
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "sources"
        write_sources(sources, docs)
        shutil.rmtree(out, ignore_errors=True)
        warnings = run_sphinx(sources, out)
        if warnings:
            raise SiteError("".join(warnings).replace(f"{sources}{os.sep}", "docs/").rstrip())
        return len(list(sources.glob("*.md"))), words


def written_pages(docs: Path = DOCS) -> Dict[Path, str]:
    """The file of each page that people write, and the page's name."""
    pages = {PROJECT / path: name for path, name in OTHER_PAGES.items()}
    pages.update({page: page.name for page in docs.glob("*.md")})
    return pages


def count_words(docs: Path = DOCS) -> int:
    """Words of the pages that people write, as `MOST_WORDS` limits them."""
    return sum(len(BLOCK.sub("", _text(page)).split()) for page in written_pages(docs))


def navigation(index: str) -> Dict[str, List[str]]:
    """The files of each kind, in order, from the text of docs/index.md.

    Raises:
        SiteError: the headings are not the four kinds.
    """
    parts = re.split(r"^## (.+)$", index, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    if tuple(sections) != KINDS:
        raise SiteError(f"{INDEX} has the headings {', '.join(sections)}, expected {', '.join(KINDS)}")
    return {kind: ENTRY.findall(text) for kind, text in sections.items()}


def navigation_faults(docs: Path = DOCS) -> List[str]:
    """Pages that the navigation has not exactly once, and entries that are no pages."""
    listed = [(docs / target).resolve() for names in navigation(_text(docs / INDEX)).values() for target in names]
    pages = [page.resolve() for page in sorted(docs.glob("*.md")) if page.name != INDEX]
    faults = [
        f"docs/{page.name} is in the navigation {listed.count(page)} times, expected once: one line in docs/{INDEX}"
        for page in pages
        if listed.count(page) != 1
    ]
    return faults + [
        f"docs/{INDEX} names {target.name}, which does not exist" for target in listed if not target.is_file()
    ]


def write_sources(sources: Path, docs: Path = DOCS) -> None:
    """Write what Sphinx reads: all pages in one folder, with their links adapted to it.

    Raises:
        SiteError: a fault of the navigation.
        UndocumentedError: something that users see has no documentation.
    """
    faults = navigation_faults(docs)
    if faults:
        raise SiteError("\n".join(faults))
    sources.mkdir()
    for file in docs.iterdir():
        if file.suffix in (".png", ".svg"):
            shutil.copy(file, sources)
    pages = written_pages(docs)
    names = {**pages, PROJECT / "README.md": INDEX}
    for page, name in pages.items():
        text = adapted(_text(page), page.parent, names, sources)
        (sources / name).write_text(with_toctrees(text) if name == INDEX else text, encoding="utf-8")
    for name, text in reference.generated().items():
        (sources / f"{name}.md").write_text(text, encoding="utf-8")


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def adapted(text: str, folder: Path, names: Dict[Path, str], sources: Path) -> str:
    """A page's text with links to the site's pages by their names there; other files are copied beside them.

    Markdown is copied as `.txt`, because Sphinx takes every Markdown file for a page.
    """

    def changed(match: re.Match[str]) -> str:
        target, hash_mark, anchor = match[2].partition("#")
        if "://" in target or not target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(folder / target))
        if path in names:
            return f"{match[1]}{names[path]}{hash_mark}{anchor}{match[3]}"
        if (sources / target).is_file() or not path.is_file() or PROJECT not in path.parents:
            return match[0]
        copy = sources / "files" / path.relative_to(PROJECT)
        if copy.suffix == ".md":
            copy = copy.with_suffix(".txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
        return f"{match[1]}{copy.relative_to(sources)}{match[3]}"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith(("`", "~~~")) else _LINK.sub(changed, part) for part in parts)


def with_toctrees(index: str) -> str:
    """The first page with the generated pages before its other references, and the navigation made of its lists."""
    pages = reference.pages()
    entries = "".join(f"- [{page.title}]({page.name}.md): {page.about}\n" for page in pages)
    parts = re.split(r"^(## .+)$", index, flags=re.MULTILINE)
    written = [parts[0]]
    for heading, text in zip(parts[1::2], parts[2::2]):
        kind = heading[3:]
        if kind == "Reference":
            text = ENTRY.sub(lambda first: entries + first[0], text, count=1)
        toctree = "\n".join(["```{toctree}", ":hidden:", f":caption: {kind}", "", *ENTRY.findall(text), "```"])
        written += [heading, "\n", text.rstrip(), "\n\n", toctree, "\n\n"]
    return "".join(written)


def run_sphinx(sources: Path, out: Path) -> List[str]:
    """Run Sphinx and return its warnings."""
    from sphinx.cmd.build import build_main

    arguments = ["-q", "-b", "html", "-c", str(Path(__file__).parent), "-d", str(sources.parent / "doctrees")]
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        code = build_main([*arguments, "--no-color", str(sources), str(out)])
    lines = messages.getvalue().splitlines(keepends=True)
    (out / ".buildinfo").unlink(missing_ok=True)
    return lines if lines or not code else [f"sphinx-build ended with exit code {code}"]


if __name__ == "__main__":
    sys.exit(main())
