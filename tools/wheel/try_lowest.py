"""Tries the lower bounds of pyproject.toml: README's examples without torch, with the oldest versions that are allowed.

    python -m tools.wheel.try_lowest --python python3.8

uv installs a copy of this clone with its lowest direct dependencies; on a Python for which these have wheels, 3.8 to
3.10. The third example, all experiments of the papers, is limited to one network. Ends with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

PROJECT = Path(__file__).resolve().parents[2]
PARTS = (
    "baselines", "benchmarks", "harness", "jetwatt", "predictors", "tools", "conftest.py", "pytest.ini",
    "pyproject.toml", "README.md", "LICENSE", "tests/pages.py",
)  # fmt: skip
WITHOUT_TORCH = (1, 2, 3, 6)
"""README's examples, as it numbers them."""

ALL_EXPERIMENTS = "--campaign paper"
RUN_PAGE = "import sys; from pathlib import Path; from tests.pages import run_page; run_page(Path(sys.argv[1]), Path())"


def examples(readme: str) -> str:
    """The page that is left of README: the examples without torch, the third limited to one network."""
    parts = re.split(r"^\*\*(?=\d+\. )|^## ", readme, flags=re.MULTILINE)
    kept = [part for number in WITHOUT_TORCH for part in parts if part.startswith(f"{number}. ")]
    if len(kept) != len(WITHOUT_TORCH):
        raise ValueError(f"README.md has {len(kept)} of the examples {WITHOUT_TORCH}")
    return with_one_network("\n".join(kept))


def with_one_network(page: str) -> str:
    """A page whose experiments of the papers are limited to one network: with all of them they take minutes."""
    return page.replace(ALL_EXPERIMENTS, f"{ALL_EXPERIMENTS} --workload lenet-mnist")


def copy_clone(to: Path) -> None:
    """Copy what the examples need, so that the clone's own installation stays as it is."""
    for name in PARTS:
        path, copy = PROJECT / name, to / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, copy)


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheel.try_lowest", description=__doc__)
    parser.add_argument("--python", default=sys.executable, metavar="P", help="the Python to try (default: this)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="jetwatt-lowest-") as folder:
        clone, tool, lowest = (Path(folder) / name for name in ("clone", "uv", "lowest"))
        copy_clone(clone)
        (clone / "examples.md").write_text(examples((PROJECT / "README.md").read_text(encoding="utf-8")))
        pip = [tool / "bin/python", "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        python = lowest / "bin/python"
        uv = [tool / "bin/uv", "pip", "install", "-q", "--python", python, "--resolution", "lowest-direct"]
        for command in (
            [sys.executable, "-m", "venv", tool],
            [*pip, "-c", PROJECT / "constraints.txt", "uv"],
            [arguments.python, "-m", "venv", "--without-pip", lowest],
            [*uv, "-e", f"{clone}[pytest,report]"],
            [tool / "bin/uv", "pip", "list", "--python", python],
            [python, "-c", RUN_PAGE, "examples.md"],
        ):
            done = subprocess.run([str(word) for word in command], cwd=str(clone), check=False)
            if done.returncode:
                print(f"FAILED: {' '.join(map(str, command))}", flush=True)
                return 1
    print("the lower bounds hold", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
