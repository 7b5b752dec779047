"""Line 1, identity: which board and release, whether torch and jtop fit, and what else runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Set

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import Findings, LineResult
from harness.board.cpu import others_on_cpu
from harness.board.kernel_file import entries, text_of
from harness.board.source import SourceSpec
from harness.core.cases import DISTURBED_CORES
from harness.core.environment import describe_environment, package_version
from harness.core.mode_texts import MAXN
from harness.devices.host import source_capability
from harness.measure.doctor import training_capabilities
from harness.workloads.optional_packages import require

IDENTITY = "identity"

DESKTOPS = {"gnome-shell", "Xorg", "Xwayland", "plasmashell", "lxpanel", "xfce4-session", "gdm3", "lightdm", "sddm"}
WATCHED_S = 10.0  # how long the other processes are watched


def check_identity(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    device = context.device
    identity = device.identity()
    conditions = device.conditions(context.case(MAXN))
    environment = describe_environment(context.root)
    findings.evidence["model"] = identity.model
    if context.control is not None:
        _check_board(findings, context, conditions)
    _check_torch(findings, context)
    _check_jtop(findings, context)
    _look_at_neighbours(findings, context)
    findings.evidence["board instance"] = device.board_instance
    for name in ("kernel", "python"):
        findings.evidence[name] = environment.get(name)
    return findings.result(IDENTITY)


def _check_board(findings: Findings, context: AcceptanceContext, conditions: Dict[str, Any]) -> None:
    names = {"part number": "part_number", "L4T": "l4t", "JetPack": "jetpack", "nvpmodel.conf hash": "nvpmodel_conf"}
    findings.evidence.update((name, conditions[key]) for name, key in names.items())
    findings.evidence["booted mode"] = conditions["booted_mode"]
    findings.evidence["TPC mask"] = conditions["tpc_mask"]
    if conditions["part_number"] is None:
        findings.fail("the module has no part number in /proc/device-tree/compatible")
    if conditions["l4t"] is None:
        findings.fail("the release of L4T is unknown: /etc/nv_tegra_release cannot be read or has another form")
    elif conditions["jetpack"] is None:
        findings.advise(f"the JetPack of L4T {conditions['l4t']} is not in the suite's table: please report it")
    if conditions["nvpmodel_conf"] is None:
        findings.fail("/etc/nvpmodel.conf cannot be read", "sudo apt install nvidia-l4t-nvpmodel")
    differences: List[str] = conditions["differs_from_spec"]
    if differences:
        findings.evidence["differs from the suite's facts"] = differences


def _check_torch(findings: Findings, context: AcceptanceContext) -> None:
    capability = training_capabilities(context.device.gpu_uuid)[0]
    findings.evidence["training"] = capability.detail
    if not capability.available:
        findings.fail(f"torch cannot be used: {capability.detail}", capability.hint)
        return
    needs_cuda = context.control is not None or bool(context.device.gpu_uuid)
    if needs_cuda and context.is_emulated:
        findings.evidence["training"] = f"{capability.detail}, of this machine: the board is emulated"
    elif needs_cuda and require("harness.measure.training_loop").accelerator().type != "cuda":
        findings.fail(
            f"{capability.detail}: torch does not see the GPU",
            "install the torch of this JetPack (docs/install.md); a torch from PyPI may have replaced it",
        )


def _check_jtop(findings: Findings, context: AcceptanceContext) -> None:
    """The client must be of the service's version, or it is refused."""
    if not (context.root / "run/jtop.sock").exists():
        findings.evidence["jtop"] = "no service"
        return
    capability = source_capability(SourceSpec("jtop"), str(context.device.root))
    findings.evidence["jtop"] = f"jetson-stats {package_version('jetson-stats') or 'not installed'}"
    if not capability.available:
        findings.fail(f"jtop: {capability.detail}", capability.hint)


def _look_at_neighbours(findings: Findings, context: AcceptanceContext) -> None:
    """What disturbs measurements is evidence: each profile is flagged with it, and it is no property of the board."""
    desktop = sorted(_running(context.device.root) & DESKTOPS)
    findings.evidence["desktop"] = ", ".join(desktop) or "none runs"
    if desktop:
        findings.advise("without a desktop there is more memory and less noise: sudo systemctl isolate multi-user")
    swaps = text_of(str(context.root / "proc/swaps")).splitlines()
    zram = [line.split()[0] for line in swaps if "zram" in line]
    findings.evidence["zram"] = f"{len(zram)} swap devices" if zram else "none"
    others = others_on_cpu(os.getpid(), max(context.seconds(WATCHED_S), 0.5), str(context.device.root))
    names = [f"{name} {cores:.2f}" for name, cores in list(others.by_name.items())[:3]]
    findings.evidence["others on the CPU (cores)"] = round(others.cores, 2)
    if names:
        findings.evidence["most of it (cores)"] = ", ".join(names)
    if others.cores > DISTURBED_CORES:
        findings.advise(f"end what uses the CPU beside the suite: profiles are flagged above {DISTURBED_CORES:g} cores")


def _running(root: Path) -> Set[str]:
    """The names of the processes that run."""
    pids = filter(str.isdigit, entries(str(root / "proc")))
    return {text_of(str(root / "proc" / pid / "comm")) for pid in pids}
