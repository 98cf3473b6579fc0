"""Several rounds: weights that restore the prior, boxes, and who is answered by which."""

from __future__ import annotations

import pickle
import warnings
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.exceptions import NotFittedError

import meanmap
import oracles
from meanmap import KernelABC
from meanmap.likelihood_free import Posterior
from meanmap.likelihood_free.priors import prior_of
from oracles import Array


def shift(theta: Array, rng: np.random.Generator) -> Array:
    return theta + 0.5 * rng.normal(size=theta.shape)


# --- weights, and what rounds are for -------------------------------------------------------------


@cache
def refined(rounds: int) -> KernelABC:
    """A sharp problem: noise a twentieth of the prior's width, in two parameters."""
    if rounds:
        return deepcopy(refined(rounds - 1)).refine([0.8, 0.5], 300)
    model = KernelABC(sharp, {"a": stats.norm(), "b": stats.uniform(-2, 4)}, random_state=0)
    return model.fit(500)


def sharp(theta: Array, rng: np.random.Generator) -> Array:
    return theta + 0.05 * rng.normal(size=theta.shape)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_weights_make_a_sample_of_the_prior(rounds: int) -> None:
    """Rounds draw in boxes, each within the one before: weighted, all are the prior again."""
    model = refined(rounds)
    n = 500 + 300 * rounds
    assert model.theta_.shape == (n, 2) and model.outputs_.shape == (n, 2)
    w = model.weights_
    assert (w > 0).all()
    assert_allclose(w.sum(), 1)
    near = (abs(model.theta_ - [0.8, 0.5]) < 0.4).all(axis=1)
    prior_share = (stats.norm.cdf(1.2) - stats.norm.cdf(0.4)) * 0.8 / 4
    assert near.mean() > 1.7 * prior_share  # where the posterior is ...
    assert_allclose(w[near].sum(), prior_share, atol=0.025)  # ... but no heavier than in the prior
    mean, second = w @ model.theta_, w @ model.theta_**2
    error = np.array([1.0, 4 / np.sqrt(12)]) / np.sqrt(500)
    assert (abs(mean) < 4 * error).all()
    assert_allclose(second, [1.0, 4 / 3], atol=0.25)
    # draws that only the first round could make stand for most of the prior
    assert_allclose(w[model.theta_[:, 0] < -0.5], w.max())
    assert np.median(w[near]) < w.max()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    low=st.floats(0.0, 0.5), width=st.floats(0.2, 0.5), share=st.floats(0.5, 1), n=st.integers(1, 9)
)
def test_mixture_weights_of_nested_boxes(low: float, width: float, share: float, n: int) -> None:
    """Against the densities written out, for a uniform prior."""
    model = KernelABC(shift, stats.uniform(), random_state=0, regularization=0.1)
    model.fit(200)
    boxes = [np.array([[low], [low + width]]), np.array([[low], [low + share * width]])]
    done = model._simulations
    for box in boxes:
        done.extend(model._runner(), len(done) + 20 * n, done.add_round(box), False)
    theta = model.theta_[:, 0]
    density = 200.0 * np.ones(len(theta))
    for a, b in ((box[0, 0], box[1, 0]) for box in boxes):
        density += np.where((theta >= a) & (theta <= b), 20 * n / (b - a), 0.0)
    truth = 1 / density / (1 / density).sum()
    assert_allclose(done.weights(), truth, rtol=1e-9)


def distance_to_truth(posterior: Posterior) -> float:
    """To N(y, 0.05²) in each coordinate, by quantiles (Wasserstein's distance)."""
    q = (np.arange(50) + 0.5) / 50
    truth = np.array([0.8, 0.5]) + 0.05 * stats.norm.ppf(q)[:, None]
    return float(abs(posterior.quantile(q) - truth).mean())


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_sharp_posterior_is_found_with_and_without_rounds(rounds: int) -> None:
    found = refined(rounds).posterior([0.8, 0.5])
    assert_allclose(found.mean(), [0.8, 0.5], atol=0.03)
    assert distance_to_truth(found) < 0.02  # measured: .002 to .004


@pytest.mark.slow
def test_rounds_end_near_the_truth() -> None:
    """With 900 draws around it, a posterior of width 0.05 is found, mean and spread."""
    after = refined(3).posterior([0.8, 0.5])
    assert_allclose(after.std(), 0.05, rtol=0.6)
    low, high = after.interval(0.9)
    assert (high - low < 2.5 * 2 * 1.645 * 0.05).all()
    # the last box is near it too
    assert (np.ptp(refined(3).theta_[-300:], axis=0) < 20 * 0.05).all()


@pytest.mark.slow
def test_posteriors_elsewhere_stay_right() -> None:
    plain, more = refined(0), refined(3)
    rng = np.random.default_rng(4)
    theta = np.column_stack([rng.normal(0, 0.7, 60), rng.uniform(-1.6, 1.6, 60)])
    y = theta + 0.05 * rng.normal(size=theta.shape)
    before, after = (((m.posterior(y).mean() - y) ** 2).sum(axis=1).mean() for m in (plain, more))
    assert after < 1.5 * before + 1e-3


@pytest.mark.slow
def test_rounds_of_a_wide_posterior_do_not_change_it() -> None:
    """Against the closed form, where the posterior is half the prior: no selection bias."""
    M = np.random.default_rng(1).normal(size=(4, 4))
    V = M.T @ M + 2 * np.eye(4)
    A, b, S = oracles.gaussian_conditional(np.array([0.0, 0.0, 1.0, 1.0]), V, 2)
    C, zero = V[:2, :2] / 2, np.zeros(2)

    def simulator(theta: Array, rng: np.random.Generator) -> Array:
        return theta @ A.T + b + rng.normal(size=(len(theta), 2)) @ np.linalg.cholesky(S).T

    model = KernelABC(simulator, stats.multivariate_normal(zero, C), random_state=0).fit(500)
    y = np.array([1.0, 1.0]) + A @ np.sqrt(np.diag(C))
    model.refine(y, 1000)
    mean, cov = oracles.linear_gaussian_posterior(y, A, b, S, zero, C)
    std = np.sqrt(np.diag(cov))
    found = model.posterior(y)
    assert (abs(found.mean() - mean) < 0.25 * std).all()
    assert_allclose(found.std(), std, rtol=0.25)
    # and another prior afterwards
    half = model.posterior(y, prior=stats.multivariate_normal(zero, C / 2))
    expected = oracles.linear_gaussian_posterior(y, A, b, S, zero, C / 2)[0]
    assert (abs(half.mean() - expected) < 0.4 * std).all()


@pytest.mark.slow
def test_rounds_where_simulations_fail() -> None:
    """Failed draws are left out of the prior and do not distort the weights of the others."""

    def fails_low(theta: Array, rng: np.random.Generator) -> Array:
        y = theta + 0.05 * rng.normal(size=theta.shape)
        return np.where(theta < 0.3, np.nan, y)

    model = KernelABC(fails_low, stats.uniform(), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(2000)
        model.refine([0.85], 2000)
    theta, w = model.theta_[:, 0], model.weights_
    assert theta.min() >= 0.3
    # uniform on [0.3, 1]; the standard errors are those of 2,000 draws, 0.0045 and 0.01
    assert_allclose(w @ theta, 0.65, atol=0.015)
    assert_allclose(w[theta > 0.75].sum(), 0.25 / 0.7, atol=0.035)


def test_rounds_are_seeded_and_go_on() -> None:
    def run() -> KernelABC:
        model = KernelABC(shift, stats.norm(), random_state=4).fit(200)
        return model.refine([0.5], 100).fit(400)

    one, two = run(), run()
    assert_array_equal(one.theta_, two.theta_)
    assert_array_equal(one.weights_, two.weights_)
    assert len(one.theta_) == 400


@pytest.mark.parametrize("n", [1, pytest.param(1001, marks=pytest.mark.slow)])
def test_rounds_of_odd_sizes(n: int) -> None:
    model = KernelABC(sharp, stats.multivariate_normal([0, 0]), random_state=0).fit(200)
    assert len(model.refine([0.2, 0.2], n).theta_) == 200 + n


def test_what_cannot_be_refined() -> None:
    model = KernelABC(shift, stats.norm(), random_state=0)
    with pytest.raises(NotFittedError):
        model.refine([0.0], 10)
    model.fit(100)
    with pytest.raises(ValueError, match="one observation"):
        model.refine([[0.0], [1.0]], 10)
    for n in (0, -1, 2.5, "ten"):
        with pytest.raises(ValueError, match="whole number"):
            model.refine([0.0], n)  # type: ignore[arg-type]
    assert len(model.theta_) == 100


# --- which simulations answer ---------------------------------------------------------------------


def answered_by(posterior: Posterior) -> int:
    """The number of simulations that an answer stands on."""
    return len(posterior.atoms)


@pytest.mark.slow
def test_the_refined_observation_is_answered_in_the_box() -> None:
    for rounds in (1, 2, 3):
        model = refined(rounds)
        box = model._simulations.boxes[-1]
        found = model.posterior([0.8, 0.5])
        assert answered_by(found) < len(model.theta_)
        inside = ((found.atoms >= box[0]) & (found.atoms <= box[1])).all(axis=1)  # type: ignore[index]
        assert inside.all()
        assert answered_by(found) == int(
            ((model.theta_ >= box[0]) & (model.theta_ <= box[1])).all(axis=1).sum()  # type: ignore[index]
        )


@pytest.mark.slow
def test_others_are_answered_by_all_simulations() -> None:
    model = refined(2)
    n = len(model.theta_)
    for y in ([-1.0, 0.5], [0.8, -1.0], [0.0, 0.0]):
        assert answered_by(model.posterior(y)) == n
    # and nearer ones by as many as their box holds
    first, last = model._simulations.boxes[1:]
    assert first is not None and last is not None
    counts = [
        ((model.theta_ >= a) & (model.theta_ <= b)).all(axis=1).sum() for a, b in (first, last)
    ]
    assert answered_by(model.posterior([0.8, 0.5])) in counts


@pytest.mark.slow
def test_boxes_are_where_the_posterior_is() -> None:
    """Each round looks where the one before has found it."""
    boxes = refined(3)._simulations.boxes
    assert boxes[0] is None
    sizes = [float(np.prod(box[1] - box[0])) for box in boxes[1:] if box is not None]
    # measured: .21 to .24, of which the posterior's own 99.8% are .1
    assert max(sizes) < 0.35
    for box in boxes[1:]:
        assert box is not None and (box[0] < [0.8, 0.5]).all() and (box[1] > [0.8, 0.5]).all()


def test_a_batch_is_answered_by_all_simulations() -> None:
    """Its rows share their atoms; one by one they are answered as finely as can be."""
    model = refined(1)
    y = np.array([[0.8, 0.5], [-1.0, -1.0], [0.3, 1.2]])
    batch = model.posterior(y)
    assert_array_equal(batch.atoms, model.theta_)
    for i in (1, 2):  # outside the box
        one = model.posterior(y[i])
        assert_allclose(batch.mean()[i], one.mean(), atol=1e-9)
        assert_allclose(batch.interval(0.9)[1][i], one.interval(0.9)[1], atol=1e-9)
    assert len(model.posterior(y[0]).atoms) < len(model.theta_)  # the simulations in the box


@pytest.mark.slow
def test_a_few_simulations_in_a_box_answer_nothing() -> None:
    """There are fifty at least."""
    model = KernelABC(sharp, {"a": stats.norm(), "b": stats.norm()}, random_state=0).fit(200)
    done = model._simulations
    for low, high, n in ((0.15, 0.25, 20), (0.0, 0.5, 80)):
        turn = done.add_round(np.array([[low, low], [high, high]]))
        done.extend(model._runner(), len(done) + n, turn, False)
    model.fit(300)
    assert [len(region.theta) >= 50 for *_, region in model._regions] == [True]
    assert len(model._simulations.boxes) == 3


@pytest.mark.slow
def test_a_refined_posterior_in_files(tmp_path: Any) -> None:
    posterior = refined(2).posterior([0.8, 0.5])
    meanmap.save(posterior, tmp_path / "p.npz")
    for again in (meanmap.load(tmp_path / "p.npz"), pickle.loads(pickle.dumps(posterior))):
        assert_array_equal(again.mean(), posterior.mean())
        assert_array_equal(again.interval(0.9), posterior.interval(0.9))
        assert_array_equal(again.sample(10, rng=0), posterior.sample(10, rng=0))


@pytest.mark.slow
def test_more_from_the_prior_after_a_round() -> None:
    """Boxes stay, and are answered by what falls into them since."""
    model = KernelABC(sharp, {"a": stats.norm(), "b": stats.uniform(-2, 4)}, random_state=0)
    y = [0.8, 0.5]
    model.fit(400).refine(y, 200)
    before = answered_by(model.posterior(y))
    model.fit(1000)
    assert model._simulations.drawn == [800, 200]
    assert before < answered_by(model.posterior(y)) < 1000
    mean = model.weights_ @ model.theta_
    assert (abs(mean) < 4 * np.array([1.0, 1.16]) / np.sqrt(800)).all()
    assert_allclose(model.posterior(y).mean(), y, atol=0.05)


# --- masses of boxes ------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    low=st.floats(-3, 2), width=st.floats(0.01, 4), first=st.floats(-1, 6), more=st.floats(0.0, 4)
)
def test_masses_of_independent_parameters_are_exact(
    low: float, width: float, first: float, more: float
) -> None:
    prior = prior_of({"a": stats.norm(), "k": stats.poisson(3), "u": stats.uniform(-1, 3)})
    box = np.array([low, first, -0.5]), np.array([low + width, first + more, 1.0])
    exact = stats.norm.cdf(low + width) - stats.norm.cdf(low)
    whole = np.arange(30)
    exact *= stats.poisson.pmf(whole[(whole >= first) & (whole <= first + more)], 3).sum()
    found = prior.mass(*box, np.random.default_rng(0))
    assert_allclose(found, exact * 0.5, atol=1e-12)


def test_masses_of_samples_are_exact() -> None:
    values = np.random.default_rng(0).normal(size=(333, 2))
    box = np.array([-0.5, -2.0]), np.array([1.0, 0.3])
    share = ((values >= box[0]) & (values <= box[1])).all(axis=1).mean()
    assert prior_of(values).mass(*box, np.random.default_rng(0)) == share


def test_masses_of_other_priors_are_estimated() -> None:
    prior = prior_of(stats.multivariate_normal([0, 0]))
    box = np.array([-0.5, -1.0]), np.array([1.0, 0.3])
    exact = np.prod(stats.norm.cdf(box[1]) - stats.norm.cdf(box[0]))
    assert_allclose(prior.mass(*box, np.random.default_rng(0)), exact, atol=0.008)  # 6 errors
    nowhere = np.array([50.0, 50.0]), np.array([51.0, 51.0])
    assert prior.mass(*nowhere, np.random.default_rng(0)) > 0  # nothing is divided by it


def test_draws_of_a_box_of_whole_numbers_are_whole() -> None:
    prior = prior_of({"k": stats.poisson(3), "m": stats.randint(0, 2)})
    inside = prior.within(np.array([1.5, -0.1]), np.array([4.2, 1.3]))
    draws = inside.sample(3000, np.random.default_rng(0))
    assert set(np.unique(draws[:, 0])) == {2.0, 3.0, 4.0}
    chances = stats.poisson.pmf([2, 3, 4], 3) / stats.poisson.pmf([2, 3, 4], 3).sum()
    shares = [(draws[:, 0] == k).mean() for k in (2, 3, 4)]
    assert_allclose(shares, chances, atol=0.055)  # six standard errors
    assert set(np.unique(draws[:, 1])) == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["dict", "function", "array"])
def test_rounds_under_every_kind_of_prior(kind: str) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, size=(700, 1))
    prior: Any = {
        "dict": {"place": stats.uniform(-1, 2)},
        "function": lambda n, rng: rng.uniform(-1, 1, size=n),
        "array": table,
    }[kind]
    model = KernelABC(sharp, prior, random_state=0).fit(300).refine([0.4], 200)
    theta, w = model.theta_[:, 0], model.weights_
    assert_allclose(w.sum(), 1)
    assert abs(w @ theta) < 4 * 0.58 / np.sqrt(300)
    assert_allclose(w[theta > 0.4].sum(), 0.3, atol=0.1)
    found = model.posterior([0.4])
    assert answered_by(found) < 500
    assert_allclose(found.mean(), 0.4, atol=0.03)
    assert_allclose(found.std(), 0.05, rtol=0.5)


# --- does it pay ----------------------------------------------------------------------------------


def wiggly(theta: Array, rng: np.random.Generator) -> Array:
    """Steep in places: a few hundred simulations of all the prior cannot resolve it."""
    return theta + np.sin(5 * theta) / 6 + 0.03 * rng.normal(size=theta.shape)


WIGGLE = np.array([0.5, -0.4])


@cache
def wiggly_path(seed: int) -> list[tuple[float, int, int]]:
    """By round: the distance to the truth in its deviations, and who answered, of how many."""
    model = KernelABC(
        wiggly, {"a": stats.uniform(-3, 6), "b": stats.uniform(-3, 6)}, random_state=seed
    ).fit(400)
    grid = np.linspace(-3, 3, 60_001)
    q = (np.arange(50) + 0.5) / 50
    columns = []
    for place in WIGGLE:
        F = np.cumsum(np.exp(-((place - grid - np.sin(5 * grid) / 6) ** 2) / (2 * 0.03**2)))
        columns.append(grid[np.searchsorted(F, q * F[-1])])
    truth = np.column_stack(columns)
    path = []
    for turn in range(3):
        if turn:
            model.refine(WIGGLE, 200)
        found = model.posterior(WIGGLE)
        distance = (abs(found.quantile(q) - truth) / truth.std(axis=0)).mean()
        path.append((float(distance), answered_by(found), len(model.theta_)))
    return path


@pytest.mark.slow
def test_a_round_resolves_what_the_prior_could_not() -> None:
    before, after = np.mean([[row[0] for row in wiggly_path(seed)[:2]] for seed in (1, 3)], axis=0)
    assert after < 0.5 * before  # measured: .06, from .56 deviations


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_a_further_round_does_no_harm(seed: int) -> None:
    """What was found before must not be lost to an answer at large.

    The first answer decides which box is asked; learned from many draws in a box and few outside,
    it can be so wide that the box no longer holds 98% of it, though two rounds were made for it.
    """
    (_, _, _), (one, few, _), (two, by, n) = wiggly_path(seed)
    assert by < n
    assert two < 1.5 * one + 0.1


# --- what cannot be learned in a box --------------------------------------------------------------


def test_a_posterior_that_is_one_value() -> None:
    """A parameter that is certain: the box holds one value, and only its outputs."""
    model = KernelABC(lambda t, rng: t.copy(), stats.randint(0, 3), random_state=0).fit(300)
    model.refine([1.0], 100)  # all outputs in the box are the same: nothing more to learn there
    found = model.posterior([1.0])
    assert_allclose(found.mean(), 1.0)
    assert_allclose(found.interval(0.9), 1.0)
    assert_allclose(model.posterior([2.0]).mean(), 2.0, atol=1e-3)


@pytest.mark.slow
def test_a_certain_model_is_refined() -> None:
    model = KernelABC(
        lambda t, rng: 5 * t + 0.5 * rng.normal(size=t.shape), stats.randint(0, 2), random_state=0
    ).fit(300)
    model.refine([5.0], 100)
    assert_allclose(model.posterior([5.0]).mean(), 1.0)
    assert_allclose(model.posterior([0.0]).mean(), 0.0, atol=0.02)
    # weights: a half for each value, as in the prior
    assert_allclose(model.weights_[model.theta_[:, 0] == 1].sum(), 0.5, atol=0.1)


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_round_that_fails_half_way(vectorized: bool) -> None:
    """What was simulated is kept, earlier answers stand, and weights remain right."""
    broken = False

    def fragile(theta: Array, rng: np.random.Generator) -> Array:
        if broken:
            raise OSError("no space left")
        return sharp(theta, rng)

    model = KernelABC(
        fragile, {"a": stats.uniform()}, vectorized=vectorized, random_state=0, n_jobs=1
    ).fit(300)
    before = model.posterior([0.5]).mean()
    broken = True
    with pytest.raises((OSError, ValueError), match="no space"):
        model.refine([0.5], 100)
    assert_array_equal(model.posterior([0.5]).mean(), before)
    assert_allclose(model._simulations.weights(), 1 / 300)
    broken = False
    model.refine([0.5], 100)
    assert len(model.theta_) == 400
    assert_allclose(model.weights_ @ model.theta_[:, 0], 0.5, atol=0.08)


@pytest.mark.slow
def test_weights_count_failures_of_every_round() -> None:
    """Against densities written out: n_k are draws, not simulations that came back."""

    def fails_above(theta: Array, rng: np.random.Generator) -> Array:
        return np.where(theta > 0.7, np.nan, sharp(theta, rng))

    model = KernelABC(fails_above, stats.uniform(), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(400).refine([0.6], 300)
    done = model._simulations
    assert done.drawn[0] > 400 and done.drawn[1] > 300  # some of either failed
    (a,), (b,) = done.boxes[1]  # type: ignore[misc]
    theta = model.theta_[:, 0]
    length = min(b, 1.0) - max(a, 0.0)
    density = done.drawn[0] + np.where((theta >= a) & (theta <= b), done.drawn[1] / length, 0.0)
    assert_allclose(model.weights_, (1 / density) / (1 / density).sum(), rtol=1e-9)
