"""The two-sample test: statistics against loops, nulls against enumeration, level, bad input."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.signal
import scipy.special
import scipy.stats
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from meanmap import mmd, two_sample_test
from meanmap.comparison import (
    Block,
    Collection,
    Full,
    Gamma,
    Groups,
    Permutation,
    Sequential,
    Signs,
    Wild,
    WildGroups,
    bins,
    exchanges,
    limits,
)
from meanmap.kernels import (
    Chordal,
    Columns,
    Delta,
    Energy,
    Expected,
    Gaussian,
    GlobalAlignment,
    Hamming,
    Laplace,
    Linear,
    NGrams,
    WeisfeilerLehman,
)
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from meanmap.statistics.tiles import Family
from optional_packages import require
from oracles.kernels import gaussian, laplace
from oracles.statistics import mmd_estimate

# The tails of all seeded level checks together are below this.
FAILURE = 1e-6


def samples(n: int = 25, m: int = 20, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 0.3


def gram(X: np.ndarray, Y: np.ndarray, bandwidth: float = 0.9) -> np.ndarray:
    pooled = np.vstack([X, Y])
    return gaussian(pooled, pooled, bandwidth)


def labels(n: int, m: int) -> np.ndarray:
    return np.repeat([1, 0], [n, m])


# --- the statistic --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("null", ["permutation", "full", "block"])
def test_the_statistic_is_mmd(null: str, estimator: str) -> None:
    X, Y = samples()
    result = two_sample_test(
        X, Y, Gaussian(0.9), null, n_permutations=19, rng=0, estimator=estimator
    )
    expected = mmd_estimate(gram(X, Y), labels(25, 20), estimator)
    assert_allclose(result.statistic, expected, atol=1e-13)
    assert len(result.null) == 19
    assert 0 < result.pvalue <= 1
    assert estimator in result.method


@pytest.mark.parametrize("null", ["gamma", "spectral"])
def test_nulls_of_the_v_estimate(null: str) -> None:
    X, Y = samples()
    result = two_sample_test(X, Y, Gaussian(0.9), null, n_permutations=99, rng=0)
    assert_allclose(result.statistic, mmd(X, Y, Gaussian(0.9), "V"), atol=1e-13)
    assert "V estimate" in result.method


@pytest.mark.parametrize("estimator", ["linear", "block"])
def test_estimates_with_a_normal_limit(estimator: str) -> None:
    X, Y = samples()
    result = two_sample_test(X, Y, Gaussian(0.9), "normal", estimator=estimator)
    assert_allclose(result.statistic, mmd(X, Y, Gaussian(0.9), estimator), atol=1e-13)
    deviation = result.null.variance**0.5
    assert_allclose(result.pvalue, scipy.stats.norm.sf(result.statistic / deviation), rtol=1e-12)


@pytest.mark.parametrize("estimator", ["linear", "block", "incomplete"])
def test_swaps_exchange_the_points_of_a_pair(estimator: str) -> None:
    X, Y = samples(12, 12)
    result = two_sample_test(X, Y, Gaussian(0.9), estimator=estimator, rng=0, n_permutations=20)
    rng = np.random.default_rng(0)
    for found in result.null.values:
        swapped = rng.choice(np.array([-1, 1], dtype=np.int8), size=12)[:, None] < 0
        A, B = np.where(swapped, Y, X), np.where(swapped, X, Y)
        assert_allclose(found, mmd(A, B, Gaussian(0.9), estimator), atol=1e-13)


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("n_bins", [2, 3, 7, 11, 45, 1000])
def test_bins_leave_the_statistic_as_it_is(n_bins: int, estimator: str) -> None:
    X, Y = samples()
    result = two_sample_test(
        X, Y, Gaussian(0.9), Permutation(n_bins), n_permutations=19, rng=0, estimator=estimator
    )
    assert_allclose(result.statistic, mmd(X, Y, Gaussian(0.9), estimator), atol=1e-13)


@pytest.mark.parametrize("basis", [PivotedCholesky(1e-13), Nystroem(45)], ids=str)
@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "gamma", "spectral"])
def test_coordinates_give_the_same_test(null: str, basis: Any) -> None:
    X, Y = samples()
    settings: dict[str, Any] = {"null": null, "n_permutations": 199, "rng": 1}
    exact = two_sample_test(X, Y, Gaussian(0.9), **settings)
    found = two_sample_test(X, Y, Gaussian(0.9), basis=basis, **settings)
    assert_allclose(found.statistic, exact.statistic, atol=1e-8)
    if null != "spectral":  # the spectrum is that of other coordinates
        assert_allclose(found.pvalue, exact.pvalue, atol=1e-6)


def test_random_features_give_nearly_the_same_test() -> None:
    X, Y = samples(200, 150)
    exact = two_sample_test(X, Y, "median", rng=0, n_permutations=199)
    found = two_sample_test(
        X, Y, "median", rng=0, n_permutations=199, basis=RandomFourier(1000, random_state=0)
    )
    assert abs(found.statistic - exact.statistic) < 0.005
    assert abs(found.pvalue - exact.pvalue) < 0.05


# --- exchanges against brute force ----------------------------------------------------------------


def whole(layout: bins.Layout, column: np.ndarray) -> np.ndarray:
    """The label of every point when the bins have these."""
    out = np.full(sum(map(len, layout.layers)), -1)
    for layer in layout.layers:
        out[layer] = column[: len(layer)]
    return out


LAYOUTS = {
    "points": lambda n, m, rng: bins.random_bins(n, m, 1, rng),
    "bins of three": lambda n, m, rng: bins.random_bins(n, m, 3, rng),
    "blocks of four": lambda n, m, rng: bins.consecutive_bins(n, m, 4),
    "clusters": lambda n, m, rng: bins.clusters(np.arange(n) // 3, 100 + np.arange(m) % 4),
}


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("sizes", [(12, 12), (13, 9), (8, 14)], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_exchanging_bins_is_exchanging_their_points(
    name: str, sizes: tuple[int, int], estimator: str
) -> None:
    rng = np.random.default_rng(5)
    X, Y = samples(*sizes)
    layout = LAYOUTS[name](*sizes, rng)
    kernels = [Gaussian(0.9), Laplace(1.3)]
    pooled = np.vstack([X, Y])
    K = [gram(X, Y), laplace(pooled, pooled, 1.3)]
    binned = bins.BinnedGram.of(Family(kernels), pooled, layout)
    kept = exchanges.Exchange(binned, layout, estimator, "permutation")
    columns = exchanges.draw_labels(layout, 15, np.random.default_rng(7))
    expected = [[mmd_estimate(k, whole(layout, c), estimator) for c in columns.T] for k in K]
    drawn = kept.draw(15, np.random.default_rng(7))
    assert_allclose(drawn, expected, atol=1e-13)
    assert_allclose(
        kept.observed(), [mmd_estimate(k, labels(*sizes), estimator) for k in K], atol=1e-13
    )
    # every point is in one bin, only what is left over stays, and X keeps its number of bins
    assert (whole(layout, layout.labels) == labels(*sizes)).all()
    stays = slice(layout.movable, None)
    assert (layout.labels[stays] == columns[stays].T).all()
    assert (columns.sum(axis=0) == layout.labels.sum()).all()
    assert layout.sizes.sum() == sum(sizes)


def test_exchanges_are_uniform() -> None:
    layout = bins.random_bins(2, 3, 1, np.random.default_rng(0))
    columns = exchanges.draw_labels(layout, 6, np.random.default_rng(0))
    assert columns.shape == (5, 6)
    many = np.concatenate(
        [exchanges.draw_labels(layout, 5, np.random.default_rng(i)) for i in range(2000)], axis=1
    )
    patterns, counts = np.unique(many, axis=1, return_counts=True)
    assert patterns.shape[1] == 10
    assert scipy.stats.chisquare(counts).pvalue > FAILURE


@pytest.mark.parametrize(("size", "ones"), [(6, 3), (5, 2), (7, 1)])
def test_random_columns_with_a_number_of_ones(size: int, ones: int) -> None:
    """All of them come about equally often, whichever way bits were drawn first."""
    count = 20_000
    columns = exchanges.draw_balanced(size, ones, count, np.random.default_rng(3))
    assert columns.shape == (size, count) and (columns.sum(axis=0) == ones).all()
    codes, found = np.unique(2 ** np.arange(size) @ columns.astype(int), return_counts=True)
    ways = math.comb(size, ones)
    assert len(codes) == ways
    assert scipy.stats.chisquare(found).pvalue > 1e-6


@pytest.mark.parametrize("sizes", [(2, 4), (4, 3), (4, 4)], ids=str)
@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize("estimator", ["U", "V"])
def test_tiny_samples_are_enumerated_as_scipy_does(
    sizes: tuple[int, int], alternative: str, estimator: str
) -> None:
    X, Y = samples(*sizes, seed=3, d=1)
    null = Permutation(alternative=alternative)
    ours = two_sample_test(X, Y, Gaussian(0.9), null, rng=0, estimator=estimator)
    theirs = scipy.stats.permutation_test(
        (X[:, 0], Y[:, 0]),
        lambda x, y: mmd(x[:, None], y[:, None], Gaussian(0.9), estimator),
        n_resamples=np.inf,
        alternative=alternative,
    )
    assert_allclose(ours.statistic, theirs.statistic, atol=1e-13)
    assert_allclose(ours.pvalue, theirs.pvalue, atol=1e-12)
    assert "all used" in repr(ours)
    assert len(ours.null) == scipy.special.comb(sum(sizes), sizes[0], exact=True) - 1


def test_bins_that_do_not_change_and_sizes() -> None:
    assert bins.bin_size(100, 100) == 1
    for n, m in (
        (1000, 1000),
        (20_000, 20_000),
        (700, 5000),
        (50, 100_000),
        (2, 3000),
        (997, 1009),
    ):
        size = bins.bin_size(n, m)
        layout = bins.random_bins(n, m, size, np.random.default_rng(0))
        moved = layout.labels[: layout.movable]
        fewest = min(moved.sum(), (1 - moved).sum())
        assert fewest >= min(bins.FEWEST, n, m) * 0.9 or (fewest >= 1 and n + m > 10 * bins.MOST)
        assert (n + m) // size <= max(2 * bins.BINS * 1.5, bins.MOST * 1.5)
        everything = np.sort(np.concatenate(layout.layers))
        assert (everything == np.arange(n + m)).all()


# --- p-values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "spectral"])
@pytest.mark.parametrize("kernel", [None, "median"])
def test_the_pvalue_counts_the_observed_statistic(null: str, kernel: str | None) -> None:
    if kernel is None and null == "spectral":
        kernel = "median"
    X, Y = samples()
    result = two_sample_test(X, Y, kernel, null, n_permutations=59, rng=0)
    reached = np.count_nonzero(result.null.values >= result.statistic)
    assert_allclose(result.pvalue, (1 + reached) / 60)
    assert (np.asarray(result.null) == result.null.values).all()


@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "gamma", "spectral"])
def test_a_pvalue_is_never_zero(null: str) -> None:
    X, Y = samples(400, 400)
    result = two_sample_test(X, Y + 100, "median", null, n_permutations=19, rng=0)
    assert result.pvalue > 0
    if null not in ("gamma",):
        assert_allclose(result.pvalue, 1 / 20)


def test_a_pvalue_of_the_normal_limit_is_never_zero() -> None:
    X, Y = samples(400, 400)
    assert two_sample_test(X, Y + 100, estimator="linear").pvalue > 0


@pytest.mark.parametrize("combine", ["max", "fuse", "min-p"])
@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild"])
def test_several_kernels_make_one_statistic(null: str, combine: str) -> None:
    X, Y = samples()
    kernels = [Gaussian(0.3), Gaussian(0.9), Laplace(2.0)]
    chosen = {"block": Block(2), "wild": Wild(2)}.get(null, null)
    result = two_sample_test(X, Y, Collection(kernels, combine), chosen, 79, rng=3)
    tables = []
    for kernel in kernels:
        one = two_sample_test(X, Y, kernel, chosen, 79, rng=3)
        tables.append([one.statistic, *one.null.values])
    expected = slow_combination(np.array(tables), combine)
    assert_allclose(result.statistic, expected[0], atol=1e-8)
    assert_allclose(result.null.values, expected[1:], atol=1e-8)
    z = (np.array(tables) - np.mean(tables, axis=1)[:, None]) / np.std(tables, axis=1)[:, None]
    assert result.kernel == kernels[int(np.argmax(z[:, 0]))]
    assert combine in " ".join(repr(result).split())


def slow_combination(table: np.ndarray, how: str) -> np.ndarray:
    out = []
    for column in range(table.shape[1]):
        scores = []
        for row in table:
            z = (row[column] - row.mean()) / row.std()
            if how == "min-p":
                share = np.mean([other >= row[column] - 1e-12 for other in row])
                z = -np.log(share)
            scores.append(z)
        soft = np.log(np.mean(np.exp(scores)))
        out.append(soft if how == "fuse" else max(scores))
    return np.array(out)


def test_a_list_of_one_kernel_is_that_kernel() -> None:
    X, Y = samples()
    one = two_sample_test(X, Y, [Gaussian(0.9)], rng=0, n_permutations=99)
    other = two_sample_test(X, Y, Gaussian(0.9), rng=0, n_permutations=99)
    assert tuple(one) == tuple(other)


def test_the_default_collection() -> None:
    X, Y = samples()
    pooled = np.vstack([X, Y])
    default = Gaussian("scaled median")
    results = [two_sample_test(X, Y, k, rng=0, n_permutations=99) for k in (None, "collection")]
    for result in results:
        assert isinstance(result.kernel, Gaussian)
        assert "contrasts combined (soft)" in result.method
    assert results[0].pvalue == results[1].pvalue
    assert two_sample_test(X, Y, "median", rng=0).kernel == default.resolve(pooled)


def test_nested_widths_are_squared_exactly() -> None:
    X, Y = samples(60, 50, d=3)
    pooled = np.vstack([X, Y])
    kernels = [Gaussian(2.0), Laplace(1.0), Gaussian(2.0**-2), Gaussian(0.7), Laplace(4.0)]
    kernels += [Gaussian(2.0**0.5), Gaussian(2.0), Energy(), Gaussian((1.0, 2.0, 0.5))]
    tiles = Family(kernels).against(pooled)
    seen = set()
    for i, tile in tiles(pooled[:30], slice(0, 110), np.empty((30, 110))):
        assert_allclose(tile, kernels[i](pooled[:30], pooled), rtol=1e-11, atol=1e-15)
        seen.add(i)
    assert seen == set(range(len(kernels)))


def test_widths_far_apart_keep_their_digits() -> None:
    # each squaring doubles the relative error of what is squared
    X = np.random.default_rng(0).normal(size=(40, 1)) * 1e-5
    kernels = [Gaussian(1.0), Gaussian(2.0**-17)]
    for i, tile in Family(kernels).against(X)(X, slice(0, 40), np.empty((40, 40))):
        assert_allclose(tile, gaussian(X, X, kernels[i].bandwidth), rtol=1e-8, atol=1e-12)


def test_optimized_tests_on_the_other_half() -> None:
    X, Y = samples(60, 50)
    result = two_sample_test(X, Y + 1, "optimized", rng=0)
    assert result.sizes == {"n": 30, "m": 25}
    assert "other half" in " ".join(repr(result).split())
    assert isinstance(result.kernel, Gaussian)
    assert result.pvalue == 0.001
    assert two_sample_test(X, Y + 1, "optimized", "gamma", rng=0).pvalue < 0.01


def test_sequential_testing() -> None:
    X, Y = samples()
    _, Z = samples(25, 25, seed=9)
    null = two_sample_test(X, Z - 0.3, "median", "sequential", rng=0)
    values = null.null.values
    assert null.null.stopped and len(values) < 999
    assert np.count_nonzero(values >= null.statistic) == Sequential().stop == 20
    assert values[-1] >= null.statistic
    assert_allclose(null.pvalue, 20 / len(values))
    assert f"Stopped after {len(values)} draws" in repr(null)
    clear = two_sample_test(X, Y + 5, "median", Sequential(), rng=0)
    assert not clear.null.stopped and len(clear.null) == 999
    assert clear.pvalue == 0.001


def test_sequential_testing_of_tiny_samples_keeps_to_the_smallest_pvalue() -> None:
    # 15 arrangements of six points, so that no exact p-value is below 1/15
    X, Y = [[0.0], [1.0]], [[10.0], [11.0], [12.5], [13.0]]
    exact = two_sample_test(X, Y, Gaussian(1.0), rng=0).pvalue
    found = two_sample_test(X, Y, Gaussian(1.0), Sequential(), rng=0).pvalue
    assert found == exact >= 1 / 15


def test_sequential_testing_holds_its_level() -> None:
    rng = np.random.default_rng(0)
    runs = [
        two_sample_test(*rng.normal(size=(2, 12, 1)), "median", Sequential(), rng=rng).pvalue
        for _ in range(200)
    ]
    for level in (0.05, 0.2, 0.5):
        most = scipy.stats.binom.ppf(1 - FAILURE / 3, 200, level)
        assert np.sum(np.array(runs) <= level) <= most


@pytest.mark.parametrize("alternative", ["less", "two-sided"])
def test_sequential_testing_has_one_side(alternative: str) -> None:
    # it stops by what lies above the statistic, so its draws do not tell the lower tail
    X, Y = samples()
    with pytest.raises(ValueError, match="sequential"):
        null = Sequential(Permutation(alternative=alternative))
        two_sample_test(X, Y, "median", null, rng=0)


# --- the same answer, however it is computed ------------------------------------------------------


@pytest.mark.slow
def test_one_seed_one_answer_on_one_or_two_threads() -> None:
    X, Y = samples(600, 500)
    for null in ("permutation", "full", "block", "wild"):
        answers = []
        for threads in (1, 2, 1):
            with threadpool_limits(limits=threads, user_api="blas"):
                answers.append(two_sample_test(X, Y, None, null, 39, rng=4).pvalue)
        assert len(set(answers)) == 1, null


@pytest.mark.parametrize("kernel", [None, "median"])
@pytest.mark.parametrize("null", ["full", "permutation", "block"])
def test_streaming_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, null: str, kernel: str | None
) -> None:
    X, Y = samples(60, 50)
    made = {"full": Full, "permutation": Permutation, "block": partial(Block, 4)}[null]
    kept = two_sample_test(X, Y, kernel, made(), 99, rng=4)
    monkeypatch.setattr(bins, "MOST", 10)
    for memory in (None, 1, 5000, "20KB", "1 MB"):
        streamed = two_sample_test(X, Y, kernel, made(max_memory=memory), 99, rng=4)
        assert streamed.pvalue == kept.pvalue
        assert_allclose(streamed.statistic, kept.statistic, atol=1e-9)
        assert_allclose(streamed.null.values, kept.null.values, atol=1e-9)
        assert streamed.null.kind == kept.null.kind


def test_discrete_data_have_ties_that_rounding_must_not_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    X, Y = (rng.integers(0, 2, size=(n, 1)).astype(float) * 0.1 for n in (12, 9))
    answers = {two_sample_test(X, Y, kernel, rng=4).pvalue for kernel in (Gaussian(0.1), Delta())}
    monkeypatch.setattr(bins, "MOST", 4)
    answers.add(two_sample_test(X, Y, Gaussian(0.1), "full", rng=4).pvalue)
    # and shifting everything leaves the arrangement as it is
    answers.add(two_sample_test(X + 3.3, Y + 3.3, Gaussian(0.1), rng=4).pvalue)
    assert len(answers) == 1


def test_float32_agrees_within_monte_carlo_error() -> None:
    X, Y = samples(100, 90)
    for null in ("permutation", "full", "block", "wild", "gamma", "spectral"):
        double = two_sample_test(X, Y, "median", null, rng=4)
        single = two_sample_test(X.astype(np.float32), Y.astype(np.float32), "median", null, rng=4)
        assert abs(single.pvalue - double.pvalue) < 0.005, null
        assert abs(single.statistic - double.statistic) < 1e-5


@pytest.mark.parametrize("seed", [0, np.int64(3), np.random.SeedSequence(1)], ids=repr)
def test_seeds(seed: Any) -> None:
    X, Y = samples()
    answers = {two_sample_test(X, Y, rng=seed, n_permutations=99).pvalue for _ in range(3)}
    assert len(answers) == 1


def test_generators_advance_and_old_states_are_taken() -> None:
    X, Y = samples()
    rng = np.random.default_rng(0)
    first = two_sample_test(X, Y, rng=rng, n_permutations=99)
    second = two_sample_test(X, Y, rng=rng, n_permutations=99)
    assert (first.null.values != second.null.values).any()
    assert first.pvalue == two_sample_test(X, Y, rng=0, n_permutations=99).pvalue
    old = [two_sample_test(X, Y, rng=np.random.RandomState(1)).pvalue for _ in range(2)]
    assert old[0] == old[1]
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - it must be left alone
    two_sample_test(X, Y, n_permutations=9)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    with pytest.raises(TypeError, match="rng must be"):
        two_sample_test(X, Y, rng="a seed")


def test_inputs_are_left_alone() -> None:
    X, Y = samples()
    copies = X.copy(), Y.copy()
    for null in ("permutation", "full", "block", "wild", "gamma", "spectral"):
        two_sample_test(X, Y, null=null, n_permutations=9, rng=0)
    assert (copies[0] == X).all() and (copies[1] == Y).all()


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = samples()
    two_sample_test(X, Y, rng=0, n_permutations=9)
    assert capsys.readouterr() == ("", "")
    two_sample_test(X, Y, null=Permutation(progress=True), rng=0, n_permutations=9)
    shown = capsys.readouterr()
    assert shown.out == "" and "Features" in shown.err


# --- moments and limits ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 5, 6])
def test_moments_over_all_permutations(n: int) -> None:
    rng = np.random.default_rng(n)
    K, L = (a @ a.T for a in rng.normal(size=(2, n, 3)))
    H = np.eye(n) - 1 / n
    A, B = H @ K @ H, H @ L @ H
    values = [np.sum(A * B[np.ix_(order, order)]) for order in permutations(range(n))]
    moments = [
        limits.CentredMoments.of_sums(n, float((M**2).sum()), M.sum(axis=1), np.diag(M))
        for M in (K, L)
    ]
    mean, variance = limits.permutation_moments(*moments)
    assert_allclose(mean, np.mean(values), rtol=1e-11)
    assert_allclose(variance, np.var(values), rtol=1e-10)


def test_moments_of_two_samples_over_all_exchanges() -> None:
    X, Y = samples(4, 3)
    gamma = two_sample_test(X, Y, Gaussian(0.9), "gamma").null
    every = two_sample_test(X, Y, Gaussian(0.9), estimator="V", rng=0)
    values = [every.statistic, *every.null.values]
    assert len(values) == 35
    assert_allclose(gamma.mean, np.mean(values), rtol=1e-10)
    assert_allclose(gamma.variance, np.var(values), rtol=1e-9)


def test_limits_are_near_the_permutations() -> None:
    # over these ten seeds the largest distance is 0.066 (gamma) and 0.069 (spectral) of the
    # permutations' 95 % quantile
    for seed in range(10):
        X, Y = samples(80, 60, seed=seed)
        drawn = two_sample_test(X, Y, "median", "full", estimator="V", rng=0).null.quantile(0.95)
        for null in ("gamma", "spectral"):
            found = two_sample_test(X, Y, "median", null, rng=0).null.quantile(0.95)
            assert abs(found / drawn - 1) < 0.12, (seed, null)


# --- level ----------------------------------------------------------------------------------------

RUNS, LEVEL = 300, 0.05
BOUNDS = scipy.stats.binom.ppf([FAILURE / 100, 1 - FAILURE / 100], RUNS, LEVEL)

EXACT: dict[str, dict[str, Any]] = {
    "bins": {"null": Permutation(20)},
    "points": {"null": "full"},
    "collection": {},
    "fuse": {"kernel": Collection(combine="fuse")},
    "min-p": {"kernel": Collection(combine="min-p")},
    "one kernel": {"kernel": Energy(), "estimator": "V"},
    "optimized": {"kernel": "optimized"},
    "independent blocks": {"null": Block(2)},
    "singleton groups": {"null": Groups((np.arange(30), 100 + np.arange(24)))},
    "coordinates": {"kernel": "median", "basis": PivotedCholesky()},
    "sequential": {"kernel": "median", "null": Sequential()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_exact_nulls_hold_their_level(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    rejected = 0
    for _ in range(RUNS):
        X, Y = rng.normal(size=(30, 2)), rng.normal(size=(24, 2))
        rejected += two_sample_test(X, Y, n_permutations=99, rng=rng, **EXACT[name]).rejects(LEVEL)
    low, high = BOUNDS
    assert low <= rejected <= high


def test_ties_make_it_conservative() -> None:
    rng = np.random.default_rng(0)
    most = BOUNDS[1]
    for kernel in (None, "median", Delta()):
        rejected = 0
        for _ in range(RUNS):
            X, Y = rng.integers(0, 2, size=(2, 20, 1)).astype(float)
            rejected += two_sample_test(X, Y, kernel, n_permutations=99, rng=rng).rejects(LEVEL)
        assert rejected <= most, kernel


def autoregressive(rng: np.random.Generator, n: int, phi: float = 0.8) -> np.ndarray:
    noise = rng.normal(size=n + 50)
    return scipy.signal.lfilter([1.0], [1.0, -phi], noise)[50:, None]


def test_blocks_and_wild_signs_for_time_series() -> None:
    # rejections of 80 at 5 %, over five seeds: permutation 43-54, block 6-10, wild 9-12
    rng = np.random.default_rng(0)
    rejected = dict.fromkeys(("permutation", "block", "wild"), 0)
    nulls = {"permutation": Permutation(), "block": Block(15), "wild": Wild(15)}
    for _ in range(80):
        X, Y = autoregressive(rng, 150), autoregressive(rng, 150)
        for null in rejected:
            result = two_sample_test(X, Y, "median", nulls[null], 99, rng=rng)
            rejected[null] += result.rejects()
    assert rejected["permutation"] > 30
    assert rejected["block"] < 25
    assert rejected["wild"] < 25


def test_groups_for_clustered_data() -> None:
    # clusters of five rows that share a shift: points exchanged one by one reject 56 of 100
    rng = np.random.default_rng(1)
    rejected = {"points": 0, "groups": 0}
    of = np.repeat(np.arange(12), 5)
    for _ in range(100):
        X, Y = (rng.normal(size=(12, 1))[of] + 0.3 * rng.normal(size=(60, 1)) for _ in range(2))
        rejected["points"] += two_sample_test(X, Y, "median", "full", 99, rng=rng).rejects()
        groups = np.concatenate([of, 100 + of])
        rejected["groups"] += two_sample_test(
            X, Y, "median", Groups(groups), n_permutations=99, rng=rng
        ).rejects()
    assert rejected["points"] > 30
    assert rejected["groups"] <= scipy.stats.binom.ppf(1 - FAILURE, 100, 0.05)


def test_groups_given_as_one_or_two() -> None:
    X, Y = samples(6, 8)
    of_x, of_y = np.repeat(["a", "b", "c"], 2), np.repeat(["d", "e"], 4)
    one = two_sample_test(X, Y, null=Groups(np.concatenate([of_x, of_y])), rng=0)
    two = two_sample_test(X, Y, null=Groups((of_x, of_y)), rng=0)
    assert one.pvalue == two.pvalue
    assert len(one.null) == 9  # 5 over 2, less the one observed
    wild = two_sample_test(X, Y, null=WildGroups((of_x, of_y)), rng=0, n_permutations=99)
    assert wild.null.kind == "wild bootstrap"


@pytest.mark.filterwarnings("error")
def test_groups_of_one_row_leave_the_estimate_defined() -> None:
    # where X is one group, an exchange can leave it a single row, of which "U" has no estimate
    X, Y = samples(5, 6)
    groups = np.zeros(5), np.array([1, 2, 3, 3, 3, 3])
    try:
        result = two_sample_test(X, Y, "median", Groups(groups), rng=0)
    except ValueError as error:
        assert "groups" in str(error)
    else:
        assert np.isfinite(result.null.values).all()


# --- power and kinds of points --------------------------------------------------------------------


def test_every_null_sees_a_plain_difference() -> None:
    X, Y = samples(60, 50, seed=2)
    for null in ("permutation", "full", "block", "wild", "gamma", "spectral"):
        assert two_sample_test(X, Y + 1, null=null, rng=0).pvalue < 0.01, null
    for estimator in ("linear", "block", "incomplete"):
        assert two_sample_test(X, Y + 2, estimator=estimator).pvalue < 0.05, estimator


def test_alternatives() -> None:
    X, Y = samples(40, 40, seed=2)
    greater, less, both = (
        two_sample_test(X, Y + 1, null=Permutation(alternative=a), rng=0).pvalue
        for a in ("greater", "less", "two-sided")
    )
    assert greater == 0.001 and less == 1.0 and both == 0.002
    alike = two_sample_test(X, X + 1e-9, "median", Permutation(alternative="less"), rng=0)
    assert alike.pvalue == 0.001
    assert "more alike than chance" in repr(alike)


def tables(n: int, rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["u", "v", "w"], n)})


def turned(angles: np.ndarray) -> np.ndarray:
    c, s, zero, one = np.cos(angles), np.sin(angles), 0 * angles, 1 + 0 * angles
    rows = [[c, -s, zero], [s, c, zero], [zero, zero, one]]
    return np.moveaxis(np.array(rows), -1, 0)


def domains() -> dict[str, tuple[Any, Any, Any, Any]]:
    """For every kind of points: X, a Y that differs, the kernel, a few points for the witness."""
    rng = np.random.default_rng(0)
    words = [["".join(rng.choice(list(abc), 8)) for _ in range(25)] for abc in ("aab", "abb")]
    graphs = [[nx.gnp_random_graph(8, p, seed=i) for i in range(20)] for p in (0.3, 0.7)]
    series = [
        [rng.normal(size=(rng.integers(5, 9), 1)) + by for _ in range(20)] for by in (0.0, 2.0)
    ]
    first, second = tables(40, rng), tables(40, rng).assign(kind="u")
    return {
        "labels": (list("aab") * 9, list("abb") * 9, None, ["a", "b"]),
        "rows of labels": (
            np.array([["a", "b"]] * 12),
            np.array([["a", "c"], ["b", "b"]] * 6),
            Hamming(),
            np.array([["a", "b"]]),
        ),
        "strings": (words[0], words[1], NGrams(2), words[0][:3]),
        "graphs": (graphs[0], graphs[1], WeisfeilerLehman(label=None), graphs[0][:3]),
        "rotations": (
            turned(rng.normal(size=30)),
            turned(1 + rng.normal(size=30)),
            Chordal(),
            turned(np.zeros(2)),
        ),
        "matrices": (turned(rng.normal(size=30)), turned(1 + rng.normal(size=30)), None, None),
        "mixed frames": (first, second, None, first[:3]),
        "named columns": (first, second, Columns({"size": Laplace(), "kind": None}), first[:3]),
        "series": (series[0], series[1], GlobalAlignment(), series[0][:3]),
        "bags": (series[0], series[1], Expected(Gaussian()), series[0][:3]),
        "pairs": (
            (first[["size"]].to_numpy(), first["kind"].to_numpy().astype(str)),
            (second[["size"]].to_numpy(), second["kind"].to_numpy().astype(str)),
            None,
            None,
        ),
    }


@pytest.mark.parametrize("name", domains())
def test_points_of_every_kind(name: str) -> None:
    X, Y, kernel, at = domains()[name]
    result = two_sample_test(X, Y, kernel, rng=0)
    assert result.pvalue < 0.05
    assert result.pvalue == two_sample_test(X, Y, kernel, rng=0).pvalue
    for null in ("full", "block", "gamma", "spectral", "wild"):
        assert two_sample_test(X, Y, kernel, null, 99, rng=0).pvalue < 0.1, null
    if at is not None:
        assert np.shape(result.witness(at)) == (len(at),)


def test_tensors_in() -> None:
    torch = require("torch")
    X, Y = samples()
    ours = two_sample_test(X, Y, rng=0, n_permutations=99)
    theirs = two_sample_test(torch.tensor(X), torch.tensor(Y), rng=0, n_permutations=99)
    assert theirs.pvalue == ours.pvalue
    assert isinstance(theirs.statistic, float)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_permutations": 0}, "n_permutations must be a whole number ≥ 1, got 0"),
        ({"n_permutations": 9.5}, "n_permutations must be a whole number"),
        ({"n_permutations": True}, "n_permutations must be a whole number"),
        ({"null": "bootstrap"}, "null must be one of 'permutation', 'full', .*'sequential', or an"),
        ({"null": Signs()}, r"an object of Permutation, Full, .*Sequential; got Signs\("),
        ({"null": Permutation}, "null must be one of"),
        ({"null": Sequential("gamma")}, "Sequential: null must be one of 'permutation'.*'gamma'"),
        ({"null": Sequential(Gamma())}, r"Sequential: null must be .*got Gamma\("),
        ({"estimator": "W"}, "estimator must be one of 'U', 'V', 'linear'"),
        ({"kernel": "best"}, "the words are 'median', 'collection', 'optimized'"),
        ({"kernel": []}, "got an empty list"),
        ({"kernel": Collection([])}, "got an empty list"),
        ({"kernel": [Gaussian(), Laplace()], "null": "gamma"}, "2 kernels were given"),
        ({"kernel": [Gaussian(), Laplace()], "null": "spectral"}, "2 kernels were given"),
        ({"kernel": "collection", "null": "gamma"}, "the collection kernels were given|takes one"),
        ({"kernel": [Gaussian(), Laplace()], "basis": PivotedCholesky()}, "2 kernels were given"),
        ({"kernel": "collection", "basis": PivotedCholesky()}, "takes one"),
        ({"kernel": [Gaussian(), Laplace()], "null": Sequential()}, "2 kernels were given"),
        ({"kernel": [Gaussian(), Laplace()], "estimator": "linear"}, "2 kernels were given"),
        ({"null": "normal"}, "null must be one of"),
        ({"null": "normal", "estimator": "V"}, "null must be one of"),
        ({"null": "normal", "estimator": "incomplete"}, "null must be one of 'permutation', 'seq"),
        ({"null": Block(11)}, "leaves fewer than two blocks in a series of 20"),
        ({"null": Wild(500)}, "leaves fewer than two blocks in a series of 20"),
        ({"null": Block(3), "estimator": "linear"}, "null must be one of 'permutation', 'normal'"),
        ({"null": "groups"}, r"Groups needs the group of every row: pass null=Groups\(labels\)"),
        ({"null": Groups(np.arange(44))}, "groups: expected 45 labels, 25 for X and then 20 for Y"),
        ({"null": Groups((np.arange(25), np.arange(100, 119)))}, "groups: expected 45 labels"),
        ({"null": Groups(np.zeros(45))}, "1 groups have rows in both samples"),
        ({"null": Groups(np.arange(45)), "estimator": "linear"}, "null must be one of"),
        ({"null": Groups(np.full(45, np.nan))}, "groups contains NaN"),
        ({"estimator": "linear", "null": "gamma"}, "null must be one of 'permutation', 'normal'"),
        ({"estimator": "linear", "basis": PivotedCholesky()}, "basis"),
        ({"rng": -1}, "rng"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        two_sample_test(*samples(), **arguments)


def test_bad_samples() -> None:
    X, Y = samples()
    with pytest.raises(ValueError, match="Y: expected at least 2 points, got 1"):
        two_sample_test(X, Y[:1])
    with pytest.raises(ValueError, match="X: expected at least 2 points, got 1"):
        two_sample_test(X[:1], Y, estimator="V")
    with pytest.raises(ValueError, match="Y has 3 features, but X has 2"):
        two_sample_test(X, np.ones((9, 3)))
    with pytest.raises(ValueError, match="X contains NaN"):
        two_sample_test(X * np.nan, Y)
    with pytest.raises(ValueError, match="there is a single term here"):
        two_sample_test(X[:3], Y[:3], null="normal", estimator="linear")
    with pytest.raises(ValueError, match=r'kernel="optimized" tests on half .* needs 4 points'):
        two_sample_test(X[:3], Y, "optimized")
    for word in ("collection", "optimized"):
        with pytest.raises(ValueError, match="chooses among widths, for rows of numbers"):
            two_sample_test(list("abab"), list("abbb"), word)
    with pytest.raises(TypeError, match="expected a kernel"):
        two_sample_test(X, Y, 3.0)
    with pytest.raises(TypeError, match="graphs have no default kernel"):
        two_sample_test([nx.path_graph(3)] * 3, [nx.path_graph(4)] * 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", [None, "median", Linear(), Energy()], ids=str)
@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "gamma", "spectral"])
def test_constant_samples_are_alike(null: str, kernel: Any, dtype: Any) -> None:
    X, Y = np.full((12, 2), 0.1, dtype=dtype), np.full((9, 2), 0.1, dtype=dtype)
    result = two_sample_test(X, Y, kernel, null, 99, rng=0)
    assert result.pvalue == 1.0
    assert abs(result.statistic) < 1e-6


def test_two_points_a_sample() -> None:
    result = two_sample_test([[0.0], [1.0]], [[5.0], [6.0]], rng=0)
    assert len(result.null) == 5
    assert result.pvalue >= 1 / 6
    assert "no p-value can be below 0.167" in " ".join(repr(result).split())


def test_constants_that_differ_are_told_apart() -> None:
    X, Y = np.zeros((10, 1)), np.ones((10, 1))
    assert two_sample_test(X, Y, rng=0).pvalue < 0.01
    assert two_sample_test(X, Y, "median", rng=0).pvalue < 0.01


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_wild_signs_report_the_estimate_that_was_asked_for(estimator: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50, 1))
    found = two_sample_test(x, y + 0.5, "median", "wild", estimator=estimator, rng=0)
    assert f"{estimator} estimate" in found.method
    assert found.statistic == pytest.approx(mmd(x, y + 0.5, estimator=estimator))
    assert found.pvalue == two_sample_test(x, y + 0.5, "median", "wild", rng=0).pvalue


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("estimator", ["U", "V", "linear", "block", "incomplete"])
@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "gamma", "spectral"])
def test_a_few_rows_have_a_finite_answer_or_an_error(null: str, estimator: str, n: int) -> None:
    if estimator not in ("U", "V") and null != "permutation":
        return
    x, y = np.random.default_rng(0).normal(size=(2, n, 1))
    found = two_sample_test(x, y, "median", null, estimator=estimator, rng=0)
    assert np.isfinite(found.statistic) and 0 < found.pvalue <= 1
