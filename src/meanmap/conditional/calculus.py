"""Sum, chain and Bayes rule for fitted conditionals, and posteriors as operators.

`push`, `joint` and `posterior` as functions. The algebra is that of `meanmap.rules`; here priors
and samples get their coordinates. Throughout, `u` is the prior expressed as weights on the training
sample: `u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`.

Where prior and observation conflict, a posterior's weights cancel and their normalised mean is
anything. Two cheap signs say where to look: the mass, which should be about one, and the embedding
of Y under the prior at y, relative to its average ‖m_W‖². Neither means anything under a kernel
without constants, such as the trace kernel, where mass is not determined.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    in_precision,
    namespace,
    one_blas_thread,
    take,
    to_double,
    to_numpy,
)
from meanmap.conditional.operator import (
    ConditionalOperator,
    Functional,
    Observed,
    Side,
    as_embedding,
)
from meanmap.conditional.priors import fine_density_ratio
from meanmap.conditional.selection import POSTERIOR_SCHEDULES, effective_size
from meanmap.conditional.shape import takes_few_values
from meanmap.conditional.simulation import simulated_posterior
from meanmap.conditional.trust import Trust
from meanmap.embeddings import Embedding, GridEmbedding, JointEmbedding
from meanmap.embeddings.element import move_atoms, row_blocks
from meanmap.embeddings.single import embedding_of
from meanmap.exceptions import DataWarning, record, warn
from meanmap.kernels import TensorProduct
from meanmap.linalg import Spectrum
from meanmap.rules import (
    CONFLICT,
    BayesMethod,
    PriorOnSample,
    bayes_method,
    cancelling,
    positive_part,
)
from meanmap.spaces import Space

if TYPE_CHECKING:
    from meanmap.conditional.estimator import ConditionalEmbedding

SIMULATED = "simulated"  # a method of Bayes' rule
FEW = 0.6  # of the training pairs, in effect: with fewer left, pairs are simulated
HALF = 0.5  # of its mass: a posterior that has less is completed by the prior
UNLIKELY = 0.03  # an observation with less evidence than this is unlikely under the prior
CANCELLED = 0.9  # κ below which weights cancel for an observation that is unlikely
LEVERAGE = 1 / 8  # an answer rests on eight rows of average weight, at least
TYPICAL = 3.0  # times the average leverage, which is never too much
OUTLYING = 3.0  # times the leverage of nearly all rows: the prior does not predict such a query


def one_prior(prior: Any, x: Side) -> Embedding:
    """A prior on X with its atoms checked, not a batch of them."""
    prior = as_embedding(prior, x.space)
    if prior.is_batch:
        raise ValueError(
            f"expected one prior, got a batch of {len(prior)}; apply the rule to each of them."
        )
    return move_atoms(prior, x.space.kernel_, x.space.example_)


def prior_on_sample(conditional: ConditionalEmbedding, prior: Any) -> PriorOnSample:
    """A prior beside the training sample of a conditional."""
    back = conditional.reversal()
    x, operator = back.x, back.forward
    m = operator.source_coordinates(one_prior(prior, x))
    rows = operator.with_constant(x.coordinates)
    ratio = rows @ operator.solver.apply(m)
    return PriorOnSample(m, rows, conditional.weights_, back.regularization, ratio)


def prior_weights(conditional: ConditionalEmbedding, prior: Any) -> Array:
    """`u = w ∘ Ψ_X (C_XX + λI)⁻¹ m_π`: the prior as weights on the training sample."""
    x, _ = conditional.sides()
    operator = conditional.fitted_operator()
    return operator.sample_weights(x.coordinates, conditional.weights_, one_prior(prior, x))


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
    method: str | None = None,
    regularization: float | str | None = None,
    form: str = "b",
    power: float = 1.0,
) -> ConditionalOperator:
    """The posterior P(X|Y) of a conditional P(Y|X) under a prior on X: kernel Bayes' rule.

    Parameters
    ----------
    conditional : fitted ConditionalEmbedding, P(Y|X)
    prior : Embedding on X, or a sample of X
    method : "simulated", "nonnegative", "importance", "squared", "reweighted" or None
        "simulated" draws a y of P(Y|x) for each of the prior's atoms, and fits P(X|Y) to these
        pairs, y being numbers; priors may be as narrow as one likes. The others weigh the training
        pairs. None takes "nonnegative" as long as that leaves 60% of them, in effect, and the
        prior has more than a few atoms, else "simulated".
        "squared" is `C_ZW (C_WW² + δI)⁻¹ C_WW` of Fukumizu, Song and Gretton (2013, eq. 12), with
        `C_ZW = Ψ_Xᵀ diag(u) Ψ_Y` and `C_WW = Ψ_Yᵀ diag(u) Ψ_Y`. "importance" (Xu et al. 2022) clips
        u at zero and normalises it first, so that `C_ZW (C_WW + δI)⁻¹` will do; a prior narrower
        than the kernel becomes as wide as the kernel. "nonnegative" is "importance" with the
        weights p that solve `min ‖Ψ_Xᵀp - m_π‖² + λ Σ p²/w` under p ≥ 0, in a kernel as narrow as
        the prior, and raises δ for observations that are far from what the prior predicts.
        "reweighted" takes the plain conditional weights of P(X|Y) times `(u₊/w)^power`,
        normalised: nothing is factorised for a new prior.
    regularization : float or None
        λ of P(X|Y) for "simulated", by leave-one-out if it is None. For the others δ, on the scale
        of C_WW² for "squared", of C_WW for "nonnegative" and "importance",
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
    if isinstance(method, str) and method == SIMULATED:
        return _posterior_by_simulation(conditional, prior, regularization)
    if method is None:
        asked = regularization is None and form == "b"
        if asked and conditional.fitted_operator().scatters:
            return _default_posterior(conditional, prior)
        method = "nonnegative"
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


def _default_posterior(conditional: ConditionalEmbedding, prior: Any) -> ConditionalOperator:
    """By weights on the training pairs, unless the prior leaves few of them; then simulated."""
    prior = one_prior(prior, conditional.sides()[0])
    if prior.kernel.on_vectors and takes_few_values(to_numpy(prior.atoms)):
        return _posterior_by_simulation(conditional, prior, None)
    with record() as found:
        weighed = bayes_rule(conditional, prior, "nonnegative")
    left = effective_size(weighed.scale) / effective_size(conditional.weights_)
    if left < FEW:
        return _posterior_by_simulation(conditional, prior, None)
    for warning in found:
        warn(warning, type(warning))
    return weighed


def _posterior_by_simulation(
    conditional: ConditionalEmbedding, prior: Any, regularization: float | str | None
) -> ConditionalOperator:
    """P(X|Y) fitted to pairs that are simulated."""
    if isinstance(regularization, str) or not conditional.fitted_operator().scatters:
        raise ValueError(
            f'method="{SIMULATED}" draws y given x, which must be numbers, and regularization is a '
            f'number or None, got {regularization!r}; use method="nonnegative".'
        )
    lam: float | str = "auto"
    if regularization is not None:
        lam = checks.not_negative(regularization, "regularization", "Try 1e-3, or None.")
    x, _ = conditional.sides()
    with one_blas_thread():
        return simulated_posterior(
            conditional.fitted_operator(),
            one_prior(prior, x),
            *conditional.reverse_kernels(),
            lam,
            conditional.centered,
        )


def _posterior_on_sample(
    conditional: ConditionalEmbedding, rule: BayesMethod, prior: Any, delta: float
) -> ConditionalOperator:
    """Form (b): `Ψ_Xᵀ diag(w ∘ ρ) Ψ_Y` times a regularised inverse."""
    back = conditional.reversal()
    x, y = back.x, back.y
    w, Phi = conditional.weights_, y.coordinates
    if rule.fine:
        rho = fine_density_ratio(rule, x, w, one_prior(prior, x), back.regularization)
        marginal = (w * rho) @ Phi  # the embedding of Y under the prior
    else:
        seen = prior_on_sample(conditional, prior)
        rho, marginal = rule.density_ratio(seen), (w * seen.ratio) @ Phi
    if not rule.adaptive:
        H = rule.inverse(back.spectrum, back.spectrum.sufficient(delta, rule.squared))
        return ReweightedPosterior(y.space, x, y.known, w, H, ratio=rho, marginal=marginal)
    scale = w * rho
    spectrum = Spectrum.of(to_double(Phi).T @ to_double(scale[:, None] * Phi))
    delta = spectrum.sufficient(delta, rule.squared)
    total = namespace(scale).sum(scale)
    completed = conditional.centered is not False and float(total) > 0.5
    options: dict[str, Any] = {
        "marginal": marginal,
        "regularization": None if rule.squared else delta,
        "rest": scale / total if completed else None,
        "seen": None if rule.squared else Observed(y.points, x.points, scale),
    }
    arguments = y.space, x, y.known, scale, rule.inverse(spectrum, delta)
    if rule.cautious:
        return CautiousPosterior(*arguments, spectrum=spectrum, **options)
    return PosteriorOperator(*arguments, **options)


def _posterior_on_atoms(
    conditional: ConditionalEmbedding, rule: BayesMethod, prior: Any, delta: float
) -> ConditionalOperator:
    """Form (a): `C_ZW = Ψ̃ᵀ diag(α) Ψ̃ (C_XX + λI)⁻¹ C_XY`, the weights on the prior's atoms."""
    back = conditional.reversal()
    x, y = back.x, back.y
    u, Phi = conditional.weights_ * prior_on_sample(conditional, prior).ratio, y.coordinates
    spectrum = Spectrum.of(to_double(Phi).T @ to_double(u[:, None] * Phi))
    H = rule.inverse(spectrum, spectrum.sufficient(delta, rule.squared))
    prior = one_prior(prior, x)
    rows = conditional.fitted_operator().given(prior.atoms).weights @ Phi
    target = Side(x.space, prior.atoms, None)
    return PosteriorOperator(y.space, target, rows, prior.weights, H, marginal=u @ Phi)


# --- operators ------------------------------------------------------------------------------------


class PosteriorOperator(ConditionalOperator):
    """A posterior by Bayes' rule: P(X|Y) for a prior on X.

    Bayes' rule divides by the evidence: so do answers, by the mass of their weights as long as
    that is more than a half. Where less is left the prior makes up the rest, and where the weights
    cancel their positive part is used.
    """

    computed = (*ConditionalOperator.computed, "_has_mass", "_typical")

    def __init__(self, *arguments: Any, marginal: Array, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: The embedding of Y under the prior, in coordinates.
        self.marginal = marginal

    @cached_property
    def _has_mass(self) -> bool:
        return float(self.marginal @ self.mass) > 0.5

    @cached_property
    def _typical(self) -> Array | None:
        """The functional `y ↦ m_W(y)/‖m_W‖²`, or None where it cannot tell what is typical."""
        if not self.source.kernel_.bounded:
            return None
        return self.marginal / (self.marginal @ self.marginal)

    def _suspicious(self, features: Array) -> Array:
        """Which weights may cancel."""
        if not self._has_mass:
            return namespace(features).zeros_like(features[..., 0]) > 0
        suspicious = features @ self.mass < CONFLICT
        if self._typical is not None:
            suspicious = suspicious | (features @ self._typical < UNLIKELY)
        return suspicious

    def _normalized(self, features: Array) -> Array:
        """Features over the mass that they have, or a half."""
        if self.rest is None or not self._has_mass:
            return features
        xp = namespace(features)
        mass = features @ self.mass
        return features / xp.where(mass > HALF, mass, 0 * mass + HALF)[..., None]

    def _safe_weights(self, features: Array) -> Array:
        """Weights, replaced by their normalised positive part where they cancel."""
        known = self._normalized(features)
        ones = namespace(known).ones_like(known[..., 0])
        return self._without_conflict(self.factored_weights(known, ones).dense(), features)

    def _without_conflict(self, weights: Array, features: Array) -> Array:
        """The normalised positive part of weights where they cancel, with a warning.

        They cancel where κ = Σw/Σ|w| < 0.2, or κ < 0.9 for an observation that the prior makes
        unlikely.
        """
        xp = namespace(weights)
        least: Any = CONFLICT
        if self._typical is not None:
            evidence = features @ self._typical
            ones = xp.ones_like(weights[..., 0])
            least = xp.where(evidence < UNLIKELY, CANCELLED * ones, CONFLICT * ones)
        conflict = cancelling(weights, least)
        if not bool(xp.any(conflict)):
            return weights
        cancelled = to_numpy(conflict)
        try:
            part = positive_part(xp.where(conflict[..., None], weights, xp.ones_like(weights)))
        except ValueError as error:
            raise ValueError(
                "the posterior has no positive weight at all: prior and observation have nothing "
                "in common. Widen the prior or the bandwidth, or raise the regularisation."
            ) from error
        warn(
            f"prior and observation conflict in {int(cancelled.sum())} of {cancelled.size} "
            "queries: the posterior weights cancel, so their positive part is used. The training "
            "sample has hardly any point that suits both; draw more there, or widen the prior.",
            DataWarning,
        )
        return xp.where(conflict[..., None], part, weights)

    def answer(self, features: Array) -> Embedding:
        if not bool(namespace(features).any(self._suspicious(features))):
            return self.embedding(self._normalized(features))
        weights = self._safe_weights(features)
        exact = self._known_coordinates is not None
        coordinates = weights @ self.target_rows if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def evaluate(self, functional: Functional, features: Array) -> Array:
        """The values of a functional; where weights cancel, what is left of them says it."""
        values = super().evaluate(functional, self._normalized(features))
        suspicious = to_numpy(self._suspicious(features))
        if suspicious.any():
            weights = self._safe_weights(take(features, suspicious))
            values = assign(values, suspicious, weights @ functional.values)
        return values


class CautiousPosterior(PosteriorOperator):
    """A posterior whose answers never rest on a few rows: outlying y are regularised more.

    The variance of an answer grows with the leverage `ψ(y)ᵀ (C_WW + δI)⁻¹ ψ(y) Σp²`, which is 1
    where a single row of average weight decides. Where y is far from what the prior predicts, and
    its leverage is more than 1/8 and than three times the average, δ is raised for this y until it
    is not. Since `(C_WW + δ'I)⁻¹ ψ(y)` is `(C_WW + δI)⁻¹` of another vector, this changes the
    features of such y and nothing else.
    """

    computed = (*PosteriorOperator.computed, "_usual_leverage")
    _trust = Trust(None)  # leverage says where an answer is extrapolated

    def __init__(self, *arguments: Any, spectrum: Spectrum, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._spectrum = spectrum  # of C_WW

    def features(self, points: Points) -> Array:
        limited, leverage = self._limit_leverage(super().features(points))
        alone = to_numpy(leverage > 1)
        if alone.any():
            alone = to_numpy(leverage > max(1.0, OUTLYING * self._usual_leverage))
        if alone.any():
            warn(
                f"prior and observation conflict in {int(alone.sum())} of {alone.size} queries: "
                "the observation is far from what the prior predicts, and the answer is mostly "
                "smoothing. Draw more training points that suit both, or widen the prior.",
                DataWarning,
            )
        return limited

    @cached_property
    def _usual_leverage(self) -> float:
        """What 99% of the rows have at most, counted by their weights under the prior."""
        parts = [to_numpy(self.solver.forms(rows)) for _, rows in row_blocks(self.known_rows)]
        leverage, p = np.concatenate(parts), to_numpy(self.scale)
        order = np.argsort(leverage)
        at = int(np.searchsorted(np.cumsum(p[order]), 0.99 * p.sum()))
        return float(leverage[order][min(at, len(p) - 1)] * (p @ p))

    def _limit_leverage(self, features: Array) -> tuple[Array, Array]:
        """Features whose leverage is bounded, and the leverage that they had before."""
        xp, s, least = namespace(features), self._spectrum.values, self.regularization
        s = xp.where(s > 0, s, xp.zeros_like(s))
        if not least or s.shape[0] == 0:
            return features, xp.zeros_like(features[:, 0])
        share = float(xp.sum(self.scale * self.scale))  # one over the effective number of rows
        most = max(LEVERAGE, TYPICAL * share * float(xp.sum(s / (s + least))))
        z = to_double(features) @ self._spectrum.vectors
        leverage = share * xp.sum(z * z / (s + least), axis=1)
        high = to_numpy(leverage > most)
        if not high.any():
            return features, leverage
        z, before = take(z, high), take(features, high)
        low = xp.zeros_like(z[:, :1]) + least
        top = low + share * xp.sum(z * z, axis=1)[:, None] / most  # where it is certainly less
        for _ in range(50):
            delta = xp.sqrt(low * top)
            more = share * xp.sum(z * z / (s + delta), axis=1)[:, None] > most
            low, top = xp.where(more, delta, low), xp.where(more, top, delta)
        after = (z * ((s + least) / (s + top))) @ self._spectrum.vectors.T
        after = in_precision(after, before)
        mass, now = before @ self.mass, after @ self.mass  # the total mass stays as it was
        known = (mass > 0) & (now > 0)
        one = xp.ones_like(now)
        after = after * xp.where(known, mass / xp.where(known, now, one), one)[:, None]
        return assign(features, high, after), leverage

    def source_coordinates(self, prior: Any) -> Array:
        """A mixture of observations, those that ask for too much replaced as in `given`."""
        prior = as_embedding(prior, self.source)
        like = self.source.example_
        atoms = self.source.kernel_.check(prior.atoms, "the prior's atoms", like)
        features = self._limit_leverage(self.source.coordinates(atoms))[0]
        return asarray(prior.weights, features) @ features


class ReweightedPosterior(PosteriorOperator):
    """The posterior with weights `β(y) ∘ ρ`, normalised, β(y) the plain conditional weights.

    Nothing is factorised for a new prior. The normalisation makes it nonlinear in ψ(y), so that it
    is queried point by point, and pushes a distribution by querying at its atoms.
    """

    def __init__(self, *arguments: Any, ratio: Array, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ratio = ratio  # ρ

    def _suspicious(self, features: Array) -> Array:
        """Everywhere: the weights have to be normalised, so they are computed anyway."""
        return namespace(features).zeros_like(features[..., 0]) == 0

    def _safe_weights(self, features: Array) -> Array:
        xp = namespace(features)
        ones = xp.ones_like(features[..., 0])
        weights = self.factored_weights(features, ones).dense() * self._ratio
        weights = self._without_conflict(weights, features)
        return weights / xp.sum(weights, axis=-1)[..., None]

    @property
    def matrix(self) -> Array:
        raise TypeError(
            "the reweighted posterior is normalised for every observation, so it is not a linear "
            'operator and has no matrix; method="nonnegative" has one.'
        )

    def push(self, prior: Any) -> Embedding:
        prior = as_embedding(prior, self.source)
        like = self.source.example_
        atoms = prior.atoms_for(self.source.kernel_, "the prior's atoms", like)
        answers = self.answer(self.features(atoms))
        alpha = asarray(prior.weights, answers.weights)
        return embedding_of(
            self.target,
            self.target.kernel_,
            self.atoms,
            alpha @ answers.weights,
            alpha @ answers.coordinates,
        )
