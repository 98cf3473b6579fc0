"""Kernels that are functions of a distance: what they share, whatever the function."""

from __future__ import annotations

from collections.abc import Callable
from math import perm
from typing import Any, Self

import numpy as np

from meanmap import checks, fused
from meanmap.arrays import (
    Array,
    Points,
    apply,
    asarray,
    assign,
    at_least,
    epsilon,
    full,
    matmul_into,
    namespace,
    on_accelerator,
    to_numpy,
)
from meanmap.kernels import bandwidths
from meanmap.kernels.bandwidths import OpenScales
from meanmap.kernels.protocol import ALL, Comparison, Kernel, SteinComparison

CENTRED = 64  # points whose median is the centre that distances are computed from
NODES = np.arange(-4.0, 5.0)  # of the polynomial that a profile is differentiated by
# from its values there
COEFFICIENTS = np.linalg.solve(np.vander(NODES, increasing=True), np.eye(len(NODES)))


class VectorKernel(Kernel):
    """A kernel on points of R^d, rows of a 2-D array."""

    domain = "vectors"
    smooth = True

    def read_points(self, points: Any, name: str) -> Points:
        return checks.vectors(points, name)


class Radial(VectorKernel):
    """A kernel that is a function of ‖x - x'‖/σ: all it needs is its `profile`.

    `bandwidth` is "median" (the median distance between two points of the sample, resolved when a
    model is fitted), "scaled median" (one per column: the median distance after every column is
    divided by its robust scale, so that the units of columns do not matter), a multiple of
    either ("0.5*median"), a positive number, or one positive number per column. "loo" lets a
    `ConditionalEmbedding` learn one per column by leave-one-out.

    Gradients, modes, Stein kernels and products follow from the profile. Its derivatives are taken
    by differences between nine points, to about 1e-10 (the first) and 1e-7 (the second) in double
    precision where the profile changes over ‖x - x'‖²/σ² of about 1. Write `slope` and `curvature`
    where a closed form is known. A profile that is not smooth in the squared distance at 0 (one of
    ‖x - x'‖) belongs to a subclass of `Rough`.

    Examples
    --------
    >>> from meanmap import embed
    >>> from meanmap.kernels import Radial
    >>> class Cauchy(Radial):
    ...     def profile(self, squared):
    ...         return 1 / (1 + squared)
    >>> Cauchy(bandwidth=2.0)([[0.0], [2.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    >>> embed([[0.0], [0.1], [5.0]], kernel=Cauchy(1.0)).preimage().round(3)
    array([0.054])
    """

    choices = ("bandwidth",)
    radial = True
    translates = True

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    # --- what a subclass says -----------------------------------------------------------------

    def profile(self, squared: Array) -> Array:
        """k from ‖x - x'‖²/σ², which may be overwritten."""
        raise TypeError(f"{type(self).__name__} does not say what its profile is.")

    def slope(self, squared: Array) -> Array:
        """-2 times the derivative of the profile; the argument may be overwritten.

        ∇ₐ k is slope · (b - a)/σ².
        """
        return -2 * differentiate(self.profile, squared, 1)

    def curvature(self, squared: Array) -> Array:
        """4 times the second derivative of the profile; the argument may be overwritten."""
        return 4 * differentiate(self.profile, squared, 2)

    def tangent(self, squared: Array) -> tuple[Array, Array]:
        """The profile and its slope; the argument may be overwritten."""
        return self.profile(squared + 0), self.slope(squared)

    def jet(self, squared: Array) -> tuple[Array, Array, Array]:
        """The profile, its slope and its curvature; the argument is left as it is."""
        return self.profile(squared + 0), self.slope(squared + 0), self.curvature(squared + 0)

    # --- parameters ---------------------------------------------------------------------------

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return self.with_bandwidth(bandwidths.resolve_bandwidth(self.bandwidth, points, weights))

    def with_bandwidth(self, bandwidth: Any) -> Self:
        """The same kernel with another bandwidth."""
        return self.replace(**{self.choices[0]: bandwidth})

    def at_scale(self, sigma: float, scales: np.ndarray) -> Self:
        """With a multiple of σ times the scale of each column: that of its "scaled median"."""
        factor = bandwidths.median_factor(self.bandwidth, bandwidths.SCALED)
        return self.with_bandwidth(bandwidths.as_bandwidth(factor * sigma * scales))

    @property
    def learns(self) -> bool:
        """Whether the bandwidth is "loo"."""
        return isinstance(self.bandwidth, str) and self.bandwidth == bandwidths.LEARNED

    def open_scales(self, points: Points, weights: Array | None) -> OpenScales:
        columns, scales = bandwidths.scaled_columns(points, weights)

        def kernel(sigma: np.ndarray) -> Any:
            return self.with_bandwidth(bandwidths.as_bandwidth(sigma * scales))

        groups = np.arange(columns.shape[1])
        return OpenScales(columns, groups, self.with_bandwidth(1.0), kernel)

    def relevance(self, points: Points) -> list[float]:
        spread = bandwidths.column_scales(to_numpy(points).astype(np.float64))
        return (spread / np.asarray(self.bandwidth, dtype=float)).tolist()

    # --- comparing points ---------------------------------------------------------------------

    def scaled(self, A: Array) -> Array:
        """x/σ, column by column if there is one bandwidth per column."""
        sigma = self.bandwidth
        return A / (asarray(sigma, A) if isinstance(sigma, tuple) else sigma)

    def against(self, B: Points) -> Comparison:
        compare, profile = self._tiles(B), self.fused_profile
        if profile is None or not on_accelerator(B):
            return compare
        return fused.comparison(profile, self.scaled, B, compare)

    def gram_times(self, A: Points, B: Points, V: Array) -> Array:
        profile = self.fused_profile
        found = None
        if profile is not None and on_accelerator(V):
            found = fused.gram_times(profile, self.scaled, A, B, V)
        return super().gram_times(A, B, V) if found is None else found

    def squared_norms(self, A: Points) -> Array:
        return self.profile(full(A.shape[0], 0.0, A))

    def slopes(self, B: Points) -> Comparison:
        """Like `against`, for the slope of the profile."""
        return self._distances(B, self.slope)

    def gradients(self, A: Points, B: Points) -> Array:
        slope = self.slopes(B)(A, ALL, None)
        return slope[:, :, None] * self.scaled(self.scaled(B)[None, :, :] - self.scaled(A)[:, None])

    def _tiles(self, B: Points) -> Comparison:
        return self._distances(B, self.profile)

    _exact = False  # whether squares are never below 0, or the profile takes those that are

    def _distances(
        self, B: Points, then: Callable[[Array], Array] | None = None, times: float = 1.0
    ) -> Comparison:
        """A function that gives ‖x - x'‖²/σ² times a number, and what `then` makes of it."""
        xp = namespace(B)
        d = B.shape[1]
        centre = _centre(B.T)  # smaller numbers, smaller rounding
        right = full((d + 2, B.shape[0]), 1.0, B)
        right = assign(right, slice(0, d), self.scaled(B - centre).T)
        right = assign(right, d + 1, _squares(right[:d].T))
        bar = self._near(float(xp.max(right[d + 1])) if B.shape[0] else 0.0, epsilon(right))

        def compare(A: Points, columns: Any, out: Any) -> Array:
            a = self.scaled(A - centre)
            squares = times * _squares(a)[:, None]
            # one matrix product gives ‖a‖² - 2ab + ‖b‖²
            left = xp.concat([-2 * times * a, squares, full(squares.shape, times, a)], axis=1)
            found = matmul_into(left, right[:, columns], out)
            if bar is not None:
                near = found < times * bar if times > 0 else found > times * bar
                if bool(xp.any(near)):  # coordinate by coordinate
                    i, j = xp.nonzero(near)
                    difference = a[i] - right[:d, columns][:, j].T
                    found = assign(found, (i, j), times * xp.sum(difference**2, axis=1))
            if not self._exact:
                found = at_least(found, 0.0)  # where rounding left a square below
            return found if then is None else then(found)

        return compare

    def _near(self, reach: float, rounding: float) -> float | None:
        """The square below which pairs are measured again; None where that is not needed.

        Where points lie millions of bandwidths from their mean (`reach` is the largest square of
        that), ‖a‖² - 2ab + ‖b‖² of near ones is all rounding, and may come out negative.
        """
        lost = reach * rounding
        return None if lost <= rounding**0.375 else 2e6 * lost

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        if not self.smooth:
            return super().stein_against(B, T)
        xp, sigma = namespace(B), self.bandwidth
        columns = isinstance(sigma, tuple)
        each = asarray(sigma, B) if columns else sigma
        distances = spreads = self._distances(B)
        if columns:  # with one bandwidth, ‖(x - x')/σ²‖² is ‖(x - x')/σ‖² over again
            spreads = self.with_bandwidth(tuple(s * s for s in sigma))._distances(B)
        factor = 1.0 if columns else 1 / sigma**2
        inverse = float(xp.sum(1 / (each + xp.zeros_like(B[0])) ** 2))
        b = B / each**2
        centre, middle = xp.mean(b, axis=0), xp.mean(T, axis=0)  # smaller numbers, smaller rounding
        b, t = b - centre, T - middle
        tb = xp.sum(t * b, axis=1)[None, :]
        right = xp.concat([t.T, b.T, xp.ones_like(tb), tb], axis=0)

        def compare(A: Points, S: Array, columns: Any) -> Array:
            squared = distances(A, columns, None)
            f, slope, curvature = self.jet(squared)
            spread = squared if spreads is distances else spreads(A, columns, None)
            a, s = A / each**2 - centre, S - middle
            sa = xp.sum(s * a, axis=1)[:, None]
            left = xp.concat([-a, -s, sa, xp.ones_like(sa)], axis=1)
            # ∇ₓk = f' (x' - x)/σ² = -∇ₓ′k, and one product gives (t - s)·(x' - x)/σ²
            mixed = left @ right[:, columns]
            mixed += inverse
            mixed *= slope
            spread *= factor
            spread *= curvature
            out = S @ T[columns].T
            out *= f
            out += mixed
            out -= spread
            return out

        return compare

    # --- other forms --------------------------------------------------------------------------

    @property
    def over_columns(self) -> str | None:  # type: ignore[override]
        """ "differences" where there is one bandwidth for all columns."""
        return "differences" if self.radial and np.ndim(self.bandwidth) == 0 else None

    def of_sum(self, total: Array) -> Array:
        total *= 1 / float(self.bandwidth) ** 2
        return self.profile(total)

    #: Degrees of freedom of the t distribution that is the spectral measure, infinite for a normal
    #: one; None where it is another or unknown.
    spectral_freedom: float | None = None

    def sample_frequencies(self, d: int, n: int, rng: np.random.Generator) -> np.ndarray:
        freedom = self.spectral_freedom
        if freedom is None:
            return super().sample_frequencies(d, n, rng)
        # every d of them in orthogonal directions, uniformly turned
        turns = rng.normal(size=(-(-n // d), d, d))
        Q, R = np.linalg.qr(turns)
        Q *= np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
        directions = np.moveaxis(Q, 0, 1).reshape(d, -1)[:, :n]
        # the length of a normal vector; divided by √(χ²_f/f) it is that of a multivariate t
        lengths = np.sqrt(rng.chisquare(d, size=n))
        if freedom < np.inf:
            lengths /= np.sqrt(rng.chisquare(freedom, size=n) / freedom)
        return self.scaled((directions * lengths).T).T


class Rough(Radial):
    """A radial kernel that is not smooth in the squared distance at 0, such as one of ‖x - x'‖.

    Differences of large numbers leave about 1e-16 in ‖a - b‖² of equal points, and so 1e-8 in
    their distance: near pairs are measured again, coordinate by coordinate. The gradient is taken
    to be 0 at equal points. A subclass that is differentiable there all the same says
    `smooth = True`, and writes `slope` and `curvature`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Rough
    >>> class RootExponential(Rough):
    ...     def profile(self, squared):
    ...         return np.exp(-(squared**0.25))
    >>> RootExponential(1.0)([[0.0], [1.0], [4.0]])[0].round(3)
    array([1.   , 0.368, 0.135])
    """

    smooth = False
    _exact = True

    def slope(self, squared: Array) -> Array:
        if self.smooth:
            raise TypeError(
                f"{type(self).__name__} says that it is smooth, but not what its slope is; the "
                "derivative at 0 does not follow from the profile of a Rough kernel."
            )
        return -2 * differentiate(self.profile, squared, 1, relative=True)

    def _near(self, reach: float, rounding: float) -> float | None:
        return 2e-6 * max(reach, 1e-300)


def invert_distance(squared: Array) -> Array:
    """1/r, and 0 at r = 0, where the gradient of r is taken to be 0."""
    r = apply("sqrt", squared)
    xp = namespace(r)
    return xp.where(r > 0, 1 / xp.where(r > 0, r, xp.ones_like(r)), xp.zeros_like(r))


def differentiate(
    function: Callable[[Array], Array], at: Array, order: int, relative: bool = False
) -> Array:
    """A derivative at numbers ≥ 0, of the polynomial through nine values that are never below 0.

    `relative` is for functions that have no derivative at 0, where the answer is 0: steps are then
    shares of the number.
    """
    xp = namespace(at)
    step = 0.5 * epsilon(at) ** (1 / 9)  # balances rounding and what the polynomial misses
    if relative:
        centre = xp.where(at > 0, at, xp.ones_like(at))
        h = step * centre
        offset = xp.zeros_like(at)
    else:
        h = step * (1 + at / 100)
        centre = xp.where(at > 4 * h, at, 4 * h)
        offset = (at - centre) / h
    values = [function(centre + float(node) * h) for node in NODES]
    out = xp.zeros_like(at)
    for j in range(len(NODES) - 1, order - 1, -1):
        coefficient = sum(
            float(c) * value for c, value in zip(COEFFICIENTS[j], values, strict=True)
        )
        out = out * offset + perm(j, order) * coefficient
    out = out / h**order
    return xp.where(at > 0, out, xp.zeros_like(out)) if relative else out


def _centre(columns: Array) -> Array:
    """A point amid others, one per column: the median of a few of them.

    A single huge number would move their mean so far that the others round to the same place.
    """
    xp, n = namespace(columns), columns.shape[1]
    few = columns[:, :: max(1, n // CENTRED)]
    return xp.sort(few, axis=1)[:, few.shape[1] // 2] if n else xp.sum(columns, axis=1)


def _squares(a: Array) -> Array:
    """‖a‖² for points on the scale of the bandwidth."""
    with np.errstate(over="ignore"):
        squares = namespace(a).sum(a * a, axis=1)
    if isinstance(a, np.ndarray) and not np.isfinite(squares).all():
        raise ValueError(
            f"points lie so many bandwidths apart that the square overflows in {a.dtype}. Use a "
            "wider bandwidth, or double precision."
        )
    return squares
