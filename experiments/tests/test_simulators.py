"""Standard simulators: likelihoods, exact posteriors, scores, and the experiment itself."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import solve_ivp

from meanmap_experiments import learners, simulators
from meanmap_experiments.tasks import (
    TASKS,
    LotkaVolterra,
    c2st,
    tempered,
)
from optional_packages import require

# --- tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_consistent(name):
    task = TASKS[name]
    rng = np.random.default_rng(0)
    theta = task.sample(20, rng)
    assert task.simulate(theta, rng).shape == (20, task.outputs)
    assert task.observation(3).shape == (task.outputs,)
    assert task.truth(3).shape == (len(task.prior),)
    assert_allclose(task.observation(3), task.observation(3), rtol=0)
    assert not np.allclose(task.observation(3), task.observation(4))
    assert not np.allclose(task.observation(3), task.observation(3, seed=1))
    assert np.isfinite(task.log_likelihood(task.truth(3)[None], task.observation(3))).all()
    z = task.unbounded(theta)
    assert_allclose(np.abs(task.bounded(z)), np.abs(theta), rtol=1e-12)


def test_two_moons_likelihood_is_a_density_of_what_is_simulated():
    task = TASKS["two_moons"]
    theta = np.array([[0.3, -0.5]])
    y = task.simulate(np.repeat(theta, 20_000, axis=0), np.random.default_rng(0))
    low, high = y.min(axis=0) - 0.02, y.max(axis=0) + 0.02
    axes = [np.linspace(a, b, 151) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp([task.log_likelihood(theta, point)[0] for point in grid])
    cell = (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
    assert_allclose(density.sum() * cell, 1.0, atol=0.02)
    assert_allclose(density @ grid * cell, y.mean(axis=0), atol=0.005)


def test_two_moons_posterior_by_importance():
    task = TASKS["two_moons"]
    rng = np.random.default_rng(0)
    theta = task.sample(400_000, rng)
    for i in range(3):
        y = task.observation(i)
        w = np.exp(task.log_likelihood(theta, y))
        mean = w @ theta / w.sum()
        second = w @ theta**2 / w.sum()
        draws = task.reference(i, 20_000)
        assert np.isfinite(task.log_likelihood(draws, y)).all()
        assert (np.abs(draws) <= 1).all()
        assert_allclose(draws.mean(axis=0), mean, atol=0.03)
        assert_allclose((draws**2).mean(axis=0), second, atol=0.03)


def test_an_impossible_observation_of_two_moons_is_an_error():
    with pytest.raises(ValueError, match="can have made"):
        TASKS["two_moons"].posterior(np.array([9.0, 9.0]), 2, np.random.default_rng(0))


def test_slcp_likelihood():
    task = TASKS["slcp"]
    theta = task.sample(5, np.random.default_rng(1))
    y = task.observation(0)
    for row in theta:
        s, t, rho = row[2] ** 2, row[3] ** 2, np.tanh(row[4])
        covariance = np.array([[s**2, rho * s * t], [rho * s * t, t**2]]) + 1e-6 * np.eye(2)
        points = stats.multivariate_normal(row[:2], covariance)
        expected = points.logpdf(y.reshape(4, 2)).sum()
        assert_allclose(task.log_likelihood(row[None], y)[0], expected, rtol=1e-6)


def test_slcp_simulates_its_likelihood():
    task = TASKS["slcp"]
    theta = np.array([1.0, -1.0, 0.9, -1.2, 0.7])
    y = task.simulate(np.repeat(theta[None], 20_000, axis=0), np.random.default_rng(0))
    x = y.reshape(-1, 2)
    assert_allclose(x.mean(axis=0), theta[:2], atol=0.05)
    assert_allclose(x.std(axis=0), theta[2:4] ** 2, rtol=0.03)
    assert_allclose(np.corrcoef(x.T)[0, 1], np.tanh(0.7), atol=0.02)


def test_slcp_posterior_by_importance_and_in_four_modes():
    task = TASKS["slcp"]
    y = task.simulate(np.array([[0.7, -1.5, 1.6, -1.8, 0.5]]), np.random.default_rng(3))[0]
    theta = task.sample(400_000, np.random.default_rng(0))
    log = task.log_likelihood(theta, y)
    w = np.exp(log - log.max())
    w /= w.sum()
    assert 1 / (w @ w) > 2000  # enough of them count
    draws = task.posterior(y, 4000, np.random.default_rng(1))
    spread = np.sqrt(w @ np.abs(theta) ** 2)
    assert_allclose(np.abs(draws).mean(axis=0) / spread, w @ np.abs(theta) / spread, atol=0.08)
    assert_allclose(draws[:, :2].mean(axis=0), w @ theta[:, :2], atol=0.15)
    signs = (draws[:, 2] > 0) * 2 + (draws[:, 3] > 0)
    assert_allclose(np.bincount(signs, minlength=4) / len(draws), 0.25, atol=0.04)


def test_lotka_volterra_paths():
    task = LotkaVolterra()
    theta = task.sample(20, np.random.default_rng(0))
    many = task._paths(theta)
    few = np.concatenate([task._paths(row[None]) for row in theta])
    assert_allclose(many, few, atol=5e-3)
    a, b, c, d = theta[0]
    times = 2.1 * np.arange(10)
    path = solve_ivp(
        lambda _, u: [a * u[0] - b * u[0] * u[1], d * u[0] * u[1] - c * u[1]],
        (0, times[-1]),
        [30.0, 1.0],
        t_eval=times,
        rtol=1e-9,
        atol=1e-9,
    )
    assert_allclose(many[0], np.log(path.y.ravel()), atol=1e-4)
    assert_allclose(many[:, [0, 10]], np.tile(np.log([30.0, 1.0]), (20, 1)))


def test_lotka_volterra_likelihood():
    task = LotkaVolterra()
    theta, y = task.truth(0)[None], task.observation(0)
    expected = stats.lognorm(0.1, scale=np.exp(task._paths(theta)[0])).logpdf(y).sum()
    assert_allclose(task.log_likelihood(theta, y)[0], expected, rtol=1e-10)


def test_tempered_finds_a_known_posterior():
    rng = np.random.default_rng(0)
    noise, y = 0.05, np.array([1.5, -1.0])

    def prior(z):
        return stats.norm.logpdf(z).sum(axis=1)

    def likelihood(z):
        return stats.norm.logpdf(y, z, noise).sum(axis=1)

    draws = tempered(rng.normal(size=(4000, 2)), prior, likelihood, (4, 40), rng)
    variance = 1 / (1 + 1 / noise**2)
    assert_allclose(draws.mean(axis=0), variance * y / noise**2, atol=6 * np.sqrt(variance / 3000))
    assert_allclose(draws.std(axis=0), np.sqrt(variance), rtol=0.1)
    assert len(np.unique(draws, axis=0)) > 3500  # moved, not only resampled


# --- scores ---------------------------------------------------------------------------------------


def test_a_classifier_tells_apart_what_differs():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 400, 2))
    assert 0.4 < c2st(X, Y, iterations=30) < 0.6
    assert 0.6 < c2st(X, Y + 1, iterations=30) < 0.9
    assert c2st(X, Y + 9, iterations=30) == 1.0
    assert c2st(1e3 * X, 1e3 * Y + 9e3, iterations=30) == 1.0  # whatever the units
    assert c2st(X, Y, 3, iterations=3) == c2st(X, Y, 3, iterations=3)


# --- methods --------------------------------------------------------------------------------------


def test_resampled_draws_keep_moments_and_support():
    task = TASKS["two_moons"]
    rng = np.random.default_rng(0)
    draws = rng.uniform(-1, 1, size=(500, 2))
    weights = rng.random(500)
    mean = weights @ draws / weights.sum()
    plain = learners.resampled(task, draws, weights, 5000, 0.0, rng)
    assert {tuple(row) for row in plain} <= {tuple(row) for row in draws}
    for width in (0.0, 0.5):
        found = learners.resampled(task, draws, weights, 5000, width, rng)
        assert_allclose(found.mean(axis=0), mean, atol=0.06)
        assert (np.abs(found) <= 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", [simulators.KERNEL, simulators.ROUNDS, simulators.REJECTION])
def test_methods_answer_near_the_exact_posterior(method):
    plan = simulators.Plan(draws=200, kept=(20,))
    exact = [TASKS["two_moons"].reference(0, 200)]
    [answer] = simulators.answered(plan, "two_moons", method, 600, (0,), exact, 0)
    assert answer.before >= 0
    for draws, score, seconds in answer.candidates.values():
        assert draws.shape == (200, 2)
        assert (score == 0.0) == (len(answer.candidates) == 1)
        assert seconds > 0
        assert np.abs(draws.mean(axis=0) - exact[0].mean(axis=0)).max() < 0.3


def test_adjusted_rejection_for_bounded_and_positive_parameters():
    plan = simulators.Plan(draws=100, adjusted=(10, 100))
    for name, choices in (("two_moons", 2), ("lotka_volterra", 1)):
        task = TASKS[name]
        exact = [task.sample(100, np.random.default_rng(0))]
        [answer] = simulators.answered(plan, name, simulators.ADJUSTED, 300, (0,), exact, 0)
        assert len(answer.candidates) == choices * len(learners.WIDTHS)
        for draws, _, _ in answer.candidates.values():
            assert np.isfinite(task.log_prior(draws)).all()


def test_a_round_that_is_refused_counts_as_such(monkeypatch):
    def refuse(*_):
        raise ValueError("prior: too few draws")

    monkeypatch.setattr(learners.KernelABC, "refine", refuse)
    plan = simulators.Plan(draws=50)
    exact = [TASKS["two_moons"].reference(0, 50)]
    [answer] = simulators.answered(plan, "two_moons", simulators.ROUNDS, 200, (0,), exact, 0)
    assert answer.refused
    assert answer.candidates[learners.PLAIN][0].shape == (50, 2)


# --- the experiment -------------------------------------------------------------------------------


def made_up(c2sts):
    """Figures of two observations for every method."""
    found = simulators.Found()
    for method in simulators.METHODS:
        key = ("slcp", method, 1000)
        score = c2sts.get(method, 0.9)
        found.c2st[key] = [score, score + 0.01]
        found.mmd[key] = [0.1, 0.2]
        found.first[key] = [2.0, 2.0] if method == simulators.KERNEL else [10.0, 10.0]
        found.later[key] = [1.0, 1.0]
    found.c2st["slcp", simulators.AGAIN, 0] = [0.5, 0.52]
    found.mmd["slcp", simulators.AGAIN, 0] = [0.0, 0.001]
    return found


def test_the_verdict_follows_the_figures():
    plan = simulators.Plan(tasks=("slcp",), sizes=(1000,), observations=2)
    found = made_up({simulators.KERNEL: 0.8, simulators.PYABC: 0.7})
    claims = simulators.verdict(plan, found)
    text = " ".join(claim.text for claim in claims)
    assert "KernelABC is nearer than NPE of sbi, adjusted rejection, rejection" in text
    assert "and farther than pyABC" in text
    assert claims[0].holds is False
    assert "SLCP 2 s (times as long: KernelABC in two rounds 5, NPE of sbi 5" in text
    assert "found too few draws" not in text and "cut short" not in text
    found = made_up({simulators.KERNEL: 0.95})
    found.refused = 2
    claims = simulators.verdict(plan, found)
    text = " ".join(claim.text for claim in claims)
    assert "KernelABC is farther than NPE of sbi, pyABC, adjusted rejection, rejection" in text
    assert "KernelABC in two rounds is not told apart from any" in text
    assert "For 2 observations" in text


def test_tables_and_picture_hold_every_method():
    pytest.importorskip("matplotlib").use("Agg")
    plan = simulators.Plan(tasks=("slcp",), sizes=(1000,), observations=2)
    near, seconds = simulators.tables(plan, "slcp", made_up({}))
    assert near.column("method") == (*simulators.METHODS, simulators.AGAIN)
    assert seconds.column("method") == simulators.METHODS
    axes = simulators.picture(plan, made_up({}))(None)
    assert axes.get_ylabel().startswith("C2ST")
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == list(simulators.METHODS)


def test_missing_peers_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sbi", None)
    monkeypatch.setitem(sys.modules, "pyabc", None)
    with pytest.raises(ImportError, match="pip install sbi pyabc"):
        simulators.run(quick=True)


@pytest.mark.slow
def test_run_is_repeatable():
    require("sbi")
    require("pyabc")
    plan = simulators.Plan(
        tasks=("two_moons",),
        sizes=(200,),
        observations=1,
        draws=60,
        flow="maf",
        epochs=2,
        iterations=5,
    )
    one, two = (simulators.run(plan=plan, seed=1, progress=False) for _ in range(2))
    assert one.name == "simulators"
    assert str(one.tables[0]) == str(two.tables[0])
    assert one.to_json()
    assert any("cut short" in claim.text for claim in one.verdict)
