"""The acceptance test on emulated boards and on the host: all lines, stored one by one, continued where it was left."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from boards.kernel import Kernel
from boards.tree import boot

from harness.__main__ import main
from harness.acceptance import repeatability, restoring
from harness.acceptance.runner import CHECKS, accept
from harness.board.cpu import Affinity
from harness.board.saved_state import default_state_dir, left_behind
from harness.core.board_threshold import CONDITION, BoardThreshold, path_of, write
from harness.core.configuration import Configuration
from harness.core.errors import HarnessError
from harness.measure.doctor import device_to_examine
from tests.harness.acceptance.accepted_board import (
    SCALE,
    accepted,
    add_tegrastats,
    booted,
    built,
    emulated,
    line_of,
    powered_off,
)
from tests.harness.conftest import Tree
from tests.harness.devices.test_nvidia_gpu import FAKE, driver  # noqa: F401 - a fixture
from tests.harness.devices.test_raspberry_pi import FILES as PI_FILES

pytest.importorskip("torch")

pytestmark = pytest.mark.training


def verdicts(findings):
    return {line["name"]: line["verdict"] for line in findings["lines"]}


@pytest.mark.exhaustive
@pytest.mark.long
def test_an_agx_orin_passes_all_lines_by_the_command(tmp_path, capsys, monkeypatch):
    profiles = []
    figures_of = repeatability._figures
    monkeypatch.setattr(repeatability, "_figures", lambda profile: profiles.append(profile) or figures_of(profile))
    tree = built(tmp_path)
    add_tegrastats(tree)
    own = store_threshold(tree)
    before = tree.controls()
    command = ["doctor", "--accept", "--root", tree.root, "--no-reboot", "--accept-scale", str(SCALE)]
    with emulated(tree.root):
        code = main(command)
        text = capsys.readouterr().out
        assert code == 0, text
        assert main([*command, "--json"]) == 0
        findings = json.loads(capsys.readouterr().out)
    assert list(verdicts(findings)) == list(CHECKS)
    assert set(verdicts(findings).values()) == {"PASS"}
    assert tree.controls() == before
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 100
    assert "REHEARSAL" in text
    assert "EMULATED" in text
    evidence = {line["name"]: line["evidence"] for line in findings["lines"]}
    assert evidence["identity"]["part number"] == "p3701-0005"
    assert "mW in" in evidence["rails"]["tegrastats"]
    assert evidence["modes"]["clocks rise again"] == "yes"
    assert "PWM 255 to 255" in evidence["hold"]["12c-2201.6-1300.5-3199"]
    assert evidence["restoring"]["kill -9"].endswith(", 0 differ")
    assert evidence["repeatability"]["power_mw"]["spread (%)"] == 0
    assert evidence["repeatability"]["stored"] == "no: it is a rehearsal"
    assert [profile.conditions[CONDITION] for profile in profiles] == [msgspec.to_builtins(own)] * 2


def store_threshold(tree):
    """As an earlier acceptance test of the board leaves it."""
    device = device_to_examine(None, Configuration(), tree.path)
    identity = (device.name, device.board_instance, device.provenance)
    own = BoardThreshold({"power_mw": 0.03}, *identity, "a case", 6, "2026-11-20", {"l4t": "36.4.3"})
    write(path_of(default_state_dir(), *identity[:2]), own)
    return own


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("board", "l4t"),
    [
        ("orin-nano", "r36.4"),
        ("xavier-nx", "r35.4"),
        ("nano", "r32.7"),
        ("thor", "r38.2"),
        ("orin-nano-super", "r36.4"),
    ],
)
@pytest.mark.long
def test_another_board_passes_all_lines(tmp_path, board, l4t):
    tree = built(tmp_path, board, l4t)
    before = tree.controls()
    findings = accepted(tree)
    failed = [line for line in findings["lines"] if line["verdict"] == "FAIL"]
    assert failed == []
    assert list(verdicts(findings)) == list(CHECKS)
    assert tree.controls() == before


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_host_passes_the_lines_that_apply_and_says_why_others_do_not():
    findings = accept("host", scale=SCALE, reboots=False)
    assert list(verdicts(findings)) == list(CHECKS)
    assert findings["counts"]["FAIL"] == 0, findings
    for line in findings["lines"]:
        assert line["verdict"] == "PASS" or line["reasons"]
    assert {"identity", "modes", "own cost", "record"} <= {
        name for name, verdict in verdicts(findings).items() if verdict == "PASS"
    }


def test_the_record_of_a_machine_is_compared_without_the_cpus_that_the_process_may_not_use():
    affinity = Affinity()
    cpus = affinity.read()
    if len(cpus) == 1:
        pytest.skip("takes 2 CPUs")
    affinity.set(cpus[:1])
    try:
        findings = accept("host", scale=SCALE, reboots=False, lines=["record"])
    finally:
        affinity.set(cpus)
    assert line_of(findings, "record")["verdict"] == "PASS", findings
    assert f"may not use CPUs {cpus[1:]}" in line_of(findings, "record")["evidence"]["not compared"]


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_raspberry_pi_passes_the_lines_that_apply(tmp_path):
    tree = Tree(tmp_path / "pi")
    tree.write(PI_FILES)
    (tree.path / "usr/bin/vcgencmd").chmod(0o755)
    before = tree.contents()
    findings = accept(root=tree.root, scale=SCALE, reboots=False)
    assert {name for name, verdict in verdicts(findings).items() if verdict != "PASS"} == {"hold", "limits"}, findings
    assert findings["counts"]["FAIL"] == 0
    assert "neither a clock nor a fan" in line_of(findings, "hold")["reasons"][0]
    assert "VDD_CORE" in str(line_of(findings, "rails")["evidence"]).upper()
    assert tree.contents() == before


@pytest.mark.exhaustive
def test_a_discrete_gpu_passes_the_lines_that_apply(monkeypatch, driver):  # noqa: F811
    monkeypatch.setenv("PYTHONPATH", str(FAKE))  # of the sampler
    lines = [name for name in CHECKS if name not in ("identity", "repeatability")]  # which need torch with CUDA
    findings = accept("nvidia-gpu:0", scale=SCALE, reboots=False, lines=lines)
    assert findings["counts"]["FAIL"] == 0, findings
    passed = {name for name, verdict in verdicts(findings).items() if verdict == "PASS"}
    assert {"rights", "rails", "modes", "own cost", "restoring"} <= passed
    assert "the driver of this GPU" in line_of(findings, "record")["reasons"][0]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["restoring"], id="restoring"),
        pytest.param(
            ["restoring", "repeatability"], id="both", marks=[pytest.mark.exhaustive, pytest.mark.long]
        ),  # loads torch once more
    ],
)
def test_a_power_cut_is_survived_and_the_next_call_goes_on(tmp_path, lines):
    tree = built(tmp_path)
    before = tree.controls()
    request = powered_off(tree, *lines)
    assert "press Ctrl-\\ within" in request
    assert "reboot -f" not in request, "it would reboot the machine that emulates the board"
    assert left_behind() != []
    assert tree.controls() != before
    boot(tree.root)
    booted(tree, "second")
    findings = accepted(tree, *lines, reboots=True)
    assert findings["counts"] == {"PASS": len(lines), "FAIL": 0, "SKIP": 0}, findings
    evidence = line_of(findings, "restoring")["evidence"]
    assert evidence["power cut"].endswith(", 0 differ")
    assert evidence["Ctrl-C"].endswith(", 0 differ")
    if "repeatability" in lines:
        assert "after the reboot" in line_of(findings, "repeatability")["evidence"]["power_mw"]
    assert left_behind() == []
    assert tree.controls() == before


def test_a_root_may_be_relative(tmp_path):
    """The name of the saved state comes from the root's absolute path."""
    tree = built(tmp_path)
    with emulated(tree.root):
        findings = accept(root=os.path.relpath(tree.root), scale=SCALE, lines=["restoring"], reboots=False)
    line = line_of(findings, "restoring")
    assert (line["verdict"], line["reasons"]) == ("PASS", [])


@pytest.mark.exhaustive
def test_a_power_cut_that_does_not_come_leaves_both_lines_open(tmp_path, monkeypatch):
    monkeypatch.setattr(restoring, "WAIT_S", 1.0)
    tree = built(tmp_path)
    before = tree.controls()
    findings = accepted(tree, "restoring", reboots=True)
    line = line_of(findings, "restoring")
    assert (line["verdict"], line["reasons"]) == ("SKIP", ["the power was not cut in time"])
    booted(tree, "second")  # a reboot after the test has put everything back is no power cut
    assert line_of(accepted(tree, "restoring", reboots=True), "restoring")["verdict"] == "SKIP"
    assert left_behind() == []
    assert tree.controls() == before


def test_lines_that_passed_are_kept_and_the_others_are_checked_again(tmp_path):
    tree = built(tmp_path)
    kernel = Kernel(tree.root)
    rail = next(tree.path.glob("sys/bus/i2c/devices/1-0040/hwmon/hwmon*/in1_input"))
    kernel.garble(str(rail))
    first = accepted(tree, "identity", "rights")
    assert first["counts"] == {"PASS": 1, "FAIL": 1, "SKIP": 0}
    kernel.heal()
    said = []
    second = accepted(tree, "identity", "rights", report=said.append)
    assert second["counts"] == {"PASS": 2, "FAIL": 0, "SKIP": 0}
    assert "identity: PASS, from an earlier call" in said
    assert second["started_at"] == first["started_at"]
    again = accepted(tree, "identity", start_over=True)
    assert again["started_at"] != first["started_at"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": 0}, "scale of times"),
        ({"lines": ["colour"]}, "available: identity"),
        ({"device": "sim:orin-agx"}, "not a device that can be accepted here"),
        ({"root": "/no/such/root"}, "is not a folder"),
    ],
)
def test_what_cannot_be_accepted_is_refused(options, words):
    with pytest.raises(HarnessError, match=words):
        accept(**options)
