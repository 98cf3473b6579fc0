"""Each erratum of the papers that has a numeric content, with the library as the witness.

The library equals the corrected form and differs from the printed one. That the corrected Gram
forms equal the operators is tested with the oracles; here the library is compared with both.

Without a number to compare: the garbled observation matrix of Song et al. (2009, section 7), and
the encyclopedia's "strictly positive definite implies universal", whose counterexample stands with
the oracles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap import ConditionalEmbedding, Embedding, bayes_rule, chain_rule, embed, sum_rule
from meanmap.kernels import Constant, Delta, Gaussian, Kernel, Laplace, Linear, Polynomial, Trace
from meanmap.spaces import PivotedCholesky
from oracles.conditional import centred_conditional_weights
from oracles.dynamics import initial_filter_weights
from oracles.embeddings import rkhs_relative_error
from oracles.errata import (
    printed_000_eq23,
    printed_001_theorem5,
    printed_001_theorem9,
    printed_002_alpha1,
    printed_002_bayes,
    printed_002_eq11,
    printed_003_bayes,
    printed_003_mmd,
    printed_004_chain,
    printed_004_conditional,
)
from oracles.kernels import (
    delta,
    delta_features,
    gaussian,
    laplace,
    linear,
    polynomial,
    trace_features,
)
from oracles.linalg import Array
from oracles.normals import gaussian_conditional, linear_gaussian_posterior
from oracles.operators import operator_conditional, operator_joint
from oracles.rules import bayes_squared_a, bayes_squared_b, marginal_discrepancy, sum_rule_weights
from oracles.statistics import mmd_squared

Plain = partial(ConditionalEmbedding, centered=False)  # the form of the papers
FINE = PivotedCholesky(tol=1e-13)

# Regularisation strong enough that a misprint in it shows.
LAM, DELTA = 1e-1, 5e-2


@dataclass
class Problem:
    """Points for the library, Gram matrices for the papers' formulas; uniform weights."""

    kernel: Kernel
    x: Array
    y: Array
    z: Array
    prior: Array
    queries_x: Array
    queries_y: Array
    alpha: Array
    gram: Callable[[Array, Array], Array]

    @property
    def K(self) -> Array:
        return self.gram(self.x, self.x)

    @property
    def G(self) -> Array:
        return self.gram(self.y, self.y)

    @property
    def K_prior(self) -> Array:
        return self.gram(self.x, self.prior)

    @property
    def k_x(self) -> Array:
        return self.gram(self.x, self.queries_x)

    @property
    def k_y(self) -> Array:
        return self.gram(self.y, self.queries_y)

    def fit(self, lam: float = LAM, **options) -> ConditionalEmbedding:
        return Plain(self.kernel, self.kernel, lam, FINE, **options).fit(self.x, self.y)

    def embed_prior(self) -> Embedding:
        return embed(self.prior, self.kernel, self.alpha)


KERNELS: dict[str, tuple[Kernel, Callable[[Array, Array], Array]]] = {
    "gaussian": (Gaussian(1.3), lambda a, b: gaussian(a, b, 1.3)),
    "laplace": (Laplace(1.3), lambda a, b: laplace(a, b, 1.3)),
    "polynomial": (Polynomial(2, 1.0), polynomial),
    "delta": (Delta(), delta),
}


@pytest.fixture(params=list(KERNELS))
def problem(request: pytest.FixtureRequest) -> Problem:
    n, m, q = 40, 15, 5
    rng = np.random.default_rng(17)
    if request.param == "delta":
        x = rng.integers(0, 3, n + m + q)
        y = (x + rng.integers(0, 2, n + m + q)) % 3
        z = (y + rng.integers(0, 2, n + m + q)) % 3
    else:
        x = rng.uniform(-1.5, 1.5, size=(n + m + q, 2))
        y = np.sin(x) + 0.3 * rng.normal(size=x.shape)
        z = y * x + 0.3 * rng.normal(size=x.shape)
    alpha = rng.dirichlet(np.ones(m))
    kernel, gram = KERNELS[request.param]
    parts = x[:n], y[:n], z[:n], x[n : n + m], x[n + m :], y[n + m :]
    return Problem(kernel, *parts, alpha, gram)


def distance(weights: Array, truth: Array, gram: Array) -> float:
    """The largest relative RKHS distance of a batch of embeddings, rows on the same atoms."""
    pairs = zip(np.atleast_2d(weights), np.atleast_2d(truth), strict=True)
    return max(rkhs_relative_error(a, b, gram) for a, b in pairs)


EQUAL, DIFFERENT = 1e-7, 1e-2

# --------------------------------------------------------------------------------------
# 1. Fukumizu, Song and Gretton (2013), eq. 11 and Figure 1: a factor n too many
# --------------------------------------------------------------------------------------


def test_002_eq11_has_no_factor_n(problem):
    p = problem
    n = len(p.x)
    corrected = sum_rule_weights(p.K, p.K_prior, p.alpha, LAM)
    printed = printed_002_eq11(p.K, p.K_prior, p.alpha, LAM)
    u = sum_rule(p.fit(), p.embed_prior()).weights
    assert distance(u, corrected, p.G) < EQUAL
    assert_allclose(printed, n * u, rtol=1e-5, atol=1e-9)
    # a distribution has mass one, or a little less where lambda shrinks it
    assert 0.5 < u.sum() < 1.1
    assert printed.sum() > 0.5 * n


def test_002_figure_1_divides_delta_by_n_squared(problem):
    p = problem
    n = len(p.x)
    arguments = p.K, p.G, p.K_prior, p.alpha, p.k_y, LAM
    model, prior = p.fit(), p.embed_prior()
    answer = bayes_rule(model, prior, "squared", DELTA).given(p.queries_y).weights
    printed = printed_002_bayes(*arguments, DELTA).T
    assert distance(answer, bayes_squared_b(*arguments, DELTA).T, p.K) < EQUAL
    assert distance(printed, answer, p.K) > DIFFERENT
    # what is printed is the library at another delta
    other = bayes_rule(model, prior, "squared", DELTA / n**2).push(embed(p.queries_y, p.kernel))
    assert distance(printed.mean(axis=0), other.weights, p.K) < 1e-5


def gaussian_experiment(seed: int, n: int = 200) -> tuple[Array, ...]:
    """002, section 5.1, d = 2: a sample, a prior, observations and the true posterior means."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, 4))
    V = A.T @ A + 2 * np.eye(4)
    joint = rng.normal(size=(n, 4)) @ np.linalg.cholesky(V).T
    A, b, S = gaussian_conditional(np.zeros(4), V, 2)
    C = V[:2, :2] / 2
    root = np.linalg.cholesky(C).T
    prior = rng.normal(size=(n, 2)) @ root
    y = rng.normal(size=(500, 2)) @ root @ A.T + rng.normal(size=(500, 2)) @ np.linalg.cholesky(S).T
    truth, _ = linear_gaussian_posterior(y, A, b, S, np.zeros(2), C)
    return joint[:, :2], joint[:, 2:], prior, y, truth


def density_posterior_mean(x: Array, y: Array, prior: Array, at: Array, h: float) -> Array:
    """002, section 5.1: importance weights from kernel density estimates of p(y|x)."""
    near = gaussian(prior, x, h)
    likelihood = (near / near.sum(axis=1, keepdims=True)) @ gaussian(y, at, h)
    return (likelihood / np.maximum(likelihood.sum(axis=0), 1e-300)).T @ prior


@pytest.fixture(scope="module")
def experiment() -> dict[str, Array]:
    """Mean squared errors of six runs: the library, the printed form, the prior, densities."""
    errors: dict[str, list[float]] = {}
    for seed in range(6):
        x, y, prior, at, truth = gaussian_experiment(seed)

        def record(name: str, means: Array, truth: Array = truth) -> None:
            squared = ((means - truth) ** 2).sum(axis=1).mean()
            errors.setdefault(name, []).append(float(squared))

        model = Plain(Gaussian(), Gaussian(), 1e-2).fit(x, y)
        kx, ky = model.kernel_x_, model.kernel_y_
        record("squared", model.posterior(prior, "squared", 1e-4).predict(at))
        record("importance", model.posterior(prior).predict(at))
        alpha = np.full(len(prior), 1 / len(prior))
        grams = kx(x), ky(y), kx(x, prior), alpha, ky(y, at)
        record("printed", printed_002_bayes(*grams, 1e-2, 1e-4).T @ x)
        record("prior", np.broadcast_to(prior.mean(axis=0), truth.shape))
        for h in (0.7, 1.0, 1.4, 2.0, 4.0, 6.0, 8.0):
            record(f"density {h}", density_posterior_mean(x, y, prior, at, h))
    return {name: np.array(values) for name, values in errors.items()}


def test_002_figure_1_as_printed_loses_to_the_prior_mean(experiment):
    """In four of six runs or more; the corrected rule wins by far: 6.3, 1.2, 3.0 in all."""
    assert (experiment["printed"] > experiment["prior"]).sum() >= 4
    for method in ("squared", "importance"):
        assert experiment[method].sum() < 0.7 * experiment["prior"].sum()
        assert (experiment[method] < experiment["printed"]).all()


# --------------------------------------------------------------------------------------
# 2. Fukumizu, Song and Gretton (2013), section 4.3: a factor T too many in the first belief
# --------------------------------------------------------------------------------------


def test_002_first_belief_has_no_factor_T(problem):
    p = problem
    reverse = Plain(p.kernel, p.kernel, LAM, FINE).fit(p.y, p.x)
    belief = reverse.weights(p.queries_y)
    printed = printed_002_alpha1(p.G, p.k_y, LAM).T
    assert distance(belief, initial_filter_weights(p.G, p.k_y, LAM).T, p.K) < EQUAL
    assert_allclose(printed, len(p.x) * belief, rtol=1e-5, atol=1e-8)
    assert (np.abs(belief.sum(axis=1) - 1) < 0.7).all()  # near one, never near T


# --------------------------------------------------------------------------------------
# 3. Song, Fukumizu and Gretton (2013), eq. 23: a Gram matrix misplaced; eq. 24 is right
# --------------------------------------------------------------------------------------


def test_000_eq23_has_its_gram_matrix_misplaced(problem):
    p = problem
    arguments = p.K, p.G, p.K_prior, p.alpha, p.k_y, LAM, DELTA
    K_atoms = p.gram(p.prior, p.prior)
    answer = bayes_rule(p.fit(), p.embed_prior(), "squared", DELTA, form="a").given(p.queries_y)
    assert distance(answer.weights, bayes_squared_a(*arguments).T, K_atoms) < EQUAL
    assert distance(printed_000_eq23(*arguments).T, answer.weights, K_atoms) > DIFFERENT


def test_000_eq24_is_right_as_printed(problem):
    """`D K ((D K)^2 + lambda~ I)^-1 D K_:x`, where the paper's K is the Gram matrix on our Y."""
    p = problem
    n = len(p.x)
    D = np.diag(np.linalg.solve(p.K + n * LAM * np.eye(n), p.K_prior @ p.alpha))
    DG = D @ p.G
    printed = (DG @ np.linalg.solve(DG @ DG + DELTA * np.eye(n), D @ p.k_y)).T
    answer = bayes_rule(p.fit(), p.embed_prior(), "squared", DELTA, form="b").given(p.queries_y)
    assert distance(answer.weights, printed, p.K) < EQUAL


# --------------------------------------------------------------------------------------
# 4. Song, Huang, Smola and Fukumizu (2009), Theorems 5 and 9: the mean is dropped
# --------------------------------------------------------------------------------------


def test_001_theorem_5_drops_the_mean(problem):
    p = problem
    answer = p.fit(centered=True).given(p.queries_x)
    printed = printed_001_theorem5(p.K, p.k_x, LAM).T
    assert_allclose(printed.sum(axis=1), 0.0, atol=1e-10)
    assert_allclose(answer.weights.sum(axis=1), 1.0, rtol=1e-9)
    corrected = centred_conditional_weights(p.K, p.k_x, LAM).T
    assert distance(answer.weights, corrected, p.G) < EQUAL
    assert distance(printed, answer.weights, p.G) > 0.1


def test_001_theorem_5_on_a_line_with_an_intercept():
    x = np.linspace(-1, 2, 25)[:, None]
    y = 3 + 2 * x
    model = Plain(Linear(), Linear(), 1e-9, centered=True).fit(x, y)
    assert model.predict([[0.5]]).item() == pytest.approx(4.0)
    printed = printed_001_theorem5(linear(x, x), linear(x, np.array([[0.5]])), 1e-9)
    assert (printed.T @ y).item() == pytest.approx(1.0)
    # without the constant that centring restores, the line goes through the origin
    bare = Plain(Linear(), Linear(), 1e-9).fit(x, y).predict([[0.0]])
    assert bare.item() == pytest.approx(0.0, abs=1e-12)


def test_001_theorem_9_drops_the_mean_too(problem):
    """The filter's step: s^t and o^(t+1) in a sum of kernels, the belief on s^(t+1)."""
    p = problem
    n = len(p.x)
    states, following, observations = p.x, np.roll(p.x, -1, axis=0), p.z
    beta = np.linspace(0, 2, n) / np.linspace(0, 2, n).sum()
    K, U = p.gram(states, states), p.gram(observations, observations)
    transfer, u_o = p.gram(states, following), U[:, 3]
    printed = printed_001_theorem9(K, U, transfer, beta, u_o, LAM)
    corrected = centred_conditional_weights(K + U, transfer @ beta + u_o, LAM)
    # on pairs, phi(s) and psi(o) side by side: the kernel k(s, s') + k(o, o')
    one = Constant(1.0)
    side_by_side = p.kernel @ one + one @ p.kernel
    model = Plain(side_by_side, p.kernel, LAM, FINE, centered=True)
    model.fit((states, observations), following)
    observed = np.repeat(observations[3:4], n, axis=0)
    step = model.push(embed((following, observed), side_by_side, beta))
    gram = p.gram(following, following)
    assert distance(step.weights, corrected, gram) < EQUAL
    assert step.mass == pytest.approx(1.0)
    assert printed.sum() == pytest.approx(0.0, abs=1e-10)
    assert distance(printed, step.weights, gram) > 0.1


# --------------------------------------------------------------------------------------
# 5. Fukumizu, Song and Gretton (2013), section 4.2: a loss in the candidate's own space
# --------------------------------------------------------------------------------------

BANDWIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def line(seed: int) -> tuple[Array, Array, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 1))
    return x, x + 0.3 * rng.normal(size=(60, 1)), rng


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
@pytest.mark.parametrize("seed", range(3))
def test_002_cross_validation_in_the_candidates_own_space(seed):
    """Posteriors averaged over held-out y give the marginal back: the largest bandwidth wins."""
    x, y, rng = line(seed)
    folds = np.array_split(rng.permutation(60), 5)
    reference = Gaussian(1.0)
    own, fixed = [], []
    for bandwidth in BANDWIDTHS:
        kernel = Gaussian(bandwidth)
        totals = np.zeros(2)
        for held in folds:
            train = np.setdiff1d(np.arange(60), held)
            model = Plain(kernel, kernel, 1e-2, FINE).fit(x[train], y[train])
            posterior = model.posterior(embed(x[train], kernel), "squared", 1e-4)
            average = posterior.push(embed(y[held], kernel)).weights
            for i, measure in enumerate((kernel, reference)):
                gap = embed(x[train], measure, average).distance(embed(x[held], measure))
                totals[i] += gap**2
        own.append(totals[0])
        fixed.append(totals[1])
        K, G = gaussian(x, x, bandwidth), gaussian(y, y, bandwidth)
        R = gaussian(x, x, 1.0)
        assert_allclose(totals[0], marginal_discrepancy(K, G, folds, 1e-2, 1e-4), atol=1e-6)
        assert_allclose(totals[1], marginal_discrepancy(K, G, folds, 1e-2, 1e-4, R), atol=1e-6)
    assert np.argmin(own) == len(own) - 1
    assert 0 < np.argmin(fixed) < len(fixed) - 1


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_measured_in_one_reference_kernel(seed):
    """`loss` compares candidates by one measure, whatever their own kernels."""
    x, y, rng = line(seed)
    new_x = rng.normal(size=(200, 1))
    new_y = new_x + 0.3 * rng.normal(size=(200, 1))
    own, fixed = [], []
    for bandwidth in BANDWIDTHS:
        kernel = Gaussian(bandwidth)
        model = Plain(kernel, kernel, 1e-3).fit(x, y)
        own.append(model.loss(new_x, new_y, reference=kernel))
        fixed.append(model.loss(new_x, new_y))
        # the kernel on Y has no part in the weights, and none in the measure
        other = Plain(kernel, Laplace(0.4), 1e-3).fit(x, y)
        assert other.loss(new_x, new_y) == pytest.approx(fixed[-1], rel=1e-9)
    assert np.argmin(own) == len(own) - 1
    assert 0 < np.argmin(fixed) < len(fixed) - 1


# --------------------------------------------------------------------------------------
# 6. Fukumizu, Song and Gretton (2013), Figure 2, d = 2: the grid of the densities starts at 2
# --------------------------------------------------------------------------------------


def test_002_figure_2_densities_are_as_good_on_a_finer_grid(experiment):
    """Best bandwidth of each run; in all 1.4 from h = 2 on, 1.0 on the finer grid."""

    def best(bandwidths: tuple[float, ...]) -> float:
        return float(np.min([experiment[f"density {h}"] for h in bandwidths], axis=0).sum())

    published, finer = best((2.0, 4.0, 6.0, 8.0)), best((0.7, 1.0, 1.4, 2.0, 4.0, 6.0, 8.0))
    ours = experiment["squared"].sum()
    assert finer < 0.9 * published
    assert finer < 1.1 * ours


# --------------------------------------------------------------------------------------
# 7. The lecture notes' factors and transpose; the encyclopedia's Bayes rule and MMD
# --------------------------------------------------------------------------------------


def planar(angle: Array) -> Array:
    """Rotations of the plane."""
    rows = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], axis=1)
    return rows.reshape(-1, 2, 2)


def with_features(kind: str) -> tuple[Kernel, Array, Array, Array, Array]:
    """A kernel whose own features are its coordinates: the operators are plain matrices."""
    rng = np.random.default_rng(19)
    if kind == "delta":
        x = np.r_[0, 1, 2, rng.integers(0, 3, 30)]
        y = (x + np.r_[0, 0, 0, rng.integers(0, 2, 30)]) % 3
        names = np.arange(3)
        return Delta(), x, y, delta_features(x, names), delta_features(y, names)
    if kind == "trace":
        x = rng.uniform(-1, 2, 33)
        x, y = planar(x), planar(x + 0.4 + 0.3 * rng.normal(size=33))
        return Trace(), x, y, trace_features(x), trace_features(y)
    x = rng.normal(size=(33, 3))
    y = x @ rng.normal(size=(3, 3)) + 0.2 * rng.normal(size=(33, 3))
    return Linear(), x, y, x, y


FINITE = ["linear", "trace", "delta"]


@pytest.mark.parametrize("kind", FINITE)
def test_004_section_4_1_swaps_its_factors(kind):
    kernel, x, y, PX, PY = with_features(kind)
    C = Plain(kernel, kernel, LAM).fit(x, y).operator_.matrix
    assert_allclose(C, operator_conditional(PX, PY, LAM), atol=1e-10)
    printed = printed_004_conditional(PX, PY, LAM)
    assert np.linalg.norm(printed - C) > DIFFERENT * np.linalg.norm(C)


@pytest.mark.parametrize("kind", FINITE)
def test_004_section_2_1_omits_a_transpose(kind):
    """`C_Y|X C_XX = C_YX`; the notes have `C_X|Y C_YY`, which is C_XY."""
    kernel, x, y, PX, PY = with_features(kind)
    C_XX, C_YX = operator_joint([PX, PX]), operator_joint([PY, PX])
    model = Plain(kernel, kernel, 0).fit(x, y)
    assert_allclose(model.operator_.matrix @ C_XX, C_YX, atol=1e-10)
    # the library's joints are ordered (X, Y); form (b) finds the training weights back only with
    # a kernel that has constants, which linear and trace kernels do not
    for form in ("a", "b") if kind == "delta" else ("a",):
        joint = chain_rule(model, embed(x, kernel), form=form).operator()
        assert_allclose(joint, C_YX.T, atol=1e-10)
    assert_allclose(embed((x, y), kernel @ kernel).operator(), C_YX.T, atol=1e-12)
    printed = printed_004_chain(PX, PY)
    assert_allclose(printed, C_YX.T, atol=1e-10)
    assert np.linalg.norm(printed - C_YX) > DIFFERENT * np.linalg.norm(C_YX)


def test_003_regularises_with_the_wrong_constant(problem):
    p = problem
    K_atoms = p.gram(p.prior, p.prior)
    grams = p.K, p.G, p.K_prior, p.alpha, p.k_y
    answer = bayes_rule(p.fit(), p.embed_prior(), "squared", DELTA, form="a").given(p.queries_y)
    printed = printed_003_bayes(*grams, DELTA).T
    assert distance(printed, answer.weights, K_atoms) > DIFFERENT
    # even with its factors put right, lambda~ in place of lambda is another estimator
    swapped = bayes_squared_a(*grams, DELTA / len(p.x), DELTA).T
    assert distance(swapped, answer.weights, K_atoms) > DIFFERENT


def test_003_mmd_holds_for_samples_of_any_size():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(15, 2)) + 0.5
    kernel = Gaussian(1.0)
    for other in (y, y[:12]):
        grams = gaussian(x, x, 1.0), gaussian(other, other, 1.0), gaussian(x, other, 1.0)
        distance = embed(x, kernel).distance(embed(other, kernel))
        assert distance**2 == pytest.approx(mmd_squared(*grams), rel=1e-10)
        if len(other) == len(x):
            assert printed_003_mmd(*grams) == pytest.approx(distance**2, rel=1e-10)
        else:
            with pytest.raises(IndexError):
                printed_003_mmd(*grams)


def test_003_supremum_is_the_distance_not_its_square():
    """Over the unit ball |E f(X) - E f(Y)| reaches ||mu_X - mu_Y||, at the witness function."""
    rng = np.random.default_rng(6)
    kernel = Gaussian(1.0)
    P = embed(rng.normal(size=(12, 1)), kernel)
    Q = embed(rng.normal(size=(15, 1)) + 0.7, kernel)
    gap = P.distance(Q)
    witness = (P - Q) / gap
    assert witness.norm() == pytest.approx(1.0)
    assert P.expect(witness) - Q.expect(witness) == pytest.approx(gap, rel=1e-10)
    assert abs(gap - gap**2) > 0.1 * gap
    for _ in range(20):  # no other function of the ball does better
        f = embed(rng.normal(size=(10, 1)), kernel, rng.normal(size=10))
        f = f / f.norm()
        assert abs(P.expect(f) - Q.expect(f)) <= gap
