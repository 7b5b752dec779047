"""What nvpmodel's modes stand for, and custom modes: the numbers asked for, everything else as the board booted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.nvpmodel_conf import Conf, PowerModel, Setting, parse, write
from harness.board.nvpmodel_modes import (
    clusters,
    custom_conf,
    masks,
    online_cores,
    stock_conf,
    to_power_mode,
    tpc_mask,
)
from harness.core.boards import BOARDS, known_variants, load_board
from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from tests.harness.board.nvpmodel_samples import ORIN_AGX, SAMPLES, TX2, sample

CONFS = {board: parse(text).conf for board, (text, _, _) in SAMPLES.items()}
ORIN = CONFS["orin-agx"]


def changed(conf, name, **values):
    """A mode with other values, by argument: `CPU_A78_0__MAX_FREQ="1"`."""
    model = conf.model(name)
    lines = [setting._replace(value=values.get("__".join(setting[:2]), setting.value)) for setting in model.settings]
    return PowerModel(model.id, name, tuple(lines))


@pytest.mark.parametrize("value", ["-1", "0", "2147483647", "9223372036854775807"])
def test_no_limit_has_several_spellings(value):
    model = changed(ORIN, "MODE_15W", GPU__MAX_FREQ=value, EMC__MAX_FREQ=value)
    assert to_power_mode(ORIN, model) == (4, 1113600, None, None)


ON = ORIN.model("MODE_15W")


@pytest.mark.parametrize(
    ("conf", "model", "limits", "mask"),
    [
        pytest.param(ORIN, PowerModel(9, "EMPTY"), (None, None, None, None), None, id="nothing is set"),
        pytest.param(Conf((), ORIN.models, 0), ON, (4, 1113600, 408000, 2133000), 248, id="nothing is declared"),
        pytest.param(
            ORIN, changed(ORIN, "MODE_30W", CPU_A78_1__MAX_FREQ="2201600"), (8, 2201600, 612000, None), 240,
            id="the highest cluster that runs counts",
        ),
        pytest.param(
            ORIN, changed(ORIN, "MODE_30W", CPU_A78_1__MAX_FREQ="-1"), (8, None, 612000, None), 240, id="a free one",
        ),
        pytest.param(
            ORIN, PowerModel(1, "M", (*ON.settings, Setting("CPU_A78_2", "MAX_FREQ", "2201600"))),
            (4, 1113600, 408000, 2133000), 248, id="one that is off counts for nothing",
        ),
        pytest.param(
            ORIN, changed(ORIN, "MODE_15W", TPC_POWER_GATING__TPC_PG_MASK="0xfc"), (4, 1113600, 408000, 2133000), 252,
            id="a mask in hexadecimal",
        ),
    ],
)  # fmt: skip
def test_a_mode_stands_for_what_its_lines_limit(conf, model, limits, mask):
    assert (to_power_mode(conf, model), tpc_mask(model)) == (limits, mask)


def test_masks_are_all_that_gate_power():
    assert masks(CONFS["orin-nano"].model("25W")) == {"FBP_PG_MASK": "0", "TPC_PG_MASK": "240"}


def test_a_number_that_is_none_is_named():
    expected = r"power mode MODE_15W: '.* fast' is not understood; expected: a whole number"
    with pytest.raises(InvalidValueError, match=expected):
        to_power_mode(ORIN, changed(ORIN, "MODE_15W", GPU__MAX_FREQ="fast"))
    with pytest.raises(InvalidValueError, match=expected):
        tpc_mask(changed(ORIN, "MODE_15W", TPC_POWER_GATING__TPC_PG_MASK="fast"))


def test_a_cluster_may_lie_between_the_cores_of_another():
    conf = parse(TX2).conf
    assert clusters(conf) == [("CPU_A57", (0, 3, 4, 5)), ("CPU_DENVER", (1, 2))]
    assert online_cores(conf, conf.model("MAXN")) == [0, 1, 2, 3, 4, 5]
    assert online_cores(conf, conf.model("MAXP_CORE_ARM")) == [0, 3, 4, 5]
    five = custom_conf(conf, "MAXN", PowerMode(5, 345600, 114750, 800000), "FIVE")
    assert online_cores(five, five.model("FIVE")) == [0, 1, 3, 4, 5]


# Custom modes

boards = st.sampled_from(sorted(SAMPLES))
clocks = st.integers(1, 3_199_000)


@st.composite
def requests(draw):
    """A board, one of its modes as the booted one, and any power mode with as many cores as the board has."""
    board = draw(boards)
    _, modes, _ = SAMPLES[board]
    cores = draw(st.integers(1, max(mode[2] for mode in modes)))
    return board, draw(st.sampled_from(modes))[1], PowerMode(cores, draw(clocks), draw(clocks), draw(clocks))


@given(requests())
def test_a_custom_mode_stands_for_what_was_asked_and_is_otherwise_the_booted_one(request_):
    board, booted, mode = request_
    before = CONFS[board]
    conf = custom_conf(before, booted, mode, "CUSTOM")
    base, model = before.model(booted), conf.model("CUSTOM")
    assert to_power_mode(conf, model) == mode
    assert parse(write(conf)).conf == conf
    assert conf.models[:-1] == before.models
    assert (conf.params, conf.default, conf.others) == (before.params, before.default, before.others)
    assert model.id not in {other.id for other in before.models}

    def others(settings):
        return [one for one in settings if not one.param.startswith(("CPU_", "EMC")) and one.param != "GPU"]

    def params_in_order(settings):
        return list(dict.fromkeys("CPU" if one.param.startswith("CPU_") else one.param for one in settings))

    assert masks(model) == masks(base)
    assert others(model.settings) == others(base.settings)
    assert params_in_order(model.settings) == params_in_order(base.settings)
    for setting in model.settings:
        if setting.argument == "MIN_FREQ":
            of_first = base.value(clusters(before)[0].param, "MIN_FREQ")
            least = int(base.value(setting.param, "MIN_FREQ") or of_first)
            assert int(setting.value) == min(least, int(model.value(setting.param, "MAX_FREQ")))


@given(requests())
def test_cores_are_switched_on_from_core_0_and_clusters_that_are_off_have_no_clock(request_):
    board, booted, mode = request_
    conf = custom_conf(CONFS[board], booted, mode, "CUSTOM")
    model = conf.model("CUSTOM")
    assert online_cores(conf, model) == list(range(mode.cpu_cores))
    total = max(cluster.cores[-1] for cluster in clusters(conf)) + 1
    switches = [setting for setting in model.settings if setting.param == "CPU_ONLINE"]
    assert [setting.value for setting in switches] == [str(int(core < mode.cpu_cores)) for core in range(total)]
    clocked = [cluster for cluster in clusters(conf) if model.value(cluster.param, "MAX_FREQ") is not None]
    assert clocked == [cluster for cluster in clusters(conf) if cluster.cores[0] < mode.cpu_cores]


def test_a_minimum_without_limit_follows_the_maximum():
    pinned = Conf(ORIN.params, (changed(ORIN, "MODE_30W", CPU_A78_0__MIN_FREQ="-1"),), 2)
    model = custom_conf(pinned, "MODE_30W", PowerMode(8, 1113600, 612000, 3199000), "C").model("C")
    assert model.value("CPU_A78_0", "MIN_FREQ") == "1113600"


def test_lines_for_the_next_kernel_are_set_alike():
    text = ORIN_AGX.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ 408000000\nGPU MAX_FREQ_KNEXT 408000000")
    text = text.replace("CPU_A78_0 MAX_FREQ 1113600", "CPU_A78_0 MAX_FREQ 1113600\nCPU_A78_0 MIN_FREQ_KNEXT 729600")
    model = custom_conf(parse(text).conf, "MODE_15W", PowerMode(6, 115200, 306000, 204000), "C").model("C")
    assert model.value("GPU", "MAX_FREQ_KNEXT") == model.value("GPU", "MAX_FREQ") == "306000000"
    for param in ("CPU_A78_0", "CPU_A78_1"):
        assert model.value(param, "MIN_FREQ_KNEXT") == "115200"


def test_a_clock_that_is_not_known_stays_as_booted():
    mode = PowerMode(8, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ)
    conf = custom_conf(ORIN, "MODE_15W", mode, "C")
    assert to_power_mode(conf, conf.model("C")) == (8, 1113600, 408000, 2133000)


def test_lines_that_the_booted_mode_lacks_are_put_where_they_belong():
    kept = [s for s in ORIN.model("MODE_15W").settings if s.param.startswith(("TPC", "GPU_", "DLA"))]
    bare = Conf(ORIN.params, (PowerModel(0, "BARE", tuple(kept)),), 0)
    conf = custom_conf(bare, "BARE", PowerMode(4, 1113600, 408000, 2133000), "C")
    model = conf.model("C")
    assert to_power_mode(conf, model) == (4, 1113600, 408000, 2133000)
    order = list(dict.fromkeys(setting.param for setting in model.settings))
    assert order.index("CPU_ONLINE") < order.index("CPU_A78_0") < order.index("GPU")
    assert order.index("GPU") < order.index("GPU_POWER_CONTROL_DISABLE") < order.index("EMC")


def test_the_id_can_be_chosen_and_is_never_one_that_is_taken():
    mode = PowerMode(4, 1113600, 408000, 2133000)
    assert custom_conf(ORIN, "MAXN", mode, "C", model_id=77).model("C").id == 77
    alone = custom_conf(ORIN, "MAXN", mode, "C", alone=True)
    assert (len(alone.models), alone.default) == (1, alone.models[0].id)
    with pytest.raises(InvalidValueError, match="has a mode with ID 3 already"):
        custom_conf(ORIN, "MAXN", mode, "C", model_id=3)


@pytest.mark.parametrize(
    ("cores", "name", "message"),
    [
        (0, "C", r"0 CPU cores of power mode .* are not possible with this conf; it has 1 to 12"),
        (13, "C", r"13 CPU cores .*1 to 12"),
        (4, "MAXN", "this conf has a mode MAXN already"),
        (4, "two words", "'two words' cannot be the name of an nvpmodel mode"),
        (4, "", "'' cannot be the name"),
    ],
)
def test_what_cannot_be_is_refused(cores, name, message):
    with pytest.raises(InvalidValueError, match=message):
        custom_conf(ORIN, "MAXN", PowerMode(cores, 1113600, 408000, 2133000), name)


@pytest.mark.parametrize(
    ("param", "clock"), [("GPU", "no PARAM GPU"), ("EMC", "no PARAM EMC"), ("CPU_A78", "no CPU clock")]
)
def test_a_conf_without_a_clock_cannot_set_it(param, clock):
    params = tuple(each for each in ORIN.params if not each.name.startswith(param) or each.name.startswith("GPU_"))
    settings = tuple(s for s in ORIN.model("MAXN").settings if not s.param.startswith(param))
    conf = Conf(params, (PowerModel(0, "MAXN", settings),), 0)
    with pytest.raises(InvalidValueError, match=f"{clock}.* 4c-"):
        custom_conf(conf, "MAXN", PowerMode(4, 1113600, 408000, 2133000), "C")


# -- cores that a conf declares and the board does not have (AGX Orin 32GB) --------------------------------------------

DECLARES_TWELVE = parse(sample("orin-agx-32gb", "r36.4")[0]).conf
HAS_EIGHT = DECLARES_TWELVE._replace(cores=tuple(range(8)))


def test_cores_that_are_not_there_are_in_no_mode_and_in_no_cluster():
    assert [to_power_mode(HAS_EIGHT, model)[:2] for model in HAS_EIGHT.models] == [
        (8, None), (4, 1_113_600), (8, 1_728_000), (8, 1_497_600)
    ]  # fmt: skip
    assert online_cores(HAS_EIGHT, HAS_EIGHT.model("MODE_15W")) == [0, 1, 2, 3]
    assert clusters(HAS_EIGHT) == [("CPU_A78_0", (0, 1, 2, 3)), ("CPU_A78_1", (4, 5, 6, 7))]


def test_what_is_not_there_is_set_as_the_boards_own_mode_sets_it_and_else_left_alone():
    mode = PowerMode(5, 729600, 306000, 665600)
    own = HAS_EIGHT.model("MODE_30W")
    made = custom_conf(HAS_EIGHT, "MODE_30W", mode, "C")
    assert write(made).count("cpu11/online") == 1  # its section stands as before, or nvpmodel's helper refuses it
    assert {one.argument for one in made.model("C").settings if one.param == "CPU_ONLINE"} == {
        f"CORE_{core}" for core in range(8)
    }
    assert to_power_mode(made, made.model("C")) == mode
    names_it = HAS_EIGHT._replace(
        models=(own._replace(settings=(Setting("CPU_ONLINE", "CORE_8", "0"), *own.settings)),)
    )
    named = custom_conf(names_it, "MODE_30W", mode, "C").model("C")
    assert named.value("CPU_ONLINE", "CORE_8") == "0"
    assert named.value("CPU_ONLINE", "CORE_9") is None
    with pytest.raises(InvalidValueError, match="it has 1 to 8"):
        custom_conf(HAS_EIGHT, "MAXN", PowerMode(9, 729600, 306000, 665600), "C")


# -- stock modes, made off-board from the spec files -------------------------------------------------------------------

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
    assert clusters(parsed.conf) == [(cluster.name, cluster.cores) for cluster in spec.cpu.clusters]


def test_what_is_not_known_off_board_is_refused_with_the_way_out():
    with pytest.raises(InvalidValueError, match=r"thor .*--base /etc/nvpmodel"):
        stock_conf(load_board("thor"))


def test_newer_kernels_find_their_paths():
    conf = stock_conf(load_board("orin-agx"))
    paths = {argument.name: argument.path for argument in conf.param("GPU").arguments}
    assert paths["MAX_FREQ"] == "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq"
    assert paths["MAX_FREQ_KNEXT"] == "/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq"
