"""The kernels that every suite runs over: one row each, with points to try it on.

A new kernel is one more row of `KERNELS`, with its Gram matrix written out by hand. What else holds
for it (whether it has frequencies, features, points that only NumPy holds) is asked of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from meanmap import kernels
from meanmap.kernels import (
    Chordal,
    Columns,
    Constant,
    Delta,
    Energy,
    Expected,
    Function,
    Gaussian,
    GlobalAlignment,
    Hamming,
    Kernel,
    Laplace,
    Linear,
    Mallows,
    Matern,
    NGrams,
    Normal,
    OnEmbeddings,
    Polynomial,
    Precomputed,
    Radial,
    RationalQuadratic,
    Rough,
    ScikitLearn,
    Trace,
    Weighted,
    WeisfeilerLehman,
)
from meanmap.kernels.algebra import Product, Scaled, Sum
from meanmap.kernels.domains.whitened import Whitened
from oracles.kernels import laplace

Draw = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Case:
    """A kernel, points of its domain, and its Gram matrix by a formula (or in another test)."""

    kernel: Kernel
    draw: Draw
    gram: Callable[[Any, Any], np.ndarray] | None = None

    def points(self, n: int, seed: int = 0) -> Any:
        return self.draw(np.random.default_rng(seed), n)

    @property
    def on_objects(self) -> bool:
        """Whether points are strings or objects, which only NumPy holds."""
        return self.kernel.domain in ("strings", "graphs", "series", "bags")


def vectors(rng: np.random.Generator, n: int) -> np.ndarray:
    """Not centred: a kernel without a constant leaves the mass of an answer undetermined at 0."""
    return 1.0 + 0.5 * rng.normal(size=(n, 2))


def labels(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.concatenate([np.arange(3), rng.integers(0, 3, size=n - 3)])


def rows(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.stack([labels(rng, n), rng.integers(0, 2, size=n)], axis=1)


def rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    angle = rng.normal(0, 0.7, size=n)
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)


def shuffles(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(4)[np.array([rng.permutation(4) for _ in range(n)])]


def indices(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 20, size=n)


def words(rng: np.random.Generator, n: int) -> np.ndarray:
    sizes = rng.integers(4, 8, size=n)
    return SPECTRUM.check(["".join(rng.choice(list("abc"), size=size)) for size in sizes])


def molecules(rng: np.random.Generator, n: int) -> np.ndarray:
    """Random graphs whose nodes have labels."""
    graphs = [
        nx.gnp_random_graph(int(rng.integers(3, 6)), 0.5, int(rng.integers(99))) for _ in range(n)
    ]
    for graph in graphs:
        nx.set_node_attributes(graph, {node: "CO"[int(rng.integers(2))] for node in graph}, "label")
    return SUBTREES.check(graphs)


def series(rng: np.random.Generator, n: int) -> np.ndarray:
    return ALIGNMENT.check([rng.normal(size=(int(m), 1)) for m in rng.integers(3, 6, size=n)])


def bags(rng: np.random.Generator, n: int) -> np.ndarray:
    centres, sizes = rng.normal(size=(n, 2)), rng.integers(2, 5, size=n)
    pairs = zip(centres, sizes, strict=True)
    return EXPECTED.check([centre + rng.normal(size=(int(size), 2)) for centre, size in pairs])


def distributions(rng: np.random.Generator, n: int) -> np.ndarray:
    """Samples, weighted ones, and normal distributions."""
    found = list(bags(rng, n))
    for i, bag in enumerate(found):
        spread = [0.3, np.array([0.2, 0.5]), np.array([[0.5, 0.2], [0.2, 0.4]])][i % 3]
        if i % 2:
            found[i] = Normal(bag[0], spread)
        elif i % 4:
            found[i] = Weighted(bag, rng.uniform(0.1, 0.6, size=len(bag)))
    return EXPECTED.check(found)


def overlap(x: Any, y: Any) -> float:
    """A function of two points: the intersection kernel."""
    return float(sum(min(float(a) + 5, float(b) + 5) for a, b in zip(x, y, strict=True)))


def inner_products(A: Any, B: Any) -> Any:
    """A function of two sets of points."""
    return (A @ B.T + 1) ** 2


GRAM = laplace(*2 * (np.random.default_rng(3).normal(size=(20, 2)),), 1.0)

SPECTRUM, SUBTREES = NGrams(2), WeisfeilerLehman(1)
ALIGNMENT, EXPECTED = GlobalAlignment(4.0), Expected(Gaussian(1.0))

KERNELS: dict[str, Case] = {
    "gaussian": Case(Gaussian(0.8), vectors),
    "gaussian-median": Case(Gaussian(), vectors),
    "gaussian-columns": Case(Gaussian((0.5, 1.5)), vectors),
    "laplace": Case(Laplace(1.0), vectors),
    "matern-1/2": Case(Matern(0.5, 1.0), vectors),
    "matern-3/2": Case(Matern(1.5, 1.0), vectors),
    "matern-5/2": Case(Matern(2.5, 1.0), vectors),
    "rational-quadratic": Case(RationalQuadratic(1.5, 1.0), vectors),
    "polynomial": Case(Polynomial(2, 1.0), vectors),
    "linear": Case(Linear(), vectors),
    "constant": Case(Constant(2.0), vectors),
    "sum": Case(Laplace(1.0) + Linear(), vectors),
    "plus-constant": Case(Linear() + 1, vectors),
    "product": Case(Gaussian(1.0) * Polynomial(2), vectors),
    "scaled": Case(2.5 * Gaussian(0.8), vectors),
    "function": Case(Function(overlap), vectors),
    "function-vectorized": Case(Function(inner_products, vectorized=True), vectors),
    "delta": Case(Delta(), labels),
    "delta-rows": Case(Delta(), rows),
    "trace": Case(Trace(), rotations),
    "precomputed": Case(Precomputed(GRAM), indices),
    "pair": Case(Gaussian(0.8) @ Delta(), lambda rng, n: (vectors(rng, n), labels(rng, n))),
    "triple": Case(
        Laplace(1.0) @ Delta() @ (Trace() + 1),
        lambda rng, n: (vectors(rng, n), labels(rng, n), rotations(rng, n)),
    ),
    "energy": Case(Energy(), vectors),
    "scikit-learn": Case(ScikitLearn(RBF(0.8)), vectors),
    "hamming": Case(Hamming(1.5), rows),
    "agreement": Case(Hamming(form="agreement"), rows),
    "chordal": Case(Chordal(1.2), rotations),
    "mallows": Case(Mallows(2.0), shuffles),
    "columns": Case(
        Columns({"a": Gaussian(0.8), "b": Delta()}),
        lambda rng, n: (vectors(rng, n)[:, :1], labels(rng, n)),
    ),
    "spectrum": Case(SPECTRUM, words),
    "weisfeiler-lehman": Case(SUBTREES, molecules),
    "global-alignment": Case(ALIGNMENT, series),
    "expected": Case(EXPECTED, bags),
    "expected-distributions": Case(EXPECTED, distributions),
    "on-embeddings": Case(OnEmbeddings(Gaussian(1.0), Gaussian(0.5)), distributions),
    "whitened": Case(Whitened(Gaussian(0.8), np.zeros((1, 2)), np.full((1, 1), 0.6)), vectors),
}


def public_kernels() -> set[type[Kernel]]:
    """The kernels that the package shows, without the classes that they are made from."""
    found = [getattr(kernels, name) for name in kernels.__all__]
    found += [Product, Scaled, Sum, Whitened]  # made by operators and by spaces
    classes = {cls for cls in found if isinstance(cls, type) and issubclass(cls, Kernel)}
    return classes - {Kernel, Radial, Rough}
