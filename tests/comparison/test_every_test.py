"""What holds for every statistical test, by what it declares."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from array_libraries import OTHERS, Library
from comparison_tests import declared, groups, sample_names, samples, solve
from meanmap.comparison import TestResult

DOCS = Path(__file__).parents[2] / "docs"
TESTS = declared()


@pytest.fixture(params=TESTS)
def tried(request: Any) -> Any:
    return TESTS[request.param]


def test_there_are_some() -> None:
    assert {"two_sample_test", "independence_test", "goodness_of_fit_test"} <= set(TESTS)


def test_results(tried: Any) -> None:
    result = solve(tried, samples(tried))
    assert isinstance(result, TestResult)
    statistic, pvalue = result
    assert np.isfinite(statistic) and 0 < pvalue <= 1
    assert all(n == 24 for n in result.sizes.values())
    words = " ".join(repr(result).split())
    assert result.method in words and result.hypothesis in words
    assert all(isinstance(note, str) and note.endswith(".") for note in result.notes)


def test_a_seed_is_honoured(tried: Any) -> None:
    first, again = (solve(tried, samples(tried), rng=3) for _ in range(2))
    generator = solve(tried, samples(tried), rng=np.random.default_rng(3))
    assert first.statistic == again.statistic == generator.statistic
    assert first.pvalue == again.pvalue == generator.pvalue


def test_samples_stay_as_they_are(tried: Any) -> None:
    given = samples(tried)
    before = {name: points.copy() for name, points in given.items()}
    solve(tried, given)
    assert all((given[name] == before[name]).all() for name in given)


def test_frames(tried: Any) -> None:
    pandas = pytest.importorskip("pandas")
    given = samples(tried)
    frames = {name: pandas.DataFrame(points, columns=["a", "b"]) for name, points in given.items()}
    assert solve(tried, frames).pvalue == solve(tried, given).pvalue


@pytest.mark.parametrize("name", OTHERS)
def test_array_libraries(tried: Any, name: str) -> None:
    given = samples(tried)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = solve(tried, {k: Library(name).asarray(v) for k, v in given.items()})
    expected = solve(tried, given)
    assert result.pvalue == pytest.approx(expected.pvalue, abs=1e-6)
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(tried: Any, bad: float) -> None:
    for name in sample_names(tried):
        given = samples(tried)
        given[name][3, 1] = bad
        with pytest.raises(ValueError, match="NaN or infinity"):
            solve(tried, given)


def test_empty_samples_are_refused(tried: Any) -> None:
    for name in sample_names(tried):
        given = samples(tried)
        given[name] = given[name][:0]
        with pytest.raises(ValueError, match="0 sample|at least|inconsistent"):
            solve(tried, given)


def test_rows_that_belong_together_are_as_many(tried: Any) -> None:
    for group in groups(tried, len(samples(tried))):
        given = samples(tried)
        name = list(given)[group[-1]]
        given[name] = given[name][:-2]
        if len(group) > 1:
            with pytest.raises(ValueError, match="inconsistent numbers"):
                solve(tried, given)
        else:
            solve(tried, given)


@pytest.mark.parametrize("wrong", [{"n_permutations": 0}, {"rng": "seed"}])
def test_settings_are_checked(tried: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        solve(tried, samples(tried), **wrong)


@pytest.mark.parametrize("name", TESTS)
def test_documentation_lists_it(name: str) -> None:
    assert name in (DOCS / "reference" / "comparison.md").read_text(encoding="utf-8")
