"""The kernel Stein discrepancy: Stein kernels, scores, streamed sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from threadpoolctl import threadpool_limits

from meanmap.kernels import (
    Delta,
    Energy,
    Function,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from meanmap.kernels.bandwidths import column_scales
from meanmap.statistics.scores import STANDARD, sampler_of, score_values
from meanmap.statistics.stein import stein_discrepancy, stein_field, stein_sums
from optional_packages import require
from oracles.statistics import (
    stein_estimate,
    stein_gaussian_dense,
    stein_kernel_numerical,
    stein_normal_population,
)

SMOOTH = [
    Gaussian(1.3),
    Gaussian((1.0, 2.0, 0.7)),
    RationalQuadratic(0.5, 1.2),
    RationalQuadratic(1.7, (1.0, 2.0, 0.7)),
    Matern(2.5, 1.1),
    Matern(1.5, 1.1),
    Matern(1.5, (1.0, 2.0, 0.7)),
    Polynomial(1),
    Polynomial(2),
    Polynomial(3, 0.5),
    Linear(),
    2.0 * Gaussian(1.0) + 1,
    Gaussian(1.0) * Polynomial(2),
    Gaussian(1.0) * Matern(2.5, 2.0) + 0.5 * Linear(),
    (Linear() + 1) * RationalQuadratic(0.5, 1.0),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- Stein kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_stein_kernels_are_finite_differences(kernel: Any, rng: np.random.Generator) -> None:
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    S, T = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))

    def k(x: np.ndarray, y: np.ndarray) -> float:
        return float(kernel(x[None], y[None])[0, 0])

    expected = [
        [stein_kernel_numerical(k, a, s, b, t) for b, t in zip(B, T, strict=True)]
        for a, s in zip(A, S, strict=True)
    ]
    assert_allclose(kernel.stein(A, S, B, T), expected, rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_stein_kernels_are_symmetric_and_positive(kernel: Any, rng: np.random.Generator) -> None:
    X, S = rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    X[1], S[1] = X[0], S[0]  # equal points too
    H = kernel.stein(X, S)
    assert np.isfinite(H).all()
    assert_allclose(H, H.T, atol=1e-10 * np.abs(H).max())
    assert np.linalg.eigvalsh(H).min() > -1e-10 * np.abs(H).max()


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_matern_at_equal_points(nu: float) -> None:
    """tr ∇∇′k at x = x' is d f'(0)/σ²: 3d/σ² and (5/3) d/σ²."""
    value = Matern(nu, 2.0).stein(np.ones((1, 3)), np.zeros((1, 3)))[0, 0]
    assert_allclose(value, 3 * (3.0 if nu == 1.5 else 5 / 3) / 4)


def test_far_from_the_origin_nothing_is_lost(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2))
    near = Gaussian(1.0).stein(X, -X)
    far = Gaussian(1.0).stein(X + 1e6, -X)
    assert_allclose(far, near, atol=1e-8)


@pytest.mark.parametrize(
    "kernel",
    [Laplace(1.0), Matern(0.5, 1.0), Energy(), Gaussian(1.0) + Laplace(1.0), Function(np.dot)],
    ids=repr,
)
def test_kernels_with_kinks_are_refused(kernel: Any, rng: np.random.Generator) -> None:
    X = rng.normal(size=(5, 2))
    with pytest.raises(TypeError, match="mixed second derivative"):
        kernel.stein(X, -X)
    with pytest.raises(TypeError, match="mixed second derivative"):
        stein_discrepancy(X, lambda x: -x, kernel)


def test_other_kernels_are_refused(rng: np.random.Generator) -> None:
    X = rng.normal(size=(5, 2))
    with pytest.raises(TypeError, match="mixed second derivative"):
        stein_discrepancy(X, lambda x: -x, Delta())
    with pytest.raises(ValueError, match="one gradient per point"):
        Gaussian(1.0).stein(X, -X[:4])


def test_torch_points_give_torch_stein_kernels(rng: np.random.Generator) -> None:
    torch = require("torch")
    X = rng.normal(size=(6, 2))
    T = torch.as_tensor(X)
    for kernel in (Gaussian(1.0), RationalQuadratic(0.5, (1.0, 2.0)), Gaussian(1.0) * Polynomial()):
        H = kernel.stein(T, -T)
        assert isinstance(H, torch.Tensor)
        assert_allclose(H.numpy(), kernel.stein(X, -X), atol=1e-12)


# --- the discrepancy -----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_agrees_with_loops(estimator: str, rng: np.random.Generator) -> None:
    X, S = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    H = stein_gaussian_dense(X, S, 0.8)
    found = stein_discrepancy(X, S, Gaussian(0.8), estimator)
    assert_allclose(found, stein_estimate(H, estimator), rtol=1e-12)


def test_the_mean_of_the_unbiased_estimate_is_the_population_value() -> None:
    """300 samples of 40; the bar is six standard errors."""
    rng = np.random.default_rng(1)
    truth = stein_normal_population(0.4, 1.3, 0.9)
    values = [
        stein_discrepancy(rng.normal(0.4, 1.3, size=(40, 1)), stats.norm(), Gaussian(0.9))
        for _ in range(300)
    ]
    assert abs(np.mean(values) - truth) < 6 * np.std(values) / 300**0.5
    assert truth > 10 * np.std(values) / 300**0.5  # and the bar tells it from 0


def test_the_population_value_of_the_density_itself_is_zero() -> None:
    assert abs(stein_normal_population(0.0, 1.0, 0.9)) < 1e-12


def test_it_is_the_squared_norm_of_the_score_difference() -> None:
    """KSD² = E (s_p - s_q)(x) k(x, x') (s_p - s_q)(x') (Liu, Lee and Jordan 2016, def. 3.2)."""
    m, d, b = 0.5, 1.4, 0.8
    z, w = np.polynomial.hermite_e.hermegauss(80)
    x, w = m + d * z, w / w.sum()
    gap = w * (-x + (x - m) / d**2)
    direct = gap @ np.exp(-((x[:, None] - x) ** 2) / (2 * b * b)) @ gap
    assert_allclose(stein_normal_population(m, d, b), direct, rtol=1e-10)


def test_streamed_sums_are_dense_sums(rng: np.random.Generator) -> None:
    X = rng.normal(size=(700, 2))
    kernel = RationalQuadratic(0.5, 1.0)
    H = kernel.stein(X, -X)
    starts = np.array([0, 3, 10, 300, 301, 690])
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            sums = stein_sums(kernel, X, -X, starts)
        dense = np.add.reduceat(np.add.reduceat(H, starts, axis=0), starts, axis=1)
        assert_allclose(sums.bins, dense, atol=1e-9)
        assert_allclose(sums.trace, np.trace(H), rtol=1e-12)


def test_many_tiles_on_threads(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1500, 1))
    dense = Gaussian(1.0).stein(X, -X)
    with threadpool_limits(2, user_api="blas"):
        found = stein_discrepancy(X, -X, Gaussian(1.0))
    assert_allclose(found, stein_estimate(dense, "U"), atol=1e-12)


def test_the_field_is_the_mean_of_its_definition(rng: np.random.Generator) -> None:
    X, S, v = rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), rng.normal(size=(4, 2))
    for kernel in (Gaussian(1.1), Polynomial(2)):
        K, gradient = kernel(X, v), kernel.gradient(X, v)
        expected = [(K[:, [j]] * S + gradient[:, j]).mean(axis=0) for j in range(4)]
        assert_allclose(stein_field(kernel, X, S, v), expected, atol=1e-12)


def test_the_default_kernel_is_the_inverse_multiquadric(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 2))
    units = column_scales(X)
    units /= np.exp(np.log(units).mean())
    expected = stein_discrepancy(X / units, -X * units, RationalQuadratic(0.5))
    assert_allclose(stein_discrepancy(X, -X), expected, rtol=1e-12)
    assert stein_discrepancy(X.astype(np.float32), -X) == pytest.approx(expected, abs=1e-5)


def test_one_point_has_a_v_estimate() -> None:
    assert_allclose(stein_discrepancy([[2.0]], [[-2.0]], Gaussian(1.0), "V"), 4 + 1)


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STANDARD)
def test_exact_scores_are_numerical_ones(name: str, monkeypatch: Any) -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    law = getattr(stats, name)(*((4.0,) if name == "t" else ()), loc=[1.0, 0.0], scale=2.0)
    exact = score_values(law, x)
    monkeypatch.setattr("meanmap.statistics.scores.STANDARD", {})
    assert_allclose(score_values(law, x), exact, atol=1e-10)


@pytest.mark.parametrize(
    ("law", "score"),
    [
        (stats.gamma(5.0), lambda x: 4 / x - 1),
        (stats.lognorm(0.5), lambda x: -1 / x - np.log(x) / (0.25 * x)),
        (stats.beta(4, 5), lambda x: 3 / x - 4 / (1 - x)),
    ],
)
def test_scores_on_part_of_the_line(law: Any, score: Any) -> None:
    x = law.rvs(size=(300, 1), random_state=1)
    assert_allclose(score_values(law, x), score(x), rtol=1e-8, atol=1e-8)


def test_scores_of_joint_distributions(rng: np.random.Generator) -> None:
    X, C = rng.normal(size=(50, 2)), np.array([[1.0, 0.5], [0.5, 2.0]])
    inverse = np.linalg.inv(C)
    normal = stats.multivariate_normal([0.0, 1.0], C)
    expected = -(X - [0.0, 1.0]) @ inverse
    assert_allclose(score_values(normal, X), expected, atol=1e-12)
    law = stats.multivariate_t([0.0, 1.0], C, df=3)
    z = X - [0.0, 1.0]
    quadratic = np.sum(z @ inverse * z, axis=1, keepdims=True)
    assert_allclose(score_values(law, X), -5 * z @ inverse / (3 + quadratic), atol=1e-12)
    density = stats.gaussian_kde(X.T)
    W = stats.multivariate_normal(cov=density.covariance).pdf(X[:, None] - X[None])
    pull = -(X[:, None] - X[None]) @ np.linalg.inv(density.covariance)
    expected = np.sum(W[:, :, None] * pull, axis=1) / W.sum(axis=1)[:, None]
    assert_allclose(score_values(density, X), expected, atol=1e-8)


def test_samplers_of_distributions(rng: np.random.Generator) -> None:
    laws = [
        stats.norm(1.0),
        stats.norm([1.0, 2.0]),
        stats.multivariate_normal([0.0, 1.0]),
        stats.gaussian_kde(rng.normal(size=(2, 20))),
    ]
    for law in laws:
        draw = sampler_of(law, 2)
        assert draw is not None
        assert draw(7, rng).shape == (7, 2)
    assert sampler_of(lambda x: -x, 2) is None


@pytest.mark.parametrize(
    ("law", "error", "match"),
    [
        (stats.poisson(3), TypeError, "discrete"),
        (stats.norm, TypeError, "family"),
        (stats.expon(), ValueError, "not 0 at the end 0"),
        (stats.uniform(-50, 100), ValueError, "not 0 at the end"),
        (stats.gamma(5.0, loc=0.5), ValueError, "outside the support"),
        (stats.multivariate_normal([0.0, 0.0]), ValueError, "2 coordinates does not fit"),
        (stats.norm([0.0, 1.0, 2.0]), ValueError, "3 independent columns"),
    ],
)
def test_distributions_without_a_use_are_refused(law: Any, error: type, match: str) -> None:
    x = np.linspace(0.1, 3, 20)[:, None]
    with pytest.raises(error, match=match):
        stein_discrepancy(x, law)


def test_a_singular_normal_is_refused() -> None:
    law = stats.multivariate_normal([0, 0], [[1, 1], [1, 1]], allow_singular=True)
    with pytest.raises(ValueError, match="singular"):
        stein_discrepancy(np.random.default_rng(0).normal(size=(10, 2)), law)


def test_scores_may_be_flat_for_one_column(rng: np.random.Generator) -> None:
    X = rng.normal(size=(20, 1))
    assert stein_discrepancy(X, lambda x: -x[:, 0]) == stein_discrepancy(X, -X)


def test_torch_points_reach_the_score_as_torch(rng: np.random.Generator) -> None:
    torch = require("torch")
    X = rng.normal(size=(20, 2))

    def score(x: Any) -> Any:
        x = x.clone().requires_grad_(True)
        return torch.autograd.grad(-(x**2).sum() / 2, x)[0]

    assert stein_discrepancy(torch.as_tensor(X), score) == stein_discrepancy(X, -X)


@pytest.mark.parametrize(
    ("X", "score", "error", "match"),
    [
        (np.zeros((5, 2, 2)), lambda x: -x, ValueError, "2D"),
        (np.zeros((1, 2)), lambda x: -x, ValueError, "at least 2 points"),
        (np.full((5, 2), np.nan), lambda x: -x, ValueError, "NaN"),
        (np.ones((5, 2)), lambda x: -x[:, 0], ValueError, r"shape \(5, 2\)"),
        (np.ones((5, 2)), lambda x: -x[:4], ValueError, r"shape \(5, 2\)"),
        (np.ones((5, 2)), lambda x: x / 0.0, ValueError, "not finite at 5 of 5"),
        (np.ones((5, 2)), np.ones((4, 2)), ValueError, r"shape \(5, 2\)"),
        (np.ones((5, 2)), "normal", TypeError, "expected an array"),
        (np.ones((5, 2)), lambda x: x * 1j, TypeError, "real numbers"),
    ],
)
def test_bad_input(X: Any, score: Any, error: type, match: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(error, match=match):
        stein_discrepancy(X, score)


def test_unknown_estimators_are_refused() -> None:
    with pytest.raises(ValueError, match="estimator"):
        stein_discrepancy(np.ones((5, 1)), np.ones((5, 1)), estimator="W")
