"""How many minibatches does a profile need: what would a shorter one have said (E18; 001 sec. 2.5)?"""

import pytest

from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import NO_SERIES
from harness.judge.claims import claim
from harness.judge.papers import MOBILENET, RESNET_IMAGENET, YOLO
from harness.stats.experiments import LENGTHS, stretches_of


@pytest.mark.parametrize("workload", ["resnet18-imagenet", "mobilenetv3-gld23k", "yolov8n-coco"])
def test_profile_length(profile, baseline, progress):
    """Train for longer than a profile takes, and hold every stretch of 10 to 40 minibatches against the whole."""
    measured = profile()
    power = measured.telemetry.series.get(POWER_CHANNEL, NO_SERIES)
    errors = [stretches_of(measured.counted, power, length) for length in LENGTHS if length <= len(measured.counted)]
    parts = [f"{one.minibatches}: {one.time_error:.2%} ({one.without_power:.0%})" for one in errors]
    progress.line(f"    error of the time of so many minibatches (without a power sample): {', '.join(parts)}")
    baseline.check(measured)


QUICK_S = 0.8
"""Ten minibatches that take less than this share of the papers' interval of 1 s (001 sec. 2.5) meet no sample often."""


@claim("001 2.5", facts="F346", boards="orin-agx", fitted=True)
def test_ten_minibatches_tell_the_time(error_of_short_profiles):
    """The median time of ten minibatches is that of a long profile, within 5 % on average, in slow and fast modes."""
    assert error_of_short_profiles("time") < 0.05


@claim("001 2.5", facts="F346", boards="orin-agx", fitted=True)
def test_ten_minibatches_tell_the_power(error_of_short_profiles):
    """Power during ten minibatches, where it was sampled, is that of a long profile, within 5 % on average."""
    assert error_of_short_profiles("power") < 0.05


@claim("001 2.5", facts="F345", boards="orin-agx")
def test_ten_minibatches_of_a_fast_mode_may_hold_no_power_sample(share_without_power_sample):
    """Where ten minibatches take less than 0.8 of the sampling interval, at least 5 % of them meet no power sample."""
    networks = [RESNET_IMAGENET, MOBILENET, YOLO]
    assert share_without_power_sample(10, shorter_than_s=QUICK_S, workload=networks) > 0.05


@claim("001 2.5", facts="F345", boards="orin-agx")
def test_forty_minibatches_hold_a_power_sample(share_without_power_sample):
    """Forty minibatches of ResNet, MobileNet or YOLO always meet a power sample, in the fastest mode too."""
    assert share_without_power_sample(40, workload=[RESNET_IMAGENET, MOBILENET, YOLO]) < 0.001
