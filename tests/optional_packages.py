"""Optional packages that some tests need.

`require` imports one of them, or skips the test and says how to install it. `conftest.py` has all
such skips reported from here, so that pytest's summary has one line for each missing package.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

MISSING = "is not installed"
EXTRAS = {
    "torch": "'meanmap[torch]'",
    "dask": "'meanmap[dask]'",
    "distributed": "'meanmap[dask]'",
    "cvxpy": "'meanmap[convex]'",
    "jax": "'jax[cpu]'",
    "causallearn": "causal-learn",
    "dowhy": "--no-deps dowhy",
    "cupy": "cupy-cuda13x",
    "particles": "numba joblib; pip install --no-deps particles",
}


def find(name: str) -> Any:
    """The module of that name, None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def skip(reason: str) -> None:
    """Skip the running test, or the module that is being imported."""
    pytest.skip(reason, allow_module_level=True)


def require(name: str) -> Any:
    """The module of that name; skips the test if it is not installed."""
    module = find(name)
    if module is None:
        package = name.partition(".")[0]
        skip(f"{package} {MISSING}: pip install {EXTRAS.get(package, package)}")
    return module
