"""What do training and inference on one device cost each other (E21)?

A network is trained, and another one answers requests that arrive evenly; a batch of requests is served between two
training minibatches. Latency is from a request's arrival to the end of its batch.
"""

from harness.core.cases import CONCURRENT, Mix
from harness.summary import describe_concurrent

SHARE_SERVED = 0.9


def test_concurrent_training_inference(case, profile, interleave, progress):
    """Train while requests are answered: those that arrive are served, and training goes on."""
    measured = profile() if case.task == CONCURRENT else interleave("lenet-mnist", batch_size=4, per_s=20)
    progress.line(f"    {describe_concurrent(measured)}")
    assert measured.aggregates["inference_per_s"] >= SHARE_SERVED * Mix.parse(measured.case.workload).arrivals_per_s
    assert measured.aggregates["training_samples_per_s"] > 0
