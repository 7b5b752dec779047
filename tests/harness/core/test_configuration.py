"""Places: names map to directories, the command line goes first, a missing place says how to name it."""

from __future__ import annotations

import os
import tempfile

import pytest

from harness.core.configuration import DEFAULT_DATA_DIRECTORY, Configuration, load_configuration
from harness.core.errors import CannotRunError, HarnessError


def test_a_name_maps_to_its_mount_point_and_the_command_line_goes_first(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    file = tmp_path / "jetwatt.toml"
    file.write_text(f'data_root = "{tmp_path / "old"}"\n[storage]\nsd = "{tmp_path / "old"}"\n')
    assert load_configuration(file).data_directory("sd") == tmp_path / "old" / "jetwatt-data"
    configuration = load_configuration(file, {"sd": str(tmp_path / "new")}, str(tmp_path / "new"))
    assert configuration.storage["sd"] == configuration.data_root == tmp_path / "new"


def test_without_a_file_the_default_storage_is_the_working_directory(tmp_path):
    configuration = load_configuration(tmp_path / "absent.toml")
    assert configuration.data_directory("ssd") == DEFAULT_DATA_DIRECTORY
    assert configuration.is_default_place("ssd")
    assert not Configuration(storage={"ssd": tmp_path}).is_default_place("ssd")


def test_in_a_place_for_all_users_each_has_a_folder_of_its_own(tmp_path, monkeypatch):
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"jetwatt-data-{os.getuid()}"
    assert Configuration().data_directory("disk") == Configuration({"card": tmp_path}).data_directory("card") == own


def test_a_medium_whose_reads_are_held_down_lies_where_it_lies(tmp_path):
    configuration = load_configuration(tmp_path / "absent.toml", {"hdd@20": str(tmp_path), "sd": str(tmp_path)})
    assert configuration.data_directory("hdd") == configuration.data_directory("sd@5") == tmp_path / "jetwatt-data"
    assert not configuration.is_default_place("sd@5")
    assert configuration.data_directory("ssd@20") == DEFAULT_DATA_DIRECTORY
    assert configuration.is_default_place("ssd@20")


def test_a_medium_has_one_place(tmp_path):
    (tmp_path / "card").mkdir()
    with pytest.raises(HarnessError, match="storage sd has two directories"):
        load_configuration(tmp_path / "absent.toml", {"sd": str(tmp_path), "sd@20": str(tmp_path / "card")})


def test_a_storage_without_a_place_says_how_to_name_one():
    with pytest.raises(CannotRunError, match=r"--storage hdd=/mount/point.*doctor"):
        Configuration().data_directory("hdd")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[storage]\nsd = 3", "storage.* is .*'sd': 3.*, expected a text"),
        ("colour = 3", "key 'colour' of .* is unknown; available: storage, data_root"),
        ("[storage", "not a readable TOML file"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, text, words):
    file = tmp_path / "jetwatt.toml"
    file.write_text(text)
    with pytest.raises(HarnessError, match=words):
        load_configuration(file)


def test_an_unmounted_medium_stops_its_own_cases_only_but_a_place_just_typed_must_exist(tmp_path):
    file = tmp_path / "jetwatt.toml"
    file.write_text('[storage]\nsd = "/no/such/place"\n')
    configuration = load_configuration(file)
    assert configuration.data_directory("ssd")
    with pytest.raises(CannotRunError, match=r"/no/such/place.*mount it"):
        configuration.data_directory("sd")
    with pytest.raises(HarnessError, match="sd is '/no/such/place'"):
        load_configuration(file, {"sd": "/no/such/place"})
