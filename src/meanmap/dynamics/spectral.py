"""Filtering and forecasting from observations alone: the kernel hidden Markov model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    device,
    epsilon,
    float_like,
    namespace,
    one_blas_thread,
    spans,
    take,
    to_numpy,
)
from meanmap.dynamics.base import ORIGINS, StateFilter, open_setting
from meanmap.dynamics.model import LEAST, Passage, warn_of_far
from meanmap.dynamics.motion import Belief, Sample
from meanmap.dynamics.sequences import Sequences, Steps, read
from meanmap.dynamics.stream import Stream
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import LOST, Training, compared, steps_of
from meanmap.dynamics.validation import LEAST as LEAST_STEPS
from meanmap.dynamics.validation import Validation, kernel_candidates, search
from meanmap.embeddings import FactoredWeights
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.operators import CONFLICT
from meanmap.pairs import placed
from meanmap.selection import regularized_inverse
from meanmap.spaces import Space

# what validation tries
FACTORS = [0.25, 0.5, 1.0, 2.0]  # multiples of the median bandwidth
STATES = [2, 3, 5, 8, 12, 20, 30]
LAMBDAS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
FLOOR = 1e-2  # an observation of less evidence contradicts the belief, which starts anew
CHANCE = 4.0  # standard errors: what correlations of independent windows stay below
SMALL = 400  # up to this size C_21 is decomposed altogether
EXTRA, ROUNDS = 10, 8  # of subspace iteration, for larger ones
CHUNK = 1 << 22  # numbers in memory at once


@dataclass(frozen=True)
class Moments:
    """What the training windows say, in coordinates, for up to so many states.

    Row i is a time t with the windows `past = (o_t-w, …, o_t-1)`, `future = (o_t, …, o_t+w-1)` and
    `later = (o_t+1, …, o_t+w)`; a window's feature is those of its observations side by side, so
    that its kernel is the sum of theirs. With w = 1 these are the paper's triples (o₁, o₂, o₃).
    `C_21 = E[future ⊗ past] = U S Vᵀ`. Fewer states are the first columns of everything here.
    """

    sample: Sample  # the training observations
    middle: np.ndarray  # the times t, rows of the sample
    window: int
    singular: Array  # S, the largest first
    past: Array  # (Uᵀ C_21)⁺ applied to the past windows, (m, N)
    later: Array  # Uᵀ applied to the later windows, (m, N)
    first: Array  # Uᵀ μ₁
    radii: Array  # the longest Uᵀ of a future window, by the number of states
    correlations: Array  # of future and past in each pair of singular vectors

    @classmethod
    def of(cls, sample: Sample, lengths: tuple[int, ...], window: int, most: int) -> Moments:
        """From training sequences, for at most so many states."""
        psi, w = sample.psi, window
        xp = namespace(psi)
        t = middles(lengths, w)
        future = [take(psi, t + i) for i in range(w)]
        past = [take(psi, t - w + i) for i in range(w)]
        U, S, V = leading(future, past, most)
        bar = 32 * w * psi.shape[1] * epsilon(S) * float(S[0])
        N = min(most, int((to_numpy(S) > bar).sum()))
        U, V = U[:, :N], V[:, :N] / S[:N]  # (Uᵀ C_21)⁺ = V S⁻¹
        later = [*future[1:], take(psi, t + w)]
        before, squares = through(past, V), through(future, U) ** 2
        return cls(
            sample,
            t,
            w,
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
        total = 0.0
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
        found = regularized_inverse(self.seen, later, norms, uniform, regularization, False, False)
        return found[0], found[1]

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
                f"the stationary one is {mass:.2g}, it should be 1): a kernel without constants, "
                "such as Linear(), on centred data. Add one: kernel + 1."
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
        )

    def compared(self, sizes: list[int]) -> SpectralModel:
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


def leading(future: list[Array], past: list[Array], most: int) -> tuple[Array, Array, Array]:
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
    kept: Any = 1.0  # 0 for states that are not there, where several numbers of them are compared

    @property
    def observations(self) -> Space:
        """The space of the observations."""
        return self.sample.space

    @property
    def n_states(self) -> int:
        return int(self.start.shape[-1])

    @property
    def evidence(self) -> Array:
        """`ηᵀ B_o b₁ = ψ(o)ᵀ E`: the mass of an observation from the stationary belief."""
        pairs = self.eta[:, None] * self.start[None, :]
        return self.operators @ namespace(pairs).reshape(pairs, (-1,))

    def lifted(self, features: Array) -> Array:
        """The operators B_o of observations (…, r)."""
        N = self.n_states
        return namespace(features).reshape(features @ self.operators, (*features.shape[:-1], N, N))

    # --- one step -----------------------------------------------------------------------------

    def observed(self, b: Array, operators: Array) -> tuple[Array, Array]:
        """States (…, N) after observations with operators (…, N, N), and their evidence.

        The evidence is the mass `ηᵀ B_o b` over that from the stationary belief, `ηᵀ B_o b₁`: this
        would be one, were it not for λ, which takes from rare observations more than from others.
        Where it is not positive the observation says nothing, and the evidence is NaN.
        """
        xp = namespace(b)
        new, mass = self._applied(operators, b)
        again, usual = self._applied(operators, self.start)
        usual = xp.where(usual > 0, usual, float("nan") + 0 * usual)
        evidence = mass / usual
        # where the operators' product has cancelled: anew from the start, with this observation
        usable = evidence > FLOOR
        new = xp.where(usable[..., None], new, again)
        return self.within(new / xp.where(usable, mass, usual)[..., None]), evidence

    def advanced(self, b: Array) -> Array:
        """States (…, N) one step later, with no observation."""
        xp = namespace(b)
        new, mass = self._applied(self.silent, b)
        usable = mass > FLOOR
        new = new / xp.where(usable, mass, xp.ones_like(mass))[..., None]
        return self.within(xp.where(usable[..., None], new, self.start))

    def _applied(self, operators: Array, b: Array) -> tuple[Array, Array]:
        """New states, and their mass."""
        new = (operators @ b[..., None])[..., 0] * self.kept
        return new, namespace(b).sum(new * self.eta, axis=-1)

    def within(self, b: Array) -> Array:
        """States that some distribution could have: others are drawn towards the stationary one.

        A belief is a mean of features Uᵀφ, so that it is no longer than the longest of them. On
        the line to the stationary belief the mass stays one.
        """
        xp = namespace(b)
        excess = xp.sum(b * b, axis=-1) > self.radius**2
        if not bool(xp.any(excess)):
            return b
        # the share a of the way from the start with |start + a step| = radius
        step = b - self.start
        c = xp.sum(self.start * self.start, axis=-1) - self.radius**2
        h = xp.sum(step * self.start, axis=-1)
        q = xp.sum(step * step, axis=-1)
        q = xp.where(excess, q, xp.ones_like(q))
        inside = h * h - q * c
        root = xp.where(inside > 0, inside, xp.zeros_like(inside)) ** 0.5
        a = xp.where(excess, (root - h) / q, xp.ones_like(q))
        return self.start + a[..., None] * step

    def after(self, b: Array, operators: Array, seen: np.ndarray) -> tuple[Array, Array]:
        """States and evidence after a step in which perhaps not all sequences were seen."""
        xp = namespace(b)
        if not seen.any():
            b = self.advanced(b)
            return b, xp.ones_like(b[..., 0])
        new, evidence = self.observed(b, operators)
        told = xp.asarray(seen, device=device(b)) & ~xp.isnan(evidence)
        if not bool(xp.all(told)):
            new = xp.where(told[..., None], new, self.advanced(b))
            evidence = xp.where(told, evidence, xp.ones_like(evidence))
        return new, xp.where(evidence > LEAST, evidence, LEAST + 0 * evidence)

    # --- whole sequences ----------------------------------------------------------------------

    def states(self, features: Array, seen: np.ndarray) -> Iterator[tuple[Array, Array]]:
        """States (…, b, N) and evidence after each step of sequences (b, steps, r)."""
        length, size = seen.shape[1], seen.shape[0] * self.n_states**2
        shape = (*self.start.shape[:-2], seen.shape[0], self.n_states)
        b: Array = namespace(features).broadcast_to(self.start, shape)
        with one_blas_thread():
            for block in spans(length, max(1, CHUNK // size)):
                operators = self.lifted(features[:, block])
                for k in range(operators.shape[1]):
                    b, evidence = self.after(b, operators[:, k], seen[:, block][:, k])
                    yield b, evidence

    def run(self, steps: Steps) -> Passage:
        """Go through sequences step by step, all of them at once."""
        passage = Passage(self.sample, True, steps.seen.shape[1], None)
        for b, evidence in self.states(steps.features, steps.seen):
            passage.add(self.belief(b), evidence)
        passage.flush()
        return passage

    def belief(self, b: Array) -> Belief:
        """The next observation's distribution, (b, …), of states (b, N)."""
        return Belief(b @ self.emission.T, FactoredWeights(self.scale, self.rows, b))

    def forecast(self, b: Array, count: int) -> Passage:
        """The next observations of states (b, N), 1, 2, … steps ahead."""
        passage = Passage(self.sample, True, count, None)
        with one_blas_thread():
            for k in range(count):
                b = self.advanced(b) if k else b
                passage.add(self.belief(b), None)
        passage.flush()
        return passage

    def step(
        self,
        belief: Belief | None,
        prior: Belief | None,
        lifted: Array,
        expected: Array | None,
        seen: np.ndarray,
        controls: Points | None,
    ) -> tuple[Belief, Array]:
        """One step of a live stream."""
        b = self.start[None, :] if belief is None else belief.weights.vector
        b, evidence = self.after(b, lifted, seen)
        return self.belief(b), evidence


class SpectralFilter(BaseEstimator):
    """Forecast observations of a hidden state that nobody ever saw: a spectral kernel filter.

    Learned from sequences of observations alone, without hidden states: the kernel hidden Markov
    model of Song, Boots, Siddiqi, Gordon and Smola (2010). Its belief is the distribution of the
    next observations in a subspace of N dimensions, which the singular vectors of
    `C_21 = E[φ(o₂) ⊗ φ(o₁)]` span; each observation moves it by an operator that is linear in the
    observation's feature.

    Parameters
    ----------
    kernel : Kernel, callable or None
        Of the observations. None chooses for the kind of points, and lets validation choose among
        multiples of the median for its bandwidth.
    n_states : int or "auto"
        N, the number of hidden states, or of dimensions that stand for them.
    window : int
        How many consecutive observations stand for the past, and for the future. With 1 (the
        paper's) two hidden states are told apart if the next observation does so; what only shows
        over several steps, such as the direction of a movement, needs a longer window.
    regularization : float or "auto"
        λ of conditioning on an observation, on the scale of the operator C_22.
    basis : a basis or None
    validation : "half" or None
        "half" chooses everything that is "auto" (or a kernel that is None): learn from one half of
        the training sequences, predict each next observation of the other, and the other way round.
        None takes the median bandwidth, as many states as there are leading singular vectors along
        which past and future are correlated, and the regularisation of least leave-one-out error.
    grid : dict or None
        Candidates instead of the defaults: "observation" (multiples of the median, or kernels),
        "window", "n_states", "regularization".
    n_jobs : int or None
        Processes that validate in parallel, as in scikit-learn.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Attributes
    ----------
    kernel_ : the kernel, bandwidth resolved
    n_states_, window_, regularization_ : as they were chosen
    singular_values_ : of C_21, the largest first (of large operators the leading ones)
    validation_ : a Validation with every candidate's error, or None

    Notes
    -----
    A belief is normalised at every step, by its mass `ηᵀ B_o b` with `η = (C_12 U)⁺ μ₁`. The
    evidence is that mass over the mass from the stationary belief: the density of o given the
    observations before it over that given none.

    Learned operators do not know that probabilities are positive. Where the evidence is below 0.01,
    so that dividing by the mass would amplify noise, the belief starts anew from the stationary
    one, takes o in and goes on. Where a belief is longer than the features of all training windows,
    which no distribution is, it is drawn towards the stationary one as far as necessary. An
    observation is passed over if its support is below 0.001, or if even the stationary belief gives
    it no mass. So a belief is finite and of mass one, however long the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import SpectralFilter
    >>> rng = np.random.default_rng(0)
    >>> phase = np.cumsum(rng.normal(0.5, 0.05, size=800))
    >>> observations = np.sin(phase)[:, None] + 0.1 * rng.normal(size=(800, 1))
    >>> model = SpectralFilter(window=2).fit(observations[:500])
    >>> track = model.filter(observations[500:])
    >>> error = np.mean((track.mean[:-1] - observations[501:]) ** 2)
    >>> bool(error < 0.5 * np.mean(np.diff(observations[500:], axis=0) ** 2))
    True
    >>> model.predict(observations[500:], steps=5).mean.shape
    (5, 1)
    """

    _model: SpectralModel

    def __init__(
        self,
        kernel: Any = None,
        n_states: int | str = "auto",
        window: int = 1,
        regularization: float | str = "auto",
        basis: Any = None,
        validation: str | None = "half",
        grid: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_states = n_states
        self.window = window
        self.regularization = regularization
        self.basis = basis
        self.validation = validation
        self.grid = grid
        self.n_jobs = n_jobs
        self.progress = progress

    # --- learning -----------------------------------------------------------------------------

    def fit(self, observations: Any, y: Any = None) -> Self:
        """Learn from a sequence of observations, or from a list of sequences.

        Parameters
        ----------
        observations : a sequence of 2 · window + 1 steps at least, or a list of sequences
        y : ignored
        """
        checks.option(self.validation, "validation", ["half", None])  # type: ignore[list-item]
        o, kernel = read(observations, self.kernel, "observations")
        training = Training(o, o, None)  # what is filtered is what is observed
        settings, factors = self._settings()
        middles(o.lengths, max(settings["window"]))
        kernels = kernel_candidates(self.kernel, kernel, factors)
        choices = [len(part) for part in (kernels, *settings.values())]
        found: Validation | None = None
        if self.validation == "half" and max(choices) > 1 and training.size >= LEAST_STEPS:
            found = search(
                training,
                (kernels,),
                settings,
                self._trial,
                self.n_jobs,
                self.progress,
                names=("kernel",),
            )
            if not np.isfinite(found.least):
                warnings.warn(
                    "no candidate of the validation could be computed on half of the data; the "
                    "closed-form choices are used instead.",
                    UserWarning,
                    stacklevel=2,
                )
                found = None
        chosen: dict[str, Any]
        if found is None:
            chosen = {name: v[0] if len(v) == 1 else "auto" for name, v in settings.items()}
            chosen["kernel"] = kernel
            chosen["window"] = settings["window"][0]
        else:
            chosen = found.best
        sample = self._sample(o, chosen["kernel"])
        N = chosen["n_states"]
        most = max(STATES) if isinstance(N, str) else N
        moments = Moments.of(sample, o.lengths, chosen["window"], most)
        if N == "auto":
            N = moments.likely_states()
        elif self.n_states == "auto":
            N = min(N, moments.rank)
        elif moments.rank < N:
            raise ValueError(
                f"n_states={N} is more than the rank of C_21, which is {moments.rank} with "
                f"{len(moments.middle)} windows of training observations. Use n_states="
                f'{moments.rank} or less, "auto", a longer window, or more data.'
            )
        model = moments.model(N, chosen["regularization"])

        # nothing is set before everything has worked
        self._model = model
        self.kernel_ = model.sample.kernel
        self.n_states_, self.window_ = model.n_states, model.window
        self.regularization_ = model.regularization
        self.singular_values_ = moments.singular
        self.validation_ = found
        return self

    def _settings(self) -> tuple[dict[str, list[Any]], Any]:
        """Candidates for every setting, and those for the kernel."""
        least = "It is how many observations stand for the past, and for the future."
        window = checks.whole(self.window, "window", 1, least)
        lambdas = open_setting(self.regularization, "regularization", LAMBDAS)
        settings: dict[str, list[Any]] = {
            "window": [window],
            "n_states": _state_candidates(self.n_states),
            "regularization": lambdas,
        }
        grid = {} if self.grid is None else dict(self.grid)
        for name, values in grid.items():
            checks.option(name, "a key of grid", ["observation", *settings])
            if not isinstance(values, list | tuple | np.ndarray) or len(values) == 0:
                raise ValueError(
                    f"grid[{name!r}] must be a list of candidates, got {values!r:.60}."
                )
            if name in settings:
                settings[name] = list(values)
        for value in settings["window"]:
            checks.whole(value, "grid['window']", 1, least)
        for value in settings["n_states"]:
            _state_candidates(value)
        return settings, grid.get("observation", FACTORS)

    def _sample(self, o: Sequences, kernel: Kernel) -> Sample:
        w = checks.weights(None, o.points, float_like(o.points))
        space, psi = placed(kernel.resolve(o.points, w), self.basis, o.points, w)
        return Sample(space, o.points, psi)

    def _trial(
        self, train: Training, test: Training, kernel: Kernel, settings: dict[str, list[Any]]
    ) -> np.ndarray:
        """Errors of predicting each next observation of the other half, for all settings."""
        o = test.observations
        sample = self._sample(train.observations, kernel)
        values, truth = _compared(train, test, kernel)
        rows = [slice(end - n, end) for end, n in zip(o.ends, o.lengths, strict=True)]
        parts = [(take(o.points, at), np.ones(at.stop - at.start, dtype=bool)) for at in rows]
        steps = steps_of(sample.space, parts, o.single)
        lambdas, sizes = settings["regularization"], settings["n_states"]
        L, K, b = len(lambdas), len(sizes), len(rows)
        xp = namespace(sample.psi)
        spectrum: Spectrum | None = None
        errors = np.full((len(settings["window"]), K, L), np.inf)
        for i, window in enumerate(settings["window"]):
            moments = Moments.of(sample, train.observations.lengths, window, max(sizes))
            spectrum = Spectrum.of(moments.seen.T @ moments.seen / len(moments.middle))
            inverses = [spectrum.inverse(spectrum.sufficient(value)) for value in lambdas]
            features = xp.concat([steps.features @ inverse for inverse in inverses])
            models = moments.compared(sizes)
            E = moments.past.T @ take(values, moments.middle) / len(moments.middle)
            squares, there = np.zeros((K, L)), 0
            states = models.states(features, np.concatenate([steps.seen] * L))
            for t, (state, _) in enumerate(states):
                now = [at for at in rows if t + 1 < at.stop - at.start]
                going = [j for j, at in enumerate(rows) if t + 1 < at.stop - at.start]
                if not going:
                    break
                predicted = xp.reshape(state @ E, (K, L, b, -1))[:, :, going]
                gap = predicted - take(truth, np.array([at.start + t + 1 for at in now]))
                squares += to_numpy(xp.sum(gap * gap, axis=(2, 3)))
                there += len(going)
            usable = np.array(sizes) <= moments.rank
            errors[i, usable] = squares[usable] / max(there, 1)
        return errors.ravel()

    # --- filtering ----------------------------------------------------------------------------

    def filter(self, observations: Any) -> Track:
        """The distribution of the next observation at each step, given those up to it.

        Row t is about observation t + 1; its `log_evidence` is that of observation t, given those
        before it.

        Parameters
        ----------
        observations : a sequence, or a list of sequences (or an array with one more axis)
            A row of NaN (None in a list, a missing label) is a step that nobody observed.
        """
        steps, passage = self._filtered(observations)
        return passage.track("predicted", steps.lengths, steps.single, steps.support)

    def predict(self, observations: Any, steps: int, *, origin: str = "last") -> Track:
        """The distribution of the observations after those given.

        Parameters
        ----------
        observations : as in `filter`
        steps : int
            How far ahead.
        origin : "last" or "every"
            "last" gives `steps` beliefs, 1, 2, … steps after the last observation. "every" gives
            one belief for each observation: that of the observation `steps` later.
        """
        ahead = checks.whole(steps, "steps", 1, "It is how many steps ahead to look.")
        checks.option(origin, "origin", ORIGINS)
        read, passage = self._filtered(observations)
        model = self._model
        if origin == "last":
            found = model.forecast(passage.last(read.lengths).weights.vector, ahead)
            lengths = (ahead,) * len(read.lengths)
            return found.track("predicted", lengths, read.single, None)
        b = passage.weights().vector
        with one_blas_thread():
            for _ in range(ahead - 1):
                b = model.advanced(b)
        found = Passage(model.sample, True, b.shape[1], None)
        for t in range(b.shape[1]):
            found.add(model.belief(b[:, t]), None)
        found.flush()
        return found.track("predicted", read.lengths, read.single, None)

    def score(self, observations: Any, y: Any = None) -> float:
        """The mean log evidence of an observation given those before it; larger is better.

        It is relative to the training observations' marginal: 0 is a model that has learned
        nothing of time. Observations far from all training data count with the least evidence.
        """
        steps, passage = self._filtered(observations)
        track = passage.track("predicted", steps.lengths, steps.single, steps.support)
        assert track.log_evidence_ is not None
        log = np.where(steps.support < LOST, np.log(LEAST), track.log_evidence_)
        return float(log[~np.isnan(steps.support)].mean())

    def start(self) -> Stream:
        """Begin a live stream: `.step(o)` takes one observation and tells of the next."""
        check_is_fitted(self)
        return Stream(cast(Any, self), None)

    def _filtered(self, observations: Any) -> tuple[Steps, Passage]:
        check_is_fitted(self)
        steps = StateFilter._steps(cast(Any, self), observations)
        warn_of_far(steps.support, stacklevel=4)
        return steps, self._model.run(steps)

    # --- what a stream asks -------------------------------------------------------------------

    def _one_control(self, control: Any, first: bool) -> None:
        if control is not None:
            raise ValueError("control: a SpectralFilter knows no controls.")

    def _forecast(
        self, belief: Belief | None, prior: Belief | None, steps: int, controls: Any
    ) -> Track:
        """What a stream expects of the next observations."""
        ahead = checks.whole(steps, "steps", 1, "It is how many steps ahead to look.")
        self._one_control(controls, False)
        b = self._model.start[None, :] if belief is None else belief.weights.vector
        return self._model.forecast(b, ahead).track("predicted", (ahead,), True, None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")


def _state_candidates(value: Any) -> list[Any]:
    """The numbers of states to try."""
    if isinstance(value, str):
        checks.option(value, "n_states", ["auto"])
        return list(STATES)
    return [checks.whole(value, "n_states", 1, 'Use "auto" or a number like 10.')]


def _compared(train: Training, test: Training, kernel: Kernel) -> tuple[Array, Array]:
    """Functions of the training observations, and their values at the test observations."""
    points = train.observations.points
    if getattr(points, "ndim", 2) > 1:
        return compared(train, test, kernel)
    # labels, even where they are numbers: which of them is near to which means nothing
    uniform = checks.weights(None, points, float_like(points))
    space = Space(kernel.resolve(points))
    return space._place(space.kernel, points, uniform), space._transform(test.observations.points)
