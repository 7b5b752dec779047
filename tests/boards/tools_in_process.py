"""The tools of a tree as functions of this process: a kill ends them in the middle, and nothing has to be started."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from boards import systemctl_executable
from boards.jetson_clocks_executable import JetsonClocks
from boards.kernel import Kernel
from boards.nvpmodel_executable import Nvpmodel
from harness.board import bounded_process


class _Finished:
    """What `bounded_process` wants of a process, of one that has run already."""

    pid = 1 << 23  # above every number that Linux gives: a group of 0 to be killed would be this process's own

    def __init__(self, root: str, command: Sequence[str]) -> None:
        self._root = root
        self._command = command
        self.returncode = 0

    def communicate(self, answer: bytes, timeout: Optional[float] = None) -> Tuple[bytes, None]:
        """Run it."""
        said = io.StringIO()
        self.returncode = self._run(os.path.basename(self._command[0]), list(self._command[1:]), answer, said)
        return said.getvalue().encode(), None

    def _run(self, tool: str, arguments: List[str], answer: bytes, said: io.StringIO) -> int:
        if tool == "cat":  # which reads the clocks of a Thor
            said.write(Path(arguments[0]).read_text())
            return 0
        kernel = Kernel(self._root)
        if tool == "nvpmodel":
            return Nvpmodel(kernel, said, io.StringIO(answer.decode())).run(arguments)
        if tool == "jetson_clocks":
            return JetsonClocks(kernel, said).run(arguments)
        if tool != "systemctl":
            raise ValueError(f"the tree has no {tool} that runs in this process")
        with contextlib.redirect_stdout(said):
            return systemctl_executable.main(self._root, arguments)


class _Subprocess:
    """The module `subprocess` for `harness.board.bounded_process`."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: Sequence[str], **options: Any) -> _Finished:  # noqa: N802 - the name that is called
        """`command`, of the tree."""
        return _Finished(self._root, command)


@contextlib.contextmanager
def tools_in_process(root: str) -> Iterator[None]:
    """Within the block, whoever runs nvpmodel, jetson_clocks, systemctl or cat of the tree `root` does so in here."""
    before = bounded_process.subprocess
    bounded_process.subprocess = _Subprocess(root)
    try:
        yield
    finally:
        bounded_process.subprocess = before
