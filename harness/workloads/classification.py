"""The workloads that classify pictures: LeNet-5, MobileNetV3, ResNet-18, VGG-11, and vision transformers."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

from harness.workloads.data.cifar10 import CIFAR10
from harness.workloads.data.data_set import DataSet
from harness.workloads.data.mnist import MNIST
from harness.workloads.data.photographs import GLD23K, IMAGENET_VAL
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload, adamw, transformed

SIDE = 224


class OnPicture:
    """Applies torchvision transforms, made by `steps` of its module, to the picture of a (picture, label) pair."""

    def __init__(self, steps: Callable[[Any], List[Any]]) -> None:
        transforms = require("torchvision.transforms")
        self._transform = transforms.Compose(steps(transforms))

    def __call__(self, sample: Tuple[Any, int]) -> Tuple[Any, int]:
        picture, label = sample
        return self._transform(picture), label


def imagenet_steps(of: Any) -> List[Any]:
    """Random resized crop to 224 x 224, horizontal flip, normalisation; takes a PIL picture."""
    normalise = of.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    return [of.RandomResizedCrop(SIDE), of.RandomHorizontalFlip(), of.ToTensor(), normalise]


def cifar10_steps(of: Any) -> List[Any]:
    """Random crop to 32 x 32 out of a frame of 4 pixels, horizontal flip, normalisation; takes an array (32, 32, 3)."""
    normalise = of.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    crop = of.RandomCrop(32, padding=4)
    return [of.ToPILImage(), crop, of.RandomHorizontalFlip(), of.ToTensor(), normalise]


def mnist_steps(of: Any) -> List[Any]:
    """Normalisation alone; takes an array (28, 28)."""
    return [of.ToTensor(), of.Normalize((0.1307,), (0.3081,))]


def torchvision_model(name: str, **sizes: int) -> Callable[[], Any]:
    """What makes a model with random weights; nothing is downloaded."""
    return lambda: getattr(require("torchvision.models"), name)(**sizes)


def enlarged_resnet18() -> Any:
    """ResNet-18 behind a layer that enlarges pictures to 224 x 224 on the accelerator."""
    nn = require("torch.nn")
    enlarge = nn.Upsample(size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return nn.Sequential(enlarge, torchvision_model("resnet18")())


def forward(model: Any, batch: Any) -> Any:
    """Class scores, shape (batch size, classes)."""
    pictures, _ = batch
    return model(pictures)


def loss(model: Any, batch: Any) -> Any:
    """Mean cross-entropy over the batch (SIGMETRICS 2023 sec. 4.4)."""
    pictures, labels = batch
    return require("torch.nn.functional").cross_entropy(model(pictures), labels)


def classifier(name: str, model: Callable[[], Any], data_set: DataSet, **more: Any) -> Workload:
    """A network, with its class scores and their loss, on one of the data sets whose steps stand above."""
    steps = {MNIST: mnist_steps, CIFAR10: cifar10_steps}.get(data_set, imagenet_steps)
    data = transformed(data_set, lambda: OnPicture(steps))
    return Workload(name=name, model=model, folder=data_set, data=data, forward=forward, loss=loss, **more)


# SIGMETRICS 2023 table 2. Its 4.4 MFLOP are ten times the 0.42 M multiply-adds of this network, and fit no LeNet-5 of
# 60 k parameters on 28 x 28 pictures: the counted figure stands.
LENET_MNIST = classifier("lenet-mnist", lambda: require("harness.workloads.networks").LeNet5(), MNIST)

# SIGMETRICS 2023 table 2, PowerTrain table 3. 5.48 M parameters are the network with its 1,000 outputs, though GLD-23k
# has 203 classes.
MOBILENETV3_GLD23K = classifier("mobilenetv3-gld23k", torchvision_model("mobilenet_v3_large"), GLD23K)

# SIGMETRICS 2023 table 2. Its 1.82 G are the multiply-adds of this network on 224 x 224 pictures, and its epoch of
# 349 s (F1004) takes that size. Its stall of 12 s (F916) leaves no room for loading such pictures: 32 x 32 are loaded,
# and enlarged on the accelerator. The 11.68 M parameters are the network with its 1,000 outputs.
RESNET18_CIFAR10 = classifier("resnet18-cifar10", enlarged_resnet18, CIFAR10)

# The same network on pictures as they are, a forty-eighth of the work: for small machines, and no workload of a paper.
# The last stage is one pixel wide, so a batch needs two samples.
RESNET18_CIFAR10_32 = classifier("resnet18-cifar10-32", torchvision_model("resnet18"), CIFAR10, smallest_batch=2)

# SIGMETRICS 2023 table 2. The paper uses it once, to test its time model. Its 7.63 G are the multiply-adds on 224 x 224
# pictures, more than its hours of training allow at the peak of its device. Here pictures keep their 32 x 32.
VGG11_CIFAR10 = classifier("vgg11-cifar10", torchvision_model("vgg11"), CIFAR10)

# PowerTrain's reference workload (table 3).
RESNET18_IMAGENET = classifier("resnet18-imagenet", torchvision_model("resnet18"), IMAGENET_VAL)

# PowerTrain sec. 4.3.1: the model of one workload on the data set of another.
RESNET18_GLD23K = classifier("resnet18-gld23k", torchvision_model("resnet18"), GLD23K)
MOBILENETV3_IMAGENET = classifier("mobilenetv3-imagenet", torchvision_model("mobilenet_v3_large"), IMAGENET_VAL)

# Of no paper: transformers as they are trained today. ViT-B/16 as torchvision has it, and DeiT's tiny size of it.
_TINY = {"image_size": SIDE, "patch_size": 16, "num_layers": 12, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768}
VIT_B16_IMAGENET = classifier("vit-b16-imagenet", torchvision_model("vit_b_16"), IMAGENET_VAL, optimizer=adamw)
VIT_TI16_IMAGENET = classifier(
    "vit-ti16-imagenet", torchvision_model("VisionTransformer", **_TINY), IMAGENET_VAL, optimizer=adamw
)
