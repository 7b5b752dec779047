"""Which commands make the environment, and what is said where it cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import DependencyError, HarnessError, UnknownNameError
from harness.install.plan import BYTES_PER_GB, EXTRAS, Facts, Request, make_plan

REQUEST = Request(Path("/clone"), Path("/clone/.venv"), ("train", "dev"), "/usr/bin/python3.10", (3, 10))
HOST = Facts(
    board="",
    has_venv=True,
    visible={},
    reusable=False,
    has_torch=False,
    free_bytes=100 * BYTES_PER_GB,
    free_for_downloads_bytes=None,
)
BOARD = HOST._replace(
    board="R36 (release), REVISION: 4.0", visible={"torch": "2.3.0a0+git1", "torchvision": "0.18.0a0"}
)


def commands(plan):
    return [" ".join(step.argv) for step in plan.steps]


def test_a_fresh_machine_gets_an_environment_of_its_own_and_all_extras_under_constraints():
    plan = make_plan(REQUEST, HOST)
    made, _, installed = commands(plan)
    assert made == "/usr/bin/python3.10 -m venv /clone/.venv"
    assert installed.startswith("/clone/.venv/bin/python -m pip install ")
    assert installed.endswith("--constraint constraints.txt --editable .[train,dev]")
    assert plan.notes == []


def test_an_environment_that_is_there_is_not_made_again():
    assert not any("-m venv" in command for command in commands(make_plan(REQUEST, HOST._replace(reusable=True))))


@given(
    extras=st.sets(st.sampled_from(EXTRAS)),
    visible=st.dictionaries(
        st.sampled_from(["torch", "torchvision"]), st.sampled_from(["2.0.0+nv23.05", "2.3.0a0+git1"])
    ),
    reusable=st.booleans(),
    has_torch=st.booleans(),
)
def test_on_a_board_no_command_lets_pip_bring_a_torch(extras, visible, reusable, has_torch):
    facts = BOARD._replace(visible=visible, reusable=reusable, has_torch=has_torch)
    for step in make_plan(REQUEST._replace(extras=tuple(sorted(extras))), facts).steps:
        if "pip" in step.argv and "pip>=21.3" not in step.argv:
            assert "--no-deps" in step.argv or "constraints-board.txt" in step.argv
            assert not any("torch" in word for word in step.argv[-1].replace("train-without-torch", "").split(","))
        if "venv" in step.argv:
            assert "--system-site-packages" in step.argv


def test_a_board_gets_ultralytics_without_what_it_asks_for():
    *_, project, ultralytics = commands(make_plan(REQUEST, BOARD))
    assert "--editable .[train-without-torch,dev]" in project
    assert "--no-deps" in ultralytics
    assert ultralytics.endswith("ultralytics-opencv-headless ultralytics-thop")


def test_a_board_without_a_torch_is_told_where_to_get_one_and_gets_the_rest():
    plan = make_plan(REQUEST, BOARD._replace(visible={"torch": "2.0.0+nv23.05"}))
    (note,) = plan.notes
    assert "no torchvision on this board (R36" in note
    assert "NVIDIA's PyTorch wheel" in note
    assert commands(plan) == commands(make_plan(REQUEST, BOARD))


def test_a_board_that_shall_not_train_is_not_told_of_torch():
    assert make_plan(REQUEST._replace(extras=("dev",)), BOARD._replace(visible={})).notes == []


def test_a_python_without_venv_names_the_package_that_brings_it():
    with pytest.raises(
        DependencyError, match=r"/usr/bin/python3.10 lacks .* apt install python3\.10-venv \(python3-venv"
    ):
        make_plan(REQUEST, HOST._replace(has_venv=False))


@pytest.mark.parametrize(
    ("version", "extras", "needed"),
    [((3, 10), ("train",), "9.9"), ((3, 8), ("train",), "4.4"), ((3, 8), ("dev",), "0.7")],
)
def test_a_disk_that_is_too_small_is_refused_with_the_figures_before_anything_is_downloaded(version, extras, needed):
    with pytest.raises(
        HarnessError, match=rf"0\.5 GB are free where /clone/\.venv is, and {needed} GB are needed"
    ) as error:
        make_plan(REQUEST._replace(version=version, extras=extras), HOST._replace(free_bytes=5 * BYTES_PER_GB // 10))
    assert "VENV=" in error.value.hint


def test_downloads_need_room_where_temporary_files_are():
    small = HOST._replace(free_bytes=8 * BYTES_PER_GB, free_for_downloads_bytes=BYTES_PER_GB)
    with pytest.raises(HarnessError, match=r"1\.0 GB are free for temporary files, and 2\.9 GB"):
        make_plan(REQUEST, small)
    assert make_plan(REQUEST, small._replace(free_for_downloads_bytes=3 * BYTES_PER_GB)).steps


def test_an_environment_that_has_its_torch_needs_no_further_room():
    assert make_plan(REQUEST, HOST._replace(reusable=True, has_torch=True, free_bytes=0)).steps


def test_an_unknown_extra_is_refused_and_the_known_are_listed():
    with pytest.raises(UnknownNameError, match=r"no extra 'trian'; known: train, jetson, report, dev"):
        make_plan(REQUEST._replace(extras=("trian",)), HOST)
