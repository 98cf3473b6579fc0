"""Goodness of fit: levels, power, dependent rows, simulation, the witness, bad input."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

from meanmap.comparison import Block, Signs, Simulation, WeightedBlocks
from meanmap.comparison.goodness import goodness_of_fit_test, series_memory
from meanmap.comparison.results import TestResult
from meanmap.kernels import Gaussian, Laplace, RationalQuadratic
from meanmap.statistics import stein_discrepancy
from optional_packages import require
from oracles.statistics import stein_gaussian_dense


def normal(x: Any) -> Any:
    """The score of a standard normal distribution."""
    return -x


def draw(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(n, 1))


def chain(n: int, phi: float, rng: np.random.Generator, mean: float = 0.0) -> np.ndarray:
    """A stationary autoregression whose rows are standard normal."""
    noise = rng.normal(size=(n + 100, 1)) * (1 - phi**2) ** 0.5
    return mean + lfilter([1.0], [1.0, -phi], noise, axis=0)[100:]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- level ---------------------------------------------------------------------------------------


def rejections(runs: int, test: Any) -> int:
    return sum(test(np.random.default_rng(seed)).pvalue <= 0.05 for seed in range(runs))


@pytest.mark.parametrize("null", ["wild", "spectral"])
def test_approximate_nulls_stay_near_their_level(null: str) -> None:
    """At a true level of 6.5% more than this many of 200 runs have a chance of 1e-6."""

    def test(rng: np.random.Generator) -> TestResult:
        X = rng.normal(size=(60, 2))
        return goodness_of_fit_test(X, normal, null=null, n_permutations=99, rng=rng)

    assert rejections(200, test) <= stats.binom.isf(1e-6, 200, 0.065)


@pytest.mark.slow
def test_simulated_samples_are_exact_for_scores_with_heavy_tails() -> None:
    """Gamma(3): E s² is just finite. Both tails of the binomial distribution have 1e-6."""

    def test(rng: np.random.Generator) -> TestResult:
        X = rng.gamma(3.0, size=(12, 1))
        return goodness_of_fit_test(
            X,
            lambda x: 2 / x - 1,
            kernel=[Gaussian(), RationalQuadratic(0.5, 1.0)],
            null=Simulation(lambda n, rng: rng.gamma(3.0, size=(n, 1))),
            n_permutations=19,
            rng=rng,
        )

    found = rejections(150, test)
    assert stats.binom.ppf(1e-6, 150, 0.05) <= found <= stats.binom.isf(1e-6, 150, 0.05)


@pytest.mark.filterwarnings("ignore:the 400 rows are worth")
def test_blocks_hold_the_level_of_a_chain_and_signs_do_not() -> None:
    def blocks(rng: np.random.Generator) -> TestResult:
        X = chain(400, 0.7, rng)
        return goodness_of_fit_test(X, normal, Gaussian(), "block", n_permutations=99, rng=rng)

    def signs(rng: np.random.Generator) -> TestResult:
        X = chain(400, 0.7, rng)
        return goodness_of_fit_test(X, normal, Gaussian(), n_permutations=99, rng=rng)

    assert rejections(60, blocks) <= stats.binom.isf(1e-6, 60, 0.08)
    assert rejections(60, signs) > stats.binom.isf(1e-6, 60, 0.08)


@pytest.mark.slow
def test_a_fitted_density_needs_refitting() -> None:
    """Fitted scale: with refit the level is reached, without it next to nothing is rejected."""

    def fit(x: np.ndarray) -> Any:
        return stats.norm(scale=np.sqrt(np.mean(x**2)))

    def refitted(rng: np.random.Generator) -> TestResult:
        X = 3 * rng.normal(size=(30, 1))
        law = fit(X)
        return goodness_of_fit_test(
            X,
            law,
            Gaussian(),
            null=Simulation(lambda n, rng: law.std() * rng.normal(size=(n, 1)), refit=fit),
            n_permutations=19,
            rng=rng,
        )

    found = rejections(80, refitted)
    assert found <= stats.binom.isf(1e-6, 80, 0.06)
    assert found > 0  # without refitting: none, the fitted density is too near


# --- power and agreement -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"null": "spectral"}, {"null": Simulation(draw)}, {"null": Signs(40)}]
)
def test_a_wrong_density_is_rejected(options: dict[str, Any], rng: np.random.Generator) -> None:
    X = rng.normal(0.6, 1.0, size=(200, 1))
    result = goodness_of_fit_test(X, normal, n_permutations=199, rng=0, **options)
    assert result.pvalue == 1 / 200
    assert result.rejects(0.01)
    assert "does not come from the density" in " ".join(repr(result).split())


def test_a_wrong_chain_is_rejected(rng: np.random.Generator) -> None:
    X = chain(1500, 0.7, rng, mean=0.6)
    assert goodness_of_fit_test(X, normal, null="block", rng=0).pvalue < 0.01


@pytest.mark.slow
def test_equal_means_and_variances_are_told_apart(rng: np.random.Generator) -> None:
    X = rng.choice([-1.0, 1.0], size=(300, 1)) * 0.95 + 0.31 * rng.normal(size=(300, 1))
    assert goodness_of_fit_test(X, stats.norm(), rng=0).pvalue < 0.01


def test_the_statistic_of_one_kernel_is_the_discrepancy(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 2))
    result = goodness_of_fit_test(X, normal, Gaussian(0.8), rng=0)
    assert_allclose(result.statistic, stein_discrepancy(X, normal, Gaussian(0.8)), atol=1e-12)
    blocks = goodness_of_fit_test(X, normal, Gaussian(0.8), WeightedBlocks(5), rng=0)
    assert_allclose(blocks.statistic, stein_discrepancy(X, normal, Gaussian(0.8), "V"), atol=1e-12)


def test_signs_are_those_of_the_dense_wild_bootstrap(rng: np.random.Generator) -> None:
    X = rng.normal(size=(25, 1))
    result = goodness_of_fit_test(X, normal, Gaussian(0.8), n_permutations=50, rng=3)
    generator = np.random.default_rng(3)
    order = generator.permutation(25)
    signs = generator.choice([-1.0, 1.0], size=(50, 25))
    H = stein_gaussian_dense(X[order], -X[order], 0.8)
    expected = [(e @ H @ e - np.trace(H)) / (25 * 24) for e in signs]
    assert_allclose(np.asarray(result.null), expected, atol=1e-12)


def test_the_spectral_limit_has_the_moments_of_the_signs(rng: np.random.Generator) -> None:
    """Mean 0 and variance 2 Σ h²/n⁴ over different points; bars of six standard errors."""
    X = rng.normal(size=(40, 1))
    result = goodness_of_fit_test(X, normal, Gaussian(0.8), "spectral", 20_000, rng=0)
    H = stein_gaussian_dense(X, -X, 0.8)
    variance = 2 * np.sum((H - np.diag(np.diag(H))) ** 2) / (40 * 39) ** 2
    values = np.asarray(result.null)
    assert abs(values.mean()) < 6 * variance**0.5 / 20_000**0.5
    assert abs(values.var() / variance - 1) < 0.15


def test_bins_change_little(rng: np.random.Generator) -> None:
    X = rng.normal(0.15, 1.0, size=(400, 1))
    full = goodness_of_fit_test(X, normal, Gaussian(), n_permutations=1999, rng=0)
    binned = goodness_of_fit_test(X, normal, Gaussian(), Signs(100), n_permutations=1999, rng=0)
    assert binned.statistic == pytest.approx(full.statistic, abs=1e-12)
    assert abs(binned.pvalue - full.pvalue) < 0.03


def test_seeds_and_threads(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1200, 1))
    with threadpool_limits(1, user_api="blas"):
        one = goodness_of_fit_test(X, normal, rng=5)
    with threadpool_limits(2, user_api="blas"):
        two = goodness_of_fit_test(X, normal, rng=5)
        other = goodness_of_fit_test(X, normal, rng=6)
    assert one.pvalue == two.pvalue
    assert not np.array_equal(np.asarray(one.null), np.asarray(other.null))


def test_scipy_distributions_bring_their_sampler(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2))
    law = stats.multivariate_normal([0.0, 0.0])
    result = goodness_of_fit_test(X, law, null="parametric", n_permutations=29, rng=0)
    assert "simulated" in result.method
    assert result.pvalue > 1 / 30


def test_results_unpack_and_read(rng: np.random.Generator) -> None:
    result = goodness_of_fit_test(rng.normal(size=(30, 1)), normal, rng=0)
    statistic, pvalue = result
    assert (statistic, pvalue) == (result.statistic, result.pvalue)
    assert "of 5" in " ".join(repr(result).split())
    assert "no evidence" in " ".join(repr(result).split())


# --- dependent rows ------------------------------------------------------------------------------


def test_series_memorys() -> None:
    """(1 + φ)/(1 - φ) for an autoregression; the bar is six standard deviations at φ = 0.9."""
    rng = np.random.default_rng(0)
    for phi in (0.0, 0.5, 0.9):
        time = series_memory(chain(20_000, phi, rng)[:, 0])
        assert time == pytest.approx((1 + phi) / (1 - phi), rel=0.5)
    assert series_memory(np.ones(50)) == 1.0


def test_dependent_rows_are_noticed(rng: np.random.Generator) -> None:
    result = goodness_of_fit_test(chain(400, 0.8, rng), normal, rng=0)
    assert 'null="block"' in " ".join(repr(result).split())
    assert "dependent" not in repr(goodness_of_fit_test(rng.normal(size=(400, 1)), normal, rng=0))


def test_a_chain_that_is_too_short_is_warned_of(rng: np.random.Generator) -> None:
    with pytest.warns(UserWarning, match="independent ones"):
        goodness_of_fit_test(chain(200, 0.98, rng), normal, null="block", rng=0)


# --- the witness ---------------------------------------------------------------------------------


def test_the_witness_points_to_the_density(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 2)) + [1.0, 0.0]
    result = goodness_of_fit_test(X, normal, rng=0)
    field = result.witness(X[:10])
    assert field.shape == (10, 2)
    assert (field[:, 0] < 0).all()
    assert_allclose(result.witness(X[0]), field[0], rtol=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_plots(dimension: int, rng: np.random.Generator) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    result = goodness_of_fit_test(rng.normal(size=(60, dimension)), normal, rng=0)
    panels = result.plot()
    assert len(panels) == (1 if dimension == 3 else 2)
    plt.close(panels[0].figure)


def test_torch_points(rng: np.random.Generator) -> None:
    torch = require("torch")
    X = rng.normal(size=(30, 1))
    result = goodness_of_fit_test(torch.as_tensor(X), normal, rng=0)
    assert result.pvalue == goodness_of_fit_test(X, normal, rng=0).pvalue


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n_permutations": 0}, ValueError, "n_permutations"),
        ({"null": "magic"}, ValueError, "null must be one of"),
        ({"null": Block(5)}, TypeError, r"an object of Signs, .*Simulation; got Block\("),
        ({"null": "sequential"}, ValueError, "null must be one of 'wild'"),
        ({"null": "parametric"}, ValueError, r"pass null=Simulation\(sampler\)"),
        ({"kernel": Laplace()}, TypeError, "mixed second derivative"),
        ({"kernel": [Gaussian(), Laplace()]}, TypeError, "mixed second derivative"),
        ({"kernel": []}, ValueError, "empty list"),
        ({"null": WeightedBlocks(21)}, ValueError, "fewer than two blocks"),
        (
            {"null": Simulation(lambda n, rng: rng.normal(size=(n, 2)))},
            ValueError,
            r"shape \(40, 1\)",
        ),
        ({"rng": "seed"}, TypeError, "rng must be"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type, match: str) -> None:
    X = np.random.default_rng(0).normal(size=(40, 1))
    with pytest.raises(error, match=match):
        goodness_of_fit_test(X, normal, **options)


def test_values_of_a_score_cannot_be_simulated(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 1))
    with pytest.raises(TypeError, match="not its values at X"):
        goodness_of_fit_test(X, -X, null=Simulation(draw))


def test_one_point_is_too_few() -> None:
    with pytest.raises(ValueError, match="at least 2 points"):
        goodness_of_fit_test([[0.0]], normal)


def test_equal_points_are_an_answer() -> None:
    """Forty times the same point: as far from a normal distribution as can be."""
    result = goodness_of_fit_test(np.full((40, 1), 2.0), normal, rng=0)
    assert np.isfinite(result.statistic)
    assert result.pvalue == 0.001


HEAVY = [stats.weibull_min(1.5), stats.lognorm(1.0), stats.gamma(2.0)]


@pytest.mark.parametrize("law", [*HEAVY, stats.norm(), stats.t(3)])
def test_distributions_of_scipy_are_simulated_by_default(law: Any) -> None:
    X = law.rvs((30, 1), random_state=0)
    found = goodness_of_fit_test(X, law, n_permutations=49, rng=0)
    assert "49 simulated samples" in found.method
    asked = goodness_of_fit_test(X, law, null="parametric", n_permutations=49, rng=0)
    assert found.pvalue == asked.pvalue
    # the wild bootstrap may be asked for, and many rows do
    for null in (Signs(10), WeightedBlocks(3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert "wild" in goodness_of_fit_test(X, law, null=null, rng=0).method
    many = stats.norm().rvs((1000, 1), random_state=0)
    assert "wild" in goodness_of_fit_test(many, stats.norm(), rng=0).method


@pytest.mark.parametrize("null", ["wild", "spectral"])
@pytest.mark.parametrize("law", HEAVY)
def test_scores_of_a_few_points_warn(law: Any, null: str) -> None:
    X = law.rvs((200, 1), random_state=1)
    with pytest.warns(UserWarning, match="parametric"):
        found = goodness_of_fit_test(X, law, null=null, n_permutations=49, rng=0)
    assert any("level of this null does not hold" in note for note in found.notes)


@pytest.mark.parametrize("law", [stats.norm(), stats.t(3), stats.logistic(), stats.cauchy()])
def test_scores_that_many_points_share_do_not_warn(law: Any) -> None:
    for n in (30, 100, 500):
        X = law.rvs((n, 1), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            goodness_of_fit_test(X, law, null="wild", n_permutations=49, rng=0)


@pytest.mark.slow
def test_level_with_scores_of_heavy_tails() -> None:
    # 22% of these were rejected; 5% are, and 41 of 300 with probability below 1e-7
    law = stats.gamma(2.0)
    rejected = sum(
        goodness_of_fit_test(
            law.rvs((50, 1), random_state=seed), law, n_permutations=39, rng=seed
        ).rejects()
        for seed in range(300)
    )
    assert rejected <= 41
