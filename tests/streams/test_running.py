"""Streams: batches add up to what one pass over all rows gives."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from meanmap import ConditionalEmbedding, embed, load, save
from meanmap.conditional import fitting
from meanmap.embeddings.element import Deferred
from meanmap.kernels import Delta, Gaussian, Linear, Polynomial, Trace
from meanmap.spaces import Nystroem, PivotedCholesky, Space
from meanmap.streams import RunningEmbedding, feed

BATCHES = 5


def sample(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    Y = X @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.3 * rng.normal(size=(n, 2))
    return X, Y, rng.uniform(0.2, 2.0, size=n)


def spaces(X: np.ndarray, Y: np.ndarray) -> tuple[Space, Space]:
    basis = PivotedCholesky(1e-8)
    return Space(Gaussian(1.5), basis).fit(X[:100]), Space(Gaussian(1.5), basis).fit(Y[:100])


@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
def test_batches_add_up_to_one_fit(weighted: bool, centered: bool) -> None:
    X, Y, w = sample()
    w = w if weighted else None
    model = {"regularization": 1e-3, "basis": spaces(X, Y), "centered": centered}
    whole = ConditionalEmbedding(**model).fit(X, Y, w)
    parts = ConditionalEmbedding(**model)
    for rows in np.array_split(np.arange(len(X)), BATCHES):
        parts.partial_fit(X[rows], Y[rows], None if w is None else w[rows])
    at = np.random.default_rng(1).normal(size=(20, 2))
    assert_allclose(parts.operator_.matrix, whole.operator_.matrix, atol=1e-10)
    assert_allclose(parts.given(at).coordinates, whole.given(at).coordinates, atol=1e-10)
    assert_allclose(parts.predict(at), whole.predict(at), atol=1e-10)
    prior = embed(X[:50] + 0.3)
    assert_allclose(parts.push(prior).coordinates, whole.push(prior).coordinates, atol=1e-10)


def test_merged_streams_are_one_stream() -> None:
    X, Y, w = sample()
    basis = spaces(X, Y)
    whole = ConditionalEmbedding(regularization=1e-3, basis=basis).fit(X, Y, w)
    left = ConditionalEmbedding(regularization=1e-3, basis=basis).fit(X[:120], Y[:120], w[:120])
    right = ConditionalEmbedding(regularization=1e-3, basis=basis).fit(X[120:], Y[120:], w[120:])
    merged = left.merge(right)
    assert_allclose(merged.operator_.matrix, whole.operator_.matrix, atol=1e-10)
    assert_allclose(merged.predict(X[:5]), whole.predict(X[:5]), atol=1e-10)


def test_streams_of_different_coordinates_do_not_merge() -> None:
    X, Y, _ = sample()
    left = ConditionalEmbedding(regularization=1e-3).fit(X[:120], Y[:120])
    right = ConditionalEmbedding(regularization=1e-3).fit(X[120:], Y[120:])
    with pytest.raises(ValueError, match=r"different coordinates.*basis="):
        left.merge(right)


def test_the_answers_of_a_stream_are_embeddings_on_points_that_span_the_space() -> None:
    X, Y, _ = sample(600)
    model = ConditionalEmbedding(regularization=1e-3).fit(X[:300], Y[:300])
    whole = ConditionalEmbedding(regularization=1e-3, basis=(model.space_x_, model.space_y_)).fit(
        X, Y
    )
    model.partial_fit(X[300:], Y[300:])
    answer, truth = model.given(X[:3]), whole.given(X[:3])
    assert len(answer.atoms) == model.space_y_.rank_
    # the element and its atoms say the same
    at = np.random.default_rng(2).normal(size=(10, 2))
    from_atoms = answer.weights @ answer.kernel(answer.atoms, at)
    assert_allclose(answer(at), from_atoms, atol=1e-6)
    assert_allclose(answer(at), truth(at), atol=1e-8)
    assert_allclose(answer.mean(), truth.mean(), atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["importance", "squared", "reweighted"])
def test_the_posterior_of_a_stream_stands_on_a_sample_of_its_rows(method: str) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6000, 1))
    Y = X + 0.5 * rng.normal(size=(6000, 1))
    model = ConditionalEmbedding(regularization=1e-4).fit(X[:1000], Y[:1000])
    for rows in np.array_split(np.arange(1000, 6000), BATCHES):
        model.partial_fit(X[rows], Y[rows])
    posterior = model.posterior(
        rng.normal(0.5, 0.5, size=(1000, 1)), method, 1e-3 if method != "squared" else 1e-6
    )
    # prior N(.5, .25), likelihood N(x, .25): the posterior mean at y = 1 is .75
    assert_allclose(posterior.given([1.0]).mean(), 0.75, atol=0.15)
    assert len(posterior.atoms) == 2000


def test_labels_linear_and_trace_kernels_stream_too() -> None:
    rng = np.random.default_rng(4)
    c = rng.choice(["a", "b", "c"], size=200)
    y = rng.normal(size=(200, 3)) + (c == "a")[:, None]
    for kernel_x, X, kernel_y, Y in [
        (Delta(), c, Linear(), y),
        (Polynomial(2), y, Delta(), c),
        (Linear() + 1, y, Trace(), rng.normal(size=(200, 2, 2))),
    ]:
        first = ConditionalEmbedding(kernel_x, kernel_y, 1e-2).fit(X[:80], Y[:80])
        basis = (first.space_x_, first.space_y_)
        whole = ConditionalEmbedding(kernel_x, kernel_y, 1e-2, basis=basis).fit(X, Y)
        first.partial_fit(X[80:], Y[80:])
        assert_allclose(first.operator_.matrix, whole.operator_.matrix, atol=1e-10)
        assert_allclose(first.given(X[:4]).coordinates, whole.given(X[:4]).coordinates, atol=1e-10)


def test_a_bad_batch_changes_nothing() -> None:
    X, Y, _ = sample()
    model = ConditionalEmbedding(regularization=1e-3).fit(X[:100], Y[:100])
    model.partial_fit(X[100:200], Y[100:200])
    before = model.predict(X[:5])
    for bad in [(X[:5, :1], Y[:5]), (X[:5], Y[:4]), (np.full((5, 2), np.nan), Y[:5])]:
        with pytest.raises(ValueError):
            model.partial_fit(*bad)
    assert_allclose(model.predict(X[:5]), before, rtol=0, atol=0)


def test_running_embeddings_and_operators() -> None:
    X, Y, w = sample()
    basis = spaces(X, Y)
    stream, other = RunningEmbedding(basis=basis[0]), RunningEmbedding(basis=basis[0])
    for rows in np.array_split(np.arange(200), 4):
        stream.partial_fit(X[rows], sample_weight=w[rows])
    other.partial_fit(X[200:], sample_weight=w[200:])
    merged = stream.merge(other)
    whole = embed(X, weights=w / w.sum(), basis=basis[0])
    assert_allclose(merged.embedding_.coordinates, whole.coordinates, atol=1e-10)
    assert merged.total_ == pytest.approx(w.sum())
    pairs = RunningEmbedding(basis=basis)
    for rows in np.array_split(np.arange(300), 4):
        pairs.partial_fit((X[rows], Y[rows]))
    psi_x, psi_y = basis[0].transform(X), basis[1].transform(Y)
    assert_allclose(pairs.operator_, psi_x.T @ psi_y / 300, atol=1e-10)
    with pytest.raises(TypeError, match="operator_"):
        _ = pairs.embedding_


def test_bandwidths_are_chosen_together_with_the_regularisation() -> None:
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(300, 1))
    Y = np.sin(6 * X) + 0.1 * rng.normal(size=(300, 1))
    median = ConditionalEmbedding("median").fit(X, Y)
    chosen = ConditionalEmbedding(Gaussian("loo")).fit(X, Y)
    assert chosen.kernel_x_.bandwidth < 0.5 * median.kernel_x_.bandwidth
    assert chosen.leave_one_out_.least < median.leave_one_out_.least
    Xt = rng.uniform(-3, 3, size=(500, 1))
    assert chosen.score(Xt, np.sin(6 * Xt)) > 0.95
    fixed = ConditionalEmbedding(Gaussian("loo"), regularization=1e-4).fit(X, Y)
    assert fixed.regularization_ == 1e-4
    with pytest.raises(ValueError, match=r"loo.*ConditionalEmbedding"):
        embed(X, kernel=Gaussian("loo"))


def test_multiples_of_the_median() -> None:
    X, _, _ = sample()
    half = Gaussian("0.5*median").resolve(X).bandwidth
    assert half == pytest.approx(0.5 * Gaussian().resolve(X).bandwidth)
    for bad in ["-1*median", "x*median", "2*mean", "median*2"]:
        with pytest.raises(ValueError, match="bandwidth must be"):
            Gaussian(bad).resolve(X)


@pytest.mark.slow
@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
@pytest.mark.parametrize("regularization", [1e-3, "auto"])
@pytest.mark.parametrize("one_column", [False, True], ids=["two columns", "one column"])
def test_a_fit_that_keeps_no_coordinates_is_the_same(
    monkeypatch: pytest.MonkeyPatch, centered: bool, regularization: float | str, one_column: bool
) -> None:
    X, Y, w = sample(400)
    Y = Y[:, 0] if one_column else Y
    settings = {
        "kernel_x": Gaussian(1.5),
        "basis": (Nystroem(40, random_state=0), None),
        "centered": centered,
        "regularization": regularization,
    }
    kept = ConditionalEmbedding(**settings).fit(X, Y, w)
    monkeypatch.setattr(fitting, "LARGE", 0)
    large = ConditionalEmbedding(**settings).fit(X, Y, w)
    assert isinstance(large.sides()[0].known, Deferred)
    assert large.regularization_ == pytest.approx(kept.regularization_, rel=1e-12)
    at = np.random.default_rng(7).normal(size=(9, 2))
    assert_allclose(large.predict(at), kept.predict(at), atol=1e-8)
    assert_allclose(large.given(at).weights, kept.given(at).weights, atol=1e-8)
    assert_allclose(large.given(at).coordinates, kept.given(at).coordinates, atol=1e-8)
    assert_allclose(large.given(at).mean(), kept.given(at).mean(), atol=1e-8)
    assert_allclose(large.given(at[0]).std(), kept.given(at[0]).std(), atol=1e-8)
    prior, seen = embed(X[:50] + 0.2), np.reshape(Y[:4], (4, -1))
    assert_allclose(large.push(prior).coordinates, kept.push(prior).coordinates, atol=1e-8)
    for method in ("importance", "squared", "reweighted"):
        mine, theirs = (m.posterior(prior, method, 1e-2).given(seen) for m in (large, kept))
        assert_allclose(mine.weights, theirs.weights, atol=1e-7)
    more = large.partial_fit(X[:20], Y[:20])
    assert_allclose(more.predict(at), kept.partial_fit(X[:20], Y[:20]).predict(at), atol=1e-8)


# --- feeding --------------------------------------------------------------------------------------


def _batches(n: int = 12, stop: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    for i in range(n):
        if i == stop:
            raise KeyboardInterrupt
        X = rng.normal(size=(40, 2))
        yield X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(40, 1))


def test_an_interrupted_stream_goes_on_from_its_file(tmp_path: Path) -> None:
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-3)
    at = np.zeros((1, 2))
    whole = feed(clone(model), _batches()).predict(at)
    path = tmp_path / "stream.npz"
    with pytest.raises(KeyboardInterrupt):
        feed(clone(model), _batches(stop=8), save_to=path, every=3)
    assert load(path)["seen"] == 6
    found = feed(clone(model), _batches(), save_to=path, every=3)
    assert_allclose(found.predict(at), whole, rtol=1e-12)
    again = feed(clone(model), _batches(), save_to=path)  # nothing is left to do
    assert_allclose(again.predict(at), whole, rtol=1e-12)


@pytest.mark.parametrize(
    "other",
    [
        [np.ones((4, 2)) + i for i in range(3)],  # other rows
        [np.eye(4, 2) + i for i in (1, 0, 2)],  # another order
        [np.eye(4, 2) + i for i in range(1)],  # too few
        [(np.eye(4, 2) + i, None, [1.0, 2.0, 1.0, 1.0]) for i in range(3)],  # other weights
    ],
)
def test_other_batches_than_those_in_the_file_are_refused(tmp_path: Path, other: list) -> None:
    path = tmp_path / "stream.npz"
    feed(RunningEmbedding(Gaussian(1.0)), [np.eye(4, 2) + i for i in range(2)], save_to=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"stream\.npz has seen.*remove this one"):
        feed(RunningEmbedding(Gaussian(1.0)), other, save_to=path)
    assert path.read_bytes() == before


def test_equal_batches_are_recognised_whatever_holds_them(tmp_path: Path) -> None:
    rows = [np.random.default_rng(i).normal(size=(6, 2)) for i in range(3)]
    frames = [pd.DataFrame(x, columns=["a", "b"]) for x in rows]
    for batches in (rows, frames, [list(map(list, x)) for x in rows]):
        path = tmp_path / f"{type(batches[0]).__name__}.npz"
        feed(RunningEmbedding(Gaussian(1.0)), batches[:2], save_to=path)
        copies = [deepcopy(batch) for batch in batches]
        assert feed(RunningEmbedding(Gaussian(1.0)), copies, save_to=path).total_ == 18
    path = tmp_path / "layout.npz"
    feed(RunningEmbedding(Gaussian(1.0)), rows[:2], save_to=path)
    turned = [np.asfortranarray(x) for x in rows]
    assert feed(RunningEmbedding(Gaussian(1.0)), turned, save_to=path).total_ == 18


def test_other_settings_than_those_in_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stream.npz"
    rows = [np.eye(4, 2) + i for i in range(2)]
    feed(RunningEmbedding(Gaussian(1.0)), rows, save_to=path)
    with pytest.raises(ValueError, match=r"kernel=Gaussian\(bandwidth=1.*kernel=Gaussian.*2\.0"):
        feed(RunningEmbedding(Gaussian(2.0)), rows, save_to=path)
    with pytest.raises(ValueError, match="basis=None, but the one given has basis=PivotedChol"):
        feed(RunningEmbedding(Gaussian(1.0), PivotedCholesky(1e-3)), rows, save_to=path)
    model = RunningEmbedding(Gaussian(1.0))  # the model of an interrupted run, fitted in part
    assert feed(model.partial_fit(rows[0]), rows, save_to=path).total_ == 8


def test_feeding_refuses_in_words(tmp_path: Path) -> None:
    path = tmp_path / "stream.npz"
    feed(RunningEmbedding(), [np.zeros((3, 1)) + np.arange(3)[:, None]], save_to=path)
    with pytest.raises(ValueError, match="holds a RunningEmbedding, not a ConditionalEmbedding"):
        feed(ConditionalEmbedding(), _batches(), save_to=path)
    save({"a": 1}, path)
    with pytest.raises(ValueError, match="holds no stream"):
        feed(RunningEmbedding(), [], save_to=path)
    bad = [np.ones((4, 2)), np.array([[1.0, np.nan]])]
    with pytest.raises(ValueError, match="batch 1: X contains NaN"):
        feed(RunningEmbedding(Gaussian(1.0)), bad)
    with pytest.raises(ValueError, match="batch 1: X has 3 features"):
        feed(RunningEmbedding(Gaussian(1.0)), [np.eye(2), np.eye(3)])
