"""Bisecting versions: the first slow one is found in few measurements, and nothing is found where nothing is slower."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

from harness.__main__ import main
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.judge import bisection
from harness.judge.bisection import Installed, between, bisect, format_verdicts, select_environment
from harness.stats.noise import RunNoise, prior, runs_needed
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

VERSIONS = ["2.8.0", "2.8.1", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0+nv25"]


def installed(version: str, **further: str) -> Installed:
    return Installed(f"/envs/{version}/python", {"python": "3.10.4", "packages": {"torch": version, **further}})


class Bench:
    """Stands for a board on which versions from `slow_from` on take longer."""

    def __init__(self, folder: Path, slow_from: str, slowdown: float, noise: float = 0.004, **carried: Any) -> None:
        self.folder, self.slow_from, self.slowdown, self.noise = folder, slow_from, slowdown, noise
        self.carried = carried
        self.runs: Dict[str, int] = {}
        self._random = np.random.default_rng(3)

    def __call__(self, one: Installed, runs: int) -> Path:
        version = one.version("torch")
        path = self.folder / f"{version}.sqlite"
        slower = 1 + self.slowdown * (VERSIONS.index(version) >= VERSIONS.index(self.slow_from))
        for _ in range(runs):
            self.runs[version] = self.runs.get(version, 0) + 1
            own = 100 * slower * np.exp(self.noise * self._random.normal())
            times_ms = own * np.exp(0.01 * self._random.normal(size=40))
            profile = make_profile(times_ms, case={"device": "orin-agx"}, conditions={"torch": version, **self.carried})
            with ResultsStore(path) as store:
                store.add(profile, ENVIRONMENT, f"run {self.runs[version]}")
        return path


@pytest.mark.parametrize("slow_from", ["2.8.1", "2.10.0", "2.12.0+nv25"])
def test_the_first_slow_version_is_found_in_as_many_halvings_as_there_are(tmp_path, slow_from):
    environments = [installed(version) for version in VERSIONS]
    bench = Bench(tmp_path, slow_from, 0.05)
    found = bisect(environments, bench, 0.02, prior("orin-agx")).verdicts
    assert len(bench.runs) <= 2 + 3
    before = VERSIONS[VERSIONS.index(slow_from) - 1]
    text = format_verdicts(environments, found, "torch", 0.02)
    assert says(text, f"since torch {slow_from}", before)
    assert says(text, "packages.torch", f'"{before}" -> "{slow_from}"')


def test_without_the_benchmarks_of_a_clone_it_says_so_before_anything_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bisection, "_SUITE", tmp_path)
    assert main(["bisect-versions", "--good", "no-python", "--bad", "no-python"]) == 2
    error = capsys.readouterr().err
    assert says(error, "clone", "benchmarks/test_training.py")
    assert "run it in the root of a clone" in error


def test_nothing_is_bisected_where_bad_is_as_fast(tmp_path):
    environments, bench = [installed(version) for version in VERSIONS], Bench(tmp_path, "2.9.0", 0.0)
    found = bisect(environments, bench, 0.02, prior("orin-agx")).verdicts
    assert set(bench.runs) == {VERSIONS[0], VERSIONS[-1]}
    assert says(format_verdicts(environments, found, "torch", 0.02), "not significantly slower", "2.0%")


@pytest.mark.exhaustive
def test_the_threshold_of_the_board_is_used_where_none_is_given(tmp_path):
    own = {
        "shares": {"minibatch_time_ms": 0.05},
        "device": "orin-agx",
        "board_instance": "orin3",
        "runs": 6,
        "provenance": "measured",
        "case": "lenet",
        "measured_at": "2026-11-20",
        "software": {},
    }
    environments = [installed(version) for version in VERSIONS]
    for given, verdict in ((None, "by more than 5.0%: nothing to bisect"), (0.02, "slower since torch 2.9.0")):
        bench = Bench(tmp_path / str(given), "2.9.0", 0.035, board_threshold=own)
        bench.folder.mkdir()
        found = bisect(environments, bench, given, prior("orin-agx"))
        text = format_verdicts(environments, found.verdicts, "torch", found.threshold, found.origin)
        assert verdict in text
        words = "tolerance: minibatch time 5.0% on orin-agx@orin3 (doctor --accept of 2026-11-20, 6 runs of lenet)"
        assert (words in text) == (given is None)
        assert bench.runs[VERSIONS[0]] == runs_needed(0.05 if given is None else 0.02, prior("orin-agx"))


def test_noise_asks_for_more_runs(tmp_path):
    assert [runs_needed(0.02, prior(device)) for device in ("orin-agx", "xavier-nx")] == [2, 10]
    assert runs_needed(0.05, prior("host")) > runs_needed(0.10, prior("host")) > runs_needed(0.10, RunNoise(0.02, 40))
    bench = Bench(tmp_path, "2.10.0", 0.05)
    bisect([installed(version) for version in VERSIONS], bench, 0.02, prior("orin-agx"), repetitions=3)
    assert set(bench.runs.values()) == {3}


def test_environments_are_named_by_version_and_ordered_by_it():
    known = [installed(version) for version in reversed(VERSIONS)]
    good, bad = select_environment("torch==2.8.1", known), select_environment("torch==2.12", known)
    for ends, versions in (((good, bad), VERSIONS[1:]), ((bad, good), VERSIONS[:0:-1])):  # an older one may be slow
        assert [one.version("torch") for one in between(known, *ends, "torch")] == versions
    with pytest.raises(UnknownNameError, match=r"2 environments have torch==2\.8"):
        select_environment("torch==2.8", known)
    with pytest.raises(UnknownNameError, match=r"0 environments have torch==2\.7.*2\.12"):
        select_environment("torch==2.7", known)
    with pytest.raises(InvalidValueError, match=r"both have torch 2\.8\.1"):
        between(known, good, good, "torch")
    with pytest.raises(UnknownNameError, match="has no numpy"):
        between(known, good, bad, "numpy")


@pytest.mark.exhaustive
@pytest.mark.long
def test_interpreters_measure_a_simulated_board_and_the_slow_one_is_named(tmp_path, capsys):
    """Two environments: this one, and one that passes for a later version and makes the simulated board slower."""
    for name, version, slowdown in (("good", "2.8.0", "0"), ("bad", "2.9.0", "5")):
        python = tmp_path / name
        python.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = -c ]; then echo \'{{"python": "3.10.4", "packages": {{"torch": "{version}"}}}}\'; exit; fi\n'
            f'exec {shlex.quote(sys.executable)} "$@" --slowdown {slowdown}\n'
        )
        python.chmod(0o755)
    case = ["--device", "sim:orin-agx", "--repetitions", "1", "--", "--workload", "lenet-mnist", "--workers", "0"]
    among = ["--good", "torch==2.8", "--bad", tmp_path / "bad", "--among", tmp_path / "good"]
    assert main([str(word) for word in ("bisect-versions", *among, "--keep", tmp_path / "kept", *case)]) == 0
    said = capsys.readouterr().out
    assert says(said, "since torch 2.9.0", "2.8.0")
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_what_cannot_be_started_or_measures_nothing_is_refused(tmp_path, capsys):
    arguments = ["bisect-versions", "--good", str(tmp_path / "none"), "--bad", sys.executable]
    assert main(arguments) == 2
    assert "cannot start" in capsys.readouterr().err
    assert main([*arguments, "--repetitions", "0"]) == 2


def test_an_interpreter_that_never_answers_is_refused_and_is_given_no_input(tmp_path, monkeypatch):
    monkeypatch.setattr(bisection, "ASK_S", 0.3)
    waiting = tmp_path / "python"
    waiting.write_text("#!/bin/sh\nread line && exit 3\nexec sleep 60\n")
    waiting.chmod(0o755)
    with pytest.raises(CannotRunError, match="did not tell its packages within"):
        bisection.inspect_interpreter(str(waiting))
