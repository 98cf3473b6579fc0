"""One screen that shows the library at work: `python -m meanmap.demo`, or `make demo`.

Each part is a function that returns a `Part`: lines for the screen, with the truth beside every
estimate, and perhaps a panel of the picture. To add one, write it and name it in `PARTS`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, pi, sqrt
from typing import Any

import networkx as nx
import numpy as np
from scipy import stats
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

import meanmap as mm
from meanmap.kernels import Delta, Gaussian
from meanmap.plots import BLUE, GREY, ORANGE

N = 4000  # points in each sample
SEED = 0
INK, WIDTH = "#222222", 1.6  # of the lines that show the truth
LEGEND = {"frameon": False, "handlelength": 1.6, "columnspacing": 1.2}


@dataclass(frozen=True)
class Part:
    """What one part of the demo has to show."""

    title: str
    lines: list[str]
    draw: Callable[[Any], None] | None = None  # takes matplotlib axes


def row(label: str, *values: Any) -> str:
    """A line of a table: a label, then numbers or headings in columns."""
    cells = (f"{v:>9}" if isinstance(v, str) else f"{v:>9.2f}" for v in values)
    return f"{label:<36}" + "".join(cells)


def bell(x: np.ndarray, mean: float, std: float) -> np.ndarray:
    """The normal density."""
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * sqrt(2 * pi))


def note(ax: Any, text: str, at: tuple[float, float], colour: str = INK, ha: str = "left") -> None:
    """Write on axes: x in data units, y as a fraction of the height."""
    ax.text(*at, text, color=colour, ha=ha, fontsize="small", transform=ax.get_xaxis_transform())


# --- embed and compare ----------------------------------------------------------------------------


def normal_inner(gap: float, variance: float, bandwidth: float) -> float:
    """E k(x, x') of a Gaussian kernel, x - x' being normal: the inner product of two normals."""
    total = bandwidth**2 + variance
    return bandwidth / sqrt(total) * exp(-(gap**2) / (2 * total))


def compare_part(rng: np.random.Generator) -> Part:
    """Two samples that no mean and no variance tells apart."""
    centre = 0.95  # Q has bumps at ±centre, as wide as makes its variance 1
    width = sqrt(1 - centre**2)
    P, more = rng.normal(size=(N, 1)), rng.normal(size=(N, 1))
    Q = centre * rng.choice([-1.0, 1.0], size=(N, 1)) + width * rng.normal(size=(N, 1))

    p = mm.embed(P)
    q, again = mm.embed(Q, kernel=p.kernel), mm.embed(more, kernel=p.kernel)

    sigma = p.kernel.get_params()["bandwidth"]
    pp = normal_inner(0, 2, sigma)
    qq = (normal_inner(0, 2 * width**2, sigma) + normal_inner(2 * centre, 2 * width**2, sigma)) / 2
    pq = normal_inner(centre, 1 + width**2, sigma)
    lines = [
        f"P is N(0, 1), Q two bumps with the same mean and variance; {N:,} points each",
        row("", "estimate", "truth"),
        row("distance of P and Q", p.distance(q), sqrt(pp + qq - 2 * pq)),
        row("distance of P and more of P", p.distance(again), 0.0),
        row("E cos X under P", p.expect(lambda x: np.cos(x[:, 0])), exp(-0.5)),
    ]

    def draw(ax: Any) -> None:
        grid = np.linspace(-3, 3, 241)
        witness = (p - q)(grid[:, None])
        bumps = [[normal_inner(x - c, width**2, sigma) for x in grid] for c in (centre, -centre)]
        exact = np.array([normal_inner(x, 1, sigma) for x in grid]) - np.mean(bumps, axis=0)
        samples = ax.twinx()  # histograms on a scale of their own
        bins = np.linspace(-3, 3, 41)
        samples.hist([P[:, 0], Q[:, 0]], bins, histtype="step", color=[BLUE, ORANGE])
        samples.set_ylim(0, 3.2 * samples.get_ylim()[1])
        samples.axis("off")
        note(samples, "sample of P", (-2.9, 0.12), BLUE)
        note(samples, "sample of Q", (1.45, 0.2), ORANGE)
        for sign, colour, name in ((1, BLUE, "more of P"), (-1, ORANGE, "more of Q")):
            part = np.where(sign * witness > 0, witness, 0.0)
            ax.fill_between(grid, part, color=colour, alpha=0.55, linewidth=0, label=name)
        ax.plot(grid, exact, "--", color=INK, linewidth=WIDTH, label="truth")
        ax.set(title="Where do P and Q differ?", xlabel="x", ylabel="witness function, P − Q")
        ax.set(ylim=(2.2 * witness.min(), 1.3 * witness.max()), yticks=(-0.05, 0, 0.05))

    return Part("EMBED AND COMPARE   a sample becomes a point: embed(X)", lines, draw)


# --- condition ------------------------------------------------------------------------------------


def condition_part(rng: np.random.Generator) -> Part:
    """A conditional distribution whose spread changes."""

    def mean(x: np.ndarray) -> np.ndarray:
        return np.sin(2 * x)

    def spread(x: np.ndarray) -> np.ndarray:
        return 0.1 + 0.25 * x

    X = rng.uniform(0, 3, size=(N, 1))
    Y = mean(X) + spread(X) * rng.normal(size=(N, 1))

    model = mm.ConditionalEmbedding().fit(X, Y)

    at = np.array([[0.5], [1.5], [2.5]])
    given = model.given(at)  # a batch of three distributions
    columns = [
        values[:, 0].tolist() for values in (at, given.mean(), mean(at), given.std(), spread(at))
    ]
    lines = [
        "Y = sin(2x) + noise that grows with x; the model knows neither",
        row("", "mean", "truth", "std", "truth"),
        *(row(f"Y given x = {x}", *numbers) for x, *numbers in zip(*columns, strict=True)),
    ]

    def draw(ax: Any) -> None:
        grid = np.linspace(0, 3, 121)[:, None]
        x, answer = grid[:, 0], model.given(grid)
        middle, std = answer.mean()[:, 0], answer.std()[:, 0]
        few = slice(0, 1000)
        ax.plot(X[few, 0], Y[few, 0], ".", color=GREY, markersize=2.5, alpha=0.6, label="data")
        ax.fill_between(x, middle - std, middle + std, color=BLUE, alpha=0.3, linewidth=0)
        ax.plot(x, middle, color=BLUE, linewidth=2, label="mean ± std")
        for sign, label in ((0, "truth"), (1, None), (-1, None)):
            truth = (mean(grid) + sign * spread(grid))[:, 0]
            ax.plot(x, truth, "--", color=INK, linewidth=WIDTH if sign == 0 else 1, label=label)
        ax.set(title="What is Y, given x?", xlabel="x", ylabel="y", ylim=(-3, 3.4))

    return Part("CONDITION   ConditionalEmbedding().fit(X, Y).given(x)", lines, draw)


# --- Bayes' rule ----------------------------------------------------------------------------------


def bayes_part(rng: np.random.Generator) -> Part:
    """A posterior under a prior that is not the one of the data."""
    noise, mean, std, seen = 0.8, 1.0, 0.6, -0.5
    X = 1.5 * rng.normal(size=(N, 1))
    Y = X + noise * rng.normal(size=(N, 1))
    U = rng.normal(mean, std, size=(N, 1))  # the prior, as a sample

    model = mm.ConditionalEmbedding().fit(X, Y)
    prior = mm.embed(U, kernel=model.kernel_x_)
    predicted = model.push(prior)
    answers = {
        method: model.posterior(prior, method=method).given([seen])
        for method in ("nonnegative", "importance", "squared", "reweighted")
    }

    variance = 1 / (1 / std**2 + 1 / noise**2)
    truth = variance * (mean / std**2 + seen / noise**2), sqrt(variance)
    rows = [("Y under the prior (sum rule)", predicted, (mean, sqrt(std**2 + noise**2)))]
    rows += [(f"X given y = {seen}, {method}", e, truth) for method, e in answers.items()]
    lines = [
        f"data: X is N(0, 1.5²), Y = X + N(0, {noise}²); then a new prior, X is N(1, {std}²)",
        row("", "mean", "truth", "std", "truth"),
        *(row(name, e.mean()[0], true[0], e.std()[0], true[1]) for name, e, true in rows),
    ]

    def draw(ax: Any) -> None:
        grid = np.linspace(-2, 3.6, 281)
        posterior = answers["nonnegative"].normalized()
        weights, bins = posterior.weights, np.linspace(-2, 3.6, 29)
        heights = np.histogram(X[:, 0], bins, weights=weights)[0] / np.diff(bins)
        style = {"align": "edge", "color": BLUE, "alpha": 0.55, "label": "kernel posterior"}
        ax.bar(bins[:-1], heights, np.diff(bins), **style)
        ax.plot(grid, bell(grid, mean, std), ":", color=ORANGE, linewidth=2.2, label="prior")
        ax.plot(grid, bell(grid, *truth), "--", color=INK, linewidth=WIDTH, label="truth")
        ax.axvline(seen, ymax=0.84, color=GREY, linewidth=1)
        note(ax, f"seen: y = {seen} ".replace("-", "−"), (seen, 0.8), INK, ha="right")
        ax.set(title="What is X, given y and a prior?", xlabel="x", ylabel="density")
        ax.set_ylim(top=1.35 * heights.max())

    return Part("BAYES' RULE   model.posterior(prior).given(y)", lines, draw)


# --- tables ---------------------------------------------------------------------------------------


def tables_part(rng: np.random.Generator) -> Part:
    """Labels: with the delta kernel the operators are the probability tables."""
    likelihood = np.array([[0.8, 0.1], [0.2, 0.9]])  # P(wet | rain), a column a value of rain
    data = likelihood * np.array([0.7, 0.3])  # the joint table of the data
    wet, rain = (index.ravel() for index in np.indices((2, 2)))

    model = mm.ConditionalEmbedding(Delta(), Delta(), regularization=0)
    model.fit(rain, wet, sample_weight=data.ravel())
    odds = mm.embed(np.array([0, 1]), kernel=Delta(), weights=[0.5, 0.5])
    after = model.posterior(odds, regularization=0).given(1)

    exact = 0.5 * likelihood[1] / (0.5 * likelihood[1]).sum()
    found = model.operator_.matrix
    error = max(abs(found - likelihood).max(), abs(after.coordinates - exact).max())
    lines = [
        "a table of rain and wet grass with P(rain) = 0.3; then a prior of even odds",
        row("", "estimate", "truth"),
        row("P(wet | rain)", found[1, 1], likelihood[1, 1]),
        row("P(rain | wet) under the prior", after.coordinates[1], exact[1]),
        row("largest error in both tables", f"{error:.0e}", "0"),
    ]
    return Part("TABLES   with labels the same code is exact: kernels.Delta()", lines)


# --- tests ----------------------------------------------------------------------------------------


def judge_part(rng: np.random.Generator) -> Part:
    """Do two samples differ, do two variables depend on each other?"""
    n, shift, radius, blur = 200, 0.7, 1.0, 0.25
    P, more = rng.normal(size=(2, n, 1))
    Q = rng.normal(shift, 1.0, size=(n, 1))
    angle = rng.uniform(0, 2 * pi, size=(n, 1))
    X = radius * np.cos(angle) + blur * rng.normal(size=(n, 1))
    Y = radius * np.sin(angle) + blur * rng.normal(size=(n, 1))

    differ, alike = (mm.two_sample_test(P, other, rng=rng) for other in (Q, more))
    circle = mm.independence_test(X, Y, rng=rng)
    broken = mm.independence_test(X, rng.permutation(Y), rng=rng)
    pairs = rng.normal(size=(500, 2, 30, 1))
    runs = [mm.two_sample_test(a, b, n_permutations=99, rng=rng) for a, b in pairs]

    squared = 2 * normal_inner(0, 2, 1.0) - 2 * normal_inner(shift, 2, 1.0)
    correlation = np.corrcoef(X[:, 0], Y[:, 0])[0, 1]
    lines = [
        f"P is N(0, 1), Q is N({shift}, 1); X and Y lie around a circle; {n} points each",
        row("", "p-value", "truth"),
        row("P and Q", f"{differ.pvalue:.3f}", "differ"),
        row("P and more of P", f"{alike.pvalue:.3f}", "same"),
        row(f"X and Y (correlation {correlation:.2f})", f"{circle.pvalue:.3f}", "depend"),
        row("X and Y shuffled", f"{broken.pvalue:.3f}", "do not"),
        row("", "estimate", "truth"),
        row("MMD² of P and Q", mm.mmd(P, Q, Gaussian(1.0)), squared),
        row("500 null tests, rejected at 5%", float(np.mean([r.rejects() for r in runs])), 0.05),
    ]

    def draw(ax: Any) -> None:
        side = np.linspace(-1.8, 1.8, 91)
        across, up = np.meshgrid(side, side)
        values = circle.witness(across.reshape(-1, 1), up.reshape(-1, 1)).reshape(across.shape)
        top = np.abs(values).max()
        levels = np.linspace(-top, top, 16)
        ax.contourf(side, side, values, levels=levels, cmap="RdBu_r", alpha=0.85)
        ax.plot(X[:, 0], Y[:, 0], ".", color=INK, markersize=3, label="data")
        turn = np.linspace(0, 2 * pi, 200)
        ax.plot(radius * np.cos(turn), radius * np.sin(turn), "--", color=INK, label="truth")
        ax.set(title="Where do X and Y go together?", xlabel="x", ylabel="y", ylim=(-1.8, 2.3))
        note(ax, "red: more often than if independent", (-1.7, 0.02))

    return Part("TEST   two_sample_test(P, Q), independence_test(X, Y)", lines, draw)


# --- filter --------------------------------------------------------------------------------------


def draw_rotation(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A noisy point that turns by 0.3 a step on the unit circle, and noisy sightings of it."""
    angle, path = rng.uniform(0, 2 * pi), np.empty((n, 2))
    for t in range(n):
        path[t] = [np.cos(angle), np.sin(angle)] + noise * rng.normal(size=2)
        angle = np.arctan2(path[t, 1], path[t, 0]) + 0.3
    return path, path + noise * rng.normal(size=path.shape)


def track_part(rng: np.random.Generator) -> Part:
    """Where is a point now, when the dynamics are unknown?"""
    n, steps, noise = 400, 80, 0.2
    path, seen = draw_rotation(n + steps, noise, rng)
    model = mm.KernelBayesFilter(progress=False).fit(path[:n], seen[:n])
    new, truth = seen[n:].copy(), path[n:]
    new[30:36] = np.nan  # unobserved
    filtered, smoothed_track = model.filter(new), model.smooth(new)

    def error(means: np.ndarray) -> float:
        there = ~np.isnan(new[:, 0])
        return float(np.sqrt(((means - truth)[there] ** 2).sum(axis=1).mean()))

    low, high = filtered.interval(0.9)
    inside = float(((truth >= low) & (truth <= high)).mean())
    lines = [
        f"a point turns by 0.3 a step and wanders by {noise}, seen with noise {noise}; {n} steps "
        "to learn from",
        row("root mean square error", "estimate", "truth"),
        row("as seen", error(new), noise * sqrt(2)),
        row("filtered (truth: dynamics known)", error(filtered.mean), 0.21),
        row("smoothed", error(smoothed_track.mean), ""),
        row("", "estimate", "truth"),
        row("in the 90% interval", inside, 0.9),
    ]

    def draw(ax: Any) -> None:
        time = np.arange(steps)
        ax.fill_between(time, low[:, 0], high[:, 0], color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(time, new[:, 0], ".", color=GREY, markersize=4, label="seen")
        ax.plot(time, truth[:, 0], "--", color=INK, linewidth=WIDTH, label="truth")
        ax.plot(time, filtered.mean[:, 0], color=BLUE, linewidth=WIDTH, label="filtered")
        ax.set(title="Where is it, seen or not?", xlabel="step", ylabel="x", ylim=(-2, 2.6))
        ax.legend(loc="upper center", ncols=3, **LEGEND)
        note(ax, "unobserved", (30, 0.02))

    return Part("TRACK   KernelBayesFilter().fit(states, observations)", lines, draw)


# --- inference from a simulator ------------------------------------------------------------------


def infer_part(rng: np.random.Generator) -> Part:
    """A rate from waiting times: simulated only, and the exact posterior beside it."""
    waits, first, other = 10, (4.0, 2.0), (12.0, 8.0)  # gamma priors: shape, rate

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.log(rng.exponential(1 / theta, size=(len(theta), waits)).mean(axis=1))

    def gamma(shape: float, rate: float) -> Any:
        return stats.gamma(shape, scale=1 / rate)

    def exact(prior: tuple[float, float], mean: float) -> Any:
        return gamma(prior[0] + waits, prior[1] + waits * mean)

    seen = [0.3, 0.5, 1.0]
    model = mm.KernelABC(simulator, {"rate": gamma(*first)}, random_state=rng).fit(N)
    found = [model.posterior([np.log(mean)]) for mean in seen]
    under = model.posterior([np.log(0.5)], prior={"rate": gamma(*other)})

    asked = [
        (f"rate given a mean wait of {y}", p, exact(first, y))
        for y, p in zip(seen, found, strict=True)
    ]
    asked += [("the second, another prior afterwards", under, exact(other, 0.5))]
    lines = [
        f"{waits} waits with an unknown rate, of which the mean is seen; {N:,} simulations",
        row("", "mean", "truth", "std", "truth"),
        *(row(name, p.mean()[0], e.mean(), p.std()[0], e.std()) for name, p, e in asked),
        row("", "estimate", "truth"),
        row("new draws in their 90% intervals", model.calibrate(500).coverage(0.9)[0], 0.9),
    ]

    def draw(ax: Any) -> None:
        grid = np.linspace(0.01, 5, 250)
        for p, mean, colour in zip(found, seen, (BLUE, ORANGE, GREY), strict=True):
            values = p.density(grid[:, None])
            ax.fill_between(grid, values, color=colour, alpha=0.5, linewidth=0, label=f"y = {mean}")
            label = "truth" if mean == seen[-1] else None
            ax.plot(grid, exact(first, mean).pdf(grid), "--", color=INK, linewidth=1.2, label=label)
        ax.plot(grid, gamma(*first).pdf(grid), ":", color=INK, linewidth=WIDTH, label="prior")
        ax.set(title="Which rate, by simulations alone?", xlabel="rate", ylabel="density")
        ax.set_ylim(0, 1.7)

    return Part("INFER   KernelABC(simulator, prior).fit(n).posterior(y)", lines, draw)


# --- a random field -------------------------------------------------------------------------------


def restore_part(rng: np.random.Generator) -> Part:
    """A map that was badly seen: beliefs on a grid, learned from other maps."""
    side, shore = 24, 0.25

    recorded, truth = random_maps(50, side, rng), random_maps(1, side, rng)[0]
    grid = nx.grid_2d_graph(side, side)
    for a, b in grid.edges:  # neighbours are alike everywhere
        grid.edges[a, b]["template"] = "across" if a[0] == b[0] else "down"
    kind = rng.choice(3, size=truth.shape, p=[0.1, 0.1, 0.8])
    hidden, land = kind != 1, (truth > shore) ^ (rng.random(truth.shape) < 0.2)

    def seen(as_land: bool) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.where((x[:, 0] > shore) == as_land, 0.8, 0.2)

    known = {place: truth[place] for place in grid if kind[place] == 1}
    known |= {place: seen(land[place]) for place in grid if kind[place] == 2}

    model = mm.BeliefPropagation(
        grid,
        schedule="residual",
        reweighting="trees",
        max_samples=200,
        random_state=rng,
        progress=False,
    )
    found = model.fit(recorded).run(known)

    mean = found.array("mean")
    told = np.where(kind == 1, truth, np.where(land, 1.5, -1.0))
    told[kind == 0] = np.nan
    places = np.argwhere(kind > 0)
    near = cKDTree(places).query(np.argwhere(kind >= 0))[1]
    nearest = told[tuple(places.T)][near].reshape(truth.shape)
    ends = found.array(found.interval(0.9))
    inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])

    def right(heights: np.ndarray) -> float:
        return float(((heights > shore) == (truth > shore))[hidden].mean())

    lines = [
        "land (1.5) or water (-1): of 10 places 1 is measured, 8 are seen, a fifth of them wrongly",
        row("", "estimate", "truth"),
        row("mean height, not measured", mean[hidden].mean(), truth[hidden].mean()),
        row("land or water right", right(mean), 1.0),
        row("as seen, or else the nearest", right(nearest), 1.0),
        row("in the 90% interval", inside[hidden].mean(), 0.9),
    ]

    named = {
        "what is known": told,
        "as seen, or nearest": nearest,
        "beliefs' mean": mean,
        "truth": truth,
    }

    def draw(ax: Any) -> None:
        draw_maps(ax, named)
        ax.set_title("What is where, badly seen or not at all?")

    return Part("RESTORE   BeliefPropagation(grid).fit(maps).run(known)", lines, draw)


def random_maps(n: int, side: int, rng: np.random.Generator) -> np.ndarray:
    """Heights of land and water, in patches."""
    smooth = gaussian_filter(rng.normal(size=(n, side + 16, side + 16)), (0, 2, 2))
    levels = np.where(smooth[:, 8:-8, 8:-8] > 0, 1.5, -1.0)
    return levels + 0.3 * rng.normal(size=levels.shape)


def draw_maps(ax: Any, maps: dict[str, np.ndarray]) -> None:
    """Square maps beside each other, with their names."""
    side = len(next(iter(maps.values())))
    gap = np.full((side, 4), np.nan)
    strip = [part for values in maps.values() for part in (values, gap)][:-1]
    ax.imshow(np.hstack(strip), cmap="BrBG_r", vmin=-2.2, vmax=2.7, interpolation="nearest")
    corners = np.array([[0, 0], [side, 0], [side, side], [0, side], [0, 0]]) - 0.5
    for number, name in enumerate(maps):
        left = number * (side + 4)
        ax.plot(corners[:, 0] + left, corners[:, 1], color=GREY, linewidth=0.8)
        ax.text(left + side / 2 - 0.5, side + 1.8, name, ha="center")
    ax.set_axis_off()


# --- the screen and the picture -------------------------------------------------------------------

PARTS = (
    compare_part,
    condition_part,
    bayes_part,
    tables_part,
    judge_part,
    track_part,
    infer_part,
    restore_part,
)


def save_picture(parts: list[Part], path: str) -> str:
    """Draw every part that has a panel; say where the picture is, or why it was not drawn."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "No picture: that needs matplotlib, pip install 'meanmap[plot]'."
    panels = [part.draw for part in parts if part.draw is not None]
    across = min(len(panels), 2 if len(panels) <= 4 else 3)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(5.2 * across, 3.9 * down), layout="constrained")
    FigureCanvasAgg(figure)  # needs no window
    grid = figure.add_gridspec(down, across)
    for number, draw in enumerate(panels):
        line, first = divmod(number, across)
        last = across if number == len(panels) - 1 else first + 1  # the last takes what is left
        ax = figure.add_subplot(grid[line, first:last])
        draw(ax)
        ax.set_zorder(1)
        ax.patch.set_visible(False)
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontweight("bold")
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="upper center", ncols=3, fontsize="small", **LEGEND)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        return f"No picture: cannot write {path} ({error.strerror}); name another with --picture."
    return f"Picture: {path}"


def show_demo(arguments: list[str] | None = None) -> None:
    """Print the screen and save the picture."""
    parser = argparse.ArgumentParser(prog="python -m meanmap.demo", description="Show meanmap.")
    parser.add_argument("--picture", default="meanmap-demo.png", help="where to save the picture")
    path = parser.parse_args(arguments).picture

    start = time.perf_counter()
    print(f"meanmap {mm.__version__}: probability as linear algebra, from samples alone\n")
    parts = [part(np.random.default_rng(SEED)) for part in PARTS]
    for number, part in enumerate(parts, 1):
        print(f"{number}. {part.title}", *part.lines, sep="\n   ", end="\n\n")
    print(f"{save_picture(parts, path)}   ({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    show_demo()
