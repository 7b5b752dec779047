"""Runs a page of the documents as a reader would: its files, its shell lines, its Python statements, one by one.

- A block of Python that begins with `# NAME.py` is that file.
- A block without a language that follows shell lines is what the last of them prints: its lines are all there, in this
  order; `...` as a line leaves lines out, at the end of a line the rest of it. Figures agree within `SHARE`.
- `# -> VALUE` behind a Python statement is its value.
- A comment before a block says more: `<!-- needs: torch -->` for a module, `<!-- exit code: 1 -->` of the last line,
  `0 or 1` if it depends on how busy the machine is; `<!-- output: other figures -->` if the figures do.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>needs|exit code|output): (?P<value>[\w ]+?) -->\n)?"
    r"^```(?P<language>sh|python|)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FIGURE = re.compile(r"-?\d+(?:\.\d+)?")
SHARE = 0.02
"""By which a printed figure may differ from the page: other processors and versions of NumPy round differently."""


class Ran(NamedTuple):
    """What a page ran and compared."""

    lines: int = 0
    compared: int = 0
    left_out: int = 0


def shell_lines(code: str) -> List[str]:
    """Commands of a block, without comments; a backslash at the end of a line continues it."""
    joined = code.replace("\\\n", " ")
    return [line for line in (text.partition("  #")[0].strip() for text in joined.splitlines()) if line]


def run_page(page: Path, folder: Path) -> Ran:
    """Runs a page in a folder.

    Raises:
        AssertionError: a line failed, or printed or returned something else than the page shows.
    """
    text, names, output = page.read_text(encoding="utf-8"), {}, ""  # type: str, Dict[str, Any], str
    lines = compared = left_out = 0
    for block in BLOCK.finditer(text):
        mark, value, language, code = block.groups()
        where = f"{page.name}:{text.count(chr(10), 0, block.start('code')) + 1}"
        file = re.match(r"# (\w+\.py)\n", code)
        if mark == "needs" and importlib.util.find_spec(value) is None:
            left_out += code.count("  # -> ")
        elif language == "python" and file:
            (folder / file[1]).write_text(code, encoding="utf-8")
        elif language == "python":
            compared += run_python(code, where, names)
            lines += 1
        elif language == "sh":
            *before, last = shell_lines(code)
            for line in before:
                run_line(line, folder, where)
            codes = [int(code) for code in value.split(" or ")] if mark == "exit code" else [0]
            output = run_line(last, folder, where, *codes)
            lines += len(before) + 1
        elif output:
            is_exact = not (mark == "output" and value == "other figures")
            assert missing_line(code, output, is_exact) == "", f"{where}: not in\n{output}"
            compared += 1
    return Ran(lines, compared, left_out)


def run_line(line: str, folder: Path, where: str, *codes: int) -> str:
    """What a shell line prints, with the commands of this interpreter; it has to end with one of the codes."""
    commands = str(Path(sys.executable).parent)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "JETWATT_"))}
    variables.update(PATH=os.pathsep.join((commands, os.environ["PATH"])), COLUMNS="160", NO_COLOR="1", TZ="UTC")
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "JETWATT_LOCK_DIR"):  # other tests measure at the same time
        variables[name] = str(folder / f".{name.lower()}")
        (folder / f".{name.lower()}").mkdir(exist_ok=True)
    done = subprocess.run(
        ["bash", "-c", line], cwd=str(folder), env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (codes or (0,)), f"{where}: `{line}` ended with {done.returncode}\n{done.stdout}"
    assert "Traceback (most recent call last)" not in done.stdout, f"{where}: `{line}`\n{done.stdout}"
    return done.stdout


def run_python(code: str, where: str, names: Dict[str, Any]) -> int:
    """Runs statements one by one; how many values were compared."""
    lines, compared = code.splitlines(), 0
    for statement in ast.parse(code).body:
        text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        if not isinstance(statement, ast.Expr):
            exec(compile(text, where, "exec"), names)
            continue
        value = eval(compile(text.partition("  #")[0], where, "eval"), names)
        expected = re.search(r"  # -> (.*)", text)
        if expected:
            shown = repr(value) if expected[1].startswith("<") else value
            wanted = expected[1] if expected[1].startswith("<") else ast.literal_eval(expected[1])
            assert shown == wanted, f"{where}: {text}"
            compared += 1
    return compared


def missing_line(shown: str, output: str, is_exact: bool) -> str:
    """The first line of a block that the output does not have behind those before it; empty if it has all."""
    printed, place = output.splitlines(), 0
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        place = next((n for n in range(place, len(printed)) if agrees(line, printed[n], is_exact)), len(printed)) + 1
        if place > len(printed):
            return line
    return ""


def agrees(shown: str, printed: str, is_exact: bool) -> bool:
    """Whether a printed line is the one of the page."""
    cut = shown.endswith("...")
    texts = (re.sub("-{3,}", "---", " ".join(text.split())) for text in (shown[: -3 if cut else None], printed))
    ours, theirs = (FIGURE.split(text) for text in texts)  # columns are as wide as their figures
    figures = [[float(figure) for figure in FIGURE.findall(text)] for text in (shown, printed)]
    if cut:
        if not (theirs[: len(ours) - 1] == ours[:-1] and theirs[len(ours) - 1 :][:1] != []):
            return False
        if not theirs[len(ours) - 1].startswith(ours[-1].rstrip()):
            return False
    elif ours != theirs:
        return False
    return not is_exact or all(abs(a - b) <= SHARE * abs(a) for a, b in zip(*figures))
