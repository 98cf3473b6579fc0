"""Kernels made of kernels: sums, products, scalings, constants, tensor products on pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce
from operator import iadd, imul
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from meanmap import checks
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    count,
    epsilon,
    float_like,
    full,
    in_kind,
    is_array,
    is_floating,
    namespace,
    spans,
)
from meanmap.frames import column_order, reorder_columns
from meanmap.kernels.features import Crossed, FeatureMap, Ones, Stacked
from meanmap.kernels.protocol import Comparison, Kernel, SteinComparison, show


def as_term(value: Any) -> Kernel:
    """A summand: a kernel, or a number that stands for a constant kernel."""
    return value if isinstance(value, Kernel) else Constant(value)


def _in_one_precision(parts: tuple[Points, ...]) -> tuple[Points, ...]:
    """Numbers in the library and precision of the widest array that is not NumPy's.

    NumPy mixes precisions by itself; labels that are not numbers are returned unchanged.
    """
    others = [p for p in parts if is_array(p) and not isinstance(p, np.ndarray) and is_floating(p)]
    like = min(others, key=epsilon, default=None)
    if like is None:
        return parts
    return tuple(in_kind(p, like) if is_array(p) and p.dtype != like.dtype else p for p in parts)


def _term(kernel: Kernel) -> str:
    return show(kernel.value) if isinstance(kernel, Constant) else repr(kernel)


def _factor(kernel: Kernel) -> str:
    return f"({kernel!r})" if isinstance(kernel, Sum | TensorProduct) else repr(kernel)


def _all_of(domains: Iterable[str | None]) -> str | None:
    """The product of domains, or None if one of them is missing."""
    found = list(domains)
    return None if None in found else " × ".join(map(str, found))


def _first(domains: Iterable[str | None]) -> str | None:
    """The first domain that is not missing, or None."""
    return next(filter(None, domains), None)


def _forward(name: str, to: str) -> Any:
    """A property that another kernel declares, the one in the attribute `to`."""
    return property(lambda self: getattr(getattr(self, to), name), doc=f"As that of `{to}`.")


def _combine(name: str, of: Callable[[Iterable[Any]], Any]) -> Any:
    """A property that follows from those of all parts."""
    return property(
        lambda self: of(getattr(part, name) for part in self.parts), doc=f"`{name}` of all parts."
    )


class Constant(Kernel):
    """The same number for every pair of points, on any domain.

    Examples
    --------
    >>> from meanmap.kernels import Linear
    >>> (Linear() + 1)([[2.0]], [[3.0]])
    array([[7.]])
    """

    smooth = translates = True

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def read_points(self, points: Any, name: str) -> Points:
        if isinstance(points, tuple) and points:
            return tuple(self.read_points(part, f"{name}[{i}]") for i, part in enumerate(points))
        return checks.any_points(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        remedy = "Use kernel + 1, for example."
        return self.replace(value=checks.positive(self.value, "a constant kernel's value", remedy))

    def against(self, B: Points) -> Comparison:
        like, indices = float_like(B), np.arange(count(B))

        return lambda A, columns, out: full((count(A), len(indices[columns])), self.value, like)

    def squared_norms(self, A: Points) -> Array:
        return full(count(A), self.value, float_like(A))

    def gradients(self, A: Points, B: Points) -> Array:
        return full((A.shape[0], *B.shape), 0.0, A)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        return lambda A, S, columns: self.value * (S @ T[columns].T)

    def feature_map(self, points: Points) -> FeatureMap:
        return Ones(self.value)


class Composite(Kernel):
    """A kernel made of others on the same points, one of which, `lead`, says what these are."""

    part_names: tuple[str, ...]  # of the parameters that are kernels
    domain = _forward("domain", "lead")
    names = _forward("names", "lead")
    point_kernel = _forward("point_kernel", "lead")
    bounded = _combine("bounded", all)

    @property
    def parts(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernels that this one is made of."""
        return tuple(getattr(self, name) for name in self.part_names)

    def with_parts(self, *parts: Kernel) -> Self:
        """The same kernel made of other parts."""
        return self.replace(**dict(zip(self.part_names, parts, strict=True)))

    @property
    def varying(self) -> tuple[Kernel, ...]:
        """The parts that are not constant."""
        return tuple(part for part in self.parts if not isinstance(part, Constant))

    @property
    def lead(self) -> Kernel:
        """The part that says what points are: a constant takes any."""
        return (*self.varying, self.parts[-1])[0]

    def pairs(self, points: Points) -> list[tuple[Kernel, Points]]:
        """Each part with its points."""
        return [(part, points) for part in self.parts]

    def named_parts(self, points: Any, name: str) -> list[tuple[Kernel, Any, str]]:
        """Each part with points that came for it, and what to call them in an error."""
        return [(part, points, name) for part in self.parts]

    def bind(self, points: Any, name: str = "points") -> Kernel:
        bound = [part.bind(mine, label) for part, mine, label in self.named_parts(points, name)]
        same = all(a is b for a, b in zip(bound, self.parts, strict=True))
        return self if same else self.with_parts(*bound)

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return self.with_parts(*(part.resolve(mine, weights) for part, mine in self.pairs(points)))

    def read_points(self, points: Any, name: str) -> Points:
        return self.check(points, name)

    def check(
        self, points: Any, name: str = "points", like: Points = None, like_name: str = "the sample"
    ) -> Points:
        points = self.lead.check(points, name, like, like_name)
        for part in self.parts:
            points = points if part is self.lead else part.read_points(points, name)
        return points

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        return self.lead.rows(x, like, name)


class Joined(Composite):
    """A kernel whose values are the sum or the product of its parts'."""

    _join: Callable[[Array, Array], Array]  # values of two parts, in place
    _join_features: Callable[[tuple[Any, ...]], FeatureMap]

    def against(self, B: Points) -> Comparison:
        first, *others = (part.against(b) for part, b in self.pairs(B))

        def join(A: Points, columns: Any, out: Any) -> Array:
            mine, *rest = (a for _, a in self.pairs(A))
            found = first(mine, columns, out)
            for compare, a in zip(others, rest, strict=True):
                found = self._join(found, compare(a, columns, None))
            return found

        return join

    def squared_norms(self, A: Points) -> Array:
        first, *others = (part.squared_norms(a) for part, a in self.pairs(A))
        return reduce(self._join, others, first + 0)

    def feature_map(self, points: Points) -> FeatureMap | None:
        maps = tuple(part.feature_map(mine) for part, mine in self.pairs(points))
        return None if None in maps else self._join_features(maps)


class Pair(Joined):
    """Two kernels on the same points."""

    part_names = "left", "right"
    smooth = _combine("smooth", all)

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right


class Sum(Pair):
    """k₁ + k₂. Write `k1 + k2`, or `k + 1` for a constant.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian, Laplace
    >>> Gaussian(1.0) + Laplace(2.0)
    Gaussian(bandwidth=1.0) + Laplace(bandwidth=2.0)
    """

    _join = staticmethod(iadd)
    _join_features = Stacked

    # the space of a sum contains both spaces, and distances between embeddings add up
    translates = _combine("translates", all)
    characteristic = _combine("characteristic", _first)
    universal = _combine("universal", _first)

    @property
    def core(self) -> Kernel:
        """The kernel without factors and constants, which move no optimum."""
        return self.lead.core if len(self.varying) == 1 else self

    def __repr__(self) -> str:
        return f"{_term(self.left)} + {_term(self.right)}"

    def gradients(self, A: Points, B: Points) -> Array:
        return self.left.gradients(A, B) + self.right.gradients(A, B)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        left, right = self.left.stein_against(B, T), self.right.stein_against(B, T)
        return lambda A, S, columns: left(A, S, columns) + right(A, S, columns)


class Product(Pair):
    """k₁ · k₂ on the same points. Write `k1 * k2`.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian, Polynomial
    >>> k = Gaussian(1.0) * Polynomial(2)
    >>> k([[0.0]], [[0.0]])  # 1 times (0 + 1)²
    array([[1.]])
    """

    _join = staticmethod(imul)
    _join_features = Crossed

    # the tensor product of universal kernels is universal, and stays so on the pairs (x, x); that
    # of characteristic ones need not be characteristic (Szabó and Sriperumbudur 2018)

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where both kernels are universal."""
        alone = len(self.varying) == 1
        return self.lead.characteristic if alone or self.universal else None

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions: where both kernels' are."""
        return self.lead.universal if all(part.universal for part in self.varying) else None

    def __repr__(self) -> str:
        return f"{_factor(self.left)} * {_factor(self.right)}"

    def gradients(self, A: Points, B: Points) -> Array:
        left, right = (part.gram_matrix(A, B)[:, :, None] for part in self.parts)
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


class Around(Composite):
    """A kernel made of one other, on the same points."""

    kernel: Kernel
    part_names = ("kernel",)
    characteristic = _forward("characteristic", "kernel")
    universal = _forward("universal", "kernel")


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

    smooth = _forward("smooth", "kernel")
    translates = _forward("translates", "kernel")
    core = _forward("core", "kernel")

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        remedy = "Kernels add up, not subtract."
        factor = checks.positive(self.factor, "a kernel's factor", remedy)
        checks.finite(np.array([factor]), "a kernel's factor", like=float_like(points))
        return super().resolve(points, weights).replace(factor=factor)

    def against(self, B: Points) -> Comparison:
        inner = self.kernel.against(B)
        return lambda A, columns, out: self.factor * inner(A, columns, out)

    def __repr__(self) -> str:
        return f"{show(self.factor)} * {_factor(self.kernel)}"

    def squared_norms(self, A: Points) -> Array:
        return self.factor * self.kernel.squared_norms(A)

    def gradients(self, A: Points, B: Points) -> Array:
        return self.factor * self.kernel.gradients(A, B)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        inner = self.kernel.stein_against(B, T)
        return lambda A, S, columns: self.factor * inner(A, S, columns)

    def feature_map(self, points: Points) -> FeatureMap | None:
        inner = self.kernel.feature_map(points)
        return None if inner is None else Crossed((Ones(self.factor), inner))


class TensorProduct(Joined):
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

    def _get_param_names(self) -> list[str]:
        return list(self.get_params(deep=False))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The kernels by position, and with `deep` their own parameters."""
        own = {f"kernel_{i}": kernel for i, kernel in enumerate(self.kernels)}
        pairs = [(name, kernel.get_params()) for name, kernel in own.items() if deep]
        return own | {f"{name}__{key}": v for name, inner in pairs for key, v in inner.items()}

    def set_params(self, **parameters: Any) -> Self:
        """Set a kernel (`kernel_0=`) or one of its parameters (`kernel_0__bandwidth=`)."""
        super().set_params(**parameters)  # as attributes of these names
        named = self.get_params(deep=False).items()
        self.kernels = tuple(self.__dict__.pop(name, kernel) for name, kernel in named)
        return self

    def __sklearn_clone__(self) -> TensorProduct:
        return TensorProduct(*(clone(kernel) for kernel in self.kernels))

    def __repr__(self) -> str:
        return " @ ".join(_factor(kernel) for kernel in self.kernels)

    def __matmul__(self, other: Kernel) -> Kernel:
        super().__matmul__(other)  # refuses anything but a kernel
        return TensorProduct(*self.kernels, other)

    domain = "tuples"
    names = Kernel.names
    point_kernel = None
    _join = staticmethod(imul)
    _join_features = staticmethod(partial(Crossed, on_pairs=True))

    @property
    def parts(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernels of the variables."""
        return self.kernels

    factors = parts

    # the tensor product of universal kernels is universal; that of characteristic ones need not be
    # characteristic (Szabó and Sriperumbudur 2018)
    universal = _combine("universal", _all_of)

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions: where every kernel is universal."""
        return _all_of(k.characteristic if k.universal else None for k in self.kernels)

    def with_parts(self, *parts: Kernel) -> TensorProduct:
        """A product of other kernels on the same variables."""
        return TensorProduct(*parts)

    @property
    def has_bandwidth(self) -> bool:
        """Whether a factor has a bandwidth."""
        return any(part.has_bandwidth for part in self.parts)

    def rescaled(self, factor: float) -> TensorProduct:
        """The same product, the bandwidths of all factors that have one multiplied."""
        return self.with_parts(
            *(part.rescaled(factor) if part.has_bandwidth else part for part in self.parts)
        )

    def pairs(self, points: Points) -> list[tuple[Kernel, Points]]:
        return list(zip(self.parts, points, strict=True))

    def named_parts(self, points: Any, name: str) -> list[tuple[Kernel, Any, str]]:
        if not isinstance(points, tuple) or not points or len(points) != len(self.kernels):
            raise TypeError(
                f"{name}: a tensor product of {len(self.kernels)} kernels takes a tuple of "
                f"{len(self.kernels)} samples, got {checks.describe(points)}."
            )
        pairs = enumerate(zip(self.kernels, points, strict=True))
        return [(kernel, part, f"{name}[{i}]") for i, (kernel, part) in pairs]

    def check(
        self, points: Any, name: str = "points", like: Points = None, like_name: str = "the sample"
    ) -> Points:
        others = (None,) * len(self.kernels) if like is None else like
        named = zip(self.named_parts(points, name), others, strict=True)
        checked = {
            label: k.check(part, label, other, like_name) for (k, part, label), other in named
        }
        checks.same_length(list(checked.items()))
        found = zip(self.kernels, _in_one_precision(tuple(checked.values())), checked, strict=True)
        # what fits double precision may not fit single
        return tuple(
            part if part is checked[label] else kernel.read_points(part, label)
            for kernel, part, label in found
        )

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        named = zip(self.named_parts(x, name), like, strict=True)
        found = {label: kernel.rows(part, other, label) for (kernel, part, label), other in named}
        checks.same_length([(label, points) for label, (points, _) in found.items()])
        points, single = zip(*found.values(), strict=True)
        return points, all(single)


# --- columns by name, of points that have passed a gate -------------------------------------------


def variables(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels of a tensor product on tuples; any other kernel is one variable's."""
    return kernel.factors if kernel.factors and kernel.names is None else (kernel,)


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
        return reorder_columns(points, column_order(kernel.names, of.names, name))
    trios = enumerate(zip(points, theirs, mine, strict=True))
    return tuple(match_columns(part, a, b, f"{name}[{i}]") for i, (part, a, b) in trios)
