"""A question to every public name, whose answer depends on neither units, nor origin, nor order.

Kernels are chosen on the data, settings without a unit. A relation that a question has not is
declared with the reason; a public name without a question stands in `UNASKED` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

import meanmap as mm
from fitted_objects import ANGLE, BAGS, GROUPS, KINDS, LABELS, SEEN, SPREAD, STATES
from fitted_objects import X as ALL_X
from fitted_objects import Y as ALL_Y
from fuzz.relations import (
    MIXED,
    MOVED,
    RELATIONS,
    SCALED,
    TARGETS_MOVED,
    TARGETS_SCALED,
    Data,
    on_grid,
    tested,
    together,
)
from kernels.cases import KERNELS
from meanmap import comparison as c
from meanmap import kernels as k
from meanmap import learning, report
from meanmap import statistics as s
from meanmap.comparison import nulls
from meanmap.kernels import Delta, Gaussian
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import Explicit, Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding, feed

N = 24
ROWS, OTHER, TARGETS = on_grid(ALL_X[:N]), on_grid(ALL_X[:N] * 0.9 + 0.4), on_grid(ALL_Y[:N])
FAR, CLASSES, WORDS = on_grid(GROUPS[:N]), KINDS[:N], LABELS[:N]
PATH, SIGHTS, NEW = on_grid(STATES[:N]), on_grid(SEEN[:N]), on_grid(SEEN[N : N + 6])
TURNS = np.sin(ANGLE[:N])[:, None]
BAG_LIST, BAG_SPREADS = [on_grid(bag) for bag in BAGS[:10]], SPREAD[:10]
DRAWS: dict[str, Any] = {"n_permutations": 19, "rng": 0}
FIXED = nulls.ResidualSigns(1e-2)  # of functions without noise leave-one-out chooses next to none

TIME = {MIXED: "the order of rows is time"}
CHUNKS = {MIXED: "settings are chosen on the first batch"}
SEEDED = {MIXED: "starts and subsamples are drawn row by row"}
NAMES = {
    TARGETS_SCALED: "the targets are classes, which have no units",
    TARGETS_MOVED: "the targets are classes, which have no origin",
}


@dataclass(frozen=True)
class Question:
    """Something to ask about data, the public names it stands for, and what it does not promise."""

    names: tuple[str, ...]
    ask: Callable[[Data], Any]
    rtol: float = 1e-6
    given: tuple[Any, Any, Any] = (ROWS, OTHER, TARGETS)
    without: dict[str, str] = field(default_factory=dict)  # relations, and why they do not apply
    slow: bool = False

    def both_answers(self, relation: str, seed: int) -> tuple[Any, Any]:
        """The answer, and that of the changed data."""
        change = RELATIONS[relation][1]
        plain, changed = (Data(self.given, change, seed, applied) for applied in (False, True))
        return self.ask(plain), self.ask(changed)

    def holds(self, relation: str) -> bool:
        """Whether a relation is promised."""
        return RELATIONS[relation][0] not in self.without


QUESTIONS: dict[str, Question] = {}


def question(*names: str, **options: Any) -> Callable[..., Any]:
    """Registers a question."""

    def register(ask: Callable[[Data], Any]) -> Callable[[Data], Any]:
        QUESTIONS[ask.__name__] = Question(names, ask, **options)
        return ask

    return register


#: Public names that no question is asked about.
UNASKED = {
    "ApproximationWarning": "a warning",
    "DataWarning": "a warning",
    "SettingWarning": "a warning",
    "kernels": "a module",
    "spaces": "a module",
    "save": "keeps every bit, see test_persistence",
    "load": "keeps every bit, see test_persistence",
    "kernels.Kernel": "the interface of kernels",
    "kernels.Radial": "what radial kernels are made from",
    "kernels.Rough": "what radial kernels with a kink are made from",
    "spaces.Basis": "the interface of bases",
    "spaces.Coordinates": "the interface of coordinates",
}


# --- kernels and spaces ---------------------------------------------------------------------------

#: Kernels with the scale chosen on the data; others compare numbers in the unit they have.
CHOSEN = {
    "Gaussian": k.Gaussian(), "Laplace": k.Laplace(), "Matern": k.Matern(2.5),
    "RationalQuadratic": k.RationalQuadratic(),
}  # fmt: skip


@question("kernels.Gaussian", "kernels.Laplace", "kernels.Matern", "kernels.RationalQuadratic")
def chosen_kernels(d: Data) -> Any:
    return [kernel.resolve(kernel.check(d.X))(d.Z) for kernel in CHOSEN.values()]


@question("kernels.default_kernel", "kernels.Columns", "kernels.Delta")
def default_kernels(d: Data) -> Any:
    table = pd.DataFrame({"a": d.X[:, 0], "b": d.mix(WORDS)})
    mixed = as_kernel(k.Columns(), table)
    return (
        k.default_kernel(d.X).resolve(d.X)(d.Z),
        [d.by_row(row) for row in d.by_row(mixed.resolve(mixed.check(table))(table))],
    )


@question("kernels.Energy", without={SCALED: "the distances of an energy kernel have a unit"})
def energy_kernel(d: Data) -> Any:
    return mm.mmd(d.X, d.Z, k.Energy(), "V")


def kernel_question(label: str, kernel: Any, points: Any, *names: str) -> None:
    """Of a kernel on points that are what they are: the Gram matrix follows the rows."""

    def ask(d: Data) -> Any:
        rows = tuple(map(d.mix, points)) if isinstance(points, tuple) else d.mix(points)
        fitted = kernel.resolve(kernel.check(rows))
        return [d.by_row(row) for row in d.by_row(fitted(rows))]

    without = dict.fromkeys(
        (SCALED, MOVED, TARGETS_SCALED, TARGETS_MOVED), "its parameters, or points, have no units"
    )
    names = (f"kernels.{type(kernel).__name__}", *names)
    QUESTIONS[f"kernel {label}"] = Question(names, ask, 1e-10, without=without)


for _label, _case in KERNELS.items():
    kernel_question(_label, _case.kernel, _case.points(10))
NORMALS = [k.Normal(x, np.eye(2)) for x in ROWS[:5]]
WEIGHTED = [k.Weighted(bag, np.ones(8)) for bag in BAG_LIST]
kernel_question("normals", k.Expected(Gaussian(1.0)), NORMALS, "kernels.Normal")
kernel_question("weighted", k.Expected(Gaussian(1.0)), WEIGHTED, "kernels.Weighted")


@question("spaces.Space", "spaces.PivotedCholesky")
def pivots(d: Data) -> Any:
    found = Space(Gaussian(), PivotedCholesky(1e-8)).fit(d.X)
    psi = found.transform(d.Z)
    return psi @ psi.T, found.support(d.Z)


@question("spaces.Nystroem", "spaces.RandomFourier", "spaces.Explicit", rtol=1e-5)
def other_bases(d: Data) -> Any:
    bases: list[Any] = [Nystroem(8, how, random_state=0) for how in ("uniform", "leverage")]
    bases += [Nystroem(8, "kmeans", random_state=0), Nystroem(8, "rpcholesky", random_state=0)]
    bases += [Nystroem(landmarks=d.row_units(ROWS[:6])), RandomFourier(8, random_state=0)]
    psi = [Space(Gaussian(), basis).fit(d.X).transform(d.Z) for basis in bases]
    exact = Space(Delta(), Explicit()).fit(d.mix(WORDS)).transform(WORDS[:4])
    return (
        d.drawn(*(rows @ rows.T for rows in psi[:4])),
        [p @ p.T for p in psi[4:]],
        exact @ exact.T,
    )


# --- embeddings and conditionals ------------------------------------------------------------------


@question("embed", "Embedding")
def embedded(d: Data) -> Any:
    e, other = mm.embed(d.X), mm.embed(d.X, Gaussian())
    return (
        e.norm(), e(d.Z), e.support(d.Z), other.distance(mm.embed(d.Z, kernel=other.kernel)),
        d.points(e.mean()), d.lengths(e.std()), d.points(e.quantile(0.5)),
        d.points(e.interval(0.8)), d.lengths(e.density(d.Z), -2), e.error_bound(),
        d.by_row(e.project().weights),
    )  # fmt: skip


@question("Embedding", rtol=1e-4)
def searched_in_embeddings(d: Data) -> Any:
    e = mm.embed(d.X, Gaussian())
    drawn = d.drawn(d.points(e.herd(4)), d.points(e.sample(4, rng=0)))
    return d.points(e.mode()), d.points(e.preimage()), drawn


@question("JointEmbedding", "Embedding", "kernels.TensorProduct")
def embedded_pairs(d: Data) -> Any:
    e = mm.embed((d.X, d.Y), Gaussian() @ Gaussian())
    return e.norm(), e.norm(centered=True), d.target_points(e.marginal(1).mean())


@question("GridEmbedding", "chain_rule")
def chains(d: Data) -> Any:
    model = mm.ConditionalEmbedding("median", "median", 1e-2).fit(d.X, d.Y)
    return [mm.chain_rule(model, d.row_units(ROWS[:6]), form).norm() for form in ("a", "b")]


# a number is known to 2^-22 only, that far from the origin
@question("ConditionalEmbedding", "sum_rule", rtol=1e-5)
def conditional(d: Data) -> Any:
    model = mm.ConditionalEmbedding("median", "median", 1e-2).fit(d.X, d.Y)
    at = model.given(d.Z)
    return (
        d.target_points(model.predict(d.Z)), model.score(d.X, d.y), at.norm(),
        d.drawn(d.target_lengths(at.std())),  # of residuals in folds
        d.target_points(mm.sum_rule(model, d.Z).mean()),
    )  # fmt: skip


@question("ConditionalEmbedding", "Predictive", "Relevance", rtol=1e-4)
def learned_conditional(d: Data) -> Any:
    model = mm.ConditionalEmbedding().fit(d.X, d.Y)
    at = model.given(d.Z)
    return (
        d.target_points(model.predict(d.Z)), model.score(d.X, d.y), model.relevance().values,
        d.drawn(d.target_lengths(at.std()), d.target_points(at.interval(0.8))),
    )  # fmt: skip


@question("CalibratedIntervals", rtol=1e-4, without=SEEDED)
def calibrated(d: Data) -> Any:
    model = mm.ConditionalEmbedding().fit(d.X, d.Y)
    return d.target_points(model.calibrate(d.Z, d.target_units(TARGETS)).interval(d.Z, 0.8))


@question("ConditionalEmbedding", rtol=1e-4, given=(ROWS, OTHER, CLASSES), without=NAMES)
def classified(d: Data) -> Any:
    model = mm.ConditionalEmbedding(None, Delta()).fit(d.X, d.y)
    return model.predict_proba(d.Z)


@question("bayes_rule", "ConditionalOperator")
def posterior(d: Data) -> Any:
    model = mm.ConditionalEmbedding("median", "median", 1e-2).fit(d.X, d.Y)
    at = d.target_units(TARGETS[:4, None])
    found = []
    for method in ("nonnegative", "importance", "squared", "reweighted"):
        rule = mm.bayes_rule(model, d.row_units(ROWS[:8]), method, 1e-2)
        found += [d.points(rule.given(at).mean()), rule.given(at).norm()]
    return found


# --- statistics -----------------------------------------------------------------------------------


@question("mmd")
def distances(d: Data) -> Any:
    plain = [mm.mmd(d.X, d.Z), mm.mmd(d.X, d.Z, estimator="V"), mm.mmd(d.X, d.Z, "median")]
    return plain, d.drawn(*(mm.mmd(d.X, d.Z, estimator=how) for how in ("linear", "block")))


@question("hsic")
def dependences(d: Data) -> Any:
    return [mm.hsic(d.X, d.Y, estimator=how) for how in ("U", "V", "normalized")]


@question("joint_hsic")
def joint_dependence(d: Data) -> Any:
    return s.joint_hsic(d.X, d.Y, d.mix(WORDS))


@question("conditional_mmd", "hscic", rtol=1e-5)
def conditional_statistics(d: Data) -> Any:
    Y2, at = d.target_units(TARGETS[::-1, None]), d.Z[:4]
    return s.conditional_mmd(d.X, d.Y, d.Z, Y2, at), s.hscic(d.Y, d.mix(FAR), d.X, at)


def score(d: Data) -> Callable[[Any], Any]:
    """That of a standard normal law of the grid."""
    return lambda x: -d.lengths(d.points(x))


@question("stein_discrepancy")
def stein(d: Data) -> Any:
    return d.lengths(s.stein_discrepancy(d.X, score(d)), -2)


@question("compress", "Compression", rtol=1e-5, without=SEEDED)
def compressed(d: Data) -> Any:
    herded = s.compress(d.X, 6, Gaussian(), method="herding")
    thinned = s.compress(d.X, 6, Gaussian(), rng=0)
    return d.points(herded.points), herded.weights, herded.mmd, d.points(thinned.points)


# --- tests ----------------------------------------------------------------------------------------


@question("two_sample_test", "TestResult", "EffectSize", "ColumnEffects")
def two_sample(d: Data) -> Any:
    found, plain = (mm.two_sample_test(d.X, d.Z, how, **DRAWS) for how in (None, "median"))
    return d.drawn(*found, plain.pvalue), plain.statistic, told(found), plain.witness(d.Z)


@question("independence_test", "TestResult", "EffectSize", "ColumnEffects")
def independence(d: Data) -> Any:
    found, plain = (mm.independence_test(d.X, d.Y, how, **DRAWS) for how in (None, "median"))
    return d.drawn(*found, plain.pvalue), plain.statistic, told(found)


@question("two_sample_test", "nulls.PairedRows", "EffectSize")
def pairs_of_samples(d: Data) -> Any:
    options: dict[str, Any] = {"null": "paired", **DRAWS}
    found, plain = (mm.two_sample_test(d.X, d.mix(d.Z), how, **options) for how in (None, "median"))
    return d.drawn(*found, plain.pvalue), plain.statistic, told(found)


@question("joint_independence_test", "EffectSize", "ColumnEffects")
def joint(d: Data) -> Any:
    found = mm.joint_independence_test(d.X[:, :1], d.X[:, 1:], d.Y, **DRAWS)
    return tested(found, d), told(found, False)


@question(
    "conditional_independence_test", "ConditionalTestResult", "FitQuality",
    "ConditionalIndependence", rtol=1e-4,
)  # fmt: skip
def conditional_independence(d: Data) -> Any:
    sides = d.Y, d.X[:, :1], d.X[:, 1:]
    found = mm.conditional_independence_test(*sides, (Gaussian(),) * 3, FIXED, **DRAWS)
    quality = [(each.r2, each.reachable, each.missed) for each in found.fit_quality.values()]
    default = mm.conditional_independence_test(*sides, **DRAWS)  # draws choose its references
    table = np.hstack([np.reshape(part, (len(d.X), -1)) for part in sides])
    again = c.ConditionalIndependence(table).pvalue(0, 1, given=[2])
    drawn = d.drawn(*default, *told(default, False), again)
    return tested(found, d), told(found, False), quality, drawn


@question("conditional_two_sample_test", rtol=1e-4)
def conditional_two_sample(d: Data) -> Any:
    Y2 = d.target_units(TARGETS[::-1, None])
    kernel = Gaussian(), Gaussian()  # a learned metric is found in coordinates good to 1e-4
    found = mm.conditional_two_sample_test(d.X, d.Y, d.Z, Y2, kernel, FIXED, **DRAWS)
    return tested(found, d)


@question("counterfactual_effect", "CounterfactualEffect", rtol=1e-4)
def counterfactual(d: Data) -> Any:
    Y2 = d.target_units(TARGETS[::-1, None])
    kernel = Gaussian(), Gaussian()
    found = c.counterfactual_effect(d.X, d.Y, d.Z, Y2, kernel, FIXED, **DRAWS)
    return tested(found, d), d.target_lengths(found.mean_effect)


@question("goodness_of_fit_test", "EffectSize", "ColumnEffects")
def goodness_of_fit(d: Data) -> Any:
    found = mm.goodness_of_fit_test(d.X, score(d), **DRAWS)  # draws choose among kernels
    plain = mm.goodness_of_fit_test(d.X, score(d), Gaussian(), **DRAWS)
    return d.drawn(*found, *told(found, False)), told(plain, False)


@question("k_sample_test", "KSampleResult", "EffectSize")
def several_samples(d: Data) -> Any:
    found = c.k_sample_test([d.X, d.Z, d.Z[:9]], **DRAWS)
    table = found.pairs(rng=0).sort_values(["first", "second"])
    return (
        d.drawn(*found), found.effect.value, found.effect.interval,
        table["effect"].to_numpy(), d.drawn(table["adjusted"].to_numpy()),
    )  # fmt: skip


@question("dependence_matrix", "DependenceMatrix")
def matrix_of_columns(d: Data) -> Any:
    table = pd.DataFrame(d.columns).assign(d=d.mix(WORDS))
    found = c.dependence_matrix(table, **DRAWS)
    inside = ~np.eye(4, dtype=bool)
    return found.effects, found.statistics, d.drawn(found.pvalues[inside], found.adjusted[inside])


@question("pairwise", "GroupDistances")
def distances_of_groups(d: Data) -> Any:
    groups, control = d.mix(WORDS), {"control": "sun"}
    found = c.pairwise(d.X, groups, **control, **DRAWS)
    energy = c.pairwise(d.X, groups, kernel="energy", **control, **DRAWS)
    pvalues = [np.nan_to_num(each.adjusted) for each in (found, energy)]
    return found.distances, d.lengths(energy.distances), d.drawn(*pvalues)


@question("pairwise", "spaces.RandomFourier", without=SEEDED)
def distances_in_coordinates(d: Data) -> Any:
    return c.pairwise(d.X, WORDS, basis=RandomFourier(20, random_state=0), **DRAWS).distances


@question(
    "power_analysis", "PowerAnalysis", "comparison.Bootstrap", "comparison.Subsample",
    "comparison.Collection", without=SEEDED,
)  # fmt: skip
def power(d: Data) -> Any:
    options: dict[str, Any] = {
        "sizes": [6, 10],
        "n_simulations": 20,
        "n_permutations": 19,
        "rng": 0,
    }
    options |= {"kernel": c.Collection([Gaussian(), k.Laplace()])}
    return [
        c.power_analysis(mm.two_sample_test, d.X, d.Z, resampling=how, **options).powers
        for how in (c.Bootstrap(0.1), c.Subsample())
    ]


def told(result: Any, columns: bool = True) -> Any:
    """The size of an effect, altogether and by column."""
    each = [effect.value for effect in result.columns().values()] if columns else []
    return result.effect.value, result.effect.interval, result.to_dict()["effect"]["value"], each


#: Every way to find a null distribution: arguments for the class in `comparison.nulls`.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Block": (4,), "Wild": (4,), "Groups": (np.arange(2 * N) // 4,),
    "WildGroups": (np.arange(2 * N) // 4,), "WeightedBlocks": (2,),
}  # fmt: skip
ESTIMATORS = {"Swap": "linear", "NormalLimit": "linear"}


def null_question(name: str) -> None:
    """Of a test with one of the nulls."""

    def ask(d: Data) -> Any:
        null = getattr(nulls, name)(*ARGUMENTS.get(name, ()))
        if name.startswith("Residual"):
            found = mm.conditional_independence_test(
                d.Y, d.X[:, :1], d.X[:, 1:], null=null, **DRAWS
            )
            return tested(found, d)
        if name in ("Signs", "SignsLimit", "WeightedBlocks", "Simulation"):
            if name == "Simulation":
                null = nulls.Simulation(lambda n, rng: d.row_units(rng.normal(size=(n, 2))))
            found = mm.goodness_of_fit_test(d.X, score(d), null=null, **DRAWS)
            return tuple(found)
        how = {"estimator": ESTIMATORS[name]} if name in ESTIMATORS else {}
        kernel = "median" if name in (*ESTIMATORS, "Gamma", "Spectral") else None
        return tuple(mm.two_sample_test(d.X, d.Z, kernel, null, **how, **DRAWS))

    rtol = 1e-4 if name.startswith("Residual") else 1e-6
    QUESTIONS[f"null {name}"] = Question((f"nulls.{name}",), ask, rtol, without=SEEDED)


for _name in nulls.__all__:
    null_question(_name)


@question("comparison.RunningTwoSampleTest", "comparison.RunningIndependenceTest")
def running_tests(d: Data) -> Any:
    two = c.RunningTwoSampleTest().fit(d.X, d.Z)
    one = c.RunningIndependenceTest().fit(d.X, d.Y)
    return tuple(two.result()), two.mmd(), tuple(one.result()), one.hsic()


@question("comparison.RunningTwoSampleTest", "streams.RunningEmbedding", "streams.feed",
          without=CHUNKS)  # fmt: skip
def running_batches(d: Data) -> Any:
    test = c.RunningTwoSampleTest().partial_fit(d.X[:12], d.Z[:12]).partial_fit(d.X[12:], d.Z[12:])
    fed = feed(RunningEmbedding(Gaussian()), [d.X[:12], d.X[12:]], progress=False)
    return tuple(test.result()), fed.embedding_(d.Z)


@question("streams.RunningEmbedding")
def running_embedding(d: Data) -> Any:
    return RunningEmbedding(Gaussian()).partial_fit(d.X).embedding_(d.Z)


# --- learning -------------------------------------------------------------------------------------


@question("KernelPCA")
def pca(d: Data) -> Any:
    model = learning.KernelPCA(2, Gaussian()).fit(d.X)
    return abs(model.transform(d.Z)), model.eigenvalues_


@question("KernelCCA")
def cca(d: Data) -> Any:
    model = learning.KernelCCA(1, regularization=1e-2).fit(d.X, d.y)
    return model.correlations_, abs(model.transform(d.Z))


@question("KernelDimensionReduction", rtol=1e-3, without=SEEDED)
def dimension_reduction(d: Data) -> Any:
    model = learning.KernelDimensionReduction(1, regularization=1e-2, n_init=1, random_state=0)
    found = model.fit(d.X, d.y).transform(d.Z)[:, 0]
    return abs(np.corrcoef(found, np.arange(N))[0, 1])


@question("HSICSelector", "SelectionPath")
def selector(d: Data) -> Any:
    found = [
        mm.HSICSelector(1, method=how, random_state=0).fit(d.X, d.y)
        for how in ("backward", "forward", "lasso")
    ]
    return [each.get_support() for each in found], str(found[0].path_)


@question("HSICClustering", given=(FAR, OTHER, TARGETS), without=SEEDED)
def clustering(d: Data) -> Any:
    model = mm.HSICClustering(3, Gaussian(), n_init=4, random_state=0).fit(d.X)
    return together(model.labels_), together(model.predict(d.X[:8])), model.score(d.X)


@question("ColoredUnfolding", rtol=1e-2)
def unfolding(d: Data) -> Any:
    model = mm.ColoredUnfolding(1, 5, tol=1e-6, random_state=0).fit(d.X, d.y)
    return d.by_row(abs(d.lengths(model.embedding_)))


@question("SupportMeasureClassifier", rtol=1e-4, without=NAMES)
def support_classifier(d: Data) -> Any:
    model = mm.SupportMeasureClassifier(tol=1e-8)
    model.fit(d.row_units(d.mix(BAG_LIST)), d.mix((BAG_SPREADS > 1).astype(int)))
    return model.decision_function(d.row_units(BAG_LIST[:3]))


@question("SupportMeasureRegressor", rtol=1e-4)
def support_regressor(d: Data) -> Any:
    model = mm.SupportMeasureRegressor(tol=1e-8, C=100.0, epsilon=0.1)
    model.fit(d.row_units(d.mix(BAG_LIST)), d.mix(BAG_SPREADS))
    return model.predict(d.row_units(BAG_LIST[:3]))


@question("DistributionRidge", rtol=1e-5)
def distribution_ridge(d: Data) -> Any:
    model = learning.DistributionRidge(regularization=1e-2)
    model.fit(d.row_units(d.mix(BAG_LIST)), d.target_units(d.mix(BAG_SPREADS)))
    return d.target_points(model.predict(d.row_units(BAG_LIST[:3])))


@question("kernels.Expected", "kernels.OnEmbeddings")
def bags(d: Data) -> Any:
    samples = d.row_units(BAG_LIST)
    kernels: tuple[Any, ...] = (k.Expected(Gaussian()), k.OnEmbeddings(Gaussian(), Gaussian()))
    return [kernel.resolve(kernel.check(samples))(samples) for kernel in kernels]


@question("EmbeddingDensity", rtol=1e-3, without=SEEDED)
def density(d: Data) -> Any:
    model = mm.EmbeddingDensity(random_state=0).fit(d.X)
    return d.lengths(np.exp(model.score_samples(d.Z)), -2), d.points(model.sample(3, 0)[0])


# --- dynamics -------------------------------------------------------------------------------------

TRACKS: dict[str, Any] = {"given": (SIGHTS, NEW, PATH), "without": TIME}


@question("KernelBayesFilter", "Track", rtol=1e-5, **TRACKS)
def bayes_filter(d: Data) -> Any:
    fixed: dict[str, Any] = {"posterior_regularization": 1e-2, "power": 1.0, "validation": None}
    model = mm.KernelBayesFilter(Gaussian(), Gaussian(), regularization=1e-2, **fixed)
    track = model.fit(d.y, d.X).filter(d.Z)
    return (
        d.target_points(track.mean),
        d.target_lengths(track.std),
        d.target_points(track.interval()),
    )


@question("KernelBayesFilter", rtol=1e-3, slow=True, **TRACKS)
def chosen_bayes_filter(d: Data) -> Any:
    model = mm.KernelBayesFilter(progress=False).fit(d.y, d.X, TURNS)
    return d.target_points(model.filter(d.Z, TURNS[:6]).mean)


@question("AdditiveFilter", "Stream", "Track", rtol=1e-4, **TRACKS)
def additive_filter(d: Data) -> Any:
    model = mm.AdditiveFilter(Gaussian(), Gaussian(), regularization=1e-2, validation=None)
    model.fit(d.y, d.X)
    stream = model.start()
    beliefs = [stream.step(o).mean() for o in d.Z]
    found = (model.filter(d.Z).mean, beliefs, stream.predict(2).mean, model.smooth(d.Z).mean)
    return [d.target_points(each) for each in found]


@question("AdditiveFilter", "Validation", rtol=1e-3, slow=True, **TRACKS)
def chosen_additive_filter(d: Data) -> Any:
    model = mm.AdditiveFilter(progress=False).fit(d.y, d.X)
    return d.target_points(model.filter(d.Z).mean)


@question("SpectralFilter", rtol=1e-4, given=(SIGHTS, NEW, TARGETS), without=TIME)
def spectral_filter(d: Data) -> Any:
    model = mm.SpectralFilter(Gaussian(), 3, 2, regularization=1e-2, validation=None).fit(d.X)
    return d.points(model.filter(d.Z).mean), d.points(model.predict(d.Z, 2).mean)


@question("TransferOperator", rtol=1e-4, **TRACKS)
def transfer_operator(d: Data) -> Any:
    options: dict[str, Any] = {"regularization": 1e-2, "reversible": False, "method": "ridge"}
    model = mm.dynamics.TransferOperator("median", rank=3, **options).fit(d.X)
    return (
        abs(model.eigenvalues_),
        abs(model.eigenfunctions(d.Z)[:, 0]),
        d.points(model.predict(d.Z)),
    )


# --- graphical models -----------------------------------------------------------------------------


@question("KernelGraphicalModel", rtol=1e-5)
def graphical_model(d: Data) -> Any:
    model = mm.KernelGraphicalModel(None, Gaussian(), 1e-2).fit(d.columns)
    at = {"a": d.Z[:4, 0]}
    return d.target_points(model.marginal("c", at).mean()), d.points(model.marginal("b").mean())


@question("KernelGraphicalModel", rtol=1e-3)
def default_graphical_model(d: Data) -> Any:
    model = mm.KernelGraphicalModel().fit(d.columns)
    return d.target_points(model.marginal("c", {"a": d.Z[0, 0]}).mean())


@question("chow_liu_tree")
def tree(d: Data) -> Any:
    edges = mm.graphical.chow_liu_tree(d.columns).edges(data="weight")
    return sorted(weight for *_, weight in edges)


@question("BeliefPropagation", "Beliefs", rtol=1e-5, without=SEEDED)
def propagation(d: Data) -> Any:
    graph = nx.cycle_graph(["a", "b", "c"])
    model = mm.BeliefPropagation(graph, Gaussian(), 1e-2, random_state=0).fit(d.columns)
    found = model.run({"a": d.Z[0, 0]})
    return d.target_points(found.mean["c"]), d.target_lengths(found.std["c"])


# --- inference from a simulator -------------------------------------------------------------------


@question("KernelABC", "Posterior", "Calibration", "PredictiveCheck", rtol=1e-3, without=SEEDED)
def inference(d: Data) -> Any:
    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        return d.target_units(d.points(theta)[:, :1] + 0.3 * rng.normal(size=(len(theta), 1)))

    options: dict[str, Any] = {"random_state": 0, "regularization": 1e-2, "progress": False}
    model = mm.KernelABC(simulate, d.X, **options).fit(30)
    y = d.target_units(np.array([0.5]))
    found = model.posterior(y)
    told = model.check(y, 10).pvalues, model.calibrate(10).coverage(0.8)
    places = [d.points(part) for part in (model.theta_, found.mean(), found.interval(0.8))]
    return places, d.lengths(found.std()), told


@question("bayes_update", rtol=1e-3, slow=True)
def update(d: Data) -> Any:
    found = mm.likelihood_free.bayes_update(d.Z, (d.X, d.Y), d.target_units(TARGETS[:1]))
    return d.points(found.mean()), d.lengths(found.std())


# --- adaptation and reports -----------------------------------------------------------------------


@question("KernelMeanMatching", rtol=1e-4)
def mean_matching(d: Data) -> Any:
    fixed = mm.KernelMeanMatching(Gaussian(), ridge=1e-2, bound=10.0, random_state=0)
    fixed.fit(d.X, X_test=d.Z)
    return d.by_row(fixed.weights_), fixed.weights(d.Z), fixed.ratio_score(d.X, d.Z)


@question("KernelMeanMatching", rtol=1e-3, without=SEEDED)
def default_mean_matching(d: Data) -> Any:
    return mm.KernelMeanMatching(random_state=0).fit(d.X, X_test=d.Z).weights_


@question("Reweighted", rtol=1e-4)
def reweighted(d: Data) -> Any:
    weights = mm.KernelMeanMatching(Gaussian(), ridge=1e-2, bound=10.0, random_state=0)
    model = mm.adaptation.Reweighted(LinearRegression(), weights)
    # the regression inside has a mean of its own to lose digits by: offsets are its matter
    return d.target_points(model.fit(d.X, d.y, X_test=d.Z).predict(d.Z))


@question(
    "TargetShift", rtol=1e-3, given=(FAR, on_grid(1.1 * FAR), CLASSES), without=SEEDED | NAMES
)
def class_shift(d: Data) -> Any:
    model = mm.TargetShift(n_bootstrap=3, random_state=0).fit(d.X, d.y, X_test=d.Z[:16])
    return model.proportions_, model.interval(0.8)


@question("TargetShift", rtol=1e-3, without=SEEDED)
def target_shift(d: Data) -> Any:
    model = mm.TargetShift(n_bootstrap=3, random_state=0).fit(d.X, d.y, X_test=d.Z)
    return model.weights_


@question("LocationScaleShift", rtol=1e-3, given=(FAR, on_grid(1.2 * FAR + 0.5), CLASSES),
          without=SEEDED | NAMES)  # fmt: skip
def location_scale(d: Data) -> Any:
    model = mm.LocationScaleShift(target_shift=False, n_init=1, random_state=0)
    return d.points(model.fit(d.X, d.y, X_test=d.Z).transform(d.X, d.y))


@question("InvariantComponents", rtol=1e-4, given=(FAR, OTHER, CLASSES), without=SEEDED | NAMES)
def invariant(d: Data) -> Any:
    model = mm.InvariantComponents(
        2, Gaussian(), trade_off=1.0, regularization=1e-2, random_state=0
    )
    return abs(model.fit(d.X, d.y, domains=np.arange(N) // 6).transform(d.Z))


@question("distributional_variance")
def variance(d: Data) -> Any:
    return (
        mm.adaptation.distributional_variance([d.X, d.Z], kernel=Gaussian()),
        mm.adaptation.distributional_variance(d.X, d.mix(CLASSES)),
    )


@question("shift_report", "ShiftReport", rtol=1e-5, without=SEEDED)
def shift(d: Data) -> Any:
    y2 = d.target_units(TARGETS[::-1].copy())
    found = report.shift_report(d.X, d.Z, d.y, y2, rng=0, progress=False)
    return found.effect, found.overall.pvalue


# --- what there is --------------------------------------------------------------------------------


def every_name() -> set[str]:
    """Every public name: of `meanmap`, of its packages of models, of kernels, bases and streams."""
    found = set(mm.__all__)
    for package in ("adaptation", "conditional", "density", "dynamics", "embeddings", "graphical",
                    "learning", "likelihood_free", "report", "statistics"):  # fmt: skip
        found |= set(import_module(f"meanmap.{package}").__all__)
    for package in ("kernels", "spaces", "streams"):
        found |= {f"{package}.{name}" for name in import_module(f"meanmap.{package}").__all__}
    settings = {"Bootstrap", "Collection", "Subsample"}
    for name in c.__all__:
        if name in nulls.__all__:
            found.add(f"nulls.{name}")
        elif name in settings or name.startswith("Running"):
            found.add(f"comparison.{name}")
        else:
            found.add(name)
    return found | {f"kernels.{name}" for name in ("Product", "Scaled", "Sum", "Whitened")}
