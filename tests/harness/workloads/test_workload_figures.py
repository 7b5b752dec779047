"""Parameters and floating-point operations, counted, and next to what the papers print."""

import pytest

from harness.workloads import WORKLOADS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.training

SAMPLES = 4

OFF_BY_MORE_THAN_2_PER_CENT = {
    "lenet-mnist": "60k is 61,706 rounded",
}
"""Workloads whose parameters differ from the papers', and why."""

MULTIPLY_ADDS = {"mobilenetv3-gld23k", "mobilenetv3-imagenet", "resnet18-imagenet", "resnet18-gld23k"}
"""Workloads for which the papers print multiply-adds, two operations each, as FLOPs."""

NO_FIT = {
    "lenet-mnist": "4.4 M fit no LeNet-5 with 60 k parameters",
    "resnet18-cifar10": "1.82 G multiply-adds are those of pictures of 224 x 224; here they are 32 x 32",
    "vgg11-cifar10": "7.63 G multiply-adds are those of pictures of 224 x 224; here they are 32 x 32",
    "bert-squad": "11.5 T are impossible; 11.5 G fit as multiply-adds",
    "lstm-wikitext": "3.9 G need more than the device has",
}
"""Workloads whose operations do not compare with the papers', and why."""

ALL = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)


@pytest.fixture(scope="module")
def build_model():
    """A function that builds the model of a workload, each but once."""
    models = {}

    def build(workload):
        if workload.model_name not in models:
            models[workload.model_name] = workload.build_model().eval()
        return models[workload.model_name]

    return build


def count_flops(function):
    """Operations of a call as torch counts them; oneDNN off, as its fused LSTM escapes the count."""
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), counter:
        function()
    return counter.get_total_flops()


@ALL
def test_parameters_are_as_stated(workload, build_model):
    assert sum(parameter.numel() for parameter in build_model(workload).parameters()) == workload.parameters


@ALL
@pytest.mark.filterwarnings("ignore:TF32")
def test_operations_of_one_sample_are_as_stated(workload, build_model, prepare_samples):
    data = workload.build_data_set(prepare_samples(workload.data_set, SAMPLES), 0)
    batch = (workload.collate or torch.utils.data.dataloader.default_collate)([data[0]])
    assert count_flops(lambda: workload.forward(build_model(workload), batch)) == workload.flops_forward


@ALL
def test_inputs_have_the_stated_shape(workload, prepare_samples):
    sample = workload.build_data_set(prepare_samples(workload.data_set, SAMPLES), 0)[0]
    tensor = sample.get("img", sample.get("input_ids")) if isinstance(sample, dict) else sample[0]
    assert tuple(tensor.shape) == workload.input_shape


@ALL
def test_parameters_agree_with_the_papers(workload):
    tolerance = 0.03 if workload.name in OFF_BY_MORE_THAN_2_PER_CENT else 0.02
    assert workload.parameters == pytest.approx(workload.published["parameters"].value, rel=tolerance)


@ALL
def test_operations_agree_with_the_papers_or_it_is_known_why_not(workload):
    printed = workload.published["flops_forward"].value * (2 if workload.name in MULTIPLY_ADDS else 1)
    agrees = workload.flops_forward == pytest.approx(printed, rel=0.05)
    assert agrees != (workload.name in NO_FIT)


def test_figures_that_do_not_fit_are_explained_by_what_their_modules_say():
    figures = {name: WORKLOADS[name] for name in NO_FIT}
    at_224_px = (224 / 32) ** 2 * figures["resnet18-cifar10"].flops_forward / 2
    assert at_224_px == pytest.approx(1.82e9, rel=0.02)
    assert figures["bert-squad"].flops_forward / 2 == pytest.approx(11.5e9, rel=0.03)
    assert figures["lstm-wikitext"].parameters == pytest.approx(8.6e6, rel=0.01)
