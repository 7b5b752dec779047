"""GLD-23k: 23,080 landmark photographs of 203 classes, listed in a CSV file (Google Landmarks, federated split)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Optional

from harness.core.errors import DataSetError
from harness.workloads.data.data_set import DataSet
from harness.workloads.data.labelled_pictures import LabelledPictures, draw_labelled_picture
from harness.workloads.data.pictures import write_files
from harness.workloads.data.written_folder import Report, WriteProgress

CLASSES = 203
_LISTS = ("data_user_dict/gld23k_user_dict_train.csv", "gld23k_user_dict_train.csv", "federated_train.csv")
_COLUMNS = ("user_id", "image_id", "class")
_USERS = 233
_SIZE, _QUALITY = (800, 600), 90  # students' paper on AGX and NX storage, sec. II.C: 800 x 600


def _find_list(directory: Path) -> Optional[Path]:
    return next((directory / name for name in _LISTS if (directory / name).is_file()), None)


def find_real(data_root: Path) -> Optional[Path]:
    """The directory with the list of training pictures: `gld23k` or `landmarks`."""
    return next((data_root / name for name in ("gld23k", "landmarks") if _find_list(data_root / name)), None)


def open_gld23k(directory: Path) -> LabelledPictures:
    """The training pictures, `images/IMAGE_ID.jpg` each.

    Raises:
        DataSetError: there is no list, or it is damaged.
    """
    path = _find_list(directory)
    if path is None:
        raise DataSetError(f"{directory} has none of {', '.join(_LISTS)}")
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(row["image_id"], int(row["class"])) for row in csv.DictReader(file)]
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataSetError(f"{path} is damaged: {error!r}; expected the columns image_id and class") from error
    names = [f"{image_id}.jpg" for image_id, _ in rows]
    return LabelledPictures(directory / "images", names, [label for _, label in rows], [path])


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write made-up photographs and their list."""
    (directory / "images").mkdir()
    (directory / _LISTS[0]).parent.mkdir()
    files = []
    with open(directory / _LISTS[0], "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(_COLUMNS)
        for index in range(samples):
            label, make = draw_labelled_picture(seed, index, CLASSES, GLD23K.bytes_per_sample, _SIZE, _QUALITY)
            table.writerow([index % _USERS, f"{index:016x}", label])
            files.append((directory / "images" / f"{index:016x}.jpg", make))
    write_files(files, WriteProgress("gld23k", samples, "images", report))
    return "written"


# 23,080 pictures, 2,827 MB: SIGMETRICS 2023 table 2 (F840, F841).
GLD23K = DataSet(
    name="gld23k",
    real_samples=23_080,
    real_bytes=2_827_000_000,
    default_samples=1_024,
    find_real=find_real,
    write=write,
    open=open_gld23k,
)
