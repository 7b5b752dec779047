"""`python -m jetwatt COMMAND`, if the command `jetwatt` is not on the PATH."""

from __future__ import annotations

from jetwatt.cli import start

if __name__ == "__main__":
    start()
