"""The parameter files: every value says where it comes from, and what is wrong with a file is said by name."""

import pytest

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.simulation import parameters
from harness.simulation.parameters import load_board_parameters, load_physics, load_workload_parameters, read_entries
from tools.fit import parameter_files, read_free_parameters

FILES = sorted(parameter_files().values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_says_where_it_comes_from(path):
    assert all(entry.origin.strip() for entry in read_entries(path).values())
    assert all(entry.value >= 0 for key, entry in read_entries(path).items() if key != "variant")


def test_every_file_can_be_read():
    load_physics()
    assert load_board_parameters("orin-agx").spec.memory.bytes == 32 * 2**30  # the papers' kit
    assert [load_board_parameters(name).name for name in parameters.BOARD_FILES] == list(parameters.BOARD_FILES)
    assert [load_workload_parameters(name).name for name in parameters.WORKLOAD_FILES] == list(
        parameters.WORKLOAD_FILES
    )


def test_what_follows_from_another_entry_has_its_value():
    def values(kind, name):
        return read_entries(parameter_files()[kind, name])

    _, ties = read_free_parameters()
    for tie in ties:
        expected = values(*tie.source)[tie.key].value * tie.times
        assert values(*tie.owner)[tie.key].value == pytest.approx(expected, rel=1e-3), tie


@pytest.mark.parametrize("load", [load_board_parameters, load_workload_parameters])
def test_an_unknown_name_is_refused_with_the_known_ones(load):
    with pytest.raises(UnknownNameError, match=r"available: .*(nano|lenet-mnist)"):
        load("abacus")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("wol_mw = { value = 900.0,", "wol_mw = { value = 900.0, worth = 1.0,"), "key 'worth' of .* is unknown"),
        (('900.0, origin = "F1027"', "900.0"), "key 'origin' of .* is missing"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(tmp_path, monkeypatch, change, said):
    text = parameters.BOARD_FILES["nano"].read_text()
    assert change[0] in text
    wrong = tmp_path / "nano.toml"
    wrong.write_text(text.replace(*change))
    monkeypatch.setitem(parameters.BOARD_FILES, "nano", wrong)
    load_board_parameters.cache_clear()
    try:
        with pytest.raises((InvalidValueError, UnknownNameError), match=said) as caught:
            load_board_parameters("nano")
        assert str(wrong) in str(caught.value)
    finally:
        load_board_parameters.cache_clear()
