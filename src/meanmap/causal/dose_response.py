"""The effect of a treatment that depends on measured covariates alone."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.causal.coding import has_levels
from meanmap.causal.curves import CausalCurve, Overlap
from meanmap.causal.effects import DETERMINED, CausalEstimator, counterfactual_distribution
from meanmap.causal.regression import FirstStage
from meanmap.embeddings import Embedding
from meanmap.exceptions import DataWarning, warn

MOST = 5000  # rows whose effects are predicted at once, with their covariance
TINY = 1e-2  # of the outcome's variance, added to squared residuals before their logarithm


class DoseResponse(CausalEstimator):
    """The average outcome as a function of a treatment, other things being equal.

    `θ(t) = E[m(t, X)]` with `m(t, x) = E[Y | T=t, X=x]`, a sum rule: the regression's kernel is a
    product, `θ(t) = ⟨m, φ(t) ⊗ μ_X⟩`, and the mean over covariates costs one inner product (Singh,
    Xu and Gretton 2024). It is causal if, given the covariates, the treatment does not depend on
    what the outcome would be, and if rows of all kinds got treatments near t (`overlap`).

    Parameters
    ----------
    regularization : "auto" or float
        λ of the regression, on the operator's scale for n rows, outcomes and columns standardised.
        "auto" maximises the marginal likelihood.
    debiased : bool
        Add the weighted residuals of left-out rows, as doubly robust estimators do. For treatments
        with a few levels theory then promises root-n rates, at the cost of a larger variance.
    basis : a basis or None
        Landmarks; None is up to 1,000 pivots, or 400 of more than 2,000 rows.
    random_state : int, Generator or None
        For the rows that kernels are learned on, and for draws.

    Attributes
    ----------
    response_ : the regression
    predictable_ : the share of the treatment's variance that covariates predict

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import DoseResponse
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> t = X[:, 0] + rng.normal(size=300)
    >>> y = t**2 + 2 * X[:, 0] + 0.5 * rng.normal(size=300)
    >>> curve = DoseResponse(random_state=0).fit(t, y, X).effect([-1.0, 0.0, 1.0])
    >>> bool(abs(curve.mean - [1, 0, 1]).max() < 0.4)  # 2 E[X | t] would add ±1
    True
    """

    def __init__(
        self,
        regularization: float | str = "auto",
        debiased: bool = False,
        basis: Any = None,
        random_state: Any = None,
    ) -> None:
        self.regularization = regularization
        self.debiased = debiased
        self.basis = basis
        self.random_state = random_state

    def fit(self, treatment: Any, outcome: Any, covariates: Any) -> Self:
        """Fit to rows: a treatment (numbers or labels), a number, and covariates of any kind."""
        y, columns = self._read(outcome, treatment=treatment, covariates=covariates)
        t, x = columns["treatment"], columns["covariates"]
        self._fit_response([t, x], y)
        self.levels_ = has_levels(t)
        self.predictable_ = FirstStage.of(x, t).explained(t)
        if self.predictable_ > DETERMINED:
            warn(
                f"covariates predict {self.predictable_:.1%} of the treatment's variance: it is "
                "nearly a function of them, and their effects cannot be told apart. Leave out "
                "covariates that are the treatment in other words.",
                DataWarning,
            )
        return self

    def effect(
        self,
        t: Any,
        *,
        treated: Any = None,
        subgroup: Any = None,
        population: Any = None,
        derivative: bool = False,
    ) -> CausalCurve:
        """The mean outcome if everyone got treatment t, at each t of a grid.

        Parameters
        ----------
        t : treatments
        treated : a treatment or None
            Average over those who got this one ("on the treated") in place of all rows.
        subgroup : mask of the rows, or None
            Average over some of the rows.
        population : covariates or None
            Average over other rows, of which only covariates are known.
        derivative : bool
            The derivative in t, of a treatment that is one column of numbers.
        """
        check_is_fitted(self, "response_")
        asked, columns = self._treatments(t)
        response = self.response_
        rows, weights, who = self._rows(treated, subgroup, population)
        first = self._slopes(columns) if derivative else response.grams(0, columns)
        others = response.grams(1, rows)
        found = self._curve(first, others, weights, population is None, self.debiased)
        kept = rows[weights > weights.max() / 100] if population is None else rows
        support = self._support(columns, [kept])
        self._warn_of(asked, support)
        kind = "derivative of the average outcome" if derivative else "average outcome"
        return self._make_curve(asked, found, kind + who, support, mass=0.0 if derivative else 1.0)

    def overlap(self, t: Any) -> Overlap:
        """Which share of the rows has similar rows with a treatment near each t."""
        check_is_fitted(self, "response_")
        return self._overlap(*self._treatments(t), self.predictable_)

    def distribution(
        self, t: Any, *, treated: Any = None, subgroup: Any = None, population: Any = None
    ) -> Embedding:
        """The distribution of the outcome if everyone got treatment t, one treatment.

        Each row's mean at t, moved by residuals of other rows, whose spread is a function of
        treatment and covariates too: `quantile`, `expect(lambda y: y > 0)`, `sample` and `density`.
        """
        check_is_fitted(self, "response_")
        _, columns = self._treatments(t)
        if len(columns) != 1:
            raise ValueError(f"t: expected one treatment, got {len(columns)}.")
        rows, weights, _ = self._rows(treated, subgroup, population)
        rng = checks.random_generator(self.random_state, "random_state")
        response = self.response_
        n = len(weights)
        if np.ptp(weights) > 0:
            p = np.maximum(weights, 0.0)
            rows = rows[rng.choice(n, max(n, 1000), p=p / p.sum())]
        first, others = response.grams(0, columns), response.grams(1, rows)
        values = response.values(first, others)[:, 0] + response.centre
        place = response.coordinates(first * others)
        logs = np.concatenate([self._spread(response.rows), self._spread(place)])
        return counterfactual_distribution(response, values, logs, rng)

    def row_effects(self, t: Any, reference: Any, covariates: Any = None) -> CausalCurve:
        """The effect of treatment t against another on every row: `m(t, x) - m(reference, x)`.

        Of the rows of the fit, or of those with these covariates; at most 5,000 at once. What is
        predicted is the mean effect on rows like this one.
        """
        check_is_fitted(self, "response_")
        response, (_, x) = self.response_, self.response_.variables
        if covariates is not None:
            x = self.codings_["covariates"].read(covariates, "covariates")
        if len(x) > MOST:
            raise ValueError(f"covariates: expected at most {MOST} rows at once, got {len(x)}.")
        (_, one), (_, other) = self._treatments(t), self._treatments(reference)
        if len(one) != 1 or len(other) != 1:
            raise ValueError("row_effects: t and reference are one treatment each.")
        change = response.grams(0, one) - response.grams(0, other)
        found = response.answer(change * response.grams(1, x))
        kind = f"effect of {self.names_[0]} {t} against {reference} on each row"
        pair = found.mean, found.covariance()
        return self._make_curve(np.arange(len(x)), pair, kind, None, mass=0.0)

    # --- how ----------------------------------------------------------------------------------

    def _rows(
        self, treated: Any, subgroup: Any, population: Any
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """The rows averaged over, their weights, and who they are."""
        if sum(value is not None for value in (treated, subgroup, population)) > 1:
            raise ValueError("effect: pass one of treated, subgroup and population, not several.")
        t, x = self.response_.variables
        n = len(x)
        if population is not None:
            rows = self.codings_["covariates"].read(population, "population")
            return rows, np.full(len(rows), 1 / len(rows)), " of another population"
        if subgroup is not None:
            mask = np.asarray(subgroup)
            if mask.dtype != bool or mask.shape != (n,) or not mask.any():
                raise ValueError(
                    f"subgroup: expected a mask of {n} truth values that holds for some rows, got "
                    f"{checks.describe(mask)}."
                )
            return x, mask / mask.sum(), f" of a subgroup ({int(mask.sum())} rows)"
        if treated is None:
            return x, np.full(n, 1 / n), ""
        asked, at = self._treatments(treated)
        if len(at) != 1:
            raise ValueError(f"treated: expected one treatment, got {len(at)}.")
        if self.levels_:
            got = (abs(t - at) < 1e-9).all(axis=1)
            if not got.any():
                raise ValueError(f"treated={treated!r}: there are no such rows.")
            weights = got / got.sum()
        else:
            weights = FirstStage.of(t, x).weights(at)[0]
        return x, weights, f" of those treated with {asked.reshape(-1)[0]}"

    def _slopes(self, columns: np.ndarray) -> np.ndarray:
        """Derivatives of the treatment's factor, in the treatment's units."""
        coding, response = self.codings_["treatment"], self.response_
        if not coding.is_number:
            raise ValueError("derivative=True needs a treatment that is one column of numbers.")
        factor = response.kernel.variables[0]
        found: np.ndarray = factor.slope(columns, response.landmarks[0]) / coding.scale[0]
        return found

    def _spread(self, place: np.ndarray) -> np.ndarray:
        """The logarithm of the noise's variance, regressed in the same coordinates."""
        response = self.response_
        squares = response.residuals**2
        logs = np.log(squares + TINY * squares.mean())
        return place @ response.regress(logs)
