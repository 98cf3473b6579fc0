"""Kernels on R^d."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, apply, asarray, matmul_into, namespace
from meanmap.kernels.bandwidths import LEARNED, OpenScales, resolve_bandwidth
from meanmap.kernels.features import FeatureMap, Flat, Monomials
from meanmap.kernels.protocol import Comparison, SteinComparison
from meanmap.kernels.radial import Radial, Rough, VectorKernel, invert_distance


class Gaussian(Radial):
    """exp(-‖x - x'‖²/2σ²): bounded, characteristic and universal on R^d.

    Parameters
    ----------
    bandwidth : "median", float or one float per column
        σ. (Some libraries ask for γ = 1/2σ² instead.)

    Examples
    --------
    >>> from meanmap.kernels import Gaussian
    >>> Gaussian(bandwidth=2.0)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    # like the other mixtures of Gaussians below, dense in the continuous functions that vanish at
    # infinity
    characteristic = universal = "R^d"
    power = 2.0
    spectral_freedom = math.inf
    fused_profile = "gaussian"
    _exact = True

    def profile(self, squared: Array) -> Array:
        squared *= -0.5
        return apply("exp", squared)

    slope = curvature = profile

    def tangent(self, squared: Array) -> tuple[Array, Array]:
        k = self.profile(squared)
        return k, k

    def jet(self, squared: Array) -> tuple[Array, Array, Array]:
        k = apply("exp", squared * -0.5)
        return k, k, k

    def _tiles(self, B: Points) -> Comparison:
        return self._distances(B, lambda exponent: apply("exp", exponent), -0.5)


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

    characteristic = universal = "R^d"
    power = 1.0
    spectral_freedom = 1.0  # a multivariate Cauchy
    fused_profile = "laplace"

    def profile(self, squared: Array) -> Array:
        r = apply("sqrt", squared)
        r *= -1
        return apply("exp", r)

    def slope(self, squared: Array) -> Array:
        inverse = invert_distance(squared + 0)
        return inverse * self.profile(squared)


class Matern(Rough):
    """The Matérn kernel of smoothness ν = 1/2, 3/2 or 5/2: bounded, characteristic, universal.

    With ν = 1/2 it is the Laplace kernel; as ν grows it approaches the Gaussian. `Matern("loo",
    "loo")` lets a `ConditionalEmbedding` learn the smoothness too: it becomes a Gaussian, or a
    Matérn kernel with ν = 3/2 where that predicts left-out rows better.

    Examples
    --------
    >>> from meanmap.kernels import Laplace, Matern
    >>> X = [[0.0], [0.5], [2.0]]
    >>> bool(abs(Matern(0.5, bandwidth=1.5)(X) - Laplace(1.5)(X)).max() < 1e-15)
    True
    """

    characteristic = universal = "R^d"

    def __init__(self, nu: Any = 1.5, bandwidth: Any = "median") -> None:
        self.nu = nu
        self.bandwidth = bandwidth

    def open_scales(self, points: Points, weights: Array | None) -> OpenScales:
        if self.nu != LEARNED:
            return super().open_scales(points, weights)
        rough = self.replace(nu=1.5).open_scales(points, weights)
        smooth = Gaussian(LEARNED).with_names(self.names)
        return replace(smooth.open_scales(points, weights), rougher=rough)

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        if not isinstance(self.nu, Real) or self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(
                f"nu must be 0.5, 1.5 or 2.5; got {self.nu!r}. A ConditionalEmbedding learns it if "
                'both nu and bandwidth of the kernel on X are "loo".'
            )
        return super().resolve(points, weights).replace(nu=float(self.nu))

    @property
    def fused_profile(self) -> str | None:  # type: ignore[override]
        """The name of the profile for `meanmap.fused`."""
        return {0.5: "laplace", 1.5: "matern-3/2", 2.5: "matern-5/2"}.get(self.nu)

    @property
    def spectral_freedom(self) -> float:  # type: ignore[override]
        """Degrees of freedom of the t distribution that is the spectral measure."""
        return 2 * self.nu

    @property
    def power(self) -> float | None:  # type: ignore[override]
        """1 where it is the Laplace kernel."""
        return 1.0 if self.nu == 0.5 else None

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether k is differentiable everywhere, so that a mode can be climbed to."""
        return self.nu != 0.5

    def _exponent(self, squared: Array) -> Array:
        """-√2ν r, in place: fresh memory would cost more than what is computed in it."""
        a = apply("sqrt", squared)
        a *= -((2 * self.nu) ** 0.5)
        return a

    def profile(self, squared: Array) -> Array:
        a = self._exponent(squared)
        if self.nu == 0.5:
            return apply("exp", a)
        factor = 1 - a if self.nu == 1.5 else 1 - a + a * a / 3
        factor *= apply("exp", a)
        return factor

    def slope(self, squared: Array) -> Array:
        if self.nu == 0.5:
            inverse = invert_distance(squared + 0)
            return inverse * self.profile(squared)
        a = self._exponent(squared)
        factor = 3.0 if self.nu == 1.5 else (1 - a) * (5 / 3)
        return factor * apply("exp", a)

    def curvature(self, squared: Array) -> Array:
        # infinite at 0 if ν = 3/2, and taken to be 0 there: it is only ever met times r²
        factor = 27**0.5 * invert_distance(squared + 0) if self.nu == 1.5 else 25 / 3
        return factor * apply("exp", self._exponent(squared))


class RationalQuadratic(Radial):
    """(1 + ‖x - x'‖²/2ασ²)^(-α), a mixture of Gaussians of many widths: bounded, characteristic.

    Examples
    --------
    >>> from meanmap.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=1.0, bandwidth=1.0)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.333],
           [0.333, 1.   ]])
    """

    characteristic = universal = "R^d"
    _exact = True

    def __init__(self, alpha: float = 1.0, bandwidth: Any = "median") -> None:
        self.alpha = alpha
        self.bandwidth = bandwidth

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        alpha = checks.positive(self.alpha, "alpha", "It mixes widths; try 1.")
        if not 1e-10 <= alpha <= 1e10:  # rounding would decide the kernel
            raise ValueError(f"alpha must lie between 1e-10 and 1e10, got {alpha:g}. Try 1.")
        return super().resolve(points, weights).replace(alpha=alpha)

    def _base(self, squared: Array) -> Array:
        squared *= 0.5 / self.alpha
        squared += 1
        return squared

    def profile(self, squared: Array) -> Array:
        return self._base(squared) ** -self.alpha

    def slope(self, squared: Array) -> Array:
        return self._base(squared) ** (-self.alpha - 1)

    def jet(self, squared: Array) -> tuple[Array, Array, Array]:
        alpha = self.alpha
        inverse = 1 / self._base(squared + 0)
        # one power gives all three; a root is many times faster than a power
        k = apply("sqrt", inverse + 0) if alpha == 0.5 else inverse**alpha
        slope = k * inverse
        inverse *= (alpha + 1) / alpha
        inverse *= slope
        return k, slope, inverse


class InnerProduct(VectorKernel):
    """(⟨x, x'⟩ + c)^p, which `of_sum` computes from ⟨x, x'⟩."""

    bounded = False
    over_columns = "products"
    degree = 1
    offset = 0.0

    def against(self, B: Points) -> Comparison:
        return lambda A, columns, out: self.of_sum(matmul_into(A, B[columns].T, out))

    def squared_norms(self, A: Points) -> Array:
        return self.of_sum(namespace(A).sum(A * A, axis=1))

    def gradients(self, A: Points, B: Points) -> Array:
        slope = self.degree * (A @ B.T + self.offset) ** (self.degree - 1)
        return slope[:, :, None] * B[None, :, :]

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        xp, degree = namespace(B), self.degree
        tb = xp.sum(T * B, axis=1)[None, :]

        def compare(A: Points, S: Array, columns: Any) -> Array:
            inner = A @ B[columns].T
            k = inner + self.offset
            # ∇ₓk = p (⟨x, x'⟩ + c)^(p-1) x', so that s(x')·∇ₓk needs x' alone
            mixed = xp.sum(S * A, axis=1)[:, None] + tb[:, columns] + A.shape[1]
            out = (S @ T[columns].T) * k**degree + degree * k ** (degree - 1) * mixed
            if degree > 1:
                out += degree * (degree - 1) * k ** (degree - 2) * inner
            return out

        return compare


class Polynomial(InnerProduct):
    """(⟨x, x'⟩ + c)^p, which keeps the moments up to order p (of order p alone if c = 0).

    Unbounded, so outside the assumptions of Fukumizu et al. (2013); not characteristic.

    Examples
    --------
    >>> from meanmap.kernels import Polynomial
    >>> Polynomial(degree=2, offset=1.0)([[1.0], [2.0]])
    array([[ 4.,  9.],
           [ 9., 25.]])
    """

    def __init__(self, degree: int = 2, offset: float = 1.0) -> None:
        self.degree = degree
        self.offset = offset

    def read_points(self, points: Any, name: str) -> Points:
        points = super().read_points(points, name)
        xp, degree = namespace(points), self._degree()  # huge powers would overflow below
        size = float(xp.max(xp.abs(points)))
        inner = size * size * points.shape[1] + float(self.offset)
        room = math.log(float(xp.finfo(points.dtype).max)) / 2
        if inner > 1 and degree * math.log(inner) > room:
            raise ValueError(
                f"{name} holds numbers as large as {size:.3g}, whose products overflow at degree "
                f"{degree}. Divide them by their scale first."
            )
        return points

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return self.replace(degree=self._degree(), offset=float(self.offset))

    def _degree(self) -> int:
        checks.not_negative(
            self.offset, "offset", "With a negative offset the kernel is not positive definite."
        )
        return checks.whole(self.degree, "degree")

    def of_sum(self, total: Array) -> Array:
        total += self.offset
        return total**self.degree

    def feature_map(self, points: Points) -> FeatureMap:
        return Monomials(points.shape[1], self.degree, self.offset)


class Linear(InnerProduct):
    """⟨x, x'⟩: an embedding is the mean, a conditional embedding is linear regression.

    It has no constant: conditionals regress through the origin. `Linear() + 1` adds one.

    Examples
    --------
    >>> from meanmap.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    translates = True

    def of_sum(self, total: Array) -> Array:
        return total

    def preimage(self, atoms: Points, weights: Array, starts: Callable[[], Points]) -> Points:
        return weights @ atoms  # -2⟨m, y⟩ + ‖y‖² is least at y = m

    def feature_map(self, points: Points) -> FeatureMap:
        return Flat(points.shape[1])


class Energy(Rough):
    """½(‖x - o‖ + ‖x' - o‖ - ‖x - x'‖): ‖P - Q‖² is half the energy distance of P and Q.

    Characteristic among distributions with a first moment, and free of a bandwidth. Unbounded, so
    outside the assumptions of Fukumizu et al. (2013). The origin changes no distance between
    probabilities; one among the data keeps rounding small.

    Parameters
    ----------
    origin : float or one float per column
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

    choices = ("scale",)
    bounded = False
    radial = False  # the origin stays where it is
    characteristic = "R^d, distributions with a first moment"

    def __init__(self, origin: Any = 0.0, scale: Any = 1.0) -> None:
        self.origin = origin
        self.scale = scale

    @property
    def bandwidth(self) -> Any:
        """What differences are divided by, as in other radial kernels."""
        return self.scale

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        scale = resolve_bandwidth(self.scale, points, weights)
        return self.replace(origin=self._place(points.shape[1]), scale=scale)

    def _place(self, dimension: int) -> float | tuple[float, ...]:
        """The origin as a number, or one number per column."""
        value, shape = self.origin, np.shape(self.origin)
        if shape == ():
            return checks.number(value, "origin")
        if shape != (dimension,):
            raise ValueError(
                f"origin has shape {shape} for {dimension} columns. Use one number, or one per "
                "column."
            )
        return tuple(checks.number(v, "origin") for v in value)

    def _norms(self, A: Points) -> tuple[Array, Array]:
        """x - o over the scale, and its length."""
        place = self.origin
        a = self.scaled(A - (asarray(place, A) if isinstance(place, tuple) else place))
        return a, namespace(a).sum(a * a, axis=1) ** 0.5

    def against(self, B: Points) -> Comparison:
        distances = self._distances(B, lambda squared: apply("sqrt", squared))
        norms = self._norms(B)[1]

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

    def slope(self, squared: Array) -> Array:
        return invert_distance(squared) / 2

    def gradients(self, A: Points, B: Points) -> Array:
        a, norms = self._norms(A)
        xp = namespace(a)
        outward = a / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None]
        return super().gradients(A, B) + self.scaled(outward)[:, None, :] / 2
