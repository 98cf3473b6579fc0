"""Every domain, basis, decoder, file and stream: bad input is refused in words, laws hold."""

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
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge

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
    Polynomial,
    Trace,
    WeisfeilerLehman,
)
from meanmap.spaces import Basis, Explicit, Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))
TABLE = pd.DataFrame({"age": X[:, 0], "city": list("abcabcabcabc")})
WORDS = ["banana", "bandana", "cabana", "ananas"] * 3
GRAPHS = [nx.path_graph(3), nx.cycle_graph(4)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow in the arithmetic of absurd numbers is no news."""
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


# kernel, basis, points, and the pieces that the message must have: what was expected, what came,
# and what to do
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
    "matrices that are no permutations": (
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
        with pytest.raises(ValueError, match=r"no file of meanmap.*meanmap\.save wrote"):
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


# --- laws ----------------------------------------------------------------------------------------

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


# --- streams -------------------------------------------------------------------------------------

SPACE_X = Space(Gaussian(1.0), PivotedCholesky(tol=1e-8)).fit(X)
SPACE_Y = Space(Gaussian(1.0), PivotedCholesky(tol=1e-8)).fit(Y)


def conditional(rows: Any, **options: Any) -> ConditionalEmbedding:
    settings = {"regularization": 1e-2, "basis": (SPACE_X, SPACE_Y)} | options
    return ConditionalEmbedding(**settings).fit(X[rows], Y[rows])


@LAWS
@given(order=st.permutations(range(12)), cut=st.integers(1, 11), centered=st.booleans())
def test_merging_is_commutative(order: list[int], cut: int, centered: bool) -> None:
    left, right = order[:cut], order[cut:]
    ab = conditional(left, centered=centered).merge(conditional(right, centered=centered))
    ba = conditional(right, centered=centered).merge(conditional(left, centered=centered))
    whole = conditional(slice(None), centered=centered)
    for model in (ab, ba):
        assert_allclose(model.operator_.matrix, whole.operator_.matrix, atol=1e-10)
        assert_allclose(model.predict(X), whole.predict(X), atol=1e-10)
    streams = [
        RunningEmbedding(basis=SPACE_X)
        .partial_fit(X[a])
        .merge(RunningEmbedding(basis=SPACE_X).partial_fit(X[b]))
        for a, b in ((left, right), (right, left))
    ]
    truth = embed(X, basis=SPACE_X).coordinates
    for stream in streams:
        assert_allclose(stream.embedding_.coordinates, truth, atol=1e-10)


def test_merging_is_associative() -> None:
    a, b, c = (lambda rows=rows: conditional(rows) for rows in np.split(np.arange(12), [3, 8]))
    first, second = a().merge(b()).merge(c()), a().merge(b().merge(c()))
    assert_allclose(first.operator_.matrix, second.operator_.matrix, atol=1e-10)


APART: dict[str, tuple[Space, Space]] = {
    "labels in pivots": tuple(
        Space(Delta(), PivotedCholesky()).fit(list(names)) for names in ("abc", "bcd")
    ),
    "labels in features": tuple(
        Space(Delta(), Explicit()).fit(list(names)) for names in ("abc", "abd")
    ),
    "vectors that are moved": tuple(
        Space(Gaussian(1.0)).fit(np.arange(3.0)[:, None] + shift) for shift in (0, 10)
    ),
    "waves of another seed": tuple(
        Space(Gaussian(1.0), RandomFourier(10, random_state=seed)).fit([[0.0], [1.0]])
        for seed in (0, 1)
    ),
}


@pytest.mark.parametrize("name", APART)
def test_streams_of_different_coordinates_do_not_merge(name: str) -> None:
    left, right = (
        RunningEmbedding(space.kernel_, space).partial_fit(points)
        for space, points in zip(APART[name], map(sample_of, APART[name]), strict=True)
    )
    with pytest.raises(ValueError, match="different coordinates"):
        left.merge(right)


def sample_of(space: Space) -> Any:
    """A point that the space was fitted to."""
    return space.example_


@pytest.mark.parametrize("options", [{"regularization": 1.0}, {"centered": True}])
def test_models_of_other_settings_do_not_merge(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="regularization|centered|λ"):
        conditional(slice(0, 6)).merge(conditional(slice(6, 12), **options))


def test_only_models_merge() -> None:
    for other in (3, None, "a", Ridge().fit(X, Y), BELIEFS["vectors"], SPACE_X):
        with pytest.raises((TypeError, ValueError)):
            conditional(slice(0, 6)).merge(other)
        with pytest.raises((TypeError, ValueError)):
            RunningEmbedding(basis=SPACE_X).partial_fit(X).merge(other)


SPANNED: dict[str, tuple[Kernel, Basis, Any]] = {
    "labels": (Delta(), Explicit(), np.array(list("aaabbbabcccc"))),
    "strings": (NGrams(2), Explicit(), np.array(["abab", "baba"] * 3 + ["cacc", "accb"] * 3)),
    "waves": (Gaussian(1.0), RandomFourier(20, random_state=0), X),
}


@pytest.mark.parametrize("name", SPANNED)
def test_later_batches_bring_what_the_first_did_not_have(name: str) -> None:
    """Answers are those of the batch fit, though the first batch does not span the space of Y."""
    kernel, basis, points = SPANNED[name]
    space = Space(kernel, basis).fit(points)
    options: dict[str, Any] = {"regularization": 1e-2, "basis": (SPACE_X, space)}
    whole = ConditionalEmbedding(**options).fit(X, points)
    stream = ConditionalEmbedding(**options).fit(X[:4], points[:4])
    stream.partial_fit(X[4:], points[4:])
    assert_allclose(stream.given(X)(points), whole.given(X)(points), atol=1e-10)
    # and so do its weights on its atoms
    answer = stream.given(X)
    assert_allclose(
        answer.weights @ space.transform(answer.atoms) @ space.transform(points).T,
        whole.given(X)(points),
        atol=1e-8,
    )


def test_the_first_batch_of_a_stream_must_suit_the_space_it_is_given() -> None:
    for stream, words in [
        (RunningEmbedding(basis=SPACE_Y), "column|shape|coordinates"),  # X has two columns
        (RunningEmbedding(Gaussian(2.0), SPACE_X), "different kernels"),
        (RunningEmbedding(basis=Space()), "not fitted"),
        (RunningEmbedding(basis=(None, None, None)), "basis"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            stream.partial_fit(X)
        assert fitted_state(stream) == set()


def test_a_stream_of_three_variables_is_refused_before_anything_is_kept() -> None:
    stream = RunningEmbedding()
    with pytest.raises(ValueError, match="one or two"):
        stream.partial_fit((X, Y, Y))
    assert fitted_state(stream) == set()


def test_a_table_is_one_variable_of_a_stream() -> None:
    """`Columns` is a kernel on tables, though its points become tuples."""
    space = Space(Columns({"age": Gaussian(1.0), "city": Delta()})).fit(TABLE)
    stream = RunningEmbedding(basis=space)
    for batch in (TABLE[:5], TABLE[5:]):
        stream.partial_fit(batch)
    truth = embed(TABLE, basis=space)
    assert_allclose(stream.embedding_.coordinates, truth.coordinates, atol=1e-10)
