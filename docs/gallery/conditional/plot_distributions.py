"""
Predict quantiles, densities and intervals
==========================================

Three conditional distributions: noise that grows, noise that is skewed, and noise with two modes.
The default ``ConditionalEmbedding()`` is given the pairs and nothing else. Its quantiles, densities
and intervals are compared with the true ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import ConditionalEmbedding

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# Each distribution is a mixture with known components, so its quantiles and densities are known.
# The sample has 2,000 rows.

LAWS = {
    "spread that grows": lambda x: [(1.0, stats.norm(np.sin(2 * x), 0.1 + 0.25 * x))],
    "skewed": lambda x: [(1.0, stats.gamma(1.5, np.cos(2 * x), 0.2 + 0.2 * x))],
    "two modes": lambda x: [
        (0.4, stats.norm(0.5 * x, 0.2)),
        (0.6, stats.norm(-1 - 0.5 * x, 0.2)),
    ],
}


def draw(law, x):
    parts = law(x)
    which = rng.choice(len(parts), size=len(x), p=[p for p, _ in parts])
    return np.choose(which, [part.rvs(len(x), random_state=rng) for _, part in parts])


def density(law, x, y):
    return sum(p * part.pdf(y) for p, part in law(x))


def quantile(law, x, q):
    y = np.linspace(-4, 6, 4001)
    F = sum(p * part.cdf(y) for p, part in law(x))
    return y[np.searchsorted(F, q)]


n = 2000
samples, models = {}, {}
for name, law in LAWS.items():
    x = rng.uniform(0, 3, size=n)
    samples[name] = x[:, None], draw(law, x)
    models[name] = ConditionalEmbedding().fit(*samples[name])

# %%
# **Quantiles.** The bands lie between the 5% and 95% and between the 25% and 75% quantiles; the
# line is the median, and dashed lines are the truth. The lower row shows the density at three
# values of x.

grid = np.linspace(0.05, 2.95, 59)
levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
places, colours = (0.5, 1.5, 2.5), (BLUE, ORANGE, GREY)

fig, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
for (name, law), top, bottom in zip(LAWS.items(), *axes, strict=True):
    model = models[name]
    bands = model.predict_quantiles(grid[:, None], levels)
    truth = np.array([quantile(law, x, levels) for x in grid])
    off = np.sqrt(np.mean((bands - truth) ** 2)) / np.std(samples[name][1])
    print(f"{name:18} quantiles are off by {off:.2f} of the standard deviation of y")
    assert off < 0.12
    top.plot(*(part.ravel() for part in samples[name]), ".", color=GREY, markersize=1, alpha=0.5)
    for low, high, alpha in ((0, 4, 0.2), (1, 3, 0.35)):
        top.fill_between(grid, bands[:, low], bands[:, high], color=BLUE, alpha=alpha, linewidth=0)
    top.plot(grid, bands[:, 2], color=BLUE)
    top.plot(grid, truth, "--", color="black", linewidth=0.8)
    top.set(xlabel="x", title=name, ylim=np.quantile(samples[name][1], [0.002, 0.998]))

    y = np.linspace(*top.get_ylim(), 301)
    for place, colour in zip(places, colours, strict=True):
        found = model.given([place]).density(y[:, None])
        bottom.plot(y, found, color=colour, label=f"x = {place}")
        bottom.plot(y, density(law, place, y), "--", color="black", linewidth=0.8)
    bottom.set(xlabel="y", ylabel="density", ylim=(0, None))
axes[0, 0].set_ylabel("y")
axes[1, 0].plot([], [], "--", color="black", linewidth=0.8, label="truth")
axes[1, 0].legend(frameon=False)
plt.show()

# %%
# **Scores** compare whole distributions on new rows. The continuous ranked probability score (CRPS)
# is in the units of y; lower is better. It is shown next to that of a normal distribution with the
# same mean and standard deviation, which is what a regression with error bars gives.


def crps_of_normal(mean, std, y):
    z = (y - mean) / std
    score = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    return np.mean(std * score)


for name, law in LAWS.items():
    x = rng.uniform(0, 3, size=1000)
    y = draw(law, x)
    ours = models[name].crps(x[:, None], y)
    normal = crps_of_normal(*models[name].predict(x[:, None], return_std=True), y)
    print(f"{name:18} CRPS {ours:.3f}; a normal distribution {normal:.3f}")
    assert ours < 1.02 * normal

# %%
# **Which columns matter?** Here y depends strongly on the first column, weakly on the second, and
# not at all on the other four. A scale is learned for each column; the relevance of a column is its
# spread divided by its scale.

X = rng.uniform(-1, 1, size=(1000, 6))
y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=1000)
model = ConditionalEmbedding().fit(X, y)
relevance = model.relevance()
print(relevance)
assert relevance.values[0] > relevance.values[1] > relevance.values[2:].max()

# %%
# **Intervals with a guarantee.** ``interval`` has been measured to be about right. ``calibrate``
# takes rows that the model has not seen and makes the coverage right on average over new rows, even
# if the model is poor, such as the one below, whose λ is far too small. The guarantee requires
# exchangeable rows.

poor = ConditionalEmbedding(regularization=1e-9).fit(X[:150], y[:150])
held, new = (slice(150, 500), slice(500, 1000))
coverage = {}
for name, fitted in {
    "poor model": poor,
    "default": ConditionalEmbedding().fit(X[:150], y[:150]),
}.items():
    for kind, answer in {
        "as it is": fitted.given(X[new]).interval(0.9),
        "calibrated": fitted.calibrate(X[held], y[held]).interval(X[new], 0.9),
    }.items():
        low, high = (end.ravel() for end in answer)
        coverage[f"{name},\n{kind}"] = np.mean((low <= y[new]) & (y[new] <= high))
        width = np.mean(high - low)
        print(f"{name}, {kind}: covers {list(coverage.values())[-1]:.1%}, width {width:.2f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
relevance.plot(left)
right.bar(coverage.keys(), coverage.values(), color=[GREY, BLUE, GREY, BLUE])
right.axhline(0.9, color="black", linewidth=1)
right.set(ylabel="coverage of 90% intervals", ylim=(0.6, 1))
plt.show()
