"""The errors that the papers print for their predictors, and what the predictors here get in the same place."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import msgspec

from harness.core.errors import InvalidValueError, StoreError
from harness.core.power_modes import PowerMode, parse_power_mode
from predictors.evaluation import Spread
from predictors.models.base import ALL
from predictors.scenarios import ProfileSource, ScenarioCase

# The papers' errors; `fact` is the number that a figure has in this project's reading of the papers.
FILE = Path(__file__).resolve().parents[1] / "baselines" / "published" / "predictors.csv"
ENERGY_MODEL = ("lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10")  # that 004 sec. 5.7.1 learns one energy from
UNDECIDED, CONFIRMED, CONTRADICTED = "undecided", "confirmed", "contradicted"
SLACK = 0.25  # share of a published error by which another may differ that confirms it
TEN_MODES = "a..j"  # 004 Table 3: the ten modes of a Xavier that 004 tests its regressions on

# How many modes the paper profiled of a workload on an Orin AGX where it was not the whole grid.
SAMPLES = {
    "bert-squad": 100,  # 001 sec. 4.3.2: 50 to fit, 50 others to validate
    "lstm-wikitext": 100,
    "resnet18-gld23k": 150,  # 001 sec. 4.3.1: 100 to validate
    "mobilenetv3-imagenet": 150,
}
DEVICE_SAMPLES = {"xavier-agx": 1000, "orin-nano": 180}  # 001 sec. 4.3.3, 4.3.4


class PublishedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One error of a paper: a row of the file."""

    fact: str
    paper: str
    section: str
    predictor: str  # its name here
    device: str
    workload: str
    batch_size: int
    reference: str = ""  # the workload that a transfer started from
    modes: str  # a number, `all`, or names with commas
    tested: str = ""  # a mode, `a..j`, or empty for all
    metric: str
    comparator: str  # `=`, `<`, `<=`, `~` or `range`
    value_pct: float  # the lower end of a range
    value_high_pct: Optional[float] = None

    def __post_init__(self) -> None:
        """Refuse named modes where 004 does not name them."""
        if self.modes != ALL and not self.modes.isdecimal() and self.tested != TEN_MODES:
            raise ValueError(f"modes {self.modes!r}")

    @property
    def count(self) -> Optional[int]:
        """How many modes are fitted; None for all but a held-out tenth, and where they are named."""
        return int(self.modes) if self.modes.isdecimal() else None

    @property
    def text(self) -> str:
        """The error as the paper has it."""
        if self.value_high_pct is not None:
            return f"{self.value_pct:g}-{self.value_high_pct:g}"
        return f"{'' if self.comparator == '=' else self.comparator}{self.value_pct:g}"

    def case(self, greatest: PowerMode) -> ScenarioCase:
        """What has to be tested to get the same figure; `greatest` fills in what a tested mode leaves out."""
        references = (ProfileSource(self.reference),) if self.reference else ()
        if self.tested == TEN_MODES:
            target = ProfileSource(self.workload, self.device, batch_size=self.batch_size, named=tuple("abcdefghij"))
            fitted = tuple(self.modes.split(","))
            if self.predictor == "linear-energy":
                others = [name for name in ENERGY_MODEL if name != self.workload]
                references = tuple(ProfileSource(name, self.device, named=fitted) for name in others)
            return ScenarioCase(target, references, fitted=fitted)
        drawn = DEVICE_SAMPLES.get(self.device, SAMPLES.get(self.workload))
        target = ProfileSource(self.workload, self.device, batch_size=self.batch_size, modes=drawn)
        tested = (parse_power_mode(self.tested, greatest),) if self.tested else ()
        return ScenarioCase(target, references, tested=tested)

    @property
    def bounds_pct(self) -> Tuple[float, float]:
        """Between which an error found in the same place confirms it: below a published bound, or else near it."""
        if self.comparator in ("<", "<="):
            return 0.0, self.value_pct
        return self.value_pct * (1 - SLACK), (self.value_high_pct or self.value_pct) * (1 + SLACK)

    def verdict(self, low_pct: Optional[float], high_pct: Optional[float]) -> str:
        """Confirmed where the quartiles of repeats lie within the bounds, contradicted where both are beyond one."""
        if low_pct is None or high_pct is None:
            return UNDECIDED
        least, greatest = self.bounds_pct
        if high_pct < least or low_pct > greatest:
            return CONTRADICTED
        return CONFIRMED if least <= low_pct and high_pct <= greatest else UNDECIDED


def read_published(path: Path = FILE) -> List[PublishedError]:
    """The papers' errors, in the order of the file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "run this in a checkout of the suite") from error
    try:
        filled = [{name: text for name, text in row.items() if text} for row in rows]
        return msgspec.convert(filled, List[PublishedError], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidValueError(f"{path} is no table of published errors: {error}") from error


def compare(
    rows: Sequence[PublishedError], results: Sequence[Tuple[Optional[Mapping[str, Any]], Optional[Mapping[str, Any]]]]
) -> List[Dict[str, Any]]:
    """For each error of a paper what was got here, as plain values.

    Results are, for each, that of the same predictor and of the one that this suite adds; None where it could not be
    run. Errors are those over all tested modes, as the papers have them (001 sec. 4).
    """
    compared = []
    for row, (same, best) in zip(rows, results):
        reached, low, high = (same and same["all_modes"][f"{row.metric}_{name}"] for name in Spread._fields)
        compared.append(
            {
                **msgspec.structs.asdict(row),
                "published": row.text,
                "bounds_pct": row.bounds_pct,
                "same_predictor_pct": reached,
                "quartiles_pct": [low, high],
                "verdict": row.verdict(low, high),
                "best_pct": best and best["all_modes"][f"{row.metric}_median"],
                "provenance": next((_provenance(one) for one in (same, best) if one is not None), None),
            }
        )
    return compared


def _provenance(result: Mapping[str, Any]) -> str:
    """That of the target, and that of the references where it is another."""
    own = result["provenance"]
    others = [name for name in result["references"] if not name.endswith(f"({own})")]
    return f"{own}, from {others[0].rpartition('(')[2][:-1]}" if others else own
