"""
Read quantiles, modes and samples from a posterior
==================================================

A posterior is a set of weighted atoms, some of the weights negative. This example shows what can be
computed from them: quantiles and intervals, a density, modes, and representative points. The
posterior has two peaks, so its mean says little.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"

# %%
# A sensor squares what it measures: :math:`Y = X^2 + 0.3\,N(0,1)`. The prior leans to the right.
# For numeric targets, quantiles and densities are read from residuals around the mean by default;
# ``normalized`` returns a plain embedding, whose weights are used directly. With two sharp peaks
# and kernels as narrow as these, the weights give the better answer.

rng = np.random.default_rng(0)
n = 2000
X = rng.uniform(-2.5, 2.5, size=(n, 1))
Y = X**2 + 0.3 * rng.normal(size=(n, 1))
model = ConditionalEmbedding(Gaussian(0.2), Gaussian(0.5)).fit(X, Y)
prior = embed(rng.normal(0.25, 1.0, size=(n, 1)), kernel=model.kernel_x_)
answer = model.posterior(prior).given([1.5])
belief = answer.normalized()
print(f"{(belief.weights < 0).mean():.0%} of the weights are negative, mass {belief.mass:.2f}")

grid = np.linspace(-2.5, 2.5, 1001)[:, None]
exact = np.exp(-0.5 * (grid - 0.25) ** 2 - 0.5 * ((1.5 - grid**2) / 0.3) ** 2)[:, 0]
exact /= exact.sum() * (grid[1, 0] - grid[0, 0])

# %%
# **Quantiles** are values of atoms. Negative weights would make the distribution function decrease
# in places; it is replaced by the nearest non-decreasing one.

cdf = np.cumsum(exact) * (grid[1, 0] - grid[0, 0])
levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
for q, value in zip(levels, belief.quantile(levels)[:, 0], strict=True):
    print(f"{q:4.0%} quantile {value:5.2f}, exact {grid[np.searchsorted(cdf, q), 0]:5.2f}")
print(f"from residuals: {answer.quantile(levels)[:, 0].round(2)}")

# %%
# **Modes.** ``mode()`` is the point at which the density is highest. The other peak is found among
# candidates that you supply.

right = belief.mode()
left = belief.mode(candidates=np.linspace(-2.5, 0, 501)[:, None])
print(f"mean {belief.mean()[0]:.2f}, between the peaks; modes {right[0]:.2f}, {left[0]:.2f}")

# %%
# **Representative points.** ``sample`` draws atoms at random; ``herd`` chooses them one at a time,
# so that each corrects for what the earlier ones missed.

sizes = np.array([2, 4, 8, 16, 32, 64, 128])
normal = belief.normalized()
herded = [normal.distance(embed(belief.herd(m), normal.kernel)) for m in sizes]
drawn = [
    np.sqrt(
        np.mean(
            [
                normal.distance(embed(belief.sample(m, rng=seed), normal.kernel)) ** 2
                for seed in range(10)
            ]
        )
    )
    for m in sizes
]

# %%
# The posterior at y = 1.5.

fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
ax = axes[0]
ax.plot(grid, exact, color="black", linewidth=1, label="exact density")
ax.plot(grid, belief.density(grid, bandwidth=0.1), color=BLUE, linewidth=2, label=".density(x)")
ax.plot(belief.herd(24), np.full(24, -0.06), "|", color=ORANGE, markersize=10, label=".herd(24)")
ax.axvline(belief.mean()[0], color=GREY, linestyle=":", label=".mean()")
for i, mode in enumerate((right, left)):
    ax.axvline(mode[0], color=ORANGE, linestyle="--", label=None if i else "modes")
ax.set(xlabel="x", ylabel="density", ylim=(-0.15, 2.6))
ax.legend(loc="upper center", framealpha=1, edgecolor="none", fontsize="small")

ax = axes[1]
levels = np.linspace(0.005, 0.995, 199)
ax.plot(grid, cdf, color="black", linewidth=1, label="exact")
ax.step(belief.quantile(levels)[:, 0], levels, color=BLUE, linewidth=2, label=".quantile(q)")
order = np.argsort(normal.atoms[:, 0])
raw = np.cumsum(normal.weights[order])
ax.plot(normal.atoms[order, 0], raw, color=ORANGE, linewidth=0.8, label="sum of the raw weights")
low, high = belief.interval(0.9)
ax.axvspan(low[0], high[0], color=GREY, alpha=0.2, label=".interval(0.9)")
ax.set(xlabel="x", ylabel="probability of values up to x", xlim=(-2.5, 2.5))
ax.legend(frameon=False, loc="upper left", fontsize="small")

ax = axes[2]
ax.loglog(sizes, drawn, "s--", color=GREY, label=".sample(n)")
ax.loglog(sizes, herded, "o-", color=BLUE, label=".herd(n)")
ax.set(xlabel="points n", ylabel="distance from the posterior")
ax.set_xticks(sizes, [str(m) for m in sizes])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()
