"""Sum, chain and Bayes rule, once, for every basis and array type.

The rules of probability for a conditional P(Y|X) and a prior on X (Song, Fukumizu and Gretton 2013,
Algorithms I to III; Fukumizu, Song and Gretton 2013). Throughout, `u` is the prior expressed as
weights on the training sample: `u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meanmap import checks
from meanmap.arrays import Array, Points, namespace, one_blas_thread
from meanmap.conditional.operator import (
    ConditionalOperator,
    PosteriorOperator,
    ReweightedOperator,
    as_embedding,
)
from meanmap.conditional.priors import nonnegative_weights
from meanmap.conditional.selection import POSTERIOR_SCHEDULES
from meanmap.embeddings import Embedding, GridEmbedding, JointEmbedding, as_rows
from meanmap.embeddings.element import move_atoms
from meanmap.kernels import TensorProduct
from meanmap.linalg import Spectrum
from meanmap.spaces import Space

if TYPE_CHECKING:
    from meanmap.conditional import ConditionalEmbedding

METHODS = ("nonnegative", "importance", "squared", "reweighted")


@dataclass(frozen=True)
class Side:
    """One side of a paired sample: its points, their space and their coordinates there."""

    space: Space
    points: Points
    known: Any  # their coordinates, or Deferred where they are too many to keep

    @property
    def coordinates(self) -> Array:
        """ψ of every point, a row each."""
        return as_rows(self.known)

    def operator(
        self,
        source: Side,
        scale: Array,
        inverse: Array,
        marginal: Array | None = None,
        regularization: float | None = None,
        completed: bool = True,
    ) -> ConditionalOperator:
        """The conditional of this side given another, `scale ∘ Ψ_source H ψ`.

        `completed`: what is missing of a mass of one goes to the rows as `scale` weighs them.
        """
        total = namespace(scale).sum(scale)
        return ConditionalOperator(
            source.space,
            self.space,
            self.points,
            self.coordinates,
            source.known,
            scale,
            inverse,
            marginal=marginal,
            regularization=regularization,
            rest=scale / total if completed and float(total) > 0.5 else None,
        )


def one_prior(prior: Any, x: Side) -> Embedding:
    """A prior on X with its atoms checked, not a batch of them."""
    prior = as_embedding(prior, x.space)
    if prior.is_batch:
        raise ValueError(
            f"expected one prior, got a batch of {len(prior)}; apply the rule to each of them."
        )
    return move_atoms(prior, x.space.kernel_, x.space.example_)


def prior_weights(conditional: ConditionalEmbedding, prior: Any) -> Array:
    """`u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`: the prior as weights on the training sample."""
    x, _ = conditional.sides()
    operator, w = conditional.fitted_operator(), conditional.weights_
    return operator.sample_weights(x.coordinates, w, one_prior(prior, x))


def positive_part(u: Array) -> Array:
    """`u₊ = max(u, 0)`, normalised."""
    xp = namespace(u)
    positive = xp.where(u > 0, u, xp.zeros_like(u))
    total = float(xp.sum(positive))
    if total <= 0:
        raise ValueError(
            "the prior has no positive weight on the training sample: it lies outside the data "
            "that the conditional was fitted to. Fit on points that cover the prior."
        )
    return positive / total


def sum_rule(conditional: ConditionalEmbedding, prior: Any, form: str = "a") -> Embedding:
    """The distribution of Y when X is distributed as the prior: `∫ P(Y|x) dπ(x)`.

    Parameters
    ----------
    conditional : fitted ConditionalEmbedding, P(Y|X)
    prior : Embedding on X, or a sample of X
    form : "a" or "b"
        (a) the embedding `C_Y|X m_π = Ψ_Yᵀ u`; (b) its covariance operator `Ψ_Yᵀ diag(u) Ψ_Y`
        (Song, Fukumizu and Gretton 2013, Algorithm I).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding, embed, sum_rule
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> model = ConditionalEmbedding().fit(X, 2 * X + 0.1 * rng.normal(size=(500, 1)))
    >>> prior = embed(rng.normal(0.5, 0.5, size=(500, 1)))
    >>> sum_rule(model, prior).mean().round(1)  # the truth is 1
    array([1.])
    """
    checks.option(form, "form", ["a", "b"])
    marginal = conditional.fitted_operator().push(prior)
    return marginal if form == "a" else marginal.covariance()


def chain_rule(conditional: ConditionalEmbedding, prior: Any, form: str = "b") -> JointEmbedding:
    """The joint distribution of (X, Y) when X is distributed as the prior: `P(Y|x) π(x)`.

    Form (b), `Ψ_Xᵀ diag(u) Ψ_Y`, stands on the training pairs; form (a), `Ψ̃ᵀ diag(α) Ψ̃ C_Y|Xᵀ`, on
    all pairs of the prior's atoms and the training Y (Song, Fukumizu and Gretton 2013, Algorithm
    II; the paper's C_YX is the transpose of the `operator()` here).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding, chain_rule, embed
    >>> from meanmap.kernels import Delta
    >>> X, Y = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    >>> model = ConditionalEmbedding(Delta(), Delta(), regularization=0).fit(X, Y)
    >>> chain_rule(model, embed(np.array([0, 1]), kernel=Delta())).operator().round(3)
    array([[0.333, 0.167],
           [0.   , 0.5  ]])
    """
    checks.option(form, "form", ["a", "b"])
    x, y = conditional.sides()
    kernel = TensorProduct(x.space.kernel_, y.space.kernel_)
    spaces = (x.space, y.space)
    if form == "b":
        u = prior_weights(conditional, prior)
        return JointEmbedding(
            Space(kernel),
            kernel,
            (x.points, y.points),
            u,
            spaces=spaces,
            parts=(x.coordinates, y.coordinates),
        )
    prior = one_prior(prior, x)
    return GridEmbedding(prior, conditional.fitted_operator().given(prior.atoms), x.space)


def bayes_rule(
    conditional: ConditionalEmbedding,
    prior: Any,
    method: str = "nonnegative",
    regularization: float | str | None = None,
    form: str = "b",
    power: float = 1.0,
) -> ConditionalOperator:
    """The posterior P(X|Y) of a conditional P(Y|X) under a prior on X: kernel Bayes' rule.

    Parameters
    ----------
    conditional : fitted ConditionalEmbedding, P(Y|X)
    prior : Embedding on X, or a sample of X
    method : "nonnegative", "importance", "squared" or "reweighted"
        "squared" is `C_ZW (C_WW² + δI)⁻¹ C_WW` of Fukumizu, Song and Gretton (2013, eq. 12), with
        `C_ZW = Ψ_Xᵀ diag(u) Ψ_Y` and `C_WW = Ψ_Yᵀ diag(u) Ψ_Y`. "importance" (Xu et al. 2022) clips
        u at zero and normalises it first, so that `C_ZW (C_WW + δI)⁻¹` will do; a prior narrower
        than the kernel becomes as wide as the kernel. "nonnegative" is "importance" with the
        weights p that solve `min ‖Ψ_Xᵀp - m_π‖² + λ Σ p²/w` under p ≥ 0, in a kernel as narrow as
        the prior, and raises δ for observations that are far from what the prior predicts.
        "reweighted" takes the plain conditional weights of P(X|Y) times `(u₊/w)^power`,
        normalised: nothing is factorised for a new prior.
    regularization : float or None
        δ, on the scale of C_WW² for "squared", of C_WW for "nonnegative" and "importance",
        of C_YY for "reweighted".
        None takes twice the λ that leave-one-out chooses for P(X|Y) on the training sample (the
        square of that for "squared"). "marginal" takes the δ under which posteriors average best to
        the marginal of X, by cross-validation in a fixed reference kernel (Fukumizu, Song and
        Gretton 2013, section 4.2); "fukumizu2013" and "fukumizu2013-average" are the rates of
        their Theorems 6 and 7.
    form : "b" or "a"
        The chain rule that gives C_ZW; (a), for "squared" only, puts the posterior's weights on
        the prior's atoms.
    power : float
        τ of "reweighted": 1 is Bayes' rule, 0 keeps the training marginal as the prior.

    Returns
    -------
    ConditionalOperator
        Query it: `bayes_rule(...).given(y)`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding, bayes_rule, embed
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(0.0, 2.0, size=(1000, 1))
    >>> Y = X + rng.normal(size=(1000, 1))
    >>> model = ConditionalEmbedding().fit(X, Y)
    >>> prior = embed(rng.normal(1.0, 1.0, size=(1000, 1)))  # not the marginal of X
    >>> bayes_rule(model, prior).given([0.0]).mean().round(1)  # the truth is 0.5
    array([0.5])
    """
    checks.option(method, "method", METHODS)
    checks.option(form, "form", ["a", "b"])
    if form == "a" and method != "squared":
        raise ValueError(
            f'form="a" puts weights on the prior\'s atoms and exists for method="squared" only; '
            f'got method={method!r}. Use form="b".'
        )
    x, y = conditional.sides()
    tau = checks.not_negative(power, "power", "1 is Bayes' rule, 0 ignores the prior.")
    if regularization is None or isinstance(regularization, str):
        if isinstance(regularization, str):
            checks.option(regularization, "regularization", ["marginal", *POSTERIOR_SCHEDULES])
        delta = conditional.posterior_regularization(method, regularization)
    else:
        remedy = "Try 1e-3, or None to choose it."
        delta = checks.not_negative(regularization, "regularization", remedy)
    with one_blas_thread():
        if method == "nonnegative":
            return _nonnegative_posterior(conditional, prior, delta)
        u = prior_weights(conditional, prior)
        if method == "reweighted":
            plain = conditional.reverse_operator(delta)
            ratio = (positive_part(u) / conditional.weights_) ** tau
            return ReweightedOperator(plain, ratio, u @ y.coordinates)
        squared = method == "squared"
        scale = u if squared else positive_part(u)
        C_WW = y.coordinates.T @ (scale[:, None] * y.coordinates)
        spectrum = Spectrum.of(C_WW)
        delta = spectrum.sufficient(delta, squared)
        H = spectrum.inverse(delta, squared)
        marginal = u @ y.coordinates  # the embedding of Y under the prior
        if form == "b":
            completed = conditional.centered is not False
            return x.operator(y, scale, H, marginal, None if squared else delta, completed)
        # (a): C_ZW = Ψ̃ᵀ diag(α) Ψ̃ (C_XX + λI)⁻¹ C_XY, the weights on the prior's atoms
        prior = one_prior(prior, x)
        rows = conditional.fitted_operator().given(prior.atoms).coordinates
        atoms, alpha = prior.atoms, prior.weights
        return ConditionalOperator(y.space, x.space, atoms, None, rows, alpha, H, marginal=marginal)


def _nonnegative_posterior(
    conditional: ConditionalEmbedding, prior: Any, delta: float
) -> ConditionalOperator:
    """`C_ZW (C_WW + δI)⁻¹` with non-negative weights that represent the prior."""
    x, y = conditional.sides()
    Psi_Y, w, lam = y.coordinates, conditional.weights_, conditional.regularization_
    p = nonnegative_weights(x.space, x.points, x.coordinates, w, one_prior(prior, x), lam)
    spectrum = Spectrum.of(Psi_Y.T @ (p[:, None] * Psi_Y))
    delta = spectrum.sufficient(delta)
    return PosteriorOperator(
        y.space,
        x.space,
        x.points,
        x.coordinates,
        y.known,
        p,
        spectrum.inverse(delta),
        marginal=p @ Psi_Y,
        regularization=delta,
        rest=p if conditional.centered is not False else None,
        spectrum=spectrum,
    )
