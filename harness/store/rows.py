"""Profiles to rows of a results file and back."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import zlib
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import msgspec
import numpy as np

from harness.core.cases import CONCURRENT, Case, CaseSettings, inference_mode_name
from harness.core.errors import StoreError
from harness.core.power_modes import UNKNOWN_KHZ, NamedMode, PowerMode
from harness.core.profiles import Minibatch, Minibatches, Profile, Series, Telemetry
from harness.store.conditions import canonical_json, comparable_conditions, key, plain

FLOATS = "<f8"


class ProfileRow(NamedTuple):
    run_id: str
    case_id: str
    key: str
    created_at: str
    started_at: str
    provenance: str
    case_json: str
    conditions_json: str
    aggregates_json: str
    flags_json: str
    telemetry_json: str


MOST_MINIBATCHES, LONGEST_PHASE = 10**7, 20
"""Of a profile, and characters of its phases; a file that exceeds them is damaged or hostile."""

PACKED = "minibatch_columns"  # the table of raw minibatches, a row for each profile

SERIES = "series"  # the table of telemetry, a row for each channel
SERIES_COLUMNS = ("position", "channel", "times_s", "channel_values")  # of that table, behind `profile_id`

Raw = List[Tuple[Any, ...]]  # rows of a table of raw series


@dataclasses.dataclass(frozen=True)
class Record:
    id: int  # the number of the profile in its file; later ones are greater
    run_id: str  # the run of the suite that it belongs to
    case_id: str  # the case's id
    created_at: str  # when it was stored, ISO 8601 in UTC
    started_at: str  # when its measurement began, ISO 8601 with offset
    case: Case  # the requested case
    provenance: str  # `measured`, `simulated` or `replayed`
    conditions: Dict[str, Any]  # the conditions of the run
    aggregates: Dict[str, Optional[float]]  # its figures by name; None for a missing one
    flags: List[str]  # caveats of the figures
    environment: Dict[str, Any]  # the machine and its software

    @functools.cached_property
    def comparable(self) -> Dict[str, Any]:
        """What must agree before this profile is compared with another."""
        return comparable_conditions(self.conditions, self.case, self.provenance)

    @functools.cached_property
    def key(self) -> str:
        """Their hash, computed again, because another version may have stored a hash of other conditions."""
        return key(self.comparable)


def profile_row(profile: Profile, run_id: str, created_at: str) -> ProfileRow:
    case_id = profile.case.id
    conditions = plain(profile.conditions, f"conditions of {case_id}")
    telemetry = {
        field.name: getattr(profile.telemetry, field.name)
        for field in dataclasses.fields(Telemetry)
        if field.name != "series"
    }
    return ProfileRow(
        run_id=run_id,
        case_id=case_id,
        key=key(comparable_conditions(conditions, profile.case, profile.provenance)),
        created_at=created_at,
        started_at=profile.started_at,
        provenance=profile.provenance,
        case_json=canonical_json(plain(_case_values(profile.case), f"case {case_id}")),
        conditions_json=canonical_json(conditions),
        aggregates_json=canonical_json(plain(profile.aggregates, f"aggregates of {case_id}")),
        flags_json=canonical_json(plain(profile.flags, f"flags of {case_id}")),
        telemetry_json=canonical_json(plain(telemetry, f"telemetry of {case_id}")),
    )


def series_rows(profile: Profile) -> Raw:
    return [
        (place, channel, *(np.asarray(each, dtype=FLOATS).tobytes() for each in samples))
        for place, (channel, samples) in enumerate(profile.telemetry.series.items())
    ]


def pack(minibatches: Minibatches) -> bytes:
    """Minibatches as compressed columns, a fifth of their size as rows.

    A line of JSON (number of minibatches, names of phases), then zlib: epochs, numbers and phases as differences of
    64-bit integers, times as 64-bit floats; of each column the first bytes of all values, the second ones, and so on.
    """
    epochs, numbers, phases, *others = minibatches.columns.values()
    names, places = np.unique(phases, return_inverse=True)
    wholes = np.diff(np.array([epochs, numbers, places], "<i8"), axis=1, prepend=0)
    times = np.array(others, FLOATS) + 0.0  # there is no -0.0
    columns = [*wholes.astype("<i8"), *times]
    is_nan = np.isnan([times[Minibatch._fields.index(name) - len(wholes)] for name in ("start_s", "e2e_ms")])
    if is_nan.any():
        raise StoreError(f"minibatch {int(is_nan.any(axis=0).argmax())} has a time that is not a number")
    planes = b"".join(np.ascontiguousarray(each.view(np.uint8).reshape(-1, 8).T).tobytes() for each in columns)
    return json.dumps([len(phases), names.tolist()]).encode() + b"\n" + zlib.compress(planes)


def unpack(content: bytes) -> Minibatches:
    """The inverse of `pack`; ValueError, TypeError, IndexError or zlib.error if the content is damaged."""
    head, _, planes = content.partition(b"\n")
    count, names = json.loads(head)
    if not 0 < count <= MOST_MINIBATCHES:
        raise ValueError(f"{count} minibatches")
    if not all(isinstance(name, str) and len(name) <= LONGEST_PHASE for name in names):
        raise ValueError("invalid names of phases")
    whole = zlib.decompressobj().decompress(planes, 8 * len(Minibatch._fields) * count)
    parts = np.frombuffer(whole, np.uint8).reshape(len(Minibatch._fields), 8, count)
    columns = [np.ascontiguousarray(part.T).reshape(-1) for part in parts]
    epochs, numbers, places = (np.cumsum(each.view("<i8")) for each in columns[:3])
    times = [each.view(FLOATS) for each in columns[3:]]
    return Minibatches(dict(zip(Minibatch._fields, (epochs, numbers, np.array(names, str)[places], *times))))


def record_crc(row: ProfileRow, environment_json: str) -> int:
    return crc([row, (environment_json,)])


def crc(*tables: Iterable[Tuple[Any, ...]]) -> int:
    """Checksum of rows of any values: in a damaged file a number may be read back as text."""
    checksum = 0
    for values in (list(itertools.chain.from_iterable(table)) for table in tables):
        if values and bytes not in set(map(type, values)):  # a million numbers: twice as fast as one by one
            checksum = zlib.crc32(("\0".join(map(repr, values)) + "\0").encode("utf-8", "backslashreplace"), checksum)
            continue
        for value in values:
            content = value if isinstance(value, bytes) else repr(value).encode("utf-8", "backslashreplace")
            checksum = zlib.crc32(content + b"\0", checksum)
    return checksum


_DAMAGED = (
    *(ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError),
    msgspec.ValidationError,  # in old releases no ValueError
)


class _Content(msgspec.Struct):
    """The forms of what a row has as JSON."""

    conditions: Dict[str, Any]
    aggregates: Dict[str, Optional[float]]
    flags: List[str]
    environment: Dict[str, Any]


def to_record(number: int, row: ProfileRow, environment_json: str, path: Path) -> Record:
    """The record of a row of a file; StoreError if it cannot be one, whatever its checksum is."""
    as_text = {name: getattr(row, name) for name in ("run_id", "case_id", "created_at", "started_at", "provenance")}
    with _refused_as_damaged(number, path):
        as_json = {name: json.loads(getattr(row, f"{name}_json")) for name in ("conditions", "aggregates", "flags")}
        as_json["environment"] = json.loads(environment_json)
        msgspec.convert(as_json, _Content)
        datetime.datetime.fromisoformat(row.created_at).astimezone(datetime.timezone.utc)  # is a time, within years
        case = _to_case(row, as_json["conditions"])
    return Record(id=number, case=case, **as_text, **as_json)


def to_profile(record: Record, row: ProfileRow, path: Path, minibatches: Minibatches, series: Raw) -> Profile:
    """The profile of a record, of the row that it was made of, and of its raw series."""
    with _refused_as_damaged(record.id, path):
        channels = {
            channel: Series(*(tuple(np.frombuffer(raw, dtype=FLOATS).tolist()) for raw in samples))
            for _, channel, *samples in series
        }
        telemetry = _construct(Telemetry, row, series=channels, **json.loads(row.telemetry_json))
    shared = {name: getattr(record, name) for name in ("case", "provenance", "conditions", "aggregates", "flags")}
    return Profile(minibatches=minibatches, telemetry=telemetry, started_at=record.started_at, **shared)


@contextlib.contextmanager
def _refused_as_damaged(number: int, path: Path) -> Iterator[None]:
    """A row whose checksum is right may still hold anything: somebody else may have written it."""
    try:
        yield
    except _DAMAGED as error:
        what = f"profile {number} of {path} is damaged ({error})"
        raise StoreError(what, "use the file that it came from, or measure again") from error


def _case_values(case: Case) -> Dict[str, Any]:
    """A case with the name of its power mode alone: the conditions hold the values in effect."""
    values = dataclasses.asdict(case)
    del values["inference_mode"]  # its name ends that of the workload
    return {**values, "power_mode": case.power_mode.name}


def _to_case(row: ProfileRow, conditions: Mapping[str, Any]) -> Case:
    values = json.loads(row.case_json)
    values["settings"] = _construct(CaseSettings, row, **values["settings"])
    values["power_mode"] = _named_mode(values["power_mode"], conditions)
    own_mode = inference_mode_name(values["workload"]) if values["task"] == CONCURRENT else ""
    if own_mode:
        of_inference = conditions.get("inference")
        values["inference_mode"] = _named_mode(own_mode, of_inference if isinstance(of_inference, Mapping) else {})
    return _construct(Case, row, **values)


def _named_mode(name: str, conditions: Mapping[str, Any]) -> NamedMode:
    """A power mode with the values in effect, 0 where the conditions lack one, as in a corpus."""
    values = conditions.get("power_mode")
    if not isinstance(values, Mapping):
        values = {}
    return NamedMode(name, PowerMode(*(values.get(field) or UNKNOWN_KHZ for field in PowerMode._fields)))


def _construct(kind: Any, row: ProfileRow, **values: Any) -> Any:
    """An instance of a dataclass; refuses fields that are unknown to this version."""
    unknown = set(values) - {field.name for field in dataclasses.fields(kind)}
    if unknown:
        raise StoreError(
            f"profile {row.case_id} of run {row.run_id} has {', '.join(sorted(unknown))}, unknown to this version",
            "a newer jetwatt wrote it: update",
        )
    return kind(**values)
