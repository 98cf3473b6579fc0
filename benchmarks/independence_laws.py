"""Laws that tests of conditional independence are measured on, in `independence_level.py`.

A law draws X, Y and Z from n, the number of columns of Z and a generator. `NULLS` are independent
given Z: X and Y are the same function of Z, each with noise of its own, which is the worst case for
a regression, as both of its leftovers are alike. `ALTERNATIVES` are dependent given Z. They were
written down before the default test was designed, which was done on other laws. They were looked at
on the way: scale and shape of residuals are regressed separately since "heteroscedastic" rejected
13% with one column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Sample = tuple[Any, Any, Any]
Law = Callable[[int, int, np.random.Generator], Sample]
NOISE = 0.5


def normal(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of Z."""
    return rng.normal(size=(n, d))


def around(curve: np.ndarray, rng: np.random.Generator, spread: float = NOISE) -> np.ndarray:
    """A curve with noise, as a column."""
    return (curve + spread * rng.normal(size=len(curve)))[:, None]


def both(curve: np.ndarray, Z: Any, rng: np.random.Generator) -> Sample:
    """X and Y are one curve of Z, each with noise of its own."""
    return around(curve, rng), around(curve, rng), Z


# --- nulls ----------------------------------------------------------------------------------------


def linear(n: int, d: int, rng: np.random.Generator) -> Sample:
    Z = normal(n, d, rng)
    return both(Z.sum(axis=1) / np.sqrt(d), Z, rng)


def sine(n: int, d: int, rng: np.random.Generator) -> Sample:
    """A wave in every column."""
    Z = normal(n, d, rng)
    return both(np.sin(2 * Z).sum(axis=1) * np.sqrt(2 / d), Z, rng)


def product(n: int, d: int, rng: np.random.Generator) -> Sample:
    """The product of two columns; z|z| of one."""
    Z = normal(n, d, rng)
    return both(Z[:, 0] * (Z[:, 1] if d > 1 else abs(Z[:, 0])), Z, rng)


def quadratic(n: int, d: int, rng: np.random.Generator) -> Sample:
    Z = normal(n, d, rng)
    return both((Z**2 - 1).sum(axis=1) / np.sqrt(2 * d), Z, rng)


def steps(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Equal steps in every column."""
    Z = rng.uniform(size=(n, d))
    return both((np.floor(4 * Z) % 2 - 0.5).sum(axis=1) * 2 / np.sqrt(d), Z, rng)


def heavy_tails(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Student's t with two degrees of freedom, in Z and in the noise."""
    Z = rng.standard_t(2, size=(n, d))
    curve = Z.sum(axis=1) / np.sqrt(d)
    X, Y = ((curve + NOISE * rng.standard_t(2, size=n))[:, None] for _ in range(2))
    return X, Y, Z


def heteroscedastic(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Noise that grows with a column of Z, around a wave."""
    Z = normal(n, d, rng)
    curve, spread = np.sin(Z).sum(axis=1), 0.3 + abs(Z[:, 0])
    X, Y = ((curve + spread * rng.normal(size=n))[:, None] for _ in range(2))
    return X, Y, Z


def labels(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Everything is labels, three of them a column."""
    Z = rng.integers(3, size=(n, d))
    score = (Z - 1).sum(axis=1) / np.sqrt(d)
    X, Y = (np.digitize(score + 0.7 * rng.normal(size=n), [-0.5, 0.5]) for _ in range(2))
    words = np.array(["low", "middle", "high"])
    return words[X], words[Y], table(words[Z])


def mixed(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Z is labels and numbers, X a label and Y a number."""
    numbers = normal(n, d - d // 2, rng)
    groups = rng.integers(3, size=(n, d // 2))
    score = (np.sin(2 * numbers).sum(axis=1) + (groups - 1).sum(axis=1)) * np.sqrt(2 / d)
    Z = table(numbers, np.array(["a", "b", "c"])[groups])
    X = np.where(score + NOISE * rng.normal(size=n) > 0, "yes", "no")
    return X, around(score, rng), Z


def table(*parts: np.ndarray) -> Any:
    """Columns of several arrays as a frame."""
    import pandas as pd

    return pd.concat([pd.DataFrame(part) for part in parts], axis=1, ignore_index=True).rename(
        columns=str
    )


NULLS: dict[str, Law] = {
    f.__name__.replace("_", " "): f
    for f in (
        linear, sine, product, quadratic, steps, heavy_tails, heteroscedastic, labels, mixed
    )
}  # fmt: skip


# --- alternatives ---------------------------------------------------------------------------------


def shared_noise(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Linear in Z; the noises of X and Y have correlation 0.3."""
    return with_noise(n, d, rng, lambda x, y, z, s: (s + x, s + 0.3 * x + np.sqrt(0.91) * y))


def shared_noise_of_waves(n: int, d: int, rng: np.random.Generator) -> Sample:
    """Nonlinear and heteroscedastic in Z; the noises have correlation 0.3."""

    def make(x: Any, y: Any, z: Any, s: Any) -> Any:
        size = 0.3 + abs(s)
        return s + size * x, np.sin(2 * s) + size * (0.3 * x + np.sqrt(0.91) * y)

    return with_noise(n, d, rng, make)


def changing_sign(n: int, d: int, rng: np.random.Generator) -> Sample:
    """The noises have correlation 0.6 times the sign of a column of Z."""

    def make(x: Any, y: Any, z: Any, s: Any) -> Any:
        return s + x, s + 0.6 * np.sign(z) * x + 0.8 * y

    return with_noise(n, d, rng, make)


def shared_size(n: int, d: int, rng: np.random.Generator) -> Sample:
    """The noises are uncorrelated, and large together."""

    def make(x: Any, y: Any, z: Any, s: Any) -> Any:
        size = rng.choice([0.4, 1.4], size=n)
        return s + size * x, s + size * y

    return with_noise(n, d, rng, make)


def sine_correlation(n: int, d: int, rng: np.random.Generator) -> Sample:
    """cos z and exp z, whose noises have correlation sin 3z ("On the hardness of conditional
    independence testing in practice", 2025)."""

    def make(x: Any, y: Any, z: Any, s: Any) -> Any:
        rho = np.sin(3 * z)
        other = rho * x + np.sqrt(1 - rho**2) * y
        return np.cos(z) + 0.1 * x, np.exp(z) + 0.1 * other

    return with_noise(n, d, rng, make)


def with_noise(n: int, d: int, rng: np.random.Generator, make: Callable[..., Any]) -> Sample:
    """X and Y made of two noises, a column of Z, and the scaled sum of its columns."""
    Z = normal(n, d, rng)
    x, y = rng.normal(size=(2, n))
    X, Y = make(x, y, Z[:, 0], Z.sum(axis=1) / np.sqrt(d))
    return X[:, None], Y[:, None], Z


ALTERNATIVES: dict[str, Law] = {
    f.__name__.replace("_", " "): f
    for f in (shared_noise, shared_noise_of_waves, changing_sign, shared_size, sine_correlation)
}
