"""From samples to embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points, count, float_like, namespace, to_library
from meanmap.embeddings.joint import JointEmbedding
from meanmap.embeddings.single import Embedding
from meanmap.embeddings.values import FactoredWeights
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import require_same_kernel
from meanmap.spaces import Basis, Space
from meanmap.spaces.space import read_points


def embed(
    points: Any, kernel: Any = None, weights: Any = None, basis: Basis | None = None
) -> Embedding:
    """The mean map of a (weighted) sample: `Σ wᵢ k(xᵢ, ·)`.

    Parameters
    ----------
    points : array of rows, labels, matrices, or a tuple of samples
        A tuple (X, Y) gives the joint embedding of the pair.
    kernel : Kernel, callable or None
        None chooses for the kind of points: a Gaussian at the median distance for rows of numbers,
        a delta kernel for labels. To compare two samples give both the same one:
        `embed(B, kernel=embed(A).kernel)`.
    weights : array of shape (n,) or (b, n), or None
        None is 1/n each. They are used as they are, signs included; (b, n) is a batch of b
        embeddings on the same points.
    basis : PivotedCholesky, Explicit, a fitted Space, or None
        How coordinates are chosen, if they are needed.

    Returns
    -------
    Embedding or JointEmbedding

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> rng = np.random.default_rng(0)
    >>> P = embed(rng.normal(0.0, 1.0, size=(400, 2)))
    >>> Q = embed(rng.normal(0.5, 1.0, size=(400, 2)), kernel=P.kernel)
    >>> R = embed(rng.normal(0.0, 1.0, size=(400, 2)), kernel=P.kernel)
    >>> bool(P.distance(Q) > 3 * P.distance(R))
    True
    >>> P.expect(lambda x: x[:, 0] ** 2).round(1)
    np.float64(1.0)
    """
    space = basis if isinstance(basis, Space) else None
    points, kernel = read_points(points, kernel, basis, "points", "the space")
    if isinstance(points, tuple):
        points = to_library(points, points)  # all variables in the library of the first
    like = float_like(points)
    if weights is None:
        weights = checks.weights(None, points, like)
    else:
        given = checks.plain(weights, "weights")
        rows = given if given.ndim == 2 else [given]
        if len(rows) == 0:
            n = count(points)
            raise ValueError(f"weights: expected shape ({n},) or (b, {n}), got no rows.")
        checked = [checks.weights(row, points, like) for row in rows]
        weights = namespace(like).stack(checked) if given.ndim == 2 else checked[0]
    if space is None:
        kernel = kernel.resolve(points, abs(weights) if weights.ndim == 1 else None)
        space = Space(kernel, basis)
    else:
        require_same_kernel(space.kernel_, kernel)
        kernel = space.kernel_
    return embedding_of(space, kernel, points, weights)


def embedding_of(
    space: Space,
    kernel: Kernel,
    atoms: Points,
    weights: Array | FactoredWeights,
    coordinates: Array | Callable[[], Array] | None = None,
) -> Embedding:
    """The embedding with these atoms: a joint one if they are tuples."""
    kind = JointEmbedding if isinstance(atoms, tuple) else Embedding
    return kind(space, kernel, atoms, weights, coordinates)
