"""Belief propagation by bins and by particles.

Both take a `Field`, and every step moves all messages of a template at once.
"""

from __future__ import annotations

import time

import numpy as np

from meanmap_experiments.fields import FLOOR, Beliefs, Bins, Field, Unary, scaled

PAIRS = 2_000_000  # of particles whose potential is held at once
CELLS = 200  # where what is known at a node is first looked at

# --- bins -----------------------------------------------------------------------------------------


class DiscreteBP:
    """Sums and products on bins, all messages at once.

    Parameters
    ----------
    field : Field
    bins : Bins
        The same for all nodes; few for the method as people use it, hundreds for a reference.
    inside : int
        Values in a bin over which what is known at a node is averaged.
    damping : float
        The share of its old logarithm that a message keeps.
    """

    def __init__(self, field: Field, bins: Bins, inside: int = 1, damping: float = 0.0) -> None:
        self.field, self.bins, self.damping = field, bins, damping
        x = bins.centres
        self._tables = []  # (bins of the source, bins of the target)
        for _, potential, forward in field.links.parts:
            table = potential.values(x[:, None], x[None, :])
            self._tables.append((table if forward else table.T) * bins.widths[:, None])
        self._inside = inside

    def run(
        self, iterations: int = 10, evidence: Unary | None = None, tolerance: float = 0.0
    ) -> Beliefs:
        """Iterate until no mean moves by more than the tolerance, or `iterations` times."""
        began = time.perf_counter()
        links, local = self.field.links, self._known(evidence)
        logs = np.zeros((len(links.source), len(self.bins)))
        mean, change, done = self._mean(logs, local), np.inf, 0
        while done < iterations and change > tolerance:
            before = scaled(links.cavity(logs, local))
            new = np.empty_like(logs)
            for (part, _, _), table in zip(links.parts, self._tables, strict=True):
                new[part] = before[part] @ table
            new /= new.max(axis=1, keepdims=True)
            np.log(np.maximum(new, FLOOR), out=new)
            logs = (1 - self.damping) * new + self.damping * logs if self.damping else new
            old, mean = mean, self._mean(logs, local)
            change, done = float(abs(mean - old).max()), done + 1
        p = self._probabilities(logs, local)
        heights = p / self.bins.widths

        def density(node: int, values: np.ndarray) -> np.ndarray:
            """Between the bins' centres on straight lines, for few bins nearer than steps."""
            x, inside = self.bins.edges, np.clip(values, self.bins.edges[0], self.bins.edges[-1])
            found = np.interp(inside, self.bins.centres, heights[node])
            return np.where((values >= x[0]) & (values <= x[-1]), found, 0.0)

        return Beliefs(mean, time.perf_counter() - began, done, change, density)

    def _known(self, evidence: Unary | None) -> np.ndarray:
        """Logarithms of what is known at the nodes, averaged over each bin."""
        bins, inside = self.bins, self._inside
        shares = (np.arange(inside) + 0.5) / inside
        places = (bins.edges[:-1, None] + bins.widths[:, None] * shares).ravel()
        known = self.field.everywhere(places, evidence)
        top = known.max(axis=1, keepdims=True)
        values = np.exp(known - top).reshape(-1, len(bins), inside).mean(axis=2)
        return np.log(np.maximum(values, FLOOR))

    def _probabilities(self, logs: np.ndarray, local: np.ndarray) -> np.ndarray:
        p = scaled(local + self.field.links.into @ logs) * self.bins.widths
        return p / p.sum(axis=1, keepdims=True)

    def _mean(self, logs: np.ndarray, local: np.ndarray) -> np.ndarray:
        return self._probabilities(logs, local) @ self.bins.centres


# --- particles ------------------------------------------------------------------------------------


class ParticleBP:
    """Particle belief propagation (Ihler and McAllester 2009).

    A node has particles, drawn from what was believed of it; messages are known at the particles of
    the node they go to, as sums over those of the node they come from, weighed by what the source
    believes now over what it believed when they were drawn. After every `redraw` iterations the
    particles are resampled and moved by Metropolis steps towards the present belief. An iteration
    costs the square of the particles for every message, and so does a Metropolis step.

    Parameters
    ----------
    field : Field
        A potential that costs much to compute is better passed as `Tabulated`.
    particles : int
        A node.
    steps : int
        Metropolis steps of each particle when they are redrawn.
    redraw : int
        Iterations between draws.
    average : int
        The last iterations over which means are averaged: each has particles of its own.
    rng : seed or Generator

    Examples
    --------
    >>> from meanmap_experiments.fields import Jumps, Template
    >>> near = Template(np.array([0]), np.array([1]), Jumps((1.0,), (0.0,), 0.5))
    >>> field = Field(2, (near,), lambda nodes, values: -((values - 1.0) ** 2), -4.0, 4.0)
    >>> bool(abs(ParticleBP(field, 400).run(4).mean - 1.0).max() < 0.2)
    True
    """

    def __init__(
        self,
        field: Field,
        particles: int = 100,
        steps: int = 1,
        redraw: int = 1,
        average: int = 1,
        rng: int | np.random.Generator | None = 0,
    ) -> None:
        self.field, self.particles = field, particles
        self.steps, self.redraw, self.average = steps, redraw, average
        self.rng = np.random.default_rng(rng)

    def run(self, iterations: int = 10, evidence: Unary | None = None) -> Beliefs:
        """Iterate, and look once more with the last particles."""
        began = time.perf_counter()
        field, links, nodes = self.field, self.field.links, np.arange(self.field.count)
        x, drawn = self._start(evidence)
        local = field.local(nodes, x, evidence)
        logs = np.zeros((len(links.source), self.particles))
        means = [self._mean(x, local + links.into @ logs - drawn)]
        for i in range(iterations):
            weights = scaled(links.cavity(logs, local) - drawn[links.source])
            logs = self._arrive(x, weights, x)
            total = local + links.into @ logs
            if (i + 1) % self.redraw == 0 and i + 1 < iterations:
                x, drawn, logs = self._redraw(x, weights, total, drawn, logs, evidence)
                local = field.local(nodes, x, evidence)
                total = local + links.into @ logs
            means.append(self._mean(x, total - drawn))
        change = float(abs(means[-1] - means[-2]).max())
        mean = np.mean(means[-self.average :], axis=0)
        seconds = time.perf_counter() - began

        def density(node: int, values: np.ndarray) -> np.ndarray:
            """What is known at the node times messages, both at the values."""
            arriving = np.flatnonzero(links.target == node)
            points = np.broadcast_to(values, (field.count, len(values)))
            log = field.local(np.array([node]), np.asarray(values)[None], evidence)[0]
            log = log + self._arrive(x, weights, points, arriving).sum(axis=0)
            p = scaled(log)
            return p / np.trapezoid(p, values)

        return Beliefs(mean, seconds, iterations, change, density)

    def _start(self, evidence: Unary | None) -> tuple[np.ndarray, np.ndarray]:
        """Particles from what is known at nodes, a tenth anywhere, and the logarithm of that."""
        field = self.field
        bins = Bins.even(field.low, field.high, CELLS)
        p = scaled(field.everywhere(bins.centres, evidence))
        p = 0.9 * p / p.sum(axis=1, keepdims=True) + 0.1 / CELLS
        below = np.cumsum(p, axis=1)
        u = (np.arange(self.particles) + self.rng.random((field.count, 1))) / self.particles
        at = np.array([np.searchsorted(c, row) for c, row in zip(below, u, strict=True)])
        at = np.minimum(at, CELLS - 1)
        rows = np.arange(field.count)[:, None]
        inside = 1 - (below[rows, at] - u) / p[rows, at]
        return bins.edges[at] + bins.widths[0] * np.clip(inside, 0, 1), np.log(p[rows, at])

    def _arrive(
        self,
        x: np.ndarray,
        weights: np.ndarray,
        points: np.ndarray,
        only: np.ndarray | None = None,
    ) -> np.ndarray:
        """Logarithms of messages at points (nodes, k) of their targets; all, or only some."""
        links = self.field.links
        found = np.empty((len(links.source), points.shape[1]))
        for part, potential, forward in links.parts:
            which = np.arange(part.start, part.stop)
            if only is not None:
                which = np.intersect1d(which, only)
            step = max(1, PAIRS // (x.shape[1] * points.shape[1]))
            for start in range(0, len(which), step):
                e = which[start : start + step]
                a, b = x[links.source[e]][:, None, :], points[links.target[e]][:, :, None]
                psi = potential.values(a, b) if forward else potential.values(b, a)
                found[e] = (psi @ weights[e][:, :, None])[:, :, 0]
        # not scaled: at whichever points, on the one scale that the weights give
        return np.log(np.maximum(found if only is None else found[only], FLOOR))

    def _redraw(
        self,
        x: np.ndarray,
        weights: np.ndarray,
        total: np.ndarray,
        drawn: np.ndarray,
        logs: np.ndarray,
        evidence: Unary | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """New particles, the logarithm of the belief they are drawn from, and messages there."""
        field, links = self.field, self.field.links
        n, k = x.shape
        rows = np.arange(n)[:, None]
        p = scaled(total - drawn)
        p /= p.sum(axis=1, keepdims=True)
        spread = np.sqrt((p * (x - (p * x).sum(axis=1, keepdims=True)) ** 2).sum(axis=1))
        # systematic resampling, all nodes at once: how often is each particle kept?
        u = (np.arange(k) + self.rng.random((n, 1))) / k
        ends = np.cumsum(p, axis=1)
        ends[:, -1] = 1.0
        upto = np.ceil(ends * k - u[:, :1] * k).astype(np.intp)  # of u that lie below each end
        copies = np.diff(upto, axis=1, prepend=0)
        at = np.repeat(np.tile(np.arange(k), n), copies.ravel()).reshape(n, k)
        new, belief = x[rows, at], total[rows, at]
        there = np.take_along_axis(logs, at[links.target], axis=1)
        nodes = np.arange(n)
        for _ in range(self.steps):
            # steps of many lengths, so that some reach another mode; symmetric, so no correction
            reach = np.exp(self.rng.uniform(np.log(0.05), np.log(3.0), (n, k)))
            moved = new + reach * (spread[:, None] + 1e-9) * self.rng.normal(size=(n, k))
            messages = self._arrive(x, weights, moved)
            tried = field.local(nodes, moved, evidence) + links.into @ messages
            tried[(moved < field.low) | (moved > field.high)] = -np.inf
            accept = np.log(self.rng.random((n, k))) < tried - belief
            new, belief = np.where(accept, moved, new), np.where(accept, tried, belief)
            there = np.where(accept[links.target], messages, there)
        return new, belief, there

    def _mean(self, x: np.ndarray, logs: np.ndarray) -> np.ndarray:
        p = scaled(logs)
        return (p * x).sum(axis=1) / p.sum(axis=1)
