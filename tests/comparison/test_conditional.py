"""Conditional tests against the papers' dense formulas, and what must hold at the edges."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from meanmap import ConditionalEmbedding, embed
from meanmap.comparison import (
    Block,
    ResidualGamma,
    ResidualSigns,
    ResidualSplit,
    counterfactual_effect,
)
from meanmap.comparison.conditional import (
    conditional_independence_test,
    conditional_two_sample_test,
)
from meanmap.comparison.quadratic import Hadamard
from meanmap.comparison.residuals import Ridge, learned_metric
from meanmap.comparison.results import GammaNull
from meanmap.kernels import Columns, Delta, Gaussian, Linear
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from meanmap.statistics.conditional import conditional_mmd, hscic
from oracles.comparison import conditional_mmd as conditional_mmd_oracle
from oracles.comparison import hscic as hscic_oracle
from oracles.comparison import kci, kci_refitted, kci_residual_maker
from oracles.kernels import gaussian
from oracles.statistics import hsic

EXACT = PivotedCholesky(tol=1e-13)
NULLS = ["wild", "gamma", "simulation", "split"]


def sample(n=80, d=1, seed=0, dependence=0.0):
    """X and Y that depend on Z, and on each other given Z as far as asked."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    s = Z.sum(axis=1, keepdims=True) / np.sqrt(d)
    X = s + 0.7 * rng.normal(size=(n, 1))
    Y = np.sin(s) + 0.5 * rng.normal(size=(n, 1)) + dependence * (X - s)
    return X, Y, Z


def two_samples(n=120, seed=0, shift=1.0, difference=0.0):
    """One conditional, unless a difference is asked for, and two marginals of X."""
    rng = np.random.default_rng(seed)
    X1, X2 = rng.normal(size=(n, 1)), rng.normal(size=(n, 1)) + shift
    Y1, Y2 = (np.sin(X) + 0.4 * rng.normal(size=X.shape) for X in (X1, X2))
    return X1, Y1, X2, Y2 + difference


# --- the statistics -------------------------------------------------------------------------------


def grams(*samples, bandwidth=1.0):
    return [gaussian(S, S, bandwidth) for S in samples]


def test_kci_is_that_of_the_paper():
    X, Y, Z = sample()
    kernel, lam = Gaussian(1.0), 1e-2
    Kx, Ky, Kz = grams(X, Y, Z)
    statistic, mean, variance = kci(Kx * Kz, Ky, Kz, lam)
    found = conditional_independence_test(
        X, Y, Z, kernel, ResidualGamma(regularization=lam, refit=False, basis=EXACT)
    )
    np.testing.assert_allclose(found.statistic, statistic, rtol=1e-8)
    np.testing.assert_allclose(found.null.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.null.variance, variance, rtol=1e-8)


@pytest.mark.parametrize("d", [1, 3])
def test_the_refitted_null_is_that_of_dense_matrices(d):
    X, Y, Z = sample(d=d)
    kernel, lam = Gaussian(1.5), 1e-2
    Kx, Ky, Kz = grams(X, Y, Z, bandwidth=1.5)
    M = kci_refitted(Kx * Kz, Ky, Kz, lam) / len(X)
    found = conditional_independence_test(
        X, Y, Z, kernel, ResidualGamma(regularization=lam, basis=EXACT)
    )
    np.testing.assert_allclose(found.null.mean, np.trace(M), rtol=1e-8)
    np.testing.assert_allclose(found.null.variance, 2 * np.sum(M * M), rtol=1e-8)


def test_random_signs_and_normal_numbers_have_the_moments_of_the_form():
    X, Y, Z = sample()
    kernel, draws = Gaussian(1.0), 20_000
    exact = conditional_independence_test(X, Y, Z, kernel, "gamma").null
    for null in ("wild", "simulation"):
        drawn = conditional_independence_test(X, Y, Z, kernel, null, draws, rng=1).null
        np.testing.assert_allclose(np.mean(drawn), exact.mean, rtol=0.03)
        # signs leave the diagonal of the form alone, and vary less
        ratio = np.var(drawn) / exact.variance
        assert 0.9 < ratio < 1.1 if null == "simulation" else 0.1 < ratio < 0.95


@pytest.mark.parametrize("n", [40, 700])
def test_both_ways_to_sum_a_hadamard_form(n):
    rng = np.random.default_rng(0)
    A, B, z = rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=(n, 5))
    M = (A @ A.T) * (B @ B.T)
    form = Hadamard(A, B)
    np.testing.assert_allclose(form.trace, np.trace(M))
    for squares in (form._squares_of_tiles(), form._squares_of_products(), form.squares):
        np.testing.assert_allclose(squares, np.sum(M * M))
    expected = np.einsum("ib,ij,jb->b", z, M, z)
    for values in (form._by_tiles(z), form._by_products(z)):
        np.testing.assert_allclose(values, expected)


def test_conditional_mmd_is_that_of_the_paper():
    X1, Y1, X2, Y2 = two_samples(50, difference=0.3)
    X2, Y2 = X2[:40], Y2[:40]
    at, lam, s = np.linspace(-1, 2, 7)[:, None], 1e-2, 0.8
    g = gaussian
    expected = conditional_mmd_oracle(
        g(X1, X1, s), g(X1, at, s), g(Y1, Y1, s), g(X2, X2, s), g(X2, at, s), g(Y2, Y2, s),
        g(Y1, Y2, s), lam,
    )  # fmt: skip
    k = Gaussian(s)
    found = conditional_mmd(X1, Y1, X2, Y2, at, k, k, lam, EXACT)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert conditional_mmd(X1, Y1, X2, Y2, at[2], k, k, lam, EXACT) == pytest.approx(expected[2])
    everywhere = conditional_mmd(X1, Y1, X2, Y2, np.concatenate([X1, X2]), k, k, lam, EXACT)
    average = conditional_mmd(X1, Y1, X2, Y2, None, k, k, lam, EXACT)
    assert average == pytest.approx(np.mean(everywhere))


def test_hscic_is_that_of_the_paper():
    X, Y, Z = sample(60, dependence=0.5)
    at, lam = np.linspace(-1, 1, 5)[:, None], 1e-2
    k = Gaussian(1.0)
    K, L, G = grams(X, Y, Z)
    expected = hscic_oracle(K, L, G, gaussian(Z, at, 1.0), lam)
    found = hscic(X, Y, Z, at, k, k, k, lam, EXACT)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    assert hscic(X, Y, Z, at[1], k, k, k, lam, EXACT) == pytest.approx(expected[1])
    average = np.mean(hscic_oracle(K, L, G, G, lam))
    assert hscic(X, Y, Z, None, k, k, k, lam, EXACT) == pytest.approx(average)


def test_conditional_tables_have_the_distances_that_one_computes_by_hand():
    # P(y=1|x): 0.5 against 0.5 at "a", 0.25 against 0.75 at "b"; ‖p - q‖² of the two vectors
    X = np.repeat(["a", "b"], [4, 4])
    Y1, Y2 = (np.array(list(text)) for text in ("00110001", "11000111"))
    found = conditional_mmd(X, Y1, X, Y2, np.array(["a", "b"]), Delta(), Delta(), 0.0)
    np.testing.assert_allclose(found, [0, 2 * 0.5**2], atol=1e-12)


# --- reductions -----------------------------------------------------------------------------------


def test_a_constant_z_conditions_on_nothing():
    X, Y, _ = sample()
    k = Gaussian(1.0)
    K, L = grams(X, Y)
    found = conditional_independence_test(
        X, Y, np.zeros((80, 2)), (k, k, None), ResidualGamma(basis=EXACT)
    )
    assert found.statistic == pytest.approx(80 * hsic(K, L), rel=1e-8)
    assert found.rejects()  # they depend on each other through the Z that is hidden here


def test_labels_of_z_split_the_sample():
    rng = np.random.default_rng(0)
    Z = np.array(list("abc"))[rng.integers(0, 3, 150)]
    base = {"a": 0.0, "b": 2.0, "c": -2.0}
    X, Y = (np.array([[base[z]] for z in Z]) + rng.normal(size=(150, 1)) for _ in range(2))
    found = conditional_independence_test(
        X, Y, Z, (Linear(), Linear(), Delta()), ResidualSigns(regularization=0.0)
    )
    # a linear kernel beside labels: Σ over labels of the squared covariance within
    expected = 0.0
    for z in "abc":
        x, y = X[z == Z, 0], Y[z == Z, 0]
        expected += ((x - x.mean()) @ (y - y.mean())) ** 2 / 150
    assert found.statistic == pytest.approx(expected, rel=1e-6)
    assert found.pvalue > 0.05
    assert conditional_independence_test(X, Y, np.full(150, "a"), rng=0).pvalue == 0.001


@pytest.mark.parametrize("which", ["X", "Y"])
@pytest.mark.parametrize("null", NULLS)
def test_a_constant_depends_on_nothing(which, null):
    X, Y, Z = sample()
    given = {"X": X, "Y": Y, "Z": Z, which: np.ones((80, 1))}
    found = conditional_independence_test(**given, null=null, rng=0)
    assert found.pvalue == 1.0
    assert f"{which} is constant" in " ".join(repr(found).split())


def test_what_z_determines_depends_on_nothing_else():
    X, _, Z = sample()
    labels = np.where(Z[:, 0] > 0, "b", "a")
    found = conditional_independence_test(X, labels, labels, null=ResidualSigns(0.0))
    assert found.pvalue == 1.0
    assert "Z determines Y" in " ".join(repr(found).split())


def test_constant_outcomes_are_the_same_everywhere():
    X1, Y1, X2, _ = two_samples(40)
    flat = np.zeros_like(Y1)
    assert conditional_two_sample_test(X1, flat, X2, flat).pvalue == 1.0
    found = counterfactual_effect(X1, flat, X2, flat)
    assert found.pvalue == 1.0
    assert found.mean_effect == pytest.approx([0.0])


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", NULLS)
def test_dependence_given_z_is_found_and_its_absence_is_not(null):
    assert conditional_independence_test(*sample(200), null=null, rng=0).pvalue > 0.05
    found = conditional_independence_test(*sample(200, dependence=1.0), null=null, rng=0)
    assert found.pvalue < 0.01


def test_dependence_whose_sign_changes_with_z_is_found():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(300, 1)), rng.normal(size=(300, 1))
    Y = X * np.sign(Z) + rng.normal(size=(300, 1))
    assert conditional_independence_test(X, Y, Z, rng=0).pvalue == 0.001


def rejections(test, runs):
    return sum(test(seed).pvalue <= 0.05 for seed in range(runs))


@pytest.mark.parametrize("d", [1, 3])
def test_the_level_is_held(d):
    runs = 100 if d == 1 else 50
    allowed = stats.binom.isf(1e-6, runs, 0.05)
    count = rejections(
        lambda seed: conditional_independence_test(
            *sample(60, d, seed), n_permutations=199, rng=seed
        ),
        runs,
    )
    assert count <= allowed


@pytest.mark.slow
def test_a_shift_of_covariates_is_no_difference_of_conditionals():
    runs = 60
    allowed = stats.binom.isf(1e-6, runs, 0.05)
    for test in (conditional_two_sample_test, counterfactual_effect):
        count = rejections(
            lambda s, t=test: t(*two_samples(50, s), n_permutations=199, rng=s), runs
        )
        assert count <= allowed


@pytest.mark.parametrize("null", ["wild", "gamma", "simulation"])
def test_a_difference_of_conditionals_is_found(null):
    samples = two_samples(difference=0.5)
    assert conditional_two_sample_test(*samples, null=null, rng=0).pvalue < 0.01
    assert counterfactual_effect(*samples, null=null, rng=0).pvalue < 0.01


def test_a_metric_finds_the_direction_that_matters():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 4)) * [1, 10, 0.1, 1]
    s = Z @ [1.0, 0.1, 0, 0] / np.sqrt(2)
    metric = learned_metric(Z, np.stack([np.sin(2 * s), np.cos(s)], axis=1))
    along, across = metric.T @ [1.0, 10.0, 0, 0], metric.T @ [1.0, -10.0, 0.1, 1.0]
    assert np.linalg.norm(along) > 5 * np.linalg.norm(across)


def test_a_ridge_predicts_as_a_conditional_embedding_does():
    X, Y, _ = sample()
    model = ConditionalEmbedding(Gaussian(1.0), Linear(), 1e-2, centered=True).fit(X, Y)
    rows = model.sides()[0].coordinates
    ridge = Ridge.of(rows, Y, 1e-2, None)
    np.testing.assert_allclose(ridge.predict(rows, Y), model.predict(X), rtol=1e-6)
    np.testing.assert_allclose(ridge.residuals(Y), Y - model.predict(X), atol=1e-8)
    S = kci_residual_maker(gaussian(X, X, 1.0), 1e-2)
    np.testing.assert_allclose(ridge.kept[:, 0], np.diag(S), rtol=1e-6)
    other, values = rows[:7] * 1.1, np.random.default_rng(0).normal(size=(7, 1))
    back = ridge.returned(other, values)
    assert np.sum(ridge.predict(other, Y) * values) == pytest.approx(np.sum(Y * back))


# --- effects --------------------------------------------------------------------------------------


def test_the_counterfactual_is_the_controls_pushed_to_the_treated():
    X0, Y0, X1, Y1 = two_samples(60, difference=0.5)
    kernel = Gaussian(1.0)
    found = counterfactual_effect(X0, Y0, X1, Y1, kernel, ResidualSigns(1e-2), rng=0)
    control = ConditionalEmbedding(kernel, kernel, 1e-2, centered=True).fit(X0, Y0)
    pushed = control.push(embed(X1, kernel))
    y = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(found.counterfactual(y), pushed(y), atol=1e-5)
    np.testing.assert_allclose(found.witness(y), found.effect(y), atol=1e-10)
    np.testing.assert_allclose(found.witness(y), embed(Y1, kernel)(y) - pushed(y), atol=1e-5)
    assert found.squared_distance == pytest.approx(found.effect.norm() ** 2)
    assert found.mean_effect == pytest.approx([0.5], abs=0.25)
    assert "Mean effect" in " ".join(repr(found).split())
    statistic, pvalue = found
    assert (statistic, pvalue) == (found.statistic, found.pvalue)


def test_results_explain_themselves():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    X, Y, Z = sample(100, dependence=1.0)
    found = conditional_independence_test(X, Y, Z, rng=0)
    assert found.witness([1.0], [1.0], [0.0]) > 0 > found.witness([1.0], [-1.0], [0.0])
    assert found.witness(X[:3], Y[:3], Z[:3]).shape == (3,)
    assert "dependent given Z" in " ".join(repr(found).split())
    assert len(found.plot()) == 2
    X1, Y1, X2, Y2 = two_samples(difference=-1.0)
    found = conditional_two_sample_test(X1, Y1, X2, Y2, rng=0)
    assert found.witness([0.5], [0.5]) > 0 > found.witness([0.5], [-0.6])
    assert len(found.plot()) == 2
    assert len(counterfactual_effect(X1, Y1, X2, Y2, rng=0).plot()) == 2


# --- kinds of points ------------------------------------------------------------------------------


def test_tables_labels_and_bases():
    rng = np.random.default_rng(0)
    n = 200
    table = pd.DataFrame({"age": rng.normal(size=n), "city": rng.choice(["Oslo", "Rome"], n)})
    base = table["age"].to_numpy() + 2 * (table["city"] == "Rome").to_numpy()
    X, Y = (base[:, None] + rng.normal(size=(n, 1)) for _ in range(2))
    labels = np.where(X[:, 0] > 1, "high", "low")
    assert conditional_independence_test(labels, Y, table, rng=0).pvalue > 0.01
    assert conditional_independence_test(X, X[:, 0] > 1, table, rng=0).pvalue == 0.001
    named = Columns({"age": Gaussian(1.0), "city": None})
    assert conditional_independence_test(X, Y, table, (None, None, named), rng=0).pvalue > 0.01
    half = np.arange(n) < n // 2
    split = table[half], Y[half], table[~half], Y[~half]
    assert conditional_two_sample_test(*split, rng=0).pvalue > 0.01
    assert counterfactual_effect(*split, rng=0).pvalue > 0.01
    found = counterfactual_effect(X[half], labels[half], X[~half], labels[~half], rng=0)
    assert found.mean_effect is None
    assert len(found.plot()) == 2


@pytest.mark.parametrize(
    "basis",
    [RandomFourier(50, random_state=0), Nystroem(50, random_state=0), (None, None, EXACT)],
)
def test_small_bases_tell_the_same(basis):
    for dependence in (0.0, 1.0):
        X, Y, Z = sample(300, 2, dependence=dependence)
        found = conditional_independence_test(X, Y, Z, null=ResidualSigns(basis=basis), rng=0)
        assert found.rejects(0.01) == bool(dependence)


def test_repeated_rows_are_no_trouble():
    X, Y, Z = (np.repeat(part[:30], 3, axis=0) for part in sample())
    for null in NULLS:
        assert 0 < conditional_independence_test(X, Y, Z, null=null, rng=0).pvalue <= 1


@pytest.mark.parametrize("null", NULLS)
def test_a_seed_gives_one_answer_on_any_number_of_threads(null):
    X, Y, Z = sample(700, 2, dependence=0.05)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            answers += [conditional_independence_test(X, Y, Z, null=null, rng=5) for _ in range(2)]
    assert len({round(found.pvalue, 9) for found in answers}) == 1
    if null != "gamma":
        other = conditional_independence_test(X, Y, Z, null=null, rng=6).null
        assert not np.array_equal(other.values, answers[0].null.values)


# --- bad input ------------------------------------------------------------------------------------


def test_errors_say_what_to_do():
    X, Y, Z = sample()
    test = conditional_independence_test
    cases = [
        (lambda: test(X[:1], Y[:1], Z[:1]), "at least 5 points, got 1"),
        (lambda: test(X, Y[:-1], Z), "Y has 79"),
        (lambda: test(X, np.where(Y > 2, np.nan, Y) * np.nan, Z), "NaN"),
        (lambda: test(X, Y, Z, null="exact"), "null must be one of"),
        (lambda: test(X, Y, Z, n_permutations=0), "n_permutations must be a whole number"),
        (lambda: ResidualSplit(-1.0), "regularization must be a number"),
        (lambda: ResidualSigns("best"), "regularization must be one of"),
        (
            lambda: test(X, Y, Z, null=ResidualSigns(basis=(None, None))),
            r"tuple \(x, y, z\), got 2",
        ),
        (lambda: hscic(X, Y, Z, basis=(None, None)), r"tuple \(x, y, z\), got 2"),
        (lambda: test(X, Y, Z, (None, None)), r"kernel: .*tuple \(x, y, z\), got 2"),
        (lambda: test(X, Y, Z, null=Block(3)), "ResidualSigns.*ResidualSplit; got Block"),
        (lambda: test(X, Y, Z, rng="seed"), "rng"),
        (lambda: conditional_two_sample_test(X, Y, X[:3], Y[:3]), "at least 5 points, got 3"),
        (lambda: conditional_two_sample_test(X, Y, Z, np.hstack([Y, Y])), "2 features"),
        (
            lambda: conditional_two_sample_test(X, Y, X, Y, null=ResidualSigns(1.0, (None,) * 3)),
            r"tuple \(x, y\), got 3",
        ),
        (lambda: counterfactual_effect(X, Y, np.hstack([X, X]), Y), "2 features"),
        (lambda: counterfactual_effect(X, Y, X, Y, null="split"), "null must be one of"),
        (lambda: conditional_mmd(X, Y, X, Y[:5]), "inconsistent"),
    ]
    for call, words in cases:
        with pytest.raises((ValueError, TypeError), match=words):
            call()
    found = test(X, Y, Z, rng=0)
    for level in (0.0, 1.0, 5):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            found.rejects(level)
    assert isinstance(test(X, Y, Z, null="gamma").null, GammaNull)


def checkerboard(n: int, cells: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X and Y are the same fields of a checkerboard of Z, each with noise of its own."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(size=(n, 2))
    field = np.floor(cells * Z).sum(axis=1, keepdims=True) % 2
    return field + 0.1 * rng.normal(size=(n, 1)), field + 0.1 * rng.normal(size=(n, 1)), Z


@pytest.mark.parametrize("null", ["wild", "split"])
def test_regressions_that_missed_what_neighbours_share_claim_nothing(null: str) -> None:
    X, Y, Z = checkerboard(300, 6, 0)
    with pytest.warns(UserWarning, match="neighbours"):
        result = conditional_independence_test(X, Y, Z, null=null, rng=0)
    assert result.rejects() and not result.learned
    for quality in result.fit_quality.values():
        assert quality.reachable > quality.r2 + 0.05 and quality.missed > 2
    assert "no evidence" in " ".join(repr(result).split()) and "strong evidence" not in " ".join(
        repr(result).split()
    )


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_regressions_that_learned_keep_their_words(shift: float) -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 1))
    X = np.sin(Z) + 0.3 * rng.normal(size=(300, 1)) + shift
    Y = Z**2 / 2 + 0.3 * rng.normal(size=(300, 1)) + X - shift
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = conditional_independence_test(X, Y, Z + shift, rng=0)
    assert result.learned and "strong evidence" in " ".join(repr(result).split())
    truth = 1 - 0.09 / float(np.var(X))
    # in the space of a Gaussian kernel, where large deviations count for less
    assert abs(result.fit_quality["X"].r2 - truth) < 0.15
    assert abs(result.fit_quality["X"].reachable - truth) < 0.15


def test_fit_quality_is_that_of_leaving_one_row_out() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 1))
    X = Z + 0.5 * rng.normal(size=(40, 1))
    Y = rng.normal(size=(40, 1))
    kernel = Linear(), Linear(), Gaussian(1.0)
    result = conditional_independence_test(X, Y, Z, kernel, ResidualSigns(0.01), rng=0)
    K, left = Gaussian(1.0)(Z), []
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        # λ is relative to n rows, and the constant is that of the rows that are left
        H = (
            K
            - K[rest].mean(axis=0)
            - K[:, rest].mean(axis=1)[:, None]
            + K[np.ix_(rest, rest)].mean()
        )
        mean = X[rest].mean()
        weights = np.linalg.solve(H[np.ix_(rest, rest)] + 40 * 0.01 * np.eye(39), X[rest] - mean)
        left.append(float((X[i] - mean - H[i, rest] @ weights)[0]) ** 2)
    expected = 1 - np.mean(left) / X.var()
    assert result.fit_quality["X"].r2 == pytest.approx(expected, abs=0.02)


def test_regressions_on_labels_and_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    Z = rng.choice(["a", "b", "c"], 120)
    X, Y = ((Z == "a")[:, None] + 0.3 * rng.normal(size=(120, 1)) for _ in range(2))
    result = conditional_independence_test(X, Y, Z, rng=0)
    assert result.learned
    assert result.fit_quality["X"].r2 == pytest.approx(result.fit_quality["X"].reachable, abs=0.15)


def test_far_neighbours_cannot_check_the_regressions() -> None:
    rng = np.random.default_rng(0)
    for d, near in ((1, True), (12, False)):
        Z = rng.normal(size=(150, d))
        X = Z[:, :1] + rng.normal(size=(150, 1))
        result = conditional_independence_test(X, X + 0.5 * rng.normal(size=X.shape), Z, rng=0)
        assert result.pvalue == 0.001 and result.checked == near
        assert ("strong evidence" in " ".join(repr(result).split())) == near
        assert any("far apart" in note for note in result.notes) != near
