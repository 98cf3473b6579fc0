"""Effect sizes, their intervals, and what results say of themselves."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from meanmap import (
    conditional_independence_test,
    conditional_two_sample_test,
    goodness_of_fit_test,
    independence_test,
    joint_independence_test,
    two_sample_test,
)
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.comparison.column_effects import (
    column_differences,
    counted_differences,
    summed_distances,
)
from meanmap.comparison.effects import (
    EffectSize,
    dependence_effect,
    difference_effect,
    joint_effect,
    residual_effect,
    show_share,
    stein_effect,
)
from meanmap.kernels import Delta, Energy, Gaussian
from meanmap.statistics import hsic, mmd, stein_discrepancy
from meanmap.statistics.stein import SteinSample

G = Gaussian(1.0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def wide_interval(value, error):
    """The interval of an estimate, found by search over all effects."""
    at = np.linspace(0, 1, 200_001)
    inside = np.abs(value - at) <= 1.959964 * error * np.sqrt(
        (at + error) / (max(value, 0) + error)
    )
    return at[inside][0], at[inside][-1]


def by_leaving_out(value, samples, paired):
    """The standard error of the jackknife, one computation per row."""
    groups = [range(len(samples))] if paired else [[k] for k in range(len(samples))]
    variance = 0.0
    for group in groups:
        n = len(samples[group[0]])
        left = [
            value(*(np.delete(s, i, axis=0) if k in group else s for k, s in enumerate(samples)))
            for i in range(n)
        ]
        variance += (n - 1) * np.var(left)
    return variance**0.5


def check(effect, value, samples, paired=True):
    error = by_leaving_out(value, samples, paired)
    assert effect.value == pytest.approx(min(max(value(*samples), 0), 1), abs=1e-9)
    assert effect.interval == pytest.approx(wide_interval(value(*samples), error), abs=2e-5)


def test_two_samples_as_the_formula_says(rng):
    X, Y = rng.normal(size=(15, 2)), rng.normal(1.0, 1.0, size=(12, 2))

    def value(X, Y):
        return mmd(X, Y, G) / (2 - 2 * G(X, Y).mean())

    check(difference_effect(G, X, Y), value, (X, Y), paired=False)


def test_the_energy_coefficient(rng):
    x, y = rng.normal(size=20), rng.normal(0.7, 1.0, size=25)
    distances = [np.abs(a[:, None] - b) for a, b in ((x, y), (x, x), (y, y))]
    assert np.allclose(summed_distances(x, y), distances[0].sum(axis=1))

    def value(x, y):
        between = np.abs(x[:, None] - y).mean()
        within = [np.abs(a[:, None] - a).sum() / (len(a) * (len(a) - 1)) for a in (x, y)]
        return 1 - sum(within) / (2 * between)

    found = column_differences(x[:, None], y[:, None], ("speed",))["speed"]
    check(found, value, (x, y), paired=False)
    whole = difference_effect(Energy((0.0,)), x[:, None], y[:, None])
    assert whole.value == pytest.approx(found.value)


def test_labels_are_counted(rng):
    a, b = rng.choice(list("abc"), 30), rng.choice(list("bcd"), 20)
    assert np.allclose(counted_differences(a, b), (a[:, None] != b).sum(axis=1))
    whole = difference_effect(Delta(), a, b)
    assert column_differences(a, b, None)[0].interval == pytest.approx(whole.interval)


def test_dependence_as_the_formula_says(rng):
    X = rng.normal(size=(15, 1))
    Y = X + 0.5 * rng.normal(size=(15, 1))

    def value(X, Y):
        return hsic(X, Y, G, G) / (hsic(X, X, G, G) * hsic(Y, Y, G, G)) ** 0.5

    check(dependence_effect(G, G, X, Y), value, (X, Y))


def test_residuals_in_coordinates(rng):
    A = rng.normal(size=(20, 3))
    B = A[:, :2] + rng.normal(size=(20, 2))

    def value(A, B):
        def pairs(P, Q):
            products = (P @ P.T) * (Q @ Q.T)
            return products.sum() - np.trace(products)

        return pairs(A, B) / (pairs(A, A) * pairs(B, B)) ** 0.5

    check(residual_effect(A, B), value, (A, B))


def test_several_variables(rng):
    X, Y, Z = rng.normal(size=(3, 12, 1))
    samples = (X, Y + X, Z + X)

    def value(*samples):
        grams = [G(s) for s in samples]
        means = [K.mean(axis=1) for K in grams]
        cross = np.prod(means, axis=0).mean()
        apart = np.prod([K.mean() for K in grams])
        return (np.prod(grams, axis=0).mean() - 2 * cross + apart) / (2 - 2 * cross)

    n = len(X)
    left = [value(*(np.delete(s, i, axis=0) for s in samples)) for i in range(n)]
    corrected = n * value(*samples) - (n - 1) * np.mean(left)
    error = by_leaving_out(value, samples, True)
    found = joint_effect([G] * 3, list(samples))
    assert found.value == pytest.approx(corrected)
    assert found.interval == pytest.approx(wide_interval(corrected, error), abs=2e-5)


def test_the_stein_discrepancy(rng):
    X = rng.normal(1.0, 1.0, size=(15, 2))
    sample = SteinSample.gate(X, lambda x: -x, G, scaled=False)

    def value(X):
        whole = stein_discrepancy(X, lambda x: -x, G, estimator="V") * len(X)
        off = stein_discrepancy(X, lambda x: -x, G, estimator="U")
        return off / (whole - off * (len(X) - 1))

    check(stein_effect(G, sample), value, (X,))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.2, 0.5, 1.0, 2.0])
def test_coverage_between_two_normal_laws(shift):
    """Nominal 95%; fails by chance with probability below 1e-6 if coverage is 93%."""
    rng = np.random.default_rng(int(10 * shift))
    cross, own = math.exp(-(shift**2) / 6) / 3**0.5, 3**-0.5
    truth = max((own - cross) / (1 - cross), 0.0)
    runs, hits = 300, 0
    for _ in range(runs):
        e = difference_effect(G, rng.normal(size=(100, 1)), rng.normal(shift, 1.0, size=(100, 1)))
        hits += e.interval[0] <= truth <= e.interval[1]
    assert hits >= stats.binom.ppf(1e-6, runs, 0.93)


def results(rng):
    """One result of every kind."""
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["age", "height"])
    Y = X + rng.normal(size=(60, 2)) + 1
    Z = rng.normal(size=(60, 1))
    yield two_sample_test(X, Y, n_permutations=99, rng=0), "normalised MMD"
    yield independence_test(X, Y, n_permutations=99, rng=0), "kernel distance correlation"
    yield conditional_independence_test(X, Y, Z, rng=0), "partial kernel correlation"
    yield conditional_two_sample_test(Z, X, Z, Y, rng=0), "partial kernel correlation"
    yield joint_independence_test(X, Y, Z, n_permutations=99, rng=0), "normalised dHSIC"
    normal = stats.multivariate_normal([0, 0])
    found = goodness_of_fit_test(Y, normal, n_permutations=99, rng=0)
    yield found, "normalised Stein discrepancy"
    yield RunningTwoSampleTest().partial_fit(X, Y).result(), "normalised MMD"
    yield RunningIndependenceTest().partial_fit(X, Y).result(), "kernel distance correlation"


def test_every_result_says_how_large_its_effect_is(rng):
    for result, name in results(rng):
        effect = result.effect
        assert effect.name == name and 0 <= effect.value <= 1
        assert result.effect is effect
        if not math.isnan(effect.interval[0]):
            assert 0 <= effect.interval[0] <= effect.value <= effect.interval[1] <= 1
        assert json.loads(json.dumps(result.to_dict()))["effect"]["name"] == name
        assert result.to_frame().shape[0] == 1 and result.to_frame()["effect"][0] == name
        assert result.sentence().endswith(f"{effect}.") and "p " in result.sentence()
        assert name in result._repr_html_()
        assert max(map(len, repr(result).split("\n"))) <= 79 or "Kernel" in repr(result)


def test_columns_carry_their_names(rng):
    X = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc"))
    found = two_sample_test(X, X.assign(b=X["b"] + 1), n_permutations=99, rng=0).columns()
    assert next(iter(found)) == "b" and set(found) == set("abc")
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert list(found.to_frame().columns) == ["effect", "low", "high", "share"]
    Y = pd.DataFrame({"d": X["c"] ** 2, "e": rng.normal(size=80)})
    both = independence_test(X, Y, n_permutations=99, rng=0).columns()
    assert list(both)[:2] == ["X: c", "Y: d"] or list(both)[:2] == ["Y: d", "X: c"]
    assert found.plot() is not None
    axes = two_sample_test(X[["a", "b"]], X[["b", "a"]] + 1, n_permutations=19, rng=0).plot()
    assert [axes[1].get_xlabel(), axes[1].get_ylabel()] == ["a", "b"]


def test_points_without_columns_say_so():
    bags = [np.arange(6.0).reshape(3, 2) + k for k in range(8)]
    result = two_sample_test(bags[:4], bags[4:], n_permutations=9, rng=0)
    with pytest.raises(TypeError, match="columns"):
        result.columns()


def test_more_rows_than_are_used(rng):
    X, Y = rng.normal(size=(6000, 1)), rng.normal(0.5, 1.0, size=(6000, 1))
    assert difference_effect(G, X, Y).rows == 10_000


def test_shares_are_shown_without_their_zero():
    assert [show_share(v) for v in (0.0, 0.123, 1.0, 0.0123)] == [".00", ".12", "1.00", ".012"]
    assert str(EffectSize("effect", 0.5, (math.nan, math.nan))) == "effect = .50"
