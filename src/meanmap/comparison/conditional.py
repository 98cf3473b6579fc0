"""Tests that condition: independence given a variable, and equal conditional distributions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Points, concatenate, count
from meanmap.comparison.column_effects import InWords
from meanmap.comparison.effects import EffectSize, residual_effect
from meanmap.comparison.fit_quality import FitQuality, warn_if_missed
from meanmap.comparison.kci import (
    NULLS,
    KernelRegressions,
    ResidualTest,
    regression_notes,
    widen_kernel,
)
from meanmap.comparison.methods import Request
from meanmap.comparison.plain_columns import PlainColumns
from meanmap.comparison.residual_contrasts import Given, judge_residuals
from meanmap.comparison.residual_test import (
    DEPENDENT_GIVEN,
    METHOD,
    ResidualPair,
    by_default,
    compare_residuals,
    constant_note,
    degenerate_result,
    determined_note,
    null_word,
    smoother_note,
)
from meanmap.comparison.residuals import Conditioning, fit_regressors, varies
from meanmap.comparison.results import TestResult, row_groups
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Kernel
from meanmap.statistics.conditional import conditional_mmd, read_paired_conditionals
from meanmap.statistics.gates import one_each, read_paired_samples

LEAST = 5  # points without which no regression leaves residuals
SAME_GIVEN = "Conditional two-sample test", "P(Y|X) differs between the samples"
APART = "The samples have no X in common: X says which of them a row is from."


@row_groups(True)
def conditional_independence_test(
    X: Any,
    Y: Any,
    Z: Any,
    kernel: Any = None,
    null: Any = "wild",
    n_permutations: int = 999,
    rng: Any = None,
) -> TestResult:
    """Are X and Y independent given Z?

    By default, for numbers and labels, X and Y are regressed on Z, each by the smoother of least
    leave-one-out error: a line, curves of the columns, rough ones, a kernel on all columns in a
    learned metric, steps. Their residuals are brought to one scale along Z and to normal scores,
    and asked whether they rise together, everywhere or for some Z, whether their sizes go together,
    and whether one changes with the size of the other; the answers make one statistic, of which the
    null distribution accounts for what the regressions do to noise.

    With kernels it is the kernel conditional independence test (Zhang, Peters, Janzing and
    Schölkopf 2011): regress the features of (X, Z) and those of Y on Z; the statistic is
    `‖R_Xᵀ R_Y‖² / n` for the residuals R. Under the null hypothesis it is distributed as zᵀMz/n,
    `M = (E Eᵀ) ∘ (W Wᵀ)`, with random z and E the noise of X's side. W says how Y's residuals enter
    the statistic after the regression of X's side, so that the null knows what a regression does to
    noise.

    No test holds its level against every null (Shah and Peters 2020): where a regression on Z must
    miss much of what X and Y both owe to Z, they seem dependent.

    Parameters
    ----------
    X, Y, Z : points, rows at the same place
    kernel : one for all variables, or a tuple (x, y, z)
        Each is a Kernel, a callable or None. If all are None, numbers and labels are tested by
        residuals. Otherwise None chooses a kernel for the kind of points: for rows of numbers in Z
        a Gaussian whose metric and width are learned, for each regression by itself. A kernel that
        is given is taken as it is.
    null : word or null object
        How the null distribution is found. A word is short for the object with its defaults, which
        hold the settings of the regressions: `null=ResidualSigns(regularization=1e-2)`.

        ============= ===================== ====================================================
        word          object                what it does
        ============= ===================== ====================================================
        "wild"        `ResidualSigns()`     multiplies the noise by random signs
        "simulation"  `ResidualNormals()`   multiplies the noise by normal numbers
        "gamma"       `ResidualGamma()`     a gamma distribution of that mean and variance
        "split"       `ResidualSplit()`     regresses on half of the rows, tests on the others
        ============= ===================== ====================================================

        Each has `regularization`, `basis` and `refit`.
    n_permutations : int
        How many draws; the least p-value is 1/(1 + n_permutations).
    rng : int, Generator or None
        The same seed gives the same p-value.

    Returns
    -------
    ConditionalTestResult
        `.fit_quality["X"]` and `["Y"]` say how well each was regressed on Z, beside what near
        neighbours in Z say was there to learn; `.learned` is False, and a rejection warns, where
        both regressions missed much of it; `.checked` is False where near neighbours are too far
        apart to tell. `.witness(x, y, z)` says where X and Y go together
        given Z, `.plot()` draws the null and the most dependent directions of the residuals.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(200, 1))
    >>> X = Z + 0.5 * rng.normal(size=(200, 1))
    >>> Y = np.sin(Z) + 0.5 * rng.normal(size=(200, 1))  # depends on X through Z alone
    >>> conditional_independence_test(X, Y, Z, rng=0).pvalue > 0.05
    True
    >>> conditional_independence_test(X, Y + 0.5 * X, Z, rng=0).pvalue
    0.001
    """
    asked = Request.read(NULLS, null, n_permutations, rng)
    kernel_x, kernel_y, kernel_z = one_each(kernel, "kernel", "xyz")
    named = [("X", X, kernel_x), ("Y", Y, kernel_y), ("Z", Z, kernel_z)]
    (kx, ky, kz), (X, Y, Z) = read_paired_samples(named, LEAST)
    bases = one_each(asked.null.basis, "basis", "xyz")
    if kernel_x is kernel_y is kernel_z is None and by_default(asked.null):
        plain = [PlainColumns.of(points) for points in (X, Y, Z)]
        columns = [each for each in plain if each is not None]
        if len(columns) == 3:
            return judge_columns(columns, (kx, ky, kz), (X, Y, Z), asked)
    chosen = kernel_z is not None
    return KernelRegressions((kx, ky, kz), (X, Y, Z), bases, chosen, asked).result()


def judge_columns(
    columns: list[PlainColumns],
    kernels: tuple[Kernel, ...],
    points: tuple[Points, ...],
    asked: Request,
) -> TestResult:
    """The test of residuals of columns, with regressions chosen by leave-one-out."""
    x, y, z = columns
    words = METHOD, DEPENDENT_GIVEN, {"n": len(z)}
    for name, one in zip("XY", (x, y), strict=True):
        if not one.varies:
            return degenerate_result(constant_note(name), None, *words)
    given = Given(z)
    sides = given.side(x), given.side(y)
    for name, side in zip("XY", sides, strict=True):
        if side.determined:
            return degenerate_result(determined_note(name), None, *words)
    qualities = FitQuality.of(sides[0]), FitQuality.of(sides[1])
    pair = ResidualDependence(sides, kernels, points)
    result = compare_residuals(pair, qualities, given, asked.null, asked.draws, asked.rng)
    warn_if_missed(result.fit_quality, result.pvalue)
    return result


@dataclass(frozen=True, eq=False, repr=False)
class ResidualDependence(ResidualPair):
    """Where X and Y go together given Z, by regressions in their kernels' spaces."""

    kernels: tuple[Kernel, ...]
    points: tuple[Points, ...]

    @cached_property
    def _by_kernels(self) -> Any:
        asked = Request.read(NULLS, "gamma", 1, 0)
        return KernelRegressions(self.kernels, self.points, (None,) * 3, False, asked).explanation

    def __call__(self, x: Any, y: Any, z: Any) -> Any:
        return self._by_kernels(x, y, z)


# --- two samples ----------------------------------------------------------------------------------


@row_groups(((0, 1), (2, 3)))
def conditional_two_sample_test(
    X1: Any,
    Y1: Any,
    X2: Any,
    Y2: Any,
    kernel: Any = None,
    null: Any = "wild",
    n_permutations: int = 999,
    rng: Any = None,
) -> TestResult:
    """Is P(Y|X) the same in two samples, whatever their marginals of X?

    With G the sample that a row is from, this is the independence of Y and G given X. The statistic
    is `‖Σᵢ (gᵢ - E[g|xᵢ]) ψ(xᵢ) ⊗ (φ(yᵢ) - E[φ(y)|xᵢ])‖² / n`, both regressions on all rows: the
    difference of the conditional embeddings (Park and Muandet 2020) where both samples have
    points. By default, for numbers and labels, both are regressed and compared as in
    `conditional_independence_test`. A shift of X alone changes g's regression, and not the
    statistic. Under the null it is distributed as under random signs of the noise in Y.

    Parameters
    ----------
    X1, Y1 : paired points, the first sample
    X2, Y2 : paired points, the second
    kernel : one for both variables, or a tuple (x, y)
        Each is a Kernel, a callable or None, which chooses for the kind of points, with a learned
        metric for several columns of X.
    null : {"wild", "gamma", "simulation", "split"} or null object
        As in `conditional_independence_test`.
    n_permutations : int
    rng : int, Generator or None

    Returns
    -------
    TestResult
        `.witness(x, y)` is `μ_Y1|x(y) - μ_Y2|x(y)`, `.plot()` draws the conditional MMD along x.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_two_sample_test
    >>> rng = np.random.default_rng(0)
    >>> X1, X2 = rng.normal(0, 1, size=(150, 1)), rng.normal(1, 1, size=(150, 1))
    >>> Y1, Y2 = (np.sin(x) + 0.3 * rng.normal(size=x.shape) for x in (X1, X2))
    >>> conditional_two_sample_test(X1, Y1, X2, Y2, rng=0).pvalue > 0.05  # X shifts, Y|X does not
    True
    >>> conditional_two_sample_test(X1, Y1, X2, Y2 + 0.3 * X2, rng=0).pvalue
    0.001
    """
    asked = Request.read(NULLS, null, n_permutations, rng)
    kernel_x, kernel_y = one_each(kernel, "kernel", "xy")
    bases = one_each(asked.null.basis, "basis", "xy")
    kernels, (X1, Y1), (X2, Y2) = read_paired_conditionals(
        X1, Y1, X2, Y2, kernel_x, kernel_y, LEAST
    )
    X, Y, n1, n2 = concatenate([X1, X2]), concatenate([Y1, Y2]), count(X1), count(X2)
    plain = PlainColumns.of(X), PlainColumns.of(Y)
    conditioning = Conditioning.of(X, kernels[0], bases[0], chosen=kernel_x is not None)
    kernels = conditioning.kernel, kernels[1]
    method, hypothesis = SAME_GIVEN
    sizes = {"n₁": n1, "n₂": n2}
    default = kernel_x is None and kernel_y is None and by_default(asked.null)
    if default and plain[0] is not None and plain[1] is not None:
        samples = (X1, Y1), (X2, Y2)
        return judge_samples(plain[0], plain[1], kernels, samples, asked)
    space_y, rows_y = fit_regressors(kernels[1], Y, bases[1])
    if not varies(rows_y):
        return degenerate_result(constant_note("Y"), kernels, method, hypothesis, sizes)
    g = np.repeat([0.5, -0.5], [n1, n2])[:, None]
    # multiplied by g, and so with its constant part
    space_x, rows_x = fit_regressors(
        widen_kernel(kernels[0], kernel_x is None), X, bases[0], centred=False
    )
    problem = ResidualTest(conditioning, rows_y, g * rows_x, (rows_y, g), asked)
    found, sides = problem.solve()
    return TestResult.of(
        found,
        method,
        kernel=kernels,
        hypothesis=hypothesis,
        sizes=sizes,
        notes=regression_notes(sides, (space_x, space_y)),
        explanation=ConditionalDifference(
            kernels, (X1, Y1), (X2, Y2), (sides[0].residuals(), sides[1].residuals())
        ),
    )


def judge_samples(
    X: PlainColumns,
    Y: PlainColumns,
    kernels: tuple[Kernel, Kernel],
    samples: tuple[tuple[Points, Points], tuple[Points, Points]],
    asked: Request,
) -> TestResult:
    """The test of two samples by the residuals of Y and of the sample that a row is from."""
    n1, n2 = (count(x) for x, _ in samples)
    sizes = {"n₁": n1, "n₂": n2}
    words = f"{SAME_GIVEN[0]} by residuals", SAME_GIVEN[1], sizes
    if not Y.varies:
        return degenerate_result(constant_note("Y"), None, *words)
    given = Given(X)
    groups = PlainColumns(np.empty((n1 + n2, 0)), (np.repeat([0, 1], [n1, n2]),))
    sides = given.side(Y), given.side(groups)
    for side, note in zip(sides, (determined_note("Y", "X"), APART), strict=True):
        if side.determined:
            return degenerate_result(note, None, *words)
    word = null_word(asked.null)
    found, _ = judge_residuals(*sides, given, word, asked.draws, asked.rng)
    notes = smoother_note(sides, "X", ("Y", "the sample"))
    residuals = sides[0].parts["line"], sides[1].parts["line"]
    return TestResult.of(
        found,
        words[0],
        kernel=None,
        hypothesis=words[1],
        sizes=sizes,
        notes=(notes,),
        explanation=ConditionalDifference(kernels, *samples, residuals),
    )


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalDifference(InWords):
    """μ_Y1|x(y) - μ_Y2|x(y): positive where y is likelier given x in the first sample."""

    kernels: tuple[Kernel, Kernel]
    first: tuple[Points, Points]
    second: tuple[Points, Points]
    residuals: tuple[np.ndarray, np.ndarray]  # of Y, and of the sample that a row is from

    def effect(self) -> EffectSize:
        """How far Y depends on the sample beyond what X explains."""
        return residual_effect(*self.residuals)

    @cached_property
    def _models(self) -> tuple[ConditionalEmbedding, ConditionalEmbedding]:
        one, two = (ConditionalEmbedding(*self.kernels, centered=True) for _ in range(2))
        return one.fit(*self.first), two.fit(*self.second)

    def __call__(self, x: Any, y: Any) -> Any:
        kx, ky = self.kernels
        x, single = kx.rows(x, self.first[0], "x")
        y, _ = ky.rows(y, self.first[1], "y")
        checks.same_length([("x", x), ("y", y)])
        values = [
            np.einsum("ij,ij->i", np.asarray(model.weights(x)), ky.gram_matrix(y, Y))
            for model, (_, Y) in zip(self._models, (self.first, self.second), strict=True)
        ]
        value = values[0] - values[1]
        return value[0] if single else value

    @property
    def plot(self) -> Any:
        """A function that draws the conditional MMD along x, None where x is not a number."""
        X = self.first[0]
        return self._draw if getattr(X, "ndim", 0) == 2 and X.shape[1] == 1 else None

    def _draw(self, ax: Any) -> Any:
        (X1, Y1), (X2, Y2) = self.first, self.second
        atoms = np.concatenate([X1, X2])[:, 0]
        low, high = (float(q) for q in np.quantile(atoms, [0.01, 0.99]))
        x = np.linspace(low, high, 200)
        values = conditional_mmd(X1, Y1, X2, Y2, x[:, None], *self.kernels)
        return plots.curve(x, values, atoms, ax, name="conditional MMD")
