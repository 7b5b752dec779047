"""What do training and inference on one device cost each other (E21)?

A network is trained, and another one answers requests that arrive evenly; a batch of requests is served between two
training minibatches. Latency is from a request's arrival to the end of its batch.
"""

from typing import Callable

from harness.core.profiles import Profile
from harness.core.terminal import Progress
from harness.summary import describe_concurrent


def test_concurrent_training_inference(profile: Callable[[], Profile], progress: Progress) -> None:
    """Train while requests are answered: latency, and the throughput that is left for training."""
    measured = profile()
    figures = measured.aggregates
    progress.line(f"    {describe_concurrent(measured)}")
    assert figures["training_samples_per_s"] > 0
    assert figures["latency_p95_ms"] >= figures["latency_median_ms"] > 0
