"""Parameters and floating-point operations, counted, and next to what the papers print."""

import re
from pathlib import Path

import pandas as pd
import pytest

from harness.simulation.parameters import SIMULATED_WORKLOADS
from harness.workloads import WORKLOADS, get_workload

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.training

from harness.workloads.counting import count, count_forward, count_layers, count_memory, memory_alone  # noqa: E402
from harness.workloads.forward_work import FLOPS_FORWARD, KEPT_BYTES  # noqa: E402
from harness.workloads.workload import Workload  # noqa: E402

NETWORKS = Path(__file__).resolve().parents[3] / "baselines" / "published" / "networks.csv"

PARAMETERS = {
    "lenet-mnist": 61_706,
    "mobilenetv3-gld23k": 5_483_032,
    "resnet18-cifar10": 11_689_512,
    "resnet18-cifar10-32": 11_689_512,
    "vgg11-cifar10": 132_863_336,
    "yolov8n-coco": 3_157_200,
    "bert-squad": 108_893_186,
    "bert-squad-128": 108_893_186,
    "lstm-wikitext": 8_618_670,
    "llama-lora-tiny-wikitext": 9_339_520,
    "vit-ti16-imagenet": 5_717_416,
}
COUNTED = {name: (parameters, FLOPS_FORWARD[name]) for name, parameters in PARAMETERS.items()}
"""Parameters, and operations of one sample's forward pass."""

SLOW = {"bert-squad", "bert-squad-128", "vgg11-cifar10"}

SAME_NETWORK = {"resnet18-gld23k", "resnet18-imagenet", "mobilenetv3-imagenet"}
LARGE = {"llama-lora-wikitext", "llama-lora-wikitext-checkpointed", "vit-b16-imagenet"}  # made as their small variants

FEW_PARAMETERS = 100_000
"""Below this the papers round to tens of thousands: 60k are LeNet's 61,706."""

NO_FIT = {
    "lenet-mnist": "4.4 M fit no LeNet-5 with 60 k parameters",
    "vgg11-cifar10": "7.63 G multiply-adds are those of pictures of 224 x 224; here they are 32 x 32",
    "bert-squad": "11.5 T are impossible",
    "lstm-wikitext": "3.9 G need more than the device has",
}
"""Workloads whose operations do not compare with the papers', and why."""

IN_OPERATIONS = {"yolov8n-coco"}
"""For the others the papers print multiply-adds, two operations each, as FLOPs."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if name in SLOW else []) for name in COUNTED]
)
def test_figures_are_as_stated_and_agree_with_the_papers_or_it_is_known_why_not(name, prepare_samples):
    workload = get_workload(name)
    counted = count(workload, workload.build_data_set(prepare_samples(workload.data_set, 4), 0))
    parameters, operations = COUNTED[name]
    assert counted.parameters == parameters
    assert counted.flops_forward == pytest.approx(operations, rel=1e-5)
    published = pd.read_csv(NETWORKS, index_col=["workload", "quantity"])["value"]
    assert counted.optimizer == ("AdamW" if name.startswith(("llama", "vit")) else "SGD")
    if name in published:
        tolerance = 0.03 if parameters < FEW_PARAMETERS else 0.02
        assert parameters == pytest.approx(published[name, "parameters"], rel=tolerance)
        printed = published[name, "flops_forward"] * (1 if name in IN_OPERATIONS else 2)
        assert (counted.flops_forward == pytest.approx(printed, rel=0.05)) != (name in NO_FIT)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if name in SLOW else []) for name in KEPT_BYTES]
)
def test_the_memory_that_training_keeps_for_a_sample_is_as_stated(name):
    assert memory_alone(get_workload(name)).sample_bytes == pytest.approx(KEPT_BYTES[name], rel=0.01)


def test_memory_is_stated_for_the_networks_that_are_simulated():
    assert set(KEPT_BYTES) == set(SIMULATED_WORKLOADS)


def test_no_workload_goes_uncounted_and_the_shape_of_128_tokens_is_the_one_that_the_paper_counts():
    assert set(COUNTED) | SAME_NETWORK | LARGE == set(WORKLOADS)
    assert COUNTED["bert-squad-128"][1] / 2 == pytest.approx(11.5e9, rel=0.03)


PAGE = Path(__file__).resolve().parents[3] / "docs" / "workloads.md"
UNITS = {"": 1.0, "M": 1e6, "G": 1e9}


@pytest.mark.parametrize("name", COUNTED)
def test_the_page_of_workloads_prints_the_counted_figures(name):
    """To half of the last digit that it prints."""
    (row,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    for printed, counted in zip(row.split(" | ")[2:4], COUNTED[name]):
        digits, unit = re.fullmatch(r"([\d.,]+) ?([MG]?)", printed).groups()
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        assert abs(float(digits.replace(",", "")) - counted / UNITS[unit]) <= half, printed


def test_kernels_move_what_goes_in_and_comes_out_beside_the_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    with torch.no_grad():
        assert count_forward(model, lambda: model(torch.zeros(2, 8)))[1:] == (3, (16 + 16 + 8 + 8 + 8) * 4)


@pytest.mark.parametrize("network", ["resnet18", "mobilenet_v3_small"])
def test_an_old_torch_counts_the_same_for_networks_of_convolutions(network):
    model = pytest.importorskip("torchvision").models.__dict__[network]().eval()
    picture = torch.zeros(1, 3, 64, 64)
    with torch.no_grad():
        assert count_layers(model, lambda: model(picture))[0] == count_forward(model, lambda: model(picture))[0]


def test_the_memory_that_training_cannot_do_without_is_counted():
    """A linear layer of 1000 x 500 with AdamW: four times its weights, and for each sample its input and the output."""
    layer = torch.nn.Linear(1000, 500, bias=False)

    def loss(model, batch):
        return model(batch[0]).relu().square().mean()

    workload = Workload(
        name="linear", model=lambda: layer, data=list, loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters), smallest_batch=2,
    )  # fmt: skip
    samples = [(torch.ones(1000), torch.zeros(1))] * 2
    floor = count_memory(workload, samples)
    weights = 1000 * 500 * 4
    assert floor.fixed_bytes == pytest.approx(4 * weights, rel=0.001)
    assert floor.sample_bytes == 4 * (1000 + 1 + 500)  # relu keeps its result, which square keeps too: once
    assert count_memory(workload, samples, precision="bf16").sample_bytes == 4 * 1001 + 2 * 500
    assert count_memory(workload, samples, trains=False)[:2] == (weights, 4 * 1001)
