"""Fitted predictors in a file: parameters and training rows as JSON and plain arrays; never unpickled, fitted on load.

A model file is one line of text, `jetwatt-model VERSION SHA-256`, followed by a zip archive whose SHA-256 that is, so
that any zip reader opens it. In the archive `model.json` holds everything but arrays, and `arrays/NAME.npy` the arrays.
The same model gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, Dict, Mapping

import msgspec
import numpy as np

from harness.core.corpus import TASKS
from harness.core.environment import describe_environment
from harness.core.errors import InvalidValueError, NotFittedError, StoreError
from harness.core.files import write_output
from predictors.models.base import Predictor
from predictors.models.registry import predictor_class

VERSION = 2
MAGIC = b"jetwatt-model"
MOST_UNPACKED_BYTES = 1 << 28  # training rows of half a million modes
CONTENT = "model.json"
COLUMNS = ("modes", "batch_size", "inference", "power_limit_mw", "time_ms", "power_mw")  # of the training rows
ARRAY = "arrays/{}".format  # numpy adds the ending


@dataclasses.dataclass(frozen=True)
class Model:
    predictor: Predictor  # fitted
    origin: Dict[str, Any]  # its training data, as of `predictors.choose.fitting.describe_origin`
    environment: Dict[str, Any]  # machine and software that fitted it first, as of `harness.core.environment`
    # the greatest relative difference, over the training rows, between the time and power predicted now and when the
    # model was saved: 0 with the same software; other versions or another processor may round differently
    deviation: float


def save_model(path: Path, predictor: Predictor, origin: Mapping[str, Any]) -> None:
    """Write a fitted predictor, whole or not at all."""
    if not hasattr(predictor, "training_rows_"):
        raise NotFittedError(f"{predictor.name} is not fitted and cannot be saved", "call fit first")
    columns = {name: getattr(predictor.training_rows_, name) for name in COLUMNS}
    given = {name: values for name, values in columns.items() if values is not None}
    arrays = {**given, "predicted": _predicted(predictor)}

    def encode(value: Any) -> Any:
        """Store an array, such as those of tables among the parameters, with the others; returns its name."""
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a parameter is of type {type(value).__name__}")
        name = f"params/{len(arrays)}"
        arrays[name] = value
        return name

    try:
        params = msgspec.to_builtins(predictor.get_params(), enc_hook=encode)
    except TypeError as error:
        raise InvalidValueError(
            f"the predictor {predictor.name} cannot be saved: {error}",
            "its parameters must be numbers, strings, tuples, tables or power-mode spaces",
        ) from error
    content = {"predictor": predictor.name, "params": params, "origin": dict(origin)}
    text = json.dumps({**content, "environment": describe_environment()}, indent=1)
    packed = io.BytesIO()
    np.savez_compressed(packed, **{ARRAY(name): values for name, values in arrays.items()})
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(CONTENT), text, zipfile.ZIP_DEFLATED)  # dated 1980, as numpy's members are
    payload = packed.getvalue()
    write_output(path, b"%s %d %s\n" % (MAGIC, VERSION, hashlib.sha256(payload).hexdigest().encode()) + payload)


def load_model(path: Path) -> Model:
    """Read a predictor and fit it again to its stored training rows; takes seconds at most."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read model {path}: {error}", "give a file of `fit --out`") from error
    payload = _archive_in(path, whole)
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_UNPACKED_BYTES:
            raise ValueError(f"it unpacks to {unpacked:,} bytes, expected at most {MOST_UNPACKED_BYTES:,}")
        arrays = np.load(io.BytesIO(payload), allow_pickle=False)
        content = json.loads(arrays[CONTENT].decode("utf-8"))
        kind = predictor_class(content["predictor"])
        predictor = msgspec.convert(content["params"], kind, dec_hook=lambda _, name: arrays[ARRAY(name)])
        columns = {name: arrays[ARRAY(name)] for name in ("time_ms", "power_mw", "batch_size")}
        if ARRAY("power_limit_mw") in arrays:
            columns["power_limit_mw"] = arrays[ARRAY("power_limit_mw")]
        task = np.where(arrays[ARRAY("inference")], *reversed(TASKS))
        predictor.fit(arrays[ARRAY("modes")], **columns, task=task)
        off = np.abs(_predicted(predictor) / arrays[ARRAY("predicted")] - 1)
        deviation = float(np.nanmax(off, initial=0.0))
        return Model(predictor, content["origin"], content["environment"], deviation)
    except (
        zipfile.BadZipFile,
        KeyError,
        TypeError,
        ValueError,
        MemoryError,
        RecursionError,
        OSError,
        msgspec.ValidationError,  # no ValueError in the release for Python 3.8
    ) as error:
        raise InvalidValueError(f"model {path} is not valid: {error}", "fit it again") from error


def _predicted(predictor: Predictor) -> np.ndarray:
    """Time and power of the training rows, shape (n, 2)."""
    prediction = predictor._infer(predictor.training_rows_)
    return np.column_stack([prediction.time_ms, prediction.power_mw])


def _archive_in(path: Path, whole: bytes) -> bytes:
    head, _, payload = whole.partition(b"\n")
    words = head.split(b" ")
    if words[0] != MAGIC or len(words) != 3 or not words[1].isdigit():
        raise InvalidValueError(f"{path} is not a model file of this suite", "give a file of `fit --out`")
    version = int(words[1])
    if version != VERSION:
        raise InvalidValueError(
            f"model {path} has format {version}, this jetwatt reads format {VERSION}",
            "fit it again, or load it with the jetwatt that wrote it",
        )
    if hashlib.sha256(payload).hexdigest().encode() != words[2]:
        raise InvalidValueError(f"model {path} is damaged: its checksum differs", "fit it again, or copy it again")
    return payload
