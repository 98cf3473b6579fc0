"""A radial kernel that says nothing but its profile can do what the built-in ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from meanmap import ConditionalEmbedding, embed, two_sample_test
from meanmap.kernels import Gaussian, Laplace, Polynomial, Radial, RationalQuadratic, Rough
from meanmap.kernels.radial import differentiate
from meanmap.spaces import RandomFourier, Space


class Cauchy(Radial):
    """1/(1 + ‖x - x'‖²/σ²): a rational quadratic kernel with α = 1 and a bandwidth of σ/√2."""

    def profile(self, squared: Any) -> Any:
        return 1 / (1 + squared)


class Exponential(Rough):
    """exp(-‖x - x'‖/σ), the Laplace kernel."""

    def profile(self, squared: Any) -> Any:
        return np.exp(-np.sqrt(squared))


SIGMAS = [1.3, (0.7, 2.0, 1.1)]
RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))
B[0] = A[0]  # at equal points derivatives are one-sided
S, T = RNG.normal(size=A.shape), RNG.normal(size=B.shape)


def twin(kernel: Cauchy) -> RationalQuadratic:
    """The same kernel with its derivatives in closed form."""
    return RationalQuadratic(1.0, kernel.rescaled(0.5**0.5).bandwidth)


@pytest.fixture(params=SIGMAS, ids=["one", "columns"])
def kernel(request: pytest.FixtureRequest) -> Cauchy:
    return Cauchy(request.param)


def test_gram(kernel: Cauchy) -> None:
    assert_allclose(kernel(A, B), twin(kernel)(A, B), rtol=1e-13)
    assert_allclose(kernel.diagonal(A), 1.0)
    assert_allclose(kernel.matmul(A, B, T), kernel(A, B) @ T, rtol=1e-12)


def test_gradient(kernel: Cauchy) -> None:
    assert_allclose(kernel.gradient(A, B), twin(kernel).gradient(A, B), rtol=1e-10, atol=1e-10)


def test_stein(kernel: Cauchy) -> None:
    found, truth = (k.stein(A, S, B, T) for k in (kernel, twin(kernel)))
    assert_allclose(found, truth, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("other", [Gaussian(1.0), Polynomial(2)], ids=repr)
def test_algebra(kernel: Cauchy, other: Any) -> None:
    for mine, theirs in (
        (kernel + other, twin(kernel) + other),
        (kernel * other, twin(kernel) * other),
        (2.0 * kernel, 2.0 * twin(kernel)),
    ):
        assert_allclose(mine(A, B), theirs(A, B), rtol=1e-12)
        assert_allclose(mine.gradient(A, B), theirs.gradient(A, B), rtol=1e-9, atol=1e-9)
        assert_allclose(mine.stein(A, S), theirs.stein(A, S), rtol=1e-6, atol=1e-6)


def test_preimage(kernel: Cauchy) -> None:
    found = embed(A, kernel=kernel).preimage()
    assert_allclose(found, embed(A, kernel=twin(kernel)).preimage(), atol=1e-6)
    gradient = np.mean(kernel.gradient(found[None], A), axis=1)
    assert_allclose(gradient, 0.0, atol=1e-7)


def test_bandwidths() -> None:
    assert Cauchy().resolve(A).bandwidth == Gaussian().resolve(A).bandwidth
    assert (
        Cauchy("scaled median").resolve(A).bandwidth
        == Gaussian("scaled median").resolve(A).bandwidth
    )
    assert Cauchy(2.0).rescaled(0.5) == Cauchy(1.0) == clone(Cauchy(1.0))
    # units of columns do not matter
    units = np.array([1.0, 1e3, 1e-3])
    a, b = (embed(X, kernel=Cauchy("scaled median")) for X in (A, A * units))
    assert_allclose(a(A), b(A * units), rtol=1e-10)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        Cauchy(-1.0)(A)
    with pytest.raises(ValueError, match="has to be chosen on data first"):
        Cauchy()(A)


def test_models() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 1))
    model = ConditionalEmbedding(Cauchy()).fit(X, np.sin(X) + 0.1 * rng.normal(size=X.shape))
    assert abs(model.predict([[1.0]])[0, 0] - np.sin(1.0)) < 0.1
    assert two_sample_test(X, X + 2, Cauchy(), rng=0).pvalue < 0.01


def test_a_rough_profile() -> None:
    mine, theirs = Exponential(1.3), Laplace(1.3)
    assert_allclose(mine(A, B), theirs(A, B), rtol=1e-13)
    assert_allclose(mine.gradient(A, B), theirs.gradient(A, B), rtol=1e-9, atol=1e-12)
    assert_allclose(mine.gradient(A[0], B)[0], 0.0)  # the kink
    with pytest.raises(TypeError, match="no mixed second derivative"):
        mine.stein(A, S)


def test_a_profile_that_is_not_one_at_zero() -> None:
    class Twice(Radial):
        def profile(self, squared: Any) -> Any:
            return 2 / (1 + squared)

    assert_allclose(Twice(1.0).diagonal(A), 2.0)


def test_what_a_profile_does_not_tell() -> None:
    class Smooth(Exponential):
        smooth = True

    with pytest.raises(TypeError, match="RandomFourier knows the frequencies"):
        Space(Cauchy(1.0), RandomFourier(4)).fit(A)
    with pytest.raises(TypeError, match="not what its slope is"):
        Smooth(1.0).gradient(A, B)
    with pytest.raises(TypeError, match="does not say what its profile is"):
        Radial(1.0)(A)
    assert Cauchy.characteristic is None and Cauchy.universal is None


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        (lambda s: 1 / (1 + s), lambda s: -1 / (1 + s) ** 2, lambda s: 2 / (1 + s) ** 3),
        (lambda s: np.exp(-s), lambda s: -np.exp(-s), lambda s: np.exp(-s)),
        (np.cos, lambda s: -np.sin(s), lambda s: -np.cos(s)),
    ],
)
def test_derivatives(function: Any, first: Any, second: Any) -> None:
    at = np.concatenate([[0.0], np.geomspace(1e-8, 30.0, 50)])
    assert_allclose(differentiate(function, at, 1), first(at), atol=1e-10)
    assert_allclose(differentiate(function, at, 2), second(at), atol=1e-7)
    single = at.astype(np.float32)
    assert_allclose(differentiate(function, single, 1), first(at), atol=2e-3)
