"""COCO minitrain: photographs with boxes around objects of 80 categories, listed in COCO's `instances` JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.device import Report
from harness.core.errors import DataSetError
from harness.core.files import read_json
from harness.workloads.data.data_set import first_of, known_data_set
from harness.workloads.data.photographs import draw_size, fit_size, make_jpeg, read_picture, write_files

CLASSES = 80
_LISTS = tuple(f"annotations/instances_{part}.json" for part in ("minitrain2017", "train2017", "train"))
_FOLDERS = ("images/train2017", "train2017", "images")
_SIZE, _QUALITY = (640, 480), 96  # COCO's most frequent size
_MEAN_BOXES = 7.3  # objects per picture in COCO's training set
_HUE_GRID = (48, 64)


class DetectionSample(NamedTuple):
    picture: Any  # PIL picture in RGB
    classes: np.ndarray  # category of each object, from 0; shape (objects,)
    boxes: np.ndarray  # left, top, width and height of each object in pixels; shape (objects, 4)


class CocoSamples:
    """The pictures of a COCO `instances` file, read and decoded when asked for. Crowds are left out, as is usual."""

    in_memory = False

    def __init__(self, directory: Path) -> None:
        self._list, self._folder = first_of(directory, _LISTS), first_of(directory, _FOLDERS, Path.is_dir)
        try:
            content = read_json(self._list)
            category_ids = sorted(int(category["id"]) for category in content["categories"])
            images = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
            objects = [item for item in content["annotations"] if not item.get("iscrowd", 0)]
            rows = {image_id: row for row, image_id in enumerate(images)}
            owners = np.array([rows[int(item["image_id"])] for item in objects], dtype=np.int64)
            boxes = np.array([item["bbox"] for item in objects], dtype=np.float32).reshape(-1, 4)
            class_of = {category_id: number for number, category_id in enumerate(category_ids)}
            classes = np.array([class_of[int(item["category_id"])] for item in objects], dtype=np.int64)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataSetError(f"{self._list} is damaged or no COCO file: {error!r}", "fetch it again") from error
        if len(category_ids) > CLASSES:
            raise DataSetError(f"{self._list} has {len(category_ids)} categories, expected at most {CLASSES}")
        order = np.argsort(owners, kind="stable")
        self._names = list(images.values())
        self._boxes, self._classes = boxes[order], classes[order]
        self._ends = np.searchsorted(owners[order], np.arange(len(images)), side="right")

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> DetectionSample:
        objects = slice(0 if index == 0 else int(self._ends[index - 1]), int(self._ends[index]))
        picture = read_picture(self._folder / self._names[index])
        return DetectionSample(picture, self._classes[objects], self._boxes[objects])

    def files(self, indices: Sequence[int]) -> List[Path]:
        return [self._list, *(self._folder / name for name in dict.fromkeys(self._names[i] for i in indices))]


def _draw(
    seed: int, index: int, palette: np.ndarray
) -> Tuple[Tuple[int, int], np.ndarray, np.ndarray, Callable[[], bytes]]:
    random = np.random.default_rng([seed, index])
    file_bytes = draw_size(random, COCO.bytes_per_sample)
    size = fit_size(_SIZE, file_bytes, _QUALITY)
    count = 1 + int(random.poisson(_MEAN_BOXES - 1))
    extent = np.exp(random.uniform(np.log(0.04), np.log(0.8), (count, 2)))  # small objects are as many as large ones
    corner = random.uniform(0, 1 - extent)
    boxes = np.round(np.hstack([corner, extent]) * np.tile(size, 2), 2)
    classes = random.integers(CLASSES, size=count)

    def make() -> bytes:
        hue = np.zeros((2, *_HUE_GRID))
        scale = np.array(_HUE_GRID[::-1]) / size
        for number, (left, top, width, height) in zip(classes, boxes * np.tile(scale, 2)):
            hue[:, int(top) : int(top + height) + 1, int(left) : int(left + width) + 1] = palette[number][:, None, None]
        return make_jpeg(random, size, file_bytes, _QUALITY, hue)

    return size, classes, boxes, make


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write made-up photographs with boxes, whose colour is the category."""
    (directory / "images").mkdir()
    (directory / _LISTS[-1]).parent.mkdir()
    palette = np.random.default_rng([seed]).normal(0, 40, (CLASSES, 2))
    images: List[Dict[str, Any]] = []
    annotations: List[Dict[str, Any]] = []
    files = []
    for index in range(samples):
        size, classes, boxes, make = _draw(seed, index, palette)
        name = f"{index + 1:012d}.jpg"
        images.append({"id": index + 1, "file_name": name, "width": size[0], "height": size[1]})
        for number, box in zip(classes.tolist(), boxes.tolist()):
            item = {"id": len(annotations) + 1, "image_id": index + 1, "category_id": number + 1, "bbox": box}
            annotations.append({**item, "area": box[2] * box[3], "iscrowd": 0})
        files.append((directory / "images" / name, make))
    categories = [{"id": number + 1, "name": f"category {number + 1}"} for number in range(CLASSES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (directory / _LISTS[-1]).write_text(json.dumps(content), encoding="utf-8")
    write_files(files, "coco-minitrain", report)
    return "written"


COCO = known_data_set("coco-minitrain", write, CocoSamples, _LISTS)
