"""A minibatch of a workload, outside any measurement: whether this machine can train it at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Optional

from harness.core.errors import HarnessError
from harness.workloads import get_workload
from harness.workloads.optional_packages import require


def why_not_trained(workload_name: str, gpu_uuid: str = "") -> Optional[str]:
    """Train the smallest batch of one of the suite's workloads on a few samples; None if that works, else the reason.

    Nothing is left: the samples are in a temporary folder. The power mode stays as it is.
    """
    workload = get_workload(workload_name)
    batch_size = workload.smallest_batch
    try:
        training = require("harness.measure.training_loop")
        if gpu_uuid:
            training.use_gpu(gpu_uuid)
        with tempfile.TemporaryDirectory() as folder:
            scale = 2 * batch_size / workload.real_samples
            data = workload.prepare(Path(folder), None, scale, 0, lambda line: None)
            samples = workload.build_data_set(data, 0)
            training.Trainer(workload, samples, batch_size, workers=0, seed=0).rehearse()
    except HarnessError as error:
        return error.what
    except Exception as error:  # whatever a damaged package raises is a reason
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None
