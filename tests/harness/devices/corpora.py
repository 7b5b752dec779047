"""Corpora for tests, written by hand."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

from harness.core.corpus import Column, write_corpus

MODES = [
    (cores, cpu, gpu, 3_199_000)
    for cores in (4, 8, 12)
    for cpu in (1_113_600, 2_201_600)
    for gpu in (420_750, 1_300_500)
]


def row(mode=MODES[0], workload="yolov8n-coco", **values: Any) -> Dict[str, Any]:
    """A row of Orin AGX; time falls and power rises with the clocks."""
    cores, cpu, gpu, mem = mode
    return {
        "device": "orin-agx",
        "workload": workload,
        "task": "training",
        "cpu_cores": cores,
        "cpu_khz": cpu,
        "gpu_khz": gpu,
        "mem_khz": mem,
        "batch_size": 16,
        "minibatch_time_ms": 2e8 / gpu + 1e5 / (cores * cpu / 1e3),
        "power_mw": 15_000.0 + gpu / 50 + cores * cpu / 5e3,
        "provenance": "measured",
        **values,
    }


def rows() -> List[Dict[str, Any]]:
    """All modes of one workload, and half of them of another."""
    return [row(mode) for mode in MODES] + [row(mode, "lstm-wikitext") for mode in MODES[::2]]


def write(path, table: Iterable[Dict[str, Any]], **further: type):
    """Write a corpus, with further columns by their types; returns its path."""
    write_corpus(path, list(table), [Column(name, kind, "") for name, kind in further.items()])
    return path
