"""The oracles agree with each other: Gram forms, operators, tables, closed forms, corrections."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose

from oracles.conditional import (
    centred_conditional_weights,
    conditional_weights,
    leave_one_out_error,
)
from oracles.dynamics import initial_filter_weights
from oracles.embeddings import (
    decoding_objective,
    fixed_point,
    fixed_point_step,
    inner_product,
    joint_norm,
    pair_norm,
    rkhs_relative_error,
)
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
from oracles.graphical import graphical_chain_weights
from oracles.kernels import delta as delta_kernel
from oracles.kernels import (
    delta_features,
    empirical_features,
    gaussian,
    laplace,
    linear,
    matern,
    polynomial,
    polynomial_features,
    rational_quadratic,
    trace,
    trace_features,
)
from oracles.linalg import Array
from oracles.normals import (
    distance_to_gaussian_squared,
    gaussian_conditional,
    gaussian_embedding,
    gaussian_inner,
    gaussian_mmd_squared,
    linear_gaussian_conditional_embedding,
    linear_gaussian_joint,
    linear_gaussian_posterior,
    linear_gaussian_predictive,
)
from oracles.operators import (
    operator_bayes_importance,
    operator_bayes_squared,
    operator_centred_conditional,
    operator_chain_a,
    operator_chain_b,
    operator_conditional,
    operator_conditional_cross_covariance,
    operator_joint,
    operator_mean,
    operator_prior_weights,
    operator_sum_a,
    operator_sum_b,
)
from oracles.rules import (
    bayes_average,
    bayes_importance,
    bayes_reweighted,
    bayes_squared_a,
    bayes_squared_b,
    chain_rule_a_weights,
    chain_rule_b_weights,
    marginal_discrepancy,
    positive_part,
    sum_rule_b_weights,
    sum_rule_weights,
)
from oracles.statistics import (
    conditional_cross_covariance_norm,
    conditional_cross_covariance_weights,
    hsic,
    joint_minus_product_norm,
    mmd_squared,
)
from oracles.tables import (
    counts_to_sample,
    random_counts,
    random_prior,
    random_table,
    table_bayes,
    table_chain,
    table_conditional,
    table_marginals,
    table_sum,
    table_to_cells,
)

# Margins of the Monte Carlo tests fail less than once in a million, all comparisons together.
FAILURE = 1e-6


def rotations(rng: np.random.Generator, n: int) -> Array:
    """Random rotations of the plane and an axis: (n, 3, 3)."""
    angle = rng.uniform(-np.pi, np.pi, n)
    R = np.zeros((n, 3, 3))
    R[:, 0, 0] = R[:, 1, 1] = np.cos(angle)
    R[:, 1, 0], R[:, 0, 1], R[:, 2, 2] = np.sin(angle), -np.sin(angle), 1.0
    return R


@dataclass
class Problem:
    """A sample, a prior and queries, as Gram matrices and as explicit features."""

    w: Array | None
    alpha: Array
    K: Array
    G: Array
    U: Array
    K_prior: Array
    K_atoms: Array
    k_x: Array
    k_y: Array
    PX: Array
    PY: Array
    PZ: Array
    prior: Array
    px: Array
    py: Array


def make_problem(kind: str, weighted: bool, n: int = 14, m: int = 9, q: int = 4) -> Problem:
    """Draw a problem whose Gram matrices come from the kernel and whose features are explicit."""
    rng = np.random.default_rng([7, n, m, q])
    total = n + m + q
    if kind == "trace":
        x = rotations(rng, total)
        y = x @ rotations(rng, total)
        z = y @ rotations(rng, total)
        kernel, features = trace, trace_features
    elif kind == "delta":
        x = rng.integers(0, 3, total)
        y = (x + rng.integers(0, 2, total)) % 3
        z = (y + rng.integers(0, 2, total)) % 3
        x[:3] = y[:3] = z[:3] = [0, 1, 2]  # every category is seen
        kernel = delta_kernel

        def features(points):
            return delta_features(points, np.arange(3))
    else:
        x = rng.normal(size=(total, 2))
        y = np.sin(x) + 0.3 * rng.normal(size=(total, 2))
        z = y * x + 0.3 * rng.normal(size=(total, 2))
        if kind == "polynomial":
            kernel, features = polynomial, polynomial_features
        else:
            scale = 1.3

            def kernel(A, B):
                return {"gaussian": gaussian, "laplace": laplace}[kind](A, B, scale)

            def features(points):
                return empirical_features(kernel(points, points))

    a, b = slice(0, n), slice(n, n + m)
    c = slice(n + m, total)
    PX, PY, PZ = features(x), features(y), features(z)
    w = rng.dirichlet(np.ones(n)) if weighted else None
    alpha = rng.dirichlet(np.ones(m))
    alpha[:2] += [0.3, -0.3]  # a prior's weights may be negative (002, section 3.1)
    return Problem(
        w=w,
        alpha=alpha,
        K=kernel(x[a], x[a]),
        G=kernel(y[a], y[a]),
        U=kernel(z[a], z[a]),
        K_prior=kernel(x[a], x[b]),
        K_atoms=kernel(x[b], x[b]),
        k_x=kernel(x[a], x[c]),
        k_y=kernel(y[a], y[c]),
        PX=PX[a],
        PY=PY[a],
        PZ=PZ[a],
        prior=PX[b],
        px=PX[c],
        py=PY[c],
    )


KINDS = ["gaussian", "laplace", "polynomial", "trace", "delta"]
FINITE = ["polynomial", "trace", "delta"]


@pytest.fixture(params=[(k, v) for k in KINDS for v in (False, True)], ids=str)
def problem(request: pytest.FixtureRequest) -> Problem:
    """Every kernel, uniform and weighted."""
    return make_problem(*request.param)


@pytest.fixture(params=[(k, v) for k in FINITE for v in (False, True)], ids=str)
def finite(request: pytest.FixtureRequest) -> Problem:
    """Kernels of finite rank, where the pseudo-inverse makes sense."""
    return make_problem(*request.param)


@pytest.fixture(params=KINDS)
def uniform(request: pytest.FixtureRequest) -> Problem:
    """Every kernel with uniform weights, as the papers print their formulas."""
    return make_problem(request.param, False)


def close(actual, expected, tolerance: float = 1e-8) -> None:
    """Assert agreement to a tolerance relative to the largest entry expected."""
    expected = np.asarray(expected)
    assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def differs(actual, expected, by: float = 1e-2) -> None:
    """Assert a relative difference that no rounding explains."""
    expected = np.asarray(expected)
    assert np.linalg.norm(np.asarray(actual) - expected) > by * np.linalg.norm(expected)


# --------------------------------------------------------------------------------------
# Kernels
# --------------------------------------------------------------------------------------


def test_kernels_match_their_formulas_pair_by_pair():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    for bandwidth in (0.7, np.array([0.5, 1.0, 2.0])):
        column = np.broadcast_to(bandwidth, 3)
        formulas = {
            "gaussian": (gaussian(A, B, bandwidth), lambda r: math.exp(-r * r / 2)),
            "laplace": (laplace(A, B, bandwidth), lambda r: math.exp(-r)),
            "matern12": (matern(A, B, bandwidth, 0.5), lambda r: math.exp(-r)),
            "matern32": (
                matern(A, B, bandwidth, 1.5),
                lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
            ),
            "matern52": (
                matern(A, B, bandwidth, 2.5),
                lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r * r) * math.exp(-math.sqrt(5) * r),
            ),
            "rational": (
                rational_quadratic(A, B, bandwidth, 0.8),
                lambda r: (1 + r * r / 1.6) ** -0.8,
            ),
        }
        for gram, formula in formulas.values():
            for i in range(4):
                for j in range(5):
                    r = math.sqrt(sum(((A[i, d] - B[j, d]) / column[d]) ** 2 for d in range(3)))
                    assert gram[i, j] == pytest.approx(formula(r), rel=1e-13)
    close(linear(A, B), A @ B.T, 1e-14)
    close(polynomial(A, B, 3, 0.5), (A @ B.T + 0.5) ** 3, 1e-14)
    R, Q = rotations(rng, 3), rotations(rng, 4)
    close(trace(R, Q), [[np.trace(r.T @ s) for s in Q] for r in R], 1e-14)
    with pytest.raises(ValueError, match="nu must be"):
        matern(A, B, 1.0, 2.0)


def test_delta_on_labels_and_rows():
    labels = np.array(["a", "b", "a"])
    assert_allclose(delta_kernel(labels, labels), [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    rows = np.array([[0, 1], [0, 2], [0, 1]])
    assert_allclose(delta_kernel(rows, rows), [[1, 0, 1], [0, 1, 0], [1, 0, 1]])


def test_features_reproduce_the_kernel(problem):
    p = problem
    for gram, left, right in [
        (p.K, p.PX, p.PX),
        (p.G, p.PY, p.PY),
        (p.U, p.PZ, p.PZ),
        (p.K_prior, p.PX, p.prior),
        (p.k_x, p.PX, p.px),
        (p.k_y, p.PY, p.py),
    ]:
        close(left @ right.T, gram, 1e-12)


def test_polynomial_features_of_any_degree():
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    left, right = polynomial_features(A, 3, 0.7), polynomial_features(B, 3, 0.7)
    close(left @ right.T, polynomial(A, B, 3, 0.7), 1e-13)


# --------------------------------------------------------------------------------------
# Gram forms equal operators
# --------------------------------------------------------------------------------------

LAMBDAS = [1e-1, 1e-3]


@pytest.mark.parametrize("lam", LAMBDAS)
def test_conditional(problem, lam):
    p = problem
    expected = p.px @ operator_conditional(p.PX, p.PY, lam, p.w).T
    close(conditional_weights(p.K, p.k_x, lam, p.w).T @ p.PY, expected)
    one = conditional_weights(p.K, p.k_x[:, 0], lam, p.w)
    assert one.shape == (len(p.K),)
    close(one @ p.PY, expected[0])


def test_conditional_reduces_to_the_papers_form(uniform):
    p, lam = uniform, 1e-2
    n = len(p.K)
    expected = np.linalg.solve(p.K + n * lam * np.eye(n), p.k_x)  # 000, eq. 11
    close(conditional_weights(p.K, p.k_x, lam), expected, 1e-10)
    close(conditional_weights(p.K, p.k_x, lam, np.full(n, 1 / n)), expected, 1e-10)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_centred_conditional(problem, lam):
    p = problem
    weights = centred_conditional_weights(p.K, p.k_x, lam, p.w)
    close(weights.T @ p.PY, operator_centred_conditional(p.PX, p.PY, p.px, lam, p.w))
    assert_allclose(weights.sum(axis=0), 1.0, atol=1e-10)
    one = centred_conditional_weights(p.K, p.k_x[:, 1], lam, p.w)
    close(one, weights[:, 1])


@pytest.mark.parametrize("lam", LAMBDAS)
def test_sum_and_chain_rules(problem, lam):
    p = problem
    grams, features = (p.K, p.K_prior, p.alpha, lam, p.w), (p.PX, p.PY, p.prior, p.alpha, lam, p.w)
    close(sum_rule_weights(*grams) @ p.PY, operator_sum_a(*features))
    close(p.PY.T @ sum_rule_b_weights(*grams) @ p.PY, operator_sum_b(*features))
    chain_a = chain_rule_a_weights(*grams)
    assert chain_a.shape == p.K_prior.shape
    close(p.PY.T @ chain_a @ p.prior, operator_chain_a(*features))
    close(p.PY.T @ chain_rule_b_weights(*grams) @ p.PX, operator_chain_b(*features))
    close(operator_prior_weights(p.PX, p.prior, p.alpha, lam, p.w), sum_rule_weights(*grams))


@pytest.mark.parametrize(("lam", "delta"), [(1e-1, 1e-2), (1e-2, 1e-4)])
def test_bayes_squared(problem, lam, delta):
    p = problem
    grams = (p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta, p.w)
    features = (p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta)
    expected = operator_bayes_squared(*features, form="b", w=p.w)
    close(bayes_squared_b(*grams).T @ p.PX, expected)
    close(bayes_squared_a(*grams).T @ p.prior, operator_bayes_squared(*features, form="a", w=p.w))
    R = bayes_squared_b(p.K, p.G, p.K_prior, p.alpha, np.eye(len(p.K)), lam, delta, p.w)
    close((R @ p.k_y).T @ p.PX, expected)


@pytest.mark.parametrize(("lam", "delta"), [(1e-1, 1e-1), (1e-2, 1e-3)])
def test_bayes_importance(problem, lam, delta):
    p = problem
    weights = bayes_importance(p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta, p.w)
    expected = operator_bayes_importance(p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta, p.w)
    close(weights.T @ p.PX, expected)
    # Xu et al. write it symmetrically: D^1/2 (D^1/2 G D^1/2 + delta I)^-1 D^1/2 k_y.
    u = positive_part(sum_rule_weights(p.K, p.K_prior, p.alpha, lam, p.w))
    root = np.diag(np.sqrt(u))
    symmetric = root @ np.linalg.solve(root @ p.G @ root + delta * np.eye(len(u)), root @ p.k_y)
    close(weights, symmetric)
    assert u.sum() == pytest.approx(1.0)
    assert (u >= 0).all()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_bayes_reweighted(problem, power):
    p, lam, delta = problem, 1e-1, 1e-2
    weights = bayes_reweighted(p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta, power, p.w)
    w = np.full(len(p.K), 1 / len(p.K)) if p.w is None else p.w
    # beta_i = w_i <psi(y_i), (C_YY + delta I)^-1 psi(y)>, u likewise, both from the operators.
    inverse = np.linalg.inv(operator_joint([p.PY, p.PY], w) + delta * np.eye(p.PY.shape[1]))
    beta = w[:, None] * (p.PY @ inverse @ p.py.T)
    u = operator_prior_weights(p.PX, p.prior, p.alpha, lam, w)
    v = beta * (np.maximum(u, 0) / w)[:, None] ** power
    clipped = np.maximum(beta, 0) * (np.maximum(u, 0) / w)[:, None] ** power
    kappa = v.sum(axis=0) / np.abs(v).sum(axis=0)
    assert (np.abs(kappa - 0.2) > 1e-3).all()  # no query where rounding could decide
    v = np.where(kappa < 0.2, clipped, v)
    close(weights, v / v.sum(axis=0))
    if power == 0:
        plain = conditional_weights(p.G, p.k_y, delta, p.w)
        close(weights, np.where(kappa < 0.2, clipped, plain) / v.sum(axis=0))


def test_bayes_reweighted_in_conflict_stays_a_distribution():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 1))
    y = x + 0.2 * rng.normal(size=(60, 1))
    K, G = gaussian(x, x, 0.5), gaussian(y, y, 0.5)
    prior, query = np.array([[-2.0]]), np.linspace(-2, 2.5, 40)[:, None]
    args = (K, G, gaussian(x, prior, 0.5), np.ones(1), gaussian(y, query, 0.5), 1e-3, 1e-4)
    unguarded = bayes_reweighted(*args, threshold=-np.inf)
    guarded = bayes_reweighted(*args)
    kappa = 1 / np.abs(unguarded).sum(axis=0)  # of weights that sum to one, up to its sign
    conflict = (guarded != unguarded).any(axis=0)
    assert conflict.any() and not conflict.all()
    assert (kappa[~conflict] >= 0.2).all()
    assert (guarded[:, conflict] >= 0).all()
    assert_allclose(guarded.sum(axis=0), 1.0)
    agree = np.abs(query[:, 0] + 2.0) < 0.3
    assert not conflict[agree].any()


def test_no_positive_prior_weight_is_refused():
    with pytest.raises(ValueError, match="no positive weight"):
        positive_part(np.array([-1.0, 0.0]))


def test_zero_regularisation_is_the_pseudo_inverse(finite):
    p = finite
    close(
        conditional_weights(p.K, p.k_x, 0, p.w).T @ p.PY,
        p.px @ operator_conditional(p.PX, p.PY, 0, p.w).T,
    )
    close(
        centred_conditional_weights(p.K, p.k_x, 0, p.w).T @ p.PY,
        operator_centred_conditional(p.PX, p.PY, p.px, 0, p.w),
    )
    grams = (p.K, p.G, p.K_prior, p.alpha, p.k_y, 0, 0, p.w)
    features = (p.PX, p.PY, p.prior, p.alpha, p.py, 0, 0)
    close(bayes_squared_b(*grams).T @ p.PX, operator_bayes_squared(*features, w=p.w), 1e-6)
    close(
        bayes_squared_a(*grams).T @ p.prior,
        operator_bayes_squared(*features, form="a", w=p.w),
        1e-6,
    )
    close(bayes_importance(*grams).T @ p.PX, operator_bayes_importance(*features, w=p.w), 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_integer_weights_equal_repeated_points(kind):
    p = make_problem(kind, False)
    counts = np.random.default_rng(2).integers(1, 4, len(p.K))
    w, index = counts / counts.sum(), np.repeat(np.arange(len(counts)), counts)
    K, G = p.K[np.ix_(index, index)], p.G[np.ix_(index, index)]
    lam, delta = 1e-2, 1e-3

    def collect(weights):
        """Add up the weights of repeated points."""
        total = np.zeros((len(counts), *weights.shape[1:]))
        np.add.at(total, index, weights)
        return total

    for rule in (conditional_weights, centred_conditional_weights):
        close(collect(rule(K, p.k_x[index], lam)), rule(p.K, p.k_x, lam, w))
    for rule in (bayes_squared_b, bayes_importance, bayes_reweighted):
        repeated = rule(K, G, p.K_prior[index], p.alpha, p.k_y[index], lam, delta)
        close(collect(repeated), rule(p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta, w=w))
    repeated = bayes_squared_a(K, G, p.K_prior[index], p.alpha, p.k_y[index], lam, delta)
    close(repeated, bayes_squared_a(p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta, w))
    assert hsic(K, G) == pytest.approx(hsic(p.K, p.G, w))


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_of_weight_zero_is_not_there(kind):
    p = make_problem(kind, True)
    lam, delta = 1e-2, 1e-3
    w = np.append(p.w[:-1] / p.w[:-1].sum(), 0.0)
    keep = slice(0, -1)

    def compare(rule, *grams, **options):
        """Run a rule with and without the last point."""
        full = rule(*grams, w=w, **options)
        short = [g[keep, keep] if g is p.K or g is p.G else g for g in grams]
        short = [g[keep] if g is p.K_prior or g is p.k_x or g is p.k_y else g for g in short]
        expected = rule(*short, w=w[keep], **options)
        close(full[: len(expected)], expected)
        assert_allclose(full[len(expected) :], 0.0, atol=1e-12)

    for rule in (conditional_weights, centred_conditional_weights):
        compare(rule, p.K, p.k_x, lam)
    for rule in (bayes_squared_a, bayes_squared_b, bayes_importance, bayes_reweighted):
        compare(rule, p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta)
    if kind in FINITE:
        compare(conditional_weights, p.K, p.k_x, 0)
        compare(centred_conditional_weights, p.K, p.k_x, 0)


def test_weights_that_do_not_match_are_refused():
    p = make_problem("gaussian", False)
    with pytest.raises(ValueError, match="sum to one"):
        conditional_weights(p.K, p.k_x, 1e-2, np.ones(len(p.K)))


def test_conditional_cross_covariance(problem):
    p, lam = problem, 1e-2
    C = operator_conditional_cross_covariance(p.PX, p.PY, p.PZ, p.px[0], lam, p.w)
    beta = conditional_weights(p.K, p.k_x[:, 0], lam, p.w)
    close(p.PY.T @ conditional_cross_covariance_weights(beta) @ p.PZ, C)
    norm = conditional_cross_covariance_norm(p.G, p.U, beta)
    assert norm == pytest.approx(np.linalg.norm(C), rel=1e-8)
    # 001, eq. 9 expanded: three inner products of mu_YZ|x and mu_Y|x (x) mu_Z|x.
    loops = 0.0
    for i, b_i in enumerate(beta):
        for j, b_j in enumerate(beta):
            loops += b_i * b_j * p.G[i, j] * p.U[i, j]
        loops -= 2 * b_i * (p.G[i] @ beta) * (p.U[i] @ beta)
    loops += (beta @ p.G @ beta) * (beta @ p.U @ beta)
    assert norm**2 == pytest.approx(loops, rel=1e-7)


def test_joint_norms_and_hsic(problem):
    p = problem
    for grams, features in [
        ([p.K, p.G], [p.PX, p.PY]),
        ([p.K, p.G, p.U], [p.PX, p.PY, p.PZ]),
    ]:
        for centred in (False, True):
            C = operator_joint(features, p.w, centred)
            assert C.shape == tuple(A.shape[1] for A in features)
            assert joint_norm(grams, p.w, centred) == pytest.approx(np.linalg.norm(C), rel=1e-9)
        means = [operator_mean(A, p.w) for A in features]
        product = means[0]
        for mean in means[1:]:
            product = np.multiply.outer(product, mean)
        distance = np.linalg.norm(operator_joint(features, p.w) - product)
        assert joint_minus_product_norm(grams, p.w) == pytest.approx(distance, rel=1e-7)
    centred = joint_norm([p.K, p.G], p.w, centred=True)
    assert hsic(p.K, p.G, p.w) == pytest.approx(centred**2, rel=1e-9)
    assert hsic(p.K, p.G, p.w) == pytest.approx(
        joint_minus_product_norm([p.K, p.G], p.w) ** 2, rel=1e-7
    )
    if p.w is None:
        n = len(p.K)
        H = np.eye(n) - np.ones((n, n)) / n
        assert hsic(p.K, p.G) == pytest.approx(np.trace(p.K @ H @ p.G @ H) / n**2)


def test_inner_products_and_mmd(problem):
    p = problem
    w = np.full(len(p.K), 1 / len(p.K)) if p.w is None else p.w
    a, b = operator_mean(p.PX, p.w), operator_mean(p.prior, p.alpha)
    assert inner_product(w, p.K_prior, p.alpha) == pytest.approx(a @ b)
    squared = mmd_squared(p.K, p.K_atoms, p.K_prior, p.w, p.alpha)
    assert squared == pytest.approx(np.sum((a - b) ** 2), rel=1e-8)
    relative = rkhs_relative_error(2 * w, w, p.K)
    assert relative == pytest.approx(1.0)
    M = chain_rule_a_weights(p.K, p.K_prior, p.alpha, 1e-2, p.w)
    C = operator_chain_a(p.PX, p.PY, p.prior, p.alpha, 1e-2, p.w)
    assert pair_norm(M, p.G, p.K_atoms) == pytest.approx(np.linalg.norm(C), rel=1e-8)


def test_bayes_average_is_an_inner_product(problem):
    p = problem
    beta = bayes_squared_b(p.K, p.G, p.K_prior, p.alpha, p.k_y[:, 0], 1e-2, 1e-3, p.w)
    g = np.linspace(-1, 1, len(p.alpha))
    average = bayes_average(beta, p.K_prior, g)
    assert average == pytest.approx((beta @ p.PX) @ (g @ p.prior), rel=1e-9)


def test_decoding_objective_and_fixed_point():
    rng = np.random.default_rng(3)
    X, rho = rng.normal(size=(30, 2)), rng.dirichlet(np.ones(30))
    rho[0] -= 0.05
    for bandwidth in (1.2, np.array([0.9, 1.5])):
        K = gaussian(X, X, bandwidth)

        def objective(x, bandwidth=bandwidth):
            return decoding_objective(rho, gaussian(X, x[None], bandwidth)[:, 0], 1.0)

        # (26) is the squared distance less a constant.
        points = rng.normal(size=(5, 2))
        for x in points:
            distance = mmd_squared(
                K, np.ones((1, 1)), gaussian(X, x[None], bandwidth), rho, np.ones(1)
            )
            assert objective(x) == pytest.approx(distance - rho @ K @ rho)
        mode = fixed_point(X, rho, bandwidth, X.mean(axis=0), steps=500)
        close(fixed_point_step(X, rho, bandwidth, mode), mode, 1e-12)
        for e in np.eye(2):
            slope = (objective(mode + 1e-4 * e) - objective(mode - 1e-4 * e)) / 2e-4
            assert abs(slope) < 1e-7
            assert objective(mode + 0.05 * e) > objective(mode)
            assert objective(mode - 0.05 * e) > objective(mode)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("lam", LAMBDAS)
def test_leave_one_out_has_the_scale_of_the_closed_form(problem, lam, centred):
    p = problem
    w = np.full(len(p.K), 1 / len(p.K)) if p.w is None else p.w
    estimator = centred_conditional_weights if centred else conditional_weights
    S = estimator(p.K, p.K, lam, p.w).T  # S_ij = beta_j(x_i)
    residual = (p.PY - S @ p.PY) / (1 - np.diag(S))[:, None]
    closed = w @ (residual**2).sum(axis=1)
    assert leave_one_out_error(p.K, p.G, lam, p.w, centred) == pytest.approx(closed, rel=1e-7)


def test_leave_one_out_keeps_n_in_the_penalty(uniform):
    p, lam, n = uniform, 1e-2, len(uniform.K)
    total = 0.0
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        A = p.K[np.ix_(rest, rest)] + n * lam * np.eye(n - 1)  # n, not n - 1
        total += np.sum((p.PY[i] - np.linalg.solve(A, p.K[rest, i]) @ p.PY[rest]) ** 2) / n
    assert leave_one_out_error(p.K, p.G, lam) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_graphical_chain(problem, lam):
    p = problem
    weights = graphical_chain_weights(p.K, p.G, lam, p.w)  # A, B, C are x, y, z
    expected = (
        operator_joint([p.PX, p.PX], p.w)
        @ operator_conditional(p.PX, p.PY, lam, p.w).T
        @ operator_conditional(p.PY, p.PZ, lam, p.w).T
    )
    close(p.PX.T @ weights @ p.PZ, expected)
    if p.w is None:
        n = len(p.K)
        A, B = (np.linalg.inv(M + n * lam * np.eye(n)) for M in (p.K, p.G))
        close(weights, p.K @ A @ p.G @ B / n)  # 004, section 4.3


# --------------------------------------------------------------------------------------
# Special cases
# --------------------------------------------------------------------------------------


def test_linear_kernel_on_y_is_kernel_ridge_regression():
    rng = np.random.default_rng(4)
    x, y, lam = rng.normal(size=(20, 2)), rng.normal(size=(20, 1)), 0.05
    K, k_x = gaussian(x, x, 1.0), gaussian(x, x[:3] + 0.1, 1.0)
    ridge = k_x.T @ np.linalg.solve(K + 20 * lam * np.eye(20), y)  # 001, section 6
    close(conditional_weights(K, k_x, lam).T @ y, ridge, 1e-12)


def test_delta_kernel_on_x_gives_class_means():
    rng = np.random.default_rng(4)
    x, y = np.repeat([0, 1, 2], [3, 5, 4]), rng.normal(size=(12, 2))
    weights = conditional_weights(delta_kernel(x, x), delta_kernel(x, np.arange(3)), 0)
    close(weights.T @ y, [y[x == c].mean(axis=0) for c in range(3)], 1e-12)  # 001, section 3


# --------------------------------------------------------------------------------------
# Errata: the printed form differs, the corrected one equals the operator
# --------------------------------------------------------------------------------------

# Regularisation strong enough that a misprint in it shows.
ERRATA = {"lam": 1e-1, "delta": 5e-2}


def test_erratum_002_eq11_and_figure_1_have_a_factor_n_too_many(uniform):
    p, n, lam, delta = uniform, len(uniform.K), *ERRATA.values()
    grams, features = (p.K, p.K_prior, p.alpha, lam), (p.PX, p.PY, p.prior, p.alpha, lam)
    printed = printed_002_eq11(*grams)
    close(printed, n * sum_rule_weights(*grams))
    close(p.PY.T @ np.diag(printed / n) @ p.PY, operator_sum_b(*features))
    close(p.PY.T @ np.diag(printed / n) @ p.PX, operator_chain_b(*features))
    # In the posterior the factor divides delta by n^2.
    posterior = (p.K, p.G, p.K_prior, p.alpha, p.k_y, lam)
    truth = operator_bayes_squared(p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta)
    close(bayes_squared_b(*posterior, delta).T @ p.PX, truth)
    differs(printed_002_bayes(*posterior, delta).T @ p.PX, truth)
    close(
        printed_002_bayes(*posterior, delta).T @ p.PX,
        operator_bayes_squared(p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta / n**2),
        1e-5,
    )


def test_erratum_002_first_belief_has_a_factor_T_too_many(uniform):
    p, lam = uniform, ERRATA["lam"]
    truth = p.py @ operator_conditional(p.PY, p.PX, lam).T  # C_XY (C_YY + eps I)^-1 psi(y)
    close(initial_filter_weights(p.G, p.k_y, lam).T @ p.PX, truth)
    close(printed_002_alpha1(p.G, p.k_y, lam).T @ p.PX, len(p.K) * truth)


def test_erratum_000_eq23_has_its_gram_matrix_misplaced(uniform):
    p, lam, delta = uniform, *ERRATA.values()
    grams = (p.K, p.G, p.K_prior, p.alpha, p.k_y, lam, delta)
    truth = operator_bayes_squared(p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta, form="a")
    close(bayes_squared_a(*grams).T @ p.prior, truth)
    differs(printed_000_eq23(*grams).T @ p.prior, truth)


def test_erratum_001_theorem_5_drops_the_mean(uniform):
    p, lam = uniform, ERRATA["lam"]
    printed = printed_001_theorem5(p.K, p.k_x, lam)
    assert_allclose(printed.sum(axis=0), 0.0, atol=1e-10)
    truth = operator_centred_conditional(p.PX, p.PY, p.px, lam)
    close(centred_conditional_weights(p.K, p.k_x, lam).T @ p.PY, truth)
    differs(printed.T @ p.PY, truth, by=0.1)
    # What is printed is the operator part alone, applied to phi(x) without its mean.
    C_YX = operator_joint([p.PY, p.PX], centred=True)
    C_XX = operator_joint([p.PX, p.PX], centred=True)
    bare = p.px @ np.linalg.inv(C_XX + lam * np.eye(len(C_XX))) @ C_YX.T
    close(printed.T @ p.PY, bare)


def test_erratum_001_theorem_5_on_a_line_with_an_intercept():
    x = np.linspace(-1, 2, 25)[:, None]
    y = 3 + 2 * x
    K, k_x, lam = linear(x, x), linear(x, np.array([[0.5]])), 1e-9
    assert (centred_conditional_weights(K, k_x, lam).T @ y).item() == pytest.approx(4.0)
    assert (printed_001_theorem5(K, k_x, lam).T @ y).item() == pytest.approx(1.0)


def test_erratum_001_theorem_9_drops_the_mean_too(uniform):
    p, lam = uniform, ERRATA["lam"]
    n = len(p.K)
    # s^t, s^(t+1), o^(t+1) are x, a permutation of x, and z; the belief is beta on s^(t+1).
    order = np.roll(np.arange(n), -1)
    transfer, beta, u_o = p.K[:, order], np.linspace(0, 2, n) / n, p.U[:, 3]
    printed = printed_001_theorem9(p.K, p.U, transfer, beta, u_o, lam)
    assert printed.sum() == pytest.approx(0.0, abs=1e-10)
    close(printed, printed_001_theorem5(p.K + p.U, transfer @ beta + u_o, lam))
    corrected = centred_conditional_weights(p.K + p.U, transfer @ beta + u_o, lam)
    query = np.concatenate([beta @ p.PX[order], p.PZ[3]])
    truth = operator_centred_conditional(np.hstack([p.PX, p.PZ]), p.PX[order], query, lam)
    close(corrected @ p.PX[order], truth)
    differs(printed @ p.PX[order], truth, by=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_erratum_002_cross_validation_prefers_the_largest_bandwidth(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 1))
    y = x + 0.3 * rng.normal(size=(60, 1))
    folds = np.array_split(rng.permutation(60), 5)
    reference = gaussian(x, x, 1.0)
    own, fixed = [], []
    for bandwidth in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0):
        K, G = gaussian(x, x, bandwidth), gaussian(y, y, bandwidth)
        own.append(marginal_discrepancy(K, G, folds, 1e-2, 1e-4))
        fixed.append(marginal_discrepancy(K, G, folds, 1e-2, 1e-4, reference))
    assert np.argmin(own) == len(own) - 1
    assert 0 < np.argmin(fixed) < len(fixed) - 1
    assert fixed[-1] > 1.2 * min(fixed)


@pytest.mark.parametrize("kind", ["polynomial", "trace", "delta"])
def test_erratum_004_section_4_1_swaps_its_factors(kind):
    p, lam = make_problem(kind, False), ERRATA["lam"]
    n = len(p.K)
    gram_form = p.PY.T @ np.linalg.inv(p.K + n * lam * np.eye(n)) @ p.PX  # 004's own next line
    close(operator_conditional(p.PX, p.PY, lam), gram_form)
    differs(printed_004_conditional(p.PX, p.PY, lam), gram_form)


@pytest.mark.parametrize("kind", ["polynomial", "trace", "delta"])
def test_erratum_004_section_2_1_omits_a_transpose(kind):
    p = make_problem(kind, False)
    C_YX = operator_joint([p.PY, p.PX])
    close(operator_conditional(p.PX, p.PY, 0) @ operator_joint([p.PX, p.PX]), C_YX)
    printed = printed_004_chain(p.PX, p.PY)
    close(printed.T, C_YX)
    differs(printed, C_YX)


def test_erratum_003_regularises_with_the_wrong_constant(uniform):
    p, lam, delta = uniform, *ERRATA.values()
    truth = operator_bayes_squared(p.PX, p.PY, p.prior, p.alpha, p.py, lam, delta, form="a")
    grams = (p.K, p.G, p.K_prior, p.alpha, p.k_y)
    differs(printed_003_bayes(*grams, delta).T @ p.prior, truth)
    # Even with its factors put right, lambda~ in place of lambda is another estimator.
    differs(bayes_squared_a(*grams, delta / len(p.K), delta).T @ p.prior, truth)
    close(bayes_squared_a(*grams, lam, delta).T @ p.prior, truth)


def test_erratum_003_mmd_needs_samples_of_one_size():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(15, 2)) + 0.5

    def grams(a, b):
        return gaussian(a, a, 1.0), gaussian(b, b, 1.0), gaussian(a, b, 1.0)

    same = grams(x, y[:12])
    assert printed_003_mmd(*same) == pytest.approx(mmd_squared(*same))
    with pytest.raises(IndexError):
        printed_003_mmd(*grams(x, y))


def test_erratum_003_supremum_is_the_norm_not_its_square():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(12, 1)), rng.normal(size=(15, 1)) + 0.7
    K, L, M = gaussian(x, x, 1.0), gaussian(y, y, 1.0), gaussian(x, y, 1.0)
    squared = mmd_squared(K, L, M)
    # The supremum over the unit ball is reached at (mu_X - mu_Y) / ||mu_X - mu_Y||.
    points, signed = np.vstack([x, y]), np.r_[np.full(12, 1 / 12), np.full(15, -1 / 15)]
    gram = gaussian(points, points, 1.0)
    witness = gram @ signed / np.sqrt(signed @ gram @ signed)
    gap = witness[:12].mean() - witness[12:].mean()
    assert gap == pytest.approx(np.sqrt(squared))
    assert abs(gap - squared) > 0.1 * gap


def test_erratum_003_strictly_positive_definite_does_not_imply_universal():
    """``sum_j 2^-j (x x')^(j^2)`` on [0, 1]: strictly positive definite, yet not universal.

    Its functions lie in the closed span of the powers x^(j^2), which by Muntz's theorem is not
    dense: sum 1/j^2 is finite. The L2 distance of x^2 from the span, below the distance in C[0, 1],
    is ``(2q + 1)^-1/2 prod |q - j^2| / (q + j^2 + 1)`` with q = 2.
    """
    exponents = np.arange(12) ** 2.0
    x = np.array([0.0, 0.35, 0.55, 0.7, 0.85, 1.0])
    features = np.sqrt(0.5 ** np.arange(12)) * x[:, None] ** exponents
    assert np.linalg.eigvalsh(features @ features.T).min() > 1e-9
    q = 2.0

    def distance(terms):
        j = np.arange(terms) ** 2.0
        return np.prod(np.abs(q - j) / (q + j + 1)) / np.sqrt(2 * q + 1)

    # The product formula against least squares on the first four powers.
    j = np.arange(4) ** 2.0
    gram, cross = 1 / (j[:, None] + j + 1), 1 / (j + q + 1)
    squared = 1 / (2 * q + 1) - cross @ np.linalg.solve(gram, cross)
    assert distance(4) ** 2 == pytest.approx(squared, rel=1e-8)
    assert distance(1_000_000) == pytest.approx(distance(100_000), rel=1e-3)
    assert distance(1_000_000) > 1e-4


# --------------------------------------------------------------------------------------
# Discrete tables
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("states_x", "states_y"), [(2, 2), (3, 5), (5, 3), (12, 12), (2, 12)])
@pytest.mark.parametrize("given", ["cells", "sample"])
def test_tables_agree_with_the_delta_kernel(states_x, states_y, given):
    rng = np.random.default_rng([states_x, states_y])
    if given == "cells":
        P = random_table(rng, states_x, states_y, concentration=0.7)
        x, y, w = table_to_cells(P)
    else:
        counts = random_counts(rng, states_x, states_y, 200)
        P = counts / counts.sum()
        (x, y), w = counts_to_sample(counts, rng), None
        assert len(x) == 200
        table = np.zeros_like(counts)
        np.add.at(table, (x, y), 1)
        assert (table == counts).all()
    prior = random_prior(rng, states_x)
    X, Y = np.arange(states_x), np.arange(states_y)
    assert min(P.sum(axis=0).min(), P.sum(axis=1).min(), prior.min()) >= 0.01
    assert prior.sum() == pytest.approx(1.0)
    assert P.sum() == pytest.approx(1.0)

    PX, PY = delta_features(x, X), delta_features(y, Y)
    K, G = delta_kernel(x, x), delta_kernel(y, y)
    K_prior, k_y = (
        delta_kernel(x, X),
        delta_kernel(y, Y),
    )  # the prior's atoms are the states themselves
    exact = {"rtol": 0, "atol": 1e-10}

    assert_allclose(operator_joint([PX, PY], w), P, **exact)
    assert_allclose(operator_mean(PX, w), table_marginals(P)[0], **exact)
    assert_allclose(operator_mean(PY, w), table_marginals(P)[1], **exact)

    beta = conditional_weights(K, K_prior, 0, w)
    assert_allclose(beta.T @ PY, table_conditional(P), **exact)
    assert_allclose(centred_conditional_weights(K, K_prior, 0, w).T @ PY, beta.T @ PY, **exact)

    rule = (K, K_prior, prior, 0, w)
    q = table_sum(P, prior)
    assert_allclose(sum_rule_weights(*rule) @ PY, q, **exact)
    assert_allclose(PY.T @ sum_rule_b_weights(*rule) @ PY, np.diag(q), **exact)
    Q = table_chain(P, prior)
    assert_allclose((PY.T @ chain_rule_a_weights(*rule)).T, Q, **exact)
    assert_allclose((PY.T @ chain_rule_b_weights(*rule) @ PX).T, Q, **exact)
    assert_allclose(Q.sum(axis=1), prior, **exact)

    posterior = table_bayes(P, prior)
    assert_allclose(posterior.sum(axis=0), 1.0, **exact)
    assert_allclose(posterior * q, Q, **exact)
    rule = (K, G, K_prior, prior, k_y, 0, 0, w)
    assert_allclose(PX.T @ bayes_squared_b(*rule), posterior, **exact)
    assert_allclose(bayes_squared_a(*rule), posterior, **exact)
    assert_allclose(PX.T @ bayes_importance(*rule), posterior, **exact)
    assert_allclose(
        PX.T @ bayes_reweighted(K, G, K_prior, prior, k_y, 0, 0, w=w), posterior, **exact
    )


def test_tables_by_hand():
    P = np.array([[0.1, 0.2], [0.3, 0.4]])
    prior = np.array([0.5, 0.5])
    assert_allclose(table_marginals(P)[0], [0.3, 0.7])
    assert_allclose(table_conditional(P), [[1 / 3, 2 / 3], [3 / 7, 4 / 7]])
    assert_allclose(table_chain(P, prior), [[1 / 6, 1 / 3], [3 / 14, 2 / 7]])
    assert_allclose(table_sum(P, prior), [8 / 21, 13 / 21])
    assert_allclose(table_bayes(P, prior), [[7 / 16, 7 / 13], [9 / 16, 6 / 13]])
    x, y = counts_to_sample(np.array([[1, 0], [2, 1]]))
    assert x.tolist() == [0, 1, 1, 1]
    assert y.tolist() == [0, 0, 0, 1]


# --------------------------------------------------------------------------------------
# Closed forms
# --------------------------------------------------------------------------------------

N = 200_000
M1, S1 = np.array([0.3, -0.5]), np.array([[0.8, 0.3], [0.3, 0.5]])
M2, S2 = np.array([-0.2, 0.4]), np.array([[0.4, -0.1], [-0.1, 0.9]])
POINTS = np.array([[0.0, 0.0], [1.0, -1.0], [-0.5, 0.7]])
BANDWIDTHS = [0.8, np.array([0.6, 1.4])]
A, B = np.array([[1.0, 0.4], [-0.3, 0.8], [0.2, 0.2]]), np.array([0.1, -0.2, 0.3])
NOISE = np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.1], [0.0, 0.1, 0.3]])


def hoeffding(n: int, comparisons: int, width: float = 1.0) -> float:
    """Margin that a mean of n values in an interval of this width leaves with chance FAILURE."""
    return width * math.sqrt(math.log(2 * comparisons / FAILURE) / (2 * n))


def quadrature(mean: Array, covariance: Array, order: int = 60) -> tuple[Array, Array]:
    """Gauss-Hermite nodes and weights of a Gaussian in the plane."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    return mean + grid @ np.linalg.cholesky(covariance).T, np.outer(weights, weights).ravel()


@pytest.mark.parametrize("bandwidth", BANDWIDTHS, ids=["one", "each"])
def test_gaussian_embedding_and_inner_product_by_quadrature(bandwidth):
    x, p = quadrature(M1, S1)
    y, q = quadrature(M2, S2, 40)
    expected = gaussian(POINTS, x, bandwidth) @ p
    assert_allclose(gaussian_embedding(POINTS, M1, S1, bandwidth), expected, atol=1e-10)
    inner = p @ gaussian(x, y, bandwidth) @ q
    assert gaussian_inner(M1, S1, M2, S2, bandwidth) == pytest.approx(inner, abs=1e-9)
    # The nodes are a weighted sample whose embedding is the Gaussian's.
    assert abs(distance_to_gaussian_squared(y, q, M2, S2, bandwidth)) < 1e-9
    mmd = gaussian_mmd_squared(M1, S1, M2, S2, bandwidth)
    assert distance_to_gaussian_squared(y, q, M1, S1, bandwidth) == pytest.approx(mmd, abs=1e-8)
    assert mmd > 0.05
    assert gaussian_mmd_squared(M1, S1, M1, S1, bandwidth) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS, ids=["one", "each"])
def test_gaussian_closed_forms_by_monte_carlo(bandwidth):
    rng = np.random.default_rng(10)
    x = rng.multivariate_normal(M1, S1, N)
    y = rng.multivariate_normal(M2, S2, N)
    margin = hoeffding(N, comparisons=8)
    error = gaussian(POINTS, x, bandwidth).mean(axis=1) - gaussian_embedding(
        POINTS, M1, S1, bandwidth
    )
    assert np.abs(error).max() < margin
    pairs = np.exp(-np.sum(((x - y) / bandwidth) ** 2, axis=1) / 2)  # independent pairs
    assert abs(pairs.mean() - gaussian_inner(M1, S1, M2, S2, bandwidth)) < margin


def test_linear_gaussian_conditional_embedding_by_monte_carlo():
    rng = np.random.default_rng(11)
    x, targets = np.array([0.5, -1.0]), np.array([[0.0, 0.0, 0.0], [0.5, -1.0, 0.3]])
    y = rng.multivariate_normal(A @ x + B, NOISE, N)
    expected = linear_gaussian_conditional_embedding(targets, x, A, B, NOISE, 1.1)
    error = gaussian(targets, y, 1.1).mean(axis=1) - expected
    assert np.abs(error).max() < hoeffding(N, comparisons=2)


def test_linear_gaussian_rules_by_monte_carlo():
    rng = np.random.default_rng(12)
    x = rng.multivariate_normal(M1, S1, N)
    y = x @ A.T + B + rng.multivariate_normal(np.zeros(3), NOISE, N)
    x0, y0 = np.array([[0.2, -0.1]]), np.array([[0.3, -0.4, 0.2]])
    k_x, k_y = gaussian(x, x0, 0.9)[:, 0], gaussian(y, y0, 1.2)[:, 0]
    margin = hoeffding(N, comparisons=4)
    mean, covariance = linear_gaussian_predictive(A, B, NOISE, M1, S1)
    assert abs(k_y.mean() - gaussian_embedding(y0, mean, covariance, 1.2)[0]) < margin
    mean, covariance = linear_gaussian_joint(A, B, NOISE, M1, S1)
    bandwidths = np.r_[0.9, 0.9, 1.2, 1.2, 1.2]
    joint = gaussian_embedding(np.hstack([x0, y0]), mean, covariance, bandwidths)[0]
    assert abs(np.mean(k_x * k_y) - joint) < margin
    # What the posterior's embedding leaves of k(x, x0) is uncorrelated with every function of y:
    # here 1 and k(y, y0); the products lie in [-1, 1].
    means, covariance = linear_gaussian_posterior(y, A, B, NOISE, M1, S1)
    posterior = gaussian_embedding(x0 - means, np.zeros(2), covariance, 0.9)
    assert abs(np.mean(k_x - posterior)) < 2 * margin
    assert abs(np.mean((k_x - posterior) * k_y)) < 2 * margin


def test_linear_gaussian_posterior_in_information_form():
    y = np.array([0.7, -0.2, 0.4])
    mean, covariance = linear_gaussian_posterior(y, A, B, NOISE, M1, S1)
    precision = np.linalg.inv(S1) + A.T @ np.linalg.inv(NOISE) @ A
    close(covariance, np.linalg.inv(precision), 1e-12)
    information = np.linalg.solve(S1, M1) + A.T @ np.linalg.solve(NOISE, y - B)
    close(mean, np.linalg.solve(precision, information), 1e-12)
    rows, _ = linear_gaussian_posterior(np.stack([y, 2 * y]), A, B, NOISE, M1, S1)
    close(rows[0], mean, 1e-14)


def test_gaussian_conditional_undoes_the_joint():
    mean, covariance = linear_gaussian_joint(A, B, NOISE, M1, S1)
    slope, intercept, noise = gaussian_conditional(mean, covariance, 2)
    close(slope, A, 1e-12)
    close(intercept, B, 1e-12)
    close(noise, NOISE, 1e-12)
