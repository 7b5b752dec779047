"""How many minibatches does a profile need: what would a shorter one have said (E18; 001 sec. 2.5)?"""

import pytest

from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import NO_SERIES
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


def test_takeaways(takeaways):
    """001 sec. 2.5."""
    assert takeaways()
