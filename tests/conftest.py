"""What all tests share: Hypothesis without a deadline, and a Ctrl-C that means what it means in a terminal."""

import signal

from hypothesis import settings

# Machines are shared, and no test asserts how long something takes.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

# A shell starts what runs in the background with SIGINT ignored, and Python and its children keep it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
