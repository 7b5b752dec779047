"""What the tests of the fleet need of a machine is asked for before they begin, and is on the page that sets one up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet import simulated_lab

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet_setup.md"


@pytest.mark.parametrize("missing", ["iptables", "ip", "sshd"])
def test_a_program_that_is_missing_is_named_with_what_installs_it(missing, monkeypatch):
    monkeypatch.setattr(simulated_lab, "program", lambda name: None if name == missing else f"/usr/sbin/{name}")
    assert simulated_lab.why_not() == f"{missing} not installed: apt-get install {simulated_lab.PACKAGES}"


def test_the_page_names_every_package_that_the_tests_ask_for():
    page = PAGE.read_text(encoding="utf-8")
    assert [package for package in simulated_lab.PACKAGES.split() if package not in page] == []
