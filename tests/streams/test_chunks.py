"""Chunks of Dask: the same sums as on one machine, workers that die, chunks that are broken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from meanmap import (
    ConditionalEmbedding,
    KernelMeanMatching,
    TargetShift,
    embed,
    hsic,
    independence_test,
    load,
    mmd,
    save,
    two_sample_test,
)
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.kernels import Columns, Delta, Gaussian, Polynomial
from meanmap.report import shift_report
from meanmap.spaces import Explicit, Nystroem, RandomFourier, Space
from meanmap.streams import RunningEmbedding
from meanmap.streams.chunks import Chunks, answer_chunks
from optional_packages import require

da = require("dask.array")
dd = require("dask.dataframe")
distributed = require("distributed")

N = 6000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(N, 1))
W = RNG.uniform(0.2, 2.0, size=N)
AT = RNG.normal(size=(20, 3))
SPACE_X = Space(Gaussian(2.0), Nystroem(60, random_state=0)).fit(X[:1000])
SPACE_Y = Space(Gaussian(1.0), Nystroem(30, random_state=0)).fit(Y[:1000])


def model(**options: Any) -> ConditionalEmbedding:
    kernels = SPACE_X.kernel_, SPACE_Y.kernel_
    return ConditionalEmbedding(*kernels, 1e-4, basis=(SPACE_X, SPACE_Y), **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("cuts", [(1500, 1500), (1700, 1100), (N, 900)])
def test_a_conditional_of_chunks_is_that_of_all_rows(cuts: tuple[int, int], centered: bool) -> None:
    D, E = da.from_array(X, chunks=(cuts[0], 2)), da.from_array(Y, chunks=(cuts[1], 1))
    found, truth = model(centered=centered).fit(D, E), model(centered=centered).fit(X, Y)
    assert_allclose(found.predict(AT), truth.predict(AT), atol=1e-10)
    assert_allclose(found.given(AT).coordinates, truth.given(AT).coordinates, atol=1e-10)
    more = found.partial_fit(D, E)
    assert_allclose(more.predict(AT), truth.predict(AT), atol=1e-10)


def test_weights_and_one_dimensional_targets() -> None:
    D, E, V = (da.from_array(part, chunks=1000) for part in (X, Y[:, 0], W))
    found = model().fit(D.rechunk((1000, 3)), E, sample_weight=V)
    truth = model().fit(X, Y[:, 0], sample_weight=W)
    assert found.predict(AT).shape == (20,)
    assert_allclose(found.predict(AT), truth.predict(AT), atol=1e-10)


def test_predictions_are_lazy() -> None:
    D, E = da.from_array(X, chunks=(1500, 3)), da.from_array(Y, chunks=(1500, 1))
    found = model().fit(D, E)
    answers = found.predict(D)
    assert isinstance(answers, da.Array) and answers.shape == (N, 1)
    assert answers.chunks[0] == D.chunks[0]
    assert_allclose(answers.compute(), found.predict(X), atol=1e-9)


@pytest.mark.slow
def test_everything_is_chosen_on_a_sample() -> None:
    D, E = da.from_array(X, chunks=(1500, 3)), da.from_array(Y, chunks=(1500, 1))
    found = ConditionalEmbedding().fit(D, E)
    assert abs(found.predict(AT)[:, 0] - np.sin(AT[:, 0])).mean() < 0.05
    again = ConditionalEmbedding().fit(D, E)
    assert np.array_equal(found.predict(AT), again.predict(AT))


def test_data_frames_and_mixed_columns() -> None:
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "up", "down"), "y": Y[:, 0]})
    frame = dd.from_pandas(table, npartitions=4)
    kernel = Columns({"a": Gaussian(1.0), "b": Delta()})
    made = ConditionalEmbedding(kernel, Gaussian(1.0), 1e-4)
    found = made.fit(frame[["a", "b"]], frame["y"])
    numbers = ConditionalEmbedding().fit(frame[["a"]], frame["y"])
    assert list(numbers.feature_names_in_) == ["a"]
    lazy = found.predict(frame[["a", "b"]]).compute()
    assert_allclose(lazy, found.predict(table[["a", "b"]]), atol=1e-9)
    assert np.corrcoef(lazy, np.sin(X[:, 0]))[0, 1] > 0.99


@pytest.mark.parametrize("basis", [SPACE_X, Space(Gaussian(2.0), RandomFourier(20)).fit(X[:50])])
def test_running_embeddings(basis: Space) -> None:
    D, V = da.from_array(X, chunks=(1700, 3)), da.from_array(W, chunks=1700)
    found = RunningEmbedding(basis=basis).partial_fit(D, sample_weight=V)
    truth = embed(X, weights=W / W.sum(), basis=basis)
    assert found.total_ == pytest.approx(W.sum())
    assert_allclose(found.embedding_.coordinates, truth.coordinates, atol=1e-10)
    twice = found.partial_fit(D, sample_weight=V)
    assert_allclose(twice.embedding_.coordinates, truth.coordinates, atol=1e-10)


def test_running_operators() -> None:
    D, E = da.from_array(X, chunks=(1700, 3)), da.from_array(Y, chunks=(900, 1))
    found = RunningEmbedding(basis=(SPACE_X, SPACE_Y)).fit((D, E))
    truth = RunningEmbedding(basis=(SPACE_X, SPACE_Y)).fit((X, Y))
    assert_allclose(found.operator_, truth.operator_, atol=1e-12)


@pytest.mark.slow
def test_samples_are_even() -> None:
    """Every row is as likely as any other, whatever its chunk."""
    D = da.from_array(np.arange(1000.0)[:, None], chunks=((900, 50, 50), 1))
    rows = np.concatenate([Chunks.of(X=D).sample(100, seed)[0][:, 0] for seed in range(300)])
    late = (rows >= 900).mean()  # a tenth; the deviation is below .002
    assert abs(late - 0.1) < 0.012
    assert len(np.unique(Chunks.of(X=D).sample(100)[0])) == 100
    assert len(Chunks.of(X=D).sample(5000)[0]) == 1000


# --- tests ----------------------------------------------------------------------------------------


def test_streams_have_the_gamma_null_of_all_rows() -> None:
    """With a kernel whose features are few nothing is approximated."""
    kernel, A, B = Polynomial(2), X[:2500], 1.02 * X[2500:]
    space = Space(kernel, Explicit()).fit(A)
    truth = two_sample_test(A, B, kernel, null="gamma")
    stream = RunningTwoSampleTest(basis=space)
    for part in (slice(0, 1000), slice(1000, 2500)):
        stream.partial_fit(A[part], B[part])
    stream.partial_fit(Y=B[2500:])
    found = stream.result()
    assert stream.sizes_ == (2500, 3500)
    assert found.statistic == pytest.approx(truth.statistic, rel=1e-9)
    assert found.pvalue == pytest.approx(truth.pvalue, rel=1e-6)
    assert stream.mmd("U") == pytest.approx(mmd(A, B, kernel, "U"), rel=1e-8)
    lazy = two_sample_test(da.from_array(A, chunks=(800, 3)), da.from_array(B, chunks=(900, 3)))
    assert lazy.pvalue == pytest.approx(two_sample_test(A, B, null="gamma").pvalue, rel=0.05)
    assert "stream" in repr(lazy) and "moments" in repr(lazy)


def test_dependence_of_streams() -> None:
    kernel, B = Polynomial(2), X[:, :1] + 30 * RNG.normal(size=(N, 1))
    spaces = Space(kernel, Explicit()).fit(X), Space(kernel, Explicit()).fit(B)
    truth = independence_test(X, B, kernel, null="gamma")
    left, right = (RunningIndependenceTest(basis=spaces) for _ in range(2))
    left.partial_fit(X[:1000], B[:1000])
    found = left.merge(right.partial_fit(X[1000:], B[1000:])).result()
    assert found.statistic == pytest.approx(truth.statistic, rel=1e-8)
    assert found.pvalue == pytest.approx(truth.pvalue, rel=1e-6)
    D, E = da.from_array(X, chunks=(800, 3)), da.from_array(Y, chunks=(700, 1))
    assert independence_test(D, E).pvalue < 1e-6


def test_level_of_streams() -> None:
    """Under the null p-values of many streams are even enough."""
    rng = np.random.default_rng(8)
    found = []
    for _ in range(200):
        stream = RunningTwoSampleTest(Gaussian(1.5))
        for _ in range(3):
            stream.partial_fit(rng.normal(size=(40, 2)), rng.normal(size=(50, 2)))
        found.append(stream.result().pvalue)
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.13  # 10 of 200 expected


def test_streams_go_on_from_a_file(tmp_path: Path) -> None:
    for made in (RunningTwoSampleTest, RunningIndependenceTest):
        stream = made().partial_fit(X[:200], X[200:400] + 0.1)
        save(stream, tmp_path / "stream.npz")
        again = load(tmp_path / "stream.npz").partial_fit(X[400:500], X[500:600])
        assert again.result().pvalue == stream.partial_fit(X[400:500], X[500:600]).result().pvalue


def test_streams_refuse_in_words() -> None:
    stream = RunningTwoSampleTest()
    with pytest.raises(ValueError, match="the first batch needs rows of X and of Y"):
        stream.partial_fit(X)
    with pytest.raises(ValueError, match="different coordinates"):
        RunningTwoSampleTest().partial_fit(X[:50], X[50:90]).merge(
            RunningTwoSampleTest().partial_fit(X[100:150], X[:40])
        )
    with pytest.raises(ValueError, match="kernel"):
        RunningTwoSampleTest(Gaussian(3.0), SPACE_X).partial_fit(X[:50], X[50:90])
    with pytest.raises(ValueError, match="50.*40"):
        RunningIndependenceTest().partial_fit(X[:50], X[:40])
    D = da.from_array(X, chunks=(2000, 3))
    with pytest.raises(ValueError, match="tested by sums over them"):
        two_sample_test(D, D, null="full")
    with pytest.raises(ValueError, match="tested by sums over them"):
        independence_test(D, D, ("median", None))


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_mmd_of_chunks_is_that_of_all_rows(estimator: str) -> None:
    A, B = X[:2500], 1.1 * X[2500:]
    D, E = da.from_array(A, chunks=(700, 2)), da.from_array(B, chunks=(900, 3))
    found = mmd(D, E, estimator=estimator, basis=SPACE_X)
    assert type(found) is float
    truth = mmd(A, B, estimator=estimator, basis=SPACE_X)
    assert found == pytest.approx(truth, abs=1e-10)
    assert mmd(D, B, estimator=estimator, basis=SPACE_X) == pytest.approx(truth, abs=1e-10)
    psi, phi = SPACE_X.transform(A), SPACE_X.transform(B)
    K, L, M = psi @ psi.T, phi @ phi.T, psi @ phi.T
    if estimator == "U":
        for gram in (K, L):
            gram *= (gram.shape[0] / (gram.shape[0] - 1)) * (1 - np.eye(len(gram)))
    assert found == pytest.approx(K.mean() + L.mean() - 2 * M.mean(), abs=1e-10)
    # where features are few nothing is approximated
    kernel = Polynomial(2)
    few = mmd(D, E, kernel, estimator, basis=Space(kernel, Explicit()).fit(A))
    assert few == pytest.approx(mmd(A, B, kernel, estimator), rel=1e-8)
    # without a basis coordinates are good to about 1e-6
    by_itself = mmd(D, E, Gaussian(2.0), estimator)
    assert by_itself == pytest.approx(mmd(A, B, Gaussian(2.0), estimator), abs=1e-4)


@pytest.mark.parametrize("estimator", ["U", "V", "normalized"])
def test_hsic_of_chunks_is_that_of_all_rows(estimator: str) -> None:
    noise = np.random.default_rng(9).normal(size=(N, 1))
    A, B = X[:, :1], X[:, :1] + 3 * noise
    spaces = tuple(Space(Gaussian(1.5), Nystroem(25, random_state=0)).fit(v) for v in (A, B))
    D, E = da.from_array(A, chunks=(1700, 1)), da.from_array(B, chunks=(900, 1))
    found = hsic(D, E, estimator=estimator, basis=spaces)
    assert type(found) is float
    assert found == pytest.approx(hsic(A, B, estimator=estimator, basis=spaces), abs=1e-10)
    kernel = Polynomial(2)
    spaces = tuple(Space(kernel, Explicit()).fit(v) for v in (A, B))
    few = hsic(D, E, kernel, kernel, estimator, basis=spaces)
    assert few == pytest.approx(hsic(A, B, kernel, kernel, estimator), rel=1e-7)
    by_itself = hsic(D, E, Gaussian(2.0), Gaussian(2.0), estimator)
    truth = hsic(A, B, Gaussian(2.0), Gaussian(2.0), estimator)
    assert by_itself == pytest.approx(truth, abs=1e-5)
    running = RunningIndependenceTest(basis=spaces).partial_fit(A[:4000], B[:4000])
    assert running.partial_fit(D[4000:], E[4000:]).hsic(estimator) == pytest.approx(few, rel=1e-9)


def test_statistics_of_frames_and_constants() -> None:
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "up", "down"), "one": 1.0})
    frame = dd.from_pandas(table, npartitions=4)
    part = frame["a"] > 0
    found = mmd(frame[part][["b"]], frame[~part][["b"]], Columns({"b": Delta()}), "V")
    share = [(table["b"][rows] == "up").mean() for rows in (X[:, 0] > 0, X[:, 0] <= 0)]
    assert found == pytest.approx(2 * (share[0] - share[1]) ** 2, abs=1e-10)
    assert hsic(frame[["a"]], frame[["one"]], estimator="normalized") == 0.0


def test_statistics_of_chunks_refuse_in_words() -> None:
    D, one = da.from_array(X, chunks=(2000, 3)), da.from_array(X[:1], chunks=(1, 3))
    with pytest.raises(ValueError, match='"linear" takes rows two by two.*Use "U" or "V"'):
        mmd(D, D, estimator="linear")
    with pytest.raises(ValueError, match="Y: expected at least 2 points, got 1"):
        mmd(D, one)
    with pytest.raises(ValueError, match="X and Y: expected at least 4 points, got 3"):
        hsic(D[:3], D[:3], estimator="U")
    with pytest.raises(TypeError, match="Y is ndarray and X is a collection of Dask"):
        hsic(D, X)
    bad = X.copy()
    bad[4321, 1] = np.nan
    with pytest.raises(ValueError, match="chunk 2 of rows: rows contains NaN"):
        mmd(D, da.from_array(bad, chunks=(2000, 3)))


# --- shifts ---------------------------------------------------------------------------------------


def test_weights_of_chunks() -> None:
    T = RNG.normal(0.5, 0.7, size=(3000, 3))
    ratio = np.exp((X**2 - ((X - 0.5) / 0.7) ** 2).sum(axis=1) / 2) / 0.7**3
    D, E = da.from_array(X, chunks=(1000, 3)), da.from_array(T, chunks=(900, 3))
    found = KernelMeanMatching(random_state=0).fit(D, X_test=E)
    assert isinstance(found.weights_, da.Array) and found.weights_.shape == (N,)
    assert np.corrcoef(found.weights_.compute(), ratio)[0, 1] > 0.8
    assert_allclose(found.weights(D).compute(), found.weights(X), atol=1e-9)
    whole = KernelMeanMatching(random_state=0).fit(X, X_test=E)
    assert isinstance(whole.weights_, np.ndarray)
    with pytest.raises(ValueError, match="ridge=0 weights belong to training rows"):
        KernelMeanMatching(ridge=0).fit(D[:500], X_test=E[:500])


def test_targets_of_chunks() -> None:
    y = (X[:, 0] > 0).astype(int)
    kept = np.concatenate([np.flatnonzero(y)[:1200], np.flatnonzero(1 - y)[:400]])
    D, labels = da.from_array(X, chunks=(1000, 3)), da.from_array(y, chunks=1000)
    found = TargetShift(n_bootstrap=20, random_state=0).fit(D, labels, X_test=X[kept])
    assert_allclose(found.proportions_, [0.25, 0.75], atol=0.05)
    assert isinstance(found.weights_, da.Array)
    assert_allclose(found.weights_.compute(), found.weights(y), atol=1e-12)


def test_a_shift_report_stands_on_a_sample() -> None:
    table = pd.DataFrame({"a": X[:, 0], "city": np.where(X[:, 1] > 0.5, "Oslo", "Rome")})
    other = table.iloc[:3000].assign(a=table["a"].iloc[:3000] + 1.0)
    frames = dd.from_pandas(table, npartitions=5), dd.from_pandas(other, npartitions=3)
    report = shift_report(*frames, rng=0, max_samples=120)
    assert report.columns[0].name == "a" and report.columns[0].adjusted < 0.01
    assert report.sizes == (6000, 3000) and report.used == (120, 120)
    words = "a sample of 120 of 6,000 training rows and 120 of 3,000 test rows"
    assert words in str(report) and words in report.to_html()
    assert str(shift_report(*frames, rng=0, max_samples=120)) == str(report)
    alone = shift_report(frames[0], other, rng=0, max_samples=120)
    assert "120 of 6,000 training rows, drawn chunk" in str(alone)
    whole = shift_report(*(da.from_array(X[i : i + 50], chunks=(20, 3)) for i in (0, 50)), rng=0)
    assert whole.used == whole.sizes == (50, 50) and "drawn chunk" not in str(whole)


def test_a_shift_report_with_targets_in_chunks() -> None:
    y = np.sin(X[:, 0])
    gaps = np.where(X[:, 2] > 0, -y, np.nan)
    D = da.from_array(X, chunks=(1000, 3))
    targets = [da.from_array(part, chunks=1000) for part in (y, gaps)]
    report = shift_report(D, D, *targets, rng=0, max_samples=160)
    assert report.kind == "concept shift"
    assert 50 < int(report.verdict.split(" labelled test rows")[0].split()[-1]) < 110
    with pytest.raises(ValueError, match=r"chunk \d of train and y: y contains NaN"):
        shift_report(D, D, targets[1])
    with pytest.raises(TypeError, match="y is ndarray and train is a collection of Dask"):
        shift_report(D, D, y)


# --- workers --------------------------------------------------------------------------------------


def test_worker_processes_give_the_same_answer(cluster: Any) -> None:
    D, E = da.from_array(X, chunks=(500, 3)), da.from_array(Y, chunks=(500, 1))
    truth = model().fit(X, Y).predict(AT)
    with distributed.Client(cluster):
        assert_allclose(model().fit(D, E).predict(AT), truth, atol=1e-10)
        lazy = model().fit(D, E).predict(D)
        assert_allclose(lazy[:100].compute(), model().fit(X, Y).predict(X[:100]), atol=1e-9)


def _kill_once(rows: np.ndarray, flag: str) -> np.ndarray:
    """The worker that comes here first dies."""
    path = Path(flag)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return rows
    os.kill(os.getpid(), signal.SIGKILL)
    return rows


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    flag = str(tmp_path / "dead")
    truth = model().fit(X, Y).predict(AT)
    D, E = da.from_array(X, chunks=(500, 3)), da.from_array(Y, chunks=(500, 1))
    deadly = D.map_blocks(_kill_once, flag, dtype=float, meta=np.empty((0, 3)))
    with distributed.Client(cluster):
        found = model().fit(deadly, E)
    assert Path(flag).exists()
    assert_allclose(found.predict(AT), truth, atol=1e-10)


# --- bad input ------------------------------------------------------------------------------------


def test_a_chunk_with_nan_is_named() -> None:
    bad = X.copy()
    bad[4321, 1] = np.nan
    D, E = da.from_array(bad, chunks=(1000, 3)), da.from_array(Y, chunks=(1000, 1))
    with pytest.raises(ValueError, match=r"chunk 4 of X and y: X contains NaN .* row 321"):
        model().fit(D, E)


def test_chunks_of_other_widths_are_refused() -> None:
    parts = [
        da.from_array(X[:500], chunks=(500, 3)),
        da.from_array(X[500:900, :2], chunks=(400, 2)),
    ]
    uneven = da.Array(
        {("uneven", i, 0): (part.name, 0, 0) for i, part in enumerate(parts)}
        | {key: value for part in parts for key, value in dict(part.dask).items()},
        "uneven",
        chunks=((500, 400), (3,)),
        dtype=float,
    )
    with pytest.raises(ValueError, match="chunk 1 has rows of shape \\(2,\\), chunk 0 of shape"):
        RunningEmbedding(basis=SPACE_X).partial_fit(uneven)


def test_empty_chunks_and_unknown_lengths() -> None:
    table = pd.DataFrame(np.column_stack([X, Y]), columns=list("abcy"))
    frame = dd.from_pandas(table, npartitions=6)
    some = frame[frame["a"] > 0.5]
    kept = table[table["a"] > 0.5]
    found = model().fit(some[["a", "b", "c"]].to_dask_array(), some[["y"]].to_dask_array())
    truth = model().fit(kept[["a", "b", "c"]].to_numpy(), kept[["y"]].to_numpy())
    assert_allclose(found.predict(AT), truth.predict(AT), atol=1e-10)
    sorted_table = dd.from_pandas(table.sort_values("a").reset_index(drop=True), npartitions=6)
    few = sorted_table[sorted_table["a"] > 1.5]  # only the last partition has rows
    assert RunningEmbedding(basis=SPACE_X).partial_fit(few[["a", "b", "c"]].to_dask_array()).total_
    with pytest.raises(ValueError, match="all chunks are empty"):
        nothing = frame[frame["a"] > 1e9][["a", "b", "c"]].to_dask_array()
        RunningEmbedding(basis=SPACE_X).partial_fit(nothing)


def test_rows_that_do_not_fit_together() -> None:
    D, E = da.from_array(X, chunks=(1000, 3)), da.from_array(Y, chunks=(1000, 1))
    with pytest.raises(TypeError, match="y is ndarray and X is a collection of Dask"):
        model().fit(D, Y)
    with pytest.raises(ValueError, match="X has 6000 rows and y 5000"):
        model().fit(D, E[:5000])
    table = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=3)
    with pytest.raises(ValueError, match=r"3 chunks and y 6|6 chunks and y 3"):
        model().fit(table, E)
    import dask.bag

    with pytest.raises(TypeError, match="array, data frame or series of Dask, got Bag"):
        Chunks.of(X=dask.bag.from_sequence([1, 2]))


@pytest.mark.slow
def test_answers_keep_their_shape() -> None:
    D = da.from_array(X, chunks=(1700, 3))
    cube = answer_chunks(D, lambda x: np.ones((len(x), 2, 4)), np.ones((1, 2, 4)))
    assert cube.shape == (N, 2, 4) and cube.compute().shape == (N, 2, 4)
