"""Writes the tree of a board under a release of L4T: as it is after booting into its default power mode."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Dict, NamedTuple

from boards import nvfancontrol_executable
from boards.board_state import FOLDER, write_state
from boards.clock_files import add_engine_caps, add_gpu, add_memory_clock
from boards.clock_lists import spec_of
from boards.kernel import Kernel
from boards.layouts import Layout, layout_of
from boards.nvpmodel_executable import Nvpmodel
from boards.plan import Plan
from boards.processor_files import add_processor
from boards.readings import sets_fan
from boards.sensor_files import add_sensors
from boards.stock_conf import conf_text
from boards.system_files import add_identity, add_memory, add_storage
from harness.core.boards import BoardSpec
from tests.programs import write_python_program

TESTS = Path(__file__).resolve().parents[1]

EXECUTABLES = {
    "usr/sbin/nvpmodel": "nvpmodel_executable",
    "usr/bin/jetson_clocks": "jetson_clocks_executable",
    "usr/bin/systemctl": "systemctl_executable",
    "usr/sbin/nvfancontrol": "nvfancontrol_executable",
}
"""Place in the tree to the module here that does the work."""


class BoardTree(NamedTuple):
    """A tree: where it lies, what board it is, what its spec says, and where that release has its files."""

    path: Path
    spec: BoardSpec
    layout: Layout

    @property
    def root(self) -> str:
        return str(self.path)

    def controls(self) -> Dict[str, str]:
        """The text of every file that can be written, by its path: compare before and after to see what a run left.

        Without those that are readings now: the memory's rate while it is not locked, the fan's speed while somebody
        else sets it. Without cpufreq folders that are gone while their cores are off: the kernel fills them anew.
        """
        state = Kernel(self.root).state()
        lock, wish, _, shown = state["places"]["emc"]
        readings = {wish} if shown == wish and state["accepted"].get(lock) == "0" else set()
        pwm, _, _, automatic = state["places"]["fan"]
        if state["accepted"].get(automatic) == "1" or state["fan_service"] or sets_fan(state):
            readings.add(pwm)
        paths = {name: self.path / name for name in sorted(state["controls"]) if name not in readings}
        return {name: path.read_text() for name, path in paths.items() if path.is_file()}


def plan_board(board: str, l4t: str) -> Plan:
    """The content of a board's tree, before anything is written."""
    return _plan(layout_of(board, l4t))


def _plan(layout: Layout) -> Plan:
    spec = spec_of(layout)
    plan = Plan()
    add_identity(plan, layout, spec)
    add_memory(plan, spec)
    add_storage(plan, layout, spec)
    add_processor(plan, layout, spec)
    add_gpu(plan, layout, spec)
    add_memory_clock(plan, layout, spec)
    add_engine_caps(plan, layout, spec)
    add_sensors(plan, layout)
    plan.show("proc/stat", "")
    if layout.release.major >= 35:
        plan.files["etc/systemd/system/nvfancontrol.service"] = "[Service]\nExecStart=/usr/sbin/nvfancontrol"
        plan.raw["etc/nvfancontrol.conf"] = nvfancontrol_executable.CONF.encode()
    plan.raw[f"etc/nvpmodel/{layout.conf}.conf"] = conf_text(plan, layout, spec).encode()
    plan.links["etc/nvpmodel.conf"] = f"etc/nvpmodel/{layout.conf}.conf"
    plan.files["var/lib/nvpmodel/status"] = "pmode:0000"
    return plan


def build_board(root: Path, board: str, l4t: str, *, mode: str = "", **changes: object) -> BoardTree:
    """Write a tree; `changes` are fields of its layout that differ on some boards (`fixed_mask`)."""
    layout = layout_of(board, l4t)._replace(**changes)
    spec = spec_of(layout)
    plan = _plan(layout)
    root = Path(root)
    contents = {name: f"{text}\n".encode() for name, text in plan.files.items()}
    contents.update(plan.raw)
    for folder in {os.path.dirname(name) for name in contents}:  # once for all of its files
        os.makedirs(root / folder, exist_ok=True)
    for name, content in contents.items():
        (root / name).write_bytes(content)
    for name, target in plan.links.items():
        _link(root, name, target)
    for name, module in EXECUTABLES.items():
        write_python_program(root / name, _script(root, module))
    _write_first_state(root, plan, layout, spec)
    tree = BoardTree(root, spec, layout)
    boot(tree.root, mode or spec.default_preset)
    return tree


def boot(root: str, mode: str = "") -> None:
    """Start the board again, into a mode of its conf; empty for the mode that nvpmodel was last asked for.

    Masks can change now, for a GPU context comes after nvpmodel; everything else starts from nothing.
    """
    kernel = Kernel(root)
    kernel.set_gpu_context(False)
    Nvpmodel(kernel).boot(mode)
    kernel.set_gpu_context(True)
    kernel.forget_record()


def _link(root: Path, name: str, target: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(root / target, path.parent.resolve()))


def _script(root: Path, module: str) -> str:
    paths = [str(TESTS), str(TESTS.parent)]
    return (
        "import sys\n\n"
        f"sys.path[:0] = {paths!r}\n"
        f"from boards.{module} import main\n\n"
        f"sys.exit(main({str(root.resolve())!r}, sys.argv[1:]))\n"
    )


def _write_first_state(root: Path, plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    (root / FOLDER).mkdir(parents=True)
    state = {
        "board": layout.board,
        "l4t": layout.l4t,
        "cores": spec.cpu_cores,
        "tpcs": spec.gpu.tpcs,
        "peak_mw": spec.peak_power_mw,
        "controls": plan.controls,
        "places": plan.places,
        "accepted": {name: plan.files[name] for name in plan.controls},
        "masks": {name: plan.files[name] for name, rule in plan.controls.items() if rule["kind"] == "mask"},
        "load": {"cpu": 0.0, "gpu": 0.0, "mem": 0.0},
        "gpu_context": False,
        "nvpmodel_hangs": False,
        "reboot_wanted": "",
        "throttled": False,
        "over_current": 0,
        "inactive_policy_is_gone": layout.inactive_policy_is_gone,
        "inactive_policies_refuse": not layout.inactive_policy_is_gone,
        "fan_service": layout.release.major >= 35,
        "has_fan_service": layout.release.major >= 35,
        "faults": [],
        "stuck_cores": [],
        "garbled": {},
        "parked": [],
        "vanished": [],
        "refusals": [],
        "writes": [],
        "ticks": [[100.0, 10000.0] for _ in range(spec.cpu_cores)],
        "used_until": time.monotonic(),
    }
    write_state(str(root), state)
