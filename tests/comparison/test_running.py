"""Looking at a stream more than once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanmap import load, save
from meanmap.comparison import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.kernels import Gaussian
from meanmap.spaces import PivotedCholesky, Space

TESTS = [RunningTwoSampleTest, RunningIndependenceTest]


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, 1)), rng.normal(size=(40, 1))


@pytest.mark.parametrize("made", TESTS)
def test_the_second_look_warns(made: Any) -> None:
    stream = made().partial_fit(*batch(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = stream.result()
        assert stream.result().pvalue == first.pvalue  # the same rows: no new look
    assert not any("look" in note for note in first.notes)
    for look in (2, 3):
        stream.partial_fit(*batch(look))
        with pytest.warns(UserWarning, match=f"look {look} at a growing stream") as caught:
            result = stream.result()
        assert caught[0].filename == __file__
        assert f"look {look} at a growing stream" in " ".join(repr(result).split())


@pytest.mark.parametrize("made", TESTS)
def test_one_look_after_many_batches_does_not_warn(made: Any) -> None:
    stream = made()
    for seed in range(5):
        stream.partial_fit(*batch(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.result()
        stream.fit(*batch(6)).result()  # starts anew


@pytest.mark.parametrize("made", TESTS)
def test_looks_are_kept_in_files_and_added_by_merging(made: Any, tmp_path: Path) -> None:
    space = Space(Gaussian(1.0), PivotedCholesky(1e-6)).fit(batch(0)[0])
    basis = space if made is RunningTwoSampleTest else (space, space)
    stream = made(basis=basis).partial_fit(*batch(1))
    stream.result()
    save(stream, tmp_path / "stream.npz")
    again = load(tmp_path / "stream.npz").partial_fit(*batch(2))
    with pytest.warns(UserWarning, match="look 2"):
        again.result()
    other = made(basis=basis).partial_fit(*batch(3))
    other.result()
    with pytest.warns(UserWarning, match="look 3"):
        stream.merge(other).result()
