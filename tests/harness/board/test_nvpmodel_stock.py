"""Confs made off-board: the stock modes of every board, and any custom mode, come out as the spec files have them."""

from __future__ import annotations

import pytest

from harness.board.nvpmodel_conf import parse, write
from harness.board.nvpmodel_modes import clusters, custom_conf, stock_conf, to_power_mode, tpc_mask
from harness.core.boards import BOARDS, known_variants, load_board
from harness.core.errors import InvalidValueError

MODULES = [
    pytest.param(load_board(board, variant), id=f"{board}-{variant}")
    for board in BOARDS
    for variant in known_variants(board)
    if load_board(board, variant).presets  # of the others no stock conf was seen
]


@pytest.mark.parametrize("spec", MODULES)
def test_stock_modes_read_back_as_the_spec_has_them(spec):
    parsed = parse(write(stock_conf(spec)))
    assert parsed.notes == ()
    assert [(m.id, m.name, *to_power_mode(parsed.conf, m), tpc_mask(m)) for m in parsed.conf.models] == [
        (p.id, p.name, p.cpu_cores, p.cpu_khz, p.gpu_khz, p.mem_khz, p.tpc_pg_mask) for p in spec.presets
    ]
    assert parsed.conf.model(spec.default_preset).id == parsed.conf.default


@pytest.mark.parametrize("spec", MODULES)
def test_clusters_are_those_of_the_spec(spec):
    assert clusters(stock_conf(spec)) == [(cluster.name, cluster.cores) for cluster in spec.cpu.clusters]


@pytest.mark.parametrize("spec", MODULES)
def test_any_power_mode_of_the_board_can_be_made(spec):
    conf = stock_conf(spec)
    for mode in spec.power_mode_space().sample(8, seed=1):
        made = parse(write(custom_conf(conf, spec.default_preset, mode, "CUSTOM"))).conf
        assert to_power_mode(made, made.model("CUSTOM")) == mode
        assert tpc_mask(made.model("CUSTOM")) == tpc_mask(conf.model(spec.default_preset))


def test_what_is_not_known_off_board_is_refused_with_the_way_out():
    with pytest.raises(
        InvalidValueError, match=r"nvpmodel conf of thor is not known off-board; .*--base /etc/nvpmodel"
    ):
        stock_conf(load_board("thor"))


def test_newer_kernels_find_their_paths():
    conf = stock_conf(load_board("orin-agx"))
    paths = {argument.name: argument.path for argument in conf.param("GPU").arguments}
    assert paths["MAX_FREQ"] == "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq"
    assert paths["MAX_FREQ_KNEXT"] == "/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq"
