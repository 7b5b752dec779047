"""Operations that need root: a helper that only root can change, allowed by one sudo rule.

A kernel file is written directly if this user may write it. Otherwise, and only on this machine, the helper (the
installed copy of `harness/board/privileged.py`) receives the name of the node, never a path.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import shlex
from pathlib import Path
from typing import List, Optional, Tuple

from harness.board import privileged
from harness.board.bounded_process import Finished, run_bounded
from harness.core.errors import ControlError

HELPER = "/usr/local/lib/jetwatt/privileged"
SUDOERS_FILE = "/etc/sudoers.d/jetwatt"
ASK_FOR_RULE = "`jetwatt doctor --sudoers` prints what to install so that this user may"

_TIMEOUT_S = 180.0  # longer than the helper gives the programs that it runs
_SUDO_SAYS = "sudo:"


def sudo_rule() -> str:
    """The line for a file in `/etc/sudoers.d`: this user may run the helper, which checks its arguments itself."""
    try:  # sudo identifies a user by the real id, regardless of the environment
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # `docker run --user 1000`
        user = f"#{os.getuid()}"  # sudoers(5): User_List
    return f"{user} ALL=(root) NOPASSWD:NOSETENV: {HELPER}"


def install_commands() -> List[str]:
    """What an administrator runs to install the helper and its rule; the rule's syntax is checked before it counts."""
    folder = shlex.quote(os.path.dirname(HELPER))
    draft = f"{SUDOERS_FILE}.new"  # sudo passes over names with a dot
    return [
        f"sudo install -d -o root -g root -m 0755 {folder}",
        f"sudo install -o root -g root -m 0755 {shlex.quote(privileged.__file__)} {HELPER}",
        f"echo {shlex.quote(sudo_rule())} | sudo tee {draft}",
        f"sudo chmod 0440 {draft} && sudo visudo -c -f {draft} && sudo mv {draft} {SUDOERS_FILE}",
    ]


def removal_commands() -> List[str]:
    return [f"sudo rm -rf {SUDOERS_FILE} {os.path.dirname(HELPER)} /{privileged.STATE}"]


def node_of(path: str) -> Optional[Tuple[str, str]]:
    """The kind and name of a path for the helper, from its text alone: the helper checks what exists."""
    for name, kind in privileged.KINDS.items():
        pattern = f"/{kind.pattern}"
        if path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern):
            before, star, after = pattern.partition("*")
            start = before.rpartition("/")[0] + "/"
            node = path[len(start) : len(path) - len(after)] if star else privileged.ONLY
            return name, node
    return None


def needed(root: str) -> bool:
    """Whether acts of root below `root` go through the helper: it acts on this machine only, and root needs none."""
    return os.path.abspath(root) == "/" and os.geteuid() != 0


def refusal(root: str) -> Optional[str]:
    """The reason why this user cannot use the helper below `root`; None if they can."""
    return closed() if needed(root) else None


def check(root: str, what: str) -> None:
    """Raise a ControlError that begins with `what` and states how to allow it, if there is a `refusal`."""
    why_not = refusal(root)
    if why_not is not None:
        raise ControlError(f"{what}: {why_not}", ASK_FOR_RULE)


def closed() -> Optional[str]:
    """The reason why this user cannot use the helper now; None if they can."""
    why_not = other_version()
    if why_not is not None:
        return why_not
    answer = _sudo("-l", HELPER)
    return None if answer.status == privileged.DONE else answer.output.strip() or "sudo refuses"


def other_version() -> Optional[str]:
    """The reason why the installed helper is not that of this suite; None if it is."""
    try:
        installed = Path(HELPER).read_bytes()
    except OSError as error:
        return f"{HELPER} cannot be read: {error.strerror}"
    same = installed == Path(privileged.__file__).read_bytes()
    return None if same else f"{HELPER} is of another version than this suite"


def ask(*words: str, given: str = "") -> Finished:
    """Run one operation through the helper; ControlError, with the installation, if it is missing or not allowed."""
    why_not = other_version()
    if why_not is None:
        answer = _sudo(HELPER, *words, given=given)
        if answer.status == privileged.DONE or not answer.output.startswith(_SUDO_SAYS):
            return answer
        why_not = answer.output.strip()
    raise ControlError(f"`{' '.join(words)}` needs root: {why_not}", ASK_FOR_RULE)


def call(*words: str, given: str = "") -> str:
    answer = ask(*words, given=given)
    if answer.status != privileged.DONE:
        said = answer.output.strip() or f"status {answer.status}"
        raise ControlError(f"`sudo {HELPER} {' '.join(words)}` failed: {said}")
    return answer.output


def names(kind: str) -> List[str]:
    return call("list", kind).split()


def _sudo(*arguments: str, given: str = "") -> Finished:
    try:
        return run_bounded(["sudo", "-n", *arguments], timeout_s=_TIMEOUT_S, answer=given)
    except ControlError as error:
        return Finished(privileged.FAILED, f"{_SUDO_SAYS} {error.what}")
