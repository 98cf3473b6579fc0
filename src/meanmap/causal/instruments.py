"""The effect of a treatment with unmeasured causes, by an instrument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from meanmap.causal.curves import CausalCurve
from meanmap.causal.effects import CausalEstimator
from meanmap.causal.regression import FirstStage
from meanmap.exceptions import DataWarning, warn

WEAK = 10.0  # an F statistic below which an instrument is called weak


@dataclass(frozen=True)
class InstrumentStrength:
    """How much of the treatment the instrument moves.

    Attributes
    ----------
    explained : float
        The share of the treatment's variance that instrument and covariates predict, of left-out
        rows.
    partial : float
        The share of what covariates leave of the treatment that the instrument predicts.
    f_statistic : float
        `n partial/((1 - partial) d)`, with d the degrees of freedom that the instrument adds. Below
        10 it is weak.

    Examples
    --------
    >>> from meanmap.causal import InstrumentStrength
    >>> InstrumentStrength(explained=0.5, partial=0.5, f_statistic=100.0).partial
    0.5
    """

    explained: float
    partial: float
    f_statistic: float

    @classmethod
    def of(cls, t: np.ndarray, stage: FirstStage, x: np.ndarray | None) -> InstrumentStrength:
        """Of the first stage, against one on the covariates alone."""
        explained, known, freedom = stage.explained(t), 0.0, stage.freedom
        if x is not None:
            alone = FirstStage.of(x, t)
            known, freedom = max(alone.explained(t), 0.0), freedom - alone.freedom
        partial = max((explained - known) / max(1 - known, 1e-12), 0.0)
        f = len(t) * partial / max(1 - partial, 1e-12) / max(freedom, 1.0)
        return cls(explained, partial, float(f))


class InstrumentalRegression(CausalEstimator):
    """The outcome as a function of a treatment whose unmeasured causes also move the outcome.

    An instrument moves the treatment and, through it alone, the outcome: `E[Y - h(T, X) | Z, X] =
    0`. Two ridge regressions in closed form (Singh, Sahani and Gretton 2019): the first is the
    conditional embedding of the treatment given instrument and covariates, the second that of the
    outcome on it. In place of a split into halves every row's first stage is that of all other
    rows, so that its own noise does not return in the second.

    Parameters
    ----------
    regularization : "auto" or float
        λ of the second stage; "auto" maximises the marginal likelihood of outcomes given the
        instrument, with the scales of the kernel. That of the first stage has the least error of
        rows left out.
    basis, random_state : as in `DoseResponse`

    Attributes
    ----------
    response_ : the second stage
    strength_ : InstrumentStrength

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import InstrumentalRegression
    >>> rng = np.random.default_rng(0)
    >>> z, hidden = rng.normal(size=(2, 500))
    >>> t = z + hidden
    >>> y = np.sin(t) - 2 * hidden + 0.3 * rng.normal(size=500)  # y falls with t among the rows
    >>> model = InstrumentalRegression(random_state=0).fit(t, y, z)
    >>> slope = model.predict([-1.0, 1.0])
    >>> bool(slope[1] - slope[0] > 0.8)  # 2 sin(1) is 1.7; a plain regression has about -0.5
    True
    """

    def fit(self, treatment: Any, outcome: Any, instrument: Any, covariates: Any = None) -> Self:
        """Fit to rows of a treatment, a number, an instrument, and covariates if there are any."""
        given = {"treatment": treatment, "instrument": instrument}
        given |= {} if covariates is None else {"covariates": covariates}
        y, columns = self._read(outcome, **given)
        t, x = columns["treatment"], columns.get("covariates")
        besides = [] if x is None else [x]
        stage = FirstStage.of(np.hstack([columns["instrument"], *besides]), t)
        self.strength_ = InstrumentStrength.of(t, stage, x)
        if self.strength_.f_statistic < WEAK:
            warn(
                f"a weak instrument: F = {self.strength_.f_statistic:.1f}, it predicts "
                f"{self.strength_.partial:.1%} of the treatment's variance. Below {WEAK:g} answers "
                "may lie near those of a plain regression, and intervals are too narrow.",
                DataWarning,
            )
        self._fit_response([t, *besides], y, stage)
        return self

    def predict(self, t: Any, covariates: Any = None) -> np.ndarray:
        """h at treatments; with covariates row by row, else averaged over those of the fit."""
        return self.effect(t, covariates).mean

    def effect(self, t: Any, covariates: Any = None) -> CausalCurve:
        """h at treatments with intervals: row by row with covariates, else averaged over them."""
        check_is_fitted(self, "response_")
        asked, columns = self._treatments(t)
        response = self.response_
        first = response.grams(0, columns)
        known = "covariates" in self.codings_
        if covariates is not None and not known:
            raise ValueError("covariates: this model was fitted without any.")
        if covariates is not None:
            x = self.codings_["covariates"].read(covariates, "covariates")
            if len(x) not in (1, len(columns)):
                raise ValueError(
                    f"covariates: expected one row per treatment ({len(columns)}), got {len(x)}."
                )
            found = response.answer(first * response.grams(1, x))
            return self._make_curve(
                asked, (found.mean, found.covariance()), "outcome given covariates", None
            )
        if known:
            n = len(response.outcome)
            pair = self._curve(first, self._row_factors(), np.full(n, 1 / n), True, False)
        else:
            found = response.answer(first)
            pair = found.mean, found.covariance()
        return self._make_curve(asked, pair, "average outcome", None)
