"""What do training and inference on one device cost each other (E21)?

A network is trained, and another one answers requests that arrive evenly; a batch of requests is served between two
training minibatches. Latency is from a request's arrival to the end of its batch.
"""

from harness.core.cases import CONCURRENT, Mix
from harness.judge.claims import claim
from harness.summary import describe_concurrent

SHARE_SERVED = 0.9


def test_concurrent_training_inference(case, profile, interleave, progress):
    """Train while requests are answered: those that arrive are served, and training goes on."""
    measured = profile() if case.task == CONCURRENT else interleave("lenet-mnist", batch_size=4, per_s=20)
    progress.line(f"    {describe_concurrent(measured)}")
    assert measured.aggregates["inference_per_s"] >= SHARE_SERVED * Mix.parse(measured.case.workload).arrivals_per_s
    assert measured.aggregates["training_samples_per_s"] > 0


@claim(
    "000 4.1",
    facts="F125",
    boards="orin-agx",
    measured_only="a simulated board takes turns without loss, so that this holds by construction",
)
def test_both_take_no_longer_than_one_after_the_other(value):
    """Training and inference at once take no longer than one after the other, within 5 %, whichever way they share.

    The GPU is busy all the time.
    """
    assert value("speedup", task="concurrent") > 0.95
