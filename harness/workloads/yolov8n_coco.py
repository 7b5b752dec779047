"""YOLOv8n on COCO minitrain (PowerTrain table 3), pictures of 640 x 640: the paper's 8.7 GFLOP are those of that size.

Model and loss are ultralytics' own, used in a plain training loop. A picture is fitted into 640 x 640 on a grey ground
and flipped at random; ultralytics' mosaics of four pictures are left out. Ultralytics is AGPL-3.0 and loads only here.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any, Dict, List

import numpy as np

from harness.workloads.data.coco import CLASSES, COCO, DetectionSample
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload, transformed

SIDE = 640
_GREY = 114  # what ultralytics fills the border with
_OFFLINE = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}


def _build_model() -> Any:
    """YOLOv8n from its description, with random weights; nothing is downloaded, installed or reported."""
    os.environ.update(_OFFLINE)
    if "YOLO_CONFIG_DIR" not in os.environ:  # it writes a settings file: not into the user's home
        folder = tempfile.mkdtemp(prefix="jetwatt-ultralytics-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["YOLO_CONFIG_DIR"] = folder
    model = require("ultralytics.nn.tasks").DetectionModel("yolov8n.yaml", nc=CLASSES, verbose=False)
    model.args = require("ultralytics.cfg").get_cfg()  # the weights of the loss's parts
    return model


def fit_and_flip(sample: DetectionSample, side: int = SIDE) -> Dict[str, Any]:
    """`img` (3, side, side) in bytes, `cls` (objects, 1), `bboxes` (objects, 4) as centre and size from 0 to 1."""
    torch = require("torch")
    width, height = sample.picture.size
    scale = side / max(width, height)
    fitted = (max(1, round(width * scale)), max(1, round(height * scale)))
    left, top = (side - fitted[0]) // 2, (side - fitted[1]) // 2
    frame = np.full((side, side, 3), _GREY, dtype=np.uint8)
    resized = np.asarray(sample.picture.resize(fitted, require("PIL.Image").BILINEAR))
    frame[top : top + fitted[1], left : left + fitted[0]] = resized
    corner, extent = sample.boxes[:, :2], sample.boxes[:, 2:]
    stretch = np.array(fitted, dtype=np.float32) / (width, height)
    centre = ((corner + extent / 2) * stretch + (left, top)) / side
    boxes = np.hstack([centre, extent * stretch / side]).astype(np.float32)
    if torch.rand(()) < 0.5:
        frame = frame[:, ::-1]
        boxes[:, 0] = 1 - boxes[:, 0]
    return {
        "img": torch.from_numpy(np.ascontiguousarray(frame.transpose(2, 0, 1))),
        "cls": torch.from_numpy(sample.classes[:, np.newaxis].astype(np.float32)),
        "bboxes": torch.from_numpy(boxes),
    }


def collate(samples: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Stack the pictures, join the objects, and say of each object which picture it is in (`batch_idx`)."""
    torch = require("torch")
    owners = [torch.full((len(sample["cls"]),), float(number)) for number, sample in enumerate(samples)]
    return {
        "img": torch.stack([sample["img"] for sample in samples]),
        "cls": torch.cat([sample["cls"] for sample in samples]),
        "bboxes": torch.cat([sample["bboxes"] for sample in samples]),
        "batch_idx": torch.cat(owners),
    }


def _forward(model: Any, batch: Any) -> Any:
    """Raw predictions in training mode, decoded boxes and scores otherwise."""
    return model(batch["img"].float() / 255)


def _loss(model: Any, batch: Any) -> Any:
    """Sum of ultralytics' losses for boxes, categories and distributions, over the batch."""
    losses, _ = model.loss({**batch, "img": batch["img"].float() / 255})
    return losses.sum()


YOLOV8N_COCO = Workload(
    name="yolov8n-coco",
    model=_build_model,
    folder=COCO,
    data=transformed(COCO, lambda: fit_and_flip),
    loss=_loss,
    forward=_forward,
    collate=collate,
)
