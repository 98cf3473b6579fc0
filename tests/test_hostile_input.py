"""Every domain, basis, decoder, file and stream: bad and hostile input is refused in words."""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from meanmap import ConditionalEmbedding, embed, load, save
from meanmap.kernels import (
    Chordal,
    Columns,
    Delta,
    Energy,
    Expected,
    Gaussian,
    GlobalAlignment,
    Hamming,
    Kernel,
    Laplace,
    Linear,
    Mallows,
    NGrams,
    Trace,
    WeisfeilerLehman,
)
from meanmap.spaces import Basis, Explicit, Nystroem, RandomFourier, Space
from meanmap.streams import RunningEmbedding

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))
TABLE = pd.DataFrame({"age": X[:, 0], "city": list("abcabcabcabc")})
WORDS = ["banana", "bandana", "cabana", "ananas"] * 3
GRAPHS = [nx.path_graph(3), nx.cycle_graph(4)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow is expected in arithmetic with absurd numbers."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


# --- bad input: refused in words, nothing half-done ----------------------------------------------


def labelled(*labels: Any) -> nx.Graph:
    """A path whose nodes have these labels; None leaves one out."""
    graph = nx.path_graph(len(labels))
    known = {node: label for node, label in enumerate(labels) if label is not None}
    nx.set_node_attributes(graph, known, "label")
    return graph


# kernel, basis, points, and the pieces that the message must have: what was expected, what was
# given, and what to do
REFUSED: dict[str, tuple[Kernel, Basis | None, Any, list[str]]] = {
    "numbers for a string kernel": (NGrams(2), None, X, ["string", "X"]),
    "whole numbers for a string kernel": (NGrams(2), None, [1, 2, 3], ["string", "X"]),
    "a number among strings": (NGrams(2), None, ["a", 2.0, "b"], ["string", "X"]),
    "one string for many": (NGrams(2), None, "banana", ["string", "list"]),
    "a missing string": (NGrams(2), None, ["a", None], ["string", "X"]),
    "a graph without labels": (WeisfeilerLehman(), None, GRAPHS, ["label"]),
    "a node without a label": (
        WeisfeilerLehman(),
        None,
        [labelled("C", "O"), labelled("C", None)],
        ["label", "[1]"],
    ),
    "numbers for a graph kernel": (WeisfeilerLehman(label=None), None, X, ["graph"]),
    "strings for a graph kernel": (WeisfeilerLehman(label=None), None, WORDS, ["graph"]),
    "a column without a kernel": (
        Columns({"age": Gaussian(1.0)}),
        None,
        TABLE,
        ["'city'", "does not name", "drop"],
    ),
    "a column that is not there": (
        Columns({"age": Gaussian(1.0), "city": Delta(), "size": None}),
        None,
        TABLE,
        ["'size'", "lacks"],
    ),
    "an array for a table": (Columns({"age": None}), None, X, ["DataFrame"]),
    "more landmarks than points": (
        Gaussian(1.0),
        Nystroem(13),
        X,
        ["13 landmarks", "12 points", "PivotedCholesky"],
    ),
    "more landmarks than points, randomly pivoted": (
        Gaussian(1.0),
        Nystroem(13, sampling="rpcholesky"),
        X,
        ["13 landmarks", "12 points"],
    ),
    "more landmarks than strings": (NGrams(2), Nystroem(13), WORDS, ["13", "12"]),
    "landmarks of another kind": (
        Gaussian(1.0),
        Nystroem(landmarks=np.ones((3, 5))),
        X,
        ["landmarks", "5", "2"],
    ),
    "k-means of strings": (NGrams(2), Nystroem(3, sampling="kmeans"), WORDS, ["vectors"]),
    "Fourier features of strings": (NGrams(2), RandomFourier(10), WORDS, ["Nystroem"]),
    "an odd number of waves": (Gaussian(1.0), RandomFourier(7), X, ["even", "7"]),
    "features that are not there": (Hamming(1.0), Explicit(), WORDS, ["PivotedCholesky"]),
    "matrices that are not permutations": (
        Mallows(1.0),
        None,
        np.full((3, 2, 2), 0.5),
        ["permutation"],
    ),
    "vectors for a kernel on matrices": (Chordal(1.0), None, X, ["(n"]),
    "an empty series": (GlobalAlignment(1.0), None, [np.ones(3), np.ones(0)], ["X[1]"]),
    "series of other coordinates": (
        GlobalAlignment(1.0),
        None,
        [np.ones((3, 1)), np.ones((3, 2))],
        ["X"],
    ),
    "an empty bag": (Expected(Gaussian(1.0)), None, [np.ones((3, 1)), np.ones((0, 1))], ["X[1]"]),
    "NaN in a bag": (
        Expected(Gaussian(1.0)),
        None,
        [np.ones((3, 1)), np.full((2, 1), np.nan)],
        ["X[1]", "NaN"],
    ),
}


def fitted_state(model: Any) -> set[str]:
    return set(vars(model)) - set(model.get_params(deep=False))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    kernel, basis, points, words = REFUSED[name]
    target = np.zeros((len(points), 1))
    attempts: list[tuple[Any, tuple[Any, ...]]] = [
        (Space(kernel, basis), (points,)),
        (ConditionalEmbedding(kernel, Linear(), 1e-2, basis=(basis, None)), (points, target)),
        (RunningEmbedding(kernel, basis), (points,)),
    ]
    for model, arguments in attempts:
        with pytest.raises((ValueError, TypeError)) as caught:
            model.fit(*arguments)
        text = str(caught.value)
        assert all(word in text for word in words), text
        assert fitted_state(model) == set(), f"{type(model).__name__} is half fitted"


def test_a_refused_refit_leaves_the_earlier_fit_as_it_was() -> None:
    model = ConditionalEmbedding(NGrams(2), Linear(), 1e-2).fit(WORDS, Y)
    before = model.predict(WORDS)
    for again in (model.fit, model.partial_fit):
        with pytest.raises((ValueError, TypeError), match="string"):
            again(X, Y)
        assert_array_equal(model.predict(WORDS), before)


def test_queries_of_another_kind_are_refused() -> None:
    graphs = [labelled(*pair) for pair in ["CO", "CC", "OO"]]
    word = embed(WORDS, kernel=NGrams(2))
    graph = embed(graphs, kernel=WeisfeilerLehman(1))
    table = embed(TABLE, kernel=Columns())
    for e, queries in [
        (word, [X, [1, 2], 3.0, graphs]),
        (graph, [GRAPHS, GRAPHS[0], X, WORDS, "C"]),
        (table, [TABLE[["age"]], TABLE.assign(size=1.0), X]),
    ]:
        for x in queries:
            with pytest.raises((ValueError, TypeError)) as caught:
                e(x)
            assert len(str(caught.value)) > 20


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    np.savez(tmp_path / "plain.npz", a=X)
    contents = {
        "pickle": pickle.dumps({"a": 1}),
        "npz": (tmp_path / "plain.npz").read_bytes(),
        "text": b"age,city\n31,Oslo\n",
        "nothing": b"",
    }
    for content in contents.values():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not a meanmap file.*meanmap\.save wrote"):
            load(path)
    with pytest.raises(FileNotFoundError, match="no file"):
        load(tmp_path / "nowhere")


def test_what_cannot_be_saved_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(Gaussian(0.5), path)
    before = path.read_bytes()
    model = ConditionalEmbedding(lambda a, b: float(a @ b), Linear(), 1e-2).fit(X, Y)
    for obj in (model, object(), [X, open], {"a": {1, 2}}):
        with pytest.raises((TypeError, ValueError)):
            save(obj, path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model.npz"]
    assert load(path) == Gaussian(0.5)


# --- hostile input: a result, or a refusal as of bad input ---------------------------------------

HOSTILE = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
NUMBERS = st.one_of(
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e300, -1e300, 1e154, 1e-154, 1.0, 10**400]),
)
ARRAYS = st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U3", "S2", "M8[s]"]).flatmap(
    lambda dtype: hnp.arrays(
        dtype=dtype, shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)
OBJECTS = st.one_of(
    ARRAYS,
    NUMBERS,
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.integers(-5, 50),
    st.lists(st.one_of(NUMBERS, st.none(), st.text(max_size=2)), max_size=4),
    st.lists(st.lists(NUMBERS, max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.tuples(ARRAYS, ARRAYS),
    st.sampled_from([(), object(), Gaussian, X, Y, WORDS, GRAPHS, TABLE, np.ma.array([1.0])]),
)


def outcome(act: Callable[[], Any]) -> Any:
    """A result, or None where the input was refused as bad input is."""
    try:
        return act()
    except (ValueError, TypeError) as error:
        assert str(error)
        return None


BELIEFS = {
    "vectors": embed(X, kernel=Gaussian(1.0)),
    "signed": embed(X, kernel=Laplace(1.0), weights=np.linspace(-0.5, 1.0, 12)),
    "batch": embed(X, kernel=Gaussian(1.0), weights=np.abs(RNG.normal(size=(3, 12)))),
    "words": embed(WORDS, kernel=NGrams(2)),
    "table": embed(TABLE, kernel=Columns()),
    "matrices": embed(RNG.normal(size=(5, 2, 2)), kernel=Trace()),
}


@HOSTILE
@given(value=OBJECTS, name=st.sampled_from(sorted(BELIEFS)))
def test_hostile_questions(value: Any, name: str) -> None:
    e = BELIEFS[name]
    for ask in (
        e.quantile,
        e.interval,
        e.density,
        lambda x: e.density(X[:2], bandwidth=x),
        lambda x: e.sample(3, rng=x),
        lambda x: e.mode(candidates=x),
    ):
        outcome(lambda ask=ask: ask(value))
    if not isinstance(value, int) or value < 100:  # a count may be large, and then memory is short
        outcome(lambda: e.sample(value, rng=0))
        outcome(lambda: e.herd(value))


@HOSTILE
@given(points=OBJECTS, weights=st.one_of(st.none(), OBJECTS))
def test_hostile_beliefs(points: Any, weights: Any) -> None:
    e = outcome(lambda: embed(points, weights=weights))
    if e is not None:
        for ask in (
            lambda: e.quantile([0.1, 0.5]),
            e.interval,
            e.project,
            lambda: e.sample(3, rng=0),
            lambda: e.herd(3),
            lambda: e.density(e.atoms),
        ):
            outcome(ask)


def test_whole_numbers_beyond_all_floats_are_refused() -> None:
    huge, e = 10**400, BELIEFS["vectors"]
    for act in (
        lambda: e.quantile(huge),
        lambda: e.interval(huge),
        lambda: e.density([huge, 0]),
        lambda: e.density(X, bandwidth=huge),
        lambda: e([huge, 0]),
        lambda: e.mode(candidates=[[huge, 0]]),
        lambda: embed([[huge]]),
        lambda: embed(X[:1], weights=[huge]),
    ):
        with pytest.raises((ValueError, TypeError)):
            act()


SHAPED = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n, 2), elements=st.floats(width=64)),
        hnp.arrays(np.float64, n, elements=st.floats(width=64)),
    )
)


@HOSTILE
@given(sample=SHAPED)
def test_hostile_numbers_of_the_right_shape(sample: Any) -> None:
    points, weights = sample
    e = outcome(lambda: embed(points, weights=weights))
    if e is not None:
        for ask in (e.interval, lambda: e.sample(3, rng=0), lambda: e.herd(3)):
            outcome(ask)
        p = outcome(e.project)
        if p is not None:
            assert (p.weights >= 0).all() and p.weights.sum() == pytest.approx(1.0)


KERNELS = st.sampled_from(
    [
        None,
        Gaussian(),
        Delta(),
        Hamming(),
        Energy(),
        Linear(),
        Trace(),
        Chordal(),
        Mallows(),
        NGrams(2),
        WeisfeilerLehman(1),
        GlobalAlignment(),
        Expected(Gaussian()),
        Columns(),
        Gaussian() @ Delta(),
    ]
)
STREAMS: dict[str, Callable[[], Any]] = {
    "vectors": lambda: ConditionalEmbedding(Gaussian(1.0), Linear(), 1e-2).fit(X, Y),
    "words": lambda: ConditionalEmbedding(NGrams(2), Delta(), 1e-2).fit(WORDS, WORDS),
    "table": lambda: ConditionalEmbedding(Columns(), Linear(), 1e-2).fit(TABLE, Y),
}


@HOSTILE
@given(x=OBJECTS, y=OBJECTS, w=st.one_of(st.none(), OBJECTS), name=st.sampled_from(list(STREAMS)))
def test_hostile_batches(x: Any, y: Any, w: Any, name: str) -> None:
    """A batch is added, or refused and then nothing has changed."""
    model, other = STREAMS[name](), STREAMS[name]()
    if outcome(lambda: model.partial_fit(x, y, sample_weight=w)) is None:
        assert_array_equal(model.operator_.matrix, other.operator_.matrix)
        assert fitted_state(model) >= fitted_state(other)
    outcome(lambda: other.merge(x))


@HOSTILE
@given(first=OBJECTS, second=OBJECTS, w=st.one_of(st.none(), OBJECTS), kernel=KERNELS)
def test_hostile_streams(first: Any, second: Any, w: Any, kernel: Any) -> None:
    stream = RunningEmbedding(kernel)
    if outcome(lambda: stream.partial_fit(first, sample_weight=w)) is None:
        assert fitted_state(stream) == set()
        return
    before = stream.total_
    if outcome(lambda: stream.partial_fit(second)) is None:
        assert stream.total_ == before
    outcome(lambda: stream.embedding_)


@HOSTILE
@given(obj=OBJECTS, path=st.one_of(st.none(), st.integers(), st.binary(max_size=3)))
def test_hostile_objects_and_paths(obj: Any, path: Any) -> None:
    outcome(lambda: save(Gaussian(1.0), path))
    outcome(lambda: load(path))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        try:
            save(obj, file)
        except (ValueError, TypeError) as error:
            assert str(error) and os.listdir(folder) == []
        else:
            load(file)


@HOSTILE
@given(content=st.binary(max_size=60), start=st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY"]))
def test_hostile_files(content: bytes, start: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(start + content)
        with pytest.raises(ValueError, match=r"file"):
            load(file)
