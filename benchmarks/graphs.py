"""How sharp and how calibrated graphical models are, with their defaults, against the truth.

Laws whose answers are known, drawn anew for every seed; all figures are means over seeds, with the
standard error of that mean. A part is named, or all run:

- `densities`: divergence per variable of the log density of held-out rows on chains, beside density
  estimates of pairs along the same chain;
- `parents`: the standard deviation of a child given both parents, of a parent given the other and
  the child, over the true one, and the errors of means in true deviations;
- `sides`: the same for a node between two that are known, and for a node next to one;
- `samples`: drawn rows: their deviation about the true conditional mean over the true one, along an
  edge and across the graph, and the same for pairs of a joint distribution;
- `warnings`: the share of evidence that is warned about, of new rows and beyond the data;
- `lattice`: the error of means of loopy belief propagation on 3 x 3, in units of the values, beside
  the exact limit of endless data;
- `depth`: depth from one picture with defaults alone, beside bins, and seconds of both.

    python benchmarks/graphs.py [part ...] [--seeds 5] [--n 800]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from meanmap import BeliefPropagation, KernelGraphicalModel
from meanmap_experiments import dimension, loopy
from meanmap_experiments.fields import Bins
from meanmap_experiments.lattices import SPAN, Lattice, Sightings

Row = tuple[str, float]
TESTS = 100  # queries of a seed


def spread(name: str, found: Any, mean: np.ndarray, deviation: Any) -> Iterator[Row]:
    """The ratio of deviations, the error of means, and what 90% intervals hold of a normal law."""
    from scipy.stats import norm

    std, centre = (np.asarray(part)[:, 0] for part in (found.std(), found.mean()))
    low, high = (np.asarray(end)[:, 0] for end in found.interval(0.9))
    yield f"{name}: std ratio", float(np.mean(std / deviation))
    yield f"{name}: error of the mean", float(np.sqrt(np.mean(((centre - mean) / deviation) ** 2)))
    law = norm(mean, deviation)
    yield f"{name}: coverage of 90%", float(np.mean(law.cdf(high) - law.cdf(low)))


# --- chains ---------------------------------------------------------------------------------------


def densities(rng: np.random.Generator, n: int) -> Iterator[Row]:
    tests, X = dimension.sample(5, 500, rng), dimension.sample(5, n, rng)
    truth = dimension.true_log_density(tests)
    model = dimension.chain(X)
    found = {
        "ours": model.log_density(dimension.table_of(tests)),
        "density estimates of pairs": dimension.along_the_chain(X, tests),
    }
    for method, values in found.items():
        yield f"divergence per variable, {method}", float((truth - values).mean() / 5)


def chain(rng: np.random.Generator, n: int, slope: float) -> dict[str, np.ndarray]:
    noise = (1 - slope**2) ** 0.5
    a = rng.normal(size=n)
    b = slope * a + noise * rng.normal(size=n)
    c = slope * b + noise * rng.normal(size=n)
    return {"a": a, "b": b, "c": c}


def sides(rng: np.random.Generator, n: int) -> Iterator[Row]:
    for slope in (0.8, 0.95):
        rows, tests = chain(rng, n, slope), chain(rng, TESTS, slope)
        model = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(rows)
        noise = (1 - slope**2) ** 0.5
        found = model.marginal("b", {"a": tests["a"]})
        yield from spread(f"slope {slope}, b given a", found, slope * tests["a"], noise)
        found = model.marginal("c", {"a": tests["a"]})
        yield from spread(
            f"slope {slope}, c given a", found, slope**2 * tests["a"], (1 - slope**4) ** 0.5
        )
        found = model.marginal("b", {"a": tests["a"], "c": tests["c"]})
        gain = slope / (1 + slope**2)
        yield from spread(
            f"slope {slope}, b given a and c",
            found,
            gain * (tests["a"] + tests["c"]),
            noise / (1 + slope**2) ** 0.5,
        )


# --- parents --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Child:
    """A child of two parents, each standard normal: a curve and noise."""

    name: str
    curve: Callable[[np.ndarray, np.ndarray], np.ndarray]
    noise: float

    def rows(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        x, y = rng.normal(size=(2, n))
        return {"x": x, "y": y, "z": self.curve(x, y) + self.noise * rng.normal(size=n)}


CHILDREN = (
    Child("sum", lambda x, y: x + y, 0.3),
    Child("product", lambda x, y: x * y, 0.5),
    Child("waves", lambda x, y: np.sin(2 * x) - abs(y), 0.3),
)
FAMILY = nx.DiGraph([("x", "z"), ("y", "z")])


def parents(rng: np.random.Generator, n: int) -> Iterator[Row]:
    for law in CHILDREN:
        rows, tests = law.rows(rng, n), law.rows(rng, TESTS)
        model = KernelGraphicalModel(FAMILY).fit(rows)
        found = model.marginal("z", {"x": tests["x"], "y": tests["y"]})
        yield from spread(f"{law.name}, child", found, law.curve(tests["x"], tests["y"]), law.noise)
        if law.name == "sum":
            found = model.marginal("x", {"y": tests["y"], "z": tests["z"]})
            gain = 1 / (1 + law.noise**2)
            mean = gain * (tests["z"] - tests["y"])
            yield from spread(f"{law.name}, parent", found, mean, law.noise * gain**0.5)


# --- samples, warnings ----------------------------------------------------------------------------


def samples(rng: np.random.Generator, n: int) -> Iterator[Row]:
    slope = 0.95
    model = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(chain(rng, n, slope))
    drawn = model.sample(2000, rng)
    pairs = [np.ravel(part) for part in model.joint("a", "c").sample(2000, rng)]
    near, far = (1 - slope**2) ** 0.5, (1 - slope**4) ** 0.5
    yield "chain, along an edge", float((drawn["b"] - slope * drawn["a"]).std() / near)
    yield "chain, across two", float((drawn["c"] - slope**2 * drawn["a"]).std() / far)
    yield "chain, pairs of a joint", float((pairs[1] - slope**2 * pairs[0]).std() / far)
    for law in CHILDREN:
        model = KernelGraphicalModel(FAMILY).fit(law.rows(rng, n))
        drawn = model.sample(2000, rng)
        gap = drawn["z"] - law.curve(drawn["x"], drawn["y"])
        yield f"{law.name}, the child", float(gap.std() / law.noise)


def warned(ask: Callable[[], Any]) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask()
    return any("outside the data" in str(one.message) for one in caught)


def alarms(rng: np.random.Generator, n: int) -> Iterator[Row]:
    slope = 0.9
    rows, tests = chain(rng, n, slope), chain(rng, TESTS, slope)
    tree = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(rows)
    loop = BeliefPropagation(nx.cycle_graph(["a", "b", "c"]), random_state=0).fit(rows)
    asks: dict[str, Callable[[str, float], Any]] = {
        "tree": lambda node, x: tree.marginal("b", {node: x}),
        "loop": lambda node, x: loop.run({node: x}),
    }
    for name, ask in asks.items():
        new = [warned(lambda x=x, ask=ask: ask("a", x)) for x in tests["a"][:50]]
        yield f"{name}, new rows", float(np.mean(new))
        for far in (5.0, 8.0, 100.0):
            there = [warned(lambda s=s, f=far, ask=ask: ask("a", s * f)) for s in (-1, 1)]
            yield f"{name}, {far:g} deviations out", float(np.mean(there))
    family = KernelGraphicalModel(FAMILY).fit(CHILDREN[0].rows(rng, n))
    corner = [
        warned(lambda s=s: family.marginal("z", {"x": 3.0 * s, "y": -3.0 * s})) for s in (-1, 1)
    ]
    yield "parents, both unusual", float(np.mean(corner))


# --- loops ----------------------------------------------------------------------------------------


def lattice(rng: np.random.Generator, n: int) -> Iterator[Row]:
    plan = loopy.FULL
    for case in plan.cases[:2]:
        made = Lattice.drawn(case.rows, case.columns, case.closed, rng, case.noise)
        bins = Bins.even(-SPAN, SPAN, 80)
        prior, sample = loopy.before(plan, case, made, bins, rng)
        tests, data = sample[: case.tests], sample[case.tests :]
        methods = {
            "defaults": loopy.kernel(plan, made, data),
            "trees": loopy.kernel(plan, made, data, "trees"),
            "bins": loopy.coarse(plan, made, data),
            "endless data": loopy.given(plan, made, prior)[loopy.LIMIT],
        }
        errors: dict[tuple[str, str], list[float]] = {}
        for row in tests:
            seen = Sightings.of(row, rng)
            truth = loopy.after(plan, case, made, bins, rng, seen)
            for method, run in methods.items():
                for measure, value in (
                    run(seen, bins.centres).errors(truth, prior.deviation).items()
                ):
                    errors.setdefault((measure, method), []).append(value)
        for method in methods:
            for measure in ("mean", "variation"):
                name = f"{case.name}, {method}: {loopy.MEASURES[measure]}"
                yield name, float(np.mean(errors[measure, method]))


def depth(rng: np.random.Generator, n: int) -> Iterator[Row]:
    from meanmap_experiments.depth.methods import DISCRETE, KERNEL, TREES, Lesson, Setting

    # the pictures are the same for all seeds: each predicts others of them
    tests = rng.permutation(24)[:4]
    train = np.setdiff1d(np.arange(24), tests)
    lesson = Lesson("small", train, "auto", "auto")
    for method in (KERNEL, TREES, DISCRETE):
        for trust in (1.0, 0.2):
            found = [lesson.answer(method, int(k), Setting(trust=trust)) for k in tests]
            errors = [
                abs(one.depths - lesson.data.depths[k]).mean()
                for one, k in zip(found, tests, strict=True)
            ]
            yield f"{method}, trust {trust:g}: error", float(np.mean(errors))
        yield f"{method}: seconds", min(one.seconds for one in found)


PARTS = {
    "densities": densities,
    "sides": sides,
    "parents": parents,
    "samples": samples,
    "warnings": alarms,
    "lattice": lattice,
    "depth": depth,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=800)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        start = time.perf_counter()
        found: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                rng = np.random.default_rng((seed, list(PARTS).index(part)))
                for name, value in PARTS[part](rng, options.n):
                    found.setdefault(name, []).append(value)
        took = (time.perf_counter() - start) / options.seeds
        print(f"\n{part}, n = {options.n}, {options.seeds} seeds, {took:.1f} s each")
        for name, values in found.items():
            error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
            print(f"  {name:58} {np.mean(values):7.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
