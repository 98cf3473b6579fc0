"""Belief propagation on a grid of 107 × 86 nodes, against loops over messages, and particles.

Rows of the grid have templates of their own, across and down, with 300 samples each. One loop takes
our formulas message by message: products of incoming messages, at the sample, times the template's
operator. The other takes Song, Fukumizu and Gretton's (2013) eq. 30 as it is printed, with Gram
matrices and a Cholesky factor kept for each template. Particle belief propagation is the one of
`meanmap_experiments`, vectorised over the messages of a template.
"""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import numpy as np
import scipy.linalg
from harness import Contestant, Row, main, peer_threads, race, say
from scipy.ndimage import gaussian_filter

ROWS, COLUMNS = 107, 86
SAMPLES = 300


def grid() -> nx.Graph:
    """Edges across a row alike, and edges down from a row."""
    graph = nx.grid_2d_graph(ROWS, COLUMNS)
    for a, b in graph.edges:
        graph.edges[a, b]["template"] = ("across" if a[0] == b[0] else "down", a[0])
    return graph


def fields(n: int, rng: np.random.Generator) -> np.ndarray:
    """Smooth fields of two levels, with noise."""
    smooth = gaussian_filter(rng.normal(size=(n, ROWS, COLUMNS)), (0, 4, 4))
    return np.sign(smooth) + 6 * smooth + 0.2 * rng.normal(size=smooth.shape)


class Loop:
    """The same messages one at a time."""

    def __init__(self, passing: Any) -> None:
        self.potentials, self.wiring, self.alone = (
            passing.potentials,
            passing.wiring,
            passing.alone,
        )

    def sent(self, state: list[np.ndarray]) -> list[np.ndarray]:
        potentials, wiring = self.potentials, self.wiring
        fresh = [np.zeros_like(beta) for beta in state]
        for kind, links in enumerate(wiring.link):
            rows = potentials.nodes[kind].coordinates
            for node, link_of in enumerate(links):
                here = [slot for slot, link in enumerate(link_of) if link >= 0]
                for slot in here:
                    product = np.exp(self.alone[kind].logs[node])
                    for other in here:
                        if other != slot:
                            values = rows @ state[kind][node, other]
                            product = product * np.maximum(values, potentials.least)
                    beta = product @ potentials.links[link_of[slot]].spread
                    s, to, at = wiring.to[kind][node, slot]
                    fresh[s][to, at] = beta / (beta @ potentials.nodes[s].mean)
        return fresh


class Printed:
    """Eq. 30 one message at a time: β = (K_s + mλI)⁻¹ ⊙ K_t β, factors kept; m samples a template.

    The pairs of a link are those of our sample; its cost, not its result, is what is raced.
    """

    def __init__(self, passing: Any, lam: float = 1e-2) -> None:
        self.wiring = passing.wiring
        nodes = passing.potentials.nodes
        self.gram = [np.asarray(node.space.kernel_(node.points)) for node in nodes]
        self.factors = []
        for K in self.gram:
            ridged = K + len(K) * lam * np.eye(len(K))
            self.factors.append(scipy.linalg.cho_factor(ridged, lower=True, check_finite=False))
        self.beta = [np.full((*link.shape, SAMPLES), 1 / SAMPLES) for link in self.wiring.link]

    def sent(self, nodes: int) -> None:
        """What the first nodes of every kind say."""
        for kind, links in enumerate(self.wiring.link):
            K = self.gram[kind]
            for node, link_of in enumerate(links[:nodes]):
                here = [slot for slot, link in enumerate(link_of) if link >= 0]
                for slot in here:
                    product = np.ones(len(K))
                    for other in here:
                        if other != slot:
                            product = product * (K @ self.beta[kind][node, other])
                    s, _, _ = self.wiring.to[kind][node, slot]
                    scipy.linalg.cho_solve(self.factors[s], product, check_finite=False)


def iteration_rows() -> list[Row]:
    from meanmap import BeliefPropagation
    from meanmap.graphical.evidence import FieldEvidence
    from meanmap.graphical.field import Wiring
    from meanmap.graphical.passing import Passing

    rng = np.random.default_rng(0)
    say(f"a grid of {ROWS} × {COLUMNS}: fit")
    data = fields(21, rng)
    model = BeliefPropagation(grid(), max_samples=SAMPLES, random_state=0).fit(data[1:])
    potentials = model.potentials_

    def likelihood(value: float) -> Any:
        return lambda x: np.exp(-0.5 * (x[:, 0] - value) ** 2)

    evidence = {name: likelihood(data[(0, *name)]) for name in model.nodes_}
    known = FieldEvidence.of(potentials, evidence, 1.0)
    wiring = Wiring.of(potentials.field, known.hidden)
    passing = Passing(potentials, wiring, known.alone(wiring))
    state = passing.start()
    for _ in range(3):
        state = passing.all_sent(state)
    loop = Loop(passing)
    ours, theirs = passing.all_sent(state), loop.sent(state)
    pairs = zip(ours, theirs, strict=True)
    gap = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    say("an iteration")
    printed, some = Printed(passing), 8
    best = race(
        {
            "ours": Contestant(lambda: passing.all_sent(state), calls=5),
            "loop": Contestant(lambda: loop.sent(state), peer_threads()),
            "printed": Contestant(lambda: printed.sent(some), peer_threads()),
        },
        rounds=3,
    )
    sent = sum(int((link[:some] >= 0).sum()) for link in wiring.link)
    messages = sum(int((link >= 0).sum()) for link in wiring.link)
    work = f"an iteration, {ROWS} × {COLUMNS} nodes, {messages:,} messages, {SAMPLES} samples"
    ratio = best["loop"].seconds / best["ours"].seconds
    return [
        Row(
            work,
            "",
            best["ours"].seconds,
            bar="≤ 0.2 s",
            holds=bool(best["ours"].seconds <= 0.2),
        ),
        Row(
            work,
            "a loop over messages, our formulas",
            best["ours"].seconds,
            best["loop"].seconds,
            peer_threads=best["loop"].threads,
            note=f"same messages to {gap:.0e}",
            bar="≥ 20×",
            holds=bool(ratio >= 20),
        ),
        Row(
            work,
            "a loop over messages, eq. 30 as printed",
            best["ours"].seconds,
            best["printed"].seconds * messages / sent,
            peer_threads=best["printed"].threads,
            note=f"scaled from {sent:,} messages",
            bar="≥ 20×",
            holds=bool(best["printed"].seconds * messages / sent >= 20 * best["ours"].seconds),
        ),
    ]


def particle_row() -> Row:
    """Ten iterations on a picture, evidence and all, to depths."""
    from meanmap_experiments import depth
    from meanmap_experiments.depth.methods import KERNEL, PARTICLES, Lesson, Setting

    try:
        depth.ensure("full")
    except RuntimeError as error:
        say(f"no pictures: {error}")
        return Row("ten iterations on a picture", "particle BP", float("nan"), note=str(error))
    say("pictures: learning")
    lesson = Lesson("full", np.arange(8, 72), 0.01, 0.1)
    found: dict[str, list[Any]] = {}
    for method in (KERNEL, PARTICLES):
        lesson.learn(method)
        say(method)
        # with all threads that either can use
        found[method] = [lesson.said(method, picture, Setting(trust=0.2)) for picture in range(4)]
    truth = lesson.data.depths[:4]
    errors = {
        method: float(np.mean([abs(a.depths - t).mean() for a, t in zip(some, truth, strict=True)]))
        for method, some in found.items()
    }
    seconds = {method: min(a.seconds for a in some) for method, some in found.items()}
    ratio = seconds[PARTICLES] / seconds[KERNEL]
    better = errors[KERNEL] < errors[PARTICLES]
    return Row(
        "10 iterations on a picture of 107 × 86 patches, from features to depths",
        "particle BP, 100 particles",
        seconds[KERNEL],
        seconds[PARTICLES],
        note=f"MAE of 4 pictures {errors[KERNEL]:.3f} against {errors[PARTICLES]:.3f}",
        bar="≥ 20× at lower MAE",
        holds=bool(ratio >= 20 and better),
    )


def run() -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return [*iteration_rows(), particle_row()]


if __name__ == "__main__":
    main(__file__, "belief propagation", run, {})
