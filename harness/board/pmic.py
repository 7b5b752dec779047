"""Power of a Raspberry Pi 5 from the converters of its power-management chip, by `vcgencmd pmic_read_adc`.

     VDD_CORE_A current(7)=2.35700000A       what a converter delivers
     VDD_CORE_V volt(15)=0.72070840V
        EXT5V_V volt(24)=5.14683000V         the input, whose current nothing measures

The sum of volts times amperes is what reaches the chips. What USB devices, a HAT or a fan draw from the 5 V input is
not in it, nor are the converters' own losses. The field's correction for a board without any of these, 1.1451 x sum +
0.5879 W (jfikar/RPi5-power), is a channel of its own: an estimate of the input, and not what the suite calls the total.

`vcgencmd get_throttled` has bits for under-voltage, a capped clock, throttling and the soft temperature limit: now, and
16 bits higher since the boot.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, List, Tuple

from harness.board.bounded_process import run_checked
from harness.board.power_rails import TOTAL, rail_channel
from harness.board.source import MOST_BOARD_MW, Reading, possible_mw
from harness.core.errors import ControlError, SourceUnavailableError
from harness.core.units import mw_to_w, w_to_mw

VCGENCMD = "usr/bin/vcgencmd"
INPUT_ESTIMATE = "power_input_estimate_mw"
SLOPE, OFFSET_MW = 1.1451, 587.9

_LINE = re.compile(r"^\s*(\w+)_(A|V)\s+(?:current|volt)\(\d+\)=(-?[\d.]+)(?:A|V)\s*$", re.MULTILINE)
_STATES = {"under_voltage": 0, "capped_clock": 1, "throttled": 2, "soft_temperature_limit": 3}
_SINCE_BOOT = 16


class PmicSource:
    def __init__(self, command: str, most_mw: float = MOST_BOARD_MW) -> None:
        self._command, self._most_mw = command, most_mw
        self._labels: List[str] = []
        rails, _, lost = self._rails_mw()
        self._labels = [*rails, *lost]  # one that is not listed any more is lost, and makes no smaller sum
        self.notes = {
            "pmic": f"volts x amperes of {len(rails)} rails at the moment of the sample, by {command} pmic_read_adc",
            TOTAL: f"sum of the rails {', '.join(self._labels)}; what USB, HATs and a fan draw from the 5 V input and "
            "the converters' losses are not in it",
            INPUT_ESTIMATE: f"{SLOPE} x {TOTAL} + {mw_to_w(OFFSET_MW)} W, for a board with nothing on its 5 V "
            "(jfikar/RPi5-power)",
            "input_v": "voltage at the 5 V input",
        }
        self._before = self._bits() >> _SINCE_BOOT
        since_boot = ", ".join(name for name, bit in _STATES.items() if self._before >> bit & 1)
        note = f"vcgencmd get_throttled; since the boot, before this: {since_boot or 'none'}"
        self.notes["throttle_throttled_state"] = note

    def read(self, now_s: float) -> Reading:
        reading = Reading({}, {})
        try:
            rails, input_v, lost = self._rails_mw()
            for label, power_mw in rails.items():
                try:
                    reading.values[rail_channel(label)] = possible_mw(power_mw, self._most_mw)
                except ValueError as error:
                    lost[label] = str(error)
            reading.failed.update((rail_channel(label), why) for label, why in lost.items())
            reading.values.update(input_v)
            if lost:
                raise ValueError("; ".join(lost.values()))
            total_mw = possible_mw(sum(rails.values()), self._most_mw)
            if total_mw <= 0:
                raise ValueError(f"its rails read {total_mw:g} mW in all: a running board draws more")
            reading.values.update({TOTAL: total_mw, INPUT_ESTIMATE: SLOPE * total_mw + OFFSET_MW})
        except (ControlError, ValueError) as error:
            reading.failed[TOTAL] = str(error)
        try:
            bits = self._bits()
            # What is new since the boot came and went between two samples.
            shown = bits | bits >> _SINCE_BOOT & ~self._before
            reading.values.update((f"throttle_{name}_state", float(shown >> bit & 1)) for name, bit in _STATES.items())
        except (ControlError, ValueError) as error:
            reading.failed["throttle_throttled_state"] = str(error)
        return reading

    def _ask(self, *words: str) -> str:
        # It answers in milliseconds.
        return run_checked([self._command, *words], timeout_s=2.0, hint="the user has to be in group `video`")

    def _rails_mw(self) -> Tuple[Dict[str, float], Dict[str, float], Dict[str, str]]:
        """Power of each rail with both volts and amperes, the input voltage's channel, and of other rails why not.

        Raises ValueError if no rail is reported.
        """
        values: Dict[Tuple[str, str], List[str]] = {}
        for label, unit, text in _LINE.findall(self._ask("pmic_read_adc")):
            values.setdefault((label, unit), []).append(text)
        rails: Dict[str, float] = {}
        listed = {label for label, unit in values if unit == "A"}
        lost = {label: f"vcgencmd pmic_read_adc does not list {label}" for label in self._labels if label not in listed}
        for label in [label for label, unit in values if unit == "A"]:
            amperes, volts = values[label, "A"], values.get((label, "V"), [])
            try:
                if not volts:
                    raise ValueError(f"vcgencmd pmic_read_adc shows no voltage of {label}")
                if len(amperes) + len(volts) > 2:
                    raise ValueError(f"vcgencmd pmic_read_adc lists {label} twice, and which one counts is unknown")
                rails[label] = w_to_mw(float(volts[0]) * float(amperes[0]))
            except ValueError as error:
                lost[label] = str(error)
        if not rails and not lost:
            raise ValueError("vcgencmd pmic_read_adc shows no voltage of any rail")
        input_v: Dict[str, float] = {}
        with contextlib.suppress(KeyError, ValueError):
            [text] = values["EXT5V", "V"]
            input_v["input_v"] = float(text)
        return rails, input_v, lost

    def _bits(self) -> int:
        text = self._ask("get_throttled")
        match = re.fullmatch(r"throttled=0x([0-9a-fA-F]+)\s*", text)
        if match is None:
            raise ValueError(f"vcgencmd get_throttled printed {text.strip()!r}")
        return int(match[1], 16)


def open_source(root: str, most_mw: float = MOST_BOARD_MW) -> PmicSource:
    command = os.path.join(root, VCGENCMD)
    if not os.path.exists(command):
        raise SourceUnavailableError(f"there is no {command}", "on Raspberry Pi OS: `sudo apt install raspi-utils`")
    try:
        return PmicSource(command, most_mw)
    except (ControlError, ValueError) as error:
        hint = "only a Raspberry Pi 5 has such a chip; the user has to be in group `video`"
        raise SourceUnavailableError(str(error), hint) from error
