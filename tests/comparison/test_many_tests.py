"""Many tests at once: all pairs of columns, several samples, groups; and paired samples."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from meanmap import hsic, independence_test, mmd, two_sample_test
from meanmap.comparison import (
    PairedRows,
    dependence_matrix,
    k_sample_test,
    pairwise,
)
from meanmap.comparison.corrections import false_discovery_rate, holm
from meanmap.comparison.effects import difference_effect
from meanmap.comparison.many_samples import GroupShare
from meanmap.kernels import Delta, Energy, Gaussian
from meanmap.spaces import RandomFourier
from optional_packages import require

G = Gaussian(1.0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def table(rng):
    frame = pd.DataFrame(rng.normal(size=(100, 3)), columns=list("abc"))
    frame["d"] = frame["a"] ** 2
    frame["sign"] = np.where(frame["b"] > 0, "positive", "negative")
    return frame


# --- corrections ----------------------------------------------------------------------------------


def test_corrections():
    p = [0.01, 0.04, 0.03, 0.5]
    assert holm(p) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert false_discovery_rate(p) == pytest.approx(stats.false_discovery_control(p))


# --- all pairs of columns -------------------------------------------------------------------------


def test_a_pair_is_what_two_variables_are(table):
    found = dependence_matrix(table, n_permutations=99, rng=0)
    columns = {a: table[[a]].to_numpy() for a in "abcd"}
    columns["sign"] = table["sign"].to_numpy(dtype=str)
    for a, b in combinations(table.columns, 2):
        first, second = columns[a], columns[b]
        i, j = found.names.index(a), found.names.index(b)
        one = independence_test(first, second, "median", n_permutations=99, rng=0)
        value = hsic(first, second, *one.kernel, estimator="V")
        assert found.statistics[i, j] == pytest.approx(value, rel=1e-3)
        assert found.effects[i, j] == pytest.approx(one.effect.value, abs=2e-3)
        assert (found.pvalues[i, j] <= 0.01) == (one.pvalue <= 0.01)


def test_what_a_matrix_says(table):
    found = dependence_matrix(table, n_permutations=999, rng=0)
    assert set(found.pairs()) == {("a", "d"), ("b", "sign")}
    assert np.array_equal(found.pvalues, found.pvalues.T, equal_nan=True)
    frame = found.to_frame()
    assert len(frame) == 10 and set(frame["first"][:2]) == {"a", "b"}
    assert found.to_frame("effects").loc["a", "d"] == found.effects[0, 3]
    order = [found.names[i] for i in found.order()]
    assert abs(order.index("a") - order.index("d")) == 1
    assert "2 of 10 pairs" in repr(found) and "a and d" in repr(found)
    assert found.plot().get_xticklabels()[0].get_text() == order[0]


def test_kernels_and_corrections_by_choice(table):
    kernels = {"a": Energy((0.0,)), "sign": Delta()}
    plain = dependence_matrix(table, kernels, None, 99, rng=0)
    assert np.array_equal(plain.adjusted, plain.pvalues, equal_nan=True)
    rates = dependence_matrix(table, kernels, "fdr", 99, rng=0)
    assert np.nanmax(rates.adjusted - holm_of(plain)) <= 0
    with pytest.raises(ValueError, match="correction"):
        dependence_matrix(table, correction="bonferroni")
    with pytest.raises(ValueError, match="two or more columns"):
        dependence_matrix(table[["a"]])


def holm_of(found):
    first, second = np.triu_indices(len(found.names), 1)
    adjusted = np.full(found.pvalues.shape, np.nan)
    values = holm(found.pvalues[first, second])
    adjusted[first, second] = adjusted[second, first] = values
    return adjusted


def test_the_level_of_all_pairs(rng):
    """190 p-values of independent columns; fails by chance with probability below 1e-6."""
    found = dependence_matrix(rng.normal(size=(60, 20)), n_permutations=199, rng=1)
    p = found.pvalues[np.triu_indices(20, 1)]
    assert np.sum(p <= 0.05) <= stats.binom.ppf(1 - 1e-6, 190, 0.05)
    assert stats.kstest(p, "uniform").pvalue > 1e-6


def test_a_constant_column_depends_on_nothing(table):
    found = dependence_matrix(table.assign(e=1.0), n_permutations=99, rng=0)
    assert found.names[-1] == "e"
    assert np.nanmin(found.pvalues[-1]) == 1 and found.effects[-1, :-1].max() == 0


# --- several samples ------------------------------------------------------------------------------


def test_several_samples(rng):
    samples = {"a": rng.normal(size=(30, 2)), "b": rng.normal(size=(40, 2))}
    samples["c"] = rng.normal(1.5, 1.0, size=(35, 2))
    result = k_sample_test(samples, n_permutations=199, rng=0)
    assert result.pvalue == 1 / 200
    assert result.sizes == {"n(a)": 30, "n(b)": 40, "n(c)": 35}
    pairs = result.pairs(rng=0)
    assert list(pairs["adjusted"]) == holm(pairs["pvalue"])
    assert [set(p) for p in zip(pairs["first"], pairs["second"], strict=True)][2] == {"a", "b"}
    pooled = np.concatenate(list(samples.values()))
    groups = np.repeat(list("abc"), [30, 40, 35])
    frame = pd.DataFrame(pooled, columns=["x", "y"])
    effects = [k_sample_test(data, groups, rng=0).effect.value for data in (frame, pooled)]
    assert effects == pytest.approx([result.effect.value] * 2)
    frames = [pd.DataFrame(s, columns=["x", "y"]) for s in samples.values()]
    assert k_sample_test(frames, rng=0).effect.value == pytest.approx(result.effect.value)
    assert "variance between samples" in result.sentence()


def test_the_statistic_is_a_sum_over_pairs(rng):
    """HSIC with a delta kernel of the sample's number, by its weights n_a n_b/N²."""
    parts = [rng.normal(k, 1.0, size=(10 + 5 * k, 1)) for k in range(3)]
    N = sum(map(len, parts))
    pooled, groups = np.concatenate(parts), np.repeat(list("abc"), list(map(len, parts)))
    between = sum(len(a) * len(b) / N**2 * mmd(a, b, G, "V") for a, b in combinations(parts, 2))
    sizes = {g: np.sum(groups == g) for g in "abc"}
    L = np.array([[float(g == h) / (sizes[g] / N) for h in groups] for g in groups])
    K, H = G(pooled), np.eye(N) - 1 / N
    assert np.sum((H @ K @ H) * L) / N**2 == pytest.approx(between)


def test_the_share_between_samples(rng):
    X, g = rng.normal(size=(30, 1)), np.repeat(list("abc"), 10)
    X[:10] += 1

    def value(X, g):
        def variance(K):
            n = len(K)
            return np.trace(K) / n - (K.sum() - np.trace(K)) / (n * (n - 1))

        inside = sum(np.mean(g == h) * variance(G(X[g == h])) for h in "abc")
        return 1 - inside / variance(G(X))

    left = [value(np.delete(X, i, axis=0), np.delete(g, i)) for i in range(30)]
    error = sum(9 * np.var(left[k : k + 10]) for k in (0, 10, 20)) ** 0.5
    found = GroupShare(G, X, g).effect()
    assert found.value == pytest.approx(value(X, g))
    assert found.interval[1] > found.value + error


def test_the_level_of_several_samples(rng):
    runs = 150
    p = [
        k_sample_test([rng.normal(size=(12, 1)) for _ in range(3)], n_permutations=19, rng=rng)
        for _ in range(runs)
    ]
    rejected = sum(result.pvalue <= 0.05 for result in p)
    assert rejected <= stats.binom.ppf(1 - 1e-6, runs, 0.05)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([np.zeros((5, 1))],), "two or more samples"),
        ((np.zeros((5, 1)), ["a"] * 5), "two or more groups"),
        ((np.zeros((5, 1)), ["a", "b"]), "groups"),
        (([np.zeros((5, 1)), np.zeros((1, 1))],), "at least 2"),
        (([np.zeros((5, 1))] * 3, None, None, "block"), "null"),
    ],
)
def test_samples_that_do_not_fit(arguments, match):
    with pytest.raises(ValueError, match=match):
        k_sample_test(*arguments)


# --- groups ---------------------------------------------------------------------------------------


@pytest.fixture
def cells(rng):
    groups = rng.choice(["none", "a", "b", "c"], 700)
    return rng.normal(size=(700, 3)) + 0.8 * (groups == "b")[:, None], groups


def test_distances_are_those_of_two_samples(cells):
    points, groups = cells
    found = pairwise(points, groups, kernel="energy")
    exact = pairwise(points, groups, kernel=G)
    for a, b in combinations(found.names, 2):
        A, B = points[groups == a], points[groups == b]

        def mean(x, y):
            return np.linalg.norm(x[:, None] - y[None], axis=2).mean()

        expected = 2 * mean(A, B) - mean(A, A) - mean(B, B)
        assert found.to_frame().loc[a, b] == pytest.approx(expected, abs=1e-10)
        assert exact.to_frame().loc[b, a] == pytest.approx(mmd(A, B, G, "V"), abs=1e-10)


def test_distances_in_coordinates(cells):
    exact = pairwise(*cells, kernel=G).distances
    near = pairwise(*cells, kernel=G, basis=RandomFourier(4096, random_state=0)).distances
    assert np.abs(near - exact).max() < 0.02


def test_groups_against_a_control(cells):
    found = pairwise(*cells, control="none", n_permutations=199, rng=0)
    table = found.against_control()
    assert table.index[0] == "b" and table["pvalue"].iloc[0] == 1 / 200
    assert list(table["adjusted"]) == pytest.approx(holm(table["pvalue"]))
    assert "differ from none" in " ".join(repr(found).split())
    assert "b *" in [label.get_text() for label in found.plot().get_xticklabels()]
    with pytest.raises(TypeError, match="control"):
        pairwise(*cells).against_control()


def test_groups_that_do_not_fit(cells):
    points, groups = cells
    with pytest.raises(ValueError, match="control"):
        pairwise(points, groups, control="other")
    with pytest.raises(ValueError, match="groups"):
        pairwise(points, groups[:10])
    with pytest.raises(ValueError, match="energy"):
        pairwise(points, groups, kernel="median")


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_the_statistic_of_pairs(estimator, rng):
    X = rng.normal(size=(12, 2))
    Y = X + rng.normal(0.5, 1.0, size=(12, 2))
    found = two_sample_test(X, Y, G, "paired", 99, rng=0, estimator=estimator)
    h = G(X) + G(Y) - G(X, Y) - G(X, Y).T
    n = len(X)
    off = h.sum() - np.trace(h)
    expected = h.sum() / n**2 if estimator == "V" else off / (n * (n - 1))
    assert found.statistic == pytest.approx(expected)


def test_bins_of_pairs_are_pairs(rng):
    X = rng.normal(size=(50, 1))
    results = [
        two_sample_test(X, X + 0.5, G, PairedRows(bins), 99, rng=0).statistic
        for bins in (None, 7, 16)
    ]
    assert results == pytest.approx(results[:1] * 3)


def test_all_signs_of_few_pairs(rng):
    X = rng.normal(size=(5, 1))
    found = two_sample_test(X, X + 5 + rng.normal(size=(5, 1)), G, "paired", rng=0)
    assert len(found.null) == 15 and found.pvalue == pytest.approx(1 / 16)


def paired_levels(shift, rng, runs):
    rejected = 0
    for _ in range(runs):
        middle = 3 * rng.normal(size=(20, 1))
        X, Y = (middle + rng.normal(size=(20, 1)) for _ in range(2))
        result = two_sample_test(X, Y + shift, "median", "paired", 39, rng=rng)
        rejected += result.pvalue <= 0.05
    return rejected


def test_the_level_and_power_of_pairs(rng):
    assert paired_levels(0.0, rng, 200) <= stats.binom.ppf(1 - 1e-6, 200, 0.05)
    assert paired_levels(2.0, rng, 50) >= 25


def test_the_effect_of_pairs(rng):
    X = rng.normal(size=(15, 1))
    Y = X + 1 + 0.3 * rng.normal(size=(15, 1))

    def value(X, Y):
        n = len(X)

        def mean(K):
            return (K.sum() - np.trace(K)) / (n * (n - 1))

        cross = mean(G(X, Y))
        return (mean(G(X)) + mean(G(Y)) - 2 * cross) / (2 - 2 * cross)

    found = difference_effect(G, X, Y, paired=True)
    assert found.value == pytest.approx(value(X, Y))
    result = two_sample_test(X, Y, G, "paired", 19, rng=0)
    assert result.effect.value == pytest.approx(found.value)


def test_pairs_of_two_lengths(rng):
    with pytest.raises(ValueError, match="as many of both"):
        two_sample_test(rng.normal(size=(5, 1)), rng.normal(size=(6, 1)), null="paired")


# --- samples and groups of other kinds ------------------------------------------------------------


def test_names_of_samples_that_read_alike_are_refused(rng):
    parts = rng.normal(size=(3, 10, 2))
    with pytest.raises(ValueError, match="one name"):
        k_sample_test({1: parts[0], "1": parts[1], "b": parts[2]}, rng=0)


def test_arrays_beside_a_frame_have_its_columns(rng):
    parts = rng.normal(size=(3, 10, 2))
    frame = pd.DataFrame(parts[0], columns=["a", "b"])
    turned = pd.DataFrame(parts[1], columns=["a", "b"])[["b", "a"]]
    found = k_sample_test([frame, turned, parts[2]], rng=0, n_permutations=19)
    expected = k_sample_test(
        [frame, turned[["a", "b"]].to_numpy(), parts[2]], rng=0, n_permutations=19
    )
    assert tuple(found) == tuple(expected)
    assert tuple(found) == tuple(k_sample_test(list(parts), rng=0, n_permutations=19))


def test_tensors_are_compared_like_arrays(rng):
    torch = require("torch")
    points, groups = rng.normal(size=(30, 2)), np.arange(30) % 3
    expected = pairwise(points, groups, control=1, n_permutations=19, rng=0)
    for kind in (torch.float32, torch.float64):
        rows = torch.tensor(points, dtype=kind)
        found = pairwise(rows, torch.tensor(groups), control=1, n_permutations=19, rng=0)
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-6)
        np.testing.assert_array_equal(found.pvalues, expected.pvalues)
        several = k_sample_test([rows[:10], points[10:20], rows[20:]], rng=0, n_permutations=19)
        whole = k_sample_test(list(points.reshape(3, 10, 2)), rng=0, n_permutations=19)
        np.testing.assert_allclose(tuple(several), tuple(whole), atol=1e-5)
