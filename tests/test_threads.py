"""Work in several threads leaves the state of the process as it was.

The filters of `warnings`, NumPy's handling of floating-point errors and the threads of the BLAS
belong to the whole process. Code that sets one of them and puts it back is wrong as soon as two
threads do so at once.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import networkx as nx
import numpy as np
import pytest

import meanmap as mm
from interrupts import count_lines, interrupt_at
from meanmap import arrays
from meanmap.conditional.noise import normal_mixture
from meanmap.exceptions import quiet, record, warn
from meanmap.kernels import Gaussian
from meanmap.spaces import Nystroem, PivotedCholesky

THREADS = 8
SOURCES = Path(mm.__file__).parent

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(60, 1))


def state() -> tuple[Any, ...]:
    """What all threads share."""
    blas = [lib["num_threads"] for lib in arrays._controller().info() if lib["user_api"] == "blas"]
    return list(warnings.filters), warnings.showwarning, np.geterr(), blas


@pytest.fixture
def two_blas_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set by threads that have ended: a living one would keep others from setting a limit.

    Calls that earlier tests have interrupted, and whose frames a traceback still holds, do not
    count here.
    """
    monkeypatch.setattr(arrays, "_stays", WeakSet())
    monkeypatch.setattr(arrays, "_before", [])
    limiters: list[Any] = []

    def limit() -> None:
        limiters.append(arrays._controller().limit(limits=2, user_api="blas"))

    def restore() -> None:
        limiters[0].restore_original_limits()

    for work in (limit, restore):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if work is limit:
            yield


def match_means() -> Any:
    return mm.KernelMeanMatching(random_state=0).fit(X, X_test=X[:30] + 0.5).weights_


def query_far_away() -> Any:
    model = mm.ConditionalEmbedding(Gaussian(0.5), regularization=1e-3).fit(X, Y)
    return model.given([[50.0, 50.0]]).mean()


def apply_bayes_rule() -> Any:
    model = mm.ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), regularization=1e-3).fit(X, Y)
    return model.posterior(X[:20], "nonnegative").given([[0.5]]).mean()


def cluster_points() -> Any:
    return mm.HSICClustering(2, random_state=0).fit(X).labels_


def place_landmarks() -> Any:
    return mm.spaces.Space(Gaussian(1.0), Nystroem(20, "kmeans", random_state=0)).fit(X).rank_


def cut_coordinates() -> Any:
    return mm.spaces.Space(Gaussian(0.1), PivotedCholesky(max_rank=5)).fit(X).rank_


def stack_densities() -> Any:
    rows = np.concatenate([X[:20], X[:20] + 4.0])
    return mm.EmbeddingDensity(random_state=0).fit(rows).score_samples(X[:10])


def unfold() -> Any:
    return abs(mm.ColoredUnfolding(1, 8, Gaussian(1.0), random_state=0).fit(X, Y).embedding_)


def split_noise() -> Any:
    return normal_mixture(X, 2).means_


def find_hidden_states() -> Any:
    graph = nx.star_graph(["h", "a", "b", "c"])
    graph.nodes["h"]["states"] = 2
    state = np.arange(60) % 2
    table = {name: 3.0 * state + X[:, i % 2] + 0.1 * i for i, name in enumerate("abc")}
    model = mm.KernelGraphicalModel(graph, Gaussian(1.0), 1e-2).fit(table)
    return model.marginal("a", {"b": 0.5}).mean()


JOBS = [
    match_means,
    query_far_away,
    apply_bayes_rule,
    cluster_points,
    cut_coordinates,
    place_landmarks,
    stack_densities,
    unfold,
    split_noise,
    find_hidden_states,
]


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_the_state_of_the_process_is_as_before(job: Callable[[], Any]) -> None:
    expected = job()  # so that everything is imported
    before = state()
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda _: job(), range(2 * THREADS)))
    assert state() == before
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-12)


def test_filters_are_left_alone_while_work_goes_on() -> None:
    """No thread ever sees a warning filter set by meanmap."""
    with ThreadPoolExecutor(1) as pool:
        before = list(warnings.filters)
        work = pool.submit(match_means)
        while not work.done():
            assert warnings.filters == before


def test_only_the_command_line_sets_filters() -> None:
    """It is a program, and the process its own."""
    words = {"catch_warnings", "simplefilter", "filterwarnings", "resetwarnings", "showwarning"}
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in words
    }
    assert found == {"cli/screen.py"}


def test_all_warnings_are_issued_in_one_place() -> None:
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("warnings.warn")
    }
    assert found == {"exceptions.py"}


@pytest.mark.usefixtures("two_blas_threads")
def test_threads_that_limit_the_blas_at_once_leave_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both read how many threads there are before either sets its limit; the first leaves first."""
    both, first_is_in, first_is_out = threading.Barrier(2), threading.Event(), threading.Event()
    count = arrays.threads

    def count_together() -> int:
        found = count()
        both.wait(timeout=30)
        if threading.current_thread().name != "first":
            assert first_is_in.wait(timeout=30)
        return found

    def work() -> None:
        first = threading.current_thread().name == "first"
        with arrays.one_blas_thread():
            first_is_in.set()
            both.wait(timeout=30)
            assert first or first_is_out.wait(timeout=30)
        first_is_out.set()

    monkeypatch.setattr(arrays, "threads", count_together)
    before = state()
    workers = [threading.Thread(target=work, name=name) for name in ("first", "second")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert first_is_out.is_set()
    assert state() == before


@pytest.mark.usefixtures("two_blas_threads")
def test_interrupted_calls_leave_no_limit_behind() -> None:
    """Wherever the interrupt came, the next call sees and restores the original limit."""

    def limit() -> None:
        with arrays.one_blas_thread():
            pass

    before = state()
    count = count_lines(limit)
    for k in range(1, count + 1):
        assert interrupt_at(k, limit)
        with arrays.one_blas_thread() as of:
            assert arrays.threads() == of
            assert of in (1, 2)  # one if the interrupted call could not lift its limit
            assert state()[-1] == [1] * len(before[-1])
        assert state() == before, f"line {k} of {count}"


@pytest.mark.usefixtures("two_blas_threads")
def test_a_limit_set_after_an_interrupted_call_is_kept() -> None:
    """What the BLAS had when the call was interrupted is not put in its place."""
    controller = arrays._controller()

    def limit() -> None:
        with arrays.one_blas_thread():
            pass

    before = state()
    for k in range(1, count_lines(limit) + 1):
        with controller.limit(limits=1, user_api="blas"):
            interrupt_at(k, limit)  # with one thread there are fewer lines
        limit()
        assert state() == before, f"line {k}"


# --- our own warnings -----------------------------------------------------------------------------


def test_a_thread_is_quiet_by_itself() -> None:
    inside, outside = threading.Event(), threading.Event()

    def hush() -> None:
        with quiet(mm.DataWarning):
            inside.set()
            assert outside.wait(timeout=30)
            warn("unheard", mm.DataWarning)

    with ThreadPoolExecutor(1) as pool, pytest.warns(mm.DataWarning, match="heard") as heard:
        work = pool.submit(hush)
        assert inside.wait(timeout=30)
        warn("heard", mm.DataWarning)
        outside.set()
        work.result(timeout=30)
    assert [str(one.message) for one in heard] == ["heard"]


def test_quiet_leaves_other_categories() -> None:
    with pytest.warns(mm.SettingWarning, match="edge") as heard:
        with quiet(mm.DataWarning, mm.ApproximationWarning):
            warn("far", mm.DataWarning)
            warn("rank", mm.ApproximationWarning)
            warn("edge", mm.SettingWarning)
        with quiet():
            warn("edge", mm.SettingWarning)
    assert len(heard) == 1


def test_recorded_warnings_can_be_issued_later() -> None:
    with pytest.warns(mm.DataWarning, match="far") as heard:
        with record() as found, quiet(mm.SettingWarning):
            warn("far", mm.DataWarning)
            warn("edge", mm.SettingWarning)
        assert len(heard) == 0
        for one in found:
            warn(one, type(one))
    assert [type(one.message) for one in heard] == [mm.DataWarning]


def test_a_warning_points_at_the_line_of_the_caller() -> None:
    """Through scikit-learn's wrappers and cached properties as well."""
    model = mm.ConditionalEmbedding(Gaussian(0.5), regularization=1e-3).fit(X, Y)
    calls: list[Callable[[], Any]] = [
        lambda: model.given([[50.0, 50.0]]),
        lambda: model.predict([[50.0, 50.0]]),
        lambda: mm.spaces.Space(Gaussian(0.1), PivotedCholesky(max_rank=5)).fit_transform(X),
    ]
    for call in calls:
        with pytest.warns(UserWarning) as heard:
            call()
        assert {(one.filename, one.lineno) for one in heard} == {
            (__file__, call.__code__.co_firstlineno)
        }
