"""Embeddings: batches, algebra, geometry, moments, modes, joint embeddings, pictures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import ApproximationWarning, ConditionalEmbedding, Embedding, embed
from meanmap.embeddings import JointEmbedding
from meanmap.kernels import (
    Delta,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    TensorProduct,
    Trace,
)
from meanmap.spaces import Explicit, PivotedCholesky, Space
from oracles.embeddings import (
    decoding_objective,
    fixed_point,
    fixed_point_step,
    inner_product,
    joint_norm,
    monotone_variance,
    pair_norm,
)
from oracles.kernels import gaussian
from oracles.operators import operator_joint
from oracles.statistics import hsic, mmd_squared

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(40, 2))


@pytest.fixture
def w(rng: np.random.Generator) -> np.ndarray:
    """Weights as rules make them: some negative, not summing to one."""
    return rng.normal(0.03, 0.04, size=40)


# --- making one ----------------------------------------------------------------------------------


def test_what_an_embedding_is_made_of(X: np.ndarray) -> None:
    e = embed(X)
    assert isinstance(e, Embedding)
    assert isinstance(e.kernel, Gaussian)
    assert len(e.kernel.bandwidth) == X.shape[1]  # one for each column
    assert_array_equal(e.atoms, X)
    assert_allclose(e.weights, 1 / 40)
    assert e.coordinates.shape == (e.space.rank_,)
    assert not e.is_batch
    assert "40 atoms" in repr(e)
    assert repr(e.kernel) in repr(e)


@pytest.mark.parametrize(
    ("points", "kernel"),
    [
        (np.zeros((3, 2)), Gaussian),
        (["a", "b", "a"], Delta),
        (np.array([True, False]), Delta),
        ([["a", "b"], ["c", "d"]], Delta),
        (np.zeros((3, 2, 2)), Trace),
        ((np.zeros((3, 1)), ["a", "b", "c"]), TensorProduct),
    ],
)
def test_the_default_kernel_suits_the_points(points: Any, kernel: type[Kernel]) -> None:
    assert type(embed(points).kernel) is kernel


def test_coordinates_have_the_geometry_of_the_atoms(X: np.ndarray, w: np.ndarray) -> None:
    for basis in (None, PivotedCholesky(tol=1e-12)):
        e = embed(X, kernel=Laplace(1.0), weights=w, basis=basis)
        assert np.linalg.norm(e.coordinates) == pytest.approx(e.norm(), rel=1e-8)
        assert_allclose(e.coordinates @ e.space.transform(X).T, e(X), atol=1e-9)


def test_a_fitted_space_as_basis(X: np.ndarray) -> None:
    space = Space(Gaussian(1.0)).fit(X)
    e = embed(X[:10], basis=space)
    assert e.space is space
    assert e.kernel == space.kernel_
    # the factor's least pivot is about √tol = 1e-5, so that rounding shows at ε/√tol
    assert_allclose(e.coordinates, space.transform(X[:10]).mean(axis=0), atol=1e-10)
    with pytest.raises(ValueError, match="different kernels"):
        embed(X, kernel=Gaussian(2.0), basis=space)


def test_a_different_basis_is_no_obstacle(X: np.ndarray) -> None:
    kernel = Polynomial(2)
    A = embed(X[:25], kernel=kernel, basis=Explicit())
    B = embed(X[25:], kernel=kernel, basis=PivotedCholesky())
    truth = np.sqrt(mmd_squared(*grams(kernel, X[:25], X[25:])))
    assert A.distance(B) == pytest.approx(truth, rel=1e-9)
    assert B.distance(A) == pytest.approx(truth, rel=1e-9)


def grams(kernel: Kernel, A: Any, B: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return kernel(A), kernel(B), kernel(A, B)


# --- functions and geometry ----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(0.8), Laplace(1.0), Polynomial(2)], ids=repr)
def test_inner_norm_and_distance_are_the_dense_ones(
    kernel: Kernel, X: np.ndarray, w: np.ndarray
) -> None:
    A, B = X[:15], X[15:]
    P, Q = embed(A, kernel=kernel, weights=w[:15]), embed(B, kernel=kernel, weights=w[15:])
    K_aa, K_bb, K_ab = grams(kernel, A, B)
    assert P.inner(Q) == pytest.approx(inner_product(w[:15], K_ab, w[15:]), rel=1e-9)
    assert P.norm() ** 2 == pytest.approx(inner_product(w[:15], K_aa, w[:15]), rel=1e-9)
    truth = mmd_squared(K_aa, K_bb, K_ab, w[:15], w[15:])
    assert P.distance(Q) ** 2 == pytest.approx(truth, rel=1e-8)
    assert P.expect(Q) == pytest.approx(P.inner(Q), rel=1e-12)


def test_a_distance_between_equal_embeddings_is_zero(X: np.ndarray) -> None:
    e = embed(X)
    assert e.distance(e) == 0.0
    assert e.distance(embed(X.copy(), kernel=e.kernel)) < 1e-7
    assert (e - e).norm() == 0.0


def test_evaluation_of_points_and_of_one_point(X: np.ndarray, w: np.ndarray) -> None:
    e = embed(X, kernel=Gaussian(0.8), weights=w)
    Q = X[:7] + 0.1
    truth = gaussian(Q, X, 0.8) @ w
    assert_allclose(e(Q), truth, atol=1e-13)
    assert np.ndim(e(Q[0])) == 0
    assert e(Q[0]) == pytest.approx(truth[0], abs=1e-13)
    assert_allclose(e(Q.tolist()), truth, atol=1e-13)


def test_scalars_and_labels_as_single_points() -> None:
    e = embed([[0.0], [1.0]], kernel=Gaussian(1.0))
    assert e(0.0) == pytest.approx((1 + np.exp(-0.5)) / 2)
    assert e([0.0]) == e(0.0)
    words = embed(["a", "b", "a"])
    assert words("a") == pytest.approx(2 / 3)
    assert_allclose(words(["a", "b", "c"]), [2 / 3, 1 / 3, 0])


def test_a_norm_that_would_overflow_is_refused() -> None:
    with pytest.raises(ValueError, match="squares overflow in float64.*by their scale"):
        embed([[1e200], [-1e200]], kernel=Linear(), weights=[1.0, 1e-3])
    norm = embed([[1e70], [-1e70]], kernel=Linear(), weights=[1.0, 1e-3]).norm()
    assert norm == pytest.approx(0.999e70)


# --- batches -------------------------------------------------------------------------------------


@pytest.fixture
def batch(X: np.ndarray, rng: np.random.Generator) -> Embedding:
    return embed(X, kernel=Gaussian(0.8), weights=rng.exponential(size=(5, 40)) / 40)


def test_a_batch_adds_a_leading_axis_to_every_answer(batch: Embedding, X: np.ndarray) -> None:
    assert len(batch) == 5
    assert batch.is_batch
    assert batch.weights.shape == (5, 40)
    assert batch.coordinates.shape == (5, batch.space.rank_)
    assert batch(X[:7]).shape == (5, 7)
    assert batch(X[0]).shape == (5,)
    assert batch.mass.shape == (5,)
    assert batch.mean().shape == batch.std().shape == batch.mode().shape == (5, 2)
    assert batch.norm().shape == batch.distance(batch[0]).shape == (5,)
    assert batch.expect(lambda x: x[:, 0] ** 2).shape == (5,)
    assert batch.expect(lambda x: x).shape == (5, 2)
    assert batch.covariance().operator().shape == (5, batch.space.rank_, batch.space.rank_)
    assert "batch of 5" in repr(batch)


def test_each_of_a_batch_is_the_single_embedding(batch: Embedding, X: np.ndarray) -> None:
    singles = [embed(X, kernel=batch.kernel, weights=w) for w in batch.weights]
    for i, (one, single) in enumerate(zip(batch, singles, strict=True)):
        assert not one.is_batch
        for part in (one, batch[i]):
            assert_array_equal(part.weights, single.weights)
            assert part.norm() == pytest.approx(single.norm(), rel=1e-12)
            assert_allclose(part(X), single(X), atol=1e-14)
        assert_allclose(batch.mean()[i], single.mean(), atol=1e-13)
        assert_allclose(batch.std()[i], single.std(), atol=1e-12)
        assert_allclose(batch.mode()[i], single.mode(), atol=1e-6)
        assert batch.norm()[i] == pytest.approx(single.norm(), rel=1e-12)
        assert batch.distance(singles[0])[i] == pytest.approx(single.distance(singles[0]), abs=1e-7)
        assert_allclose(
            batch.covariance().operator()[i], one.covariance().operator(), rtol=1e-9, atol=1e-12
        )


def test_slices_of_a_batch(batch: Embedding) -> None:
    assert len(batch[1:3]) == 2
    assert_array_equal(batch[1:3].weights, batch.weights[1:3])
    assert_array_equal(batch[-1].weights, batch.weights[4])
    assert_array_equal(batch[[0, 2]].weights, batch.weights[[0, 2]])
    with pytest.raises(IndexError):
        batch[5]


def test_a_single_embedding_is_no_batch(X: np.ndarray) -> None:
    e = embed(X)
    for ask in (len, iter, lambda e: e[0]):
        with pytest.raises(TypeError, match="one embedding, not a batch"):
            list(ask(e)) if ask is iter else ask(e)


def test_pairs_of_two_batches(batch: Embedding, X: np.ndarray) -> None:
    other = embed(X[:9], kernel=batch.kernel, weights=np.full((5, 9), 1 / 9))
    assert_allclose(batch.inner(other), [a.inner(b) for a, b in zip(batch, other, strict=True)])
    assert_allclose(
        batch.distance(other), [a.distance(b) for a, b in zip(batch, other, strict=True)]
    )


# --- algebra -------------------------------------------------------------------------------------


def test_the_algebra_of_functions(X: np.ndarray, w: np.ndarray) -> None:
    kernel = Laplace(0.8)
    P = embed(X[:15], kernel=kernel)
    Q = embed(X[15:], kernel=kernel, weights=w[15:])
    S = embed(X[:15], kernel=kernel, weights=w[:15])  # other weights on equal atoms
    at = X[:6] + 0.2
    p, q, s = P(at), Q(at), S(at)
    for combined, truth in [
        (P + Q, p + q),
        (P - Q, p - q),
        (P + S, p + s),
        (P - P, 0 * p),
        (2 * P, 2 * p),
        (P * np.float64(2), 2 * p),
        (P / 4, p / 4),
        (-P, -p),
        (0.5 * P + 0.5 * Q - S / 3, 0.5 * p + 0.5 * q - s / 3),
    ]:
        assert isinstance(combined, Embedding)
        assert_allclose(combined(at), truth, atol=1e-13)
        projected = combined.coordinates @ combined.space.transform(at).T
        assert projected.shape == truth.shape


def test_a_mixture_is_the_embedding_of_all_points(X: np.ndarray) -> None:
    kernel = Gaussian(1.0)
    mixture = 0.25 * embed(X[:10], kernel=kernel) + 0.75 * embed(X[10:], kernel=kernel)
    whole = embed(X, kernel=kernel)
    assert mixture.distance(whole) < 1e-7
    assert_allclose(mixture.mean(), X.mean(axis=0))


def test_polarisation(X: np.ndarray, w: np.ndarray) -> None:
    P, Q = embed(X[:15], kernel=Laplace(1.0)), embed(X[15:], kernel=Laplace(1.0), weights=w[15:])
    assert (P + Q).norm() ** 2 - (P - Q).norm() ** 2 == pytest.approx(4 * P.inner(Q), abs=1e-12)
    assert P.distance(Q) == pytest.approx((P - Q).norm(), rel=1e-9)


def test_batches_and_singles_mix(batch: Embedding, X: np.ndarray) -> None:
    single = embed(X[:5], kernel=batch.kernel)
    total = batch + single
    assert len(total) == 5
    assert_allclose(total(X), batch(X) + single(X), atol=1e-13)
    assert_allclose((single - batch)(X), single(X) - batch(X), atol=1e-13)


def test_operations_leave_their_arguments_alone(X: np.ndarray) -> None:
    e = embed(X)
    before = e.weights.copy(), e.atoms.copy(), e.coordinates.copy()
    _ = e + e, 2 * e, e - e, e.normalized(), e.mode(), e.std(), e.covariance().operator()
    for old, new in zip(before, (e.weights, e.atoms, e.coordinates), strict=True):
        assert_array_equal(old, new)


# --- moments -------------------------------------------------------------------------------------


def test_moments_use_weights_normalised_to_one(X: np.ndarray) -> None:
    w = np.random.default_rng(1).exponential(size=40)
    e = embed(X, weights=w)
    p = w / w.sum()
    assert_allclose(e.mean(), p @ X)
    assert_allclose(e.std(), np.sqrt(p @ (X - p @ X) ** 2))
    assert e.mass == pytest.approx(w.sum())
    assert_allclose(e.normalized().weights, p)
    assert_allclose(e.normalized()(X), e(X) / w.sum())
    assert_allclose((3 * e).mean(), e.mean())


def test_expect_is_raw_and_linear(X: np.ndarray, w: np.ndarray) -> None:
    e = embed(X, weights=w)
    assert e.expect(lambda x: np.ones(len(x))) == pytest.approx(w.sum())
    assert e.expect(lambda x: x[:, 0] * x[:, 1]) == pytest.approx(w @ (X[:, 0] * X[:, 1]))
    assert_allclose(e.expect(lambda x: x[:, :, None] * x[:, None, :]), (X.T * w) @ X)
    assert (2 * e).expect(lambda x: x[:, 0]) == pytest.approx(2 * e.expect(lambda x: x[:, 0]))
    assert e.expect(lambda x: [1] * len(x)) == pytest.approx(w.sum())


def test_a_total_that_is_not_positive_has_no_moments(X: np.ndarray) -> None:
    difference = embed(X[:20], kernel=Gaussian(1.0)) - embed(X[20:], kernel=Gaussian(1.0))
    for ask in (difference.mean, difference.std, difference.normalized, (-embed(X)).mean):
        with pytest.raises(ValueError, match=r"weights sum to .*expect"):
            ask()
    assert np.isfinite(difference.expect(lambda x: x[:, 0]))


def test_a_negative_variance_gives_way_to_that_of_a_distribution() -> None:
    points = [[0.0, 0.0], [1.0, 1.0], [2.0, 4.0]]
    e = embed(points, kernel=Gaussian(1.0), weights=[-1.0, 3.0, -1.0])
    assert_allclose(e.std(), [0.0, 0.0])  # the positive part is a point
    # F made monotone is all on 1.0: the positive part, which is not
    e = embed([[0.0], [1.0], [1.5], [2.0]], kernel=Gaussian(1.0), weights=[-1.0, 2.0, 1.0, -1.0])
    assert_allclose(e.std(), np.std([1.0, 1.0, 1.5]))
    rows = [[-1.0, 2.0, 1.0, -1.0], [0.25, 0.25, 0.25, 0.25]]
    both = embed([[0.0], [1.0], [1.5], [2.0]], kernel=Gaussian(1.0), weights=rows)
    assert_allclose(both.std()[:, 0], [np.std([1.0, 1.0, 1.5]), np.std([0.0, 1.0, 1.5, 2.0])])
    # far atoms whose weights swing about zero hardly count
    x = np.array([-50.0, -49.0, 0.0, 1.0, 2.0, 49.0, 50.0])
    w = np.array([0.3, -0.3, 0.3, 0.4, 0.3, -0.3, 0.3])
    swinging = embed(x[:, None], kernel=Gaussian(1.0), weights=w - [0, 0.02, 0, 0, 0, 0.02, -0.04])
    again = embed(x[:, None], kernel=Gaussian(1.0), weights=1.5 * w - 0.5 / 7)
    for e in (swinging, again):
        raw = float(e.weights @ x**2 - (e.weights @ x) ** 2)
        expected = raw if raw >= 0 else monotone_variance(e.weights, x)
        assert float(e.std()[0]) == pytest.approx(np.sqrt(expected))


def test_a_spread_that_regression_weights_make_negative_is_near_the_truth() -> None:
    """The mean is smooth, so that λ is small and weights swing: E y² - (E y)² is often negative."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, size=(300, 1))
    y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=300)
    at = np.linspace(-2.7, 2.7, 60)[:, None]
    given = ConditionalEmbedding(regularization=1e-8).fit(x, y).given(at)
    w = np.asarray(given.weights.dense() if hasattr(given.weights, "dense") else given.weights)
    negative = w @ y**2 - (w @ y) ** 2 < 0
    assert negative.any()
    assert (abs(given.std()[negative, 0] / 0.2 - 1) < 0.5).all()


def test_matrices_and_labels_have_the_moments_that_make_sense(rng: np.random.Generator) -> None:
    R = rng.normal(size=(6, 2, 3))
    assert_allclose(embed(R).mean(), R.mean(axis=0))
    assert_allclose(embed(R).std(), R.std(axis=0))
    numbers = embed(np.array([1, 2, 2]), kernel=Delta())
    assert numbers.mean() == pytest.approx(5 / 3)
    with pytest.raises(TypeError, match=r"no mean.*mode"):
        embed(["a", "b"]).mean()


def test_support_says_how_far_from_the_data(X: np.ndarray) -> None:
    e = embed(X, kernel=Gaussian(1.0))
    assert_allclose(e.support(X), 1.0, atol=1e-6)
    assert e.support([100.0, 0.0]) == pytest.approx(0.0, abs=1e-12)
    line = e.support(np.column_stack([np.linspace(0, 8, 30), np.zeros(30)]))
    assert (np.diff(line[8:]) <= 1e-9).all()


def test_covariance_is_the_uncentred_operator(X: np.ndarray, w: np.ndarray) -> None:
    e = embed(X, kernel=Polynomial(2), weights=w)
    C = e.covariance()
    assert isinstance(C, JointEmbedding)
    psi = e.space.transform(X)
    assert_allclose(C.operator(), (psi.T * w) @ psi, atol=1e-12)
    assert C.norm() == pytest.approx(pair_norm(np.diag(w), *2 * [e.kernel(X)]), rel=1e-9)
    p = embed(X, kernel=Polynomial(2))
    truth = operator_joint([psi, psi], centred=True)
    assert_allclose(p.covariance().operator(centered=True), truth, atol=1e-11)


# --- pre-images ----------------------------------------------------------------------------------


def objective(e: Embedding, x: np.ndarray) -> np.ndarray:
    """-2 e(x) + k(x, x), which a pre-image makes least (Song et al. 2013, eq. 26)."""
    return -2 * e(x) + e.kernel.diagonal(x)


def test_a_gaussian_preimage_is_a_fixed_point(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 2))
    for sigma in (0.5, 1.0, (0.7, 2.0)):
        e = embed(X, kernel=Gaussian(sigma))
        mode = e.preimage()
        assert mode.shape == (2,)
        assert_allclose(fixed_point_step(X, e.weights, sigma, mode), mode, atol=1e-6)
        assert_allclose(fixed_point(X, e.weights, sigma, mode), mode, atol=1e-5)


def test_the_preimage_is_the_best_of_a_fine_grid(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 1)) ** 3
    grid = np.linspace(X.min(), X.max(), 20001)[:, None]
    for weights in (None, rng.normal(0.03, 0.02, size=50), rng.exponential(size=50) ** 3):
        e = embed(X, kernel=Gaussian(0.4), weights=weights)
        best = grid[np.argmin(objective(e, grid))]
        assert_allclose(e.preimage(), best, atol=2e-3)
        assert objective(e, e.preimage()[None])[0] <= objective(e, grid).min() + 1e-9


def test_the_preimage_is_the_highest_of_several_peaks(rng: np.random.Generator) -> None:
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    X = np.concatenate([centre + 0.5 * rng.normal(size=(30, 2)) for centre in centres])
    for highest in range(3):
        w = np.full(90, 1 / 90)
        w[30 * highest : 30 * (highest + 1)] *= 1.3
        e = embed(X, kernel=Gaussian(0.8), weights=w)
        assert np.linalg.norm(e.preimage() - centres[highest]) < 0.5
        axis = np.linspace(-6, 7, 131)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        assert objective(e, e.preimage()[None])[0] <= objective(e, grid).min() + 1e-9
    # between the modes the mean is nowhere
    assert e(e.mean()) < 0.2 * e(e.preimage())


@pytest.mark.parametrize("order", [1, -1])
def test_the_preimage_of_a_plain_sample_is_its_highest_peak(order: int) -> None:
    """Equal weights say nothing about where to start: the values of e do."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        high, low = 4 + 0.2 * rng.normal(size=(60, 1)), rng.normal(size=(40, 1)) - 4
        e = embed(np.concatenate([high, low])[::order], kernel=Gaussian(0.3))
        assert abs(e.preimage()[0] - 4) < 0.3


def test_preimages_of_a_batch(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2))
    e = embed(X, kernel=Gaussian(0.7), weights=rng.exponential(size=(4, 30)) ** 2)
    assert_allclose(e.preimage(), np.stack([one.preimage() for one in e]), atol=1e-6)


def test_preimages_with_negative_weights_stay_near_the_data(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 1))
    for seed in range(10):
        w = np.random.default_rng(seed).normal(0.02, 0.1, size=40)
        e = embed(X, kernel=Gaussian(0.3), weights=w)
        grid = np.linspace(-5, 5, 4001)[:, None]
        assert abs(e.preimage()[0]) < 5
        assert e(e.preimage()) >= 0.99 * e(grid).max()


@pytest.mark.parametrize("kernel", [Laplace(1.0), Matern(0.5, 1.0)], ids=repr)
def test_preimages_of_kernels_that_are_not_smooth_are_atoms(
    kernel: Kernel, X: np.ndarray, w: np.ndarray
) -> None:
    e = embed(X, kernel=kernel, weights=w)
    K = kernel(X)
    scores = [decoding_objective(w, K[:, i], K[i, i]) for i in range(40)]
    assert_array_equal(e.preimage(), X[int(np.argmin(scores))])


def test_modes_of_labels_and_matrices(rng: np.random.Generator) -> None:
    assert embed(["a", "b", "b"]).mode() == "b"
    assert_array_equal(embed([["a", "x"], ["b", "y"], ["b", "y"]]).mode(), ["b", "y"])
    R = np.stack([np.eye(2), -np.eye(2), np.eye(2)])
    assert_array_equal(embed(R).mode(), np.eye(2))
    x, y = embed((rng.normal(size=(5, 1)), list("aabbb"))).mode()
    assert x.shape == (1,)
    assert y in {"a", "b"}


# --- large sums through coordinates --------------------------------------------------------------


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> Callable[..., np.ndarray]:
    """Evaluate as if the product of points and atoms were too large to compute one by one."""

    def evaluate(e: Embedding, points: Any) -> np.ndarray:
        with monkeypatch.context() as patch:
            patch.setattr("meanmap.embeddings.element.EXACT", 0)
            return e(points)

    return evaluate


def queries(rng: np.random.Generator) -> np.ndarray:
    """Points among the data, at its edge, and far away."""
    return np.concatenate(
        [s * rng.normal(size=(60, 2)) for s in (0.5, 1.5, 4.0)] + [[[50.0, 0.0], [1e3, 1e3]]]
    )


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), Gaussian(0.2), Laplace(1.0), Polynomial(2), Linear() + 1], ids=repr
)
@pytest.mark.parametrize("signed", [False, True], ids=["uniform", "signed"])
def test_certified_values_are_exact_to_1e6(
    certified: Callable[..., np.ndarray], kernel: Kernel, signed: bool
) -> None:
    rng = np.random.default_rng(2)
    X, Q = rng.normal(size=(400, 2)), queries(rng)
    w = rng.normal(size=400) / 400 if signed else None
    e = embed(X, kernel=kernel, weights=w)
    truth = kernel(Q, X) @ e.weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        values = certified(e, Q)
    assert values.shape == truth.shape
    scale = abs(e.weights).sum() * np.sqrt(kernel.diagonal(Q) * kernel.diagonal(X).max())
    assert (abs(values - truth) <= 1e-6 * scale).all()


def test_certified_values_of_a_batch(certified: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    X, Q = rng.normal(size=(300, 2)), queries(rng)
    w = rng.normal(size=(3, 300)) / 300
    e = embed(X, kernel=Gaussian(0.7), weights=w)
    values = certified(e, Q)
    assert values.shape == (3, len(Q))
    assert_allclose(values, w @ Gaussian(0.7)(X, Q), atol=1e-6 * abs(w).sum(axis=1).max())


def test_a_poor_basis_is_not_trusted(certified: Callable[..., np.ndarray]) -> None:
    """Where coordinates miss much of the kernel, values come from the atoms."""
    rng = np.random.default_rng(4)
    X, Q = rng.normal(size=(200, 2)), queries(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        e = embed(X, kernel=Gaussian(0.3), basis=PivotedCholesky(max_rank=5))
        values = certified(e, Q)
    assert_allclose(values, Gaussian(0.3)(Q, X).mean(axis=1), atol=1e-6)


def test_a_basis_fitted_elsewhere_is_not_trusted(certified: Callable[..., np.ndarray]) -> None:
    """The residual that counts is that of the atoms, not of the sample the space was fitted to."""
    rng = np.random.default_rng(5)
    space = Space(Gaussian(1.0)).fit(rng.normal(size=(200, 2)))
    far = rng.normal(size=(200, 2)) + 10
    e = embed(far, basis=space)
    assert_allclose(certified(e, far[:20]), Gaussian(1.0)(far[:20], far).mean(axis=1), atol=1e-6)


def test_certified_values_of_pairs(certified: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(6)
    pairs = rng.normal(size=(150, 2)), rng.integers(0, 3, size=150)
    kernel = Gaussian(1.0) @ Delta()
    e = embed(pairs, kernel=kernel)
    assert_allclose(certified(e, pairs), kernel(pairs).mean(axis=1), atol=1e-6)


def test_an_unbalanced_weight_is_certified_too(certified: Callable[..., np.ndarray]) -> None:
    """All the weight on the one point that the coordinates know least."""
    rng = np.random.default_rng(7)
    X = np.concatenate([rng.normal(size=(300, 2)), [[6.0, 6.0]]])
    w = np.full(301, 1e-6)
    w[-1] = 1.0
    e = embed(X, kernel=Gaussian(1.0), weights=w, basis=PivotedCholesky(tol=1e-2))
    Q = np.array([[6.0, 6.0], [5.5, 6.5], [0.0, 0.0]])
    assert_allclose(certified(e, Q), Gaussian(1.0)(Q, X) @ w, atol=1e-6)


# --- joint embeddings ----------------------------------------------------------------------------


def joint_case(variables: int, weighted: bool) -> tuple[Any, Any, list[np.ndarray], Any]:
    rng = np.random.default_rng([8, variables])
    n = 18
    parts = (rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), rng.integers(0, 3, size=n))
    kernels = (Laplace(1.0), Polynomial(2), Delta())
    w = rng.dirichlet(np.ones(n)) if weighted else None
    points, kernel = parts[:variables], TensorProduct(*kernels[:variables])
    return points, kernel, [k(p) for k, p in zip(kernels, points, strict=False)], w


@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
@pytest.mark.parametrize("variables", [2, 3])
@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
def test_joint_operator_and_norm(variables: int, weighted: bool, centered: bool) -> None:
    points, kernel, K, w = joint_case(variables, weighted)
    e = embed(points, kernel=kernel, weights=w)
    assert isinstance(e, JointEmbedding)
    psi = [space.transform(part) for space, part in zip(e.spaces, points, strict=True)]
    C = e.operator(centered=centered)
    assert C.shape == tuple(space.rank_ for space in e.spaces)
    assert_allclose(C, operator_joint(psi, w, centred=centered), atol=1e-11)
    fresh = embed(points, kernel=kernel, weights=w)  # nothing computed yet
    for embedding in (e, fresh):
        truth = joint_norm(K, w, centred=centered)
        assert embedding.norm(centered=centered) == pytest.approx(truth, rel=1e-8)


def test_the_centred_norm_is_the_root_of_hsic() -> None:
    points, kernel, (K, G), w = joint_case(2, weighted=True)
    e = embed(points, kernel=kernel, weights=w)
    assert e.norm(centered=True) ** 2 == pytest.approx(hsic(K, G, w), rel=1e-8)


def test_joint_batches_lead() -> None:
    points, kernel, _, _ = joint_case(3, weighted=False)
    w = np.random.default_rng(0).dirichlet(np.ones(18), size=4)
    e = embed(points, kernel=kernel, weights=w)
    for centered in (False, True):
        singles = [embed(points, kernel=kernel, weights=row) for row in w]
        assert_allclose(
            e.norm(centered=centered), [s.norm(centered=centered) for s in singles], rtol=1e-8
        )
        operators = np.stack([one.operator(centered) for one in e])
        assert_allclose(e.operator(centered), operators, atol=1e-13)


def test_joint_evaluation_geometry_and_moments() -> None:
    points, kernel, K, w = joint_case(3, weighted=True)
    e = embed(points, kernel=kernel, weights=w)
    product = K[0] * K[1] * K[2]
    assert_allclose(e(points), product @ w, atol=1e-13)
    first = tuple(part[0] for part in points)
    assert e(first) == pytest.approx((product @ w)[0])
    half = embed(tuple(part[:9] for part in points), kernel=e.kernel)
    difference = np.where(np.arange(18) < 9, w - 1 / 9, w)
    assert e.distance(half) ** 2 == pytest.approx(difference @ product @ difference, rel=1e-8)
    means = e.mean()
    assert isinstance(means, tuple)
    for mean, part in zip(means, points, strict=True):
        assert_allclose(mean, w @ part, atol=1e-12)
    assert e.expect(lambda p: p[0][:, 0] * p[1][:, 0]) == pytest.approx(
        w @ (points[0][:, 0] * points[1][:, 0])
    )


def test_marginals() -> None:
    points, kernel, K, w = joint_case(3, weighted=True)
    e = embed(points, kernel=kernel, weights=w)
    for i, part in enumerate(points):
        m = e.marginal(i)
        assert type(m) is Embedding
        assert m.kernel == kernel.kernels[i]
        assert_allclose(m(part), K[i] @ w, atol=1e-13)
    e.operator()  # now its variables have spaces, which the marginals share
    assert e.marginal(0).space is e.spaces[0]


def test_joint_tables() -> None:
    x, y = np.array([0, 0, 1, 2]), np.array(["b", "a", "b", "b"])
    e = embed((x, y), kernel=Delta() @ Delta())
    assert_allclose(e.operator(), [[0.25, 0.25], [0, 0.25], [0, 0.25]])
    assert_allclose(
        e.operator(centered=True), e.operator() - np.outer([0.5, 0.25, 0.25], [0.25, 0.75])
    )


def test_a_tuple_of_kernels_and_defaults(rng: np.random.Generator) -> None:
    X, labels = rng.normal(size=(9, 2)), list("abcabcabc")
    assert embed((X, labels), kernel=(Gaussian(1.0), None)).kernel == Gaussian(1.0) @ Delta()
    assert embed((X, labels)).kernels == (embed(X).kernel, Delta())


# --- pictures ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "points",
    [
        np.linspace(0, 1, 9)[:, None],
        np.zeros((4, 1)),
        np.random.default_rng(0).normal(size=(9, 2)),
        np.array(["a", "b", "b"]),
        np.array([True, False, True]),
        (np.linspace(0, 1, 9)[:, None], np.linspace(1, 2, 9)[:, None]),
        (np.array(list("abab")), np.array([1, 2, 2, 2])),
        (np.linspace(0, 1, 4)[:, None], np.array(list("abab"))),
    ],
    ids=["1d", "constant", "2d", "labels", "booleans", "joint", "table", "mixed"],
)
def test_plots_return_axes(points: Any) -> None:
    kernel = None
    if isinstance(points, tuple):
        kernel = TensorProduct(*(Gaussian() if part.ndim == 2 else Delta() for part in points))
    e = embed(points, kernel=kernel)
    ax = e.plot()
    assert isinstance(ax, Axes)
    assert ax.has_data()
    ax.figure.canvas.draw()
    mine = plt.figure().add_subplot()
    assert e.plot(ax=mine) is mine


def test_plots_pass_style_on() -> None:
    ax = embed(np.linspace(0, 1, 9)[:, None]).plot(color="red", label="P")
    assert ax.lines[0].get_color() == "red"
    assert ax.lines[0].get_label() == "P"


def test_plots_say_what_they_cannot_draw(batch: Embedding, rng: np.random.Generator) -> None:
    with pytest.raises(TypeError, match=r"batch.*e\[0\]"):
        batch.plot()
    with pytest.raises(ValueError, match=r"one or two coordinates.*mean"):
        embed(rng.normal(size=(5, 3))).plot()
    with pytest.raises(ValueError, match="scalar variables or labels"):
        embed((rng.normal(size=(5, 2)), rng.normal(size=(5, 1)))).plot()
    with pytest.raises(TypeError, match="two variables"):
        embed(tuple(rng.normal(size=(3, 5, 1)))).plot()
