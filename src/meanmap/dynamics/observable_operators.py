"""Hidden Markov models by their observable operators, in coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    device,
    epsilon,
    namespace,
    one_blas_thread,
    spans,
    take,
    to_numpy,
)
from meanmap.conditional.selection import RegressionSample, regularized_inverse
from meanmap.dynamics.evidence import LEAST, Evidence, ForecastEvidence, vector_rows
from meanmap.dynamics.history import BeliefHistory
from meanmap.dynamics.sequences import ControlGate, Steps, pad_sequences
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import LOST
from meanmap.dynamics.transition import Belief, Sample
from meanmap.embeddings import Embedding
from meanmap.embeddings.element import FactoredWeights
from meanmap.embeddings.single import embedding_of
from meanmap.rules import CONFLICT
from meanmap.spaces import Space

FLOOR = 1e-2  # an observation of less evidence contradicts the belief, which starts anew
ROUNDING = 1e-9  # relative: a belief is not too long by this
CHANCE = 4.0  # standard errors: what correlations of independent windows stay below
SMALL = 400  # up to this size C_21 is decomposed altogether
EXTRA, ROUNDS = 10, 8  # of subspace iteration, for larger ones
AHEAD = 30  # the most steps ahead that forecasts in training are compared for
CHUNK = 1 << 22  # numbers in memory at once


@dataclass(frozen=True)
class WindowMoments:
    """What the training windows say, in coordinates, for up to so many states.

    Row i is a time t with the windows `past = (o_t-w, …, o_t-1)`, `future = (o_t, …, o_t+w-1)` and
    `later = (o_t+1, …, o_t+w)`; a window's feature is those of its observations side by side, so
    that its kernel is the sum of theirs. With w = 1 these are the paper's triples (o₁, o₂, o₃).
    `C_21 = E[future ⊗ past] = U S Vᵀ`. Fewer states are the first columns of everything here.
    """

    sample: Sample  # the training observations
    middle: np.ndarray  # the times t, rows of the sample
    window: int
    lengths: tuple[int, ...]  # of the training sequences
    singular: Array  # S, the largest first
    past: Array  # (Uᵀ C_21)⁺ applied to the past windows, (m, N)
    later: Array  # Uᵀ applied to the later windows, (m, N)
    first: Array  # Uᵀ μ₁
    radii: Array  # the longest Uᵀ of a future window, by the number of states
    correlations: Array  # of future and past in each pair of singular vectors

    @classmethod
    def of(cls, sample: Sample, lengths: tuple[int, ...], window: int, most: int) -> WindowMoments:
        """From training sequences, for at most so many states."""
        psi, w = sample.psi, window
        xp = namespace(psi)
        t = middles(lengths, w)
        future = [take(psi, t + i) for i in range(w)]
        past = [take(psi, t - w + i) for i in range(w)]
        U, S, V = leading_triplets(future, past, most)
        bar = 32 * w * psi.shape[1] * epsilon(S) * float(S[0])
        N = min(most, int((to_numpy(S) > bar).sum()))
        U, V = U[:, :N], V[:, :N] / S[:N]  # (Uᵀ C_21)⁺ = V S⁻¹
        later = [*future[1:], take(psi, t + w)]
        before, squares = through(past, V), through(future, U) ** 2
        return cls(
            sample,
            t,
            w,
            lengths,
            S,
            before,
            through(later, U),
            xp.mean(through(past, U), axis=0),
            xp.max(xp.cumulative_sum(squares, axis=1), axis=0) ** 0.5,
            1 / (xp.mean(squares, axis=0) * xp.mean(before**2, axis=0)) ** 0.5,
        )

    @property
    def rank(self) -> int:
        """The largest number of states that can be asked of these."""
        return int(self.past.shape[1])

    @property
    def seen(self) -> Array:
        """ψ of the middle observations."""
        return take(self.sample.psi, self.middle)

    @cached_property
    def tensor(self) -> Array:
        """`Σ ψ(o_t) ⊗ later ⊗ past / m`, (r, N²)."""
        xp, N, m = namespace(self.past), self.rank, len(self.middle)
        total: Any = 0.0
        for rows in spans(m, max(1, CHUNK // (N * N))):
            pairs = self.later[rows, :, None] * self.past[rows, None, :]
            seen = take(self.sample.psi, self.middle[rows])
            total = total + seen.T @ xp.reshape(pairs, (-1, N * N))
        return total / m

    def likely_states(self) -> int:
        """How many leading pairs of singular vectors have a correlation beyond chance."""
        beyond = to_numpy(self.correlations) > CHANCE / len(self.middle) ** 0.5
        return max(1, int(np.cumprod(beyond).sum()))

    def inverse(self, regularization: float | str, n_states: int) -> tuple[Array, float]:
        """`(C_22 + λI)⁻¹` of the middle observation; "auto" predicts what comes later best."""
        later = self.later[:, :n_states]
        xp = namespace(later)
        uniform = asarray(np.full(len(self.middle), 1 / len(self.middle)), later)
        norms = xp.sum(later**2, axis=1)
        sample = RegressionSample(self.seen, later, uniform, norms)
        found = regularized_inverse(sample, regularization, False, False)
        return found.inverse, found.regularization

    def model(self, n_states: int, regularization: float | str | None) -> SpectralModel:
        """The filter with so many states; None is without (C_22 + λI)⁻¹."""
        N, psi, m = n_states, self.sample.psi, len(self.middle)
        xp = namespace(psi)
        past, later = self.past[:, :N], self.later[:, :N]
        M = xp.reshape(self.tensor, (-1, self.rank, self.rank))[:, :N, :N]
        operators, given = xp.reshape(M, (-1, N * N)), 0.0
        if regularization is not None:
            inverse, given = self.inverse(regularization, N)
            operators = inverse @ operators
        eta = xp.mean(past, axis=0)  # (C_12 U)⁺ μ₁
        mass = float(eta @ self.first[:N])
        if not mass > CONFLICT:
            raise ValueError(
                f"the kernel does not determine the mass of a belief with n_states={N} (that of "
                f"the stationary one is {mass:.2g}, it should be 1). Either the kernel has no "
                "constants, such as Linear() on centred data: add one, kernel + 1. Or the "
                f"observations are too few, here {m} windows: pass longer sequences."
            )
        zeros = xp.zeros((psi.shape[0], N), dtype=psi.dtype, device=device(psi))
        return SpectralModel(
            sample=self.sample,
            start=self.first[:N] / mass,
            eta=eta,
            radius=self.radii[N - 1],
            silent=later.T @ past / m,
            operators=operators,
            emission=self.seen.T @ past / m,
            rows=assign(zeros, self.middle, past),
            scale=xp.full((psi.shape[0],), 1 / m, dtype=psi.dtype, device=device(psi)),
            regularization=given,
            window=self.window,
            lengths=self.lengths,
        )

    def candidates(self, sizes: list[int]) -> SpectralModel:
        """Filters of several numbers of states as one, their axis before that of the sequences.

        Their observations come multiplied by (C_22 + λI)⁻¹ already.
        """
        xp, N = namespace(self.past), self.rank
        kept = np.arange(N)[None, :] < np.array(sizes)[:, None]
        kept = asarray(kept[:, None, :].astype(float), self.past)
        whole = self.model(N, None)
        eta = whole.eta * kept
        first = self.first * kept
        mass = xp.sum(eta * first, axis=-1)[..., None]
        mass = xp.where(mass > CONFLICT, mass, float("nan") + 0 * mass)
        last = [min(size, N) - 1 for size in sizes]
        radius = take(self.radii, np.array(last))[:, None]
        return replace(whole, start=first / mass, eta=eta, radius=radius, kept=kept)


def through(windows: list[Array], matrix: Array) -> Array:
    """Windows times a matrix, part by part: side by side they would take w times the memory."""
    r = windows[0].shape[1]
    parts = [part @ matrix[i * r : (i + 1) * r] for i, part in enumerate(windows)]
    return sum(parts[1:], parts[0])


def leading_triplets(
    future: list[Array], past: list[Array], most: int
) -> tuple[Array, Array, Array]:
    """`C_21 = U S Vᵀ`, or so many of its leading triplets and some more where C_21 is large.

    Those come from subspace iteration, which needs products with C_21 only, not C_21 itself.
    """
    xp, m = namespace(future[0]), future[0].shape[0]
    size, k = len(future) * future[0].shape[1], most + EXTRA
    with one_blas_thread():
        if size <= max(SMALL, 2 * k):
            C_21 = xp.concat([xp.concat([f.T @ p for p in past], axis=1) for f in future]) / m
            U, S, Vt = xp.linalg.svd(C_21, full_matrices=False)
            return U, S, Vt.T

        def product(left: list[Array], right: list[Array], matrix: Array) -> Array:
            image = through(right, matrix)
            return xp.concat([part.T @ image for part in left]) / m

        Q = asarray(np.random.default_rng(0).normal(size=(size, k)), future[0])
        for _ in range(ROUNDS):
            Q = xp.linalg.qr(product(future, past, Q))[0]
            Q = xp.linalg.qr(product(past, future, Q))[0]
        U, S, Vt = xp.linalg.svd(product(future, past, Q), full_matrices=False)
        return U, S, Q @ Vt.T


def middles(lengths: tuple[int, ...], window: int) -> np.ndarray:
    """The times with a whole window before them, and one after them."""
    ends = np.cumsum(lengths)
    rows = [np.arange(end - n + window, end - window) for end, n in zip(ends, lengths, strict=True)]
    found = np.concatenate(rows)
    if len(found) == 0:
        raise ValueError(
            f"observations: the longest sequence has {max(lengths)} steps; window={window} needs "
            f"{2 * window + 1} (a step, {window} before it and {window} after it). Pass longer "
            "sequences or use a smaller window."
        )
    return found


@dataclass(frozen=True)
class SpectralModel:
    """Beliefs b in R^N, the predicted future window in the subspace U, and how they move.

    `b' = B_o b / (ηᵀ B_o b)` with `B_o = Uᵀ C_3o1 (Uᵀ C_21)⁺` (Song, Boots, Siddiqi, Gordon and
    Smola 2010, section 4), linear in ψ(o).
    """

    sample: Sample
    start: Array  # b₁, of mass one
    eta: Array  # ηᵀb is the mass of b
    radius: Array  # how long a belief can be
    silent: Array  # Uᵀ C_31 (Uᵀ C_21)⁺, the operator summed over all o
    operators: Array  # B_o = Σ_c ψ_c(o) operators[c], (r, N²)
    emission: Array  # C_21 (Uᵀ C_21)⁺ of the first observation of the window, (r, N)
    rows: Array  # a belief's weights on the training observations are scale ∘ (rows b)
    scale: Array
    regularization: float
    window: int
    lengths: tuple[int, ...]  # of the training sequences
    kept: Any = 1.0  # 0 for states that are not there, where several numbers of them are compared

    control_gate = ControlGate(refusal="a SpectralFilter knows no controls.")
    lost = LOST

    @property
    def observations(self) -> Space:
        """The space of the observations."""
        return self.sample.space

    @property
    def n_states(self) -> int:
        return int(self.start.shape[-1])

    @cached_property
    def evidence(self) -> Evidence:
        """How likely an observation was given a belief."""
        if not self.sample.kernel.on_vectors:
            return MassEvidence(self)
        values = vector_rows(self.sample.atoms)
        centre = values.mean(axis=0)
        weights = to_numpy(self.rows) * to_numpy(self.scale)[:, None]
        beliefs, seen = self._forecasts(values)
        return ForecastEvidence(weights.T @ (values - centre), centre, beliefs, seen)

    def _forecasts(self, values: np.ndarray) -> tuple[tuple[Any, ...], tuple[np.ndarray, ...]]:
        """Beliefs before each training step, from observations up to 1, 2, … steps before it.

        And the observations of those steps.
        """
        ends = np.cumsum(self.lengths)
        psi = [
            take(self.sample.psi, slice(int(e - n), int(e)))
            for e, n in zip(ends, self.lengths, strict=True)
        ]
        features, length = pad_sequences(psi, max(self.lengths)), max(self.lengths)
        inside = np.arange(length)[None, :] < np.array(self.lengths)[:, None]
        after = [b for _, b in self.states(features, inside)]
        b = namespace(self.start).stack(after, axis=1)  # (sequences, steps, N)
        row = np.cumsum(inside).reshape(inside.shape) - 1
        found, seen = [], []
        for ahead in range(1, 1 + min(AHEAD, length - 1)):
            there = inside[:, ahead:]
            found.append(b[:, : length - ahead][there])
            seen.append(values[row[:, ahead:][there]])
            b = self.advance(b)
        return tuple(found), tuple(seen)

    def lift(self, features: Array) -> Array:
        """The operators B_o of observations (…, r)."""
        N = self.n_states
        return namespace(features).reshape(features @ self.operators, (*features.shape[:-1], N, N))

    # --- one step -----------------------------------------------------------------------------

    def observe(self, b: Array, operators: Array) -> tuple[Array, Array]:
        """States (…, N) after observations with operators (…, N, N), and their evidence.

        The evidence is the mass `ηᵀ B_o b` over that from the stationary belief, `ηᵀ B_o b₁`: this
        would be one, were it not for λ, which takes from rare observations more than from others.
        Where it is not positive the observation says nothing, and the evidence is NaN.
        """
        xp = namespace(b)
        new, mass = self._apply(operators, b)
        again, usual = self._apply(operators, self.start)
        usual = xp.where(usual > 0, usual, float("nan") + 0 * usual)
        evidence = mass / usual
        # where the operators' product has cancelled: anew from the start, with this observation
        usable = evidence > FLOOR
        new = xp.where(usable[..., None], new, again)
        return self.within(new / xp.where(usable, mass, usual)[..., None]), evidence

    def advance(self, b: Array) -> Array:
        """States (…, N) one step later, with no observation."""
        xp = namespace(b)
        new, mass = self._apply(self.silent, b)
        usable = mass > FLOOR
        new = new / xp.where(usable, mass, xp.ones_like(mass))[..., None]
        return self.within(xp.where(usable[..., None], new, self.start))

    def _apply(self, operators: Array, b: Array) -> tuple[Array, Array]:
        """New states, and their mass."""
        new = (operators @ b[..., None])[..., 0] * self.kept
        return new, namespace(b).sum(new * self.eta, axis=-1)

    def within(self, b: Array) -> Array:
        """States that some distribution could have: others are drawn towards the stationary one.

        A belief is a mean of features Uᵀφ, so that it is no longer than the longest of them. On
        the line to the stationary belief the mass stays one.
        """
        xp = namespace(b)
        excess = xp.sum(b * b, axis=-1) > self.radius**2 * (1 + ROUNDING)
        if not bool(xp.any(excess)):
            return b
        # the share a of the way from the start with |start + a step| = radius
        step = b - self.start
        c = xp.sum(self.start * self.start, axis=-1) - self.radius**2
        h = xp.sum(step * self.start, axis=-1)
        q = xp.sum(step * step, axis=-1)
        excess = excess & (q > 0)  # the stationary one may be the longest
        q = xp.where(excess, q, xp.ones_like(q))
        inside = h * h - q * c
        root = xp.where(inside > 0, inside, xp.zeros_like(inside)) ** 0.5
        a = (root - h) / q
        a = xp.where(a > 0, a, xp.zeros_like(a))
        a = xp.where(excess & (a < 1), a, xp.ones_like(a))
        return self.start + a[..., None] * step

    def after(self, b: Array, operators: Array, seen: np.ndarray) -> Array:
        """States after a step in which perhaps not all sequences were seen."""
        xp = namespace(b)
        if not seen.any():
            return self.advance(b)
        new, evidence = self.observe(b, operators)
        told = xp.asarray(seen, device=device(b)) & ~xp.isnan(evidence)
        return new if bool(xp.all(told)) else xp.where(told[..., None], new, self.advance(b))

    # --- whole sequences ----------------------------------------------------------------------

    def states(self, features: Array, seen: np.ndarray) -> Iterator[tuple[Array, Array]]:
        """States (…, b, N) before and after each step of sequences (b, steps, r)."""
        length, size = seen.shape[1], seen.shape[0] * self.n_states**2
        shape = (*self.start.shape[:-2], seen.shape[0], self.n_states)
        b: Array = namespace(features).broadcast_to(self.start, shape)
        with one_blas_thread():
            for block in spans(length, max(1, CHUNK // size)):
                operators = self.lift(features[:, block])
                for k in range(operators.shape[1]):
                    before, b = b, self.after(b, operators[:, k], seen[:, block][:, k])
                    yield before, b

    def run(self, steps: Steps) -> BeliefHistory:
        """Go through sequences step by step, all of them at once."""
        history = BeliefHistory(self.sample, True, steps.seen.shape[1], None)
        for before, b in self.states(steps.features, steps.seen):
            history.add(self.belief(b), before)
        history.flush()
        return history

    def belief(self, b: Array) -> Belief:
        """The next observation's distribution, (b, …), of states (b, N)."""
        return Belief(b @ self.emission.T, FactoredWeights(self.scale, self.rows, b))

    def forecast(self, b: Array, count: int) -> BeliefHistory:
        """The next observations of states (b, N), 1, 2, … steps ahead."""
        history = BeliefHistory(self.sample, True, count, None)
        with one_blas_thread():
            for k in range(count):
                b = self.advance(b) if k else b
                history.add(self.belief(b), None)
        history.flush()
        return history

    def seen_at(self, steps: Steps, t: int) -> Array:
        """The observations of step t, as `step` takes them."""
        return self.lift(steps.features[:, t])

    def log_evidence(self, predicted: Any, features: Any, values: Any, unseen: Any) -> np.ndarray:
        """How likely observations were, given the states before them."""
        return self.evidence.log(predicted, features, values, unseen)

    def finish(self, track: Track) -> Track:
        """The record as it is read."""
        return track

    def read(self, belief: Belief) -> Embedding:
        """The belief of one sequence, as a user sees it."""
        sample = self.sample
        weights, m = belief.weights[0], belief.coordinates[0]
        return embedding_of(sample.space, sample.kernel, sample.atoms, weights, m)

    def forecast_from(
        self, belief: Belief | None, prior: Belief | None, count: int, controls: Points | None
    ) -> BeliefHistory:
        """The next observations after the belief of a stream; None is before its first step."""
        b = self.start[None, :] if belief is None else belief.weights.vector
        return self.forecast(b, count)

    def step(
        self,
        belief: Belief | None,
        prior: Belief | None,
        lifted: Array,
        seen: np.ndarray,
        controls: Points | None,
    ) -> tuple[Belief, Array]:
        """One step of a live stream: the belief after it, and the state before."""
        before = self.start[None, :] if belief is None else belief.weights.vector
        return self.belief(self.after(before, lifted, seen)), before


@dataclass(frozen=True, eq=False)
class MassEvidence:
    """The mass of an observation over that from the stationary belief; 1 if undefined."""

    model: SpectralModel

    def log(self, predicted: Array, features: Array, values: Any, unseen: np.ndarray) -> np.ndarray:
        like = self.model.start
        operators = self.model.lift(asarray(features, like))
        ratio = to_numpy(self.model.observe(asarray(predicted, like), operators)[1])
        # an observation far from all others has no features; one without mass says nothing
        lost = (np.asarray(to_numpy(features)) ** 2).sum(axis=-1) < LOST
        ratio = np.where(lost, 0.0, np.where(np.isnan(ratio), 1.0, ratio))
        return np.asarray(np.log(np.maximum(ratio, LEAST)))
