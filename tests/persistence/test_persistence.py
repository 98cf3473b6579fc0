"""Files: exact round trips of everything, a golden file, and files that mean harm.

`python tests/persistence/test_persistence.py` writes the golden file of the current format. It is
written once per format: a file of an earlier version must go on loading.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as gp

from meanmap import ConditionalEmbedding, embed, kernels, spaces
from meanmap.arrays import is_array, to_numpy
from meanmap.kernels import (
    Constant,
    Delta,
    Function,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Polynomial,
    Precomputed,
    TensorProduct,
    Trace,
)
from meanmap.kernels.algebra import Product, Scaled, Sum
from meanmap.kernels.domains.whitened import Whitened
from meanmap.persistence import FORMAT, files, load, reading, save
from meanmap.persistence.classes import state_of
from meanmap.spaces import Explicit, PivotedCholesky, Space
from meanmap.streams import RunningEmbedding
from optional_packages import require

GOLDEN = Path(__file__).parents[1] / "data" / f"format-{FORMAT}.npz"

QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# --- the same, to the last bit --------------------------------------------------------------------


class Sameness:
    """Whether two objects are the same: types, bits, memory layout, and what is shared."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.alive: list[Any] = []

    def check(self, a: Any, b: Any, where: str = "obj") -> None:
        assert type(a) is type(b), where
        if a is None or isinstance(a, bool | int | str) and not isinstance(a, np.generic):
            assert a == b, where
            return
        if type(a) is float:
            assert np.float64(a).tobytes() == np.float64(b).tobytes(), where
            return
        if id(a) in self.pairs:
            assert self.pairs[id(a)] == id(b), f"{where} is no longer shared"
            return
        assert id(b) not in self.pairs.values(), f"{where} is shared, but was not"
        self.pairs[id(a)] = id(b)
        self.alive += [a, b]
        if isinstance(a, list | tuple):
            assert len(a) == len(b), where
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self.check(x, y, f"{where}[{i}]")
        elif isinstance(a, dict):
            assert list(a) == list(b), where
            self.check(list(a.values()), list(b.values()), where)
        elif isinstance(a, np.generic):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), where
        elif is_array(a):
            self.arrays(a, b, where)
        elif isinstance(a, nx.Graph):
            self.check(dict(a.graph), dict(b.graph), where)
            self.check(dict(a.nodes(data=True)), dict(b.nodes(data=True)), where)
            assert sorted(map(str, a.edges(data=True))) == sorted(map(str, b.edges(data=True)))
        else:
            mine, theirs = state_of(a), state_of(b)
            assert set(mine) == set(theirs), where
            for name in mine:
                self.check(mine[name], theirs[name], f"{where}.{name}")

    def arrays(self, a: Any, b: Any, where: str) -> None:
        assert a.dtype == b.dtype and a.shape == b.shape, where
        x, y = to_numpy(a), to_numpy(b)
        if x.dtype.kind in "OT":
            self.check(x.ravel().tolist(), y.ravel().tolist(), where)
            return
        assert x.tobytes() == y.tobytes(), where
        assert y.flags.writeable, where
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS"):
            assert y.flags[flag] or not x.flags[flag], f"{where} lost its layout"


def assert_same(a: Any, b: Any) -> None:
    Sameness().check(a, b)


def round_trip(obj: Any, folder: Path) -> Any:
    path = folder / "saved.npz"
    save(obj, path)
    return load(path)


# --- everything there is to save ------------------------------------------------------------------

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = np.stack([X[:, 0] + 0.3 * rng.normal(size=40), np.sin(X[:, 1])], axis=1)
LABELS = np.array(["rain", "sun", "fog"])[rng.integers(0, 3, size=40)]
DATES = np.datetime64("2024-02-28") + rng.integers(0, 3, size=40)
ANGLES = rng.normal(size=40)
ROTATIONS = np.stack(
    [np.cos(ANGLES), -np.sin(ANGLES), np.sin(ANGLES), np.cos(ANGLES)], axis=1
).reshape(-1, 2, 2)
QUERY, ROTATED = X[:5] + 0.01, ROTATIONS[:5]
GRAM = Laplace(1.0)(X)

# kernels that take arguments; all others are made without any
ARGUMENTS: dict[str, Callable[[type], Kernel]] = {
    "Precomputed": lambda cls: cls(GRAM),
    "TensorProduct": lambda cls: cls(Gaussian(1.0), Delta(), Trace() + 1),
    "Scaled": lambda cls: cls(Gaussian(), 0.1),
    "Sum": lambda cls: cls(Laplace(np.float64(0.3)), Constant(2)),
    "Product": lambda cls: cls(Gaussian((0.1, 1 / 3)), Polynomial(3, 0.5)),
    "Expected": lambda cls: cls(Gaussian()),
    "OnEmbeddings": lambda cls: cls(Gaussian(), Laplace(0.1)),
    "Whitened": lambda cls: cls(Gaussian(1.0), X[:3], np.eye(3) / 4),
    "ScikitLearn": lambda cls: cls(gp.RBF(0.5) + gp.WhiteKernel(0.1)),
    "Columns": lambda cls: cls({"size": Gaussian(), "colour": Delta()}),
}


def kernel_classes() -> dict[str, type[Kernel]]:
    found = {name: getattr(kernels, name) for name in kernels.__all__}
    found |= {cls.__name__: cls for cls in (Product, Scaled, Sum, Whitened)}
    return {
        name: cls
        for name, cls in found.items()
        if isinstance(cls, type) and issubclass(cls, Kernel) and name not in ("Kernel", "Function")
    }


def conditional(**options: Any) -> ConditionalEmbedding:
    return ConditionalEmbedding(**options).fit(X, Y)


def prior() -> Any:
    return embed(X[10:30] + 0.2, kernel=Gaussian(1.0))


def answers(model: Any, at: Any = QUERY) -> list[Any]:
    """What a conditional says."""
    given = model.given(at)
    return [given.weights, given.coordinates, given.mean(), given.std(), model.predict(at)]


def values(embedding: Any) -> list[Any]:
    """What an embedding says."""
    return [
        embedding.weights,
        embedding.coordinates,
        embedding.norm(),
        embedding.mean(),
        embedding(X[:3]),
    ]


def table(joint: Any) -> list[Any]:
    """What a joint embedding says."""
    return [joint.operator(), joint.operator(centered=True), joint.norm(), joint.weights]


def used(obj: Any, function: Callable[[Any], Any]) -> Any:
    """The object after it has been asked something, and may have kept the answer."""
    function(obj)
    return obj


def stream() -> ConditionalEmbedding:
    return ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0)).fit(X, Y).partial_fit(X + 0.1, Y)


Entry = tuple[Callable[[], Any], Callable[[Any], list[Any]]]

OBJECTS: dict[str, Entry] = {
    "space-unfitted": (
        lambda: Space(Gaussian(), PivotedCholesky(1e-6)),
        lambda s: [s.fit(X).rank_],
    ),
    "space-cholesky": (lambda: Space(Gaussian()).fit(X), lambda s: [s.transform(QUERY)]),
    "space-explicit": (
        lambda: Space(Polynomial(2) + 1, Explicit()).fit(X),
        lambda s: [s.transform(QUERY)],
    ),
    "space-labels": (lambda: Space().fit(LABELS), lambda s: [s.transform(LABELS[:4])]),
    "space-dates": (lambda: Space(Delta()).fit(DATES), lambda s: [s.transform(DATES[:4])]),
    "space-rotations": (lambda: Space(Trace()).fit(ROTATIONS), lambda s: [s.transform(ROTATED)]),
    "space-precomputed": (
        lambda: Space(Precomputed(GRAM)).fit(np.arange(20)),
        lambda s: [s.transform(np.arange(15, 25))],
    ),
    "space-pairs": (
        lambda: Space(Gaussian() @ Delta()).fit((X, LABELS)),
        lambda s: [s.transform((QUERY, LABELS[:5]))],
    ),
    "embedding": (lambda: embed(X), values),
    "embedding-placed": (lambda: used(embed(X), values), values),
    "embedding-weighted": (lambda: embed(X, Laplace(0.7), weights=X[:, 0] ** 2 - 0.1), values),
    "embedding-batch": (lambda: embed(X, Gaussian(1.0), weights=abs(X.T)), values),
    "embedding-labels": (lambda: embed(LABELS), lambda e: [e.weights, e.coordinates, e.norm()]),
    "embedding-float32": (lambda: embed(X.astype(np.float32)), values),
    "difference": (
        lambda: embed(X, Gaussian(1.0)) - embed(Y, Gaussian(1.0)),
        lambda e: [e.norm(), e.weights],
    ),
    "answer": (lambda: conditional().given(QUERY), values),
    "answer-single": (lambda: conditional().given(QUERY[0]), values),
    "answer-normalized": (lambda: conditional().given(QUERY).normalized(), values),
    "joint": (lambda: embed((X, Y)), table),
    "joint-used": (lambda: used(embed((X, LABELS), Gaussian() @ Delta()), table), table),
    "joint-batch": (lambda: embed((X, Y), weights=abs(X.T)), table),
    "joint-three": (lambda: embed((X, Y, X)), table),
    "covariance": (lambda: embed(X).covariance(), table),
    "chain-b": (lambda: conditional().joint(prior()), table),
    "chain-a": (lambda: conditional().joint(prior(), form="a"), table),
    "conditional": (conditional, answers),
    "conditional-used": (lambda: used(conditional(), answers), answers),
    "conditional-matrix": (lambda: used(conditional(), lambda m: m.operator_.matrix), answers),
    "conditional-centred": (lambda: conditional(centered=True), answers),
    "conditional-flat": (
        lambda: ConditionalEmbedding().fit(X, Y[:, 0]),
        lambda m: [m.predict(QUERY), m.score(X, Y[:, 0])],
    ),
    "conditional-unfitted": (
        lambda: ConditionalEmbedding(Gaussian(0.3), Delta(), 1e-3, PivotedCholesky(1e-6)),
        lambda m: [m.fit(X, LABELS).given(QUERY).weights],
    ),
    "conditional-labels": (
        lambda: ConditionalEmbedding(Delta(), Delta(), regularization=0).fit(LABELS, DATES),
        lambda m: [m.given(LABELS[:3]).coordinates],
    ),
    "conditional-weighted": (
        lambda: ConditionalEmbedding().fit(X, Y, sample_weight=abs(X[:, 0])),
        answers,
    ),
    "stream": (stream, answers),
    "stream-goes-on": (stream, lambda m: answers(m.partial_fit(Y, X))),
    "running": (
        lambda: RunningEmbedding(Gaussian(1.0)).partial_fit(X).partial_fit(Y),
        lambda r: values(r.partial_fit(X - 0.1).embedding_),
    ),
    "functional": (
        lambda: conditional().functional(lambda y: y[:, 0] > 0),
        lambda f: [f(QUERY)],
    ),
    "posterior-form-a": (
        lambda: conditional().posterior(prior(), "squared", form="a"),
        lambda p: answers(p),
    ),
    "posterior-before": (conditional, lambda m: answers(m.posterior(prior()))),
}
for _method in ("nonnegative", "importance", "squared", "reweighted"):
    OBJECTS[f"posterior-{_method}"] = (
        lambda method=_method: conditional().posterior(prior(), method),
        answers,
    )
    OBJECTS[f"posterior-{_method}-used"] = (
        lambda method=_method: used(conditional().posterior(prior(), method), answers),
        lambda p: [*answers(p), p.push(embed(Y, p.source.kernel_)).coordinates],
    )


# bases and kernels that came later: tested as soon as they are there
def later(
    module: Any, name: str, make: Callable[[Any], Any], ask: Callable[[Any], list[Any]]
) -> None:
    if hasattr(module, name):
        OBJECTS[f"{module.__name__.rpartition('.')[2]}-{name}"] = (
            lambda: make(getattr(module, name)),
            ask,
        )


WORDS = np.array(["kernel", "colonel", "mean", "meaning", "map", "maps", "embed", "embedding"])
GRAPHS = np.empty(6, dtype=object)
GRAPHS[:] = [nx.cycle_graph(3 + i) if i % 2 else nx.path_graph(3 + i) for i in range(6)]
for _graph in GRAPHS:
    nx.set_node_attributes(_graph, {node: "ab"[node % 2] for node in _graph}, "label")
SERIES = np.empty(6, dtype=object)
SERIES[:] = [np.sin(np.arange(4.0 + i))[:, None] for i in range(6)]

BAGS = [*SERIES, kernels.Normal([0.5], 0.2), kernels.Weighted(SERIES[0], np.arange(4.0))]

later(
    spaces,
    "Nystroem",
    lambda basis: Space(Gaussian(1.0), basis(10, random_state=0)).fit(X),
    lambda s: [s.transform(QUERY)],
)
later(
    spaces,
    "RandomFourier",
    lambda basis: Space(Gaussian(1.0), basis(20, random_state=0)).fit(X),
    lambda s: [s.transform(QUERY)],
)
later(
    kernels,
    "NGrams",
    lambda kernel: Space(kernel(2)).fit(WORDS),
    lambda s: [s.transform(WORDS[:3])],
)
later(
    kernels,
    "WeisfeilerLehman",
    lambda kernel: embed(GRAPHS, kernel(2)),
    lambda e: [e.weights, e.coordinates, e(GRAPHS[:2])],
)
later(
    kernels,
    "GlobalAlignment",
    lambda kernel: embed(SERIES, kernel(1.0)),
    lambda e: [e.coordinates, e(SERIES[:2])],
)
later(
    kernels,
    "Expected",
    lambda kernel: embed(SERIES, kernel(Gaussian(1.0))),
    lambda e: [e.coordinates, e(SERIES[:2])],
)
later(
    kernels,
    "OnEmbeddings",
    lambda kernel: embed(BAGS, kernel(Gaussian(1.0))),
    lambda e: [e.coordinates, e(BAGS[:3])],
)


@pytest.mark.parametrize("name", kernel_classes())
def test_every_kernel(name: str, tmp_path: Path) -> None:
    cls = kernel_classes()[name]
    make = ARGUMENTS.get(name, lambda cls: cls())
    kernel = make(cls)
    again = round_trip(kernel, tmp_path)
    assert again == kernel and repr(again) == repr(kernel)
    assert_same(kernel, again)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object(name: str, tmp_path: Path) -> None:
    """Every attribute bit for bit, what is shared shared, and every answer bit for bit."""
    make, ask = OBJECTS[name]
    obj = make()
    again = round_trip(obj, tmp_path)
    assert_same(obj, again)
    for mine, theirs in zip(ask(obj), ask(again), strict=True):
        assert_same(mine, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch(dtype: str, tmp_path: Path) -> None:
    torch = require("torch")
    tensors = [torch.asarray(array, dtype=getattr(torch, dtype)) for array in (X, Y, QUERY)]
    model = ConditionalEmbedding().fit(tensors[0], tensors[1])
    posterior = model.posterior(embed(tensors[0][:20]))
    again, posterior_again = round_trip((model, posterior), tmp_path)
    assert_same((model, posterior), (again, posterior_again))
    for mine, theirs in zip(answers(model, tensors[2]), answers(again, tensors[2]), strict=True):
        assert isinstance(theirs, torch.Tensor) and torch.equal(mine, theirs)
    mine, theirs = (p.given(tensors[2]).mean() for p in (posterior, posterior_again))
    assert torch.equal(mine, theirs)


def test_torch_layouts_and_gradients(tmp_path: Path) -> None:
    torch = require("torch")
    tensors = {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "strided": torch.arange(12)[::2],
        "gradient": torch.ones(3, requires_grad=True),
        "scalar": torch.tensor(2.5),
        "boolean": torch.tensor([True, False]),
    }
    again = round_trip(tensors, tmp_path)
    for name, tensor in tensors.items():
        assert torch.equal(again[name], tensor.detach()) and again[name].dtype == tensor.dtype
    assert again["transposed"].stride() == (1, 3)
    assert not again["gradient"].requires_grad
    with pytest.raises(TypeError, match="bfloat16|BFloat16"):
        save(torch.ones(2, dtype=torch.bfloat16), tmp_path / "half")


def test_without_torch_tensors_become_numpy_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = require("torch")
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-3)
    save(model.fit(torch.asarray(X), torch.asarray(Y)), tmp_path / "model")
    real = reading.importlib.import_module

    def without(name: str) -> Any:
        if name.endswith("torch"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(reading.importlib, "import_module", without)
    with pytest.warns(UserWarning, match="torch, which is not installed here"):
        again = load(tmp_path / "model")
    predicted = again.predict(QUERY)
    assert isinstance(predicted, np.ndarray)
    assert_allclose(predicted, to_numpy(model.predict(torch.asarray(QUERY))), rtol=1e-10)


def test_what_is_shared_stays_shared(tmp_path: Path) -> None:
    model = conditional()
    at = model.given(QUERY)
    loaded = round_trip({"model": model, "at": at, "prior": prior()}, tmp_path)
    again = loaded["model"]
    assert again.operator_.source is again.space_x_ is again.sides()[0].space
    assert again.operator_.atoms is again.sides()[1].points
    assert loaded["at"].space is again.space_y_
    # a distance between embeddings of one space is taken in its coordinates, as before
    assert loaded["at"].distance(again.given(QUERY)).tolist() == [0.0] * len(QUERY)


def test_coordinates_are_computed_before_they_are_written(tmp_path: Path) -> None:
    at = conditional().given(QUERY)
    assert callable(at._coordinates)
    again = round_trip(at, tmp_path)
    assert isinstance(again._coordinates, np.ndarray)
    assert at._coordinates.tobytes() == again._coordinates.tobytes()
    assert isinstance(again._weights, type(at._weights)) and not is_array(again._weights)


def test_what_computing_coordinates_leaves_behind_is_written_too(tmp_path: Path) -> None:
    """Coordinates of many answers make an operator keep its matrix, which later answers use."""
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-3).fit(X, Y)
    both = [model, model.given(X)]
    again = round_trip(both, tmp_path)
    assert "matrix" in vars(model.operator_)
    assert_same(both, again)
    for mine, theirs in zip(answers(model), answers(again[0]), strict=True):
        assert_same(mine, theirs)


def test_the_same_object_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(conditional(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_numpy_can_look_inside(tmp_path: Path) -> None:
    save(embed(X), tmp_path / "e.npz")
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        found = [arrays[name] for name in arrays.files if name.startswith("arrays/")]
    assert any(np.array_equal(array, X) for array in found)


# --- plain values ---------------------------------------------------------------------------------

PLAIN = {
    "nothing": None,
    "truth": [True, False],
    "numbers": [0, -1, 2**53, -(2**200), 10**5000, 0.1, -0.0, 5e-324, 1.7976931348623157e308],
    "special": [float("inf"), float("-inf"), float("nan")],
    "text": ["", "Grüße", "\ud800", "\x00", '"\\', "x" * 1000],
    "tuple": ((), (1, (2.5, "three")), [[]]),
    "dict": {1: "one", "1": "text", (1, ("a", None)): [1], 2.5: {}, None: 0, False: 1},
    "scalars": [
        np.float32(0.1),
        np.float64("nan"),
        np.int8(-3),
        np.bool_(True),
        np.str_("word"),
        np.str_(""),
        np.bytes_(b"\x00b"),
        np.datetime64("2024-01-01"),
        np.timedelta64("NaT", "s"),
        np.complex128(1 + 2j),
    ],
}

ARRAYS = {
    **{
        code: np.arange(6).astype(code).reshape(2, 3)
        for code in [*"?bhilqBHILQefdgFDGUS", ">f8", ">i4", ">U7", "M8[D]", "m8[ns]"]
    },
    "unicode": np.array([["Grüße", ""], ["日本", "\U0001f600"]]),
    "bytes": np.array([b"a", b"bcd"]),
    "dates": np.array(["2024-02-29", "NaT"], dtype="M8[25m]"),
    "nan": np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000000], dtype=np.uint64).view(float),
    "scalar": np.array(3.5),
    "empty": np.empty((0, 3)),
    "empty-objects": np.empty((0, 2), dtype=object),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "axes": np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
    "strided": np.arange(40.0).reshape(5, 8)[::2, 1::3],
    "fortran-strided": np.arange(40.0).reshape(5, 8)[:, :5].T,
    "backwards": np.arange(5)[::-1],
    "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
    "strings": np.array(["a", "long text" * 9], dtype=np.dtypes.StringDType()),
    "objects": np.array([["a", None], [1, 2.5]], dtype=object),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values(name: str, tmp_path: Path) -> None:
    assert_same(PLAIN[name], round_trip(PLAIN[name], tmp_path))


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str, tmp_path: Path) -> None:
    array = ARRAYS[name]
    assert_same(array, round_trip(array, tmp_path))


def test_layout_of_axes(tmp_path: Path) -> None:
    assert round_trip(ARRAYS["axes"], tmp_path).strides == ARRAYS["axes"].strides


@QUICK
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_any_plain_value(tmp_path: Path, value: Any) -> None:
    Unshared().check(value, round_trip(value, tmp_path))


class Unshared(Sameness):
    """Python shares equal constants as it likes (the empty tuple): only values are compared."""

    def check(self, a: Any, b: Any, where: str = "obj") -> None:
        self.pairs.clear()
        super().check(a, b, where)


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_graphs(kind: type, tmp_path: Path) -> None:
    graph = kind(name="a graph", year=2024)
    graph.add_node("a", label="C", charge=-0.5)
    graph.add_node(("b", 1), label=np.int64(3))
    graph.add_edge("a", ("b", 1), bond="double")
    graph.add_edge(("b", 1), 2)
    if graph.is_multigraph():
        graph.add_edge("a", ("b", 1), key="again", weight=2.5)
    array = np.empty(2, dtype=object)
    array[:] = [graph, graph]
    again = round_trip(array, tmp_path)
    assert again[0] is again[1]
    assert_same(graph, again[0])


def test_kernels_of_scikit_learn(tmp_path: Path) -> None:
    kernel = 2.0 * gp.RBF([1.0, 2.0]) + gp.WhiteKernel(0.1) * gp.Matern(nu=np.inf)
    again = round_trip(kernel, tmp_path)
    assert again == kernel and (again(X) == kernel(X)).all()


# --- what is refused ------------------------------------------------------------------------------


class MyKernel(Gaussian):
    """A class that a file cannot know."""


def _cycle() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


def _deep(levels: int) -> Any:
    kernel: Any = Gaussian(1.0)
    for _ in range(levels):
        kernel = 2.0 * kernel
    return kernel


@pytest.mark.parametrize(
    ("obj", "error", "words"),
    [
        (Function(min), TypeError, r"obj.function is a Python function \('min'\)"),
        (Space(lambda x, y: 0.0), TypeError, "obj.kernel is a Python function"),
        (Gaussian(1.0) + Function(max), TypeError, "obj.right.function .*Precomputed"),
        ({"a": [print]}, TypeError, r"obj\['a'\]\[0\] is a Python function"),
        (Gaussian, TypeError, "Python function"),
        (MyKernel(1.0), TypeError, "a class of your own"),
        (b"bytes", TypeError, "a bytes"),
        ({1, 2}, TypeError, "a set"),
        (1j, TypeError, "a complex"),
        (np.random.default_rng(0), TypeError, "integer seed"),
        (np.ma.masked_array([1.0]), TypeError, "MaskedArray"),
        (np.zeros(2, dtype=[("a", "f8")]), TypeError, "one array a field"),
        (np.array([print], dtype=object), TypeError, r"obj\[0\] is a Python function"),
        ({frozenset(): 1}, TypeError, "has a key"),
        ({Delta(): 1}, TypeError, "has a key"),
        (_cycle(), ValueError, r"obj\[1\] refers back"),
        (_deep(150), ValueError, "nested more than 100 deep"),
        (_deep(5000), ValueError, "nested more than 100 deep"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type | str) else "",
)
def test_what_cannot_be_saved(obj: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("before")
    for name in ("new", "there"):
        with pytest.raises(error, match=words):
            save(obj, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "before"


def test_as_deep_as_can_be(tmp_path: Path) -> None:
    kernel = _deep(99)
    assert_same(kernel, round_trip(kernel, tmp_path))


def test_depth_counts_along_what_is_shared(tmp_path: Path) -> None:
    tail = _deep(59)
    with pytest.raises(ValueError, match="nested more than 100"):
        save([tail, _wrapped(tail, 50)], tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def _wrapped(kernel: Any, levels: int) -> Any:
    for _ in range(levels):
        kernel = 2.0 * kernel
    return kernel


def test_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    save(embed(X), path)
    before, calls = path.read_bytes(), []
    write = np.lib.format.write_array

    def full(*arguments: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        save(conditional(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_where_files_go(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="expected the name of a file, got the folder"):
        save(Delta(), tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        save(Delta(), tmp_path / "nowhere" / "file")
    with pytest.raises(TypeError, match="expected a file name, got BytesIO"):
        save(Delta(), io.BytesIO())  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "missing")
    with pytest.raises(ValueError, match="not a regular file"):
        load(tmp_path)
    save(Delta(), str(tmp_path / "text path"))
    assert load(str(tmp_path / "text path")) == Delta()


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and modes of POSIX")
def test_links_pipes_and_modes(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    save(Delta(), target)
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600
    target.chmod(0o640)
    link.symlink_to(target)
    save(Linear(), link)
    assert link.is_symlink() and load(target) == Linear()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="a device or a pipe"):
        save(Delta(), pipe)
    with pytest.raises(ValueError, match="not a regular file"):
        load(pipe)


# --- files that are not ours ----------------------------------------------------------------------


class Bomb:
    """Runs when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def test_other_files(tmp_path: Path) -> None:
    path, fired = tmp_path / "file", tmp_path / "fired"
    bomb = pickle.dumps(Bomb(fired))
    path.write_bytes(bomb)
    with pytest.raises(ValueError, match=r"not a meanmap file: .* got a pickle"):
        load(path)
    np.save(path.with_suffix(".npy"), X)
    with pytest.raises(ValueError, match=r"a single .npy array"):
        load(path.with_suffix(".npy"))
    np.savez(path.with_suffix(".npz"), X=X, objects=np.array([Bomb(fired)], dtype=object))
    with pytest.raises(ValueError, match=r"an .npz of NumPy's own"):
        load(path.with_suffix(".npz"))
    for content, words in {
        b"": "got an empty file",
        b"hello, world": "something that starts with b'hello, w'",
        b"PK\x05\x06" + bytes(18): "an empty zip archive",
        b"PK\x03\x04 and then nothing": "cut short or damaged",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            load(path)
    assert not fired.exists()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with a bit of everything."""
    path = tmp_path_factory.mktemp("valid") / "file"
    save(small(), path)
    return path.read_bytes()


def small() -> list[Any]:
    graph = nx.path_graph(2)
    objects = np.empty(1, dtype=object)
    objects[0] = graph
    pair = embed((X[:3], LABELS[:3]), Gaussian(0.5) @ Delta())
    special = {("a", 1): float("nan"), "big": 2**70, "scalar": np.float32(0.5)}
    return [pair, pair.marginal(0), objects, special, np.array([True]), Space(Delta()).fit(LABELS)]


def load_bytes(content: bytes, folder: Path, **options: Any) -> Any:
    path = folder / "hostile"
    path.write_bytes(content)
    return load(path, **options)


def archive(
    manifest: Any, arrays: dict[str, bytes] | None = None, compress: int = zipfile.ZIP_STORED
) -> bytes:
    """A well-formed archive around anything."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compress) as file:
        text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        file.writestr("manifest.json", text)
        for name, content in (arrays or {}).items():
            file.writestr(name, content)
    return out.getvalue()


def taken_apart(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    return json.loads(members.pop("manifest.json")), members


def manifest(*nodes: Any, **changes: Any) -> dict[str, Any]:
    root = {"node": len(nodes) - 1}
    return {"format": "meanmap", "version": FORMAT, "root": root, "nodes": list(nodes)} | changes


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_taken_apart_and_put_together(valid: bytes, tmp_path: Path) -> None:
    assert_same(small(), load_bytes(archive(*taken_apart(valid)), tmp_path))


@pytest.mark.parametrize("part", range(30))
def test_cut_short(part: int, valid: bytes, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"hostile' (is cut short|is not a meanmap file|is damaged)"
    ):
        load_bytes(valid[: len(valid) * part // 30], tmp_path)


def test_one_byte_too_few_or_something_in_front(valid: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cut short"):
        load_bytes(valid[:-1], tmp_path)
    with pytest.raises(ValueError, match="not a meanmap file"):
        load_bytes(b"#!/bin/sh\n" + valid, tmp_path)


@QUICK
@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x03\x04", b"\x80\x04"]))
def test_random_bytes(tmp_path: Path, content: bytes, start: bytes) -> None:
    with pytest.raises(ValueError, match="hostile"):
        load_bytes(start + content, tmp_path)


@settings(QUICK, max_examples=250)
@given(st.data())
def test_flipped_bits(valid: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """A flipped bit is noticed, or it was in a field that does not matter (a date, a system)."""
    content = bytearray(valid)
    content[data.draw(st.integers(0, len(valid) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        again = load_bytes(bytes(content), tmp_path)
    except ValueError as error:
        assert "hostile" in str(error)
    else:
        assert_same(small(), again)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 60)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "0x1", "os:system", "meanmap:Embedding", "Graph", "<f8", "torch"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["node", "int", "float", "list", "tuple", "array", "object", "x"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=5,
)


@settings(QUICK, max_examples=300)
@given(st.data())
def test_edited_manifests(valid: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever stands in the manifest, it loads as data or is refused in words."""
    text, arrays = taken_apart(valid)
    place = data.draw(st.sampled_from(places(text)[1:]))
    inner: Any = text
    for key in place[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[place[-1]] = data.draw(JSON)
    else:
        del inner[place[-1]]
    try:
        load_bytes(archive(text, arrays), tmp_path)
    except ValueError as error:
        assert str(error).startswith(repr(str(tmp_path / "hostile"))), error


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "builtins:object",
        "subprocess:Popen",
        "posix:system",
        "sklearn.svm:SVC",
        "sklearn.base:BaseEstimator",
        "meanmap.persistence.files:os",
        "meanmap.persistence.files:Path",
        "meanmap.persistence:load",
        "meanmap.persistence.reading:Reader",
        "meanmap.conditional:BaseEstimator",
        "meanmap.arrays:ThreadPoolExecutor",
        "meanmap:DataWarning",
        "meanmap.__main__:Embedding",
        "meanmap..kernels:Gaussian",
        "meanmap.kernels:vectors.Gaussian",
        "meanmap/kernels:Gaussian",
        "meanmapx:Gaussian",
        "Gaussian",
        ":",
        "",
        None,
        3,
        ["meanmap", "Embedding"],
        {"os": "system"},
    ],
)
def test_classes_that_are_not_ours(name: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="asks for an object of class .*expected one of meanmap"):
        load_bytes(archive(manifest({"object": name, "state": {"cmd": "touch x"}})), tmp_path)


@pytest.mark.parametrize("name", ["meanmap.nothing:Gaussian", "meanmap.kernels.gone:Gaussian"])
def test_classes_of_another_version(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not have. Load it with the version"):
        load_bytes(archive(manifest({"object": name, "state": {}})), tmp_path)


@pytest.mark.parametrize(
    "name",
    ["__class__", "__dict__", "__init__", "__x", "resolve", "a b", "", "1", "a.b", "against"],
)
def test_attributes_that_are_none(name: str, tmp_path: Path) -> None:
    node = {"object": "meanmap.kernels:Gaussian", "state": {"bandwidth": 1.0, name: 2}}
    with pytest.raises(ValueError, match="gives Gaussian an attribute"):
        load_bytes(archive(manifest(node)), tmp_path)


def test_attributes_that_lack(tmp_path: Path) -> None:
    for name in ("meanmap.kernels.domains.whitened:Whitened", "meanmap.conditional.calculus:Side"):
        with pytest.raises(ValueError, match="lacks .* of a (Whitened|Side)"):
            load_bytes(archive(manifest({"object": name, "state": {}})), tmp_path)


def test_what_has_a_default_may_lack(tmp_path: Path) -> None:
    """Files of versions before a parameter or a field was added."""
    kernel = load_bytes(
        archive(manifest({"object": "meanmap.kernels:Delta", "state": {}})), tmp_path
    )
    assert kernel == Delta()
    basis = {"object": "meanmap.spaces:PivotedCholesky", "state": {}}
    assert load_bytes(archive(manifest(basis)), tmp_path) == PivotedCholesky()


@pytest.mark.parametrize("version", [0, -1, 2, 10**9, "1", 1.0, True, None, [1]])
def test_unknown_versions(version: Any, tmp_path: Path) -> None:
    newer = type(version) is int and version > FORMAT
    words = "which reads version 1. " + ("Upgrade meanmap" if newer else "There is no such version")
    with pytest.raises(ValueError, match=words):
        load_bytes(archive(manifest([], version=version)), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[]", "not a meanmap file"),
        (b'{"format": "other"}', "not a meanmap file"),
        (b"[" * 200_000, "is damaged"),
        (b'{"a":' * 100_000, "is damaged"),
        (b'{"format":"meanmap","version":' + b"1" * 5000 + b"}", "is damaged"),
        (json.dumps(manifest({"list": [float("nan")]})).encode(), "has NaN in manifest.json"),
    ],
    ids=range(9),
)
def test_manifests_that_are_none(text: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        load_bytes(archive(text), tmp_path)


CHAIN = [{"list": []}, *({"list": [{"node": i}]} for i in range(5000))]
DOUBLING = [{"tuple": []}, *({"tuple": [{"node": i}, {"node": i}]} for i in range(60))]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([{"list": [{"node": 0}]}], "refers to node 0 from node 0; expected an earlier one"),
        ([{"list": [{"node": 1}]}, {"list": [{"node": 0}]}], "refers to node 1 from node 0"),
        ([{"list": [{"node": -1}]}], "refers to node -1"),
        ([{"list": [{"node": True}]}], "refers to node True"),
        (CHAIN, "nests objects more than 100 deep"),
        ([*DOUBLING, {"dict": [[{"node": 60}, 1]]}], "a dict with a key that is a tuple"),
        ([{"list": [[[]]]}], "a list where a value is expected"),
        ([{"list": {}}], "where a list is expected"),
        ([{"list": []}, {"dict": [[{"node": 0}, 1]]}], "a dict with a key that is list"),
        ([{"dict": [[1, 2], [1, 3]]}], "the same key twice"),
        ([{"pickle": "gASV"}], "a node 0 that is none of list, tuple"),
        ([{}], "a node 0 that is none of"),
        ([7], "a node 0 that is none of"),
        ([{"list": [{"bytes": "00"}]}], "a value of kind 'bytes'"),
        ([{"list": [{"int": "zz"}]}], "is damaged"),
        ([{"array": 0}], "lacks the array 0"),
        ([{"array": "../../etc/passwd"}], "lacks the array"),
        ([{"objects": [1], "shape": [10**15]}], "shape .* for 1 entries"),
        ([{"objects": [], "shape": [0, 2**62, 2**62]}], "shape .* for 0 entries"),
        ([{"objects": [1], "shape": [-1, -1]}], "shape .* for 1 entries"),
        ([{"strings": [1], "shape": [1]}], "has int in an array of text"),
        ([{"scalar": "|O", "value": "00" * 8}], "expected plain data"),
        ([{"scalar": "|b1", "value": "02"}], "impossible entries"),
        ([{"scalar": "<f8", "value": "00"}], "has 1 bytes for a number"),
        ([{"graph": "read_gpickle", "attributes": 0, "nodes": [], "edges": []}], "a graph of kind"),
        (
            [
                {"dict": []},
                {
                    "graph": "Graph",
                    "attributes": {"node": 0},
                    "nodes": [],
                    "edges": [[1, 2, {"node": 0}]],
                },
            ],
            "an edge between nodes",
        ),
    ],
    ids=range(26),
)
def test_nodes_that_mean_harm(nodes: list[Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        load_bytes(archive(manifest(*nodes)), tmp_path)


HEADER = "{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an array in NumPy's format"),
        (pickle.dumps([1]), "not an array in NumPy's format"),
        (npy(HEADER.format("'|O'", False, "(1,)"), pickle.dumps([1])), "not plain data"),
        (npy(HEADER.format("[('a', '<f8')]", False, "(1,)"), bytes(8)), "not plain data"),
        (npy("__import__('os').system('true')"), "not plain data"),
        (npy("-" * 9000 + "1"), "not plain data"),
        (npy(HEADER.format("'<f8'", False, f"({10**17},)"), bytes(8)), "shape .* for 1 entries"),
        (npy(HEADER.format("'<f8'", False, "(0, 999999999999999999, 99)")), "for 0 entries"),
        (npy(HEADER.format("'<f8'", False, "(2,)"), bytes(8)), "shape .* for 1 entries"),
        (npy(HEADER.format("'<f8'", False, "(1,)"), bytes(9)), "1 bytes too many"),
        (npy(HEADER.format("'<U0'", False, "(9999999,)")), "expected plain data"),
        (npy(HEADER.format("'<f3'", False, "(1,)"), bytes(3)), "is damaged"),
        (npy(HEADER.format("'<M8[zz]'", False, "(1,)"), bytes(8)), "is damaged"),
        (npy(HEADER.format("'|b1'", False, "(1,)"), b"\x02"), "impossible entries"),
        (npy(HEADER.format("'<U1'", False, "(1,)"), b"\xff\xff\xff\x7f"), "impossible entries"),
        (npy(HEADER.format("'>U1'", False, "(1,)"), b"\x7f\xff\xff\xff"), "impossible entries"),
        (npy(HEADER.format("'|u1'", False, f"({'1, ' * 40})"), b"\x01"), "shape"),
    ],
    ids=range(17),
)
def test_arrays_that_mean_harm(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        load_bytes(archive(manifest({"array": 0}), {"arrays/0.npy": content}), tmp_path)


GOOD = npy(HEADER.format("'<f8'", False, "(1, 1)"), bytes(8))


def test_members(tmp_path: Path) -> None:
    node = manifest({"array": 0})
    assert load_bytes(archive(node, {"arrays/0.npy": GOOD}), tmp_path).tolist() == [[0.0]]
    for name in ("../evil.npy", "/etc/passwd", "arrays/../0.npy", "arrays/x.npy", "code.py"):
        with pytest.raises(ValueError, match="holds a member"):
            load_bytes(archive(node, {"arrays/0.npy": GOOD, name: GOOD}), tmp_path)
    with pytest.raises(ValueError, match="arrays that nothing uses"):
        load_bytes(archive(node, {"arrays/0.npy": GOOD, "arrays/1.npy": GOOD}), tmp_path)
    with pytest.raises(ValueError, match="lacks the array 0"):
        load_bytes(archive(manifest({"array": 0}, {"array": 0}), {"arrays/0.npy": GOOD}), tmp_path)
    for axes in ([0, 0], [1], [0, 1, 2], [5, 6]):
        with pytest.raises(ValueError, match="orders 2 axes"):
            load_bytes(
                archive(manifest({"array": 0, "axes": axes}), {"arrays/0.npy": GOOD}), tmp_path
            )
    with pytest.raises(ValueError, match="of the library 'os'"):
        load_bytes(
            archive(manifest({"array": 0, "library": "os"}), {"arrays/0.npy": GOOD}), tmp_path
        )
    with pytest.warns(UserWarning, match="Duplicate"):
        out = io.BytesIO(archive(node, {"arrays/0.npy": GOOD}))
        with zipfile.ZipFile(out, "a") as file:
            file.writestr("arrays/0.npy", GOOD)
    with pytest.raises(ValueError, match="holds 'arrays/0.npy' twice"):
        load_bytes(out.getvalue(), tmp_path)


def test_bombs(tmp_path: Path) -> None:
    """A file cannot take more memory than its size, and its size is limited."""
    zeros = npy(HEADER.format("'|u1'", False, f"({1 << 22},)"), bytes(1 << 22))
    bomb = archive(manifest({"array": 0}), {"arrays/0.npy": zeros}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 10_000
    with pytest.raises(ValueError, match="compressed; .*what unfolds is refused"):
        load_bytes(bomb, tmp_path)
    plain = archive(manifest({"array": 0}), {"arrays/0.npy": zeros})
    with pytest.raises(ValueError, match=r"has 4,194,\d+ bytes, more than max_bytes=1,000,000"):
        load_bytes(plain, tmp_path, max_bytes=1_000_000)
    assert load_bytes(plain, tmp_path).shape == (1 << 22,)
    # sizes that lie: 4 GiB in the table of contents
    content = bytearray(archive(manifest({"array": 0}), {"arrays/0.npy": GOOD}))
    start = content.rfind(b"PK\x01\x02")
    content[start + 20 : start + 28] = b"\xf0\xff\xff\xff" * 2
    with pytest.raises(ValueError, match=r"declares members of 4,294,967,\d+ bytes"):
        load_bytes(bytes(content), tmp_path)


def test_a_large_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_MANIFEST", 1000)
    with pytest.raises(ValueError, match="bytes of text, names and lists beside its arrays"):
        save(list(range(1000)), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="at most 1,000 for manifest.json"):
        load_bytes(archive(manifest({"list": list(range(1000))})), tmp_path)


def test_loading_runs_nothing(valid: bytes, tmp_path: Path) -> None:
    """No pickle, no eval, no process: the interpreter itself watches."""
    path = tmp_path / "file"
    path.write_bytes(valid)
    code = f"""
import sys, networkx, meanmap, meanmap.persistence
forbidden = ("pickle.", "exec", "compile", "os.", "subprocess.", "marshal.", "ctypes.", "socket.")
def watch(event, arguments):
    if watching and event.startswith(forbidden):
        print("forbidden", event)
watching = False
sys.addaudithook(watch)
meanmap.persistence.load({str(path)!r})  # imports what it needs: tables of characters
watching = True
made = meanmap.persistence.load({str(path)!r})
watching = False
print(len(made))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.stdout.split() == [str(len(small()))], done.stdout + done.stderr


# --- the golden file ------------------------------------------------------------------------------

SEEN = np.array([[0.0, 1.0], [1.0, 0.5], [2.0, -1.0], [3.0, 0.25], [4.0, 2.0], [5.0, 0.0]])
TARGET = np.array([[1.0], [1.5], [1.0], [3.25], [6.0], [5.0]])
WEATHER = np.array(["rain", "rain", "sun", "fog", "sun", "sun"])
ASKED = np.array([[0.5, 0.5], [3.5, 1.0]])


def golden() -> dict[str, Any]:
    """What the golden file holds: numbers written out, nothing random."""
    model = ConditionalEmbedding(Gaussian(2.0), Gaussian(1.5), regularization=0.01)
    model.fit(SEEN, TARGET)
    before = embed(SEEN[:4], Gaussian(2.0), weights=[0.1, 0.2, 0.3, 0.4])
    graph = nx.Graph([("a", "b")], name="edge")
    graph.nodes["a"]["label"] = 1
    return {
        "kernel": 2.0 * Gaussian((0.5, 1.5)) + Laplace(0.3) * Polynomial(2, 1.0) + 1,
        "tensor": TensorProduct(Gaussian(1.0), Delta()),
        "space": Space(Gaussian(2.0), PivotedCholesky(1e-12)).fit(SEEN),
        "labels": Space(Delta()).fit(WEATHER),
        "embedding": before,
        "batch": embed(SEEN, Gaussian(2.0), weights=np.eye(6)[:2]),
        "joint": embed((SEEN, WEATHER), Gaussian(2.0) @ Delta()),
        "model": model,
        "answer": model.given(ASKED),
        "importance": model.posterior(before, "importance", regularization=0.01),
        "squared": model.posterior(before, "squared", regularization=0.01),
        "reweighted": model.posterior(before, "reweighted", regularization=0.01),
        "plain": [None, True, -0.0, float("inf"), 2**70, "Grüße", ("a", {1: 0.1})],
        "dates": np.array(["2024-02-29", "NaT"], dtype="M8[D]"),
        "objects": np.array([graph, None, "text", np.float32(0.5)], dtype=object),
    }


def golden_numbers(held: dict[str, Any]) -> dict[str, Any]:
    """What the golden file's objects say."""
    return {
        "kernel": held["kernel"](SEEN[:1], SEEN[1:3])[0],
        "tensor": held["tensor"]((SEEN[:2], WEATHER[:2]))[0],
        "space": abs(held["space"].transform(ASKED) ** 2).sum(axis=1),
        "labels": held["labels"].transform(np.array(["fog"]))[0],
        "embedding": held["embedding"](ASKED),
        "batch": held["batch"].norm(),
        "joint": held["joint"].norm(),
        "model": held["model"].predict(ASKED)[:, 0],
        "answer": held["answer"].mean()[:, 0],
        **{
            method: held[method].given([[1.5]]).mean()[0]
            for method in ("importance", "squared", "reweighted")
        },
    }


def test_golden_file() -> None:
    """A file of this format from the day that it was made."""
    held = load(GOLDEN)
    numbers = golden_numbers(held)
    assert set(numbers) == set(GOLDEN_NUMBERS)
    for name, expected in GOLDEN_NUMBERS.items():
        assert_allclose(numbers[name], expected, rtol=1e-9, err_msg=name)
    assert held["model"].space_y_ is held["answer"].space is held["squared"].source
    assert_same(golden()["plain"], held["plain"])
    assert_same(golden()["dates"], held["dates"])
    assert_same(golden()["objects"][1:].tolist(), held["objects"][1:].tolist())
    assert dict(held["objects"][0].nodes(data=True)) == {"a": {"label": 1}, "b": {}}
    assert held["objects"][0].graph == {"name": "edge"}


GOLDEN_NUMBERS: dict[str, Any] = {
    "kernel": [1.3102013762327442, 1.0002758256186732],
    "tensor": [1.0, 0.5352614285189903],
    "space": [0.9909583047369144, 0.986192701381432],
    "labels": [1.0, 0.0, 0.0],
    "embedding": [0.6404309903094082, 0.6090958726439237],
    "batch": [1.0, 1.0],
    "joint": 0.5203643610165433,
    "model": [1.123160511829412, 4.814685047118543],
    "answer": [1.1231605118294126, 4.814685047118543],
    "importance": [1.2709605570051998, 0.1693549763337407],
    "squared": [1.58814877791093, -0.10731643133171029],
    "reweighted": [1.508083514285822, 0.1473195524234097],
}

if __name__ == "__main__":
    save(golden(), GOLDEN)
    for _name, _value in golden_numbers(load(GOLDEN)).items():
        print(f"    {_name!r}: {np.asarray(_value).tolist()},")


# --- files that are made to cost time or memory ---------------------------------------------------


def colliding(n: int) -> list[Any]:
    """Whole numbers that all have the hash 0."""
    return [{"int": hex(i * sys.hash_info.modulus)} for i in range(1, n + 1)]


@pytest.mark.parametrize(
    "node",
    [
        {"dict": [[key, 0] for key in colliding(50_000)]},
        {
            "graph": "Graph",
            "attributes": {"node": 0},
            "nodes": [[k, {"node": 0}] for k in colliding(50_000)],
            "edges": [],
        },
        {
            "graph": "MultiGraph",
            "attributes": {"node": 0},
            "nodes": [[0, {"node": 0}], [1, {"node": 0}]],
            "edges": [[0, 1, k, {"node": 0}] for k in colliding(50_000)],
        },
    ],
    ids=["dict", "nodes", "edges"],
)
def test_keys_with_one_hash(node: Any, tmp_path: Path) -> None:
    """Two megabytes of them took half a minute."""
    content = archive(manifest({"dict": []}, node))
    start = time.process_time()
    with pytest.raises(ValueError, match="different keys with one hash"):
        load_bytes(content, tmp_path)
    assert time.process_time() - start < 3


def test_a_few_keys_with_one_hash_are_read(tmp_path: Path) -> None:
    few = {i * sys.hash_info.modulus: i for i in range(16)}
    assert round_trip({**few, -1: "a", -2: "b"}, tmp_path) == {**few, -1: "a", -2: "b"}


def test_long_keys_used_often(tmp_path: Path) -> None:
    long = {"tuple": list(range(900))}
    dicts = [{"dict": [[{"node": 0}, 0]]}] * 20_000
    with pytest.raises(ValueError, match="long tuples as keys too often"):
        load_bytes(archive(manifest(long, *dicts)), tmp_path)


@pytest.mark.parametrize("node", [{"dict": []}, {"list": []}, {"tuple": [{"int": "0x1"}]}])
def test_memory_of_a_manifest(node: Any, tmp_path: Path) -> None:
    """Bounded before anything is built: empty dicts take 28 times their text."""
    content = archive(manifest(*([node] * 300_000)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"may take \d+.*more than max_bytes=10,000,000"):
            load_bytes(content, tmp_path, max_bytes=10_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(content)


def test_many_objects_of_one_class(tmp_path: Path) -> None:
    content = archive(manifest(*([{"object": "meanmap.kernels:Linear", "state": {}}] * 20_000)))
    start = time.process_time()
    load_bytes(content, tmp_path)
    assert time.process_time() - start < 3  # it was half a millisecond each


@pytest.mark.parametrize("limit", ["a", -1, 0, float("nan"), float("inf"), [1], True])
def test_limits_that_are_none(limit: Any, valid: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_bytes must be .*None for no limit"):
        load_bytes(valid, tmp_path, max_bytes=limit)


def test_no_limit(valid: bytes, tmp_path: Path) -> None:
    assert_same(load_bytes(valid, tmp_path, max_bytes=None), load_bytes(valid, tmp_path))


# --- what a killed process leaves -----------------------------------------------------------------

KILLED = """
import os, signal, sys
import numpy as np
from meanmap import persistence
from meanmap.persistence import files

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

files.os.fsync = kill
persistence.save([np.zeros(10)], sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_what_a_killed_process_leaves_is_removed(tmp_path: Path) -> None:
    target, other = tmp_path / "model.npz", tmp_path / "model"
    for path in (target, other):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert done.returncode == -9
    left = set(tmp_path.iterdir())
    assert len(left) == 2
    unlike = [".model.npz.tmp", ".model.npz.abc.tmp", "model.npz.tmp"]  # not names of ours
    for name in unlike:
        (tmp_path / name).write_text("kept")
    save([1.0], target)
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {*unlike, "model.npz"} == {p.name for p in left if ".npz" not in p.name}
    assert load(target) == [1.0]


def test_what_others_are_writing_stays_until_it_is_old(tmp_path: Path) -> None:
    alive = tmp_path / f".model.{files._machine()}-{os.getpid()}-{'a' * 16}.tmp"
    elsewhere = tmp_path / f".model.{'0' * 8}-{2**22 + 1}-{'b' * 16}.tmp"
    for path in (alive, elsewhere):
        path.write_text("half")
    save([1.0], tmp_path / "model")
    assert alive.exists() and elsewhere.exists()
    for path in (alive, elsewhere):
        os.utime(path, (0, 0))
    save([1.0], tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
