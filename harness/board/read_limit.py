"""What this process and its children may read from a disk in a second, by a control group that is made for that.

    make the group --- limit it --- move this process there --- ... --- move everybody back --- remove the group

The kernel counts what comes from the disk: what is in the page cache is read as fast as ever. It counts whole disks,
never a partition.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Iterator, Optional

from harness.board.kernel_file import read_text, write
from harness.board.knob import Knob, KnobSpec
from harness.board.lock import locked
from harness.board.mounts import below_overlay, block_device, find_mount, printable, read_mounts, whole_disk
from harness.board.read_limit_group import (
    LIMITS_V2,
    MEMBERS,
    Group,
    Limits,
    find_group,
    limits_above,
    limits_of,
    members,
)
from harness.board.saved_state import preserved
from harness.core.device import Capability
from harness.core.errors import CannotRunError, ControlError, HarnessError


class ReadLimit(Knob):
    """Bytes per second by disk number; None where there is no group with a limit."""

    name = "read limit"

    def __init__(self, root: str = "/", group: Optional[Group] = None) -> None:
        """Touches nothing yet.

        Args:
            root: the directory below which `/sys` and `/proc` are looked for.
            group: one that another process made; None for one of this process.
        """
        self._root = root
        self._given = group

    @property
    def spec(self) -> KnobSpec:
        """Names the group, which is of this process alone."""
        return KnobSpec("read_limit", self._group._asdict())

    @functools.cached_property
    def _group(self) -> Group:
        return self._given or find_group(self._root)

    def available(self) -> Capability:
        """Whether this user can make such a group."""
        topic = "hold reads to a limit"
        try:
            place = os.path.dirname(self._group.path)
            return Capability(
                topic, True, f"--storage NAME@MB_PER_S, by {self._group.file} of a control group in {place}"
            )
        except HarnessError as error:
            return Capability(topic, False, error.what, error.hint)

    def on_disk_under(self, path: str, limit_bytes_per_s: int) -> Limits:
        """The setting that holds the disk under a path to a limit.

        Args:
            path: a file or directory; where it is not there yet, what it will lie in counts.
            limit_bytes_per_s: the limit.

        Raises:
            CannotRunError: this user can set none, there is no such disk, or it is held to less already.
        """
        here = self.available()
        if not here.available:
            raise CannotRunError(f"reads cannot be held down here: {here.detail}", here.hint)
        number = _disk_number(path, self._root)
        tightest = min(
            (limits[number] for limits in limits_above(self._root, self._group.file) if number in limits), default=None
        )
        if tightest is not None and tightest < limit_bytes_per_s:
            raise CannotRunError(
                f"reads from disk {number} are held to {tightest} bytes/s already, by the control group of this "
                f"process or one above, and {limit_bytes_per_s} were asked for",
                "ask for less, or run outside of that group",
            )
        return {number: limit_bytes_per_s}

    def read(self) -> Optional[Limits]:
        """The limits of the group; none of a group that was made and not limited yet."""
        if not os.path.isdir(self._group.path):
            return None
        return limits_of(self._group)

    def apply(self, value: Optional[Limits]) -> None:
        """Move this process into a group with these limits, or everybody out of it."""
        self._remove()
        if value is None:
            return
        try:
            os.mkdir(self._group.path)
        except OSError as error:
            raise ControlError(f"the control group {self._group.path} cannot be made: {error.strerror}") from error
        key = "rbps=" if self._group.file == LIMITS_V2 else ""
        for number, limit_bytes_per_s in value.items():
            write(os.path.join(self._group.path, self._group.file), f"{number} {key}{limit_bytes_per_s}")
        write(os.path.join(self._group.path, MEMBERS), os.getpid())

    def verify(self, value: Optional[Limits]) -> None:
        """As of every knob; and that this process is where the limits hold."""
        super().verify(value)
        if value is not None and os.getpid() not in members(self._group.path):
            raise ControlError(f"process {os.getpid()} was moved to {self._group.path} and is not in it")

    def _remove(self) -> None:
        path, origin, _ = self._group
        if not os.path.isdir(path):
            return
        while True:
            left = members(path)
            if not left:
                break
            for member in left:  # one that is not moved yet may start others meanwhile
                try:
                    write(os.path.join(origin, MEMBERS), member)
                except ControlError:
                    if member in members(path):  # else it has ended
                        raise
        try:
            os.rmdir(path)
        except OSError as error:
            raise ControlError(f"the control group {path} cannot be removed: {error.strerror}") from error


@contextlib.contextmanager
def reads_held(
    limit_bytes_per_s: Optional[int], directory: Path, device: str, root: str = "/"
) -> Iterator[Optional[int]]:
    """Hold the reads of this process, and of what it starts, from one disk down during the block.

    Args:
        limit_bytes_per_s: the limit; None for none: then nothing is touched.
        directory: where the data lies: what is held down is the disk under it, for whatever is read of it.
        device: whose run this is; names the saved state.
        root: the directory below which `/sys` and `/proc` are looked for.

    Yields:
        The limit as read back; None where there is none.

    Raises:
        CannotRunError: it cannot be set here.
        ControlError: it was refused, did not take, or could not be taken off again.
    """
    if limit_bytes_per_s is None:
        yield None
        return
    knob = ReadLimit(root)
    limits = knob.on_disk_under(str(directory), limit_bytes_per_s)
    name = f"{device}-reads"
    with locked(name), preserved([knob], name, root=root):
        knob.set(limits)
        [held_bytes_per_s] = knob.read().values()
        yield held_bytes_per_s


def _disk_number(path: str, root: str) -> str:
    """`major:minor` of the whole disk under a path.

    Raises:
        CannotRunError: it lies on no block device of this machine.
    """
    mounts = read_mounts(root)
    mount = find_mount(os.path.realpath(path), mounts)
    device = None if mount is None else block_device(below_overlay(mount, mounts, root), root)
    if device is None:
        what = "no mount that is seen" if mount is None else f"{mount.filesystem} ({printable(mount.source)})"
        raise CannotRunError(
            f"{path} lies on {what}, and no disk under it is seen whose reads could be held down",
            "choose a storage on a disk of this machine",
        )
    return read_text(os.path.join(whole_disk(device), "dev"))


def open_knob(root: str, path: str, origin: str, file: str) -> ReadLimit:
    """The group that another process made; its paths hold the root."""
    return ReadLimit(root, Group(path, origin, file))
