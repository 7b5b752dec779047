"""What the installation makes of the folder that it finds in the environment's place."""

from __future__ import annotations

import pytest

from harness.core.errors import HarnessError
from harness.install import environment_folder as folder
from harness.install.plan import Request


@pytest.fixture
def request_for(project):
    return Request(project, project / ".venv", ("dev",), "/usr/bin/python3.10", (3, 10))


def write_python(environment, script):
    python = environment / "bin/python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


@pytest.fixture
def environment(request_for):
    """A folder that looks like an environment, with a Python that answers what it is made of."""
    environment = request_for.environment
    (environment / "bin").mkdir(parents=True)
    write_python(environment, f"echo {request_for.python}")
    (environment / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    return environment


def test_no_folder_and_an_empty_one_are_no_reason_to_make_anything_anew(request_for):
    assert folder.reason_to_remake(request_for, on_board=False) is None
    request_for.environment.mkdir()
    assert folder.reason_to_remake(request_for, on_board=False) is None


def test_a_working_environment_is_gone_on_with(request_for, environment):
    assert folder.reason_to_remake(request_for, on_board=True) is None
    folder.mark_failed(environment)
    assert folder.reason_to_remake(request_for, on_board=True) is None


def test_a_folder_of_something_else_is_refused_and_left_alone(request_for):
    request_for.environment.mkdir()
    (request_for.environment / "thesis.tex").write_text("years")
    with pytest.raises(HarnessError, match=r"is no virtual environment; move it away"):
        folder.reason_to_remake(request_for, on_board=False)
    assert (request_for.environment / "thesis.tex").read_text() == "years"


def test_a_file_in_its_place_is_refused_and_left_alone(request_for):
    request_for.environment.write_text("a file")
    with pytest.raises(HarnessError, match=r"is no virtual environment"):
        folder.reason_to_remake(request_for, on_board=False)
    assert request_for.environment.read_text() == "a file"


def test_somebodys_own_environment_elsewhere_is_used_or_refused_but_never_deleted(request_for, environment, tmp_path):
    own = environment.rename(tmp_path / "own")
    assert folder.reason_to_remake(request_for._replace(environment=own), on_board=False) is None
    with pytest.raises(HarnessError, match=r"own was not made by this installation .* /usr/bin/python3.9 is asked for"):
        folder.reason_to_remake(request_for._replace(environment=own, python="/usr/bin/python3.9"), on_board=False)


def test_an_installation_that_was_cut_off_is_noticed(request_for, environment):
    folder.begin(environment, remove=False)
    assert "cut off" in folder.reason_to_remake(request_for, on_board=False)
    (environment / "pyvenv.cfg").unlink()
    assert "cut off" in folder.reason_to_remake(request_for, on_board=False)


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "\x00\xff"])
def test_a_damaged_stamp_counts_as_cut_off(request_for, environment, damage):
    (environment / folder.STAMP).write_text(damage, encoding="utf-8")
    assert "cut off" in folder.reason_to_remake(request_for, on_board=False)
    assert not folder.is_up_to_date(environment, "key")


def test_an_environment_that_was_moved_is_noticed(request_for, environment):
    folder.mark_done(environment, "key")
    moved = environment.rename(environment.with_name("elsewhere"))
    assert not folder.is_up_to_date(moved, "key")
    reason = folder.reason_to_remake(request_for._replace(environment=moved), on_board=False)
    assert str(environment) in reason


def test_an_environment_whose_python_is_gone_is_noticed(request_for, environment):
    folder.mark_done(environment, "key")
    (environment / "bin/python").unlink()
    (environment / "bin/python").symlink_to("/opt/no/python3")
    assert not folder.is_up_to_date(environment, "key")
    assert "cannot be started" in folder.reason_to_remake(request_for, on_board=False)


def test_an_environment_without_pip_is_noticed(request_for, environment):
    write_python(environment, "echo \"ModuleNotFoundError: No module named 'pip'\" >&2; exit 1")
    assert "No module named 'pip'" in folder.reason_to_remake(request_for, on_board=False)


def test_an_environment_of_another_interpreter_is_noticed(request_for, environment):
    reason = folder.reason_to_remake(request_for._replace(python="/usr/bin/python3.99"), on_board=False)
    assert reason.endswith("/usr/bin/python3.99 is asked for")


def test_a_board_does_not_go_on_with_an_environment_that_hides_the_systems_torch(request_for, environment):
    (environment / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    assert "does not see the system's packages" in folder.reason_to_remake(request_for, on_board=True)


def test_the_stamp_is_up_to_date_for_the_key_that_was_installed_and_no_other(environment):
    folder.begin(environment, remove=False)
    assert not folder.is_up_to_date(environment, "key")
    folder.mark_done(environment, "key")
    assert folder.is_up_to_date(environment, "key")
    assert not folder.is_up_to_date(environment, "other")


def test_the_key_follows_everything_that_decides_what_is_installed(request_for, project):
    keys = {
        folder.installation_key(request_for, on_board=False),
        folder.installation_key(request_for, on_board=True),
        folder.installation_key(request_for._replace(extras=("dev", "train")), on_board=False),
        folder.installation_key(request_for._replace(python="/usr/bin/python3"), on_board=False),
        folder.installation_key(request_for._replace(version=(3, 99)), on_board=False),
    }
    for name in folder.INPUTS:
        (project / name).write_text((project / name).read_text() + "\n# changed\n")
        keys.add(folder.installation_key(request_for, on_board=False))
    assert len(keys) == 5 + len(folder.INPUTS)
    assert folder.installation_key(request_for._replace(extras=("a", "b")), on_board=False) == folder.installation_key(
        request_for._replace(extras=("b", "a")), on_board=False
    )


def test_an_environment_is_invisible_to_git(environment):
    folder.begin(environment, remove=False)
    assert (environment / ".gitignore").read_text() == "*\n"


def test_a_torch_in_the_environment_itself_is_seen(environment):
    assert not folder.holds_torch(environment)
    (environment / "lib/python3.10/site-packages/torchvision-0.29.2.dist-info").mkdir(parents=True)
    assert folder.holds_torch(environment)


def test_a_place_that_cannot_be_written_is_named_with_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match=r"file/\.venv cannot be written: .*VENV=FOLDER"):
        folder.begin(tmp_path / "file/.venv", remove=False)
