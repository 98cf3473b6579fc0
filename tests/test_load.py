"""Long runs: memory stays bounded, and answers are those of one piece."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose

import meanmap as mm
from fitted_objects import FITTED, SEEN
from meanmap.comparison import RunningTwoSampleTest
from meanmap.kernels import Gaussian
from meanmap.spaces import RandomFourier, Space
from meanmap.streams import RunningEmbedding

pytestmark = pytest.mark.slow
MOST = 8 << 20  # bytes: rows that were kept would take more
resource = pytest.importorskip("resource")


def growth(work: Callable[[int], object], parts: int) -> int:
    """By how many bytes the peak of memory grows over the second half of the parts of some work."""
    before = 0
    for part in range(parts):
        if part == parts // 2:
            before = peak()
        work(part)
    return peak() - before


def peak() -> int:
    """The most memory that this process has had so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bayes_filter", "additive_filter", "spectral_filter"])
def test_100_000_live_steps(name: str) -> None:
    model = FITTED[name].make()
    stream = model.start()
    new = SEEN[np.arange(100_000) % 60]

    def steps(part: int) -> None:
        for observation in new[1000 * part : 1000 * (part + 1)]:
            stream.step(observation)

    assert growth(steps, 100) < MOST
    ahead = stream.predict(1).mean
    assert np.isfinite(np.asarray(ahead)).all()
    # a filter forgets: the last thousand steps give the belief of all of them
    short = model.start()
    for observation in new[-1000:]:
        short.step(observation)
    assert_allclose(ahead, short.predict(1).mean, rtol=1e-6, atol=1e-8)


def batch(part: int) -> np.ndarray:
    return np.random.default_rng(part).normal(size=(10_000, 2))


SPACE = Space(Gaussian(1.0), RandomFourier(50, random_state=0)).fit(batch(0))


def test_a_million_rows_embedded() -> None:
    stream = RunningEmbedding(basis=SPACE)
    assert growth(lambda part: stream.partial_fit(batch(part)), 100) < MOST
    assert stream.total_ == 1e6
    whole = np.concatenate([batch(part) for part in range(100)])
    expected = mm.embed(whole, basis=SPACE).coordinates
    assert_allclose(stream.embedding_.coordinates, expected, atol=1e-12)


def test_a_million_rows_of_pairs() -> None:
    model = mm.ConditionalEmbedding(regularization=1e-3, basis=SPACE)

    def add(part: int) -> None:
        model.partial_fit(batch(part), batch(part) ** 2)

    assert growth(add, 100) < MOST
    whole = np.concatenate([batch(part) for part in range(100)])
    once = mm.ConditionalEmbedding(regularization=1e-3, basis=SPACE)
    once.fit(batch(0), batch(0) ** 2).partial_fit(whole[10_000:], whole[10_000:] ** 2)
    at = batch(0)[:20]
    assert_allclose(model.predict(at), once.predict(at), rtol=1e-8, atol=1e-10)


def test_a_million_rows_tested() -> None:
    stream = RunningTwoSampleTest(basis=SPACE)
    half = 5_000
    assert (
        growth(lambda part: stream.partial_fit(batch(part)[:half], batch(part)[half:]), 100) < MOST
    )
    whole = np.concatenate([batch(part) for part in range(100)]).reshape(100, 2, half, 2)
    once = RunningTwoSampleTest(basis=SPACE).fit(*whole.swapaxes(0, 1).reshape(2, -1, 2))
    assert stream.sizes_ == (500_000, 500_000)
    assert_allclose(stream.mmd(), once.mmd(), rtol=1e-8)
    assert_allclose(stream.result().pvalue, once.result().pvalue, rtol=1e-6)
