"""One suite over every kernel × basis × array library.

Everything a kernel and a basis must support, against the papers' dense formulas: embedding,
geometry, conditioning, the three rules, copying, and results of the caller's array type. Bases that
approximate are held to what they claim, and with all of them files and streams return what went in.
A new kernel is one more row of `kernels/cases.py`, a new basis one more entry in `BASES`
or `SPACES`, a new library one in `array_libraries.py`.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from array_libraries import INSTALLED, OTHERS, Library, host
from kernels.cases import KERNELS, public_kernels
from meanmap import ConditionalEmbedding, embed, load, save
from meanmap.arrays import asarray, namespace
from meanmap.kernels import Gaussian, Kernel
from meanmap.spaces import Basis, Explicit, Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding
from oracles.conditional import (
    centred_conditional_weights,
    conditional_weights,
    leave_one_out_error,
)
from oracles.embeddings import pair_norm, rkhs_relative_error
from oracles.rules import (
    bayes_importance,
    bayes_nonnegative,
    bayes_reweighted,
    bayes_squared_a,
    bayes_squared_b,
    chain_rule_a_weights,
    sum_rule_weights,
)
from oracles.statistics import mmd_squared

N, M, Q = 16, 9, 4  # sample, atoms of the prior, queries (the last Q points of the sample)
LAMBDA, DELTA = 1e-2, 1e-2
TOL = 1e-6  # relative, in the norm of the space; the bases below are good to 1e-12


# --- the registries ------------------------------------------------------------------------------

# JAX compiles every operation: `make test` tries it with this one, `make test-all` with every one
QUICK = {("laplace", "pivoted-cholesky")}

# exact on the sample: held to the papers' dense formulas
BASES: dict[str, Basis] = {
    "pivoted-cholesky": PivotedCholesky(tol=1e-12),
    "explicit": Explicit(),
}

# every basis, for what must hold whatever coordinates miss. Coordinates amplify rounding by one
# over the root of the tolerance: with these sums agree to 1e-10.
SPACES: dict[str, Basis] = {
    "pivoted-cholesky": PivotedCholesky(tol=1e-8),
    "nystroem": Nystroem(10, random_state=0),
    "random-fourier": RandomFourier(16, random_state=0),
    "explicit": Explicit(),
}


def each(points: Any, function: Callable[[Any], Any]) -> Any:
    """A function of an array, of every array where points are tuples."""
    if isinstance(points, tuple):
        return tuple(each(part, function) for part in points)
    return function(points)


def convert(points: Any, library: str) -> Any:
    """Points in an array library."""
    return Library(library).asarray(points)


def belongs(value: Any, library: str) -> bool:
    """Whether a result is of the array library."""
    return Library(library).owns(value)


# --- the problem: a sample, a prior and queries --------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """P(Y|X) with the kernel on X and a Gaussian on Y, in one array library, and its Grams."""

    name: str
    basis: Basis
    library: str

    @cached_property
    def host_points(self) -> tuple[Any, Any, np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(11)
        draw = KERNELS[self.name].draw
        X, prior = draw(rng, N), draw(rng, M)
        drift = X if isinstance(X, np.ndarray) else X[0]
        if drift.dtype.kind in "OU":
            drift = KERNELS[self.name].kernel.resolve(X)(X, X[:1])
        Y = np.stack([drift.reshape(N, -1).sum(axis=1), rng.normal(size=N)], axis=1)
        Y = Y + 0.3 * rng.normal(size=Y.shape)
        w, alpha = rng.uniform(0.5, 1.5, size=N), rng.uniform(0.5, 1.5, size=M)
        return X, prior, Y, w / w.sum(), alpha / alpha.sum()

    @property
    def w(self) -> np.ndarray:
        return self.host_points[3]

    @property
    def alpha(self) -> np.ndarray:
        return self.host_points[4]

    @cached_property
    def kernel(self) -> Kernel:
        """With its bandwidth resolved as a model would on the weighted sample."""
        return KERNELS[self.name].kernel.resolve(self.host_points[0], self.w)

    @cached_property
    def kernel_y(self) -> Kernel:
        return Gaussian(1.5)

    @cached_property
    def grams(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """K, K_prior and G, dense, of the NumPy points."""
        X, prior, Y, _, _ = self.host_points
        return self.kernel(X), self.kernel(X, prior), self.kernel_y(Y)

    @cached_property
    def X(self) -> Any:
        return convert(self.host_points[0], self.library)

    @cached_property
    def Y(self) -> Any:
        return convert(self.host_points[2], self.library)

    @cached_property
    def prior(self) -> Any:
        atoms = convert(self.host_points[1], self.library)
        return embed(atoms, kernel=self.kernel, weights=self.alpha)

    def queries(self, points: Any) -> Any:
        return each(points, lambda part: part[-Q:])

    @cached_property
    def fitted(self) -> ConditionalEmbedding:
        """A model that tests share: they ask and do not change it."""
        return self.model()

    def model(self, regularization: Any = LAMBDA, **options: Any) -> ConditionalEmbedding:
        y_basis = PivotedCholesky(tol=1e-12)
        options = {"centered": False} | options  # the form of the papers
        return ConditionalEmbedding(
            KERNELS[self.name].kernel,
            self.kernel_y,
            regularization,
            basis=(self.basis, y_basis),
            **options,
        ).fit(self.X, self.Y, sample_weight=self.w)

    def check(self, value: Any, truth: Any, **tolerance: float) -> None:
        """The value is of the caller's library and close to the truth."""
        assert belongs(value, self.library), f"{type(value)} in {self.library}"
        assert_allclose(host(value), truth, **({"rtol": 1e-6, "atol": 1e-8} | tolerance))

    def check_weights(self, weights: Any, truth: np.ndarray, gram: np.ndarray) -> None:
        """Weights (m, n) stand for the same elements as the oracle's columns (n, m)."""
        assert belongs(weights, self.library), f"{type(weights)} in {self.library}"
        estimate = np.atleast_2d(host(weights))
        for row, column in zip(estimate, truth.reshape(len(gram), -1).T, strict=True):
            assert rkhs_relative_error(row, column, gram) < TOL


@cache
def applies(name: str, basis: str) -> bool:
    case = KERNELS[name]
    points = case.points(N)
    try:
        Space(case.kernel, {**BASES, **SPACES}[basis]).fit(points)
    except TypeError as error:  # a basis that does not take a kernel says which one does
        assert "basis=" in str(error)
        return False
    return True


def cases(bases: dict[str, Basis]) -> list[tuple[str, str, str]]:
    """Every kernel × basis × array library that go together."""
    return [
        (name, basis, library)
        for name in KERNELS
        for basis in bases
        if applies(name, basis)
        for library in INSTALLED
        if library == "numpy" or not KERNELS[name].on_objects
    ]


def params(found: list[tuple[str, str, str]]) -> list[Any]:
    """The cases as parameters, with those that are slow marked."""
    return [
        pytest.param(
            case,
            id="-".join(case),
            marks=[pytest.mark.slow] if case[2] == "jax" and case[:2] not in QUICK else [],
        )
        for case in found
    ]


def posed(case: tuple[str, str, str], bases: dict[str, Basis]) -> Problem:
    name, basis, of = case
    return Problem(name, bases[basis], of)


@pytest.fixture(scope="module", params=params(cases(BASES)))
def problem(request: pytest.FixtureRequest) -> Problem:
    return posed(request.param, BASES)


@pytest.fixture(scope="module", params=params(cases(SPACES)))
def spaced(request: pytest.FixtureRequest) -> Problem:
    """A problem in coordinates of any basis, exact or not."""
    return posed(request.param, SPACES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the suite: to make hundreds takes longer than what is written to them."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Nothing in this suite is far, conflicting, capped or deprecated: any warning is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- embedding and geometry ----------------------------------------------------------------------


def test_embed(problem: Problem) -> None:
    K, K_prior, _ = problem.grams
    w, alpha = problem.w, problem.alpha
    e = embed(problem.X, kernel=problem.kernel, weights=w, basis=problem.basis)
    assert e.kernel == problem.kernel
    assert belongs(e.atoms, problem.library)
    problem.check(e.weights, w)
    problem.check(e.norm(), np.sqrt(w @ K @ w), rtol=1e-9)
    problem.check(e.inner(problem.prior), w @ K_prior @ alpha, rtol=1e-9)
    K_aa = problem.kernel(problem.host_points[1])
    truth = mmd_squared(K, K_aa, K_prior, w, alpha)
    problem.check(e.distance(problem.prior) ** 2, truth, rtol=1e-8, atol=1e-14)
    problem.check(e.mass, 1.0, rtol=1e-12)


def test_coordinates(problem: Problem) -> None:
    K, K_prior, _ = problem.grams
    w, alpha = problem.w, problem.alpha
    e = embed(problem.X, kernel=problem.kernel, weights=w, basis=problem.basis)
    psi, m = e.space.transform(problem.X), e.coordinates
    assert m.shape == (e.space.rank_,)
    problem.check(psi @ psi.T, K, atol=1e-9)
    problem.check(psi @ m, K @ w, atol=1e-9)
    problem.check(m @ m, w @ K @ w, rtol=1e-9)
    other = embed(problem.prior.atoms, weights=alpha, basis=e.space)
    problem.check(m @ other.coordinates, w @ K_prior @ alpha, rtol=1e-9)
    problem.check(e.support(problem.X), np.ones(N), rtol=1e-8)


def test_evaluate(problem: Problem) -> None:
    K, K_prior, _ = problem.grams
    e = embed(problem.X, kernel=problem.kernel, weights=problem.w, basis=problem.basis)
    problem.check(e(problem.X), K @ problem.w, rtol=1e-10)
    problem.check(e(problem.prior.atoms), problem.w @ K_prior, rtol=1e-10)
    problem.check(e(each(problem.X, lambda part: part[0])), (K @ problem.w)[0], rtol=1e-10)
    batch = embed(problem.X, kernel=problem.kernel, weights=np.stack([problem.w, -problem.w]))
    problem.check(batch(problem.X), np.stack([K @ problem.w, -K @ problem.w]), rtol=1e-10)


def test_decode(problem: Problem) -> None:
    """A pre-image is no worse than any atom; for kernels without a rule for one it is an atom."""
    K, _, _ = problem.grams
    e = embed(problem.X, kernel=problem.kernel, weights=problem.w)
    mode = e.preimage()
    assert isinstance(mode, nx.Graph) or belongs(mode, problem.library)
    at = problem.kernel.rows(mode, e.atoms)[0]
    value = float(host(-2 * e(at) + problem.kernel.diagonal(at))[0])
    assert value <= (-2 * K @ problem.w + np.diag(K)).min() + 1e-9
    if problem.kernel.on_vectors:
        problem.check(e.mean(), problem.w @ problem.host_points[0], rtol=1e-10)


# --- conditioning --------------------------------------------------------------------------------


def test_conditional(problem: Problem) -> None:
    K, _, G = problem.grams
    Y, model = problem.host_points[2], problem.fitted
    at = problem.queries(problem.X)
    truth = conditional_weights(K, K[:, -Q:], LAMBDA, problem.w)
    given = model.given(at)
    assert len(given) == Q
    problem.check_weights(given.weights, truth, G)
    problem.check_weights(model.weights(at), truth, G)
    problem.check(given(problem.Y), truth.T @ G)
    problem.check(model.predict(at), truth.T @ Y)
    problem.check(model.expect(lambda y: y[:, 0] ** 2, at), truth.T @ Y[:, 0] ** 2)
    problem.check(model.expect(embed(problem.Y, kernel=Gaussian(1.5)), at), truth.T @ G.mean(1))
    problem.check(given.norm(), np.sqrt(np.einsum("iq,ij,jq->q", truth, G, truth)))
    one = model.given(each(at, lambda part: part[0]))
    assert not one.is_batch
    problem.check_weights(one.weights, truth[:, 0], G)
    problem.check_weights(given[0].weights, truth[:, 0], G)
    problem.check(model.functional(lambda y: y[:, 1])(at), truth.T @ Y[:, 1])


def test_centred_conditional(problem: Problem) -> None:
    K, _, G = problem.grams
    at = problem.queries(problem.X)
    truth = centred_conditional_weights(K, K[:, -Q:], LAMBDA, problem.w)
    model = problem.model(centered=True)
    problem.check_weights(model.weights(at), truth, G)
    problem.check(model.given(at).mass, np.ones(Q))


def test_automatic_regularisation_has_the_least_leave_one_out_error(problem: Problem) -> None:
    K, _, G = problem.grams
    model = problem.model(regularization="auto")
    assert isinstance(model.regularization_, float)
    grid, errors = model.leave_one_out_.grid, model.leave_one_out_.errors
    assert model.regularization_ == grid[np.argmin(errors)]
    for i in range(int(np.searchsorted(grid, 1e-4)), len(grid), 6):
        assert errors[i] == pytest.approx(leave_one_out_error(K, G, grid[i], problem.w), rel=1e-6)


@pytest.mark.parametrize(
    "of", [n if n != "jax" else pytest.param(n, marks=pytest.mark.slow) for n in INSTALLED]
)
@pytest.mark.parametrize("centered", [False, True, None], ids=["uncentred", "centred", "targets"])
def test_single_precision_chooses_as_double_does(of: str, centered: bool) -> None:
    """Leave-one-out errors cancel and divide: single precision must not decide by rounding."""
    found = Library(of)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = 12 if seed % 2 else 40
        X, Y = rng.normal(size=(n, 2)), rng.normal(size=(n, 1))
        chosen = []
        for precision in (np.float64, np.float32):
            x, y = (found.asarray(part.astype(precision)) for part in (X, Y))
            model = ConditionalEmbedding(centered=centered).fit(x, y)
            chosen.append(model.regularization_)
            assert (model.leave_one_out_.errors >= 0).all()
        assert chosen[1] == pytest.approx(chosen[0], rel=1e-3)


# --- the rules -----------------------------------------------------------------------------------


def test_push_and_joint(problem: Problem) -> None:
    K, K_prior, G = problem.grams
    model, prior, alpha = problem.fitted, problem.prior, problem.alpha
    u = sum_rule_weights(K, K_prior, alpha, LAMBDA, problem.w)
    problem.check_weights(model.push(prior).weights, u, G)
    psi_x = host(model.space_x_.transform(problem.X))
    psi_y = host(model.space_y_.transform(problem.Y))
    b = model.joint(prior)
    problem.check(b.operator(), (psi_x.T * u) @ psi_y, rtol=1e-5, atol=1e-7)
    problem.check(b.norm(), pair_norm(np.diag(u), K, G))
    assert belongs(b.atoms, problem.library)
    M_a = chain_rule_a_weights(K, K_prior, alpha, LAMBDA, problem.w)  # (y, x) pairs
    psi_prior = host(model.space_x_.transform(prior.atoms))
    a = model.joint(prior, form="a")
    problem.check(a.operator(), psi_prior.T @ M_a.T @ psi_y, rtol=1e-5, atol=1e-7)
    K_atoms = problem.kernel(problem.host_points[1])
    problem.check(a.norm(), pair_norm(M_a, G, K_atoms))


BAYES = {
    "nonnegative": bayes_nonnegative,
    "importance": bayes_importance,
    "squared": bayes_squared_b,
    "reweighted": bayes_reweighted,
}


@pytest.mark.parametrize("method", BAYES)
def test_posterior(problem: Problem, method: str) -> None:
    K, K_prior, G = problem.grams
    arguments = K, G, K_prior, problem.alpha, G[:, -Q:], LAMBDA, DELTA
    truth = BAYES[method](*arguments, w=problem.w)
    posterior = problem.fitted.posterior(problem.prior, method=method, regularization=DELTA)
    at = problem.queries(problem.Y)
    given = posterior.given(at)
    problem.check_weights(given.weights, truth, K)
    problem.check_weights(posterior.weights(at), truth, K)
    problem.check(given(problem.X), truth.T @ K, rtol=1e-5, atol=1e-7)
    one = posterior.given(at[0])
    problem.check_weights(one.weights, truth[:, 0], K)
    ones = posterior.functional(lambda x: 0 * x[0][:, 0] + 1 if isinstance(x, tuple) else len_of(x))
    problem.check(ones(at), truth.sum(axis=0))
    assert belongs(given.atoms, problem.library)
    pushed = posterior.push(embed(at, kernel=problem.kernel_y))
    problem.check(pushed(problem.X), (truth.T @ K).mean(axis=0), rtol=1e-5, atol=1e-7)


def len_of(x: Any) -> Any:
    """One for every point, in the points' own library."""
    return asarray(np.ones(len(x)), x, namespace(x).float64)


def test_posterior_on_the_atoms_of_the_prior(problem: Problem) -> None:
    K, K_prior, G = problem.grams
    arguments = K, G, K_prior, problem.alpha, G[:, -Q:], LAMBDA, DELTA
    truth = bayes_squared_a(*arguments, w=problem.w)
    posterior = problem.fitted.posterior(
        problem.prior, method="squared", regularization=DELTA, form="a"
    )
    K_atoms = problem.kernel(problem.host_points[1])
    problem.check_weights(posterior.weights(problem.queries(problem.Y)), truth, K_atoms)


# --- the kernel on the side of the answers -------------------------------------------------------


def test_conditional_of_these_points(problem: Problem) -> None:
    """P(X|Y), fitted the other way round: answers live on the points of the kernel under test."""
    K, _, G = problem.grams
    model = ConditionalEmbedding(
        problem.kernel_y,
        KERNELS[problem.name].kernel,
        LAMBDA,
        basis=(PivotedCholesky(tol=1e-12), problem.basis),
        centered=False,
    ).fit(problem.Y, problem.X, sample_weight=problem.w)
    assert model.kernel_y_ == problem.kernel
    at = problem.queries(problem.Y)
    truth = conditional_weights(G, G[:, -Q:], LAMBDA, problem.w)
    problem.check_weights(model.weights(at), truth, K)
    problem.check(model.given(at)(problem.X), truth.T @ K)


def test_score_of_these_points(problem: Problem) -> None:
    model = ConditionalEmbedding(problem.kernel_y, KERNELS[problem.name].kernel, LAMBDA)
    assert np.isfinite(model.fit(problem.Y, problem.X).score(problem.Y, problem.X))


# --- copies --------------------------------------------------------------------------------------


def test_pickling(problem: Problem) -> None:
    model = problem.fitted
    at = problem.queries(problem.X)
    copy = pickle.loads(pickle.dumps(model))
    problem.check(copy.predict(at), host(model.predict(at)), rtol=1e-12)
    posterior = model.posterior(problem.prior, regularization=DELTA)
    copy = pickle.loads(pickle.dumps(posterior))
    y = problem.queries(problem.Y)
    problem.check(copy.weights(y), host(posterior.weights(y)), rtol=1e-12)
    e = embed(problem.X, kernel=problem.kernel, weights=problem.w, basis=problem.basis)
    for _ in range(2):  # before and after its coordinates are known
        copy = pickle.loads(pickle.dumps(e))
        problem.check(copy.norm(), host(e.norm()), rtol=1e-12)
        problem.check(copy.coordinates, host(e.coordinates), rtol=1e-12)
    assert copy.kernel == e.kernel


def test_cloning(problem: Problem) -> None:
    model = problem.fitted
    copy = clone(model)
    assert not hasattr(copy, "operator_")
    mine, theirs = model.get_params(deep=False), copy.get_params(deep=False)
    assert mine.keys() == theirs.keys()
    assert all(mine[name] == theirs[name] for name in mine)
    assert copy.kernel_x is not model.kernel_x
    at = problem.queries(problem.X)
    copy.fit(problem.X, problem.Y, sample_weight=problem.w)
    problem.check(copy.predict(at), host(model.predict(at)), rtol=1e-10)


def test_specifications_are_never_changed(problem: Problem) -> None:
    given = KERNELS[problem.name].kernel
    before = clone(given)
    model = problem.fitted
    assert model.kernel_x is given
    assert given == before
    assert model.basis == (problem.basis, PivotedCholesky(tol=1e-12))


# --- every basis: coordinates, files, streams ----------------------------------------------------


def test_every_kernel_and_every_basis_is_here() -> None:
    """What the package shows, this suite covers."""
    assert public_kernels() <= {type(case.kernel) for case in KERNELS.values()}
    ours = {cls for cls in Basis.__subclasses__() if cls.__module__.startswith("meanmap.")}
    assert {type(basis) for basis in SPACES.values()} == ours


def test_coordinates_miss_what_they_say(spaced: Problem) -> None:
    K, K_prior, _ = spaced.grams
    space = Space(spaced.kernel, spaced.basis)
    psi = space.fit_transform(spaced.X, sample_weight=spaced.w)
    atoms = spaced.prior.atoms
    spaced.check(space.transform(spaced.X), host(psi), rtol=1e-10, atol=1e-10)
    assert psi.shape == (N, space.rank_)
    error = abs(host(psi @ space.transform(atoms).T) - K_prior)
    scale = np.diag(K).max()
    if not space.map_.projects:
        sample_error = abs(host(psi @ psi.T) - K)[np.triu_indices(N, 1)]
        assert space.residual_ == pytest.approx(sample_error.mean(), rel=1e-9)
        assert space.residual_ < 0.5
        return
    assert (error <= host(space.error_bound(spaced.X, atoms)) + 1e-9 * scale).all()
    missed = spaced.w @ (np.diag(K) - (host(psi) ** 2).sum(axis=1)) / (spaced.w @ np.diag(K))
    assert space.residual_ == pytest.approx(missed, abs=1e-9)
    promised = spaced.basis.tolerance
    assert space.residual_ <= max(promised, 1e-8)
    if promised < 1:  # of a weighted sum: a single point may miss that much over its weight
        spaced.check(psi @ psi.T, K, rtol=0, atol=max(promised / spaced.w.min(), 1e-7) * scale)


def test_conditional_in_coordinates(spaced: Problem) -> None:
    """`C_YX (C_XX + λI)⁻¹ ψ(x)`, in whatever coordinates there are."""
    X, _, Y, w, _ = spaced.host_points
    model, at = spaced.fitted, spaced.queries(spaced.X)
    psi, phi = (
        host(s.transform(p)) for s, p in zip(spaces_of(model), (spaced.X, spaced.Y), strict=True)
    )
    inverse = np.linalg.inv((psi.T * w) @ psi + LAMBDA * np.eye(psi.shape[1]))
    truth = inverse @ host(model.space_x_.transform(at)).T
    spaced.check(model.given(at).coordinates, ((phi.T * w) @ psi @ truth).T)
    spaced.check(model.predict(at), ((Y.T * w) @ psi @ truth).T)


def spaces_of(model: ConditionalEmbedding) -> tuple[Space, Space]:
    return model.space_x_, model.space_y_


def answers(model: ConditionalEmbedding, problem: Problem) -> dict[str, Any]:
    at, y = problem.queries(problem.X), problem.queries(problem.Y)
    given, posterior = model.given(at), model.posterior(problem.prior, regularization=DELTA)
    return {
        "weights": given.weights,
        "coordinates": given.coordinates,
        "predict": model.predict(at),
        "push": model.push(problem.prior).coordinates,
        "posterior": posterior.weights(y),
    }


def assert_same(copy: Any, original: Any, library: str) -> None:
    """To the last bit, in the same library; a device may sum in another order every time."""
    assert copy.keys() == original.keys()
    exact = library not in ("torch-cuda", "cupy")
    for name, value in original.items():
        assert belongs(copy[name], library), name
        same = np.testing.assert_array_equal if exact else partial(assert_allclose, atol=1e-12)
        same(host(copy[name]), host(value), err_msg=name)


def test_saving(spaced: Problem, folder: Path) -> None:
    path = folder / f"{spaced.name.replace('/', '-')}.npz"
    model = spaced.fitted
    e = embed(spaced.X, kernel=spaced.kernel, weights=spaced.w, basis=spaced.basis)
    everything = {
        "kernel": spaced.kernel,
        "basis": spaced.basis,
        "space": model.space_x_,
        "embedding": e,
        "conditional": model,
        "posterior": model.posterior(spaced.prior, regularization=DELTA),
    }
    if "function" in spaced.name:  # a file holds no code
        for part in everything.values():
            if part is not spaced.basis:
                with pytest.raises(TypeError, match="function"):
                    save(part, path)
        assert not any(path.stem in file.name for file in folder.iterdir())
        return
    save(everything, path)
    copy = load(path)
    assert copy["kernel"] == spaced.kernel and copy["basis"] == spaced.basis
    assert copy["conditional"].space_x_ is copy["space"]  # what is shared stays shared
    X, library = spaced.X, spaced.library
    psi = {"psi": copy["space"].transform(X)}
    assert_same(psi, {"psi": model.space_x_.transform(X)}, library)
    said = ({"w": a.weights, "m": a.coordinates, "at": a(X)} for a in (copy["embedding"], e))
    assert_same(*said, library)
    assert_same(answers(copy["conditional"], spaced), answers(model, spaced), library)
    at = spaced.queries(spaced.Y)
    given = (m["posterior"].given(at)(X) for m in (copy, everything))
    assert_same(*({"posterior": value} for value in given), library)


BATCHES = [slice(0, 7), slice(7, 8), slice(8, N)]


def some(points: Any, batch: slice) -> Any:
    return each(points, lambda part: part[batch])


def anew(model: ConditionalEmbedding) -> ConditionalEmbedding:
    """A model that is not fitted, with the kernels and the spaces of one that is."""
    kernels = {"kernel_x": model.kernel_x_, "kernel_y": model.kernel_y_}
    return clone(model).set_params(basis=spaces_of(model), **kernels)


def streamed(model: ConditionalEmbedding, X: Any, Y: Any, w: Any) -> ConditionalEmbedding:
    """A model of fitted spaces that sees one batch after the other."""
    stream = anew(model)
    for batch in BATCHES:
        stream.partial_fit(some(X, batch), some(Y, batch), sample_weight=w[batch])
    return stream


def test_streaming(spaced: Problem) -> None:
    """Batches add up to the batch fit, given the same spaces."""
    X, Y, w = spaced.X, spaced.Y, spaced.w
    whole = spaced.fitted
    stream = streamed(whole, X, Y, w)
    at = spaced.queries(X)
    tolerance = {"rtol": 1e-10, "atol": 1e-10}
    spaced.check(stream.operator_.matrix, host(whole.operator_.matrix), **tolerance)
    answer, truth = stream.given(at), whole.given(at)
    spaced.check(answer.coordinates, host(truth.coordinates), **tolerance)
    spaced.check(answer(Y), host(truth(Y)), **tolerance)
    spaced.check(stream.predict(at), host(whole.predict(at)), **tolerance)
    spaced.check(
        stream.push(spaced.prior).coordinates,
        host(whole.push(spaced.prior).coordinates),
        **tolerance,
    )


def test_streaming_centred(spaced: Problem) -> None:
    whole, at = spaced.model(centered=True), spaced.queries(spaced.X)
    stream = streamed(whole, spaced.X, spaced.Y, spaced.w)
    spaced.check(stream.predict(at), host(whole.predict(at)), rtol=1e-10, atol=1e-10)


def test_streaming_to_these_points(spaced: Problem) -> None:
    """P(X|Y): answers in the coordinates under test, on points that span them."""
    whole = ConditionalEmbedding(
        spaced.kernel_y,
        KERNELS[spaced.name].kernel,
        LAMBDA,
        basis=(PivotedCholesky(tol=1e-8), spaced.basis),
    ).fit(spaced.Y, spaced.X, sample_weight=spaced.w)
    stream = streamed(whole, spaced.Y, spaced.X, spaced.w)
    at = spaced.queries(spaced.Y)
    tolerance = {"rtol": 1e-10, "atol": 1e-10}
    answer, truth = stream.given(at), whole.given(at)
    spaced.check(answer.coordinates, host(truth.coordinates), **tolerance)
    spaced.check(answer(spaced.X), host(truth(spaced.X)), **tolerance)
    assert belongs(answer.atoms, spaced.library)


def test_running_embeddings(spaced: Problem, folder: Path) -> None:
    """Batches, merged streams and a stream that was saved on its way give the batch's embedding."""
    X, w = spaced.X, spaced.w
    if spaced.kernel.factors:
        pytest.skip("streams of pairs are covariance operators: see test_running_operators")
    space = spaced.fitted.space_x_
    truth = embed(X, weights=w, basis=space)
    tolerance = {"rtol": 1e-10, "atol": 1e-10}

    def running(*batches: slice) -> RunningEmbedding:
        stream = RunningEmbedding(basis=space)
        for batch in batches:
            stream.partial_fit(some(X, batch), sample_weight=w[batch])
        return stream

    first, *others = BATCHES
    streams = [running(*BATCHES), running(first).merge(running(*others))]
    if "function" not in spaced.name:
        save(running(first), folder / "stream.npz")
        stream = load(folder / "stream.npz")
        for batch in others:
            stream.partial_fit(some(X, batch), sample_weight=w[batch])
        streams.append(stream)
    for stream in streams:
        assert stream.total_ == pytest.approx(1.0)
        spaced.check(stream.embedding_.coordinates, host(truth.coordinates), **tolerance)
        spaced.check(
            stream.embedding_(X), host(space.transform(X) @ truth.coordinates), **tolerance
        )


def test_running_operators(spaced: Problem) -> None:
    """The covariance operator of a stream of pairs."""
    X, Y, w = spaced.X, spaced.Y, spaced.w
    model = spaced.fitted
    psi, phi = (host(s.transform(p)) for s, p in zip(spaces_of(model), (X, Y), strict=True))
    stream = RunningEmbedding(basis=spaces_of(model))
    for batch in BATCHES:
        stream.partial_fit((some(X, batch), some(Y, batch)), sample_weight=w[batch])
    spaced.check(stream.operator_, (psi.T * w) @ phi, rtol=1e-10, atol=1e-10)


def test_a_stream_goes_on_after_loading(spaced: Problem, folder: Path) -> None:
    if "function" in spaced.name:
        pytest.skip("a Python function is not saved")
    X, Y, w = spaced.X, spaced.Y, spaced.w
    path, at, (first, second, third) = folder / "stream.npz", spaced.queries(X), BATCHES
    stream = anew(spaced.fitted)
    stream.fit(some(X, first), some(Y, first), sample_weight=w[first])
    stream.partial_fit(some(X, second), some(Y, second), sample_weight=w[second])
    save(stream, path)
    said = []
    for model in (load(path), stream):
        model.partial_fit(some(X, third), some(Y, third), sample_weight=w[third])
        said.append({"m": model.given(at).coordinates, "mean": model.predict(at)})
    assert_same(*said, spaced.library)


# --- libraries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params([case for case in cases(BASES) if case[2] in OTHERS]))
def test_same_answers_as_numpy(case: tuple[str, str, str]) -> None:
    answers = []
    of = "numpy", case[2]
    for name in of:
        p = Problem(case[0], BASES[case[1]], name)
        e = embed(p.X, kernel=p.kernel, weights=p.w, basis=p.basis)
        model = p.model()
        x, y = p.queries(p.X), p.queries(p.Y)
        got = {
            "evaluate": e(p.X),
            "norm": e.norm(),
            "distance": e.distance(p.prior) ** 2,
            "support": e.support(p.X),
            "given": model.given(x)(p.Y),
            "weights": model.weights(x),
            "predict": model.predict(x),
            "push": model.push(p.prior)(p.Y),
            "joint": model.joint(p.prior)((p.X, p.Y)),
            "auto": np.asarray(p.model(regularization="auto").regularization_),
            "score": np.asarray(model.score(p.X, p.Y)),
        }
        for method in BAYES:
            posterior = model.posterior(p.prior, method=method, regularization=DELTA)
            got[method] = posterior.given(y)(p.X)
        answers.append(got)
    first, second = answers
    for name, value in first.items():
        assert_allclose(host(second[name]), value, rtol=1e-8, atol=1e-8, err_msg=name)
    # a mode is the place of a maximum, which values in double precision fix to their square root
    Y = Problem(case[0], BASES[case[1]], "numpy").host_points[2]
    first_mode, second_mode = (embed(convert(Y, name)).mode() for name in of)
    assert_allclose(host(second_mode), first_mode, atol=1e-6)
