"""Power of a Jetson board's rails, from its INA3221 and INA238 sensors, and which rails make up the board's total.

    1-0040/iio:device0/rail_name_0, in_power0_input           JetPack 4 (driver ina3221x): label; mW
    1-0040/hwmon/hwmon3/in1_label, in1_input, curr1_input     JetPack 5 and later (ina3221): label; mV, mA
    1-0044/hwmon/hwmon4/power1_input                          Thor (ina238): uW

Number and depth of the directories change with the kernel: the driver's name identifies them. Channels that are not
connected (`NC`) and in7, the sum of the shunts of the others, are left out.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from harness.board.bounded_reads import unread
from harness.board.helper_stream import SensorFiles, read_sensor
from harness.board.kernel_file import read_int
from harness.board.source import (
    MOST_BOARD_MW,
    POWER_TOTAL,
    Reading,
    Source,
    numbered_names,
    plain_name,
    possible_mw,
    read_each,
)
from harness.core.errors import InvalidValueError, SourceUnavailableError
from harness.core.units import mv_ma_to_mw, uv_uohm_to_ma, uw_to_mw

TOTAL = POWER_TOTAL
INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed the whole module (Orin NX and Nano, Xavier NX, TX2; Nano) or the whole kit (Thor)."""

CARRIER_RAILS = (
    "VDD_MUX", "VDD_5V_IO_SYS", "VDD_5V0_IO_SYS", "VDD_3V3_SYS", "VDD_3V3_IO_SLP", "VDD_1V8_IO", "VDD_M2_IN",
)  # fmt: skip
"""Rails of the carrier boards of the TX1 and TX2 kits, beside VDD_IN and not inside it; VDD_MUX feeds the carrier."""

LOWEST_MW = -1000.0
"""What a rail without load may read: an INA3221 is up to 80 uV off (data sheet), and 40 uV are 0.4 W on AGX Orin."""

SHUNT_STEP_UV = 40  # what one step of an INA3221 is over its shunt (data sheet)

NOT_CONNECTED = "NC"  # the label of a sensor channel that measures nothing
SKEW = 1.1  # rails are read one after another: so much more than the total one inside it may show


BELOW_0 = "; in the total, a rail that reads below 0 counts as 0"


def rail_channel(label: str) -> str:
    return f"power_{plain_name(label)}_mw"


class RailTotal(NamedTuple):
    rails: Tuple[str, ...]  # labels of the rails whose sum it is, or the input's; empty where there is no total
    why_none: str  # why there is no total; empty where there is one
    text: str  # the definition in words, for the record

    def of(self, rails_mw: Mapping[str, float]) -> float:
        """The total of one reading in mW; never a sum of fewer rails, nor one that a running board cannot draw.

        A rail that reads a little below 0, as VDD_CPU_CV of AGX Orin at idle (-398 mW), counts as 0: no rail feeds the
        board back. Its own channel keeps the reading.
        """
        if self.why_none:
            raise ValueError(self.why_none)
        without = [label for label in self.rails if label not in rails_mw]
        if without:
            raise ValueError(f"its rail {', '.join(without)} gave no value")
        lowest = min(self.rails, key=lambda label: rails_mw[label])
        if rails_mw[lowest] < LOWEST_MW:
            raise ValueError(f"its rail {lowest} reads {rails_mw[lowest]:g} mW, below {LOWEST_MW:g} mW")
        total_mw = sum(max(0.0, rails_mw[label]) for label in self.rails)
        if total_mw <= 0:
            labels = ", ".join(self.rails)
            raise ValueError(f"its rails {labels} read {total_mw:g} mW in all: a running board draws more")
        inside = {label: power_mw for label, power_mw in rails_mw.items() if label not in CARRIER_RAILS}
        label, most_mw = max(inside.items(), key=lambda rail: rail[1])
        if self.rails[0] in INPUT_RAILS and most_mw > SKEW * total_mw:
            raise ValueError(f"rail {label} reads {most_mw:g} mW, which is inside a total of {total_mw:g} mW")
        return total_mw


def choose_total(labels: Sequence[str], definition: Optional[Sequence[str]] = None, remark: str = "") -> RailTotal:
    """Decide which of the rails that are there make up the total; equal labels are numbered, as by `find_rails`.

    They are those of the definition, from the board's specification, whose caveat is `remark`; without a definition
    (None), the input rail, if there is one. A sum of all rails is never guessed: one may lie inside another, as
    VDDQ_VDD2_1V8AO of AGX Orin is reported to lie inside VIN_SYS_5V0. Nor is one of two rails with the same label, of
    module and carrier.
    """
    of_thor = "; of a Thor only VIN is the total, which is not there" if "VDD_CPU_SOC_MSS" in labels else ""
    if definition is None:
        rails = tuple(label for label in INPUT_RAILS if label in labels)[:1]
        if not rails:
            why = f"none of the rails {', '.join(labels)} is an input, and which of them make up the total is unknown"
            return RailTotal((), why + of_thor, "")
    else:
        rails = tuple(definition)
        if not rails or len(set(rails)) < len(rails):
            what = f"the rails of a total must be one or more, each once, got {list(rails)}"
            raise InvalidValueError(what, f"rails here: {', '.join(labels)}")
        absent = [label for label in rails if label not in labels]
        if absent:
            why = f"rail {', '.join(absent)} of its definition is not among the rails here: {', '.join(labels)}"
            return RailTotal(rails, why + of_thor, "")
    twice = [label for label in rails if f"{label} 2" in labels]
    if twice:
        return RailTotal(rails, f"several rails are labelled {twice[0]}, and which one counts is unknown", "")
    apart = [label for label in labels if label not in rails]
    what = f"rail {rails[0]}" if len(rails) == 1 else f"sum of the rails {', '.join(rails)}"
    text = f"{what}; not added: {', '.join(apart) or 'none'}"
    return RailTotal(rails, "", f"{text}. {remark}" if remark else text)


class Rail(NamedTuple):
    label: str  # as the board's device tree calls it: `VDD_IN`
    directory: str
    files: Tuple[str, ...]  # their names there
    to_mw: Callable[..., float]  # from what the files hold

    @property
    def paths(self) -> List[str]:
        return [os.path.join(self.directory, name) for name in self.files]

    @property
    def note(self) -> str:
        """Where its values come from, their step, and their update interval: sampling faster repeats them."""
        note = f"{self.label}: {' x '.join(self.files)} in {self.directory}"
        step_mw = self.step_mw(lambda path: str(read_int(path)))
        if step_mw is not None:
            note += f"; in steps of {step_mw:.3g} mW"
        with contextlib.suppress(OSError, ValueError):  # not every kernel has it
            note += f"; renewed every {read_int(os.path.join(self.directory, 'update_interval'))} ms"
        return note

    def step_mw(self, read: Callable[[str], str]) -> Optional[float]:
        """The power of one step of an INA3221 at the voltage now; None if the kernel does not name its shunt.

        The kernel's documentation of the driver: `shunt[123]_resistor` in uOhm. `read` returns the text of a file.
        """
        number = re.sub(r"\D", "", self.files[0])
        names = (f"shunt{number}_resistor", f"in{number}_input")
        try:
            shunt_uohm, voltage_mv = (int(read(os.path.join(self.directory, name))) for name in names)
            return mv_ma_to_mw(voltage_mv, uv_uohm_to_ma(SHUNT_STEP_UV, shunt_uohm))
        except (OSError, ValueError, ZeroDivisionError):
            return None


LIMITS = {
    "over-current limit": ("curr{}_crit", "crit_current_limit_{}"),
    "warning limit of the mean": ("curr{}_max", "warn_current_limit_{}"),
}
"""What the kernel gives each channel of an INA3221, in mA, by the drivers ina3221 (its documentation) and ina3221x."""


def current_limits(root: str) -> List[Tuple[str, float, str]]:
    """Of each rail that has them: channel, limit in mW at the voltage now, and which limit that is."""
    limits = []
    for rail in find_rails(root):
        number = re.sub(r"\D", "", rail.files[0])
        for words, names in LIMITS.items():
            for voltage, limit in zip(("in{}_input", "in_voltage{}_input"), names):
                pair = [name.format(number) for name in (voltage, limit)]
                try:
                    values = [int(read_sensor(os.path.join(rail.directory, name), root)) for name in pair]
                except (OSError, ValueError):
                    continue  # the other driver's, or no such limit
                limit_mw = mv_ma_to_mw(*values)
                limits.append((rail_channel(rail.label), limit_mw, f"the {words} of {rail.label} ({pair[1]})"))
    return [one for one in limits if one[1] > 0]


def steps_mw(root: str) -> Dict[str, float]:
    """The step of each rail whose sensor's shunt the kernel names, by label, in mW.

    Raises SourceUnavailableError as `find_rails`.
    """
    steps = {rail.label: rail.step_mw(lambda path: read_sensor(path, root)) for rail in find_rails(root)}
    return {label: step_mw for label, step_mw in steps.items() if step_mw is not None}


def find_rails(root: str) -> List[Rail]:
    """The rails below `root` that are connected, by their sensors' addresses; equal labels are numbered: `VDD_IN 2`.

    Raises SourceUnavailableError where labels are root's to read and the helper cannot read them either.
    """
    return _find_rails(root)[0]


def _find_rails(root: str) -> Tuple[List[Rail], Dict[str, str]]:
    """As `find_rails`; and of each sensor whose label cannot be read the channel, named for its place, and why."""
    # Loaded here: the sampler's process does without it on machines that are no boards.
    from harness.board import privileged

    listed: List[Rail] = []
    nameless: Dict[str, str] = {}
    for chip, driver in privileged.rail_chips(root):
        for directory, files in privileged.folders_of_chip(chip):
            for rail, label_file in _rails_in(directory, set(files), driver):
                try:
                    listed.append(rail._replace(label=_label(label_file, root)) if label_file else rail)
                except OSError as error:
                    channel = rail_channel(f"{os.path.basename(chip)} {rail.files[0]}")
                    nameless[channel] = f"its label cannot be read: {error}"
    unread.update(privileged.unread)
    rails: Dict[str, Rail] = {}  # by channel
    for rail in listed:
        if rail.label in ("", NOT_CONNECTED):
            continue
        labels = numbered_names(rail.label, " ")
        label = next(label for label in labels if rail_channel(label) not in (TOTAL, *rails))
        rails[rail_channel(label)] = rail._replace(label=label)
    return list(rails.values()), nameless


def _rails_in(directory: str, files: Set[str], driver: str) -> Iterator[Tuple[Rail, str]]:
    """Each rail of a folder, and the file with its label; empty where the rail has one already."""
    if driver.startswith("ina238"):
        # The one of a Jetson board measures its input, whether or not it has a label.
        label_files = [os.path.join(directory, name) for name in ("in1_label", "label") if name in files]
        ways: List[Tuple[Tuple[str, ...], Callable[..., float]]] = [
            (("power1_input",), uw_to_mw),
            (("in1_input", "curr1_input"), mv_ma_to_mw),
        ]
        for parts, convert in [way for way in ways if files.issuperset(way[0])][:1]:
            yield Rail("VIN", directory, parts, convert), (label_files or [""])[0]
        return
    for name in sorted(files):
        match = re.fullmatch(r"rail_name_(\d+)|in([123])_label", name)
        if match is None:
            continue
        number = match[1] or match[2]
        to_mw: Callable[..., float] = mv_ma_to_mw
        names: Tuple[str, ...] = (f"in{number}_input", f"curr{number}_input")
        if match[1]:
            # Without its files the rail is still listed in the record: as one that fails.
            names = (f"in_voltage{number}_input", f"in_current{number}_input")
            if f"in_power{number}_input" in files:
                names, to_mw = (f"in_power{number}_input",), float
        yield Rail("", directory, names, to_mw), os.path.join(directory, name)


def _label(path: str, root: str) -> str:
    """The label in a file; SourceUnavailableError if it is root's to read, OSError if the sensor does not answer."""
    try:
        return read_sensor(path, root)
    except OSError as error:
        if error.errno not in (None, errno.EACCES, errno.EPERM):
            raise
        from harness.board.privileges import ASK_FOR_RULE

        reason, _, _ = str(error).partition(f"; {ASK_FOR_RULE}")
        what = f"the label of a power rail cannot be read: {reason}"
        raise SourceUnavailableError(what, f"run as root, or {ASK_FOR_RULE}") from error


def open_source(
    root: str, total: Optional[Sequence[str]] = None, remark: str = "", most_mw: float = MOST_BOARD_MW
) -> Source:
    """The rails below `root` and their total, by `choose_total`; `most_mw` is more than the board's supply gives."""
    rails, nameless = _find_rails(root)
    if not rails and not nameless:
        raise SourceUnavailableError(
            f"there is no rail of an INA3221 or INA238 in {os.path.join(root, 'sys/bus/i2c/devices')}",
            "on a Jetson board load the driver, `sudo modprobe ina3221`; a container needs the host's /sys",
        )
    files = SensorFiles([path for rail in rails for path in rail.paths], root)
    readers = {rail.label: functools.partial(_power_mw, rail, files, most_mw) for rail in rails}
    definition = choose_total(list(readers), total, remark)
    if nameless and definition.why_none:
        of_labels = "; ".join(f"{channel}: {why}" for channel, why in nameless.items())
        definition = definition._replace(why_none=f"{definition.why_none}; {of_labels}")
    notes = {"ina": f"power of each rail at the moment of the sample{BELOW_0}"}
    notes.update((rail_channel(rail.label), rail.note) for rail in rails)
    if definition.text:
        notes[TOTAL] = definition.text

    def read(now_s: float) -> Reading:
        files.refresh()
        reading = read_each(readers)
        values = {rail_channel(label): power_mw for label, power_mw in reading.values.items()}
        failed = {**nameless, **{rail_channel(label): why for label, why in reading.failed.items()}}
        try:
            values[TOTAL] = possible_mw(definition.of(reading.values), most_mw)
        except ValueError as error:
            failed[TOTAL] = str(error)
        return Reading(values, failed)

    return Source(notes, read)


def _power_mw(rail: Rail, files: SensorFiles, most_mw: float) -> float:
    return possible_mw(rail.to_mw(*map(files.read_int, rail.paths)), most_mw)
