"""What the default two-sample test compares, against the definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from meanmap import two_sample_test
from meanmap.comparison import contrasts
from meanmap.comparison.contrasts import Contrasts, NormalScores, contrast_weights
from meanmap.kernels import Gaussian


def features(found: Contrasts | None) -> dict[str, np.ndarray]:
    assert found is not None
    n = len(found.points)
    out = {name: np.empty((n, r)) for name, r in zip(found.kinds, found.ranks, strict=True)}

    def work(thread: int, block: slice, parts: list[np.ndarray]) -> None:
        for name, part in zip(found.kinds, parts, strict=True):
            out[name][block] = part

    found.for_each_block(work)
    return out


def local_gaussian(X: np.ndarray, share: float) -> np.ndarray:
    """Gibbs' kernel, pair by pair, with the distance to the neighbour of that rank as width."""
    n, d = X.shape
    D = np.array([[np.sum((a - b) ** 2) for b in X] for a in X])
    widths = [np.sort(row)[min(max(round(share * n), 1), n - 1)] for row in D]
    K = np.empty((n, n))
    for i, s in enumerate(widths):
        for j, t in enumerate(widths):
            height = (2 * np.sqrt(s) * np.sqrt(t) / (s + t)) ** (d / 2)
            K[i, j] = height * np.exp(-D[i, j] / (s + t))
    return K


def whitened_square(K: np.ndarray, a: np.ndarray, share: float) -> float:
    """Σ aᵢ k(xᵢ, ·) in the inner product with (C + λI)⁻¹, by the spectrum of C on the points."""
    n = len(K)
    centring = np.eye(n) - 1 / n
    s, U = np.linalg.eigh(centring @ K @ centring / n)
    s = np.maximum(s, 0)
    return float(np.sum(n * s / (s + share * s.sum()) * (U.T @ a) ** 2))


def test_contrasts_are_their_definitions() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) @ np.array([[3.0, 1.0], [0.0, 0.2]])
    kernel = Gaussian("scaled median").resolve(X)
    found = Contrasts.of(kernel, X, rng)
    assert found is not None
    psi = features(found)
    columns = [f"{what} in column {j}" for what in ("location", "spread") for j in range(2)]
    assert found.names == ("location", "spread", *columns, "shape", "detail", "local", "near")
    assert_allclose(found.weights[2:4] * 2, contrast_weights(80, 2)["location in"])
    scores = stats.norm.ppf(stats.rankdata(X, axis=0) / 81)
    C = np.cov(scores.T, bias=True)
    lengths = [z @ np.linalg.inv(C + 0.02 * np.trace(C) * np.eye(2)) @ z for z in scores]
    Z = X / np.asarray(kernel.bandwidth)
    narrow = kernel.rescaled(0.125)
    grams = {
        "shape": kernel(X),
        "detail": narrow(X),
        "local": local_gaussian(Z, 0.2),
        "near": local_gaussian(Z, 0.02),
    }
    for _ in range(3):
        a = rng.normal(size=80)
        a -= a.mean()
        lift = np.linalg.inv(C + 0.1 * np.trace(C) * np.eye(2))
        expected = {
            "location": a @ scores @ lift @ scores.T @ a,
            "spread": (a @ lengths) ** 2 / np.var(lengths),
            **{name: whitened_square(K, a, contrasts.RIDGES[name]) for name, K in grams.items()},
        }
        for name, value in expected.items():
            assert_allclose(np.sum((a @ psi[name]) ** 2), value, rtol=1e-5, err_msg=name)
        for name, values in (("location in", scores), ("spread in", scores**2)):
            assert_allclose((a @ psi[name]) ** 2, (a @ values) ** 2 / values.var(axis=0))


def test_blocks_of_many_points_say_what_all_at_once_say(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    kernel = Gaussian("scaled median").resolve(X)
    monkeypatch.setattr(contrasts, "FITTED", 400)
    whole = features(Contrasts.of(kernel, X, np.random.default_rng(2)))
    monkeypatch.setattr(contrasts, "BLOCK", 70)
    parts = features(Contrasts.of(kernel, X, np.random.default_rng(2)))
    for name, psi in whole.items():
        assert_allclose(parts[name], psi, atol=1e-9)


@pytest.mark.parametrize("n", [4, 100, 1000, 10**6])
def test_weights_are_one_in_total(n: int) -> None:
    weights = contrast_weights(n, 3)
    assert_allclose(sum(weights.values()), 1.0)
    assert min(weights.values()) > 0


def test_tied_points_have_one_score() -> None:
    column = np.array([[3.0], [1.0], [1.0], [2.0]])
    expected = stats.norm.ppf(stats.rankdata(column[:, 0]) / 5)
    assert_allclose(NormalScores(column)(column)[:, 0], expected)


def rejection(draw: object, runs: int = 40, **options: object) -> int:
    return sum(
        two_sample_test(*draw(np.random.default_rng(seed)), rng=seed, n_permutations=199).pvalue  # type: ignore[operator]
        <= 0.05
        for seed in range(runs)
    )


def clusters(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Four Gaussians far apart, of which one changes its spread."""
    parts = []
    for spread in (1.0, 2.0):
        which = rng.integers(4, size=400)
        centres = 20 * np.stack([which % 2, which // 2], axis=1)
        spreads = np.where(which == 0, spread, 1.0)[:, None]
        parts.append(centres + spreads * rng.normal(size=(400, 2)))
    return parts[0], parts[1]


def test_one_of_several_clusters_may_change() -> None:
    """A Gaussian at the median distance sees nothing there: 40 of 40 are seen, 3 would be enough
    to exceed the level (with chance 5% each, more than 15 come less than once in 10¹⁰)."""
    assert rejection(clusters) > 15


def test_units_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(70, 3)) + [0.3, 0, 0]
    first = two_sample_test(X, Y, rng=0)
    units = np.array([1e-6, 1.0, 1e9])
    moved = two_sample_test(X * units + units, Y * units + units, rng=0)
    assert_allclose(moved.statistic, first.statistic, rtol=1e-4)
    assert abs(moved.pvalue - first.pvalue) < 0.01


@pytest.mark.parametrize(
    "X",
    [
        np.ones((20, 2)),
        np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0),
        np.stack([np.arange(20.0), np.ones(20)], axis=1),
        np.array([[0.0], [1.0]]),
        np.r_[np.zeros(19), 1e9][:, None],
    ],
    ids=["equal", "two points", "one constant column", "n = 2", "one far away"],
)
def test_degenerate_samples(X: np.ndarray) -> None:
    result = two_sample_test(X, X, rng=0, n_permutations=99)
    assert np.isfinite(result.statistic) and 0 < result.pvalue <= 1
    assert result.pvalue > 0.05


def test_ranks_do_not_care_about_outliers() -> None:
    """Student's test with one wild value sees nothing; the default does."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X, Y = rng.normal(size=(60, 1)), rng.normal(1.0, 1.0, size=(60, 1))
        X[0] = 1e6
        return X, Y

    assert rejection(draw) > 30


def test_the_strongest_contrast_is_named() -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(200, 1))
    result = two_sample_test(X, 3 * rng.normal(size=(200, 1)), rng=0)
    assert "6 contrasts combined (soft), the strongest that of spread" in result.method
    result = two_sample_test(X, 2 + rng.normal(size=(200, 1)), rng=0)
    assert "the strongest that of location" in result.method


def test_a_change_of_one_column_among_many() -> None:
    """One of forty columns spreads twice as far: all others together hide it."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X, Y = rng.normal(size=(2, 100, 40))
        Y[:, 7] *= 2
        return X, Y

    assert rejection(draw, 20) > 15
    X, Y = draw(np.random.default_rng(0))
    assert "the strongest that of spread in column 7" in two_sample_test(X, Y, rng=0).method


def test_tables_of_numbers_and_labels() -> None:
    """A label among the columns leaves the contrasts of the others as they are."""
    rng = np.random.default_rng(3)

    def table(spread: float) -> pd.DataFrame:
        speed = spread * rng.choice([-1, 1], 150) + np.sqrt(1 - spread**2) * rng.normal(size=150)
        return pd.DataFrame({"speed": speed, "line": rng.choice(["a", "b"], 150)})

    result = two_sample_test(table(0.0), table(0.95), rng=0)
    assert result.pvalue <= 0.01
    assert "8 contrasts combined" in result.method
    moved = two_sample_test(table(0.0), table(0.0).assign(line="a"), rng=0)
    assert moved.pvalue == 0.001
    assert np.isfinite(moved.witness(table(0.5))).all()


def test_the_level_of_tables() -> None:
    """100 pairs of like tables: more than 19 at 5% come less than once in 10⁶."""
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        frames = [
            pd.DataFrame({"x": rng.normal(size=30), "c": rng.choice(list("abc"), 30)})
            for _ in range(2)
        ]
        rejected += two_sample_test(*frames, rng=seed, n_permutations=99).pvalue <= 0.05
    assert rejected <= 19
