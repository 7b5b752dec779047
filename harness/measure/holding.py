"""Holds a device while a training loop of the user's own runs, whose DataLoader workers may live on."""

from __future__ import annotations

import contextlib
from typing import Iterator

from harness.board.cpu import workers_follow
from harness.core.device import Device


@contextlib.contextmanager
def held(device: Device) -> Iterator[None]:
    """The device's session; its end, too, changes the CPUs that this process may use."""
    with contextlib.ExitStack() as stack:
        end = contextlib.ExitStack()
        stack.push(end)  # workers are bound after the device is restored
        stack.enter_context(device.session())
        stack.callback(lambda: end.enter_context(workers_follow()))
        yield
