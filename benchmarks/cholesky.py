"""Pivoted Cholesky in blocks, against a column-at-a-time greedy version in NumPy.

Gaussian kernel at the median distance of a normal sample. Large rank (n = 20,000, d = 10, rank
2,000) is where blocks pay; small rank (n = 10⁵, d = 2, rank 45) is where they could cost. Both
sides stop at the rank and report the share of the trace that is left.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from harness import Contestant, Row, child, imported, main, peer_threads, race, say

SIZES = {"large": (20_000, 10, 2_000), "small": (100_000, 2, 45)}


def data(size: str) -> tuple[np.ndarray, float, int]:
    """Points, bandwidth, rank."""
    n, d, rank = SIZES[size]
    X = np.random.default_rng(0).normal(size=(n, d))
    some = X[:1000]
    squares = ((some[:, None, :] - some[None, :, :]) ** 2).sum(axis=2)
    return X, float(np.sqrt(np.median(squares[np.triu_indices(1000, 1)]))), rank


def columns(X: np.ndarray, bandwidth: float, rank: int) -> tuple[np.ndarray, float]:
    """Greedy pivots, one kernel column and one matrix-vector product each; the residual trace.

    The factor is allocated once and kept as rows, so that every product runs through contiguous
    memory; the rest of a step works in place.
    """
    n = len(X)
    scaled = np.ascontiguousarray(X / bandwidth)
    halves = np.einsum("ij,ij->i", scaled, scaled) / 2
    rows, residual = np.empty((rank, n)), np.ones(n)
    squares, product = np.empty(n), np.empty(n)
    for k in range(rank):
        pivot = int(residual.argmax())
        row = rows[k]
        np.matmul(scaled, scaled[pivot], out=row)
        row -= halves
        row -= halves[pivot]
        np.exp(row, out=row)
        if k:
            np.matmul(rows[:k, pivot], rows[:k], out=product)
            row -= product
        row /= np.sqrt(residual[pivot])
        np.multiply(row, row, out=squares)
        residual -= squares
        np.maximum(residual, 0, out=residual)
        residual[pivot] = 0
    return rows, float(residual.sum()) / n


def blocks(X: np.ndarray, bandwidth: float, rank: int) -> Any:
    """Ours, stopped by the rank alone."""
    from meanmap import ApproximationWarning
    from meanmap.kernels import Gaussian
    from meanmap.spaces import PivotedCholesky, Space

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)  # the rank is capped on purpose
        return Space(Gaussian(bandwidth), PivotedCholesky(tol=0.0, max_rank=rank)).fit(X)


def run() -> list[Row]:
    return [compare("large", rounds=2, bar=3.0), compare("small", rounds=40, bar=1.0)]


def compare(size: str, rounds: int, bar: float) -> Row:
    """Both sides at one size."""
    X, bandwidth, rank = sample = data(size)
    n, d = X.shape
    say(f"n = {n:,}, d = {d}, rank {rank:,}")
    space, left = blocks(*sample), columns(*sample)[1]  # the warm-up
    best = race(
        {
            "ours": Contestant(lambda: blocks(*sample)),
            "peer": Contestant(lambda: columns(*sample), peer_threads()),
        },
        rounds=rounds,
        warm_up=0,
    )
    ours, peer = best["ours"].seconds, best["peer"].seconds
    memory = {name: child("cholesky.py", name, size)[1] for name in JOBS}
    return Row(
        f"n = {n:,}, d = {d}, rank {rank:,}",
        "greedy, column by column, NumPy",
        ours,
        peer,
        peer_threads=best["peer"].threads,
        ours_memory=memory["ours"],
        peer_memory=memory["peer"],
        note=f"rank {space.rank_}, residual trace {space.residual_:.2g}, peer {left:.2g}",
        bar=f"≥ {bar:g}×",
        holds=peer >= bar * ours and space.rank_ == rank,
    )


def ours_once(size: str) -> None:
    import meanmap  # noqa: F401

    imported()
    blocks(*data(size))


def peer_once(size: str) -> None:
    imported()
    columns(*data(size))


JOBS = {"ours": ours_once, "peer": peer_once}

if __name__ == "__main__":
    main(__file__, "pivoted Cholesky to a rank", run, JOBS)
