"""Checks that a tag may be released: `python -m tools.wheel.check_tag v1.0.0`.

The tag is the version of the code and of CITATION.cff, and CHANGELOG.md has a dated section for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import List, Optional

PROJECT = Path(__file__).resolve().parents[2]


def faults_of(tag: str, project: Path = PROJECT) -> List[str]:
    """Why a tag may not be released; empty if it may."""
    places = {
        "harness/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (\S+) \(\d{4}-\d\d-\d\d\)$",
    }
    faults = []
    for name, pattern in places.items():
        match = re.search(pattern, (project / name).read_text(encoding="utf-8"), re.MULTILINE)
        version = match[1] if match else "no released version"
        if tag != f"v{version}":
            faults.append(f"{name} has {version}, the tag is {tag}")
    return faults


def main(argv: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print("usage: python -m tools.wheel.check_tag TAG", file=sys.stderr)
        return 2
    faults = faults_of(arguments[0])
    print("\n".join(faults) if faults else f"{arguments[0]} may be released")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
