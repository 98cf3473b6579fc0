"""What "similar" means: the interface of every kernel."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from meanmap import checks, frames
from meanmap.arrays import (
    DEVICE_SIDE,
    TILE,
    Array,
    Points,
    asarray,
    count,
    float_like,
    in_blocks,
    is_array,
    namespace,
    on_accelerator,
    share_blocks,
    spans,
    take,
    view_as,
)
from meanmap.kernels.bandwidths import OpenScales, multiply_bandwidth, parse_bandwidth
from meanmap.kernels.features import FeatureMap
from meanmap.protocols import ForUsers

# (A, columns, buffer) → the Gram matrix of A against some of B; columns, a slice or an index array,
# says which, the buffer is one to overwrite or None
Comparison = Callable[[Points, Any, Any], Array]

# (A, scores of A, columns) → the Stein kernel of A against some of B
SteinComparison = Callable[[Points, Array, Any], Array]

ALL = slice(None)


class Kernel(ForUsers, BaseEstimator):
    """A positive definite function of two points.

    A kernel is a specification: parameters as given, never changed by fitting. `resolve(points)`
    returns a kernel whose parameters are all valid numbers; models keep that one (`kernel_x_`,
    `embedding.kernel`). Kernels add, multiply and scale; `k + 1` adds a constant, `kx @ ky` is the
    tensor product on pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> k = Gaussian(1.0)
    >>> k(np.zeros((2, 1)), np.ones((1, 1))).round(3)  # a Gram matrix
    array([[0.607],
           [0.607]])
    >>> k.matmul(np.zeros((2, 1)), np.ones((3, 1)), np.ones(3)).round(3)  # times a vector
    array([1.82, 1.82])

    Notes
    -----
    A kernel of your own is a subclass whose constructor stores its arguments unchanged. All methods
    but `read_points` meet points that it has read, and all but `resolve` and `read_points` meet
    parameters that `resolve` has checked: nothing is checked again below.

    ====================  ============  ===========================================================
    name                  unless given  what it says
    ====================  ============  ===========================================================
    `read_points`         (to write)    points of the domain as arrays, or an error
    `against`             (to write)    `compare(A, columns, out)`, a Gram matrix of A by some of B
    `squared_norms`       (to write)    k(a, a) for every point
    `resolve`             a copy        `self.replace(...)` with numbers, valid or chosen on data
    `domain`              "any"         "vectors", "labels", "matrices", "strings", "graphs", ...
    `choices`             none          parameters that may be a word, which `resolve` replaces
    `bounded`             True          whether k(x, x) stays bounded
    `characteristic`      None          the domain where it is, in words; so `universal`
    `smooth`              False         whether k is differentiable everywhere
    `translates`          False         whether moving all points leaves distances of embeddings
    `discrete`            False         whether points are labels, equal or not and nothing between
    `radial`              False         whether k is a function of ‖x - x'‖/σ alone
    `power`               None          p where k = exp(-‖(x - x')/σ‖^p/p): 2 for a Gaussian
    `over_columns`        None          whether k is a function `of_sum` of a sum over columns
    `preimage`            None          the point nearest to an embedding, in closed form
    `gradients`           an error      ∇ₐ k(a, b), where k is smooth on vectors
    `stein_against`       an error      the Stein kernel, where k has two derivatives
    `feature_map`         None          the kernel's finite features, for the `Explicit` basis
    `sample_frequencies`  an error      its spectral measure, for the `RandomFourier` basis
    `rescaled`            if possible   a multiple of its `bandwidth`, if `choices` names one
    `gram_matrix`         by `against`  a faster way, where there is one; so `gram_times`
    ====================  ============  ===========================================================
    """

    #: What points are: "vectors" (rows of numbers), "labels", "matrices", "strings", "graphs",
    #: "series", "bags", "tuples" (of samples), "tables", "indices", or "any".
    domain: str = "any"

    #: The parameters that may be a word such as "median".
    choices: tuple[str, ...] = ()

    #: Whether k(x, x) stays bounded on the whole domain (Fukumizu et al. 2013 assume it does).
    bounded: bool = True

    #: The domain, in words, on which an embedding determines its probability distribution; None
    #: where it does not, or where it is not known.
    characteristic: str | None = None

    #: The domain, in words, on which the space is dense in the continuous functions (those that
    #: vanish at infinity); None where it is not, or where it is not known.
    universal: str | None = None

    #: Whether k is differentiable everywhere, so that a mode can be climbed to.
    smooth: bool = False

    #: Whether moving all points by one vector changes k(x, x') by f(x) + f(x') at most, and so no
    #: distance between distributions.
    translates: bool = False

    #: Whether points are labels that are equal or not, and nothing between.
    discrete: bool = False

    #: Whether k is a function of ‖x - x'‖/σ alone, with a `profile` and a `bandwidth`.
    radial: bool = False

    #: p where k = exp(-‖(x - x')/σ‖^p/p), whose powers are of the same family; None elsewhere.
    power: float | None = None

    #: "differences" or "products" where k is a function, `of_sum`, of the sum over columns of
    #: (x - x')² or of x x'; None elsewhere.
    over_columns: str | None = None

    #: The name of a profile that `meanmap.fused` has a program for, if any.
    fused_profile: str | None = None

    #: The columns of the data frame that the kernel is bound to, in order; absent without any.
    feature_names_in_: tuple[Any, ...]

    def __sklearn_clone__(self) -> Kernel:
        made: Kernel = super().__sklearn_clone__()
        return made.with_names(vars(self).get("feature_names_in_"))

    # --- what a kernel must say ---------------------------------------------------------------

    def read_points(self, points: Any, name: str) -> Points:
        """Points of this kernel's domain, or an error."""
        raise TypeError(f"{type(self).__name__} does not say what its points are.")

    def against(self, B: Points) -> Comparison:
        """A function that compares any points with B, prepared once."""
        raise TypeError(f"{type(self).__name__} does not say how to compare points.")

    def squared_norms(self, A: Points) -> Array:
        """k(a, a) for every point."""
        raise TypeError(f"{type(self).__name__} does not say what k(x, x) is.")

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        """A copy with every parameter a valid number, chosen on the points where asked to."""
        return self.replace()

    # --- what some kernels can do -------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether its scales are to be learned by leave-one-out."""
        return False

    def open_scales(self, points: Points, weights: Array | None) -> OpenScales | None:
        """The points as columns whose scales can be learned; None if no scale can be."""
        return None

    def relevance(self, points: Points) -> list[float]:
        """The spread of every column over its scale: how much it matters in a comparison."""
        raise TypeError(f"{self!r} has no scale for each column.")

    def feature_map(self, points: Points) -> FeatureMap | None:
        """The kernel's own finite features, if it has any."""
        return None

    def preimage(
        self, atoms: Points, weights: Array, starts: Callable[[], Points]
    ) -> Points | None:
        """Points nearest to embeddings with weights (b, n), by a way of the kernel's own, or None.

        `starts()` are a few of the best atoms, (b, few, …). None leaves the search to
        `decoding.preimage`: by gradients where k is smooth on vectors, else among the atoms.
        """
        return None

    def sample_frequencies(self, d: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """n frequencies drawn from the kernel's spectral measure on R^d, one per column."""
        raise TypeError(
            f"RandomFourier knows the frequencies of Gaussian, Laplace and Matern kernels, not of "
            f"{self!r}. Use basis=Nystroem(n), which takes any kernel."
        )

    @property
    def has_bandwidth(self) -> bool:
        """Whether it has a bandwidth that `rescaled` multiplies."""
        return "bandwidth" in self.choices

    def rescaled(self, factor: float) -> Kernel:
        """The same kernel at a multiple of its bandwidth.

        Examples
        --------
        >>> from meanmap.kernels import Gaussian
        >>> Gaussian("scaled median").rescaled(0.5), Gaussian((1.0, 3.0)).rescaled(2.0)
        (Gaussian(bandwidth='0.5*scaled median'), Gaussian(bandwidth=(2.0, 6.0)))
        """
        if not self.has_bandwidth:
            raise TypeError(f"{self!r} has no bandwidth that could be multiplied.")
        return self.replace(bandwidth=multiply_bandwidth(vars(self)["bandwidth"], factor))

    def of_sum(self, total: Array) -> Array:
        """k from the sum that `over_columns` names; the sum may be overwritten."""
        raise TypeError(f"{self!r} is not a function of a sum over columns.")

    def resolve_gram(self, points: Points, weights: Array | None) -> tuple[Kernel, Array]:
        """The kernel resolved on points, and their Gram matrix."""
        kernel = self.resolve(points, weights)
        return kernel, kernel.gram_matrix(points, points)

    # --- what it is made of -------------------------------------------------------------------

    @property
    def on_vectors(self) -> bool:
        """Whether points are vectors, rows of a 2-D array of numbers."""
        return self.domain == "vectors"

    #: The kernels that this one is made of.
    parts: tuple[Kernel, ...] = ()

    #: The kernels of a product over variables, whose points are tuples; else none.
    factors: tuple[Kernel, ...] = ()

    #: The kernel between the points of a bag; None where points are not bags.
    point_kernel: Kernel | None = None

    #: The kernel that compares embeddings of bags, as vectors in some coordinates, or None.
    between_embeddings: Kernel | None = None

    @property
    def core(self) -> Kernel:
        """The kernel without factors and constants, which move no optimum."""
        return self

    @property
    def plain(self) -> Kernel:
        """The kernel before it was whitened, whose functions are easier to read."""
        return self

    # --- parameters and names -----------------------------------------------------------------

    def replace(self, **parameters: Any) -> Self:
        """A copy with other values of some parameters."""
        kernel = object.__new__(type(self))  # a third of the time of `copy`
        kernel.__dict__.update(self.__dict__, **parameters)
        return kernel

    def require_numbers(self) -> None:
        """Refuse parameters that are still to be chosen on data."""
        for name in self.choices:
            value = getattr(self, name)
            if isinstance(value, str):
                parse_bandwidth(value)  # raises its own error for a word that is not a rule
                raise ValueError(
                    f"{name}={value!r} has to be chosen on data first: use kernel.resolve(points), "
                    "or the kernel of a fitted model."
                )
        for part in self.parts:
            part.require_numbers()

    def bind(self, points: Any, name: str = "points") -> Kernel:
        """A copy that remembers the columns of a data frame, as `feature_names_in_`.

        `check` then matches other frames by name. Arrays have no names, and a kernel that has
        some keeps them.
        """
        return self if self.names is not None else self.with_names(frames.column_names(points))

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The columns that the kernel is bound to, or None."""
        return getattr(self, "feature_names_in_", None)

    def with_names(self, names: tuple[Any, ...] | None) -> Self:
        """A copy bound to these columns."""
        return self if names is None else self.replace(feature_names_in_=names)

    # --- what every kernel can do -------------------------------------------------------------

    def check(
        self, points: Any, name: str = "points", like: Points = None, like_name: str = "the sample"
    ) -> Points:
        """The gate: points of this kernel's domain (and of the kind of `like`), or an error."""
        points = self.read_points(frames.in_order(points, self.names, name, like_name), name)
        if like is None:
            return points
        found = checks.same_kind(points, like, name, like_name)
        if getattr(found, "dtype", None) is not getattr(points, "dtype", None):
            found = self.read_points(found, name)  # what fits double precision may not fit single
        return found

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        """`x` as points, and whether it was one single point rather than rows of them.

        Where points are single numbers, a 1-D array of several of them is as many points.
        """
        x = frames.row_in_order(x, self.names, name)
        array = np.asarray(x) if np.isscalar(x) else checks.plain(x, name)
        missing = like.ndim - array.ndim
        numbers = like.shape[1:] == (1,)
        several = numbers and array.ndim == 1 and array.shape[0] > 1
        single = (missing == 1 and not several) or (array.ndim == 0 and numbers)
        if single:
            array = array[(None,) * missing]
        return self.check(array if single else x, name, like), single

    def _read(self, points: Any, name: str) -> tuple[Kernel, Points]:
        """The kernel with valid parameters, bound to the points' columns, and the points."""
        kernel = self.bind(points, name)
        points = kernel.check(points, name)
        kernel.require_numbers()
        return kernel.resolve(points), points

    def __call__(self, A: Any, B: Any = None) -> Array:
        """The Gram matrix of A against B (against itself when B is None)."""
        kernel, A = self._read(A, "A")
        return kernel.gram_matrix(A, A if B is None else kernel.check(B, "B", A, "A"))

    def gram_matrix(self, A: Points, B: Points) -> Array:
        """The Gram matrix of points that passed the gate."""
        return self.against(B)(A, ALL, None)

    def diagonal(self, A: Any) -> Array:
        """k(a, a) for every point, without a Gram matrix."""
        kernel, A = self._read(A, "A")
        return kernel.squared_norms(A)

    def matmul(self, A: Any, B: Any, V: Array) -> Array:
        """The Gram matrix of A against B times V, computed tile by tile and never stored.

        Tiles fit a core's cache and are shared out among the threads that the BLAS may use
        (`threadpoolctl.threadpool_limits` sets how many), each with one buffer that it reuses.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap.kernels import Gaussian
        >>> X = np.random.default_rng(0).normal(size=(1000, 3))
        >>> sums = Gaussian(1.0).matmul(X, X, np.ones(1000))
        >>> bool(np.allclose(sums, Gaussian(1.0)(X).sum(axis=1)))
        True
        """
        kernel, A = self._read(A, "A")
        B = kernel.check(B, "B", A, "A")
        like = float_like(A)
        V = asarray(checks.numbers(V, "V"), like)
        if V.ndim not in (1, 2) or V.shape[0] != count(B):
            raise ValueError(
                f"V: expected shape ({count(B)},) or ({count(B)}, q), one row per point of B; "
                f"got {tuple(V.shape)}."
            )
        return kernel.gram_times(A, B, V)

    def gram_times(self, A: Points, B: Points, V: Array) -> Array:
        """The Gram matrix times V, of points that passed the gate."""
        compare, n, m = self.against(B), count(A), count(B)
        if on_accelerator(V):
            return in_blocks(lambda side: _in_tiles(compare, A, m, V, side, side), DEVICE_SIDE)
        width = min(m, 1024)
        height = max(1, min(n, TILE // max(width, 1)))
        if not isinstance(V, np.ndarray):
            return _in_tiles(compare, A, m, V, height, width)
        out = np.zeros((n, *V.shape[1:]), dtype=V.dtype)

        def work(thread: int, blocks: list[slice]) -> None:
            buffer = np.empty(height * width, dtype=V.dtype)
            for i in blocks:
                rows = take(A, i)
                for j in spans(m, width):
                    into = view_as(buffer, i.stop - i.start, j.stop - j.start)
                    out[i] += compare(rows, j, into) @ V[j]

        share_blocks(work, list(spans(n, height)), n * m > 4 * TILE)  # less would not pay
        return out

    def gradient(self, x: Any, B: Any) -> Array:
        """∇ₓ k(x, b) for every point of B: shape (n, d), or (m, n, d) for rows of points x.

        Where a kernel has a kink (`Laplace`, `Matern(0.5)` and `Energy` at x = b) it is 0.

        Examples
        --------
        >>> from meanmap.kernels import Gaussian
        >>> Gaussian(bandwidth=1.0).gradient([0.0], [[0.0], [1.0]]).round(3)
        array([[0.   ],
               [0.607]])
        """
        kernel, B = self._read(B, "B")
        points, single = kernel.rows(x, B)
        gradient = kernel.gradients(points, B)
        return gradient[0] if single else gradient

    def gradients(self, A: Points, B: Points) -> Array:
        """∇ₐ k(a, b), shape (m, n, d)."""
        raise TypeError(
            f"{type(self).__name__} has no gradient; modes are found over the atoms instead."
        )

    def stein(self, A: Any, scores: Array, B: Any = None, scores_B: Array | None = None) -> Array:
        """The Stein kernel of a density p, known by its score s = ∇log p at the points.

        s(x)·s(x') k + s(x)·∇ₓ′k + s(x')·∇ₓk + tr ∇ₓ∇ₓ′k, whose mean under p is 0 at every x'
        (Liu, Lee and Jordan 2016; Chwialkowski, Strathmann and Gretton 2016).

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap.kernels import Gaussian
        >>> X = np.linspace(-8, 8, 1001)[:, None]
        >>> H = Gaussian(bandwidth=1.0).stein(X, -X)  # the score of a standard normal is -x
        >>> p = np.exp(-(X[:, 0] ** 2) / 2)
        >>> bool(abs(H @ p).max() < 1e-10)
        True
        """
        kernel, A = self._read(A, "A")
        S = T = _read_scores(scores, A, "scores")
        if B is None:
            B = A
        else:
            B = kernel.check(B, "B", A, "A")
            T = _read_scores(scores_B, B, "scores_B")
        return kernel.stein_against(B, T)(A, S, ALL)

    def stein_against(self, B: Points, T: Array) -> SteinComparison:
        """A function that gives the Stein kernel of any points against B with scores T."""
        raise TypeError(
            f"{self!r} has no mixed second derivative ∇ₓ∇ₓ′k, which a Stein kernel is made of. Use "
            "a smooth kernel on vectors: Gaussian, RationalQuadratic, Matern(1.5), Matern(2.5), "
            "Polynomial, Linear, or sums and products of these."
        )

    # --- algebra ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Kernel:
        from meanmap.kernels.algebra import Sum, as_term

        return Sum(self, as_term(other))

    def __radd__(self, other: Any) -> Kernel:
        from meanmap.kernels.algebra import Sum, as_term

        return Sum(as_term(other), self)

    def __mul__(self, other: Any) -> Kernel:
        from meanmap.kernels.algebra import Product, Scaled

        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, other)

    __rmul__ = __mul__

    def __matmul__(self, other: Kernel) -> Kernel:
        from meanmap.kernels.algebra import TensorProduct

        if not isinstance(other, Kernel):
            raise TypeError(f"a tensor product takes kernels, got {other!r}.")
        return TensorProduct(self, other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kernel) or type(self) is not type(other):
            return False
        return same_value(self.get_params(deep=False), other.get_params(deep=False))

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        names = list(signature(type(self)).parameters)
        shown = ", ".join(f"{name}={show(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({shown})"

    # a kernel is shown in notebooks as it is in a terminal, not as an estimator's box
    _repr_html_ = None
    _repr_mimebundle_ = None


def _read_scores(scores: Any, points: Points, name: str) -> Array:
    """One gradient of the log density per point."""
    scores = asarray(checks.numbers(scores, name), float_like(points))
    if scores.shape != points.shape:
        raise ValueError(
            f"{name}: expected one gradient per point, shape {tuple(points.shape)}, got shape "
            f"{tuple(scores.shape)}."
        )
    return scores


def _in_tiles(compare: Comparison, A: Points, m: int, V: Array, height: int, width: int) -> Array:
    """The Gram matrix of A against m points times V, a tile at a time."""
    parts: list[Any] = [
        sum(compare(take(A, i), j, None) @ V[j] for j in spans(m, width))
        for i in spans(count(A), height)
    ]
    return namespace(V).concat(parts) if len(parts) > 1 else parts[0]


def same_value(a: Any, b: Any) -> bool:
    """Whether two parameter values are the same, arrays included."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    if hasattr(a, "shape") or hasattr(b, "shape"):  # arrays, and frames of a Gram matrix
        return a is b or bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return bool(a == b)


def show(value: Any) -> str:
    """A parameter's value, short enough to read."""
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if is_array(value) and value.ndim > 1:
        return f"<{'×'.join(map(str, value.shape))} array>"
    if isinstance(value, tuple | list) or is_array(value):
        shown = [show(float(v)) for v in value]
        if len(shown) > 8:
            shown = [*shown[:4], f"... {len(shown)} in all"]
        return f"({', '.join(shown)})"
    if callable(value) and not isinstance(value, Kernel):
        return getattr(value, "__name__", repr(value))
    return repr(value)
