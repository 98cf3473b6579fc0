"""The transfer operator of a recorded process: its slow modes, and what comes next."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    epsilon,
    in_kind,
    namespace,
    take,
    to_numpy,
)
from meanmap.dynamics.sequences import Sequences, list_sequences, read_sequences
from meanmap.dynamics.transfer_regression import (
    EigenSystem,
    FittedOperator,
    WhitenedTransitions,
    bound_factor,
    vamp_scores,
)
from meanmap.dynamics.transfer_selection import (
    OperatorSettings,
    choose_operator,
    choose_process_kernel,
    fit_operator,
    fit_process_space,
)
from meanmap.dynamics.transition_sums import (
    FOLDS,
    Transitions,
    TransitionSums,
    stretch_length,
)
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Kernel
from meanmap.spaces import Space

FEWEST = 2  # transitions
FAR = 1e-3  # support below which a state is far from all of the record


class TransferOperator(BaseEstimator):
    """The operator `f ↦ E[f(x_{t+lag}) | x_t]` of a recorded process, and its slow modes.

    Also called the Koopman operator. Its eigenvalues say how fast the process forgets, its
    eigenfunctions what it forgets last. It is estimated in coordinates of a kernel by reduced-rank
    regression (Kostic, Novelli, Maurer, Ciliberto, Rosasco and Pontil 2022), and then once more,
    without regularisation, on the functions that this found, so that eigenvalues are not shrunk.

    Parameters
    ----------
    kernel : Kernel, callable or None
        Of the states. None takes the default for the kind of points, and the widest multiple of
        its bandwidth whose cross-validated VAMP score is within one standard error of the best.
    method : "reduced-rank", "principal" or "ridge"
        Which functions of the state the operator is restricted to: those that predict most of the
        future, the leading principal components, or all of them, with shrinkage instead.
    rank : int or "auto"
        How many eigenvalues, including that of the constant, which is always 1. "auto" takes the
        best VAMP score, and with "ridge" all of them.
    regularization : float or "auto"
        λ added to the covariance operator of the states.
    lag : int
        How many rows the future is ahead of the present.
    reversible : bool or "auto"
        True if the process in equilibrium looks the same in reversed time, such as diffusion in a
        potential: transitions then count in both directions, and eigenvalues are real. "auto"
        compares the scores.
    basis : a basis, a fitted Space or None
        None is a pivoted Cholesky basis of rank 300 at most, on 10,000 states spread over the
        record, drawn at random from them if there are many.

    Attributes
    ----------
    eigenvalues_ : 1 for the constant, then the others by magnitude
    standard_errors_ : those of the eigenvalues
    residuals_ : estimates of `‖Kf - λf‖` for eigenfunctions f of mean square one
    modes_ : a row per eigenvalue, with `E[x_{t + k lag} | x_t] = Σ λᵏ f(x_t) mode`; None for states
        that are not vectors
    score_ : the cross-validated VAMP score of the settings, NaN if there was nothing to leave out
    kernel_, space_, rank_, regularization_, reversible_ : as they were chosen
    n_transitions_ : how many transitions were seen

    Notes
    -----
    The score is VAMP-E (Wu and Noé 2020), the negative squared Hilbert-Schmidt distance to the true
    operator up to a constant, so that kernels can be compared with it. Everything is computed from
    sums over transitions in ten folds: long records, several of them and `partial_fit` use the same
    code. Standard errors are jackknife errors over the folds. They leave out what the choice of
    functions adds, and are too small where that dominates (see `residuals_`).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.dynamics import TransferOperator
    >>> rng, x = np.random.default_rng(0), [0.0]
    >>> for _ in range(3000):
    ...     x.append(0.8 * x[-1] + 0.6 * rng.normal())
    >>> model = TransferOperator().fit(np.array(x)[:, None])
    >>> model.eigenvalues_[:3].round(1)  # the truth is 1, 0.8, 0.64
    array([1. , 0.8, 0.6])
    >>> bool(abs(model.predict([[2.0]], steps=2) - 1.28) < 0.1)  # 0.8² · 2
    True
    """

    _sums: TransitionSums
    _operator: FittedOperator
    _eigen: EigenSystem
    _future: np.ndarray | None
    _stretch: int
    _tail: Points | None
    space_: Space
    kernel_: Kernel
    regularization_: float
    reversible_: bool
    score_: float
    n_transitions_: int
    eigenvalues_: np.ndarray
    rank_: int
    standard_errors_: np.ndarray
    residuals_: np.ndarray
    modes_: np.ndarray | None

    def __init__(
        self,
        kernel: Any = None,
        method: str = "reduced-rank",
        *,
        rank: int | str = "auto",
        regularization: float | str = "auto",
        lag: int = 1,
        reversible: bool | str = "auto",
        basis: Any = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.rank = rank
        self.regularization = regularization
        self.lag = lag
        self.reversible = reversible
        self.basis = basis

    # --- learning -----------------------------------------------------------------------------

    def fit(self, sequences: Any, y: Any = None) -> Self:
        """Learn from a record, from a list of records, or from pairs of states.

        Parameters
        ----------
        sequences : a sequence of states, or a list of sequences
        y : states or None
            If given, row i of it is the state one lag after row i of the first argument, whose rows
            then need no order.
        """
        return self._learn(sequences, y, False, fresh=True)

    def partial_fit(self, sequences: Any, y: Any = None, *, continued: bool = False) -> Self:
        """Add records to those that were seen.

        Kernel and coordinates are chosen on the first call, all other settings again each time.

        Parameters
        ----------
        sequences, y : as in `fit`
        continued : bool
            Whether the first sequence goes on where the last one of the previous call ended.
        """
        fresh = not hasattr(self, "_sums")
        return self._learn(sequences, y, bool(continued) and not fresh, fresh)

    def _learn(self, sequences: Any, y: Any, continued: bool, fresh: bool) -> Self:
        settings = OperatorSettings.of(self.method, self.rank, self.regularization, self.reversible)
        lag = checks.whole(self.lag, "lag", 1, "It counts rows from a state to its future.")
        if fresh:
            read, default = self._read(sequences, None)
            transitions = self._transitions(read, y, default, lag)
            kernel = self._kernel(default, transitions, settings)
            space = fit_process_space(kernel, self.basis, transitions)
            stretch, before = stretch_length(len(transitions)), None
        else:
            space, stretch, before = self.space_, self._stretch, self._sums
            read, kernel = self._read(sequences, space)
            if continued and y is None and self._tail is not None:
                read = read.after(self._tail)
            transitions = self._transitions(read, y, kernel, lag)
        start = 0 if before is None else before.total
        sums = TransitionSums.over(space, transitions, stretch, start)
        sums = sums if before is None else before + sums
        last = read.parts()[-1]
        tail = None if y is not None else take(last, slice(max(count(last) - lag, 0), None))
        # in one assignment: an interrupt leaves all of the call or nothing
        self.__dict__.update(
            operator_attributes(sums, settings, space), _stretch=stretch, _tail=tail
        )
        return self

    def _read(self, sequences: Any, space: Space | None) -> tuple[Sequences, Any]:
        if space is None and isinstance(self.basis, Space):
            check_is_fitted(self.basis, "kernel_")
            space = self.basis
        if space is None:
            return read_sequences(sequences, self.kernel, "sequences")
        return read_sequences(sequences, space.kernel_, "sequences", space.example_)

    def _transitions(self, read: Sequences, y: Any, kernel: Any, lag: int) -> Transitions:
        if y is None:
            found = Transitions.within(read.points, read.lengths, lag)
            if len(found) < FEWEST:
                raise ValueError(
                    f"sequences: the longest has {max(read.lengths)} rows, in which there are "
                    f"{len(found)} transitions over lag={lag}; at least {FEWEST} are needed. "
                    "Pairs of states are passed as fit(before, after)."
                )
            return found
        after = kernel.check(y, "y", read.points, "sequences")
        checks.same_length([("sequences", read.points), ("y", after)])
        if count(after) < FEWEST:
            raise ValueError(f"y: expected {FEWEST} pairs at least, got {count(after)}.")
        return Transitions.between(read.points, after)

    def _kernel(self, default: Any, transitions: Transitions, settings: OperatorSettings) -> Any:
        if isinstance(self.basis, Space):
            return self.basis.kernel_
        return choose_process_kernel(self.kernel, default, self.basis, transitions, settings)

    # --- spectrum -----------------------------------------------------------------------------

    def eigenfunctions(self, x: Any) -> Array:
        """The eigenfunctions at states, one per column, of mean square one on the record."""
        check_is_fitted(self)
        psi = self._coordinates(x)
        functions = self._operator.features(to_numpy(psi)) @ self._eigen.right[:, : self.rank_]
        return as_complex(real_values(functions), psi)

    def timescales(self, dt: float = 1.0) -> np.ndarray:
        """`-lag dt / log|λ|`, where `dt` is the time from row to row; infinite for the constant."""
        check_is_fitted(self)
        dt = checks.positive(dt, "dt", "It is the time from one row to the next.")
        size = np.clip(abs(self.eigenvalues_), 1e-300, None)
        with np.errstate(divide="ignore"):
            return np.where(size < 1, -self.lag * dt / np.log(np.minimum(size, 1.0)), np.inf)

    def bounds(self, confidence: float = 0.95) -> np.ndarray:
        """How far each eigenvalue may be from the truth: standard errors times Student's t."""
        check_is_fitted(self)
        level = checks.fraction(confidence, "confidence", "Try 0.95.")
        return self.standard_errors_ * bound_factor(level, int(np.count_nonzero(self._sums.counts)))

    def score(self, sequences: Any, y: Any = None) -> float:
        """The VAMP score on other records; larger is better, 1 is a model without memory."""
        check_is_fitted(self)
        read, kernel = self._read(sequences, self.space_)
        transitions = self._transitions(read, y, kernel, self.lag)
        test = TransitionSums.over(self.space_, transitions, stretch_length(len(transitions)))
        every = np.arange(FOLDS)
        train = WhitenedTransitions.of(self._sums.moments(every, self.reversible_))
        W = train.directions(self.method, self.regularization_, self._operator.W.shape[1])
        found = vamp_scores(train, test.moments(every, False), W, self.regularization_)
        return float(found[-1])

    # --- prediction ---------------------------------------------------------------------------

    def predict(self, x: Any, steps: int = 1) -> Array:
        """The expected state `steps` lags after each of these states."""
        check_is_fitted(self)
        ahead = checks.whole(steps, "steps", 1, "It counts lags.")
        psi = self._coordinates(x)
        return self._expected(self._features(psi), [ahead], psi)[:, 0]

    def forecast(self, sequences: Any, steps: int) -> Array:
        """The expected states 1, 2, …, `steps` lags after the end of a record.

        Parameters
        ----------
        sequences : a sequence of states, or a list of sequences
        steps : int

        Returns
        -------
        array of shape (steps, columns), with an axis before for a list of sequences
        """
        check_is_fitted(self)
        ahead = checks.whole(steps, "steps", 1, "It counts lags.")
        single = list_sequences(sequences, self.kernel_, "sequences", self.space_.example_)[1]
        read, _ = self._read(sequences, self.space_)
        psi = self.space_.coordinates(take(read.points, read.ends - 1))
        found = self._expected(self._features(psi), list(range(1, ahead + 1)), psi)
        return found[0] if single else found

    def _expected(self, features: np.ndarray, steps: list[int], like: Array) -> Array:
        """E[x] so many lags ahead, (points, steps, …): Tᵏ⁻¹ applied to E[x_{t+lag}|x_t]."""
        if self._future is None:
            raise TypeError(
                "states that are not vectors have no mean to predict. eigenfunctions(x) and "
                "eigenvalues_ describe any process; ConditionalEmbedding().fit(before, after) "
                "gives the distribution of the next state."
            )
        B, found = self._future, []
        for k in range(1, max(steps) + 1):
            if k in steps:
                found.append(features @ B)
            B = self._operator.T @ B
        shape = self.space_.example_.shape[1:] if hasattr(self.space_.example_, "shape") else ()
        rows = np.stack(found, axis=1)
        return in_kind(rows.reshape(*rows.shape[:2], *(shape or rows.shape[2:])), like)

    def _features(self, psi: Array) -> np.ndarray:
        return self._operator.features(to_numpy(psi))

    def _coordinates(self, x: Any) -> Array:
        space = self.space_
        points: Points = space.kernel_.check(x, "x", space.example_, "the training data")
        psi = space.coordinates(points)
        if space.map_.projects:
            far = to_numpy(space.support_of(points, psi)) < FAR
            if far.any():
                warn(
                    f"{int(far.sum())} of {len(far)} states are far from all of the record; the "
                    "operator is not known there.",
                    DataWarning,
                )
        return psi

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the eigenvalues in the unit circle."""
        check_is_fitted(self)
        return plots.complex_plane(self.eigenvalues_, ax, **style)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_sums")


def operator_attributes(
    sums: TransitionSums, settings: OperatorSettings, space: Space
) -> dict[str, Any]:
    """The attributes of a model with these sums."""
    choice = choose_operator(sums, settings)
    fitted = fit_operator(sums, choice, settings.method)
    eigen = fitted.eigen()
    whitened = WhitenedTransitions.of(sums.moments(np.arange(FOLDS), choice.reversible))
    whitener = whitened.whitener(choice.regularization)
    errors = eigen.errors(sums, fitted, choice.reversible)
    residuals = eigen.residuals(sums, fitted, choice.reversible, whitener)
    shown = slice(0, settings.rank)
    future = future_coefficients(fitted, sums)
    values = real_values(eigen.values)[shown]
    return {
        "_sums": sums,
        "_operator": fitted,
        "_eigen": eigen,
        "_future": future,
        "space_": space,
        "kernel_": space.kernel_,
        "regularization_": choice.regularization,
        "reversible_": choice.reversible,
        "score_": choice.score,
        "n_transitions_": sums.total,
        "eigenvalues_": values,
        "rank_": len(values),
        "standard_errors_": errors[shown],
        "residuals_": residuals[shown],
        "modes_": None if future is None else state_modes(eigen, future)[shown],
    }


def future_coefficients(fitted: FittedOperator, sums: TransitionSums) -> np.ndarray | None:
    """E[y|x] in the functions 1, e₁, …; None for states that are not numbers."""
    values = sums.values / sums.total
    if values.shape[1] == 0:
        return None
    x = sums.x.sum(axis=0) / sums.total
    crossed = values[:-1] - np.outer(x, values[-1])
    start = values[-1] + (fitted.mean - x) @ fitted.W @ (fitted.W.T @ crossed)
    return np.vstack([start, fitted.W.T @ crossed])


def state_modes(eigen: EigenSystem, future: np.ndarray) -> np.ndarray:
    """m with `E[y|x] = Σ λ f(x) m`; zero for eigenvalues that are rounding."""
    parts = np.linalg.lstsq(eigen.right, future.astype(eigen.right.dtype), rcond=None)[0]
    there = abs(eigen.values) > 1e-12
    safe = np.where(there, eigen.values, 1.0)[:, None]
    return real_values(np.where(there[:, None], parts / safe, 0.0))


def real_values(values: np.ndarray) -> np.ndarray:
    """Real numbers where all imaginary parts are rounding."""
    if values.dtype.kind != "c":
        return values
    if abs(values.imag).max(initial=0.0) <= 1e-12 * abs(values).max(initial=1.0):
        return values.real.copy()
    return values


def as_complex(values: np.ndarray, numbers: Array) -> Array:
    """Values that may be complex, in the kind and precision of an array of real numbers."""
    if isinstance(numbers, np.ndarray) or values.dtype.kind != "c":
        return in_kind(values, numbers)
    xp = namespace(numbers)
    return asarray(values, numbers, xp.complex64 if epsilon(numbers) > 1e-10 else xp.complex128)
