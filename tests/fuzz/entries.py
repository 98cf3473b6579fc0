"""Every public way into the library, as a function of its arguments.

An entry has good values for each of its arguments; a case puts a hostile one in the place of one of
them. Problems are small and settings cheap. A new public name needs an entry, or a line in
`EXCUSED` that says why it has no entry.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
from scipy import stats
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression, Ridge

import comparison_tests
import meanmap as mm
from fitted_objects import ANGLE, BAGS, FITTED, GROUPS, KINDS, LABELS, SEEN, SPREAD, STATES, noisy
from fitted_objects import X as ALL_X
from fitted_objects import Y as ALL_Y
from kernels.cases import KERNELS
from meanmap import kernels as k
from meanmap.comparison import (
    Block,
    Bootstrap,
    ConditionalIndependence,
    Groups,
    Permutation,
    ResidualSigns,
    RunningIndependenceTest,
    RunningTwoSampleTest,
    WeightedBlocks,
    Wild,
)
from meanmap.kernels import Delta, Gaussian
from meanmap.kernels.algebra import Product, Scaled, Sum
from meanmap.kernels.defaults import as_kernel, as_target
from meanmap.kernels.domains.whitened import Whitened
from meanmap.monitoring import (
    DriftMonitor,
    SequentialConditionalTest,
    SequentialIndependenceTest,
    SequentialTwoSampleTest,
)
from meanmap.spaces import Explicit, Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding, feed
from public import public_names

Good = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A call, good values of its arguments, and to what a form of them may change the answer."""

    names: tuple[str, ...]
    call: Callable[[SimpleNamespace], Any]
    good: Good
    rtol: float
    strict: bool = True  # whether every form of good data must be answered
    without: tuple[str, ...] = ()  # forms that mean something else here


ENTRIES: dict[str, Entry] = {}


def entry(
    *names: str,
    rtol: float = 1e-10,
    strict: bool = True,
    without: tuple[str, ...] = (),
    **good: Any,
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Registers a call that covers some public names."""

    def register(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        ENTRIES[call.__name__] = Entry(names, call, good, rtol, strict, without)
        return call

    return register


#: Public callables that no hostile value can be handed to.
EXCUSED = {
    "ApproximationWarning": "a warning",
    "DataWarning": "a warning",
    "SettingWarning": "a warning",
    "CausalCurve": "a record that estimators of causal functions make",
    "InstrumentStrength": "a record that estimators of causal functions make",
    "Overlap": "a record that estimators of causal functions make",
    "SelectionPath": "a record that HSICSelector makes",
    "Validation": "a record that filters make",
    "ShiftReport": "a record that shift_report makes",
    "kernels": "a module, its names are listed beside",
    "spaces": "a module, its names are listed beside",
    "kernels.Kernel": "the interface of kernels",
    "kernels.Radial": "what radial kernels are made from",
    "kernels.Rough": "what radial kernels with a kink are made from",
    "spaces.Basis": "the interface of bases",
    "spaces.Coordinates": "the interface of coordinates",
}

N = 16
X, Y, W = ALL_X[:N], ALL_Y[:N], 1 + 0.5 * np.sin(np.arange(N))
COLUMN, WORDS, CLASSES, ROWS = Y[:, None], LABELS[:N], KINDS[:N], GROUPS[:N]
AT = X[:3] + 0.05
QUARTERS = np.arange(N) // 4
TABLE = {"a": X[:, 0], "b": X[:, 0] + 0.3 * X[:, 1], "c": Y}
CHAIN = nx.path_graph(["a", "b", "c"])
G = Gaussian(1.0)


@cache
def made(name: str) -> Any:
    """A fitted object that is only asked."""
    return FITTED[name].make()


# --- kernels --------------------------------------------------------------------------------------


def on_vectors(kernel: k.Kernel, v: Any) -> Any:
    fitted = kernel.resolve(kernel.check(v.A))
    return fitted(v.A, v.B), fitted.diagonal(v.A), fitted.matmul(v.A, v.B, v.V)


def on_points(kernel: k.Kernel, v: Any) -> Any:
    return kernel.resolve(kernel.check(v.A))(v.A)


for kernel in (
    k.Gaussian(), k.Laplace(), k.Matern(2.5), k.RationalQuadratic(), k.Polynomial(3), k.Linear(),
    k.Constant(), k.Energy(), k.Gaussian() + k.Linear(), k.Gaussian() * k.Laplace(),
    2.0 * k.Gaussian(), k.ScikitLearn(RBF(1.0)),
):  # fmt: skip
    label = f"kernel {kernel!r}"
    ENTRIES[label] = Entry(
        (f"kernels.{type(kernel).__name__}",),
        lambda v, kernel=kernel: on_vectors(kernel, v),
        {"A": X[:6], "B": X[4:8], "V": W[:4]},
        1e-10,
    )


@entry("kernels.Gaussian", x=AT, B=X[:6], scores=-X[:6])
def gradients(v: Any) -> Any:
    return G.gradient(v.x, v.B), G.stein(v.B, v.scores)


@entry("kernels.Gaussian", "kernels.Matern", bandwidth=1.0, nu=1.5, alpha=1.0, degree=2, offset=1.0)
def kernel_parameters(v: Any) -> Any:
    return (
        k.Gaussian(v.bandwidth)(X),
        k.Matern(v.nu, v.bandwidth)(X),
        k.RationalQuadratic(v.alpha, v.bandwidth)(X),
        k.Polynomial(v.degree, v.offset)(X),
        (v.alpha * k.Linear())(X),
        k.Constant(v.alpha)(X),
    )


@entry("kernels.Gaussian", bandwidth=np.array([1.0, 2.0]))
def bandwidth_a_column(v: Any) -> Any:
    return k.Gaussian(v.bandwidth)(X), mm.embed(X, Gaussian(v.bandwidth)).norm()


@entry("kernels.Delta", A=WORDS, B=WORDS[:5])
def labels(v: Any) -> Any:
    return Delta()(v.A, v.B), mm.embed(v.A, Delta()).norm()


@entry("kernels.Delta", A=CLASSES, B=CLASSES[:5])
def codes(v: Any) -> Any:
    return Delta()(v.A, v.B), mm.embed(v.A, Delta()).norm()


@entry("kernels.Hamming", A=np.array([list("ab"), list("bb"), list("ac")]))
def categories(v: Any) -> Any:
    kernel = k.Hamming()
    return kernel.resolve(kernel.check(v.A))(v.A)


@entry("kernels.Function", A=X[:6], values=G(X[:6]))
def function(v: Any) -> Any:
    own = k.Function(lambda x, y: float(repr(x) == repr(y)))
    return own(v.A), k.Function(lambda A, B: v.values, vectorized=True)(X[:6])


@entry("kernels.Trace", "kernels.Chordal", A=np.stack([np.eye(2) * c for c in (1.0, 2.0, 3.0)]))
def matrices(v: Any) -> Any:
    chordal = k.Chordal()
    return k.Trace()(v.A), chordal.resolve(chordal.check(v.A))(v.A)


@entry("kernels.Mallows", A=np.eye(3)[[[0, 1, 2], [2, 1, 0], [1, 0, 2]]])
def permutations(v: Any) -> Any:
    return k.Mallows(1.0)(v.A)


@entry("kernels.Precomputed", gram=np.eye(3) + 1.0, A=np.array([0, 1, 2, 1]))
def precomputed(v: Any) -> Any:
    kernel = k.Precomputed(v.gram)
    return kernel(v.A), mm.embed(v.A, kernel).norm()


@entry("kernels.TensorProduct", X=X[:6], Y=WORDS[:6])
def tensor_product(v: Any) -> Any:
    kernel = k.TensorProduct(Gaussian(1.0), Delta())
    return kernel((v.X, v.Y)), kernel.diagonal((v.X, v.Y))


@entry("kernels.NGrams", A=np.array(["abcd", "bcde", "xyz"]), p=2)
def strings(v: Any) -> Any:
    return k.NGrams(v.p)(v.A)


@entry("kernels.GlobalAlignment", A=[X[:4], X[:6], X[2:5]], bandwidth=1.0)
def time_series(v: Any) -> Any:
    return k.GlobalAlignment(v.bandwidth)(v.A)


@entry("kernels.WeisfeilerLehman", A=[nx.path_graph(3), nx.cycle_graph(4)], iterations=2)
def graph_kernel(v: Any) -> Any:
    return k.WeisfeilerLehman(v.iterations, label=None)(v.A)


@entry("kernels.Expected", "kernels.OnEmbeddings", A=[X[:4], X[4:9], X[9:12]])
def bag_kernels(v: Any) -> Any:
    return k.Expected(G)(v.A), k.OnEmbeddings(G, Gaussian(0.5))(v.A)


@entry("kernels.Weighted", "kernels.Normal", points=X[:4], w=W[:4], mean=X[0], covariance=np.eye(2))
def bags_of_kinds(v: Any) -> Any:
    bags = [k.Weighted(v.points, v.w), X[4:9]]
    normals = [k.Normal(v.mean, v.covariance), k.Normal(X[1], np.eye(2))]
    return k.Expected(G)(bags), k.Expected(G)(normals)


@entry(
    "kernels.Columns", "kernels.default_kernel",
    without=("a tuple of rows",),  # which is a sample of several variables
    points=X, y=Y,
)  # fmt: skip
def columns(v: Any) -> Any:
    import pandas as pd

    kernel = k.default_kernel(v.points)
    fitted = as_kernel(None, v.points).resolve(kernel.check(v.points))
    table = pd.DataFrame({"a": X[:6, 0], "b": WORDS[:6]})
    mixed = as_kernel(k.Columns(), table)
    target = as_target(v.y, None)[0]
    return (
        fitted(v.points),
        mixed.resolve(mixed.check(table))(table),
        k.Linear().check(target),
    )


@entry(A=X, factor=2.0)
def composites(v: Any) -> Any:
    landmarks = X[:4]
    whitened = Whitened(G, landmarks, np.linalg.cholesky(G(landmarks)))
    return whitened(v.A), Scaled(Sum(G, Product(G, G)), v.factor)(v.A)


def register_others() -> None:
    """An entry for every kernel that has a row in `kernels/cases.py` and none above."""
    covered = {name for one in ENTRIES.values() for name in one.names}
    for label, case in KERNELS.items():
        name = f"kernels.{type(case.kernel).__name__}"
        if name not in covered and case.kernel.on_vectors:
            good = {"A": X[:6], "B": X[4:8], "V": W[:4]}
            call = partial(on_vectors, case.kernel)
        elif name not in covered:
            good = {"A": case.points(6)}
            call = partial(on_points, case.kernel)
        else:
            continue
        ENTRIES[f"kernel {label}"] = Entry((name,), call, good, 1e-10)


register_others()


# --- spaces ---------------------------------------------------------------------------------------


@entry("spaces.Space", "spaces.PivotedCholesky", X=X, w=W, at=AT, tol=1e-8, max_rank=5)
def space(v: Any) -> Any:
    found = Space(G, PivotedCholesky(v.tol, v.max_rank)).fit(v.X, sample_weight=v.w)
    # coordinates turn with rounding, products stay
    psi = found.transform(v.at)
    return psi @ psi.T, found.support(v.at), found.error_bound(v.at)


@entry("spaces.Nystroem", "spaces.RandomFourier", X=X, n=6, landmarks=X[:4], at=AT, seed=0)
def other_spaces(v: Any) -> Any:
    found = [
        Space(G, Nystroem(v.n, random_state=v.seed)).fit(v.X),
        Space(G, Nystroem(landmarks=v.landmarks)).fit(v.X),
        Space(G, RandomFourier(v.n, random_state=v.seed)).fit(v.X),
    ]
    return [each.transform(v.at) @ each.transform(v.at).T for each in found]


@entry("spaces.Explicit", X=X, at=AT)
def explicit_space(v: Any) -> Any:
    found = np.asarray(Space(k.Polynomial(2), Explicit()).fit(v.X).transform(v.at), dtype=float)
    return found @ found.T


@entry("spaces.Space", "spaces.Explicit", X=WORDS, at=WORDS[:4])
def label_space(v: Any) -> Any:
    return Space().fit(v.X).transform(v.at)


# --- embeddings -----------------------------------------------------------------------------------


@entry("embed", "Embedding", X=X, w=W, at=AT)
def embedding(v: Any) -> Any:
    e = mm.embed(v.X, Gaussian(), v.w)
    return e(v.at), e.norm(), e.mean(), e.std(), e.mode(), e.support(v.at), e.covariance().norm()


@entry("embed", "Embedding", X=X, q=0.5, level=0.8, delta=0.1, n=3, seed=0)
def decoding(v: Any) -> Any:
    e = mm.embed(v.X, G)
    return (
        e.quantile(v.q), e.interval(v.level), e.error_bound(v.delta), e.sample(v.n, rng=v.seed),
        e.herd(v.n), e.density(AT), e.project().weights,
    )  # fmt: skip


@entry("Embedding", x=AT, candidates=X[:4], bandwidth=1.0, factor=2.0, weights=W)
def asked_embedding(v: Any) -> Any:
    e = made("embedding")
    other = mm.embed(X, G, weights=v.weights)
    return (
        e(v.x), e.support(v.x), e.density(v.x, v.bandwidth), e.mode(v.candidates),
        (v.factor * e).norm(), e.inner(other), e.distance(other), (e - other).norm(),
    )  # fmt: skip


@entry("embed", without=("a tuple of rows",), X=X)  # which is a sample of several variables
def default_embedding(v: Any) -> Any:
    e = mm.embed(v.X)
    return e.norm(), e.distance(e)


@entry("embed", "JointEmbedding", X=X, Y=COLUMN, w=W, variable=1)
def joint_embedding(v: Any) -> Any:
    e = mm.embed((v.X, v.Y), weights=v.w)
    return e.norm(), e.norm(centered=True), e.marginal(v.variable).mean(), e((v.X, v.Y))


@entry("compress", "Compression", X=X, n=4, w=W)
def compression(v: Any) -> Any:
    found = mm.statistics.compress(v.X, v.n, G, v.w, rng=0)
    herded = mm.statistics.compress(v.X, v.n, G, v.w, method="herding", reweight=True)
    return found.points, found.weights, found.mmd, herded.points, herded.weights


# --- conditional embeddings and rules -------------------------------------------------------------


@entry("ConditionalEmbedding", rtol=1e-6, X=X, Y=Y, w=W, at=AT)
def conditional(v: Any) -> Any:
    model = mm.ConditionalEmbedding().fit(v.X, v.Y, sample_weight=v.w)
    return model.predict(v.at), model.given(v.at).std(), model.weights(v.at)


@entry("ConditionalEmbedding", X=X, Y=COLUMN, regularization=1e-2, at=AT, y=Y)
def fixed_conditional(v: Any) -> Any:
    model = mm.ConditionalEmbedding(G, G, v.regularization, centered=True).fit(v.X, v.Y)
    return model.predict(v.at), model.score(v.X, v.y), model.loss(v.X, v.y)


@entry("ConditionalEmbedding", X=X, Y=WORDS, at=AT)
def classifier(v: Any) -> Any:
    model = mm.ConditionalEmbedding(G, Delta(), 1e-2).fit(v.X, v.Y)
    return model.given(v.at).norm(), np.asarray(model.given(v.at).mode()).astype(str)


@entry("ConditionalEmbedding", X=X, Y=COLUMN, w=W)
def conditional_stream(v: Any) -> Any:
    model = mm.ConditionalEmbedding(G, G, 1e-2).partial_fit(X, COLUMN)
    return model.partial_fit(v.X, v.Y, v.w).predict(AT)


@entry("ConditionalEmbedding", x=AT)
def asked_conditional(v: Any) -> Any:
    model = made("conditional")
    return (
        model.given(v.x).mean(), model.weights(v.x), model.predict(v.x),
        model.expect(lambda y: y[:, 0], v.x),
    )  # fmt: skip


@entry(
    "sum_rule", "chain_rule", "bayes_rule", "ConditionalOperator",
    prior=X[:5], regularization=1e-2, power=1.0, y=COLUMN[:3], form="b", method="importance",
)  # fmt: skip
def rules(v: Any) -> Any:
    model = mm.ConditionalEmbedding(G, G, 1e-2).fit(X, COLUMN)
    posterior = mm.bayes_rule(model, v.prior, v.method, v.regularization, v.form, v.power)
    return (
        mm.sum_rule(model, v.prior).mean(), mm.chain_rule(model, v.prior, v.form).norm(),
        posterior.predict(v.y), posterior.weights(v.y), posterior.given(v.y).norm(),
    )  # fmt: skip


# --- statistics -----------------------------------------------------------------------------------


@entry("mmd", X=X, Y=X + 0.5, size=0)
def distance(v: Any) -> Any:
    return mm.mmd(v.X, v.Y), mm.mmd(v.X, v.Y, G, "V")


@entry("mmd", X=X, Y=X + 0.5, basis=None, estimator="U", kernel=None)
def distance_options(v: Any) -> Any:
    return mm.mmd(v.X, v.Y, v.kernel, v.estimator, basis=v.basis)


@entry("hsic", X=X, Y=COLUMN)
def dependence(v: Any) -> Any:
    return mm.hsic(v.X, v.Y), mm.hsic(v.X, v.Y, estimator="V")


@entry("hsic", X=X, Y=WORDS)
def dependence_of_labels(v: Any) -> Any:
    return mm.hsic(v.X, v.Y)


@entry("joint_hsic", X=X, Y=COLUMN, Z=X[::-1])
def joint_dependence(v: Any) -> Any:
    return mm.statistics.joint_hsic(v.X, v.Y, v.Z)


@entry("stein_discrepancy", X=X)
def stein(v: Any) -> Any:
    return mm.statistics.stein_discrepancy(v.X, lambda x: -x), mm.statistics.stein_discrepancy(
        v.X, lambda x: -x, G, "V"
    )


@entry("stein_discrepancy", "goodness_of_fit_test", scores=-X)
def scores(v: Any) -> Any:
    fit = mm.goodness_of_fit_test(X, lambda x: v.scores, n_permutations=9, rng=0)
    return mm.statistics.stein_discrepancy(X, lambda x: v.scores), *fit


@entry("conditional_mmd", X1=X, Y1=COLUMN, X2=X + 0.1, Y2=COLUMN + 1, at=AT)
def conditional_distance(v: Any) -> Any:
    return mm.statistics.conditional_mmd(v.X1, v.Y1, v.X2, v.Y2, v.at)


@entry("hscic", X=X, Y=COLUMN, Z=X[::-1], at=AT)
def conditional_dependence(v: Any) -> Any:
    return mm.statistics.hscic(v.X, v.Y, v.Z, v.at)


# --- tests ----------------------------------------------------------------------------------------


@entry("two_sample_test", "TestResult", X=X, Y=X + 0.5, at=AT, n_permutations=19, seed=0, level=0.1)
def two_sample(v: Any) -> Any:
    found = mm.two_sample_test(v.X, v.Y, n_permutations=v.n_permutations, rng=v.seed)
    return *found, found.witness(v.at), found.rejects(v.level)


@entry(
    "two_sample_test",
    X=X, Y=X + 0.5, groups=np.arange(2 * N) // 4, bins=8, length=4, max_memory=1e9,
)  # fmt: skip
def two_sample_options(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": 19, "rng": 0}
    return (
        *mm.two_sample_test(v.X, v.Y, G, Groups(v.groups), **options),
        *mm.two_sample_test(v.X, v.Y, G, Permutation(v.bins, max_memory=v.max_memory), **options),
        *mm.two_sample_test(v.X, v.Y, G, Wild(v.length), **options),
    )


@entry("independence_test", X=X, Y=COLUMN, n_permutations=19, length=4, groups=QUARTERS)
def independence(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    return (
        *mm.independence_test(v.X, v.Y, **options),
        *mm.independence_test(v.X, v.Y, G, Groups(v.groups), **options),
        *mm.independence_test(v.X, v.Y, G, Block(v.length), **options),
    )


@entry("joint_independence_test", X=X, Y=COLUMN, Z=WORDS)
def joint_independence(v: Any) -> Any:
    return (*mm.joint_independence_test(v.X, v.Y, v.Z, n_permutations=19, rng=0),)


@entry("conditional_independence_test", X=X[:, :1], Y=COLUMN, Z=X[:, 1:], n_permutations=9)
def conditional_independence(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    return (
        *mm.conditional_independence_test(
            v.X, v.Y, v.Z, null=ResidualSigns(refit=False), **options
        ),
    )


@entry(
    "ConditionalIndependence",
    data=np.hstack([X, COLUMN]), x=0, y=2, given=[1], n_permutations=9,
)  # fmt: skip
def conditional_table(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "random_state": 0}
    return (*ConditionalIndependence(v.data, **options)(v.x, v.y, given=v.given),)


@entry("conditional_two_sample_test", X1=X, Y1=COLUMN, X2=X + 0.1, Y2=COLUMN + 1, n_permutations=9)
def conditional_two_sample(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    return (*mm.conditional_two_sample_test(v.X1, v.Y1, v.X2, v.Y2, **options),)


@entry(
    "counterfactual_effect", "CounterfactualEffect",
    X=X, Y=COLUMN, X2=X + 0.1, Y2=COLUMN + 1, n_permutations=9, regularization=1e-2,
)  # fmt: skip
def effect(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    found = mm.comparison.counterfactual_effect(
        v.X, v.Y, v.X2, v.Y2, null=ResidualSigns(v.regularization), **options
    )
    return *found, found.mean_effect, found.counterfactual.mean()


@entry("goodness_of_fit_test", X=X, n_permutations=9, length=2)
def goodness_of_fit(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    found = mm.goodness_of_fit_test(v.X, lambda x: -x, null=WeightedBlocks(v.length), **options)
    return (*found,)


@entry(
    "power_analysis", "PowerAnalysis",
    X=X, Y=X + 0.8, power=0.8, level=0.05, sizes=np.array([6, 8]), n_simulations=20,
)  # fmt: skip
def power(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": 9, "kernel": G, "resampling": "bootstrap"}
    asked = {"power": v.power, "level": v.level, "sizes": v.sizes}
    test = mm.two_sample_test
    options |= {"n_simulations": v.n_simulations, "rng": 0}
    found = mm.comparison.power_analysis(test, v.X, v.Y, **asked, **options)
    return found.powers, found.predict(10)


def figures(result: Any, shares: bool = True) -> Any:
    """What a result of a test says beside its p-value."""
    assert len(result.to_frame()) == 1 and result.sentence() and repr(result)
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))["effect"]
    columns = result.columns() if shares else {}
    each = [effect.value for effect in columns.values()]
    # an interval of few rows may be missing
    return *result, told["value"], told["low"], told["high"], each


@entry("TestResult", "EffectSize", "ColumnEffects", rtol=1e-8, X=X, Y=X + 0.5, level=0.9)
def effects(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": 19, "rng": 0}
    found = mm.two_sample_test(v.X, v.Y, **options)
    assert found.rejects(v.level) in (True, False)
    return figures(found), figures(mm.independence_test(v.X, v.Y, **options))


@entry("two_sample_test", "TestResult", rtol=1e-8, X=X, Y=X + 0.5)
def paired_samples(v: Any) -> Any:
    return figures(mm.two_sample_test(v.X, v.Y, null="paired", n_permutations=19, rng=0))


@entry("independence_test", "TestResult", "ColumnEffects", X=X, Y=WORDS)
def effects_of_labels(v: Any) -> Any:
    return figures(mm.independence_test(v.X, v.Y, n_permutations=19, rng=0))


@entry("dependence_matrix", "DependenceMatrix", rtol=1e-8, data=X, n_permutations=9, level=0.05)
def matrix_of_columns(v: Any) -> Any:
    found = mm.comparison.dependence_matrix(v.data, n_permutations=v.n_permutations, rng=0)
    assert repr(found) and json.dumps(found.to_dict(), allow_nan=False) and found.sentence(v.level)
    inside = ~np.eye(len(found.names), dtype=bool)
    return found.effects, found.pvalues[inside], found.adjusted[inside], len(found.pairs(v.level))


# named fields are refused in words
@entry(
    "dependence_matrix", "DependenceMatrix", rtol=1e-8, strict=False, data=TABLE, correction="holm"
)
def matrix_of_table(v: Any) -> Any:
    import pandas as pd

    table = v.data
    if isinstance(table, dict):
        try:
            table = pd.DataFrame(table)
        except (ValueError, TypeError):  # the words of pandas, of what is not a table
            return None
    found = mm.comparison.dependence_matrix(table, correction=v.correction, n_permutations=9, rng=0)
    inside = ~np.eye(len(found.names), dtype=bool)
    return found.effects, found.pvalues[inside], found.adjusted[inside]


@entry("k_sample_test", "KSampleResult", rtol=1e-8, samples=[X, X[:9] + 0.5, X[:8] - 0.3])
def several_samples(v: Any) -> Any:
    found = mm.comparison.k_sample_test(v.samples, n_permutations=19, rng=0)
    return *figures(found, False), found.pairs(rng=0)[["statistic", "effect", "pvalue"]].to_numpy()


@entry("k_sample_test", "KSampleResult", rtol=1e-8, X=X, groups=CLASSES, n_permutations=19)
def grouped_samples(v: Any) -> Any:
    found = mm.comparison.k_sample_test(v.X, v.groups, n_permutations=v.n_permutations, rng=0)
    return *found, found.effect.value, found.pairs("fdr", rng=0)["adjusted"].to_numpy()


@entry("pairwise", "GroupDistances", rtol=1e-8, X=X, groups=CLASSES, n_permutations=9)
def group_distances(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": v.n_permutations, "rng": 0}
    plain = mm.comparison.pairwise(v.X, v.groups, kernel="energy", **options)
    return plain.distances, mm.comparison.pairwise(v.X, v.groups, **options).distances


@entry("pairwise", "GroupDistances", rtol=1e-8, X=X, groups=WORDS, control="sun", kernel="energy")
def group_tests(v: Any) -> Any:
    basis = RandomFourier(20, 0) if v.kernel is None else None
    options: dict[str, Any] = {"n_permutations": 9, "rng": 0}
    found = mm.comparison.pairwise(v.X, v.groups, v.control, v.kernel, basis, **options)
    assert repr(found) and json.dumps(found.to_dict(), allow_nan=False)
    if found.pvalues is None:
        return found.distances
    return found.distances, np.nan_to_num(found.pvalues), np.nan_to_num(found.adjusted)


@entry("power_analysis", strict=False, X=X, Y=X + 0.8, smoothing=0.1)
def smoothed_power(v: Any) -> Any:
    options: dict[str, Any] = {"n_permutations": 9, "kernel": G, "n_simulations": 20, "rng": 0}
    options |= {"resampling": Bootstrap(v.smoothing), "sizes": [6]}
    return mm.comparison.power_analysis(mm.two_sample_test, v.X, v.Y, **options).powers


# --- streams --------------------------------------------------------------------------------------


@entry("streams.RunningEmbedding", "streams.feed", first=X[:8], second=X[8:], w=W[8:], every=2)
def running_embedding(v: Any) -> Any:
    found = RunningEmbedding(G).partial_fit(v.first).partial_fit(v.second, sample_weight=v.w)
    fed = feed(RunningEmbedding(G), [v.first, v.second], every=v.every, progress=False)
    return found.embedding_(AT), found.total_, fed.embedding_(AT)


@entry("comparison.RunningTwoSampleTest", X=X, Y=X + 0.5, X2=X[:8], Y2=X[:8] + 1)
def running_two_sample(v: Any) -> Any:
    found = RunningTwoSampleTest(G).partial_fit(v.X, v.Y).partial_fit(v.X2, v.Y2)
    return *found.result(), found.mmd()


@entry("comparison.RunningIndependenceTest", X=X, Y=COLUMN, X2=X[:8], Y2=COLUMN[:8])
def running_independence(v: Any) -> Any:
    found = RunningIndependenceTest().partial_fit(v.X, v.Y).partial_fit(v.X2, v.Y2)
    return *found.result(), found.hsic()


@entry("SequentialTwoSampleTest", X=X, Y=X + 0.5, X2=X[:8], Y2=X[:8] + 1, horizon=20)
def sequential_two_sample(v: Any) -> Any:
    test = SequentialTwoSampleTest(G, warm_up=10, horizon=v.horizon)
    return test.update(v.X, v.Y).log_evalue, test.update(v.X2, v.Y2).pvalue


@entry("SequentialIndependenceTest", X=X, Y=COLUMN, X2=X[:8], Y2=COLUMN[:8])
def sequential_independence(v: Any) -> Any:
    test = SequentialIndependenceTest(warm_up=8)
    return test.update(v.X, v.Y).log_evalue, test.update(v.X2, v.Y2).pvalue


@entry("SequentialConditionalTest", X=np.tile(X, (2, 1)), Y=np.tile(COLUMN, (2, 1)))
def sequential_conditional(v: Any) -> Any:
    return SequentialConditionalTest(warm_up=20).update(v.X, v.Y, np.tile(AT[:1], (32, 1))).pvalue


@entry("DriftMonitor", reference=np.tile(X, (4, 1)), X=X[:8])
def drift_monitor(v: Any) -> Any:
    return DriftMonitor(v.reference, expected_run_length=20).update(v.X).score


# --- learning -------------------------------------------------------------------------------------


@entry("KernelPCA", rtol=1e-8, X=X, w=W, at=AT, n_components=2)
def pca(v: Any) -> Any:
    model = mm.learning.KernelPCA(v.n_components, Gaussian()).fit(v.X, sample_weight=v.w)
    return abs(model.transform(v.at)), model.eigenvalues_, model.score(v.X)


@entry("KernelPCA", scores=np.full((3, 2), 0.1))
def pre_images(v: Any) -> Any:
    return made("pca").inverse_transform(v.scores)


@entry("KernelCCA", rtol=1e-7, X=X, Y=Y, w=W, n_components=1, regularization=1e-2)
def cca(v: Any) -> Any:
    model = mm.learning.KernelCCA(v.n_components, G, G, v.regularization)
    model.fit(v.X, v.Y, sample_weight=v.w)
    return model.correlations_, [abs(part) for part in model.transform(v.X, v.Y)]


@entry("KernelDimensionReduction", rtol=1e-4, X=X, y=Y, n_components=1, regularization=1e-2)
def dimension_reduction(v: Any) -> Any:
    model = mm.learning.KernelDimensionReduction(
        v.n_components, regularization=v.regularization, n_init=1, max_iter=5, random_state=0
    ).fit(v.X, v.y)
    return abs(model.transform(v.X))


@entry("HSICSelector", X=X, y=Y, n=1, step=0.5)
def selector(v: Any) -> Any:
    model = mm.HSICSelector(v.n, step=v.step, random_state=0).fit(v.X, v.y)
    model.transform(v.X)
    return model.get_support()


@entry("HSICSelector", X=X, y=WORDS, n=1)
def lasso_selector(v: Any) -> Any:
    found = mm.HSICSelector(v.n, method="lasso", random_state=0).fit(v.X, v.y)
    forward = mm.HSICSelector(v.n, method="forward", random_state=0).fit(v.X, v.y)
    return found.get_support(), forward.get_support()


@entry("HSICClustering", rtol=1e-8, X=ROWS, w=W, at=ROWS[:3], n_clusters=3, n_init=2, max_iter=10)
def clustering(v: Any) -> Any:
    model = mm.HSICClustering(
        v.n_clusters, Gaussian(), n_init=v.n_init, max_iter=v.max_iter, random_state=0
    ).fit(v.X, sample_weight=v.w)
    return model.labels_, model.predict(v.at), model.score(v.X)


@entry("ColoredUnfolding", rtol=1e-3, X=X, y=Y, n_components=1, n_neighbors=5, stiffness=1.0)
def unfolding(v: Any) -> Any:
    model = mm.ColoredUnfolding(
        v.n_components, v.n_neighbors, G, stiffness=v.stiffness, tol=1e-6, random_state=0
    ).fit(v.X, v.y)
    return abs(model.transform(AT))


BAG_LIST, BAG_KINDS = BAGS[:10], (SPREAD[:10] > 1).astype(int)
MOST = 100_000  # steps of a solver whose loop no alarm can stop


@entry("SupportMeasureClassifier", rtol=1e-6, X=BAG_LIST, y=BAG_KINDS, C=1.0, at=BAGS[10:12])
def support_classifier(v: Any) -> Any:
    model = mm.SupportMeasureClassifier(G, bandwidth2=0.5, C=v.C, tol=1e-8, max_iter=MOST).fit(
        v.X, v.y
    )
    return model.decision_function(v.at), model.predict(v.at)


@entry("SupportMeasureRegressor", rtol=1e-6, X=BAG_LIST, y=SPREAD[:10], epsilon=0.1, w=W[:10])
def support_regressor(v: Any) -> Any:
    model = mm.SupportMeasureRegressor(
        G, bandwidth2=0.5, epsilon=v.epsilon, tol=1e-8, max_iter=MOST
    )
    return model.fit(v.X, v.y, sample_weight=v.w).predict(BAGS[10:12])


@entry("DistributionRidge", rtol=1e-8, X=BAG_LIST, y=SPREAD[:10], w=W[:10], regularization=1e-2)
def distribution_ridge(v: Any) -> Any:
    model = mm.learning.DistributionRidge(G, regularization=v.regularization)
    return model.fit(v.X, v.y, sample_weight=v.w).predict(BAGS[10:12])


@entry("DistributionRidge", "SupportMeasureClassifier", rtol=1e-6, X=X, y=Y, at=AT)
def rows_as_bags(v: Any) -> Any:
    model = mm.learning.DistributionRidge(G, regularization=1e-2).fit(v.X, v.y)
    classes = mm.SupportMeasureClassifier(G, tol=1e-8).fit(v.X, CLASSES)
    return model.predict(v.at), classes.decision_function(v.at)


@entry(
    "EmbeddingDensity", rtol=1e-5,
    X=X, w=W, at=AT, n_candidates=8, bandwidth=1.0, epsilon=0.1, n_samples=2,
)  # fmt: skip
def density(v: Any) -> Any:
    model = mm.EmbeddingDensity(
        n_candidates=v.n_candidates, bandwidth=v.bandwidth, epsilon=v.epsilon, random_state=0
    ).fit(v.X, sample_weight=v.w)
    # a density may be zero
    found = np.exp(model.score_samples(v.at))
    return found, model.sample(v.n_samples, random_state=0)[0].shape


# --- dynamics -------------------------------------------------------------------------------------

PATH, OBSERVED, NEW, CONTROLS = STATES[:24], SEEN[:24], SEEN[24:28], np.sin(ANGLE[:28])[:, None]


@entry(
    "KernelBayesFilter", "Track", rtol=1e-8,
    states=PATH, seen=OBSERVED, controls=CONTROLS[:24], new=NEW, regularization=1e-2, power=1.0,
)  # fmt: skip
def bayes_filter(v: Any) -> Any:
    model = mm.KernelBayesFilter(
        Gaussian(), Gaussian(), regularization=v.regularization, posterior_regularization=1e-2,
        power=v.power, validation=None, progress=False,
    ).fit(v.states, v.seen, v.controls)  # fmt: skip
    track = model.filter(v.new, CONTROLS[24:28])
    # nothing was observed in a row of NaN, and so nothing supports it
    return track.mean, track.std, np.nan_to_num(track.support)


@entry(
    "AdditiveFilter", "Track", rtol=1e-4,  # smoothing from sums magnifies rounding
    states=PATH, seen=OBSERVED, new=NEW, regularization=1e-2, steps=2, more=SEEN[28:52],
)  # fmt: skip
def additive_filter(v: Any) -> Any:
    model = mm.AdditiveFilter(
        Gaussian(0.7), Gaussian(0.7), regularization=v.regularization, validation=None
    ).fit(v.states, v.seen)
    model.partial_fit(STATES[28:52], v.more)
    return model.filter(v.new).mean, model.smooth(v.new).mean, model.predict(v.new, v.steps).mean


@entry("SpectralFilter", rtol=1e-6, seen=OBSERVED, new=NEW, window=2, n_states=3, steps=2)
def spectral_filter(v: Any) -> Any:
    model = mm.SpectralFilter(
        Gaussian(0.7), v.n_states, v.window, regularization=1e-2, validation=None
    ).fit(v.seen)
    return model.filter(v.new).mean, model.predict(v.new, v.steps).mean, model.score(v.new)


@entry(
    "TransferOperator", rtol=1e-4, seen=OBSERVED, new=NEW, rank=3, lag=2, steps=2, dt=0.5, level=0.9
)
def transfer_operator(v: Any) -> Any:
    options: dict[str, Any] = {"regularization": 1e-2, "reversible": True}
    model = mm.dynamics.TransferOperator(Gaussian(0.7), rank=v.rank, lag=v.lag, **options).fit(
        v.seen
    )
    return (
        model.eigenvalues_, model.timescales(v.dt)[1:], model.bounds(v.level), model.score(v.new),
        model.predict(v.new, v.steps), model.forecast(v.new, v.steps),
        abs(model.eigenfunctions(v.new)),
    )  # fmt: skip


@entry("Stream", "Track", x=SEEN[50], new=SEEN[50:54], steps=2, level=0.8, q=0.5, prior=PATH[:4])
def live(v: Any) -> Any:
    model = made("additive_filter")
    stream = model.start(mm.embed(v.prior, Gaussian(0.7)))
    belief = stream.step(v.x)
    track = model.filter(v.new)
    ahead = stream.predict(v.steps).mean
    return belief.mean(), ahead, track.interval(v.level), track.quantile(v.q)


@entry("KernelBayesFilter", "AdditiveFilter", paths=[PATH[:12], PATH[12:]], new=[NEW, NEW + 0.1])
def several_paths(v: Any) -> Any:
    model = mm.AdditiveFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, validation=None)
    model.fit(v.paths, [OBSERVED[:12], OBSERVED[12:]])
    return np.nan_to_num(model.filter(v.new).mean)  # NaN stands behind the shorter one's end


# --- graphical models -----------------------------------------------------------------------------


@entry("KernelGraphicalModel", rtol=1e-8, data=TABLE, w=W, at=TABLE, regularization=1e-2)
def graphical_model(v: Any) -> Any:
    model = mm.KernelGraphicalModel(CHAIN, Gaussian(), v.regularization)
    model.fit(v.data, sample_weight=v.w)
    filled = model.impute(v.at)
    return model.log_density(v.at), [filled[name] for name in "abc"]


@entry("KernelGraphicalModel", rtol=1e-8, evidence=0.5, several=X[:3, 0], n=3, node="c")
def asked_graphical(v: Any) -> Any:
    model = made("graphical_model")
    drawn = model.sample(v.n, rng=0)
    return (
        model.marginal(v.node, {"a": v.evidence}).mean(),
        model.most_probable("b", {"a": v.several}),
        model.joint("a", v.node, {"b": v.evidence}).norm(), [drawn[name] for name in "abc"],
        model.expect(lambda x: x[:, 0], "c", {"a": v.several}),
    )  # fmt: skip


@entry("KernelGraphicalModel", graph=None, evidence=None)
def graphs(v: Any) -> Any:
    model = mm.KernelGraphicalModel(v.graph, Gaussian(), 1e-2).fit(TABLE)
    return model.marginal("c", v.evidence).mean()


@entry("chow_liu_tree", data=TABLE, w=W)
def tree(v: Any) -> Any:
    found = mm.graphical.chow_liu_tree(v.data, sample_weight=v.w)
    return sorted(found.edges[edge]["weight"] for edge in found.edges)


@entry(
    "BeliefPropagation", "Beliefs", rtol=1e-8,
    data=TABLE, evidence=0.5, damping=0.1, max_iterations=5, level=0.8, x=X[:3, :1],
)  # fmt: skip
def propagation(v: Any) -> Any:
    graph = nx.cycle_graph(["a", "b", "c"])
    model = mm.BeliefPropagation(graph, Gaussian(), 1e-2, damping=v.damping, random_state=0)
    found = model.fit(v.data).run({"a": v.evidence}, v.max_iterations)
    return found.mean["c"], found.std["c"], found.interval(v.level)["c"], found.density("c", v.x)


FIELDS = np.cumsum(np.sin(np.arange(12 * 4.0)).reshape(12, 2, 2), axis=1)
PARTLY = np.array([[0.5, np.nan], [np.nan, np.nan]])


# tables of cells are arrays: lists and frames are refused in words
@entry("BeliefPropagation", "Beliefs", rtol=1e-8, strict=False, fields=FIELDS, evidence=PARTLY)
def grid(v: Any) -> Any:
    model = mm.BeliefPropagation(nx.grid_2d_graph(2, 2), G, 1e-2, random_state=0).fit(v.fields)
    return model.run(v.evidence).array()


# --- inference from a simulator -------------------------------------------------------------------


@entry("KernelABC", "Posterior", y=np.array([0.5]), level=0.8, q=0.3, n=3, regularization=1e-2)
def inference(v: Any) -> Any:
    found = made("inference").posterior(v.y, regularization=v.regularization)
    return (
        found.mean(),
        found.std(),
        found.interval(v.level),
        found.quantile(v.q),
        found.sample(v.n, rng=0),
    )


@entry("KernelABC", "Calibration", "PredictiveCheck", y=np.array([0.5]), n=10, level=0.8)
def checking(v: Any) -> Any:
    model = made("inference")
    return model.check(v.y, v.n).pvalues, model.calibrate(v.n).coverage(v.level)


@entry("KernelABC", n=20, seed=0, outputs=np.linspace(-1, 1, 20)[:, None], prior=X)
def simulated(v: Any) -> Any:
    options: dict[str, Any] = {"regularization": 1e-2, "progress": False}
    priors = {"place": stats.norm()}
    model = mm.KernelABC(noisy, priors, random_state=v.seed, **options).fit(v.n)
    known = mm.KernelABC(lambda theta, rng: v.outputs, priors, random_state=0, **options).fit(20)
    drawn = mm.KernelABC(noisy, v.prior, random_state=0, **options).fit(10)
    return model.theta_, known.posterior([0.1]).mean(), drawn.theta_


@entry("bayes_update", prior=X, X=X, Y=COLUMN, y=COLUMN[0])
def update(v: Any) -> Any:
    found = mm.likelihood_free.bayes_update(v.prior, (v.X, v.Y), v.y)
    return found.mean(), found.std()


# --- adaptation -----------------------------------------------------------------------------------


@entry("KernelMeanMatching", rtol=1e-6, X=X, X_test=X[:8] + 0.4, at=AT, ridge=1e-2, bound=10.0)
def mean_matching(v: Any) -> Any:
    model = mm.KernelMeanMatching(Gaussian(), ridge=v.ridge, bound=v.bound, random_state=0)
    model.fit(v.X, X_test=v.X_test)
    return model.weights_, model.weights(v.at), model.ratio_score(v.X, v.X_test)


@entry("TargetShift", rtol=1e-6, X=ROWS, y=CLASSES, X_test=ROWS[:10], ridge=1e-3, n_bootstrap=3)
def target_shift(v: Any) -> Any:
    model = mm.TargetShift(
        Gaussian(2.0), ridge=v.ridge, n_bootstrap=v.n_bootstrap, random_state=0
    ).fit(v.X, v.y, X_test=v.X_test)
    return model.weights_, getattr(model, "proportions_", None)  # of classes


@entry("TargetShift", probabilities=np.full((2, 3), 1 / 3), y=KINDS[:4], level=0.8)
def asked_shift(v: Any) -> Any:
    model = made("target_shift")
    return model.adjust(v.probabilities), model.weights(v.y), model.interval(v.level)


@entry("LocationScaleShift", rtol=1e-4, X=ROWS, y=CLASSES, X_test=1.2 * ROWS + 0.5, max_iter=5)
def location_scale(v: Any) -> Any:
    model = mm.LocationScaleShift(
        Gaussian(2.0), target_shift=False, regularization=1e-2, n_init=1, max_iter=v.max_iter,
        random_state=0,
    ).fit(v.X, v.y, X_test=v.X_test)  # fmt: skip
    return model.transform(v.X, v.y)


@entry(
    "InvariantComponents", rtol=1e-6,
    X=ROWS, y=CLASSES, domains=np.arange(N) // 6, n_components=2, trade_off=1.0,
)  # fmt: skip
def invariant(v: Any) -> Any:
    model = mm.InvariantComponents(
        v.n_components, Gaussian(2.0), trade_off=v.trade_off, regularization=1e-2, random_state=0
    ).fit(v.X, v.y, domains=v.domains)
    return abs(model.transform(v.X))


@entry("distributional_variance", samples=[X[:8], X[8:] + 1], rows=X, domains=np.arange(N) % 4)
def variance(v: Any) -> Any:
    return (
        mm.adaptation.distributional_variance(v.samples, kernel=G),
        mm.adaptation.distributional_variance(v.rows, v.domains, kernel=G),
    )


@entry("Reweighted", rtol=1e-6, X=X, X_test=X + 0.4, w=W)
def reweighted(v: Any) -> Any:
    # targets and new rows are judged by the estimator inside, in its own words
    weights = mm.KernelMeanMatching(G, ridge=1e-2, bound=10.0, random_state=0)
    model = mm.adaptation.Reweighted(Ridge(), weights)
    model.fit(v.X, Y, X_test=v.X_test, sample_weight=v.w)
    return model.predict(AT)


@entry("Reweighted", rtol=1e-6, X=ROWS, X_test=ROWS + 0.4)
def reweighted_classes(v: Any) -> Any:
    weights = mm.KernelMeanMatching(G, ridge=1e-2, bound=10.0, random_state=0)
    model = mm.adaptation.Reweighted(LogisticRegression(), weights).fit(
        v.X, CLASSES, X_test=v.X_test
    )
    return model.predict_proba(ROWS[:4])


# --- causal functions -----------------------------------------------------------------------------

CAUSE, AFTER = X[:, 1], Y + X[:, 1]


@entry("DoseResponse", rtol=1e-5, t=CAUSE, y=AFTER, x=X[:, :1], at=AT[:, 1], regularization=1e-2)
def dose_response(v: Any) -> Any:
    model = mm.causal.DoseResponse(v.regularization, debiased=False, random_state=0)
    return model.fit(v.t, v.y, v.x).effect(v.at).mean


@entry("InstrumentalRegression", rtol=1e-4, t=CAUSE, y=AFTER, z=X[:, 1] + 0.3 * X[:, 0])
def instrumental(v: Any) -> Any:
    model = mm.causal.InstrumentalRegression(1e-2, random_state=0)
    return model.fit(v.t, v.y, v.z).predict(AT[:, 1])


@entry("ProxyEffect", rtol=1e-4, y=AFTER, z=X[:, 1] + 0.3 * X[:, 0], w=X[:, 0])
def proxies(v: Any) -> Any:
    model = mm.causal.ProxyEffect(1e-2, random_state=0)
    return model.fit(CAUSE, v.y, v.z, v.w).effect(AT[:, 1]).mean


@entry("Mediation", rtol=1e-4, y=AFTER, m=X[:, 0], reference=0.1)
def mediation(v: Any) -> Any:
    model = mm.causal.Mediation(1e-2, random_state=0)
    return model.fit(CAUSE, v.y, v.m).direct(AT[:, 1], v.reference).mean


@entry(
    "shift_report", rtol=1e-8, without=("truth values",),  # which it reads as categories
    train=X, test=X + 1, y=Y, y_test=Y + 1, level=0.05, max_samples=9,
)  # fmt: skip
def report(v: Any) -> Any:
    found = mm.report.shift_report(
        v.train, v.test, v.y, v.y_test, level=v.level, max_samples=v.max_samples, rng=0,
        progress=False,
    )  # fmt: skip
    return found.effect, found.overall.pvalue


# --- settings that several classes share ----------------------------------------------------------


@entry("HSICSelector", "HSICClustering", random_state=None, n=1)
def seeds(v: Any) -> Any:
    return (
        mm.HSICSelector(v.n, random_state=v.random_state).fit(X, Y).get_support(),
        mm.HSICClustering(2, G, n_init=1, random_state=v.random_state).fit(X).labels_,
        mm.InvariantComponents(
            1, G, trade_off=1.0, regularization=1e-2, random_state=v.random_state
        ).fit(ROWS, CLASSES, domains=np.arange(N) // 6).n_features_in_,
    )  # fmt: skip


@entry("KernelBayesFilter", "AdditiveFilter", validation=2, states=PATH, seen=OBSERVED)
def folds(v: Any) -> Any:
    model = mm.AdditiveFilter(
        Gaussian(0.7), Gaussian(0.7), validation=v.validation, progress=False,
        grid={"regularization": [1e-3, 1e-1]},
    ).fit(v.states, v.seen)  # fmt: skip
    return model.filter(NEW).mean


@entry("Embedding", "ConditionalEmbedding", ax=None, level=0.8)
def pictures(v: Any) -> Any:
    import matplotlib.pyplot as plt

    try:
        mm.embed(X[:, :1], G).plot(ax=v.ax)
        mm.ConditionalEmbedding(G, G, 1e-2).fit(X[:, :1], Y).plot(ax=v.ax, level=v.level)
    finally:
        plt.close("all")


# --- statistical tests that have no entry of their own --------------------------------------------


def plain_test(name: str) -> None:
    """An entry for a test by what it declares."""
    test = comparison_tests.declared()[name]

    def call(v: Any) -> Any:
        given = {each: getattr(v, each) for each in comparison_tests.sample_names(test)}
        return (*comparison_tests.solve(test, given),)

    call.__name__ = name
    entry(name, **comparison_tests.samples(test, N))(call)


for _name in set(comparison_tests.declared()) & set(public_names()):
    if not any(_name in each.names for each in ENTRIES.values()):
        plain_test(_name)


# --- files ----------------------------------------------------------------------------------------


@entry("save", X=X, w=W)
def saved(v: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "e.npz"
        mm.save(mm.embed(v.X, G, v.w), path)
        return mm.load(path).norm()


@entry("save", "load", obj=None, path=None)
def no_files(v: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        if v.obj is not None:
            mm.save(v.obj, Path(folder) / "e.npz")
        if v.path is not None:
            mm.load(v.path)


@entry("load", content=np.arange(64, dtype=np.uint8), max_bytes=1000)
def broken_files(v: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "e.npz"
        path.write_bytes(v.content.tobytes() if hasattr(v.content, "tobytes") else b"")
        try:
            mm.load(path, max_bytes=v.max_bytes)
        except (ValueError, TypeError) as error:  # never an answer: refused as no file of ours
            if "content" in v.hostile:
                return len(str(error)) > 0
            raise
