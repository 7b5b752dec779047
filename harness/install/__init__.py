"""Makes the suite's virtual environment, with the standard library alone: `python3 -m harness.install`."""
