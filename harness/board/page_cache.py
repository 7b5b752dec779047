"""Takes files out of the page cache: all of them (privileged, C5), or given ones (any user).

What either achieved is to be measured: see `harness.board.page_cache_residency`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable

from harness.board.kernel_file import grant, may_write, write
from harness.board.page_cache_residency import open_data_file
from harness.core.device import Capability

DROP_ALL = 3  # Documentation/admin-guide/sysctl/vm: page cache, and dentries and inodes


class PageCache:
    """The page cache of the machine whose `/proc` is below `root`."""

    def __init__(self, root: str = "/") -> None:
        """Touches nothing yet."""
        self._file = os.path.join(root, "proc/sys/vm/drop_caches")

    def available(self) -> Capability:
        """Whether this user can drop all of it."""
        topic = "drop the page cache"
        if may_write(self._file):
            return Capability(topic, True, f"dropped through {self._file}")
        return Capability(topic, False, f"{self._file} may not be written by this user", self._hint())

    def drop(self) -> str:
        """Write back what is dirty and drop everything.

        Returns:
            How, in words.

        Raises:
            ControlError: this user may not; says what to grant.
        """
        os.sync()  # dirty pages cannot be dropped
        write(self._file, DROP_ALL, hint=self._hint())
        return f"{DROP_ALL} written to {self._file}"

    def _hint(self) -> str:
        return f"{grant([self._file])}; or choose another cache state: evicted needs no right"

    def evict(self, files: Iterable[Path]) -> None:
        """Write back what is dirty and drop the pages of `files`; those that another process has mapped stay.

        Raises:
            DataSetError: a file vanished or may not be read; names it.
        """
        os.sync()  # once for all: a sync of each file would flush the disk's own cache each time
        for path in files:
            with open_data_file(path, "to drop it from the page cache") as fd:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
