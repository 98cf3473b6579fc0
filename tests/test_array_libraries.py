"""Every public name × array library: the same numbers, in the caller's kind of array.

`CASES` has a small problem for every public function and estimator that takes arrays. Each is
solved with NumPy's double precision, and again with every library that is installed and in single
precision: arrays that come back must be of the library, on its device, and say the same. A new
public name needs a case, or a line in `WITHOUT_ARRAYS` that says why it has no case. Kernels and
bases have a suite of their own, `test_conformance.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.linear_model import LogisticRegression, Ridge

import meanmap as mm
from array_libraries import INSTALLED, OTHERS, SUPPORTED, Library, host, library
from comparison_tests import declared
from meanmap.arrays import is_array, is_floating, namespace
from meanmap.comparison import ResidualSigns, dependence_matrix, k_sample_test, pairwise
from meanmap.kernels import Delta, Gaussian
from meanmap.spaces import Nystroem
from optional_packages import require
from public import public_names

Answers = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """What a case is posed in: a library, a precision, and what stays NumPy's (mixed input)."""

    library: Library
    precision: Any = np.float64
    mixed: bool = False
    rounded: bool = False  # to half precision first
    whole: bool = False  # points are whole numbers

    def __call__(self, value: Any) -> Any:
        """A NumPy array, or a list or dictionary of them, as the caller would pass it."""
        if isinstance(value, list):
            return [self(part) for part in value]
        if isinstance(value, tuple):
            return tuple(self(part) for part in value)
        if isinstance(value, dict):
            return {name: self(part) for name, part in value.items()}
        value = np.asarray(value)
        if value.dtype.kind == "f":
            value = value.astype(np.float16) if self.rounded else value
            value = np.rint(3 * value) if self.whole else value
            value = value.astype(self.precision)
        return self.library.asarray(value)

    def second(self, value: Any) -> Any:
        """What comes beside the points: labels, targets, weights. NumPy's in mixed input."""
        if self.whole:
            return Given(self.library)(value)
        return Given(Library("numpy"), self.precision)(value) if self.mixed else self(value)

    @property
    def answered(self) -> str:
        """The precision of answers: half precision is promoted."""
        return "float32" if self.precision == np.float32 else "float64"


Solve = Callable[[Given], Answers]


@dataclass(frozen=True)
class Case:
    """A problem, and to what its answers are good: in double and in single precision."""

    names: tuple[str, ...]
    solve: Solve
    rtol: float
    single: float
    slow: tuple[str, ...]  # libraries that are slow at it
    promoted: bool  # whether answers are in double precision: labels are compared in it


CASES: dict[str, Case] = {}


def case(
    *names: str,
    rtol: float = 1e-6,
    single: float = 1e-3,
    slow: tuple[str, ...] = (),
    promoted: bool = False,
) -> Callable[[Solve], Solve]:
    """Registers a case for some public names."""

    def register(solve: Solve) -> Solve:
        CASES[solve.__name__] = Case(names, solve, rtol, single, slow, promoted)
        return solve

    return register


#: Public names that take no arrays, or give none back.
WITHOUT_ARRAYS = {
    "ApproximationWarning": "a warning",
    "DataWarning": "a warning",
    "ConditionalIndependence": "reads a table on the host: see test_conditional_table.py",
    "SettingWarning": "a warning",
    "ColumnEffects": "a mapping of numbers",
    "EffectSize": "a record of numbers",
    "DriftMonitor": "answers with numbers: see tests/monitoring/test_libraries.py",
    "SequentialConditionalTest": "likewise",
    "SequentialIndependenceTest": "likewise",
    "SequentialTwoSampleTest": "likewise",
    "DoseResponse": "takes arrays of every library, and returns NumPy's",
    "InstrumentalRegression": "takes arrays of every library, and returns NumPy's",
    "Mediation": "takes arrays of every library, and returns NumPy's",
    "ProxyEffect": "takes arrays of every library, and returns NumPy's",
    "CausalCurve": "a record of numbers",
    "InstrumentStrength": "a record of numbers",
    "Overlap": "a record of numbers",
    "SelectionPath": "a record of counts and dependences, drawn by HSICSelector",
    "ShiftReport": "a record of numbers and words",
    "TestResult": "a record of numbers; its witness is asked in the cases of the tests",
    "Validation": "a record of errors",
    "kernels": "a module: see test_conformance",
    "spaces": "a module: see test_conformance",
    "load": "reads a file: see test_persistence and test_conformance",
    "save": "writes a file: see test_persistence and test_conformance",
}


# --- problems -------------------------------------------------------------------------------------


def pairs(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of the plane, and a number that depends on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=n)


def groups(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of points, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return 4.0 * np.eye(3)[labels][:, :2] + rng.normal(size=(n, 2)), labels


def bags(n: int = 24, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Samples of several sizes and spreads, and their spreads."""
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 2.0, size=n)
    return [s * rng.normal(size=(int(rng.integers(6, 10)), 2)) for s in spread], spread


def turning(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States that turn, and noisy observations of them."""
    rng = np.random.default_rng(seed)
    angle = np.cumsum(rng.normal(0.4, 0.1, size=n))
    states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return states, states + 0.2 * rng.normal(size=states.shape)


def columns(n: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Three variables, each of which depends on the one before."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = a + 0.5 * rng.normal(size=n)
    return {"a": a, "b": b, "c": np.sin(b) + 0.3 * rng.normal(size=n)}


CHAIN = nx.path_graph(["a", "b", "c"])


# --- the core -------------------------------------------------------------------------------------


@case("embed", "Embedding", slow=("jax",))
def embedding(given: Given) -> Answers:
    X, _ = pairs()
    e = mm.embed(given(X), Gaussian(1.0))
    other = mm.embed(given(X + 0.5), Gaussian(1.0))
    at = given(X[:5])
    low, high = e.interval(0.8)
    return {
        "weights": e.weights,
        "at": e(at),
        "distance": e.distance(other),
        "mean": e.mean(),
        "std": e.std(),
        "quantile": e.quantile(0.3),
        "low": low,
        "high": high,
        "mode": e.mode(),
        "sample": e.sample(3, rng=0),
        "herd": e.herd(3),
        "support": e.support(at),
        "density": e.density(at),
        "expect": e.expect(lambda x: x[:, 0] ** 2),
        "error": e.error_bound(),
    }


@case("JointEmbedding", slow=("jax",))
def joint_embedding(given: Given) -> Answers:
    X, y = pairs()
    kernel = Gaussian(1.0) @ Gaussian(1.0)
    e = mm.embed((given(X), given.second(y[:, None])), kernel)
    return {
        "norm": e.norm(centered=True),
        "mean": e.marginal(1).mean(),
        "at": e(given((X, y[:, None]))),
    }


@case("ConditionalEmbedding", slow=("jax",))
def conditional_embedding(given: Given) -> Answers:
    X, y = pairs()
    w = np.random.default_rng(1).uniform(0.5, 1.5, size=len(y))
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
    model.fit(given(X), given.second(y), sample_weight=given.second(w))
    at = model.given(given(X[:4]))
    return {
        "predict": model.predict(given(X[:4])),
        "std": at.std(),
        "weights": model.weights(given(X[:4])),
        "score": model.score(given(X), given.second(y), sample_weight=given.second(w)),
    }


@case("ConditionalEmbedding", slow=("jax",))
def conditional_stream(given: Given) -> Answers:
    X, y = pairs()
    w = np.random.default_rng(1).uniform(0.5, 1.5, size=len(y))
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
    for rows in (slice(0, 40), slice(40, 60)):
        model.partial_fit(given(X[rows]), given.second(y[rows]), given.second(w[rows]))
    return {"predict": model.predict(given(X[:4]))}


@case("sum_rule", "chain_rule", "bayes_rule", "ConditionalOperator", slow=("jax",))
def rules(given: Given) -> Answers:
    X, y = pairs()
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
    model.fit(given(X), given.second(y))
    prior = mm.embed(given(X + 0.3), Gaussian(1.0))
    posterior = mm.bayes_rule(model, prior, regularization=1e-2)
    return {
        "sum": mm.sum_rule(model, prior).mean(),
        "chain": mm.chain_rule(model, prior).norm(),
        "posterior": posterior.predict(given(y[:3, None])),
        "weights": posterior.weights(given(y[:3, None])),
    }


@case("compress", "Compression")
def compression(given: Given) -> Answers:
    X, _ = pairs()
    found = mm.statistics.compress(given(X), 8, Gaussian(1.0), rng=0)
    return {"points": found.points, "indices": found.indices, "weights": found.weights}


# --- statistics and tests -------------------------------------------------------------------------


@case("mmd", "hsic", "joint_hsic", "stein_discrepancy")
def statistics(given: Given) -> Answers:
    X, y = pairs()
    return {
        "mmd": mm.mmd(given(X), given.second(X + 0.5), Gaussian(1.0)),
        "hsic": mm.hsic(given(X), given.second(y[:, None])),
        "joint": mm.statistics.joint_hsic(
            given(X), given.second(y[:, None]), given.second(y[::-1, None])
        ),
        "stein": mm.statistics.stein_discrepancy(given(X), lambda x: -x, Gaussian(1.0)),
    }


@case("conditional_mmd", "hscic")
def conditional_statistics(given: Given) -> Answers:
    X, y = pairs()
    options = {"kernel_x": Gaussian(1.0), "kernel_y": Gaussian(1.0), "regularization": 1e-2}
    at = given(X[:4])
    Y = y[:, None]
    return {
        "mmd": mm.statistics.conditional_mmd(
            given(X), given.second(Y), given(X + 0.1), given.second(Y**2), at, **options
        ),
        "hscic": mm.statistics.hscic(
            given(X[:, :1]), given.second(Y), given(X), at, kernel_z=Gaussian(1.0), **options
        ),
    }


@case(
    "k_sample_test", "KSampleResult", "dependence_matrix", "DependenceMatrix",
    "pairwise", "GroupDistances", slow=("jax",),
)  # fmt: skip
def many_tests(given: Given) -> Answers:
    X, y = pairs()
    labels = np.arange(60) % 3
    several = k_sample_test([given(X), given(X + 0.5)], n_permutations=49, rng=0)
    matrix = dependence_matrix(given(np.column_stack([X, y])), n_permutations=49, rng=0)
    shifted = given(X + labels[:, None])
    groups = pairwise(shifted, labels, 0, Gaussian(1.0), n_permutations=49, rng=0)
    return {
        "effect": several.effect.value,
        # tables of results are NumPy's, as p-values are
        "effects": float(matrix.effects[0, 2]),
        "distances": float(groups.distances[0, 2]),
    }


@case("two_sample_test", "independence_test", "joint_independence_test")
def permutation_tests(given: Given) -> Answers:
    X, y = pairs()
    options: dict[str, Any] = {"n_permutations": 99, "rng": 0}
    Y = y[:, None]
    two = mm.two_sample_test(given(X), given.second(X + 0.5), Gaussian(1.0), **options)
    dependent = mm.independence_test(given(X), given.second(Y), Gaussian(1.0), **options)
    joint = mm.joint_independence_test(given(X), given.second(Y), given.second(Y[::-1]), **options)
    return {
        "two-sample": two.statistic,
        "p": two.pvalue,
        "witness": two.witness(given(X[:4])),
        "independence": dependent.statistic,
        "p-independence": dependent.pvalue,
        "joint": joint.statistic,
        "p-joint": joint.pvalue,
    }


@case(
    "conditional_independence_test",
    "conditional_two_sample_test",
    "goodness_of_fit_test",
    "counterfactual_effect",
    "CounterfactualEffect",
)
def wild_tests(given: Given) -> Answers:
    X, y = pairs()
    Y = y[:, None]
    options: dict[str, Any] = {
        "n_permutations": 99,
        "rng": 0,
        "kernel": Gaussian(1.0),
    }
    signs = ResidualSigns(1e-2)
    given_z = mm.conditional_independence_test(
        given(X[:, :1]),
        given.second(Y),
        given(X[:, 1:]),
        null=ResidualSigns(1e-2, refit=False),
        **options,
    )
    two = mm.conditional_two_sample_test(
        given(X), given.second(Y), given(X + 0.1), given.second(Y + 1), null=signs, **options
    )
    fit = mm.goodness_of_fit_test(given(X), lambda x: -x, Gaussian(1.0), n_permutations=99, rng=0)
    effect = mm.comparison.counterfactual_effect(
        given(X), given.second(Y), given(X + 0.1), given.second(Y + 1), null=signs, **options
    )
    return {
        "conditional": given_z.statistic,
        "two": two.statistic,
        "p-two": two.pvalue,
        "fit": fit.statistic,
        "p-fit": fit.pvalue,
        "effect": effect.statistic,
        "mean": effect.mean_effect,
        "treated": effect.treated.mean(),
    }


@case("power_analysis", "PowerAnalysis", slow=("jax",))
def power(given: Given) -> Answers:
    X, _ = pairs()
    found = mm.comparison.power_analysis(
        mm.two_sample_test,
        given(X),
        given.second(X + 0.8),
        sizes=[10, 20],
        n_simulations=20,
        n_permutations=49,
        kernel=Gaussian(1.0),
        rng=0,
    )
    return {"size": float(found.size or 0), "powers": float(found.powers[0])}


# --- learning -------------------------------------------------------------------------------------


@case("KernelPCA", slow=("jax",))
def kernel_pca(given: Given) -> Answers:
    X, y = pairs()
    model = mm.learning.KernelPCA(2, Gaussian(1.0))
    scores = model.fit_transform(given(X), sample_weight=given.second(1 + y**2))
    return {
        "scores": scores,
        "eigenvalues": model.eigenvalues_,
        "again": model.transform(given(X[:5])),
        "points": model.inverse_transform(scores[:4]),
        "score": model.score(given(X)),
    }


@case("KernelCCA", slow=("jax",))
def kernel_cca(given: Given) -> Answers:
    X, y = pairs()
    model = mm.learning.KernelCCA(1, Gaussian(1.0), Gaussian(1.0))
    f, g = model.fit_transform(given(X), given.second(y))
    return {
        "f": f,
        "g": g,
        "correlations": model.correlations_,
        "score": model.score(given(X), given.second(y)),
    }


@case("KernelDimensionReduction", rtol=1e-4)
def dimension_reduction(given: Given) -> Answers:
    X, y = pairs()
    model = mm.learning.KernelDimensionReduction(1, regularization=1e-2, n_init=1, random_state=0)
    model.fit(given(X), given.second(y))
    labels = mm.learning.KernelDimensionReduction(
        1, Delta(), regularization=1e-2, method="gradient", random_state=0
    ).fit(given(X), given.second((y > 0).astype(int)))
    return {
        "transform": model.transform(given(X[:5])) ** 2,
        "labels": labels.transform(given(X[:5])) ** 2,
        "objective": model.objective_,
    }


@case("HSICSelector", slow=("jax",))
def selector(given: Given) -> Answers:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X[:, 1] + X[:, 3] ** 2
    answers: Answers = {}
    for method in ("backward", "forward", "lasso"):
        model = mm.HSICSelector(2, method=method, random_state=0).fit(given(X), given.second(y))
        answers[method] = model.transform(given(X[:4]))
        answers["back " + method] = model.inverse_transform(answers[method])
    model = mm.HSICSelector(1, random_state=0)
    answers["labels"] = model.fit_transform(given(X), given.second((y > 0).astype(int)))
    return answers


@case("HSICClustering", slow=("jax",))
def clustering(given: Given) -> Answers:
    X, labels = groups()
    model = mm.HSICClustering(3, Gaussian(2.0), n_init=2, random_state=0)
    found = model.fit_predict(given(X), sample_weight=given.second(1.0 + (labels == 0)))
    again = model.predict(given(X[:6]))
    return {  # which points go together: the names of clusters are a matter of rounding
        "labels": found[:, None] == found[None, :],
        "predict": again[:, None] == found[None, :],
        "score": model.score(given(X)),
    }


@case("ColoredUnfolding", rtol=1e-3, single=1e-2)
def unfolding(given: Given) -> Answers:
    t = np.sort(np.random.default_rng(0).uniform(0, 5, size=40))  # no two neighbours equally near
    X = np.stack([np.cos(t), np.sin(t)], axis=1)
    model = mm.ColoredUnfolding(1, 6, Gaussian(1.0), tol=1e-6, random_state=0)
    places = model.fit_transform(given(X), given.second(t))
    return {
        "places": places,
        "transform": model.transform(given(X[:4] + 0.01)),
        "objective": model.objective_,
    }


@case("SupportMeasureClassifier", rtol=1e-3, slow=("jax",))
def support_measures(given: Given) -> Answers:
    X, spread = bags()
    y = (spread > 1.2).astype(int)
    model = mm.SupportMeasureClassifier(Gaussian(1.0), bandwidth2=0.5, tol=1e-8)
    model.fit(given(X), given.second(y), sample_weight=given.second(1.0 + y))
    rows, labels = groups()
    three = mm.SupportMeasureClassifier(Gaussian(1.0), "linear", tol=1e-8)
    three.fit(given(rows), given.second(labels))
    return {
        "decision": model.decision_function(given(X[:5])),
        "predict": model.predict(given(X[:5])),
        "score": model.score(given(X), given.second(y)),
        "rows": three.predict(given(rows[:9])),
        "three": three.decision_function(given(rows[:9])),
    }


@case("SupportMeasureRegressor", rtol=1e-3, slow=("jax",))
def support_regression(given: Given) -> Answers:
    X, spread = bags()
    model = mm.SupportMeasureRegressor(Gaussian(1.0), bandwidth2=0.5, tol=1e-8)
    model.fit(given(X), given.second(spread))
    low = mm.SupportMeasureRegressor(
        Gaussian(1.0), bandwidth2=0.5, tol=1e-8, basis=Nystroem(8, random_state=0)
    ).fit(given(X), given.second(spread))
    return {
        "predict": model.predict(given(X[:5])),
        "low": low.predict(given(X[:5])),
        "score": model.score(given(X), given.second(spread)),
    }


@case("DistributionRidge", slow=("jax",))
def distribution_ridge(given: Given) -> Answers:
    X, spread = bags()
    model = mm.learning.DistributionRidge(Gaussian(1.0), bandwidth2=0.5, regularization=1e-2)
    model.fit(given(X), given.second(spread))
    vectors = mm.learning.DistributionRidge(
        Gaussian(1.0),
        bandwidth2=0.5,
        regularization=1e-2,
        point_basis=Nystroem(10, random_state=0),
    ).fit(given(X), given.second(np.stack([spread, spread**2], axis=1)))
    return {
        "predict": model.predict(given(X[:5])),
        "several": vectors.predict(given(X[:5])),
        "score": model.score(given(X), given.second(spread)),
    }


# --- densities ------------------------------------------------------------------------------------


@case("EmbeddingDensity", rtol=1e-4)
def density(given: Given) -> Answers:
    X, y = pairs()
    model = mm.EmbeddingDensity(n_candidates=20, bandwidth=1.0, epsilon=5e-2, random_state=0)
    model.fit(given(X), sample_weight=given.second(1 + y**2))
    return {
        "log": model.score_samples(given(X[:5])),
        "score": model.score(given(X)),
        "sample": model.sample(3, random_state=0),
    }


# --- dynamics -------------------------------------------------------------------------------------


def tracked(model: Any, given: Given) -> Answers:
    """Everything that a filter on states says."""
    states, observations = turning()
    model.fit(given(states[:50]), given.second(observations[:50]))
    seen = observations[50:]
    track = model.filter(given(seen))
    low, high = track.interval(0.8)
    stream = model.start()
    belief = stream.step(given(seen[0]))
    both = model.filter([given(seen), given(seen[:5])])
    return {
        "mean": track.mean,
        "std": track.std,
        "mode": track.mode,
        "low": low,
        "high": high,
        "evidence": track.log_evidence,
        "support": track.support,
        "beliefs": track.beliefs(given(states[:3])),
        "smooth": model.smooth(given(seen)).mean,
        "predict": model.predict(given(seen), 2).mean,
        "every": model.predict(given(seen), 2, origin="every").mean,
        "step": belief.mean(),
        "ahead": stream.predict(2).mean,
        "several": both.mean,
        "several support": both.support,
    }


@case("KernelBayesFilter", "Stream", "Track", slow=("jax",))
def bayes_filter(given: Given) -> Answers:
    model = mm.KernelBayesFilter(
        Gaussian(0.7),
        Gaussian(0.7),
        regularization=1e-2,
        posterior_regularization=1e-2,
        power=1.0,
        validation=None,
    )
    return tracked(model, given)


@case("KernelBayesFilter", slow=("jax", "torch"))
def validated_filter(given: Given) -> Answers:
    states, observations = turning()
    controls = np.ones((len(states), 1)) + 0.01 * states[:, :1]
    model = mm.KernelBayesFilter(
        Gaussian(0.7),
        Gaussian(0.7),
        method="squared",
        grid={"regularization": [1e-3, 1e-1]},
        posterior_regularization=1e-1,
        power=1.0,
        progress=False,
    )
    model.fit(given(states[:50]), given.second(observations[:50]), given.second(controls[:50]))
    track = model.filter(given(observations[50:]), given.second(controls[50:]))
    return {"mean": track.mean}


@case("AdditiveFilter", slow=("jax",))
def additive_filter(given: Given) -> Answers:
    model = mm.AdditiveFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, validation=None)
    return tracked(model, given)


@case("TransferOperator", slow=("jax",))
def transfer_operator(given: Given) -> Answers:
    options: dict[str, Any] = {"rank": 3, "regularization": 1e-2, "reversible": True}
    x = np.cos(0.5 * np.arange(60.0))[:, None] + pairs()[0][:60, :1]
    model = mm.dynamics.TransferOperator(Gaussian(1.0), **options).fit(given(x))
    return {
        "predict": model.predict(given(x[:4])),
        "functions": abs(model.eigenfunctions(given(x[:4]))),
    }


@case("SpectralFilter", slow=("jax",))
def spectral_filter(given: Given) -> Answers:
    _, observations = turning()
    model = mm.SpectralFilter(Gaussian(0.7), 3, window=2, regularization=1e-2, validation=None).fit(
        given(observations[:50])
    )
    track = model.filter(given(observations[50:]))
    stream = model.start()
    stream.step(given(observations[50]))
    return {
        "mean": track.mean,
        "predict": model.predict(given(observations[50:]), 2).mean,
        "ahead": stream.predict(1).mean,
        "score": model.score(given(observations[50:])),
    }


# --- graphical models -----------------------------------------------------------------------------


@case("KernelGraphicalModel", slow=("jax",))
def graphical_model(given: Given) -> Answers:
    data = columns()
    table = {name: given.second(v) if name == "b" else given(v) for name, v in data.items()}
    model = mm.KernelGraphicalModel(CHAIN, Gaussian(0.7), 1e-2).fit(table)
    holes = {
        name: np.where(np.arange(60) % 7 == i, np.nan, v)
        for i, (name, v) in enumerate(data.items())
    }
    filled = model.impute(given(holes))
    drawn = model.sample(3, rng=0)
    evidence = {"a": given(np.array([0.5, -0.5]))}
    return {
        "marginal": model.marginal("c", evidence).mean(),
        "one": model.marginal("c", {"a": 0.5}).mean(),
        "joint": model.joint("a", "c").norm(),
        "expect": model.expect(lambda x: x[:, 0] ** 2, "b", evidence),
        "most": model.most_probable("b", evidence),
        "log density": model.log_density(given(data)),
        "score": model.score(given(data)),
        **{f"imputed {name}": filled[name] for name in data},
        **{f"drawn {name}": drawn[name] for name in data},
    }


@case("KernelGraphicalModel", slow=("jax",), promoted=True)
def hidden_states(given: Given) -> Answers:
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=80)
    data = {name: 4.0 * kind + rng.normal(size=80) for name in "ab"}
    graph = nx.star_graph(3)
    graph = nx.relabel_nodes(graph, {0: "kind", 1: "a", 2: "b", 3: "label"})
    graph.nodes["kind"]["states"] = 2
    labels = np.where(rng.uniform(size=80) < 0.9, kind, 1 - kind)
    table = {"a": given(data["a"]), "b": given.second(data["b"]), "label": given.second(labels)}
    model = mm.KernelGraphicalModel(graph, regularization=1e-2).fit(table)
    return {
        "log density": model.log_density(table),
        "label": model.impute({**table, "label": given(np.full(80, np.nan))})["label"] > 0.5,
        "kind": model.most_probable("kind", {"a": given(np.array([0.0, 4.0]))}),
        "mean": model.marginal("a", {"label": 1}).mean(),
    }


@case("chow_liu_tree", slow=("jax",))
def tree(given: Given) -> Answers:
    found = mm.graphical.chow_liu_tree(given(columns()), Gaussian(1.0))
    edges = {"".join(sorted(edge)): found.edges[edge]["weight"] for edge in found.edges}
    return {name: float(weight) for name, weight in sorted(edges.items())}


@case("BeliefPropagation", "Beliefs", slow=("jax",))
def propagation(given: Given) -> Answers:
    graph = nx.Graph([("a", "b"), ("b", "c"), ("c", "a")])
    model = mm.BeliefPropagation(graph, Gaussian(0.7), 1e-2, random_state=0).fit(given(columns()))
    found = model.run({"a": given(np.array([0.5]))[0]})
    soft = model.run({"a": lambda x: namespace(x).exp(-(x[:, 0] ** 2))})
    ends = found.interval(0.8)
    return {
        "mean": found.mean["c"],
        "std": found.std["c"],
        "mode": found.mode["c"],
        "low": ends["c"][0],
        "belief": found.belief("c").mean(),
        "density": found.density("c", given(np.array([[0.0], [0.3]]))),
        "soft": soft.mean["c"],
        "between": found.mean["b"],
    }


@case("BeliefPropagation", slow=("jax",))
def grid(given: Given) -> Answers:
    rng = np.random.default_rng(0)
    fields = np.cumsum(rng.normal(size=(40, 3, 3)), axis=1)
    model = mm.BeliefPropagation(nx.grid_2d_graph(3, 3), Gaussian(1.0), 1e-2, random_state=0)
    model.fit(given(fields))
    evidence = np.full((3, 3), np.nan)
    evidence[0] = 0.5
    found = model.run(given(evidence))
    return {"mean": found.array(), "std": found.array("std")}


# --- likelihood-free inference --------------------------------------------------------------------


@case("KernelABC", "Posterior", "Calibration", "PredictiveCheck")
def inference(given: Given) -> Answers:
    def simulator(theta: Any, rng: np.random.Generator) -> Any:
        return given(host(theta) + 0.3 * rng.normal(size=theta.shape))

    model = mm.KernelABC(
        simulator, {"place": stats.norm()}, random_state=0, regularization=1e-2, progress=False
    ).fit(60)
    found = model.posterior(given(np.array([0.5])))
    low, high = found.interval(0.8)
    checked = model.check(given(np.array([0.5])), 20)
    return {
        "theta": float(np.sum(host(model.theta_))),
        "mean": found.mean(),
        "std": found.std(),
        "low": low,
        "high": high,
        "density": found.density(given(np.array([[0.2], [0.4]]))),
        "sample": found.sample(3, rng=0),
        "coverage": float(model.calibrate(20).coverage(0.8)[0]),
        "p": float(checked.pvalues[0]),
    }


@case("bayes_update", slow=("jax",))
def update(given: Given) -> Answers:
    X, y = pairs()
    found = mm.likelihood_free.bayes_update(
        given(X + 0.3), (given(X), given.second(y[:, None])), given.second(np.array([0.2]))
    )
    return {"mean": found.mean(), "std": found.std()}


# --- domain adaptation ----------------------------------------------------------------------------


@case("KernelMeanMatching", rtol=1e-4, slow=("jax",))
def mean_matching(given: Given) -> Answers:
    X, _ = pairs()
    model = mm.KernelMeanMatching(Gaussian(1.0), ridge=1e-2, bound=10.0, random_state=0)
    model.fit(given(X), X_test=given.second(X[:30] + 0.4))
    return {
        "weights": model.weights_,
        "elsewhere": model.weights(given(X[:5] + 0.1)),
        "score": model.ratio_score(given(X), given(X + 0.4)),
    }


@case("TargetShift", rtol=1e-4, slow=("jax",))
def target_shift(given: Given) -> Answers:
    X, labels = groups(90)
    model = mm.TargetShift(Gaussian(2.0), ridge=1e-3, n_bootstrap=5, random_state=0)
    model.fit(given(X), given.second(labels), X_test=given(X[labels < 2]))
    x, y = pairs()
    numbers = mm.TargetShift(
        Gaussian(1.0), Gaussian(1.0), ridge=1e-2, regularization=1e-2, n_bootstrap=0, random_state=0
    ).fit(given(x), given.second(y), X_test=given(x[y > 0]))
    return {
        "weights": model.weights_,
        "proportion": float(model.proportions_[0]),
        "elsewhere": float(model.weights(given(labels[:4]))[0]),
        "adjusted": model.adjust(given(np.full((2, 3), 1 / 3))),
        "numbers": numbers.weights_,
        "at numbers": numbers.weights(given(y[:4])),
        "distribution": numbers.distribution_.mean(),
    }


@case("LocationScaleShift", rtol=1e-2, single=5e-2)
def location_scale(given: Given) -> Answers:
    X, labels = groups()
    model = mm.LocationScaleShift(
        Gaussian(2.0), target_shift=False, regularization=1e-2, n_init=1, random_state=0
    )
    model.fit(given(X), given.second(labels), X_test=given(1.2 * X + 0.5))
    return {
        "transform": model.transform(given(X[:5]), given.second(labels[:5])),
        "weights": model.weights_,
        "moved": model.X_new_,
    }


@case("InvariantComponents", slow=("jax",))
def invariant(given: Given) -> Answers:
    X, labels = groups()
    domains = np.arange(60) // 15
    model = mm.InvariantComponents(
        2, Gaussian(2.0), trade_off=1.0, regularization=1e-2, random_state=0
    )
    Z = model.fit_transform(given(X), given.second(labels), domains=given.second(domains))
    return {"transform": Z**2, "again": model.transform(given(X[:5])) ** 2}


@case("distributional_variance")
def variance(given: Given) -> Answers:
    X, _ = pairs()
    return {
        "listed": mm.adaptation.distributional_variance(
            given([X[:20], X[20:40] + 1, X[40:]]), kernel=Gaussian(1.0)
        ),
        "rows": mm.adaptation.distributional_variance(
            given(X), given.second(np.arange(60) % 4), kernel=Gaussian(1.0)
        ),
    }


@case("Reweighted", rtol=1e-4, slow=("jax",))
def reweighted(given: Given) -> Answers:
    X, y = pairs()
    weights = mm.KernelMeanMatching(Gaussian(1.0), ridge=1e-2, bound=10.0, random_state=0)
    line = mm.adaptation.Reweighted(Ridge(), weights)
    line.fit(given(X), given.second(y), X_test=given(X + 0.4), sample_weight=given.second(1 + y**2))
    rows, labels = groups()
    classes = mm.adaptation.Reweighted(LogisticRegression(), weights)
    classes.fit(given(rows), given.second(labels), X_test=given(rows + 0.4))
    return {
        "predict": line.predict(given(X[:5])),
        "score": line.score(given(X), given.second(y)),
        "classes": classes.predict(given(rows[:5])),
        "probabilities": classes.predict_proba(given(rows[:5])),
        "decision": classes.decision_function(given(rows[:5])),
    }


@case("shift_report")
def report(given: Given) -> Answers:
    X, y = pairs(80)
    found = mm.report.shift_report(
        given(X[:40]),
        given(X[40:] + 1),
        given.second(y[:40]),
        given.second(y[40:]),
        rng=0,
        progress=False,
    )
    return {
        "effect": float(found.effect),
        "p": found.overall.pvalue,
        "difference": float(found.columns[0].difference),
    }


@pytest.fixture(autouse=True)
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that NumPy cannot read by itself, as if all of them lived on an accelerator."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError("can't convert a tensor on a device to numpy: use to_numpy")

    with contextlib.suppress(ImportError):
        monkeypatch.setattr("torch.Tensor.__array__", refuse)


# --- the suite ------------------------------------------------------------------------------------


@cache
def truth(name: str, **how: bool) -> Answers:
    """Answers in NumPy's double precision."""
    return quietly(CASES[name].solve, Given(Library("numpy"), **how))


def quietly(solve: Solve, given: Given) -> Answers:
    """Answers, with any warning but those that a small sample earns made an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", mm.DataWarning)
        warnings.simplefilter("ignore", mm.ApproximationWarning)
        return solve(given)


def agree(found: Answers, expected: Answers, given: Given, rtol: float, promoted: bool) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        reference = expected[name]
        if type(reference) in (float, int, bool, str):
            assert type(value) is type(reference), f"{name}: {type(value)}"
        else:
            assert given.library.owns(value), f"{name}: {type(value)} in {given.library.name}"
            kept = given.answered == "float64" or given.library.name != "numpy"
            if kept and is_array(value) and is_floating(value):
                right = "float64" if promoted else given.answered
                assert right in str(value.dtype), f"{name}: {value.dtype}"
        there, here = np.asarray(host(reference)), np.asarray(host(value))
        assert there.shape == here.shape, name
        if there.dtype.kind in "iub":
            assert_array_equal(here, there, err_msg=name)
            continue
        scale = float(np.nanmax(np.abs(there))) if there.size else 1.0
        assert_allclose(here, there, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.parametrize("name", SUPPORTED)
def test_installed(name: str) -> None:
    """The one place where a library that is missing is skipped."""
    found = library(name)
    assert found.owns(found.asarray(np.ones(3)))


#: Libraries that are tried in other precisions than double.
SEVERAL_PRECISIONS = [name for name in INSTALLED if name != "jax"]


def each_library(names: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, of, marks=[pytest.mark.slow] if of in case.slow else [])
        for name, case in CASES.items()
        for of in names
    ]


@pytest.mark.parametrize(("name", "of"), each_library(OTHERS))
def test_double_precision(name: str, of: str) -> None:
    given = Given(Library(of))
    agree(quietly(CASES[name].solve, given), truth(name), given, CASES[name].rtol, False)


@pytest.mark.parametrize(("name", "of"), each_library(SEVERAL_PRECISIONS))
def test_single_precision(name: str, of: str) -> None:
    given = Given(Library(of), np.float32)
    found = quietly(CASES[name].solve, given)
    agree(
        found, truth(name), given, max(CASES[name].single, CASES[name].rtol), CASES[name].promoted
    )


@pytest.mark.parametrize(("name", "of"), each_library(SEVERAL_PRECISIONS))
def test_half_precision_is_promoted(name: str, of: str) -> None:
    if name == "selector":
        pytest.skip("gives back columns as they were")
    given = Given(Library(of), np.float16)
    found = quietly(CASES[name].solve, given)
    agree(found, truth(name, rounded=True), given, CASES[name].rtol, True)


def test_bfloat16_is_promoted() -> None:
    """A precision that NumPy has no name for."""
    torch = require("torch")
    X, y = pairs()
    half, wide = (torch.asarray(X).to(torch.bfloat16).to(t) for t in (torch.bfloat16, torch.double))
    scores = [mm.learning.KernelPCA(2, Gaussian(1.0)).fit_transform(x) for x in (half, wide)]
    assert_allclose(host(scores[0]), host(scores[1]), rtol=1e-9)
    labels = [mm.HSICClustering(2, n_init=1, random_state=0).fit_predict(x) for x in (half, wide)]
    assert_array_equal(host(labels[0]), host(labels[1]))
    target = torch.asarray(y)
    weights = torch.ones(len(y), dtype=torch.bfloat16)
    answers = [
        mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
        .fit(x, target, sample_weight=weights)
        .predict(x[:4])
        for x in (half, wide)
    ]
    assert answers[0].dtype == torch.double
    assert_allclose(host(answers[0]), host(answers[1]), rtol=1e-9)


#: Cases whose points may be counts as well.
COUNTS = (
    "kernel_pca",
    "kernel_cca",
    "dimension_reduction",
    "statistics",
    "density",
    "distribution_ridge",
    "mean_matching",
    "location_scale",
    "invariant",
    "reweighted",
)


@pytest.mark.parametrize("of", SEVERAL_PRECISIONS)
@pytest.mark.parametrize("name", COUNTS)
def test_whole_numbers_are_promoted(name: str, of: str) -> None:
    given = Given(Library(of), np.int64, whole=True)
    found = quietly(CASES[name].solve, given)
    agree(found, truth(name, whole=True), given, CASES[name].rtol, True)


@pytest.mark.parametrize(("name", "of"), each_library([name for name in OTHERS if name != "jax"]))
def test_mixed_input(name: str, of: str) -> None:
    """Points of the library, and NumPy arrays beside them."""
    given = Given(Library(of), mixed=True)
    if "given.second" not in inspect.getsource(CASES[name].solve):
        pytest.skip("takes one kind of input")
    agree(quietly(CASES[name].solve, given), truth(name), given, CASES[name].rtol, False)


def test_every_public_name_has_a_case() -> None:
    covered = {name for case in CASES.values() for name in case.names}
    covered |= set(declared()) & set(public_names())  # statistical tests, see test_every_test.py
    assert covered.isdisjoint(WITHOUT_ARRAYS)
    assert covered | set(WITHOUT_ARRAYS) == set(public_names())
