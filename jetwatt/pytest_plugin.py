"""The entry point of the pytest plugin: `pytest -p no:jetwatt` switches it off."""

from __future__ import annotations

pytest_plugins = ["harness.plugin"]
