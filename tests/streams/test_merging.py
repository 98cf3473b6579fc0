"""Streams and models that are merged: in any order, and only where coordinates are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Columns, Delta, Gaussian, Kernel, NGrams
from meanmap.spaces import Basis, Explicit, PivotedCholesky, RandomFourier, Space
from meanmap.streams import RunningEmbedding

LAWS = settings(max_examples=40, deadline=None, derandomize=True)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))
TABLE = pd.DataFrame({"age": X[:, 0], "city": list("abcabcabcabc")})


def fitted_state(model: Any) -> set[str]:
    return set(vars(model)) - set(model.get_params(deep=False))


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
    for other in (3, None, "a", Ridge().fit(X, Y), embed(X, kernel=Gaussian(1.0)), SPACE_X):
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
