"""The door of `python3 -m harness.install`: tells a Python that cannot run the suite so, rather than let it trip.

Python 3.6 must be able to read this file (JetPack 4 has no other): hence no `from __future__ import annotations` here.
"""

import sys
from typing import Tuple

OLDEST, NEWEST = (3, 8), (3, 13)


def refusal(version: Tuple[int, int]) -> str:
    """Why a Python cannot run the suite, with the way out; empty where it can."""
    if OLDEST <= version <= NEWEST:
        return ""
    return (
        f"error: this is Python {version[0]}.{version[1]}, and the suite runs on 3.8 to 3.13; install one of those"
        " (on Debian and Ubuntu the packages python3.X and python3.X-venv, as far as the release has them)"
        " and name it: make test PYTHON=python3.X"
    )


if __name__ == "__main__":
    if refusal(sys.version_info[:2]):
        sys.exit(refusal(sys.version_info[:2]))
    from harness.install.command import main

    sys.exit(main(sys.argv[1:]))
