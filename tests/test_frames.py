"""Data frames are matched by the names of their columns, at every entry point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import meanmap as mm
from meanmap import frames
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.kernels import (
    Columns,
    Expected,
    Gaussian,
    Hamming,
    Laplace,
    Linear,
    OnEmbeddings,
    Polynomial,
)
from meanmap.spaces import Nystroem, Space
from meanmap.streams import RunningEmbedding

N = 40
NAMES = ["wind", "temp", "rain"]
SWAPPED = ["rain", "wind", "temp"]
_rng = np.random.default_rng(3)
_units = np.array([1.0, 20.0, 0.1])
FIRST = pd.DataFrame(_rng.normal(size=(N, 3)) * _units + _units, columns=NAMES)
SECOND = pd.DataFrame(_rng.normal(0.4, 1.2, size=(N, 3)) * _units + _units, columns=NAMES)
TARGET = FIRST[["temp"]].to_numpy() / 20 + _rng.normal(0, 0.3, size=(N, 1))
CLASSES = (FIRST["wind"] > 1).to_numpy().astype(int)
K = Gaussian((1.0, 20.0, 0.1))


def row(table: Any) -> Any:
    """The first row of a frame or an array."""
    return table.iloc[0] if hasattr(table, "iloc") else table[0]


def conditional(x: Any, y: Any = TARGET) -> mm.ConditionalEmbedding:
    return mm.ConditionalEmbedding(K, regularization=1e-2).fit(x, y)


def backward(y: Any) -> mm.ConditionalEmbedding:
    """From the target to the table."""
    return mm.ConditionalEmbedding(Gaussian(1.0), K, regularization=1e-2).fit(TARGET, y)


def sensor_filter(observations: Any) -> mm.KernelBayesFilter:
    model = mm.KernelBayesFilter(Gaussian(1.0), K, regularization=1e-2)
    return model.fit(TARGET, observations)


def streamed(first: Any, second: Any) -> float:
    stream = RunningTwoSampleTest(K).partial_fit(first, first).partial_fit(None, second)
    return stream.mmd()


def streamed_pairs(first: Any, second: Any) -> float:
    stream = RunningIndependenceTest((K, Gaussian(1.0))).partial_fit(first, TARGET)
    return stream.partial_fit(second, TARGET).hsic()


def learned(first: Any, second: Any) -> Any:
    model = mm.SupportMeasureRegressor(K, level2="linear")
    model.fit([first[:10], first[10:25], first[25:]], [0.0, 1.0, 2.0])
    return model.predict([second[:20], second[20:]])


def invariant(first: Any, second: Any) -> Any:
    domains = np.repeat([0, 1], N // 2)
    model = mm.InvariantComponents(2, K, trade_off=1.0, regularization=1e-2)
    return abs(model.fit(first, CLASSES, domains=domains).transform(second))


def evidence(first: Any, second: Any) -> Any:
    graph = nx.Graph([("sky", "heat")])
    model = mm.KernelGraphicalModel(graph, {"sky": K, "heat": Gaussian(1.0)})
    model.fit({"sky": first, "heat": TARGET})
    return model.marginal("heat", evidence={"sky": row(second)}).mean()


def another_prior(first: Any, second: Any) -> Any:
    """Of frames and embeddings; names count from the first prior on."""
    model = mm.KernelABC(
        lambda theta, rng: theta + rng.normal(size=theta.shape), first, random_state=0
    )
    model.fit(60)
    priors = second, mm.embed(second, Laplace(9.0))
    return [model.posterior(np.ones(3) * _units, prior=prior).mean() for prior in priors]


def updated(first: Any, second: Any) -> Any:
    return conditional(first).posterior(second).given([[0.5]]).mean()


#: A second table of the same variable: entry point → its answer for (first, second).
ENTRIES: dict[str, Callable[[Any, Any], Any]] = {
    "kernel": K,
    "kernel.matmul": lambda a, b: K.bind(a).matmul(a, b, np.ones(N)),
    "sum of kernels": lambda a, b: mm.mmd(a, b, K + 1),
    "scaled kernel": lambda a, b: mm.mmd(a, b, 2.0 * K),
    "product of kernels": lambda a, b: mm.mmd(a, b, K * Laplace(3.0)),
    "a function as kernel": lambda a, b: mm.mmd(a, b, lambda x, y: (x * [1, 2, 3]) @ y.T),
    "kernel on rows of labels": lambda a, b: mm.mmd(a.round(), b.round(), Hamming()),
    "mmd": mm.mmd,
    "mmd with a kernel": lambda a, b: mm.mmd(a, b, K),
    "two_sample_test": lambda a, b: mm.two_sample_test(a, b, rng=0).statistic,
    "two_sample_test, p": lambda a, b: mm.two_sample_test(a, b, n_permutations=99, rng=0).pvalue,
    "two_sample_test, witness": lambda a, b: mm.two_sample_test(
        a, a + 1.0, n_permutations=19, rng=0
    ).witness(b),
    "conditional_two_sample_test": lambda a, b: (
        mm.conditional_two_sample_test(a, TARGET, b, TARGET, n_permutations=19, rng=0).statistic
    ),
    "conditional_mmd": lambda a, b: mm.statistics.conditional_mmd(a, TARGET, b, TARGET),
    "counterfactual_effect": lambda a, b: (
        mm.comparison.counterfactual_effect(
            a, TARGET, b, TARGET + 1, n_permutations=19, rng=0
        ).statistic
    ),
    "hscic": lambda a, b: mm.statistics.hscic(TARGET, TARGET**2, a, at=b),
    "RunningTwoSampleTest": streamed,
    "RunningIndependenceTest": streamed_pairs,
    "RunningEmbedding": lambda a, b: (
        RunningEmbedding(K).partial_fit(a).partial_fit(b).embedding_.norm()
    ),
    "embed, distance": lambda a, b: mm.embed(a).distance(mm.embed(b, mm.embed(a).kernel)),
    "embed in a space": lambda a, b: mm.embed(b, basis=Space(K).fit(a)).coordinates,
    "Embedding, e(x)": lambda a, b: mm.embed(a)(b),
    "Embedding, density": lambda a, b: mm.embed(a).density(b),
    "Embedding, support": lambda a, b: mm.embed(a).support(b),
    "joint embedding": lambda a, b: mm.embed((a, TARGET))((b, TARGET)),
    "Space": lambda a, b: Space(K).fit(a).transform(b),
    "Space, landmarks": lambda a, b: Space(K, Nystroem(landmarks=b)).fit(a).residual_,
    "ConditionalEmbedding, predict": lambda a, b: conditional(a).predict(b),
    "ConditionalEmbedding, given": lambda a, b: conditional(a).given(b).mean(),
    "ConditionalEmbedding, weights": lambda a, b: conditional(a).weights(b),
    "ConditionalEmbedding, expect": lambda a, b: conditional(a).expect(lambda y: y**2, b),
    "ConditionalEmbedding, functional": lambda a, b: conditional(a).functional(lambda y: y**2)(b),
    "ConditionalEmbedding, loss": lambda a, b: conditional(a).loss(b, TARGET),
    "ConditionalEmbedding, partial_fit": lambda a, b: (
        conditional(a).partial_fit(b, TARGET).predict(a)
    ),
    "ConditionalEmbedding, score of a table": lambda a, b: backward(a).score(TARGET, b),
    "ConditionalEmbedding, loss of a table": lambda a, b: backward(a).loss(TARGET, b),
    "ConditionalEmbedding, loo": lambda a, b: (
        mm.ConditionalEmbedding(Gaussian("loo")).fit(a, TARGET).given(b).mean()
    ),
    "ConditionalOperator": lambda a, b: conditional(a).operator_.given(b).mean(),
    "sum_rule": lambda a, b: mm.sum_rule(conditional(a), b).mean(),
    "sum_rule, embedding": lambda a, b: mm.sum_rule(
        conditional(a), mm.embed(b, Laplace(9.0))
    ).mean(),
    "chain_rule": lambda a, b: mm.chain_rule(conditional(a), b).marginal(1).mean(),
    "bayes_rule, prior": updated,
    "bayes_rule, embedding as prior": lambda a, b: (
        conditional(a).posterior(mm.embed(b, Laplace(9.0))).given([[0.5]]).mean()
    ),
    "bayes_rule, reweighted": lambda a, b: (
        conditional(a).posterior(b, method="reweighted").given([[0.5]]).mean()
    ),
    "bayes_rule, observation": lambda a, b: backward(a).posterior(TARGET).given(b).mean(),
    "bayes_update": lambda a, b: mm.likelihood_free.bayes_update(b, (a, TARGET), TARGET[0]).mean(),
    "bayes_update, observation": lambda a, b: mm.likelihood_free.bayes_update(
        TARGET, (TARGET, a), row(b)
    ).mean(),
    "KernelBayesFilter, observations": lambda a, b: sensor_filter(a).filter(b).mean,
    "KernelBayesFilter, smooth": lambda a, b: sensor_filter(a).smooth(b).mean,
    "KernelBayesFilter, step": lambda a, b: sensor_filter(a).start().step(row(b)).mean(),
    "KernelBayesFilter, second sequence": lambda a, b: (
        mm.KernelBayesFilter(K, Gaussian(1.0), regularization=1e-2)
        .fit([a, b], [TARGET, TARGET])
        .filter(TARGET)
        .mean
    ),
    "KernelBayesFilter, initial": lambda a, b: (
        mm.KernelBayesFilter(K, Gaussian(1.0), initial=b, regularization=1e-2)
        .fit(a, TARGET)
        .filter(TARGET[:5])
        .mean
    ),
    "KernelBayesFilter, controls": lambda a, b: (
        mm.KernelBayesFilter(Gaussian(1.0), Gaussian(1.0), kernel_control=K, regularization=1e-2)
        .fit(TARGET, TARGET, a)
        .filter(TARGET, b)
        .mean
    ),
    "AdditiveFilter": lambda a, b: (
        mm.AdditiveFilter(Gaussian(1.0), K, regularization=1e-2).fit(TARGET, a).filter(b).mean
    ),
    "SpectralFilter": lambda a, b: (
        mm.SpectralFilter(K, 3, regularization=1e-2).fit(a).filter(b).mean
    ),
    "graphical evidence": evidence,
    "KernelMeanMatching": lambda a, b: (
        mm.KernelMeanMatching(random_state=0).fit(a, X_test=b).weights_
    ),
    "TargetShift": lambda a, b: mm.TargetShift(K).fit(a, CLASSES, X_test=b).weights_,
    "LocationScaleShift": lambda a, b: (
        mm.LocationScaleShift(n_init=1, max_iter=5, random_state=0).fit(a, CLASSES, X_test=b).X_new_
    ),
    "LocationScaleShift, transform": lambda a, b: (
        mm.LocationScaleShift(n_init=1, max_iter=5, random_state=0)
        .fit(a, CLASSES, X_test=a)
        .transform(b, CLASSES)
    ),
    "InvariantComponents": invariant,
    "distributional_variance": lambda a, b: mm.adaptation.distributional_variance([a, b], kernel=K),
    "KernelPCA": lambda a, b: abs(mm.learning.KernelPCA(2, K).fit(a).transform(b)),
    "KernelCCA": lambda a, b: abs(
        mm.learning.KernelCCA(1, K, Gaussian(1.0), regularization=1e-2).fit(a, TARGET).transform(b)
    ),
    "KernelDimensionReduction": lambda a, b: (
        mm.learning.KernelDimensionReduction(n_components=1, method="gradient")
        .fit(a, TARGET)
        .transform(b)
    ),
    "HSICClustering": lambda a, b: mm.HSICClustering(2, K, random_state=0).fit(a).predict(b),
    "ColoredUnfolding": lambda a, b: mm.ColoredUnfolding().fit(a, TARGET).transform(b),
    "EmbeddingDensity": lambda a, b: mm.EmbeddingDensity(random_state=0).fit(a).score_samples(b),
    "EmbeddingDensity, candidates": lambda a, b: (
        mm.EmbeddingDensity(random_state=0, candidates=b).fit(a).score_samples(a)
    ),
    "bags": learned,
    "kernels between bags": lambda a, b: OnEmbeddings(K, Gaussian(1.0)).bind([a])([a], [b]),
    "goodness_of_fit_test": lambda a, b: mm.goodness_of_fit_test(
        a, lambda x: -x / _units**2, n_permutations=19, rng=0
    ).witness(b),
    "shift_report": lambda a, b: [
        c.difference for c in mm.report.shift_report(a, b, rng=0).columns
    ],
    "shift_report with a kernel": lambda a, b: (
        mm.report.shift_report(a, b, kernel=K, rng=0).overall.pvalue
    ),
    "HSICSelector": lambda a, b: mm.HSICSelector(2).fit(a, TARGET).transform(b),
    "Reweighted": lambda a, b: (
        mm.adaptation.Reweighted(
            mm.ConditionalEmbedding(K, regularization=1e-2),
            mm.KernelMeanMatching(K, random_state=0),
        )
        .fit(a, TARGET[:, 0], X_test=a)
        .predict(b)
    ),
    "BeliefPropagation": lambda a, b: (
        mm.BeliefPropagation(nx.Graph([("sky", "heat")]), {"sky": K, "heat": Gaussian(1.0)})
        .fit({"sky": a, "heat": TARGET})
        .run({"sky": row(b)})
        .mean["heat"]
    ),
    "KernelABC, another prior": another_prior,
}


#: Solvers that differ from run to run.
TOLERANCES = {"ColoredUnfolding": 1e-3}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ENTRIES)
def test_columns_are_matched_by_name(name: str) -> None:
    ask = ENTRIES[name]
    tolerance = {"rtol": 1e-9, "atol": TOLERANCES.get(name, 1e-12)}
    expected = ask(FIRST, SECOND)
    assert_allclose(ask(FIRST, SECOND[SWAPPED]), expected, **tolerance)
    with pytest.raises(ValueError, match=r"(?s)'temp'.*'heat'") as refusal:
        ask(FIRST, SECOND.rename(columns={"temp": "heat"}))
    assert "columns" in str(refusal.value)
    assert_allclose(ask(FIRST.to_numpy(), SECOND.to_numpy()), expected, **tolerance)
    assert_allclose(ask(FIRST, SECOND.to_numpy()), expected, **tolerance)


def test_the_same_rows_in_another_order_of_columns_do_not_differ() -> None:
    table = FIRST[["wind", "temp"]]
    assert mm.two_sample_test(table, table[["temp", "wind"]], rng=0).pvalue > 0.9
    assert mm.mmd(table, table[["temp", "wind"]], estimator="V") < 1e-12


@pytest.mark.parametrize(
    "kernel",
    [K, K + 1, 2.0 * K, K * Laplace(1.0), Linear() + 1, Polynomial(2), Gaussian("loo"), Hamming()],
    ids=repr,
)
def test_kernels_keep_the_names_of_columns(kernel: Any, tmp_path: Path) -> None:
    bound = kernel.bind(FIRST)
    assert bound.names == tuple(NAMES)
    assert kernel.names is None and bound == kernel
    assert clone(bound).names == tuple(NAMES)
    if "loo" not in repr(kernel):
        resolved = bound.resolve(bound.check(FIRST))
        assert resolved.names == tuple(NAMES)
        mm.save(resolved, tmp_path / "kernel")
        assert mm.load(tmp_path / "kernel").names == tuple(NAMES)
    assert bound.bind(SECOND[SWAPPED]).names == tuple(NAMES)


def test_what_was_fitted_remembers_names(tmp_path: Path) -> None:
    model = conditional(FIRST)
    assert_array_equal(model.feature_names_in_, NAMES)
    assert model.kernel_x_.feature_names_in_ == tuple(NAMES)
    mm.save(model, tmp_path / "model")
    again = mm.load(tmp_path / "model")
    assert_array_equal(again.predict(SECOND[SWAPPED]), model.predict(SECOND))
    with pytest.raises(ValueError, match="Missing: 'rain'; unexpected: 'snow'"):
        again.given(SECOND.rename(columns={"rain": "snow"}))
    e = mm.embed(FIRST)
    mm.save(e, tmp_path / "embedding")
    assert_array_equal(mm.load(tmp_path / "embedding")(SECOND[SWAPPED]), e(SECOND))


def test_mixed_frames_are_matched_by_name() -> None:
    kinds = ["dry", "wet"]
    first = FIRST.assign(sky=np.where(FIRST["rain"] > 0.1, *kinds))
    second = SECOND.assign(sky=np.where(SECOND["rain"] > 0.1, *kinds))
    order = ["sky", *SWAPPED]
    assert mm.mmd(first, second[order]) == pytest.approx(mm.mmd(first, second), rel=1e-12)
    model = mm.ConditionalEmbedding(regularization=1e-2).fit(first, TARGET)
    assert_allclose(model.predict(second[order]), model.predict(second), rtol=1e-12)
    prior = mm.embed(second[order], Columns({c: None for c in order}))
    expected = model.push(mm.embed(second, Columns({c: None for c in second})))
    assert_allclose(model.push(prior).mean(), expected.mean(), rtol=1e-9)
    with pytest.raises(ValueError, match="'sky'"):
        mm.mmd(first, second.rename(columns={"sky": "cloud"}))


def test_embeddings_of_columns_in_different_orders_are_refused() -> None:
    P, Q = mm.embed(FIRST, Gaussian(1.0)), mm.embed(SECOND[SWAPPED], Gaussian(1.0))
    for ask in (P.distance, P.inner, lambda other: P + other):
        with pytest.raises(ValueError, match="columns in different orders.*kernel=P.kernel"):
            ask(Q)
    with pytest.raises(ValueError, match="Missing: 'rain'; unexpected: 'snow'"):
        P.distance(mm.embed(SECOND.rename(columns={"rain": "snow"}), Gaussian(1.0)))
    R = mm.embed(SECOND[SWAPPED], P.kernel)
    assert P.distance(R) == P.distance(mm.embed(SECOND.to_numpy(), Gaussian(1.0)))
    pairs = [mm.embed((table, TARGET), Gaussian(1.0) @ Gaussian(1.0)) for table in (FIRST, SECOND)]
    pairs.append(mm.embed((SECOND[SWAPPED], TARGET), Gaussian(1.0) @ Gaussian(1.0)))
    pairs[0].distance(pairs[1])
    with pytest.raises(ValueError, match="columns in different orders"):
        pairs[0].distance(pairs[2])


def test_one_row_is_matched_by_name() -> None:
    model, row_ = conditional(FIRST), SECOND.iloc[4]
    assert_allclose(model.given(row_[SWAPPED]).mean(), model.given(row_).mean())
    assert_allclose(mm.embed(FIRST)(row_[SWAPPED]), mm.embed(FIRST)(row_))
    with pytest.raises(ValueError, match="Missing: 'rain'; unexpected: 'snow'"):
        model.given(row_.rename({"rain": "snow"}))


def test_columns_with_numbers_for_names() -> None:
    plain = pd.DataFrame(FIRST.to_numpy())
    shuffled = pd.DataFrame(SECOND.to_numpy())[[2, 0, 1]]
    expected = mm.mmd(FIRST, SECOND)
    assert mm.mmd(plain, shuffled) == pytest.approx(expected, rel=1e-12)
    # numbers that differ do not count as names: a frame without names is taken as an array
    assert mm.mmd(plain, SECOND) == pytest.approx(expected, rel=1e-12)
    later = pd.DataFrame(SECOND.to_numpy(), columns=[3, 4, 5])
    assert mm.mmd(plain, later) == pytest.approx(expected, rel=1e-12)


def test_many_unexpected_names_are_cut_short() -> None:
    wide = pd.DataFrame(np.zeros((3, 30)), columns=[f"a{i}" for i in range(30)])
    with pytest.raises(ValueError, match="'a9' and 20 more; unexpected: 'b0'"):
        frames.in_order(wide.rename(columns=lambda c: c.replace("a", "b")), wide.columns, "X")


def test_a_bag_of_other_columns_is_refused() -> None:
    kernel = Expected(K).bind([FIRST])
    assert_allclose(kernel([FIRST], [SECOND[SWAPPED]]), kernel([FIRST], [SECOND]))
    model = mm.SupportMeasureClassifier(K, level2=Gaussian(1.0))
    model.fit([FIRST[:20], FIRST[20:], SECOND[SWAPPED][:20], SECOND[20:]], [0, 0, 1, 1])
    same = mm.SupportMeasureClassifier(K, level2=Gaussian(1.0))
    same.fit([FIRST[:20], FIRST[20:], SECOND[:20], SECOND[20:]], [0, 0, 1, 1])
    assert_array_equal(model.predict([SECOND[SWAPPED]]), same.predict([SECOND]))
