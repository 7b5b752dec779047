"""Hypothesis without a deadline: machines are shared, and no test asserts how long something takes."""

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
