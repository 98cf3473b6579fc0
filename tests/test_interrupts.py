"""Ctrl-C at any line leaves an object as it was before the call or as it is after it."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

import meanmap as mm
from fitted_objects import FITTED, SEEN, STATES, X, Y, noisy
from interrupts import count_lines, interrupt_at, some_lines
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.kernels import Delta, Gaussian
from meanmap.monitoring import SequentialTwoSampleTest
from meanmap.persistence import fingerprint
from meanmap.spaces import RandomFourier, Space
from meanmap.streams import RunningEmbedding
from optional_packages import find, require
from public import public_names

G = Gaussian(1.0)
SPACE = Space(G, RandomFourier(20, random_state=0)).fit(X)
COLUMN = Y[:, None]
LAST = 6  # lines after the assignment that ends a call: nothing but returns


@dataclass(frozen=True)
class Change:
    """An object, and a call that changes it."""

    make: Callable[[], Any]
    call: Callable[[Any], Any]


def conditional(**options: Any) -> Any:
    return mm.ConditionalEmbedding(G, options.pop("kernel_y", G), 1e-2, **options)


def additive() -> Any:
    model = mm.AdditiveFilter(Gaussian(0.7), Gaussian(0.7), regularization=1e-2, validation=None)
    return model.fit(STATES[:30], SEEN[:30])


def in_chunks(rows: np.ndarray) -> Any:
    return require("dask.array").from_array(rows, chunks=(10, *rows.shape[1:]))


def table(rows: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])])


def operator() -> Any:
    options: dict[str, Any] = {"rank": 3, "regularization": 1e-2, "reversible": False}
    return mm.dynamics.TransferOperator(Gaussian(0.7), **options)


CHANGES = {
    "operator, first piece": Change(operator, lambda m: m.fit(SEEN[:30])),
    "operator, second piece": Change(
        lambda: operator().fit(SEEN[:30]), lambda m: m.partial_fit(SEEN[30:], continued=True)
    ),
    "conditional, first batch": Change(conditional, lambda m: m.partial_fit(X[:20], COLUMN[:20])),
    "conditional, second batch": Change(
        lambda: conditional().fit(X[:20], COLUMN[:20]), lambda m: m.partial_fit(X[20:], COLUMN[20:])
    ),
    "conditional, third batch": Change(
        lambda: conditional().fit(X[:20], COLUMN[:20]).partial_fit(X[20:30], COLUMN[20:30]),
        lambda m: m.partial_fit(X[30:], COLUMN[30:], np.arange(10.0)),
    ),
    "conditional, asked between": Change(
        lambda: FITTED["conditional_stream"].make(), lambda m: m.partial_fit(X, Y)
    ),
    "conditional, labels": Change(
        lambda: conditional(kernel_y=Delta()).fit(X[:20], np.arange(20) % 3),
        lambda m: m.partial_fit(X[20:], np.arange(20) % 3),
    ),
    "conditional, fitted again": Change(
        lambda: conditional().fit(table(X[:20]), COLUMN[:20]), lambda m: m.fit(X[20:, :1], Y[20:])
    ),
    "conditional, merged": Change(
        lambda: conditional(basis=SPACE).fit(X[:20], X[:20]),
        lambda m: m.merge(conditional(basis=SPACE).fit(X[20:], X[20:])),
    ),
    "conditional, chunks": Change(
        conditional, lambda m: m.partial_fit(in_chunks(X), in_chunks(COLUMN))
    ),
    "conditional, more chunks": Change(
        lambda: conditional().fit(X, COLUMN),
        lambda m: m.partial_fit(in_chunks(X), in_chunks(COLUMN)),
    ),
    "embedding, first batch": Change(lambda: RunningEmbedding(G), lambda m: m.partial_fit(X[:20])),
    "embedding, second batch": Change(
        lambda: RunningEmbedding(basis=SPACE).partial_fit(X[:5]), lambda m: m.partial_fit(X[5:])
    ),
    "embedding, pairs": Change(
        lambda: RunningEmbedding(G @ G).partial_fit((X[:20], X[:20])),
        lambda m: m.partial_fit((X[20:], X[20:])),
    ),
    "embedding, fitted again": Change(
        lambda: RunningEmbedding(G).partial_fit(X[:20]), lambda m: m.fit(X[20:, :1])
    ),
    "embedding, merged": Change(
        lambda: RunningEmbedding(basis=SPACE).partial_fit(X[:5]),
        lambda m: m.merge(RunningEmbedding(basis=SPACE).partial_fit(X[5:])),
    ),
    "embedding, chunks": Change(
        lambda: RunningEmbedding(G), lambda m: m.partial_fit(in_chunks(X))
    ),
    "embedding, more chunks": Change(
        lambda: RunningEmbedding(basis=SPACE).partial_fit(X[:5]),
        lambda m: m.partial_fit(in_chunks(X)),
    ),
    "sequential test, first batch": Change(
        lambda: SequentialTwoSampleTest(G), lambda m: m.update(X[:20], X[20:])
    ),
    "sequential test, second batch": Change(
        lambda: FITTED["sequential_two_sample"].make(), lambda m: m.update(X[:5], X[5:9])
    ),
    "sequential test, last look": Change(
        lambda: FITTED["sequential_two_sample"].make(), lambda m: m.stop(rng=0)
    ),
    "sequential independence test": Change(
        lambda: FITTED["sequential_independence"].make(), lambda m: m.update(X, COLUMN)
    ),
    "sequential conditional test": Change(
        lambda: FITTED["sequential_conditional"].make(),
        lambda m: m.update(COLUMN, X[:, :1], X[:, 1:]),
    ),
    "drift monitor": Change(
        lambda: FITTED["drift_monitor"].make(), lambda m: m.update(X + 0.2)
    ),
    "drift monitor, restarted": Change(
        lambda: FITTED["drift_monitor"].make(), lambda m: m.restart()
    ),
    "two-sample test, first batch": Change(
        lambda: RunningTwoSampleTest(G), lambda m: m.partial_fit(X[:20], X[20:])
    ),
    "two-sample test, second batch": Change(
        lambda: RunningTwoSampleTest(G).fit(X[:20], X[20:]), lambda m: m.partial_fit(Y=X + 1)
    ),
    "two-sample test, fitted again": Change(
        lambda: RunningTwoSampleTest(G).fit(X[:20], X[20:]), lambda m: m.fit(X[:, :1], X[:, 1:])
    ),
    "two-sample test, merged": Change(
        lambda: RunningTwoSampleTest(basis=SPACE).fit(X[:20], X[20:]),
        lambda m: m.merge(RunningTwoSampleTest(basis=SPACE).fit(X, X + 1)),
    ),
    "independence test, first batch": Change(
        RunningIndependenceTest, lambda m: m.partial_fit(X[:20], COLUMN[:20])
    ),
    "independence test, second batch": Change(
        lambda: RunningIndependenceTest().fit(X[:20], COLUMN[:20]),
        lambda m: m.partial_fit(X[20:], COLUMN[20:]),
    ),
    "independence test, merged": Change(
        lambda: RunningIndependenceTest(basis=SPACE).fit(X[:20], X[20:]),
        lambda m: m.merge(RunningIndependenceTest(basis=SPACE).fit(X, X)),
    ),
    "additive filter, second batch": Change(
        additive, lambda m: m.partial_fit(STATES[30:50], SEEN[30:50])
    ),
    "additive filter, merged": Change(
        additive, lambda m: m.merge(additive().partial_fit(STATES[30:50], SEEN[30:50]))
    ),
    "additive filter, third batch": Change(
        lambda: additive().partial_fit(STATES[30:40], SEEN[30:40]),
        lambda m: m.partial_fit(STATES[40:], SEEN[40:]),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_threads() -> Any:
    """Chunks are computed here, in the thread that is interrupted."""
    dask = find("dask")
    here = nullcontext() if dask is None else dask.config.set(scheduler="synchronous")
    with here, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", CHANGES)
def test_before_or_after(name: str) -> None:
    change = CHANGES[name]
    start = change.make()
    before = fingerprint(deepcopy(start))
    whole = deepcopy(start)
    change.call(deepcopy(start))  # what is imported when first asked for
    count = count_lines(lambda: change.call(whole))
    after = fingerprint(deepcopy(whole))
    assert before != after
    for k in some_lines(count):
        model = deepcopy(start)
        assert interrupt_at(k, lambda model=model: change.call(model)), f"line {k} of {count}"
        state = fingerprint(deepcopy(model))
        assert state in (before, after), f"line {k} of {count} leaves neither"
        if state == after:
            assert k > count - LAST, f"line {k} of {count} would be counted twice"
        elif k > count - 3 * LAST or k % 7 == 0:
            change.call(model)
            assert fingerprint(model) == after, f"a second call after line {k} of {count}"


OBSERVED = np.array([0.5])


def simulated() -> Any:
    options: dict[str, Any] = {"random_state": 0, "regularization": 1e-2, "progress": False}
    return mm.KernelABC(noisy, {"place": stats.norm()}, **options)


SIMULATIONS = {
    "first": Change(simulated, lambda m: m.fit(40)),
    "more": Change(lambda: simulated().fit(20), lambda m: m.fit(40)),
    "refined": Change(lambda: simulated().fit(40), lambda m: m.refine(OBSERVED, 20)),
    "refined again": Change(
        lambda: simulated().fit(40).refine(OBSERVED, 20), lambda m: m.refine(OBSERVED, 20)
    ),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulations_are_kept_and_a_second_call_completes_them(name: str) -> None:
    """What was simulated stays; answers are those of before until the call is complete."""
    change = SIMULATIONS[name]
    start = change.make()
    learned = hasattr(start, "model_")
    before = start.posterior(OBSERVED).mean() if learned else None
    whole = deepcopy(start)
    change.call(deepcopy(start))  # what is imported when first asked for
    count = count_lines(lambda: change.call(whole))
    for k in some_lines(count, 20, 30):
        model = deepcopy(start)
        assert interrupt_at(k, lambda model=model: change.call(model)), f"line {k} of {count}"
        if learned and k < count - LAST:
            assert_array_equal(model.posterior(OBSERVED).mean(), before)
        if k > count - LAST and name.startswith("refined"):
            continue  # complete: another call refines further
        change.call(model)
        assert_array_equal(model.theta_, whole.theta_, err_msg=f"line {k} of {count}")
        assert_array_equal(model.weights_, whole.weights_)
        assert_array_equal(model.posterior(OBSERVED).mean(), whole.posterior(OBSERVED).mean())


#: Calls that change an object, and where each is interrupted: above, or in another file.
METHODS = ("fit", "partial_fit", "merge", "refine", "step")
ELSEWHERE = {"Stream.step": "tests/dynamics/test_track.py"}


def test_every_call_that_changes_an_object_is_interrupted() -> None:
    """Estimators that have `fit` alone change in one call, which can be made again."""
    streams = {RunningEmbedding, RunningTwoSampleTest, RunningIndependenceTest}
    classes = {value for value in public_names().values() if isinstance(value, type)} | streams
    found = {
        f"{kind.__name__}.{method}"
        for kind in classes
        for method in METHODS
        if hasattr(kind, method) and not (method == "fit" and ends_there(kind))
    }
    source = inspect.getsource(sys.modules[__name__])
    made = {type(change.make()).__name__ for change in (*CHANGES.values(), *SIMULATIONS.values())}
    interrupted = {
        f"{kind.__name__}.{method}"
        for kind in classes
        for method in METHODS
        if kind.__name__ in made and f"m.{method}(" in source
    }
    assert found <= interrupted | set(ELSEWHERE)


def ends_there(kind: type) -> bool:
    """Whether nothing but `fit` changes an object."""
    return not any(hasattr(kind, method) for method in METHODS if method != "fit")


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED)
def test_an_interrupted_question_can_be_asked_again(name: str) -> None:
    """What objects keep of their answers is complete or is not there."""
    fitted = FITTED[name]
    expected = fitted.ask(fitted.make())
    start = fitted.make()
    fitted.ask(deepcopy(start))  # what is imported when first asked for
    count = count_lines(lambda: fitted.ask(deepcopy(start)))
    for k in some_lines(count, 3, 2):
        asked = deepcopy(start)
        interrupt_at(k, lambda asked=asked: fitted.ask(asked))
        for label, answer in fitted.ask(asked).items():
            assert_array_equal(answer, expected[label], err_msg=f"line {k} of {count}")
