"""Adapters of the test of conditional independence, each against the real package."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from meanmap import causal_discovery
from meanmap.comparison import ConditionalIndependence


def chain(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """a → b → c with b = |a| + noise, c = sin 2b + noise, and d, a label that depends on c."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = abs(a) + 0.3 * rng.normal(size=n)
    c = np.sin(2 * b) + 0.3 * rng.normal(size=n)
    d = np.where(c + 0.3 * rng.normal(size=n) > 0, "up", "down")
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d})


EDGES = {frozenset("ab"), frozenset("bc"), frozenset("cd")}


def coded(frame: pd.DataFrame) -> np.ndarray:
    """The frame as an array of numbers, labels as codes."""
    return frame.assign(d=(frame["d"] == "up").astype(float)).to_numpy(dtype=float)


@pytest.mark.needs("causallearn")
def test_pc_of_causal_learn_takes_it_by_name() -> None:
    from causallearn.search.ConstraintBased.PC import pc
    from causallearn.utils.cit import CIT

    frame = chain()
    causal_discovery.register_causal_learn()
    options = {"indep_test": "meanmap", "alpha": 0.01, "show_progress": False, "labels": [3]}
    graph = pc(coded(frame), **options).G.graph
    found = {frozenset("abcd"[k] for k in pair) for pair in zip(*np.nonzero(graph), strict=True)}
    assert found == EDGES
    again = pc(coded(frame), **options).G.graph
    np.testing.assert_array_equal(graph, again)
    theirs = CIT(coded(frame), "meanmap", labels=[3])
    ours = ConditionalIndependence(frame)
    for i, j, given in ((0, 2, [1]), (2, 0, [1]), (0, 3, []), (1, 3, [0, 2])):
        assert theirs(i, j, given) == ours.pvalue(i, j, given)
    assert theirs(0, 1) == theirs(1, 0, None)


@pytest.mark.needs("causallearn")
def test_causal_learn_with_missing_values() -> None:
    from causallearn.search.ConstraintBased.PC import pc

    data = coded(chain(600))
    data[np.random.default_rng(1).random(data.shape) < 0.05] = np.nan
    causal_discovery.register_causal_learn()
    options = {"indep_test": "meanmap", "alpha": 0.01, "show_progress": False, "labels": [3]}
    graph = pc(data, **options).G.graph
    found = {frozenset("abcd"[k] for k in pair) for pair in zip(*np.nonzero(graph), strict=True)}
    assert found == EDGES


@pytest.mark.needs("pgmpy")
def test_pc_of_pgmpy_takes_an_instance() -> None:
    from pgmpy.causal_discovery import PC

    frame = chain()
    test = causal_discovery.pgmpy_test(frame)
    search = PC(ci_test=test, significance_level=0.01, show_progress=False, return_type="pdag")
    search.fit(frame)
    assert {frozenset(edge) for edge in search.skeleton_.edges} == EDGES
    assert test("a", "c", ["b"], significance_level=0.01)
    assert test.p_value_ == ConditionalIndependence(frame).pvalue("a", "c", ["b"])
    assert not test("a", "b", []) and 0 < test.effect_size_ < 1


@pytest.mark.needs("tigramite")
def test_pcmci_of_tigramite_takes_it() -> None:
    from tigramite.data_processing import DataFrame
    from tigramite.pcmci import PCMCI

    rng = np.random.default_rng(0)
    series = rng.normal(size=(400, 2))
    for t in range(1, 400):
        series[t, 0] += 0.4 * series[t - 1, 0]
        series[t, 1] = 0.5 * rng.normal() + np.cos(2 * series[t - 1, 0])
    test = causal_discovery.tigramite_test(n_permutations=499)
    found = PCMCI(DataFrame(series), test).run_pcmci(tau_max=1, pc_alpha=0.01)
    p = found["p_matrix"]
    assert p[0, 1, 1] <= 0.01 and p[0, 0, 1] <= 0.01  # from the first series, one step before
    assert p[1, 0, 1] > 0.01 and p[1, 1, 1] > 0.01
    x, y, z = rng.normal(size=(3, 200, 1))
    statistic, pvalue = test.run_test_raw(x + z, y + z, z)
    expected = ConditionalIndependence(np.hstack([x + z, y + z, z]), n_permutations=499)(0, 1, [2])
    assert (statistic, pvalue) == (expected.statistic, expected.pvalue)
    codes = (x > 0).astype(int)
    kinds = {"x_type": codes * 0 + 1, "y_type": codes * 0, "z_type": codes * 0}
    assert test.run_test_raw(codes, y, z, **kinds)[1] > 0.01


@pytest.mark.needs("dowhy")
def test_dowhy_falsifies_a_graph_with_it() -> None:
    import networkx as nx
    from dowhy.gcm.falsify import FalsifyConst, falsify_graph

    frame = chain()
    tests = dict.fromkeys(
        ("independence_test", "conditional_independence_test"), causal_discovery.dowhy_test
    )
    options = {"n_permutations": 10, "show_progress_bar": False, "n_jobs": 1}
    for edges, violations in (("ab bc cd", 0), ("ba ad ac", 2)):
        graph = nx.DiGraph([tuple(edge) for edge in edges.split()])
        found = falsify_graph(graph, frame, **options, **tests)
        by_local_markov = found.summary[FalsifyConst.VALIDATE_LMC]
        assert by_local_markov[FalsifyConst.GIVEN_VIOLATIONS] >= violations
        assert violations or not by_local_markov[FalsifyConst.GIVEN_VIOLATIONS]


def test_dowhy_pvalues_are_those_of_the_table() -> None:
    frame = chain()
    a, b, c = (frame[[name]].to_numpy() for name in "abc")
    expected = ConditionalIndependence(frame[["a", "c", "b"]]).pvalue("a", "c", ["b"])
    assert causal_discovery.dowhy_test(a, c, b) == expected
    labels = frame["d"].to_numpy()
    assert causal_discovery.dowhy_test(a[:, 0], labels, np.hstack([b, c])) > 0.01
    assert causal_discovery.dowhy_test(b, labels) == 0.001
    with pytest.raises(ValueError, match="inconsistent"):
        causal_discovery.dowhy_test(a, c[:-1])
