"""Runs a command where a tree of files is the board, with its kernel and tools.

    python -m tests.boards FOLDER BOARD/L4T jetwatt doctor --accept --accept-scale 0.01
    python -m tests.boards FOLDER BOARD/L4T pytest benchmarks -k orin
    python -m tests.boards FOLDER BOARD/L4T reboot
    python -m tests.boards FOLDER BOARD/L4T jetwatt restore

The folder is made at the first call: `orin-agx/r36.4`, `nano/r32.7`, ...
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List

TESTS = Path(__file__).resolve().parents[1]


def main(words: List[str]) -> int:
    """Build the board if it is not there, and run the command in this process."""
    sys.path.insert(0, str(TESTS))
    from boards.emulator import intercepted
    from boards.kernel import Kernel
    from boards.layouts import PAIRS
    from boards.tools_in_process import tools_in_process

    pairs = ["/".join(pair) for pair in PAIRS]
    if len(words) < 3 or words[1] not in pairs or words[2] not in COMMANDS:
        print(__doc__, f"boards: {', '.join(pairs)}", sep="\n", file=sys.stderr)
        return 2
    folder = Path(words[0]).absolute()
    if not folder.exists():
        _build(folder, words[1])
    with intercepted(Kernel(str(folder))), tools_in_process(str(folder)):
        return COMMANDS[words[2]](str(folder), words[3:])


def _build(folder: Path, pair: str) -> None:
    from boards.tree import build_board

    build_board(folder, *pair.split("/"))
    _name_boot(folder)


def _name_boot(folder: Path) -> None:
    boot_id = folder / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text(f"{time.time_ns()}\n")


def _jetwatt(folder: str, words: List[str]) -> int:
    from jetwatt.cli import main as jetwatt

    if words[:1] == ["doctor"]:
        words = [*words, "--root", folder]
    elif words == ["restore"]:  # other boards have other kernels
        words = [*words, *_saved_states(folder)]
    return jetwatt(words)


def _saved_states(folder: str) -> List[str]:
    """The option that restores this board alone; none if no run left a saved state of it."""
    from harness.board.saved_state import left_behind, saved_root

    own = [device for device in left_behind() if saved_root(device) == folder]
    return ["--device", own[0]] if own else []


def _pytest(folder: str, words: List[str]) -> int:
    import pytest

    return int(pytest.main([*words, "--device-root", folder]))


def _reboot(folder: str, words: List[str]) -> int:
    from boards.tree import boot

    boot(folder)
    _name_boot(Path(folder))
    return 0


COMMANDS: Dict[str, Callable[[str, List[str]], int]] = {"jetwatt": _jetwatt, "pytest": _pytest, "reboot": _reboot}

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it quietly
    sys.exit(main(sys.argv[1:]))
