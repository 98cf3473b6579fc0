"""Belief propagation by mixtures of Gaussians."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from meanmap_experiments.fields import (
    FLOOR,
    Beliefs,
    Bins,
    Field,
    Jumps,
    Links,
    Potential,
    Tabulated,
    Unary,
    scaled,
)

CELLS = 200  # of the grid on which nodes are looked at
COARSER = 3  # every third of them where potentials are fitted
ROUNDS = 60  # of the fit
BLOCK = 2048  # rows of mixtures at once


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Mixtures of normal densities, one per row: weights (not normalised), means, variances."""

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    def __len__(self) -> int:
        return len(self.weights)

    def at(self, rows: np.ndarray | slice) -> Mixtures:
        return Mixtures(self.weights[rows], self.means[rows], self.variances[rows])

    def put(self, rows: np.ndarray | slice, part: Mixtures) -> None:
        """Write rows of as many components or fewer."""
        k = part.weights.shape[1]
        for whole, piece in zip(self._arrays, part._arrays, strict=True):
            whole[rows, :k] = piece
        self.weights[rows, k:] = 0.0

    def __mul__(self, other: Mixtures) -> Mixtures:
        """Products of rows: each component of one with each of the other."""
        v1, v2 = self.variances[:, :, None], other.variances[:, None, :]
        m1, m2 = self.means[:, :, None], other.means[:, None, :]
        total = v1 + v2
        weights = (m1 - m2) ** 2
        weights /= -2 * total
        weights -= 0.5 * np.log(total)
        with np.errstate(divide="ignore"):
            weights += np.log(self.weights)[:, :, None] + np.log(other.weights)[:, None, :]
        means = (m1 * v2 + m2 * v1) / total
        rows = (len(self), -1)
        return Mixtures(
            scaled(weights.reshape(rows)), means.reshape(rows), (v1 * v2 / total).reshape(rows)
        )

    def reduced(self, count: int) -> Mixtures:
        """Fewer components of the same mean and variance.

        In their order, neighbours are merged that lose least by it (Runnalls 2007), up to half of
        the disjoint pairs at a time.
        """
        n = self.weights.shape[1]
        if n <= count:
            return self
        order = np.argsort(self.means, axis=1)
        w, m, v = (np.take_along_axis(x, order, axis=1) for x in self._arrays)
        w = np.maximum(w, FLOOR)
        parity = 0
        while n > count:
            ends = parity + 2 * ((n - parity) // 2)
            left, right = np.s_[:, parity:ends:2], np.s_[:, parity + 1 : ends : 2]
            total = w[left] + w[right]
            share = w[left] / total
            apart = m[left] - m[right]
            mean = m[right] + share * apart
            variance = share * v[left] + (1 - share) * v[right] + share * (1 - share) * apart**2
            loss = total * np.log(variance)
            loss -= w[left] * np.log(v[left])
            loss -= w[right] * np.log(v[right])
            merges = min(max(1, loss.shape[1] // 2), n - count)
            rows = np.arange(len(w))[:, None]
            best = np.argpartition(loss, merges - 1, axis=1)[:, :merges]
            at = parity + 2 * best
            w[rows, at], m[rows, at], v[rows, at] = (x[rows, best] for x in (total, mean, variance))
            keep = np.ones(w.shape, dtype=bool)
            keep[rows, at + 1] = False
            n -= merges
            w, m, v = (x[keep].reshape(-1, n) for x in (w, m, v))
            parity = 1 - parity if n > 2 else 0
        return Mixtures(w / w.max(axis=1, keepdims=True), m, v)

    @property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.weights, self.means, self.variances

    def logs(self, values: np.ndarray) -> np.ndarray:
        """Logarithms of the rows' values at (k,) values."""
        total = np.zeros((len(self), len(values)))
        for w, m, v in zip(*(x.T[:, :, None] for x in self._arrays), strict=True):
            total += w / np.sqrt(v) * np.exp(-((values - m) ** 2) / (2 * v))
        return np.log(np.maximum(total, FLOOR))


@dataclass(frozen=True, eq=False)
class Quadratics:
    """A potential as a sum of exp(c + h_a a + h_b b - (p_aa a² + 2 p_ab a b + p_bb b²) / 2)."""

    constant: np.ndarray
    linear: np.ndarray  # (components, 2)
    precision: np.ndarray  # (components, 2, 2)

    @classmethod
    def jumps(cls, potential: Jumps) -> Quadratics:
        """In closed form."""
        shares, steps = np.array(potential.shares), np.array(potential.steps)
        p = potential.noise**-2
        constant = np.log(shares) + np.log(p / (2 * np.pi)) / 2 - steps**2 * p / 2
        precision = np.tile(p * np.array([[1.0, -1.0], [-1.0, 1.0]]), (len(steps), 1, 1))
        return cls(constant, p * np.column_stack([-steps, steps]), precision)

    @classmethod
    def normal(cls, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> Quadratics:
        """Of normal densities."""
        precision = np.linalg.solve(covariances, np.eye(2))  # 2 × 2, and kept as numbers
        linear = np.einsum("kij,kj->ki", precision, means)
        _, log = np.linalg.slogdet(2 * np.pi * covariances)
        constant = np.log(weights) - log / 2 - (linear * means).sum(axis=1) / 2
        return cls(constant, linear, precision)

    def push(self, before: Mixtures, forward: bool) -> Mixtures:
        """∫ ψ(a, b) before(a) da as mixtures over b, or over a where not forward."""
        a, b = (0, 1) if forward else (1, 0)
        m, v = before.means[:, :, None], before.variances[:, :, None]
        P = self.precision[:, a, a] + 1 / v
        h = self.linear[:, a] + m / v
        cross = self.precision[:, a, b]
        Q = np.maximum(self.precision[:, b, b] - cross**2 / P, 1e-12)
        r = self.linear[:, b] - cross * h / P
        with np.errstate(divide="ignore"):
            logs = np.log(before.weights)[:, :, None] + self.constant
        logs = logs + (h * h / P - m * m / v + r * r / Q - np.log(P * v * Q)) / 2
        rows = (len(before), -1)
        return Mixtures(scaled(logs.reshape(rows)), (r / Q).reshape(rows), (1 / Q).reshape(rows))


def fitted(x: np.ndarray, table: np.ndarray, count: int) -> Quadratics:
    """Normal components fitted to a table over (x, x) by expectation and maximisation."""
    step = x[1] - x[0]
    A, B = np.meshgrid(x, x, indexing="ij")
    points = np.column_stack([A.ravel(), B.ravel()])
    w = table.ravel() / table.sum()
    points, w = points[w > 1e-7 * w.max()], w[w > 1e-7 * w.max()]
    rng = np.random.default_rng(0)
    # centres far from one another, drawn by weight and distance (Arthur and Vassilvitskii 2007)
    centres = points[[int(rng.choice(len(w), p=w / w.sum()))]]
    while len(centres) < count:
        near = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1) * w
        if near.sum() <= 0:
            break
        centres = np.vstack([centres, points[int(rng.choice(len(w), p=near / near.sum()))]])
    apart = ((points[:, None] - centres) ** 2).sum(axis=2)
    belongs = np.eye(len(centres))[apart.argmin(axis=1)]
    features = np.column_stack(
        [np.ones(len(points)), points, points[:, 0] ** 2, points.prod(axis=1), points[:, 1] ** 2]
    )
    for _ in range(ROUNDS):
        moments = (belongs * w[:, None]).T @ features
        mass = np.maximum(moments[:, 0], 1e-12)
        mean = moments[:, 1:3] / mass[:, None]
        second = moments[:, [3, 4, 4, 5]].reshape(-1, 2, 2) / mass[:, None, None]
        covariance = second - mean[:, :, None] * mean[:, None, :]
        covariance = covariance + np.eye(2) * step**2 / 4
        found = Quadratics.normal(mass, mean, covariance)
        p = found.precision
        inner = np.column_stack(
            [found.constant, found.linear, -p[:, 0, 0] / 2, -p[:, 0, 1], -p[:, 1, 1] / 2]
        )
        belongs = scaled(features @ inner.T)
        belongs /= belongs.sum(axis=1, keepdims=True)
    return found


class MixtureBP:
    """Belief propagation with messages that are mixtures of Gaussians (Sudderth et al. 2003).

    Potentials are sums of Gaussians, so a message that starts from a mixture arrives as one, in
    closed form. Products of messages are exact for two mixtures at a time and then reduced again by
    merging, which for single numbers is faster than to draw from them and does not depend on luck.
    What is known at a node enters as a mixture too, merged from its values on a fine grid.

    Parameters
    ----------
    field : Field
    components : int
        Of each message.
    share : float
        Learned potentials are p(s, t) / (p(s) p(t)), which no mixture fits well where little was
        seen. They are fitted as p(s, t) / (p(s) p(t))^share, and the rest is moved to the nodes;
        the field is the same.

    Examples
    --------
    >>> from meanmap_experiments.fields import Template
    >>> near = Template(np.array([0]), np.array([1]), Jumps((1.0,), (0.0,), 0.5))
    >>> field = Field(2, (near,), lambda nodes, values: -((values - 1.0) ** 2), -4.0, 4.0)
    >>> MixtureBP(field).run(4).mean.round(2)
    array([1., 1.])
    """

    def __init__(self, field: Field, components: int = 10, share: float = 0.75) -> None:
        self.field, self.components, self.share = field, components, share
        self._bins = Bins.even(field.low, field.high, CELLS)
        self._ends: list[tuple[np.ndarray, np.ndarray]] = []  # nodes, what is moved there
        made: dict[int, Quadratics] = {}
        for template in field.templates:
            potential = template.potential
            moved = self._moved(potential)
            if moved is not None:
                for nodes, logs in zip((template.tails, template.heads), moved, strict=True):
                    self._ends.append((np.asarray(nodes), logs))
            if id(potential) not in made:
                made[id(potential)] = self._quadratics(potential, moved)
        self._potentials = [made[id(potential)] for _, potential, _ in field.links.parts]
        self._slots = slots(field.links, field.count)

    def _moved(self, potential: Potential) -> tuple[np.ndarray, np.ndarray] | None:
        """Logarithms of the powers of the marginals that nodes lose to an edge, on the grid."""
        if not isinstance(potential, Tabulated) or potential.marginals is None:
            return None
        found = []
        for p in potential.marginals:
            p = (p / potential.bins.widths)[potential.bins.index(self._bins.centres)]
            found.append((1 - self.share) * np.log(np.maximum(p, 1e-4 * p.max())))
        return found[0], found[1]

    def _quadratics(
        self, potential: Potential, moved: tuple[np.ndarray, np.ndarray] | None
    ) -> Quadratics:
        if isinstance(potential, Jumps):
            return Quadratics.jumps(potential)
        x = self._bins.centres
        table = potential.values(x[:, None], x[None, :])
        if moved is not None:
            table = table * np.exp(moved[0])[:, None] * np.exp(moved[1])
        return fitted(x[1::COARSER], table[1::COARSER, 1::COARSER], self.components)

    def run(self, iterations: int = 10, evidence: Unary | None = None) -> Beliefs:
        """Iterate; beliefs are products of the messages, evaluated on a grid."""
        began = time.perf_counter()
        field, links, x, k = self.field, self.field.links, self._bins.centres, self.components
        local = field.everywhere(x, evidence)
        for nodes, logs in self._ends:
            np.subtract.at(local, nodes, logs)
        local = np.maximum(local, np.log(FLOOR) + local.max(axis=1, keepdims=True))
        width = np.full(local.shape, self._bins.widths[0] ** 2 / 4)
        known = in_blocks(Mixtures(scaled(local), np.tile(x, (len(local), 1)), width), None, k)
        messages = self._flat()
        mean, change = self._mean(messages, local), np.inf
        for i in range(iterations):
            before = self._cavities(known, messages)
            messages = self._flat()
            for (part, _, forward), potential in zip(links.parts, self._potentials, strict=True):
                messages.put(part, potential.push(before.at(part), forward).reduced(k))
            if i + 2 >= iterations:
                old, mean = mean, self._mean(messages, local)
                change = float(abs(mean - old).max())
        heights = self._belief(messages, local)

        def density(node: int, values: np.ndarray) -> np.ndarray:
            return np.interp(values, x, heights[node], left=0.0, right=0.0)

        return Beliefs(mean, time.perf_counter() - began, iterations, change, density)

    def _flat(self) -> Mixtures:
        """Messages that say nothing, a last one for the neighbours that a node has not."""
        shape = (len(self.field.links.source) + 1, self.components)
        weights = np.zeros(shape)
        weights[:, 0] = 1.0
        reach = self.field.high - self.field.low
        middle = np.full(shape, (self.field.high + self.field.low) / 2)
        return Mixtures(weights, middle, np.full(shape, 1e6 * reach**2))

    def _cavities(self, known: Mixtures, messages: Mixtures) -> Mixtures:
        """What each message starts from: for every node the products that leave one message out."""
        degree, k = self._slots.shape[1], self.components
        arriving = [messages.at(self._slots[:, j]) for j in range(degree)]
        before, after = [known], [arriving[-1]]
        for j in range(degree - 1):
            before.append(in_blocks(before[-1], arriving[j], k))
        for j in range(degree - 2, 0, -1):
            after.append(in_blocks(arriving[j], after[-1], k))
        after.reverse()  # after[j] is the product of the messages beyond j
        found = self._flat()
        for j in range(degree):
            out = before[j] if j == degree - 1 else in_blocks(before[j], after[j], k)
            there = self._slots[:, j] < len(self.field.links.source)
            found.put(self.field.links.reverse[self._slots[there, j]], out.at(there))
        return found

    def _belief(self, messages: Mixtures, local: np.ndarray) -> np.ndarray:
        """Densities on the grid."""
        x, total = self._bins.centres, local.copy()
        for start in range(0, len(local), BLOCK):
            rows = slice(start, start + BLOCK)
            for j in range(self._slots.shape[1]):
                total[rows] += messages.at(self._slots[rows, j]).logs(x)
        p = scaled(total)
        return p / p.sum(axis=1, keepdims=True) / self._bins.widths[0]

    def _mean(self, messages: Mixtures, local: np.ndarray) -> np.ndarray:
        return self._belief(messages, local) @ self._bins.centres * self._bins.widths[0]


def in_blocks(one: Mixtures, other: Mixtures | None, count: int) -> Mixtures:
    """One, or its products with another, reduced; in blocks that a processor's cache holds."""
    found = Mixtures(*(np.zeros((len(one), count)) for _ in range(3)))
    for start in range(0, len(one), BLOCK):
        rows = slice(start, start + BLOCK)
        part = one.at(rows) if other is None else one.at(rows) * other.at(rows)
        found.put(rows, part.reduced(count))
    return found


def slots(links: Links, count: int) -> np.ndarray:
    """The messages that arrive at each node, (nodes, largest degree), one past the last for none.

    Examples
    --------
    >>> from meanmap_experiments.fields import Template
    >>> path = Template(np.array([0, 1]), np.array([1, 2]), Jumps((1.0,), (0.0,), 1.0))
    >>> slots(Field(3, (path,), lambda nodes, values: 0 * values, -1.0, 1.0).links, 3)
    array([[2, 4],
           [0, 3],
           [1, 4]])
    """
    order = np.argsort(links.target, kind="stable")
    degrees = np.bincount(links.target, minlength=count)
    place = np.arange(len(order)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    found = np.full((count, max(1, int(degrees.max(initial=0)))), len(order))
    found[links.target[order], place] = order
    return found
