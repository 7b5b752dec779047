"""Results of simulated boards with something for every figure, and evaluations as `predictors` writes them."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any, Dict, Iterator, List

from harness.core.cases import DVFS, IDLE, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.power_modes import PowerMode
from harness.devices.registry import open_device
from harness.measure.run import run
from harness.store.results import ResultsStore
from tests.named_modes import mode_on

EPOCHS = CaseSettings(minibatches=None, epochs=3, cache="cold")
XAVIER, ORIN = "sim:xavier-agx", "sim:orin-agx"
USUAL = Case(XAVIER, "resnet18-cifar10", mode_on(XAVIER), 4, "ssd", 16, EPOCHS)


def cases() -> Iterator[Case]:
    """One factor after the other around the papers' defaults."""
    yield USUAL
    yield from (dataclasses.replace(USUAL, workers=workers) for workers in (0, 2))
    yield dataclasses.replace(USUAL, settings=dataclasses.replace(EPOCHS, cache="drop-each-epoch"))
    for workers, storage in itertools.product((0, 4), ("sd", "hdd")):
        yield dataclasses.replace(USUAL, workers=workers, storage=storage)
    yield from (dataclasses.replace(USUAL, batch_size=size) for size in (8, 64))
    yield from (USUAL.in_mode(mode_on(XAVIER, name)) for name in "abefgh")
    yield dataclasses.replace(USUAL, settings=dataclasses.replace(EPOCHS, clocks=DVFS))
    yield dataclasses.replace(USUAL, device=ORIN, power_mode=mode_on(ORIN))
    for scale in (0.05, 0.2):
        yield dataclasses.replace(USUAL, settings=dataclasses.replace(EPOCHS, data_scale=scale))
    idle = CaseSettings(minibatches=None, cache="as-is", idle_s=20.0)
    for name, clocks in (("idle", "static"), ("idle-quiet", "static"), ("idle-quiet", DVFS)):
        settings = dataclasses.replace(idle, clocks=clocks)
        yield Case(XAVIER, name, mode_on(XAVIER), 0, "ssd", 1, settings, IDLE)


def write_sample(path: Path) -> Path:
    """Run all cases and store their profiles."""
    devices = {name: open_device(name, Configuration()) for name in (XAVIER, ORIN)}
    with ResultsStore(path) as store:
        for case in cases():
            profile = run(case, devices[case.device])
            store.add(profile, {"host_name": "bench", "jetwatt": "0.1.0"}, "run")
    return path


def corpus_rows(count: int) -> List[Dict[str, Any]]:
    """Rows of a corpus with many modes: faster modes draw more power, with a little disorder."""
    known = {"device": "orin-agx", "workload": "resnet18-imagenet", "task": "training", "batch_size": 16}
    rows = []
    for place in range(count):
        cpu_khz, gpu_khz = 268_800 + 13_000 * (place % 149), 114_750 + 97_000 * (place % 13)
        mode = PowerMode(2 + 2 * (place % 6), cpu_khz, gpu_khz, 204_000)
        speed = mode.cpu_cores * mode.gpu_khz
        time_ms = 20.0 + 4e8 / speed + 7 * ((place * 7919) % 101) / 101
        power_mw = 9000.0 + speed / 500 + 900 * ((place * 104729) % 97) / 97
        figures = {"minibatch_time_ms": time_ms, "power_mw": power_mw, "provenance": "measured"}
        rows.append({**known, **mode._asdict(), **figures})
    return rows


def predictor_results() -> List[Dict[str, Any]]:
    """As in the JSON of `jetwatt evaluate`."""
    known = {"target": "yolov8n-coco", "device": "orin-agx", "task": "training", "sampling": "random", "repeats": 10}
    results = []
    for name, count in itertools.product(("nn", "powertrain", "ridge", "linear"), (10, 50, 100)):
        one = {
            **known,
            "predictor": name,
            "n_modes": count,
            "provenance": "measured",
            "profiling_seconds": 25.0 * count,
        }
        for what, base in (("time", 60.0), ("power", 20.0), ("energy", 70.0)):
            error = base / count**0.5
            one[f"{what}_mape"] = [error * (0.8 + 0.05 * repeat) for repeat in range(10)]
            one.update({f"{what}_mape_median": error, f"{what}_mape_q1": 0.9 * error, f"{what}_mape_q3": 1.2 * error})
        results.append(one)
    return results


def strategy_results() -> List[Dict[str, Any]]:
    """As in the JSON of `jetwatt strategies evaluate`."""
    return [
        {
            "strategy": name, "target": "yolov8n-coco", "device": "orin-agx", "profiles": profiles,
            "penalty_median": penalty, "penalty_mean": penalty + 3, "penalty_max": penalty + 20,
            "over_limit_pct": over, "over_limit_plus1_pct": over / 2, "area_w": over / 20, "infeasible": 0,
            "choices": 34, "profiles_spent": profiles, "profiling_seconds": 20.0 * profiles,
            "by_choice": {
                "budget_w": [17.0 + place for place in range(34)],
                "penalty_pct": [penalty + 0.4 * (place - 16.5) for place in range(34)],
                "power_error_w": [over / 20 - 0.3 * place for place in range(34)],
            },
            "provenance": "measured",
        }
        for name, profiles, penalty, over in (
            ("powertrain", 50, 2.0, 20.0), ("random", 50, 14.0, 0.0), ("maxn", 0, -20.0, 90.0),
        )
    ]  # fmt: skip
