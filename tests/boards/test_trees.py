"""Trees: complete for every board and release, and what their spec files say."""

from __future__ import annotations

import os

import pytest

from boards.clock_files import DEVFREQ_CLASS
from boards.clock_lists import spec_of
from boards.kernel import Kernel
from boards.layouts import BOARDS, PAIRS, VARIANTS, layout_of
from boards.processor_files import CPU
from boards.stock_conf import DECLARED_TOO, preset_cores
from boards.tree import build_board
from harness.board import disk, thermal
from harness.board.cpu_clocks import CpuFrequency
from harness.board.nvpmodel import Nvpmodel
from harness.board.nvpmodel_conf import parse
from harness.board.nvpmodel_modes import masks, online_cores, to_power_mode, tpc_mask
from harness.core.boards import BOARDS as SPECS
from harness.core.boards import find_board, load_board
from harness.core.units import HZ_PER_KHZ

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module", params=PAIRS, ids=["-".join(pair) for pair in PAIRS])
def tree(request, tmp_path_factory):
    """Every board under every release of its own; tests of this module only read."""
    return build_board(tmp_path_factory.mktemp("board") / "root", *request.param)


def text(tree, name):
    return (tree.path / name).read_text().strip()


def test_every_board_of_the_spec_files_has_a_tree():
    untold = {"tx1"}  # of which nobody published how its kernel shows it
    jetsons = {name for name in SPECS if load_board(name).is_jetson}
    assert {VARIANTS.get(board, (board,))[0] for board in BOARDS} == jetsons - untold


def test_a_board_without_the_release_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nano with L4T r36"):
        build_board(tmp_path / "root", "nano", "r36.4")


def test_all_links_stay_below_the_root_and_lead_somewhere(tree):
    root = os.path.realpath(tree.root)
    links = [path for path in tree.path.rglob("*") if path.is_symlink()]
    assert links
    for link in links:
        assert not os.readlink(link).startswith("/"), link
        assert os.path.realpath(link).startswith(f"{root}/"), link
        assert link.exists(), link


def test_the_board_can_be_told_by_its_device_tree(tree):
    compatible = (tree.path / "proc/device-tree/compatible").read_bytes()
    model = (tree.path / "proc/device-tree/model").read_bytes()
    assert compatible.endswith(b"\0")
    assert model.endswith(b"\0")
    found = find_board(compatible.decode().rstrip("\0").split("\0"), model.decode().rstrip("\0"))
    assert (found.name, found.variant) == (tree.spec.name, tree.spec.variant)
    assert text(tree, "etc/nv_tegra_release").startswith(f"# R{tree.layout.l4t[1:3]} (release), REVISION: ")


def test_clocks_are_those_of_the_spec(tree):
    for policy in CpuFrequency(tree.root).policies():
        assert policy.levels_khz == tree.spec.clocks.cpu_khz
    node = tree.path / tree.layout.gpu_devfreq
    gpu_khz = [int(hz) // HZ_PER_KHZ for hz in (node / "available_frequencies").read_text().split()]
    assert tuple(gpu_khz) == tree.spec.clocks.gpu_khz
    emc_hz = Kernel(tree.root).state()["places"]["emc_table"]
    assert tuple(hz // HZ_PER_KHZ for hz in emc_hz) == tree.spec.clocks.mem_khz


def test_the_gpu_is_found_by_its_node_name_and_is_not_the_only_devfreq_device(tree):
    names = {}
    for link in (tree.path / DEVFREQ_CLASS).iterdir():
        node_name = link / "device/of_node/name"
        names[link.name] = node_name.read_text().rstrip("\0") if node_name.exists() else ""
    gpu = os.path.basename(tree.layout.gpu_devfreq)
    assert names[gpu] == tree.layout.gpu_node
    assert names["15340000.vic"] == "vic"
    assert os.path.realpath(tree.path / DEVFREQ_CLASS / gpu) == os.path.realpath(tree.path / tree.layout.gpu_devfreq)


def test_the_power_monitors_have_every_rail_of_the_spec(tree):
    if tree.layout.iio:
        labels = [path.read_text().strip() for path in tree.path.glob("sys/bus/i2c/devices/*/iio:device*/rail_name_*")]
    else:
        labels = [path.read_text().strip() for path in tree.path.glob("sys/class/hwmon/hwmon*/in[123]_label")]
        names = [path.read_text().strip() for path in tree.path.glob("sys/class/hwmon/hwmon*/name")]
        labels += ["VIN"] * names.count("ina238")
        assert "sum of shunt voltages" in {
            path.read_text().strip() for path in tree.path.glob("sys/class/hwmon/hwmon*/in7_label")
        }
    assert set(tree.spec.rails.labels) <= set(labels)


def test_the_conf_is_understood_and_has_the_stock_modes(tree):
    assert parse((tree.path / "etc/nvpmodel.conf").read_text()).notes == ()
    conf = Nvpmodel(tree.root).own_conf()
    assert [(model.id, model.name) for model in conf.models] == [(p.id, p.name) for p in tree.spec.presets]
    for model, preset in zip(conf.models, tree.spec.presets):
        limits = to_power_mode(conf, model)
        assert limits == (preset.cpu_cores, preset.cpu_khz, preset.gpu_khz, preset.mem_khz)
        assert online_cores(conf, model) == sorted(preset_cores(tree.spec, preset))
        assert bool(masks(model)) == bool(tree.layout.masks)
        assert tpc_mask(model) == (preset.tpc_pg_mask if "tpc_pg_mask" in tree.layout.masks else None)


def test_the_conf_names_files_that_are_there(tree):
    """By their own path, or by that for newer kernels where that is the one."""
    conf = parse((tree.path / "etc/nvpmodel.conf").read_text()).conf
    absent = tuple(Kernel(tree.root).state()["parked"])  # of clusters that are off
    absent += tuple(f"{CPU}/cpu{core}/" for core in DECLARED_TOO.get(tree.layout.board, ()))
    for param in conf.params:
        paths = {argument.name: (argument.path, argument.node) for argument in param.arguments}
        for name in paths:
            if not name.endswith("_KNEXT"):
                twins = [paths[other] for other in (name, f"{name}_KNEXT") if other in paths]
                there = [
                    list(tree.path.glob(f"{path[1:]}/hwmon*/{node}" if node else path[1:])) for path, node in twins
                ]
                assert any(there) or twins[0][0][1:].startswith(absent), (param.name, name)


def test_the_board_is_in_its_default_mode(tree):
    preset = next(preset for preset in tree.spec.presets if preset.name == tree.spec.default_preset)
    mode = tree.spec.preset_mode(preset)
    online = [core for cluster in tree.spec.cpu.clusters for core in cluster.cores][: preset.cpu_cores]
    for core in range(tree.spec.cpu_cores):
        switch = tree.path / CPU / f"cpu{core}/online"
        assert not switch.exists() or switch.read_text().strip() == str(int(core in online))
    assert text(tree, f"{CPU}/cpu0/cpufreq/scaling_max_freq") == str(mode.cpu_khz)
    listed = [khz for khz in tree.spec.clocks.gpu_khz if preset.gpu_khz is None or khz <= preset.gpu_khz]
    if not tree.spec.gpu_cap_rounds_up:
        assert text(tree, f"{tree.layout.gpu_devfreq}/max_freq") == str(listed[-1] * HZ_PER_KHZ)
    else:
        assert text(tree, f"{tree.layout.gpu_devfreq}/max_freq") == str(mode.gpu_khz * HZ_PER_KHZ)
    assert Kernel(tree.root).refusals == []


def test_the_sensors_of_any_linux_machine_are_found(tree):
    zones = thermal.open_source(tree.root).read(0.0)
    assert len(zones.values) + len(zones.failed) == len(tree.layout.zones)
    assert len(zones.failed) == len(tree.layout.dark_zones)
    assert "mmcblk0" in disk.open_source(tree.root, "/elsewhere").notes["diskstats"]
    if "ssd" in tree.spec.storage:
        assert "nvme0n1" in disk.open_source(tree.root, "/mnt/ssd/data").notes["diskstats"]


def test_paths_differ_from_release_to_release():
    def places(board):
        return {l4t: layout_of(board, l4t).gpu_devfreq for l4t in BOARDS[board]}

    assert places("orin-agx") == {
        "r35.4": "sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
        **dict.fromkeys(["r36.4", "r39.2"], "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu"),
    }
    assert spec_of(layout_of("orin-agx", "r35.4")).clocks.gpu_khz[0] == 114_750
    assert spec_of(layout_of("orin-agx", "r36.4")).clocks.gpu_khz[0] == 306_000
