"""Kernels against their formulas, their algebra, their parameters, and the median bandwidth."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from kernels.cases import KERNELS
from meanmap import kernels
from meanmap.kernels import (
    Constant,
    Delta,
    Function,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    TensorProduct,
    Trace,
)
from oracles.kernels import (
    delta,
    gaussian,
    laplace,
    linear,
    matern,
    polynomial,
    rational_quadratic,
    trace,
)

Draw = Callable[[np.random.Generator, int], Any]
Gram = Callable[[Any, Any], np.ndarray]


# --- points of every domain ----------------------------------------------------------------------


def vectors(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 3))


def labels(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 4, size=n)


def words(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.array(["ash", "beech", "cedar"])[rng.integers(0, 3, size=n)]


def label_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 2, size=(n, 3))


def rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    Q, R = np.linalg.qr(rng.normal(size=(n, 3, 3)))
    return Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]


def permutations(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.stack([np.eye(4)[rng.permutation(4)] for _ in range(n)])


def pairs(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return vectors(rng, n), words(rng, n)


def triples(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return vectors(rng, n), words(rng, n), rotations(rng, n)


def indices(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 12, size=n)


GRAM = gaussian(*2 * (np.random.default_rng(5).normal(size=(12, 2)),), 1.0)
COLUMNS = (0.5, 1.0, 3.0)

# name: the kernel, its points, and the formula it stands for
CASES: dict[str, tuple[Kernel, Draw, Gram]] = {
    "gaussian": (Gaussian(0.8), vectors, lambda A, B: gaussian(A, B, 0.8)),
    "gaussian-columns": (Gaussian(COLUMNS), vectors, lambda A, B: gaussian(A, B, COLUMNS)),
    "laplace": (Laplace(1.3), vectors, lambda A, B: laplace(A, B, 1.3)),
    "laplace-columns": (Laplace(COLUMNS), vectors, lambda A, B: laplace(A, B, COLUMNS)),
    "matern-1/2": (Matern(0.5, 1.3), vectors, lambda A, B: matern(A, B, 1.3, 0.5)),
    "matern-3/2": (Matern(1.5, 0.7), vectors, lambda A, B: matern(A, B, 0.7, 1.5)),
    "matern-5/2": (Matern(2.5, COLUMNS), vectors, lambda A, B: matern(A, B, COLUMNS, 2.5)),
    "rational-quadratic": (
        RationalQuadratic(0.7, 1.5),
        vectors,
        lambda A, B: rational_quadratic(A, B, 1.5, 0.7),
    ),
    "polynomial": (Polynomial(3, 0.5), vectors, lambda A, B: polynomial(A, B, 3, 0.5)),
    "polynomial-no-offset": (Polynomial(2, 0), vectors, lambda A, B: polynomial(A, B, 2, 0)),
    "linear": (Linear(), vectors, linear),
    "delta-labels": (Delta(), labels, delta),
    "delta-words": (Delta(), words, delta),
    "delta-rows": (Delta(), label_rows, delta),
    "trace-rotations": (Trace(), rotations, trace),
    "trace-permutations": (Trace(), permutations, trace),
    "constant": (Constant(2.5), vectors, lambda A, B: np.full((len(A), len(B)), 2.5)),
    "sum": (
        Gaussian(0.8) + Linear(),
        vectors,
        lambda A, B: gaussian(A, B, 0.8) + linear(A, B),
    ),
    "plus-constant": (Linear() + 1, vectors, lambda A, B: linear(A, B) + 1),
    "constant-plus-labels": (0.5 + Delta(), words, lambda A, B: delta(A, B) + 0.5),
    "product": (
        Laplace(1.3) * Polynomial(2),
        vectors,
        lambda A, B: laplace(A, B, 1.3) * polynomial(A, B, 2),
    ),
    "scaled": (2.5 * Matern(1.5, 0.7), vectors, lambda A, B: 2.5 * matern(A, B, 0.7, 1.5)),
    "nested": (
        2 * (Gaussian(1.0) + 3) * Linear(),
        vectors,
        lambda A, B: 2 * (gaussian(A, B, 1.0) + 3) * linear(A, B),
    ),
    "pair": (
        Gaussian(0.8) @ Delta(),
        pairs,
        lambda A, B: gaussian(A[0], B[0], 0.8) * delta(A[1], B[1]),
    ),
    "triple": (
        Laplace(0.8) @ Delta() @ (Trace() + 1),
        triples,
        lambda A, B: laplace(A[0], B[0], 0.8) * delta(A[1], B[1]) * (trace(A[2], B[2]) + 1),
    ),
    "pair-plus-constant": (
        Gaussian(0.8) @ Delta() + 1,
        pairs,
        lambda A, B: gaussian(A[0], B[0], 0.8) * delta(A[1], B[1]) + 1,
    ),
    "function": (
        Function(lambda x, y: np.exp(-abs(x - y).sum())),
        vectors,
        lambda A, B: np.exp(-abs(A[:, None] - B[None]).sum(axis=-1)),
    ),
    "function-vectorized": (
        Function(lambda A, B: A @ B.T, vectorized=True),
        vectors,
        linear,
    ),
    "precomputed": (Precomputed(GRAM), indices, lambda A, B: GRAM[np.ix_(A, B)]),
} | {
    name: (case.kernel, case.draw, case.gram)
    for name, case in KERNELS.items()
    if case.gram is not None
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Kernel, Draw, Gram]:
    return CASES[request.param]


def count(points: Any) -> int:
    return len(points[0]) if isinstance(points, tuple) else len(points)


# --- values --------------------------------------------------------------------------------------


def test_gram_equals_the_formula(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel, draw, formula = case
    rng = np.random.default_rng(0)
    A, B = draw(rng, 11), draw(rng, 8)
    assert_allclose(kernel(A, B), formula(A, B), rtol=1e-12, atol=1e-13)
    assert_allclose(kernel(A), formula(A, A), rtol=1e-12, atol=1e-13)


def test_gram_is_symmetric_and_positive_semidefinite(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel, draw, _ = case
    K = kernel(draw(np.random.default_rng(1), 30))
    assert_allclose(K, K.T, rtol=1e-13, atol=1e-13)
    values = np.linalg.eigvalsh((K + K.T) / 2)
    assert values.min() >= -1e-12 * max(values.max(), 1.0)


def test_diagonal(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel, draw, _ = case
    A = draw(np.random.default_rng(2), 9)
    assert_allclose(kernel.diagonal(A), np.diag(kernel(A)), rtol=1e-13, atol=1e-14)


def test_bounded_says_whether_the_diagonal_stays_bounded() -> None:
    unbounded = {name for name, (kernel, _, _) in CASES.items() if not kernel.bounded}
    assert unbounded == {
        "polynomial",
        "polynomial-no-offset",
        "linear",
        "trace-rotations",
        "trace-permutations",
        "sum",
        "plus-constant",
        "product",
        "nested",
        "triple",
    }


def test_numbers_far_from_zero_keep_their_digits() -> None:
    """Distances are differences of squares: they must not cancel far from the origin."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3))
    near = X + 1e-9 * rng.normal(size=X.shape)
    for shift in (0.0, 1e6):
        # what is left of the points after the shift is the truth
        A, B = X + shift, near + shift
        assert_allclose(Gaussian(1.0)(A, B), gaussian(A, B, 1.0), atol=1e-9)
        assert_allclose(Laplace(1.0)(A, B), laplace(A, B, 1.0), atol=1e-9)
        assert_allclose(Matern(1.5, 1.0)(A, B), matern(A, B, 1.0, 1.5), atol=1e-9)
        assert_array_equal(np.diag(Laplace(1.0)(A)), 1.0)


def test_lists_and_integers_are_points_too() -> None:
    assert_allclose(Gaussian(1.0)([[0], [2]]), np.exp(-np.array([[0, 2], [2, 0]])))
    assert_array_equal(Delta()(["a", "b"], ["b"]), [[0.0], [1.0]])


def test_float32_stays_float32() -> None:
    X = np.random.default_rng(4).normal(size=(20, 2)).astype(np.float32)
    for kernel in (Gaussian(1.0), Laplace(1.0), Polynomial(2), 2 * Gaussian(1.0) + 1):
        assert kernel(X).dtype == np.float32
        assert kernel.matmul(X, X, np.ones(20, dtype=np.float32)).dtype == np.float32
        assert kernel.diagonal(X).dtype == np.float32
        assert_allclose(kernel(X), kernel(X.astype(np.float64)), rtol=2e-5, atol=1e-6)


# --- matmul --------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 2], ids=["one-thread", "two-threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with threadpool_limits(request.param):
        yield request.param


def test_matmul_equals_gram_times_vectors(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel, draw, _ = case
    rng = np.random.default_rng(6)
    for n, m, q in ((1, 1, 1), (1, 17, 2), (17, 1, 3), (13, 29, 5)):
        A, B, V = draw(rng, n), draw(rng, m), rng.normal(size=(m, q))
        assert_allclose(kernel.matmul(A, B, V), kernel(A, B) @ V, rtol=1e-11, atol=1e-11)
        one = kernel.matmul(A, B, V[:, 0])
        assert one.shape == (n,)
        assert_allclose(one, kernel(A, B) @ V[:, 0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.0),
        Laplace(COLUMNS),
        RationalQuadratic(1.0, 1.0),
        Polynomial(2),
        Linear() + 1,
        2 * Gaussian(1.0) * Linear(),
    ],
    ids=repr,
)
def test_matmul_of_many_tiles_on_threads(kernel: Kernel, threads: int) -> None:
    """Sizes that no tile divides, large enough to be shared out among threads."""
    rng = np.random.default_rng(7)
    A, B, V = vectors(rng, 1151), vectors(rng, 1033), rng.normal(size=(1033, 2))
    K = kernel(A, B)
    scale = abs(K).max() * 1033
    assert_allclose(kernel.matmul(A, B, V), K @ V, rtol=1e-9, atol=1e-13 * scale)
    assert_allclose(kernel.matmul(A, B, V[:, 0]), K @ V[:, 0], rtol=1e-9, atol=1e-13 * scale)


def test_matmul_of_pairs_on_threads(threads: int) -> None:
    rng = np.random.default_rng(8)
    kernel = Gaussian(1.0) @ Delta()
    A, B, V = pairs(rng, 1101), pairs(rng, 1033), rng.normal(size=1033)
    assert_allclose(kernel.matmul(A, B, V), kernel(A, B) @ V, rtol=1e-9, atol=1e-10)


def test_matmul_never_stores_the_gram_matrix() -> None:
    X = np.random.default_rng(9).normal(size=(5000, 2))
    with threadpool_limits(1):
        tracemalloc.start()
        Gaussian(1.0).matmul(X, X, np.ones(5000))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 25e6 < 5000 * 5000 * 8 / 4


def test_matmul_refuses_vectors_of_the_wrong_length() -> None:
    X = np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"V: expected shape \(4,\) or \(4, q\).*got \(3,\)"):
        Gaussian(1.0).matmul(X, X, np.ones(3))


# --- explicit features ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "draw"),
    [
        *((Polynomial(p, c), vectors) for p in (1, 2, 3, 4) for c in (0.0, 0.5, 1.0)),
        (Linear(), vectors),
        (Delta(), labels),
        (Delta(), words),
        (Delta(), label_rows),
        (Trace(), rotations),
        (Constant(3.0), vectors),
        (Constant(3.0), pairs),
        (Linear() + 1, vectors),
        (2.0 * Polynomial(2), vectors),
        (Linear() * Polynomial(2), vectors),
        (Linear() @ Delta(), pairs),
        (Linear() @ Delta() @ Trace(), triples),
        (Linear() @ Delta() + 1, pairs),
    ],
    ids=lambda value: repr(value) if isinstance(value, Kernel) else value.__name__,
)
def test_features_equal_the_gram(kernel: Kernel, draw: Draw) -> None:
    A = draw(np.random.default_rng(10), 15)
    features = kernel.feature_map(A)
    assert features is not None
    Z = features(A)
    assert Z.shape == (15, features.rank)
    assert_allclose(Z @ Z.T, kernel(A), rtol=1e-11, atol=1e-12)


def test_features_are_as_few_as_they_can_be() -> None:
    A = vectors(np.random.default_rng(0), 30)
    assert Polynomial(2, 1.0).feature_map(A).rank == 10  # all monomials of degree ≤ 2 in 3 letters
    assert Polynomial(2, 0.0).feature_map(A).rank == 6  # of degree 2
    assert np.linalg.matrix_rank(Polynomial(2, 1.0).feature_map(A)(A)) == 10
    assert Delta().feature_map(np.array(["b", "a", "b"])).rank == 2


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0), Matern(), Linear() + Gaussian()])
def test_kernels_without_finite_features_say_so(kernel: Kernel) -> None:
    assert kernel.feature_map(np.zeros((3, 2))) is None


# --- algebra -------------------------------------------------------------------------------------


def test_sums_and_products_work_in_any_order() -> None:
    X = vectors(np.random.default_rng(11), 7)
    k, g = Laplace(1.0), Linear()
    K, G = k(X), g(X)
    for kernel, truth in [
        (k + g, K + G),
        (g + k, K + G),
        (k + 2, K + 2),
        (2 + k, K + 2),
        (k * g, K * G),
        (3 * k, 3 * K),
        (k * 3, 3 * K),
        (k + g + 1, K + G + 1),
        ((k + 1) * (g + 2), (K + 1) * (G + 2)),
        (0.5 * (k + g) + 0.25 * k * g, 0.5 * (K + G) + 0.25 * K * G),
    ]:
        assert_allclose(kernel(X), truth, rtol=1e-12, atol=1e-13)
        assert_allclose(kernel.diagonal(X), np.diag(truth), rtol=1e-12, atol=1e-13)


def test_tensor_products_chain() -> None:
    chained = Gaussian(1.0) @ Delta() @ Linear()
    assert chained == TensorProduct(Gaussian(1.0), Delta(), Linear())
    assert len(chained.kernels) == 3


def test_composites_resolve_every_part() -> None:
    rng = np.random.default_rng(12)
    X, Y = vectors(rng, 50), vectors(rng, 50)
    sigma = Gaussian().resolve(X).bandwidth
    assert (2 * (Gaussian() + 1) * Laplace()).resolve(X) == 2 * (Gaussian(sigma) + 1) * Laplace(
        sigma
    )
    resolved = (Gaussian() @ Laplace()).resolve((X, 3 * Y))
    assert resolved.kernels[0].bandwidth == sigma
    assert resolved.kernels[1].bandwidth == pytest.approx(3 * np.median(pdist(Y)), rel=1e-12)


# --- equality, repr, parameters ------------------------------------------------------------------


def test_equality_compares_type_and_parameters() -> None:
    assert Gaussian(1.0) == Gaussian(1) != Gaussian(2.0)
    assert Gaussian(1.0) != Laplace(1.0)
    assert Gaussian() == Gaussian("median") != Gaussian(1.0)
    assert Gaussian(np.array([1.0, 2.0])) == Gaussian(np.array([1.0, 2.0]))
    assert Gaussian(np.array([1.0, 2.0])) != Gaussian(np.array([1.0, 3.0]))
    assert Gaussian(np.array([1.0, 2.0])) != Gaussian(1.0)
    assert Polynomial(2, 1.0) == Polynomial() != Polynomial(3)
    assert Gaussian(1.0) + Linear() == Gaussian(1.0) + Linear() != Linear() + Gaussian(1.0)
    assert 2 * Gaussian(1.0) == 2 * Gaussian(1.0) != 3 * Gaussian(1.0)
    assert Gaussian(1.0) @ Delta() == Gaussian(1.0) @ Delta() != Gaussian(1.0) @ Linear()
    assert Gaussian(1.0) @ Delta() != Gaussian(1.0) @ Delta() @ Delta()
    assert Gaussian(1.0) @ Delta() @ Delta() != Gaussian(1.0) @ Delta()
    assert Precomputed(np.eye(3)) == Precomputed(np.eye(3)) != Precomputed(np.eye(4))
    assert Gaussian(1.0) != 1.0
    assert Gaussian(1.0) != "Gaussian(1.0)"


def test_one_bandwidth_a_column_is_equal_however_it_was_given() -> None:
    X = np.random.default_rng(0).normal(size=(5, 2))
    given = [(1.0, 2.0), [1.0, 2.0], np.array([1.0, 2.0])]
    resolved = [Gaussian(value).resolve(X) for value in given]
    assert resolved[0] == resolved[1] == resolved[2]


def test_equal_kernels_have_equal_hashes(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel = case[0]
    assert hash(kernel) == hash(clone(kernel))
    assert len({kernel, clone(kernel)}) == 1


READABLE = [
    Gaussian(),
    Gaussian(0.25),
    Gaussian((1.0, 2.0)),
    Matern(2.5, 0.5),
    RationalQuadratic(2.0, 0.5),
    Polynomial(3, 0.5),
    Delta(),
    Trace(),
    Linear() + 1,
    2.5 * Gaussian(0.5),
    Gaussian(0.5) + Linear(),
    (Gaussian(0.5) + Linear()) * Laplace(2.0),
    2.0 * (Gaussian(0.5) + 1),
    Gaussian(0.5) @ Delta() @ Linear(),
    (Gaussian(0.5) + 1) @ Delta(),
    Gaussian(0.5) @ Delta() + 1,
]


@pytest.mark.parametrize("kernel", READABLE, ids=repr)
def test_repr_reads_back(kernel: Kernel) -> None:
    assert eval(repr(kernel), vars(kernels)) == kernel


def test_repr_is_short_whatever_the_parameters() -> None:
    assert "100×100" in repr(Precomputed(np.eye(100)))
    assert "overlap" in repr(Function(overlap))
    assert repr(Gaussian(1.23456789)) == "Gaussian(bandwidth=1.23457)"


def overlap(x: str, y: str) -> float:
    return float(len(set(x) & set(y)))


def test_clone_keeps_parameters(case: tuple[Kernel, Draw, Gram]) -> None:
    kernel, draw, _ = case
    copy = clone(kernel)
    assert copy is not kernel
    assert type(copy) is type(kernel)
    assert copy == kernel
    A = draw(np.random.default_rng(0), 5)
    assert_allclose(copy(A), kernel(A), rtol=0, atol=0)


def test_get_and_set_params() -> None:
    kernel = Matern(1.5, 2.0)
    assert kernel.get_params() == {"nu": 1.5, "bandwidth": 2.0}
    assert kernel.set_params(bandwidth=3.0, nu=2.5) is kernel
    assert kernel == Matern(2.5, 3.0)


def test_nested_params_of_sums_and_products() -> None:
    kernel = Gaussian(1.0) + 2 * Laplace(2.0)
    assert kernel.get_params()["left__bandwidth"] == 1.0
    assert kernel.get_params()["right__kernel__bandwidth"] == 2.0
    kernel.set_params(left__bandwidth=5.0, right__factor=3.0, right__kernel__bandwidth=4.0)
    assert kernel == Gaussian(5.0) + 3.0 * Laplace(4.0)


def test_params_of_tensor_products() -> None:
    kernel = Gaussian(1.0) @ Delta() @ Laplace(2.0)
    assert kernel.get_params(deep=False) == {
        "kernel_0": Gaussian(1.0),
        "kernel_1": Delta(),
        "kernel_2": Laplace(2.0),
    }
    assert kernel.get_params()["kernel_2__bandwidth"] == 2.0
    copy = clone(kernel)
    assert copy.set_params(kernel_0__bandwidth=3.0, kernel_1=Linear()) is copy
    assert copy == Gaussian(3.0) @ Linear() @ Laplace(2.0)
    assert kernel == Gaussian(1.0) @ Delta() @ Laplace(2.0)  # a clone shares nothing
    assert clone(kernel).kernels[0] is not kernel.kernels[0]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (Gaussian(1.0), "width"),
        (Gaussian(1.0) + Linear(), "middle__bandwidth"),
        (Gaussian(1.0) @ Delta(), "bandwidth"),
        (Gaussian(1.0) @ Delta(), "kernel_5"),
        (Gaussian(1.0) @ Delta(), "kernel_0__width"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_unknown_params_are_refused_by_name(kernel: Kernel, name: str) -> None:
    with pytest.raises(ValueError, match="Invalid parameter"):
        clone(kernel).set_params(**{name: 1.0})


def test_resolving_leaves_the_specification_alone() -> None:
    kernel = Gaussian() + Laplace()
    kernel.resolve(np.random.default_rng(0).normal(size=(9, 2)))
    assert kernel == Gaussian() + Laplace()


def test_a_resolved_kernel_does_not_follow_later_changes_of_the_specification() -> None:
    """What a model keeps (`kernel_x_`, `embedding.kernel`) is its own."""
    X = np.random.default_rng(0).normal(size=(9, 2))
    for kernel, change in [
        (Gaussian(1.0), {"bandwidth": 2.0}),
        (Polynomial(2), {"degree": 3}),
        (Constant(1.0), {"value": 2.0}),
        (Gaussian(1.0) + Polynomial(2), {"right__degree": 3}),
    ]:
        resolved = kernel.resolve(X)
        before = resolved(X)
        kernel.set_params(**change)
        assert_array_equal(resolved(X), before, err_msg=repr(kernel))


# --- the median bandwidth ------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian, Laplace, Matern, RationalQuadratic])
@pytest.mark.parametrize("n", [2, 3, 10, 201])
def test_median_is_the_median_of_pairwise_distances(kernel: type[Kernel], n: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, 3))
    assert kernel().resolve(X).bandwidth == pytest.approx(np.median(pdist(X)), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e3, 1e100])
def test_median_follows_the_scale_and_ignores_the_origin(scale: float) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    sigma = np.median(pdist(X))
    assert Gaussian().resolve(scale * X).bandwidth == pytest.approx(scale * sigma, rel=1e-10)
    assert Gaussian().resolve(X + 1e6).bandwidth == pytest.approx(sigma, rel=1e-6)


def test_median_of_many_points_is_deterministic_and_close() -> None:
    X = np.random.default_rng(1).normal(size=(4000, 2))
    state = np.random.get_state()[1].copy()  # noqa: NPY002  the global state must stay untouched
    first, second = (Gaussian().resolve(X).bandwidth for _ in range(2))
    assert first == second
    assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert first == pytest.approx(np.median(pdist(X)), rel=0.05)  # measured: 0.4%
    assert Gaussian().resolve(X[:1000]).bandwidth == pytest.approx(
        np.median(pdist(X[:1000])), rel=1e-12
    )


def test_median_is_never_zero_on_tied_data() -> None:
    tied = np.zeros((200, 1))
    tied[:3] = [[1.0], [2.0], [4.0]]
    sigma = Gaussian().resolve(tied).bandwidth
    distances = pdist(tied)
    assert sigma == pytest.approx(np.median(distances[distances > 0]))
    assert np.median(distances) == 0  # which is what it must not be
    rounded = np.random.default_rng(2).integers(0, 2, size=(50, 1)).astype(float)
    assert Gaussian().resolve(rounded).bandwidth == 1.0


def test_median_of_ties_far_from_the_origin() -> None:
    X = 1e7 + np.repeat([[0.0, 0.1], [0.3, 0.2], [0.5, 0.9]], 30, axis=0)
    distances = pdist(X)
    sigma = Gaussian().resolve(X).bandwidth
    assert sigma == pytest.approx(np.median(distances[distances > 0]), rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 50, 1500])
def test_median_of_constant_data_is_positive(n: int) -> None:
    for value in (0.0, 3.25, -1e9):
        assert Gaussian().resolve(np.full((n, 2), value)).bandwidth == 1.0


def test_median_weights_equal_repetition() -> None:
    rng = np.random.default_rng(3)
    for n in (3, 8, 20):
        X, w = rng.normal(size=(n, 2)), rng.integers(0, 4, size=n)
        w[:2] = 1
        repeated = Gaussian().resolve(np.repeat(X, w, axis=0)).bandwidth
        for scale in (1.0, 0.125, 7.0):
            weighted = Gaussian().resolve(X, scale * w).bandwidth
            assert weighted == pytest.approx(repeated, rel=1e-12)


def test_median_of_many_points_looks_where_the_weight_is() -> None:
    rng = np.random.default_rng(4)
    X, w = 100 * rng.normal(size=(3000, 1)), np.zeros(3000)
    w[[5, 1700, 2900]] = 1 / 3
    assert Gaussian().resolve(X, w).bandwidth == pytest.approx(np.median(pdist(X[w > 0])))


def test_one_bandwidth_a_column_has_to_fit_the_columns() -> None:
    X = np.zeros((4, 3))
    with pytest.raises(ValueError, match="bandwidth has 2 entries for 3 columns"):
        Gaussian([1.0, 2.0])(X)
    with pytest.raises(ValueError, match="bandwidth has 2 entries for 3 columns"):
        Gaussian([1.0, 2.0]).resolve(X)


def test_a_median_bandwidth_has_to_be_resolved_first() -> None:
    with pytest.raises(ValueError, match=r"'median'.*resolve"):
        Gaussian()(np.zeros((3, 2)))


# --- functions and Gram matrices of one's own ----------------------------------------------------


def test_function_on_strings() -> None:
    texts = np.array(["ab", "abc", "x"])
    kernel = Function(overlap)
    assert_array_equal(kernel(texts), [[2, 2, 0], [2, 3, 0], [0, 0, 1]])
    assert_array_equal(kernel.diagonal(texts), [2, 3, 1])
    assert_array_equal(kernel.matmul(texts, texts, np.ones(3)), [4, 5, 1])


def test_both_kinds_of_function_agree() -> None:
    rng = np.random.default_rng(5)
    A, B = vectors(rng, 6), vectors(rng, 4)
    one = Function(lambda x, y: (1 + x @ y) ** 2)
    many = Function(lambda A, B: (1 + A @ B.T) ** 2, vectorized=True)
    assert_allclose(one(A, B), many(A, B))
    assert_allclose(one.diagonal(A), many.diagonal(A))


def test_function_of_the_wrong_shape_or_value_is_refused() -> None:
    X = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"returned shape \(3,\).*expected \(3, 3\)"):
        Function(lambda A, B: np.zeros(len(A)), vectorized=True)(X)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Function(lambda x, y: np.nan)(X)


def test_precomputed_takes_indices() -> None:
    kernel = Precomputed(GRAM)
    assert_array_equal(kernel(np.arange(12)), GRAM)
    assert_array_equal(kernel([3, 3, 1], [0, 2]), GRAM[np.ix_([3, 3, 1], [0, 2])])
    assert_array_equal(kernel.diagonal([4, 5]), GRAM[[4, 5], [4, 5]])
    assert_array_equal(Precomputed(GRAM.tolist())([1, 2]), GRAM[1:3, 1:3])


@pytest.mark.parametrize(
    ("gram", "points", "error", "message"),
    [
        (np.eye(3), [0, 3], ValueError, "0 … 2"),
        (np.eye(3), [-1], ValueError, "0 … 2"),
        (np.eye(3), [0.0, 1.0], TypeError, "integer indices"),
        (np.eye(3), [[0], [1]], TypeError, "integer indices"),
        (np.ones((3, 2)), [0, 1], ValueError, "square"),
        (np.arange(9.0).reshape(3, 3), [0, 1], ValueError, "symmetric"),
        (np.full((2, 2), np.nan), [0, 1], ValueError, "NaN"),
    ],
)
def test_precomputed_refuses_what_does_not_fit(
    gram: Any, points: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Precomputed(gram).resolve(Precomputed(gram).check(points))
