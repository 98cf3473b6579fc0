"""
A map from a few places
=======================

A map of land and water, of which a few places are known. Each place is a variable that depends on
its four neighbours, so the graph is a grid, full of loops, and messages go round and round:
:class:`~meanmap.BeliefPropagation` learns what neighbours say of each other from other
maps, and then what the known places say of all others.
"""

# %%
# On each map heights lie around 1.5 or around −1, in patches. One hundred maps are there to learn
# from.

import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from meanmap import BeliefPropagation

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
SIDE, SHORE = 20, 0.25

rng = np.random.default_rng(0)


def maps(n):
    smooth = gaussian_filter(rng.normal(size=(n, SIDE + 16, SIDE + 16)), (0, 2, 2))[:, 8:-8, 8:-8]
    return np.where(smooth > 0, 1.5, -1.0) + 0.3 * rng.normal(size=smooth.shape)


recorded, new = maps(100), maps(8)

# %%
# A place says the same of its right neighbour wherever it lies: edges with the same ``template``
# share a potential, learned from the pairs of all of them. There are two templates, so
# four small matrices are all that is learned.

grid = nx.grid_2d_graph(SIDE, SIDE)
for a, b in grid.edges:
    grid.edges[a, b]["template"] = "across" if a[0] == b[0] else "down"

start = time.perf_counter()
model = BeliefPropagation(grid, schedule="residual", max_samples=300, random_state=0).fit(recorded)
print(f"fit: {time.perf_counter() - start:.2f} s")

# %%
# **Evidence.** At some places somebody has measured the height. Others were seen from afar: land or
# water, and one in ten is wrong. That is a likelihood, and goes in as a function of heights.


def seen_as(land):
    return lambda x: np.where((x[:, 0] > SHORE) == land, 0.9, 0.1)


def glimpse(truth):
    """What is known of a map: which places, sightings, and both as evidence."""
    kind = rng.choice(["nothing", "measured", "seen"], size=truth.shape, p=[0.6, 0.1, 0.3])
    land = (truth > SHORE) ^ (rng.random(truth.shape) < 0.1)
    evidence = {place: truth[place] for place in grid if kind[place] == "measured"}
    evidence |= {place: seen_as(land[place]) for place in grid if kind[place] == "seen"}
    return kind, land, evidence


known = [glimpse(truth) for truth in new]
start = time.perf_counter()
runs = [model.run(evidence) for _, _, evidence in known]
print(f"run: {(time.perf_counter() - start) / len(runs):.2f} s a map")
truth, (kind, land, evidence), found = new[0], known[0], runs[0]
print(found)

# %%
# Every place now has a belief, and its deviation says where the shores may be. ``found.plot()``
# draws the two lower pictures.

fig, axes = plt.subplots(2, 2, figsize=(9, 8.2), layout="constrained")
height = {"cmap": "BrBG_r", "vmin": -2.2, "vmax": 2.7}
measured = np.where(kind == "measured", truth, np.nan)
panels = (("the truth", truth), ("what is known", measured), ("mean", found.array("mean")))
for ax, (title, values) in zip(axes.flat, panels, strict=False):
    drawn = ax.imshow(values, **height)
    ax.set(title=title, xticks=[], yticks=[])
for seen, mark in ((True, "^"), (False, "v")):
    i, j = np.nonzero((kind == "seen") & (land == seen))
    label = "seen as land" if seen else "seen as water"
    axes[0, 1].plot(j, i, mark, color="#8c5109" if seen else "#01665e", label=label)
axes[0, 1].legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
fig.colorbar(drawn, ax=axes[:, 0], shrink=0.6, location="left", label="height")
drawn = axes[1, 1].imshow(found.array("std"), cmap="magma")
axes[1, 1].set(title="standard deviation", xticks=[], yticks=[])
fig.colorbar(drawn, ax=axes[:, 1], shrink=0.6)
plt.show()

# %%
# Beside it, on eight maps: the nearest measured place, and a Gaussian process, which takes
# sightings for heights of 1.5 or −1 with the noise that they then have.

errors, inside = {}, []
for truth_of, (kind_of, land_of, _), run in zip(new, known, runs, strict=True):
    hidden = kind_of != "measured"
    at = np.argwhere(hidden)
    nearest = cKDTree(np.argwhere(~hidden)).query(at)[1]
    told = np.argwhere(kind_of != "nothing")
    noise = np.where(hidden, 0.65, 0.09)[tuple(told.T)]  # variances
    value = np.where(hidden, np.where(land_of, 1.5, -1.0), truth_of)[tuple(told.T)]
    process = GaussianProcessRegressor(
        ConstantKernel(1.5) * RBF(3.0, (0.5, 20)), alpha=noise, random_state=0
    )
    answers = {
        "beliefs": run.array("mean")[hidden],
        "nearest": truth_of[~hidden][nearest],
        "Gaussian process": process.fit(told, value - 0.25).predict(at) + 0.25,
    }
    for name, answer in answers.items():
        right = np.mean((answer > SHORE) == (truth_of[hidden] > SHORE))
        error = np.sqrt(np.mean((answer - truth_of[hidden]) ** 2))
        errors.setdefault(name, []).append((error, right))
    ends = np.array(list(run.interval(0.9).values())).reshape(SIDE, SIDE, 2)
    inside.append(((ends[..., 0] <= truth_of) & (truth_of <= ends[..., 1]))[hidden].mean())
for name, both in errors.items():
    error, right = np.mean(both, axis=0)
    print(f"{name:>16}: root mean square error {error:.2f}, land or water {right:.0%} right")
print(f"in the 90% interval: {np.mean(inside):.0%} of the places not measured")

# %%
# A Gaussian process that is told so well what a sighting is worth tells land from water as often,
# and its means err less: beliefs are too sure, and fewer than 90% of the heights are where they
# expect them. On loops, what a place says comes back to it by way of others, as if it were
# news. What only beliefs have is a shape.
#
# **Two modes.** ``density`` draws the belief of a place. Of the three here one is water, one is
# land, and one could be either.

spread, mean = found.array("std"), found.array("mean")
free = np.where(kind == "nothing", spread, np.nan)
chosen = {
    "either": np.unravel_index(np.nanargmax(free), free.shape),
    "land": np.unravel_index(np.nanargmin(np.where(mean > SHORE, free, np.nan)), free.shape),
    "water": np.unravel_index(np.nanargmin(np.where(mean < SHORE, free, np.nan)), free.shape),
}
hidden = kind != "measured"
x = np.linspace(-2.5, 3, 300)
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, place), colour in zip(chosen.items(), (GREY, ORANGE, BLUE), strict=True):
    place = tuple(map(int, place))
    values = found.density(place, x)
    ax.fill_between(x, values, color=colour, alpha=0.4, linewidth=0)
    ax.plot(x, values, color=colour, linewidth=2, label=f"{name}: {place}")
    ax.plot(truth[place], 0.02, "o", color=colour, markeredgecolor="black", clip_on=False)
ax.set(xlabel="height (dots: the truth)", ylabel="density", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper center")
plt.show()

# %%
# **Schedules.** On a tree, messages are final once they have crossed it; on loops they may settle,
# or not. All at once (``"synchronous"``) news goes a step an iteration. ``"residual"`` sends what
# would change most, and needs the fewest. ``"sequential"`` sweeps over the map and back. Here all
# end alike; with less evidence they may not, for there can be several fixed points. Settings of a
# run can be changed without another fit.

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for schedule, colour in (("synchronous", BLUE), ("sequential", ORANGE), ("residual", GREEN)):
    for damping, line in ((0.0, "-"), (0.5, "--")):
        model.set_params(schedule=schedule, damping=damping)
        start = time.perf_counter()
        run = model.run(evidence, max_iterations=150)
        seconds = time.perf_counter() - start
        label = schedule if damping == 0 else f"{schedule}, damping {damping}"
        ax.semilogy(
            np.arange(1, run.iterations + 1), run.residuals, line, color=colour, label=label
        )
        error = np.sqrt(np.mean((run.array("mean") - truth)[hidden] ** 2))
        print(f"{label:>26}: {run.iterations:3d} iterations, {seconds:.2f} s, error {error:.2f}")
ax.axhline(model.tolerance, color=GREY, linewidth=0.8)
ax.set(xlabel="iteration", ylabel="largest change of a message", xlim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize="small")
plt.show()
