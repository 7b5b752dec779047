"""The fan's speed, and who else sets it: the nvfancontrol service (L4T r35 on) or the kernel (r32)."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from harness.board import privileges
from harness.board.bounded_process import run_bounded, run_checked
from harness.board.kernel_file import check_writable, read_int_setting, write
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import FAN_SERVICE, FULL_PWM, KINDS, ONLY, SYSTEMCTL, SYSTEMCTL_TIMEOUT_S, nodes
from harness.core.errors import ControlError

Setting = Dict[str, Any]
"""`service`: whether nvfancontrol runs (where it is installed); `automatic`: whether the kernel sets the speed (where
it can); `pwm`: the speed of each fan, 0 to 255 (where neither does, otherwise it moves)."""


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
        check_writable([*speeds, *self._automatic()])
        if "service" not in self.read():
            return ", ".join(speeds)
        privileges.check(self._root, f"{FAN_SERVICE} sets the speed, and only root may stop it")
        return f"{', '.join(speeds)}; {FAN_SERVICE} is stopped for as long"

    def maximum(self) -> Setting:
        """The setting with every fan at full speed and no automatic control (SIGMETRICS sec. 4.4)."""
        setting: Setting = {"service": False} if self._has_service() else {}
        if self._automatic():
            setting["automatic"] = 0
        return {**setting, "pwm": [FULL_PWM] * len(self._speeds())}

    def read(self) -> Setting:
        setting: Setting = {"service": self._service_runs()} if self._has_service() else {}
        for path in self._automatic():
            setting["automatic"] = read_int_setting(path)
        if not setting.get("service") and not setting.get("automatic"):
            setting["pwm"] = [read_int_setting(path) for path in self._speeds()]
        return setting

    def apply(self, value: Setting) -> None:
        """The helper knows full speed and what was before it: it lets no user slow a fan down."""
        speeds = self._speeds()
        files = [*speeds, *self._automatic()]
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

    def _has_service(self) -> bool:
        folders = ("etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system")
        return any(os.path.exists(os.path.join(self._root, folder, f"{FAN_SERVICE}.service")) for folder in folders)

    def _service_runs(self) -> bool:
        return run_bounded([self._systemctl, "is-active", FAN_SERVICE], timeout_s=SYSTEMCTL_TIMEOUT_S).status == 0

    def _turn_service(self, act: str) -> None:
        command = [self._systemctl, act, FAN_SERVICE]
        run_checked(command, timeout_s=SYSTEMCTL_TIMEOUT_S, hint=f"see `journalctl -u {FAN_SERVICE}`")
