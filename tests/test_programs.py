"""Fake programs in Python run wherever their interpreter is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.programs import write_python_program


@pytest.mark.parametrize("folder", ["mit Leerzeichen und äöü", 'it\'s "quoted" $HOME', "long" * 50])
def test_a_fake_program_runs_with_an_interpreter_in_any_folder(tmp_path, folder):
    interpreter = tmp_path / folder / "python"
    interpreter.parent.mkdir()
    interpreter.write_text('#!/bin/sh\nshift\nexec "$PYTHON" "$@"\n')
    interpreter.chmod(0o755)
    program = tmp_path / "program"
    write_python_program(program, "import sys\nprint(sys.argv[1:])\n", "-I", interpreter=str(interpreter))
    done = subprocess.run(
        [str(program), "a b", "c'd"], capture_output=True, text=True, check=True, env={"PYTHON": sys.executable}
    )
    assert done.stdout == "['a b', \"c'd\"]\n"
