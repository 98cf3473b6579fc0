"""Contrasts of residuals: sums written out, moments of their null, level and power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from meanmap import conditional_independence_test
from meanmap.comparison.plain_columns import PlainColumns
from meanmap.comparison.residual_contrasts import BINS, CONTRASTS, Given, ResidualContrasts


def sides(n: int = 60, d: int = 2, seed: int = 0) -> tuple:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    X, Y = (np.sin(Z.sum(axis=1, keepdims=True)) + 0.5 * rng.normal(size=(n, 1)) for _ in "xy")
    given = Given(PlainColumns(Z, ()))
    return given.side(PlainColumns(X, ())), given.side(PlainColumns(Y, ())), given


def test_a_contrast_is_the_squared_length_of_its_sum() -> None:
    x, y, given = sides()
    source = ResidualContrasts(x, y, given, "wild bootstrap")
    assert source.contrasts == list(CONTRASTS)
    for contrast, value in zip(CONTRASTS, source.observed(), strict=True):
        expected = 0.0
        for u, v, w in contrast.terms:
            total = sum(
                np.einsum("a,b,c->abc", x.parts[u][i], y.parts[v][i], given.bends[w][i])
                for i in range(60)
            )
            expected += np.sum(total**2) / 60
        assert value == pytest.approx(expected)


def test_the_null_accounts_for_the_regression() -> None:
    """A contrast is linear in the noise e of X: Σᵢ (S e)ᵢ ⊗ bᵢ = Σᵢ eᵢ ⊗ (Sᵀ b)ᵢ."""
    x, y, given = sides()
    source = ResidualContrasts(x, y, given, "simulated")
    S = x.ridge.residuals(np.eye(60))
    noise, rng = x.noise("line"), np.random.default_rng(0)
    draws = []
    for _ in range(2000):
        redrawn = S @ (rng.normal(size=(60, 1)) * noise)
        draws.append(np.sum((redrawn.T @ y.parts["line"]) ** 2) / 60)
    # both means have standard errors of about √2/√2000 of themselves
    assert source.scales[0] == pytest.approx(np.mean(draws), rel=0.2)


@pytest.mark.parametrize("kind", ["wild bootstrap", "simulated"])
@pytest.mark.parametrize("n", [60, BINS + 500])
def test_draws_have_the_mean_of_the_null(kind: str, n: int) -> None:
    source = ResidualContrasts(*sides(n), kind)
    drawn = source.draw(4000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=1), source.scales, rtol=0.2)
    gamma = source.gamma().null
    weights = source.weights / source.scales
    assert gamma.mean == pytest.approx(source.weights.sum())
    if kind == "simulated":
        assert np.var(weights @ drawn) == pytest.approx(gamma.variance, rel=0.5)


def test_increasing_functions_of_the_columns_change_little() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    X, Y = (np.sin(Z.sum(axis=1, keepdims=True)) + 0.5 * rng.normal(size=(300, 1)) for _ in "xy")
    for dependent in (0.0, 0.5):
        found = conditional_independence_test(X, Y + dependent * X, np.exp(Z), rng=0)
        assert found.rejects(0.01) == bool(dependent)


def null(kind: str, n: int, seed: int) -> tuple:
    """X and Y are the same function of Z, each with noise of its own."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    curve = {
        "waves": np.sin(2 * Z[:, :3]).sum(axis=1),
        "squares": (Z**2).sum(axis=1) / 2,
        "steps": 1.5 * ((Z[:, :2] > -0.5).sum(axis=1)),
        "product": 1.5 * Z[:, 0] * Z[:, 1],
        "scale": Z[:, 0],
    }[kind]
    spread = 0.3 + abs(Z[:, 0]) if kind == "scale" else np.full(n, 0.5)
    X, Y = ((curve + spread * rng.normal(size=n))[:, None] for _ in "xy")
    return X, Y, Z


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["waves", "squares", "steps", "product", "scale"])
def test_the_level_is_held_where_regressions_can_learn(kind: str) -> None:
    runs = 60
    count = sum(
        conditional_independence_test(*null(kind, 200, s), n_permutations=199, rng=s).rejects()
        for s in range(runs)
    )
    assert count <= stats.binom.isf(1e-6, runs, 0.06)


ALTERNATIVES = {
    "rise together for some Z": lambda x, y, z: x * np.cos(2 * z) + y,
    "size": lambda x, y, z: y * (0.3 + abs(x)),
    "one's residual": lambda x, y, z: 0.7 * abs(x) + y,
}


@pytest.mark.parametrize("kind", ALTERNATIVES)
def test_what_stands_out_is_named(kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=(3, 400))
    other = ALTERNATIVES[kind](x, 0.7 * y, z)
    found = conditional_independence_test((z + x)[:, None], (z + other)[:, None], z, rng=0)
    assert found.pvalue == 0.001
    assert found.notes[0].startswith("What stands out") and kind.split("'")[0] in found.notes[0]
