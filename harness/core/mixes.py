"""What is trained and what answers requests beside it, as the workload of a case of the task `concurrent`."""

from __future__ import annotations

import re
from typing import NamedTuple, Tuple

from harness.core.errors import InvalidValueError

_FORM = re.compile(r"(?P<training>[^+]+)\+(?P<inference>.+)-bs(?P<batch_size>\d+)@(?P<arrivals_per_s>\d+(\.\d+)?)")


class Mix(NamedTuple):
    """One workload that is trained and one that answers.

    Attributes:
        training: name of the workload that is trained.
        inference: name of the one that answers.
        batch_size: requests that are answered together.
        arrivals_per_s: requests per second.
    """

    training: str
    inference: str
    batch_size: int
    arrivals_per_s: float

    @property
    def name(self) -> str:
        """As it stands for a case's workload: `resnet18-cifar10+lenet-mnist-bs4@20`."""
        return f"{self.training}+{self.inference}-bs{self.batch_size}@{self.arrivals_per_s:g}"

    @property
    def workloads(self) -> Tuple[str, str]:
        """The names of both workloads."""
        return self.training, self.inference

    @classmethod
    def parse(cls, text: str) -> Mix:
        """The mix of that name.

        Raises:
            InvalidValueError: it is none, or nothing is ever asked for.
        """
        found = _FORM.fullmatch(text)
        if found is None or int(found["batch_size"]) < 1 or not float(found["arrivals_per_s"]) > 0:
            raise InvalidValueError(
                f"workload {text!r} does not say what is trained beside what answers",
                "TRAINING+INFERENCE-bsREQUESTS@PER_SECOND, such as resnet18-cifar10+lenet-mnist-bs4@20",
            )
        return cls(found["training"], found["inference"], int(found["batch_size"]), float(found["arrivals_per_s"]))
