"""How well a target is predicted from sets of columns, and a search by that.

HSIC says how much two variables depend on each other under one bandwidth, and a column of little
weight dilutes what the others say. The error of the conditional embedding of the target given some
columns, `E‖φ(y) - μ_Y|x‖²`, falls with every column that says something new and rises with the
others (Chen, Stern, Wainwright and Jordan 2017, who minimise it). It is known in closed form for
every row left out, so that sets of any size can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.conditional.selection import RegressionSample, leave_one_out
from meanmap.kernels import Kernel
from meanmap.learning.feature_search import SelectionPath, removal_count
from meanmap.learning.targets import Target
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis, Nystroem
from meanmap.spaces.space import fit_space_quietly

ROWS = 600  # at most, on which columns are judged
LANDMARKS = 120
COORDINATES = 20  # of the target, at most
FACTORS = (1.5, 3.0, 6.0)  # times the bandwidth of HSIC: regressions want wider kernels
MORE = 4  # columns beyond those asked for that each search sends in, at least
EXCHANGES = 4  # rounds in which columns outside are tried beside those chosen, at most
TRIED = 300  # columns that are tried in each, the best ones by dependence
EXPLAINED = "share explained"


@dataclass(frozen=True)
class LeftOutErrors:
    """The squared error of the target's features given columns, over their variance."""

    X: np.ndarray  # (n, d) on the scale that the kernel is to see, in random order
    kernel: Kernel
    target: Target
    rows: np.ndarray  # of the target
    basis: Basis | None

    @cached_property
    def _targets(self) -> np.ndarray:
        """Coordinates of the target: its leading principal ones, centred."""
        phi = self.target.coordinates(self.rows)
        phi = phi - phi.mean(axis=0)
        if phi.shape[1] <= COORDINATES:
            return phi
        spectrum = Spectrum.of(phi.T @ phi)
        return phi @ spectrum.vectors[:, -COORDINATES:]

    @cached_property
    def kernels(self) -> list[Kernel]:
        """The kernel at several bandwidths; as it is if it has none, or one that is a number."""
        open_ = isinstance(getattr(self.kernel, "bandwidth", None), str)
        return [self.kernel.rescaled(f) for f in FACTORS] if open_ else [self.kernel]

    def at(self, columns: Sequence[int], which: int) -> float:
        """The error of a set with one of the kernels, at the best λ."""
        x = self.X[:, list(columns)]
        basis = (
            Nystroem(min(LANDMARKS, len(x)), random_state=0) if self.basis is None else self.basis
        )
        _, psi = fit_space_quietly(self.kernels[which].resolve(x), basis, x)
        psi = np.asarray(psi, dtype=np.float64)
        psi = psi - psi.mean(axis=0)
        n, phi = len(psi), self._targets
        norms = (phi * phi).sum(axis=1)
        sample = RegressionSample(psi, phi, np.full(n, 1 / n), norms)
        found = leave_one_out(Spectrum.of(psi.T @ psi / n), sample, centered=True)
        return float(np.min(found.errors)) / max(float(norms.mean()), 1e-300)

    def best(self, columns: Sequence[int]) -> tuple[float, int]:
        """The least error of a set, and the kernel that has it."""
        errors = [self.at(columns, i) for i in range(len(self.kernels))]
        return min(errors), int(np.argmin(errors))


def refine(
    errors: LeftOutErrors,
    pool: Sequence[int],
    k: int | None,
    step: Callable[[int], int],
    done: Callable[[int], Any],
) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
    """Backward elimination by errors of rows left out: best first, scores, path.

    It ends at k columns, or at one where k is None, and then takes the set of least error. Scores
    are by how much the error grows without a column when it is judged for the last time.
    """
    S, out = list(pool), list[int]()
    scores = np.zeros(errors.X.shape[1])
    sets: list[tuple[list[int], float]] = []
    while True:
        whole, which = errors.best(S)
        sets.append((list(S), whole))
        rest = [errors.at([c for c in S if c != j], which) for j in S] if len(S) > 1 else [1.0]
        done(len(S))
        gained = np.array(rest) - whole
        scores[S] = gained
        if len(S) == (k or 1):
            break
        worst = np.lexsort((-np.array(S), gained))[: removal_count(len(S), k or 1, step)]
        out.extend(S[i] for i in worst)
        S = [c for i, c in enumerate(S) if i not in set(worst.tolist())]
    path = SelectionPath(
        np.array([len(s) for s, _ in sets]), np.array([1 - e for _, e in sets]), EXPLAINED
    )
    S = sorted(S, key=lambda j: -scores[j])
    return np.array([*S, *out[::-1]], dtype=int), scores, path


def exchange(
    errors: LeftOutErrors, chosen: Sequence[int], others: Sequence[int], scores: np.ndarray
) -> tuple[list[int], np.ndarray, float]:
    """As many columns with a lower error, some of them from others; scores, and the error.

    A column whose dependence is lost in noise by itself may stand out beside those that explain
    most of the target. So each of the others is tried as one more, and elimination goes on with the
    best of them, as long as that helps.
    """
    S = list(chosen)
    error, which = errors.best(S)
    for _ in range(EXCHANGES):
        outside = [j for j in others if j not in set(S)][:TRIED]
        found = [errors.at([*S, j], which) for j in outside]
        joined = [*S, *(outside[i] for i in np.argsort(found, kind="stable")[:MORE])]
        order, gained, path = refine(errors, joined, len(S), lambda left: 1, lambda sets: None)
        if not 1 - path.dependence[-1] < error:
            break
        S = order[: len(S)].tolist()
        scores = np.where(gained != 0, gained, scores)
        error, which = errors.best(S)
    return S, scores, error


def judged_sets(pool: int, k: int | None, step: Callable[[int], int]) -> int:
    """How many sets `refine` looks at."""
    found, left = 0, pool
    while left > (k or 1):
        found += left
        left -= removal_count(left, k or 1, step)
    return found + left


def pool_size(k: int | None, d: int) -> int:
    """How many columns of each search are judged again."""
    return min(d, 12 if k is None else max(min(2 * k, k + 10), k + MORE))


def best_number(errors: LeftOutErrors, order: np.ndarray, counts: np.ndarray) -> int:
    """The number of leading columns, of some, that predict the target best."""
    sizes = sorted({int(c) for c in counts if 0 < c <= len(order)})
    found = [errors.best(order[:size].tolist())[0] for size in sizes]
    return sizes[int(np.argmin(found))]
