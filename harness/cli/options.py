"""Options and outputs that commands share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from harness.core.configuration import DEFAULT_RESULTS
from harness.core.files import write_output
from harness.store.conditions import DISQUALIFYING


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the results file."""
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, metavar="FILE", help="the results file (default: %(default)s)"
    )


def add_include_flagged(parser: argparse.ArgumentParser) -> None:
    """Add the option that keeps profiles which are left out otherwise."""
    flags = " or ".join(DISQUALIFYING)
    parser.add_argument("--include-flagged", action="store_true", help=f"keep profiles that were flagged {flags}")


def write_json(path: Path, content: Any) -> None:
    """Write plain values to a file that the user named, and say so.

    Raises:
        StoreError: it could not be written.
    """
    write_output(path, (json.dumps(content, indent=1) + "\n").encode())
    print(f"wrote {path}")
