"""Power analysis: sizes against a known truth, pilots, records, bad input."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from meanmap import goodness_of_fit_test, two_sample_test
from meanmap.comparison import ordering
from meanmap.comparison.pilot import Bootstrap, Pilot
from meanmap.comparison.power import Curve, power_analysis
from meanmap.kernels import Gaussian


def t_test(X: np.ndarray, Y: np.ndarray) -> tuple[float, float]:
    """Student's t-test, whose power is known."""
    n, m = len(X), len(Y)
    pooled = (X.var() * n + Y.var() * m) / (n + m - 2)
    t = float((X.mean() - Y.mean()) / (pooled * (1 / n + 1 / m)) ** 0.5)
    return t, float(2 * special.stdtr(n + m - 2, -abs(t)))


def correlation_test(X: np.ndarray, Y: np.ndarray) -> Any:
    return stats.pearsonr(X[:, 0], Y[:, 0])


def pilot(n: int, effect: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1)), rng.normal(effect, 1.0, size=(n, 1))


def analyse(*samples: Any, **options: Any) -> Any:
    return power_analysis(t_test, *samples, **{"paired": False, "rng": 0, **options})


# --- answers -------------------------------------------------------------------------------------


def test_a_large_pilot_gives_the_known_size() -> None:
    """Student's t at an effect of 0.5 needs 64 points a sample for a power of 0.8."""
    result = analyse(*pilot(2000, 0.5))
    assert 50 < result.size < 80
    assert result.interval[0] <= 64 <= result.interval[1]
    assert_allclose(result.predict(result.size), 0.8, atol=0.02)


def test_answers_are_near_the_truth_on_average() -> None:
    """The median of 15 pilots of 80 points each, for a truth of 64; one pilot says 30 to 130."""
    sizes = [
        analyse(*pilot(80, 0.5, seed), n_simulations=60).size or math.inf for seed in range(15)
    ]
    assert 35 < np.median(sizes) < 110


def test_the_bootstrap_overstates_power() -> None:
    """Of a truth without any effect it claims one at large sizes; parts of the pilot do not."""
    X, Y = pilot(40, 0.0, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        boot = analyse(X, Y, resampling="bootstrap", sizes=[40, 160, 640])
        part = analyse(X, Y, sizes=[10, 20])
    assert boot.powers[-1] > boot.powers[0] + 0.2
    assert part.powers.max() < 0.2
    assert boot.size is not None
    assert part.size is None or part.size > boot.size


def test_parts_are_unbiased() -> None:
    """Power at a size below the pilot's, averaged over pilots, is the test's own."""
    n, effect = 20, 0.6
    shift = effect * (n / 2) ** 0.5
    bar = stats.t.isf(0.025, 2 * n - 2)
    truth = stats.nct.sf(bar, 2 * n - 2, shift) + stats.nct.cdf(-bar, 2 * n - 2, shift)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some pilots show no effect
        found = [
            analyse(*pilot(40, effect, seed), sizes=[n], n_simulations=20).powers[0]
            for seed in range(150)
        ]
    assert abs(np.mean(found) - truth) < 6 * np.std(found) / 150**0.5


def test_pairs_stay_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = 0.5 * X + rng.normal(size=(300, 1))
    result = power_analysis(correlation_test, X, Y, paired=True, rng=0)
    assert result.size is not None
    assert 15 < result.size < 70  # about 36 for a correlation of 0.45
    apart = power_analysis(correlation_test, X, Y, paired=False, rng=0, sizes=[50, 100])
    assert apart.powers.max() < 0.25


def test_unequal_samples_keep_their_proportion() -> None:
    X, _ = pilot(200, 0.0)
    _, Y = pilot(400, 1.0)
    seen = set()

    def spy(X: np.ndarray, Y: np.ndarray) -> Any:
        seen.add((len(X), len(Y)))
        return t_test(X, Y)

    result = power_analysis(spy, X, Y, paired=False, rng=0, sizes=[10, 20])
    assert seen == {(10, 20), (20, 40)}
    assert "in proportion" in repr(result)


@pytest.mark.slow
def test_a_test_of_one_sample_and_options() -> None:
    X = np.random.default_rng(0).normal(0.8, 1.0, size=(100, 1))
    result = power_analysis(
        goodness_of_fit_test,
        X,
        score=stats.norm(),
        kernel=Gaussian(1.0),
        n_permutations=39,
        n_simulations=40,
        rng=0,
    )
    assert result.size is not None
    assert 8 <= result.size < 60


def test_kinds_of_points() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y = pilot(60, 1.0)

    def of_frames(X: Any, Y: Any) -> Any:
        return t_test(X[["a"]].to_numpy(), Y[["a"]].to_numpy())

    def of_lists(X: list[str], Y: list[str]) -> Any:
        return t_test(*(np.array([[float(v)] for v in part]) for part in (X, Y)))

    frames = [pandas.DataFrame({"a": part[:, 0]}) for part in (X, Y)]
    words = [[repr(float(v)) for v in part[:, 0]] for part in (X, Y)]
    options: dict[str, Any] = {"paired": False, "rng": 0, "n_simulations": 20, "sizes": [10, 20]}
    expected = power_analysis(t_test, X, Y, **options).powers
    assert_allclose(power_analysis(of_frames, *frames, **options).powers, expected)
    assert_allclose(power_analysis(of_lists, *words, **options).powers, expected)


def test_seeds() -> None:
    X, Y = pilot(60, 0.6)
    one, two, other = (analyse(X, Y, rng=seed, sizes=[10, 20, 30]) for seed in (1, 1, 2))
    assert_allclose(one.powers, two.powers)
    assert not np.array_equal(one.powers, other.powers)


def test_smoothing_keeps_the_variance() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) * [1.0, 5.0] + [3.0, 0.0]
    source = Pilot.of(t_test, (X,), None, Bootstrap(1.0))
    (drawn,) = source.draw(20_000, rng)
    assert len(np.unique(drawn, axis=0)) == 20_000
    assert_allclose(drawn.mean(axis=0), X.mean(axis=0), atol=0.2)
    assert_allclose(drawn.var(axis=0), X.var(axis=0), rtol=0.1)


# --- warnings ------------------------------------------------------------------------------------


def test_a_pilot_without_an_effect_is_warned_of() -> None:
    X, Y = pilot(100, 0.0, seed=1)
    Y = Y - Y.mean() + X.mean()
    with pytest.warns(UserWarning, match="no effect"):
        result = analyse(X, Y)
    assert result.size is None or result.size > 10_000


def test_a_guess_far_beyond_the_pilot_is_warned_of() -> None:
    curve = Curve.fit(np.array([10, 20]), np.array([0.07, 0.08]), np.full(2, 1e5), 0.8, 0.05)
    assert curve.best > 400
    assert curve.interval[0] < curve.best < curve.interval[1]

    def weak(X: np.ndarray, Y: np.ndarray) -> tuple[float, float]:
        return 0.0, float(np.random.default_rng(int(1e6 * abs(X[0, 0]))).uniform(0, 0.6))

    with pytest.warns(UserWarning, match="far beyond|no effect"):
        power_analysis(weak, *pilot(40, 0.0), paired=False, rng=0, n_simulations=400)


def test_a_bootstrap_beyond_the_pilot_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="chance differences"):
        analyse(*pilot(60, 0.5), resampling="bootstrap", sizes=[30, 60, 120])


# --- the record ----------------------------------------------------------------------------------


def test_the_record_reads_and_plots() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    result = analyse(*pilot(80, 0.8))
    assert repr(result).startswith(f"Power analysis: {result.size:,} points a sample for power 0.8")
    assert (result.power_intervals[:, 0] <= result.powers).all()
    assert (result.powers <= result.power_intervals[:, 1]).all()
    assert result.predict([10, 20]).shape == (2,)
    ax = result.plot()
    assert ax.get_ylabel() == "power"
    plt.close(ax.figure)


def test_the_curve_rises_from_the_level() -> None:
    truth = Curve(100.0, 0.7, (0.0, 0.0), 0.8, 0.05)
    sizes = np.array([10, 20, 40, 80])
    found = Curve.fit(sizes, truth(sizes), np.full(4, 1e4), 0.8, 0.05)
    assert found.best == pytest.approx(100, rel=0.05)
    assert truth(1e-9) == pytest.approx(0.05, abs=1e-3)
    assert truth(100) == pytest.approx(0.8)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"power": 1.0}, ValueError, "power must lie strictly"),
        ({"level": 0.0}, ValueError, "level must lie strictly"),
        ({"power": 0.04}, ValueError, "must be above level"),
        ({"sizes": []}, ValueError, "sizes"),
        ({"sizes": [1]}, ValueError, "sizes"),
        ({"sizes": [500]}, ValueError, "more than the 50 points of the pilot"),
        ({"n_simulations": 0}, ValueError, "n_simulations"),
        ({"resampling": "jackknife"}, ValueError, "resampling"),
        ({"resampling": Bootstrap}, ValueError, "resampling must be one of"),
        ({"paired": None}, ValueError, "paired=True"),
        ({"paired": [(0,)]}, ValueError, "does not fit 2 samples"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        analyse(*pilot(50, 0.5), **options)


def test_bad_smoothing() -> None:
    with pytest.raises(ValueError, match="smoothing"):
        Bootstrap(smoothing=-1.0)


def test_bad_pilots() -> None:
    X, Y = pilot(50, 0.5)
    with pytest.raises(ValueError, match="at least 16 points"):
        analyse(X[:10], Y)
    with pytest.raises(ValueError, match="belong together"):
        analyse(X[:40], Y, paired=True)
    with pytest.raises(ValueError, match="the pilot after the test"):
        analyse()
    with pytest.raises(TypeError, match="expected a function"):
        power_analysis(X, Y)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Options of the test"):
        analyse(X, 3.0)
    with pytest.raises(TypeError, match="pvalue"):
        power_analysis(lambda X, Y: 0.5, X, Y, paired=False, rng=0)


def test_partial_tests_are_known() -> None:
    X = np.random.default_rng(0).normal(1.0, 1.0, size=(60, 1))
    test = partial(goodness_of_fit_test, score=stats.norm(), n_permutations=19)
    result = power_analysis(test, X, rng=0, n_simulations=20, sizes=[8, 16])
    assert result.powers[-1] > 0.5


def test_the_order_of_drawn_rows_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of thousands of random samples looks ordered by chance."""
    monkeypatch.setattr(ordering, "looks_ordered", lambda points: True)
    X, Y = pilot(60, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        power_analysis(two_sample_test, X, Y, sizes=[10, 20], n_simulations=20, rng=0)
