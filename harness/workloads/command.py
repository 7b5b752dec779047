"""A command as a workload: any program, with what tells it from others.

What a command prints may show its minibatches. Its words are recorded without what looks like a secret, and the content
of its script by a hash; what environment variables hold is not recorded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from harness.core.errors import InvalidValueError
from harness.workloads.command_secrets import secrets_digest, without_secrets

MOST_SCRIPT_BYTES = 1 << 24  # of a script whose content is compared; a larger file is no script
_SCRIPTS = (".py", ".sh")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclasses.dataclass(frozen=True)
class Command:
    """A program that is measured as it is, as a workload.

    Attributes:
        argv: its words, or one text as for a shell, without a shell's pipes and variables.
        name: of the workload in results; None for that of its script, module or program.
        minibatch_pattern: a regular expression for the lines of its output that end a minibatch. A group `ms` or `s`
            has the time of the minibatch; else it is the time since the line before.
        rehearse_as: on a simulated board, which cannot run a program, the workload whose 40 minibatches stand for it.
    """

    argv: Union[str, Sequence[str]]
    name: Optional[str] = None
    minibatch_pattern: Optional[str] = None
    rehearse_as: Optional[str] = None

    def __post_init__(self) -> None:
        """Refuse no command, a name that a case cannot have, and a pattern that is none."""
        if not self.words:
            raise InvalidValueError("the command is empty", "give its words: ['python', 'train.py']")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise InvalidValueError(f"name is {self.name!r}", "use letters, digits, points, _ and -")
        if self.minibatch_pattern is not None:
            try:
                re.compile(self.minibatch_pattern)
            except re.error as error:
                what = f"minibatch_pattern={self.minibatch_pattern!r} is no regular expression: {error}"
                raise InvalidValueError(what, r"such as 'step \d+: (?P<ms>[\d.]+) ms'") from error

    @property
    def words(self) -> List[str]:
        """Its words; those of a text are split as a shell splits them."""
        if not isinstance(self.argv, str):
            return [os.fspath(word) for word in self.argv]
        try:
            return shlex.split(self.argv)
        except ValueError as error:
            [shown] = without_secrets([self.argv])
            raise InvalidValueError(f"the command {shown!r} has an open quote: {error}", "close it") from error

    @property
    def workload(self) -> str:
        """The name of the workload: the given one, that of the script or module, or that of the program."""
        if self.name is not None:
            return self.name
        words = without_secrets(self.words)
        scripts = [word for word in words if Path(word).suffix in _SCRIPTS]
        if scripts:
            named = scripts[0]
        elif "-m" in words[:-1]:
            named = words[words.index("-m") + 1].replace(".", "-")  # a module of Python
        else:
            named = words[0]
        stem = Path(named).stem
        return re.sub(r"[^\w.-]+", "-", stem).strip("-._") or "command"

    def _script(self) -> Optional[Path]:
        """The first text file that the command names; None if it names none."""
        words = self.words
        for place, word in enumerate(words):
            if place == 0 and os.sep not in word:
                continue  # a program on the PATH
            path = Path(word)
            if os.path.isfile(word) and path.stat().st_size <= MOST_SCRIPT_BYTES and b"\0" not in _begin_of(path):
                return path
        return None

    def identity(self) -> Dict[str, Any]:
        """The conditions that tell it from others: its words without what looks secret, and its script's content.

        Where words are masked, a short digest of them tells such commands apart; see `secrets_digest`. The program
        counts by its name, not by its folder. What environment variables hold is not recorded.
        """
        words = self.words
        words[0] = os.path.basename(words[0])
        script = self._script()
        identity = {"command": shlex.join(without_secrets(words))}
        digest = secrets_digest(words)
        if digest:
            identity["command_digest"] = digest
        if script is not None:
            identity["script"] = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
        if self.minibatch_pattern is not None:
            identity["minibatch_pattern"] = self.minibatch_pattern
        return identity


def _begin_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1024)
    except OSError:
        return b"\0"
