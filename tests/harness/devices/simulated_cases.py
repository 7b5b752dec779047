"""Cases for a simulated board."""

from __future__ import annotations

from harness.core.cases import Case, CaseSettings
from harness.devices.simulated import SimulatedDevice
from harness.measure.run import check, run
from tests.named_modes import mode_on


def silent(_):
    pass


def case_of(device="sim:orin-agx", workload="resnet18-imagenet", mode="maxn", workers=4, storage="ssd", batch_size=16,
            task="training", **settings):  # fmt: skip
    if settings.get("epochs") is not None:
        settings.setdefault("minibatches", None)
    return Case(device, workload, mode_on(device, mode), workers, storage, batch_size, CaseSettings(**settings), task)


def profile_of(board="orin-agx", **how):
    """What a newly opened simulated board makes of a case."""
    device = SimulatedDevice(board)
    case = case_of(device.name, **how)
    check(case, device)
    return run(case, device)
