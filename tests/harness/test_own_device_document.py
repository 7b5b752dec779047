"""`docs/own_device.md` as written: its package, installed, brings a board; wrong packages break nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from harness.core import boards
from harness.core.configuration import Configuration
from harness.core.device_types import declared_devices
from harness.core.errors import CannotRunError
from harness.devices.registry import local_board, open_device
from harness.store.results import ResultsStore
from jetwatt.cli import main
from tests.harness.board.kernel_trees import cpus, policy
from tests.messages import says

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENT = (PROJECT / "docs" / "own_device.md").read_text(encoding="utf-8")
FILES = {
    "proc/device-tree/model": "Meadow 1 Rev 2\0",
    "proc/cpuinfo": "processor\t: 0",
    "proc/meminfo": "MemTotal:        4045632 kB",
    "sys/devices/system/cpu/online": "0-3",
    "sys/class/hwmon/hwmon0/power1_input": 5_250_000,
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": 61000,
    **cpus(4),
    **policy(0, "0 1 2 3", levels=(1500000, 1600000, 2400000)),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which pip has installed the document's package."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name, content in re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", DOCUMENT, re.DOTALL):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(content)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, source], check=True)
    return folder


@pytest.fixture
def run(installed, tmp_path):
    """Runs a module's command with the package installed, in an empty folder; also with `tmp_path/more` on the path."""
    paths = [tmp_path / "more", installed, PROJECT]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}

    def run(*words, cwd=tmp_path):
        command = [sys.executable, "-m", *map(str, words)]
        done = subprocess.run(command, cwd=str(cwd), env=variables, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def board(tree):
    tree.write(FILES)
    return tree.path


@pytest.fixture
def add_package(tmp_path, monkeypatch):
    """Puts a package onto this process's path as pip would: a module and what declares its entry point."""
    folder = tmp_path / "more"
    monkeypatch.syspath_prepend(folder)

    def forget():
        for cached in (declared_devices, boards.load_board, boards._content):
            cached.cache_clear()
        for name in ("brooks", "ponds"):
            sys.modules.pop(name, None)

    def add(package, entry_point, code="", **files):
        about = folder / f"{package}-0.1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (about / "entry_points.txt").write_text(f"[jetwatt.devices]\n{entry_point}\n")
        (folder / f"{package}.py").write_text(code)
        for name, content in files.items():
            (folder / f"{name}.toml").write_text(content)
        forget()

    yield add
    forget()


@pytest.fixture
def jetwatt(capsys):
    """Runs `jetwatt` in this process: exit code, what it printed, errors and warnings."""

    def run(*words):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            code = main(list(map(str, words)))
        out, err = capsys.readouterr()
        return code, out, err + "".join(f"{one.message}\n" for one in said)

    return run


@pytest.mark.exhaustive
@pytest.mark.long
def test_modes_are_planned_from_its_facts(run):
    code, out, err = run("jetwatt", "modes", "--board", "meadow", "--count")
    assert (code, out.strip(), err) == (0, "12", "")
    assert "4c-2400-x-x" in run("jetwatt", "modes", "--board", "meadow")[1]


@pytest.mark.exhaustive
@pytest.mark.long
def test_doctor_examines_it_where_it_is_and_lists_its_package(run, board):
    code, out, err = run("jetwatt", "doctor", "--root", board, "--json")
    assert code == 0, err
    findings = json.loads(out)
    assert findings["device"] == "emulated-meadow"
    assert findings["power_modes"]["count"] == 12
    capabilities = {one["name"]: one for one in findings["capabilities"]}
    assert capabilities["measure by meadow_boards.meter:open_source"]["available"]
    assert capabilities["device meadow"]["detail"] == "of package meadow-boards 1.0"


@pytest.mark.exhaustive
def test_elsewhere_it_is_refused_and_listed_among_the_devices(run):
    code, _, err = run("jetwatt", "recommend", "--device", "meadow", "--workload", "lenet-mnist", "--power-budget", 9)
    assert code == 2
    assert "meadow is not this machine (" in err
    assert "meadow" in run("jetwatt", "doctor", "--device", "nonsense")[2].partition("available: ")[2]


@pytest.mark.training
@pytest.mark.exhaustive
@pytest.mark.long
def test_benchmarks_measure_it(run, board, tmp_path):
    pytest.importorskip("torchvision")
    asked = ["--workload", "lenet-mnist", "--minibatches", 3, "--batch-size", 16, "--device-root", board]
    results = ["--results", tmp_path / "r.sqlite"]
    config = ["-p", "no:cacheprovider", "--device", "meadow", "--power-mode", "maxn", "--workers", 0]
    code, out, err = run("pytest", PROJECT / "benchmarks", *config, *asked, *results, "--rootdir", PROJECT)
    assert code == 0, out + err
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        [profile] = store.profiles()
    assert profile.case.device == "emulated-meadow"
    assert profile.conditions["power_mode"]["cpu_khz"] == 2_400_000
    assert profile.aggregates["power_mw"] == 5250


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.long
def test_recommend_searches_its_modes(run, board):
    pytest.importorskip("torchvision")
    asked = ["--workload", "lenet-mnist", "--minibatches", 3, "--device-root", board, "--storage", "sd"]
    code, out, err = run("jetwatt", "recommend", "--device", "meadow", *asked, "--profiles", 4, "--power-budget", 9)
    assert code == 0, out + err
    assert "4c-2400-x-x" in out


@pytest.mark.parametrize(
    ("entry_point", "code", "files", "said"),
    [
        (
            "brook = brooks:BROOK",
            "import no_such",
            {},
            "brooks:BROOK: ModuleNotFoundError: No module named",
        ),
        ("brook = brooks:BROOK", "import sys; sys.exit(3)", {}, "brooks:BROOK: SystemExit: 3"),
        ("brook = brooks:OTHER", "", {}, "brooks:OTHER: AttributeError: .* no attribute 'OTHER'"),
        ("brook = brooks:BROOK", "BROOK = 3", {}, "brooks:BROOK is a int, expected a DeviceType"),
        (
            "brook = brooks:BROOK",
            "from jetwatt import *\nBROOK = DeviceType()",
            {},
            "neither a device nor facts",
        ),
        (
            "orin-agx = brooks:BROOK",
            "BROOK = 3",
            {},
            "device 'orin-agx' of package brooks 0.1: that name is the",
        ),
        (
            "nvidia-brook = brooks:BROOK",
            "BROOK = 3",
            {},
            "'nvidia-brook' of package brooks 0.1: that name is the",
        ),
        ("Br = brooks:BROOK", "BROOK = 3", {}, "device 'Br' of package brooks 0.1: a name has small letters"),
        ("meadow = brooks:BROOK", "BROOK = 3", {}, "device 'meadow' is declared by brooks 0.1 and meadow-boards 1.0"),
        (
            "brook = brooks:BROOK",
            "FACTS",
            {"brook": "product = 3\nvariant = '1'"},
            "product of .*brook.toml of package brooks 0.1 is 3",
        ),
        ("brook = brooks:BROOK", "FACTS", {"brook": "product = "}, "of package brooks 0.1: .*not a readable TOML file"),
        ("brook = brooks:BROOK", "FACTS", {}, "of package brooks 0.1: .*No such file"),
    ],
    ids=[
        *("import", "exit", "attribute", "no-type", "empty-type", "board", "gpu", "letters", "twice"),
        *("wrong-facts", "no-toml", "no-facts"),
    ],
)
def test_a_package_that_is_wrong_is_named_and_runs_on_other_devices_go_on(
    jetwatt, installed, monkeypatch, add_package, entry_point, code, files, said
):
    monkeypatch.syspath_prepend(installed)
    if code == "FACTS":
        code = "from pathlib import Path\nfrom jetwatt import DeviceType\n"
        code += "BROOK = DeviceType(facts=Path(__file__).with_name('brook.toml'))"
    add_package("brooks", entry_point, code, **files)
    name = entry_point.partition(" ")[0]
    done, out, err = jetwatt("doctor", "--json")
    assert done == 0, err
    [row] = [one for one in json.loads(out)["capabilities"] if one["name"] == f"device {name}"]
    assert not row["available"]
    assert re.search(said, f"{row['detail']}; {row['way_out']}"), row
    assert "brooks 0.1" in row["detail"]
    # The suite's own board of that name stays; who names the package's device has the error.
    planned, out, err = jetwatt("modes", "--board", name, "--count")
    assert (planned == 0) == (name == "orin-agx"), out + err
    if name == "orin-agx":
        assert open_device(name, Configuration()).identity().model == "NVIDIA Jetson AGX Orin"
    if name in ("brook", "meadow"):
        assert re.search(said, err), err


def test_a_board_whose_check_fails_is_not_here(jetwatt, board, add_package):
    code = "from jetwatt import DeviceType\nBROOK = DeviceType(dict, lambda root: 1 / 0)"
    add_package("brooks", "brook = brooks:BROOK", code)
    done, out, err = jetwatt("doctor", "--root", board)
    assert done == 0
    assert out.startswith("emulated-host")
    assert says(err, "left out", "'brook' of package brooks 0.1", "is_here", "ZeroDivisionError")
    done, _, err = jetwatt("doctor", "--device", "brook")
    assert done == 2


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("class Brook:\n    def __init__(self, *given): raise OSError('no bus')", "opening it failed: OSError: no bus"),
        ("from harness.devices.host import HostDevice as Brook", "calls itself 'host'; its attribute name must be"),
    ],
    ids=["raises", "other-name"],
)
def test_a_device_that_cannot_be_opened_is_an_error_that_names_the_package(jetwatt, add_package, device, said):
    add_package(
        "brooks", "brook = brooks:BROOK", f"from jetwatt import DeviceType\n{device}\nBROOK = DeviceType(Brook)"
    )
    done, _, err = jetwatt("doctor", "--device", "brook")
    assert done == 2
    assert "device 'brook' of package brooks 0.1" in err
    assert said in err


def test_a_jetson_module_needs_its_facts_alone(add_package, tree):
    facts = (PROJECT / "harness/core/boards/orin-nano.toml").read_text()
    facts = re.sub(r"p3767-\d{4}", "p9999-0001", facts).replace("p3767", "p9999").replace("Orin Nano", "Pond Nano")
    code = "from pathlib import Path\nfrom jetwatt import DeviceType\n"
    code += "POND = DeviceType(facts=Path(__file__).with_name('pond.toml'))"
    add_package("ponds", "pond = ponds:POND", code, pond=facts)
    tree.write({"proc/device-tree/compatible": "nvidia,p3768-0000+p9999-0001\0nvidia,tegra234\0", "proc/cpuinfo": ""})
    tree.write({"proc/device-tree/model": "Pond\0", "sys/devices/system/cpu/online": "0-5"})
    assert local_board(Configuration(), tree.path).name == "emulated-pond"
    with pytest.raises(CannotRunError, match="pond is not this machine"):
        open_device("pond", Configuration()).conditions(None)
