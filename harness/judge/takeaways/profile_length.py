"""What shorter profiles would have said (001 sec. 2.5, E18)."""

from __future__ import annotations

from typing import Callable, List, Sequence

import numpy as np

from harness.judge.evidence import WARM, Evidence
from harness.judge.findings import Drawn, Finding
from harness.judge.takeaway import MOBILENET, ORIN, RESNET, Takeaways, Views
from harness.judge.view import View
from harness.stats.estimates import DRAWS
from harness.stats.profile_length import LENGTHS, Stretches

TAKEAWAYS = Takeaways("profile_length")

SHORT, USUAL = LENGTHS[0], LENGTHS[-1]
PROFILED = (RESNET, MOBILENET, "yolov8n-coco")
"""The workloads that 001 profiled in every mode."""

INTERVAL_S = 1.0  # 001 sec. 2.5
QUICK = 0.8
"""Ten minibatches that take less than this share of the interval meet no sample often enough to be seen."""


def _mean_errors(view: View, of: Callable[[Stretches], Sequence[float]]) -> List[Drawn]:
    """The mean error of stretches of ten that have no minibatch in common, of each long profile; bootstrap draws."""
    cells = []
    for one in view.where():
        errors = np.array(of(one.stretches[SHORT])[::SHORT]) if SHORT in one.stretches else np.array([])
        errors = errors[~np.isnan(errors)]
        if len(errors) > 1:
            drawn = errors[np.random.default_rng(len(errors)).integers(len(errors), size=(DRAWS, len(errors)))]
            cells.append(Drawn(one.case.id, float(errors.mean()), tuple(drawn.mean(axis=1).tolist())))
    return cells


@TAKEAWAYS.of("001 2.5", "F346", boards=(ORIN,))
def ten_minibatches_tell_the_time(view: View, views: Views) -> Finding:
    """The median time of ten minibatches is that of a long profile, within 5 % on average, in slow and fast modes."""
    cells = _mean_errors(view, lambda stretches: stretches.time_errors)
    return Finding(cells, "error of the time of ten minibatches", below=0.05)


@TAKEAWAYS.of("001 2.5", "F346", boards=(ORIN,))
def ten_minibatches_tell_the_power(view: View, views: Views) -> Finding:
    """Power during ten minibatches, where it was sampled, is that of a long profile, within 5 % on average."""
    cells = _mean_errors(view, lambda stretches: stretches.power_errors)
    return Finding(cells, "error of the power of ten minibatches", below=0.05)


@TAKEAWAYS.of("001 2.5", "F345", boards=(ORIN,))
def ten_minibatches_of_a_fast_mode_may_hold_no_power_sample(view: View, views: Views) -> Finding:
    """Where ten minibatches take less than 0.8 of the sampling interval, at least 5 % of them meet no power sample."""
    cells = [
        Drawn(one.case.id, one.stretches[SHORT].without_power, ())
        for one in view.where(workload=PROFILED)
        if ("power", WARM) in one.figures and _is_quick(one)
    ]
    return Finding(cells, "share of ten minibatches without a power sample", above=0.05)


def _is_quick(one: Evidence) -> bool:
    return SHORT in one.stretches and np.median(one.stretches[SHORT].seconds) < QUICK * INTERVAL_S


@TAKEAWAYS.of("001 2.5", "F345", boards=(ORIN,))
def forty_minibatches_hold_a_power_sample(view: View, views: Views) -> Finding:
    """Forty minibatches of ResNet, MobileNet or YOLO always meet a power sample, in the fastest mode too."""
    cells = [
        Drawn(one.case.id, one.stretches[USUAL].without_power, ())
        for one in view.where(workload=PROFILED)
        if ("power", WARM) in one.figures and USUAL in one.stretches
    ]
    return Finding(cells, "share of forty minibatches without a power sample", below=0.001)
