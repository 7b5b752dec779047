"""Prints the settings under which figures come out as recorded: `env $(python -m tools.kernels) pytest tests/gates`.

NumPy and its BLAS choose code by the processor, and each kind of code rounds in its own way. With these settings every
x86-64 processor that has AVX2 runs the same. On others nothing is set, and the gates are less strict.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List

import numpy as np

BEYOND_AVX2 = ("X86_V4", "AVX512")
"""How the names of what NumPy uses beyond AVX2 begin."""


def kernel_settings(root: Path = Path("/")) -> Dict[str, str]:
    """Environment variables that have OpenBLAS and NumPy use AVX2 and nothing newer; none without AVX2.

    Those that are set already stay as they are.
    """
    cpus = root / "proc" / "cpuinfo"
    if not cpus.exists() or not re.search(r"\bavx2\b", cpus.read_text(encoding="utf-8")):
        return {}
    settings = {"OPENBLAS_CORETYPE": "Haswell"}
    newer = [name for name in used_by_numpy() if name.startswith(BEYOND_AVX2)]
    if newer:
        settings["NPY_DISABLE_CPU_FEATURES"] = ",".join(newer)
    return {name: value for name, value in settings.items() if name not in os.environ}


def used_by_numpy() -> List[str]:
    """What NumPy uses of this processor beyond its baseline; nothing where it is too old to say so (before 1.26)."""
    try:
        configuration = np.show_config(mode="dicts")
    except TypeError:
        return []
    return list(configuration["SIMD Extensions"].get("found", []))


if __name__ == "__main__":
    print(*(f"{name}={value}" for name, value in kernel_settings().items()))
