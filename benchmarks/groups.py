"""Distances between all groups of a table, beside pertpy's energy distance.

    python benchmarks/groups.py scale [rows] [groups]    # in coordinates, with p-values
    python benchmarks/groups.py --device cuda            # the same on an accelerator, by PyTorch
    python benchmarks/groups.py peer [rows] [groups]     # the same values by hand, and the time
    python benchmarks/groups.py pertpy [rows] [groups]   # in an environment that has pertpy

`peer` and `pertpy` draw the same counts. pertpy runs in an environment of its own; both print the
time, and a checksum of the matrix to compare.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

COLUMNS = 50


def cells(rows: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Principal components of cells, of which every seventh group is shifted."""
    rng = np.random.default_rng(0)
    labels = rng.integers(groups, size=rows)
    points = rng.normal(size=(rows, COLUMNS))
    points[labels % 7 == 3, :5] += 0.5
    return points, labels


def scale(rows: int = 1_000_000, groups: int = 2000, device: str = "") -> None:
    """All distances in 2,048 random features, and p-values against group 0."""
    from meanmap.comparison import pairwise
    from meanmap.spaces import RandomFourier

    points, labels = cells(rows, groups)
    if device:
        import torch

        points = torch.as_tensor(points, device=device)
    start = time.perf_counter()
    basis = RandomFourier(2048, random_state=0)
    found = pairwise(points, labels, control=0, basis=basis, correction="fdr", rng=0)
    took = time.perf_counter() - start
    assert found.adjusted is not None
    names = np.arange(groups)[1:]
    shifted, rejected = names % 7 == 3, found.adjusted[1:] <= 0.05
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{rows:,} rows, {groups:,} groups: {took:.1f} s, {memory:.2f} GiB at most")
    if device.startswith("cuda"):
        print(f"on the device: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at most")
    for name, rows_of in (("shifted", shifted), ("other", ~shifted)):
        print(f"differ from the control: {rejected[rows_of].mean():.1%} of {name} groups")


def peer(rows: int = 10_000, groups: int = 20) -> None:
    """Exact energy distances, and the first of them by hand."""
    from meanmap.comparison import pairwise

    points, labels = cells(rows, groups)
    pairwise(points[:100], labels[:100], kernel="energy")
    start = time.perf_counter()
    found = pairwise(points, labels, kernel="energy")
    took = time.perf_counter() - start
    A, B = points[labels == 0], points[labels == 3]

    def mean(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.norm(a[:, None] - b[None], axis=2).mean())

    by_hand = 2 * mean(A, B) - mean(A, A) - mean(B, B)
    start = time.perf_counter()
    pairwise(points, labels, 0, "energy", n_permutations=1000, rng=0)
    print(f"meanmap, with p-values of 1,000 permutations: {time.perf_counter() - start:.2f} s")
    print(f"meanmap: {took:.3f} s, sum {found.distances.sum():.9f}")
    print(f"largest difference to the formula: {abs(by_hand - found.distances[0, 3]):.1e}")


def pertpy(rows: int = 10_000, groups: int = 20) -> None:
    """The same by pertpy."""
    import anndata
    import pandas as pd
    import statsmodels.sandbox.stats.multicomp as old
    from statsmodels.stats.multitest import multipletests

    old.multipletests = multipletests  # pertpy 1.0.3 looks for it where it no longer is
    import pertpy as pt

    points, labels = cells(rows, groups)
    names = pd.DataFrame({"group": pd.Categorical(labels.astype(str))})
    names.index = names.index.astype(str)
    data = anndata.AnnData(points, obs=names, obsm={"X_pca": points})
    distance = pt.tools.Distance("edistance", obsm_key="X_pca")
    start = time.perf_counter()
    table = distance.pairwise(data, groupby="group", show_progressbar=False)
    took = time.perf_counter() - start
    print(f"pertpy: {took:.3f} s, sum {table.to_numpy().sum():.9f}")
    test = pt.tools.DistanceTest("edistance", n_perms=1000, obsm_key="X_pca")
    start = time.perf_counter()
    test(data, groupby="group", contrast="0", show_progressbar=False)
    print(f"pertpy, with p-values of 1,000 permutations: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    if sys.argv[1] == "--device":
        rows, groups = (int(float(word)) for word in [*sys.argv[3:], "1e6", "2000"][:2])
        scale(rows, groups, sys.argv[2])
    else:
        choice = {"scale": scale, "peer": peer, "pertpy": pertpy}[sys.argv[1]]
        choice(*(int(float(word)) for word in sys.argv[2:]))
