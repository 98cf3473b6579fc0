"""Where a belief goes while nobody looks: the transition in coordinates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    device,
    float_like,
    namespace,
    solve_triangular,
    take,
    to_numpy,
)
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.operator import CONFLICT, FAR, as_embedding
from meanmap.embeddings import FactoredWeights
from meanmap.kernels import Kernel, TensorProduct
from meanmap.kernels.protocol import ALL
from meanmap.linalg import ConflictWarning, solve_ridge
from meanmap.spaces import PivotedCholesky, Space

STEADY = 0.1  # a conditional whose weights sum to one within this on the sample determines mass
BOUND = 2.0  # of sup k(s, s): a belief with a larger ‖m‖² is no distribution
SHARP = 1e-8  # of the trace: how closely a prior is written on the training states


@dataclass(frozen=True)
class Belief:
    """Distributions of the state, one for each of b sequences, on the training states as atoms."""

    coordinates: Array  # (b, r)
    weights: Any  # (b, n), an array or FactoredWeights

    def dense(self) -> Array:
        """The weights as an array."""
        return self.weights.dense() if isinstance(self.weights, FactoredWeights) else self.weights

    def where(self, mask: np.ndarray, other: Belief) -> Belief:
        """These beliefs where the mask holds, the other ones elsewhere."""
        xp = namespace(self.coordinates)
        chosen = xp.asarray(mask, device=device(self.coordinates))[:, None]
        coordinates = xp.where(chosen, self.coordinates, other.coordinates)
        mine, theirs = self.weights, other.weights
        factored = isinstance(mine, FactoredWeights) and isinstance(theirs, FactoredWeights)
        if factored and mine.rows is theirs.rows:
            vector = xp.where(chosen, mine.vector, theirs.vector)
            return Belief(coordinates, FactoredWeights(mine.scale, mine.rows, vector))
        return Belief(coordinates, xp.where(chosen, self.dense(), other.dense()))


@dataclass(frozen=True)
class Sample:
    """The training states: the atoms of every belief."""

    space: Space
    atoms: Points
    psi: Array  # (n, r)
    whole: Belief | None = None  # about all states, where the atoms are a part of them

    @property
    def kernel(self) -> Kernel:
        return self.space.kernel_

    @cached_property
    def marginal(self) -> Belief:
        """All training states alike."""
        if self.whole is not None:
            return self.whole
        xp = namespace(self.psi)
        n = self.psi.shape[0]
        w = xp.full((1, n), 1.0 / n, dtype=self.psi.dtype, device=device(self.psi))
        return Belief(w @ self.psi, w)

    @cached_property
    def largest(self) -> float:
        """The largest k(s, s), which no probability's ‖m‖² exceeds."""
        return float(namespace(self.psi).max(self.kernel.squared_norms(self.atoms)))

    def bounded(self, belief: Belief, usable: Array | None = None) -> Belief:
        """Beliefs, those replaced by their positive part that no probability can be near to.

        A ridge operator may have eigenvalues above one: a belief that is pushed again and again
        would grow without bound.
        """
        m = belief.coordinates
        xp = namespace(m)
        fine = xp.sum(m * m, axis=-1) <= BOUND * self.largest
        fine = fine if usable is None else fine & usable
        if bool(xp.all(fine)):
            return belief
        weights = belief.dense()
        weights = xp.where(xp.isfinite(weights), weights, xp.zeros_like(weights))
        part = settled(weights, self.marginal.weights, least=2.0)
        return belief.where(to_numpy(fine), Belief(part @ self.psi, part))

    def belief(self, prior: Any) -> Belief:
        """A prior of the state as weights on the training states."""
        m = as_embedding(prior, self.space).normalized().in_space(self.space)
        m = m if m.ndim == 2 else m[None, :]
        n = self.psi.shape[0]
        C = self.psi.T @ self.psi / n
        trace = float(namespace(C).sum(namespace(C).linalg.diagonal(C)))
        rows = [self.psi @ solve_ridge(C, SHARP * trace, row) / n for row in m]
        xp = namespace(m)
        weights = xp.stack(rows)
        if bool(xp.any(xp.sum(weights, axis=-1) < CONFLICT)) and self.kernel.bounded:
            warnings.warn(
                "the prior lies outside the training states: what is left of it on them says next "
                "to nothing. Train on sequences that reach there, or use another prior.",
                ConflictWarning,
                stacklevel=4,
            )
        return Belief(m, settled(weights, self.marginal.weights))


@dataclass(frozen=True)
class Control:
    """Pairs (state, control) in coordinates, so that a belief and a control make one element.

    With pivots (pⱼ, cⱼ) the embedding of a belief m beside a control c is `L⁻¹ (m(pⱼ) k(cⱼ, c))ⱼ`.
    """

    space: Space  # of the pairs
    kernel: Kernel  # of the controls
    states: Array  # ψ of the pivots' states, (q, r)
    typical: Array  # k(cⱼ, ·) at the training controls, on average

    @classmethod
    def of(cls, space: Space, sample: Sample, kernel: Kernel, controls: Points) -> Control:
        """From a space of pairs that pivots were chosen for."""
        assert space.map_.landmarks is not None
        (states, at), _ = space.map_.landmarks
        uniform = checks.weights(None, controls, float_like(controls))
        typical = kernel.gram_times(at, controls, asarray(uniform, sample.psi))
        return cls(space, kernel, sample.space.coordinates(states), typical)

    @property
    def like(self) -> Points:
        """What a control looks like."""
        return self.space.example_[1]

    def source(self, m: Array, controls: Points | None) -> Array:
        """Belief b beside control b in coordinates, a row each; None is the training's average."""
        assert self.space.map_.landmarks is not None
        pivots, factor = self.space.map_.landmarks
        if controls is None:
            compared = self.typical[None, :]
        else:
            compared = self.kernel.against(pivots[1])(controls, ALL, None)
            xp = namespace(compared)
            own = self.kernel.squared_norms(controls)
            far = xp.max(abs(compared), axis=1) < FAR * own
            if bool(xp.any(far)):
                warnings.warn(
                    f"a control lies far from all training controls (nearer than {FAR} to none of "
                    "them): the training's average is used instead. Train with controls like it.",
                    ConflictWarning,
                    stacklevel=6,
                )
                compared = xp.where(far[:, None], self.typical[None, :], compared)
        values = (m @ self.states.T) * compared
        return solve_triangular(factor, values.T).T


@dataclass(frozen=True)
class Motion:
    """P(s'|s), or P(s'|s, control), as an operator on beliefs (Song et al. 2009, Theorem 7)."""

    conditional: ConditionalEmbedding
    sample: Sample
    first: np.ndarray  # training states with a successor
    second: np.ndarray  # and their successors
    control: Control | None

    @classmethod
    def learned(
        cls,
        sample: Sample,
        first: np.ndarray,
        second: np.ndarray,
        regularization: float | str,
        centered: bool,
        controls: tuple[Points, Kernel] | None,
    ) -> Motion:
        """From pairs of training states."""
        before: Points = take(sample.atoms, first)
        after = take(sample.atoms, second)
        space: Any = sample.space
        if controls is not None:
            points, kernel = controls
            before = (before, take(points, first))
            pair = TensorProduct(sample.kernel, kernel.resolve(points))
            space = Space(pair, PivotedCholesky()).fit(before)
        model = ConditionalEmbedding(
            space.kernel_, sample.kernel, regularization, (space, sample.space), centered
        ).fit(before, after)
        control = None
        if controls is not None:
            control = Control.of(space, sample, space.kernel_.kernels[1], controls[0])
        return cls(model, sample, first, second, control)

    @property
    def controls_like(self) -> Points:
        """What a control looks like."""
        assert self.control is not None
        return self.control.like

    @cached_property
    def matrix(self) -> Array:
        """C_s'|s, from coordinates of the source to those of the state."""
        return self.conditional.operator_.matrix

    @cached_property
    def inverse(self) -> Array:
        """(C_ss + εI)⁻¹."""
        return self.conditional.operator_._inverse

    @cached_property
    def sources(self) -> Array:
        """The source's coordinates, a row for each transition."""
        return self.conditional.operator_._rows

    @cached_property
    def shares(self) -> Array:
        """The weights of the transitions."""
        return self.conditional.operator_._scale

    @cached_property
    def rows(self) -> Array:
        """The source's coordinates, beside the training states that it led to; 0 beside others."""
        return self._beside_successors(self.sources)

    @cached_property
    def scale(self) -> Array:
        """The weights of the transitions, beside the states that they led to."""
        return self._beside_successors(self.shares)

    def _beside_successors(self, values: Array) -> Array:
        xp = namespace(values)
        shape = (self.sample.psi.shape[0], *values.shape[1:])
        out = xp.zeros(shape, dtype=values.dtype, device=device(values))
        return assign(out, self.second, values)

    @cached_property
    def mass(self) -> Array | None:
        """The functional that gives a prediction's mass; None if the kernel does not determine it.

        A kernel without constants, such as the trace kernel, gives weights of any total.
        """
        mass = self.conditional.operator_._mass
        return mass if np.std(to_numpy(self.sources @ mass)) < STEADY else None

    def source(self, m: Array, controls: Points | None) -> Array:
        """Beliefs (and controls) in the coordinates that the operator takes."""
        if self.control is not None:
            m = self.control.source(m, controls)
        return self.conditional.operator_._with_intercept(m, None)

    def push(self, source: Array) -> Belief:
        """The beliefs one step later: sum rule."""
        vector, coordinates = source @ self.inverse.T, source @ self.matrix.T
        usable = None
        if self.mass is not None:
            xp = namespace(source)
            total = source @ self.mass
            # ridge lets mass seep away step by step; a belief outside the data has next to none
            usable = total > CONFLICT
            total = xp.where(usable, total, xp.ones_like(total))[:, None]
            vector, coordinates = vector / total, coordinates / total
        pushed = Belief(coordinates, FactoredWeights(self.scale, self.rows, vector))
        return self.sample.bounded(pushed, usable)

    # --- smoothing ----------------------------------------------------------------------------

    def transition_weights(self, belief: Belief, source: Array, transfer: str) -> Array:
        """Beliefs of the state before, as weights on the training transitions."""
        xp = namespace(source)
        if transfer == "two-step":
            return self.shares * ((source @ self.inverse.T) @ self.sources.T)
        u = take(belief.dense().T, self.first).T
        return settled(u, xp.broadcast_to(self.shares, u.shape))

    @cached_property
    def _before(self) -> Array:
        """ψ of the training states with a successor."""
        return take(self.sample.psi, self.first)

    @cached_property
    def _after(self) -> Array:
        """ψ of their successors."""
        return take(self.sample.psi, self.second)

    def smoothed(self, u: Array, later: Belief, delta: float) -> Belief:
        """The beliefs before, given those after: the transition's posterior, pushed through them.

        With u on the training transitions and `C = Ψ'ᵀ diag(u) Ψ'` of the states after, the weights
        on the states before are `u ∘ Ψ' (C² + δI)⁻¹ C m'` (kernel Bayes' rule, squared).
        """
        xp = namespace(u)
        after, before = self._after, self._before
        rows = []
        for scale, m in zip(u, later.coordinates, strict=True):
            C = after.T @ (scale[:, None] * after)
            rows.append(scale * (after @ solve_ridge(C, delta, m, squared=True)))
        weights = settled(xp.stack(rows), u)
        shape = (weights.shape[0], self.sample.psi.shape[0])
        out = xp.zeros(shape, dtype=weights.dtype, device=device(weights))
        return Belief(weights @ before, assign(out, (slice(None), self.first), weights))


def clipped(values: Array) -> Array:
    """max(values, 0)."""
    return namespace(values).clip(values, min=0)


def positive(ratio: Array, w: Array) -> Array:
    """A prior's density ratio u/w clipped at 0 and normalised; 1 where nothing is left of it."""
    xp = namespace(ratio)
    rho = clipped(ratio)
    total = (rho @ w)[..., None]
    usable = (total > 0) & xp.isfinite(total)
    return xp.where(usable, rho / xp.where(usable, total, xp.ones_like(total)), 1 + 0 * rho)


def settled(weights: Array, otherwise: Array, least: Any = CONFLICT) -> Array:
    """Weights that sum to one: where they cancel their positive part, or else something else.

    They cancel where κ = Σw/Σ|w| is below `least`, a number or a function that gives one a row and
    none above 0.2; normalising them would amplify noise without bound.
    """
    xp = namespace(weights)
    mass, size = xp.sum(weights, axis=-1), xp.sum(abs(weights), axis=-1)
    sound = (size > 0) & xp.isfinite(size)
    fine = (mass >= (CONFLICT if callable(least) else least) * size) & sound
    if bool(xp.all(fine)):
        return weights / mass[..., None]
    if callable(least):
        fine = (mass >= least() * size) & sound
    rest = clipped(otherwise)  # all atoms alike, if there is nothing left of it either
    rest = xp.where(xp.sum(rest, axis=-1)[..., None] > 0, rest, xp.ones_like(rest))
    part = clipped(xp.where(xp.isfinite(weights), weights, xp.zeros_like(weights)))
    usable = xp.isfinite(size) & (xp.sum(part, axis=-1) > 0)
    chosen = xp.where(fine[..., None], weights, xp.where(usable[..., None], part, rest))
    return chosen / xp.sum(chosen, axis=-1)[..., None]


def own_share(weights: Array) -> Array:
    """What κ may not fall below where weights are made of these: a fifth of their own.

    The weights of a regression swing about zero while their sum is as it should be, so that it is
    cancelling more than they do that tells of a conflict.
    """
    xp = namespace(weights)
    size = xp.sum(abs(weights), axis=-1)
    share = xp.sum(weights, axis=-1) / xp.where(size > 0, size, xp.ones_like(size))
    return CONFLICT * xp.where(share > 0, share, xp.ones_like(share))
