"""Answers by residuals: coverage, widths, shapes, and what stays linear."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

import meanmap as mm
from meanmap import ConditionalEmbedding, DataWarning
from meanmap.conditional.beliefs import interpolated_quantiles, ranked_scores
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.shape import LevelsAt, MixedAt, nearness
from meanmap.kernels import Gaussian

Array = np.ndarray


def growing(n: int, seed: int = 0) -> tuple[Array, Array, Any]:
    """A wave whose noise grows with x, and its law."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, size=(n, 1))
    law = stats.norm(np.sin(4 * X[:, 0]), 0.1 + 0.3 * X[:, 0])
    return X, law.rvs(random_state=rng), law


def skewed(n: int, seed: int = 0) -> tuple[Array, Array, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 2, size=(n, 2))
    law = stats.gamma(1.0, loc=np.sin(2 * X[:, 0]), scale=0.3 * (1 + X[:, 1]))
    return X, law.rvs(random_state=rng), law


def plane(n: int, seed: int = 0) -> tuple[Array, Array, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    law = stats.norm(X @ np.arange(5.0), 1.0)
    return X, law.rvs(random_state=rng), law


def two_branches(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(n, 1))
    sign = rng.choice([-1.0, 1.0], size=n)
    return X, sign * (1 + X[:, 0]) + 0.1 * rng.normal(size=n)


# --- pieces against oracles -----------------------------------------------------------------------


def test_ranked_scores_are_the_integral() -> None:
    rng = np.random.default_rng(0)
    values = np.sort(rng.normal(size=12))
    weights = rng.dirichlet(np.ones(12), size=6)
    z = np.array([-4.0, -0.3, 0.1, values[4], 1.2, 5.0])

    def distribution(t: float, p: Array) -> float:
        return float(p[values <= t].sum())

    for p, outcome, found in zip(weights, z, ranked_scores(values, weights, z), strict=True):
        ends = [-6.0, *values, outcome, 7.0]
        expected = sum(
            quad(lambda t, p=p, o=outcome: (distribution(t, p) - (o <= t)) ** 2, a, b)[0]
            for a, b in zip(sorted(ends)[:-1], sorted(ends)[1:], strict=True)
        )
        assert_allclose(found, expected, rtol=1e-6)
        # and E|Y - z| - ½ E|Y - Y'|
        energy = p @ abs(values - outcome) - 0.5 * p @ abs(values[:, None] - values) @ p
        assert_allclose(found, energy, rtol=1e-9)


def test_interpolated_quantiles_of_equal_weights_are_numpys() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=50))
    q = np.array([0.05, 0.5, 0.93])
    found = interpolated_quantiles(values, np.full((1, 50), 1 / 50), q)[:, 0]
    assert_allclose(found, np.quantile(values, q, method="hazen"))


def test_nearness_is_local() -> None:
    squares = (np.arange(100.0) ** 2)[None, :]
    w = nearness(squares, np.full(100, 0.01), 0.25)
    assert_allclose(w.sum(), 1.0)
    assert w[0, :25].sum() > 0.95 and (np.diff(w[0]) <= 0).all()
    assert_allclose(nearness(squares, np.full(100, 0.01), 1.0), np.full((1, 100), 0.01))


@pytest.mark.parametrize("centered", [None, True, False])
def test_errors_are_those_of_fits_without_each_row(centered: bool | None) -> None:
    X, y, _ = growing(30)
    kernel, lam = Gaussian(0.8), 1e-3
    model = ConditionalEmbedding(kernel, regularization=lam, centered=centered).fit(X, y)
    found = model.operator_.evidence().errors[:, 0]
    for i in (0, 7, 29):
        # without its row the others weigh 1/29, and λ counts as much as before beside 29/30 of them
        left = ConditionalEmbedding(kernel, regularization=lam * 30 / 29, centered=centered)
        rest = np.arange(30) != i
        left.fit(X[rest], y[rest])
        expected = y[i] - left.predict(X[i : i + 1])[0]
        assert_allclose(found[i], expected, rtol=1e-6)


# --- coverage and widths --------------------------------------------------------------------------


@pytest.mark.parametrize("law", [growing, skewed, plane])
@pytest.mark.parametrize("n", [300, 1000])
def test_intervals_cover_and_are_as_narrow_as_the_truth(law: Any, n: int) -> None:
    X, y, _ = law(n)
    T, outcomes, truth = law(2000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        low, high = ConditionalEmbedding().fit(X, y).given(T).interval(0.9)
    coverage = ((outcomes >= low[:, 0]) & (outcomes <= high[:, 0])).mean()
    assert 0.85 < coverage < 0.94
    width = (high - low)[:, 0] / (truth.ppf(0.95) - truth.ppf(0.05))
    assert 0.9 < width.mean() < 1.2


def test_two_branches_stay_two() -> None:
    X, y = two_branches(800)
    answer = ConditionalEmbedding().fit(X, y).given([0.5])
    at = np.array([[-1.5], [0.0], [1.5]])
    density = answer.density(at)
    assert density[[0, 2]].min() > 10 * density[1]
    draws = answer.sample(500, rng=0)
    assert (abs(abs(draws) - 1.5) < 0.5).mean() > 0.95
    assert len(np.unique(draws)) > 100
    assert abs(abs(answer.mode()[0]) - 1.5) < 0.2
    low, high = answer.interval(0.9)
    assert -2.0 < low[0] < -1.4 and 1.4 < high[0] < 2.0


def test_skew_is_kept() -> None:
    X, y, _ = skewed(1000)
    low, middle, high = ConditionalEmbedding().fit(X, y).predict_quantiles([[1.0, 1.0]])[0]
    assert high - middle > 2 * (middle - low)


def test_scores_are_near_those_of_the_truth() -> None:
    X, y, _ = growing(1000)
    T, outcomes, truth = growing(1000, 1)
    model = ConditionalEmbedding().fit(X, y)
    best = truth.logpdf(outcomes).mean()
    assert best - 0.08 < model.log_score(T, outcomes) < best + 0.02
    s, z = truth.std(), (outcomes - truth.mean()) / truth.std()
    crps = (s * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)).mean()
    assert 0.99 * crps < model.crps(T, outcomes) < 1.05 * crps
    weights = np.arange(1000.0)
    assert model.crps(T, outcomes, weights) > model.crps(T[::-1], outcomes[::-1], weights) * 0.5


def test_densities_integrate_to_one() -> None:
    X, y, _ = growing(300)
    answer = ConditionalEmbedding().fit(X, y).given([[0.5], [2.5]])
    grid = np.linspace(-60, 60, 24_001)[:, None]
    total = answer.density(grid).sum(axis=1) * (grid[1, 0] - grid[0, 0])
    assert_allclose(total, 1.0, atol=0.01)


# --- other targets --------------------------------------------------------------------------------


def test_targets_of_few_values_have_probabilities() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    y = (rng.uniform(size=800) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(float)
    model = ConditionalEmbedding().fit(X, y)
    answer = model.given([[2.0, 0.0], [-2.0, 0.0], [0.0, 0.0]])
    assert isinstance(answer.shape, LevelsAt)
    assert_allclose(answer.quantile(0.5)[:2, 0], [1.0, 0.0])
    assert set(np.unique(answer.sample(200, rng=0))) == {0.0, 1.0}
    p = answer.shape.weights[:, 1]
    assert p[0] > 0.9 and p[1] < 0.1 and 0.3 < p[2] < 0.7
    assert -0.6 < model.log_score(X, y) < 0


def test_counts_are_whole_and_not_negative() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, size=(800, 1))
    y = rng.poisson(np.exp(2 * X[:, 0])).astype(float)
    answer = ConditionalEmbedding().fit(X, y).given([[0.1], [1.9]])
    draws = answer.sample(300, rng=0)
    assert (draws >= 0).all() and (draws == np.round(draws)).all()
    low, high = answer.interval(0.9)
    assert low[0, 0] == 0 and high[0, 0] <= 5 and 25 < low[1, 0] < high[1, 0] < 70


def test_several_columns_keep_their_dependence() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 1))
    noise = rng.multivariate_normal([0, 0], [[0.04, 0.035], [0.035, 0.04]], size=600)
    Y = np.hstack([np.sin(X), np.cos(X)]) + noise
    model = ConditionalEmbedding().fit(X, Y)
    draws = model.given([0.5]).sample(2000, rng=0)
    assert np.corrcoef(draws.T)[0, 1] > 0.75
    mean, std = model.predict([[0.5]], return_std=True)
    assert_allclose(mean[0], [np.sin(0.5), np.cos(0.5)], atol=0.1)
    assert_allclose(std[0], [0.2, 0.2], atol=0.03)
    assert model.predict_quantiles([[0.5]], [0.1, 0.9]).shape == (1, 2, 2)


# --- what stays linear ----------------------------------------------------------------------------


def test_expectations_stay_linear() -> None:
    X, y, _ = growing(200)
    model = ConditionalEmbedding().fit(X, y)
    answer = model.given(X[:5])
    assert isinstance(answer, Predictive)
    squares = model.expect(lambda v: v[:, 0] ** 2, X[:5])
    assert_allclose(answer.expect(lambda v: v[:, 0] ** 2), squares, atol=1e-8)
    assert_allclose(answer.weights @ (y**2), squares, atol=1e-8)
    twice = 2 * answer
    assert type(twice) is mm.Embedding
    assert_allclose(twice.expect(lambda v: v[:, 0] ** 2), 2 * squares, atol=1e-8)
    assert_allclose(answer.mean(), model.predict(X[:5])[:, None], atol=1e-8)


def test_members_of_a_batch_answer_as_alone() -> None:
    X, y, _ = growing(300)
    model = ConditionalEmbedding().fit(X, y)
    batch, alone = model.given(X[:4]), model.given(X[2])
    for found, expected in zip(batch[2].interval(0.8), alone.interval(0.8), strict=True):
        assert_allclose(found, expected, atol=1e-8)
    assert_allclose(batch[1:3].std()[1], alone.std(), atol=1e-8)
    assert batch.quantile([0.1, 0.9]).shape == (2, 4, 1)
    assert batch.sample(7, rng=0).shape == (4, 7, 1)


def test_outside_the_data_the_marginal_takes_over() -> None:
    X, y, _ = growing(300)
    model = ConditionalEmbedding().fit(X, y)
    with pytest.warns(DataWarning):
        far = model.given([[1e3], [1.0]])
    assert isinstance(far.shape, MixedAt)
    assert_allclose(far.std()[0], y.std(), rtol=0.01)
    assert_allclose(far[1].std(), model.given([1.0]).std())
    assert np.isfinite(far.density([[0.0]])).all() and far.sample(3, rng=0).shape == (2, 3, 1)
    assert np.isfinite(far.shape.scores(np.zeros((2, 1)))).all()
    assert np.isfinite(far.shape.log_densities(np.zeros((2, 1)))).all()


def test_answers_are_saved(tmp_path: Any) -> None:
    X, y, _ = growing(200)
    model = ConditionalEmbedding().fit(X, y)
    mm.save(model.given(X[:3]), tmp_path / "answer.npz")
    found, expected = mm.load(tmp_path / "answer.npz"), model.given(X[:3])
    assert_allclose(found.quantile(0.3), expected.quantile(0.3))
    mm.save(model, tmp_path / "model.npz")
    assert_allclose(mm.load(tmp_path / "model.npz").given(X[:3]).std(), expected.std())


# --- posteriors and streams -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nonnegative", "importance"])
def test_posteriors_have_the_right_width(method: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(0.0, 2.0, size=(1000, 1))
    Y = X + rng.normal(size=(1000, 1))
    model = ConditionalEmbedding().fit(X, Y)
    prior = mm.embed(rng.normal(1.0, 1.0, size=(1000, 1)))
    answer = model.posterior(prior, method).given(np.linspace(-1, 3, 21)[:, None])
    truth = np.sqrt(0.5)
    assert_allclose(answer.std().mean(), truth, rtol=0.1)
    low, high = answer.interval(0.9)
    assert_allclose((high - low).mean(), 2 * 1.645 * truth, rtol=0.12)


def test_streams_have_shapes_too() -> None:
    X, y, truth = growing(2000)
    model = ConditionalEmbedding()
    for i in range(0, 2000, 500):
        model.partial_fit(X[i : i + 500], y[i : i + 500])
    low, high = model.given([[0.5], [2.5]]).interval(0.9)
    assert_allclose((high - low)[:, 0], 2 * 1.645 * np.array([0.25, 0.85]), rtol=0.3)


# --- calibrated intervals -------------------------------------------------------------------------


def test_calibrated_intervals_cover_whatever_the_model() -> None:
    """A poor model: its own intervals miss, calibrated ones do not."""
    X, y, _ = growing(120)
    model = ConditionalEmbedding(Gaussian(0.05), regularization=1e-9).fit(X, y)
    rng = np.random.default_rng(5)
    covered = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for _ in range(30):
            C, outcomes, _ = growing(100, int(rng.integers(1 << 30)))
            T, new, _ = growing(200, int(rng.integers(1 << 30)))
            low, high = model.calibrate(C, outcomes).interval(T, 0.8)
            covered.append(((new >= low) & (new <= high)).mean())
    # between .8 and .8 + 1/101 on average; 30 × 100 rows leave a standard error of 0.01
    assert 0.76 < np.mean(covered) < 0.85


def test_weights_correct_a_shift() -> None:
    X, y, _ = growing(200)
    model = ConditionalEmbedding(Gaussian(1.0), regularization=0.1).fit(X, y)
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(20):
        C, outcomes, _ = growing(400, int(rng.integers(1 << 30)))
        T = np.sqrt(rng.uniform(0, 9, size=(300, 1)))  # density 2x/9 for 1/3
        new = stats.norm(np.sin(4 * T[:, 0]), 0.1 + 0.3 * T[:, 0]).rvs(random_state=rng)
        calibrated = model.calibrate(C, outcomes, sample_weight=C[:, 0])
        low, high = calibrated.interval(T, 0.8, weights=T[:, 0])
        covered.append(((new >= low) & (new <= high)).mean())
    assert 0.77 < np.mean(covered) < 0.84
    again = model.calibrate(C, outcomes, sample_weight=5 * C[:, 0])
    assert_allclose(again.interval(T, 0.8, weights=5 * T[:, 0]), (low, high))  # of ratios
    with pytest.raises(ValueError, match="weights="):
        calibrated.interval(T, 0.8)


def test_too_few_rows_to_calibrate_are_refused() -> None:
    X, y, _ = growing(100)
    model = ConditionalEmbedding().fit(X, y)
    with pytest.raises(ValueError, match="at least 9"):
        model.calibrate(X[:5], y[:5]).interval(X, 0.9)
    assert "100 rows" in repr(model.calibrate(X, y))


# --- errors ---------------------------------------------------------------------------------------


def test_labels_have_no_quantiles() -> None:
    X, y, _ = growing(60)
    model = ConditionalEmbedding().fit(X, np.where(y > 0, "up", "down"))
    for ask in (
        lambda: model.predict_quantiles(X),
        lambda: model.crps(X, y),
        lambda: model.log_score(X, y),
        lambda: model.calibrate(X, y),
    ):
        with pytest.raises(TypeError, match="predict_proba"):
            ask()


def test_scores_need_as_many_outcomes_as_rows() -> None:
    X, y, _ = growing(60)
    model = ConditionalEmbedding().fit(X, y)
    with pytest.raises(ValueError, match="X has 60, y has 50"):
        model.crps(X, y[:50])
