"""The test of conditional independence by residuals, once both variables were regressed on Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.comparison.column_effects import InWords
from meanmap.comparison.effects import EffectSize
from meanmap.comparison.fit_quality import ConditionalTestResult, FitQuality, quality_notes
from meanmap.comparison.quadratic import FORM_NULLS
from meanmap.comparison.residual_contrasts import (
    Given,
    ResidualSide,
    judge_residuals,
    leading_residuals,
    residual_effect_of,
)
from meanmap.comparison.results import GammaNull, TestResult
from meanmap.kernels import Kernel

METHOD = "Conditional independence test by residuals"
DEPENDENT_GIVEN = "X and Y are dependent given Z"
STANDS_OUT = 0.05  # p-value below which the contrast that stands out is named


@dataclass(frozen=True, eq=False, repr=False)
class ResidualPair(InWords):
    """The residuals of X and of Y given Z."""

    sides: tuple[ResidualSide, ResidualSide]

    def effect(self) -> EffectSize:
        """How far X and Y go together beyond what Z explains."""
        return residual_effect_of(*self.sides)

    def plot(self, ax: Any) -> Any:
        """The residuals along the two directions that covary most."""
        names = "residual of X given Z", "residual of Y given Z"
        a, b = leading_residuals(*self.sides)
        return plots.against(a, b, names, ax)


def compare_residuals(
    pair: ResidualPair,
    qualities: tuple[FitQuality, FitQuality],
    given: Given,
    null: Any,
    draws: int,
    rng: np.random.Generator,
) -> ConditionalTestResult:
    """The test of two variables that were regressed on a third."""
    n = len(given.columns)
    found, what = judge_residuals(*pair.sides, given, null_word(null), draws, rng)
    quality = dict(zip("XY", qualities, strict=True))
    notes = [*quality_notes(quality), smoother_note(pair.sides)]
    if what and found.null.pvalue(found.statistic) <= STANDS_OUT:
        notes.insert(0, f"What stands out: {what}.")
    return ConditionalTestResult.of(
        found,
        METHOD,
        kernel=None,
        hypothesis=DEPENDENT_GIVEN,
        sizes={"n": n},
        notes=tuple(notes),
        fit_quality=quality,
        explanation=pair,
    )


def by_default(null: Any) -> bool:
    """Whether a null has its default settings, and is one of this test."""
    return not null.halves and null == type(null)()


def null_word(null: Any) -> str:
    """The word of a null object."""
    return next(word for word, one in FORM_NULLS.items() if type(null) is one.null)


def smoother_note(
    sides: tuple[ResidualSide, ResidualSide], given: str = "Z", names: tuple[str, str] = ("X", "Y")
) -> str:
    """What the regressions were."""
    x, y = (side.smoother for side in sides)
    if x == y:
        return f"Regressions on {given}: {x}."
    return f"Regressions on {given}: {x} for {names[0]}, {y} for {names[1]}."


def constant_note(name: str) -> str:
    """What to say of a variable that does not vary."""
    return f"{name} is constant, and a constant depends on nothing."


def determined_note(name: str, given: str = "Z") -> str:
    """What to say of a variable of which a regression leaves nothing."""
    return f"{given} determines {name}, and nothing is left of it to depend."


def degenerate_result(
    note: str,
    kernels: tuple[Kernel, ...] | None,
    method: str,
    hypothesis: str,
    sizes: dict[str, int],
) -> TestResult:
    """The answer where there is nothing that could depend."""
    found = GammaNull("degenerate", 0.0, 0.0)
    return TestResult(0.0, 1.0, found, kernels, method, hypothesis, sizes, (note,))
