"""Null objects: what they refuse when they are made, and that words stand for them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comparison_tests import OTHERS, declared, samples, solve
from meanmap import comparison
from meanmap.comparison import (
    Block,
    Collection,
    Full,
    Gamma,
    Groups,
    NormalLimit,
    Permutation,
    Sequential,
    Signs,
    SignsLimit,
    Spectral,
    Swap,
    WeightedBlocks,
    Wild,
    WildGroups,
    conditional,
    counterfactual,
    goodness,
    independence,
    joint,
    nulls,
    two_sample,
)
from meanmap.comparison.quadratic import FORM_NULLS

TABLES = {
    "two_sample_test": two_sample.NULLS,
    "independence_test": independence.NULLS,
    "joint_independence_test": joint.NULLS,
    "conditional_independence_test": conditional.NULLS,
    "conditional_two_sample_test": conditional.NULLS,
    "counterfactual_effect": FORM_NULLS,
    "goodness_of_fit_test": goodness.NULLS,
}
CLASSES = {
    name: value
    for name, value in vars(nulls).items()
    if inspect.isclass(value) and value.__module__ == nulls.__name__ and value.__doc__
}


def test_every_test_has_a_table() -> None:
    assert set(TABLES) == set(declared())
    assert counterfactual.FORM_NULLS is FORM_NULLS


def test_null_objects_are_public_and_say_what_they_promise() -> None:
    made = {method.null.__name__ for table in TABLES.values() for method in table.values()}
    made |= {"Sequential", "Swap", "NormalLimit"}
    assert made == {name for name in CLASSES if name in comparison.__all__}
    for name in made:
        assert "**Level**" in CLASSES[name].__doc__ and ">>>" in CLASSES[name].__doc__, name
        assert "cost" in CLASSES[name].__doc__.lower(), name


@pytest.mark.parametrize("name", TABLES)
def test_a_word_is_its_object(name: str) -> None:
    test = declared()[name]
    for word, method in TABLES[name].items():
        if word in ("groups", "wild groups", "parametric"):
            continue
        one, other = (solve(test, samples(test), null=null) for null in (word, method.null()))
        assert (one.pvalue, one.statistic) == (other.pvalue, other.statistic), word


@pytest.mark.parametrize("name", TABLES)
def test_unknown_nulls_are_refused_with_what_there_is(name: str) -> None:
    test = declared()[name]
    words = ", ".join(map(repr, TABLES[name]))
    with pytest.raises(ValueError, match=f"null must be one of {words}.*; got 'bootstrap'"):
        solve(test, samples(test), null="bootstrap")
    with pytest.raises(TypeError, match=f"null must be one of {words}.*; got 7"):
        solve(test, samples(test), null=7)
    assert OTHERS  # the score of a density is an argument, not a null


@pytest.mark.parametrize("name", sorted(declared()))
def test_tests_take_at_most_eight_arguments(name: str) -> None:
    parameters = inspect.signature(declared()[name]).parameters
    assert len(parameters) <= 8
    names = list(parameters)
    at = names.index("kernel")
    assert names[at : at + 4] == ["kernel", "null", "n_permutations", "rng"]


def test_null_objects_are_values() -> None:
    assert Permutation(bins=40) == Permutation(40) != Permutation()
    assert len({Block(5), Block(5), Block()}) == 2
    assert repr(Block(5)).startswith("Block(") and "length=5" in repr(Block(5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Permutation().bins = 3  # type: ignore[misc]


TAILS: list[Callable[..., Any]] = [
    Permutation,
    Full,
    Block,
    Wild,
    Gamma,
    Spectral,
    Swap,
    NormalLimit,
]


@pytest.mark.parametrize("made", TAILS)
def test_alternatives_are_checked(made: Callable[..., Any]) -> None:
    assert made(alternative="two-sided").alternative == "two-sided"
    with pytest.raises(ValueError, match="alternative must be one of 'greater', 'less'"):
        made(alternative="more")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Permutation(1), "bins must be a whole number ≥ 2"),
        (lambda: Signs(1), "bins must be a whole number ≥ 2"),
        (lambda: SignsLimit(2.5), "bins must be a whole number ≥ 2"),
        (lambda: Block(0), "length must be a whole number ≥ 1"),
        (lambda: Block("long"), "length must be one of 'auto'"),
        (lambda: Wild("long"), "length must be one of 'auto'"),
        (lambda: Wild(0), "length must be a whole number ≥ 1"),
        (lambda: WeightedBlocks(0), "length must be a whole number ≥ 1"),
        (lambda: WeightedBlocks("long"), "length must be one of 'auto'"),
        (lambda: Block(None), "length must be a whole number ≥ 1"),
        (lambda: Groups(), r"pass null=Groups\(labels\)"),
        (lambda: WildGroups(), r"pass null=Groups\(labels\)"),
        (lambda: Sequential(stop=0), "stop must be a whole number ≥ 1"),
        (lambda: Sequential(Full(alternative="less")), "sequential test stops"),
        (lambda: Full(max_memory="lots"), "max_memory must be a number of bytes or a text like"),
        (lambda: Permutation(max_memory=0), "max_memory must be a number of bytes"),
        (lambda: Block(max_memory=-3), "max_memory must be a number of bytes"),
        (lambda: Groups(np.arange(4), max_memory="much"), "max_memory must be"),
        (
            lambda: Collection(combine="mean"),
            "combine must be one of 'soft', 'max', 'fuse', 'min-p'",
        ),
    ],
)
def test_settings_are_checked_when_they_are_made(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_sequential_tests_stop_when_they_are_told_to() -> None:
    X, Y = np.random.default_rng(3).normal(size=(2, 40, 1))
    for stop in (5, 30):
        found = comparison.two_sample_test(X, Y, "median", Sequential(stop=stop), rng=0)
        assert found.null.stopped and found.pvalue == stop / len(found.null)
        assert f"when {stop} had reached" in repr(found)
