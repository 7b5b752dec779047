"""The ImageNet validation set: 50,000 photographs, a folder for each of the 1,000 classes."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from harness.workloads.data.data_set import DataSet
from harness.workloads.data.labelled_pictures import LabelledPictures, draw_labelled_picture
from harness.workloads.data.pictures import write_files
from harness.workloads.data.written_folder import Report, WriteProgress

CLASSES = 1_000
_SUFFIXES = (".jpg", ".jpeg", ".png")
_SIZE, _QUALITY = (500, 375), 96  # the most frequent size of ImageNet's pictures


def find_real(data_root: Path) -> Optional[Path]:
    """The directory with the class folders: `imagenet-val`, `imagenet/val`, or `ILSVRC2012/val`."""
    for directory in (data_root / "imagenet-val", data_root / "imagenet" / "val", data_root / "ILSVRC2012" / "val"):
        if directory.is_dir() and any(path.is_dir() for path in directory.iterdir()):
            return directory
    return None


def open_image_folder(directory: Path) -> LabelledPictures:
    """All pictures below the class folders; labels count the folders in the order of their names."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    pictures = [
        (f"{folder.name}/{path.name}", label)
        for label, folder in enumerate(folders)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES
    ]
    return LabelledPictures(directory, [name for name, _ in pictures], [label for _, label in pictures])


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write made-up photographs into a folder for each class that comes up."""
    files = []
    for index in range(samples):
        label, make = draw_labelled_picture(seed, index, CLASSES, IMAGENET_VAL.bytes_per_sample, _SIZE, _QUALITY)
        folder = directory / f"n{label:08d}"
        folder.mkdir(exist_ok=True)
        files.append((folder / f"ILSVRC2012_val_{index + 1:08d}.JPEG", make))
    write_files(files, WriteProgress("imagenet-val", samples, "images", report))
    return "written"


# 50,000 pictures, 6.7 GB: PowerTrain table 3 (F290, F291).
IMAGENET_VAL = DataSet(
    name="imagenet-val",
    real_samples=50_000,
    real_bytes=6_700_000_000,
    default_samples=1_024,
    find_real=find_real,
    write=write,
    open=open_image_folder,
)
