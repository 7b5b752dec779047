"""Loads the suite's pytest plugin; everything else is there."""

pytest_plugins = ["harness.plugin"]
