"""Kernels on R^d."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, Self, cast

import numpy as np

from meanmap import checks, fused
from meanmap.arrays import (
    Array,
    Points,
    apply,
    asarray,
    assign,
    device,
    epsilon,
    matmul_into,
    namespace,
)
from meanmap.kernels.bandwidths import chosen_bandwidth, multiply_bandwidth, parse_bandwidth
from meanmap.kernels.features import FeatureMap, Flat, Monomials
from meanmap.kernels.protocol import ALL, Comparison, Kernel, SteinComparison

CENTRED = 64  # points whose median is the centre that distances are computed from


class VectorKernel(Kernel):
    """A kernel on points of R^d, rows of a 2-D array."""

    on_vectors = True

    smooth = True

    def read_points(self, points: Any, name: str) -> Points:
        return checks.vectors(points, name)


class Radial(VectorKernel):
    """A kernel that is a function of ‖x - x'‖/σ.

    `bandwidth` is "median" (the median distance between two points of the sample, resolved when a
    model is fitted), "scaled median" (one per column: the median distance after every column is
    divided by a robust scale of its own, so that the units of columns do not matter), a multiple of
    either ("0.5*median"), a positive number, or one positive number per column. "loo" lets a
    `ConditionalEmbedding` choose the multiple by leave-one-out.
    """

    bandwidth: Any
    _width = "bandwidth"  # the parameter that holds it

    # each is a mixture of Gaussians over a full range of widths (or a Gaussian), hence dense in the
    # continuous functions that vanish at infinity
    characteristic: str | None = "R^d"
    universal: str | None = "R^d"
    translates = True

    def _profile(self, exponent: Array) -> Array:
        """k from -‖x - x'‖²/2σ², which may be overwritten."""
        raise TypeError(f"{type(self).__name__} has no profile.")

    def _slope(self, exponent: Array) -> Array:
        """The derivative of the profile; the exponent may be overwritten."""
        raise TypeError(f"{type(self).__name__} has no slope.")

    def _curvature(self, exponent: Array) -> Array:
        """The second derivative of the profile; the exponent may be overwritten."""
        raise TypeError(f"{type(self).__name__} has no curvature.")

    def _jet(self, exponent: Array) -> tuple[Array, Array, Array]:
        """The profile and its first two derivatives; the exponent is left as it is."""
        return (
            self._profile(exponent + 0),
            self._slope(exponent + 0),
            self._curvature(exponent + 0),
        )

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        parameters = self.get_params(deep=False)
        parameters["bandwidth"] = self._resolved(points, weights)
        return type(self)(**parameters)

    def _resolved(self, points: Points, weights: Array | None) -> float | tuple[float, ...]:
        if isinstance(self.bandwidth, str):
            found = chosen_bandwidth(self.bandwidth, points, weights)
            return tuple(map(_moderate, found)) if isinstance(found, tuple) else _moderate(found)
        return self._numbers(points.shape[1])

    def _numbers(self, dimension: int) -> float | tuple[float, ...]:
        """The bandwidth as a number, or one a column."""
        value = self.bandwidth
        remedy = 'Use bandwidth="median", a positive number, or one number a column.'
        if isinstance(value, str):
            parse_bandwidth(value)
            raise ValueError(
                f"bandwidth={value!r} has to be chosen on data first: use kernel.resolve(points), "
                "or the kernel of a fitted model."
            )
        if value is not None and not np.isscalar(value):
            value = checks.plain(value, "bandwidth")
        shape = np.shape(value)
        if shape == ():
            number = value.item() if hasattr(value, "item") else value
            return _moderate(checks.positive(number, "bandwidth", remedy))
        if len(shape) > 1 or np.asarray(value).dtype.kind not in "fiu":
            raise ValueError(f"bandwidth={value!r:.60} is not understood. {remedy}")
        numbers = tuple(_moderate(checks.positive(float(v), "bandwidth", remedy)) for v in value)
        if len(numbers) != dimension:
            raise ValueError(
                f"bandwidth has {len(numbers)} entries for {dimension} columns. {remedy}"
            )
        return numbers

    def rescaled(self, factor: float) -> Self:
        """The same kernel at a multiple of its bandwidth.

        Examples
        --------
        >>> from meanmap.kernels import Gaussian
        >>> Gaussian("scaled median").rescaled(0.5), Gaussian((1.0, 3.0)).rescaled(2.0)
        (Gaussian(bandwidth='0.5*scaled median'), Gaussian(bandwidth=(2.0, 6.0)))
        """
        parameters = self.get_params(deep=False)
        parameters[self._width] = multiply_bandwidth(self.bandwidth, factor)
        return cast(Self, type(self)(**parameters).with_names(self.names))

    def scaled(self, A: Array) -> Array:
        """x/σ, column by column where there is one bandwidth a column."""
        sigma = self._numbers(A.shape[-1])
        return A / (asarray(sigma, A) if isinstance(sigma, tuple) else sigma)

    #: The profile's name for a fused kernel on CUDA, see `meanmap.fused`; None where there is none.
    _fused: str | None = None

    def against(self, B: Points) -> Comparison:
        compare = self._measured(B, self._profile)
        profile = self._fused
        if profile is None or not fused.on_cuda(B):
            return compare
        scaled = self.scaled(B)

        def compare_fused(A: Points, columns: Any, out: Any) -> Array:
            right = scaled[columns]
            if fused.fits(A, right):
                return fused.gram(profile, self.scaled(A), right)
            return compare(A, columns, out)

        return compare_fused

    def gram_times(self, A: Points, B: Points, V: Array) -> Array:
        profile = self._fused
        few = V.ndim == 1 or V.shape[1] <= fused.MOST_VECTORS
        if profile is None or not few or not fused.fits(A, B) or V.requires_grad:
            return super().gram_times(A, B, V)
        columns = V if V.ndim > 1 else V[:, None]
        product = fused.matmul(profile, self.scaled(A), self.scaled(B), columns)
        return product if V.ndim > 1 else product[:, 0]

    def slopes(self, B: Points) -> Comparison:
        """Like `against`, for the derivative of the profile: ∇ₐ k = slope · (b - a)/σ²."""
        return self._measured(B, self._slope)

    def gradients(self, A: Points, B: Points) -> Array:
        slope = self.slopes(B)(A, ALL, None)
        return slope[:, :, None] * self.scaled(self.scaled(B)[None, :, :] - self.scaled(A)[:, None])

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        if not self.smooth:
            return super().stein_against(B, T)
        xp = namespace(B)
        sigma = self._numbers(B.shape[1])
        each = asarray(sigma, B) if isinstance(sigma, tuple) else sigma
        exponents = self._measured(B, lambda exponent: exponent)
        # with one bandwidth, ‖(x - x')/σ²‖² is the exponent over again
        spreads = exponents
        factor = -2.0 if isinstance(sigma, tuple) else -2.0 / sigma**2
        if isinstance(sigma, tuple):
            spreads = Gaussian(tuple(s * s for s in sigma))._measured(B, lambda exponent: exponent)
        inverse = float(xp.sum(1 / (each + xp.zeros_like(B[0])) ** 2))
        b = B / each**2
        centre, middle = xp.mean(b, axis=0), xp.mean(T, axis=0)  # smaller numbers, smaller rounding
        b, t = b - centre, T - middle
        tb = xp.sum(t * b, axis=1)[None, :]
        right = xp.concat([t.T, b.T, xp.ones_like(tb), tb], axis=0)

        def compare(A: Points, S: Array, columns: Any) -> Array:
            exponent = exponents(A, columns, None)
            f, slope, curvature = self._jet(exponent)
            spread = exponent if spreads is exponents else spreads(A, columns, None)
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

    def _measured(self, B: Points, profile: Callable[[Array], Array]) -> Comparison:
        xp = namespace(B)
        d = B.shape[1]
        centre = _centre(B.T)  # smaller numbers, smaller rounding
        right = xp.empty((d + 2, B.shape[0]), dtype=B.dtype, device=device(B))
        right = assign(right, slice(0, d), self.scaled(B - centre).T)
        right = assign(right, d, 1.0)
        right = assign(right, d + 1, _halves(right[:d].T))
        reach = -2 * float(xp.min(right[d + 1])) if B.shape[0] else 0.0
        bar = self._near(reach, epsilon(right))

        def compare(A: Points, columns: Any, out: Any) -> Array:
            a = self.scaled(A - centre)
            halves = _halves(a)[:, None]
            # one matrix product gives -‖a - b‖²/2
            left = xp.concat([a, halves, xp.ones_like(halves)], axis=1)
            exponent = matmul_into(left, right[:, columns], out)
            if bar is not None:
                exponent = _measured_again(exponent, exponent > bar, a, right, columns)
            return profile(exponent)

        return compare

    def _near(self, reach: float, rounding: float) -> float | None:
        """The exponent above which pairs are measured again; None where that is not needed.

        Where points lie millions of bandwidths from their mean (`reach` is the largest square of
        that), ‖a‖² - 2ab + ‖b‖² of near ones is all rounding, and may come out negative.
        """
        lost = reach * rounding
        return None if lost <= rounding**0.375 else -1e6 * lost

    def squared_norms(self, A: Points) -> Array:
        xp = namespace(A)
        return xp.ones(A.shape[0], dtype=A.dtype, device=device(A))


def _moderate(bandwidth: float) -> float:
    """A bandwidth whose square and its inverse are numbers too."""
    if not 1e-150 <= bandwidth <= 1e150:
        raise ValueError(
            f"bandwidth={bandwidth:.3g} must lie between 1e-150 and 1e150. Divide the points by "
            "their scale first."
        )
    return bandwidth


def _centre(columns: Array) -> Array:
    """A point amid others, given a column each: the median of a few of them.

    A single huge number would move their mean so far that the others round to the same place.
    """
    xp, n = namespace(columns), columns.shape[1]
    few = columns[:, :: max(1, n // CENTRED)]
    return xp.sort(few, axis=1)[:, few.shape[1] // 2] if n else xp.sum(columns, axis=1)


def _halves(a: Array) -> Array:
    """-‖a‖²/2 for points on the scale of the bandwidth."""
    xp = namespace(a)
    if not isinstance(a, np.ndarray):
        return xp.sum(a * a, axis=1) / -2
    with np.errstate(over="ignore"):
        halves = np.sum(a * a, axis=1) / -2
    if not np.isfinite(halves).all():
        raise ValueError(
            f"points lie so many bandwidths apart that the square overflows in {a.dtype}. Use a "
            "wider bandwidth, or double precision."
        )
    return halves


def _measured_again(exponent: Array, near: Array, a: Array, right: Array, columns: Any) -> Array:
    """-‖a - b‖²/2 of near pairs, coordinate by coordinate."""
    xp = namespace(exponent)
    if bool(xp.any(near)):
        i, j = xp.nonzero(near)
        difference = a[i] - right[: a.shape[1], columns][:, j].T
        exponent = assign(exponent, (i, j), -xp.sum(difference * difference, axis=1) / 2)
    return exponent


class Rough(Radial):
    """A radial kernel that is not smooth at 0, where √ would magnify rounding.

    Differences of large numbers leave about 1e-16 in ‖a - b‖² of equal points, and so 1e-8 in
    their distance: near pairs are measured again, coordinate by coordinate.
    """

    def _near(self, reach: float, rounding: float) -> float | None:
        return -1e-6 * max(reach, 1e-300)

    @staticmethod
    def _distance(exponent: Array) -> Array:
        exponent *= -2
        return apply("sqrt", exponent)

    def _inverse_distance(self, exponent: Array) -> Array:
        """1/r, and 0 at r = 0, where the gradient of r is taken to be 0."""
        r = self._distance(exponent)
        xp = namespace(r)
        return xp.where(r > 0, 1 / xp.where(r > 0, r, xp.ones_like(r)), xp.zeros_like(r))


class Gaussian(Radial):
    """exp(-‖x - x'‖²/2σ²): bounded, characteristic and universal on R^d.

    Parameters
    ----------
    bandwidth : "median", float or one float a column
        σ. (Some libraries ask for γ = 1/2σ² instead.)

    Examples
    --------
    >>> from meanmap.kernels import Gaussian
    >>> Gaussian(bandwidth=2.0)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    _fused = "gaussian"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def _profile(self, exponent: Array) -> Array:
        return apply("exp", exponent)

    _slope = _profile

    def _jet(self, exponent: Array) -> tuple[Array, Array, Array]:
        k = self._profile(exponent + 0)
        return k, k, k


class Laplace(Rough):
    """exp(-‖x - x'‖/σ) with the Euclidean norm: bounded, characteristic and universal on R^d.

    Song et al. (2013) write it with the norm, not its square; scikit-learn's `laplacian_kernel`
    takes the sum of absolute differences instead.

    Examples
    --------
    >>> from meanmap.kernels import Laplace
    >>> Laplace(bandwidth=1.0)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """

    smooth = False
    _fused = "laplace"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def _profile(self, exponent: Array) -> Array:
        r = self._distance(exponent)
        r *= -1
        return apply("exp", r)

    def _slope(self, exponent: Array) -> Array:
        inverse = self._inverse_distance(exponent + 0)
        return inverse * self._profile(exponent)


class Matern(Rough):
    """The Matérn kernel of smoothness ν = 1/2, 3/2 or 5/2: bounded, characteristic, universal.

    With ν = 1/2 it is the Laplace kernel; as ν grows it approaches the Gaussian.

    Examples
    --------
    >>> from meanmap.kernels import Laplace, Matern
    >>> X = [[0.0], [0.5], [2.0]]
    >>> bool(abs(Matern(0.5, bandwidth=1.5)(X) - Laplace(1.5)(X)).max() < 1e-15)
    True
    """

    def __init__(self, nu: float = 1.5, bandwidth: Any = "median") -> None:
        self.nu = nu
        self.bandwidth = bandwidth

    def _resolved(self, points: Points, weights: Array | None) -> float | tuple[float, ...]:
        self._smoothness()
        return super()._resolved(points, weights)

    @property
    def _fused(self) -> str | None:  # type: ignore[override]
        return {0.5: "laplace", 1.5: "matern-3/2", 2.5: "matern-5/2"}[self._smoothness()]

    def _smoothness(self) -> float:
        if not isinstance(self.nu, Real) or self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5; got {self.nu!r}.")
        return float(self.nu)

    def _profile(self, exponent: Array) -> Array:
        nu = self._smoothness()
        r = self._distance(exponent)
        r *= (2 * nu) ** 0.5
        if nu == 0.5:
            r *= -1
            return apply("exp", r)
        polynomial = 1 + r if nu == 1.5 else 1 + r + r * r / 3
        r *= -1
        r = apply("exp", r)
        r *= polynomial
        return r

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether k is differentiable everywhere, so that a mode can be climbed to."""
        return self._smoothness() > 0.5

    def _slope(self, exponent: Array) -> Array:
        nu = self._smoothness()
        if nu == 0.5:
            inverse = self._inverse_distance(exponent + 0)
            return inverse * self._profile(exponent)
        a = self._distance(exponent)
        a *= (2 * nu) ** 0.5
        factor = 3.0 if nu == 1.5 else (1 + a) * (5 / 3)
        a *= -1
        return factor * apply("exp", a)

    def _curvature(self, exponent: Array) -> Array:
        nu = self._smoothness()
        # infinite at 0 if ν = 3/2, and taken to be 0 there: it is only ever met times r²
        factor = 27**0.5 * self._inverse_distance(exponent + 0) if nu == 1.5 else 25 / 3
        a = self._distance(exponent)
        a *= -((2 * nu) ** 0.5)
        return factor * apply("exp", a)


class RationalQuadratic(Radial):
    """(1 + ‖x - x'‖²/2ασ²)^(-α), a mixture of Gaussians of many widths: bounded, characteristic.

    Examples
    --------
    >>> from meanmap.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=1.0, bandwidth=1.0)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.333],
           [0.333, 1.   ]])
    """

    def __init__(self, alpha: float = 1.0, bandwidth: Any = "median") -> None:
        self.alpha = alpha
        self.bandwidth = bandwidth

    def _resolved(self, points: Points, weights: Array | None) -> float | tuple[float, ...]:
        self._mixture()
        return super()._resolved(points, weights)

    def _mixture(self) -> float:
        return checks.positive(self.alpha, "alpha", "It mixes widths; try 1.")

    def _profile(self, exponent: Array) -> Array:
        alpha = self._mixture()
        exponent *= -1 / alpha
        exponent += 1
        return exponent ** (-alpha)

    def _slope(self, exponent: Array) -> Array:
        alpha = self._mixture()
        exponent *= -1 / alpha
        exponent += 1
        return exponent ** (-alpha - 1)

    def _jet(self, exponent: Array) -> tuple[Array, Array, Array]:
        alpha = self._mixture()
        inverse = 1 / (1 - exponent / alpha)
        # one power gives all three; a root is many times faster than a power
        k = apply("sqrt", inverse + 0) if alpha == 0.5 else inverse**alpha
        slope = k * inverse
        inverse *= (alpha + 1) / alpha
        inverse *= slope
        return k, slope, inverse


def _inner_stein(B: Points, T: Array, degree: int, offset: float) -> SteinComparison:
    """The Stein kernel of (⟨x, x'⟩ + c)^p."""
    xp = namespace(B)
    tb = xp.sum(T * B, axis=1)[None, :]

    def compare(A: Points, S: Array, columns: Any) -> Array:
        inner = A @ B[columns].T
        k = inner + offset
        # ∇ₓk = p (⟨x, x'⟩ + c)^(p-1) x', so that s(x')·∇ₓk needs x' alone
        mixed = xp.sum(S * A, axis=1)[:, None] + tb[:, columns] + A.shape[1]
        out = (S @ T[columns].T) * k**degree + degree * k ** (degree - 1) * mixed
        if degree > 1:
            out += degree * (degree - 1) * k ** (degree - 2) * inner
        return out

    return compare


class Polynomial(VectorKernel):
    """(⟨x, x'⟩ + c)^p, which keeps the moments up to order p (of order p alone if c = 0).

    Unbounded, so outside the assumptions of Fukumizu et al. (2013); not characteristic.

    Examples
    --------
    >>> from meanmap.kernels import Polynomial
    >>> Polynomial(degree=2, offset=1.0)([[1.0], [2.0]])
    array([[ 4.,  9.],
           [ 9., 25.]])
    """

    bounded = False
    characteristic: str | None = None
    universal: str | None = None

    def __init__(self, degree: int = 2, offset: float = 1.0) -> None:
        self.degree = degree
        self.offset = offset

    def read_points(self, points: Any, name: str) -> Points:
        points = super().read_points(points, name)
        xp, degree = namespace(points), self._degree()
        size = float(xp.max(xp.abs(points)))
        inner = size * size * points.shape[1] + float(self.offset)
        room = math.log(float(xp.finfo(points.dtype).max)) / 2
        if inner > 1 and degree * math.log(inner) > room:
            raise ValueError(
                f"{name} holds numbers as large as {size:.3g}, whose products overflow at degree "
                f"{degree}. Divide them by their scale first."
            )
        return points

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        self._degree()
        return super().resolve(points, weights)

    def _degree(self) -> int:
        if not isinstance(self.degree, int | np.integer) or self.degree < 1:
            raise ValueError(f"degree must be a whole number ≥ 1, got {self.degree!r}.")
        checks.not_negative(self.offset, "offset", "A negative one is no positive definite kernel.")
        return int(self.degree)

    def against(self, B: Points) -> Comparison:
        degree = self._degree()

        def compare(A: Points, columns: Any, out: Any) -> Array:
            product = matmul_into(A, B[columns].T, out)
            product += self.offset
            return product**degree

        return compare

    def squared_norms(self, A: Points) -> Array:
        return (namespace(A).sum(A * A, axis=1) + self.offset) ** self._degree()

    def gradients(self, A: Points, B: Points) -> Array:
        degree = self._degree()
        slope = degree * (A @ B.T + self.offset) ** (degree - 1)
        return slope[:, :, None] * B[None, :, :]

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        return _inner_stein(B, T, self._degree(), float(self.offset))

    def feature_map(self, points: Points) -> FeatureMap:
        return Monomials(points.shape[1], self._degree(), float(self.offset))


class Linear(VectorKernel):
    """⟨x, x'⟩: an embedding is the mean, a conditional embedding is linear regression.

    It has no constant: conditionals regress through the origin. `Linear() + 1` adds one.

    Examples
    --------
    >>> from meanmap.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    bounded = False
    characteristic: str | None = None
    universal: str | None = None
    translates = True

    def against(self, B: Points) -> Comparison:
        return lambda A, columns, out: matmul_into(A, B[columns].T, out)

    def squared_norms(self, A: Points) -> Array:
        return namespace(A).sum(A * A, axis=1)

    def gradients(self, A: Points, B: Points) -> Array:
        return namespace(B).broadcast_to(B[None, :, :], (A.shape[0], *B.shape))

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        return _inner_stein(B, T, 1, 0.0)

    def feature_map(self, points: Points) -> FeatureMap:
        return Flat(points.shape[1])


class Energy(Rough):
    """½(‖x - o‖ + ‖x' - o‖ - ‖x - x'‖): ‖P - Q‖² is half the energy distance of P and Q.

    Characteristic among distributions with a first moment, and free of a bandwidth. Unbounded, so
    outside the assumptions of Fukumizu et al. (2013). The origin changes no distance between
    probabilities; one among the data keeps rounding small.

    Parameters
    ----------
    origin : float or one float a column
        o, where the kernel is 0.
    scale : float or one float per column
        What differences are divided by before they are measured.

    Examples
    --------
    >>> from meanmap import embed
    >>> from meanmap.kernels import Energy
    >>> P, Q = embed([[0.0], [1.0]], kernel=Energy()), embed([[3.0]], kernel=Energy())
    >>> P.distance(Q) ** 2  # (2 · 2.5 - 0.5 - 0)/2
    np.float64(2.25)
    """

    bounded = False
    smooth = False
    characteristic = "R^d, distributions with a first moment"
    universal = None
    translates = False  # the origin stays where it is
    _width = "scale"

    def __init__(self, origin: Any = 0.0, scale: Any = 1.0) -> None:
        self.origin = origin
        self.scale = scale

    @property
    def bandwidth(self) -> Any:
        """What differences are divided by, as in other radial kernels."""
        return self.scale

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return type(self)(self._place(points.shape[1]), self._resolved(points, weights))

    def _place(self, dimension: int) -> float | tuple[float, ...]:
        """The origin as a number, or one a column."""
        value, shape = self.origin, np.shape(self.origin)
        if shape == ():
            return checks.number(value, "origin")
        if shape != (dimension,):
            raise ValueError(
                f"origin has shape {shape} for {dimension} columns. Use a number, or one a column."
            )
        return tuple(checks.number(v, "origin") for v in value)

    def _norms(self, A: Points) -> tuple[Array, Array]:
        """x - o over the scale, and its length."""
        place = self._place(A.shape[1])
        a = self.scaled(A - (asarray(place, A) if isinstance(place, tuple) else place))
        return a, namespace(a).sum(a * a, axis=1) ** 0.5

    def against(self, B: Points) -> Comparison:
        distances, norms = self._measured(B, self._distance), self._norms(B)[1]

        def compare(A: Points, columns: Any, out: Any) -> Array:
            k = distances(A, columns, out)
            k *= -1
            k += self._norms(A)[1][:, None]
            k += norms[columns][None, :]
            k /= 2
            return k

        return compare

    def squared_norms(self, A: Points) -> Array:
        return self._norms(A)[1]

    def _slope(self, exponent: Array) -> Array:
        return self._inverse_distance(exponent) / 2

    def gradients(self, A: Points, B: Points) -> Array:
        a, norms = self._norms(A)
        xp = namespace(a)
        outward = a / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None]
        return super().gradients(A, B) + self.scaled(outward)[:, None, :] / 2
