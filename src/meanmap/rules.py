"""Sum, chain and Bayes rule on arrays: coordinates and weights in, weights out.

The rules of probability for a conditional P(Y|X), known by a training sample with weights w, and a
prior on X (Song, Fukumizu and Gretton 2013, Algorithms I to III; Fukumizu, Song and Gretton 2013).
Every answer has one form: with the coordinates `rows` (n × r) of the sample on the side that is
conditioned on and a regularised inverse H (r × r), the weights of the answer are `scale ∘ rows H ψ`
(`answer_weights`), where ψ are the features of a point, or the mean features of a distribution.

| answer | scale | rows | H | ψ |
|---|---|---|---|---|
| conditional P(Y|x) | w | Ψ_X | (C_XX + λI)⁻¹ | ψ(x) |
| sum rule, and u, the prior on the sample | w | Ψ_X | (C_XX + λI)⁻¹ | m_π |
| chain rule: `Ψ_Xᵀ diag(u) Ψ_Y` | | | | |
| Bayes' rule P(X|y), by a `BayesMethod` | w ∘ ρ | Ψ_Y | of `Ψ_Yᵀ diag(w ∘ ρ) Ψ_Y` =: C_WW | ψ(y) |

ρ = u/w is the density of the prior relative to that of the sample, at the sample's points. The
methods of Bayes' rule differ in how they estimate ρ and in what they invert; `METHODS` has all of
them by name. Batches of priors and of observations add a leading axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from meanmap import checks
from meanmap.arrays import Array, device, epsilon, namespace, take, to_numpy
from meanmap.linalg import Spectrum, newton_descent, ridge_factor, solve_cholesky, solve_ridge

CONFLICT = 0.2  # κ = Σw/Σ|w| below which weights cancel


def answer_weights(scale: Array, rows: Array, inverse: Array, features: Array) -> Array:
    """`scale ∘ rows H ψ`: the weights (…, n) of the answers to features (…, r)."""
    return scale * ((features @ inverse.T) @ rows.T)


# --- weights that are a distribution --------------------------------------------------------------


def positive_part(weights: Array, otherwise: Array | None = None) -> Array:
    """`max(w, 0)` over its sum, along the last axis; what is not finite counts as 0.

    Where nothing is left it is the positive part of `otherwise`, or uniform if that has none
    either; None raises an error there.
    """
    xp = namespace(weights)
    part = xp.where(xp.isfinite(weights) & (weights > 0), weights, xp.zeros_like(weights))
    total = xp.sum(part, axis=-1)[..., None]
    empty = total <= 0
    if not bool(xp.any(empty)):
        return part / total
    if otherwise is None:
        raise ValueError(
            "the prior has no positive weight on the training sample: it lies outside the data "
            "that the conditional was fitted to. Fit on points that cover the prior."
        )
    rest = xp.where(otherwise > 0, otherwise, xp.zeros_like(otherwise))
    rest = xp.where(xp.sum(rest, axis=-1)[..., None] > 0, rest, xp.ones_like(rest))
    part = xp.where(empty, rest, part)
    return part / xp.sum(part, axis=-1)[..., None]


def cancelling(weights: Array, least: Any = CONFLICT) -> Array:
    """Where weights cancel: κ = Σw/Σ|w| is below `least`, or they are all 0 or not finite.

    Normalising such weights would amplify noise without bound.
    """
    xp = namespace(weights)
    return _cancel(xp.sum(weights, axis=-1), xp.sum(abs(weights), axis=-1), least)


def _cancel(total: Array, size: Array, least: Any) -> Array:
    return ~((total >= least * size) & (size > 0) & namespace(size).isfinite(size))


def normalize_weights(weights: Array, otherwise: Array, least: Any = CONFLICT) -> Array:
    """Weights (…, n) that sum to one: where they cancel their positive part, or else `otherwise`.

    `least` is the κ that counts as cancelling, one number or one for each row; or a function that
    gives those, none above the usual one: it is called only where some row is below that.
    """
    xp = namespace(weights)
    total, size = xp.sum(weights, axis=-1), xp.sum(abs(weights), axis=-1)
    wrong = _cancel(total, size, CONFLICT if callable(least) else least)
    some = bool(xp.any(wrong))
    if some and callable(least):
        wrong = _cancel(total, size, least())
        some = bool(xp.any(wrong))
    if not some:
        return weights / total[..., None]
    chosen = xp.where(wrong[..., None], positive_part(weights, otherwise), weights)
    return chosen / xp.sum(chosen, axis=-1)[..., None]


# --- Bayes' rule ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PriorOnSample:
    """A prior on X beside a training sample: what a method of Bayes' rule may ask of it."""

    m: Array  # the prior's coordinates m_π, (r,) or (b, r)
    rows: Array  # Ψ_X of the sample, (n, r)
    weights: Array  # w of the sample, (n,)
    regularization: float  # λ
    known_ratio: Array | None = None  # Ψ_X (C_XX + λI)⁻¹ m_π, where it was computed already
    otherwise: Array | None = None  # ρ where the prior has no positive weight at all; None raises

    @cached_property
    def ratio(self) -> Array:
        """`u/w = Ψ_X (C_XX + λI)⁻¹ m_π`, which may be negative (Fukumizu et al. 2013, eq. 11).

        The factor n that the paper prints is left out: with it the operator form (12) fails.
        """
        if self.known_ratio is not None:
            return self.known_ratio
        C = self.rows.T @ (self.weights[:, None] * self.rows)
        return (self.rows @ solve_ridge(C, self.regularization, self.m.T)).T


@dataclass(frozen=True)
class BayesMethod:
    """How Bayes' rule is regularised.

    A new method derives from this class, says what ρ is, and is added to `METHODS` by its name:
    `bayes_rule`, filters, the choice of δ and simulators then take it.
    """

    power: Any = 1.0  # τ, a number or one per prior (b, 1): how far the prior counts, if `tempered`

    #: H is `(C² + δI)⁻¹ C`, for an indefinite C, and δ on the scale of C²; else `(C + δI)⁻¹`.
    squared: ClassVar[bool] = False
    #: C is that of Y under the prior; else that of the sample, which is factorised once, and
    #: answers are normalised for each y.
    adaptive: ClassVar[bool] = True
    #: ρ ≥ 0, and w ∘ ρ sums to one.
    positive: ClassVar[bool] = False
    #: `power` matters.
    tempered: ClassVar[bool] = False
    #: Asks for coordinates of X in a kernel as narrow as the prior.
    fine: ClassVar[bool] = False
    #: δ is raised for an observation far from what the prior predicts.
    cautious: ClassVar[bool] = False

    def density_ratio(self, prior: PriorOnSample) -> Array:
        """ρ at the training points, (n,) or (b, n)."""
        raise TypeError(f"{type(self).__name__} does not say how a prior is weighed.")

    def weights(self, Phi: Array, scale: Array, delta: float, features: Array) -> Array:
        """The posterior's weights (b, n) for priors (b, n) and one observation per prior (b, r)."""
        rows = [
            w * (Phi @ solve_ridge(Phi.T @ (w[:, None] * Phi), delta, psi, self.squared))
            for w, psi in zip(scale, features, strict=True)
        ]
        return namespace(scale).stack(rows)

    def inverse(self, spectrum: Spectrum, delta: float) -> Array:
        """H of an operator that was factorised."""
        return spectrum.inverse(delta, self.squared)


class SquaredMethod(BayesMethod):
    """`C_ZW (C_WW² + δI)⁻¹ C_WW` (Fukumizu, Song and Gretton 2013, eq. 12): ρ as it is."""

    squared = True

    def density_ratio(self, prior: PriorOnSample) -> Array:
        return prior.ratio


class ImportanceMethod(BayesMethod):
    """`C_ZW (C_WW + δI)⁻¹` with ρ clipped at 0 and normalised (Xu et al. 2022)."""

    positive = True

    def density_ratio(self, prior: PriorOnSample) -> Array:
        return positive_part(prior.weights * prior.ratio, prior.otherwise) / prior.weights


class NonnegativeMethod(BayesMethod):
    """As `ImportanceMethod`, with the ρ ≥ 0 that represents the prior best.

        minimise  ‖Σ wᵢρᵢ ψ(xᵢ) - m_π‖² + λ Σ wᵢρᵢ²   subject to  ρᵢ ≥ 0

    Without the constraint this is the ridge solution of eq. 11, whose negative weights cancel its
    tails: cutting them off leaves a prior that is as wide as the kernel.
    """

    positive = True
    fine = True
    cautious = True

    def density_ratio(self, prior: PriorOnSample) -> Array:
        single = prior.m.ndim == 1
        rows = [
            nonnegative_ratio(prior.rows, prior.weights, m, prior.regularization)
            for m in (prior.m[None, :] if single else prior.m)
        ]
        rho = rows[0] if single else namespace(prior.m).stack(rows)
        return positive_part(prior.weights * rho, prior.otherwise) / prior.weights


class ReweightedMethod(BayesMethod):
    """The plain conditional weights of P(X|y) times ρ^τ, normalised: nothing to factorise again."""

    adaptive = False
    tempered = True

    def density_ratio(self, prior: PriorOnSample) -> Array:
        rho = prior.ratio
        return raise_to_power((rho + abs(rho)) / 2, self.power)  # clipped; scale does not matter


METHODS: dict[str, type[BayesMethod]] = {
    "nonnegative": NonnegativeMethod,
    "importance": ImportanceMethod,
    "squared": SquaredMethod,
    "reweighted": ReweightedMethod,
}


def bayes_method(name: Any, power: Any = 1.0) -> BayesMethod:
    """The method of Bayes' rule with this name, or an error that lists them."""
    return METHODS[checks.option(name, "method", list(METHODS))](power)


def raise_to_power(rho: Array, tau: Any) -> Array:
    """ρ^τ, where 0⁰ is 1: a prior that is ignored excludes nothing.

    τ is a number, or one per prior (b, 1); roots serve for quarters, for which a power would take
    many times as long.
    """
    if isinstance(tau, float):
        if tau <= 8:
            return rho if tau == 1 else rho**tau
        top = namespace(rho).max(rho, axis=-1, keepdims=True)  # the scale does not matter
        return (rho / namespace(rho).where(top > 0, top, 1.0)) ** tau
    xp = namespace(rho)
    quarters = to_numpy(tau) * 4
    if (quarters % 1).any() or quarters.max() > 7:
        return rho**tau
    out, root = None, rho
    for bit in (4, 2, 1):
        wanted = (quarters.astype(int) & bit) > 0
        if wanted.any():
            factor = xp.where(xp.asarray(wanted, device=device(rho)), root, xp.ones_like(root))
            out = factor if out is None else out * factor
        root = xp.sqrt(root) if bit > 1 else root
    return xp.ones_like(rho) if out is None else out


# --- the nearest prior with non-negative weights --------------------------------------------------


def nonnegative_ratio(Psi: Array, w: Array, m: Array, regularization: float) -> Array:
    """`max(Ψh, 0)`, with h of the least `½ Σ wᵢ max(ψᵢ·h, 0)² + λ/2 ‖h‖² - h·m`.

    That is the solution of `NonnegativeMethod`'s problem, in one variable per coordinate: Newton's
    method with line search. The gradient is piecewise linear, so that a few steps end it: each
    solves with the covariance of the rows whose weight is positive.
    """
    xp, r = namespace(Psi), Psi.shape[1]
    scale = float(xp.sum(w[:, None] * Psi * Psi)) or 1.0
    lam = max(float(regularization), 100 * epsilon(Psi) * scale)  # 0 is the pseudo-inverse

    def look(h: Array) -> tuple[float, Array]:
        rho = xp.clip(Psi @ h, min=0)
        return float(0.5 * (w @ rho**2) + 0.5 * lam * (h @ h) - h @ m), rho

    def solve(gradient: Array, rho: Array) -> Array:
        active = to_numpy(rho > 0)
        U = xp.sqrt(take(w, active))[:, None] * take(Psi, active)
        wide = U.shape[0] < r  # the smaller of two systems
        L = ridge_factor(U @ U.T if wide else U.T @ U, lam)
        inner = solve_cholesky(L, U @ gradient if wide else gradient)
        return (gradient - U.T @ inner) / lam if wide else inner

    ridge = solve(m, xp.ones_like(w))
    goal = max(1e-9, 100 * epsilon(Psi)) * float(m @ m) ** 0.5
    return newton_descent(look, lambda h, rho: (w * rho) @ Psi + lam * h - m, solve, ridge, goal)
