"""Runs several commands in one process, each as `python -m MODULE ARGUMENTS` would: most of their time is starting up.

Reads a list of argument lists as JSON from standard input, prints a list of [output, errors, exit code].
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from typing import List, Tuple


def main() -> None:
    """Run them."""
    print(json.dumps([run(arguments) for arguments in json.load(sys.stdin)]))


def run(arguments: List[str]) -> Tuple[str, str, int]:
    """Output, errors and exit code of one; a traceback is an exit code of 1."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = arguments
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception as error:
            code = 1
            err.write(f"{type(error).__name__}: {error}")
    return out.getvalue(), err.getvalue(), code


if __name__ == "__main__":
    main()
