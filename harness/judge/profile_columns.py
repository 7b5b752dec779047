"""What a history needs of profiles, as plain columns: 60 bytes a profile, so that years of nights fit into memory.

`columns_of` computes them from a frame of `harness.store.frames.profiles`; `harness.judge.history_index` keeps them.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from harness.core import board_threshold
from harness.core.board_threshold import BoardThreshold
from harness.core.errors import InvalidValueError, StoreError
from harness.judge import quantities
from harness.judge.case_frame import SOFTWARE
from harness.store.frames import common_conditions

if TYPE_CHECKING:
    import pandas as pd

OF_THE_RUN = ("jetwatt", "suite_commit", "kernel")  # further parts of its environment that are listed if they change

TEXTS = ("subject", "run", "software")
"""Columns that are places in a list of texts."""

_WHOLE: Dict[str, Any] = {"created_us": np.int64, "key": np.int64, "usable": np.int8}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)


class ProfileSubject(NamedTuple):
    """What a profile is of; profiles with the same `series` belong to the same series of runs."""

    series: str  # hash of the comparable conditions, without software and seed
    case_id: str
    device: str  # the type
    device_name: str  # as requested: `sim:orin-agx@2`
    board_instance: Optional[str]
    provenance: str
    carried: Optional[Dict[str, Any]] = None  # the condition `board_threshold`

    @property
    def threshold(self) -> Optional[BoardThreshold]:
        return board_threshold.of_conditions({board_threshold.CONDITION: self.carried})


def column_types() -> Dict[str, Any]:
    """The columns and their numpy types; those of figures are the columns of `harness.judge.quantities.QUANTITIES`."""
    figures = {quantity.column: np.float64 for quantity in quantities.QUANTITIES}
    return {**dict.fromkeys(TEXTS, np.int32), **_WHOLE, **figures}


class ProfileColumns:
    """Profiles as columns of equal length.

    Attributes:
        texts: for each of `TEXTS`, its distinct values as JSON: of a subject the fields of `ProfileSubject`, of a run
            its id, of software the versions by name.
        columns: those of `column_types`: `created_us` is when the profile was stored, in microseconds since 1970 in
            UTC; `key` the hash of all of its comparable conditions; `usable` is 0 if it is disturbed or throttled;
            figures are NaN if missing or unreliable.
    """

    def __init__(self, texts: Mapping[str, List[str]], columns: Dict[str, np.ndarray]) -> None:
        self.texts = texts
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["subject"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def select(self, places: Any) -> None:
        """Keep some profiles (places or a mask), in that order: a column at a time, since two tables may not fit."""
        for name in self.columns:
            self.columns[name] = self.columns[name][places]

    def subjects(self) -> List[ProfileSubject]:
        return [ProfileSubject(*json.loads(text)) for text in self.texts["subject"]]


def columns_of(frame: pd.DataFrame, origin: str) -> ProfileColumns:
    """The columns of a frame of profiles of a file.

    StoreError: one of them was stored at no valid time, or carries a threshold that is none.
    """
    series = common_conditions(frame, ignore=(*SOFTWARE, "seed"))
    carried = [conditions.get(board_threshold.CONDITION) for conditions in frame["conditions"]]
    subjects = list(map(ProfileSubject, series, *(frame[name] for name in ProfileSubject._fields[1:-1]), carried))
    texts = {
        "subject": list(map(json.dumps, subjects)),
        "run": [json.dumps(str(run_id)) for run_id in frame["run_id"]],
        "software": list(map(_software, frame["comparable"], frame["environment"])),
    }
    try:
        created_us = list(map(microseconds, frame["created_at"]))
    except ValueError as error:
        raise StoreError(f"{origin} has a profile that was stored at no valid time: {error}") from error
    for text in dict.fromkeys(texts["subject"]):
        try:
            _ = ProfileSubject(*json.loads(text)).threshold
        except InvalidValueError as error:
            raise StoreError(f"{origin}: {error.what}", error.hint) from error
    columns: Dict[str, Any] = {
        "created_us": created_us,
        "key": [int.from_bytes(bytes.fromhex(key), "big", signed=True) for key in frame["key"]],
        "usable": frame["usable"],
    }
    distinct: Dict[str, List[str]] = {}
    for name, values in texts.items():
        places = {text: place for place, text in enumerate(dict.fromkeys(values))}
        distinct[name], columns[name] = list(places), [places[text] for text in values]
    columns.update({quantity.column: quantity.of(frame) for quantity in quantities.QUANTITIES})
    return ProfileColumns(distinct, {name: np.array(columns[name], dtype) for name, dtype in column_types().items()})


def _software(comparable: Dict[str, Any], environment: Dict[str, Any]) -> str:
    versions = {name: comparable.get(name) for name in SOFTWARE}
    versions.update({name: environment.get(name) for name in OF_THE_RUN})
    return json.dumps({name: value for name, value in versions.items() if value is not None})


def joined(parts: Sequence[ProfileColumns]) -> ProfileColumns:
    """Several tables as one, in their order; takes the columns out of them, since both may not fit into memory."""
    if len(parts) == 1:
        return parts[0]
    places: Dict[str, Dict[str, int]] = {name: {} for name in TEXTS}
    columns = {}
    for name, dtype in column_types().items():
        pieces = [np.empty(0, dtype)]
        for part in parts:
            pieces.append(part.columns.pop(name))
            if name in TEXTS:
                of_text = places[name]
                merged = [of_text.setdefault(text, len(of_text)) for text in part.texts[name]]
                pieces[-1] = np.array(merged, dtype)[pieces[-1]]
        columns[name] = np.concatenate(pieces)
    return ProfileColumns({name: list(own) for name, own in places.items()}, columns)


def microseconds(created_at: str) -> int:
    """A time in ISO 8601 as microseconds since 1970, in UTC if it has no offset; ValueError if it is invalid."""
    moment = datetime.datetime.fromisoformat(created_at)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return (moment - _EPOCH) // _MICROSECOND


def as_text(created_us: int) -> str:
    """The inverse of `microseconds`, as results files have it."""
    return (_EPOCH + int(created_us) * _MICROSECOND).isoformat(timespec="microseconds")
