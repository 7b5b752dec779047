"""A workload: a model, its data, a loss, an optimizer and how they train; the papers' networks and a user's alike."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Union, cast

from harness.core.errors import InvalidValueError
from harness.core.terminal import available_hint
from harness.workloads.data import data_set as data_sets
from harness.workloads.data.data_set import DataSet, PreparedData, RawSamples
from harness.workloads.optional_packages import require

BF16_WHERE_THERE_IS = "bf16-where-there-is"
PRECISIONS = ("fp32", "fp16", "bf16", BF16_WHERE_THERE_IS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Transformed:
    """Samples as the network takes them: fetched and decoded, then through the training transforms."""

    def __init__(self, raw: RawSamples, transform: Callable[[Any], Any]) -> None:
        self._raw, self._transform = raw, transform

    def __len__(self) -> int:
        return len(self._raw)

    def __getitem__(self, index: int) -> Any:
        return self._transform(self._raw[index])


def transformed(
    data_set: DataSet, build_transform: Callable[[], Callable[[Any], Any]]
) -> Callable[[Path], Transformed]:
    """Reads one of the papers' data sets from its folder; includes the transform, and can be pickled."""
    return lambda folder: Transformed(data_sets.open_samples(data_set, folder), build_transform())


def sgd(parameters: Any) -> Any:
    """SGD as the papers use it for all workloads (SIGMETRICS 2023 sec. 4.4)."""
    return require("torch").optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters: Any) -> Any:
    """AdamW, the usual optimizer of transformers: two more numbers for each trainable parameter."""
    return require("torch").optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A network to train, one of the papers' or your own, with its data.

    For example::

        WORKLOAD = Workload(
            name="my-net",
            model=lambda: torchvision.models.squeezenet1_1(),
            data=lambda: torchvision.datasets.FakeData(256, (3, 224, 224), 1000, torchvision.transforms.ToTensor()),
            loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
        )

    Nothing imports torch before one of its functions is called.

    Args:
        name: letters, digits and `.`, `_`, `-`: it is part of case ids, results and reports.
        model: makes the model, an `nn.Module`, with weights drawn from torch's generator.
        data: makes the map-style torch data set. With `folder` it is given the folder where it lies; or a folder of
            pictures in a folder per class, which are cropped to 224 x 224.
        loss: from the model and a batch on the accelerator to a scalar tensor.
        folder: files that are put on the storage under test: your folder, or one of the papers' data sets.
        forward: the model's output for a batch, which inference times; None for the loss without gradients.
        optimizer: from the model's parameters to an optimizer.
        collate: makes a batch of a list of samples; None for torch's default.
        smallest_batch: samples that a training batch needs: batch normalisation over a map of 1 x 1 takes two.
        precision: `fp32`, or `fp16` or `bf16` by autocast; on CUDA, `fp16` scales the loss. `bf16-where-there-is` is
            `bf16` on accelerators that have it, else `fp32`; profiles say which it was.
        compile: whether `torch.compile` compiles the model.
        channels_last: whether model and pictures lie in memory as channels-last.
        gradient_accumulation: minibatches whose gradients are added up before each optimizer step.
        tokens_per_sample: of a language model, whose profiles tell tokens per second, too; 0 if there are none.
    """

    name: str
    model: Callable[[], Any]
    data: Union[Callable[..., Any], str, Path]
    loss: Callable[[Any, Any], Any]
    folder: Union[DataSet, str, Path, None] = None
    forward: Optional[Callable[[Any, Any], Any]] = None
    optimizer: Callable[[Any], Any] = sgd
    collate: Optional[Callable[[List[Any]], Any]] = None
    smallest_batch: int = 1
    precision: str = "fp32"
    compile: bool = False
    channels_last: bool = False
    gradient_accumulation: int = 1
    tokens_per_sample: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidValueError(
                f"a workload's name is {self.name!r}, expected letters, digits, '.', '_' and '-'",
                "it is part of case ids, file names and reports: my-net",
            )
        if isinstance(self.data, (str, Path)):
            if self.folder is not None:
                raise InvalidValueError(
                    f"workload {self.name}: data and folder are both folders", "data=lambda folder: ..., folder=..."
                )
            object.__setattr__(self, "folder", self.data)
            object.__setattr__(self, "data", read_pictures)
        for field in ("model", "data", "loss", "optimizer", "forward", "collate"):
            value = getattr(self, field)
            if not callable(value) and not (value is None and field in ("forward", "collate")):
                raise InvalidValueError(
                    f"workload {self.name}: {field} is {value!r}, expected a function", f"{field}=lambda ...: ..."
                )
        for field in ("smallest_batch", "gradient_accumulation"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise InvalidValueError(f"workload {self.name}: {field} is {value!r}, expected a number from 1")
        if self.precision not in PRECISIONS:
            raise InvalidValueError(
                f"workload {self.name}: precision is {self.precision!r}", available_hint(self.precision, PRECISIONS)
            )

    @property
    def is_own(self) -> bool:
        """Whether it trains on the user's own data, not on one of the papers' data sets."""
        return not isinstance(self.folder, DataSet)

    @property
    def data_set(self) -> DataSet:
        """The papers' data set that it trains on; only where `is_own` is false."""
        return cast(DataSet, self.folder)

    @property
    def real_samples(self) -> int:
        """Samples of the real data set; of the user's own data, all of them."""
        return self.folder.real_samples if isinstance(self.folder, DataSet) else len(self.open(self.folder))

    def has_real_data(self, place: Path) -> bool:
        """Whether a folder has the real files of the papers' data set."""
        return isinstance(self.folder, DataSet) and self.folder.find_real(place) is not None

    def open(self, folder: Union[str, Path, None]) -> Any:
        """The data set as `data` makes it of a folder; InvalidValueError if it has no length or no items."""
        assert not isinstance(self.data, (str, Path)), "`__post_init__` turns a folder into a function that reads it"
        built = self.data() if folder is None else self.data(Path(folder))
        if not hasattr(built, "__len__") or not hasattr(built, "__getitem__"):
            raise InvalidValueError(
                f"workload {self.name}: data made a {type(built).__name__}, expected a map-style data set",
                "it needs __len__ and __getitem__, as torch.utils.data.Dataset has them",
            )
        return built

    def prepare(
        self,
        storage_dir: Path,
        data_root: Optional[Path],
        data_scale: Optional[float],
        seed: int,
        report: Callable[[str], None],
    ) -> PreparedData:
        """Put the data set on a storage medium, or find it there.

        Args:
            storage_dir: a folder on the medium.
            data_root: a folder of real data sets; those that it lacks are written from `seed`.
            data_scale: samples as a share of the real data set's; None for a small default.
            seed: of written data sets.
            report: takes lines of progress.
        """
        if isinstance(self.folder, DataSet):
            return data_sets.prepare(self.folder, storage_dir, data_root, data_scale, seed, report)
        folder = None if self.folder is None else Path(self.folder)
        return data_sets.prepare_own(self.name, self.open, folder, storage_dir, data_scale, report)

    def build_data_set(self, prepared: PreparedData, seed: int) -> Any:
        """The torch data set of prepared files: as many samples as were asked for, drawn by the seed."""
        samples = prepared.own if self.is_own else self.open(prepared.directory)
        return require("torch.utils.data").Subset(samples, data_sets.choose(len(samples), prepared.samples, seed))


def read_pictures(folder: Path) -> Transformed:
    """Pictures in a folder per class, cropped to 224 x 224 as those of ImageNet are."""
    classification = require("harness.workloads.classification")
    pictures = require("harness.workloads.data.photographs").open_image_folder(folder)
    return Transformed(pictures, classification.OnPicture(classification.imagenet_steps))


def move(batch: Any, to: Any) -> Any:
    """The batch with `to` applied to every tensor in it; tuples, lists and dicts are traversed, other values kept."""
    if hasattr(batch, "to"):
        return to(batch)
    if isinstance(batch, Mapping):
        return {key: move(value, to) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, to) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, to) for value in batch)
    return batch
