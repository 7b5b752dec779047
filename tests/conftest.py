"""What all tests share: Hypothesis without a deadline, short ids, lean pytests, a Ctrl-C that acts as in a terminal."""

import atexit
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile

import pytest
from hypothesis import settings

from tests.time_limit import FLEET_LIMIT_S, LIMIT_S, TimeLimit

LONGEST_SOCKET_FOLDER = 60
"""Bytes of a folder in which multiprocessing can make a socket, whose path has 107 at most."""

LONGEST_ID = 24
"""Characters of one parameter in the id of a test, where the test file gives no id itself."""

# Machines are shared, and no test asserts how long something takes. The quick tests try the same examples each time, to
# fail by a change and never by chance. `make test-all` looks for new examples, except in CI.
settings.register_profile("shared-machine", deadline=None)
settings.register_profile("not-exhaustive", deadline=None, max_examples=10, derandomize=True)
settings.load_profile("shared-machine")


def pytest_configure(config):
    """Where the exhaustive tests are left out, Hypothesis tries fewer examples too."""
    if "not exhaustive" in config.option.markexpr:
        settings.load_profile("not-exhaustive")
    if config.getoption("first_of_each") is not None:
        config.pluginmanager.register(FirstOfEach(config.getoption("first_of_each")))
    if config.getoption("test_limit") and not config.getoption("usepdb"):
        config.pluginmanager.register(TimeLimit(config.getoption("test_limit")))


@pytest.fixture(scope="session", autouse=True)
def own_folder_for_started_pytests(tmp_path_factory):
    """A pytest that a test starts makes its folders here.

    In the common place it would delete those of earlier runs at its end, which takes minutes on a slow disk.
    """
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("started"))


@pytest.fixture(autouse=True)
def no_memory_of_silent_files():
    """A process remembers which files did not answer; those of one test are not those of the next."""
    yield
    for module, names in (
        ("harness.board.bounded_reads", ("silent", "unread", "_hangs")),
        ("harness.board.privileged", ("unread",)),
    ):
        for name in names if module in sys.modules else ():
            getattr(sys.modules[module], name).clear()


def pytest_addoption(parser):
    parser.addoption(
        "--first-of-each",
        nargs="?",
        const="",
        metavar="MARK",
        help="of each parametrized test, run the first case only; with MARK, of its cases that have that mark",
    )
    limit_s = FLEET_LIMIT_S if os.environ.get("JETWATT_FLEET_TESTS") else LIMIT_S
    parser.addoption(
        *("--test-limit", "--test-limit-s"),
        type=float,
        default=limit_s,
        metavar="SECONDS",
        help=f"a phase of a test that takes longer fails; 0 for no limit, which --pdb implies (default: {limit_s:g})",
    )


def pytest_collection_modifyitems(items):
    """Tests that train are skipped without torch, and whole pages go first.

    A test of minutes that begins last would keep one process busy while the others have nothing.
    """
    if importlib.util.find_spec("torch") is None:
        without_torch = pytest.mark.skip(reason="needs torch; `make install` without EXTRAS installs it")
        for item in items:
            if item.get_closest_marker("training"):
                item.add_marker(without_torch)
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("exhaustive"):
            raise pytest.UsageError(f"{item.nodeid} is long and not exhaustive: CI would leave out a quick test")
    items.sort(key=lambda item: not item.nodeid.startswith("tests/test_tutorials.py::"))


class FirstOfEach:
    def __init__(self, mark):
        self.mark = mark  # of the cases that it looks at; all if empty

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        """Of each test leaves the first case that `-m` and `-k` have left, and those without the mark."""
        seen, kept, left_out = set(), [], []
        for item in items:
            test = item.nodeid.partition("[")[0]
            counts = not self.mark or item.get_closest_marker(self.mark) is not None
            (left_out if counts and test in seen else kept).append(item)
            if counts:
                seen.add(test)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_make_parametrize_id(val, argname):
    """A short, printable id: the first words of a text, a float in six digits, the name of the argument for bytes.

    pytest numbers equal ids. Bytes may hold the time of day, and ids have to be the same in every process.
    """
    if isinstance(val, bytes):
        return argname
    if isinstance(val, float):
        return f"{val:g}"
    if isinstance(val, str):
        words = re.sub(r"[^\w.,:=+*/<>%-]+", "-", val, flags=re.ASCII)
        return words[:LONGEST_ID].strip("-") or argname
    return None


# Many tests start a Python of their own: each would compile the suite, and pytest its plugins, anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# For every pytest that a test starts: none is needed, and these two plugins take as long to load as the rest of a run.
# What is printed is read by tests, so it has no colours, even where FORCE_COLOR asks for them.
os.environ["PYTEST_ADDOPTS"] = "-p no:cacheprovider -p no:hypothesispytest -p no:anyio --color=no"
os.environ["PYTHON_COLORS"] = "0"

# A TMPDIR may be longer. The tests' own folders, which need no sockets, stay in it.
if len(os.fsencode(tempfile.gettempdir())) > LONGEST_SOCKET_FOLDER:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="jetwatt-", dir="/tmp")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# What a test starts is no worker of pytest-xdist: in one, pytest-benchmark times nothing.
for variable in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[variable]

# Tests train beside each other: a thread that waits for another one must not keep it off the core by spinning.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell starts what runs in the background with SIGINT ignored, and Python and its children keep it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
