"""Power monitors, thermal zones, fan, throttle state and over-current counters, at the places of the release."""

from __future__ import annotations

from typing import List

from boards.layouts import Chip, Layout
from boards.plan import Plan
from boards.power_model import RAIL_MV

THERMAL = "sys/devices/virtual/thermal"
HWMON = "sys/class/hwmon"
NOT_CONNECTED = "NC"
SHUNT_UOHM = {"VDD_GPU_SOC": 2000, "VDD_CPU_CV": 2000}  # steps of 0.4 W, as seen on AGX Orin; 5000 of other rails
POLICIES = ("power_allocator", "user_space", "step_wise")


class _Numbers:
    """Hands out hwmon numbers."""

    def __init__(self) -> None:
        self.last = -1

    def next(self) -> int:
        self.last += 1
        return self.last


def add_sensors(plan: Plan, layout: Layout) -> None:
    numbers = _Numbers()
    _add_fan(plan, layout, numbers)
    _add_over_current(plan, layout, numbers)
    plan.places["rails"] = []
    for position, chip in enumerate(layout.chips):
        _add_chip(plan, layout, chip, position, numbers)
    _add_thermal(plan, layout)


def _add_chip(plan: Plan, layout: Layout, chip: Chip, position: int, numbers: _Numbers) -> None:
    device = f"{layout.release.platform}/{chip.bus}/{chip.address}"
    driver = f"{chip.driver}x" if layout.iio else chip.driver
    plan.show(f"{device}/name", driver)
    plan.links[f"sys/bus/i2c/devices/{chip.address}"] = device
    plan.links[f"sys/bus/i2c/drivers/{driver}/{chip.address}"] = device
    if layout.iio:
        folder = f"{device}/iio:device{position}"
        plan.show(f"{folder}/name", driver)
        plan.links[f"sys/bus/iio/devices/iio:device{position}"] = folder
        for channel, label in enumerate(chip.labels):
            _add_iio_channel(plan, folder, channel, label)
        return
    folder = f"{device}/hwmon/hwmon{numbers.next()}"
    plan.links[f"{HWMON}/{folder.rpartition('/')[2]}"] = folder
    plan.links[f"{folder}/device"] = device
    plan.show(f"{folder}/name", driver)
    if chip.driver == "ina238":
        _add_ina238(plan, folder, chip.labels[0])
    else:
        _add_ina3221(plan, folder, chip.labels)


def _rail(plan: Plan, label: str, voltage: str, current: str, power: str = "", microwatts: bool = False) -> None:
    plan.places["rails"].append([label, RAIL_MV.get(label, 5_000), voltage, current, power, microwatts])


def _add_iio_channel(plan: Plan, folder: str, channel: int, label: str) -> None:
    plan.show(f"{folder}/rail_name_{channel}", label)
    names = [plan.show(f"{folder}/in_{what}{channel}_input") for what in ("voltage", "current", "power")]
    _rail(plan, label, *names)
    for limit in ("warn", "crit"):
        plan.control(f"{folder}/{limit}_current_limit_{channel}", 32760, "number")


def _add_ina3221(plan: Plan, folder: str, labels: tuple) -> None:
    for channel, label in enumerate(labels, start=1):
        plan.show(f"{folder}/in{channel}_label", label)
        plan.show(f"{folder}/in{channel}_enable", int(label != NOT_CONNECTED))
        plan.show(f"{folder}/in{channel + 3}_input")  # voltage over the shunt
        plan.show(f"{folder}/shunt{channel}_resistor", SHUNT_UOHM.get(label, 5000))
        plan.show(f"{folder}/curr{channel}_max_alarm")
        plan.show(f"{folder}/curr{channel}_crit_alarm")
        for limit in ("max", "crit"):
            plan.control(f"{folder}/curr{channel}_{limit}", 32760, "number")
        voltage, current = (plan.show(f"{folder}/{what}{channel}_input") for what in ("in", "curr"))
        _rail(plan, label, voltage, current)
    plan.show(f"{folder}/in7_label", "sum of shunt voltages")
    plan.show(f"{folder}/in7_input", 1360)
    plan.show(f"{folder}/curr4_input", 1360)
    plan.show(f"{folder}/update_interval", 1)


def _add_ina238(plan: Plan, folder: str, label: str) -> None:
    plan.show(f"{folder}/in0_input")
    plan.show(f"{folder}/temp1_input", 38000)
    paths = [plan.show(f"{folder}/{name}") for name in ("in1_input", "curr1_input", "power1_input")]
    _rail(plan, label, *paths, microwatts=True)


def _add_thermal(plan: Plan, layout: Layout) -> None:
    plan.places["zones"] = []
    for number, zone in enumerate(layout.zones):
        folder = f"{THERMAL}/thermal_zone{number}"
        plan.show(f"{folder}/type", zone)
        plan.show(f"{folder}/mode", "enabled")
        plan.show(f"{folder}/trip_point_0_type", "critical")
        plan.show(f"{folder}/trip_point_0_temp", 104500)
        plan.links[f"sys/class/thermal/thermal_zone{number}"] = folder
        dark = zone in layout.dark_zones
        off = "" if layout.release.major >= 36 else -256000  # EAGAIN since r36: an empty file comes closest
        plan.show(f"{folder}/temp", off if dark else 35000)
        plan.places["zones"].append([zone, f"{folder}/temp", dark])
    # Since r36 the zone of the highest temperature drives the fan, by its thermal governor.
    plan.places["fan_policies"] = []
    if layout.release.major >= 36:
        folder = f"{THERMAL}/thermal_zone{layout.zones.index('tj-thermal')}"
        plan.links[f"{folder}/cdev0"] = f"{THERMAL}/cooling_device0"
        plan.show(f"{folder}/available_policies", " ".join(POLICIES))
        plan.control(f"{folder}/policy", POLICIES[-1], "choice", of=list(POLICIES))
        plan.places["fan_policies"].append(f"{folder}/policy")
    plan.places["throttles"] = []
    for number, name in enumerate(("pwm-fan", *layout.throttles)):
        folder = f"{THERMAL}/cooling_device{number}"
        plan.show(f"{folder}/type", name)
        plan.show(f"{folder}/max_state", 10 if name == "pwm-fan" else 1)
        state = plan.show(f"{folder}/cur_state")
        plan.links[f"sys/class/thermal/cooling_device{number}"] = folder
        if name != "pwm-fan":
            plan.places["throttles"].append(state)


def _add_fan(plan: Plan, layout: Layout, numbers: _Numbers) -> None:
    if layout.fan == "target_pwm":
        folder = "sys/devices/pwm-fan"
        plan.control(f"{folder}/target_pwm", 66, "pwm")
        plan.show(f"{folder}/cur_pwm", 66)
        plan.show(f"{folder}/pwm_cap", 255)
        plan.control(f"{folder}/temp_control", 1, "choice", of=["0", "1"])
        files = [plan.show(f"{folder}/rpm_measured"), f"{folder}/temp_control"]
        plan.places["fan"] = [f"{folder}/target_pwm", f"{folder}/cur_pwm", *files]
        return
    folder = f"sys/devices/platform/pwm-fan/hwmon/hwmon{numbers.next()}"
    tachometer = f"{layout.release.platform}/39c0000.tachometer/hwmon/hwmon{numbers.next()}"
    plan.show(f"{folder}/name", "pwmfan")
    plan.control(f"{folder}/pwm1", 66, "pwm")
    if layout.release.major >= 36:
        plan.control(f"{folder}/pwm1_enable", 1, "choice", of=["0", "1", "2", "3"])
    plan.show(f"{tachometer}/name", "pwm_tach")
    for path in (folder, tachometer):
        plan.links[f"{HWMON}/{path.rpartition('/')[2]}"] = path
    plan.places["fan"] = [f"{folder}/pwm1", "", plan.show(f"{tachometer}/rpm"), ""]


def _add_over_current(plan: Plan, layout: Layout, numbers: _Numbers) -> None:
    ending, count = layout.over_current
    counters: List[str] = []
    if count:
        folder = f"{layout.release.platform}/soctherm-oc-event/hwmon/hwmon{numbers.next()}"
        plan.show(f"{folder}/name", "soctherm_oc")
        plan.links[f"{HWMON}/{folder.rpartition('/')[2]}"] = folder
        for number in range(1, count + 1):
            counters.append(plan.show(f"{folder}/oc{number}_{ending}"))
            for other in ("throt_en",) if ending == "event_cnt" else ("priority", "cpu_throttle_ctrl"):
                plan.show(f"{folder}/oc{number}_{other}", 1)
    plan.places["over_current"] = counters
