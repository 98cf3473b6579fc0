"""Competitors of `KernelABC`: rejection, regression adjustment, and pyABC's sequential Monte Carlo.

The first two take simulations that are there already: θ (n, d), the outputs (n, p) that a simulator
made of them, and an observation (p,). pyABC simulates for each observation anew. Besides, scores
for posteriors that are given by draws, the smaller the better.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist
from scipy.special import expit, logit

from meanmap import checks

INSIDE = 1e-9  # how near to its bounds, as a part of their distance, a parameter is taken to be


# --- from simulations that are there already ------------------------------------------------------


def rejection_abc(theta: Any, outputs: Any, y: Any, keep: int, scale: Any = None) -> np.ndarray:
    """The parameters whose outputs are nearest to the observation, (keep, d), nearest first.

    Rejection with the tolerance that accepts `keep` simulations.

    Parameters
    ----------
    theta : (n, d)
    outputs : (n, p)
    y : (p,)
    keep : int
    scale : (p,) or None
        What outputs are divided by before distances are taken; None is `deviations(outputs)`.

    Examples
    --------
    >>> import numpy as np
    >>> theta = np.arange(10.0)[:, None]
    >>> rejection_abc(theta, theta**2, [16.0], keep=3).ravel()
    array([4., 3., 5.])
    """
    return np.asarray(theta)[nearest(outputs, y, keep, scale)[0]]


def nearest(
    outputs: Any, y: Any, keep: int, scale: Any = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Which simulations are nearest, their distances, and the distance of the first left out.

    Where none is left out, the last is a little above the largest distance.
    """
    outputs, y = np.asarray(outputs, dtype=float), np.asarray(y, dtype=float).ravel()
    keep = checks.whole(keep, "keep", 1, "It is the number of simulations that are accepted.")
    if keep > len(outputs):
        raise ValueError(f"keep: expected at most the {len(outputs)} simulations, got {keep}.")
    if y.shape != outputs.shape[1:]:
        raise ValueError(f"y: expected {outputs.shape[1]} numbers as outputs have, got {y.size}.")
    by = deviations(outputs) if scale is None else np.asarray(scale, dtype=float)
    distance = np.linalg.norm((outputs - y) / by, axis=1)
    order = np.argsort(distance, kind="stable")
    beyond = distance[order[keep]] if keep < len(order) else np.nextafter(distance.max(), np.inf)
    return order[:keep], distance[order[:keep]], float(beyond)


def deviations(outputs: Any) -> np.ndarray:
    """The median absolute deviation of each column, or what else says how much it varies."""
    outputs = np.asarray(outputs, dtype=float)
    found = np.median(np.abs(outputs - np.median(outputs, axis=0)), axis=0)
    found = np.where(found > 0, found, outputs.std(axis=0))  # more than half of them are equal
    return np.where(found > 0, found, 1.0)


def regression_adjusted(
    theta: Any, outputs: Any, y: Any, keep: int, bounds: Any = None, scale: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rejection, then the accepted draws moved along a local linear regression on the outputs.

    θᵢ* = θᵢ - (sᵢ - s)ᵀβ with Epanechnikov's weights 1 - (dᵢ/h)², h the distance of the first
    simulation that is left out (Beaumont, Zhang and Balding 2002).

    Parameters
    ----------
    theta, outputs, y, keep, scale : as of `rejection_abc`; keep more than p + 1
    bounds : (d, 2) or None
        Ends of the prior's support, which adjusted draws then do not leave: the regression is of
        the logit, as in the R package abc.

    Returns
    -------
    draws : (keep, d)
    weights : (keep,), of sum 1

    Examples
    --------
    >>> import numpy as np
    >>> theta = np.linspace(0.0, 1.0, 101)[:, None]
    >>> draws, weights = regression_adjusted(theta, 2 * theta + 1, [1.5], keep=21)
    >>> bool(np.allclose(draws, 0.25))  # outputs without noise leave no doubt
    True
    """
    theta, outputs = np.asarray(theta, dtype=float), np.asarray(outputs, dtype=float)
    p = outputs.shape[1]
    if keep <= p + 1:
        raise ValueError(
            f"keep: a regression on {p} outputs needs more than {p + 1} simulations, got {keep}."
        )
    by = deviations(outputs) if scale is None else np.asarray(scale, dtype=float)
    order, distance, h = nearest(outputs, y, keep, by)
    kernel = 1 - (distance / h) ** 2 if h > 0 else np.ones(keep)
    weights = np.maximum(kernel, 0.0)  # a tie with the first left out weighs nothing
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(keep, 1 / keep)
    away = (outputs[order] - np.asarray(y, dtype=float).ravel()) / by
    target = theta[order] if bounds is None else _stretched(theta[order], bounds)
    design = np.column_stack([np.ones(keep), away])
    root = np.sqrt(weights)[:, None]
    beta = np.linalg.lstsq(root * design, root * target, rcond=None)[0]
    draws = target - away @ beta[1:]
    return draws if bounds is None else _squeezed(draws, bounds), weights


def _stretched(theta: np.ndarray, bounds: Any) -> np.ndarray:
    """From between the bounds to all numbers: the logit."""
    low, high = np.asarray(bounds, dtype=float).T
    return logit(np.clip((theta - low) / (high - low), INSIDE, 1 - INSIDE))


def _squeezed(values: np.ndarray, bounds: Any) -> np.ndarray:
    """Back from all numbers to between the bounds."""
    low, high = np.asarray(bounds, dtype=float).T
    return low + (high - low) * expit(values)


# --- pyABC ----------------------------------------------------------------------------------------


def pyabc_smc(
    simulator: Callable[[np.ndarray, np.random.Generator], Any],
    prior: Mapping[str, Any],
    y: Any,
    budget: int,
    seed: int,
    particles: int | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """pyABC's sequential Monte Carlo with its adaptive distance, for one observation.

    The budget is kept: when it is spent the last complete population is the answer. NumPy's global
    random state, which pyABC draws from, is seeded for the time and put back afterwards.

    Parameters
    ----------
    simulator : callable
        `simulator(theta, rng)` with theta (d,), returns numbers (p,).
    prior : dict of frozen scipy.stats distributions, one a parameter
    y : (p,)
    budget : int
        Simulations at most.
    seed : int
    particles : int or None
        Of a population; None is a sixtieth of the budget, but from 30 to 500: with larger ones
        the budget ends after few populations, far from the observation.

    Returns
    -------
    draws : (particles, d)
    weights : (particles,), of sum 1
    simulations : int
        As many as were run, those of an incomplete last population included.
    """
    pyabc = _pyabc()
    y = np.asarray(y, dtype=float).ravel()
    names = list(prior)
    particles = min(max(budget // 60, 30), 500) if particles is None else particles
    rng = np.random.default_rng(seed)
    used = 0

    class Spent(Exception):
        """The budget is."""

    def model(parameters: Mapping[str, float]) -> dict[str, np.ndarray]:
        nonlocal used
        if used >= budget:
            raise Spent
        used += 1
        theta = np.array([parameters[name] for name in names], dtype=float)
        return {"y": np.asarray(simulator(theta, rng), dtype=float).ravel()}

    parts = {name: pyabc.RV(p.dist.name, *p.args, **p.kwds) for name, p in prior.items()}
    with _seeded(seed), _quiet("ABC"):
        smc = pyabc.ABCSMC(
            model,
            pyabc.Distribution(**parts),
            distance_function=pyabc.AdaptivePNormDistance(p=2),
            population_size=particles,
            sampler=pyabc.sampler.SingleCoreSampler(),
        )
        smc.new("sqlite://", {"y": y})
        with suppress(Spent):
            smc.run(max_total_nr_simulations=budget)
        if smc.history.max_t < 0:
            raise ValueError(
                f"budget: {budget} simulations were spent before the first population of "
                f"{particles} was complete. Raise the budget or ask for fewer particles."
            )
        frame, weights = smc.history.get_distribution()
    draws = frame[names].to_numpy(dtype=float)
    return draws, np.asarray(weights, dtype=float) / np.sum(weights), used


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global random state seeded, and as it was afterwards."""
    before = np.random.get_state()  # noqa: NPY002 - pyABC draws from it
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """A logger that says nothing below an error."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _pyabc() -> Any:
    try:
        import pyabc
    except ImportError as error:
        raise ImportError("this peer is pyABC: pip install pyabc") from error
    return pyabc


# --- scores of draws ------------------------------------------------------------------------------


def crps(draws: Any, truth: Any, weights: Any = None) -> np.ndarray:
    """The continuous ranked probability score of each column: E|X - t| - E|X - X'|/2.

    X, X' independent draws; with weights, weighted ones (Gneiting and Raftery 2007).

    Examples
    --------
    >>> crps([[0.0], [1.0]], [0.0])  # 1/2 - 1/4
    array([0.25])
    """
    x, w, t = _scored(draws, truth, weights)
    order = np.argsort(x, axis=0, kind="stable")
    values, probability = np.take_along_axis(x, order, axis=0), w[order]
    # ∫ (F(u) - 1(u ≥ t))² du, F a step function: between neighbours it is constant but at t
    F = np.cumsum(probability, axis=0)[:-1]
    low, high = values[:-1], values[1:]
    below = np.clip(t, low, high) - low  # of each step, the length before t
    outside = np.maximum(values[0] - t, 0) + np.maximum(t - values[-1], 0)
    return (F**2 * below + (1 - F) ** 2 * (high - low - below)).sum(axis=0) + outside


def energy_score(draws: Any, truth: Any, weights: Any = None) -> float:
    """The energy score E‖X - t‖ - E‖X - X'‖/2: the CRPS of all columns together.

    Examples
    --------
    >>> energy_score([[0.0, 0.0], [3.0, 4.0]], [0.0, 0.0])  # 5/2 - 5/4
    1.25
    """
    x, w, t = _scored(draws, truth, weights)
    near = float(w @ cdist(x, t[None])[:, 0])
    i, j = np.triu_indices(len(x), 1)
    return near - float((w[i] * w[j]) @ pdist(x))


def _scored(draws: Any, truth: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, t = np.asarray(draws, dtype=float), np.asarray(truth, dtype=float).ravel()
    if x.ndim != 2 or x.shape[1] != len(t):
        raise ValueError(
            f"draws: expected rows of {len(t)} numbers, as truth has, got shape {x.shape}."
        )
    w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=float)
    return x, w / w.sum(), t
