"""What estimators of causal functions share: reading their input, and averages over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from meanmap import checks
from meanmap.causal.coding import VariableCoding, read_outcome
from meanmap.causal.curves import CausalCurve, Overlap
from meanmap.causal.regression import FirstStage, Response
from meanmap.embeddings import Embedding, embed
from meanmap.exceptions import DataWarning, warn
from meanmap.frames import is_frame

BESIDE = 4.0  # times the variance at observed rows: beyond it a counterfactual has no support
LOOKED = 400  # rows that support is measured on
LOW, DETERMINED = 0.8, 0.95  # share of rows with support, of a treatment explained: warnings
COPIES = 4000  # atoms of a counterfactual distribution, at least
FEWEST = 10  # rows


def column_name(value: Any, usual: str) -> str:
    """The name of a Series or of a frame's only column."""
    if is_frame(value):
        return str(value.columns[0]) if len(value.columns) == 1 else usual
    return str(getattr(value, "name", None) or usual)


class CausalEstimator(BaseEstimator):
    """Estimators with a regression of the outcome on a treatment and on variables besides it.

    `_set` is the place of the treatment among the variables of the regression, and the others are
    averaged over their rows.
    """

    _set = 0
    response_: Response
    codings_: dict[str, VariableCoding]
    names_: tuple[str, str]

    def __init__(
        self, regularization: float | str = "auto", basis: Any = None, random_state: Any = None
    ) -> None:
        self.regularization = regularization
        self.basis = basis
        self.random_state = random_state

    def _read(self, outcome: Any, **variables: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The outcome and the columns of each variable, whose codings are kept."""
        if self.regularization != "auto":
            checks.positive(self.regularization, "regularization", 'Use "auto" or a number.')
        y = read_outcome(outcome)
        pairs = {name: VariableCoding.of(value, name) for name, value in variables.items()}
        columns = {name: found for name, (_, found) in pairs.items()}
        n = checks.same_length([*columns.items(), ("outcome", y)])
        if n < FEWEST:
            raise ValueError(f"expected at least {FEWEST} rows, got {n}.")
        self.codings_ = {name: coding for name, (coding, _) in pairs.items()}
        treatment = column_name(variables["treatment"], "treatment")
        self.names_ = treatment, column_name(outcome, "outcome")
        return y, columns

    def _fit_response(
        self,
        variables: Sequence[np.ndarray],
        y: np.ndarray,
        smoother: FirstStage | None = None,
    ) -> None:
        self.response_ = Response.of(
            variables,
            y,
            checks.random_generator(self.random_state, "random_state"),
            smoother,
            self.basis,
            self.regularization,
        )

    # --- the treatments asked for, and the rows averaged over ---------------------------------

    def _treatments(self, t: Any) -> tuple[np.ndarray, np.ndarray]:
        """Treatments as they were asked for, and their columns."""
        if np.ndim(t) == 0 and not isinstance(t, dict):
            t = np.array([t])
        columns = self.codings_["treatment"].read(t, "t")
        asked = t.to_numpy() if hasattr(t, "to_numpy") else np.asarray(t)
        return asked, columns

    def _others(self) -> list[int]:
        return [i for i in range(len(self.response_.variables)) if i != self._set]

    def _row_factors(self) -> np.ndarray:
        """The product of the other variables' factors at every row: (n, landmarks)."""
        grams = [self.response_.grams(i, self.response_.variables[i]) for i in self._others()]
        return np.asarray(np.prod(grams, axis=0)) if grams else np.ones((1, 1))

    def _curve(
        self,
        first: np.ndarray,
        rows: np.ndarray,
        weights: np.ndarray,
        own: bool,
        debiased: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and their covariance, of the treatment's factors and rows with weights.

        `own` says that the rows are those of the fit, whose noise and place then vary together.
        """
        response = self.response_
        answer = response.answer(first * (weights @ rows), debiased)
        values = response.values(first, rows)
        place = weights[:, None] * (values - weights @ values)
        if own:
            return answer.mean, answer.covariance(place)
        return answer.mean, answer.covariance() + place.T @ place

    # --- diagnostics --------------------------------------------------------------------------

    def _support(self, columns: np.ndarray, rows: Sequence[np.ndarray]) -> np.ndarray:
        """The share of rows, each set to a treatment, that have data near by."""
        response, variables = self.response_, self.response_.kernel.variables
        n = len(response.outcome)
        some = np.linspace(0, n - 1, min(n, LOOKED)).astype(int)
        count = len(rows[0]) if rows else 1
        few = np.linspace(0, count - 1, min(count, LOOKED)).astype(int)

        def variances(parts: Sequence[np.ndarray]) -> np.ndarray:
            triples = list(zip(range(len(parts)), variables, parts, strict=True))
            grams = np.prod([response.grams(i, x) for i, _, x in triples], axis=0)
            norms = np.prod([factor.squared_norms(x) for _, factor, x in triples], axis=0)
            return response.variances(grams, norms)

        usual = variances([x[some] for x in response.variables])
        bar = BESIDE * float(np.quantile(usual, 0.99))
        shares = []
        for t in columns:
            parts = [x[few] for x in rows]
            parts.insert(self._set, np.broadcast_to(t, (len(few), len(t))))
            shares.append(float((variances(parts) <= bar).mean()))
        return np.array(shares)

    def _warn_of(self, asked: np.ndarray, support: np.ndarray) -> None:
        if support.min() < LOW:
            i = int(np.argmin(support))
            warn(
                f"no overlap: at {self.names_[0]} {asked[i]} only {support[i]:.0%} of the rows "
                "have similar rows with such a treatment; the rest of the answer is extrapolated. "
                "See .overlap(t).plot(), and ask about treatments or a subgroup with support.",
                DataWarning,
            )

    def _overlap(self, asked: np.ndarray, columns: np.ndarray, predictable: float) -> Overlap:
        rows = [self.response_.variables[i] for i in self._others()]
        return Overlap(asked, self._support(columns, rows), predictable, self.names_)

    def _make_curve(
        self,
        asked: np.ndarray,
        found: tuple[np.ndarray, np.ndarray],
        kind: str,
        support: np.ndarray | None,
        mass: float = 1.0,
    ) -> CausalCurve:
        mean, covariance = found
        mean = mean + mass * self.response_.centre
        return CausalCurve(asked, mean, covariance, kind, self.names_, support)


def counterfactual_distribution(
    response: Response, values: np.ndarray, spread: np.ndarray, rng: np.random.Generator
) -> Embedding:
    """The law of an outcome: means of rows, moved by standardised residuals times their spread.

    `spread` are the logarithms of the noise's variance, at the observed rows and at those of the
    means, one under the other.
    """
    n = len(response.outcome)
    at, there = np.exp(spread[:n] / 2), np.exp(spread[n:] / 2)
    residuals = response.residuals / at
    copies = max(1, -(-COPIES // len(values)))
    drawn = rng.permuted(np.resize(residuals, (copies, max(n, len(values)))), axis=1)
    atoms = values + there * drawn[:, : len(values)]
    return embed(atoms.reshape(-1, 1))
