"""Principal components of a sample in the space of a kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import Array, asarray, namespace, take, to_numpy
from meanmap.embeddings import Embedding
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis, Space
from meanmap.statistics.columns import column_signs
from meanmap.statistics.gates import require_two_rows


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of φ(x): the directions in which embedded points vary most.

    Schölkopf, Smola and Müller (1998), as the eigenvectors of the centred covariance operator in
    coordinates: any kind of points that has a kernel, rows with weights, and low rank by a basis.

    Parameters
    ----------
    n_components : int or None
        None keeps all directions in which the sample varies.
    kernel : Kernel, callable or None
        None chooses for the kind of points.
    basis : a basis or None
        How the space gets its coordinates.

    Attributes
    ----------
    eigenvalues_ : variances along the components; n times them are those of the centred Gram matrix
    explained_variance_ratio_ : their shares of the variance in the space
    space_ : the space, with the kernel resolved
    components_ : directions in the space's coordinates, one per row
    mean_ : coordinates of the sample's embedding

    Examples
    --------
    Two rings are told apart by one component.

    >>> import numpy as np
    >>> from sklearn.datasets import make_circles
    >>> from meanmap.learning import KernelPCA
    >>> from meanmap.kernels import Gaussian
    >>> X, ring = make_circles(200, factor=0.3, noise=0.05, random_state=0)
    >>> scores = KernelPCA(1, Gaussian(0.5)).fit_transform(X)
    >>> inner, outer = scores[ring == 1], scores[ring == 0]
    >>> bool(inner.max() < outer.min() or outer.max() < inner.min())
    True
    """

    def __init__(
        self, n_components: int | None = None, kernel: Any = None, basis: Basis | None = None
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.basis = basis

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the components of a sample; a row of weight zero is left out."""
        self._fit(X, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Find the components of a sample and return its scores."""
        psi = self._fit(X, sample_weight)
        return (psi - self.mean_) @ self.components_.T

    def _fit(self, X: Any, sample_weight: Any) -> Array:
        most = self.n_components
        if most is not None:
            checks.whole(most, "n_components", 1, "Use None for all components.")
        space = Space(self.kernel, self.basis)
        psi = space.fit_transform(X, sample_weight=sample_weight)
        points = space.kernel_.check(X, "X")
        w = checks.sample_weights(sample_weight, points, psi)
        xp = namespace(psi)
        mean = w @ psi
        centred = psi - mean
        spectrum = Spectrum.of((centred.T * w) @ centred)
        kept = to_numpy(spectrum.values) > spectrum.cutoff
        size = int(kept.sum())
        require_two_rows(psi.shape[0], "components are directions in which rows differ")
        if most is not None and most > size:
            raise ValueError(
                f"n_components={most}, but the sample varies in {size} direction(s) of the space "
                f"(coordinates: {space.rank_}, rows: {psi.shape[0]}). Ask for fewer."
            )
        order = np.arange(kept.size - 1, -1, -1)[: size if most is None else most]
        components = take(spectrum.vectors.T, order)
        components = components * column_signs(centred @ components.T)[:, None]
        values = take(spectrum.values, order)
        total = float(xp.sum(spectrum.values))
        if hasattr(space, "n_features_in_"):  # nothing is set before everything has worked
            self.n_features_in_ = space.n_features_in_
        if hasattr(space, "feature_names_in_"):
            self.feature_names_in_ = space.feature_names_in_
        keep = to_numpy(w) > 0
        self._atoms, self._weights = take(points, keep), take(w, keep)
        self.space_, self.mean_ = space, mean
        self.components_, self.eigenvalues_ = components, values
        self.explained_variance_ratio_ = values / total if total > 0 else values
        return psi

    def transform(self, X: Any) -> Array:
        """Scores of points: coordinates along the components, from the sample's mean."""
        check_is_fitted(self, "components_")
        return (self.space_.transform(X) - self.mean_) @ self.components_.T

    def inverse_transform(self, scores: Any) -> Any:
        """Points whose features are nearest to those with these scores (Mika et al. 1999).

        Among all points for radial kernels on vectors, by `Embedding.preimage`; elsewhere among
        those of the sample.
        """
        check_is_fitted(self, "components_")
        z = asarray(checks.numbers(scores, "scores"), self.mean_)
        checks.refuse_empty(z, "scores")
        if z.ndim != 2 or z.shape[1] != self.components_.shape[0]:
            raise ValueError(
                f"scores: expected rows of {self.components_.shape[0]} scores, as transform gives "
                f"them, got shape {tuple(z.shape)}."
            )
        # Σ wᵢ(1 + tᵢ·z/s) φ(xᵢ) has the scores z, for scores t of the sample and eigenvalues s
        t = (self.space_.coordinates(self._atoms) - self.mean_) @ self.components_.T
        weights = self._weights * (1 + (z / self.eigenvalues_) @ t.T)
        coordinates = self.mean_ + z @ self.components_
        kernel = self.space_.kernel_
        return Embedding(self.space_, kernel, self._atoms, weights, coordinates).preimage()

    def plot(self, X: Any, y: Any = None, ax: Any = None) -> Any:
        """Draw the first two scores of rows, coloured by labels or numbers y."""
        scores, shares = to_numpy(self.transform(X)), to_numpy(self.explained_variance_ratio_)
        names = tuple(f"component {i + 1} ({share:.0%})" for i, share in enumerate(shares[:2]))
        return plots.places(scores, y, names, ax)

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the points' squared distance from the mean that the components keep."""
        check_is_fitted(self, "components_")
        xp = namespace(self.mean_)
        centred = self.space_.transform(X) - self.mean_
        points = self.space_.kernel_.check(X, "X", self.space_.example_)
        # with what the coordinates miss
        missed = self.space_.kernel_.squared_norms(points) - xp.sum(
            (centred + self.mean_) ** 2, axis=1
        )
        total = float(xp.sum(centred**2)) + float(xp.sum(missed))
        return float(xp.sum((centred @ self.components_.T) ** 2)) / total if total > 0 else 1.0

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")
