"""How long does an inference batch take, and what does it draw, by batch size (E21)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-imagenet", "bert-squad"])
@pytest.mark.parametrize("batch_size", [1, 4, 16, 64])
def test_inference(infer, baseline):
    """Answer batches of each size; nothing is trained."""
    baseline.check(infer())
