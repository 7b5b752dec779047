"""What do time and power come to in thousands of power modes: a corpus to predict from (E15; 001 sec. 2.5)?

Runs only if it is named; takes hours on a board:

    pytest benchmarks/test_corpus_profiling.py --campaign paper --device orin-agx --results corpus.sqlite \
        --resume --deadline 06:00 --case-limit 120

Cases run in an order in which CPU and GPU clocks only fall; the time left is shown with each. What is there already is
left out, so a run that was stopped goes on. A mode that takes longer than the limit is cut to ten
minibatches and says so.
"""

import pytest


@pytest.mark.on_request
@pytest.mark.parametrize("workload", ["resnet18-imagenet", "mobilenetv3-gld23k", "yolov8n-coco"])
@pytest.mark.parametrize("power_mode", ["grid:paper"])
def test_corpus_profiling(profile, baseline):
    baseline.check(profile())
