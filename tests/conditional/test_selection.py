"""Choosing regularisation and bandwidths, spectra, and the baseline beside them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine
from sklearn.preprocessing import StandardScaler

from conditional_kernel_density import ConditionalKernelDensity
from meanmap import ConditionalEmbedding, embed
from meanmap.conditional.selection import GRID, marginal_consistency
from meanmap.kernels import Gaussian, Laplace, Linear, RationalQuadratic
from meanmap.rules import bayes_method
from meanmap.spaces import PivotedCholesky
from oracles.kernels import gaussian
from oracles.normals import distance_to_gaussian_squared
from oracles.rules import marginal_discrepancy

LOADERS = [load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine]


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADERS, ids=lambda load: load.__name__.removeprefix("load_"))
def test_automatic_regularisation_is_near_the_best_of_a_grid(load) -> None:
    """By held-out embedding loss, averaged over splits: within 10% of the best fixed value."""
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    y = np.asarray(y, dtype=float)
    y = StandardScaler().fit_transform(y if y.ndim == 2 else y[:, None])
    grid = np.concatenate([[np.nan], GRID[4::3]])
    losses = np.zeros(len(grid))
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(len(X))[:240]
        train, test = order[::2], order[1::2]
        for i, value in enumerate(grid):
            regularization = "auto" if np.isnan(value) else float(value)
            model = ConditionalEmbedding(regularization=regularization).fit(X[train], y[train])
            losses[i] += model.loss(X[test], y[test], reference=model.kernel_y_)
    assert losses[0] <= 1.1 * losses[1:].min()


@pytest.mark.parametrize("method", ["squared", "importance"])
def test_marginal_consistency_is_the_papers_cross_validation(method: str) -> None:
    """002, section 4.2, against the dense oracle with a fixed reference kernel."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    y = x + 0.5 * rng.normal(size=(60, 1))
    lam = 1e-2
    fine = PivotedCholesky(1e-13)
    model = ConditionalEmbedding(Gaussian(0.7), Gaussian(0.9), lam, basis=fine).fit(x, y)
    chosen = marginal_consistency(*model.sides(), model.weights_, lam, bayes_method(method))
    assert model.posterior_regularization(method, "marginal") == chosen.best
    assert np.isfinite(chosen.errors).all()
    if method == "squared":
        K, G = gaussian(x, x, 0.7), gaussian(y, y, 0.9)
        reference = gaussian(x, x, Gaussian().resolve(x).bandwidth)
        folds = [np.flatnonzero(np.arange(60) % 5 == fold) for fold in range(5)]
        for i in range(8, len(chosen.grid), 4):
            dense = marginal_discrepancy(K, G, folds, lam, chosen.grid[i], reference)
            assert_allclose(5 * chosen.errors[i], dense, rtol=1e-4)
    posterior = model.posterior(embed(x), method, "marginal")
    assert np.isfinite(posterior.given(y[:5]).mean()).all()


def test_schedules_are_the_rates_of_the_theorems() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 1))
    model = ConditionalEmbedding(regularization="song2009").fit(x, x)
    assert model.regularization_ == pytest.approx(1 / 8)
    model = ConditionalEmbedding(regularization="fukumizu2013").fit(x, x)
    assert model.regularization_ == pytest.approx(1 / 4)
    assert model.posterior_regularization("squared", "fukumizu2013") == pytest.approx(
        64 ** (-4 / 27)
    )
    pointwise = model.posterior(x, "squared", "fukumizu2013-average")
    assert np.isfinite(pointwise.given(x[:3]).mean()).all()
    for bad in ["song", "auto", "song2009"]:
        with pytest.raises(ValueError, match="regularization must be one of"):
            model.posterior(x, regularization=bad)
    with pytest.raises(ValueError, match="regularization must be one of"):
        ConditionalEmbedding(regularization="cv").fit(x, x)


def test_the_conditional_density_baseline() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2000, 1))
    y = 0.5 * x + 0.4 * rng.normal(size=(2000, 1))
    model = ConditionalKernelDensity(0.2, 0.15).fit(x, y)
    grid = np.linspace(-3, 3, 601)
    density = model.density(grid[:, None], [[0.0], [1.0]])
    assert_allclose(density.sum(axis=1) * (grid[1] - grid[0]), 1.0, atol=1e-6)
    truth = np.exp(-((grid - 0.5) ** 2) / (2 * 0.16)) / np.sqrt(2 * np.pi * 0.16)
    assert abs(density[1] - truth).max() < 0.15
    assert_allclose(model.predict([[1.0]]), [[0.5]], atol=0.1)
    assert ConditionalKernelDensity(0.2).fit(x, y[:, 0]).predict([[1.0]]).shape == (1,)
    assert_allclose(model.weights([[50.0]]), model.weights_[None, :])  # far away: the marginal


@pytest.mark.parametrize("n", [50, 800])
def test_the_error_bound_holds(n: int) -> None:
    """Against the closed form of a Gaussian's embedding: never exceeded, and not absurdly loose."""
    mean, covariance = np.zeros(2), np.eye(2)
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(n, 2))
        e = embed(X, kernel=Gaussian(1.0))
        square = distance_to_gaussian_squared(X, e.weights, mean, covariance, 1.0)
        assert np.sqrt(square) < e.error_bound(0.05) < 12 * np.sqrt(square)
    assert e.error_bound(0.05) == pytest.approx((2 + np.sqrt(np.log(40) / 2)) / np.sqrt(n))
    assert e.error_bound(0.01) > e.error_bound(0.1)
    for bad in (0, 1, -0.1, 2):
        with pytest.raises(ValueError, match="between 0 and 1"):
            e.error_bound(bad)
    with pytest.raises(ValueError, match="bounded"):
        embed(X, kernel=Linear()).error_bound()


def test_gradients_and_modes_of_sums_and_products() -> None:
    rng = np.random.default_rng(6)
    X, x = rng.normal(size=(30, 2)), np.array([0.3, -0.2])
    for kernel in [
        Gaussian(0.7) + Gaussian(2.0),
        Gaussian(0.7) * RationalQuadratic(1.0, 1.5),
        2.0 * Gaussian(0.7) + 1,
    ]:
        steps = 1e-6 * np.eye(2)
        numeric = [(kernel([x + h], X) - kernel([x - h], X))[0] / 2e-6 for h in steps]
        assert_allclose(kernel.gradient(x, X), np.array(numeric).T, atol=1e-8)
        e = embed(X, kernel=kernel)
        axis = np.linspace(-3, 3, 121)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        best = grid[np.argmax(2 * e(grid) - kernel.diagonal(grid))]
        assert np.linalg.norm(e.mode() - best) < 0.1
    assert not (Gaussian(1.0) + Laplace(1.0)).smooth
