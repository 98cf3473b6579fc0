"""Groups of rows and pictures as bags: the data of the experiment on support measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.ndimage import affine_transform

from meanmap.kernels import Weighted

Examples = tuple[list[Any], np.ndarray]  # bags, and a class or a number for each


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes of a table that comes with scikit-learn."""
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


# --- digits ---------------------------------------------------------------------------------------


def pixel_bags(images: np.ndarray) -> list[Weighted]:
    """Each picture a bag of the places of its pixels, weighted by how dark they are.

    All are on one grid, whose points the bags share, so that it is compared only once.
    """
    side = int(images.shape[1] ** 0.5)
    rows, columns = np.divmod(np.arange(side * side), side)
    grid = np.stack([rows, columns], axis=1).astype(float)
    return [Weighted(grid, image / image.sum()) for image in images]


def jittered(
    images: np.ndarray, times: int, rng: np.random.Generator, most: tuple[float, float]
) -> np.ndarray:
    """Every picture `times` times, each turned and moved a little: (n, times, pixels)."""
    side, (turn, move) = int(images.shape[1] ** 0.5), most
    centre = np.full(2, (side - 1) / 2)
    out = np.empty((len(images), times, images.shape[1]))
    for i, image in enumerate(images):
        for j in range(times):
            a = np.deg2rad(rng.uniform(-turn, turn))
            R = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
            offset = centre - R @ centre + rng.uniform(-move, move, size=2)
            out[i, j] = affine_transform(image.reshape(side, side), R, offset, order=1).ravel()
    return out


# --- groups of rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """Bags for learning and bags for judging, of different rows.

    The bags of one fold share no row with those of another: a kernel that knows rows again would
    seem to know bags.
    """

    train: Examples
    test: Examples
    fold: np.ndarray | None = None  # of the bags for learning; None where no rows are shared


def pools(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of a table: three parts to learn from, and a last third to judge by."""
    rows = rng.permutation(count)
    known, held = np.split(rows, [2 * count // 3])
    return [*np.array_split(known, 3), held]


def composed(n: int, rng: np.random.Generator, sizes: tuple[int, int]) -> Groups:
    """Breast cancer: bags of patients, and the share of them whose tumour is malignant."""
    X, y = table("breast_cancer")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    parts = pools(len(X), rng)

    def bags(which: np.ndarray) -> Examples:
        shares = rng.uniform(0.1, 0.9, size=n)
        found = []
        for share, part in zip(shares, which, strict=True):
            kinds = [parts[part][y[parts[part]] == kind] for kind in (1, 0)]
            chosen = np.where(rng.uniform(size=rng.integers(*sizes)) < share, 1, 0)
            found.append(X[[rng.choice(kinds[kind]) for kind in chosen]])
        return found, shares

    fold = np.arange(n) % 3
    return Groups(bags(fold), bags(np.full(n, 3)), fold)


def shuffled(n: int, rng: np.random.Generator, sizes: tuple[int, int]) -> Groups:
    """Wine: bags of wines, in half of them every column shuffled within the bag.

    Means and the distribution of each column are untouched; only the dependence between columns is
    gone. On larger bags every method but the mean would succeed, so that bags have a third of the
    size they have in the other tasks.
    """
    X, _ = table("wine")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    parts = pools(len(X), rng)

    def bags(which: np.ndarray) -> Examples:
        classes = np.arange(n) // 3 % 2  # as many of each in every fold
        found = []
        for kind, part in zip(classes, which, strict=True):
            size = rng.integers(*sizes) // 3
            bag = X[rng.choice(parts[part], size=size, replace=False)]
            found.append(rng.permuted(bag, axis=0) if kind else bag)
        return found, classes

    fold = np.arange(n) % 3
    return Groups(bags(fold), bags(np.full(n, 3)), fold)


def two_modes(n: int, rng: np.random.Generator, sizes: tuple[int, int]) -> Groups:
    """Generated: one cluster, or two, with the same mean and covariance."""

    def bags() -> Examples:
        classes = rng.permutation(np.arange(n) % 2)
        found = []
        for kind in classes:
            bag = rng.normal(size=(rng.integers(*sizes), 3))
            if kind:
                side = rng.choice([-1.0, 1.0], size=len(bag))
                bag[:, 0] = 0.9 * side + (1 - 0.81) ** 0.5 * bag[:, 0]
            found.append(bag)
        return found, classes

    return Groups(bags(), bags())


def entropies(n: int, size: int, rng: np.random.Generator) -> Groups:
    """Samples of a normal distribution turned by an angle; the entropy of their first coordinate.

    After Póczos, Singh, Rinaldo and Wasserman (2013) and Szabó et al. (2016).
    """

    def bags() -> Examples:
        angles = rng.uniform(0, np.pi, size=n)
        c, s = np.cos(angles), np.sin(angles)
        turns = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)
        z = rng.normal(size=(n, size, 2)) * [2.0, 0.5]
        entropy = np.log(2 * np.pi * np.e * (4 * c**2 + s**2 / 4)) / 2
        return list(z @ np.swapaxes(turns, 1, 2)), entropy

    return Groups(bags(), bags())
