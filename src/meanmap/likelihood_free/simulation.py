"""Running a simulator: all draws at once, or one by one in parallel; failures named and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed

from meanmap import checks
from meanmap.arrays import is_array, to_numpy
from meanmap.exceptions import DataWarning, warn
from meanmap.likelihood_free.priors import Prior, in_box
from meanmap.progress import progress_bar

BATCH = 1000  # simulations between two states that survive an error
MANY = 0.5  # a simulator that fails in more than this share of the draws is at fault
SIZEABLE = 100  # draws, from which on a batch is judged by itself

# What random numbers are for: streams that never meet, whatever is asked for and in which order
DRAWS, NOISE, MASSES, CALIBRATION, CHECK, OTHER = range(6)


@dataclass(frozen=True)
class Seeds:
    """One entropy, and a stream of random numbers for every purpose."""

    entropy: int

    def __call__(self, *key: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.entropy, spawn_key=key)

    def generator(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(self(*key))


@dataclass(frozen=True)
class Runner:
    """A simulator, and how to run it."""

    simulator: Callable[..., Any]
    vectorized: bool
    summary: Callable[[Any], Any] | None
    n_jobs: int | None

    def run(
        self,
        theta: np.ndarray,
        seeds: Seeds,
        key: tuple[int, ...],
        first: int = 0,
        shape: tuple[int, ...] | None = None,
        done: Callable[[int], Any] = lambda steps: None,
    ) -> Batch:
        """Simulate draws number `first`, `first` + 1, …; `shape` is an output's, where known."""
        if self.vectorized:
            outputs = self._rows(
                self._together(theta, seeds, (*key, first), shape), len(theta), shape
            )
            done(len(theta))
            flat = outputs.reshape(len(theta), -1)
            found = np.isfinite(flat).all(axis=1)
            reason = "returned NaN or infinite values"
            return Batch(theta, flat[found], np.flatnonzero(found), outputs.shape[1:], reason)
        rows: list[np.ndarray] = []
        kept: list[int] = []
        reason = ""
        jobs = (delayed(_attempt)(self, t, seeds, (*key, first + i)) for i, t in enumerate(theta))
        results = Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs)
        for i, (output, failure) in enumerate(results):
            done(1)
            if output is None:
                reason = reason or failure
                continue
            shape = output.shape if shape is None else shape
            if output.shape != shape:
                raise ValueError(
                    f"simulator: draw {first + i}, {_draw_in_words(theta[i])}, gave "
                    f"{_size(output.shape)}, those before it {_size(shape)}. Use a summary that "
                    "makes outputs of one length."
                )
            rows.append(output.ravel())
            kept.append(i)
        outputs = np.stack(rows) if rows else np.empty((0, 0))
        return Batch(theta, outputs, np.array(kept, dtype=int), shape, reason)

    def _together(
        self, theta: np.ndarray, seeds: Seeds, key: tuple[int, ...], shape: tuple[int, ...] | None
    ) -> Any:
        """What the simulator makes of all draws at once."""
        try:
            return self.simulator(theta.copy(), seeds.generator(*key))
        except (TypeError, ValueError, IndexError) as error:
            # one that takes a single draw fails in the first batch, with words of Python's
            if shape is not None or _attempt(self, theta[0], seeds, key)[0] is None:
                raise
            raise ValueError(
                f"simulator: called with all {len(theta)} draws at once, theta of shape "
                f"{theta.shape}, it raised {type(error).__name__}: {str(error)[:100]}. It works on "
                f"a single draw, theta of shape {theta.shape[1:]}: pass vectorized=False."
            ) from error

    def _rows(self, raw: Any, n: int, shape: tuple[int, ...] | None) -> np.ndarray:
        """A batch of outputs, one row each."""
        array = _numbers(raw if self.summary is None else self.summary(raw))
        if array.ndim == 0 or len(array) != n:
            got = "one number" if array.ndim == 0 else f"{len(array)}"
            raise ValueError(
                f"simulator: called with {n} draws, expected {n} rows, got {got}. It is "
                "called as simulator(theta, rng) with theta (n, d); one that takes a single draw "
                "goes with vectorized=False."
            )
        array = array[:, None] if array.ndim == 1 else array
        if not array[0].size:
            raise ValueError("simulator: expected a row of numbers for each draw, got no numbers.")
        if shape is not None and array.shape[1:] != shape:
            raise ValueError(
                f"simulator: outputs had {_size(shape)} before, and now {_size(array.shape[1:])}."
            )
        return array


@dataclass(frozen=True)
class Batch:
    """Draws, and the outputs of those that did not fail."""

    theta: np.ndarray
    outputs: np.ndarray  # (kept, p)
    kept: np.ndarray
    shape: tuple[int, ...] | None  # of an output as the simulator gives it
    reason: str

    @property
    def lost(self) -> int:
        return len(self.theta) - len(self.kept)

    @property
    def survivors(self) -> np.ndarray:
        """The draws that did not fail."""
        return self.theta[self.kept]

    def first_lost(self) -> int:
        return int(np.setdiff1d(np.arange(len(self.theta)), self.kept)[0])


@dataclass
class Simulations:
    """What has been simulated so far; it only grows.

    Rounds are the prior itself, then the prior truncated to one box per round. A draw depends on
    its round and its number alone, so that simulating in several calls gives the draws of one.
    """

    _functions: ClassVar[tuple[str, ...]] = ("prior",)

    seeds: Seeds
    prior: Prior
    d: int
    theta: np.ndarray = field(init=False)
    outputs: np.ndarray = field(init=False)
    shape: tuple[int, ...] | None = None
    boxes: list[np.ndarray | None] = field(default_factory=lambda: [None])
    drawn: list[int] = field(default_factory=lambda: [0])  # from each round, failures too
    asked: list[np.ndarray | None] = field(default_factory=lambda: [None])
    masses: dict[int, float] = field(default_factory=dict)  # of each round's box

    def __post_init__(self) -> None:
        self.theta = np.empty((0, self.d))
        self.outputs = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def n_failed(self) -> int:
        """Draws that were left out."""
        return sum(self.drawn) - len(self)

    def add_round(self, box: np.ndarray, y: np.ndarray | None = None) -> int:
        """A further round, in a box [low, high], for an observation; its number."""
        self.__dict__.update(
            boxes=[*self.boxes, box], asked=[*self.asked, y], drawn=[*self.drawn, 0]
        )
        return len(self.boxes) - 1

    def extend(self, runner: Runner, goal: int, turn: int, progress: bool | None) -> None:
        """Simulate draws of a round until there are `goal` simulations in all."""
        missing = goal - len(self)
        before = sum(self.drawn)
        box = self.boxes[turn]
        prior = self.prior if box is None else self.prior.within(*box)
        lost, reason = 0, ""
        with progress_bar(missing, "simulations", progress, "draw") as done:
            while len(self) < goal:
                start = self.drawn[turn]
                stop = start + min(goal - len(self), BATCH)
                theta = prior.rows(start, stop, lambda i: self.seeds(DRAWS, turn, i))
                batch = runner.run(theta, self.seeds, (NOISE, turn), start, self.shape, done)
                lost, reason = lost + batch.lost, batch.reason if batch.lost else reason
                tried = sum(self.drawn) + len(theta) - before
                whole = len(theta) >= SIZEABLE and batch.lost > MANY * len(theta)
                if whole or lost > MANY * tried:
                    i = batch.first_lost() if batch.lost else 0
                    raise ValueError(
                        f"simulator: {lost} of {tried} draws failed; draw "
                        f"{sum(self.drawn) + i}, {_draw_in_words(theta[i])}, {reason}. Fix the "
                        "simulator, or narrow the prior to where it works."
                    )
                self._keep(batch, turn)
        if lost:
            tried = sum(self.drawn) - before
            warn(
                f"simulator: {lost} of {tried} draws failed and were left out (the last "
                f"{reason}). Posteriors are those given that a simulation succeeds.",
                DataWarning,
            )

    def _keep(self, batch: Batch, turn: int) -> None:
        state: dict[str, Any] = {"drawn": list(self.drawn)}
        state["drawn"][turn] += len(batch.theta)
        if len(batch.kept):
            outputs = [self.outputs, batch.outputs] if len(self) else [batch.outputs]
            state["outputs"] = np.concatenate(outputs)
            state["theta"] = np.concatenate([self.theta, batch.survivors])
            state["shape"] = batch.shape
        self.__dict__.update(state)  # one assignment: an interrupt keeps all of a batch or nothing

    def weights(self) -> np.ndarray:
        """Weights that make the draws of all rounds a sample of the prior.

        A draw's density is `π(θ) Σ_k (n_k/n) 1(θ ∈ B_k)/π(B_k)`, B_k the box of round k and n_k
        the draws from it, those that failed too.
        """
        n = sum(self.drawn)
        share = np.zeros(len(self))
        for k, (box, count) in enumerate(zip(self.boxes, self.drawn, strict=True)):
            if box is None:
                share += count / n
            elif count:
                low, high = box
                if k not in self.masses:
                    rng = self.seeds.generator(MASSES, k)
                    self.masses[k] = self.prior.mass(low, high, rng)
                here = in_box(self.theta, low, high)
                share += np.where(here, count / n / self.masses[k], 0.0)
        weights = 1 / share
        return weights / weights.sum()


def _attempt(runner: Runner, theta: np.ndarray, seeds: Seeds, key: tuple[int, ...]) -> Any:
    """One draw: the output, or why it failed.

    A draw that fails is not simulated again: trying until it succeeds would favour parameters that
    often fail, beyond their share of the simulations that succeed.
    """
    try:
        raw = runner.simulator(theta.copy(), seeds.generator(*key, 0))
        output = np.atleast_1d(_numbers(raw if runner.summary is None else runner.summary(raw)))
    except Exception as error:  # a simulator may raise anything
        return None, f"raised {type(error).__name__}: {str(error)[:100]}"
    if output.size and np.isfinite(output).all():
        return output, ""
    return None, "returned NaN or infinite values" if output.size else "returned nothing"


def _numbers(values: Any) -> np.ndarray:
    """What a simulator or a summary gave, as an array of floats."""
    try:
        if values is None or isinstance(values, str | dict | set):
            raise TypeError(f"{values!r:.40}")
        array = np.asarray(to_numpy(values) if is_array(values) else values)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers; give real and imaginary parts as two columns")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"simulator: expected an array of numbers, one row per draw, got "
            f"{checks.describe(values)} ({error}). Outputs of different lengths need a summary "
            "that makes them of one length."
        ) from error


def _draw_in_words(theta: np.ndarray) -> str:
    return f"{theta.tolist()!r:.80}"


def _size(shape: tuple[int, ...]) -> str:
    """The size of an output in words."""
    return f"{shape[0]} numbers" if len(shape) == 1 else f"a table {shape}"
