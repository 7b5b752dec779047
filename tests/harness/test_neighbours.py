"""Fixtures of others with names of the suite's: the definition that a test uses decides, before and after opting in."""

from __future__ import annotations

import os

import pytest

from tests import warm_pytest
from tests.messages import says

ROWS = {
    "device": ["cpu", "cuda"], "workload": ["a"], "storage": ["s3"], "workers": [1], "batch_size": [1],
    "case": ["x", "y"], "train": [True], "measure": [1], "value": [1, 2], "power_mode": ["low"], "profile": [None],
}  # fmt: skip
GENERATED = f"""
ROWS = {ROWS!r}
def pytest_generate_tests(metafunc):
    own = metafunc.function.__code__.co_varnames
    for name in [name for name in metafunc.fixturenames if name in ROWS and name in own]:
        metafunc.parametrize(name, ROWS[name])
"""
THEIR_TESTS = """
def test_device(device): assert device in ("cpu", "cuda")
def test_batch(batch_size, train): assert (batch_size, train) == (1, True)
def test_all(case, value, measure, workload, storage, workers, power_mode, profile): pass
"""
THEIR_FIXTURES = """
import pytest
@pytest.fixture(params=["cpu", "cuda"])
def device(request): return request.param
@pytest.fixture
def measure(device): return len
@pytest.fixture
def case(): return 7
@pytest.fixture
def power_mode(): raise AssertionError("theirs, and not requested")
"""
TESTS_OF_FIXTURES = """
def test_fixtures(measure, case): assert (measure("ab"), case) == (2, 7)
"""


@pytest.fixture
def others(tmp_path):
    """Runs pytest in the folder of others; returns what it printed."""

    def run(files, *arguments):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = warm_pytest.run(["--rootdir", ".", "-c", "/dev/null", *arguments], tmp_path, os.environ)
        return done.stdout + done.stderr

    return run


@pytest.mark.exhaustive
def test_nothing_of_ours_is_known_without_opting_in(others):
    said = others({"test_mine.py": "def test_mine(device): pass"})
    assert "fixture 'device' not found" in said, said
    assert "unrecognized arguments: --jetwatt-device" in others({}, "--jetwatt-device", "host")


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"conftest.py": GENERATED, "test_theirs.py": THEIR_TESTS}, id="generated"),
        pytest.param({"conftest.py": THEIR_FIXTURES, "test_theirs.py": TESTS_OF_FIXTURES}, id="fixtures"),
    ],
)
@pytest.mark.exhaustive
def test_tests_of_others_have_the_same_ids_and_pass_after_opting_in(others, files):
    def ids(*arguments):
        said = others(files, "--collect-only", "-q", *arguments)
        return [line for line in said.splitlines() if "::" in line]

    assert ids("-p", "jetwatt") == ids() != []
    said = others(files, "-p", "jetwatt", "-p", "no:benchmark", "--strict-markers", "-W", "error")
    assert f"{len(ids())} passed" in said, said


BESIDE = """
import pytest
@pytest.fixture
def device(): return "a phone"
@pytest.fixture
def case(): return 7
@pytest.mark.parametrize("jetwatt_workers", [0, 2])
def test_both(device, jetwatt_device, case, jetwatt_case, jetwatt_workers, jetwatt_train):
    assert (device, case, jetwatt_device.name) == ("a phone", 7, "sim:nano")
    assert jetwatt_train(minibatches=10).case.workers == jetwatt_case.workers == jetwatt_workers
def test_loop(device, train): assert train(minibatches=10).case.device == "sim:nano"
"""


@pytest.mark.exhaustive
def test_prefixed_fixtures_work_beside_those_of_others(others):
    said = others({"test_beside.py": BESIDE}, "-p", "jetwatt", "--device", "sim:nano")
    assert "3 passed" in said, said


PLUGIN = """
import pytest
@pytest.fixture(scope="session")
def device(): return "a phone"
@pytest.fixture
def page(device): return f"a page on {device}"
"""
BESIDE_A_PLUGIN = """
def test_theirs(page, device): assert (page, device) == ("a page on a phone", "a phone")
def test_ours(jetwatt_device, train): assert train(minibatches=10).case.device == jetwatt_device.name == "sim:nano"
"""


@pytest.mark.parametrize("plugins", [("theirs", "jetwatt"), ("jetwatt", "theirs")], ids=["first", "last"])
@pytest.mark.exhaustive
def test_a_fixture_of_another_plugin_stays_its_own(others, plugins):
    words = [word for name in plugins for word in ("-p", name)]
    said = others({"theirs.py": PLUGIN, "test_b.py": BESIDE_A_PLUGIN}, *words, "--device", "sim:nano")
    assert "2 passed" in said, said
    assert says(said, "fixture device", "theirs", "jetwatt_device")
    assert "jetwatt_cache" not in said  # a fixture `cache` is pytest's own in every run


@pytest.mark.exhaustive
def test_a_fixture_of_others_that_no_test_takes_is_not_mentioned(others, monkeypatch):
    """Of pytest itself, `cache` is one, and an axis of ours as well."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--color=no")  # with its cache
    files = {
        "test_a.py": "def test_a(train): train(minibatches=10)",
        "test_b.py": "def test_b(cache): assert cache.get",
    }
    arguments = ("-p", "jetwatt", "--device", "sim:nano", "-o", "cache_dir=cache")
    alone = others({"test_a.py": files["test_a.py"]}, *arguments)
    assert "1 passed" in alone, alone
    assert "the fixture" not in alone
    both = others(files, *arguments)
    assert says(both, "fixture cache", "cacheprovider", "jetwatt_cache"), both


@pytest.mark.exhaustive
def test_values_for_a_fixture_of_others_stay_theirs_in_a_test_of_ours(others):
    text = (
        THEIR_FIXTURES
        + "def test_a(device, train): assert device in ('cpu', 'cuda') and train().case.device == 'sim:nano'"
    )
    said = others({"test_a.py": text}, "-p", "jetwatt", "--device", "sim:nano")
    assert "2 passed" in said, said


@pytest.mark.exhaustive
def test_measuring_without_pytest_benchmark_says_what_to_do(others):
    said = others(
        {"test_a.py": "def test_a(profile): profile()"}, "-p", "jetwatt", "-p", "no:benchmark", "--device", "sim:nano"
    )
    assert "test_a.py::test_a[sim:nano-" in said
    assert says(said, "pytest-benchmark", "not loaded")
    assert "INTERNALERROR" not in said
