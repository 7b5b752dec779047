"""From a decoded picture and its label to tensors, as the papers pre-process: crop at random, flip, normalise."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from harness.workloads.optional_packages import require

SIDE = 224
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CIFAR10_MEAN, _CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_MNIST_MEAN, _MNIST_STD = (0.1307,), (0.3081,)


class OnPicture:
    """Applies a torchvision transform to the picture of a (picture, label) pair."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        """Take the transform to apply."""
        self._transform = transform

    def __call__(self, sample: Tuple[Any, int]) -> Tuple[Any, int]:
        """(picture, label) to (tensor of shape (channels, height, width), label)."""
        picture, label = sample
        return self._transform(picture), label


def build_imagenet_transform() -> OnPicture:
    """Random resized crop to 224 x 224, horizontal flip, normalisation; takes a PIL picture."""
    transforms = require("torchvision.transforms")
    return OnPicture(
        transforms.Compose(
            [
                transforms.RandomResizedCrop(SIDE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(_IMAGENET_MEAN, _IMAGENET_STD),
            ]
        )
    )


def build_cifar10_transform() -> OnPicture:
    """Random crop to 32 x 32 out of a frame of 4 pixels, horizontal flip, normalisation; takes an array (32, 32, 3)."""
    transforms = require("torchvision.transforms")
    return OnPicture(
        transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(_CIFAR10_MEAN, _CIFAR10_STD),
            ]
        )
    )


def build_mnist_transform() -> OnPicture:
    """Normalisation alone; takes an array (28, 28)."""
    transforms = require("torchvision.transforms")
    return OnPicture(transforms.Compose([transforms.ToTensor(), transforms.Normalize(_MNIST_MEAN, _MNIST_STD)]))
