"""The simulated table of SKADA-Bench: four shifts, five draws of each, five splits of each draw.

`python benchmarks/shift_table.py [--splits 5] [--peers]` prints accuracies on target rows that no
method has seen, with the figures printed by Lalou et al. (2025). Data come from skada
(`make_shifted_datasets`, 800 rows a domain, noise 0.8; subspace: 1,200 rows, noise 0.4), which must
be installed (with POT; `pip install --no-deps skada POT` changes nothing else). A Gaussian support
vector machine is fitted to 80% of the source rows; methods see 80% of the target rows without
labels. Ours run with their defaults, and one keeps P(y), as MMD-LS does; there is no search for
settings, which the printed ones had.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

SHIFTS = ("covariate_shift", "target_shift", "conditional_shift", "subspace")
PRINTED = {
    "source only": (0.881, 0.850, 0.662, 0.190),
    "KMM": (0.892, 0.878, None, None),
    "MMDTarS": (None, 0.928, None, None),
    "MMD-LS": (None, None, 0.806, None),
    "target": (0.915, 0.932, 0.817, 0.985),
}
Split = tuple[np.ndarray, np.ndarray, np.ndarray]  # source rows, labels, target rows


def draw(shift: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source rows and labels, target rows and labels."""
    from skada.datasets import make_shifted_datasets

    n, noise = (300, 0.4) if shift == "subspace" else (100, 0.8)
    X, y, domain = make_shifted_datasets(
        n, n, shift=shift, noise=noise, label="binary", random_state=seed
    )
    return X[domain > 0], y[domain > 0], X[domain < 0], y[domain < 0]


def fit_source(X: np.ndarray, y: np.ndarray, T: np.ndarray) -> Any:
    return SVC().fit(X, y)


def fit_matched(X: np.ndarray, y: np.ndarray, T: np.ndarray) -> Any:
    from meanmap import KernelMeanMatching, Reweighted

    return Reweighted(SVC(), KernelMeanMatching(random_state=0)).fit(X, y, X_test=T)


def fit_targets(X: np.ndarray, y: np.ndarray, T: np.ndarray) -> Any:
    from meanmap import TargetShift

    weights = TargetShift(n_bootstrap=0, random_state=0).fit(X, y, X_test=T).weights_
    return SVC().fit(X, y, sample_weight=np.maximum(weights, 1e-6))  # of every class some


def fit_moved(X: np.ndarray, y: np.ndarray, T: np.ndarray, target_shift: bool = True) -> Any:
    from meanmap import LocationScaleShift

    shift = LocationScaleShift(target_shift=target_shift, random_state=0).fit(X, y, X_test=T)
    return SVC().fit(shift.X_new_, y, sample_weight=np.maximum(shift.weights_, 1e-6))


def peer(name: str) -> Callable[..., Any]:
    """skada's estimator of this name before the same machine; MMD's have no default γ."""

    def fit(X: np.ndarray, y: np.ndarray, T: np.ndarray) -> Any:
        import skada

        adapter = getattr(skada, name)(**({"gamma": 0.1} if "MMD" in name else {}))
        base = SVC().set_fit_request(sample_weight=True) if "Reweight" in name else SVC()
        model = skada.make_da_pipeline(adapter, base)
        rows, labels = np.vstack([X, T]), np.append(y, np.full(len(T), -1))
        domain = np.append(np.ones(len(X), int), np.full(len(T), -2))
        return model.fit(rows, labels, sample_domain=domain)

    return fit


METHODS: dict[str, Callable[..., Any]] = {
    "source only": fit_source,
    "KernelMeanMatching": fit_matched,
    "TargetShift": fit_targets,
    "LocationScaleShift": fit_moved,
    "LocationScaleShift, P(y) kept": partial(fit_moved, target_shift=False),
}
PEERS = {
    "skada's KMM": "KMMReweightAdapter",
    "skada's MMDTarS": "MMDTarSReweightAdapter",
    "skada's MMD-LS": "MMDLSConSMappingAdapter",
}


def accuracies(shift: str, methods: dict[str, Callable[..., Any]], splits: int) -> dict[str, Any]:
    """By method, one a draw and split."""
    found: dict[str, list[float]] = {name: [] for name in (*methods, "target")}
    for seed in range(5):
        X, y, T, z = draw(shift, seed)
        for split in range(splits):
            x, _, labels, _ = train_test_split(X, y, test_size=0.2, stratify=y, random_state=split)
            t, held, known, truth = train_test_split(
                T, z, test_size=0.2, stratify=z, random_state=split
            )
            for name, fit in methods.items():
                found[name].append(float(np.mean(fit(x, labels, t).predict(held) == truth)))
            found["target"].append(float(SVC().fit(t, known).score(held, truth)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--shifts", nargs="+", default=SHIFTS, choices=SHIFTS)
    parser.add_argument("--peers", action="store_true", help="run skada's estimators too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = dict(METHODS)
    if arguments.peers:
        methods |= {name: peer(word) for name, word in PEERS.items()}
    shifts = arguments.shifts
    table = {shift: accuracies(shift, methods, arguments.splits) for shift in shifts}
    print("| |", " | ".join(shifts), "|")
    print("|---" * (len(shifts) + 1) + "|")
    for name in (*methods, "target"):
        cells = []
        for shift in shifts:
            # splits of a draw share rows: the error is that of the five draws
            draws = np.reshape(table[shift][name], (5, -1)).mean(axis=1)
            cells.append(f"{draws.mean():.3f} ± {draws.std(ddof=1) / 5**0.5:.3f}")
        print(f"| {name} |", " | ".join(cells), "|")
    for name, row in PRINTED.items():
        values = [row[SHIFTS.index(shift)] for shift in shifts]
        cells = ["" if value is None else f"{value:.3f}" for value in values]
        print(f"| {name}, printed |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
