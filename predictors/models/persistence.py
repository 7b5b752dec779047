"""Fitted predictors in a file: written and read as JSON and plain arrays, never unpickled.

A model file is one line of text, `jetwatt-model VERSION SHA-256`, followed by a zip archive whose SHA-256 that is, so
that any zip reader opens it. In the archive `model.json` holds all that is no array, and `arrays/NAME.npy` the arrays.
The same model gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from harness.core.environment import describe_environment
from harness.core.errors import InvalidValueError, NotFittedError, StoreError
from harness.core.files import write_output
from harness.core.power_modes import PowerModeSpace
from predictors.models.protocol import Predictor, State
from predictors.models.registry import predictor_class
from predictors.tables import TABLE_KEY, Table

VERSION = 1
_MAGIC = b"jetwatt-model"
_CONTENT = "model.json"
_ARRAYS = "arrays/"
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the least that zip can say: the same model gives the same file
_TABLE_ARRAYS = ("modes", "batch_size", "time_ms", "power_mw")


@dataclasses.dataclass(frozen=True)
class Model:
    """A fitted predictor and where it comes from.

    Attributes:
        predictor: fitted.
        origin: what it learned from, as `describe_origin` gives it.
        environment: machine and software that fitted it, as `harness.core.environment` gives it.
    """

    predictor: Predictor
    origin: Dict[str, Any]
    environment: Dict[str, Any]


def describe_origin(corpus: Path, table: Table, fitted: Table, **further: Any) -> Dict[str, Any]:
    """What a predictor learned from, as plain values.

    Args:
        corpus: the file that the table was read from; its SHA-256 is kept.
        table: all profiles of the workload.
        fitted: those that were learned from.
        further: what else is to be kept.

    Raises:
        StoreError: the file cannot be read.
    """
    return {
        **{name: getattr(table, name) for name in TABLE_KEY},
        "corpus": corpus.name,
        "corpus_sha256": file_sha256(corpus),
        "fitted_rows": len(fitted),
        "fitted_sha256": fitted.fingerprint,
        **further,
    }


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a file that is there") from error


def save_model(path: Path, predictor: Predictor, origin: Mapping[str, Any]) -> None:
    """Write a fitted predictor, whole or not at all.

    Args:
        path: of the file.
        predictor: fitted.
        origin: what it learned from.

    Raises:
        StoreError: the file cannot be written.
        NotFittedError: nothing was learned.
        InvalidValueError: a parameter or a learned value is nothing that JSON, an array or a table can hold.
    """
    if not predictor.is_fitted:
        raise NotFittedError(f"{predictor.name} has learned nothing to be saved", "call fit first")
    state = predictor.state()
    arrays = {f"state/{name}": values for name, values in state.arrays.items()}
    params = {name: _encode(name, value, arrays) for name, value in predictor.get_params().items()}
    content = {
        "predictor": predictor.name,
        "params": params,
        "state": state.values,
        "origin": dict(origin),
        "environment": describe_environment(),
    }
    payload = _pack(_to_json(content), arrays)
    head = b"%s %d %s\n" % (_MAGIC, VERSION, hashlib.sha256(payload).hexdigest().encode())
    write_output(path, head + payload)


def load_model(path: Path) -> Model:
    """Read a fitted predictor; it predicts what the saved one did, to the bit.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: it is no model file, it is damaged, or a newer version of the suite wrote it.
        UnknownNameError: it holds a predictor that this version does not know.
    """
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read model {path}: {error}", "name a file that `fit --out` wrote") from error
    payload = _check_head(path, whole)
    try:
        content, arrays = _unpack(payload)
        kind = predictor_class(content["predictor"])
        params = {name: _decode(value, arrays) for name, value in content["params"].items()}
        learned = {name[len("state/") :]: values for name, values in arrays.items() if name.startswith("state/")}
        predictor = kind(**params)
        predictor.restore(State(content["state"], learned))
        return Model(predictor, content["origin"], content["environment"])
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(f"model {path} does not hold what it should: {error}", "fit it again") from error


def _check_head(path: Path, whole: bytes) -> bytes:
    """The archive in a model file."""
    head, _, payload = whole.partition(b"\n")
    words = head.split(b" ")
    if words[0] != _MAGIC or len(words) != 3 or not words[1].isdigit():
        raise InvalidValueError(f"{path} is no model file of this suite", "name a file that `fit --out` wrote")
    if int(words[1]) > VERSION:
        raise InvalidValueError(
            f"model {path} has format {int(words[1])}, this version reads up to {VERSION}", "use a newer jetwatt"
        )
    if hashlib.sha256(payload).hexdigest().encode() != words[2]:
        raise InvalidValueError(f"model {path} is damaged: its checksum is another", "fit it again, or copy it again")
    return payload


def _pack(content: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    members = {_CONTENT: content}
    for name, values in arrays.items():
        member = io.BytesIO()
        np.save(member, _plain(name, values), allow_pickle=False)
        members[f"{_ARRAYS}{name}.npy"] = member.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _plain(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.hasobject:
        raise InvalidValueError(f"array {name} of the predictor holds objects, expected numbers", "it cannot be saved")
    return array


def _unpack(payload: bytes) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        content = json.loads(archive.read(_CONTENT).decode("utf-8"))
        arrays = {
            name[len(_ARRAYS) : -len(".npy")]: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name.startswith(_ARRAYS)
        }
    return content, arrays


def _encode(name: str, value: Any, arrays: Dict[str, np.ndarray]) -> Any:
    """A parameter as JSON; the arrays of tables in it are put into `arrays`."""
    if isinstance(value, Table):
        place = f"tables/{name}"
        arrays.update({f"{place}/{column}": getattr(value, column) for column in _TABLE_ARRAYS})
        return {"table": {key: getattr(value, key) for key in TABLE_KEY}, "arrays": place}
    if isinstance(value, PowerModeSpace):
        return {"space": [list(values) for values in value.dimensions]}
    if isinstance(value, tuple):
        return {"tuple": [_encode(f"{name}/{place}", item, arrays) for place, item in enumerate(value)]}
    return {"value": value}


def _decode(value: Dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if "table" in value:
        return Table(**value["table"], **{column: arrays[f"{value['arrays']}/{column}"] for column in _TABLE_ARRAYS})
    if "space" in value:
        return PowerModeSpace(*(tuple(values) for values in value["space"]))
    if "tuple" in value:
        return tuple(_decode(item, arrays) for item in value["tuple"])
    return value["value"]


def _to_json(content: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(content, indent=1).encode("utf-8")
    except TypeError as error:
        raise InvalidValueError(
            f"the predictor {content['predictor']} cannot be saved: {error}",
            "its parameters have to be numbers, texts, tuples, tables or power-mode spaces",
        ) from error
