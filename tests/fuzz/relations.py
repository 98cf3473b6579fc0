"""Relations between answers: another unit, another origin or another order of rows changes nothing.

Each question has answers that do not depend on the units of its rows, since its kernels are chosen
on the data: numbers without a unit, or means of targets whose units stay. Data lie on a grid of
2⁻²⁰, so that an offset of 2³⁰ and factors of 2^±200 change no digit of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meanmap as mm
from fitted_objects import GROUPS, KINDS, SEEN, STATES
from fitted_objects import X as ALL_X
from fitted_objects import Y as ALL_Y
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.kernels import Gaussian
from meanmap.streams import RunningEmbedding


def on_grid(values: np.ndarray) -> np.ndarray:
    """Rounded to multiples of 2⁻²⁰."""
    return np.round(values * 2**20) / 2**20


N = 24
ROWS, TARGETS, OTHER = on_grid(ALL_X[:N]), ALL_Y[:N], on_grid(ALL_X[:N] * 0.9 + 0.4)
FAR = on_grid(GROUPS[:N])
OPTIONS: dict[str, Any] = {"n_permutations": 19, "rng": 0}


@dataclass(frozen=True)
class Question:
    """Something to ask about rows X and Z of one variable, and targets y that belong to X's."""

    ask: Callable[[Any, Any, Any], Any]
    rtol: float = 1e-6
    rows: bool = True  # whether the order of X's rows (and y's) says nothing
    shift: bool = True  # whether the origin says nothing
    X: Any = None
    y: Any = None


def conditional(X: Any, Z: Any, y: Any) -> Any:
    model = mm.ConditionalEmbedding("median", "median", 1e-2).fit(X, y[:, None])
    return model.predict(Z)


QUESTIONS: dict[str, Question] = {
    "embed": Question(lambda X, Z, y: (mm.embed(X, Gaussian()).norm(), mm.embed(X)(Z))),
    "RunningEmbedding": Question(
        lambda X, Z, y: RunningEmbedding(Gaussian()).partial_fit(X).embedding_(Z)
    ),
    "mmd": Question(lambda X, Z, y: (mm.mmd(X, Z), mm.mmd(X, Z, estimator="V"))),
    "hsic": Question(
        lambda X, Z, y: (mm.hsic(X, y[:, None]), mm.hsic(X, Z, estimator="V")), rows=False
    ),
    "joint_hsic": Question(lambda X, Z, y: mm.statistics.joint_hsic(X, y[:, None])),
    "two_sample_test": Question(
        lambda X, Z, y: tested(mm.two_sample_test(X, Z, **OPTIONS)),
        rows=False,
    ),
    "independence_test": Question(
        lambda X, Z, y: tested(mm.independence_test(X, y[:, None], **OPTIONS)), rows=False
    ),
    "conditional_independence_test": Question(
        lambda X, Z, y: tested(
            mm.conditional_independence_test(y[:, None], X[:, :1], Z[:, 1:], **OPTIONS)
        ),
        rows=False,
        rtol=1e-4,
    ),
    "RunningTwoSampleTest": Question(
        lambda X, Z, y: tested(RunningTwoSampleTest().fit(X, Z).result())
    ),
    "RunningIndependenceTest": Question(
        lambda X, Z, y: tested(RunningIndependenceTest().fit(X, y[:, None]).result())
    ),
    "ConditionalEmbedding": Question(conditional),
    "KernelPCA": Question(
        lambda X, Z, y: abs(mm.learning.KernelPCA(2, Gaussian()).fit(X).transform(Z))
    ),
    "KernelCCA": Question(
        lambda X, Z, y: mm.learning.KernelCCA(1, regularization=1e-2).fit(X, y).correlations_
    ),
    "HSICSelector": Question(
        lambda X, Z, y: mm.HSICSelector(1, random_state=0).fit(X, y).get_support()
    ),
    "HSICClustering": Question(
        lambda X, Z, y: together(
            mm.HSICClustering(3, Gaussian(), n_init=4, random_state=0).fit(X).predict(X[:8])
        ),
        rows=False,
        X=FAR,
    ),
    "compress": Question(
        lambda X, Z, y: mm.statistics.compress(X, 6, Gaussian(), method="herding").weights,
        rows=False,
    ),
    "KernelMeanMatching": Question(
        lambda X, Z, y: (
            mm.KernelMeanMatching(Gaussian(), ridge=1e-2, bound=10.0, random_state=0)
            .fit(X, X_test=Z)
            .weights(Z)
        ),
        rtol=1e-4,
    ),
    "distributional_variance": Question(
        lambda X, Z, y: mm.adaptation.distributional_variance([X, Z], kernel=Gaussian())
    ),
    "chow_liu_tree": Question(
        lambda X, Z, y: sorted(
            weight
            for *_, weight in mm.graphical.chow_liu_tree(
                {"a": X[:, 0], "b": X[:, 1], "c": y}
            ).edges(data="weight")
        )
    ),
    "KernelGraphicalModel": Question(
        lambda X, Z, y: (
            mm.KernelGraphicalModel(None, Gaussian(), 1e-2)
            .fit({"a": X[:, 0], "b": X[:, 1], "c": y})
            .marginal("c", {"a": Z[0, 0]})
            .mean()
        )
    ),
    "KernelBayesFilter": Question(
        lambda X, Z, y: (
            mm.KernelBayesFilter(
                Gaussian(),
                Gaussian(),
                regularization=1e-2,
                posterior_regularization=1e-2,
                power=1.0,
                validation=None,
            )
            .fit(STATES[:24], X)
            .filter(X[:6])
            .mean
        ),
        rows=False,
        X=on_grid(SEEN[:24]),
    ),
    "InvariantComponents": Question(
        lambda X, Z, y: abs(
            mm.InvariantComponents(
                2, Gaussian(), trade_off=1.0, regularization=1e-2, random_state=0
            )
            .fit(X, y, domains=np.arange(N) // 6)
            .transform(X)
        ),
        rtol=1e-4,
        rows=False,
        X=FAR,
        y=KINDS[:N],
    ),
    "shift_report": Question(
        lambda X, Z, y: mm.report.shift_report(X, Z, rng=0, progress=False).overall.pvalue,
        rows=False,
    ),
}


def tested(result: Any) -> Any:
    """What a test says."""
    return result.statistic, result.pvalue


def together(labels: np.ndarray) -> np.ndarray:
    """Which pairs have one label: names of clusters say nothing."""
    return labels[:, None] == labels[None]


def scale_by(exponent: int) -> Callable[..., Any]:
    return lambda X, Z, y, rng: (X * 2.0**exponent, Z * 2.0**exponent, y)


def move(X: Any, Z: Any, y: Any, rng: np.random.Generator) -> Any:
    return X + 2.0**30, Z + 2.0**30, y


def mix(X: Any, Z: Any, y: Any, rng: np.random.Generator) -> Any:
    order = rng.permutation(len(X))
    return X[order], Z, y[order]


RELATIONS: dict[str, Callable[..., Any]] = {
    "2^200 times": scale_by(200),
    "2^-200 times": scale_by(-200),
    "2^30 away": move,
    "rows in another order": mix,
}


def holds(name: str, relation: str) -> bool:
    """Whether a relation is promised for a question."""
    question = QUESTIONS[name]
    return (question.rows or relation != "rows in another order") and (
        question.shift or relation != "2^30 away"
    )


def both_answers(name: str, relation: str, seed: int) -> tuple[Any, Any]:
    """The answer to a question, and the answer once the relation was applied."""
    question = QUESTIONS[name]
    X = ROWS if question.X is None else question.X
    y = TARGETS if question.y is None else question.y
    changed = RELATIONS[relation](X, OTHER, y, np.random.default_rng(seed))
    return question.ask(X, OTHER, y), question.ask(*changed)
