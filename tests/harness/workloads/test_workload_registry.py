"""The list of workloads: complete, described, and there without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness.core.errors import DependencyError, UnknownNameError
from harness.workloads import WORKLOADS, get_workload
from harness.workloads.optional_packages import require
from tests.messages import says

NETWORKS = Path(__file__).resolve().parents[3] / "baselines" / "published" / "networks.csv"
NAMES = sorted(set(pd.read_csv(NETWORKS)["workload"]))


def test_all_workloads_of_the_papers_are_there_under_their_own_names():
    assert len(NAMES) == 10
    assert all(get_workload(name).name == name for name in NAMES)


def test_an_unknown_workload_is_an_error_that_lists_the_known_ones():
    with pytest.raises(UnknownNameError) as caught:
        get_workload("resnet50-imagenet")
    assert "resnet50-imagenet" in str(caught.value)
    assert all(name in str(caught.value) for name in WORKLOADS)


def test_a_missing_package_is_an_error_that_names_the_extra():
    with pytest.raises(DependencyError, match=r"no_such_package.*make install"):
        require("no_such_package")


CUSPARSELT = "libcusparseLt.so.0: cannot open shared object file: No such file or directory"


def test_a_torch_that_lacks_a_system_library_is_not_reported_as_missing(tmp_path):
    """As doctor shows it, and a skipped case."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(f"raise ImportError({CUSPARSELT!r})\n")
    program = (
        "from harness.measure.doctor import training_capabilities\n"
        "training = training_capabilities()[0]\n"
        "print(training.available, training.detail, training.hint, sep='\\n')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    available, detail, hint = done.stdout.splitlines()
    assert available == "False"
    assert detail.endswith(CUSPARSELT)
    assert says(hint, "library libcusparseLt.so.0", "missing")
    assert "make install" not in hint
