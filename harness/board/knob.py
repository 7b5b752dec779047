"""What a knob is: one thing of the machine that can be set, read back and put back.

To add a knob is to write a class derived from `Knob` in the module of its subsystem and, where what it sets outlives
the process, to name it in `KNOBS`: a saved state names knobs, so that another process can put them back.
"""

from __future__ import annotations

import abc
import importlib
import re
from typing import Any, Dict, NamedTuple

from harness.core.capability import Capability
from harness.core.errors import ControlError, HarnessError

Value = Any
"""A knob's setting as JSON knows it (lists, not tuples; text as keys): the same after it was saved and loaded."""

KNOBS = {
    "cluster_limits": "cpu_clocks:CpuFrequency",
    "cpu_online": "cpu:CpuOnline",
    "cpufreq": "cpu_clocks:CpuFrequency",
    "devfreq": "gpu:GpuFrequency",
    "emc": "emc:Emc",
    "fan": "fan:Fan",
    "governor": "governor:Governor",
    "jetson_clocks": "jetson_clocks:JetsonClocks",
    "nvml": "nvml:GpuSettings",
    "nvpmodel": "nvpmodel:Nvpmodel",
    "read_limit": "control_groups:ReadLimit",
}
"""Name of a knob, as saved states have it, to the module of this package and the class, which takes a root and the
options of the spec. Files that earlier versions saved have these names: none may change or go."""


class KnobSpec(NamedTuple):
    name: str  # one of `KNOBS`
    # keyword arguments of what opens it, of types that JSON knows
    options: Dict[str, Any] = {}  # noqa: RUF012 - never changed; NamedTuple has no factory


class Knob(abc.ABC):
    spec: KnobSpec  # how another process opens the same knob, where its setting outlives this one
    name: str  # what messages call it
    topic: str  # what it can do, as `harness doctor` lists it
    outlives_process: bool = True  # whether a setting stays when this process ends: what was before must be on disk
    # whether a program sets more files than `read` covers: a killed run may leave a part of them, whatever it reads
    sets_in_steps: bool = False
    has_parts: bool = False  # whether a setting names parts, of which others may come and go meanwhile (CPU policies)

    def available(self) -> Capability:
        """Whether it can be set here by this user; if not, why, and what to grant."""
        try:
            return Capability(self.topic, True, self.usable())
        except HarnessError as error:
            return Capability(self.topic, False, error.what, error.hint)

    @abc.abstractmethod
    def usable(self) -> str:
        """What it sets here, in words; ControlError if this user can set nothing, with the reason and what to grant."""

    @abc.abstractmethod
    def read(self) -> Value:
        """The setting now, complete enough to put it back; ControlError where it cannot be read."""

    @abc.abstractmethod
    def apply(self, value: Value) -> None:
        """Write a setting, without looking whether it took; ControlError where it was refused."""

    def verify(self, value: Value) -> None:
        """Read back and compare; ControlError if the setting is not `value`."""
        current = self.read_back(value)
        if current != value:
            raise ControlError(f"{self.name} was set to {value} and reads back {current}")

    def read_back(self, value: Value) -> Value:
        """The part of the current setting that `value` covers."""
        current = self.read()
        return {name: current.get(name) for name in value} if self.has_parts else current

    def set(self, value: Value) -> None:
        """Apply a setting and read it back; ControlError where it was refused or did not take."""
        self.apply(value)
        self.verify(value)

    def check(self, saved: Value) -> None:
        """Refuse, by a ControlError, what cannot be a setting that a run saved: what it names becomes part of paths."""
        if not _is_plain(saved):
            raise ControlError(f"{self.name} is said to have stood at {saved!r}, which it cannot")

    def restore(self, saved: Value) -> None:
        """Put back what `read` returned earlier; ControlError where that was refused or did not take."""
        self.set(saved)

    def forget(self, saved: Value) -> None:  # noqa: B027 - most knobs lay nothing down
        """Remove this knob's own files, once every knob of a run is back at what was `saved`."""


def _is_plain(value: Value) -> bool:
    """Whether a value is made of numbers and words, none of which leads elsewhere as a part of a path."""
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return re.fullmatch(r"\w[\w.:-]{0,63}", value, re.ASCII) is not None
    return value is None or isinstance(value, int)


def open_knob(spec: KnobSpec, root: str) -> Knob:
    if spec.name not in KNOBS:
        raise ControlError(f"there is no knob {spec.name!r}", f"available: {', '.join(KNOBS)}")
    module, _, opener = KNOBS[spec.name].partition(":")
    return getattr(importlib.import_module(f"harness.board.{module}"), opener)(root, **spec.options)
