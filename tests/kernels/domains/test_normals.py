"""Bags that are weighted or normal: closed forms against quadrature and chance, and laws."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import embed
from meanmap.kernels import (
    Constant,
    Delta,
    Energy,
    Expected,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Normal,
    OnEmbeddings,
    Polynomial,
    RationalQuadratic,
    Weighted,
)
from meanmap.kernels.domains import normals as module
from meanmap.spaces import PivotedCholesky, Space
from oracles.learning import expected_by_quadrature, random_covariance

KERNELS = [
    Gaussian(1.3),
    Linear(),
    *(Polynomial(degree, offset) for degree in (1, 2, 3, 4, 5) for offset in (0.0, 0.7)),
    2.5 * Gaussian(1.2) + Polynomial(3) + 1,
    Linear() + Constant(0.5),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def some(rng: np.random.Generator, d: int, n: int = 7) -> list[Any]:
    """Normal distributions of every form, a point, a bag, a weighted one, a mixture."""
    found: list[Any] = []
    for i in range(n):
        A = rng.uniform(-0.5, 0.5, size=(d, d))
        spread: Any = [0.0, rng.uniform(0.1, 0.6), rng.uniform(0.1, 0.6, size=d), A @ A.T][i % 4]
        found.append(Normal(rng.normal(size=d), spread))
    found.append(rng.normal(size=(1, d)))
    found.append(rng.normal(size=(3, d)))
    found.append(Weighted(rng.normal(size=(3, d)), [0.2, 1.1, -0.4]))
    found.append(Weighted([found[1], found[2], found[3]], [0.2, 0.5, 0.3]))
    return found


def order(kernel: Kernel) -> int:
    """Nodes a dimension: few are exact for polynomials."""
    return 6 if isinstance(kernel, Polynomial | Linear) else 22


# --- closed forms ---------------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("d", [1, 2])
def test_closed_forms_are_quadrature(kernel: Kernel, d: int) -> None:
    bags = some(np.random.default_rng(d), d)
    truth = expected_by_quadrature(kernel, bags, order(kernel))
    got = Expected(kernel)(bags)
    assert_allclose(got, truth, rtol=1e-10, atol=1e-10)
    assert_array_equal(got, got.T)
    assert_allclose(Expected(kernel)(bags[:4], bags[2:]), truth[:4, 2:], rtol=1e-10, atol=1e-10)
    assert_allclose(Expected(kernel).diagonal(bags), np.diag(truth), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("d", [1, 2])
def test_one_bandwidth_a_column(d: int) -> None:
    kernel = Gaussian((1.1, 2.0)[:d])
    bags = some(np.random.default_rng(4), d)
    truth = expected_by_quadrature(kernel, bags, 24)
    assert_allclose(Expected(kernel)(bags), truth, rtol=1e-10, atol=1e-10)


@each_kernel
def test_closed_forms_are_what_chance_gives(kernel: Kernel) -> None:
    """In four dimensions, within six standard errors of 4,000 draws."""
    rng, n = np.random.default_rng(3), 4000
    bags = some(rng, 4, 4)[:4]
    got = Expected(kernel)(bags)
    for i, j in combinations_with_replacement(range(4), 2):
        x, y = bags[i].sample(n, rng), bags[j].sample(n, rng)
        pairs = [(x[k : k + 20], y[k : k + 20]) for k in range(0, n, 20)]
        values = np.concatenate([np.diag(kernel(a, b)) for a, b in pairs])
        assert abs(values.mean() - got[i, j]) <= 6 * values.std() / n**0.5 + 1e-12


def test_the_papers_table() -> None:
    """Muandet, Fukumizu, Dinuzzo and Schölkopf (2012), Table 1, row by row."""
    rng = np.random.default_rng(5)
    (m, S), (n, T) = [(rng.normal(size=3), random_covariance(rng, 3)) for _ in range(2)]
    P, Q = [Normal(m, S)], [Normal(n, T)]
    assert_allclose(Expected(Linear())(P, Q), m @ n)
    second = (m @ n + 1) ** 2 + np.trace(S @ T) + m @ T @ m + n @ S @ n
    assert_allclose(Expected(Polynomial(2))(P, Q), second, rtol=1e-12)
    third = (m @ n + 1) ** 3 + 6 * m @ T @ S @ n
    third += 3 * (m @ n + 1) * (np.trace(S @ T) + m @ T @ m + n @ S @ n)
    assert_allclose(Expected(Polynomial(3))(P, Q), third, rtol=1e-12)
    W = S + T + 0.49 * np.eye(3)
    gauss = np.exp(-(m - n) @ np.linalg.solve(W, m - n) / 2)
    gauss /= np.sqrt(np.linalg.det((S + T) / 0.49 + np.eye(3)))
    assert_allclose(Expected(Gaussian(0.7))(P, Q), gauss, rtol=1e-12)


@each_kernel
def test_forms_of_spread_agree(kernel: Kernel) -> None:
    """A variance, equal variances and a multiple of the identity are one distribution."""
    rng = np.random.default_rng(6)
    means, variances = rng.normal(size=(4, 3)), rng.uniform(0, 2, size=4)
    forms = [
        [Normal(m, f(v)) for m, v in zip(means, variances, strict=True)]
        for f in (lambda v: v, lambda v: np.full(3, v), lambda v: v * np.eye(3))
    ]
    truth = Expected(kernel)(forms[0])
    for a, b in product(forms, repeat=2):
        assert_allclose(Expected(kernel)(a, b), truth, rtol=1e-11)


@each_kernel
def test_blocks_agree(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = some(np.random.default_rng(7), 2)
    whole = Expected(kernel)(bags)
    monkeypatch.setattr(module, "MEMORY", 10)
    monkeypatch.setattr("meanmap.kernels.domains.bags.MEMORY", 40)
    assert_allclose(Expected(kernel)(bags), whole, rtol=1e-11, atol=1e-13)


# --- laws -----------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_laws_of_bags(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    X, others = rng.normal(size=(m, 2)), [rng.normal(size=(4, 2)), Normal([0.5, 1.0], 0.3)]
    times = rng.integers(1, 4, size=m)
    same: list[Any] = [
        X,
        rng.permutation(X),
        Weighted(X, np.full(m, 1 / m)),
        Weighted(X),
        Weighted([Normal(x, 0.0) for x in X]),
        embed(X, kernel=Gaussian(3.0)),
    ]
    for kernel in (Expected(Gaussian(1.0)), OnEmbeddings(Gaussian(1.0), Gaussian(0.5))):
        values = kernel(same, others)
        assert_allclose(values, np.broadcast_to(values[0], values.shape), rtol=1e-12)
        often = kernel([np.repeat(X, times, axis=0), Weighted(X, times / times.sum())], others)
        assert_allclose(often[0], often[1], rtol=1e-12)
        assert np.linalg.eigvalsh(kernel([*same, *others])).min() > -1e-12


def test_weights_are_used_as_they_are() -> None:
    rng = np.random.default_rng(1)
    X, Y, w = rng.normal(size=(4, 2)), rng.normal(size=(3, 2)), np.array([1.0, -0.5, 2.0, 0.0])
    k = Gaussian(1.0)
    expected = Expected(k)([Weighted(X, w), Y])
    assert_allclose(expected[0, 1], (w @ k(X, Y)).mean())
    assert_allclose(expected[0, 0], w @ k(X) @ w)
    batch = embed(X, k, weights=np.stack([w, 2 * w]))
    assert_allclose(Expected(k)(batch)[:, 1], 2 * Expected(k)(batch)[:, 0])
    assert_allclose(Expected(k)(list(batch)), Expected(k)(batch))


def test_bags_on_the_same_points() -> None:
    """A batch of embeddings shares its atoms, which are then compared once: the same values."""
    rng = np.random.default_rng(2)
    k, X = Gaussian(1.0), rng.normal(size=(30, 2))
    for points in (X, [Normal(x, 0.2) for x in X[:9]]):
        W = rng.normal(size=(12, len(points)))
        shared: Any = Expected(k).check([Weighted(points, w) for w in W])
        assert all(bag.points is shared[0].points for bag in shared)
        apart = [Weighted(list(points), w) for w in W]
        others = some(rng, 2)
        truth = Expected(k)([*apart, *others])
        assert_allclose(Expected(k)(shared), truth[:12, :12], atol=1e-12)
        assert_allclose(Expected(k)(shared, others), truth[:12, 12:], atol=1e-12)
        assert_allclose(Expected(k)(others, shared), truth[12:, :12], atol=1e-12)
        assert_allclose(Expected(k).matmul(shared, shared, W), truth[:12, :12] @ W, atol=1e-11)
        kernel = OnEmbeddings(k, Gaussian(0.5))
        assert_allclose(kernel(shared, shared[:5]), kernel(apart, apart[:5]), atol=1e-10)


def test_equal_spreads_are_a_wider_kernel() -> None:
    """N(x, s²I) with variance σ²: a Gaussian of variance σ² + 2s² times (σ²/(σ² + 2s²))^(d/2)."""
    X = np.random.default_rng(2).normal(size=(6, 3))
    K = Expected(Gaussian(0.9))([Normal(x, 0.4) for x in X])
    wide = 0.81 + 0.8
    assert_allclose(K, (0.81 / wide) ** 1.5 * Gaussian(wide**0.5)(X), rtol=1e-12)


def test_distances_between_embeddings() -> None:
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(m, 2)) for m in (3, 5, 1, 4)]
    k = Gaussian(1.1)
    P = [embed(x, kernel=k) for x in X]
    squared = np.array([[float(p.distance(q)) ** 2 for q in P] for p in P])
    assert_allclose(OnEmbeddings(k, Gaussian(0.6))(X), np.exp(-squared / 0.72), atol=1e-12)
    for profile in (Laplace(0.6), Matern(1.5, 0.6), RationalQuadratic(1.0, 0.6)):
        line = profile(np.sqrt(squared).reshape(-1, 1), np.zeros((1, 1))).reshape(4, 4)
        assert_allclose(OnEmbeddings(k, profile)(X), line, atol=1e-7)
        assert_allclose(OnEmbeddings(k, profile)(X, X[:2]), line[:, :2], atol=1e-7)
    median = np.median(np.sqrt(squared[np.triu_indices(4, 1)]))
    kernel = OnEmbeddings(k, Gaussian("2*median"))
    checked = kernel.check(X)
    assert_allclose(kernel.resolve(checked).profile.bandwidth, 2 * median)  # type: ignore[union-attr]
    resolved, gram = kernel.resolve_gram(checked, None)
    assert resolved == kernel.resolve(checked)
    assert_allclose(gram, resolved(X), rtol=1e-14)
    assert OnEmbeddings(k).resolve(checked[:1]).profile.bandwidth == 1.0  # type: ignore[union-attr]
    assert OnEmbeddings(Linear()).bounded and OnEmbeddings(Linear()).characteristic is None
    assert "distributions over" in str(OnEmbeddings(k).universal)


def test_medians_see_spreads() -> None:
    """Sigma points have the mean and the covariance, so that a median knows how wide bags are."""
    rng = np.random.default_rng(8)
    A = rng.normal(size=(3, 3))
    P = Normal(rng.normal(size=3), A @ A.T)
    points, which = module.sigma_points([P, Normal(P.mean, 2.0)])
    for i, spread in enumerate([A @ A.T, 2 * np.eye(3)]):
        assert_allclose(points[which == i].mean(axis=0), P.mean, atol=1e-12)
        assert_allclose(np.cov(points[which == i].T, bias=True), spread, atol=1e-12)
    bags = [Normal(m, 9.0) for m in rng.normal(size=(300, 2))]
    draws = [bag.sample(20, rng) for bag in bags]
    kernel = Expected(Gaussian())
    wide, drawn = (kernel.resolve(kernel.check(b)).kernel.bandwidth for b in (bags, draws))  # type: ignore[attr-defined]
    assert 0.8 < wide / drawn < 1.25
    same = kernel.check([Weighted(d) for d in draws])
    halves = np.full(300, 0.5)
    assert kernel.resolve(same, halves) == kernel.resolve(kernel.check(draws), halves)


def test_spaces_on_mixed_bags() -> None:
    bags = some(np.random.default_rng(9), 2)
    space = Space(Expected(Gaussian(1.0)), PivotedCholesky(1e-14)).fit(bags)
    Z = space.transform(bags)
    assert_allclose(Z @ Z.T, Expected(Gaussian(1.0))(bags), atol=1e-8)
    assert Space(Expected(Linear())).fit(bags).rank_ == 2  # the means
    Z = Space(Expected(Linear())).fit(bags).transform(bags)
    assert_allclose(Z @ Z.T, Expected(Linear())(bags), atol=1e-12)
    P = embed(bags, kernel=Expected(Gaussian(1.0)))
    assert P(bags[0]).shape == () and P(bags[9]).shape == () and P(bags[:2]).shape == (2,)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0,), "expected the d coordinates"),
        (([],), "expected the d coordinates"),
        (([[1.0]],), "pass a list of them"),
        (([np.nan],), "NaN"),
        (([0.0, 1.0], -1.0), "never negative"),
        (([0.0, 1.0], [1.0, -1.0]), "never negative"),
        (([0.0, 1.0], [1.0, 1.0, 1.0]), r"a matrix 2 × 2.*got shape \(3,\)"),
        (([0.0, 1.0], [[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (([0.0, 1.0], [[1.0, 2.0], [2.0, 1.0]]), "negative eigenvalue"),
        (([0.0], "wide"), "covariance"),
    ],
)
def test_no_normal_distributions(arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Normal(*arguments)


@pytest.mark.parametrize(
    ("kernel", "bags", "message"),
    [
        (Laplace(1.0), [Normal([0.0])], r"A\[0\].*no closed form.*normal.sample\(1000, rng\)"),
        (Gaussian(1.0) * Linear(), [Normal([0.0])], "no closed form"),
        (Delta(), [Normal([0.0])], "no closed form"),
        (
            Gaussian(1.0),
            [np.ones((2, 2)), Normal([0.0])],
            r"A\[1\] has 1 features, but A\[0\] has 2",
        ),
        (
            Gaussian(1.0),
            [Normal([0.0]), np.ones((2, 2))],
            r"A\[1\] has 2 features, but A\[0\] has 1",
        ),
        (Gaussian(1.0), [Weighted([[0.0]], [1.0, 2.0])], r"A\[0\].weights: expected one weight"),
        (Gaussian(1.0), [Weighted([[0.0]], [np.nan])], r"A\[0\].weights contains NaN"),
        (Gaussian(1.0), [Weighted([Normal([0.0]), [1.0]])], r"points\[1\]: expected a Normal"),
        (Gaussian(1.0), [Weighted([Normal([0.0]), Normal([0.0, 1.0])])], r"points\[1\] has 2"),
        (Gaussian(1.0), embed([[0.0]], Gaussian(1.0)), r"Pass \[A\]"),
        (Gaussian(1.0), [embed([[0.0]], Gaussian(1.0), weights=[[1.0]])], "got a batch of 1"),
    ],
)
def test_no_bags(kernel: Kernel, bags: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Expected(kernel)(bags)


def test_features_of_normal_distributions() -> None:
    rng = np.random.default_rng(0)
    space = Space(Expected(Polynomial(2))).fit([rng.normal(size=(3, 1)) for _ in range(9)])
    with pytest.raises(TypeError, match="PivotedCholesky"):
        space.transform([Normal([0.0])])


@pytest.mark.parametrize("profile", [Linear(), Energy(), "gaussian"])
def test_no_profiles(profile: Any) -> None:
    with pytest.raises(TypeError, match="expected a radial kernel"):
        OnEmbeddings(Gaussian(1.0), profile)([[[0.0]]])
    with pytest.raises(ValueError, match="embeddings have no columns"):
        OnEmbeddings(Gaussian(1.0), Gaussian((1.0, 2.0)))([[[0.0]]])


def test_names() -> None:
    assert repr(Normal([0.0, 1.5], 0.25)) == "Normal([0, 1.5], 0.25)"
    assert repr(Normal([0.0, 1.5], np.eye(2))) == "Normal([0, 1.5], <2×2 matrix>)"
    assert repr(Normal(np.zeros(9))) == "Normal(<9 coordinates>)"
    assert "profile=Gaussian(bandwidth=0.5)" in repr(OnEmbeddings(Gaussian(), Gaussian(0.5)))
