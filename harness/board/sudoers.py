"""This user, as a file in `/etc/sudoers.d` names it."""

from __future__ import annotations

import os
import pwd


def sudoers_user() -> str:
    """The user's name; `#1000` where no name goes with the number, as for `docker run --user 1000`."""
    # sudo knows a user by the real id, whatever the environment says.
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"#{os.getuid()}"  # sudoers(5): User_List
