"""`compress`, 65,536 points to 256, against goodpoints' Compress++ and random subsets.

goodpoints (the authors' own package, Cython) runs in an environment of its own on the same points,
with the same Gaussian kernel. Every MMD is to all points, exact, computed by us.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contestant, Row, child, environment, main, race, say

GOODPOINTS = ("goodpoints==0.6.3", "numpy")
SIZE, TURNS = 4**8, 3
DIMENSIONS = (2, 10)


def sample(d: int) -> np.ndarray:
    """A mixture of four Gaussians in random order."""
    rng = np.random.default_rng(d)
    means = rng.normal(0, 3, size=(4, d))
    return means[rng.integers(4, size=SIZE)] + rng.normal(size=(SIZE, d))


class Distance:
    """√MMD² of subsets to all points."""

    def __init__(self, X: np.ndarray, kernel: Any) -> None:
        from meanmap.statistics.tiles import gram_sums

        self.X, self.kernel = X, kernel
        self.own = gram_sums(kernel, X) / len(X) ** 2

    def __call__(self, index: np.ndarray) -> float:
        few = self.X[index]
        v = np.full(len(few), 1 / len(few))
        across = v @ self.kernel.matmul(few, self.X, np.full(len(self.X), 1 / len(self.X)))
        square = self.own - 2 * across + v @ self.kernel(few) @ v
        return float(np.sqrt(max(square, 0.0)))


def rows(d: int, python: Path | None, missing: str, folder: Path) -> list[Row]:
    from meanmap.kernels import Gaussian
    from meanmap.statistics import compress

    X = sample(d)
    kernel = Gaussian().resolve(X)
    say(f"d = {d}: exact distances")
    distance = Distance(X, kernel)
    found = [compress(X, kernel=kernel, rng=seed).indices for seed in range(TURNS)]
    ours = float(np.mean([distance(index) for index in found]))
    seconds = race({"ours": Contestant(lambda: compress(X, kernel=kernel, rng=0))}, rounds=TURNS)
    rng = np.random.default_rng(0)
    random = float(np.mean([distance(rng.integers(SIZE, size=256)) for _ in range(10)]))
    work = f"65,536 points to 256, d = {d}"
    out = [
        Row(
            work,
            "a random subset",
            seconds["ours"].seconds,
            note=f"MMD {ours:.2e} against {random:.2e}",
            bar="MMD ≤ 1/10",
            holds=bool(ours <= random / 10),
        )
    ]
    np.save(folder / "points.npy", X)
    for g in (0, 4):
        name = f"goodpoints, g = {g}"
        if python is None:
            out.append(Row(work, name, seconds["ours"].seconds, note=missing, bar="MMD no larger"))
            continue
        say(f"d = {d}: {name}")
        report, _ = child(
            "peers/compress_points.py",
            "compress",
            folder,
            kernel.bandwidth,
            g,
            TURNS,
            python=python,
        )
        peer = float(np.mean([distance(np.array(index)) for index in report["indices"]]))
        out.append(
            Row(
                work,
                name,
                seconds["ours"].seconds,
                report["seconds"],
                note=f"MMD {ours:.2e} against {peer:.2e}",
                bar="MMD no larger",
                holds=bool(ours <= peer),
            )
        )
    return out


def run() -> list[Row]:
    try:
        python, missing = environment("goodpoints", *GOODPOINTS), ""
    except (OSError, subprocess.CalledProcessError) as error:
        python, missing = None, f"goodpoints could not be installed ({error})"
        say(missing)
    with tempfile.TemporaryDirectory() as name:
        return [row for d in DIMENSIONS for row in rows(d, python, missing, Path(name))]


if __name__ == "__main__":
    main(__file__, "compression", run, {})
