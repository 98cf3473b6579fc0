"""The array libraries that are installed, each with what tests ask of it.

`NAMES` has every one that the package supports; those that are missing here are skipped with the
word that says how to get them. On CUDA torch's and CuPy's arrays live on the device.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

NAMES = ("numpy", "torch", "torch-cuda", "cupy", "jax")
MISSING = {
    "torch": "torch is not installed: pip install 'meanmap[torch]' to test its arrays",
    "torch-cuda": "torch finds no CUDA device",
    "cupy": "cupy is not installed, or there is no CUDA device: pip install cupy-cuda13x",
    "jax": "jax is not installed: pip install 'jax[cpu]' to test its arrays",
}


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _installed() -> set[str]:
    found = {"numpy"}
    torch = _module("torch")
    if torch is not None:
        found.add("torch")
        if torch.cuda.is_available():
            found.add("torch-cuda")
            if _module("cupy") is not None:
                found.add("cupy")
    jax = _module("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_matmul_precision", "highest")
        found.add("jax")
    return found


INSTALLED = _installed()


@dataclass(frozen=True)
class Library:
    """One of them, by name."""

    name: str

    def asarray(self, value: Any) -> Any:
        """A NumPy array, or a tuple of them, as this library's."""
        if isinstance(value, tuple):
            return tuple(self.asarray(part) for part in value)
        if self.name == "numpy":
            return value
        if self.name == "jax":
            return _module("jax.numpy").asarray(value)
        if self.name == "cupy":
            return _module("cupy").asarray(value)
        return _module("torch").asarray(value, device="cuda" if "cuda" in self.name else "cpu")

    def owns(self, value: Any) -> bool:
        """Whether a result, or every part of one, is of this library and on its device."""
        if isinstance(value, tuple):
            return all(self.owns(part) for part in value)
        if self.name == "numpy":
            return isinstance(value, np.ndarray | np.generic)
        if self.name == "jax":
            return isinstance(value, _module("jax").Array)
        if self.name == "cupy":
            return isinstance(value, _module("cupy").ndarray)
        kind = "cuda" if "cuda" in self.name else "cpu"
        return isinstance(value, _module("torch").Tensor) and value.device.type == kind


def library(name: str) -> Library:
    """The library of that name; skips the test where it is missing."""
    if name not in INSTALLED:
        pytest.skip(MISSING[name])
    return Library(name)


def host(value: Any) -> Any:
    """A NumPy array of any library's, or a tuple of them."""
    if isinstance(value, tuple):
        return tuple(host(part) for part in value)
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value.get() if hasattr(value, "get") else np.asarray(value)
