"""The sampler's own process: `python -m harness.board CONFIG`, started by `harness.board.sampler.Sampler`."""

from __future__ import annotations

import json
import sys

from harness.board.sampling import Order, run

if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
