"""The suites over array libraries, on CUDA: `python benchmarks/gpu/conformance.py`.

Every kernel and basis with torch's, CuPy's and JAX's arrays on the device, held to the papers'
dense formulas and to NumPy's answers; estimators and tests likewise; fused kernels. The exit status
is pytest's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# JAX would take most of the device's memory for every process that runs tests
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
SUITES = ("test_conformance.py", "test_array_libraries.py", "test_accelerators.py")
WHICH = "torch-cuda or cupy or jax or test_accelerators"

if __name__ == "__main__":
    suites = [str(TESTS / name) for name in SUITES if (TESTS / name).exists()]
    options = ["-q", "-rs", "-k", WHICH, "-p", "no:cacheprovider", *sys.argv[1:]]
    sys.exit(pytest.main([*suites, *options]))
