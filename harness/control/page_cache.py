"""Takes files out of the page cache: all of them (privileged, C5), or given ones (any user).

What either achieved is to be measured: see `harness.telemetry.page_cache_residency`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterable, Optional

from harness.control.kernel_file import write
from harness.control.sudoers import sudoers_user
from harness.devices.protocol import Capability
from harness.errors import ControlError
from harness.telemetry.page_cache_residency import open_data_file

DROP_ALL = 3  # Documentation/admin-guide/sysctl/vm: page cache, and dentries and inodes

DROP_COMMAND = ("/usr/sbin/sysctl", "-w", f"vm.drop_caches={DROP_ALL}")
"""The one command that is run through sudo; fixed, so that the rule that allows it allows nothing else."""

_SUDO_TIMEOUT_S = 60.0


def sudo_rule() -> str:
    """The line for a file in `/etc/sudoers.d` that lets this user drop the page cache."""
    return f"{sudoers_user()} ALL=(root) NOPASSWD: {' '.join(DROP_COMMAND)}"


class PageCache:
    """The page cache of the machine whose `/proc` is below `root`."""

    def __init__(self, root: str = "/") -> None:
        """Touches nothing yet."""
        self._file = os.path.join(root, "proc/sys/vm/drop_caches")
        self._is_this_machine = os.path.abspath(root) == "/"  # sudo acts on this machine only

    def available(self) -> Capability:
        """Whether this user can drop all of it."""
        topic = "drop the page cache"
        if self._may_write():
            return Capability(topic, True, f"dropped through {self._file}")
        if self._is_this_machine and _sudo("-l", *DROP_COMMAND) is None:
            return Capability(topic, True, f"dropped by `sudo {' '.join(DROP_COMMAND)}`")
        return Capability(topic, False, f"{self._file} may not be written by this user", _way_out())

    def drop(self) -> str:
        """Write back what is dirty and drop everything, directly or through the one sudo rule.

        Returns:
            How, in words.

        Raises:
            ControlError: this user may not; names the sudo rule.
        """
        os.sync()  # dirty pages cannot be dropped
        if self._may_write() or not self._is_this_machine:
            write(self._file, DROP_ALL, way_out=_way_out())
            return f"{DROP_ALL} written to {self._file}"
        refusal = _sudo(*DROP_COMMAND)
        if refusal is not None:
            raise ControlError(
                f"the page cache cannot be dropped: {self._file} may not be written, and sudo says: {refusal}",
                _way_out(),
            )
        return f"sudo {' '.join(DROP_COMMAND)}"

    def _may_write(self) -> bool:
        return os.access(self._file, os.W_OK, effective_ids=True)

    def evict(self, files: Iterable[Path]) -> None:
        """Write back what is dirty and drop the pages of `files`; those that another process has mapped stay.

        Raises:
            DataSetError: a file vanished or may not be read; names it.
        """
        os.sync()  # once for all: a sync of each file would flush the disk's own cache each time
        for path in files:
            with open_data_file(path, "to drop it from the page cache") as fd:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _way_out() -> str:
    return (
        f"install the rule with `echo '{sudo_rule()}' | sudo tee /etc/sudoers.d/jetwatt-page-cache`, "
        "or choose another cache state: evicted needs no right"
    )


def _sudo(*arguments: str) -> Optional[str]:
    """Run sudo without asking for a password; None where it worked, else why not."""
    try:
        done = subprocess.run(
            ["sudo", "-n", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SUDO_TIMEOUT_S,
        )
    except FileNotFoundError:
        return "it is not installed"
    except OSError as error:  # a directory on the PATH may not be searched
        return f"it cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"nothing for {_SUDO_TIMEOUT_S:g} s"
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
