"""The operator of a process against dense formulas, and processes whose spectrum is known."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap import DataWarning
from meanmap.dynamics import TransferOperator
from meanmap.kernels import Delta, Gaussian
from meanmap.spaces import PivotedCholesky, Space
from oracles.transfer import transfer_eigenvalues, vamp_score


@cache
def autoregression(n: int = 3000, a: float = 0.8, seed: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise, x = rng.normal(size=n), np.zeros(n)
    for t in range(1, n):
        x[t] = a * x[t - 1] + np.sqrt(1 - a * a) * noise[t]
    return x[:, None]


@cache
def rotation(n: int = 600, seed: int = 0) -> np.ndarray:
    """A noisy turn by 0.5 a step: E[exp(iθ')|θ] = exp(0.5i - 0.02) exp(iθ)."""
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.5 + 0.2 * rng.normal(size=n))
    return np.column_stack([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("method", ["reduced-rank", "principal", "ridge"])
def test_eigenvalues_are_those_of_dense_formulas(method: str) -> None:
    x = autoregression()[:120]
    kernel, lam, rank = Gaussian(1.0), 1e-3, 5
    model = TransferOperator(
        kernel, method, rank=rank, regularization=lam, reversible=False, basis=PivotedCholesky(0)
    ).fit(x)
    expected = transfer_eigenvalues(kernel, x[:-1], x[1:], method, rank, lam)[:rank]
    assert_allclose(abs(model.eigenvalues_), abs(expected), atol=1e-7)
    assert model.eigenvalues_[0] == 1.0


def test_eigenfunctions_are_those_of_the_fitted_operator() -> None:
    """E[f(y)|x], regressed on the eigenfunctions at x, is λf."""
    x = rotation()
    model = TransferOperator(Gaussian(1.0), rank=5, regularization=1e-4, reversible=False).fit(x)
    f = model.eigenfunctions(x)
    K = np.linalg.lstsq(f[:-1], f[1:], rcond=None)[0]
    assert_allclose(K, np.diag(model.eigenvalues_), atol=1e-8)
    assert_allclose((abs(f[:-1]) ** 2).mean(axis=0), 1.0, atol=1e-8)
    assert_allclose(f[:, 0], 1.0)


def test_the_spectrum_of_an_autoregression_is_known() -> None:
    """Eigenvalues aᵏ, eigenfunctions the Hermite polynomials, timescales -1/(k log a)."""
    model = TransferOperator().fit(autoregression())
    assert_allclose(model.eigenvalues_[:2], [1.0, 0.8], atol=0.08)
    assert_allclose(model.eigenvalues_[2], 0.64, atol=0.2)
    assert model.timescales(0.5)[0] == np.inf
    assert_allclose(model.timescales(0.5)[1], -0.5 / np.log(0.8), rtol=0.4)
    at = np.linspace(-1.5, 1.5, 31)[:, None]
    assert abs(np.corrcoef(model.eigenfunctions(at)[:, 1], at[:, 0])[0, 1]) > 0.97
    assert model.eigenvalues_.dtype.kind == "f" or not model.reversible_
    assert model.plot() is not None


def test_a_rotation_is_not_reversible_and_turns() -> None:
    model = TransferOperator().fit(rotation())
    assert not model.reversible_
    expected = np.exp(-0.02) * np.array([1, 1])
    assert_allclose(abs(model.eigenvalues_[1:3]), expected, atol=0.03)
    assert_allclose(abs(np.angle(model.eigenvalues_[1:3])), 0.5, atol=0.06)
    ahead = model.predict(rotation()[:50], steps=3)
    assert_allclose(ahead, rotation_ahead(rotation()[:50], 3), atol=0.15)


def rotation_ahead(x: np.ndarray, steps: int) -> np.ndarray:
    z = (x[:, 0] + 1j * x[:, 1]) * np.exp(steps * (0.5j - 0.02))
    return np.column_stack([z.real, z.imag])


def test_labels_give_the_eigenvalues_of_their_table() -> None:
    rng = np.random.default_rng(3)
    P = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
    s = [0]
    for _ in range(500):
        s.append(int(rng.choice(3, p=P[s[-1]])))
    states = np.array(["a", "b", "c"])[s]
    counts = np.zeros((3, 3))
    np.add.at(counts, (s[:-1], s[1:]), 1)
    exact = np.sort(abs(np.linalg.eigvals(counts / counts.sum(axis=1, keepdims=True))))[::-1]
    for method in ("ridge", "reduced-rank"):
        options: dict[str, Any] = {"regularization": 0, "reversible": False, "method": method}
        model = TransferOperator(Delta(), rank=3, **options).fit(states)
        assert_allclose(abs(model.eigenvalues_), exact, atol=1e-9)
    assert model.modes_ is None
    with pytest.raises(TypeError, match="not vectors"):
        model.predict(states[:2])


def test_modes_and_powers_predict_alike() -> None:
    x = rotation()
    model = TransferOperator(Gaussian(1.0), rank=7, regularization=1e-4).fit(x)
    f = model.eigenfunctions(x[:5])
    for steps in (1, 4):
        modal = (f * model.eigenvalues_**steps) @ model.modes_
        assert_allclose(model.predict(x[:5], steps), modal.real, atol=1e-6)
    path = model.forecast(x[:5], 4)
    assert path.shape == (4, 2)
    assert_allclose(path[3], model.predict(x[4:5], 4)[0])
    assert_allclose(model.forecast([x[:5], x[:9]], 4)[0], path)


def test_chunks_lists_and_pairs_are_one_record() -> None:
    x = autoregression()
    space = Space(Gaussian(1.0), PivotedCholesky(1e-10)).fit(x)
    options: dict[str, Any] = {"rank": 4, "regularization": 1e-4, "reversible": True, "lag": 3}
    whole = TransferOperator(basis=space, **options).fit(x)
    stream = TransferOperator(basis=space, **options)
    for start in range(0, len(x), 700):
        stream.partial_fit(x[start : start + 700], continued=True)
    pairs = TransferOperator(basis=space, **{**options, "lag": 1}).fit(x[:-3], x[3:])
    halves = TransferOperator(basis=space, **options).fit([x[:1500], x[1497:]])
    assert whole.n_transitions_ == stream.n_transitions_ == pairs.n_transitions_ == 2997
    for other in (stream, pairs, halves):
        assert_allclose(other.eigenvalues_, whole.eigenvalues_, atol=1e-9)
        assert_allclose(other.predict(x[:3]), whole.predict(x[:3]), atol=1e-8)
    apart = TransferOperator(basis=space, **options).partial_fit(x[:700]).partial_fit(x[700:])
    assert apart.n_transitions_ == 2994


def test_the_score_is_that_of_the_density_ratio() -> None:
    """2 E[h(x, y)] - E E[h(x, y')²] with h from features of all rows."""
    x, new = rotation()[:300], rotation(200, 5)
    model = TransferOperator(Gaussian(1.0), rank=5, regularization=1e-2, reversible=False).fit(x)
    psi, at = model.space_.transform(x), model.space_.transform(new)
    a, b = psi[:-1] - psi[:-1].mean(axis=0), psi[1:] - psi[1:].mean(axis=0)
    n, eye = len(a), np.eye(psi.shape[1])
    s, V = np.linalg.eigh(a.T @ a / n + 1e-2 * eye)
    W = (V / np.sqrt(s)) @ np.linalg.svd((V / np.sqrt(s)).T @ a.T @ b / n)[0][:, :4]
    L = np.linalg.solve(b.T @ b / n + 1e-2 * eye, b.T @ a / n @ W)
    h = 1 + ((at[:-1] - psi[:-1].mean(axis=0)) @ W) @ ((at[1:] - psi[1:].mean(axis=0)) @ L).T
    assert_allclose(model.score(new), vamp_score(h.diagonal(), h), rtol=1e-6)


def test_bounds_cover_the_truth() -> None:
    """The 99.9% bound of each of the two leading eigenvalues, in 20 records."""
    inside = []
    for seed in range(20):
        x = autoregression(1500, 0.8, 100 + seed)
        options: dict[str, Any] = {"rank": 4, "regularization": 1e-3, "reversible": True}
        model = TransferOperator(Gaussian(2.0), **options).fit(x)
        inside.append(abs(model.eigenvalues_[1] - 0.8) <= model.bounds(0.999)[1])
    assert np.mean(inside) > 0.7
    assert model.bounds(0.5)[1] < model.bounds(0.9)[1] and model.bounds()[0] == 0
    assert (model.residuals_ >= 0).all() and model.residuals_.shape == model.eigenvalues_.shape


def test_few_transitions_are_enough() -> None:
    model = TransferOperator().fit(rotation()[:3])
    assert model.n_transitions_ == 2 and np.isnan(model.score_)
    assert np.isfinite(model.predict(rotation()[:2])).all()


def test_far_states_warn() -> None:
    model = TransferOperator(Gaussian(1.0)).fit(autoregression()[:200])
    with pytest.warns(DataWarning, match="1 of 1 states are far"):
        model.eigenfunctions([[80.0]])


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"method": "lasso"}, autoregression()[:50], "method must be one of"),
        ({"rank": 1}, autoregression()[:50], "rank must be a whole number ≥ 2"),
        ({"reversible": "yes"}, autoregression()[:50], "reversible must be one of"),
        ({"regularization": -1}, autoregression()[:50], "regularization"),
        ({"lag": 50}, autoregression()[:50], "transitions over lag=50"),
        ({}, np.ones((50, 1)), "all states are the same"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], data: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransferOperator(**options).fit(data)
