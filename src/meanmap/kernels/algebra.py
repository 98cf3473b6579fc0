"""Kernels made of kernels: sums, products, scalings, constants, tensor products on pairs."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    count,
    device,
    filled,
    float_like,
    namespace,
    spans,
)
from meanmap.frames import column_order, reordered
from meanmap.kernels.features import Crossed, FeatureMap, Ones, Scaling, Stacked
from meanmap.kernels.protocol import Comparison, Kernel, SteinComparison, show


def as_term(value: Any) -> Kernel:
    """A summand: a kernel, or a number that stands for a constant kernel."""
    return value if isinstance(value, Kernel) else Constant(value)


def _term(kernel: Kernel) -> str:
    return show(kernel.value) if isinstance(kernel, Constant) else repr(kernel)


def _factor(kernel: Kernel) -> str:
    return f"({kernel!r})" if isinstance(kernel, Sum | TensorProduct) else repr(kernel)


def _all_of(domains: list[str | None]) -> str | None:
    """The product of domains, or None if one of them is missing."""
    found = [domain for domain in domains if domain is not None]
    return " × ".join(found) if len(found) == len(domains) else None


class Constant(Kernel):
    """The same number for every pair of points, on any domain.

    Examples
    --------
    >>> from meanmap.kernels import Linear
    >>> (Linear() + 1)([[2.0]], [[3.0]])
    array([[7.]])
    """

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def read_points(self, points: Any, name: str) -> Points:
        if isinstance(points, tuple) and points:
            return tuple(self.read_points(part, f"{name}[{i}]") for i, part in enumerate(points))
        return checks.any_points(points, name)

    translates = True

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        checks.positive(self.value, "a constant kernel's value", "Use kernel + 1, for example.")
        return super().resolve(points, weights)

    def against(self, B: Points) -> Comparison:
        like, indices = float_like(B), np.arange(count(B))
        xp = namespace(like)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            shape = (count(A), len(indices[columns]))
            return xp.full(shape, float(self.value), dtype=like.dtype, device=device(like))

        return compare

    def squared_norms(self, A: Points) -> Array:
        like = float_like(A)
        return filled(count(A), float(self.value), like)

    smooth = True

    def gradients(self, A: Points, B: Points) -> Array:
        return filled((A.shape[0], *B.shape), 0.0, A)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        return lambda A, S, columns: float(self.value) * (S @ T[columns].T)

    def feature_map(self, points: Points) -> FeatureMap:
        return Ones(float(self.value))


class Pair(Kernel):
    """Two kernels on the same points."""

    left: Kernel
    right: Kernel

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain."""
        return self.left.bounded and self.right.bounded

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether k is differentiable everywhere, so that a mode can be climbed to."""
        return self.left.smooth and self.right.smooth

    @property
    def _strict(self) -> Kernel:
        """The side that says what points are: a constant takes any."""
        return self.right if isinstance(self.left, Constant) else self.left

    @property
    def on_vectors(self) -> bool:  # type: ignore[override]
        """Whether points are vectors, rows of a 2-D array of numbers."""
        return self._strict.on_vectors

    def read_points(self, points: Any, name: str) -> Points:
        loose = self.left if self._strict is self.right else self.right
        return loose.read_points(self._strict.read_points(points, name), name)

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return type(self)(self.left.resolve(points, weights), self.right.resolve(points, weights))

    def check(
        self,
        points: Any,
        name: str = "points",
        like: Points | None = None,
        like_name: str = "the sample",
    ) -> Points:
        loose = self.left if self._strict is self.right else self.right
        points = loose.read_points(self._strict.check(points, name), name)
        return self._strict.check(points, name, like, like_name)

    def bind(self, points: Any, name: str = "points") -> Kernel:
        left, right = self.left.bind(points, name), self.right.bind(points, name)
        same = left is self.left and right is self.right
        return self if same else type(self)(left, right)

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The columns that the kernel is bound to, or None."""
        return self._strict.names

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        return self._strict.rows(x, like, name)


class Sum(Pair):
    """k₁ + k₂. Write `k1 + k2`, or `k + 1` for a constant.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian, Laplace
    >>> Gaussian(1.0) + Laplace(2.0)
    Gaussian(bandwidth=1.0) + Laplace(bandwidth=2.0)
    """

    def against(self, B: Points) -> Comparison:
        left, right = self.left.against(B), self.right.against(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            total = left(A, columns, out)
            total += right(A, columns, None)
            return total

        return compare

    # the space of a sum contains both spaces, and distances between embeddings add up

    @property
    def translates(self) -> bool:  # type: ignore[override]
        """Whether moving all points changes k(x, x') by f(x) + f(x') at most."""
        return self.left.translates and self.right.translates

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where either kernel's do."""
        return self.left.characteristic or self.right.characteristic

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions: where either kernel's is."""
        return self.left.universal or self.right.universal

    def __repr__(self) -> str:
        return f"{_term(self.left)} + {_term(self.right)}"

    def squared_norms(self, A: Points) -> Array:
        return self.left.squared_norms(A) + self.right.squared_norms(A)

    def gradients(self, A: Points, B: Points) -> Array:
        return self.left.gradients(A, B) + self.right.gradients(A, B)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        left, right = self.left.stein_against(B, T), self.right.stein_against(B, T)
        return lambda A, S, columns: left(A, S, columns) + right(A, S, columns)

    def feature_map(self, points: Points) -> FeatureMap | None:
        maps = self.left.feature_map(points), self.right.feature_map(points)
        return None if maps[0] is None or maps[1] is None else Stacked((maps[0], maps[1]))


class Product(Pair):
    """k₁ · k₂ on the same points. Write `k1 * k2`.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian, Polynomial
    >>> k = Gaussian(1.0) * Polynomial(2)
    >>> k([[0.0]], [[0.0]])  # 1 times (0 + 1)²
    array([[1.]])
    """

    def against(self, B: Points) -> Comparison:
        left, right = self.left.against(B), self.right.against(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            product = left(A, columns, out)
            product *= right(A, columns, None)
            return product

        return compare

    # the tensor product of universal kernels is universal, and stays so on the pairs (x, x); that
    # of characteristic ones need not be characteristic (Szabó and Sriperumbudur 2018)

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where both kernels are universal."""
        if isinstance(self.left, Constant) or isinstance(self.right, Constant):
            return self._strict.characteristic
        return self._strict.characteristic if self.universal else None

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions: where both kernels' are."""
        if isinstance(self.left, Constant) or isinstance(self.right, Constant):
            return self._strict.universal
        return self.left.universal if self.right.universal else None

    def __repr__(self) -> str:
        return f"{_factor(self.left)} * {_factor(self.right)}"

    def squared_norms(self, A: Points) -> Array:
        return self.left.squared_norms(A) * self.right.squared_norms(A)

    def gradients(self, A: Points, B: Points) -> Array:
        left, right = (
            self.left.gram_matrix(A, B)[:, :, None],
            self.right.gram_matrix(A, B)[:, :, None],
        )
        return left * self.right.gradients(A, B) + right * self.left.gradients(A, B)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        steins = self.left.stein_against(B, T), self.right.stein_against(B, T)
        grams = self.left.against(B), self.right.against(B)

        def compare(A: Points, S: Array, columns: Any) -> Array:
            b = B[columns]
            left, right = grams[0](A, columns, None), grams[1](A, columns, None)
            out = left * steins[1](A, S, columns) + right * steins[0](A, S, columns)
            out -= left * right * (S @ T[columns].T)
            # what is left of the product rule: ∇ₓk₁·∇ₓ′k₂ + ∇ₓ′k₁·∇ₓk₂, for a few rows at a time
            xp = namespace(A)
            few = max(1, TILE // (b.shape[0] * b.shape[1]))
            parts = []
            for a in (A[i] for i in spans(A.shape[0], few)):
                ahead = [k.gradients(a, b) for k in (self.left, self.right)]
                back = [k.gradients(b, a) for k in (self.right, self.left)]
                first, second = (xp.permute_dims(gradient, (1, 0, 2)) for gradient in back)
                parts.append(xp.sum(ahead[0] * first + ahead[1] * second, axis=2))
            out += xp.concat(parts)
            return out

        return compare

    def feature_map(self, points: Points) -> FeatureMap | None:
        maps = self.left.feature_map(points), self.right.feature_map(points)
        return None if maps[0] is None or maps[1] is None else Crossed((maps[0], maps[1]), False)


class Around(Kernel):
    """A kernel made of one other, on the same points."""

    kernel: Kernel

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain."""
        return self.kernel.bounded

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where those of the kernel itself do."""
        return self.kernel.characteristic

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions: the kernel's own is the same."""
        return self.kernel.universal

    @property
    def on_vectors(self) -> bool:  # type: ignore[override]
        """Whether points are vectors, rows of a 2-D array of numbers."""
        return self.kernel.on_vectors

    def read_points(self, points: Any, name: str) -> Points:
        return self.kernel.read_points(points, name)

    def check(
        self,
        points: Any,
        name: str = "points",
        like: Points | None = None,
        like_name: str = "the sample",
    ) -> Points:
        return self.kernel.check(points, name, like, like_name)

    def bind(self, points: Any, name: str = "points") -> Kernel:
        inner = self.kernel.bind(points, name)
        if inner is self.kernel:
            return self
        kernel = copy(self)
        kernel.kernel = inner
        return kernel

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The columns that the kernel is bound to, or None."""
        return self.kernel.names

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        return self.kernel.rows(x, like, name)


class Scaled(Around):
    """c · k for a positive number c. Write `2.0 * k`.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian
    >>> k = 2.0 * Gaussian(1.0)
    >>> k([[0.0]], [[0.0]])
    array([[2.]])
    """

    def __init__(self, kernel: Kernel, factor: float) -> None:
        self.kernel = kernel
        self.factor = factor

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether k is differentiable everywhere, so that a mode can be climbed to."""
        return self.kernel.smooth

    @property
    def translates(self) -> bool:  # type: ignore[override]
        """Whether moving all points changes k(x, x') by f(x) + f(x') at most."""
        return self.kernel.translates

    def _factor(self) -> float:
        return checks.positive(self.factor, "a kernel's factor", "Kernels add up, not subtract.")

    def resolve(self, points: Points, weights: Array | None = None) -> Scaled:
        return Scaled(self.kernel.resolve(points, weights), self._factor())

    def against(self, B: Points) -> Comparison:
        inner, factor = self.kernel.against(B), self._factor()
        return lambda A, columns, out: factor * inner(A, columns, out)

    def __repr__(self) -> str:
        return f"{show(self.factor)} * {_factor(self.kernel)}"

    def squared_norms(self, A: Points) -> Array:
        return self._factor() * self.kernel.squared_norms(A)

    def gradients(self, A: Points, B: Points) -> Array:
        return self._factor() * self.kernel.gradients(A, B)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        inner, factor = self.kernel.stein_against(B, T), self._factor()
        return lambda A, S, columns: factor * inner(A, S, columns)

    def feature_map(self, points: Points) -> FeatureMap | None:
        inner = self.kernel.feature_map(points)
        return None if inner is None else Scaling(inner, self._factor())


class TensorProduct(Kernel):
    """k_X(x, x') · k_Y(y, y') on pairs (or more): points are a tuple of samples (X, Y).

    The space of the pair's embedding, the (uncentred) cross-covariance operator (Song et al. 2013,
    eq. 2). Write `kx @ ky`.

    Examples
    --------
    >>> from meanmap.kernels import Delta, Gaussian
    >>> kernel = Gaussian(1.0) @ Delta()
    >>> kernel(([[0.0], [0.0]], ["a", "b"]))
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, *kernels: Kernel) -> None:
        self.kernels = kernels

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return []

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The kernels by position, and with `deep` their own parameters."""
        out: dict[str, Any] = {f"kernel_{i}": kernel for i, kernel in enumerate(self.kernels)}
        if deep:
            for name, kernel in list(out.items()):
                out.update({f"{name}__{key}": v for key, v in kernel.get_params().items()})
        return out

    def set_params(self, **parameters: Any) -> Self:
        """Set a kernel (`kernel_0=`) or one of its parameters (`kernel_0__bandwidth=`)."""
        kernels = list(self.kernels)
        for key, value in parameters.items():
            name, _, rest = key.partition("__")
            names = [f"kernel_{i}" for i in range(len(kernels))]
            if name not in names:
                raise ValueError(
                    f"Invalid parameter {key!r} for {self!r}. Valid parameters are: {names!r}."
                )
            position = names.index(name)
            if rest:
                kernels[position].set_params(**{rest: value})
            else:
                kernels[position] = value
        self.kernels = tuple(kernels)
        return self

    def __sklearn_clone__(self) -> TensorProduct:
        from sklearn.base import clone

        return TensorProduct(*(clone(kernel) for kernel in self.kernels))

    def __repr__(self) -> str:
        return " @ ".join(_factor(kernel) for kernel in self.kernels)

    def __matmul__(self, other: Kernel) -> Kernel:
        super().__matmul__(other)  # refuses what is no kernel
        return TensorProduct(*self.kernels, other)

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain."""
        return all(kernel.bounded for kernel in self.kernels)

    # the tensor product of universal kernels is universal; that of characteristic ones need not be
    # characteristic (Szabó and Sriperumbudur 2018)

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where every kernel is universal."""
        return _all_of([k.characteristic if k.universal else None for k in self.kernels])

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions: where every kernel's is."""
        return _all_of([kernel.universal for kernel in self.kernels])

    def _parts(self, points: Any, name: str) -> list[tuple[Kernel, Any, str]]:
        if not isinstance(points, tuple) or not points or len(points) != len(self.kernels):
            raise TypeError(
                f"{name}: a tensor product of {len(self.kernels)} kernels takes a tuple of "
                f"{len(self.kernels)} samples, got {checks.describe(points)}."
            )
        return [
            (kernel, part, f"{name}[{i}]")
            for i, (kernel, part) in enumerate(zip(self.kernels, points, strict=True))
        ]

    def read_points(self, points: Any, name: str) -> Points:
        parts = [
            (label, kernel.check(part, label)) for kernel, part, label in self._parts(points, name)
        ]
        checks.same_length(parts)
        return tuple(part for _, part in parts)

    def check(
        self,
        points: Any,
        name: str = "points",
        like: Points | None = None,
        like_name: str = "the sample",
    ) -> Points:
        points = self.read_points(points, name)
        if like is None:
            return points
        return tuple(
            kernel.check(part, label, other, like_name)
            for (kernel, part, label), other in zip(self._parts(points, name), like, strict=True)
        )

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        parts = [
            kernel.rows(part, other, label)
            for (kernel, part, label), other in zip(self._parts(x, name), like, strict=True)
        ]
        checks.same_length([(f"{name}[{i}]", points) for i, (points, _) in enumerate(parts)])
        return tuple(points for points, _ in parts), all(single for _, single in parts)

    def bind(self, points: Any, name: str = "points") -> Kernel:
        if not isinstance(points, tuple) or len(points) != len(self.kernels):
            return self
        pairs = enumerate(zip(self.kernels, points, strict=True))
        parts = [kernel.bind(part, f"{name}[{i}]") for i, (kernel, part) in pairs]
        same = all(a is b for a, b in zip(parts, self.kernels, strict=True))
        return self if same else TensorProduct(*parts)

    def resolve(self, points: Points, weights: Array | None = None) -> TensorProduct:
        pairs = zip(self.kernels, points, strict=True)
        return TensorProduct(*(kernel.resolve(part, weights) for kernel, part in pairs))

    def against(self, B: Points) -> Comparison:
        parts = [kernel.against(part) for kernel, part in zip(self.kernels, B, strict=True)]

        def compare(A: Points, columns: Any, out: Any) -> Array:
            product = parts[0](A[0], columns, out)
            for part, points in zip(parts[1:], A[1:], strict=True):
                product *= part(points, columns, None)
            return product

        return compare

    def squared_norms(self, A: Points) -> Array:
        product = self.kernels[0].squared_norms(A[0])
        for kernel, part in zip(self.kernels[1:], A[1:], strict=True):
            product = product * kernel.squared_norms(part)
        return product

    def feature_map(self, points: Points) -> FeatureMap | None:
        pairs = zip(self.kernels, points, strict=True)
        maps = [kernel.feature_map(part) for kernel, part in pairs]
        found = tuple(m for m in maps if m is not None)
        return Crossed(found, True) if len(found) == len(maps) else None


# --- columns by name, of points that have passed a gate -------------------------------------------


def variables(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels of a tensor product on tuples; any other kernel is one variable's."""
    many = isinstance(kernel, TensorProduct) and kernel.names is None
    return kernel.kernels if many and isinstance(kernel, TensorProduct) else (kernel,)


def require_same_kernel(mine: Kernel, other: Kernel) -> None:
    """Refuse to mix elements of different spaces."""
    if mine != other:
        raise ValueError(
            f"the embeddings have different kernels, {mine!r} and {other!r}, so they live in "
            "different spaces. Embed both with one: embed(Y, kernel=P.kernel)."
        )
    for one, beside in zip(variables(mine), variables(other), strict=True):
        known, found = one.names, beside.names
        if column_order(known, found, "the other embedding") is not None:
            raise ValueError(
                f"the embeddings have their columns in different orders, {list(known or ())} and "
                f"{list(found or ())}. Embed both with one kernel: embed(Y, kernel=P.kernel)."
            )


def match_columns(points: Points, of: Kernel, kernel: Kernel, name: str) -> Points:
    """Points that passed the gate of one kernel, their columns in the order of another's."""
    mine, theirs = variables(kernel), variables(of)
    if len(mine) == 1 or len(mine) != len(theirs):
        return reordered(points, column_order(kernel.names, of.names, name))
    trios = enumerate(zip(points, theirs, mine, strict=True))
    return tuple(match_columns(part, a, b, f"{name}[{i}]") for i, (part, a, b) in trios)
