"""The independence test: all shifts against brute force, nulls, level, bad input."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.signal
import scipy.stats
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from meanmap import hsic, independence_test
from meanmap.comparison import (
    Block,
    Collection,
    Full,
    Groups,
    Permutation,
    Sequential,
    Wild,
    WildGroups,
    pairings,
    shifts,
)
from meanmap.kernels import (
    Chordal,
    Delta,
    Energy,
    Expected,
    Gaussian,
    GlobalAlignment,
    Laplace,
    Linear,
    NGrams,
    WeisfeilerLehman,
)
from meanmap.kernels.domains.whitened import Whitened
from meanmap.spaces import Nystroem, PivotedCholesky
from meanmap.statistics.tiles import Family
from optional_packages import require
from oracles.kernels import gaussian, laplace
from oracles.statistics import hsic_estimate

FAILURE = 1e-6
NULLS = ["permutation", "full", "block", "wild", "gamma", "spectral"]


def pairs(n: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, :1] ** 2 + rng.normal(size=(n, 1))


def grams(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return gaussian(X, X, 0.9), laplace(Y, Y, 0.7)


# --- the statistic --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("null", ["permutation", "full", "block"])
def test_the_statistic_is_hsic(null: str, estimator: str) -> None:
    X, Y = pairs()
    result = independence_test(
        X, Y, (Gaussian(0.9), Laplace(0.7)), null, n_permutations=30, rng=0, estimator=estimator
    )
    expected = hsic_estimate(*grams(X, Y), estimator)
    assert_allclose(result.statistic, expected, atol=1e-13)
    assert result.kernel == (Gaussian(0.9), Laplace(0.7))
    assert len(result.null) == 30
    assert estimator in result.method


@pytest.mark.parametrize(("null", "estimator"), [("wild", "U"), ("gamma", "V"), ("spectral", "V")])
def test_nulls_of_one_estimate(null: str, estimator: str) -> None:
    X, Y = pairs()
    result = independence_test(X, Y, (Gaussian(0.9), Laplace(0.7)), null, 99, rng=0)
    expected = hsic(X, Y, Gaussian(0.9), Laplace(0.7), estimator)
    assert_allclose(result.statistic, expected, atol=1e-13)
    assert f"{estimator} estimate" in result.method


@pytest.mark.parametrize("n_bins", [2, 3, 5, 7, 24, 100])
def test_bins_leave_the_statistic_as_it_is(n_bins: int) -> None:
    X, Y = pairs()
    for estimator in ("U", "V"):
        result = independence_test(
            X, Y, (Gaussian(0.9), Laplace(0.7)), Permutation(n_bins), n_permutations=9, rng=0,
            estimator=estimator,
        )  # fmt: skip
        expected = hsic(X, Y, Gaussian(0.9), Laplace(0.7), estimator)
        assert_allclose(result.statistic, expected, atol=1e-13)


@pytest.mark.parametrize("null", ["permutation", "full", "gamma", "spectral"])
def test_coordinates_give_the_same_test(null: str) -> None:
    X, Y = pairs(40)
    kernels = Gaussian(0.9), Gaussian(0.7)
    exact = independence_test(
        X, Y, kernels, "full" if null == "permutation" else null, 199, rng=1, estimator="V"
    )
    for basis in (PivotedCholesky(1e-13), (Nystroem(40), None)):
        found = independence_test(X, Y, kernels, null, 199, rng=1, basis=basis)
        assert_allclose(found.statistic, exact.statistic, atol=1e-7)
        if null != "spectral":
            assert_allclose(found.pvalue, exact.pvalue, atol=1e-5)


# --- shifts against brute force -------------------------------------------------------------------


def moved(rows_x: shifts.Rows, rows_y: shifts.Rows, shift: int) -> np.ndarray:
    """The row of Y that meets every row of X, when Y's bins are shifted."""
    order = np.empty(rows_x.grid.size + len(rows_x.rest), dtype=int)
    order[rows_x.grid] = np.roll(rows_y.grid, -shift, axis=1)
    order[rows_x.rest] = rows_y.rest
    return order


@pytest.mark.parametrize("consecutive", [False, True], ids=["random", "consecutive"])
@pytest.mark.parametrize(
    ("n", "size"),
    [(4, 1), (5, 1), (8, 1), (9, 1), (8, 2), (9, 2), (11, 3), (12, 3), (12, 4), (13, 6), (14, 5)],
)
def test_all_shifts_at_once_are_all_shifts(n: int, size: int, consecutive: bool) -> None:
    rng = np.random.default_rng(n * size)
    X, Y = pairs(n)
    if consecutive:
        rows = [shifts.consecutive_rows(n, size, rng) for _ in range(2)]
    else:
        rows = [shifts.random_rows(n, n // size, rng) for _ in range(2)]
    families = Family([Gaussian(0.9), Energy()]), Family([Laplace(0.7), Gaussian(0.4)])
    K = [gaussian(X, X, 0.9), Energy()(X)]
    L = [laplace(Y, Y, 0.7), gaussian(Y, Y, 0.4)]
    for pairing in ((rows[0], rows[0]), (rows[0], rows[1])):
        sums = shifts.shifted_sums(families, X, Y, *pairing)
        orders = [moved(*pairing, t) for t in range(pairing[0].bins)]
        assert all((np.sort(order) == np.arange(n)).all() for order in orders)
        for estimator in ("U", "V"):
            expected = [
                [[hsic_estimate(k, l, estimator, order) for order in orders] for l in L]  # noqa: E741
                for k in K
            ]
            assert_allclose(sums.hsic(estimator), expected, atol=1e-12)
    same = moved(rows[0], rows[0], 0)
    assert (same == np.arange(n)).all()


def test_blocks_stay_together() -> None:
    rows = shifts.consecutive_rows(23, 5, np.random.default_rng(0))
    assert rows.bins == 4 and (rows.rest == [20, 21, 22]).all()
    assert (np.diff(rows.grid, axis=0) == 1).all()
    given = np.random.default_rng(1).permutation(23)
    ordered = shifts.consecutive_rows(23, 5, np.random.default_rng(0), given)
    assert (ordered.grid == given[rows.grid]).all()


def test_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = pairs(43)
    whole = independence_test(X, Y, rng=0, n_permutations=60)
    monkeypatch.setattr(shifts, "TILE", 100)
    monkeypatch.setattr(shifts, "CHUNK", 5)
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            again = independence_test(X, Y, rng=0, n_permutations=60)
        assert again.pvalue == whole.pvalue
        assert_allclose(again.null.values, whole.null.values, atol=1e-9)


def test_full_permutations_are_permutations_of_rows() -> None:
    X, Y = pairs(9)
    K, L = grams(X, Y)
    result = independence_test(X, Y, (Gaussian(0.9), Laplace(0.7)), "full", 20, rng=5)
    rng = np.random.default_rng(5)
    expected = [hsic_estimate(K, L, "U", rng.permutation(9)) for _ in range(20)]
    assert_allclose(result.null.values, expected, atol=1e-13)


def test_shifts_and_permutations_have_one_distribution() -> None:
    # all 120 permutations of five rows, against rounds of shifts
    X, Y = pairs(5, seed=1)
    K, L = grams(X, Y)
    every = np.array([hsic_estimate(K, L, "U", order) for order in permutations(range(5))])
    drawn = independence_test(X, Y, (Gaussian(0.9), Laplace(0.7)), n_permutations=6000, rng=0)
    values = drawn.null.values
    assert np.abs(values[:, None] - every).min(axis=1).max() < 1e-12
    counts = np.bincount(np.abs(values[:, None] - every).argmin(axis=1), minlength=120)
    # rounds of five belong together: the variance of a count is at most five times the binomial's
    expected = len(values) / 120
    assert np.abs(counts - expected).max() < 6 * np.sqrt(5 * expected)


def test_the_pvalue_of_scipys_permutations() -> None:
    X, Y = pairs(6, seed=4)
    x, y = X[:, 0], Y[:, 0]
    theirs = scipy.stats.permutation_test(
        (y,),
        lambda y: hsic(x[:, None], y[:, None], Gaussian(0.9), Gaussian(0.7)),
        permutation_type="pairings",
        n_resamples=np.inf,
        alternative="greater",
    )
    ours = independence_test(
        X[:, :1], Y, (Gaussian(0.9), Gaussian(0.7)), "full", n_permutations=5000, rng=0
    )
    assert_allclose(ours.statistic, theirs.statistic, atol=1e-13)
    error = np.sqrt(theirs.pvalue * (1 - theirs.pvalue) / 5000)
    assert abs(ours.pvalue - theirs.pvalue) < 6 * error


# --- p-values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "spectral"])
def test_the_pvalue_counts_the_observed_statistic(null: str) -> None:
    X, Y = pairs()
    result = independence_test(X, Y, null=null, n_permutations=59, rng=0)
    # draws that repeat the sample's own signs are equal to it up to rounding, and count
    slack = 1e-12 * np.abs(result.null.values).max()
    reached = np.count_nonzero(result.null.values >= result.statistic - slack)
    assert_allclose(result.pvalue, (1 + reached) / (1 + len(result.null)))
    assert len(result.null) == 59


@pytest.mark.parametrize("n", [5, 24, 487, 1200])
@pytest.mark.parametrize("draws", [1, 99, 999])
def test_as_many_draws_as_were_asked_for(n: int, draws: int) -> None:
    # shifts are computed in rounds of n; all of these once went into the p-value
    X, Y = pairs(n)
    result = independence_test(X, Y, "median", n_permutations=draws, rng=0)
    assert len(result.null) == draws
    assert f"({draws} draws)" in result.method
    assert result.pvalue >= 1 / (1 + draws)


def test_draws_are_chosen_from_all_rounds_at_random() -> None:
    # 20 of the 24 shifts of one round: each is left out about as often as any other
    X, Y = pairs(24)
    families = Family([Gaussian(0.9)]), Family([Laplace(0.7)])
    rng = np.random.default_rng(0)
    source = pairings.Shifts(
        pairings.PairedPoints(families, X, Y, "U"),
        lambda r: shifts.random_rows(24, 24, np.random.default_rng(1)),
        rng,
    )
    source.observed()
    whole = source.draw(23, rng)[0]
    used = np.zeros(23)
    for _ in range(500):
        used += np.isin(whole, source.draw(20, rng)[0])
    assert used.sum() == 500 * 20
    low, high = scipy.stats.binom.ppf([1e-9, 1 - 1e-9], 500, 20 / 23)
    assert low <= used.min() and used.max() <= high


@pytest.mark.parametrize("rows", [Block(2), Groups(np.arange(600) // 2)], ids=str)
def test_a_sequential_test_of_many_blocks_draws_afresh(rows: Any) -> None:
    X = np.random.default_rng(0).normal(size=(600, 1))
    result = independence_test(X, X, "median", Sequential(rows), n_permutations=400, rng=0)
    assert len(np.unique(result.null.values)) == len(result.null) == 400


@pytest.mark.parametrize("null", NULLS)
def test_a_pvalue_is_never_zero(null: str) -> None:
    X = np.random.default_rng(0).normal(size=(600, 1))
    result = independence_test(X, X, "median", null, 19, rng=0)
    assert 0 < result.pvalue <= 1 / 20


def test_three_rows_say_nothing() -> None:
    X, Y = pairs(3)
    for null in ("permutation", "full", "gamma", "spectral"):
        result = independence_test(X, Y, "median", null, rng=0, estimator="V")
        assert result.pvalue > 1 / 7, null  # six pairings


@pytest.mark.parametrize("combine", ["max", "fuse", "min-p"])
@pytest.mark.parametrize("null", ["permutation", "full", "block"])
def test_every_pair_of_kernels(null: str, combine: str) -> None:
    X, Y = pairs()
    kx, ky = [Gaussian(0.3), Laplace(2.0)], [Gaussian(0.9), Energy(), Linear()]
    chosen = Block(3) if null == "block" else null
    kernels = Collection(kx, combine), Collection(ky, combine)
    result = independence_test(X, Y, kernels, chosen, 60, rng=3)
    table = []
    for a in kx:
        for b in ky:
            one = independence_test(X, Y, (a, b), chosen, 60, rng=3)
            table.append([one.statistic, *one.null.values])
    z = np.array(table)
    z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
    if combine == "max":
        expected = z.max(axis=0)
    elif combine == "fuse":
        expected = np.log(np.mean(np.exp(z), axis=0))
    else:
        shares = (z[:, None, :] >= z[:, :, None] - 1e-9).mean(axis=2)
        expected = -np.log(shares.min(axis=0))
    assert_allclose([result.statistic, *result.null.values], expected, atol=1e-8)
    best = int(np.argmax(z[:, 0]))
    assert result.kernel == (kx[best // 3], ky[best % 3])
    assert f"6 HSICs combined ({combine})" in result.method


def test_one_variable_may_have_several_kernels() -> None:
    X, Y = pairs()
    labels = np.where(Y[:, 0] > Y[:, 0].mean(), "high", "low")
    result = independence_test(X, labels, rng=0, n_permutations=99)
    assert isinstance(result.kernel[1], Whitened) and isinstance(result.kernel[1].kernel, Delta)
    assert "HSICs combined (soft)" in result.method
    mirrored = independence_test(labels, X, rng=0, n_permutations=99)
    assert isinstance(mirrored.kernel[0], Whitened)
    for combine in ("fuse", "min-p"):
        assert 0 < independence_test(X, labels, Collection(combine=combine), rng=0).pvalue <= 1


def test_sequential_testing() -> None:
    X, Y = pairs(30)
    rng = np.random.default_rng(1)
    settings: dict[str, Any] = {"kernel": "median", "null": "sequential"}
    null = independence_test(X, rng.permutation(Y), rng=0, **settings)
    assert null.null.stopped and null.pvalue == 20 / len(null.null)
    assert np.count_nonzero(null.null.values >= null.statistic) == 20
    clear = independence_test(X, X, rng=0, **settings)
    assert clear.pvalue == 0.001 and len(clear.null) == 999
    for alternative in ("less", "two-sided"):
        with pytest.raises(ValueError, match="sequential"):
            independence_test(X, Y, null=Sequential(Full(alternative=alternative)), rng=0)


# --- the same answer, however it is computed ------------------------------------------------------


@pytest.mark.slow
def test_one_seed_one_answer_on_one_or_two_threads() -> None:
    X, Y = pairs(520)
    for null in ("permutation", "block", "wild"):
        answers = []
        for threads in (1, 2):
            with threadpool_limits(limits=threads, user_api="blas"):
                answers.append(
                    independence_test(X, Y[::-1], null=null, n_permutations=99, rng=4).pvalue
                )
        assert answers[0] == answers[1], null
    X, Y = pairs(100)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            answers.append(independence_test(X, Y[::-1], null="full", rng=4).pvalue)
    assert answers[0] == answers[1]


def test_memory_changes_nothing() -> None:
    X, Y = pairs(30)
    settings: dict[str, Any] = {"n_permutations": 49, "rng": 4}
    kept = independence_test(X, Y[::-1], null="full", **settings)
    for memory in (1, 1000, "10KB", "1GB"):
        again = independence_test(X, Y[::-1], null=Full(max_memory=memory), **settings)
        assert again.pvalue == kept.pvalue
        assert_allclose(again.null.values, kept.null.values, atol=1e-9)


def test_permuted_rows_are_gathered_in_blocks_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a permuted copy of a whole matrix went through memory, and took ten times as long
    for n in (10, 500, 8000, 100_000, 10**7):
        rows = pairings.rows_at_once(n)
        assert rows == 1 or 1 <= rows * n <= pairings.GATHERED
    assert 8 * pairings.GATHERED <= 4 << 20  # bytes, what the cache of a core holds
    X, Y = pairs(43)
    whole = independence_test(X, Y, null="full", rng=0, n_permutations=60)
    monkeypatch.setattr(pairings, "GATHERED", 100)
    again = independence_test(X, Y, null="full", rng=0, n_permutations=60)
    assert again.pvalue == whole.pvalue
    assert_allclose(again.null.values, whole.null.values, atol=1e-9)


def test_discrete_data_have_ties_that_rounding_must_not_break() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, size=(2, 14, 1)).astype(float) * 0.1
    for null in ("permutation", "full"):
        answers = {
            independence_test(x + by, y - by, (Gaussian(0.1), k), null, rng=4).pvalue
            for by in (0.0, 3.3)
            for k in (Gaussian(0.1), Gaussian(0.3))
        }
        # on two values every Gaussian is the delta kernel, up to a factor and a constant
        answers.add(independence_test(x, y, Delta(), null, rng=4).pvalue)
        assert len(answers) == 1, null


def test_float32_agrees_within_monte_carlo_error() -> None:
    X, Y = pairs(100)
    Y = Y[::-1]
    for null in NULLS:
        double = independence_test(X, Y, "median", null, rng=4)
        single = independence_test(
            X.astype(np.float32), Y.astype(np.float32), "median", null, rng=4
        )
        assert abs(single.pvalue - double.pvalue) < 0.005, null


def test_seeds_generators_and_old_states() -> None:
    X, Y = pairs()
    for null in NULLS:
        first, second = (
            independence_test(X, Y, null=null, n_permutations=60, rng=7).pvalue for _ in range(2)
        )
        assert first == second
    generator = independence_test(X, Y, rng=np.random.default_rng(7)).pvalue
    assert generator == independence_test(X, Y, rng=7).pvalue
    old = {independence_test(X, Y, rng=np.random.RandomState(7)).pvalue for _ in range(2)}
    assert len(old) == 1


# --- limits ---------------------------------------------------------------------------------------


def test_gamma_has_the_moments_over_all_permutations() -> None:
    X, Y = pairs(6)
    K, L = grams(X, Y)
    every = [hsic_estimate(K, L, "V", order) for order in permutations(range(6))]
    null = independence_test(X, Y, (Gaussian(0.9), Laplace(0.7)), "gamma").null
    assert_allclose(null.mean, np.mean(every), rtol=1e-11)
    assert_allclose(null.variance, np.var(every), rtol=1e-10)


def test_limits_are_near_the_permutations() -> None:
    for seed in range(8):
        X, Y = pairs(100, seed=seed)
        drawn = independence_test(X, Y, "median", "permutation", estimator="V", rng=0)
        for null in ("gamma", "spectral"):
            found = independence_test(X, Y, "median", null, rng=0).null.quantile(0.95)
            assert abs(found / drawn.null.quantile(0.95) - 1) < 0.15, (seed, null)


# --- level ----------------------------------------------------------------------------------------

RUNS, LEVEL = 300, 0.05
BOUNDS = scipy.stats.binom.ppf([FAILURE / 100, 1 - FAILURE / 100], RUNS, LEVEL)
ONE = {"kernel": "median"}

EXACT: dict[str, dict[str, Any]] = {
    "collection": {},
    "fuse": {"kernel": Collection(combine="fuse")},
    "min-p": {"kernel": Collection(combine="min-p")},
    "bins with a rest": {**ONE, "null": Permutation(9)},
    "full": {**ONE, "null": "full"},
    "V": {**ONE, "estimator": "V"},
    "independent blocks": {**ONE, "null": Block(2)},
    "pairs of rows": {**ONE, "null": Groups(np.arange(20) // 2)},
    "coordinates": {**ONE, "basis": PivotedCholesky()},
    "sequential": {**ONE, "null": Sequential()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_exact_nulls_hold_their_level(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    rejected = 0
    for _ in range(RUNS):
        X, Y = rng.normal(size=(20, 1)), rng.standard_t(3, size=(20, 1))
        rejected += independence_test(X, Y, n_permutations=39, rng=rng, **EXACT[name]).rejects()
    low, high = BOUNDS
    assert low <= rejected <= high


def test_ties_make_it_conservative() -> None:
    rng = np.random.default_rng(0)
    for kernel in ("median", Delta()):
        rejected = 0
        for _ in range(RUNS):
            X, Y = rng.integers(0, 2, size=(2, 20, 1)).astype(float)
            result = independence_test(X, Y, kernel, n_permutations=39, rng=rng)
            rejected += result.rejects()
        assert rejected <= BOUNDS[1], kernel


def autoregressive(rng: np.random.Generator, n: int, phi: float = 0.8) -> np.ndarray:
    noise = rng.normal(size=n + 50)
    return scipy.signal.lfilter([1.0], [1.0, -phi], noise)[50:, None]


def test_blocks_and_wild_signs_for_time_series() -> None:
    # rejections of 40 at 5 %, over four seeds: permutations 11-23, blocks 3-6, wild signs 4-6
    rng = np.random.default_rng(0)
    rejected = dict.fromkeys(("permutation", "block", "wild"), 0)
    nulls = {"permutation": Permutation(), "block": Block(10), "wild": Wild(10)}
    for _ in range(40):
        X, Y = autoregressive(rng, 100), autoregressive(rng, 100)
        for null in rejected:
            result = independence_test(X, Y, "median", nulls[null], 39, rng=rng)
            rejected[null] += result.rejects()
    assert rejected["permutation"] > 9
    assert rejected["block"] < 9
    assert rejected["wild"] < 9


def test_groups_of_rows() -> None:
    # clusters that share what X and what Y are: rows change places only with their cluster
    rng = np.random.default_rng(1)
    of = np.repeat(np.arange(15), 4)
    rejected = {"rows": 0, "groups": 0}
    for _ in range(60):
        X, Y = (rng.normal(size=(15, 1))[of] + 0.2 * rng.normal(size=(60, 1)) for _ in range(2))
        rejected["rows"] += independence_test(X, Y, **ONE, n_permutations=39, rng=rng).rejects()
        rejected["groups"] += independence_test(
            X, Y, **ONE, null=Groups(of), n_permutations=39, rng=rng
        ).rejects()
    assert rejected["rows"] > 15
    assert rejected["groups"] <= scipy.stats.binom.ppf(1 - FAILURE, 60, 0.05)


def test_groups_in_any_order_of_rows() -> None:
    X, Y = pairs(20)
    of = np.arange(20) % 5
    result = independence_test(X, Y, "median", Groups(of), rng=0, n_permutations=9)
    assert_allclose(result.statistic, hsic(X, Y), atol=1e-13)


# --- power and kinds of points --------------------------------------------------------------------


def test_every_null_sees_dependence() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=(100, 1))
    X, Y = np.cos(angle), np.sin(angle)
    assert abs(np.corrcoef(X[:, 0], Y[:, 0])[0, 1]) < 0.2
    for null in NULLS:
        assert independence_test(X, Y, null=null, rng=0).pvalue < 0.05, null


def test_alternatives() -> None:
    X, _ = pairs(60)
    greater, less, both = (
        independence_test(X, X, null=Permutation(alternative=a), rng=0)
        for a in ("greater", "less", "two-sided")
    )
    assert greater.pvalue == 1 / (1 + len(greater.null))
    assert less.pvalue == 1.0
    assert both.pvalue == 2 * greater.pvalue


def turned(angles: np.ndarray) -> np.ndarray:
    c, s, zero, one = np.cos(angles), np.sin(angles), 0 * angles, 1 + 0 * angles
    return np.moveaxis(np.array([[c, -s, zero], [s, c, zero], [zero, zero, one]]), -1, 0)


def domains() -> dict[str, tuple[Any, Any]]:
    """Points of every kind that show whether a row is in the first or the second half."""
    rng = np.random.default_rng(0)
    half = np.repeat([0, 1], 15)
    words = ["".join(rng.choice(list(("aab", "abb")[h]), 8)) for h in half]
    graphs = [nx.gnp_random_graph(8, 0.3 + 0.4 * h, seed=i) for i, h in enumerate(half)]
    series = [rng.normal(size=(rng.integers(5, 9), 1)) + 2 * h for h in half]
    number = rng.normal(size=30) + 2 * half
    frame = pd.DataFrame({"size": number, "kind": np.where(half, "u", rng.choice(["u", "v"], 30))})
    return {
        "labels": (np.where(half, "yes", "no"), None),
        "strings": (words, NGrams(2)),
        "graphs": (graphs, WeisfeilerLehman(label=None)),
        "rotations": (turned(0.5 * rng.normal(size=30) + 2 * half), Chordal()),
        "matrices": (turned(0.5 * rng.normal(size=30) + 2 * half), None),
        "mixed frames": (frame, None),
        "series": (series, GlobalAlignment()),
        "bags": (series, Expected(Gaussian())),
        "pairs": ((number[:, None], np.where(half, "yes", "no")), None),
    }


@pytest.mark.parametrize("name", domains())
def test_points_of_every_kind(name: str) -> None:
    points, kernel = domains()[name]
    rng = np.random.default_rng(1)
    Y = np.repeat([0.0, 2.0], 15)[:, None] + rng.normal(size=(30, 1))
    for null in ("wild", "gamma", "spectral"):
        assert independence_test(points, Y, (kernel, None), null, rng=0).pvalue < 0.05, null
    result = independence_test(Y, points, (None, kernel), rng=0)
    assert result.pvalue < 0.05
    if not isinstance(points, tuple):
        assert np.shape(result.witness(Y[:3], points[:3])) == (3,)


def test_tensors_in() -> None:
    torch = require("torch")
    X, Y = pairs()
    ours = independence_test(X, Y, rng=0, n_permutations=60)
    theirs = independence_test(torch.tensor(X), torch.tensor(Y), rng=0, n_permutations=60)
    assert theirs.pvalue == ours.pvalue


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = pairs()
    independence_test(X, Y, rng=0, n_permutations=9)
    assert capsys.readouterr() == ("", "")
    independence_test(X, Y, null=Permutation(progress=True), rng=0, n_permutations=9)
    assert "Gram" in capsys.readouterr().err


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_permutations": 0}, "n_permutations must be a whole number ≥ 1, got 0"),
        ({"null": "normal"}, "null must be one of 'permutation'"),
        ({"null": WildGroups(np.arange(24))}, r"an object of Permutation, .*; got WildGroups\("),
        ({"null": Sequential(Permutation(9))}, r"Sequential: null must be .*got Permutation\("),
        ({"estimator": "normalized"}, "estimator must be one of 'U', 'V'"),
        ({"estimator": "linear"}, "estimator must be one of 'U', 'V'"),
        ({"kernel": ("best", None)}, "the words are 'median'"),
        ({"kernel": (None, [])}, "got an empty list"),
        ({"kernel": (None,) * 3}, r"kernel: expected one, or a tuple \(x, y\), got 3"),
        ({"kernel": ("optimized", None)}, 'kernel="optimized" is for two samples'),
        ({"kernel": (None, "optimized")}, 'kernel="optimized" is for two samples'),
        ({"kernel": (Collection(), Collection(combine="fuse"))}, "say 'fuse' and 'soft'"),
        ({"kernel": ([Gaussian(), Laplace()], None), "null": "gamma"}, "2 kernels were given"),
        ({"kernel": (None, [Gaussian(), Laplace()]), "null": "wild"}, "2 kernels were given"),
        ({"kernel": (None, "collection"), "null": "spectral"}, "takes one"),
        ({"kernel": [Gaussian(), Laplace()], "basis": PivotedCholesky()}, "2 kernels were"),
        ({"kernel": [Gaussian(), Laplace()], "null": Sequential()}, "2 kernels were given"),
        ({"basis": PivotedCholesky(), "null": "block"}, "basis= goes with permutations and limits"),
        ({"basis": PivotedCholesky(), "null": "wild"}, "basis= goes with permutations and limits"),
        ({"basis": (None,) * 3}, r"basis: expected one, or a tuple \(x, y\), got 3"),
        ({"basis": PivotedCholesky(), "null": Groups(np.arange(24) // 2)}, "basis= goes with"),
        ({"basis": PivotedCholesky(), "null": Permutation(9)}, "null must be one of"),
        ({"null": Block(13)}, "leaves fewer than two blocks in a series of 24"),
        ({"null": Wild(100)}, "leaves fewer than two blocks in a series of 24"),
        ({"null": Groups(np.arange(23))}, "groups: expected 24 labels, one per row"),
        ({"null": Groups(np.zeros(24))}, "two or more of one size; got 1 with 24 to 24 rows"),
        ({"null": Groups(np.arange(24) < 10)}, "of one size; got 2 with 10 to 14 rows"),
        ({"rng": "seed"}, "rng"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        independence_test(*pairs(), **arguments)


def test_bad_samples() -> None:
    X, Y = pairs()
    with pytest.raises(ValueError, match="X has 24, Y has 23"):
        independence_test(X, Y[:23])
    with pytest.raises(ValueError, match="X and Y: expected at least 4 points, got 3"):
        independence_test(X[:3], Y[:3])
    with pytest.raises(ValueError, match="X and Y: expected at least 2 points, got 1"):
        independence_test(X[:1], Y[:1], estimator="V")
    with pytest.raises(ValueError, match="Y contains NaN"):
        independence_test(X, Y * np.nan)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", [None, "median", Linear(), Energy()], ids=str)
@pytest.mark.parametrize("null", NULLS)
def test_a_constant_is_independent_of_everything(null: str, kernel: Any, dtype: Any) -> None:
    _, Y = pairs()
    constant = np.full((24, 1), 0.1, dtype=dtype)
    Y = Y.astype(dtype)
    assert independence_test(constant, Y, kernel, null, 60, rng=0).pvalue == 1.0
    assert independence_test(Y, constant, kernel, null, 60, rng=0).pvalue == 1.0
    assert independence_test(constant, constant, kernel, null, 60, rng=0).pvalue == 1.0


def test_two_blocks_have_two_arrangements() -> None:
    X, _ = pairs(24)
    result = independence_test(X, X, "median", Block(12), 19, rng=0)
    assert result.pvalue >= 0.25  # half of the draws are the observed arrangement


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("null", ["permutation", "full", "block", "wild", "gamma", "spectral"])
def test_a_few_rows_have_a_finite_answer_or_an_error(null: str, estimator: str, n: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, n, 1))
    try:
        found = independence_test(x, y, "median", null, estimator=estimator, rng=0)
    except ValueError as error:
        assert f"got {n}" in str(error) or "fewer than two blocks" in str(error)
        assert n < 4
        return
    assert np.isfinite(found.statistic) and 0 < found.pvalue <= 1
    asked = "V" if null in ("gamma", "spectral") else estimator
    assert f"{asked} estimate" in found.method
    assert found.statistic == pytest.approx(hsic(x, y, estimator=asked), abs=1e-15)


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_wild_signs_report_the_estimate_that_was_asked_for(estimator: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 1))
    y = x + rng.normal(size=(50, 1))
    found = independence_test(x, y, "median", "wild", estimator=estimator, rng=0)
    assert f"{estimator} estimate" in found.method
    assert found.statistic == pytest.approx(hsic(x, y, estimator=estimator))
    other = independence_test(x, y, "median", "wild", rng=0)
    assert found.pvalue == other.pvalue
