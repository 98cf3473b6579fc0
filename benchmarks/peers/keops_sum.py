"""Gaussian sums by pykeops on the processor; runs in pykeops' own environment.

`keops_sum.py --job sum FOLDER PRECISION`: reads points.npy, queries.npy and bandwidth.npy; writes
pykeops_PRECISION.npy. The formula is compiled (by the system's C++ compiler) on a few points before
the clock starts; what is compiled is kept in the environment.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import cores, imported, run_job

os.environ["OMP_NUM_THREADS"] = str(cores())  # read when pykeops is imported
os.environ.setdefault("KEOPS_CACHE_FOLDER", str(Path(sys.prefix) / "keops"))

import pykeops
from pykeops.numpy import LazyTensor


def evaluate(points: np.ndarray, queries: np.ndarray, bandwidth: float, dtype: str) -> np.ndarray:
    """The mean embedding of the points at the queries, as pykeops' documentation writes it."""
    centre = points.mean(axis=0)  # smaller numbers, smaller rounding
    x = LazyTensor(((points - centre) / bandwidth).astype(dtype)[None, :, :])
    q = LazyTensor(((queries - centre) / bandwidth).astype(dtype)[:, None, :])
    gram = (-((q - x) ** 2).sum(2) / 2).exp()
    return gram.sum(1, backend="CPU")[:, 0] / len(points)


def job(folder: str, dtype: str) -> dict[str, Any]:
    imported()
    points, queries = (np.load(Path(folder) / f"{name}.npy") for name in ("points", "queries"))
    bandwidth = float(np.load(Path(folder) / "bandwidth.npy"))
    evaluate(points[:100], queries[:100], bandwidth, dtype)
    start = time.perf_counter()
    values = evaluate(points, queries, bandwidth, dtype)
    seconds = time.perf_counter() - start
    np.save(Path(folder) / f"pykeops_{dtype}.npy", values)
    return {"seconds": seconds, "threads": cores(), "pykeops": pykeops.__version__}


if __name__ == "__main__":
    run_job(job, sys.argv[3:])
