"""From embeddings back to points: gradients, modes, quantiles, projections, samples, densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from meanmap import ConditionalEmbedding, Embedding, decoding, embed
from meanmap.kernels import (
    Chordal,
    Delta,
    Energy,
    Function,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Trace,
)
from oracles.embeddings import decoding_objective

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def signed(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights as rules make them: they sum to one, a fifth of them negative."""
    w = rng.normal(1.2, 1.0, size=shape)
    return w / w.sum(axis=-1, keepdims=True)


def objective(e: Embedding, x: np.ndarray) -> np.ndarray:
    """-2 e(x) + k(x, x) (Song, Fukumizu and Gretton 2013, eq. 26)."""
    return -2 * e(x) + e.kernel.diagonal(x)


# --- gradients -----------------------------------------------------------------------------------

SMOOTH: list[Kernel] = [
    Gaussian(0.7),
    Gaussian((0.5, 2.0)),
    Matern(1.5, (1.0, 2.0)),
    Matern(2.5, 0.8),
    RationalQuadratic(1.5, 0.9),
    Polynomial(3),
    Polynomial(2, 0.0),
    Polynomial(1),
    Linear(),
]
KINKED: list[Kernel] = [Laplace(1.3), Matern(0.5, 1.0), Energy(), Energy((1.0, -1.0))]


@pytest.mark.parametrize("kernel", SMOOTH + KINKED, ids=repr)
def test_gradients_are_finite_differences(kernel: Any, rng: np.random.Generator) -> None:
    A, B, h = rng.normal(size=(4, 2)), rng.normal(size=(6, 2)), 1e-6
    gradient = kernel.gradient(A, B)
    steps = [h * axis for axis in np.eye(2)]
    differences = [(kernel(A + step, B) - kernel(A - step, B)) / (2 * h) for step in steps]
    assert gradient.shape == (4, 6, 2)
    assert_allclose(gradient, np.stack(differences, axis=-1), atol=1e-8)
    assert_allclose(kernel.gradient(A[0], B), gradient[0], rtol=1e-12)
    assert np.isfinite(kernel.gradient(B, B)).all()


@pytest.mark.parametrize("kernel", KINKED[:3], ids=repr)
def test_at_a_kink_the_gradient_of_the_distance_is_zero(kernel: Any) -> None:
    x = np.zeros((1, 2))
    assert_array_equal(kernel.gradient(x, x), np.zeros((1, 1, 2)))


def test_gradients_refuse_bad_points() -> None:
    with pytest.raises(ValueError, match="2 features"):
        Gaussian(1.0).gradient([[0.0, 1.0]], [[0.0]])
    with pytest.raises(ValueError, match="resolve"):
        Gaussian().gradient([0.0], [[0.0]])


# --- the energy kernel ---------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [0.0, 2.5, (1.0, -2.0, 0.5)])
def test_mmd_with_the_energy_kernel_is_half_the_energy_distance(
    origin: Any, rng: np.random.Generator
) -> None:
    X, Y = rng.normal(size=(40, 3)), rng.normal(0.7, 2.0, size=(30, 3))
    kernel = Energy(origin)
    direct = 2 * cdist(X, Y).mean() - cdist(X, X).mean() - cdist(Y, Y).mean()
    squared = embed(X, kernel=kernel).distance(embed(Y, kernel=kernel)) ** 2
    assert_allclose(squared, direct / 2, rtol=1e-10)
    K = kernel(X)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)
    assert_allclose(np.diag(K), kernel.diagonal(X), atol=1e-12)
    assert not kernel.bounded


def test_the_energy_kernel_says_what_is_wrong() -> None:
    assert Energy() == Energy(0.0) != Energy(1.0)
    with pytest.raises(ValueError, match="3 columns"):
        embed(np.ones((4, 3)), kernel=Energy((0.0, 1.0)))
    with pytest.raises(TypeError, match="origin must be a finite number"):
        embed(np.ones((4, 3)), kernel=Energy(np.nan))


def test_kernels_say_where_they_are_characteristic() -> None:
    for kernel in (Gaussian(), Laplace(), Matern(), RationalQuadratic()):
        assert kernel.characteristic == kernel.universal == "R^d"
    assert "first moment" in str(Energy().characteristic)
    assert Energy().universal is None
    for kernel in (Linear(), Polynomial()):
        assert kernel.characteristic is None
        assert kernel.universal is None


# --- pre-images of vectors -----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_preimages_of_smooth_kernels_beat_a_fine_grid(
    kernel: Any, rng: np.random.Generator
) -> None:
    X = np.concatenate([rng.normal(-1.5, 0.4, size=(30, 2)), rng.normal(1.5, 0.4, size=(25, 2))])
    axis = np.linspace(-4, 4, 161)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    for scale in (1.0, 1 + 0.8 * rng.normal(size=55)):
        w = scale * np.full(55, 1 / 55)
        e = embed(X, kernel=kernel, weights=w)
        mode = e.preimage()
        assert objective(e, mode[None])[0] <= objective(e, np.concatenate([grid, X])).min() + 1e-9
        slope = w @ kernel.gradient(mode, X) - kernel.gradient(mode, mode[None])[0]
        assert np.linalg.norm(slope) < 1e-4 * abs(w).sum()


def test_preimages_in_batches_of_any_library(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(30, 2)), rng.exponential(size=(2, 30)) ** 2
    for kernel in (Matern(2.5, 0.7), RationalQuadratic(1.0, 0.7), Polynomial(2), Linear()):
        e = embed(X, kernel=kernel, weights=w)
        modes = e.preimage()
        assert_allclose(modes, np.stack([one.preimage() for one in e]), atol=1e-4)
        if torch is not None:
            same = embed(torch.asarray(X), kernel=kernel, weights=torch.asarray(w)).preimage()
            assert isinstance(same, torch.Tensor)
            assert_allclose(same.numpy(), modes, atol=1e-4)


def test_factors_and_constants_do_not_move_a_preimage(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(30, 2)), signed(rng, 30)
    for kernel in (Gaussian(0.7), Matern(1.5, 0.7), Linear()):
        mode = embed(X, kernel=kernel, weights=w).preimage()
        for other in (3.0 * kernel, kernel + 1, 2.0 * (1 + kernel)):
            assert_allclose(embed(X, kernel=other, weights=w).preimage(), mode, atol=1e-12)
    assert_allclose(mode, w @ X)


@pytest.mark.parametrize("kernel", [Laplace(0.8), Matern(0.5, 0.8), Energy()], ids=repr)
def test_preimages_of_kinked_kernels_are_atoms(kernel: Kernel, rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(40, 2)), signed(rng, 40)
    e, K = embed(X, kernel=kernel, weights=w), kernel(X)
    scores = [decoding_objective(w, K[:, i], K[i, i]) for i in range(40)]
    assert_array_equal(e.preimage(), X[int(np.argmin(scores))])


# --- modes over candidates -----------------------------------------------------------------------


def test_preimages_over_candidates(rng: np.random.Generator) -> None:
    X, grid = rng.normal(size=(50, 2)), rng.uniform(-2, 2, size=(200, 2))
    for kernel in (Gaussian(0.6), Laplace(0.6), Polynomial(2)):
        e = embed(X, kernel=kernel, weights=signed(rng, 3, 50))
        expected = grid[(2 * e(grid) - kernel.diagonal(grid)).argmax(axis=1)]
        assert_array_equal(e.preimage(candidates=grid), expected)
        assert_array_equal(e[0].preimage(candidates=grid), expected[0])
    assert embed(["a", "b", "b"]).preimage(candidates=["a", "c"]) == "a"
    joint = embed((X, ["u", "v"] * 25))
    point, label = joint.preimage(candidates=(X[:4], ["u", "v", "u", "v"]))
    assert point.shape == (2,)
    assert label in {"u", "v"}


def test_modes_over_words() -> None:
    """A custom kernel on words, where the mode is a word that is not an atom."""

    def letters(a: str, b: str) -> float:
        return float(len(set(a) & set(b)))

    e = embed(np.array(["stone", "tone", "tones"]), kernel=Function(letters))
    assert e.mode(candidates=np.array(["kiwi", "notes", "banana"])) == "notes"


def test_candidates_of_the_wrong_kind_are_refused(rng: np.random.Generator) -> None:
    e = embed(rng.normal(size=(10, 2)))
    with pytest.raises(ValueError, match="3 features"):
        e.mode(candidates=np.zeros((4, 3)))
    with pytest.raises(ValueError, match="0 sample"):
        e.mode(candidates=np.zeros((0, 2)))


# --- rotations and permutations ------------------------------------------------------------------


def rotations(vectors: np.ndarray) -> np.ndarray:
    """Rodrigues' formula: rotations of R³ about `vectors` by their length."""
    angle = np.linalg.norm(vectors, axis=1)[:, None, None]
    K = np.zeros((len(vectors), 3, 3))
    x, y, z = (vectors / np.maximum(angle[:, :, 0], 1e-300)).T
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -z, y, -x
    K -= np.swapaxes(K, 1, 2)
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def distance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.linalg.norm(A - B, axis=(-2, -1))


@pytest.mark.parametrize("kernel", [Trace(), Trace() + 1, 2.0 * Trace()], ids=repr)
def test_rotations_decode_exactly(kernel: Kernel, rng: np.random.Generator) -> None:
    R = rotations(rng.normal(size=(20, 3)))
    e = embed(R, kernel=kernel, weights=0.3 * np.eye(20))  # a scaled feature is decoded as well
    assert_allclose(e.mode(), R, atol=1e-12)
    # the average of a symmetric cloud, whose centre is not an atom
    noise = rotations(0.5 * rng.normal(size=(10, 3)))
    cloud = R[0] @ np.concatenate([noise, np.swapaxes(noise, 1, 2)])
    mode = embed(cloud, kernel=kernel).mode()
    assert_allclose(mode, R[0], atol=1e-12)
    assert distance(cloud, mode).min() > 0.1


def test_rotations_stay_rotations_where_the_sum_is_a_reflection(rng: np.random.Generator) -> None:
    R = rotations(rng.normal(size=(12, 3)))
    w = rng.normal(size=(50, 12))
    modes = embed(R, kernel=Trace(), weights=w).mode()
    assert_allclose(np.linalg.det(modes), 1.0)
    assert_allclose(np.swapaxes(modes, 1, 2) @ modes, np.tile(np.eye(3), (50, 1, 1)), atol=1e-12)
    values = np.tensordot(w, R, 1)
    others = rotations(rng.normal(0, 2, size=(5000, 3)))
    scores = np.tensordot(values, others, axes=([1, 2], [1, 2]))
    assert ((values * modes).sum(axis=(1, 2)) >= scores.max(axis=1)).all()


def test_modes_of_the_chordal_kernel_are_rotations(rng: np.random.Generator) -> None:
    R = rotations(0.8 * rng.normal(size=(40, 3)))
    others = rotations(rng.normal(size=(5000, 3)))
    for bandwidth in (0.5, 2.0):
        e = embed(R, kernel=Chordal(bandwidth), weights=signed(rng, 3, 40))
        modes = e.mode()
        assert_allclose(np.linalg.det(modes), 1.0)
        rest = np.swapaxes(modes, 1, 2) @ modes - np.eye(3)
        assert abs(rest).max() < 1e-12
        reached = np.array([one(mode) for one, mode in zip(e, modes, strict=True)])
        assert (reached >= e(np.concatenate([R, others])).max(axis=1) - 1e-12).all()
    assert_allclose(embed(R, kernel=Chordal(1.0), weights=np.eye(40)).mode(), R, atol=1e-9)


def test_decoding_a_grid_of_pairs(rng: np.random.Generator) -> None:
    """Chain rule (a), whose atoms are all pairs."""
    X = rng.normal(size=(15, 1))
    model = ConditionalEmbedding(regularization=1e-2).fit(X, np.sin(X))
    joint = model.joint(embed(X[:5]), form="a")
    x, y = joint.mode()
    assert (x.shape, y.shape) == ((1,), (1,))
    assert joint.project().weights.min() >= 0
    assert joint.sample(3, rng=0)[1].shape == joint.herd(3)[0].shape == (3, 1)
    assert joint.quantile(0.5)[0] == np.median(X[:5])


def test_pairs_of_a_grid_are_drawn_one_after_the_other(rng: np.random.Generator) -> None:
    """5.5 standard errors in each of four cells: fails by chance less than once in a million."""
    x, y = np.array(["a", "a", "a", "b"] * 10), np.array(["u", "u", "v", "v"] * 10)
    model = ConditionalEmbedding(Delta(), Delta(), 0).fit(x, y)
    n = 20_000
    first, second = model.joint(embed(x), form="a").sample(n, rng=0)
    for a, b, p in (("a", "u", 1 / 2), ("a", "v", 1 / 4), ("b", "u", 0), ("b", "v", 1 / 4)):
        share = ((first == a) & (second == b)).mean()
        assert abs(share - p) <= 5.5 * np.sqrt(p * (1 - p) / n)
    assert (first[:-1] == first[1:]).mean() < 0.7  # in no order


def path(t: np.ndarray) -> np.ndarray:
    """A smooth path of rotations."""
    return rotations(np.concatenate([1.2 * t, np.sin(2 * t), 0.5 + 0 * t], axis=1))


def test_noisy_rotations_beat_the_best_training_point(rng: np.random.Generator) -> None:
    """Learned from noisy poses: the decoded pose is nearer to the truth than any pose we saw."""
    t = rng.uniform(-1, 1, size=(300, 1))
    noisy = path(t) @ rotations(0.4 * rng.normal(size=(300, 3)))
    at = np.linspace(-0.8, 0.8, 60)[:, None]
    truth = path(at)
    given = ConditionalEmbedding(None, Trace()).fit(t, noisy).given(at)
    error = distance(given.mode(), truth).mean()
    assert error < 0.8 * distance(given.mode(candidates=noisy), truth).mean()
    # and nearer than the nearest training pose, which is unknown in practice
    assert error < 0.9 * distance(noisy[None], truth[:, None]).min(axis=1).mean()


@pytest.mark.parametrize("kernel", [Trace(), Trace() + 1], ids=repr)
def test_permutations_decode_exactly(kernel: Kernel, rng: np.random.Generator) -> None:
    P = np.stack([np.eye(7)[rng.permutation(7)] for _ in range(20)])
    assert_array_equal(embed(P, kernel=kernel, weights=0.3 * np.eye(20)).mode(), P)


def test_noisy_permutations_beat_the_best_training_point(rng: np.random.Generator) -> None:
    """Every atom has two or three places wrong; together they have none."""
    exact, best = 0, []
    for _ in range(40):
        truth = rng.permutation(8)
        atoms = []
        for _ in range(15):
            order = truth.copy()
            moved = rng.choice(8, size=3, replace=False)
            order[moved] = np.roll(order[moved], 1)
            atoms.append(np.eye(8)[order])
        P = np.stack(atoms)
        mode = embed(P, kernel=Trace()).mode()
        assert_array_equal(np.sort(mode.argmax(axis=1)), np.arange(8))
        exact += int((mode.argmax(axis=1) == truth).all())
        best.append(distance(P, np.eye(8)[truth]).min())
    assert min(best) > 2
    assert exact >= 38


def test_matrices_that_are_neither_decode_to_atoms(rng: np.random.Generator) -> None:
    A = rng.normal(size=(20, 2, 3))
    mode = embed(A, kernel=Trace(), weights=signed(rng, 20)).mode()
    assert (abs(A - mode).max(axis=(1, 2)) == 0).any()
    reflections = np.stack([np.diag([1.0, -1.0]), np.eye(2)])
    mode = embed(reflections, kernel=Trace(), weights=[0.7, 0.3]).mode()
    assert_array_equal(mode, reflections[0])


# --- quantiles -----------------------------------------------------------------------------------

LEVELS = np.array([0.0, 0.05, 0.31, 0.5, 0.77, 0.95, 1.0])


def test_quantiles_of_positive_weights_are_numpys(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(101, 3)), rng.exponential(size=101)
    truth = np.quantile(X, LEVELS, axis=0, weights=w, method="inverted_cdf")
    assert_allclose(embed(X, weights=3 * w).quantile(LEVELS), truth)
    plain = np.quantile(X, LEVELS, axis=0, method="inverted_cdf")
    assert_allclose(embed(X).quantile(LEVELS), plain)
    ties = rng.integers(0, 4, size=(60, 1)).astype(float)
    assert_allclose(
        embed(ties).quantile(LEVELS), np.quantile(ties, LEVELS, axis=0, method="inverted_cdf")
    )


def slow_quantile(x: np.ndarray, w: np.ndarray, q: float) -> float:
    """Isotonic regression as the quadratic programme that it is, by pooling adjacent violators."""
    order = np.argsort(x)
    blocks: list[list[float]] = []
    for value in np.cumsum(w[order] / w.sum()):
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    F = np.clip([np.mean(block) for block in blocks for _ in block], 0, 1)
    return float(x[order][int(np.argmax(q <= F))])


def test_quantiles_of_signed_weights(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(60, 2)), signed(rng, 5, 60)
    assert (w < 0).any(axis=1).all()
    levels = rng.uniform(0.02, 0.98, size=20)
    answer = embed(X, weights=w).quantile(levels)
    assert answer.shape == (20, 5, 2)
    for i, b, j in np.ndindex(answer.shape):
        assert answer[i, b, j] == slow_quantile(X[:, j], w[b], levels[i])
    assert (np.diff(embed(X, weights=w).quantile(np.sort(levels)), axis=0) >= 0).all()


def test_the_shape_of_quantiles(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2))
    one, batch = embed(X), embed(X, weights=signed(rng, 4, 30))
    assert one.quantile(0.5).shape == (2,)
    assert one.quantile([0.5]).shape == (1, 2)
    assert batch.quantile(0.5).shape == (4, 2)
    assert batch.quantile(np.full((2, 3), 0.5)).shape == (2, 3, 4, 2)
    low, high = batch.interval(0.8)
    assert_array_equal(low, batch.quantile(0.1))
    assert_array_equal(high, batch.quantile(0.9))
    first, second = embed((X, X[:, :1])).quantile([0.1, 0.9])
    assert (first.shape, second.shape) == ((2, 2), (2, 1))
    R = rotations(rng.normal(size=(10, 3)))
    assert embed(R, kernel=Trace()).quantile(0.5).shape == (3, 3)
    assert embed(np.arange(5), kernel=Delta()).quantile(0.5) == 2
    if torch is not None:
        same = embed(torch.asarray(X, dtype=torch.float32)).quantile([0.1, 0.9])
        assert same.dtype == torch.float32
        assert_allclose(same.numpy(), one.quantile([0.1, 0.9]), rtol=1e-6)


def test_many_quantiles_at_once_are_those_one_by_one(rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 2))
    model = ConditionalEmbedding(regularization=1e-3).fit(X, X + rng.normal(size=X.shape))
    e, q = model.given([0.3, 0.3]), rng.uniform(size=10_000)
    many = e.quantile(q)
    assert many.shape == (10_000, 2)
    for i in range(0, 10_000, 997):
        assert_allclose(many[i], e.quantile(q[i]), rtol=0, atol=0)


def linear_gaussian(seed: int, n: int, draws: int) -> tuple[np.ndarray, Embedding]:
    """Fukumizu, Song and Gretton (2013, section 5.1) for d = 2: the truth, and its posteriors."""
    rng, d = np.random.default_rng(seed), 2
    A = rng.normal(size=(2 * d, 2 * d))
    V = A.T @ A + 2 * np.eye(2 * d)
    Z = rng.multivariate_normal(np.zeros(2 * d), V, size=n)
    prior = rng.multivariate_normal(np.zeros(d), V[:d, :d] / 2, size=n)
    x = rng.multivariate_normal(np.zeros(d), V[:d, :d] / 2, size=draws)
    slope = V[d:, :d] @ np.linalg.inv(V[:d, :d])
    noise = V[d:, d:] - slope @ V[:d, d:]
    y = x @ slope.T + rng.multivariate_normal(np.zeros(d), noise, size=draws)
    posterior = ConditionalEmbedding().fit(Z[:, :d], Z[:, d:]).posterior(embed(prior))
    return x, posterior.given(y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_intervals_cover() -> None:
    x, e = linear_gaussian(0, 1000, 500)
    for level in (0.5, 0.9):
        low, high = e.interval(level)
        covered = ((low <= x) & (x <= high)).mean(axis=0)
        assert (abs(covered - level) < 0.08).all(), covered


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda e: e.quantile(1.5), ValueError, r"\[0, 1\].*1\.5"),
        (lambda e: e.quantile([0.5, -0.1]), ValueError, r"\[0, 1\].*-0\.1"),
        (lambda e: e.quantile(np.nan), ValueError, r"\[0, 1\].*nan"),
        (lambda e: e.quantile("median"), TypeError, "probability"),
        (lambda e: e.interval(0.0), ValueError, "level must lie between 0 and 1"),
        (lambda e: e.interval(1.0), ValueError, "level must lie between 0 and 1"),
        (lambda e: e.interval(90), ValueError, "level must lie between 0 and 1"),
        (lambda e: e.interval([0.9]), ValueError, "level must lie between 0 and 1"),
        (lambda e: e.interval("wide"), ValueError, "level must lie between 0 and 1"),
        (lambda e: (e - e).quantile(0.5), ValueError, "cannot be normalised"),
        (lambda e: e.sample(0), ValueError, "n must be a whole number ≥ 1, got 0"),
        (lambda e: e.sample(2.5), ValueError, "whole number"),
        (lambda e: e.sample(3, rng="seed"), TypeError, "rng must be"),
        (lambda e: e.sample(3, rng=-1), TypeError, "rng must be"),
        (lambda e: e.herd(-1), ValueError, "whole number"),
        (lambda e: (-e).herd(3), ValueError, "cannot be normalised"),
        (lambda e: e.density([0.0, 0.0], bandwidth=-1.0), ValueError, "bandwidth must be positive"),
        (lambda e: e.density([0.0, 0.0], bandwidth=(1.0,)), ValueError, "1 entries for 2 columns"),
        (lambda e: e.density([0.0, 0.0], bandwidth="wide"), ValueError, "positive number"),
        (lambda e: e.density([0.0]), ValueError, "1 features"),
        (lambda e: embed(["a", "b"]).quantile(0.5), TypeError, "no order"),
        (lambda e: embed(["a", "b"]).interval(), TypeError, "no order"),
        (lambda e: embed(["a", "b"]).density(["a"]), TypeError, "density needs points"),
        (lambda e: embed((e.atoms, e.atoms)).density(e.atoms), TypeError, "density needs points"),
        (lambda e: embed(np.ones((5, 2))).density([1.0, 1.0]), ValueError, "constant"),
    ],
)
def test_bad_questions_are_refused_in_words(ask: Any, error: type[Exception], words: str) -> None:
    e = embed(np.random.default_rng(0).normal(size=(12, 2)))
    with pytest.raises(error, match=words):
        ask(e)


# --- the nearest probability ---------------------------------------------------------------------


def slow_projection(K: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The quadratic programme by SciPy's general solver."""
    n = len(w)
    result = minimize(
        lambda p: ((p - w) @ K @ (p - w), 2 * K @ (p - w)),
        np.full(n, 1 / n),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(n)},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return result.x


@pytest.mark.parametrize(
    "kernel", [Gaussian(0.5), Gaussian(2.0), Laplace(1.0), Polynomial(2), Linear() + 1], ids=repr
)
@pytest.mark.parametrize("mass", [1.0, 0.6])
def test_the_nearest_probability_is_the_quadratic_programmes(
    kernel: Kernel, mass: float, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(12, 2))
    for _ in range(3):
        w = mass * signed(rng, 12) + 0.2 * rng.normal(size=12)
        e = embed(X, kernel=kernel, weights=w)
        p = e.project()
        assert (p.weights >= 0).all()
        assert p.weights.sum() == pytest.approx(1.0, abs=1e-12)
        slow = slow_projection(kernel(X), w)
        least = embed(X, kernel=kernel, weights=slow / slow.sum()).distance(e)
        assert p.distance(e) <= least + 1e-6
        if kernel == Gaussian(0.5):  # well enough conditioned for the weights to be unique
            assert_allclose(p.weights, slow, atol=1e-4)


def duality_gap(Psi: np.ndarray, m: np.ndarray, p: np.ndarray) -> float:
    """How far ½‖Ψᵀp - m‖² may be from its least, by Frank and Wolfe's bound."""
    gradient = Psi @ (p @ Psi - m)
    return float(p @ gradient - gradient.min())


def test_projections_are_certified(rng: np.random.Generator) -> None:
    X = rng.normal(size=(500, 2))
    e = embed(X, weights=signed(rng, 3, 500))
    p = e.project()
    rows, m = e._rows_and_targets()
    for i in range(3):
        assert duality_gap(rows, m[i], p.weights[i]) < 1e-10
    clipped = np.maximum(e.weights, 0)
    clipped /= clipped.sum(axis=1, keepdims=True)
    assert (p.distance(e) < embed(X, kernel=e.kernel, weights=clipped).distance(e)).all()
    assert p[1].distance(e[1].project()) < 1e-5


def test_a_probability_is_its_own_projection(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(40, 2)), rng.exponential(size=40)
    e = embed(X, weights=w / w.sum())
    assert_array_equal(e.project().weights, e.weights)
    again = embed(X, weights=signed(rng, 40)).project()
    assert again.project().distance(again) < 1e-12
    # with one-hot features: the nearest point of the simplex
    table = embed(["a", "b", "c"], kernel=Delta(), weights=[0.9, 0.5, -0.2]).project()
    assert_allclose(table.weights, [0.7, 0.3, 0.0], atol=1e-6)


def test_projections_of_conditionals_and_joints(rng: np.random.Generator) -> None:
    X = rng.normal(size=(100, 1))
    given = ConditionalEmbedding(regularization=1e-3).fit(X, np.sin(X)).given([[0.1], [0.5]])
    p = given.project()
    assert (p.weights >= 0).all()
    assert (p.distance(given) <= given.normalized().distance(given) + 0.2).all()
    joint = embed((X[:30], X[30:60]), weights=signed(rng, 30))
    assert joint.project().weights.min() >= 0
    # coordinates of another sample, which do not know these atoms
    far = embed(X[:20] + 50, kernel=Gaussian(1.0), weights=signed(rng, 20))
    there = embed(far.atoms, weights=far.weights, basis=embed(X, kernel=Gaussian(1.0)).space)
    assert_allclose(there.project().weights, far.project().weights, atol=1e-4)
    if torch is not None:
        w = signed(rng, 100)
        here, there = embed(X, weights=w), embed(torch.asarray(X), weights=torch.asarray(w))
        assert isinstance(there.project().weights, torch.Tensor)
        assert_allclose(there.project().distance(there), here.project().distance(here), atol=1e-6)


# --- sampling and herding ------------------------------------------------------------------------


def test_samples_honour_their_seed(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 2))
    e = embed(X, weights=signed(rng, 50))
    draw = e.sample(20, rng=3)
    assert draw.shape == (20, 2)
    assert_array_equal(draw, e.sample(20, rng=3))
    assert_array_equal(draw, e.sample(20, rng=np.random.default_rng(3)))
    assert not np.array_equal(draw, e.sample(20, rng=4))
    generator = np.random.default_rng(3)
    assert not np.array_equal(e.sample(20, rng=generator), e.sample(20, rng=generator))
    assert e.sample(2).shape == (2, 2)
    assert embed(X, weights=signed(rng, 3, 50)).sample(7, rng=0).shape == (3, 7, 2)
    first, second = embed((X, ["a", "b"] * 25)).sample(5, rng=0)
    assert (first.shape, second.shape) == ((5, 2), (5,))


def test_samples_have_the_probabilities_of_the_projection() -> None:
    e = embed(["a", "b", "c"], kernel=Delta(), weights=[0.9, 0.5, -0.2])
    labels, counts = np.unique(e.sample(20_000, rng=0), return_counts=True)
    assert list(labels) == ["a", "b"]
    assert_allclose(counts / 20_000, [0.7, 0.3], atol=0.02)  # six standard errors


def test_herding_beats_sampling(rng: np.random.Generator) -> None:
    X = rng.normal(size=(800, 2))
    e = embed(X, kernel=Gaussian(1.0))

    def miss(points: np.ndarray) -> float:
        return float(e.distance(embed(points, kernel=e.kernel)))

    herds = [miss(e.herd(n)) for n in (10, 40, 160)]
    draws = [np.mean([miss(e.sample(n, rng=s)) for s in range(10)]) for n in (10, 40, 160)]
    assert herds[0] < draws[0] / 2
    assert herds[2] < draws[2] / 6  # measured: a tenth, at a rate of about 1/n
    assert herds[0] / herds[2] > 8
    assert draws[0] / draws[2] < 6
    assert_array_equal(e.herd(40)[:10], e.herd(10))


def test_herding_is_greedy(rng: np.random.Generator) -> None:
    """Each next atom is the one that brings the average nearest, also where k(x, x) varies."""
    X = rng.normal(size=(15, 2))
    for kernel in (Gaussian(0.7), Polynomial(2), Energy()):
        e = embed(X, kernel=kernel, weights=signed(rng, 2, 15))
        herd = e.herd(6)
        assert herd.shape == (2, 6, 2)
        assert_array_equal(e[1].herd(6), herd[1])
        chosen: list[np.ndarray] = []
        for _ in range(6):
            trials = [np.stack([*chosen, x]) for x in X]
            misses = [e[0].distance(embed(points, kernel=kernel)) for points in trials]
            chosen.append(X[int(np.argmin(misses))])
        assert_array_equal(herd[0], np.stack(chosen))


# --- densities -----------------------------------------------------------------------------------


def test_densities_integrate_to_one(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 1))
    grid = np.linspace(-8, 8, 4001)[:, None]
    for kernel in (Gaussian(5.0), Laplace(0.1), Linear() + 1):  # the bandwidth is the density's own
        e = embed(X, kernel=kernel, weights=signed(rng, 2, 200) * [[1.0], [0.7]])
        for bandwidth in (None, 0.3, [0.1]):
            values = e.density(grid, bandwidth)
            assert values.shape == (2, 4001)
            assert values.min() >= 0
            assert_allclose(values.sum(axis=1) * 16 / 4000, 1.0, atol=1e-6)
    assert e[0].density([0.5]).shape == ()
    assert_allclose(e[0].density([0.5]), e.density([[0.5]])[0, 0])


def test_a_density_is_near_the_truth(rng: np.random.Generator) -> None:
    X = rng.multivariate_normal([0, 0], np.diag([1.0, 25.0]), size=3000)
    grid = rng.normal(size=(50, 2)) * [1.0, 5.0]
    truth = np.exp(-0.5 * (grid**2 @ [1.0, 1 / 25])) / (2 * np.pi * 5)
    assert abs(embed(X).density(grid) - truth).max() < 0.15 / (2 * np.pi * 5)
    # a belief that sits on one point is as wide as the sample says
    one = embed(X[:50], weights=np.eye(50)[0])
    assert 0 < one.density(X[0]) < np.inf


def test_the_functions_behind_the_methods(rng: np.random.Generator) -> None:
    X = rng.normal(size=(20, 2))
    e = embed(X, kernel=Gaussian(0.8))
    assert_array_equal(decoding.preimage(e.kernel, e.atoms, e.weights[None])[0], e.preimage())
    assert_array_equal(decoding.highest(X, e.weights), e.mode())
