"""Power of a Jetson board's rails, from its INA3221 and INA238 sensors.

    1-0040/iio:device0/rail_name_0, in_power0_input           JetPack 4 (driver ina3221x): label; mW
    1-0040/hwmon/hwmon3/in1_label, in1_input, curr1_input     JetPack 5 and later (ina3221): label; mV, mA
    1-0044/hwmon/hwmon4/power1_input                          Thor (ina238): uW

Numbers and depth of the directories move with the kernel: they are found by the driver's name. Channels that are not
connected (`NC`) and in7, the sum of the shunts of the others, are left out.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.board.kept_file import KeptFile
from harness.board.rail_total import NOT_CONNECTED, TOTAL, RailTotal, choose_total, rail_channel
from harness.board.sensor_file import read_int, read_text
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError
from harness.core.units import mv_ma_to_mw, uw_to_mw

_DEPTH = 3  # iio:device0, hwmon/hwmon3, and one more level on some kernels


class Rail(NamedTuple):
    """One rail of one sensor.

    Attributes:
        label: as the board's device tree calls it: `VDD_IN`.
        files: the files that are read.
        to_mw: from what they hold to milliwatt.
    """

    label: str
    files: Tuple[str, ...]
    to_mw: Callable[..., float]


class InaSource:
    """Power of each rail at the moment of the reading, and their total.

    Args:
        rails: what is read.
        total: what the total is made of.
    """

    def __init__(self, rails: Sequence[Rail], total: RailTotal) -> None:
        """The files are opened at the first reading and stay open."""
        self._rails = [(rail, [KeptFile(path) for path in rail.files]) for rail in rails]
        self._total = total
        self.notes = {"ina": "power of each rail at the moment of the sample"}
        for rail in rails:
            files = " x ".join(os.path.basename(path) for path in rail.files)
            self.notes[rail_channel(rail.label)] = (
                f"{rail.label}: {files} in {os.path.dirname(rail.files[0])}" + _renewal(rail)
            )
        if total.text:
            self.notes[TOTAL] = total.text

    def read(self, now_s: float) -> Reading:
        """Every rail; the total fails with any rail it is made of."""
        rails_mw: Dict[str, float] = {}
        failed: Dict[str, str] = {}
        for rail, files in self._rails:
            try:
                rails_mw[rail.label] = rail.to_mw(*(file.read_int() for file in files))
            except (OSError, ValueError) as error:
                failed[rail_channel(rail.label)] = str(error)
        values = {rail_channel(label): power_mw for label, power_mw in rails_mw.items()}
        try:
            values[TOTAL] = self._total.of(rails_mw)
        except ValueError as error:
            failed[TOTAL] = str(error)
        return Reading(values, failed)


def _renewal(rail: Rail) -> str:
    """How often the chip has a new value, where the kernel tells: sampling faster only repeats it."""
    path = os.path.join(os.path.dirname(rail.files[0]), "update_interval")
    try:
        return f"; renewed every {read_int(path)} ms"
    except (OSError, ValueError):
        return ""  # not every kernel tells, and the note is complete without it


def find_rails(root: str) -> List[Rail]:
    """Every rail below `root` that is connected, in the order of the sensors' addresses.

    A label that comes again gets the next free number: `VDD_IN 2`.
    """
    rails: List[Rail] = []
    for directory, driver in _sensor_directories(root):
        found = _ina238_rails(directory) if driver.startswith("ina238") else _ina3221_rails(directory)
        for rail in found:
            if rail.label not in ("", NOT_CONNECTED):
                rails.append(rail._replace(label=_free_label(rail.label, rails)))
    return rails


def _free_label(label: str, rails: Sequence[Rail]) -> str:
    """The label, with a number where its channel is taken."""
    taken = {TOTAL, *(rail_channel(rail.label) for rail in rails)}
    candidates = (label, *(f"{label} {number}" for number in range(2, len(taken) + 3)))
    return next(candidate for candidate in candidates if rail_channel(candidate) not in taken)


def _sensor_directories(root: str) -> Iterator[Tuple[str, str]]:
    """Directories that may hold a sensor's files, each with the driver's name."""
    i2c = sorted(glob.glob(os.path.join(root, "sys/bus/i2c/devices/*")))
    chips = _named(i2c)
    if not chips:
        # A container may have been given the classes without the buses.
        classes = ["sys/bus/iio/devices/iio:device*", "sys/class/hwmon/hwmon*"]
        chips = _named([path for pattern in classes for path in sorted(glob.glob(os.path.join(root, pattern)))])
    for directory, driver in chips:
        for below in _walk(directory, _DEPTH):
            yield below, driver


def _named(directories: Sequence[str]) -> List[Tuple[str, str]]:
    """Those directories that belong to a power sensor, with the driver's name."""
    found = []
    for directory in directories:
        name = os.path.join(directory, "name")
        driver = read_text(name).lower() if os.path.isfile(name) else ""
        if driver.startswith(("ina3221", "ina238")):
            found.append((directory, driver))
    return found


def _walk(directory: str, depth: int) -> Iterator[str]:
    """A directory and those below it, without following the links that lead back up."""
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
            ways = [
                ([f"in_power{number}_input"], float),
                ([f"in_voltage{number}_input", f"in_current{number}_input"], mv_ma_to_mw),
            ]
        elif hwmon:
            number = hwmon.group(1)
            ways = [([f"in{number}_input", f"curr{number}_input"], mv_ma_to_mw)]
        else:
            continue
        label = read_text(os.path.join(directory, name))
        # Without its files the rail still stands in the record: as one that fails.
        yield _first_way(directory, label, ways) or _rail(directory, label, *ways[-1])


def _ina238_rails(directory: str) -> Iterator[Rail]:
    labels = [
        path for path in (os.path.join(directory, name) for name in ("in1_label", "label")) if os.path.isfile(path)
    ]
    label = read_text(labels[0]) if labels else "VIN"  # the one INA238 of a Jetson board measures its input
    rail = _first_way(directory, label, [(["power1_input"], uw_to_mw), (["in1_input", "curr1_input"], mv_ma_to_mw)])
    if rail:
        yield rail


def _first_way(directory: str, label: str, ways: Sequence[Tuple[List[str], Callable[..., float]]]) -> Optional[Rail]:
    """The rail, read in the first of several ways whose files are there; None where there is no such way."""
    for names, to_mw in ways:
        rail = _rail(directory, label, names, to_mw)
        if all(os.path.isfile(path) for path in rail.files):
            return rail
    return None


def _rail(directory: str, label: str, names: Sequence[str], to_mw: Callable[..., float]) -> Rail:
    return Rail(label, tuple(os.path.join(directory, name) for name in names), to_mw)


def open_source(root: str, total: Optional[Sequence[str]] = None, remark: str = "") -> InaSource:
    """The rails of the board below `root`.

    Args:
        root: the directory below which `/sys` is looked for.
        total: labels of the rails that make up the board's total; None where that is not known.
        remark: what is to be known of that total.

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
