"""Are several variables independent of each other, all together?"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.arrays import Points, count, solve_triangular, take
from meanmap.comparison import ordering
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.nulls import Full
from meanmap.comparison.results import TestResult, row_groups, tie_scale
from meanmap.comparison.sources import Outcome, Source
from meanmap.comparison.witness import JointDependence
from meanmap.kernels import Kernel, TensorProduct
from meanmap.spaces import Basis
from meanmap.statistics.dependence import read_several_samples
from meanmap.statistics.gates import constant_notes
from meanmap.statistics.joint import JointGrams
from meanmap.statistics.tiles import ROUNDINGS

HYPOTHESIS = "the variables depend on each other"


@row_groups(True)
def joint_independence_test(
    *variables: Any,
    kernel: Any = None,
    null: Any = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
    basis: Basis | None = None,
) -> TestResult:
    """Test whether several variables are independent together, by dHSIC.

    Variables can be independent pair by pair and still determine each other. Every variable but the
    first is permuted by itself, so that the test is exact (Pfister et al. 2018).

    Parameters
    ----------
    *variables : samples of n points each, of any kinds; row i of each belong together
    kernel : a tuple or list with one per variable, one for all of them, or None
    null : "permutation", `Full()`, "sequential" or `Sequential()`
        Permutations of rows, one at a time; `Full` holds the memory limit, the progress bar and the
        alternative.
    n_permutations : int
    rng : int, numpy Generator or None
    basis : PivotedCholesky, Nystroem or None
        Coordinates of the product kernel: a permutation then costs O(n r) instead of O(n²).

    Returns
    -------
    TestResult

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import independence_test, joint_independence_test
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(2, size=(2, 150))
    >>> coins = [v.astype(str) for v in (a, b, a ^ b)]  # any two are independent
    >>> independence_test(coins[0], coins[2], rng=0).pvalue > 0.05
    True
    >>> joint_independence_test(*coins, rng=0).pvalue
    0.001
    """
    asked = Request.read(NULLS, null, n_permutations, rng, sequential=NULLS, basis=basis)
    kernels = kernel if isinstance(kernel, tuple | list) else [kernel] * len(variables)
    chosen, samples = read_several_samples(variables, kernels, "kernel")
    resolved = [one.resolve(points) for one, points in zip(chosen, samples, strict=True)]
    found = asked.method.find(resolved, samples, asked)
    names = [f"variable {i + 1}" for i in range(len(samples))]
    ordered = ordering.note_on_variables(list(zip(names, samples, strict=True)), ordering.PAIRS)
    notes = [*ordered, *found.notes]
    for name, points, one in zip(names, samples, resolved, strict=True):
        notes += constant_notes(points, one, name)
    result = TestResult.of(
        found,
        f"Joint independence test by dHSIC of {len(samples)} variables",
        asked.null.alternative,
        kernel=tuple(resolved),
        hypothesis=HYPOTHESIS,
        sizes={"n": count(samples[0])},
        notes=tuple(notes),
        explanation=JointDependence(resolved, samples),
    )
    ordering.warn_if_significant(ordered, result.pvalue)
    return result


def _permute_each(kernels: list[Kernel], samples: list[Points], asked: Request) -> Outcome:
    """Every variable but the first is permuted by itself."""
    if asked.basis is None:
        return asked.simulate(GramProducts(kernels, samples, asked.null.memory))
    return asked.simulate(LandmarkProducts(kernels, samples, asked.basis, asked.rng))


NULLS = {"permutation": NullMethod(Full, _permute_each)}


class Products(Source):
    """dHSIC when every variable but the first is permuted by itself."""

    kind = "permutation"
    _n: int
    _variables: int

    def observed(self) -> np.ndarray:
        return np.array([self._value([np.arange(self._n)] * self._variables)])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        same = np.arange(self._n)
        orders = [
            [same, *(rng.permutation(self._n) for _ in range(self._variables - 1))]
            for _ in range(count)
        ]
        return self.draw_each(orders, self._value)

    def _value(self, orders: list[np.ndarray]) -> float:
        raise TypeError(f"{type(self).__name__} has no value.")


class GramProducts(Products):
    """From the Gram matrices, kept where they fit."""

    def __init__(self, kernels: list[Kernel], samples: list[Points], memory: int) -> None:
        self._grams = JointGrams(kernels, samples, memory)
        self._n, self._variables = self._grams.n, self._grams.variables
        self.scales = np.array([tie_scale(self._grams.size, self._grams.slack)])

    def _value(self, orders: list[np.ndarray]) -> float:
        return self._grams.value([None, *orders[1:]])


class LandmarkProducts(Products):
    """In coordinates of the product kernel: ‖L⁻¹(m - μ)‖², m and μ evaluated at its landmarks.

    m is the mean of products of the variables' kernel values, μ the product of their means, which
    embeds the product of the marginals exactly.
    """

    def __init__(
        self,
        kernels: list[Kernel],
        samples: list[Points],
        basis: Basis,
        rng: np.random.Generator,
    ) -> None:
        self._n, self._variables = count(samples[0]), len(samples)
        kernel = TensorProduct(*kernels)
        # landmarks among rows that were permuted themselves: among the observed ones these would be
        # seen better than any permuted rows, and the test would reject every null
        mixed = tuple(take(points, rng.permutation(self._n)) for points in samples)
        fitted, _ = basis.fit(kernel, mixed, np.full(self._n, 1 / self._n))
        if fitted.landmarks is None:
            raise ValueError(
                f"basis: a joint test needs landmarks, Nystroem(n) or PivotedCholesky(), got "
                f"{basis!r}."
            )
        points, self._factor = fitted.landmarks
        self._parts = [
            k.gram_matrix(p, at) for k, p, at in zip(kernels, samples, points, strict=True)
        ]
        self._product = np.prod([part.mean(axis=0) for part in self._parts], axis=0)
        # a square whose root is exact to some epsilons of the embedding of the marginals' product
        same = [np.arange(self._n)] * self._variables
        rounding = (
            ROUNDINGS * np.finfo(float).eps * np.linalg.norm(self._coordinates(self._product))
        )
        value = self._value(same)
        self.scales = np.array([tie_scale(value, rounding * (2 * value**0.5 + rounding))])

    def _coordinates(self, values: np.ndarray) -> np.ndarray:
        return solve_triangular(self._factor, values)

    def _value(self, orders: list[np.ndarray]) -> float:
        product = self._parts[0]
        for part, order in zip(self._parts[1:], orders[1:], strict=True):
            product = product * part[order]
        return float(np.sum(self._coordinates(product.mean(axis=0) - self._product) ** 2))
