"""Sum, chain and Bayes rule for fitted conditionals: `push`, `joint` and `posterior` as functions.

The algebra is that of `meanmap.rules`; here priors and samples get their coordinates. Throughout,
`u` is the prior expressed as weights on the training sample: `u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanmap import checks
from meanmap.arrays import Array, namespace, one_blas_thread
from meanmap.conditional.operator import ConditionalOperator, Side, as_embedding
from meanmap.conditional.posterior import (
    CautiousPosterior,
    PosteriorOperator,
    ReweightedPosterior,
)
from meanmap.conditional.priors import fine_density_ratio
from meanmap.conditional.selection import POSTERIOR_SCHEDULES
from meanmap.embeddings import Embedding, GridEmbedding, JointEmbedding
from meanmap.kernels import TensorProduct
from meanmap.linalg import Spectrum
from meanmap.rules import BayesMethod, PriorOnSample, bayes_method
from meanmap.spaces import Space

if TYPE_CHECKING:
    from meanmap.conditional.estimator import ConditionalEmbedding


def one_prior(prior: Any, x: Side) -> Embedding:
    """A prior on X with its atoms checked, not a batch of them."""
    prior = as_embedding(prior, x.space)
    if prior.is_batch:
        raise ValueError(
            f"expected one prior, got a batch of {len(prior)}; apply the rule to each of them."
        )
    return prior.moved_to(x.space.kernel_, x.space.example_)


def prior_on_sample(conditional: ConditionalEmbedding, prior: Any) -> PriorOnSample:
    """A prior beside the training sample of a conditional."""
    x, _ = conditional.sides()
    operator = conditional.fitted_operator()
    m = operator.source_coordinates(one_prior(prior, x))
    rows = operator.with_constant(x.coordinates)
    ratio = rows @ (operator.inverse @ m)
    return PriorOnSample(m, rows, conditional.weights_, conditional.regularization_, ratio)


def prior_weights(conditional: ConditionalEmbedding, prior: Any) -> Array:
    """`u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`: the prior as weights on the training sample."""
    return conditional.weights_ * prior_on_sample(conditional, prior).ratio


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
    rule = bayes_method(
        method, checks.not_negative(power, "power", "1 is Bayes' rule, 0 ignores the prior.")
    )
    checks.option(form, "form", ["a", "b"])
    if form == "a" and not rule.squared:
        raise ValueError(
            f'form="a" puts weights on the prior\'s atoms and exists for method="squared" only; '
            f'got method={method!r}. Use form="b".'
        )
    if isinstance(regularization, str):
        checks.option(regularization, "regularization", ["marginal", *POSTERIOR_SCHEDULES])
    if regularization is None or isinstance(regularization, str):
        delta = conditional.posterior_regularization(method, regularization)
    else:
        remedy = "Try 1e-3, or None to choose it."
        delta = checks.not_negative(regularization, "regularization", remedy)
    with one_blas_thread():
        if form == "a":
            return _posterior_on_atoms(conditional, rule, prior, delta)
        return _posterior_on_sample(conditional, rule, prior, delta)


def _posterior_on_sample(
    conditional: ConditionalEmbedding, rule: BayesMethod, prior: Any, delta: float
) -> ConditionalOperator:
    """Form (b): `Ψ_Xᵀ diag(w ∘ ρ) Ψ_Y` times a regularised inverse."""
    x, y = conditional.sides()
    w, Phi = conditional.weights_, y.coordinates
    if rule.fine:
        given = one_prior(prior, x)
        rho = fine_density_ratio(rule, x, w, given, conditional.regularization_)
        marginal = (w * rho) @ Phi  # the embedding of Y under the prior
    else:
        seen = prior_on_sample(conditional, prior)
        rho, marginal = rule.density_ratio(seen), (w * seen.ratio) @ Phi
    if not rule.adaptive:
        spectrum = conditional.reverse_spectrum()
        H = rule.inverse(spectrum, spectrum.sufficient(delta, rule.squared))
        return ReweightedPosterior(y.space, x, y.known, w, H, ratio=rho, marginal=marginal)
    scale = w * rho
    spectrum = Spectrum.of(Phi.T @ (scale[:, None] * Phi))
    delta = spectrum.sufficient(delta, rule.squared)
    total = namespace(scale).sum(scale)
    completed = conditional.centered is not False and float(total) > 0.5
    options: dict[str, Any] = {
        "marginal": marginal,
        "regularization": None if rule.squared else delta,
        "rest": scale / total if completed else None,
    }
    arguments = y.space, x, y.known, scale, rule.inverse(spectrum, delta)
    if rule.cautious:
        return CautiousPosterior(*arguments, spectrum=spectrum, **options)
    return PosteriorOperator(*arguments, **options)


def _posterior_on_atoms(
    conditional: ConditionalEmbedding, rule: BayesMethod, prior: Any, delta: float
) -> ConditionalOperator:
    """Form (a): `C_ZW = Ψ̃ᵀ diag(α) Ψ̃ (C_XX + λI)⁻¹ C_XY`, the weights on the prior's atoms."""
    x, y = conditional.sides()
    u, Phi = prior_weights(conditional, prior), y.coordinates
    spectrum = Spectrum.of(Phi.T @ (u[:, None] * Phi))
    H = rule.inverse(spectrum, spectrum.sufficient(delta, rule.squared))
    prior = one_prior(prior, x)
    rows = conditional.fitted_operator().given(prior.atoms).coordinates
    target = Side(x.space, prior.atoms, None)
    return PosteriorOperator(y.space, target, rows, prior.weights, H, marginal=u @ Phi)
