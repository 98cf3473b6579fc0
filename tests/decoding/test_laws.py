"""Quantiles, intervals, projections, herds and samples: laws that hold for any weights."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from meanmap import embed
from meanmap.kernels import (
    Columns,
    Delta,
    Expected,
    Gaussian,
    GlobalAlignment,
    Kernel,
    Laplace,
    Linear,
    Mallows,
    NGrams,
    Polynomial,
    WeisfeilerLehman,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))
TABLE = pd.DataFrame({"age": X[:, 0], "city": list("abcabcabcabc")})
WORDS = ["banana", "bandana", "cabana", "ananas"] * 3


def labelled(*labels: str) -> nx.Graph:
    """A path whose nodes have these labels."""
    graph = nx.path_graph(len(labels))
    nx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    return graph


LAWS = settings(max_examples=40, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10_000)


def belief(seed: int, kernel: Kernel | None = None) -> Any:
    """An embedding whose weights may be negative and sum to something positive."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    points = rng.normal(size=(n, 2)).round(int(rng.integers(1, 4)))  # with ties
    weights = rng.normal(0.5 / n, 1 / n, size=n)
    weights += (rng.uniform(0.2, 1.5) - weights.sum()) / n
    return embed(points, kernel=kernel or Gaussian(1.0), weights=weights)


@LAWS
@given(seed=SEEDS, q=st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_quantiles_are_monotone_and_inside_the_atoms(seed: int, q: list[float]) -> None:
    e = belief(seed)
    values = e.quantile(sorted(q))
    assert (np.diff(values, axis=0) >= 0).all()
    assert (values >= e.atoms.min(axis=0)).all() and (values <= e.atoms.max(axis=0)).all()
    for j in range(2):
        assert np.isin(values[:, j], e.atoms[:, j]).all()
    assert_array_equal(values[0], e.quantile(min(q)))
    # they go along with the points
    moved = embed(2 * e.atoms + 3, kernel=e.kernel, weights=e.weights)
    assert_array_equal(moved.quantile(sorted(q)), 2 * values + 3)


@LAWS
@given(seed=SEEDS, levels=st.lists(st.floats(0.01, 0.99), min_size=2, max_size=2))
def test_intervals_grow_with_their_level(seed: int, levels: list[float]) -> None:
    e = belief(seed)
    (low, high), (lower, higher) = (e.interval(level) for level in sorted(levels))
    assert (lower <= low).all() and (low <= high).all() and (high <= higher).all()


@LAWS
@given(seed=SEEDS, kernel=st.sampled_from([Gaussian(1.0), Laplace(0.5), Linear(), Polynomial(2)]))
def test_projections(seed: int, kernel: Kernel) -> None:
    """A probability, its own projection, and nearer than the clipped and normalised weights."""
    e = belief(seed, kernel)
    p = e.project()
    assert (p.weights >= 0).all()
    assert p.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert_array_equal(p.atoms, e.atoms)
    again = p.project()
    scale = np.sqrt(kernel.diagonal(e.atoms).max())
    assert again.distance(p) <= 1e-6 * scale
    clipped = np.maximum(e.weights, 0.0)
    clip = embed(e.atoms, kernel=kernel, weights=clipped / clipped.sum())
    slack = 1e-6 * scale
    assert e.distance(p) <= e.distance(clip) + slack
    # nor is any atom, or any mixture with the clipped weights, nearer
    middle = embed(e.atoms, kernel=kernel, weights=(p.weights + clip.weights) / 2)
    assert e.distance(p) <= e.distance(middle) + slack


def among(points: Any, atoms: Any) -> bool:
    """Whether every point is one of the atoms, pairs as pairs."""
    if isinstance(atoms, tuple):
        rows = [list(map(repr, zip(*part, strict=True))) for part in (points, atoms)]
    else:
        rows = [
            [repr(p.tolist() if isinstance(p, np.ndarray) else p) for p in part]
            for part in (points, atoms)
        ]
    return set(rows[0]) <= set(rows[1])


DOMAINS: dict[str, Any] = {
    "vectors": embed(X, kernel=Gaussian(1.0), weights=np.linspace(-0.1, 0.3, 12)),
    "labels": embed(np.array(list("aabbbc")), kernel=Delta()),
    "strings": embed(WORDS, kernel=NGrams(2)),
    "graphs": embed([labelled(*pair) for pair in ["CO", "CC", "OO"]], kernel=WeisfeilerLehman(1)),
    "series": embed([np.arange(3.0), np.ones(4), np.zeros(2)], kernel=GlobalAlignment(2.0)),
    "bags": embed([X[:3], X[3:5], X[5:]], kernel=Expected(Gaussian(1.0))),
    "permutations": embed(np.eye(3)[[[0, 1, 2], [1, 0, 2], [2, 1, 0]]], kernel=Mallows(1.0)),
    "tables": embed(TABLE, kernel=Columns()),
    "pairs": embed((X, Y)),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_herds_and_samples_are_atoms(name: str) -> None:
    e = DOMAINS[name]
    for points in (e.sample(7, rng=0), e.herd(7)):
        points = e.kernel.check(points, "points", e.atoms)
        assert all(len(part) == 7 for part in (points if isinstance(points, tuple) else (points,)))
        assert among(points, e.atoms)
        assert np.isfinite(embed(points, kernel=e.kernel).distance(e))
    # a herd of many is near; a zero weight is never drawn
    near = embed(e.herd(60), kernel=e.kernel).distance(e.project())
    peak = np.sqrt(e.kernel.diagonal(e.atoms).max())
    assert near <= 0.2 * peak + e.distance(e.project())


@LAWS
@given(seed=SEEDS)
def test_what_has_no_weight_is_never_drawn(seed: int) -> None:
    e = belief(seed)
    weighs = e.atoms[e.weights > 0]
    assert among(e.sample(20, rng=seed), weighs)
