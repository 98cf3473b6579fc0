"""One fitted object of every kind that the library makes, and what to ask it.

Saving, pickling, reading from several threads and files of earlier versions are tested with the
same list. A new public class is one more entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from scipy import stats
from sklearn.linear_model import Ridge

import meanmap as mm
from meanmap.comparison import (
    ResidualSigns,
    RunningIndependenceTest,
    RunningTwoSampleTest,
    dependence_matrix,
    k_sample_test,
    pairwise,
)
from meanmap.kernels import Delta, Gaussian
from meanmap.monitoring import (
    DriftMonitor,
    SequentialConditionalTest,
    SequentialIndependenceTest,
    SequentialTwoSampleTest,
)
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding

Answers = dict[str, Any]


@dataclass(frozen=True)
class Fitted:
    """How to make an object, what it says, and the public classes that it stands for."""

    make: Callable[[], Any]
    ask: Callable[[Any], Answers]
    classes: tuple[str, ...]


FITTED: dict[str, Fitted] = {}


def fitted(
    ask: Callable[[Any], Answers], *classes: str
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers an object."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        FITTED[make.__name__] = Fitted(make, ask, classes)
        return make

    return register


# --- data: numbers that no generator's version changes --------------------------------------------


def numbers(n: int, seed: float = 0.0) -> np.ndarray:
    """Numbers in (-2, 2) that look irregular."""
    return 2 * np.sin(1.7 * np.arange(1, n + 1) ** 1.3 + seed)


X = np.stack([numbers(40), numbers(40, 1.0)], axis=1)
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * numbers(40, 2.0)
LABELS = np.array(["rain", "sun", "fog"])[np.arange(40) % 3]
KINDS = np.arange(40) % 3
GROUPS = 3.0 * np.eye(3)[KINDS][:, :2] + 0.5 * X
AT = X[:4] + 0.05
ANGLE = np.cumsum(0.4 + 0.05 * numbers(60))
STATES = np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)
SEEN = STATES + 0.1 * np.stack([numbers(60, 3.0), numbers(60, 4.0)], axis=1)
BAGS = [(1 + 0.5 * (i % 3)) * X[i : i + 8] for i in range(20)]
SPREAD = np.array([1 + 0.5 * (i % 3) for i in range(20)])
TABLE = {"a": X[:, 0], "b": X[:, 0] + 0.3 * X[:, 1], "c": Y}
CHAIN = nx.path_graph(["a", "b", "c"])


# --- the core -------------------------------------------------------------------------------------


@fitted(lambda s: {"psi": s.transform(AT)})
def space() -> Any:
    return Space(Gaussian(1.0), PivotedCholesky(1e-8)).fit(X)


@fitted(lambda s: {"psi": s.transform(AT)})
def space_landmarks() -> Any:
    return Space(Gaussian(1.0), Nystroem(10, random_state=0)).fit(X)


@fitted(lambda s: {"psi": s.transform(AT)})
def space_random() -> Any:
    return Space(Gaussian(1.0), RandomFourier(20, random_state=0)).fit(X)


@fitted(lambda s: {"psi": s.transform(LABELS[:4])})
def space_labels() -> Any:
    return Space(Delta()).fit(LABELS)


@fitted(
    lambda e: {"at": e(AT), "mean": e.mean(), "std": e.std(), "interval": e.interval(0.8)[0]},
    "Embedding",
)
def embedding() -> Any:
    return mm.embed(X, Gaussian(1.0))


@fitted(lambda e: {"norm": e.norm(), "centred": e.norm(centered=True)}, "JointEmbedding")
def joint() -> Any:
    return mm.embed((X, LABELS), Gaussian(1.0) @ Delta())


@fitted(
    lambda m: {"predict": m.predict(AT), "std": m.given(AT).std()},
    "ConditionalEmbedding",
)
def conditional() -> Any:
    return mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2).fit(X, Y)


@fitted(lambda m: {"predict": m.predict(AT)})
def conditional_stream() -> Any:
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
    return model.partial_fit(X[:25], Y[:25]).partial_fit(X[25:], Y[25:])


@fitted(lambda p: {"mean": p.given(Y[:3, None]).mean()}, "ConditionalOperator")
def operator() -> Any:
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2).fit(X, Y[:, None])
    return model.posterior(mm.embed(X + 0.2, Gaussian(1.0)), regularization=1e-2)


@fitted(lambda r: {"at": r.embedding_(AT), "total": r.total_})
def running_embedding() -> Any:
    return RunningEmbedding(Gaussian(1.0)).partial_fit(X[:20]).partial_fit(X[20:])


@fitted(lambda c: {"points": c.points, "weights": c.weights}, "Compression")
def compression() -> Any:
    return mm.statistics.compress(X, 8, Gaussian(1.0), rng=0)


# --- tests ----------------------------------------------------------------------------------------


def told(result: Any) -> Answers:
    """What a test found."""
    return {"statistic": result.statistic, "p": result.pvalue}


@fitted(lambda r: told(r) | {"witness": r.witness(AT)}, "TestResult")
def two_sample() -> Any:
    return mm.two_sample_test(X, X + 0.5, Gaussian(1.0), n_permutations=49, rng=0)


@fitted(lambda e: {"value": e.value, "interval": e.interval}, "EffectSize")
def effect_size() -> Any:
    return mm.two_sample_test(X, X + 0.5, Gaussian(1.0), n_permutations=9, rng=0).effect


@fitted(lambda e: {"values": [one.value for one in e.values()]}, "ColumnEffects")
def column_effects() -> Any:
    return mm.two_sample_test(X, X + [0.5, 0], Gaussian(1.0), n_permutations=9, rng=0).columns()


@fitted(lambda r: told(r) | {"pairs": r.pairs(rng=0)["pvalue"].to_numpy()}, "KSampleResult")
def several_samples() -> Any:
    return k_sample_test([X, X + 0.5, X - 0.5], n_permutations=49, rng=0)


@fitted(lambda m: {"effects": m.effects, "adjusted": m.adjusted}, "DependenceMatrix")
def all_pairs() -> Any:
    return dependence_matrix(np.column_stack([X, Y]), n_permutations=49, rng=0)


@fitted(lambda d: {"distances": d.distances, "p": d.adjusted}, "GroupDistances")
def group_distances() -> Any:
    labels = np.arange(len(X)) % 3
    return pairwise(X + labels[:, None], labels, 0, Gaussian(1.0), n_permutations=49, rng=0)


@fitted(told)
def independence() -> Any:
    return mm.independence_test(X, Y[:, None], n_permutations=49, rng=0)


@fitted(lambda t: told(t.result()))
def running_two_sample() -> Any:
    return RunningTwoSampleTest(Gaussian(1.0)).partial_fit(X, X + 0.5).partial_fit(X, X + 0.4)


@fitted(lambda t: told(t.result()))
def running_independence() -> Any:
    return RunningIndependenceTest().partial_fit(X, Y[:, None]).partial_fit(X, Y[:, None])


@fitted(
    lambda t: {"e": t.result().log_evalue, "at": t.result().witness(AT)}, "SequentialTwoSampleTest"
)
def sequential_two_sample() -> Any:
    test = SequentialTwoSampleTest(Gaussian(1.0))
    test.update(X, X + 0.5)
    return test


@fitted(lambda t: {"e": t.result().log_evalue}, "SequentialIndependenceTest")
def sequential_independence() -> Any:
    test = SequentialIndependenceTest()
    test.update(X, Y[:, None])
    return test


@fitted(lambda t: {"e": t.result().log_evalue}, "SequentialConditionalTest")
def sequential_conditional() -> Any:
    test = SequentialConditionalTest(warm_up=20)
    test.update(Y[:, None], X[:, :1], X[:, 1:])
    return test


@fitted(lambda m: {"repr": repr(m)}, "DriftMonitor")
def drift_monitor() -> Any:
    monitor = DriftMonitor(np.tile(X, (2, 1)), expected_run_length=50)
    monitor.update(X + 0.1)
    return monitor


@fitted(
    lambda e: {"statistic": e.statistic, "effect": e.mean_effect, "treated": e.treated.mean()},
    "CounterfactualEffect",
)
def effect() -> Any:
    kernels = {"kernel": Gaussian(1.0), "null": ResidualSigns(1e-2)}
    return mm.comparison.counterfactual_effect(
        X, Y[:, None], X + 0.1, Y[:, None] + 1, n_permutations=49, rng=0, **kernels
    )


@fitted(lambda a: {"powers": np.array(a.powers)}, "PowerAnalysis")
def power() -> Any:
    options: dict[str, Any] = {"n_permutations": 19, "kernel": Gaussian(1.0), "rng": 0}
    return mm.comparison.power_analysis(
        mm.two_sample_test, X, X + 0.8, sizes=[8, 12], n_simulations=20, **options
    )


# --- learning -------------------------------------------------------------------------------------


@fitted(lambda m: {"transform": m.transform(AT) ** 2}, "KernelPCA")
def pca() -> Any:
    return mm.learning.KernelPCA(2, Gaussian(1.0)).fit(X)


@fitted(lambda m: {"f": m.transform(X, Y)[0] ** 2, "correlations": m.correlations_}, "KernelCCA")
def cca() -> Any:
    return mm.learning.KernelCCA(1, Gaussian(1.0), Gaussian(1.0), regularization=1e-2).fit(X, Y)


@fitted(lambda m: {"transform": m.transform(AT) ** 2}, "KernelDimensionReduction")
def dimension_reduction() -> Any:
    model = mm.learning.KernelDimensionReduction(1, regularization=1e-2, n_init=1, random_state=0)
    return model.fit(X, Y)


@fitted(lambda m: {"support": m.get_support()}, "HSICSelector")
def selector() -> Any:
    return mm.HSICSelector(1, random_state=0).fit(X, Y)


@fitted(lambda p: {"repr": repr(p)}, "SelectionPath")
def selection_path() -> Any:
    return mm.HSICSelector(1, random_state=0).fit(X, Y).path_


@fitted(lambda m: {"predict": m.predict(GROUPS)}, "HSICClustering")
def clustering() -> Any:
    return mm.HSICClustering(3, Gaussian(2.0), n_init=2, random_state=0).fit(GROUPS)


@fitted(lambda m: {"transform": m.transform(AT) ** 2}, "ColoredUnfolding")
def unfolding() -> Any:
    return mm.ColoredUnfolding(1, 8, Gaussian(1.0), tol=1e-6, random_state=0).fit(X, Y)


@fitted(lambda m: {"decision": m.decision_function(BAGS[:5])}, "SupportMeasureClassifier")
def support_classifier() -> Any:
    model = mm.SupportMeasureClassifier(Gaussian(1.0), bandwidth2=0.5, tol=1e-8)
    return model.fit(BAGS, (SPREAD > 1).astype(int))


@fitted(lambda m: {"predict": m.predict(BAGS[:5])}, "SupportMeasureRegressor")
def support_regressor() -> Any:
    return mm.SupportMeasureRegressor(Gaussian(1.0), bandwidth2=0.5, tol=1e-8).fit(BAGS, SPREAD)


@fitted(lambda m: {"predict": m.predict(BAGS[:5])}, "DistributionRidge")
def distribution_ridge() -> Any:
    model = mm.learning.DistributionRidge(Gaussian(1.0), bandwidth2=0.5, regularization=1e-2)
    return model.fit(BAGS, SPREAD)


@fitted(lambda m: {"log": m.score_samples(AT)}, "EmbeddingDensity")
def density() -> Any:
    model = mm.EmbeddingDensity(n_candidates=20, bandwidth=1.0, epsilon=5e-2, random_state=0)
    return model.fit(X)


# --- dynamics -------------------------------------------------------------------------------------


def tracked(model: Any) -> Answers:
    """What a filter says."""
    track = model.filter(SEEN[50:])
    return {"mean": track.mean, "ahead": model.predict(SEEN[50:], 2).mean}


@fitted(tracked, "KernelBayesFilter")
def bayes_filter() -> Any:
    options: dict[str, Any] = {"posterior_regularization": 1e-2, "power": 1.0, "validation": None}
    model = mm.KernelBayesFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, **options)
    return model.fit(STATES[:50], SEEN[:50])


@fitted(tracked, "AdditiveFilter")
def additive_filter() -> Any:
    model = mm.AdditiveFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, validation=None)
    return model.fit(STATES[:50], SEEN[:50])


@fitted(tracked)
def additive_stream() -> Any:
    model = mm.AdditiveFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, validation=None)
    return model.fit(STATES[:30], SEEN[:30]).partial_fit(STATES[30:50], SEEN[30:50])


@fitted(tracked, "SpectralFilter")
def spectral_filter() -> Any:
    options: dict[str, Any] = {"window": 2, "regularization": 1e-2, "validation": None}
    return mm.SpectralFilter(Gaussian(0.7), 3, **options).fit(SEEN[:50])


@fitted(
    lambda m: {
        "values": abs(m.eigenvalues_),
        "functions": abs(m.eigenfunctions(SEEN[50:])),
        "ahead": m.predict(SEEN[50:], 2),
        "bounds": m.bounds(),
    },
    "TransferOperator",
)
def transfer_operator() -> Any:
    options: dict[str, Any] = {"rank": 3, "regularization": 1e-2, "reversible": False}
    options["basis"] = PivotedCholesky(1e-3)
    model = mm.dynamics.TransferOperator(Gaussian(0.7), **options).fit(SEEN[:30])
    return model.partial_fit(SEEN[30:50], continued=True)


@fitted(lambda t: {"mean": t.mean, "interval": t.interval(0.8)[0]}, "Track")
def track() -> Any:
    return additive_filter().filter(SEEN[50:])


@fitted(lambda s: {"ahead": s.predict(2).mean}, "Stream")
def live() -> Any:
    stream = additive_filter().start()
    stream.step(SEEN[50])
    return stream


@fitted(lambda v: {"repr": repr(v)}, "Validation")
def validation() -> Any:
    model = mm.AdditiveFilter(
        Gaussian(0.7), Gaussian(0.7), grid={"regularization": [1e-3, 1e-1]}, progress=False
    )
    return model.fit(STATES[:50], SEEN[:50]).validation_


# --- graphical models -----------------------------------------------------------------------------


@fitted(
    lambda m: {"marginal": m.marginal("c", {"a": 0.5}).mean(), "log": m.log_density(TABLE)},
    "KernelGraphicalModel",
)
def graphical_model() -> Any:
    return mm.KernelGraphicalModel(CHAIN, Gaussian(0.7), 1e-2).fit(TABLE)


@fitted(lambda m: {"mean": m.run({"a": 0.5}).mean["c"]}, "BeliefPropagation")
def propagation() -> Any:
    graph = nx.cycle_graph(["a", "b", "c"])
    return mm.BeliefPropagation(graph, Gaussian(0.7), 1e-2, random_state=0).fit(TABLE)


@fitted(lambda b: {"mean": b.mean["c"], "std": b.std["c"]}, "Beliefs")
def beliefs() -> Any:
    return propagation().run({"a": 0.5})


# --- inference from a simulator -------------------------------------------------------------------


def noisy(theta: Any, rng: np.random.Generator) -> Any:
    """A simulator that pickle can find by its name."""
    return theta + 0.3 * rng.normal(size=theta.shape)


@fitted(lambda m: {"mean": m.posterior([0.5]).mean()}, "KernelABC")
def inference() -> Any:
    options: dict[str, Any] = {"random_state": 0, "regularization": 1e-2, "progress": False}
    return mm.KernelABC(noisy, {"place": stats.norm()}, **options).fit(40)


@fitted(lambda p: {"mean": p.mean(), "std": p.std()}, "Posterior")
def posterior() -> Any:
    return inference().posterior([0.5])


@fitted(lambda c: {"coverage": c.coverage(0.8)}, "Calibration")
def calibration() -> Any:
    return inference().calibrate(10)


@fitted(lambda c: {"p": c.pvalues}, "PredictiveCheck")
def predictive_check() -> Any:
    return inference().check([0.5], 10)


# --- adaptation -----------------------------------------------------------------------------------


@fitted(lambda m: {"weights": m.weights(AT)}, "KernelMeanMatching")
def mean_matching() -> Any:
    model = mm.KernelMeanMatching(Gaussian(1.0), ridge=1e-2, bound=10.0, random_state=0)
    return model.fit(X, X_test=X[:20] + 0.4)


@fitted(lambda m: {"proportions": m.proportions_}, "TargetShift")
def target_shift() -> Any:
    model = mm.TargetShift(Gaussian(2.0), ridge=1e-3, n_bootstrap=5, random_state=0)
    return model.fit(GROUPS, KINDS, X_test=GROUPS[KINDS < 2])


@fitted(lambda m: {"transform": m.transform(GROUPS[:5], KINDS[:5])}, "LocationScaleShift")
def location_scale() -> Any:
    options: dict[str, Any] = {"regularization": 1e-2, "n_init": 1, "random_state": 0}
    model = mm.LocationScaleShift(Gaussian(2.0), target_shift=False, **options)
    return model.fit(GROUPS, KINDS, X_test=1.2 * GROUPS + 0.5)


@fitted(lambda m: {"transform": m.transform(GROUPS[:5]) ** 2}, "InvariantComponents")
def invariant() -> Any:
    options: dict[str, Any] = {"trade_off": 1.0, "regularization": 1e-2, "random_state": 0}
    model = mm.InvariantComponents(2, Gaussian(2.0), **options)
    return model.fit(GROUPS, KINDS, domains=np.arange(40) // 10)


@fitted(lambda m: {"predict": m.predict(AT)}, "Reweighted")
def reweighted() -> Any:
    weights = mm.KernelMeanMatching(Gaussian(1.0), ridge=1e-2, bound=10.0, random_state=0)
    return mm.adaptation.Reweighted(Ridge(), weights).fit(X, Y, X_test=X + 0.4)


@fitted(lambda r: {"effect": r.effect, "p": r.overall.pvalue}, "ShiftReport")
def shift() -> Any:
    return mm.report.shift_report(X[:20], X[20:] + 1, rng=0, progress=False)


# --- causal functions -----------------------------------------------------------------------------


@fitted(lambda m: {"mean": m.effect(AT[:, 1]).mean, "error": m.effect(AT[:, 1]).standard_error},
        "DoseResponse")  # fmt: skip
def dose_response() -> Any:
    return mm.causal.DoseResponse(1e-2, random_state=0).fit(X[:, 1], Y, X[:, 0])


@fitted(lambda m: {"predict": m.predict(AT[:, 0])}, "InstrumentalRegression")
def instrumental() -> Any:
    model = mm.causal.InstrumentalRegression(1e-2, random_state=0)
    return model.fit(X[:, 0], Y, X[:, 0] + 0.3 * X[:, 1])


@fitted(lambda s: {"f": s.f_statistic, "partial": s.partial}, "InstrumentStrength")
def instrument_strength() -> Any:
    return instrumental().strength_


@fitted(lambda m: {"mean": m.effect(AT[:, 1]).mean}, "ProxyEffect")
def proxy_effect() -> Any:
    model = mm.causal.ProxyEffect(1e-2, random_state=0)
    return model.fit(X[:, 1], Y, X[:, 0] + 0.2 * X[:, 1], X[:, 0] - 0.2 * X[:, 1])


@fitted(lambda m: {"mean": m.effect(AT[:, 1]).mean}, "Mediation")
def mediation() -> Any:
    return mm.causal.Mediation(1e-2, random_state=0).fit(X[:, 1], Y, X[:, 0] + 0.2 * X[:, 1])


@fitted(lambda c: {"mean": c.mean, "low": c.interval()[0]}, "CausalCurve")
def causal_curve() -> Any:
    return dose_response().effect(AT[:, 1])


@fitted(lambda o: {"support": o.support}, "Overlap")
def causal_overlap() -> Any:
    return dose_response().overlap(AT[:, 1])
