"""How long does a training minibatch take, and how much power and memory, in every case of the campaign?"""


def test_training(profile, baseline):
    """Train, and record stall, compute, E2E and telemetry of each minibatch."""
    baseline.check(profile())
