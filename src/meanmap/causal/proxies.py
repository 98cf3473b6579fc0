"""The effect of a treatment with unmeasured causes, by two proxies of these causes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from meanmap.causal.curves import CausalCurve
from meanmap.causal.effects import CausalEstimator
from meanmap.causal.instruments import WEAK, InstrumentStrength
from meanmap.causal.regression import FirstStage
from meanmap.exceptions import DataWarning, warn


class ProxyEffect(CausalEstimator):
    """The average outcome as a function of a treatment, by negative controls.

    What moves both treatment and outcome is not measured, but two proxies of it are: one that does
    not move the outcome (the treatment's), and one that the treatment does not move (the
    outcome's). A bridge function h solves `E[Y - h(W, T, X) | Z, T, X] = 0`, and the answer is
    `E[h(W, t, X)]`: two ridge regressions in closed form (Mastouri et al. 2021; Singh 2020), as in
    `InstrumentalRegression`. Each proxy must vary with all of what is not measured.

    Parameters
    ----------
    regularization, basis, random_state : as in `InstrumentalRegression`

    Attributes
    ----------
    response_ : the bridge function
    strength_ : InstrumentStrength of the treatment's proxy for the outcome's

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import ProxyEffect
    >>> rng = np.random.default_rng(0)
    >>> hidden, a, b, c, e = rng.normal(size=(5, 600))
    >>> z, w, t = hidden + 0.5 * a, hidden + 0.5 * b, hidden + c
    >>> y = t + 2 * hidden + 0.3 * e
    >>> effect = ProxyEffect(random_state=0).fit(t, y, z, w).effect([-1.0, 1.0]).difference()
    >>> bool(abs(effect.mean[1] - 2) < 0.7)  # a plain regression has 4
    True
    """

    _set = 1

    def fit(
        self,
        treatment: Any,
        outcome: Any,
        treatment_proxy: Any,
        outcome_proxy: Any,
        covariates: Any = None,
    ) -> Self:
        """Fit to rows of a treatment, a number, both proxies, and covariates if there are any."""
        given = {"treatment": treatment, "z": treatment_proxy, "w": outcome_proxy}
        given |= {} if covariates is None else {"covariates": covariates}
        y, columns = self._read(outcome, **given)
        z, w = columns.pop("z"), columns.pop("w")
        known = list(columns.values())
        stage = FirstStage.of(np.hstack([z, *known]), w)
        self.strength_ = InstrumentStrength.of(w, stage, np.hstack(known))
        if self.strength_.f_statistic < WEAK:
            warn(
                f"weak proxies: F = {self.strength_.f_statistic:.1f}, that of the treatment "
                f"predicts {self.strength_.partial:.1%} of what else is left of the outcome's.",
                DataWarning,
            )
        self._fit_response([w, *known], y, stage)
        return self

    def effect(self, t: Any) -> CausalCurve:
        """The mean outcome if everyone got treatment t, at each t of a grid."""
        check_is_fitted(self, "response_")
        asked, columns = self._treatments(t)
        n = len(self.response_.outcome)
        first = self.response_.grams(self._set, columns)
        pair = self._curve(first, self._row_factors(), np.full(n, 1 / n), True, False)
        return self._make_curve(asked, pair, "average outcome", None)
