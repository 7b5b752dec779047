"""What the first run would compile and read from the disk, done while installing: a simulated run, and torch's import.

The suite's modules, which pip does not compile, and the packages that runs load are compiled; what was written a moment
ago is read once. Ends with 0 in any case: the environment is made.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Mapping, Sequence

PROJECT = Path(__file__).resolve().parents[1]
LIMIT_S = 600.0

SIMULATED_RUN = ("pytest", "-q", "-p", "no:cacheprovider", "benchmarks/test_training.py", "--device", "sim:orin-agx",
                 "--workload", "lenet-mnist", "--workers", "0")  # fmt: skip
TRAINING = "import harness.measure.training_loop, harness.workloads.networks, torchvision.transforms"


def main() -> None:
    began_s = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        commands = [["-m", *SIMULATED_RUN, "--results", str(Path(folder) / "results.sqlite")]]
        if importlib.util.find_spec("torch") is not None:
            commands.append(["-c", TRAINING])
        failed = [command for command in commands if not _succeeds([sys.executable, *command], environment)]
    print(f"  compiled and loaded what runs need, after {time.monotonic() - began_s:.0f} s", flush=True)
    for command in failed:
        print(f"note: `python {' '.join(command)}` did not succeed: run it to see why", flush=True)


def _succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    main()
