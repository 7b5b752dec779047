"""GPU and memory clocks: found under every release's names, and what only root may see is not taken for absent."""

from __future__ import annotations

import pytest

from harness.board import gpu as gpu_module
from harness.core.errors import SourceUnavailableError

BPMP = "sys/kernel/debug/bpmp/debug/clk/emc/rate"


def gpu(node, name, hz=1_300_500_000, load=735):
    directory = f"sys/class/devfreq/{node}"
    files = {f"{directory}/cur_freq": hz, f"{directory}/device/of_node/name": f"{name}\0"}
    return files if load is None else {**files, f"{directory}/device/load": load}


@pytest.mark.parametrize(
    ("node", "name", "emc"),
    [
        ("57000000.gpu", "gpu", "sys/kernel/debug/tegra_bwmgr/emc_rate"),
        ("57000000.gpu", "gm20b", "sys/kernel/debug/clk/override.emc/clk_rate"),
        ("17000000.gp10b", "gp10b", BPMP),
        ("17000000.gv11b", "gv11b", BPMP),
        ("17000000.ga10b", "ga10b", BPMP),
        ("17000000.gpu", "gpu", BPMP),
    ],
)
def test_every_release_is_found(tree, node, name, emc):
    tree.write({**gpu(node, name), emc: 2_133_000_000})
    tree.write(
        gpu("15340000.vic", "vic", hz=1),
    )
    assert gpu_module.open_source(tree.root).read(0.0) == (
        {"gpu_khz": 1_300_500, "gpu_load_share": 0.735, "emc_khz": 2_133_000},
        {},
    )


def test_the_notes_say_where_from(tree):
    tree.write(gpu("17000000.ga10b", "ga10b"))
    notes = gpu_module.open_source(tree.root).notes
    assert notes["gpu_khz"] == f"{tree.root}/sys/class/devfreq/17000000.ga10b/cur_freq"


def test_what_is_not_there_is_named_at_every_reading(tree):
    tree.write(gpu("17000000.ga10b", "ga10b", load=None))
    values, failed = gpu_module.open_source(tree.root).read(0.0)
    assert values == {"gpu_khz": 1_300_500}
    assert "device/load does not exist" in failed["gpu_load_share"]
    assert set(failed) == {"gpu_load_share", "emc_khz"}


@pytest.mark.parametrize("broken", ["", "asleep"])
def test_a_gpu_that_is_asleep_fails_alone_and_wakes_up(tree, broken):
    tree.write({**gpu("17000000.ga10b", "ga10b"), BPMP: 204_000_000})
    source = gpu_module.open_source(tree.root)
    tree.write({"sys/class/devfreq/17000000.ga10b/device/load": broken})
    values, failed = source.read(0.0)
    assert values == {"gpu_khz": 1_300_500, "emc_khz": 204_000}
    assert list(failed) == ["gpu_load_share"]
    tree.write({"sys/class/devfreq/17000000.ga10b/device/load": 10})
    assert source.read(1.0).values["gpu_load_share"] == 0.01


def test_the_clocks_of_thor_are_never_read(tree):
    """Reading them may hang for ever: here a reading would fail, because they are no files."""
    tree.write({BPMP: 4_266_000_000})
    for node in ("gpu-gpc-0", "gpu-nvd-0", "bwmgr"):
        tree.write({f"sys/class/devfreq/{node}/device/of_node/name": "gpu\0"})
        (tree.path / f"sys/class/devfreq/{node}/cur_freq").mkdir()
    values, failed = gpu_module.open_source(tree.root).read(0.0)
    assert values == {"emc_khz": 4_266_000}
    assert list(failed) == ["gpu_khz"]
    assert "reported to hang" in failed["gpu_khz"]


def test_memory_clock_behind_roots_door_says_so(tree, plain_user):
    sysfs = plain_user / "sys"
    node = sysfs / "class/devfreq/17000000.ga10b"
    for name, text in {"cur_freq": "1300500000", "device/load": "0", "device/of_node/name": "ga10b"}.items():
        (node / name).parent.mkdir(parents=True, exist_ok=True)
        (node / name).write_text(text)
    (sysfs / "kernel/debug").mkdir(parents=True)
    (sysfs / "kernel/debug").chmod(0)
    values, failed = gpu_module.open_source(str(plain_user)).read(0.0)
    assert values == {"gpu_khz": 1_300_500, "gpu_load_share": 0.0}
    assert failed == {"emc_khz": f"{sysfs}/kernel/debug is for root only; jtop tells the clock to all"}
    (sysfs / "kernel/debug").chmod(0o755)
    rate = plain_user / BPMP
    rate.parent.mkdir(parents=True)
    rate.write_text("1")
    rate.chmod(0)
    assert "emc/rate is for root only" in gpu_module.open_source(str(plain_user)).read(0.0).failed["emc_khz"]


def test_without_gpu_and_memory_clock_the_reasons_are_given(tree):
    tree.write({"sys/kernel/debug/README": ""})
    with pytest.raises(SourceUnavailableError, match=r"gpu_khz: no GPU is registered.*emc_khz: there is no clock"):
        gpu_module.open_source(tree.root)
