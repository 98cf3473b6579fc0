"""The tests of `meanmap.comparison`, found by what they declare, with small samples for each.

A new test is found here as soon as `comparison` exports it: the suites over array libraries, over
hostile values and over every test then run it without a line of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap import comparison

#: Arguments other than samples, by name.
OTHERS: dict[str, Any] = {"score": lambda x: -x}
SEVERAL = 3  # samples, where a test takes any number


def declared() -> dict[str, Callable[..., Any]]:
    """The tests by name."""
    found = {name: getattr(comparison, name) for name in comparison.__all__}
    return {name: test for name, test in found.items() if hasattr(test, "row_groups")}


def sample_names(test: Callable[..., Any]) -> list[str]:
    """The names of its samples, in order."""
    names = []
    for name, parameter in inspect.signature(test).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"sample{i + 1}" for i in range(SEVERAL)]
        elif parameter.default is parameter.empty and name not in OTHERS:
            names.append(name)
    return names


def samples(test: Callable[..., Any], n: int = 24, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of two columns each, the later ones near the first, and so dependent if paired."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(n, 2))
    names = sample_names(test)
    return {name: first + 0.5 * i * rng.normal(size=(n, 2)) for i, name in enumerate(names)}


def solve(test: Callable[..., Any], given: dict[str, Any], **options: Any) -> Any:
    """The result of a test of samples by name, with a few permutations."""
    others = {n: v for n, v in OTHERS.items() if n in inspect.signature(test).parameters}
    options = {"n_permutations": 19, "rng": 0, **others, **options}
    return test(*given.values(), **options)


def groups(test: Any, count: int) -> tuple[tuple[int, ...], ...]:
    """Which samples have rows that belong together."""
    if test.row_groups is True:
        return (tuple(range(count)),)
    return tuple((i,) for i in range(count)) if test.row_groups is False else test.row_groups
