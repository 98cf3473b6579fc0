"""What a treatment did to those who got it: counterfactual mean embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from meanmap.arrays import Points, concatenate, count, in_kind, take, to_numpy
from meanmap.comparison.conditional import LEAST, constant_note, degenerate_result
from meanmap.comparison.methods import Request
from meanmap.comparison.quadratic import FORM_NULLS, Hadamard
from meanmap.comparison.residuals import Conditioned, Conditioning, fit_regressors, varies
from meanmap.comparison.results import TestResult, row_groups
from meanmap.comparison.sources import Outcome
from meanmap.comparison.witness import Difference
from meanmap.embeddings import Embedding, embed
from meanmap.statistics.conditional import read_paired_conditionals
from meanmap.statistics.gates import one_each

METHOD = "Counterfactual effect on the treated"
HYPOTHESIS = "the treatment changes the distribution of the outcome among the treated"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CounterfactualEffect(TestResult):
    """The effect of a treatment on the distribution of an outcome, among the treated.

    A `TestResult` (`statistic, pvalue = effect`) with what the treatment did.

    Attributes
    ----------
    treated : Embedding
        The outcomes of the treated.
    counterfactual : Embedding
        The outcomes that the treated would have had without treatment, as those of the controls
        tell: `control.push(embed(X_treated))`.
    effect : Embedding
        The one minus the other. As a function it is positive at outcomes that the treatment makes
        more frequent.
    squared_distance : float
        `‖effect‖²`, which is positive for any sample.
    mean_effect : array or None
        The difference of the mean outcomes; None for outcomes that are not vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import counterfactual_effect
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 1))
    >>> control = x + 0.1 * rng.normal(size=x.shape)
    >>> treated = x + 1 + 0.1 * rng.normal(size=x.shape)
    >>> found = counterfactual_effect(x[:100], control[:100], x[100:], treated[100:], rng=0)
    >>> bool(abs(abs(found.mean_effect) - 1) < 0.2), found.pvalue < 0.05
    (True, True)
    """

    treated: Embedding
    counterfactual: Embedding
    mean_effect: np.ndarray | None

    @property
    def effect(self) -> Embedding:
        return self.treated - self.counterfactual

    @property
    def squared_distance(self) -> float:
        return float(self.treated.distance(self.counterfactual)) ** 2

    def __repr__(self) -> str:
        text = super().__repr__()
        if self.mean_effect is None:
            return text
        shown = ", ".join(f"{value:.3g}" for value in np.ravel(to_numpy(self.mean_effect))[:6])
        more = ", …" if np.size(to_numpy(self.mean_effect)) > 6 else ""
        return f"{text} Mean effect: {shown}{more}."


def as_asked(points: Points, asked: Any) -> Points:
    """Points on the host, in the kind of array that was asked about."""
    return points if isinstance(points, tuple) else in_kind(points, asked)


@row_groups(((0, 1), (2, 3)))
def counterfactual_effect(
    X_control: Any,
    Y_control: Any,
    X_treated: Any,
    Y_treated: Any,
    kernel: Any = None,
    null: Any = "wild",
    n_permutations: int = 999,
    rng: Any = None,
) -> CounterfactualEffect:
    """What did a treatment do to the outcomes of those who were treated?

    The counterfactual mean embedding (Muandet et al. 2021) pushes the covariates of the treated
    through the conditional distribution of the controls' outcomes, and is compared with the
    outcomes that the treated had. The answer is causal if, given X, who was treated does not depend
    on the outcome, and if there are controls wherever there are treated. Beyond the controls the
    regression goes back to their mean, and the mean effect is overstated or understated: with
    treatment by 1/(1 + exp(-2x)) it was 1.25 for 1. Drop treated rows without controls near by.

    The test asks whether treated and controls share one P(Y|X). Its statistic is the squared effect
    on the residuals of a regression on X of all outcomes, treated and controls: what the weights
    of the controls leave unbalanced is explained before they are compared, so that it is neither
    taken for an effect nor does it hide one. The null is drawn by random signs of the residuals.

    Parameters
    ----------
    X_control, Y_control : paired points, covariates and outcomes without treatment
    X_treated, Y_treated : paired points, with treatment
    kernel : one for both variables, or a tuple (x, y)
        Each is a Kernel, a callable or None, which chooses for the kind of points, with a learned
        metric for several columns of X.
    null : {"wild", "gamma", "simulation"} or null object
        "wild" is `ResidualSigns()`, "gamma" `ResidualGamma()` and "simulation" `ResidualNormals()`.
        These objects hold the settings of the regressions, `regularization` and `basis`.
    n_permutations : int
    rng : int, Generator or None

    Returns
    -------
    CounterfactualEffect

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import counterfactual_effect
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 1))
    >>> treated = rng.random(600) < 1 / (1 + np.exp(-X[:, 0]))  # the more x, the likelier
    >>> Y = X + 0.5 * rng.normal(size=(600, 1)) + 0.4 * treated[:, None]
    >>> found = counterfactual_effect(X[~treated], Y[~treated], X[treated], Y[treated], rng=0)
    >>> found.pvalue, found.mean_effect.round(1)  # without care for X it would be 1.3
    (0.001, array([0.4]))
    """
    asked = Request.read(FORM_NULLS, null, n_permutations, rng)
    kernel_x, kernel_y = one_each(kernel, "kernel", "xy")
    bases, given = one_each(asked.null.basis, "basis", "xy"), asked.null.regularization
    (kx, ky), (X0, Y0), (X1, Y1) = read_paired_conditionals(
        X_control, Y_control, X_treated, Y_treated, kernel_x, kernel_y, LEAST
    )
    Y, sizes = concatenate([Y0, Y1]), {"controls": count(X0), "treated": count(X1)}
    X = concatenate([X0, X1])
    conditioning = Conditioning.of(X, kx, bases[0], chosen=kernel_x is not None)
    kernels = conditioning.kernel, ky
    phi = fit_regressors(ky, Y, bases[1])[1]
    weights = control_weights(conditioning, phi, count(X0), given)
    a = np.concatenate([-weights, np.full(count(X1), 1 / count(X1))])
    vectors = not isinstance(Y, tuple) and Y.ndim == 2 and Y.dtype.kind == "f"
    effect: dict[str, Any] = {
        "treated": embed(as_asked(Y1, X_treated), ky),
        "counterfactual": embed(as_asked(Y0, X_control), ky, weights=weights),
        # weights sum to zero but for rounding, which far from the origin would count
        "mean_effect": in_kind(a @ (Y - Y.mean(axis=0)), X_treated) if vectors else None,
    }
    if not varies(phi):
        flat = degenerate_result(constant_note("Y"), kernels, METHOD, HYPOTHESIS, sizes)
        return CounterfactualEffect(**flat.__dict__, **effect)
    found = _test_effect(conditioning.regress(phi, phi, given), a, asked)
    return CounterfactualEffect.of(
        found,
        METHOD,
        **effect,
        kernel=kernels,
        hypothesis=HYPOTHESIS,
        sizes=sizes,
        explanation=Effect(ky, Y1, Y0, weights=weights),
    )


def _test_effect(outcomes: Conditioned, a: np.ndarray, asked: Request) -> Outcome:
    """The squared effect on residuals, a the weights of treated and controls, and its null."""
    R, through = outcomes.residuals(), a[:, None]
    noise = R
    if asked.null.refit:  # linear in the noise of the outcomes, ‖(Sa)ᵀ noise‖²
        noise, through = outcomes.noise(), outcomes.ridge.residuals(through)
    found = asked.method.find(Hadamard(through, noise), asked.draws, asked.rng)
    return Outcome(float(np.sum((a @ R) ** 2)), found)


def control_weights(
    conditioning: Conditioning, phi: np.ndarray, n0: int, given: float | str
) -> np.ndarray:
    """Weights of the controls that stand for the treated: the mean regression at their points.

    They sum to one, since the regression has a free constant.
    """
    controls = conditioning.part(np.arange(n0)).regress(phi[:n0], phi[:n0], given)
    treated = controls.place(take(conditioning.points, slice(n0, None)))
    return controls.ridge.returned(treated, np.full((len(treated), 1), 1 / len(treated)))[:, 0]


@dataclass(frozen=True, eq=False, repr=False)
class Effect(Difference):
    """The treated minus what they would have been, as a function of the outcome."""

    weights: np.ndarray = field(kw_only=True)
    # of controls with weights that were estimated there is no interval
    effect: ClassVar[Any] = None
    columns: ClassVar[Any] = None

    def __call__(self, x: Any) -> np.ndarray:
        expected = embed(self.Y, self.kernel, weights=self.weights)
        return embed(self.X, self.kernel)(x) - expected(x)
