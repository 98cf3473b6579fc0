"""Is X independent of Y given Z, in a stream? Bets on products of residuals.

Whatever is bet on, no test of conditional independence has power and a level for all laws (Shah and
Peters 2020). This one needs regressions on Z that become right: then residuals of features of X and
of Y are uncorrelated given the past, and a bet on the sign of a sum of their products is fair.
Errors of the regressions enter as the product of both, as in the generalised covariance measure.

Features are bounded, so that heavy tails do no harm, but their products must not be cut off: where
residuals are skewed given Z, the mean of a product that was cut off is not 0, however right the
regressions, and over thousands of rows that wins. Stakes are small where little was found, so that
a loss of all wealth, which alone is bounded, hardly occurs under the null hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import take
from meanmap.monitoring.records import SequentialResult, Witness
from meanmap.monitoring.sequential import (
    AlignedTest,
    Progress,
    Sides,
    StreamSide,
    matched_views,
)
from meanmap.monitoring.wealth import Wealth

BOUND = 4.0  # root mean squares of a product that are won or lost by a stake of 1
STAKE = 0.5  # of the wealth, at most
RUIN = 0.99  # of the wealth, at most, is lost by a product
LEAST = 1e-6  # variance of features; what is smaller is the error of a regression
CAUTION = 10.0  # products of unit variance and mean zero that a stake is estimated with


@dataclass(frozen=True, eq=False)
class ProductBettor:
    """Bets that φ̃(x)ᵀ Θ ψ̃(y) is positive: residuals of features, Θ from their past products.

    `shrink` whitens Θ by the scatter of either side, where it is small.
    """

    shrink: float
    gram: np.ndarray  # Σ ζζᵀ + I over features of Z
    products: tuple[np.ndarray, np.ndarray]  # Σ ζ φᵀ, Σ ζ ψᵀ
    scatters: tuple[np.ndarray, np.ndarray]  # of residuals
    cross: np.ndarray  # Σ φ̃ ψ̃ᵀ
    weights: tuple[np.ndarray, np.ndarray] | None = None  # of the regressions
    rows: int = 0
    theta: np.ndarray | None = None
    size: float = 1.0
    gains: tuple[float, float] = (0.0, CAUTION)  # Σ g and Σ g² of what would have been won

    @classmethod
    def start(cls, sizes: tuple[int, int, int], shrink: float) -> ProductBettor:
        """Before anything was seen, given how many features X, Y and Z have."""
        x, y, z = sizes
        scatters = np.zeros((x, x)), np.zeros((y, y))
        products = np.zeros((z, x)), np.zeros((z, y))
        ridge = np.diag([LEAST, *np.ones(z - 1)])  # none for the mean, the first of them
        return cls(shrink, ridge, products, scatters, np.zeros((x, y)))

    def bet(self, features: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        if self.theta is None:
            return np.zeros(len(features[0]))
        total, squares = self.gains
        stake = min(max(total / squares, 0.0), STAKE)
        return np.log1p(np.maximum(stake * self._products(*self._residuals(features)), -RUIN))

    def learn(self, features: tuple[np.ndarray, np.ndarray, np.ndarray]) -> ProductBettor:
        phi, psi, zeta = features
        before = self._residuals(features)
        gains = self.gains
        if self.theta is not None:
            g = self._products(*before)
            gains = gains[0] + float(g.sum()), gains[1] + float(g @ g)
        gram = self.gram + zeta.T @ zeta
        products = self.products[0] + zeta.T @ phi, self.products[1] + zeta.T @ psi
        both = np.linalg.solve(gram, np.hstack(products))
        made = replace(
            self,
            gram=gram,
            products=products,
            weights=(both[:, : phi.shape[1]], both[:, phi.shape[1] :]),
            rows=self.rows + len(phi),
            gains=gains,
        )
        # the first rows have residuals of their own regression, later ones of that of the past
        a, b = before if self.rows else made._residuals(features)
        made = replace(
            made,
            scatters=(self.scatters[0] + a.T @ a, self.scatters[1] + b.T @ b),
            cross=self.cross + a.T @ b,
        )
        return made._with_direction()

    def evaluate(self, features: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        """The product of residuals that was bet on."""
        if self.theta is None:
            return np.zeros(len(features[0]))
        return self._products(*self._residuals(features))

    def _residuals(self, features: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
        phi, psi, zeta = features
        if self.weights is None:
            return phi, psi
        return phi - zeta @ self.weights[0], psi - zeta @ self.weights[1]

    def _products(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """What is won by a stake of 1."""
        assert self.theta is not None
        return np.sum((a @ self.theta) * b, axis=1) / (BOUND * self.size)

    def _with_direction(self) -> ProductBettor:
        """The same with Θ from all products so far."""
        left, right = (
            scatter + (self.shrink * np.trace(scatter) + 1e-12) * np.eye(len(scatter))
            for scatter in self.scatters
        )
        theta = np.linalg.solve(left, np.linalg.solve(right, self.cross.T).T)
        x, y = (part / self.rows + LEAST * np.eye(len(part)) for part in self.scatters)
        size = float(np.sqrt(max(np.sum((x @ theta @ y) * theta), 0.0)))
        return replace(self, theta=theta if size > 0 else None, size=size or 1.0)


class SequentialConditionalTest(AlignedTest):
    """Is X independent of Y given Z? To look at whenever one likes, if Z is regressed on well.

    Features of X and of Y are regressed on features of Z, with the past alone; a bettor who has
    learned which products of residuals tend to be positive bets on those of the next row. If X and
    Y are independent given Z, and the regressions are right, the wealth ever reaches 1/α with
    probability α at most. Their errors count as the product of both (Shah and Peters 2020).

    If the law of X given Z is known, as in an experiment, draw another x for every row and test
    `(x, y, z)` against `(drawn, y, z)` by `SequentialTwoSampleTest`: that level is exact.

    Parameters
    ----------
    kernel : one for all variables, or a tuple (x, y, z); None as in `SequentialTwoSampleTest`
    basis : one for all, a tuple of bases or fitted Spaces, or None
    alpha : float
    warm_up : int
        Rows that the first regressions are fitted to, and that are not bet on.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.monitoring import SequentialConditionalTest
    >>> rng = np.random.default_rng(0)
    >>> both, direct = SequentialConditionalTest(), SequentialConditionalTest()
    >>> for day in range(20):
    ...     Z = rng.normal(size=(50, 1))
    ...     X, Y = (np.sin(Z) + 0.5 * rng.normal(size=(50, 1)) for _ in "XY")
    ...     found = both.update(X, Y, Z).rejects, direct.update(X, Y + 0.5 * X, Z).rejects
    >>> found
    (False, True)
    """

    _name = "Sequential conditional independence test"
    _unit = 1
    _variables = "XYZ"
    _progress = Progress((StreamSide(), StreamSide(), StreamSide()))

    def __init__(
        self, kernel: Any = None, basis: Any = None, alpha: float = 0.05, warm_up: int = 200
    ) -> None:
        super().__init__(kernel, basis, alpha, warm_up)

    def update(self, X: Any = None, Y: Any = None, Z: Any = None) -> SequentialResult:
        """Take in new rows and return the evidence so far.

        Rows that cannot be read raise an error that says why, and change nothing.
        """
        checks.whole(self.warm_up, "warm_up", 20, "The first regressions need rows; try 200.")
        return self._advance(X, Y, Z)

    def _start(self, sides: Sides, warm: int) -> tuple[Sides, Wealth]:
        found = self._choose(sides, warm)
        features = self._features(found, slice(0, warm))
        bettors = [
            (k, ProductBettor.start(tuple(part.shape[1] for part in view), shrink).learn(view))
            for k, view in enumerate(features)
            for shrink in (0.01, 1.0)
        ]
        return tuple(side.drop(warm) for side in found), Wealth.start(bettors)

    def _features(self, sides: Sides, rows: slice) -> list[Any]:
        x, y, z = ([view.coordinates(take(s.waiting, rows)) for view in s.views] for s in sides)
        zeta = np.hstack([np.ones((len(z[0]), 1)), *z])
        return [(x[i], y[j], zeta) for i, j in matched_views(len(x), len(y))]

    def _sizes(self, sides: Sides, units: int) -> dict[str, int]:
        return {"rows": units, "waiting": sides[0].ready}

    def _witness(self, now: Progress) -> Witness | None:
        return None
