"""A list, a Series or a 1-D array of numbers is a sample of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import meanmap as mm

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=40), RNG.normal(0.5, size=40)
STATES = np.cumsum(0.2 * RNG.normal(size=120))
SEEN = STATES + 0.3 * RNG.normal(size=120)

#: A sample in other forms, all of the same numbers.
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda v: v,
    "list": list,
    "Series": lambda v: pd.Series(v, index=np.arange(len(v))[::-1], name="height"),
    "objects": lambda v: v.astype(object),
    "nullable": lambda v: pd.Series(v, dtype="Float64"),
}

ANSWERS: dict[str, Callable[[Callable[[np.ndarray], Any]], Any]] = {
    "mmd": lambda f: mm.mmd(f(A), f(B)),
    "hsic": lambda f: mm.hsic(f(A), f(B)),
    "two samples": lambda f: mm.two_sample_test(f(A), f(B), rng=0).pvalue,
    "independence": lambda f: mm.independence_test(f(A), f(B), rng=0).pvalue,
    "joint": lambda f: mm.joint_independence_test(f(A), f(B), f(A * B), rng=0).pvalue,
    "conditional": lambda f: mm.conditional_independence_test(f(A), f(B), f(A * B), rng=0).pvalue,
    "conditional samples": lambda f: (
        mm.conditional_two_sample_test(f(A), f(A**2), f(B), f(B**2), rng=0).pvalue
    ),
    "goodness of fit": lambda f: mm.goodness_of_fit_test(f(A), stats.norm(), rng=0).pvalue,
    "embedding": lambda f: mm.embed(f(A)).mean(),
    "values": lambda f: mm.embed(f(A))(f(B)),
    "density": lambda f: mm.embed(f(A)).density(f(B)),
    "filter": lambda f: (
        mm.KernelBayesFilter(method="reweighted").fit(f(STATES), f(SEEN)).filter(f(SEEN[:9])).mean
    ),
    "spectral": lambda f: mm.SpectralFilter().fit(f(SEEN)).predict(f(SEEN[:40]), 2).mean,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.filterwarnings("ignore")
def test_numbers_are_a_column(answer: str, form: str) -> None:
    expected = ANSWERS[answer](lambda v: v[:, None])
    np.testing.assert_array_equal(ANSWERS[answer](FORMS[form]), expected)


def test_whole_numbers_are_numbers_too() -> None:
    kernel = mm.embed([3, 1, 4, 1, 5]).kernel
    assert kernel.on_vectors
    assert mm.mmd([3, 1, 4], [1, 5, 9, 2]) == mm.mmd([[3], [1], [4]], [[1], [5], [9], [2]])


def test_one_number_is_one_point_and_several_are_as_many() -> None:
    belief = mm.ConditionalEmbedding().fit(A[:, None], B)
    assert belief.given(0.5).mean().shape == belief.given([0.5]).mean().shape == (1,)
    assert belief.given([0.5, 0.7, 0.9]).mean().shape == (3, 1)


def test_estimators_take_tables_as_those_of_scikit_learn_do() -> None:
    for X in (A, list(A), pd.Series(A)):
        with pytest.raises(ValueError, match=r"Reshape your data: np.reshape\(X, \(-1, 1\)\)"):
            mm.ConditionalEmbedding().fit(X, B)
