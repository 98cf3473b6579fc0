"""Dose responses and instruments as estimators of DoWhy.

DoWhy finds an estimator by its place, `method_name="backdoor.meanmap.causal.dowhy_estimator.
MeanmapEstimator"` (or `"iv. ..."` with an instrument). The class is made when it is asked for,
since DoWhy is optional.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from meanmap.causal.dose_response import DoseResponse
from meanmap.causal.instruments import InstrumentalRegression


def fit_model(estimand: Any, data: Any, modifiers: list[str]) -> Any:
    """A model for what DoWhy identified, of a data frame."""
    (t,), (y,) = estimand.treatment_variable, estimand.outcome_variable
    by_instrument = estimand.identifier_method == "iv"
    names = [] if by_instrument else estimand.get_adjustment_set()
    names = list(dict.fromkeys([*names, *modifiers]))
    covariates = data[names] if names else None
    if by_instrument:
        model = InstrumentalRegression(random_state=0)
        return model.fit(data[t], data[y], data[estimand.instrumental_variables], covariates)
    return DoseResponse(random_state=0).fit(data[t], data[y], covariates)


@cache
def estimator_class() -> type:
    """DoWhy's base class with this package's estimates."""
    from dowhy.causal_estimator import CausalEstimate, CausalEstimator

    class MeanmapEstimator(CausalEstimator):
        """The effect of a treatment by `DoseResponse`, or by `InstrumentalRegression`."""

        def fit(self, data: Any, effect_modifier_names: Any = None) -> Any:
            self._set_effect_modifiers(data, effect_modifier_names)
            self.model_ = fit_model(self._target_estimand, data, self._effect_modifier_names or [])
            return self

        def estimate_effect(
            self,
            data: Any,
            treatment_value: Any = 1,
            control_value: Any = 0,
            target_units: Any = None,
            **_: Any,
        ) -> Any:
            self._treatment_value, self._control_value = treatment_value, control_value
            self._target_units = target_units
            who = {"att": treatment_value, "atc": control_value}.get(str(target_units))
            options = {} if who is None else {"treated": who}
            values = [control_value, treatment_value]
            self.curve_ = self.model_.effect(values, **options).difference()
            estimate = CausalEstimate(
                data=data,
                treatment_name=self._target_estimand.treatment_variable,
                outcome_name=self._target_estimand.outcome_variable,
                estimate=float(self.curve_.mean[1]),
                control_value=control_value,
                treatment_value=treatment_value,
                target_estimand=self._target_estimand,
                realized_estimand_expr=self.construct_symbolic_estimator(self._target_estimand),
            )
            estimate.add_estimator(self)
            return estimate

        def construct_symbolic_estimator(self, estimand: Any) -> str:
            return f"E[{estimand.outcome_variable[0]} | do({estimand.treatment_variable[0]})]"

        def _estimate_confidence_intervals(
            self, confidence_level: Any = None, method: Any = None, **_: Any
        ) -> Any:
            low, high = self.curve_.interval(confidence_level or 0.95)
            return low[1], high[1]

        def _estimate_std_error(self, method: Any = None, **_: Any) -> float:
            return float(self.curve_.standard_error[1])

        def _test_significance(
            self, estimate_value: Any, method: Any = None, **_: Any
        ) -> dict[str, float]:
            return {"p_value": float(self.curve_.pvalue()[1])}

    return MeanmapEstimator


def __getattr__(name: str) -> Any:
    """The class, once it is asked for."""
    if name == "MeanmapEstimator":
        return estimator_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
