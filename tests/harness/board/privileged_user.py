"""What only root may write on this machine, for tests of plain users who have the helper or not."""

from __future__ import annotations

import os
import sys

import pytest

DROP = "/proc/sys/vm/drop_caches"

needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or not os.path.exists(DROP), reason="asks this machine's kernel"
)
