"""How do devices compare on the same workload (E14)?

With `--device host,sim:orin-agx,sim:rtx-3090,sim:a5000,sim:raspberry-pi-5` the report shows each as a ratio to
Orin AGX, beside what the papers say of them.
"""

import pytest


@pytest.mark.parametrize(
    "workload",
    [
        *("lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10", "resnet18-imagenet"),
        *("yolov8n-coco", "lstm-wikitext", "bert-squad"),
    ],
)
def test_cross_device(profile, baseline):
    """Train with the papers' defaults on each device."""
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.1.5 and 5.1.7, 001 appendix."""
    assert takeaways()
