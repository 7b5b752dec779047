"""What does another version of the software change (E8)?

Nothing is measured here: the results file has to hold profiles of the same cases from two versions of torch or JetPack.
Runs only if it is named: `pytest benchmarks/test_software_versions.py --results FILE`.
"""

import pytest

from harness.judge.compare import version_effects

MOST = 1.4  # versions were up to 40 % apart (004 sec. 5.4.4)


@pytest.mark.on_request
def test_software_versions(results, progress):
    """Compare the cases that were measured with several versions: each interval lies within the paper's 40 %."""
    effects = version_effects(results)
    if not effects:
        pytest.skip(f"{results.path} holds no case that was measured with two versions of torch, CUDA, L4T or JetPack")
    for effect in effects:
        progress.line(f"    {effect.text}")
    assert not [effect.text for effect in effects if effect.ratio.low < 1 / MOST or effect.ratio.high > MOST]
