"""Models of float32 arrays are as good as those of float64 arrays of the same numbers.

Errors are compared with the truth, not answers with each other: in single precision other pivots
may be drawn, and another λ chosen, which is as good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from array_libraries import INSTALLED, host, library
from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Gaussian, Matern
from meanmap.linalg import Spectrum, covariance, sum_squares
from meanmap.spaces import Nystroem, PivotedCholesky, Space

WORSE = 1.05  # times the error in double precision
Sample = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def law(f: Callable[[np.ndarray], np.ndarray], d: int, noise: float, far: float = 0.0) -> Any:
    """Draws of x, of y = f(x) with noise, new x, and f there; x may lie far from the origin."""

    def draw(n: int, seed: int = 0) -> Sample:
        rng = np.random.default_rng(seed)
        X, new = rng.normal(size=(n, d)), rng.normal(size=(500, d))
        Y = f(X)[:, None] + noise * rng.normal(size=(n, 1))
        return X + far, Y, new + far, f(new)[:, None]

    return draw


LAWS = {
    "waves": law(lambda x: np.sin(x[:, 0] + x[:, 1]), 10, 0.1),
    "bumps": law(lambda x: np.exp(-8 * x[:, 0] ** 2) - np.cos(3 * x[:, 0]), 1, 0.05),
    "corner": law(lambda x: np.abs(x[:, 0]) * (x[:, 1] > 0), 2, 0.2),
    "far": law(lambda x: np.tanh(2 * x[:, 0]) + x[:, 1], 3, 0.1, far=20.0),
    "large": law(lambda x: 1e4 * x[:, 0] * x[:, 1], 2, 1e3),
}


def landmarks(n: int) -> tuple[Nystroem, Nystroem]:
    return Nystroem(n, random_state=0), Nystroem(40, random_state=1)


SETTINGS: dict[str, Callable[[], ConditionalEmbedding]] = {
    "default": ConditionalEmbedding,
    "median": lambda: ConditionalEmbedding("median"),
    "given": lambda: ConditionalEmbedding(Gaussian(3.0), Gaussian(1.0), 1e-6),
    "rough": lambda: ConditionalEmbedding(Matern(1.5, 3.0), "median"),
    "centered": lambda: ConditionalEmbedding(Gaussian(3.0), centered=True),
    "landmarks": lambda: ConditionalEmbedding(Gaussian("2*median"), basis=landmarks(150)),
    "landmarks, small λ": lambda: ConditionalEmbedding(
        Gaussian("2*median"), "median", 1e-7, basis=landmarks(150)
    ),
}


def rms(difference: Any) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(difference, dtype=np.float64)))))


def in_single(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float32) for array in arrays]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", LAWS)
def test_means_are_as_good(name: str, setting: str) -> None:
    X, Y, new, truth = LAWS[name](500)
    wide = SETTINGS[setting]().fit(X, Y).predict(new)
    single = SETTINGS[setting]().fit(*in_single(X, Y)).predict(*in_single(new))
    assert single.dtype == np.float32
    assert rms(single - truth) <= WORSE * rms(wide - truth)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["torch"])
def test_many_rows_and_landmarks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates that are not kept, as of a million rows: λ = 1e-6 was raised to 1e-5."""
    from meanmap.conditional import fitting

    monkeypatch.setattr(fitting, "LARGE", 1000)
    X, Y, new, truth = LAWS["waves"](4000)
    errors = {}
    for lam in (1e-6, "auto"):
        for dtype in (np.float64, np.float32):
            for of in ("numpy", *({name} & set(INSTALLED))):
                data = [part.astype(dtype) for part in (X, Y, new)]
                x, y, at = data if of == "numpy" else [library(of).asarray(part) for part in data]
                model = ConditionalEmbedding(Gaussian(4.0), Gaussian(1.0), lam, landmarks(400))
                found = host(model.fit(x, y).predict(at))
                assert found.dtype == dtype
                errors[of, dtype] = rms(found - truth)
                if lam != "auto":
                    assert model.regularization_ == lam
        for of in {of for of, _ in errors}:
            assert errors[of, np.float32] <= WORSE * errors[of, np.float64]


@pytest.mark.filterwarnings("ignore")
def test_batches_are_summed_in_double() -> None:
    X, Y, new, truth = LAWS["waves"](3000)
    errors = []
    for data in ([X, Y, new], in_single(X, Y, new)):
        x, y, at = data
        model = ConditionalEmbedding(Gaussian(4.0), Gaussian(1.0), 1e-6, landmarks(200))
        model.fit(x[:1000], y[:1000])
        for rows in (slice(1000, 2000), slice(2000, 3000)):
            model.partial_fit(x[rows], y[rows])
        found = model.predict(at)
        assert found.dtype == at.dtype
        errors.append(rms(found - truth))
    assert errors[1] <= WORSE * errors[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["nonnegative", "importance", "squared", "reweighted"])
def test_posteriors_are_as_good(method: str) -> None:
    """X ~ N(0, 1) a priori N(1, 1/4), y = x + noise: the posterior mean is known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1))
    Y = X + 0.5 * rng.normal(size=(500, 1))
    prior, y = 1 + 0.5 * rng.normal(size=(500, 1)), np.linspace(0, 2, 9)[:, None]
    truth = (1 + y) / 2  # both have the variance 1/4
    errors = []
    for data in ([X, Y, prior, y], in_single(X, Y, prior, y)):
        model = ConditionalEmbedding(Gaussian(0.8), Gaussian(0.8), 1e-5).fit(*data[:2])
        answer = model.posterior(embed(data[2], kernel=Gaussian(0.8)), method, 1e-5)
        mean = answer.given(data[3]).mean()
        assert mean.dtype == data[3].dtype
        errors.append(rms(mean - truth))
    assert errors[1] <= WORSE * errors[0]


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Gaussian(5.0), Matern(2.5, 2.0)], ids=repr)
@pytest.mark.parametrize("d", [1, 3])
def test_pivots_are_independent(kernel: Any, d: int) -> None:
    """The factor is that of the pivots in double precision, so that ψ is not mostly rounding."""
    X = np.random.default_rng(0).normal(size=(1500, d)).astype(np.float32)
    for basis in (PivotedCholesky(), Nystroem(400, random_state=0)):
        fitted = Space(kernel, basis).fit(X).map_
        P, L = (part.astype(np.float64) for part in fitted.landmarks)
        assert_allclose(L @ L.T, kernel(P), atol=1e-6)
        psi = fitted.transform(X)
        assert (psi * psi).sum(axis=1).max() < 1.001  # a projection is no longer


def test_products_are_summed_in_double() -> None:
    rows = np.random.default_rng(0).normal(5.0, 1.0, size=(20_000, 3)).astype(np.float32)
    truth = rows.astype(np.float64).T @ rows.astype(np.float64)
    found = sum_squares(rows)
    assert found.dtype == np.float64
    assert_allclose(found, truth, rtol=1e-6)
    w = np.full(len(rows), 1 / len(rows), dtype=np.float32)
    assert_allclose(covariance(rows, w), truth / len(rows), rtol=1e-6)


def test_a_pseudo_inverse_knows_what_was_rounded() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    rows = np.concatenate([rows, rows[:, :1] + np.float32(1e-7) * rows[:, 1:2]], axis=1)
    spectrum = Spectrum.of(sum_squares(rows))
    inverse = spectrum.inverse(0, rounding=float(np.finfo(np.float32).eps))
    assert np.linalg.matrix_rank(inverse) == 3
    assert abs(inverse).max() < 1
