"""Power of a Jetson board's rails, from its INA3221 and INA238 sensors, and which rails make up the board's total.

    1-0040/iio:device0/rail_name_0, in_power0_input           JetPack 4 (driver ina3221x): label; mW
    1-0040/hwmon/hwmon3/in1_label, in1_input, curr1_input     JetPack 5 and later (ina3221): label; mV, mA
    1-0044/hwmon/hwmon4/power1_input                          Thor (ina238): uW

Number and depth of the directories change with the kernel: they are found by the driver's name. Channels that are not
connected (`NC`) and in7, the sum of the shunts of the others, are left out.
"""

from __future__ import annotations

import functools
import glob
import os
import re
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.board.kernel_file import KeptFile, read_int, read_text
from harness.board.source import Reading, plain_name, read_each
from harness.core.errors import InvalidValueError, SourceUnavailableError
from harness.core.units import mv_ma_to_mw, uw_to_mw

TOTAL = "power_total_mw"
"""The channel of the total."""

INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed the whole module (Orin NX and Nano, Xavier NX, TX2; Nano) or the whole kit (Thor)."""

NOT_CONNECTED = "NC"
"""The label of a sensor channel that measures nothing."""

_DEPTH = 3  # iio:device0, hwmon/hwmon3, and one more level on some kernels


def rail_channel(label: str) -> str:
    """The channel of a rail: `power_vdd_gpu_soc_mw`."""
    return f"power_{plain_name(label)}_mw"


class RailTotal(NamedTuple):
    """What a board's total power is made of: some of its rails, or the one rail that feeds all others."""

    rails: Tuple[str, ...]  # labels of the rails whose sum it is; empty where there is no total
    why_none: str  # why there is no total; empty where there is one
    text: str  # the definition in words, for the record

    def of(self, rails_mw: Mapping[str, float]) -> float:
        """The total of one reading in mW, from the rails that gave a value.

        Raises ValueError where there is no total, one of its rails gave no value (it is never a sum of fewer rails),
        or it is not above 0, which no running board draws.
        """
        if self.why_none:
            raise ValueError(self.why_none)
        without = [label for label in self.rails if label not in rails_mw]
        if without:
            raise ValueError(f"its rail {', '.join(without)} gave no value")
        total_mw = sum(rails_mw[label] for label in self.rails)
        if total_mw <= 0:
            raise ValueError(
                f"its rails {', '.join(self.rails)} read {total_mw:g} mW in all: a running board draws more"
            )
        return total_mw


def choose_total(labels: Sequence[str], definition: Optional[Sequence[str]] = None, remark: str = "") -> RailTotal:
    """Decide which of the rails that are there make up the total.

    They are those of the definition, from the board's specification; where it is not known (None), the input rail,
    where there is one. A sum of all rails is never guessed: one may lie inside another, as VDDQ_VDD2_1V8AO of AGX Orin
    is reported to lie inside VIN_SYS_5V0. The remark, a caveat about the definition, goes into its text. Raises
    InvalidValueError where the definition is empty or names a rail twice.
    """
    if definition is None:
        rails = tuple(label for label in INPUT_RAILS if label in labels)[:1]
        if not rails:
            why = f"none of the rails {', '.join(labels)} is an input, and which of them make up the total is not known"
            return RailTotal((), why, "")
    else:
        rails = tuple(definition)
        if not rails or len(set(rails)) < len(rails):
            raise InvalidValueError(
                f"the rails of a total must be one or more, each once, got {list(rails)}",
                f"rails here: {', '.join(labels)}",
            )
        absent = [label for label in rails if label not in labels]
        if absent:
            why = f"rail {', '.join(absent)} of its definition is not among the rails here: {', '.join(labels)}"
            return RailTotal(rails, why, "")
    apart = [label for label in labels if label not in rails]
    what = f"rail {rails[0]}" if len(rails) == 1 else f"sum of the rails {', '.join(rails)}"
    text = f"{what}; not added: {', '.join(apart) or 'none'}"
    return RailTotal(rails, "", f"{text}. {remark}" if remark else text)


class Rail(NamedTuple):
    """One rail of one sensor."""

    label: str  # as the board's device tree calls it: `VDD_IN`
    files: Tuple[str, ...]
    to_mw: Callable[..., float]  # from what the files hold


class InaSource:
    """Power of each rail at the moment of the reading, and their total; the files stay open."""

    def __init__(self, rails: Sequence[Rail], total: RailTotal) -> None:
        self._readers = {
            rail.label: functools.partial(_power_mw, rail.to_mw, [KeptFile(path) for path in rail.files])
            for rail in rails
        }
        self._total = total
        self.notes = {"ina": "power of each rail at the moment of the sample"}
        for rail in rails:
            directory = os.path.dirname(rail.files[0])
            files = " x ".join(os.path.basename(path) for path in rail.files)
            self.notes[rail_channel(rail.label)] = f"{rail.label}: {files} in {directory}{_renewal(directory)}"
        if total.text:
            self.notes[TOTAL] = total.text

    def read(self, now_s: float) -> Reading:
        rails = read_each(self._readers)
        values = {rail_channel(label): power_mw for label, power_mw in rails.values.items()}
        failed = {rail_channel(label): why for label, why in rails.failed.items()}
        try:
            values[TOTAL] = self._total.of(rails.values)
        except ValueError as error:
            failed[TOTAL] = str(error)
        return Reading(values, failed)


def _power_mw(to_mw: Callable[..., float], files: Sequence[KeptFile]) -> float:
    return to_mw(*(file.read_int() for file in files))


def _renewal(directory: str) -> str:
    """How often the chip has a new value, where the kernel tells: sampling faster only repeats it."""
    try:
        return f"; renewed every {read_int(os.path.join(directory, 'update_interval'))} ms"
    except (OSError, ValueError):
        return ""  # not every kernel tells, and the note is complete without it


def find_rails(root: str) -> List[Rail]:
    """Every rail below `root` that is connected, in the order of the sensors' addresses.

    A label that comes again gets the next free number: `VDD_IN 2`.
    """
    rails: Dict[str, Rail] = {}  # by channel
    for directory, driver in _sensor_directories(root):
        for rail in _ina238_rails(directory) if driver.startswith("ina238") else _ina3221_rails(directory):
            if rail.label in ("", NOT_CONNECTED):
                continue
            label, number = rail.label, 1
            while rail_channel(label) in (TOTAL, *rails):
                number += 1
                label = f"{rail.label} {number}"
            rails[rail_channel(label)] = rail._replace(label=label)
    return list(rails.values())


def _sensor_directories(root: str) -> Iterator[Tuple[str, str]]:
    # A container may have been given the classes without the buses.
    for patterns in (["sys/bus/i2c/devices/*"], ["sys/bus/iio/devices/iio:device*", "sys/class/hwmon/hwmon*"]):
        chips = []
        for directory in (path for one in patterns for path in sorted(glob.glob(os.path.join(root, one)))):
            name = os.path.join(directory, "name")
            driver = read_text(name).lower() if os.path.isfile(name) else ""
            if driver.startswith(("ina3221", "ina238")):
                chips.append((directory, driver))
        if chips:
            break
    for directory, driver in chips:
        for below in _walk(directory, _DEPTH):
            yield below, driver


def _walk(directory: str, depth: int) -> Iterator[str]:
    yield directory
    if depth:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, depth - 1)


def _ina3221_rails(directory: str) -> Iterator[Rail]:
    for name in sorted(os.listdir(directory)):
        iio = re.fullmatch(r"rail_name_(\d+)", name)
        hwmon = re.fullmatch(r"in([123])_label", name)
        if iio:
            number = iio.group(1)
            power = _rail(directory, name, [f"in_power{number}_input"], float)
            product = [f"in_voltage{number}_input", f"in_current{number}_input"]
            # Without its files the rail still stands in the record: as one that fails.
            yield power if _is_there(power) else _rail(directory, name, product, mv_ma_to_mw)
        elif hwmon:
            number = hwmon.group(1)
            yield _rail(directory, name, [f"in{number}_input", f"curr{number}_input"], mv_ma_to_mw)


def _ina238_rails(directory: str) -> List[Rail]:
    """The one INA238 of a Jetson board measures its input, whether or not it has a label."""
    labels = [name for name in ("in1_label", "label") if os.path.isfile(os.path.join(directory, name))]
    label = labels[0] if labels else ""
    ways = [
        _rail(directory, label, ["power1_input"], uw_to_mw),
        _rail(directory, label, ["in1_input", "curr1_input"], mv_ma_to_mw),
    ]
    return list(filter(_is_there, ways))[:1]


def _rail(directory: str, label_file: str, names: Sequence[str], to_mw: Callable[..., float]) -> Rail:
    label = read_text(os.path.join(directory, label_file)) if label_file else "VIN"
    return Rail(label, tuple(os.path.join(directory, name) for name in names), to_mw)


def _is_there(rail: Rail) -> bool:
    return all(map(os.path.isfile, rail.files))


def open_source(root: str, total: Optional[Sequence[str]] = None, remark: str = "") -> InaSource:
    """The rails of the board below `root`; `total` and `remark` as in `choose_total`.

    Raises:
        SourceUnavailableError: there is no sensor with a rail.
        InvalidValueError: `total` is empty or names a rail twice.
    """
    rails = find_rails(root)
    if not rails:
        raise SourceUnavailableError(
            f"there is no rail of an INA3221 or INA238 in {os.path.join(root, 'sys/bus/i2c/devices')}",
            "on a Jetson board load the driver, `sudo modprobe ina3221`; a container needs the host's /sys",
        )
    return InaSource(rails, choose_total([rail.label for rail in rails], total, remark))
