"""Default answers do not depend on the units of the columns.

Every column is multiplied by a factor of its own. The factors are powers of two, so that products
are exact and answers must agree to rounding alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from meanmap import (
    AdditiveFilter,
    ConditionalEmbedding,
    HSICClustering,
    InvariantComponents,
    KernelBayesFilter,
    KernelGraphicalModel,
    KernelMeanMatching,
    LocationScaleShift,
    SpectralFilter,
    SupportMeasureRegressor,
    TargetShift,
    conditional_independence_test,
    conditional_two_sample_test,
    embed,
    goodness_of_fit_test,
    hsic,
    independence_test,
    joint_independence_test,
    kernels,
    mmd,
    two_sample_test,
)
from meanmap.comparison import Simulation
from meanmap.kernels import Columns, Delta, Energy, Gaussian
from meanmap.kernels.bandwidths import column_scales
from oracles.linalg import Array

UNITS = np.array([2.0**-10, 1.0, 2.0**13])


def sample(n: int, seed: int = 0) -> Array:
    """Rows of three columns with a shape each: normal, skewed, and few values."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [rng.normal(size=n), rng.exponential(size=n), rng.integers(0, 4, size=n).astype(float)]
    )


def path(n: int) -> tuple[Array, Array]:
    """States of three columns that turn slowly, and noisy observations of them."""
    rng = np.random.default_rng(3)
    t = 0.2 * np.arange(n)
    states = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t)])
    return states, states + 0.2 * rng.normal(size=states.shape)


Answer = Callable[[Array], Any]


def _two_samples(units: Array) -> Any:
    X, Y = sample(60) * units, (sample(50, 1) + 0.3) * units
    found = two_sample_test(X, Y, n_permutations=99, rng=0)
    return found.statistic, found.pvalue, mmd(X, Y)


def _dependence(units: Array) -> Any:
    X, Y = sample(60), sample(60, 1) + 0.5 * sample(60)
    found = independence_test(X * units, Y * units[::-1], n_permutations=99, rng=0)
    return found.statistic, found.pvalue, hsic(X * units, Y * units[::-1])


def _several(units: Array) -> Any:
    parts = [sample(60, seed) * units for seed in range(3)]
    found = joint_independence_test(*parts, n_permutations=99, rng=0)
    return found.statistic, found.pvalue


def _conditional_independence(units: Array) -> Any:
    Z = sample(80)
    X, Y = Z + sample(80, 1), Z + sample(80, 2)
    found = conditional_independence_test(X * units, Y * units, Z * units[::-1], rng=0)
    return found.statistic, found.pvalue


def _conditional_two_samples(units: Array) -> Any:
    X, Y = sample(60), sample(60, 1)
    found = conditional_two_sample_test(
        X * units, X[:, :1] + Y[:, :1], Y * units, Y[:, :1] + X[:, :1], n_permutations=49, rng=0
    )
    return found.statistic, found.pvalue


def _goodness(units: Array) -> Any:
    X = sample(60) - [0.0, 1.0, 1.5]

    def draw(n: int, rng: np.random.Generator) -> Array:
        return rng.normal(size=(n, 3)) * units

    options = {"n_permutations": 49, "rng": 0}
    found = goodness_of_fit_test(X * units, lambda x: -x / units**2, **options)
    drawn = goodness_of_fit_test(
        X * units, lambda x: -x / units**2, null=Simulation(draw), **options
    )
    return found.pvalue, drawn.pvalue, found.statistic, drawn.statistic


def _distance(units: Array) -> Any:
    e = embed(sample(60) * units)
    return e.distance(embed(sample(40, 1) * units, kernel=e.kernel)), e.mean() / units


def _conditional(units: Array) -> Any:
    X = sample(80)
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]])
    scale = np.array([2.0**-4, 2.0**9])
    model = ConditionalEmbedding().fit(X * units, Y * scale)
    at = model.given(sample(5, 1) * units)
    return model.predict(sample(5, 1) * units) / scale, at.std() / scale, model.regularization_


def _posterior(units: Array) -> Any:
    X = sample(100)
    Y = X[:, :2] + 0.5 * sample(100, 1)[:, :2]
    model = ConditionalEmbedding().fit(X * units, Y)
    posterior = model.posterior((0.5 * X[:50] + 0.3) * units)
    return posterior.given(Y[:3]).mean() / units


def _frame(units: Array) -> Any:
    table = pd.DataFrame(sample(80) * units, columns=list("abc"))
    table["label"] = np.where(sample(80)[:, 1] > 1, "high", "low")
    target = sample(80)[:, 0] + sample(80)[:, 1]
    return ConditionalEmbedding().fit(table, target).predict(table.iloc[:5])


def _bayes_filter(units: Array) -> Any:
    states, seen = path(80)
    model = KernelBayesFilter().fit(states * units, seen * units[::-1])
    return model.filter(seen[:20] * units[::-1]).mean / units


def _additive_filter(units: Array) -> Any:
    states, seen = path(80)
    model = AdditiveFilter().fit(states * units, seen * units[::-1])
    return model.filter(seen[:20] * units[::-1]).mean / units


def _spectral_filter(units: Array) -> Any:
    model = SpectralFilter().fit(path(120)[1] * units)
    return model.predict(path(20)[1] * units, 1).mean / units


def _graph(units: Array) -> Any:
    X = sample(100)
    data = {"a": X * units, "b": X[:, 0] + 0.3 * sample(100, 1)[:, 0]}
    model = KernelGraphicalModel(nx.Graph([("a", "b")])).fit(data)
    return model.marginal("b", {"a": X[0] * units}).mean()


def _matching(units: Array) -> Any:
    found = KernelMeanMatching(random_state=0).fit(
        sample(80) * units, X_test=(sample(60, 1) + 0.4) * units
    )
    return found.weights_


def _target_shift(units: Array) -> Any:
    y = np.arange(90) % 3
    X = sample(90) + y[:, None]
    found = TargetShift(random_state=0).fit(X * units, y, X_test=X[:40] * units)
    return found.weights_


def _location_scale(units: Array) -> Any:
    y = np.arange(90) % 2
    X = sample(90) + 2 * y[:, None]
    found = LocationScaleShift(random_state=0).fit(X * units, y, X_test=(X[:60] + 0.5) * units)
    return found.transform(X[:5] * units, y[:5]) / units


def _invariant_components(units: Array) -> Any:
    X = sample(90)
    found = InvariantComponents(2, random_state=0).fit(
        X * units, X[:, 0] + X[:, 1], domains=np.arange(90) % 3
    )
    return abs(found.transform(X[:5] * units))


def _clusters(units: Array) -> Any:
    X = sample(60) + 4 * (np.arange(60) % 2)[:, None]
    return HSICClustering(2, random_state=0).fit_predict(X * units)


def _bags(units: Array) -> Any:
    bags = [sample(20, seed) + seed / 10 for seed in range(20)]
    model = SupportMeasureRegressor().fit([bag * units for bag in bags], np.arange(20.0))
    return model.predict([bag * units for bag in bags[:4]])


ANSWERS: list[Answer] = [
    _two_samples,
    _dependence,
    _several,
    _conditional_independence,
    _conditional_two_samples,
    _goodness,
    _distance,
    _conditional,
    _posterior,
    _frame,
    _bayes_filter,
    _additive_filter,
    _spectral_filter,
    _graph,
    _matching,
    _target_shift,
    _location_scale,
    _invariant_components,
    _clusters,
    _bags,
]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            answer,
            id=answer.__name__.strip("_"),
            marks=[pytest.mark.slow] if answer is _additive_filter else [],
        )
        for answer in ANSWERS
    ],
)
def test_units_of_columns_change_no_default_answer(answer: Answer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, scaled = answer(np.ones(3)), answer(UNITS)
    plain = plain if isinstance(plain, tuple) else (plain,)
    scaled = scaled if isinstance(scaled, tuple) else (scaled,)
    for before, after in zip(plain, scaled, strict=True):
        assert_allclose(after, before, rtol=1e-6, atol=1e-9)


def test_a_kernel_that_is_given_is_taken_as_it_is() -> None:
    X = sample(50) * UNITS
    assert np.ndim(Gaussian().resolve(X).bandwidth) == 0
    assert embed(X, kernel=Gaussian()).kernel == Gaussian().resolve(X)


# --- the scale of a column ------------------------------------------------------------------------


def test_the_scale_is_the_range_of_the_middle_eight_tenths() -> None:
    x = np.arange(100.0)[:, None]
    assert_allclose(column_scales(x), [80.0])
    wild = np.vstack([x, [[1e12]]])  # one wild value changes next to nothing
    assert_allclose(column_scales(wild), [80.0])


def test_the_scale_moves_with_the_unit_and_not_with_the_origin() -> None:
    X = sample(200)
    assert_allclose(column_scales(X * UNITS), column_scales(X) * UNITS)
    assert_allclose(column_scales(X + 100.0), column_scales(X), rtol=1e-12)


def test_the_scale_of_columns_with_ties() -> None:
    rare = np.r_[np.zeros(95), np.full(5, 7.0)][:, None]
    assert_allclose(column_scales(rare), [7.0])
    assert_allclose(column_scales(np.full((10, 1), 3.0)), [3.0])  # constant: its own size
    assert_allclose(column_scales(np.zeros((10, 1))), [1.0])
    noise = 0.3 + 1e-16 * np.arange(10)[:, None]  # rounding is not a spread
    assert_allclose(column_scales(noise), [0.3])


def test_a_weight_of_two_is_the_row_twice() -> None:
    X = sample(40)
    w = np.r_[np.full(20, 2.0), np.ones(20)]
    twice = np.vstack([X[:20], X])
    assert_allclose(column_scales(X, w), column_scales(twice))
    weighted = Gaussian("scaled median").resolve(X, w).bandwidth
    assert_allclose(weighted, Gaussian("scaled median").resolve(twice).bandwidth)


def test_one_column_has_the_median_distance() -> None:
    X = sample(100)[:, :1]
    assert Gaussian("scaled median").resolve(X) == Gaussian().resolve(X)
    assert Gaussian("0.5*scaled median").resolve(X) == Gaussian("0.5*median").resolve(X)


def test_multiples_of_a_bandwidth() -> None:
    X = sample(100)
    wide = Gaussian("scaled median")
    half = wide.rescaled(0.5)
    assert half.bandwidth == "0.5*scaled median"
    assert half.rescaled(2.0) == wide
    assert_allclose(half.resolve(X).bandwidth, 0.5 * np.array(wide.resolve(X).bandwidth))
    assert wide.resolve(X).rescaled(0.5) == half.resolve(X)


def test_the_energy_kernel_takes_a_scale_per_column() -> None:
    X, Y = sample(30), sample(20, 1)
    plain, scaled = Energy(0.5), Energy(0.5 * UNITS, UNITS)
    assert_allclose(scaled(X * UNITS, Y * UNITS), plain(X, Y), rtol=1e-10, atol=1e-12)
    step = 1e-6
    for j in range(3):
        moved = X[:3] + step * np.eye(3)[j]
        slope = (Energy(0.5, UNITS)(moved, Y) - Energy(0.5, UNITS)(X[:3], Y)) / step
        found = Energy(0.5, UNITS).gradients(X[:3], Y)[:, :, j]
        assert_allclose(found, slope, rtol=1e-3, atol=1e-6)


# --- power and accuracy ---------------------------------------------------------------------------


def test_a_shift_beside_a_large_column_is_seen() -> None:
    """A shift of one deviation in a column beside one that is a thousand times as large."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(2, 100, 2)) * [1.0, 1000.0]
        assert two_sample_test(X, Y + [1.0, 0.0], rng=0).pvalue <= 0.01


def test_dependence_beside_large_columns_is_seen() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(2, 200, 2)) * [1.0, 1000.0]
        Y[:, 0] += X[:, 0]
        assert independence_test(X, Y, rng=0).pvalue <= 0.01


def test_a_conditional_beside_a_large_column_is_sharp() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(500, 2)) * [1.0, 1000.0]
    Y = np.sin(X[:, :1]) + 0.2 * rng.normal(size=(500, 1))
    at = ConditionalEmbedding().fit(X, Y).given([1.5, 0.0])
    assert_allclose(at.mean(), [1.0], atol=0.15)
    assert_allclose(at.std(), [0.2], atol=0.1)


# --- tables of numbers and labels -----------------------------------------------------------------


def test_different_labels_are_at_distance_one() -> None:
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": ["u", "v", "u", "v"]})
    kernel = Columns().resolve(table)
    numbers, labels = (kernel.columns[name] for name in "ab")
    # the scale of 0, 1, 2, 3 is 3; rows differ by |i - j|/3 and by one label
    i, j = np.triu_indices(4, k=1)
    squares = ((i - j) / 3) ** 2 + (i - j) % 2
    sigma = np.median(np.sqrt(squares))
    assert_allclose(numbers.bandwidth, 3 * sigma)
    assert_allclose(labels.other, np.exp(-0.5 / sigma**2))
    assert (
        kernels.Columns({"a": Gaussian(2.0), "b": Delta()}).resolve(table).columns["b"] == Delta()
    )


def test_delta_with_a_value_for_different_labels() -> None:
    kernel = Delta(0.25)
    assert_allclose(kernel(["a", "b"], ["a"]), [[1.0], [0.25]])
    psi = kernel.feature_map(np.array(["a", "b"]))(np.array(["a", "b"]))
    assert_allclose(psi @ psi.T, [[1.0, 0.25], [0.25, 1.0]])
    assert repr(Delta()) == "Delta()" and repr(kernel) == "Delta(other=0.25)"
    for wrong in (1.0, -0.1, "median"):
        with pytest.raises(ValueError, match="other|scaled median"):
            Delta(wrong).resolve(np.array(["a", "b"]))(["a"])


@pytest.mark.parametrize("labels", [1, 3, 6])
def test_columns_of_labels_do_not_destroy_a_fit(labels: int) -> None:
    """Two columns of numbers decide; labels with nothing to say are added."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=300)
    table = pd.DataFrame(X, columns=["a", "b"])
    alone = ConditionalEmbedding().fit(table[:150], y[:150]).score(table[150:], y[150:])
    for k in range(labels):
        table[f"label {k}"] = rng.choice(["u", "v", "w"], size=300)
    score = ConditionalEmbedding().fit(table[:150], y[:150]).score(table[150:], y[150:])
    assert alone > 0.85
    assert score > alone - 0.1 - 0.05 * labels


def test_labels_that_decide_are_used() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(list("uvw"), size=400)})
    y = table["a"] + 2.0 * (table["b"] == "u") + 0.3 * rng.normal(size=400)
    model = ConditionalEmbedding().fit(table[:200], y[:200].to_numpy())
    assert model.score(table[200:], y[200:].to_numpy()) > 0.9
