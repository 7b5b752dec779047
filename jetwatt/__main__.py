"""`python -m jetwatt COMMAND`, where the command `jetwatt` is not on the path."""

from __future__ import annotations

from jetwatt.cli import start

if __name__ == "__main__":
    start()
