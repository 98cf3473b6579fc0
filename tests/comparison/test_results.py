"""What a test returns: SciPy's conventions, words, pictures, files, witnesses."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from meanmap import independence_test, joint_independence_test, load, save, two_sample_test
from meanmap.comparison.results import Draws, GammaNull, NormalNull, TestResult, show_pvalue
from meanmap.kernels import Expected, Gaussian, GlobalAlignment, NGrams, WeisfeilerLehman
from meanmap.statistics.tiles import memory_limit
from oracles.kernels import gaussian
from oracles.statistics import hsic


def samples(d: int = 1, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d)) + 1


def results() -> dict[str, TestResult]:
    X, Y = samples()
    settings: dict[str, Any] = {"rng": 0, "n_permutations": 39}
    return {
        "two samples": two_sample_test(X, Y, **settings),
        "block": two_sample_test(X, Y, null="block", **settings),
        "gamma": two_sample_test(X, Y, null="gamma"),
        "spectral": two_sample_test(X, Y, null="spectral", **settings),
        "linear": two_sample_test(X, Y, estimator="linear"),
        "sequential": two_sample_test(X, Y - 1, "median", "sequential", rng=0),
        "labels": two_sample_test(list("aabb"), list("abbb"), **settings),
        "independence": independence_test(X, X**2, **settings),
        "dependence gamma": independence_test(X, X**2, null="gamma"),
        "joint": joint_independence_test(X, Y, X + Y, **settings),
    }


RESULTS = results()
every = pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS.keys())


# --- nulls ----------------------------------------------------------------------------------------


def test_draws_count_the_observed_statistic() -> None:
    null = Draws("permutation", np.array([0.1, 0.2, 0.3, 0.4]))
    assert null.pvalue(0.3) == 3 / 5
    assert null.pvalue(0.5) == 1 / 5
    assert null.pvalue(0.0) == 1.0
    assert null.pvalue(0.3, "less") == 4 / 5
    assert null.pvalue(0.4, "two-sided") == 4 / 5
    assert null.pvalue(0.25, "two-sided") == 1.0
    assert len(null) == 4
    assert null.quantile(0.5) == pytest.approx(0.25)
    assert null.density(0.1) is None
    assert repr(null) == "Draws('permutation', 4 values)"
    assert np.asarray(null, dtype=np.float32).dtype == np.float32


def test_draws_that_differ_by_rounding_are_ties() -> None:
    values = np.array([0.3 - 1e-12, 0.3 + 1e-12, 0.3 - 1e-7])
    assert Draws("permutation", values).pvalue(0.3) == 3 / 4
    # near zero it is the size of the sums that counts
    assert Draws("permutation", np.array([-1e-17, 1e-17]), scale=1.0).pvalue(0.0) == 1.0
    assert Draws("permutation", np.array([-1e-17, 1e-17])).pvalue(2e-17) == 1 / 3


def test_draws_that_stopped() -> None:
    null = Draws("permutation", np.array([0.1, 0.5, 0.6]), stopped=True)
    assert null.pvalue(0.4) == 2 / 3


@pytest.mark.parametrize(
    ("null", "law"),
    [
        (GammaNull("gamma", 2.0, 0.5), scipy.stats.gamma(8, scale=0.25)),
        (NormalNull("normal", 2.0, 0.25), scipy.stats.norm(2, 0.5)),
    ],
)
def test_limits_are_scipys(null: Any, law: Any) -> None:
    assert_allclose(null.pvalue(3.0), law.sf(3.0), rtol=1e-12)
    assert_allclose(null.pvalue(3.0, "less"), law.cdf(3.0), rtol=1e-12)
    assert_allclose(null.pvalue(3.0, "two-sided"), 2 * law.sf(3.0), rtol=1e-12)
    assert_allclose(null.quantile([0.1, 0.9]), law.ppf([0.1, 0.9]))
    assert_allclose(null.density(1.7), law.pdf(1.7))


def test_limits_without_spread() -> None:
    for null in (GammaNull("gamma", 1.0, 0.0), NormalNull("normal", 0.0, 0.0)):
        assert null.pvalue(null.mean) == 1.0


# --- SciPy's conventions --------------------------------------------------------------------------


@every
def test_unpacks_and_indexes(result: TestResult) -> None:
    statistic, pvalue = result
    assert (statistic, pvalue) == (result.statistic, result.pvalue)
    assert result[0] == statistic and result[1] == result[-1] == pvalue
    assert result[:] == (statistic, pvalue)
    assert len(result) == 2
    assert type(result.statistic) is float and type(result.pvalue) is float
    assert 0 < result.pvalue <= 1
    with pytest.raises(IndexError):
        result[2]
    with pytest.raises(FrozenInstanceError):
        result.pvalue = 0.0


@every
def test_the_null_gives_the_pvalue(result: TestResult) -> None:
    assert result.null.pvalue(result.statistic) == result.pvalue


def test_rejects() -> None:
    result = RESULTS["two samples"]
    assert result.pvalue == 1 / 40
    assert result.rejects() and result.rejects(1 / 40) and not result.rejects(0.02)
    for level in (0, 1, -0.1, 1.5, 5):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            result.rejects(level)
    for level in ("5%", None, np.nan):
        with pytest.raises(TypeError, match="level must be a finite number"):
            result.rejects(level)


# --- words ----------------------------------------------------------------------------------------


@every
def test_a_paragraph(result: TestResult) -> None:
    lines = repr(result).split("\n")
    assert all(len(line) <= 79 or " " not in line for line in lines)
    text = " ".join(lines)
    assert "  " not in text
    assert text.startswith(result.method)
    assert text.endswith(".")
    assert f"p-value {show_pvalue(result.pvalue)}" in text
    assert "Kernel" in text
    assert 80 < len(text) < 700


def test_the_words() -> None:
    X, Y = samples()
    text = " ".join(repr(two_sample_test(X, Y, "median", rng=0)).split())
    assert "(n = 30, m = 30)" in text
    assert "permutation null (999 draws)" in text
    assert "strong evidence that the two samples come from different distributions" in text
    assert "no evidence" in repr(two_sample_test(X, X + 1e-6, rng=0))
    assert "gamma null" in repr(RESULTS["gamma"])
    assert "Kernels: " in repr(RESULTS["independence"])
    assert "Stopped after" in " ".join(repr(RESULTS["sequential"]).split())


def test_pvalues_to_three_digits() -> None:
    assert [show_pvalue(p) for p in (0.5, 0.1234, 0.0123, 0.001, 1.0)] == [
        "0.50", "0.12", "0.0123", "0.001", "1.00",
    ]  # fmt: skip


# --- witnesses ------------------------------------------------------------------------------------


def test_the_witness_of_two_samples() -> None:
    X, Y = samples()
    result = two_sample_test(X, Y, Gaussian(0.8), rng=0)
    at = np.linspace(-3, 4, 9)[:, None]
    expected = gaussian(at, X, 0.8).mean(axis=1) - gaussian(at, Y, 0.8).mean(axis=1)
    assert_allclose(result.witness(at), expected, atol=1e-13)
    # X lies left of Y
    assert result.witness([[-1.5]])[0] > 0 > result.witness([[2.5]])[0]
    # its mean over X less that over Y is the distance
    gap = result.witness(X).mean() - result.witness(Y).mean()
    assert_allclose(gap, two_sample_test(X, Y, Gaussian(0.8), estimator="V").statistic, atol=1e-12)
    assert np.ndim(result.witness([-1.5])) == 0


def test_the_witness_of_labels() -> None:
    result = two_sample_test(["a"] * 8 + ["b"] * 2, ["a"] * 3 + ["b"] * 7, rng=0)
    assert_allclose(result.witness(["a", "b"]), [0.5, -0.5], atol=1e-14)


def test_the_witness_of_dependence() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    result = independence_test(X, X, Gaussian(0.8), rng=0)
    high, low = [[1.0]], [[-1.0]]
    assert result.witness(high, high)[0] > 0 > result.witness(high, low)[0]
    K, at = gaussian(X, X, 0.8), gaussian(X[:3], X, 0.8)
    expected = (at * at).mean(axis=1) - at.mean(axis=1) ** 2
    assert_allclose(result.witness(X[:3], X[:3]), expected, atol=1e-13)
    # its mean over pairs less that over all combinations is HSIC
    x, y = (v.reshape(-1, 1) for v in np.meshgrid(X, X))
    gap = result.witness(X, X).mean() - result.witness(x, y).mean()
    assert_allclose(gap, hsic(K, K), atol=1e-12)
    assert np.ndim(result.witness([1.0], [1.0])) == 0


def test_bad_points_for_a_witness() -> None:
    result = RESULTS["two samples"]
    with pytest.raises(ValueError, match="2 features"):
        result.witness([[1.0, 2.0]])
    with pytest.raises(TypeError, match="has no witness function"):
        RESULTS["joint"].witness([[1.0]])
    with pytest.raises(TypeError):
        RESULTS["independence"].witness([[1.0]])


# --- pictures -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def closed() -> Any:
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@every
def test_pictures(result: TestResult) -> None:
    panels = result.plot()
    assert 1 <= len(panels) <= 2
    assert panels[0].get_xlabel() == "statistic"
    panels[0].figure.canvas.draw()


def panels_of(result: TestResult) -> int:
    panels = result.plot()
    panels[0].figure.canvas.draw()
    return len(panels)


def test_a_second_panel_where_the_witness_can_be_drawn() -> None:
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {"rng": 0, "n_permutations": 39}
    for d, panels in ((1, 2), (2, 2), (3, 1), (10, 1)):
        assert panels_of(two_sample_test(*samples(d), **settings)) == panels, d
    assert panels_of(two_sample_test(list("aabb"), list("abbb"), **settings)) == 2
    frame = pd.DataFrame({"a": rng.normal(size=30), "c": rng.choice(["u", "v"], 30)})
    assert panels_of(two_sample_test(frame[:15], frame[15:], **settings)) == 1
    X, Y = samples()
    assert panels_of(independence_test(X, Y, **settings)) == 2
    assert panels_of(independence_test(*samples(3), **settings)) == 2
    assert panels_of(independence_test(X, np.where(Y[:, 0] > 1, "u", "v"), **settings)) == 2
    assert panels_of(independence_test(frame, Y, **settings)) == 2


def kinds() -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(rng.integers(3, 7), 1)) for _ in range(16)]
    return {
        "strings": (["ab", "bc", "cc", "abc"] * 4, NGrams(2)),
        "graphs": ([nx.gnp_random_graph(6, 0.5, seed=i) for i in range(16)],
                   WeisfeilerLehman(label=None)),
        "series": (series, GlobalAlignment()),
        "bags": (series, Expected(Gaussian())),
    }  # fmt: skip


@pytest.mark.parametrize("name", kinds())
def test_pictures_of_other_points(name: str) -> None:
    points, kernel = kinds()[name]
    assert panels_of(two_sample_test(points[:8], points[8:], kernel, rng=0)) <= 2
    X, _ = samples(n=16)
    assert panels_of(independence_test(points, X, (kernel, None), n_permutations=39, rng=0)) == 2


@pytest.mark.filterwarnings("error")
def test_pictures_of_constants() -> None:
    X = np.full((10, 1), 0.1)
    for null in ("permutation", "gamma", "spectral"):
        assert panels_of(two_sample_test(X, X, null=null, rng=0)) >= 1, null
        assert panels_of(independence_test(X, X, null=null, rng=0)) >= 1, null
    assert panels_of(two_sample_test(X, X, estimator="linear")) >= 1


def test_given_axes_are_used() -> None:
    result = RESULTS["two samples"]
    figure, axes = plt.subplots(1, 2)
    assert result.plot(axes) == list(axes)
    assert len(axes[1].lines) > 0
    figure, ax = plt.subplots()
    assert result.plot(ax) == [ax]


# --- files ----------------------------------------------------------------------------------------


@every
def test_files(result: TestResult, tmp_path: Path) -> None:
    save(result, tmp_path / "result.npz")
    again = load(tmp_path / "result.npz")
    assert repr(again) == repr(result)
    assert tuple(again) == tuple(result)
    assert again.null.pvalue(again.statistic) == result.pvalue
    if result.explanation is not None and len(result.sizes) == 2 and result.kernel != "labels":
        X = result.explanation.X
        assert_allclose(again.witness(X), result.witness(X), atol=0)


@every
def test_pickle(result: TestResult) -> None:
    again = pickle.loads(pickle.dumps(result))
    assert repr(again) == repr(result)
    assert tuple(again) == tuple(result)


# --- memory ---------------------------------------------------------------------------------------


def test_memory_in_words() -> None:
    assert memory_limit(1000) == 1000
    assert memory_limit("500MB") == 500_000_000
    assert memory_limit(" 1.5 gb ") == 1_500_000_000
    assert memory_limit("2GiB") == 2 << 30
    assert memory_limit(None) > 0
    for bad in (0, -1, "much", "MB", "1.2.3GB", np.nan, np.inf, True, [1]):
        with pytest.raises(ValueError, match="max_memory must be a number of bytes or a text"):
            memory_limit(bad)


@pytest.mark.parametrize("name", list(results()))
def test_explanations_are_words(name: str) -> None:
    explanation = results()[name].explanation
    if explanation is None:
        return
    words = repr(explanation)
    assert words.startswith(type(explanation).__name__) and "array(" not in words
    assert len(words) < 400 and "\n" not in words
    assert words.endswith(".") and "For more: " in words


def test_an_explanation_says_how_large_and_where() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["age", "height"])
    found = two_sample_test(X, X.assign(age=X["age"] + 2), rng=0, n_permutations=39)
    words = repr(found.explanation)
    assert str(found.effect) in words and "By column: age (" in words
    assert ".effect(), .columns()" in words
