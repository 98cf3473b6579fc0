"""Kernels on strings, graphs, series, bags, permutations and tables: formulas, features, refusals.

Each against a slow explicit version, and for strings, graphs and mixed tables the whole way once:
embed, compare, condition on them and for them, and Bayes' rule.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import kernels as gp

from meanmap import ConditionalEmbedding, embed, kernels
from meanmap.arrays import concatenate, count, take
from meanmap.kernels import (
    Chordal,
    Columns,
    Constant,
    Delta,
    Expected,
    Gaussian,
    GlobalAlignment,
    Hamming,
    Kernel,
    Laplace,
    Linear,
    Mallows,
    NGrams,
    Polynomial,
    Precomputed,
    ScikitLearn,
    TensorProduct,
    Trace,
    WeisfeilerLehman,
)
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import Explicit, PivotedCholesky, Space
from optional_packages import require

N, M = 14, 6


# --- points of every domain ----------------------------------------------------------------------


def words(rng: np.random.Generator, n: int) -> list[str]:
    return ["".join(rng.choice(list("abc"), size=rng.integers(3, 12))) for _ in range(n)]


def graphs(rng: np.random.Generator, n: int) -> list[nx.Graph]:
    out = []
    for i in range(n):
        graph = nx.gnp_random_graph(int(rng.integers(4, 9)), 0.4, seed=int(rng.integers(1 << 30)))
        graph = nx.DiGraph(graph) if i % 3 == 2 else graph
        nx.set_node_attributes(graph, {v: "CNO"[rng.integers(3)] for v in graph}, "label")
        out.append(graph)
    return out


def walks(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    return [rng.normal(size=(rng.integers(2, 8), 2)).cumsum(axis=0) for _ in range(n)]


def bags(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    return [rng.normal(rng.normal(), 1.0, size=(rng.integers(1, 7), 2)) for _ in range(n)]


def shuffles(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(4)[np.array([rng.permutation(4) for _ in range(n)])]


def rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    Q, R = np.linalg.qr(rng.normal(size=(n, 3, 3)))
    Q = Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
    return Q * np.sign(np.linalg.det(Q))[:, None, None]


def categories(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.array(["red", "green", "blue"])[rng.integers(0, 3, size=(n, 3))]


def tables(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, size=n),
            "height": rng.normal(1.7, 0.1, size=n).astype(np.float32),
            "city": np.array(["Oslo", "Rome"])[rng.integers(0, 2, size=n)],
            "smoker": rng.integers(0, 2, size=n).astype(bool),
            "size": pd.Categorical(np.array([1, 2])[rng.integers(0, 2, size=n)]),
        }
    )


# --- the formulas, slowly ------------------------------------------------------------------------


def spectrum(x: str, y: str, p: int) -> float:
    grams = [Counter(s[i : i + p] for i in range(len(s) - p + 1)) for s in (x, y)]
    return float(sum(grams[0][gram] * grams[1][gram] for gram in grams[0]))


def subtrees(graph: nx.Graph, iterations: int, label: str | None) -> Counter:
    """Nested tuples for labels: what the kernel abbreviates."""
    names: dict[Any, Any] = {
        v: (graph.degree(v) if label is None else graph.nodes[v][label]) for v in graph
    }
    counts = Counter((0, name) for name in names.values())
    for t in range(1, iterations + 1):
        steps = [graph.succ, graph.pred] if graph.is_directed() else [graph.adj]
        names = {
            v: (names[v], *(tuple(sorted((names[u] for u in s[v]), key=repr)) for s in steps))
            for v in graph
        }
        counts.update((t, name) for name in names.values())
    return counts


def weisfeiler_lehman(x: nx.Graph, y: nx.Graph, iterations: int, label: str | None) -> float:
    a, b = subtrees(x, iterations, label), subtrees(y, iterations, label)
    return float(sum(a[tree] * b[tree] for tree in a))


def alignment(x: np.ndarray, y: np.ndarray, sigma: float) -> float:
    """Cuturi's recursion in plain numbers."""
    x, y = np.reshape(x, (len(x), -1)), np.reshape(y, (len(y), -1))
    total = np.zeros((len(x) + 1, len(y) + 1))
    total[0, 0] = 1.0
    for i in range(len(x)):
        for j in range(len(y)):
            g = np.exp(-((x[i] - y[j]) ** 2).sum() / (2 * sigma**2))
            total[i + 1, j + 1] = g / (2 - g) * (total[i, j] + total[i, j + 1] + total[i + 1, j])
    return float(total[-1, -1])


def kendall(P: np.ndarray, Q: np.ndarray) -> int:
    a, b = P.argmax(axis=1), Q.argmax(axis=1)
    return sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in combinations(range(len(a)), 2))


def gaussian(x: Any, y: Any, sigma: float) -> float:
    return float(np.exp(-((np.asarray(x) - np.asarray(y)) ** 2).sum() / (2 * sigma**2)))


def cosine(function: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    def normalised(x: Any, y: Any) -> float:
        size = function(x, x) * function(y, y)
        return function(x, y) / size**0.5 if size else 0.0

    return normalised


def mixed(x: dict[str, Any], y: dict[str, Any]) -> float:
    same = x["city"] == y["city"] and x["smoker"] == y["smoker"] and x["size"] == y["size"]
    value = gaussian(x["age"], y["age"], 10.0)
    return value * np.exp(-abs(x["height"] - y["height"]) / 0.2) if same else 0.0


COLUMNS = Columns(
    {
        "size": Delta(),
        "age": Gaussian(10.0),
        "height": Laplace(0.2),
        "city": Delta(),
        "smoker": Delta(),
    }
)


@dataclass(frozen=True)
class Case:
    kernel: Kernel
    draw: Callable[[np.random.Generator, int], Any]
    value: Callable[[Any, Any], float]
    explicit: bool = False

    def points(self, n: int, seed: int = 0) -> Any:
        return self.draw(np.random.default_rng(seed), n)


CASES: dict[str, Case] = {
    "spectrum": Case(NGrams(2), words, cosine(lambda x, y: spectrum(x, y, 2)), True),
    "spectrum counts": Case(
        NGrams(4, normalized=False), words, lambda x, y: spectrum(x, y, 4), True
    ),
    "subtrees": Case(
        WeisfeilerLehman(), graphs, cosine(lambda x, y: weisfeiler_lehman(x, y, 3, "label")), True
    ),
    "subtrees of degrees": Case(
        WeisfeilerLehman(2, label=None, normalized=False),
        graphs,
        lambda x, y: weisfeiler_lehman(x, y, 2, None),
        True,
    ),
    "alignment": Case(GlobalAlignment(2.0), walks, cosine(lambda x, y: alignment(x, y, 2.0))),
    "expected": Case(
        Expected(Gaussian(1.5)),
        bags,
        lambda x, y: float(np.mean([[gaussian(a, b, 1.5) for b in y] for a in x])),
    ),
    "expected polynomial": Case(
        Expected(Polynomial(2)),
        bags,
        lambda x, y: float(np.mean([[(a @ b + 1) ** 2 for b in y] for a in x])),
        True,
    ),
    "mallows": Case(Mallows(3.0), shuffles, lambda P, Q: float(np.exp(-kendall(P, Q) / 3))),
    "chordal": Case(Chordal(1.2), rotations, lambda P, Q: gaussian(P, Q, 1.2)),
    "hamming": Case(Hamming(2.0), categories, lambda x, y: float(np.exp(-np.sum(x != y) / 2))),
    "agreement": Case(
        Hamming(form="agreement"), categories, lambda x, y: float(np.mean(x == y)), True
    ),
    "columns": Case(COLUMNS, tables, mixed),
    "scikit-learn": Case(
        ScikitLearn(2.0 * gp.RBF(1.5) + gp.DotProduct(0.5)),
        lambda rng, n: rng.normal(size=(n, 2)),
        lambda x, y: 2 * gaussian(x, y, 1.5) + float(x @ y) + 0.25,
    ),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def listed(points: Any) -> list[Any]:
    return points.to_dict("records") if isinstance(points, pd.DataFrame) else list(points)


def slow(case: Case, A: Any, B: Any) -> np.ndarray:
    return np.array([[case.value(a, b) for b in listed(B)] for a in listed(A)])


@every_case
def test_gram_is_the_formula(case: Case) -> None:
    A, B = case.points(N), case.points(M, seed=1)
    kernel = case.kernel.resolve(case.kernel.check(A)) if case.draw is not tables else None
    kernel = kernel or case.kernel.resolve(A)
    assert_allclose(kernel(A, B), slow(case, A, B), rtol=1e-10, atol=1e-12)
    assert_allclose(kernel(A), slow(case, A, A), rtol=1e-10, atol=1e-12)
    assert_allclose(kernel.diagonal(A), np.diag(slow(case, A, A)), rtol=1e-10)
    V = np.random.default_rng(2).normal(size=(M, 3))
    assert_allclose(kernel.matmul(A, B, V), slow(case, A, B) @ V, rtol=1e-9, atol=1e-10)


@every_case
def test_positive_definite(case: Case) -> None:
    points = case.points(40, seed=3)
    kernel = case.kernel.resolve(points) if case.draw is tables else case.kernel
    K = kernel(points)
    assert_array_equal(K.shape, (40, 40))
    assert_allclose(K, K.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.trace(K)


@every_case
def test_explicit_features_are_the_kernel(case: Case) -> None:
    points = case.points(N)
    checked = as_kernel(case.kernel, points).check(points)
    kernel = as_kernel(case.kernel, points).resolve(checked)
    features = kernel.feature_map(checked)
    assert (features is not None) == case.explicit
    if features is not None:
        psi = features(checked)
        assert psi.shape == (N, features.rank)
        assert_allclose(psi @ psi.T, kernel(points), rtol=1e-10, atol=1e-12)
        space = Space(case.kernel, Explicit()).fit(points)
        assert space.rank_ == features.rank
        assert_allclose(space.transform(points), psi)


@every_case
def test_cholesky_coordinates_are_the_kernel(case: Case) -> None:
    points = case.points(N)
    space = Space(case.kernel, PivotedCholesky(tol=1e-14)).fit(points)
    psi = space.transform(points)
    K = space.kernel_(points)
    assert_allclose(psi @ psi.T, K, atol=1e-9 * K.max())


@every_case
def test_algebra(case: Case) -> None:
    A, B = case.points(N), case.points(M, seed=1)
    kernel = as_kernel(case.kernel, A).resolve(as_kernel(case.kernel, A).check(A))
    K = kernel(A, B)
    assert_allclose((kernel + 1)(A, B), K + 1)
    assert_allclose((2.5 * kernel)(A, B), 2.5 * K)
    assert_allclose((kernel * kernel + kernel)(A, B), K * K + K, rtol=1e-12)
    assert_allclose((kernel * kernel).diagonal(A), kernel.diagonal(A) ** 2)
    z = np.arange(N) % 2
    both = kernel @ Delta()
    assert_allclose(both((A, z), (B, z[:M])), K * (z[:, None] == z[:M]))
    sums = both + 1
    assert_allclose(sums((A, z), (B, z[:M])), 1 + K * (z[:, None] == z[:M]))
    if kernel.feature_map(kernel.check(A)) is not None:
        psi = Space(sums, Explicit()).fit_transform((A, z))
        assert_allclose(psi @ psi.T, sums((A, z)), rtol=1e-10, atol=1e-12)


@every_case
def test_parameters_copies_and_names(case: Case) -> None:
    kernel = case.kernel
    for copy in (clone(kernel), pickle.loads(pickle.dumps(kernel))):
        assert copy == kernel and copy is not kernel and repr(copy) == repr(kernel)
        assert hash(copy) == hash(kernel)
    assert kernel != 2.0 * kernel
    shallow = kernel.get_params(deep=False)
    assert type(kernel)(**shallow) == kernel
    points = case.points(N)
    before = repr(kernel)
    resolved = embed(points, kernel=kernel).kernel
    assert repr(kernel) == before
    assert resolved.resolve(as_kernel(resolved, points).check(points)) == resolved


@every_case
def test_containers(case: Case) -> None:
    A, B = case.points(N), case.points(M, seed=1)
    kernel = as_kernel(case.kernel, A).resolve(as_kernel(case.kernel, A).check(A))
    a, b = kernel.check(A), kernel.check(B)
    assert count(a) == N and count(take(a, np.arange(3))) == 3
    assert_allclose(kernel(take(a, np.array([4, 2])), b), kernel(A, B)[[4, 2]])
    joined = concatenate([a, b])
    assert_allclose(kernel(joined, a), np.concatenate([kernel(A), kernel(B, A)]), rtol=1e-12)
    assert_allclose(kernel(kernel.check(a)), kernel(A))  # the gate lets its own pass


@every_case
def test_embedding(case: Case) -> None:
    A, B = case.points(N), case.points(M, seed=1)
    P = embed(A, kernel=case.kernel)
    Q = embed(B, kernel=P.kernel)
    aa, ab, bb = (P.kernel(x, y).mean() for x, y in ((A, A), (A, B), (B, B)))
    assert_allclose(P.distance(Q) ** 2, aa - 2 * ab + bb, rtol=1e-8, atol=1e-10)
    assert_allclose(P(B), P.kernel(B, A).mean(axis=1))
    one = listed(B)[2]
    assert_allclose(P(one), P(B)[2])
    assert_allclose((P - Q).norm(), P.distance(Q), atol=1e-7)
    assert P.support(B).shape == (M,)


# --- bandwidths ----------------------------------------------------------------------------------


def test_hamming_median_is_of_columns() -> None:
    X = categories(np.random.default_rng(0), 9)
    distances = [int((a != b).sum()) for a, b in combinations(X, 2)]
    expected = np.median([d for d in distances if d])
    assert_allclose(Hamming().resolve(X).bandwidth, expected)
    assert_allclose(Hamming("0.5*median").resolve(X).bandwidth, expected / 2)
    assert Hamming().resolve(X[:1]).bandwidth > 0
    labels = X[:, 0]
    assert_allclose(Hamming(1.0)(labels), Hamming(1.0)(labels[:, None]))


def test_mallows_median_is_of_pairs() -> None:
    X = shuffles(np.random.default_rng(0), 8)
    distances = [kendall(P, Q) for P, Q in combinations(X, 2)]
    assert_allclose(Mallows().resolve(X).bandwidth, np.median([d for d in distances if d]))


def test_chordal_median_is_of_frobenius_distances() -> None:
    X = rotations(np.random.default_rng(0), 7)
    distances = [np.linalg.norm(P - Q) for P, Q in combinations(X, 2)]
    assert_allclose(Chordal().resolve(X).bandwidth, np.median(distances))


def test_alignment_median_is_cuturis() -> None:
    X = walks(np.random.default_rng(0), 6)
    steps = np.concatenate(X)
    distances = [np.linalg.norm(a - b) for a, b in combinations(steps, 2)]
    length = np.median([len(x) for x in X])
    kernel = GlobalAlignment().resolve(GlobalAlignment().check(X))
    assert_allclose(kernel.bandwidth, np.median(distances) * length**0.5)


def test_expected_median_is_of_all_points() -> None:
    X = bags(np.random.default_rng(0), 6)
    kernel = Expected(Gaussian()).resolve(Expected(Gaussian()).check(X))
    assert kernel.kernel == Gaussian().resolve(np.concatenate(X))
    assert kernel.get_params()["kernel__bandwidth"] == kernel.kernel.bandwidth


@pytest.mark.parametrize(
    ("kernel", "draw"),
    [(Hamming(), categories), (Mallows(), shuffles), (Chordal(), rotations)],
    ids=["hamming", "mallows", "chordal"],
)
def test_unresolved_and_bad_bandwidths(kernel: Kernel, draw: Any) -> None:
    X = draw(np.random.default_rng(0), 5)
    with pytest.raises(ValueError, match="chosen on data first"):
        kernel(X)
    for bad in (0, -1.0, "mean", np.nan, None):
        with pytest.raises(ValueError, match="bandwidth"):
            clone(kernel).set_params(bandwidth=bad).resolve(X)


# --- characteristic, universal, bounded ----------------------------------------------------------


def test_mallows_and_hamming_determine_every_distribution() -> None:
    """On a finite set a kernel is characteristic (and universal) if its Gram is not singular."""
    everything = np.eye(4)[np.array(list(permutations(range(4))))]
    assert np.linalg.eigvalsh(Mallows(4.0)(everything)).min() > 1e-3
    assert np.linalg.matrix_rank(Trace()(everything)) == 10  # (4 - 1)² + 1: only the mean matrix
    rows = np.stack(np.meshgrid(*3 * [np.arange(3)], indexing="ij"), axis=-1).reshape(-1, 3)
    assert np.linalg.eigvalsh(Hamming(2.0)(rows)).min() > 1e-3
    assert np.linalg.matrix_rank(Hamming(form="agreement")(rows)) == 7


def test_each_says_what_it_is() -> None:
    assert Delta().characteristic and Delta().universal and Delta().bounded
    assert Mallows().characteristic == "permutations of p items"
    assert "rotations" in str(Chordal().characteristic)
    assert Hamming().universal and Hamming(form="agreement").universal is None
    assert NGrams().bounded and not NGrams(normalized=False).bounded
    assert WeisfeilerLehman().bounded and not WeisfeilerLehman(normalized=False).bounded
    assert GlobalAlignment().bounded and GlobalAlignment().characteristic is None
    assert Expected(Gaussian()).bounded and not Expected(Linear()).bounded
    assert not Trace().bounded and Trace().characteristic is None
    assert ScikitLearn(gp.RBF()).bounded and not ScikitLearn(gp.DotProduct()).bounded
    assert Columns().bounded and not Columns({"a": Linear(), "b": None}).bounded
    assert Gaussian().characteristic == Gaussian().universal == "R^d"


def test_composites_say_what_they_are() -> None:
    k, blind = Chordal(), Trace()
    for kernel in (k + 1, 1 + k, k + blind, blind + k, 2.0 * k, k * k, Constant(2.0) * k):
        assert kernel.characteristic == k.characteristic and kernel.universal == k.universal
    for kernel in (blind + 1, blind * k, k * blind, 2.0 * blind, k @ blind, Constant()):
        assert kernel.characteristic is None and kernel.universal is None
    pair = Gaussian() @ Delta()
    assert pair.characteristic == pair.universal == "R^d × discrete sets"
    assert Columns({"a": Gaussian(), "b": Delta()}).universal == pair.universal
    assert Precomputed(np.eye(2)).characteristic is None


def test_characteristic_ones_see_what_the_trace_does_not() -> None:
    """Even and odd permutations of 4 have the same mean matrix."""
    orders = np.array(list(permutations(range(4))))
    everything = np.eye(4)[orders]
    even = np.linalg.det(everything) > 0
    blind, seeing = (
        embed(everything[even], kernel=k).distance(embed(everything[~even], kernel=k))
        for k in (Trace(), Mallows(2.0))
    )
    assert blind < 1e-7 < 1e-3 < seeing


# --- strings -------------------------------------------------------------------------------------


def test_short_strings_have_no_features() -> None:
    K = NGrams(3)(["ab", "abc", ""])
    assert_array_equal(K, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert_array_equal(NGrams(3).diagonal(["ab", "abc", ""]), [0, 1, 0])


def test_substrings_never_seen_have_no_coordinates_but_count() -> None:
    space = Space(NGrams(2), Explicit()).fit(["aab", "abb"])
    psi = space.transform(["abcabc"])  # ab twice, bc twice, ca once
    assert_allclose(psi.sum(), 2 / 3)
    assert space.support("zzz") == 0.0


def test_strings_of_any_container() -> None:
    lists = ["abc", "bcd"]
    K = NGrams(2)(lists)
    series = pd.Series(lists)
    for points in (np.array(lists), np.array(lists, dtype=object), series, tuple(lists)):
        assert_array_equal(NGrams(2)(points), K)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([1.0, 2.0], "compares strings, got 1.0 of type float in row 0"),
        (np.arange(3), "compares strings, got .* in row 0"),
        (["abc", 3], "got 3 of type int in row 1"),
        (["abc", None], "got None"),
        (np.array([["a", "b"]]), r"strings of shape \(n,\)"),
        ("abc", "a list of strings, got one"),
        ([b"abc"], "of type bytes"),
        ([], "0 sample"),
    ],
)
def test_no_strings_are_refused(points: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        embed(points, kernel=NGrams())


@pytest.mark.parametrize("p", [0, -1, 2.0, "3", True])
def test_length_of_substrings(p: Any) -> None:
    with pytest.raises(ValueError, match="p must be a whole number ≥ 1"):
        embed(["abc"], kernel=NGrams(p))


# --- graphs --------------------------------------------------------------------------------------


def test_isomorphic_graphs_are_equal() -> None:
    rng = np.random.default_rng(5)
    graph = graphs(rng, 1)[0]
    moved = nx.relabel_nodes(graph, dict(zip(graph, rng.permutation(len(graph)) + 9, strict=True)))
    assert_allclose(WeisfeilerLehman()([graph], [moved]), 1.0)


def test_labels_are_compared_by_value() -> None:
    def dot(label: Any) -> nx.Graph:
        graph = nx.Graph()
        graph.add_node(0, label=label)
        return graph

    kernel = WeisfeilerLehman(0)
    same = [dot(1), dot(1.0), dot(np.int64(1)), dot(np.float32(1.0))]
    assert_array_equal(kernel(same), np.ones((4, 4)))
    different = [dot("1"), dot(1), dot(1.5), dot(2**60), dot(2**60 + 1), dot(("1",))]
    assert_array_equal(kernel(different), np.eye(6))
    assert_array_equal(kernel([nx.Graph(), dot(1)]), [[0, 0], [0, 1]])


def test_a_graph_without_labels_is_refused() -> None:
    labelled = nx.path_graph(3)
    nx.set_node_attributes(labelled, "C", "label")
    bare = nx.path_graph(3)
    with pytest.raises(ValueError, match=r"points\[1\]: node 0 of the graph has no 'label'") as e:
        embed([labelled, bare], kernel=WeisfeilerLehman())
    assert "set_node_attributes" in str(e.value) and "label=None" in str(e.value)
    with pytest.raises(ValueError, match="has no 'atom'"):
        embed([labelled], kernel=WeisfeilerLehman(label="atom"))
    embed([labelled, bare], kernel=WeisfeilerLehman(label=None))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (nx.path_graph(2), "a list of graphs, got one"),
        ([np.eye(2)], "from_numpy_array"),
        (np.eye(3), "a list of networkx graphs"),
        ((nx.path_graph(2),), "TensorProduct"),
        ([], "0 sample"),
    ],
)
def test_no_graphs_are_refused(points: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        embed(points, kernel=WeisfeilerLehman(label=None))


def test_graphs_have_no_default_kernel() -> None:
    with pytest.raises(TypeError, match="WeisfeilerLehman"):
        embed([nx.path_graph(2)])
    with pytest.raises(ValueError, match="iterations must be a whole number ≥ 0"):
        embed([nx.path_graph(2)], kernel=WeisfeilerLehman(-1, label=None))


# --- series --------------------------------------------------------------------------------------


def test_series_of_any_container() -> None:
    X = np.random.default_rng(0).normal(size=(4, 6))
    kernel = GlobalAlignment(3.0)
    K = kernel(list(X))
    for points in (X, X[:, :, None], X.tolist(), [x[:, None] for x in X]):
        assert_allclose(kernel(points), K, rtol=1e-12)
    P = embed(X, kernel=kernel)
    assert P(X[0]).shape == () and P(X[0].tolist()).shape == () and P(X).shape == (4,)
    assert P(P.atoms[0]).shape == () and P(P.mode()).shape == ()  # (length, 1) is one series
    wide = embed(X.reshape(4, 3, 2), kernel=kernel)
    assert wide(X[0].reshape(3, 2)).shape == ()
    columns = GlobalAlignment((2.0, 5.0))
    scaled = [x.reshape(3, 2) / [2.0, 5.0] for x in X]
    assert_allclose(columns(X.reshape(4, 3, 2)), GlobalAlignment(1.0)(scaled), rtol=1e-12)


def test_long_series_do_not_underflow() -> None:
    """400 steps far apart: plain numbers would be 0/0."""
    rng = np.random.default_rng(0)
    X = [10 * rng.normal(size=400) for _ in range(3)]
    K = GlobalAlignment(1.0)(X)
    assert np.isfinite(K).all() and (K >= 0).all()
    assert_allclose(np.diag(K), 1.0, rtol=1e-9)


def test_blocks_of_pairs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    X, bag = walks(np.random.default_rng(0), 20), bags(np.random.default_rng(1), 20)
    K, E = GlobalAlignment(1.0)(X), Expected(Gaussian(1.0))(bag)
    from meanmap.kernels.domains import bags as bag_kernels
    from meanmap.kernels.domains import series

    monkeypatch.setattr(series, "MEMORY", 150)
    monkeypatch.setattr(bag_kernels, "MEMORY", 100)
    assert_allclose(GlobalAlignment(1.0)(X), K, rtol=1e-12)
    assert_allclose(Expected(Gaussian(1.0))(bag), E, rtol=1e-12)
    psi = Expected(Linear()).feature_map(Expected(Linear()).check(bag))
    assert psi is not None
    assert_allclose(psi(Expected(Linear()).check(bag)), [x.mean(axis=0) for x in bag])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.arange(5.0), r"One series is \[points\]"),
        ([np.ones((3, 2)), np.ones((3, 1))], r"points\[1\] has 1 coordinates a step"),
        ([np.ones(3), np.array([1.0, np.nan])], r"points\[1\] contains NaN"),
        ([np.ones(3), np.ones(0)], r"points\[1\]: expected a time series"),
        ([np.ones(3), "abc"], r"points\[1\]"),
        ([], "0 sample"),
    ],
)
def test_no_series_are_refused(points: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        embed(points, kernel=GlobalAlignment())


def test_queries_of_another_width_are_refused() -> None:
    P = embed(walks(np.random.default_rng(0), 3), kernel=GlobalAlignment())
    with pytest.raises(ValueError, match="have 1 coordinates a step, but the sample has 2"):
        P([np.ones(4)])


# --- bags ----------------------------------------------------------------------------------------


def test_expected_kernel_is_the_inner_product_of_embeddings() -> None:
    X = bags(np.random.default_rng(0), 5)
    one = [embed(x, kernel=Gaussian(1.0)) for x in X]
    assert_allclose(Expected(Gaussian(1.0))(X), [[p.inner(q) for q in one] for p in one])


def test_bags_of_anything() -> None:
    labels = [np.array(["a", "b"]), np.array(["b", "b", "c"])]
    assert_allclose(Expected(Delta())(labels), [[1 / 2, 1 / 3], [1 / 3, 5 / 9]])
    texts = [["abc", "abd"], ["bcd"]]
    inner = NGrams(2, normalized=False)
    assert_allclose(Expected(inner)(texts)[0, 1], inner(texts[0], texts[1]).mean())
    P = embed(labels, kernel=Expected(Delta()))
    assert P(np.array(["b"])).shape == () and P(labels).shape == (2,)
    pairs = [(np.ones((2, 1)), np.array([0, 1])), (np.ones((3, 1)), np.array([1, 1, 1]))]
    assert_allclose(Expected(Gaussian(1.0) @ Delta())(pairs)[0, 1], 0.5)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([np.ones((2, 2)), np.ones((2, 3))], r"points\[1\] has 3 features"),
        ([np.ones((2, 2)), np.ones((0, 2))], r"points\[1\] is empty"),
        ([np.ones((2, 2, 2))], r"points\[0\]: expected 2D"),
        ([[1.0, np.nan]], "NaN"),
        ((np.ones((2, 2)),), "a list of bags"),
    ],
)
def test_no_bags_are_refused(points: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        embed(points, kernel=Expected(Gaussian()))


def test_expected_takes_a_kernel() -> None:
    with pytest.raises(TypeError, match=r"Expected\(Gaussian\(\)\)"):
        embed([np.ones((2, 1))], kernel=Expected("gaussian"))  # type: ignore[arg-type]


# --- matrices and discrete rows ------------------------------------------------------------------


@pytest.mark.parametrize(
    "points",
    [rotations(np.random.default_rng(0), 2), np.eye(3)[[[0, 0, 1]]], np.ones((1, 2, 3))],
    ids=["rotations", "twice", "not square"],
)
def test_no_permutations_are_refused(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match="is not a permutation matrix"):
        embed(points, kernel=Mallows())


def test_torch_points() -> None:
    torch = require("torch")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, size=(8, 3))
    pairs = [
        (Mallows(2.0), shuffles(rng, 8)),
        (Chordal(1.0), rotations(rng, 8)),
        (Hamming(1.5), codes),
        (Hamming(form="agreement"), codes),
        (ScikitLearn(gp.Matern(1.0)), rng.normal(size=(8, 2))),
    ]
    for kernel, X in pairs:
        K = kernel(torch.asarray(X))
        assert isinstance(K, torch.Tensor)
        assert_allclose(K.numpy(), kernel(X))
        assert isinstance(kernel.diagonal(torch.asarray(X)), torch.Tensor)


def test_hamming_form() -> None:
    with pytest.raises(ValueError, match="form must be one of 'exponential', 'agreement'"):
        embed(np.array([["a", "b"]]), kernel=Hamming(form="share"))


# --- scikit-learn --------------------------------------------------------------------------------


def test_scikit_learn_kernels_are_taken_anywhere() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    rbf = gp.RBF(0.7)
    P = embed(X, kernel=rbf)
    assert P.kernel == ScikitLearn(gp.RBF(0.7)) != ScikitLearn(gp.RBF(0.8))
    assert_allclose(P.norm(), embed(X, kernel=Gaussian(0.7)).norm())
    ours = ConditionalEmbedding(Gaussian(0.7), regularization=1e-3).fit(X, np.sin(X))
    theirs = ConditionalEmbedding(rbf, regularization=1e-3).fit(X, np.sin(X))
    assert_allclose(theirs.predict(X), ours.predict(X), atol=1e-6)
    joint = embed((X, X), kernel=(rbf, gp.RationalQuadratic()))
    assert_allclose(
        joint.kernel((X, X))[0, 1], rbf(X[:2])[0, 1] * gp.RationalQuadratic()(X[:2])[0, 1]
    )
    assert clone(ScikitLearn(rbf)).set_params(kernel__length_scale=2.0).kernel == gp.RBF(2.0)


def test_white_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="WhiteKernel"):
        embed(np.ones((3, 1)), kernel=gp.RBF() + gp.WhiteKernel())
    with pytest.raises(TypeError, match="sklearn.gaussian_process"):
        embed(np.ones((3, 1)), kernel=ScikitLearn("rbf"))


# --- tables --------------------------------------------------------------------------------------


def test_default_kernels_by_dtype() -> None:
    table = tables(np.random.default_rng(0), 12)
    kernel = embed(table).kernel
    assert isinstance(kernel, Columns) and isinstance(kernel, TensorProduct)
    assert [type(k) for k in kernel.kernels] == [Gaussian, Gaussian, Delta, Delta, Delta]
    assert (
        kernel.kernels[0].bandwidth > Gaussian().resolve(table[["age"]].to_numpy(float)).bandwidth
    )
    assert all(0 < k.other < 1 for k in kernel.kernels[2:])
    assert kernel == embed(table, kernel=Columns()).kernel
    assert isinstance(embed(table[["age", "height"]]).kernel, Gaussian)  # all are numbers
    nullable = table.astype({"age": "Int64", "city": "string", "smoker": "boolean"})
    assert embed(nullable, kernel=Columns()).kernel == kernel


def test_dicts_and_rows() -> None:
    table = tables(np.random.default_rng(0), 12)
    P = embed(table)
    columns = {name: table[name].to_numpy() for name in table}
    assert_allclose(P(columns), P(table))
    assert_allclose(P({name: list(values) for name, values in columns.items()}), P(table))
    assert_allclose(P(table[table.columns[::-1]]), P(table))  # by name, not by place
    assert P(table.iloc[3]).shape == () and P(table.iloc[3].to_dict()).shape == ()
    assert_allclose(P(table.iloc[3]), P(table)[3])
    assert P(table.iloc[[3]]).shape == (1,)
    assert P(P.atoms).shape == (12,)


def test_parameters_by_column() -> None:
    kernel = Columns({"age": Gaussian(), "a__b": Laplace(2.0), "city": None, 7: Delta()})
    names = kernel.get_params()
    assert names["age__bandwidth"] == "median" and names["a__b__bandwidth"] == 2.0
    changed = clone(kernel).set_params(age__bandwidth=3.0, a__b__bandwidth=1.0, city=Delta())
    assert changed == Columns(
        {"age": Gaussian(3.0), "a__b": Laplace(1.0), "city": Delta(), 7: Delta()}
    )
    assert kernel.get_params()["age__bandwidth"] == "median"
    assert kernel.set_params(columns=None) == Columns() and repr(kernel) == "Columns()"
    with pytest.raises(ValueError, match="Invalid parameter 'weight'"):
        changed.set_params(weight=Gaussian())
    assert repr(Columns({"a": Delta()})) == "Columns({'a': Delta()})"
    one, other = {"a": Delta(), "b": Delta()}, {"b": Delta(), "a": Delta()}
    assert Columns(one) != Columns(other)  # points become tuples in that order


def test_bandwidths_of_columns_by_leave_one_out() -> None:
    rng = np.random.default_rng(0)
    table = tables(rng, 60)
    kernel = Columns({"age": Gaussian("loo"), **dict.fromkeys(table.columns[1:])})
    model = ConditionalEmbedding(kernel).fit(table, np.sin(table["age"] / 5.0))
    assert model.kernel_x_.kernels[0].bandwidth > 0


@pytest.mark.parametrize("kernel", [Columns(), COLUMNS, Columns() + 1, 2.0 * Columns()])
def test_a_table_with_other_columns_is_refused(kernel: Kernel) -> None:
    table = tables(np.random.default_rng(0), 8)
    P = embed(table, kernel=kernel)
    extra = table.assign(weight=70.0)
    with pytest.raises(ValueError, match="column 'weight' that the kernel does not name"):
        P(extra)
    with pytest.raises(ValueError, match="lacks columns 'age', 'city', which the kernel compares"):
        P(table[["height", "smoker", "size"]])
    with pytest.raises(ValueError, match="column 'weight' that the kernel does not name"):
        embed(extra, kernel=P.kernel)


@pytest.mark.parametrize(
    ("points", "kernel", "error", "message"),
    [
        ({"a": [1.0]}, Columns({"a": None, "b": None}), ValueError, "lacks column 'b'"),
        ({"a": [1.0], "b": [1.0]}, Columns({"a": None}), ValueError, "column 'b' that the kernel"),
        (np.ones((2, 2)), Columns(), TypeError, "DataFrame or a dict of columns, got ndarray"),
        ({"a": [1.0, np.nan]}, Columns(), ValueError, r"points\['a'\] contains NaN"),
        ({"a": ["x", None]}, Columns(), ValueError, r"points\['a'\] contains NaN or missing"),
        ({"a": ["x", "y"]}, Columns({"a": Gaussian()}), ValueError, "kernel on numbers"),
        ({"a": [1.0, 2.0], "b": [1.0]}, Columns(), ValueError, "inconsistent numbers"),
        ({"a": [1.0]}, Columns({"a": "gaussian"}), TypeError, "must be a kernel"),  # type: ignore
        ({"a": [1.0]}, Columns({}), TypeError, "a dict from column names"),
        ({"a": [1.0]}, Columns(["a"]), TypeError, "a dict from column names"),  # type: ignore
        (
            pd.DataFrame({"a": pd.to_datetime(["2024-01-01", "2024-01-02"])}),
            None,
            TypeError,
            "no default kernel for a column of datetime64",
        ),
        (pd.DataFrame([["x", "y"]], columns=["a", "a"]), None, ValueError, "appear twice: a"),
        (([[1.0]], ["x"]), Columns(), ValueError, "does not know the kinds of its columns"),
        (([[1.0]],), Columns({"a": Gaussian(), "b": Delta()}), TypeError, "tuple of 2"),
    ],
)
def test_bad_tables_are_refused(points: Any, kernel: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        embed(points, kernel=kernel)


def test_tables_inside_pairs() -> None:
    table = tables(np.random.default_rng(0), 10)
    y = np.arange(10.0)[:, None]
    joint = embed((table, y))
    assert isinstance(joint.kernel, TensorProduct) and len(joint.kernel.kernels) == 2
    assert_allclose(joint.kernel((table, y)), joint.kernels[0](table) * joint.kernels[1](y))
    assert (Columns() @ Delta()).kernels == (Columns(), Delta())
    assert_allclose(joint.marginal(0)(table), embed(table)(table))


# --- the whole way, once a domain ----------------------------------------------------------------


def test_strings_the_whole_way() -> None:
    """Words of two languages, which mix their letters differently."""
    rng = np.random.default_rng(0)
    alphabet = {"coastal": "aaeiklmn", "inland": "grtzkssu"}

    def speak(language: str) -> str:
        return "".join(rng.choice(list(alphabet[language]), size=rng.integers(6, 14)))

    language = np.array(["coastal", "inland"])[rng.integers(0, 2, size=80)]
    text = [speak(one) for one in language]

    kernel = NGrams(p=2)
    samples = [[speak(name) for _ in range(60)] for name in ("coastal", "coastal", "inland")]
    one, same, other = (embed(sample, kernel=kernel) for sample in samples)
    assert one.distance(other) > 2 * one.distance(same)

    read = ConditionalEmbedding(kernel, Delta()).fit(text, language)
    assert read.given("maikenlemi").mode() == "coastal"
    modes = read.given([speak("coastal"), speak("inland")]).mode()
    assert_array_equal(modes, ["coastal", "inland"])

    write = ConditionalEmbedding(Delta(), kernel).fit(language, text)
    word = write.given("inland").mode()
    assert isinstance(word, str) and word in text and set(word) <= set("grtzksu")
    prior = embed(["coastal", "inland"], kernel=Delta(), weights=[0.2, 0.8])
    for method in ("importance", "squared", "reweighted"):
        posterior = write.posterior(prior, method=method)
        assert posterior.given("zugrussgrt").mode() == "inland"
        assert posterior.given("maikenlemi").mode() == "coastal"
    assert write.score(language, text) > write.score(language[::-1], text)


def test_graphs_the_whole_way() -> None:
    """Rings and stars of atoms, with a tail."""
    rng = np.random.default_rng(0)

    def molecule(kind: str) -> nx.Graph:
        size = int(rng.integers(5, 9))
        graph = nx.cycle_graph(size) if kind == "ring" else nx.star_graph(size - 1)
        for extra in range(int(rng.integers(0, 3))):
            graph.add_edge(size + extra - 1, size + extra)
        nx.set_node_attributes(graph, {v: "CCN"[rng.integers(3)] for v in graph}, "label")
        return graph

    kinds = np.array(["ring", "star"])[rng.integers(0, 2, size=60)]
    sample = [molecule(kind) for kind in kinds]

    kernel = WeisfeilerLehman(iterations=2, label=None)
    one, same, other = (
        embed([molecule(kind) for _ in range(40)], kernel=kernel)
        for kind in ("ring", "ring", "star")
    )
    assert one.distance(other) > 2 * one.distance(same)

    read = ConditionalEmbedding(kernel, Delta()).fit(sample, kinds)
    assert read.given(molecule("star")).mode() == "star"
    assert_array_equal(read.given([molecule("ring"), molecule("star")]).mode(), ["ring", "star"])

    draw = ConditionalEmbedding(Delta(), kernel).fit(kinds, sample)
    typical = draw.given("ring").mode()
    assert isinstance(typical, nx.Graph) and max(dict(typical.degree()).values()) <= 3
    prior = embed(["ring", "star"], kernel=Delta(), weights=[0.3, 0.7])
    posterior = draw.posterior(prior)
    assert posterior.given(molecule("ring")).mode() == "ring"
    shares = posterior.expect(lambda kind: kind == "star", [molecule("star"), molecule("ring")])
    assert shares[0] > 0.5 > shares[1]


def test_mixed_tables_the_whole_way() -> None:
    """Wages from age and trade, and a table back from a wage."""
    rng = np.random.default_rng(0)

    def people(n: int) -> tuple[pd.DataFrame, np.ndarray]:
        age = rng.uniform(20, 60, size=n)
        trade = np.array(["baker", "pilot"])[rng.integers(0, 2, size=n)]
        wage = np.where(trade == "pilot", 60.0, 30.0) + 0.3 * (age - 40) + rng.normal(size=n)
        return pd.DataFrame({"age": age, "trade": trade}), wage[:, None]

    X, wage = people(300)
    everyone = embed(X)
    old = embed(X[X["age"] > 45], kernel=everyone.kernel)
    assert everyone.distance(old) > 3 * everyone.distance(embed(people(300)[0], everyone.kernel))

    forward = ConditionalEmbedding(Columns({"age": Gaussian(), "trade": Delta()})).fit(X, wage)
    new, truth = people(50)
    assert_allclose(forward.predict(new), truth, atol=6.0)
    assert forward.score(new, truth) > 0.95
    assert forward.given({"age": 50.0, "trade": "pilot"}).mean().round() == pytest.approx(63, abs=2)
    assert forward.given(new.iloc[0]).mean().shape == (1,)
    assert forward.given(new).mean().shape == (50, 1)

    backward = ConditionalEmbedding(kernel_y=Columns()).fit(wage, X)
    age, trade = backward.given([66.0]).mode()
    assert trade == "pilot" and age[0] > 45

    pilots = embed(X[X["trade"] == "pilot"], kernel=forward.kernel_x_)
    posterior = forward.posterior(pilots)
    age, trade = posterior.given([55.0]).mode()
    assert trade == "pilot" and age[0] < 40
    assert forward.posterior(X).given([25.0]).mode()[1] == "baker"
    assert isinstance(clone(forward).kernel_x, Columns)


def test_score_of_tables() -> None:
    """A frame as the target of `score` and `loss`, as it is of `fit`."""
    table = tables(np.random.default_rng(0), 30)
    x = table[["age"]].to_numpy(float)
    model = ConditionalEmbedding(kernel_y=Columns()).fit(x, table)
    assert model.score(x, table) > model.score(x, table[::-1].reset_index(drop=True))


def test_everything_is_public() -> None:
    for case in CASES.values():
        assert type(case.kernel).__name__ in kernels.__all__
        assert re.search("Examples\n", str(type(case.kernel).__doc__))
