"""Trees: complete for every board and release, and what their spec files say."""

from __future__ import annotations

import os

import pytest

from boards.kernel import Kernel
from boards.layouts import BOARDS, PAIRS, VARIANTS
from boards.processor_files import CPU
from boards.stock_conf import DECLARED_TOO, preset_cores
from boards.tree import build_board
from harness.board import power_rails
from harness.board.cpu_clocks import CpuFrequency
from harness.board.nvpmodel import Nvpmodel
from harness.board.nvpmodel_conf import parse
from harness.board.nvpmodel_modes import masks, online_cores, to_power_mode, tpc_mask
from harness.core.boards import BOARDS as SPECS
from harness.core.boards import find_board, load_board
from harness.core.units import HZ_PER_KHZ

pytestmark = pytest.mark.one_python


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


def test_all_links_stay_below_the_root_and_lead_somewhere(tree):
    root = os.path.realpath(tree.root)
    links = [path for path in tree.path.rglob("*") if path.is_symlink()]
    assert links
    for link in links:
        assert not os.readlink(link).startswith("/"), link
        assert os.path.realpath(link).startswith(f"{root}/"), link
        assert link.exists(), link


def test_the_board_can_be_told_and_its_clocks_and_rails_are_those_of_the_spec(tree):
    compatible, model = ((tree.path / "proc/device-tree" / name).read_text() for name in ("compatible", "model"))
    found = find_board(compatible.rstrip("\0").split("\0"), model.rstrip("\0"))
    assert (found.name, found.variant) == (tree.spec.name, tree.spec.variant)
    for policy in CpuFrequency(tree.root).policies():
        assert policy.levels_khz == tree.spec.clocks.cpu_khz
    gpu_hz = text(tree, f"{tree.layout.gpu_devfreq}/available_frequencies").split()
    assert tuple(int(hz) // HZ_PER_KHZ for hz in gpu_hz) == tree.spec.clocks.gpu_khz
    emc_hz = Kernel(tree.root).state()["places"]["emc_table"]
    assert tuple(hz // HZ_PER_KHZ for hz in emc_hz) == tree.spec.clocks.mem_khz
    rails = power_rails.open_source(tree.root).notes
    assert {f"power_{label.lower()}_mw" for label in tree.spec.rails.labels} <= set(rails)


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
    mode, online = tree.spec.preset_mode(preset), preset_cores(tree.spec, preset)
    for core in range(tree.spec.cpu_cores):
        switch = tree.path / CPU / f"cpu{core}/online"
        assert not switch.exists() or switch.read_text().strip() == str(int(core in online))
    assert text(tree, f"{CPU}/cpu0/cpufreq/scaling_max_freq") == str(mode.cpu_khz)
    listed = [khz for khz in tree.spec.clocks.gpu_khz if preset.gpu_khz is None or khz <= preset.gpu_khz]
    gpu_khz = mode.gpu_khz if tree.spec.gpu_cap_rounds_up else listed[-1]
    assert text(tree, f"{tree.layout.gpu_devfreq}/max_freq") == str(gpu_khz * HZ_PER_KHZ)
    assert Kernel(tree.root).refusals == []
