"""Line 9, record: the board's record is written, replayed at once, and `doctor` says the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Collection, Dict, List

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import DoesNotApplyError, Findings, LineResult
from harness.acceptance.state import state_path
from harness.board.cpu import Affinity, CpuOnline
from harness.devices.board_record import record, root_of
from harness.measure.doctor import device_to_examine, examine

RECORD = "record"

TEGRASTATS_S = 10.0
OF_THE_BOARD = ("know the board", "use the whole GPU", "agree with its spec file", "end a run on heat")
OF_THE_PROCESS = ("power modes", "specification cpus")
"""What `doctor` says of the CPUs that its process may use; a record has all CPUs of the machine."""
SENSORS, POWER = ("measure CPU clocks", "measure GPU and memory clocks", "notice throttling"), "measure power"
"""Capabilities that a record shows; it has no programs, so nothing can be set there, and training is this machine's."""


def check_record(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    if context.device.gpu_uuid:
        raise DoesNotApplyError("a record holds files of a machine, and the driver of this GPU shows it in none")
    path = state_path(context.lock, context.scale).with_suffix(".tar.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    context.report(f"record: {path}")
    count = record(path, context.root, list(context.specs()), context.seconds(TEGRASTATS_S))
    findings.evidence["record"] = str(path)
    findings.evidence["files"] = count
    findings.evidence["bytes"] = path.stat().st_size
    replayed = root_of(path)
    # Energy counters stand still in a record, and a Raspberry Pi shows its power by a program.
    sensors = SENSORS if context.control is None else (*SENSORS, POWER)
    here = comparable(examine(context.device, context.root), context.root, sensors)
    there = comparable(examine(device_to_examine(None, context.configuration, replayed), replayed), replayed, sensors)
    confined = unused_cpus(context)
    if confined:
        findings.evidence["not compared"] = f"{', '.join(OF_THE_PROCESS)}: this process may not use CPUs {confined}"
        here = {name: value for name, value in here.items() if name not in OF_THE_PROCESS}
    different = [name for name in here if here[name] != there.get(name)]
    findings.evidence["compared"] = f"{len(here)} statements of doctor"
    for name in different:
        findings.fail(f"doctor on the record: {name} is {there.get(name, 'missing')}, on the board {here[name]}")
    if different:
        findings.advise("look at record.json in the file: it lists what could not be read")
    return findings.result(RECORD)


def unused_cpus(context: AcceptanceContext) -> List[int]:
    """The CPUs of a machine without settable modes that this process may not use (`taskset`, a container's CPU set)."""
    if context.control is not None or context.is_emulated:
        return []
    return sorted(set(CpuOnline(str(context.root)).read()) - set(Affinity().read()))


def comparable(findings: Dict[str, Any], root: Path, sensors: Collection[str]) -> Dict[str, Any]:
    """What `doctor` says of the board itself, by name, without the place of its files."""
    said: Dict[str, Any] = {
        "model": findings["model"].replace(" (emulated)", ""),
        "power modes": findings["power_modes"],
        **{f"specification {name}": value for name, value in findings["specification"].items()},
    }
    lists: Dict[str, List[str]] = {}
    for capability in findings["capabilities"]:
        name = capability["name"]
        if name in OF_THE_BOARD:
            detail = capability["detail"].replace(str(root).rstrip("/"), "")
            lists.setdefault(name, []).append(f"{capability['available']}: {detail}")
        elif name in sensors:
            lists.setdefault(name, []).append(str(capability["available"]))
    return {**said, **lists}
