"""Fingerprints of a user's own model and data: equal for equal ones on any machine, other for another shape or size.

Weights are not part of a model's, as training changes them. No sample of a data set is read: that may run the user's
code and draw random numbers.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

from harness.core.errors import InvalidValueError

LENGTH = 16


def fingerprint_model(model: Any) -> str:
    """Of a torch module: the classes of its parts, the shapes and types of its parameters; or of a text of the user's.

    InvalidValueError for anything else.
    """
    if isinstance(model, str):
        return _digest("text", model)
    if not hasattr(model, "named_parameters") or not hasattr(model, "named_modules"):
        raise InvalidValueError(
            f"model= is a {type(model).__name__}", "give a torch.nn.Module, or a text that names the model's version"
        )
    parts = [f"{name}:{type(part).__name__}" for name, part in model.named_modules()]
    for name, parameter in model.named_parameters():
        parts.append(f"{name}:{tuple(parameter.shape)}:{parameter.dtype}:{parameter.requires_grad}")
    return _digest("model", *parts)


def fingerprint_data(data: Any) -> str:
    """Of a data set or DataLoader: its class and length; of a file or folder: names and sizes; or of a text.

    InvalidValueError for anything else, and for a path that cannot be read.
    """
    if isinstance(data, Path):
        return _digest("files", *(f"{name}:{size}" for name, size in _files(data)))
    if isinstance(data, str):
        return _digest("text", data)
    samples = getattr(data, "dataset", data)
    try:
        length = len(samples)
    except TypeError as error:  # an iterable data set has none
        raise InvalidValueError(
            f"data= is a {type(samples).__name__} without a length",
            "give a data set with a length, the Path of its files, or a text that names its version",
        ) from error
    return _digest("samples", type(samples).__name__, str(length))


def fingerprints(model: Any, data: Any) -> Dict[str, str]:
    """The conditions that identify a user's own training, of what is given."""
    own = {} if model is None else {"model_fingerprint": fingerprint_model(model)}
    return own if data is None else {**own, "data_fingerprint": fingerprint_data(data)}


def _files(path: Path) -> Iterator[Tuple[str, int]]:
    """The files below a folder, or a file itself, by name relative to it, with their sizes in bytes."""
    try:
        if path.is_file():
            yield path.name, path.stat().st_size
            return
        for folder, folders, names in os.walk(path, onerror=_refuse):
            folders.sort()
            for name in sorted(names):
                file = Path(folder, name)
                yield file.relative_to(path).as_posix(), file.lstat().st_size
    except OSError as error:
        raise InvalidValueError(f"data= names {path}, which cannot be read: {error.strerror}") from error


def _refuse(error: OSError) -> None:
    raise error


def _digest(kind: str, *parts: str) -> str:
    content = "\0".join((kind, *parts)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(content).hexdigest()[:LENGTH]
