"""
All plots at a glance
=====================

Results have a ``plot`` method. It draws on the given axes, or on new ones, and returns them, so
titles, limits and labels can be changed as usual in matplotlib. This page shows all of them, on
small samples.
"""

# %%
# **Distributions.** An embedding of numbers, of points in the plane, and of labels.

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from scipy import stats
from scipy.ndimage import gaussian_filter

import meanmap as mm
from meanmap.dynamics import TransferOperator

warnings.simplefilter("ignore", UserWarning)
rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(300, 1))
y = np.sin(x) + (0.1 + 0.1 * np.abs(x)) * rng.normal(size=x.shape)
plane = rng.normal(size=(300, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
labels = rng.choice(["red", "green", "blue"], size=300, p=[0.5, 0.3, 0.2])


def row(*plots, height=3.6):
    """Pictures side by side."""
    panels = plt.subplots(1, len(plots), figsize=(4 * len(plots), height), layout="constrained")[1]
    for plot, ax in zip(plots, np.ravel(panels), strict=True):
        plot(ax=ax)


row(mm.embed(y).plot, mm.embed(plane).plot, mm.embed(labels).plot)

# %%
# A joint distribution, a density, and a few points that represent a sample.

row(
    mm.embed((x, y)).plot,
    mm.EmbeddingDensity().fit(plane).plot,
    mm.statistics.compress(plane, 20, rng=0).plot,
)

# %%
# **Conditional distributions.** The mean and the 90% interval of y given x, the errors by which the
# regularisation was chosen, and the eigenvalues of a rotating process.

model = mm.ConditionalEmbedding().fit(x, y)
angle = np.cumsum(0.5 + 0.2 * rng.normal(size=300))
states = np.column_stack([np.cos(angle), np.sin(angle)])
turning = TransferOperator().fit(states)
row(model.plot, model.leave_one_out_.plot, turning.plot)

# %%
# **Tests.** The null distribution with the observed statistic; where two samples differ; where two
# variables are associated.

mm.two_sample_test(y[:150], y[150:] + 0.5, rng=0).plot()
mm.independence_test(x, y, rng=0).plot()

# %%
# The sample size needed, estimated from a pilot study; whether a sample fits a density, and where
# it does not.

pilot = mm.comparison.power_analysis(
    mm.two_sample_test, y[:60], y[60:120] + 0.4, n_simulations=50, sizes=(20, 40), rng=0
)
row(pilot.plot)
mm.goodness_of_fit_test(plane, lambda z: -z, rng=0).plot()

# %%
# **Filters.** A hidden state and the truth.

t = np.arange(400)
position = np.column_stack([np.cos(0.2 * t), np.sin(0.2 * t)]) + 0.05 * rng.normal(size=(400, 2))
seen = position + 0.3 * rng.normal(size=position.shape)
tracker = mm.KernelBayesFilter().fit(position[:300], seen[:300])
tracker.filter(seen[300:]).plot(truth=position[300:])

# %%
# **Simulators.** A posterior and the truth, and whether intervals have the coverage they promise.


def simulator(theta, rng):
    return theta[:, :1] + theta[:, 1:] * rng.normal(size=(len(theta), 5))


prior = {"centre": stats.norm(0, 2), "spread": stats.uniform(0.2, 2)}
inference = mm.KernelABC(simulator, prior, random_state=0).fit(800)
observed = simulator(np.array([[1.0, 0.8]]), np.random.default_rng(1))[0]
inference.posterior(observed).plot(truth=[1.0, 0.8])
row(inference.calibrate(100).plot, inference.check(observed).plot)

# %%
# **Graphical models.** What evidence says about the other variables; a map from noisy, incomplete
# observations.

chain = nx.path_graph(["a", "b", "c"])
table = {"a": x, "b": y, "c": y**2 + 0.1 * rng.normal(size=y.shape)}
network = mm.KernelGraphicalModel(chain).fit(table)
row(lambda ax: network.plot({"a": 1.5}, ax=ax))
maps = gaussian_filter(rng.normal(size=(40, 12, 12)), (0, 1.5, 1.5)) * 4
known = np.where(rng.random((12, 12)) < 0.3, maps[0], np.nan)
mm.BeliefPropagation(nx.grid_2d_graph(12, 12)).fit(maps[1:]).run(known).plot()

# %%
# **Components, maps and clusters.** Rows in the plane of two components, coloured by class; two
# views; clusters.

rings = np.repeat([1.0, 3.0], 150)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
rings += 0.15 * rng.normal(size=rings.shape)
ring = np.repeat(["inner", "outer"], 150)
components = mm.learning.KernelPCA(2, kernel=mm.kernels.Gaussian("0.5*median")).fit(rings)
views = mm.learning.KernelCCA(1).fit(x, y)
row(
    lambda ax: components.plot(rings, ring, ax),
    lambda ax: views.plot(x, y, ax),
    lambda ax: (
        mm.HSICClustering(2, mm.kernels.Gaussian("0.3*median"), random_state=0)
        .fit(rings)
        .plot(rings, ax)
    ),
)

# %%
# Rows projected on the most informative direction, a map coloured by a number, and selected
# features.

wide = np.column_stack([plane, rng.normal(size=(300, 4))])
target = np.tanh(2 * (wide[:, 0] - wide[:, 1])) + 0.1 * rng.normal(size=300)
reduction = mm.learning.KernelDimensionReduction(1, random_state=0).fit(wide, target)
unfolded = mm.ColoredUnfolding(2, random_state=0).fit(states[:150])
row(
    lambda ax: reduction.plot(wide, target, ax),
    lambda ax: unfolded.plot(angle[:150] % (2 * np.pi), ax),
    mm.HSICSelector(2).fit(wide, target).plot,
)

# %%
# **Shift between training and test data.** Weights of rows, shares of classes, components that
# domains share, rows that were moved, and a report of it all.

sort = np.where(plane[:, 0] > 0, "high", "low")
kept = rng.random(300) < np.where(sort == "high", 0.9, 0.3)
domains = np.repeat(["first", "second", "third"], 100)
moved = plane + 0.7 * np.repeat(np.arange(3), 100)[:, None]
invariant = mm.InvariantComponents(2, trade_off=0.5, regularization=1e-2)
invariant.fit(moved, domains=domains)
row(
    mm.KernelMeanMatching(random_state=0).fit(plane, X_test=plane[kept]).plot,
    mm.TargetShift(random_state=0, n_bootstrap=100).fit(plane, sort, X_test=plane[kept]).plot,
    lambda ax: invariant.plot(moved, domains, ax),
)
halves = plane[:150], 1.5 * plane[150:] + [0.5, 0]
mm.LocationScaleShift(random_state=0).fit(halves[0], sort[:150], X_test=halves[1]).plot()
mm.report.shift_report(plane, plane[kept] + [0, 0.5], rng=0).plot()
plt.show()
