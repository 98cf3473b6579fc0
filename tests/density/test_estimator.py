"""EmbeddingDensity against quadrature, slow and general solvers, and known densities."""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meanmap import ConditionalEmbedding, EmbeddingDensity, embed, load, save
from meanmap.density import gaussian_mixtures as fits
from meanmap.density.candidates import NormalCandidates, RoundFrame, expected_kernel
from meanmap.density.inputs import normal_kernel
from meanmap.density.mixture_programme import (
    Entropy,
    Match,
    MixtureSolution,
    Quadratic,
    Span,
    by_cvxpy,
    reach,
    solve_constrained,
    warn_if_unsolved,
)
from meanmap.density.selection import PENALTIES, SHARES
from meanmap.kernels import Delta, Gaussian, Laplace
from optional_packages import require
from oracles.density import density_programme, gaussian_embedding_by_quadrature

matplotlib.use("Agg")


def two_humps(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-2, 0.4, (n // 2, 1)), rng.normal(1, 1.0, (n - n // 2, 1))])


# --- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("h", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("sigma", [0.3, 2.0])
def test_embeddings_of_gaussians_are_exact(h: float, sigma: float) -> None:
    at, centres = np.array([[-1.0], [0.3], [4.0]]), np.array([[0.0], [1.5]])
    found = expected_kernel(centres, h * h, at, np.array([sigma]))
    for i, c in enumerate(centres[:, 0]):
        for j, x in enumerate(at[:, 0]):
            truth = gaussian_embedding_by_quadrature(c, h, x, sigma)
            assert found[i, j] == pytest.approx(truth, abs=1e-10)


def test_inner_products_of_candidates() -> None:
    rng = np.random.default_rng(0)
    candidates = NormalCandidates(rng.normal(size=(4, 2)), (0.5, 1.3))
    sigma = np.array([0.7, 1.9])
    Q = candidates.gram(sigma)
    means, deviations = candidates.means, candidates.deviations
    for j, k in np.ndindex(8, 8):
        # u ~ pⱼ against v ~ pₖ is u - v + m ~ N(mⱼ, hⱼ² + hₖ²) against m = mₖ, a column at a time
        h = np.hypot(deviations[j], deviations[k])
        parts = [
            gaussian_embedding_by_quadrature(means[j, i], h, means[k, i], sigma[i])
            for i in range(2)
        ]
        assert Q[j, k] == pytest.approx(parts[0] * parts[1], abs=1e-10)
    X, w = rng.normal(size=(30, 2)), rng.normal(size=30)
    b = candidates.inner(X, w, sigma)
    kernel = Gaussian(tuple(sigma))
    draws = means[5] + deviations[5] * np.random.default_rng(1).normal(size=(200_000, 2))
    assert b[5] == pytest.approx(float((kernel(draws, X) @ w).mean()), abs=0.02)


def test_the_frame_makes_candidates_round_and_the_kernel_diagonal() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(3, 3))
    factor, sigma = np.linalg.cholesky(A @ A.T + np.eye(3)), np.array([0.5, 1.0, 3.0])
    frame = RoundFrame.of(rng.normal(size=3), factor, sigma)
    X = rng.normal(size=(10, 3))
    Z = frame.to(X)
    assert_allclose(frame.back(Z), X)
    assert_allclose(Gaussian(tuple(frame.bandwidths(sigma)))(Z), Gaussian(tuple(sigma))(X))
    truth = stats.multivariate_normal(X[0], 0.25 * factor @ factor.T).logpdf(X)
    found = NormalCandidates(Z[:1], (0.5,)).logs(Z)[:, 0] - frame.log_volume
    assert_allclose(found, truth)


# --- the programme --------------------------------------------------------------------------------


def problem(m: int = 6, n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float, Match]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    candidates = NormalCandidates(np.linspace(-2, 2, m)[:, None], (0.6,))
    sigma = np.array([0.8])
    Q = candidates.gram(sigma)
    b = candidates.inner(X, np.full(n, 1 / n), sigma)
    square = float(Gaussian(0.8)(X).mean())
    return Q, b, square, Span.of(Q).match(b, square)


def test_the_distance_is_that_of_embeddings() -> None:
    Q, b, square, match = problem()
    alpha = np.random.default_rng(1).dirichlet(np.ones(6))
    assert match.distance(alpha) ** 2 == pytest.approx(
        square - 2 * b @ alpha + alpha @ Q @ alpha, abs=1e-12
    )


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("kind", ["entropy", "kl", "quadratic"])
def test_the_programme_is_that_of_a_slow_solver(kind: str, share: float) -> None:
    Q, b, square, match = problem()
    logs = np.log(np.arange(1.0, 7.0)) if kind == "kl" else np.zeros(6)
    chosen = Quadratic(6) if kind == "quadratic" else Entropy(logs)
    near, far = reach(match), match.distance(chosen.base())
    epsilon = near + share * (far - near)
    found = solve_constrained(match, chosen, epsilon)
    truth = density_programme(Q, b, square, epsilon, None if kind == "quadratic" else logs)
    assert_allclose(found.proportions, truth, atol=2e-4)
    assert match.distance(found.proportions) == pytest.approx(epsilon, abs=1e-8)
    assert found.trouble == ""


@pytest.mark.parametrize("kind", ["entropy", "quadratic"])
def test_the_programme_is_that_of_cvxpy(kind: str) -> None:
    require("cvxpy")
    _, _, _, match = problem(m=25, n=200, seed=3)
    chosen = Quadratic(25) if kind == "quadratic" else Entropy(np.linspace(0, 1, 25))
    near, far = reach(match), match.distance(chosen.base())
    epsilon = near + 0.3 * (far - near)
    ours, theirs = solve_constrained(match, chosen, epsilon), by_cvxpy(match, chosen, epsilon)
    assert_allclose(ours.proportions, theirs.proportions, atol=1e-5)
    assert ours.penalty == pytest.approx(theirs.penalty, rel=1e-3)
    penalised = chosen.solve(match, ours.penalty)
    assert_allclose(penalised.proportions, ours.proportions, atol=1e-6)
    free = by_cvxpy(match, chosen, None, ours.penalty)
    assert_allclose(free.proportions, ours.proportions, atol=1e-5)
    with pytest.raises(ValueError, match="least distance"):
        by_cvxpy(match, chosen, 0.5 * near)


def test_optimality_of_the_gibbs_proportions() -> None:
    """At the optimum log(α/q) + (Qα - b)/λ is constant."""
    Q, b, _, match = problem(m=12)
    logs = np.random.default_rng(2).normal(size=12)
    for penalty in (10.0, 0.1, 1e-3):
        alpha = Entropy(logs).solve(match, penalty).proportions
        slope = np.log(alpha) - logs + (Q @ alpha - b) / penalty
        assert np.ptp(slope) < 1e-5 * (1 + 1e-2 / penalty)


def test_the_distance_grows_with_the_penalty() -> None:
    match = problem(m=12)[-1]
    for chosen in (Entropy(np.zeros(12)), Quadratic(12)):
        far = [match.distance(chosen.solve(match, 10.0**p).proportions) for p in range(-6, 3)]
        assert (np.diff(far) >= -1e-10).all()
        assert far[0] >= reach(match) - 1e-9


def test_a_wide_constraint_is_not_active() -> None:
    match = problem()[-1]
    found = solve_constrained(match, Entropy(np.zeros(6)), 1.0)
    assert_allclose(found.proportions, 1 / 6)
    assert found.penalty == np.inf


def test_a_solver_that_does_not_finish_says_so() -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge: Newton's decrement is 1e-02"):
        warn_if_unsolved(MixtureSolution(np.ones(1), 1.0, None, "Newton's decrement is 1e-02"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unsolved(MixtureSolution(np.ones(1), 1.0))


# --- the estimator --------------------------------------------------------------------------------

SETTINGS: list[dict[str, Any]] = [
    {},
    {"method": "programme"},
    {"regularizer": "kl"},
    {"regularizer": "quadratic", "n_candidates": 25},
    {"candidates": "grid"},
    {"candidates": "thinned", "n_candidates": 40},
    {"candidates": "herded", "n_candidates": 40, "scaling": "columns"},
    {"kernel": Gaussian(1.0)},
    {"kernel": Gaussian()},
    {"bandwidth": 0.4, "scales": (1.0,)},
    {"epsilon": 0.03},
    {"epsilon": 0.03, "bandwidth": 0.4},
    {"method": "herding", "n_candidates": 30},
    {"method": "plain"},
    {"method": "plain", "bandwidth": 0.3},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_it_is_a_density_near_the_truth(setting: dict[str, Any]) -> None:
    X = two_humps(300)
    p = EmbeddingDensity(random_state=0, **setting).fit(X)
    x = np.linspace(-12, 12, 4801)
    values = np.exp(p.score_samples(x[:, None]))
    assert values.sum() * (x[1] - x[0]) == pytest.approx(1.0, abs=1e-6)
    truth = (stats.norm.pdf(x, -2, 0.4) + stats.norm.pdf(x, 1, 1.0)) / 2
    # total variation; thirty equal proportions are rougher than the others
    bar = 0.22 if setting.get("method") == "herding" else 0.16
    assert abs(values - truth).sum() * (x[1] - x[0]) / 2 < bar
    assert p.proportions_.sum() == pytest.approx(1.0)
    assert (p.proportions_ > 0).all()
    assert len(p.proportions_) == len(p.components_) == len(p.covariances_) >= len(p.deviations_)
    assert 0 < p.distance_ < 0.1
    if "epsilon" in setting:
        assert p.distance_ == pytest.approx(0.03, abs=1e-6)


def test_the_reported_distance_is_that_of_draws() -> None:
    X = two_humps(200)
    p = EmbeddingDensity(Gaussian(1.0), random_state=0).fit(X)
    draws = p.sample(20_000, random_state=1)
    far = float(embed(X, Gaussian(1.0)).distance(embed(draws, Gaussian(1.0))))
    assert far == pytest.approx(p.distance_, abs=0.02)
    assert_allclose(p.kernel_covariance_, [[1.0]])


@pytest.mark.slow
def test_correlated_columns() -> None:
    rng = np.random.default_rng(0)
    A = np.array([[1.0, 0.0], [5.0, 0.5]])
    X, T = rng.normal(size=(300, 2)) @ A.T, rng.normal(size=(500, 2)) @ A.T
    scores = {
        s: EmbeddingDensity(scaling=s, method="programme", random_state=0).fit(X).score(T) / 500
        for s in ("covariance", "columns")
    }
    truth = stats.multivariate_normal([0, 0], A @ A.T).logpdf(T).mean()
    assert scores["columns"] < scores["covariance"] - 0.1
    assert scores["covariance"] > truth - 0.1
    x = np.linspace(-12, 12, 241)
    grid = np.stack(np.meshgrid(x, 5 * x), axis=-1).reshape(-1, 2)
    p = EmbeddingDensity(random_state=0).fit(X)
    total = np.exp(p.score_samples(grid)).sum() * (x[1] - x[0]) ** 2 * 5
    assert total == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 5, 10])
def test_held_out_points_against_kernel_density(d: int) -> None:
    """Skewed columns: wide candidates for the tail, narrow ones for the peak."""
    rng = np.random.default_rng(d)
    X, T = rng.gamma(2, size=(200, d)), rng.gamma(2, size=(1000, d))
    ours = EmbeddingDensity(random_state=0).fit(X).score(T) / 1000
    grid = {"bandwidth": np.geomspace(0.1, 2.5, 20)}
    theirs = GridSearchCV(KernelDensity(), grid).fit(X).score(T) / 1000
    assert ours > theirs


def test_plain_is_kernel_density_estimation() -> None:
    rng = np.random.default_rng(2)
    X, w, T = rng.normal(size=(80, 3)), rng.exponential(size=80), rng.normal(size=(20, 3))
    p = EmbeddingDensity(method="plain", bandwidth=0.5).fit(X, sample_weight=w)
    peer = KernelDensity(bandwidth=0.5).fit(X, sample_weight=w)
    assert_allclose(p.score_samples(T), peer.score_samples(T), rtol=1e-5)
    assert p.score(T) == pytest.approx(peer.score(T), rel=1e-6)
    columns = EmbeddingDensity(method="plain", bandwidth=[0.5, 1.0, 2.0]).fit(X)
    assert_allclose(columns.bandwidth_, [0.5, 1.0, 2.0])
    dense = embed(X).density(T, bandwidth=[0.5, 1.0, 2.0])
    assert_allclose(np.exp(columns.score_samples(T)), dense, rtol=1e-8)


@pytest.mark.parametrize("method", ["plain", "herding", "programme"])
def test_outliers_widen_the_candidates_no_more_than_they_must(method: str) -> None:
    """The nearest point, in the fold held out, may be likelier than all others by e^1000."""
    X = np.random.default_rng(9).standard_t(2, size=(100, 1))
    X[0] = 80.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = EmbeddingDensity(method=method, random_state=0).fit(X)
    assert np.isfinite(p.choice_.scores).all()


def test_far_points_have_a_finite_log_density() -> None:
    p = EmbeddingDensity(random_state=0).fit(two_humps(60))
    logs = p.score_samples([[1e3], [-1e8]])
    assert np.isfinite(logs).all() and (logs < -1e4).all()


def test_a_quadratic_regularizer_leaves_few_components() -> None:
    X = two_humps(200)
    few, many = (
        EmbeddingDensity(regularizer=r, method="programme", n_candidates=60, random_state=0).fit(X)
        for r in ("quadratic", "entropy")
    )
    assert len(few.proportions_) < len(many.proportions_)
    assert few.n_effective_ < many.n_effective_ <= len(many.proportions_) + 1e-9


def test_a_base_draws_the_density() -> None:
    X = two_humps(100)
    wide = stats.norm(3, 1)
    near, far = (
        EmbeddingDensity(regularizer="kl", base=wide, epsilon=e, bandwidth=0.5).fit(X)
        for e in (0.05, 0.3)
    )
    means = [(p.proportions_ @ p.components_)[0] for p in (near, far)]
    assert means[0] < means[1]
    mixture = GaussianMixture(1).fit(X)
    normal = EmbeddingDensity(regularizer="kl", bandwidth=0.5, epsilon=0.05).fit(X)
    same = EmbeddingDensity(regularizer="kl", base=mixture, bandwidth=0.5, epsilon=0.05).fit(X)
    assert_allclose(same.score_samples(X), normal.score_samples(X), atol=1e-3)
    c = len(np.unique(X)) * 3
    even = EmbeddingDensity(regularizer="kl", base=np.ones(c), random_state=0).fit(X)
    assert np.isfinite(even.score(X))


# --- mixtures that join the programme -------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3])
def test_components_are_those_of_scikit_learn(d: int) -> None:
    """Without shrinkage a fit is a fixed point of its EM as well, at the same likelihood."""
    rng = np.random.default_rng(d)
    X = np.concatenate([rng.normal(-2, 0.6, (90, d)), rng.normal(1, 1.0, (160, d))])
    w = np.full(250, 1 / 250)
    start = fits.first_shares(X, w, 2, rng)
    for _ in range(20):  # each call goes on until the likelihood gains little
        found = fits.fit_components(X, w, 250.0, start, fits.Shrinkage(0.0, False))
        start = np.exp(found.logs(X) - logsumexp(found.logs(X), axis=1)[:, None])
    peer = GaussianMixture(
        2,
        reg_covar=fits.FLOOR,
        weights_init=found.proportions,
        means_init=found.means,
        precisions_init=np.linalg.inv(found.covariances),
        tol=1e-9,
        max_iter=500,
    ).fit(X)
    assert_allclose(peer.means_, found.means, atol=0.02)
    assert_allclose(peer.covariances_, found.covariances, atol=0.02)
    assert_allclose(peer.score_samples(X), found.density(X), atol=0.02)


def test_a_step_of_em_by_loops() -> None:
    rng = np.random.default_rng(3)
    X, w = rng.normal(size=(12, 2)), rng.dirichlet(np.ones(12))
    shares, size, points = rng.dirichlet(np.ones(3), size=12), 9.0, 4.0
    for diagonal in (False, True):
        found = fits.maximise(X, w, size, shares, fits.Shrinkage(points, diagonal))
        scatters, masses = [], []
        for k in range(3):
            mass = sum(w[i] * shares[i, k] for i in range(12))
            mean = sum(w[i] * shares[i, k] * X[i] for i in range(12)) / mass
            gaps = [X[i] - mean for i in range(12)]
            scatters.append(
                sum(w[i] * shares[i, k] * np.outer(gaps[i], gaps[i]) for i in range(12))
            )
            masses.append(mass)
            assert_allclose(found.means[k], mean)
            assert found.proportions[k] == pytest.approx(mass)
        for k in range(3):
            n, W = size * masses[k], size * scatters[k]
            towards = sum(scatters)
            if diagonal:
                towards = np.diag(np.diag(W + 2 * sum(scatters)) / (n + 2))
            expected = (W + points * towards) / (n + points) + fits.FLOOR * np.eye(2)
            assert_allclose(found.covariances[k], expected)


def test_shares_make_held_out_points_likeliest() -> None:
    rng = np.random.default_rng(4)
    X = np.where(rng.random(400) < 0.7, rng.normal(-2, 1, 400), rng.normal(2, 1, 400))
    logs = np.stack([stats.norm.logpdf(X, m) for m in (-2.0, 2.0, 9.0)], axis=1)
    w = rng.dirichlet(np.ones(400))
    found = fits.shares_of_densities(logs, w)
    grid = np.linspace(0.001, 0.999, 999)
    values = [w @ np.log(np.exp(logs[:, :2]) @ [t, 1 - t]) for t in grid]
    assert found[2] == 0
    assert found[0] == pytest.approx(grid[int(np.argmax(values))], abs=2e-3)


def test_the_kernel_between_normals_of_any_shape() -> None:
    """A rotation makes all of them independent in their columns, where quadrature knows them."""
    rng = np.random.default_rng(5)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    first, second, sigma = np.array([0.5, 2.0]), np.array([1.5, 0.1]), 0.7
    mean, other = rng.normal(size=2), rng.normal(size=2)
    A, B = (turn @ np.diag(v) @ turn.T for v in (first, second))
    found = normal_kernel(turn @ mean, A, turn @ other, B, np.full(2, sigma))
    parts = [
        gaussian_embedding_by_quadrature(mean[i], (first[i] + second[i]) ** 0.5, other[i], sigma)
        for i in range(2)
    ]
    assert found[0] == pytest.approx(parts[0] * parts[1], abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 6])
def test_clusters_of_other_shapes_against_mixtures(d: int) -> None:
    """Where a mixture is the truth it is as good as one whose size BIC chose."""
    rng = np.random.default_rng(d)
    shapes = [np.linalg.cholesky(np.cov(rng.normal(size=(d, d + 3)))) for _ in range(3)]
    means = 3 * rng.normal(size=(3, d))

    def draw(n: int) -> np.ndarray:
        which = rng.integers(3, size=n)
        noise = rng.normal(size=(n, d))
        return means[which] + np.stack([shapes[k] @ z for k, z in zip(which, noise, strict=True)])

    X, T = draw(300), draw(2000)
    auto = EmbeddingDensity(random_state=0).fit(X)
    alone = EmbeddingDensity(method="programme", random_state=0).fit(X)
    peers = [GaussianMixture(k, n_init=2, random_state=0).fit(X) for k in range(1, 7)]
    best = min(peers, key=lambda peer: peer.bic(X))
    assert auto.score_samples(T).mean() > best.score_samples(T).mean() - 0.02
    assert auto.score_samples(T).mean() > alone.score_samples(T).mean() + (0.1 if d > 2 else 0)
    assert_allclose(np.cov(auto.sample(50_000, random_state=1).T), np.cov(X.T), atol=0.8)
    root = np.linalg.cholesky(auto.kernel_covariance_)
    seen, drawn = (
        np.linalg.solve(root, rows.T).T for rows in (X, auto.sample(4000, random_state=2))
    )
    far = float(embed(seen, Gaussian(1.0)).distance(embed(drawn, Gaussian(1.0))))
    assert far == pytest.approx(auto.distance_, abs=0.05)


def test_what_was_asked_of_the_programme_is_kept() -> None:
    X = two_humps(100)
    for setting in ({"epsilon": 0.05}, {"bandwidth": 0.4}, {"regularizer": "quadratic"}):
        p = EmbeddingDensity(random_state=0, **setting).fit(X)
        assert len(p.deviations_) == len(p.components_)


# --- embeddings -----------------------------------------------------------------------------------


def test_an_embedding_is_its_points_and_weights() -> None:
    rng = np.random.default_rng(4)
    X, w = rng.normal(size=(100, 2)), rng.exponential(size=100)
    e = embed(X, Gaussian(1.0), w / w.sum())
    one = EmbeddingDensity(random_state=0).fit(e)
    two = EmbeddingDensity(Gaussian(1.0), random_state=0).fit(X, sample_weight=w)
    assert_allclose(one.score_samples(X), two.score_samples(X), rtol=1e-8)
    other = EmbeddingDensity(random_state=0).fit(embed(X, Laplace(1.0)))
    assert np.isfinite(other.score(X))


@pytest.mark.parametrize("method", ["programme", "herding", "plain"])
def test_a_conditional_with_negative_weights(method: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(600, 1))
    Y = np.sin(X) + 0.3 * rng.normal(size=(600, 1))
    at = ConditionalEmbedding(kernel_y=Gaussian(0.3)).fit(X, Y).given([1.0])
    assert (at.weights < 0).any()
    p = EmbeddingDensity(method=method, random_state=0).fit(at)
    y = np.linspace(-3, 4, 701)
    values = np.exp(p.score_samples(y[:, None]))
    truth = stats.norm.pdf(y, np.sin(1.0), 0.3)
    far = abs(values - truth).sum() * 0.01 / 2
    assert far < {"programme": 0.25, "herding": 0.25, "plain": 0.6}[method]


# --- weights, ties, small samples -----------------------------------------------------------------


def test_weights_are_repetition() -> None:
    rng = np.random.default_rng(6)
    X, w = rng.normal(size=(30, 2)), rng.integers(0, 4, size=30)
    one = EmbeddingDensity(random_state=0).fit(X, sample_weight=w)
    two = EmbeddingDensity(random_state=0).fit(np.repeat(X, w, axis=0))
    assert_allclose(one.score_samples(X), two.score_samples(X), rtol=1e-8)


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(2, 40),
    d=st.integers(1, 4),
    digits=st.integers(0, 3),
    method=st.sampled_from(["auto", "programme", "herding", "plain"]),
    seed=st.integers(0, 100),
)
def test_small_and_tied_samples(n: int, d: int, digits: int, method: str, seed: int) -> None:
    X = np.round(np.random.default_rng(seed).normal(size=(n, d)), digits)
    if (X.max(axis=0) == X.min(axis=0)).any():
        return
    p = EmbeddingDensity(method=method, n_candidates=20, random_state=seed).fit(X)
    assert np.isfinite(p.score_samples(X)).all()
    assert p.sample(3, random_state=0).shape == (3, d)


def test_units_do_not_matter() -> None:
    X = two_humps(100)
    one, two = (EmbeddingDensity(random_state=0).fit(1e6 * s * X + 5) for s in (1e-6, 1.0))
    shift = one.score_samples(X + 5) - two.score_samples(1e6 * X + 5)
    assert_allclose(shift, np.log(1e6), atol=1e-4)


@pytest.mark.slow
def test_many_points_are_quick() -> None:
    X = np.random.default_rng(0).normal(size=(10_000, 2))
    p = EmbeddingDensity(random_state=0, n_candidates=50).fit(X)
    assert p.score(X[:500]) / 500 > stats.norm.logpdf(X[:500]).sum() / 500 - 0.05


def test_one_point_with_a_bandwidth() -> None:
    p = EmbeddingDensity(bandwidth=0.5, random_state=0).fit([[1.0, 2.0]])
    assert_allclose(p.components_, [[1.0, 2.0]] * len(p.components_))


# --- scikit-learn, saving, pictures ---------------------------------------------------------------


def test_pipelines_searches_clones_frames() -> None:
    X = two_humps(80)
    pipeline = make_pipeline(StandardScaler(), EmbeddingDensity(bandwidth=0.4, epsilon=0.05))
    assert np.isfinite(pipeline.fit(X).score(X))
    grid = {"epsilon": [0.05, 0.2], "bandwidth": [0.2, 0.4]}
    search = GridSearchCV(EmbeddingDensity(), grid, cv=3, error_score="raise").fit(X)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    copy = clone(search.best_estimator_)
    with pytest.raises(NotFittedError):
        copy.score_samples(X)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[::-1, 0] ** 2})
    p = EmbeddingDensity(random_state=0).fit(frame)
    assert_array_equal(p.feature_names_in_, ["a", "b"])
    assert_array_equal(p.score_samples(frame[["b", "a"]]), p.score_samples(frame))
    with pytest.raises(ValueError, match="feature names"):
        p.score_samples(frame.rename(columns={"b": "c"}))
    assert repr(EmbeddingDensity(epsilon=0.1)) == "EmbeddingDensity(epsilon=0.1)"


def test_saved_and_loaded(tmp_path: Any) -> None:
    X = np.random.default_rng(7).normal(size=(50, 2))
    p = EmbeddingDensity(random_state=0).fit(X)
    save(p, tmp_path / "density.npz")
    again = load(tmp_path / "density.npz")
    assert_array_equal(again.score_samples(X), p.score_samples(X))
    assert again.choice_.best == p.choice_.best


def test_what_was_tried_is_kept() -> None:
    p = EmbeddingDensity(random_state=0).fit(two_humps(60))
    assert p.choice_.scores.shape == (len(SHARES), len(PENALTIES))
    assert p.choice_.scores.max() == p.choice_.scores[np.isfinite(p.choice_.scores)].max()
    assert EmbeddingDensity(bandwidth=0.4, epsilon=0.1).fit(two_humps(60)).choice_ is None


def test_seeds() -> None:
    X = two_humps(300)
    one, two = (EmbeddingDensity(n_candidates=30, random_state=3).fit(X) for _ in range(2))
    assert_array_equal(one.score_samples(X), two.score_samples(X))
    assert_array_equal(one.sample(5, random_state=1), two.sample(5, random_state=1))


def test_draws_follow_the_density() -> None:
    p = EmbeddingDensity(random_state=0).fit(two_humps(200))
    draws = p.sample(4000, random_state=0)[:, 0]
    x = np.linspace(-15, 15, 6001)
    F = np.cumsum(np.exp(p.score_samples(x[:, None]))) * (x[1] - x[0])
    assert stats.kstest(draws, lambda t: np.interp(t, x, F)).pvalue > 1e-4


def test_pictures() -> None:
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(8)
    for d in (1, 2):
        ax = EmbeddingDensity(bandwidth=0.5, epsilon=0.2).fit(rng.normal(size=(40, d))).plot()
        assert ax.get_xlabel()
    plt.close("all")
    with pytest.raises(ValueError, match="one or two columns, this has 3"):
        EmbeddingDensity(bandwidth=0.5, epsilon=0.2).fit(rng.normal(size=(40, 3))).plot()


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"method": "kde"}, ValueError, "method must be one of 'auto', 'programme', 'her"),
        ({"regularizer": "l1"}, ValueError, "regularizer must be one of"),
        ({"scaling": "no"}, ValueError, "scaling must be one of"),
        ({"solver": "mosek"}, ValueError, "solver must be one of"),
        ({"candidates": "some"}, ValueError, "candidates must be one of"),
        ({"candidates": np.zeros((3, 1))}, ValueError, "candidates has 1 features"),
        ({"n_candidates": 0}, ValueError, "n_candidates must be a whole number ≥ 1"),
        ({"bandwidth": -1.0}, ValueError, "bandwidth must be positive"),
        ({"bandwidth": "median"}, ValueError, "bandwidth must be one of 'auto'"),
        ({"bandwidth": [1.0]}, ValueError, "1 entries for 2 columns"),
        ({"scales": ()}, ValueError, "scales: expected some numbers"),
        ({"scales": (1.0, 0.0)}, ValueError, "scales must be positive"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": "small"}, ValueError, "epsilon must be one of 'auto'"),
        ({"epsilon": 1e-9}, ValueError, "cannot be reached: .* is nearer to the embedding than"),
        ({"epsilon": 1e-9, "bandwidth": 2.0}, ValueError, "cannot be reached"),
        ({"kernel": Laplace()}, TypeError, "expected kernels.Gaussian"),
        ({"base": np.ones(3)}, ValueError, "base goes with regularizer='kl'"),
        ({"base": np.ones(3), "regularizer": "kl"}, ValueError, "positive proportions"),
        ({"base": "normal", "regularizer": "kl"}, TypeError, "base: expected None, proportions"),
    ],
)
def test_bad_settings(setting: dict[str, Any], error: type, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(error, match=message):
        EmbeddingDensity(**setting).fit(X)


def test_bad_points() -> None:
    p = EmbeddingDensity()
    with pytest.raises(ValueError, match="column 1 of X is constant"):
        p.fit(np.stack([np.arange(5.0), np.ones(5)], axis=1))
    with pytest.raises(ValueError, match="grid.* up to 3 columns, X has 4"):
        EmbeddingDensity(candidates="grid").fit(np.random.default_rng(0).normal(size=(9, 4)))
    with pytest.raises(ValueError, match="NaN"):
        p.fit([[0.0], [np.nan]])
    with pytest.raises(ValueError, match="1D array"):
        p.fit(np.arange(5.0))
    with pytest.raises(ValueError, match="zero everywhere"):
        p.fit(np.arange(5.0)[:, None], sample_weight=np.zeros(5))
    with pytest.raises(TypeError, match="batch"):
        p.fit(embed(np.arange(5.0)[:, None], weights=np.ones((2, 5)) / 5))
    with pytest.raises(TypeError, match="coordinates"):
        p.fit(embed(np.array(list("ab")), Delta()))
    with pytest.raises(ValueError, match="its own weights"):
        p.fit(embed(np.arange(5.0)[:, None]), sample_weight=np.ones(5))
    fitted = p.fit(two_humps(20))
    with pytest.raises(ValueError, match="features"):
        fitted.score_samples(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="n_samples must be a whole number"):
        fitted.sample(0)
