"""TOML files: reading one, with an error that names the file. Python before 3.11 reads them through `tomli`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict

from harness.core.errors import InvalidValueError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> Dict[str, Any]:
    """Read a TOML file.

    Raises:
        InvalidValueError: the file cannot be read or is not TOML; names the file and the place.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InvalidValueError(f"{path} is not a readable TOML file: {error}") from error
