"""The fan's speed, and who else sets it: the nvfancontrol service (L4T r35 on) or the kernel (r32, and r36 on).

On r32 the kernel has a switch (`temp_control`). Since r36 the governor of each thermal zone that the fan cools
overrides what programs write (255 becomes 88), unless the zone's policy is `user_space`.

    sys/class/thermal/thermal_zone8/policy, cdev0/type           `step_wise`; `pwm-fan`
    sys/class/hwmon/hwmon0/name, pwm1                            `pwmfan`; 0 to 255
    sys/class/hwmon/hwmon1/name, rpm                             `pwm_tach`; turns per minute
    sys/devices/pwm-fan/target_pwm, cur_pwm, rpm_measured        r32
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List

from harness.board import privileges
from harness.board.bounded_process import run_bounded, run_checked
from harness.board.kernel_file import check_writable, numbered, read_int_setting, read_setting, text_of, write
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import (
    FAN_NAMES,
    FAN_SERVICE,
    FULL_PWM,
    KINDS,
    ONLY,
    SYSTEMCTL,
    SYSTEMCTL_TIMEOUT_S,
    USER_SPACE,
    nodes,
)
from harness.board.source import Source, file_source, numbered_names
from harness.core.errors import ControlError, SourceUnavailableError

Setting = Dict[str, Any]
"""`service`: whether nvfancontrol runs (where it is installed); `automatic`: whether the kernel sets the speed (where
it has that switch); `policy`: the governor of each thermal zone that the fan cools; `pwm`: the speed of each fan, 0 to
255 (where none of them sets it, otherwise it moves)."""


class Fan(Knob):
    name = "fan"
    topic = "set the fan"

    spec = KnobSpec("fan")

    def __init__(self, root: str) -> None:
        self._root = root
        self._systemctl = os.path.join(root, SYSTEMCTL)

    def usable(self) -> str:
        speeds = self._speeds()
        if not speeds:
            raise ControlError(f"no fan is in {os.path.join(self._root, 'sys/class/hwmon')}")
        check_writable([*speeds, *self._automatic(), *self._policies()])
        if "service" not in self.read():
            return ", ".join(speeds)
        privileges.check(self._root, f"{FAN_SERVICE} sets the speed, and only root may stop it")
        return f"{', '.join(speeds)}; {FAN_SERVICE} is stopped during a run"

    def maximum(self) -> Setting:
        """The setting with every fan at full speed and no automatic control (SIGMETRICS sec. 4.4)."""
        setting: Setting = {"service": False} if self._has_service() else {}
        if self._automatic():
            setting["automatic"] = 0
        if self._policies():
            setting["policy"] = [USER_SPACE] * len(self._policies())
        return {**setting, "pwm": [FULL_PWM] * len(self._speeds())}

    def read(self) -> Setting:
        setting: Setting = {"service": self._service_runs()} if self._has_service() else {}
        for path in self._automatic():
            setting["automatic"] = read_int_setting(path)
        if self._policies():
            setting["policy"] = [read_setting(path) for path in self._policies()]
        kernel_sets_it = setting.get("automatic") or any(policy != USER_SPACE for policy in setting.get("policy", []))
        if not setting.get("service") and not kernel_sets_it:
            setting["pwm"] = [read_int_setting(path) for path in self._speeds()]
        return setting

    def read_back(self, value: Setting) -> Setting:
        """What `value` covers: states that earlier versions saved have no policy."""
        current = self.read()
        return {name: current.get(name) for name in value}

    def apply(self, value: Setting) -> None:
        """The helper knows full speed and what was before it: it lets no user slow a fan down."""
        speeds = self._speeds()
        files = [*speeds, *self._automatic(), *self._policies()]
        if privileges.needed(self._root) and (
            "service" in value or not all(os.access(path, os.W_OK) for path in files)
        ):
            privileges.call("fan", "full" if value.get("pwm") == self.maximum()["pwm"] else "back")
            return
        if value.get("service") is False and self._service_runs():
            self._turn_service("stop")
        if value.get("automatic") == 0:
            for path in self._automatic():
                write(path, 0)
        policies = self._policies()
        if len(value.get("policy", policies)) != len(policies):
            what = f"{len(value['policy'])} thermal policies were given"
            raise ControlError(what, f"the fan cools {len(policies)} thermal zones")
        for path, policy in zip(policies, value.get("policy", [])):
            write(path, policy)
        if len(value.get("pwm", speeds)) != len(speeds):
            raise ControlError(f"{len(value['pwm'])} fan speeds were given", f"there are {len(speeds)} fans")
        for path, pwm in zip(speeds, value.get("pwm", [])):
            write(path, pwm)
        if value.get("automatic") == 1:
            for path in self._automatic():
                write(path, 1)
        if value.get("service") and not self._service_runs():
            self._turn_service("start")

    def _speeds(self) -> List[str]:
        """A file for each fan, in the order in which hwmon numbers them; the numbers change from boot to boot."""
        speed_files = nodes(KINDS["fan-pwm"], self._root)
        by_number = sorted(speed_files, key=lambda name: (len(name), name))
        return [speed_files[name] for name in by_number] or list(nodes(KINDS["fan-target"], self._root).values())

    def _automatic(self) -> List[str]:
        path = nodes(KINDS["fan-automatic"], self._root).get(ONLY)
        return [path] if path else []

    def _policies(self) -> List[str]:
        """The governor's file of each thermal zone that the fan cools; none where the kernel has the switch of r32."""
        if self._automatic():
            return []
        files = nodes(KINDS["fan-policy"], self._root)
        return [files[name] for name in sorted(files, key=lambda name: (len(name), name))]

    def _has_service(self) -> bool:
        folders = ("etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system")
        return any(os.path.exists(os.path.join(self._root, folder, f"{FAN_SERVICE}.service")) for folder in folders)

    def _service_runs(self) -> bool:
        return run_bounded([self._systemctl, "is-active", FAN_SERVICE], timeout_s=SYSTEMCTL_TIMEOUT_S).status == 0

    def _turn_service(self, act: str) -> None:
        command = [self._systemctl, act, FAN_SERVICE]
        run_checked(command, timeout_s=SYSTEMCTL_TIMEOUT_S, hint=f"see `journalctl -u {FAN_SERVICE}`")


# -- what it does ------------------------------------------------------------------------------------------------------


CHANNEL = re.compile(r"fan(?:_[0-9]+)?_(?P<unit>pwm|rpm)")
"""What a channel of this source is called; whether it has the PWM value or turns per minute."""


def open_source(root: str) -> Source:
    """Of each fan the PWM value (`fan_pwm`, 0 to 255), and turns per minute (`fan_rpm`) if it has a tachometer."""
    hwmon = numbered(os.path.join(root, "sys/class/hwmon/hwmon*"))
    fans = [folder for folder in hwmon if text_of(os.path.join(folder, "name")) in FAN_NAMES]
    tachometers = [folder for folder in hwmon if text_of(os.path.join(folder, "name")).startswith("pwm_tach")]
    old = os.path.join(root, "sys/devices/pwm-fan")
    candidates = {
        "pwm": [*(f"{folder}/pwm1" for folder in fans), f"{old}/cur_pwm"],
        "rpm": [f"{folder}/{name}" for folder in [*fans, *tachometers] for name in ("rpm", "fan1_input")]
        + [f"{old}/rpm_measured"],
    }
    files: Dict[str, str] = {}
    for unit, paths in candidates.items():
        names = numbered_names("fan", "_")
        files.update({f"{next(names)}_{unit}": path for path in paths if os.path.exists(path)})
    if not any(name.endswith("_pwm") for name in files):
        where = os.path.join(root, "sys/class/hwmon")
        raise SourceUnavailableError(f"no fan is in {where}", "boards without a fan have none")
    plain: Callable[[int], float] = int
    return file_source({channel: (path, plain) for channel, path in files.items()})
