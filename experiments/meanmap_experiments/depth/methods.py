"""The depth of every patch of a picture by several methods, learned from other pictures.

Depths are a grid of numbers, each joined to its neighbours and to the features of its patch. Rows
of the grid have potentials of their own: patches high in a picture are not like those below.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from meanmap import DataWarning
from meanmap.graphical import BeliefPropagation
from meanmap.graphical.evidence import FieldEvidence
from meanmap.kernels import Linear
from meanmap_experiments.depth import load
from meanmap_experiments.fields import Bins, Densities, Field, Tabulated, Template, scaled
from meanmap_experiments.mixtures import MixtureBP
from meanmap_experiments.propagation import DiscreteBP, ParticleBP

KERNEL, PLAIN, TREES = "kernel BP", "kernel BP, edges in full", "kernel BP, trees"
REWEIGHTING: dict[str, float | str] = {KERNEL: "halfway", PLAIN: 1.0, TREES: "trees"}
DISCRETE, PARTICLES, MIXTURES = "discrete BP", "particle BP", "Gaussian mixture BP"
TEMPERED = "discrete BP, weaker edges"
RIDGE, ALONE, ROW = "ridge regression of a patch", "local evidence only", "mean of the row"
PAPER = (KERNEL, DISCRETE, PARTICLES, MIXTURES)  # those of the paper
METHODS = (*PAPER, PLAIN, TREES, TEMPERED, ALONE, RIDGE, ROW)

FINE = 128  # bins of potentials that particles and mixtures look up
CELLS = 256  # where what features say is computed; straight lines between


class Pictures(NamedTuple):
    """All pictures: features of their patches and logarithms of the depths."""

    features: np.ndarray  # (n, rows, columns, 273), float32
    depths: np.ndarray  # (n, rows, columns)
    sums: np.ndarray  # (n, rows, 273) of the features over columns
    squares: np.ndarray


@lru_cache(maxsize=1)
def pictures(size: str) -> Pictures:
    """The pictures of a size, described once in each process."""
    scenes = load(size)
    features = scenes.features()
    sums = features.sum(axis=2, dtype=float)
    squares = np.array([np.square(one, dtype=float).sum(axis=1) for one in features])
    return Pictures(features, np.log(scenes.depths.astype(float)), sums, squares)


@lru_cache(maxsize=2)
def grid(rows: int, columns: int) -> Any:
    """Depths (i, j) and features ("patch", i, j), with a template for each row."""
    graph = nx.grid_2d_graph(rows, columns)
    for (i, j), (k, _) in list(graph.edges):
        after = (i, j + 1) if i == k else (i + 1, j)
        graph.edges[(i, j), after]["template"] = ("across" if i == k else "down", i)
    for i, j in list(graph.nodes):
        graph.add_node(("patch", i, j), template=("look", i))
        graph.add_edge((i, j), ("patch", i, j), template=("look", i))
    return graph


@dataclass(frozen=True, eq=False)
class Looks:
    """What features say of depths: logarithms of messages at even places, a row a node."""

    places: np.ndarray
    logs: np.ndarray  # (nodes, places)
    trust: float = 1.0

    def __call__(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """At values (nodes, k), as evidence on a `Field`."""
        last = len(self.places) - 1
        step = (self.places[-1] - self.places[0]) / last
        at = np.clip((values - self.places[0]) / step, 0, last)
        before = np.minimum(at.astype(np.intp), last - 1)
        share = at - before
        rows = np.asarray(nodes)[:, None]
        low, high = self.logs[rows, before], self.logs[rows, before + 1]
        return self.trust * (low + share * (high - low))


class Answer(NamedTuple):
    """Depths of a picture, and the seconds from its features to them."""

    depths: np.ndarray
    seconds: float


class Setting(NamedTuple):
    """The parameters of a method."""

    trust: float = 1.0  # the power of what features say
    power: float = 1.0  # of edges
    ridge: float = 0.0  # λ of the regression
    edges: float = 0.01  # λ between depths
    look: float = 0.1  # λ from features to depths


@dataclass(frozen=True)
class Scale:
    """How large the methods are."""

    samples: int = 300  # of a row at most, for kernel belief propagation
    bins: int = 30
    particles: int = 100
    components: int = 10
    iterations: int = 10


class Lesson:
    """What is learned from some pictures, by each method when it is first asked.

    Parameters
    ----------
    size : str
        Of the pictures.
    train : array of numbers
        The pictures that are learned from.
    edges, look : float
        λ of kernel belief propagation: between depths, and from features to depths.
    scale : Scale
    seed : int

    Examples
    --------
    >>> lesson = Lesson("small", np.arange(4), 0.01, 0.02, Scale(samples=50))
    >>> lesson.answer(ALONE, 5, Setting(trust=0.2)).depths.shape
    (36, 29)
    """

    def __init__(
        self,
        size: str,
        train: np.ndarray,
        edges: float | str,
        look: float | str,
        scale: Scale = Scale(),
        seed: int = 0,
    ) -> None:
        self.data, self.train, self.scale, self.seed = pictures(size), train, scale, seed
        self.edges, self.look = edges, look
        self.depths = self.data.depths[train]
        self.rows, self.columns = self.depths.shape[1:]
        cells = len(train) * self.columns
        self._mean = self.data.sums[train].sum(axis=0) / cells
        spread = np.sqrt(
            np.maximum(self.data.squares[train].sum(axis=0) / cells - self._mean**2, 0)
        )
        # what does not vary in a row is left as it is: the constant, and what is not there
        constant = spread < 1e-6
        self._mean[constant], spread[constant] = 0.0, 1.0
        self._spread = spread
        self._looks: dict[int, tuple[Looks, float]] = {}

    def standard(self, which: Any) -> np.ndarray:
        """Features of pictures, standardised row by row as those that are learned from."""
        found = self.data.features[which]
        found = found - self._mean[:, None].astype(np.float32)
        found /= self._spread[:, None].astype(np.float32)
        return found

    def answer(self, method: str, picture: int, setting: Setting = Setting()) -> Answer:  # noqa: B008
        """What a method says, on one thread."""
        with threadpool_limits(1):
            return self.said(method, picture, setting)

    def said(self, method: str, picture: int, setting: Setting) -> Answer:
        """What a method says, on as many threads as it likes."""
        with warnings.catch_warnings():
            # ten iterations are the paper's; that messages still move then, and disagree at the
            # edges of things, is to be expected
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataWarning)
            if method == ROW:
                return Answer(np.tile(self.depths.mean(axis=(0, 2))[:, None], self.columns), 0.0)
            if method == RIDGE:
                return self._regression(picture, setting.ridge)
            if method in REWEIGHTING:
                return self._kernel(picture, setting.trust, REWEIGHTING[method])
            if method == ALONE:
                return self._alone(picture, setting.trust)
            return self._propagated(method, picture, setting)

    def learn(self, method: str) -> float:
        """Learn what a method needs, if that is not done yet; how many seconds it took."""
        parts = {
            **dict.fromkeys(REWEIGHTING, "model"),
            DISCRETE: "discrete",
            MIXTURES: "mixtures",
            RIDGE: "moments",
        }
        parts |= {PARTICLES: "smooth", TEMPERED: "discrete"}
        began = time.perf_counter()
        with threadpool_limits(1):
            getattr(self, parts.get(method, "train"))
        return time.perf_counter() - began

    # --- kernels ------------------------------------------------------------------------------

    @cached_property
    def model(self) -> BeliefPropagation:
        """Kernel belief propagation, fitted."""
        across = {("across", i): self.edges for i in range(self.rows)}
        down = {("down", i): self.edges for i in range(self.rows - 1)}
        look = {("look", i): self.look for i in range(self.rows)}
        model = BeliefPropagation(
            grid(self.rows, self.columns),
            {template: Linear() for template in look},
            {**across, **down, **look},
            max_samples=self.scale.samples,
            random_state=self.seed,
        )
        features = self.standard(self.train)
        places = [(i, j) for i in range(self.rows) for j in range(self.columns)]
        data: dict[Any, Any] = {(i, j): self.depths[:, i, j] for i, j in places}
        data |= {("patch", i, j): features[:, i, j] for i, j in places}
        return model.fit(data)

    def evidence(self, picture: int) -> dict[Any, np.ndarray]:
        """The features of a picture's patches, by node."""
        features = self.standard(picture)
        return {("patch", i, j): features[i, j] for i, j in np.ndindex(self.rows, self.columns)}

    def _kernel(self, picture: int, trust: float, reweighting: float | str) -> Answer:
        evidence = self.evidence(picture)
        model = self.model.set_params(trust=trust, reweighting=reweighting)
        began = time.perf_counter()
        mean = model.run(evidence, self.scale.iterations).array("mean")
        return Answer(mean, time.perf_counter() - began)

    def looks(self, picture: int) -> tuple[Looks, float]:
        """What features say, as kernel belief propagation takes it; and the seconds it took."""
        if picture in self._looks:
            return self._looks[picture]
        evidence, potentials = self.evidence(picture), self.model.potentials_
        began = time.perf_counter()
        known = FieldEvidence.of(potentials, evidence, 1.0)
        places = np.linspace(self.fine.edges[0], self.fine.edges[-1], CELLS)
        logs = np.empty((self.rows * self.columns, CELLS))
        for kind, (to, beta, _) in known.messages.items():
            rows = potentials.nodes[kind].space.coordinates(places[:, None])
            logs[to] = potentials.logarithms(beta, rows)
        self._looks = {picture: (Looks(places, logs), time.perf_counter() - began)}
        return self._looks[picture]

    def _alone(self, picture: int, trust: float) -> Answer:
        """Means of each row's sample, weighed by what features say."""
        looks, before = self.looks(picture)
        began = time.perf_counter()
        found = np.empty((self.rows, self.columns))
        nodes = np.arange(self.rows * self.columns).reshape(found.shape)
        for i in range(self.rows):
            x = self.depths[:, i].ravel()
            x = np.sort(x)[:: max(1, len(x) // self.scale.samples)]
            weights = scaled(trust * looks(nodes[i], np.tile(x, (self.columns, 1))))
            found[i] = weights @ x / weights.sum(axis=1)
        return Answer(found, before + time.perf_counter() - began)

    # --- bins, particles, mixtures ------------------------------------------------------------

    def bins(self, count: int) -> Bins:
        """Bins whose first and last centres are the least and the largest depth.

        The sky has one depth, the largest: it is in the middle of a bin.
        """
        low, high = float(self.depths.min()), float(self.depths.max())
        half = (high - low) / (count - 1) / 2
        return Bins.even(low - half, high + half, count)

    @cached_property
    def fine(self) -> Bins:
        return self.bins(FINE)

    def field(self, bins: Bins, smooth: bool) -> Field:
        """Potentials counted from all pairs of neighbours in the pictures, row by row."""
        y, nodes = self.depths, np.arange(self.rows * self.columns)
        places = nodes.reshape(self.rows, self.columns)
        learn = Tabulated.smoothed if smooth else Tabulated.counted
        templates = []
        for i in range(self.rows):
            pairs = learn(bins, y[:, i, :-1].ravel(), y[:, i, 1:].ravel())
            templates.append(Template(places[i, :-1], places[i, 1:], pairs))
            if i + 1 < self.rows:
                pairs = learn(bins, y[:, i].ravel(), y[:, i + 1].ravel())
                templates.append(Template(places[i], places[i + 1], pairs))
        prior = Densities.smoothed if smooth else Densities.counted
        unary = prior(bins, [y[:, i].ravel() for i in range(self.rows)], nodes // self.columns)
        low, high = float(bins.edges[0]), float(bins.edges[-1])
        return Field(len(nodes), tuple(templates), unary, low, high)

    @cached_property
    def smooth(self) -> Field:
        """The field that particles and mixtures take: densities of pairs."""
        return self.field(self.fine, smooth=True)

    @cached_property
    def discrete(self) -> DiscreteBP:
        bins = self.bins(self.scale.bins)
        return DiscreteBP(self.field(bins, smooth=False), bins)

    @cached_property
    def mixtures(self) -> MixtureBP:
        return MixtureBP(self.smooth, self.scale.components)

    def _propagated(self, method: str, picture: int, setting: Setting) -> Answer:
        looks, before = self.looks(picture)
        ready = self._propagation(method, setting.power)
        began = time.perf_counter()
        evidence = Looks(looks.places, looks.logs, setting.trust)
        mean = ready.run(self.scale.iterations, evidence).mean
        seconds = before + time.perf_counter() - began
        return Answer(mean.reshape(self.rows, self.columns), seconds)

    def _propagation(self, method: str, power: float) -> DiscreteBP | ParticleBP | MixtureBP:
        if method == DISCRETE:
            return self.discrete
        if method == TEMPERED:
            return DiscreteBP(weaker(self.discrete.field, power), self.discrete.bins)
        if method == MIXTURES:
            return self.mixtures
        # particles are drawn from the same numbers for every picture, whichever came before
        return ParticleBP(self.smooth, self.scale.particles, rng=self.seed)

    # --- regression ---------------------------------------------------------------------------

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Row by row of standardised features their second moments, and those with depths."""
        features = self.standard(self.train)
        d = features.shape[-1]
        second, mixed = np.empty((self.rows, d, d)), np.empty((self.rows, d))
        for i in range(self.rows):
            X, y = features[:, i].reshape(-1, d), self.depths[:, i].ravel()
            second[i] = X.T @ X / len(X)
            mixed[i] = (y - y.mean()) @ X / len(X)
        return second, mixed

    def coefficients(self, regularization: float) -> tuple[np.ndarray, np.ndarray]:
        """Slopes (rows, 273) and intercepts of each row's ridge regression."""
        second, mixed = self.moments
        ridge = second + regularization * np.eye(second.shape[-1])
        return np.linalg.solve(ridge, mixed[..., None])[..., 0], self.depths.mean(axis=(0, 2))

    def _regression(self, picture: int, regularization: float) -> Answer:
        slopes, intercepts = self.coefficients(regularization)
        features = self.standard(picture)
        began = time.perf_counter()
        found = np.einsum("ijk,ik->ij", features, slopes) + intercepts[:, None]
        # no depth is nearer than the nearest, nor behind the sky
        found = np.clip(found, self.depths.min(), self.depths.max())
        return Answer(found, time.perf_counter() - began)


def weaker(field: Field, power: float) -> Field:
    """Potentials raised to a power: with less than 1 neighbours are less sure of each other."""
    templates = []
    for template in field.templates:
        potential: Any = template.potential
        raised = Tabulated(potential.bins, potential.table**power)
        templates.append(replace(template, potential=raised))
    return replace(field, templates=tuple(templates))
