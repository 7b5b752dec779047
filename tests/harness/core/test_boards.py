"""Board files: each is sound, says what the papers say, tells its boards apart; a wrong file is named with its key."""

from __future__ import annotations

import copy
import functools
import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.boards import BOARDS, Preset, find_board, known_variants, load_board
from harness.core.errors import CannotRunError, HarnessError, UnknownNameError
from harness.core.files import read_toml
from harness.core.power_modes import PowerMode

EVERY_MODULE = [(name, variant) for name in BOARDS for variant in known_variants(name)]
WITH_CLOCKS = [(name, variant) for name, variant in EVERY_MODULE if name not in ("thor", "tx1")]


@pytest.mark.parametrize(("name", "variant"), EVERY_MODULE)
def test_a_board_file_is_sound(name, variant):
    spec = load_board(name, variant)
    assert (spec.name, spec.variant) == (name, variant)
    assert spec.product.startswith(("NVIDIA Jetson ", "NVIDIA IGX ")) == spec.is_jetson
    assert spec.gpu.cuda_cores >= 128 or spec.gpu.cuda_cores == spec.clocks.gpu_khz[0] == 0
    assert spec.memory.bytes % 2**30 == 0
    assert 5_000 <= spec.peak_power_mw <= (130_000 if spec.is_jetson else 600_000)
    assert set(spec.storage) <= {"emmc", "sd", "ssd", "hdd", "esata"}
    assert set(spec.rails.total) <= set(spec.rails.labels) != set()
    assert spec.rails.total
    assert sorted(core for cluster in spec.cpu.clusters for core in cluster.cores) == list(range(spec.cpu_cores))
    for clock in ("cpu_khz", "gpu_khz", "mem_khz", "newer_gpu_khz", "older_gpu_khz"):
        clocks = (-1, *getattr(spec.clocks, clock))
        assert clocks[1:] == (0,) or 0 not in clocks
        assert all(low < high for low, high in zip(clocks, clocks[1:]))
    assert set(spec.clocks.incomplete) <= {"cpu_khz", "gpu_khz", "mem_khz"}
    if any(spec.clocks.mem_khz):  # what bus and clock allow
        peak = spec.memory.bus_bits // 8 * 2 * spec.clocks.mem_khz[-1] * 1000
        assert spec.memory.bandwidth_bytes_per_s == pytest.approx(peak, rel=0.01)
    names = [preset.name.lower() for preset in spec.presets]
    assert len(set(names)) == len(names)
    assert all(1 <= preset.cpu_cores <= spec.cpu_cores for preset in spec.presets)
    assert {spec.default_preset.lower(), spec.papers_mode.lower()} <= {"", *names}
    for number in spec.part_numbers:
        assert find_board([f"nvidia,p0000-0000+{number}", *spec.marks]) == spec, "no other has its number"


def test_a_variant_can_be_told_from_others_and_ranges_of_clocks_end_where_they_say():
    for name in BOARDS:
        content = read_toml(BOARDS[name])
        assert all({"part_numbers", "marks"} & set(own) for own in content.get("variants", {}).values())
        for table in (content, *content.get("variants", {}).values()):
            for entry in itertools.chain.from_iterable(table.get("clocks", {}).values()):
                if isinstance(entry, dict):
                    assert (entry["to"] - entry["from"]) % entry["step"] == 0


@pytest.mark.parametrize(
    ("name", "count", "cores", "cpu", "gpu", "mem"),
    [("orin-agx", 18_096, 12, 29, 13, 4), ("xavier-agx", 29_232, 8, 29, 14, 9), ("orin-nano", 1_800, 6, 20, 5, 3)],
)
def test_spaces_are_as_large_as_the_papers_count_them(name, count, cores, cpu, gpu, mem):
    """001 Table 2."""
    space = load_board(name).power_mode_space()
    assert len(space) == count
    assert [len(values) for values in space.dimensions] == [cores, cpu, gpu, mem]


@pytest.mark.parametrize(("name", "variant"), WITH_CLOCKS)
def test_every_name_stands_for_a_mode_that_some_release_allows(name, variant):
    spec = load_board(name, variant)
    modes = spec.modes_by_name()
    assert modes.pop("maxn") == spec.power_mode_space().greatest
    assert all(mode in spec.any_release_space() for mode in modes.values())
    assert modes.get("MAXN", spec.power_mode_space().greatest) == spec.power_mode_space().greatest


def test_clocks_that_a_tx2_listed_under_its_first_releases_are_modes_of_it():
    text = "6c-2035.2-140.25-1866"
    assert load_board("tx2").power_modes(text) == [(text, PowerMode(6, 2_035_200, 140_250, 1_866_000))]


def test_presets_of_an_orin_agx_are_the_clocks_of_their_caps():
    """The caps of its file are clocks of later releases, which list others than the papers' JetPack 5.0."""
    named = load_board("orin-agx").modes_by_name()
    assert named["MODE_15W"] == PowerMode(4, 1_113_600, 408_000, 2_133_000)
    assert named["MODE_30W"] == PowerMode(8, 1_728_000, 612_000, 3_199_000)
    assert named["MODE_50W"] == PowerMode(12, 1_497_600, 816_000, 3_199_000)
    assert [preset.tpc_pg_mask for preset in load_board("orin-agx").presets] == [0, 248, 240, 0]


def test_a_cap_between_two_clocks_means_the_lower_one_but_for_the_gpu_of_older_boards():
    xavier = load_board("xavier-agx").modes_by_name()
    assert xavier["MODE_30W_6CORE"] == PowerMode(6, 1_420_800, 905_250, 1_600_000)  # caps 1450, 900 and 1600 MHz
    assert load_board("tx2").modes_by_name()["MAXQ"].gpu_khz == 854_250  # cap 850 MHz, 854 in NVIDIA's own words
    assert load_board("nano").modes_by_name()["5W"] == PowerMode(2, 825_600, 614_400, 1_600_000)  # caps 918 and 640


def test_modes_a_to_n_are_those_of_the_papers_table():
    """004 Table 3, whose MHz are rounded: each is the nearest allowed clock."""
    named = load_board("xavier-agx").modes_by_name()
    letters = "abcdefghijklmn"
    assert [name for name in named if len(name) == 1] == list(letters)
    assert named["a"] == named["MODE_15W"] == PowerMode(4, 1_190_400, 675_750, 1_331_200)
    assert named["g"] == named["MAXN"]
    changed = {"ab": 0, "bc": 2, "cd": 3, "de": 1, "ef": 0, "gh": 3, "hi": 3, "ij": 3, "kl": 0, "lm": 1, "mn": 2}
    for (one, other), dimension in changed.items():  # one resource is changed at a time (004 sec. 5.6)
        differ = [a != b for a, b in zip(named[one], named[other])]
        assert differ == [place == dimension for place in range(4)], (one, other)
    for name, printed in load_board("xavier-agx").named_modes.items():
        assert all(abs(a - b) <= 0.02 * b for a, b in zip(named[name], printed)), name


@pytest.mark.parametrize(
    ("name", "mode", "only_fall"),
    [("orin-agx", "MAXN", True), ("xavier-agx", "MAXN", False), ("xavier-nx", "MODE_15W_6CORE", None)],
)
def test_the_papers_took_these_modes_as_default_and_found_that_clocks_only_fall_here(name, mode, only_fall):
    """004 sec. 4.4; 001 sec. 2.5 and 004 sec. 5.6."""
    assert (load_board(name).papers_mode, load_board(name).clocks_only_fall) == (mode, only_fall)


def test_the_32_gb_orin_is_the_same_board_with_fewer_cores():
    small, large = load_board("orin-agx", "32gb"), load_board("orin-agx")
    assert (small.name, small.cpu_cores, small.gpu.cuda_cores) == ("orin-agx", 8, 1792)
    assert (large.cpu_cores, large.variant) == (12, "64gb")
    assert small.memory.bytes * 2 == large.memory.bytes
    assert small.memory.technology == large.memory.technology
    assert [preset.name for preset in small.presets] == ["MAXN", "MODE_15W", "MODE_30W", "MODE_40W"]


def test_an_agx_orins_total_leaves_out_the_rail_that_is_counted_already():
    rails = load_board("orin-agx").rails
    assert set(rails.labels) - set(rails.total) == {"VDDQ_VDD2_1V8AO"}


def test_a_board_whose_clocks_are_not_known_says_so():
    assert load_board("orin-agx").gap == ""
    assert "mem_khz" in load_board("xavier-nx").gap
    thor = load_board("thor")
    assert "cpu_khz, gpu_khz, mem_khz" in thor.gap
    for ask in (thor.power_mode_space, thor.any_release_space, thor.modes_by_name, lambda: thor.power_modes("maxn")):
        with pytest.raises(CannotRunError, match=r"thor .*off-board.*on the board"):
            ask()


@pytest.mark.parametrize(
    ("compatible", "model", "found"),
    [
        (["nvidia,p3737-0000+p3701-0005", "nvidia,tegra234"], "NVIDIA Jetson AGX Orin Developer Kit", "orin-agx 64gb"),
        (["nvidia,p3701-0001"], "", "orin-agx 64gb"),  # a module that no file knows, of a family that one does
        (["nvidia,p2371-2180", "nvidia,tegra210"], "NVIDIA Jetson TX1 Developer Kit", "tx1 4gb"),
        (["nvidia,p3768-0000+p3767-0001-super"], "", "orin-nx 8gb-super"),
        (["nvidia,p3767-0005"], "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "orin-nano super"),
        # Seen: an Orin Nano whose carrier's device tree calls it an Orin NX.
        (["nvidia,p3767-0003"], "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "orin-nano 8gb"),
        (["nvidia,p2972-0000", "nvidia,tegra194"], "Jetson-AGX", "xavier-agx 32gb"),
        (["nvidia,quill", "nvidia,tegra186"], "quill", "tx2 8gb"),
        (["raspberrypi,5-model-b"], "Raspberry Pi 5 Model B Rev 1.0", None),
        ([], "", None),
    ],
)
def test_a_board_is_told_by_its_part_number_then_by_its_model(compatible, model, found):
    spec = find_board(compatible, model)
    assert (spec and f"{spec.name} {spec.variant}") == found


def test_unknown_boards_and_variants_are_told_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=f"available: {', '.join(BOARDS)}"):
        load_board("orin")
    with pytest.raises(UnknownNameError, match="available: 64gb, devkit-32gb, igx, industrial, 32gb"):
        load_board("orin-agx", "16gb")


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (["wings"], 2, "key 'wings' of the file is unknown; available: name, variant, product"),
        (["product"], None, "key 'product' of the file is missing"),
        (["product"], 3, "product of the file is 3, expected a text"),
        (["peak_power_mw"], True, "peak_power_mw of the file is True, expected a whole number"),
        (["storage"], "emmc", "storage of the file is 'emmc', expected a list"),
        (["clocks_only_fall"], 1, "clocks_only_fall of the file is 1, expected true or false"),
        (["gpu", "cuda_cores"], None, "key 'cuda_cores' of gpu of the file is missing"),
        (["cpu", "speed"], 3, "key 'speed' of cpu of the file is unknown; available: name, clusters"),
        (["clocks", "cpu_khz"], [1.5], "clocks.cpu_khz[0] of the file is 1.5, expected a whole number"),
        (["presets"], {}, "presets of the file is {}, expected a list"),
        (["presets", 1, "clock"], 1, "key 'clock' of presets[1] of the file is unknown; available: id, name"),
        (["named_modes"], {"a": [4]}, "named_modes[...] of the file is {'a': [4]}, expected a list of length 4"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(monkeypatch, path, value, named):
    *tables, key = path
    content = copy.deepcopy(read_toml(BOARDS["orin-agx"]))
    table = functools.reduce(operator.getitem, tables, content)
    table.update({key: value})
    if value is None:
        del table[key]
    monkeypatch.setattr("harness.core.boards._content", lambda name: content)
    with pytest.raises(HarnessError) as refused:
        load_board.__wrapped__("orin-agx")
    assert named.replace("the file", f"board file {BOARDS['orin-agx']}") in str(refused.value)


@given(st.integers(1, 3_000_000), st.sampled_from(["cpu_khz", "gpu_khz", "mem_khz"]))
def test_a_cap_is_never_exceeded_by_more_than_the_next_clock(cap, clock):
    for name in ("orin-agx", "xavier-agx"):
        spec = load_board(name)
        allowed = getattr(spec.any_release_space(), clock)
        khz = getattr(spec.preset_mode(Preset(0, "X", 1, **{clock: cap})), clock)
        rounds_up = spec.gpu_cap_rounds_up and clock == "gpu_khz"
        between = [other for other in allowed if min(khz, cap) < other < max(khz, cap)]
        assert not between
        assert rounds_up or khz <= cap or khz == allowed[0]
        assert not rounds_up or khz >= cap or khz == allowed[-1]
