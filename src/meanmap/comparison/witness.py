"""What the data say beyond a p-value: where two samples differ, how two variables depend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.arrays import Points, concatenate, count, namespace, take
from meanmap.comparison.column_effects import (
    ColumnEffects,
    InWords,
    column_dependences,
    column_differences,
)
from meanmap.comparison.effects import (
    EffectSize,
    dependence_effect,
    difference_effect,
    joint_effect,
)
from meanmap.embeddings import embed
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import TensorProduct
from meanmap.statistics.dependence import coordinates
from meanmap.statistics.tiles import on_host

SHOWN = 1000  # rows that a picture of directions is made from


@dataclass(frozen=True, eq=False, repr=False)
class Difference(InWords):
    """μ_X - μ_Y as a function, positive where X has more mass (Gretton et al. 2012, 2.3)."""

    kernel: Kernel
    X: Points
    Y: Points
    #: What the effect is measured by, as given; by default the kernel itself.
    plain: Kernel | None = None
    paired: bool = False

    def __call__(self, x: Any) -> np.ndarray:
        return embed(self.X, self.kernel)(x) - embed(self.Y, self.kernel)(x)

    def effect(self) -> EffectSize:
        """How large the difference is."""
        kernel = self.kernel
        if self.plain is not None:
            kernel = self.plain.resolve(concatenate([self.X, self.Y]))
        return difference_effect(kernel, self.X, self.Y, self.paired)

    def columns(self) -> ColumnEffects:
        """How large it is in every column by itself."""
        return column_differences(self.X, self.Y, self.kernel.names)

    @property
    def plot(self) -> Any:
        """A function that draws it, or None where it cannot be drawn."""
        here = replace(self, X=on_host(self.X), Y=on_host(self.Y))
        X = here.X
        if isinstance(X, tuple) or not (X.ndim == 1 or (X.ndim == 2 and X.shape[1] <= 2)):
            return None
        if X.dtype.kind == "O" or (X.ndim == 2 and X.dtype.kind != "f"):
            return None
        return here._draw

    def _draw(self, ax: Any) -> Any:
        X, Y = self.X, self.Y
        names = self.kernel.names or ()
        if X.ndim == 1:
            labels = np.unique(np.concatenate([X, Y]))
            ax = plots.bars(labels, self(labels), "witness: X more above 0", ax)
            return plots.label_axes(ax, names[:1])
        axes, grid = plots.grid(np.concatenate([X, Y]), (200, 60))
        values = self(grid.reshape(-1, len(axes))).reshape(grid.shape[:-1])
        if len(axes) == 1:
            ax = plots.witness_curve(axes[0], values, X[:, 0], Y[:, 0], ax)
        else:
            ax = plots.witness_map(axes[0], axes[1], values, X, Y, ax)
        return plots.label_axes(ax, names)


@dataclass(frozen=True, eq=False, repr=False)
class Dependence(InWords):
    """E k(X, x) l(Y, y) - E k(X, x) E l(Y, y) as a function of a point (x, y).

    Positive where x and y go together more often than independence allows.
    """

    kernels: tuple[Kernel, Kernel]
    X: Points
    Y: Points
    #: What the effect is measured by, as given; by default the kernels themselves.
    plain: tuple[Kernel, Kernel] | None = None

    @cached_property
    def _measures(self) -> tuple[Kernel, Kernel]:
        if self.plain is None:
            return self.kernels
        return self.plain[0].resolve(self.X), self.plain[1].resolve(self.Y)

    def effect(self) -> EffectSize:
        """How far the variables depend on each other."""
        return dependence_effect(*self._measures, self.X, self.Y)

    def columns(self) -> ColumnEffects:
        """How far every column depends on all of the other variable."""
        kx, ky = self._measures
        sides = [
            ("X", column_dependences((kx, ky), self.X, self.Y)),
            ("Y", column_dependences((ky, kx), self.Y, self.X)),
        ]
        named = {f"{side}: {name}": e for side, found in sides for name, e in found.items()}
        return ColumnEffects.of(named)

    def __call__(self, x: Any, y: Any) -> Any:
        kx, ky = self.kernels
        x, single = kx.rows(x, self.X)
        y, _ = ky.rows(y, self.Y, "y")
        a, b = kx.gram_matrix(x, self.X), ky.gram_matrix(y, self.Y)
        mean = partial(namespace(a).mean, axis=1)
        value = mean(a * b) - mean(a) * mean(b)
        return value[0] if single else value

    @cached_property
    def directions(self) -> tuple[np.ndarray, np.ndarray, float]:
        """f(xᵢ) and g(yᵢ) of unit norm with the largest covariance, and their correlation.

        The first singular functions of the cross-covariance operator (on 1,000 rows at most).
        """
        n = count(self.X)
        rows = np.arange(n)
        if n > SHOWN:
            rows = np.sort(np.random.default_rng(0).choice(n, SHOWN, replace=False))
        A, B = (
            coordinates(kernel, on_host(take(points, rows)), None)
            for kernel, points in zip(self.kernels, (self.X, self.Y), strict=True)
        )
        left, _, right = np.linalg.svd(A.T @ B, full_matrices=False)
        f, g = A @ left[:, 0], B @ right[0]
        scale = np.linalg.norm(f) * np.linalg.norm(g)
        return f, g, float(f @ g / scale) if scale > 0 else 0.0

    def plot(self, ax: Any) -> Any:
        """The function itself for two numbers, else the most dependent directions."""
        here = replace(self, X=on_host(self.X), Y=on_host(self.Y))
        flat = [
            not isinstance(part, tuple) and part.ndim == 2 and part.shape[1] == 1
            for part in (here.X, here.Y)
        ]
        if all(flat) and here.X.dtype.kind == "f" and here.Y.dtype.kind == "f":
            x, y = (np.linspace(*plots.axis_range(part[:, 0]), 60) for part in (here.X, here.Y))
            across, up = np.meshgrid(x, y)
            values = here(across.reshape(-1, 1), up.reshape(-1, 1)).reshape(across.shape)
            points = np.column_stack([here.X[:, 0], here.Y[:, 0]])
            ax = plots.dependence_map(x, y, values, points, ax)
            names = [(kernel.names or ("",))[0] for kernel in self.kernels]
            return plots.label_axes(ax, names)
        f, g, _ = self.directions
        return plots.against(f, g, ("most dependent direction of X", "of Y"), ax)


@dataclass(frozen=True, eq=False, repr=False)
class JointDependence(InWords):
    """How far several variables depend on each other."""

    kernels: list[Kernel]
    samples: list[Points]

    def effect(self) -> EffectSize:
        """That of all of them together."""
        return joint_effect(self.kernels, self.samples)

    def columns(self) -> ColumnEffects:
        """How far every variable depends on all others together."""
        found = {}
        for k, (kernel, points) in enumerate(zip(self.kernels, self.samples, strict=True)):
            others = [one for j, one in enumerate(self.kernels) if j != k]
            rest = tuple(one for j, one in enumerate(self.samples) if j != k)
            beside, at = (others[0], rest[0]) if len(rest) == 1 else (TensorProduct(*others), rest)
            found[f"variable {k + 1}"] = dependence_effect(kernel, beside, points, at, SHOWN)
        return ColumnEffects.of(found)
