"""The sampler's own process: `python -m harness.telemetry CONFIG`, started by `harness.telemetry.sampler.Sampler`."""

from __future__ import annotations

import json
import sys

from harness.telemetry.sampling import Order, run

if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
