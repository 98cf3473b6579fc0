"""Probabilities on atoms in the place of weights of either sign."""

from __future__ import annotations

import numpy as np

COLUMNS = 8  # of points up to which the mean and deviation of each is met, else their size
SLACK = 1e-4  # of a deviation: how far moments may be missed, that there is always an answer
ENOUGH = 1e-7  # a gradient below this is 0
STEPS = 40  # of Newton's method


def probabilities(
    weights: np.ndarray, values: np.ndarray, mean: np.ndarray, deviation: np.ndarray
) -> np.ndarray:
    """Probabilities (b, n) near to weights of either sign, with given moments.

    The positive part of weights that swing is far too wide, and the nearest probability in the norm
    of a space lies on a handful of atoms. Between them is the positive part times
    `exp(Σ aⱼ xⱼ + bⱼ xⱼ²)`, of all probabilities with these means and deviations (b, q) the
    nearest to it in relative entropy. `values` are the atoms' numbers (n, q).
    """
    out = np.maximum(weights, 0.0)
    for i in np.flatnonzero((weights < 0).any(axis=1)):
        there = np.flatnonzero((out[i] > 0) & np.isfinite(values).all(axis=1))
        unit = np.where(deviation[i] > 0, deviation[i], 1.0)
        moves = deviation[i] > 0
        if there.size and moves.any():
            z = ((values[there] - mean[i]) / unit)[:, moves]
            out[i, there] = tilt(out[i, there], z)
    return out / out.sum(axis=1, keepdims=True)


def tilt(p: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The p' nearest to p in relative entropy with mean 0 and variance 1 of each column of z.

    Newton's method on the dual, `log Σ pᵢ exp(θ·tᵢ) + SLACK ‖θ‖²/2` with t = (z, z² - 1), from
    where it would be least if p were a Gaussian.
    """
    p = p / p.sum()
    d = z.shape[1]
    if d > COLUMNS:
        t, start = (z * z).mean(axis=1)[:, None] - 1, np.zeros(1)
    else:
        t = np.concatenate([z, z * z - 1], axis=1)
        m = p @ z
        v = np.maximum(p @ (z - m) ** 2, 1e-12)
        start = np.concatenate([-m / v, (1 / v - 1) / 2])
    log = np.log(p)

    def look(theta: np.ndarray) -> tuple[float, np.ndarray]:
        exponent = log + t @ theta
        top = float(exponent.max())
        found = np.exp(exponent - top)
        total = float(found.sum())
        return top + np.log(total) + SLACK / 2 * float(theta @ theta), found / total

    theta = np.zeros(t.shape[1])
    value, found = look(theta)
    other, there = look(start)
    if other < value:
        theta, value, found = start, other, there
    for _ in range(STEPS):
        first = found @ t
        gradient = first + SLACK * theta
        if abs(gradient).max() < ENOUGH:
            break
        off = t - first
        H = (off * found[:, None]).T @ off
        H[np.diag_indices_from(H)] += SLACK
        step = np.linalg.solve(H, -gradient)
        slope, length = float(gradient @ step), 1.0
        while length > 1e-6:
            other, there = look(theta + length * step)
            if other <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break  # rounding: no step is any better
        theta, value, found = theta + length * step, other, there
    return found
