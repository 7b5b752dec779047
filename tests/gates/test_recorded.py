"""A gate lets chance pass and nothing else; what is recorded is what later runs are held against."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.core.boards import load_board
from harness.core.corpus import write_corpus
from harness.core.errors import InvalidValueError
from harness.simulation.corpus import simulate_corpus
from tests import warm_pytest
from tests.gates.conftest import unlike
from tests.gates.recorded import (
    PREDICTORS,
    USELESS,
    Figure,
    check,
    computed_by,
    entries_of,
    format_verdicts,
    read_recorded,
    record,
    tolerance,
)
from tools.kernels import kernel_settings, used_by_numpy

BASELINES = Path(__file__).resolve().parents[2] / "baselines" / "recorded"
RESULT = {
    "predictor": "ridge", "target": "lenet-mnist", "modes": 50, "provenance": "simulated",
    "time_mape": [7.0, 8.0, 9.0], "power_mape": [3.0, 3.1, 2.9],
    "time_bias": [-1.0, 0.5, 2.0], "power_bias": [0.1, 0.0, -0.1],
    "time_80": [80.0, 82.0, 78.0], "power_80": [85.0, 80.0, 75.0],
}  # fmt: skip
ERROR, EITHER_WAY = Figure("error"), Figure("bias", 2.0, 4.0, either_way=True)


KERNEL_VARIABLES = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")


def entry(**changes):
    return entries_of([{**RESULT, **changes}], "here")[0]


def verdicts(before, now):
    return {one.key.split()[-1]: one for one in check(before, now, PREDICTORS)}


IMPORTS = {
    "nothing": "",
    "torch": "import torch; torch.ones(8, 8) @ torch.ones(8, 8)",
    "scikit-learn": "import sklearn.neural_network, sklearn.ensemble",
    "both-before-scipy": "import torch, sklearn.ensemble, numpy; numpy.ones((8, 8)) @ numpy.ones((8, 8))",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", IMPORTS)
def test_what_computes_is_the_same_whatever_was_imported_before(name):
    if "torch" in IMPORTS[name]:
        pytest.importorskip("torch")
    if "sklearn" in IMPORTS[name]:
        pytest.importorskip("sklearn")
    code = f"{IMPORTS[name]}\nfrom tests.gates.recorded import computed_by\nprint(computed_by())"
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert told.stdout.strip() == computed_by()


def test_what_computes_names_versions_the_blas_and_its_processor_and_no_thread_pool_of_others():
    text = computed_by()
    assert f"numpy {np.__version__}" in text
    assert re.search(r"(openblas|mkl|blis|flexiblas|accelerate) \S+", text), text
    assert platform.machine() in text
    assert "openmp" not in text


def test_a_processor_without_some_vector_instructions_computes_otherwise():
    script = "from tests.gates.recorded import computed_by\nprint(computed_by())"
    last = computed_by().split(" glibc")[0].split()[-1]
    if last == platform.machine():
        pytest.skip("NumPy uses no vector instructions here that could be switched off")
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": last}
    told = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, check=True, text=True
    )
    assert told.stdout.strip() != computed_by()


@pytest.mark.one_python
@pytest.mark.skipif(
    not os.environ.get("CI"), reason="the versions and kernels of the recording are required in CI only"
)
@pytest.mark.parametrize("path", sorted(BASELINES.glob("*s.json")), ids=lambda path: path.stem)
def test_ci_computes_as_recorded_so_that_its_gates_are_strict(path):
    software, machine = computed_by().rsplit(", ", 1)
    python = software.partition(",")[0]
    if python not in {entry["computed_by"].partition(",")[0] for entry in read_recorded(path)}:
        pytest.skip(f"not recorded with {python}: the gates are less strict here")
    if not kernel_settings() and "Haswell" not in software:
        pytest.skip("this processor has no AVX2: the gates are less strict here")
    recorded = [entry["computed_by"].rsplit(", ", 1) for entry in read_recorded(path)]
    assert {one[0] for one in recorded} == {software}, "make record ONLY=gates, or mend tools/kernels.py"
    if machine not in {one[1] for one in recorded}:
        pytest.skip(f"recorded on {recorded[0][1]}, and this machine is {machine}: the gates are less strict here")


def printed(environment, *words):
    """What a Python of its own prints."""
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, env=environment, check=True, text=True)
    return done.stdout


def test_kernels_are_those_of_avx2_on_any_newer_processor():
    plain = {name: value for name, value in os.environ.items() if name not in KERNEL_VARIABLES}
    settings = dict(word.split("=") for word in printed(plain, "-m", "tools.kernels").split())
    if not settings or not used_by_numpy():
        pytest.skip("this processor has no AVX2, or NumPy is too old to say what it uses")
    script = "from tests.gates.recorded import computed_by\nprint(computed_by())"
    blas, machine = printed({**plain, **settings}, "-c", script).rsplit(platform.machine(), 1)
    assert "Haswell" in blas or "openblas" not in blas
    assert "AVX512" not in machine
    assert "X86_V4" not in machine


OTHER_KERNELS = {"haswell": "SANDYBRIDGE", "zen": "SANDYBRIDGE", "skylakex": "HASWELL", "cooperlake": "HASWELL"}
"""Of OpenBLAS, by what a processor usually gets; those of an older processor run on a newer one."""

WEIGHTS_OF_A_REFERENCE = """
from predictors.contest.scenarios import ProfileSource, simulated
from predictors.models.base import one_blas_thread
from predictors.models.powertrain import learn_reference
from tests.gates.conftest import ROWS_OF_REFERENCE, alike_on_every_processor, part_of
with one_blas_thread(), alike_on_every_processor("powertrain"):
    table = part_of(simulated(ProfileSource("resnet18-imagenet")), ROWS_OF_REFERENCE)
    print(*learn_reference(table, 0).networks_.parameters.ravel().tolist())
"""


@pytest.mark.exhaustive
@pytest.mark.long
def test_the_reference_of_powertrain_comes_out_alike_under_the_kernels_of_another_processor():
    """In single precision weights differ by up to 0.2, and what is chosen with them by a penalty of 5 or 17 %."""
    plain = {name: value for name, value in os.environ.items() if name not in KERNEL_VARIABLES}
    usual = re.search(
        r"openblas \S+ (\w+)", printed(plain, "-c", "import tests.gates.recorded as r; print(r.computed_by())")
    )
    other = OTHER_KERNELS.get(usual[1].lower()) if usual else None
    if other is None:
        pytest.skip("NumPy has no OpenBLAS here, or one whose other kernels are not known to run")
    found = [
        np.array(printed({**plain, "OPENBLAS_CORETYPE": kernels}, "-c", WEIGHTS_OF_A_REFERENCE).split(), dtype=float)
        for kernels in (usual[1], other)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)


def test_kernels_that_are_chosen_already_stay(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    assert "OPENBLAS_CORETYPE" not in kernel_settings()


def test_a_processor_without_avx2_keeps_its_own_kernels(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("flags\t\t: fpu avx avx512\n", encoding="utf-8")
    assert kernel_settings(tmp_path) == {}
    assert kernel_settings(tmp_path / "no-such-root") == {}


@pytest.mark.parametrize(
    ("recorded", "found", "alike", "figure", "allowed"),
    [
        ([7.0, 8.0, 9.0], [1.0, 8.0, 30.0], True, ERROR, 0.016),  # the same software and seeds: nearly equal
        ([0.0, 0.0], [0.0, 0.0], True, ERROR, 0.01),
        ([7.0, 8.0, 9.0], [1.0, 8.0, 30.0], True, EITHER_WAY, 0.016),
        ([2.0, 8.0, 14.0], [2.1, 8.1, 14.1], False, ERROR, 0.05 * 8),  # paired by seed: each rose by 0.1
        ([8.0] * 4, [7.6, 8.4, 7.8, 8.2], False, ERROR, 3 * (0.4 / 3) ** 0.5 / 2),
        ([8.0] * 3, [2.0, 8.0, 60.0], False, ERROR, 2.0),  # a quarter, however wide the spread
        ([0.0] * 3, [0.1] * 3, False, EITHER_WAY, 2.0),
        ([50.0] * 3, [20.0, 80.0, 50.0], False, EITHER_WAY, 4.0),  # points, not a share
    ],
)
def test_the_luck_of_the_draw_cancels_and_other_software_may_differ_a_little(recorded, found, alike, figure, allowed):
    assert tolerance(recorded, found, alike, figure) == pytest.approx(allowed)


@pytest.mark.parametrize("factor", [0.9, 0.98, 1.02, 1.1])
def test_a_changed_error_fails_where_software_is_the_same_a_better_one_too(factor):
    found = verdicts([entry()], [entry(time_mape=[factor * value for value in RESULT["time_mape"]])])
    assert [name for name, one in found.items() if not one.passed] == ["time_mape"]
    assert ("WORSE" if factor > 1 else "CHANGED") in format_verdicts(list(found.values()))
    assert all(one.passed for one in verdicts([entry()], [entry()]).values())


def test_elsewhere_a_worse_error_fails_and_a_better_one_passes():
    def now(factor):
        return unlike(entry(time_mape=[factor * value for value in RESULT["time_mape"]]))

    assert all(verdicts([entry()], [now(factor)])["time_mape"].passed for factor in (0.1, 1, 1.045))
    assert not verdicts([entry()], [now(1.25)])["time_mape"].passed


@pytest.mark.parametrize("points", [-20.0, 20.0])
@pytest.mark.parametrize("name", ["time_bias", "power_bias", "time_80", "power_80"])
def test_a_bias_and_a_coverage_fail_either_way_everywhere(name, points):
    found = entry(**{name: [value + points for value in RESULT[name]]})
    for one in (found, unlike(found)):
        assert [key for key, verdict in verdicts([entry()], [one]).items() if not verdict.passed] == [name]


def test_a_figure_or_count_or_repeat_that_is_gone_fails():
    assert not verdicts([entry()], [entry(time_mape=[7.0, None, 9.0])])["time_mape"].passed
    assert not verdicts([entry()], [entry(time_mape=[7.0, 8.0])])["time_mape"].passed
    gone = check([entry(), entry(modes=10)], [entry()], PREDICTORS)
    assert [one.passed for one in gone] == 6 * [True] + 6 * [False]
    assert len(check([entry(), entry(modes=10)], [entry()], PREDICTORS, part=True)) == 6


def test_other_predictors_are_not_held_against_what_ran_and_what_was_never_recorded_passes_and_is_named():
    both = [entry(), entry(predictor="nn")]
    assert check(both, [entry()], PREDICTORS) == check([entry()], [entry()], PREDICTORS)
    (time, *_) = check([], [entry()], PREDICTORS)
    assert (time.passed, time.recorded) == (True, None)
    assert "not recorded" in format_verdicts([time])


def test_recording_replaces_what_ran_and_keeps_the_rest(tmp_path):
    path = tmp_path / "recorded" / "predictors.json"
    assert read_recorded(path) == []
    record(path, [entry(), entry(modes=10)], {"python": "3"}, PREDICTORS)
    record(path, [unlike(entry(predictor="nn"))], {}, PREDICTORS)
    record(path, [entry(time_mape=[7.0, 7.0, 7.0])], {}, PREDICTORS)
    others, mine = read_recorded(path)
    assert others == unlike(entry(predictor="nn"))
    assert mine == entry(time_mape=[7.0, 7.0, 7.0])
    assert sum('"predictor"' in line for line in path.read_text().splitlines()) == 2  # a line for each


def test_an_error_too_great_to_guard_anything_is_not_recorded(tmp_path):
    path = tmp_path / "predictors.json"
    record(path, [entry(power_mape=[90.0, 100.0, USELESS + 20])], {}, PREDICTORS)
    (found,) = read_recorded(path)
    assert found["power_mape"] is None
    assert found["time_mape"] == RESULT["time_mape"]
    assert found["power_bias"] == RESULT["power_bias"]  # which still guards it


def test_what_is_recorded_guards_something():
    """Of each entry at least an error or a bias is there, and no error is greater than what it is an error of."""
    for name in ("predictors", "strategies", "plans"):
        for one in read_recorded(BASELINES / f"{name}.json"):
            figures = {key: values for key, values in one.items() if isinstance(values, list)}
            assert figures, one
            assert all(abs(np.mean(values)) <= USELESS for values in figures.values()), one


@pytest.mark.parametrize("content", ["", "[]", '{"entry": 1}'])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidValueError, match="no recorded errors"):
        read_recorded(path)


@pytest.mark.exhaustive
def test_a_corpus_of_ones_own_is_recorded_once_and_held_then(tmp_path):
    """As the nightly script does for a type of board of which nothing is recorded here."""
    modes = list(load_board("nano").power_mode_space().paper_grid())
    rows = [row for name in ("lenet-mnist", "mobilenetv3-gld23k") for row in simulate_corpus("nano", name, modes)]
    write_corpus(tmp_path / "nano.csv", rows)
    own = ["--gate-corpus", tmp_path / "nano.csv", "--gate-baselines", tmp_path / "gates"]
    chosen = ["-k", "as_recorded and orin-agx-training and (ridge or maxn)", "-p", "no:cacheprovider", "-q"]

    def held():
        words = [Path(__file__).parent, "--rootdir", tmp_path, *own, *chosen]
        return warm_pytest.run(words, tmp_path, dict(os.environ))

    first = held()
    assert first.returncode == 0, first.stdout
    recorded = [tmp_path / "gates" / f"{name}.json" for name in ("predictors", "strategies")]
    assert all(path.exists() for path in recorded)
    assert held().returncode == 0
    content = recorded[0].read_text()
    recorded[0].write_text(
        re.sub(r"(?<=[ \[])(\d+\.\d+)(?=[,\]])", lambda found: f"{float(found[1]) / 2:.3f}", content)
    )
    assert "WORSE" in held().stdout
