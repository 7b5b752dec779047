"""Opts in to the suite's pytest plugin, by the line that any other repository has for it."""

# Named by its module too: it refuses to be the second copy if an installed jetwatt was loaded before this clone's.
pytest_plugins = ["jetwatt", "harness.opt_in"]
