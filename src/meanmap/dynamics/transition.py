"""Where a belief goes between observations: the transition in coordinates."""

from __future__ import annotations

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
from meanmap.conditional.operator import as_embedding
from meanmap.conditional.trust import FAR
from meanmap.embeddings.element import FactoredWeights, numeric
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Kernel, TensorProduct
from meanmap.kernels.protocol import ALL
from meanmap.rules import CONFLICT, PriorOnSample, SquaredMethod, answer_weights, normalize_weights
from meanmap.spaces import PivotedCholesky, Space

STEADY = 0.1  # a conditional whose weights sum to one within this on the sample determines mass
BOUND = 2.0  # of sup k(s, s): a belief with a larger ‖m‖² is not a distribution
SHARP = 1e-8  # of the trace: how closely a prior is written on the training states


def dense_weights(weights: Any) -> Array:
    """Weights as an array."""
    return weights.dense() if isinstance(weights, FactoredWeights) else weights


def number_rows(points: Points) -> Array | None:
    """Points as rows of numbers, (n, q), the variables of a tuple side by side; None of labels."""
    parts = points if isinstance(points, tuple) else (points,)
    try:
        columns = [numeric(part) for part in parts]
    except TypeError:
        return None
    xp = namespace(columns[0])
    return xp.concat([xp.reshape(part, (part.shape[0], -1)) for part in columns], axis=1)


@dataclass(frozen=True)
class Belief:
    """Distributions of the state, one for each of b sequences, on the training states as atoms."""

    coordinates: Array  # (b, r)
    weights: Any  # (b, n), an array or FactoredWeights

    def dense(self) -> Array:
        """The weights as an array."""
        return dense_weights(self.weights)

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

    def keep_bounded(self, belief: Belief, usable: Array | None = None) -> Belief:
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
        part = normalize_weights(weights, self.marginal.weights, least=2.0)
        return belief.where(to_numpy(fine), Belief(part @ self.psi, part))

    def belief(self, prior: Any) -> Belief:
        """A prior of the state as weights on the training states."""
        m = as_embedding(prior, self.space).normalized().in_space(self.space)
        m = m if m.ndim == 2 else m[None, :]
        xp, n = namespace(m), self.psi.shape[0]
        trace = float(xp.sum(self.psi**2)) / n
        w = xp.full((n,), 1 / n, dtype=m.dtype, device=device(m))
        weights = w * PriorOnSample(m, self.psi, w, SHARP * trace).ratio
        if bool(xp.any(xp.sum(weights, axis=-1) < CONFLICT)) and self.kernel.bounded:
            warn(
                "the prior lies outside the training states: what is left of it on them says next "
                "to nothing. Train on sequences that reach there, or use another prior.",
                DataWarning,
            )
        return Belief(m, normalize_weights(weights, self.marginal.weights))


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
        """Belief b beside control b in coordinates, in row b; None is the training's average."""
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
                warn(
                    f"a control lies far from all training controls (nearer than {FAR} to none of "
                    "them): the training's average is used instead. Train with controls like it.",
                    DataWarning,
                )
                compared = xp.where(far[:, None], self.typical[None, :], compared)
        values = (m @ self.states.T) * compared
        return solve_triangular(factor, values.T).T


@dataclass(frozen=True)
class Transition:
    """P(s'|s), or P(s'|s, control), as an operator on beliefs (Song et al. 2009, Theorem 7)."""

    conditional: ConditionalEmbedding
    sample: Sample
    first: np.ndarray  # training states with a successor
    second: np.ndarray  # and their successors
    control: Control | None

    @classmethod
    def learn(
        cls,
        sample: Sample,
        first: np.ndarray,
        second: np.ndarray,
        regularization: float | str,
        centered: bool,
        controls: tuple[Points, Kernel] | None,
    ) -> Transition:
        """From pairs of training states."""
        before: Points = take(sample.atoms, first)
        after = take(sample.atoms, second)
        space: Any = sample.space
        if controls is not None:
            points, kernel = controls
            before = (before, take(points, first))
            pair = TensorProduct(sample.kernel, kernel.resolve(points))
            space = Space(pair, PivotedCholesky()).fit(before)
        known = None if controls is not None else take(sample.psi, first), take(sample.psi, second)
        model = ConditionalEmbedding(
            space.kernel_, sample.kernel, regularization, (space, sample.space), centered
        ).fit_checked(before, after, known=known)
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
        return self.conditional.operator_.inverse

    @cached_property
    def sources(self) -> Array:
        """The source's coordinates, a row for each transition."""
        return self.conditional.operator_.rows

    @cached_property
    def shares(self) -> Array:
        """The weights of the transitions."""
        return self.conditional.operator_.scale

    @cached_property
    def rows(self) -> Array:
        """The source's coordinates, beside the training states that it led to; 0 beside others."""
        return self.beside_successors(self.sources)

    @cached_property
    def scale(self) -> Array:
        """The weights of the transitions, beside the states that they led to."""
        return self.beside_successors(self.shares)

    def beside_successors(self, values: Array) -> Array:
        """Values of the transitions, beside the training states that they led to; 0 elsewhere."""
        xp = namespace(values)
        shape = (self.sample.psi.shape[0], *values.shape[1:])
        out = xp.zeros(shape, dtype=values.dtype, device=device(values))
        return assign(out, self.second, values)

    @cached_property
    def mass(self) -> Array | None:
        """The functional that gives a prediction's mass; None if the kernel does not determine it.

        A kernel without constants, such as the trace kernel, gives weights of any total.
        """
        mass = self.conditional.operator_.mass
        return mass if determines_mass(self.sample.kernel, self.sources @ mass) else None

    def source(self, m: Array, controls: Points | None) -> Array:
        """Beliefs (and controls) in the coordinates that the operator takes."""
        if self.control is not None:
            m = self.control.source(m, controls)
        return self.conditional.operator_.with_constant(m)

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
        return self.sample.keep_bounded(pushed, usable)

    # --- smoothing ----------------------------------------------------------------------------

    def transition_weights(self, belief: Belief, source: Array, transfer: str) -> Array:
        """Beliefs of the state before, as weights on the training transitions."""
        xp = namespace(source)
        if transfer == "two-step":
            return answer_weights(self.shares, self.sources, self.inverse, source)
        u = take(belief.dense().T, self.first).T
        return normalize_weights(u, xp.broadcast_to(self.shares, u.shape))

    @cached_property
    def _before(self) -> Array:
        """ψ of the training states with a successor."""
        return take(self.sample.psi, self.first)

    @cached_property
    def _after(self) -> Array:
        """ψ of their successors."""
        return take(self.sample.psi, self.second)

    def smooth_back(self, u: Array, later: Belief, delta: float) -> Belief:
        """The beliefs before, given those after: the transition's posterior, pushed through them.

        With u on the training transitions and `C = Ψ'ᵀ diag(u) Ψ'` of the states after, the weights
        on the states before are `u ∘ Ψ' (C² + δI)⁻¹ C m'` (kernel Bayes' rule, squared).
        """
        xp, before = namespace(u), self._before
        weights = SquaredMethod().weights(self._after, u, delta, later.coordinates)
        weights = normalize_weights(weights, u)
        shape = (weights.shape[0], self.sample.psi.shape[0])
        out = xp.zeros(shape, dtype=weights.dtype, device=device(weights))
        return Belief(weights @ before, assign(out, (slice(None), self.first), weights))


def determines_mass(kernel: Kernel, totals: Array) -> bool:
    """Whether the weights of a conditional sum to one but for λ, given their sums on the sample.

    A bounded kernel on vectors knows constants, even where λ is so large that sums waver.
    """
    return (kernel.on_vectors and kernel.bounded) or bool(np.std(to_numpy(totals)) < STEADY)
