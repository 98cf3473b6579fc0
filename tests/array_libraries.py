"""The array libraries that are installed, each with what tests ask of it.

Suites go over `INSTALLED`; what is missing is skipped once, by a test of `test_array_libraries.py`
that says how to install it. On CUDA torch's and CuPy's arrays live on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optional_packages import find, require, skip

SUPPORTED = ("numpy", "torch", "torch-cuda", "cupy", "jax")


def _works(name: str) -> bool:
    if name == "numpy":
        return True
    if name == "jax":
        if jax := find("jax"):
            jax.config.update("jax_enable_x64", True)
            jax.config.update("jax_default_matmul_precision", "highest")
        return jax is not None
    torch = find("torch")
    if torch is None or name == "torch":
        return torch is not None
    return torch.cuda.is_available() and (name == "torch-cuda" or find("cupy") is not None)


INSTALLED = tuple(name for name in SUPPORTED if _works(name))
#: Those that are compared with NumPy; NumPy itself where there is no other.
OTHERS = INSTALLED[1:] or INSTALLED


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
            return find("jax.numpy").asarray(value)
        if self.name == "cupy":
            return find("cupy").asarray(value)
        return find("torch").asarray(value, device="cuda" if "cuda" in self.name else "cpu")

    def owns(self, value: Any) -> bool:
        """Whether a result, or every part of one, is of this library and on its device."""
        if isinstance(value, tuple):
            return all(self.owns(part) for part in value)
        if self.name == "numpy":
            return isinstance(value, np.ndarray | np.generic)
        if self.name == "jax":
            return isinstance(value, find("jax").Array)
        if self.name == "cupy":
            return isinstance(value, find("cupy").ndarray)
        kind = "cuda" if "cuda" in self.name else "cpu"
        return isinstance(value, find("torch").Tensor) and value.device.type == kind


def library(name: str) -> Library:
    """The library of that name; skips the test where it is missing."""
    if name not in INSTALLED:
        require(name.partition("-")[0])
        skip(f"there is no CUDA device for {name}")
    return Library(name)


def host(value: Any) -> Any:
    """A NumPy array of any library's, or a tuple of them."""
    if isinstance(value, tuple):
        return tuple(host(part) for part in value)
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value.get() if hasattr(value, "get") else np.asarray(value)
