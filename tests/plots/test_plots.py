"""`.plot()` of results: on new axes and on given ones, which are returned, with words on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest

import meanmap as mm
from meanmap import plots
from meanmap.comparison import PowerAnalysis
from meanmap.comparison.counterfactual import CounterfactualEffect
from meanmap.conditional.selection import LeaveOneOut
from meanmap.dynamics import TransferOperator
from meanmap_experiments import Outcome

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 1))
Y = np.sin(2 * X) + 0.1 * RNG.normal(size=X.shape)
PLANE = RNG.normal(size=(60, 2))
CLASS = np.where(PLANE[:, 0] + PLANE[:, 1] > 0, "a", "b")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def conditional() -> Callable[..., Any]:
    return mm.ConditionalEmbedding(regularization=1e-3).fit(X, Y).plot


def left_out() -> Callable[..., Any]:
    return mm.ConditionalEmbedding().fit(X, Y).leave_one_out_.plot


def spectrum() -> Callable[..., Any]:
    states = np.cumsum(RNG.normal(size=(80, 1)), axis=0) % 3
    return TransferOperator(regularization=1e-2, rank=4).fit(states).plot


def components(y: Any = None) -> Callable[..., Any]:
    model = mm.learning.KernelPCA(2).fit(PLANE)
    return lambda ax=None: model.plot(PLANE, y, ax)


def views() -> Callable[..., Any]:
    model = mm.learning.KernelCCA(1, regularization=1e-2).fit(X, Y)
    return lambda ax=None: model.plot(X, Y, ax)


def reduction(n: int) -> Callable[..., Any]:
    y = PLANE[:, 0] - PLANE[:, 1]
    table = np.column_stack([PLANE, RNG.normal(size=60)])
    model = mm.learning.KernelDimensionReduction(n, random_state=0).fit(table, y)
    return lambda ax=None: model.plot(table, y, ax)


def invariant() -> Callable[..., Any]:
    domains = np.repeat(["u", "v", "w"], 20)
    model = mm.InvariantComponents(2, trade_off=0.5, regularization=1e-2)
    model.fit(PLANE, domains=domains)
    return lambda ax=None: model.plot(PLANE, domains, ax)


def unfolding() -> Callable[..., Any]:
    model = mm.ColoredUnfolding(2, random_state=0).fit(PLANE)
    return lambda ax=None: model.plot(PLANE[:, 0], ax)


def clusters() -> Callable[..., Any]:
    model = mm.HSICClustering(3, random_state=0).fit(PLANE)
    return lambda ax=None: model.plot(PLANE, ax)


def selector() -> Callable[..., Any]:
    return mm.HSICSelector(1).fit(PLANE, PLANE[:, 0]).plot


def weights() -> Callable[..., Any]:
    return mm.KernelMeanMatching(random_state=0).fit(PLANE[:40], X_test=PLANE[40:] + 0.3).plot


def shares() -> Callable[..., Any]:
    model = mm.TargetShift(n_bootstrap=20, random_state=0)
    return model.fit(PLANE[:40], CLASS[:40], X_test=PLANE[40:]).plot


def tree() -> Callable[..., Any]:
    chain = nx.path_graph(["x", "y"])
    return mm.KernelGraphicalModel(chain).fit({"x": X, "y": Y}).plot


def power() -> Callable[..., Any]:
    return mm.comparison.power_analysis(
        mm.two_sample_test, X, X + 0.3, n_simulations=20, rng=0
    ).plot


#: What a person gets, with the words that stand at its axes.
PICTURES: dict[str, tuple[Callable[[], Callable[..., Any]], str, str]] = {
    "Embedding": (lambda: mm.embed(X).plot, "x", "e(x)"),
    "Embedding in the plane": (lambda: mm.embed(PLANE).plot, "x₁", "x₂"),
    "Embedding of labels": (lambda: mm.embed(CLASS).plot, "", "probability"),
    "JointEmbedding": (lambda: mm.embed((X, Y)).plot, "second variable", "first variable"),
    "ConditionalEmbedding": (conditional, "x", "y"),
    "LeaveOneOut": (left_out, "regularisation λ", "error of rows left out"),
    "TransferOperator": (spectrum, "real part", "imaginary part"),
    "Compression": (lambda: mm.statistics.compress(PLANE, 10, rng=0).plot, "x₁", "x₂"),
    "EmbeddingDensity": (lambda: mm.EmbeddingDensity().fit(X).plot, "x", "density"),
    "EmbeddingDensity in the plane": (lambda: mm.EmbeddingDensity().fit(PLANE).plot, "x₁", "x₂"),
    "KernelPCA": (components, "component 1", "component 2"),
    "KernelPCA of classes": (lambda: components(CLASS), "component 1", "component 2"),
    "KernelPCA of numbers": (lambda: components(PLANE[:, 0]), "component 1", "component 2"),
    "KernelCCA": (views, "f(x)", "g(y)"),
    "KernelDimensionReduction": (lambda: reduction(2), "direction 1", "direction 2"),
    "KernelDimensionReduction, one": (lambda: reduction(1), "direction 1", "value"),
    "InvariantComponents": (invariant, "component 1", "component 2"),
    "ColoredUnfolding": (unfolding, "coordinate 1", "coordinate 2"),
    "HSICClustering": (clusters, "principal coordinate 1", "principal coordinate 2"),
    "HSICSelector": (selector, "features in play", "share explained"),
    "KernelMeanMatching": (weights, "training row, the largest", "weight"),
    "TargetShift": (shares, "", "share"),
    "KernelGraphicalModel": (tree, "", ""),
    "PowerAnalysis": (power, "size of the first sample", "power"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", PICTURES)
def test_on_new_axes_and_on_given_ones(name: str) -> None:
    make, across, up = PICTURES[name]
    plot = make()
    for given in (None, plt.subplots()[1]):
        ax = plot(ax=given)
        assert given is None or ax is given
        assert ax.get_xlabel().startswith(across) and ax.get_ylabel().startswith(up)
        assert ax.has_data() or ax.texts
    assert plt.gcf().get_axes()  # and it can be drawn
    plt.gcf().canvas.draw()


@pytest.mark.parametrize(
    ("result", "panels"),
    [
        (lambda: mm.two_sample_test(X, X + 1, rng=0), 2),
        (lambda: mm.independence_test(X, Y, rng=0), 2),
    ],
)
def test_panels_of_tests(result: Callable[[], Any], panels: int) -> None:
    found = result()
    assert len(found.plot()) == panels
    given = plt.subplots(1, panels)[1]
    assert all(a is b for a, b in zip(found.plot(ax=given), given, strict=True))
    assert given[0].get_xlabel() == "statistic"


@pytest.mark.parametrize(
    "kind",
    [
        mm.Embedding,
        mm.embeddings.JointEmbedding,
        mm.ConditionalEmbedding,
        LeaveOneOut,
        TransferOperator,
        mm.statistics.Compression,
        mm.comparison.TestResult,
        CounterfactualEffect,
        PowerAnalysis,
        mm.dynamics.Track,
        mm.dynamics.Validation,
        mm.likelihood_free.Posterior,
        mm.likelihood_free.Calibration,
        mm.likelihood_free.PredictiveCheck,
        mm.KernelGraphicalModel,
        mm.graphical.Beliefs,
        Outcome,
        mm.EmbeddingDensity,
        mm.HSICSelector,
        mm.learning.SelectionPath,
        mm.HSICClustering,
        mm.ColoredUnfolding,
        mm.learning.KernelPCA,
        mm.learning.KernelCCA,
        mm.learning.KernelDimensionReduction,
        mm.KernelMeanMatching,
        mm.TargetShift,
        mm.LocationScaleShift,
        mm.InvariantComponents,
        mm.report.ShiftReport,
    ],
)
def test_axes_go_by_one_name(kind: type) -> None:
    settings = inspect.signature(kind.plot).parameters  # type: ignore[attr-defined]
    assert settings["ax"].default is None
    assert inspect.getdoc(kind.plot)  # type: ignore[attr-defined]


def test_weights_are_drawn_from_the_largest() -> None:
    assert (np.diff(weights()().lines[0].get_ydata()) <= 0).all()


def test_a_conditional_distribution_is_drawn_over_its_sample() -> None:
    ax = mm.ConditionalEmbedding(regularization=1e-4).fit(X, Y[:, 0]).plot(level=0.8)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["sample", "80% of y given x", "mean of y given x"]
    at, mean = ax.lines[1].get_data()
    assert np.abs(mean - np.sin(2 * at)).max() < 0.3
    low, high = np.min(ax.collections[0].get_paths()[0].vertices[:, 1]), Y.max() + 1e-9
    # residuals around the mean may lie beyond the sample
    assert low >= Y.min() - 0.2 and mean.max() < high + 0.2


def test_what_cannot_be_drawn_is_said() -> None:
    model = mm.ConditionalEmbedding(regularization=1e-2).fit(PLANE, Y)
    with pytest.raises(ValueError, match=r"one column of numbers against another.*given\(x\)"):
        model.plot()


def test_labels_have_colours_and_marks_of_their_own() -> None:
    ax = plots.places(PLANE, CLASS, ("u", "v"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert len({line.get_color() for line in ax.lines}) == 2
    assert len({line.get_marker() for line in ax.lines}) == 2
    many = plots.places(PLANE, [f"class {i % 15}" for i in range(60)])
    assert many.get_legend().get_texts()[-1].get_text() == "others"


def test_large_samples_are_thinned() -> None:
    ax = plots.places(np.random.default_rng(0).normal(size=(5000, 2)))
    assert len(ax.lines[0].get_xdata()) == 2000


def test_one_column_is_drawn_in_order_or_against_numbers() -> None:
    assert plots.places(PLANE[:, :1], None, ("u",)).get_ylabel() == "row"
    assert plots.places(PLANE[:, :1], CLASS, ("u",)).get_ylabel() == "row"
    assert plots.places(PLANE[:, :1], PLANE[:, 1], ("u",)).get_ylabel() == "value"
