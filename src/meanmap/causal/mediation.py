"""How much of an effect goes through a mediator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from meanmap.causal.curves import CausalCurve
from meanmap.causal.effects import CausalEstimator
from meanmap.causal.regression import Estimates, FirstStage


class Mediation(CausalEstimator):
    """The direct effect of a treatment, and the indirect one through a mediator.

    `E[Y(t, M(t'))] = E[ E[Y | t, M, X] averaged over M given t', X ]`: a regression of the outcome,
    and the conditional embedding of the mediator (Singh, Xu and Gretton 2024). It is causal if no
    unmeasured variable moves two of treatment, mediator and outcome, given the covariates.

    Parameters
    ----------
    regularization, basis, random_state : as in `DoseResponse`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import Mediation
    >>> rng = np.random.default_rng(0)
    >>> t, a, b = rng.normal(size=(3, 500))
    >>> m = 2 * t + 0.5 * a
    >>> y = t + m + 0.3 * b  # a direct effect of 1, and 2 through m
    >>> model = Mediation(random_state=0).fit(t, y, m)
    >>> direct, indirect = model.direct([1.0], 0.0), model.indirect([1.0], 0.0)
    >>> bool(abs(direct.mean[0] - 1) < 0.4), bool(abs(indirect.mean[0] - 2) < 0.4)
    (True, True)
    """

    def fit(self, treatment: Any, outcome: Any, mediator: Any, covariates: Any = None) -> Self:
        """Fit to rows of a treatment, a number, a mediator, and covariates if there are any."""
        given = {"treatment": treatment, "mediator": mediator}
        given |= {} if covariates is None else {"covariates": covariates}
        y, columns = self._read(outcome, **given)
        t, m, *x = columns.values()
        self.stage_ = FirstStage.of(np.hstack([t, *x]), m)
        self._fit_response([t, m, *x], y)
        return self

    def effect(self, t: Any, mediator_at: Any = None) -> CausalCurve:
        """The mean outcome under treatment t with the mediator as under another, at each t."""
        asked, one, other = self._pair(t, mediator_at)
        return self._curve_of(asked, self._means(one, other), "average outcome", 1.0)

    def direct(self, t: Any, reference: Any) -> CausalCurve:
        """The effect of t against a reference with the mediator as under the reference."""
        asked, one, other = self._pair(t, reference)
        parts = self._means(one, other), self._means(other, other)
        return self._curve_of(asked, _subtract(*parts), f"direct effect against {reference}", 0.0)

    def indirect(self, t: Any, reference: Any) -> CausalCurve:
        """The effect under treatment t of the mediator as under t against the reference."""
        asked, one, other = self._pair(t, reference)
        parts = self._means(one, one), self._means(one, other)
        return self._curve_of(asked, _subtract(*parts), f"indirect effect against {reference}", 0.0)

    def _pair(self, t: Any, other: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Treatments as asked for, their columns, and those that the mediator follows."""
        check_is_fitted(self, "response_")
        asked, columns = self._treatments(t)
        if other is None:
            return asked, columns, columns
        found = self._treatments(other)[1]
        if len(found) != 1:
            raise ValueError(f"expected one treatment for the mediator, got {len(found)}.")
        return asked, columns, np.broadcast_to(found, columns.shape)

    def _means(self, one: np.ndarray, other: np.ndarray) -> Estimates:
        """`E[Y(t, M(t'))]`, with what outcomes, mediators and covariates of each row add."""
        response, (_, m, *x) = self.response_, self.response_.variables
        n, parts = len(m), []
        mediators = response.grams(1, m)
        rest = np.prod([response.grams(2, v) for v in x], axis=0) if x else np.ones((n, 1))
        for t, s in zip(one, other, strict=True):
            z = np.hstack([np.broadcast_to(s, (n, len(s))), *x])
            rows = self.stage_.at(z, mediators) * rest
            first = response.grams(0, t[None])
            found = response.answer(first * rows.mean(axis=0))
            place = response.values(first, rows)
            seen = response.values(first, mediators * rest)
            moved = self.stage_.weights(z).mean(axis=0)[:, None] * (
                seen - self.stage_.left_out(seen)
            )
            influence = found.influence + (place - place.mean()) / n + moved
            parts.append((found.mean, influence, found.prior))
        mean, influence, prior = zip(*parts, strict=True)
        return Estimates(np.concatenate(mean), np.hstack(influence), np.hstack(prior))

    def _curve_of(self, asked: np.ndarray, found: Estimates, kind: str, mass: float) -> CausalCurve:
        return self._make_curve(asked, (found.mean, found.covariance()), kind, None, mass)


def _subtract(a: Estimates, b: Estimates) -> Estimates:
    return Estimates(a.mean - b.mean, a.influence - b.influence, a.prior - b.prior)
