"""Chunked Gaussian sums in torch float32; runs in torch's own environment.

`torch_sum.py --job sum FOLDER SLICE`: reads points.npy, queries.npy and bandwidth.npy, tries shapes
of chunk and numbers of threads on the first SLICE queries, then times all of them with the best
two; writes torch.npy.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import cores, imported, run_job

# queries × points: wide strips, and tiles that fit a core's cache
CHUNKS = [(16, None), (64, None), (256, None), (128, 4096), (512, 2048), (1024, 1024)]


def gaussian_sums(
    left: torch.Tensor, right: torch.Tensor, weights: torch.Tensor, chunk: tuple[int, int | None]
) -> torch.Tensor:
    """`Σⱼ wⱼ exp(left right)`, a product, an exponential in place and a product a chunk."""
    (m, n), (height, width) = (len(left), right.shape[1]), (chunk[0], chunk[1] or right.shape[1])
    out, buffer = torch.zeros(m), torch.empty(height * width)
    for i in range(0, m, height):
        rows = left[i : i + height]
        for j in range(0, n, width):
            columns = right[:, j : j + width]
            tile = buffer[: len(rows) * columns.shape[1]].view(len(rows), columns.shape[1])
            torch.matmul(rows, columns, out=tile)
            tile.exp_()
            out[i : i + height].addmv_(tile, weights[j : j + width])
    return out


def evaluate(
    points: np.ndarray, queries: np.ndarray, bandwidth: float, chunk: tuple[int, int | None]
) -> np.ndarray:
    """The mean embedding of the points at the queries, from NumPy to NumPy."""
    centre = points.mean(axis=0)  # smaller numbers, smaller rounding
    x = torch.tensor((points - centre) / bandwidth, dtype=torch.float32)
    q = torch.tensor((queries - centre) / bandwidth, dtype=torch.float32)
    one = torch.ones(1)
    # one matrix product gives -‖q - x‖²/2
    right = torch.cat([x.T, one.expand(1, len(x)), (x * x).sum(1)[None, :] / -2])
    left = torch.cat([q, (q * q).sum(1)[:, None] / -2, one.expand(len(q), 1)], dim=1)
    weights = torch.full((len(x),), 1 / len(x))
    return gaussian_sums(left, right, weights, chunk).numpy()


def timed(threads: int, *arguments: Any) -> tuple[float, np.ndarray]:
    """Seconds, and the values."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    values = evaluate(*arguments)
    return time.perf_counter() - start, values


def job(folder: str, slice_: str) -> dict[str, Any]:
    imported()
    points, queries = (np.load(Path(folder) / f"{name}.npy") for name in ("points", "queries"))
    bandwidth = float(np.load(Path(folder) / "bandwidth.npy"))
    some = queries[: int(slice_)]
    settings = [(threads, chunk) for threads in sorted({1, cores()}) for chunk in CHUNKS]
    trials = {
        setting: min(timed(setting[0], points, some, bandwidth, setting[1])[0] for _ in range(3))
        for setting in settings
    }
    best = sorted(settings, key=trials.__getitem__)[:2]
    runs = [
        (*timed(threads, points, queries, bandwidth, chunk), threads, chunk)
        for threads, chunk in best
    ]
    seconds, values, threads, chunk = min(runs, key=lambda r: r[0])
    np.save(Path(folder) / "torch.npy", values)
    shape = f"{chunk[0]} × {chunk[1] or len(points)}"
    return {"seconds": seconds, "threads": threads, "chunk": shape, "torch": torch.__version__}


if __name__ == "__main__":
    run_job(job, sys.argv[3:])
