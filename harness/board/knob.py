"""Knobs: settings of the machine that can be applied, read back and restored.

To add a knob, derive a class from `Knob` in the module of its subsystem. If its setting outlives the process, name it
in `KNOBS`: a saved state refers to knobs by name, so that another process can restore them.
"""

from __future__ import annotations

import abc
import importlib
import re
from typing import Any, Dict, NamedTuple

from harness.core.capability import Capability
from harness.core.errors import ControlError, HarnessError

Value = Any
"""A knob's setting in JSON types (lists, not tuples; text as keys), so that saving and loading does not change it."""

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
    # keyword arguments of its opener, of JSON types
    options: Dict[str, Any] = {}  # noqa: RUF012 - never changed; NamedTuple has no factory


class Knob(abc.ABC):
    _spec: KnobSpec
    name: str  # in messages
    topic: str  # its capability, as `harness doctor` lists it
    outlives_process: bool = True  # whether a setting remains when this process ends, so that it must be saved to disk
    # whether a program sets more files than `read` covers, some of which a killed run may leave set
    sets_in_steps: bool = False
    has_parts: bool = False  # whether a setting names parts, of which others may come and go meanwhile (CPU policies)

    @property
    def spec(self) -> KnobSpec:
        """How another process opens the same knob, where its setting outlives this one."""
        return self._spec

    def available(self) -> Capability:
        """Whether it can be set here by this user; if not, why, and what to grant."""
        try:
            return Capability(self.topic, True, self.usable())
        except HarnessError as error:
            return Capability(self.topic, False, error.what, error.hint)
        except (OSError, ValueError) as error:  # what it read is no setting
            return Capability(self.topic, False, str(error))

    @abc.abstractmethod
    def usable(self) -> str:
        """What it sets here, in words; ControlError if this user cannot, with the reason and the right to grant."""

    @abc.abstractmethod
    def read(self) -> Value:
        """The current setting, complete enough to restore it; ControlError if it cannot be read."""

    @abc.abstractmethod
    def apply(self, value: Value) -> None:
        """Write a setting without reading it back; ControlError if the write was refused."""

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
        """Apply a setting and read it back; ControlError if it was refused or did not take effect."""
        self.apply(value)
        self.verify(value)

    def check(self, saved: Value) -> None:
        """Refuse, by a ControlError, what cannot be a setting that a run saved: what it names becomes part of paths."""
        if not _is_plain(saved):
            raise ControlError(f"the saved value of {self.name} is {saved!r}, which is not possible")

    def restore(self, saved: Value) -> None:
        """Restore what `read` returned earlier; ControlError if that was refused or did not take effect."""
        self.set(saved)

    def forget(self, saved: Value) -> None:  # noqa: B027 - most knobs lay nothing down
        """Remove this knob's own files, after every knob of a run was restored to its `saved` setting."""


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
