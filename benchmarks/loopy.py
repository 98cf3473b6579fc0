"""Belief propagation on a grid of 107 × 86 nodes, against a loop over messages, and particles.

Rows of the grid have templates of their own, across and down, with 300 samples each. The loop takes
the same formulas message by message: products of what came in, at the sample, times the template's
operator. Particle belief propagation is the one of `meanmap.experiments`, vectorised over the
messages of a template; it is raced on rendered pictures whose depth is known, where they are (or
POV-Ray is, to make them).
"""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import numpy as np
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


def iteration_rows() -> list[Row]:
    from meanmap import BeliefPropagation
    from meanmap.graphical.beliefs import Known
    from meanmap.graphical.passing import Passing, Wiring

    rng = np.random.default_rng(0)
    say(f"a grid of {ROWS} × {COLUMNS}: fit")
    data = fields(21, rng)
    model = BeliefPropagation(grid(), max_samples=SAMPLES, random_state=0).fit(data[1:])
    potentials = model.potentials_

    def likelihood(value: float) -> Any:
        return lambda x: np.exp(-0.5 * (x[:, 0] - value) ** 2)

    evidence = {name: likelihood(data[(0, *name)]) for name in model.nodes_}
    known = Known.of(potentials, evidence, 1.0)
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
    best = race(
        {
            "ours": Contestant(lambda: passing.all_sent(state), calls=5),
            "loop": Contestant(lambda: loop.sent(state), peer_threads()),
        },
        rounds=3,
    )
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
            "a loop over messages, the same formulas",
            best["ours"].seconds,
            best["loop"].seconds,
            peer_threads=best["loop"].threads,
            note=f"same messages to {gap:.0e}",
            bar="≥ 20×",
            holds=bool(ratio >= 20),
        ),
    ]


def run() -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return iteration_rows()


if __name__ == "__main__":
    main(__file__, "belief propagation", run, {})
