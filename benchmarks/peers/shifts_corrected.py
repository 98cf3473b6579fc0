"""adapt's and skada's corrections of shift; runs in an environment of each.

`shifts_corrected.py --job METHOD FOLDER COUNT`: reads split_0.npz … with X, y, T and gamma, writes
METHOD_0.npy … with the weights of the rows of X; reports the seconds of each.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import imported, run_job

MODULES = {
    "with_adapt": "adapt.instance_based",
    "matched": "skada._reweight",
    "proportioned": "skada._reweight",
}
Split = dict[str, np.ndarray]


def with_adapt(split: Split) -> np.ndarray:
    """Weights by adapt's KMM: all rows in one programme, its own bound and slack."""
    from adapt.instance_based import KMM

    gamma = float(split["gamma"])
    peer = KMM(kernel="rbf", gamma=gamma, max_size=10**9, verbose=0, random_state=0)
    return peer.fit_weights(split["X"], split["T"])


def joined(split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both samples, their classes (-1 for none) and domains, as skada reads them."""
    X, y, T = split["X"], split["y"], split["T"]
    domain = np.r_[np.ones(len(X), dtype=int), -2 * np.ones(len(T), dtype=int)]
    return np.vstack([X, T]), np.r_[y, -np.ones(len(T), dtype=y.dtype)], domain


def matched(split: Split) -> np.ndarray:
    """Weights by skada's KMM, its own settings but for the kernel."""
    from skada._reweight import KMMReweightAdapter

    rows, _, domain = joined(split)
    return (
        KMMReweightAdapter(gamma=float(split["gamma"]))
        .fit(rows, sample_domain=domain)
        .source_weights_
    )


def proportioned(split: Split) -> np.ndarray:
    """Weights of classes by skada's MMDTarS, its own settings but for the kernel."""
    from skada._reweight import MMDTarSReweightAdapter

    rows, y, domain = joined(split)
    return (
        MMDTarSReweightAdapter(gamma=float(split["gamma"]))
        .fit(rows, y, sample_domain=domain)
        .source_weights_
    )


def job(work: Callable[[Split], np.ndarray]) -> Callable[[str, str], dict[str, Any]]:
    """Every split of a folder by one method; its package is imported before the clock starts."""

    def every(folder: str, count: str) -> dict[str, Any]:
        importlib.import_module(MODULES[work.__name__])
        imported()
        seconds = []
        for i in range(int(count)):
            with np.load(Path(folder) / f"split_{i}.npz") as file:
                split = dict(file)
            start = time.perf_counter()
            found = work(split)
            seconds.append(time.perf_counter() - start)
            np.save(Path(folder) / f"{work.__name__}_{i}.npy", found)
        return {"seconds": seconds}

    return every


if __name__ == "__main__":
    arguments = sys.argv[sys.argv.index("--job") + 1 :]
    methods = {work.__name__: job(work) for work in (with_adapt, matched, proportioned)}
    run_job(methods[arguments[0]], arguments[1:])
