"""Other processes on the CPU before a run begins, and how torch's threads wait under contention.

torch's OpenMP threads wait for each other by spinning. That is fastest if each has a core to itself; with other
processes a spinning thread holds the core that the thread it waits for needs, and minibatches take several times as
long. `OMP_WAIT_POLICY=PASSIVE` makes them sleep instead. libgomp reads it when it is loaded, so it is set before torch.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional

from harness.board.cpu import OthersOnCpu, others_on_cpu
from harness.core.cases import DISTURBED_CORES
from harness.core.terminal import wrap

WAIT_POLICY = "OMP_WAIT_POLICY"
PASSIVE = "PASSIVE"

CONTENDED_CORES = 0.5
"""Contention from which on waiting threads sleep: next to four spinning processes, two threads on two cores train
ResNet-18 on 32 x 32 in 1490 ms a minibatch, and in 297 ms with sleeping threads. Without contention sleeping threads
take 211 instead of 190 ms, and LeNet's minibatches 15 instead of 8."""


LOOK_S = 0.5  # how long to look at other processes before the first measurement


def report_others(report: Callable[[str], None]) -> None:
    """For a call that trains on this machine, before torch is loaded: `look_around`, and report the remark."""
    remark = look_around()
    if remark:
        report(wrap(remark))


def look_around(allowed_cores: Optional[float] = None) -> str:
    """Check which processes use the CPU, and set how torch's threads wait; returns a remark, as of `meet`."""
    return meet(others_on_cpu(os.getpid(), LOOK_S), allowed_cores)


def meet(
    others: OthersOnCpu,
    allowed_cores: Optional[float] = None,
    variables: MutableMapping[str, str] = os.environ,
    is_torch_loaded: Optional[bool] = None,
) -> str:
    """Make torch's threads sleep while they wait if others use the CPU; returns a remark, empty if all is quiet.

    A policy in the environment is kept. Profiles are flagged if others use more than `allowed_cores`, None for
    `DISTURBED_CORES`.
    """
    is_contended = others.cores >= CONTENDED_CORES
    is_flagged = others.cores > (allowed_cores or DISTURBED_CORES)
    if not is_contended and not is_flagged:
        return ""
    consequences: List[str] = []
    if is_contended:
        consequences.append(
            _set_policy(variables, "torch" in sys.modules if is_torch_loaded is None else is_torch_loaded)
        )
    if is_flagged:
        consequences.append(
            "profiles will be flagged disturbed, and export, baseline and compare leave those out unless "
            "--include-flagged is given; --disturbance CORES allows more"
        )
    names = ", ".join(f"{name} {cores:.2f}" for name, cores in list(others.by_name.items())[:3])
    who = f" ({names})" if names else ""
    return f"other processes use {others.cores:.2f} of {others.all_cores} cores now{who}: {'. '.join(consequences)}"


def _set_policy(variables: MutableMapping[str, str], is_torch_loaded: bool) -> str:
    if WAIT_POLICY in variables:
        return f"{WAIT_POLICY}={variables[WAIT_POLICY]} is kept, from the environment"
    if is_torch_loaded:
        return f"torch is loaded already, and its threads spin while they wait: start with {WAIT_POLICY}={PASSIVE}"
    variables[WAIT_POLICY] = PASSIVE
    return (
        f"torch's threads sleep while they wait ({WAIT_POLICY}={PASSIVE}); these profiles are compared only "
        "with others measured in this way"
    )


def wait_policy(variables: Mapping[str, str] = os.environ) -> Dict[str, Any]:
    """The condition of a profile: the policy in lower case; empty for libgomp's own default."""
    policy = variables.get(WAIT_POLICY, "").strip().lower()
    return {"omp_wait_policy": policy} if policy else {}
