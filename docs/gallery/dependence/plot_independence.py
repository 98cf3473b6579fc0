"""
Detect dependence that correlation misses
=========================================

Correlation sees straight lines. The Hilbert-Schmidt independence criterion sees any dependence, and
its witness function is a map of it: where do two variables go together more often than if
they were independent? For vectors, the most dependent directions take the map's place.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import independence_test

BLUE, GREY = "#0072b2", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# Three pairs of variables: points around a circle, a wave, and two that have nothing to do with
# each other. As distributions, all three have correlation 0; of a sample it is never quite 0.

n = 300
turn = rng.uniform(0, 2 * np.pi, size=n)
wide = rng.uniform(-np.pi, np.pi, size=n)
pairs = {
    "circle": (np.cos(turn), np.sin(turn)),
    "wave": (wide, np.cos(3 * wide)),
    "nothing": (wide, rng.normal(size=n)),
}
noise = {"circle": 0.2, "wave": 0.3, "nothing": 0.0}
data = {
    name: tuple((v + noise[name] * rng.normal(size=n))[:, None] for v in pair)
    for name, pair in pairs.items()
}
results = {name: independence_test(X, Y, rng=0) for name, (X, Y) in data.items()}
for name, (X, Y) in data.items():
    r = stats.pearsonr(X[:, 0], Y[:, 0])
    print(
        f"{name:8} correlation {r.statistic:+.2f} (p = {r.pvalue:.2f}), "
        f"independence test p = {results[name].pvalue:.4f}"
    )

# %%
# The map of dependence. ``result.witness(x, y)`` is the embedding of the pairs minus that of
# independent ones with the same marginals: red where points lie more often than independence would
# have it, blue where they are missing. The last map is of chance alone, and looks no less
# impressive: the p-value decides, the map only explains.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
for ax, (name, (X, Y)) in zip(axes, data.items(), strict=True):
    x, y = (np.linspace(v.min() - 0.3, v.max() + 0.3, 80) for v in (X, Y))
    across, up = np.meshgrid(x, y)
    values = results[name].witness(across.reshape(-1, 1), up.reshape(-1, 1)).reshape(80, 80)
    top = np.abs(values).max()
    drawn = ax.contourf(x, y, values, levels=np.linspace(-top, top, 15), cmap="RdBu_r")
    ax.plot(X[:, 0], Y[:, 0], ".", color="black", markersize=2.5, alpha=0.6)
    bar = fig.colorbar(drawn, ax=ax, ticks=[-top, 0, top], shrink=0.8)
    bar.ax.set_yticklabels([f"{-top:.3f}", "0", f"{top:.3f}"])
    ax.set(title=f"{name}: p = {results[name].pvalue:.2g}", xlabel="x")
axes[0].set_ylabel("y")
plt.show()

# %%
# **Vectors.** X has five coordinates and Y has three. One coordinate of Y is a wave along one
# direction of X, an even mixture of two coordinates; everything else is noise.

n = 500
X = rng.normal(size=(n, 5))
hidden = (X[:, 0] + X[:, 1]) / np.sqrt(2)
Y = rng.normal(size=(n, 3))
Y[:, 2] = np.sin(2 * hidden) + 0.3 * rng.normal(size=n)

result = independence_test(X, Y, rng=0)
print(result)

# %%
# The picture of such a result is the pair of functions, one of X and one of Y, with the largest
# covariance of all functions of norm one: the first singular functions of the cross-covariance
# operator. ``result.explanation.directions`` has their values at the sample. They have found the
# sine and the coordinate that carries it: each is drawn against what we know to be behind it.

f, g, correlation = result.explanation.directions
if np.corrcoef(g, Y[:, 2])[0, 1] < 0:  # the sign is arbitrary
    f, g = -f, -g

fig, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
for ax, (a, b) in zip(axes, ((f, g), (hidden, f), (Y[:, 2], g)), strict=True):
    ax.plot(a, b, ".", color=BLUE, markersize=3, alpha=0.6)
axes[0].set(title=f"correlation {correlation:.2f}", xlabel="f(X)", ylabel="g(Y)")
axes[1].set(title="what f sees of X", xlabel="the hidden direction of X", ylabel="f(X)")
axes[2].set(title="what g sees of Y", xlabel="the third coordinate of Y", ylabel="g(Y)")
plt.show()

# %%
# A warning. Among all functions *some* pair is always correlated by chance, and this pair was
# chosen after seeing the data. With the rows of Y shuffled, the best pair is still correlated.

shuffled = independence_test(X, rng.permutation(Y), rng=0)
print(f"shuffled: correlation {shuffled.explanation.directions[2]:.2f}, p = {shuffled.pvalue:.2f}")
