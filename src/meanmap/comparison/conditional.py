"""Tests that condition: independence given a variable, and equal conditional distributions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Points, concatenate, count, take
from meanmap.comparison.fit_quality import ConditionalTestResult, FitQuality, quality_notes
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.nulls import ResidualSplit
from meanmap.comparison.quadratic import FORM_NULLS, Hadamard
from meanmap.comparison.residuals import (
    Conditioned,
    Conditioning,
    fit_regressors,
    resolve_on_some,
    varies,
)
from meanmap.comparison.results import GammaNull, TestResult, row_groups
from meanmap.comparison.sources import Outcome
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Gaussian, Kernel, TensorProduct
from meanmap.spaces import Space
from meanmap.statistics.centring import center_kernel
from meanmap.statistics.conditional import conditional_mmd, read_paired_conditionals
from meanmap.statistics.gates import one_each, read_paired_samples

KCI = "Conditional independence test (KCI)"
LEAST = 5  # points without which no regression leaves residuals
WIDER = 2.0  # how much wider than the regression's a default kernel on Z is beside X
VISIBLE = 1e-3  # a residual trace that a reader should know of

# the residuals of both sides, the form that their product has under the null, the regressions
Residuals = tuple[np.ndarray, np.ndarray, Hadamard, tuple[Conditioned, Conditioned]]


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

    The kernel conditional independence test (Zhang, Peters, Janzing and Schölkopf 2011) in
    coordinates: regress the features of (X, Z) and those of Y on Z; the statistic is
    `‖R_Xᵀ R_Y‖² / n` for the residuals R. Under the null hypothesis it is distributed as zᵀMz/n,
    `M = (E Eᵀ) ∘ (W Wᵀ)`, with random z and E the noise of X's side. W says how Y's residuals enter
    the statistic after the regression of X's side, so that the null knows what a regression does to
    noise.

    No test holds its level against every null (Shah and Peters 2020): where a regression on Z must
    miss much of what X and Y both owe to Z, they seem dependent. With the defaults the level was
    measured on linear, post-nonlinear and heteroscedastic models with 1 and 5 conditioning columns.

    Parameters
    ----------
    X, Y, Z : points, rows at the same place
    kernel : one for all variables, or a tuple (x, y, z)
        Each is a Kernel, a callable or None, which chooses for the kind of points. For rows of
        numbers in Z that is a Gaussian whose metric and width are learned, for each regression by
        itself: directions that do not matter are shrunk. A kernel that is given is taken as it is.
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
        both regressions missed much of it. `.witness(x, y, z)` says where X and Y go together
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
    conditioning = Conditioning.of(Z, kz, bases[2], chosen=kernel_z is not None)
    kernels = resolve_on_some(kx, X), resolve_on_some(ky, Y), conditioning.kernel
    space_y, rows_y = fit_regressors(kernels[1], Y, bases[1])
    guides = fit_regressors(kernels[0], X, bases[0])[1], rows_y
    words = KCI, "X and Y are dependent given Z"
    for name, rows in zip("XY", guides, strict=True):
        if not varies(rows):
            return degenerate_result(constant_note(name), kernels, *words, {"n": count(X)})
    # what is constant in X's kernel would be functions of Z alone
    beside = center_kernel(kernels[0], X) if bases[0] is None else kernels[0]
    pair = PointPair.of(beside, kernels[2], X, Z, widen=kernel_z is None)
    space_x, rows_x = fit_regressors(pair.kernel, pair(X, Z), bases[0])
    problem = ResidualTest(conditioning, rows_x, rows_y, guides, asked)
    found, sides = problem.solve()
    for name, side in zip("XY", sides, strict=True):
        if side.determined():
            return degenerate_result(determined_note(name), kernels, *words, {"n": count(X)})
    like = tuple(take(points, slice(0, 1)) for points in (X, Y, Z))
    quality = {name: FitQuality.of(side) for name, side in zip("XY", sides, strict=True)}
    pvalue = found.null.pvalue(found.statistic)
    return ConditionalTestResult.of(
        found,
        KCI,
        kernel=kernels,
        hypothesis=words[1],
        sizes={"n": count(X)},
        notes=(*quality_notes(quality, pvalue), *regression_notes(sides, (space_x, space_y))),
        fit_quality=quality,
        explanation=ConditionalDependence(kernels, like, pair, (space_x, space_y), sides),
    )


def regression_notes(sides: tuple[Conditioned, ...], spaces: tuple[Space, ...]) -> tuple[str, ...]:
    """What a reader should know of the regressions."""
    x, y = (f"{side.ridge.regularization:.2g}" for side in sides)
    notes = [f"Regularisation {x} and {y}."]
    missing = max(space.residual_ * space.map_.projects for space in spaces)
    if missing > VISIBLE:
        notes.append(f"The coordinates miss up to {missing:.1%} of a kernel's trace.")
    return tuple(notes)


def constant_note(name: str) -> str:
    """What to say of a variable that does not vary."""
    return f"{name} is constant, and a constant depends on nothing."


def determined_note(name: str) -> str:
    """What to say of a variable of which a regression leaves nothing."""
    return f"Z determines {name}, and nothing is left of it to depend."


def degenerate_result(
    note: str, kernels: tuple[Kernel, ...], method: str, hypothesis: str, sizes: dict[str, int]
) -> TestResult:
    """The answer where there is nothing that could depend."""
    found = GammaNull("degenerate", 0.0, 0.0)
    return TestResult(0.0, 1.0, found, kernels, method, hypothesis, sizes, (note,))


@dataclass(frozen=True, eq=False)
class PointPair:
    """X beside Z, to see dependence that changes with Z: a kernel on both, and their points."""

    kernel: Kernel
    together: bool  # as columns of one array

    @classmethod
    def of(cls, kx: Kernel, kz: Kernel, X: Points, Z: Points, widen: bool) -> PointPair:
        """The product of the two kernels; that of two Gaussians is one on all columns."""
        if kx.power != 2 or kz.power != 2:
            return cls(TensorProduct(kx, kz), False)
        kz = widen_kernel(kz, widen)
        a, b = (np.broadcast_to(k.bandwidth, p.shape[1]) for k, p in ((kx, X), (kz, Z)))
        return cls(Gaussian(tuple(float(s) for s in (*a, *b))), True)

    def __call__(self, X: Points, Z: Points) -> Points:
        return np.concatenate([X, Z], axis=1) if self.together else (X, Z)


@dataclass(frozen=True, eq=False)
class ResidualTest:
    """Two sets of rows whose residuals after a regression on Z should be uncorrelated."""

    conditioning: Conditioning
    rows_x: np.ndarray
    rows_y: np.ndarray
    guides: tuple[np.ndarray, np.ndarray]  # rows of X and of Y that metrics are learned from
    asked: Request

    def solve(self) -> tuple[Outcome, tuple[Conditioned, Conditioned]]:
        """The statistic with its null distribution, and the regressions of both sides."""
        R_x, R_y, form, sides = self._halves() if self.asked.null.halves else self._all_rows()
        n, find = len(R_x), self.asked.method.find
        found = find(form, self.asked.draws, self.asked.rng, 1 / n)
        return Outcome(float(np.sum((R_x.T @ R_y) ** 2)) / n, found), sides

    def _regressions(self, part: np.ndarray | None = None) -> tuple[Conditioned, Conditioned]:
        """Both sides regressed on Z, on some of the rows."""
        where = self.conditioning if part is None else self.conditioning.part(part)
        rows, given = slice(None) if part is None else part, self.asked.null.regularization
        x = where.regress(self.rows_x[rows], self.guides[0][rows], given)
        y = where.regress(self.rows_y[rows], self.guides[1][rows], given)
        return x, y

    def _all_rows(self) -> Residuals:
        """Regressions and test on all rows."""
        x, y = self._regressions()
        R_x, R_y = x.residuals(), y.residuals()
        if not self.asked.null.refit:
            return R_x, R_y, Hadamard(R_x, R_y), (x, y)
        # ‖Φ_xᵀ S_x S_y Φ_y‖² is linear in the noise of X's side
        return R_x, R_y, Hadamard(x.noise(), x.ridge.residuals(R_y)), (x, y)

    def _halves(self) -> Residuals:
        """Regressions on one half of the rows, the test on the other (Pogodin et al. 2024)."""
        order = self.asked.rng.permutation(len(self.rows_x))
        train, test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        x, y = self._regressions(train)
        at = take(self.conditioning.points, test)
        R_x, R_y = x.left(at, self.rows_x[test]), y.left(at, self.rows_y[test])
        noise, through = R_x, R_y
        if self.asked.null.refit:  # noise of the half regressed is in the residuals of the other
            back = -x.ridge.returned(x.place(at), R_y)
            noise, through = np.concatenate([x.noise(), R_x]), np.concatenate([back, R_y])
        return R_x, R_y, Hadamard(noise, through), (x, y)


NULLS = {**FORM_NULLS, "split": NullMethod(ResidualSplit, Hadamard.signs)}


@dataclass(frozen=True, eq=False)
class ConditionalDependence:
    """⟨φ(x, z) - E[φ|z], C (φ(y) - E[φ|z])⟩, with C the covariance of the residuals.

    Positive where x and y go together, beyond what z explains, as they do in the sample.
    """

    kernels: tuple[Kernel, ...]
    like: tuple[Points, ...]  # what a point of X, Y and Z looks like
    pair: PointPair
    spaces: tuple[Space, Space]
    sides: tuple[Conditioned, Conditioned]

    @cached_property
    def _residuals(self) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.sides
        return x.residuals(), y.residuals()

    def __call__(self, x: Any, y: Any, z: Any) -> Any:
        named = zip(self.kernels, (x, y, z), self.like, "xyz", strict=True)
        (x, single), (y, _), (z, _) = (k.rows(p, like, name) for k, p, like, name in named)
        checks.same_length([("x", x), ("y", y), ("z", z)])
        a = self.sides[0].left(z, self.spaces[0].coordinates(self.pair(x, z)))
        b = self.sides[1].left(z, self.spaces[1].coordinates(y))
        R_x, R_y = self._residuals
        value = np.einsum("ij,ij->i", a @ (R_x.T @ R_y / len(R_x)), b)
        return value[0] if single else value

    def plot(self, ax: Any) -> Any:
        """The residuals along the two directions that covary most."""
        R_x, R_y = self._residuals
        left, _, right = np.linalg.svd(R_x.T @ R_y, full_matrices=False)
        names = "residual of X given Z", "residual of Y given Z"
        return plots.against(R_x @ left[:, 0], R_y @ right[0], names, ax)


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
    points. A shift of X alone changes g's regression, and not the statistic. Under the null it is
    distributed as under random signs of the noise in Y.

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
    conditioning = Conditioning.of(X, kernels[0], bases[0], chosen=kernel_x is not None)
    kernels = conditioning.kernel, kernels[1]
    method, hypothesis = "Conditional two-sample test", "P(Y|X) differs between the samples"
    sizes = {"n₁": n1, "n₂": n2}
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
        explanation=ConditionalDifference(kernels, (X1, Y1), (X2, Y2)),
    )


def widen_kernel(kernel: Kernel, default: bool) -> Kernel:
    """A default Gaussian for what stands beside the regression's: wider, as `WIDER` says."""
    return kernel.rescaled(WIDER) if default and kernel.power == 2 else kernel


@dataclass(frozen=True, eq=False)
class ConditionalDifference:
    """μ_Y1|x(y) - μ_Y2|x(y): positive where y is likelier given x in the first sample."""

    kernels: tuple[Kernel, Kernel]
    first: tuple[Points, Points]
    second: tuple[Points, Points]

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
