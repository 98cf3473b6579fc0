"""Modes, densities and samples of vectors: what is likely, whatever the kernel of the embedding."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from meanmap import ConditionalEmbedding, KernelBayesFilter, embed
from meanmap.decoding import highest, probabilities, widths
from meanmap.kernels import Gaussian, Laplace, Linear


def clusters(seed: int, n: int = 300) -> np.ndarray:
    """½N(-5, 1) + ½N(5, 1)."""
    r = np.random.default_rng(seed)
    return r.choice([-5.0, 5.0], size=(n, 1)) + r.normal(size=(n, 1))


def sharp_and_flat(seed: int, n: int = 300) -> np.ndarray:
    """½N(0, 1) + ½N(10, 9), whose mode is 0."""
    r = np.random.default_rng(seed)
    return np.where(r.random((n, 1)) < 0.5, r.normal(size=(n, 1)), r.normal(10, 3, (n, 1)))


def regression(law: str, n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    X, noise = r.uniform(-3, 3, size=(n, 1)), r.normal(size=(n, 1))
    Y = {
        "sine": np.sin(X) + 0.2 * noise,
        "two": np.where(r.random((n, 1)) < 0.6, 3.0, -3.0) + 0.5 * noise,
        "skewed": X + np.exp(0.7 * noise),
        "plane": np.hstack([X, -X]) + 0.5 * r.normal(size=(n, 2)),
    }[law]
    return X, Y


# --- modes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_mode_lies_within_a_cluster(seed: int) -> None:
    assert abs(abs(embed(clusters(seed)).mode()[0]) - 5) < 1
    assert abs(embed(sharp_and_flat(seed)).mode()[0]) < 1


@pytest.mark.parametrize("kernel", [Gaussian(30.0), Laplace(0.1), Linear()], ids=repr)
def test_a_mode_does_not_depend_on_the_kernel(kernel: Any) -> None:
    X = clusters(0)
    assert_array_equal(embed(X, kernel).mode(), embed(X).mode())


def test_modes_of_conditionals_with_two_branches() -> None:
    X, Y = regression("two", 1000)
    modes = ConditionalEmbedding().fit(X, Y).given([[-1.0], [0.0], [1.0]]).mode()
    assert_allclose(abs(modes), 3.0, atol=0.6)


def test_modes_of_normal_beliefs_are_near_their_means() -> None:
    X, Y = regression("sine", 1000)
    at = np.linspace(-2.5, 2.5, 20)[:, None]
    given = ConditionalEmbedding().fit(X, Y).given(at)
    error = np.sqrt(np.mean((given.mode() - np.sin(at)) ** 2))
    assert error < 1.5 * np.sqrt(np.mean((given.mean() - np.sin(at)) ** 2))


def test_modes_follow_units_and_origin() -> None:
    r = np.random.default_rng(0)
    X = np.concatenate([r.normal(0, 1, (200, 2)), r.normal(0, 0.5, (300, 2)) + [8, -6]])
    mode = embed(X).mode()
    assert_allclose(mode, [8, -6], atol=0.3)
    assert_allclose(embed(X * [1.0, 1024.0]).mode(), mode * [1.0, 1024.0], rtol=1e-9)
    assert_allclose(embed(X + 1e6).mode() - 1e6, mode, atol=1e-6)


def test_modes_of_repeated_and_constant_columns() -> None:
    counts = np.random.default_rng(0).poisson(3, size=(500, 1)).astype(float)
    assert 2 <= embed(counts).mode()[0] <= 4
    both = np.hstack([clusters(0), np.full((300, 1), 7.0)])
    mode = embed(both, Gaussian(1.0)).mode()
    assert abs(abs(mode[0]) - 5) < 1
    assert mode[1] == 7
    assert_array_equal(embed(np.full((5, 2), 3.0), Gaussian(1.0)).mode(), [3, 3])


def test_candidates_of_vectors_are_judged_by_the_density() -> None:
    X = clusters(0)
    grid = np.linspace(-8, 8, 161)[:, None]
    best = embed(X).mode(candidates=grid)
    assert_array_equal(best, grid[embed(X).density(grid).argmax()])
    batch = embed(X, weights=np.stack([X[:, 0] < 0, X[:, 0] > 0]) / 150.0)
    assert_allclose(batch.mode(candidates=grid)[:, 0], [-5, 5], atol=1)


def test_differences_have_preimages_for_modes() -> None:
    X = clusters(0)
    zero = embed(X) - embed(X, embed(X).kernel)
    assert np.isfinite(zero.mode()).all()


def test_modes_of_a_track_are_those_of_its_beliefs() -> None:
    r = np.random.default_rng(0)
    states = np.cumsum(r.normal(size=(150, 1)), axis=0) % 10
    seen = states + r.normal(size=states.shape)
    track = KernelBayesFilter(validation=None).fit(states[:120], seen[:120]).filter(seen[120:])
    assert_allclose(track.mode, track.beliefs.mode(), rtol=1e-9)


# --- bandwidths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [5.0, 50.0])
def test_densities_of_clusters_are_not_smeared(apart: float) -> None:
    r = np.random.default_rng(0)
    X = r.choice([-apart, apart], size=(500, 1)) + r.normal(size=(500, 1))
    grid = np.linspace(-apart - 4, apart + 4, 2001)[:, None]
    truth = (norm.pdf(grid[:, 0], apart) + norm.pdf(grid[:, 0], -apart)) / 2
    assert abs(embed(X).density(grid) - truth).max() < 0.05
    assert 0.2 < widths(X, np.full(500, 0.002))[0] < 0.6


def test_bandwidths_of_normal_draws_are_silvermans() -> None:
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(300, 1))
        silverman = x.std() * (4 / 900) ** 0.2
        assert 0.6 < widths(x, np.full(300, 1 / 300))[0] / silverman < 1.01


def test_bandwidths_withstand_heavy_tails_and_repeated_rows() -> None:
    r = np.random.default_rng(0)
    heavy = r.standard_cauchy((500, 1))
    assert 0.1 < widths(heavy, np.full(500, 0.002))[0] < 1.5
    x = r.normal(size=(250, 1))
    once, twice = (
        widths(x, np.full(250, 0.004))[0],
        widths(np.repeat(x, 2, axis=0), np.full(500, 0.002))[0],
    )
    assert 0.5 < twice / once < 1.1
    rounded = widths(np.round(r.normal(size=(500, 1))), np.full(500, 0.002))[0]
    assert rounded > 0.15


def test_the_highest_place_beats_a_grid_within_error() -> None:
    x, p = sharp_and_flat(1), np.full(300, 1 / 300)
    h = widths(x, p)[0]
    grid = np.linspace(x.min(), x.max(), 5001)
    heights = norm.pdf(grid[:, None], x[:, 0], h).mean(axis=1)
    at = norm.pdf(highest(x, p), x[:, 0], h)
    gap = norm.pdf(grid[heights.argmax()], x[:, 0], h) - at
    assert gap.mean() <= 1.5 * np.sqrt(np.sum((gap / 300) ** 2)) + 1e-9


# --- samples -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("law", ["sine", "two", "skewed", "plane"])
def test_samples_of_conditionals_have_their_moments(law: str) -> None:
    X, Y = regression(law, 1000)
    given = ConditionalEmbedding().fit(X, Y).given([[0.5], [-1.0]])
    draws, mean, std = given.sample(20_000, rng=0), given.mean(), given.std()
    # six standard errors of a mean; kurtosis makes those of a deviation a little larger
    assert_allclose(draws.mean(axis=1), mean, atol=6 * std.max() / 20_000**0.5)
    assert_allclose(draws.std(axis=1), std, rtol=0.12)
    middle = given.quantile(0.5)
    below = (draws <= middle[:, None]).mean(axis=1)
    assert (abs(below - 0.5) < 0.12).all(), below
    assert {len(np.unique(rows, axis=0)) > 100 for rows in draws} == {True}


@pytest.mark.slow
def test_samples_of_conditionals_have_more_values_with_more_rows() -> None:
    def distinct(n: int) -> int:
        given = ConditionalEmbedding().fit(*regression("sine", n)).given([0.5])
        return len(np.unique(given.sample(5000, rng=0)))

    few, some, many = (distinct(n) for n in (100, 400, 1600))
    assert few > 15
    assert some > 2 * few
    assert many > 2 * some


def test_samples_of_pairs_have_their_moments() -> None:
    X, Y = regression("sine", 300)
    joint = ConditionalEmbedding().fit(X, Y).joint(X[:100])
    draws = joint.sample(20_000, rng=0)
    for part, mean, std in zip(draws, joint.mean(), joint.std(), strict=True):
        assert_allclose(part.mean(axis=0), mean, atol=6 * float(std.max()) / 20_000**0.5)
        assert_allclose(part.std(axis=0), std, rtol=0.1)


def test_probabilities_keep_positive_weights_and_meet_moments() -> None:
    r = np.random.default_rng(0)
    values = r.normal(size=(200, 3))
    plain = r.dirichlet(np.ones(200), size=2)
    assert_allclose(probabilities(plain, values, plain @ values, np.ones((2, 3))), plain)
    weights = plain + 0.02 * r.normal(size=(2, 200))
    weights /= weights.sum(axis=1, keepdims=True)
    mean, deviation = np.full((2, 3), 0.3), np.full((2, 3), 0.6)
    p = probabilities(weights, values, mean, deviation)
    assert p.min() >= 0
    assert_allclose(p.sum(axis=1), 1.0)
    found = p @ values
    assert_allclose(found, mean, atol=2e-3)
    spread = np.sqrt(np.einsum("bn,bnj->bj", p, (values - found[:, None]) ** 2))
    assert_allclose(spread, deviation, atol=2e-3)
    # moments that no probability has are met as far as possible
    beyond = probabilities(weights, values, np.full((2, 3), 9.0), deviation)
    assert np.isfinite(beyond).all()
    assert (beyond @ values > 0.5).all()
