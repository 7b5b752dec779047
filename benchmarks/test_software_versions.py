"""What does another version of the software change (E8)?

Nothing is measured here: the results file has to hold profiles of the same cases from two versions of torch or JetPack.
Runs when it is asked for by name: `pytest benchmarks/test_software_versions.py --results FILE`.
"""

from __future__ import annotations

import pytest

from harness.core.terminal import Progress
from harness.judge.software_versions import version_effects
from harness.store.results import ResultsStore


@pytest.mark.on_request
def test_software_versions(results: ResultsStore, progress: Progress) -> None:
    """Compare the cases that were measured with several versions (004 sec. 5.4.4: up to 40 % apart)."""
    effects = version_effects(results)
    if not effects:
        pytest.skip(f"{results.path} holds no case that was measured with two versions of torch, CUDA, L4T or JetPack")
    for effect in effects:
        progress.line(f"    {effect.text}")
    assert all(effect.ratio.low <= effect.ratio.value <= effect.ratio.high for effect in effects)
