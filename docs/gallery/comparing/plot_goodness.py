"""
Check whether a sampler has converged to the right density
==========================================================

A Markov chain should end up in its target density, of which usually nothing but the gradient of
its logarithm can be computed. That is enough: the kernel Stein discrepancy compares a sample with
a density by this *score*, without a normalising constant and without a second sample. Here two
samplers explore the same target, a banana, and one of them takes a common shortcut.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import goodness_of_fit_test
from meanmap.comparison import Simulation, power_analysis

# %%
# The target is a Gaussian bent into a banana: :math:`x_1 \sim N(0, 1)` and
# :math:`x_2 \mid x_1 \sim N(x_1^2 - 1,\ 0.8^2)`.

VARIANCE = 0.8**2


def log_density(x):
    return -(x[:, 0] ** 2) / 2 - (x[:, 1] - x[:, 0] ** 2 + 1) ** 2 / (2 * VARIANCE)


def score(x):
    bend = (x[:, 1] - x[:, 0] ** 2 + 1) / VARIANCE
    return np.column_stack([-x[:, 0] + 2 * x[:, 0] * bend, -bend])


# %%
# Both samplers are Langevin dynamics: a step along the score, plus noise. The Metropolis-adjusted
# one accepts or rejects each step so that the target stays invariant; the unadjusted one leaves
# that out, and ends up in a density that is a little off. Thirty chains run side by side.


def langevin(steps, size, adjusted, rng, chains=30):
    x = rng.normal(size=(chains, 2))
    kept = []
    for step in range(steps):
        ahead = x + size * score(x) + np.sqrt(2 * size) * rng.normal(size=x.shape)
        if adjusted:
            there = -np.sum((ahead - x - size * score(x)) ** 2, axis=1) / (4 * size)
            back = -np.sum((x - ahead - size * score(ahead)) ** 2, axis=1) / (4 * size)
            odds = log_density(ahead) + back - log_density(x) - there
            ahead = np.where((np.log(rng.random(chains)) < odds)[:, None], ahead, x)
        x = np.clip(ahead, -20, 20)
        if step >= steps // 4:
            kept.append(x)
    return np.swapaxes(kept, 0, 1).reshape(-1, 2)  # one chain after the other


rng = np.random.default_rng(0)
samples = {
    "adjusted": langevin(200, 0.08, True, rng),
    "unadjusted": langevin(200, 0.08, False, rng),
}

# %%
# The rows of a chain depend on each other, so that whole blocks of them get one random weight:
# ``null="block"`` finds out how long these must be.

results = {name: goodness_of_fit_test(X, score, null="block", rng=0) for name, X in samples.items()}
for name, result in results.items():
    print(f"{name}: {result}\n")

# %%
# The witness says in which direction the points would have to move to fit the target better. For
# the unadjusted chain the arrows point from the fringe, where it strays, to the ridge.

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 17), np.linspace(-3.5, 5.5, 17)), axis=-1)
fine = np.stack(np.meshgrid(np.linspace(-3, 3, 120), np.linspace(-3.5, 5.5, 120)), axis=-1)
density = np.exp(log_density(fine.reshape(-1, 2))).reshape(fine.shape[:2])
for ax, (name, result) in zip(axes, results.items(), strict=True):
    ax.contour(*np.moveaxis(fine, -1, 0), density, levels=6, colors="0.7", linewidths=0.8)
    ax.plot(*samples[name][::5].T, ".", color="#0072b2", markersize=2, alpha=0.4)
    arrows = result.witness(grid.reshape(-1, 2)).reshape(grid.shape)
    style = {"color": "#d55e00", "scale": 0.8, "width": 0.004, "zorder": 3}
    ax.quiver(*np.moveaxis(grid, -1, 0), *np.moveaxis(arrows, -1, 0), **style)
    ax.set(title=f"{name}, p = {result.pvalue:.3g}", xlabel="$x_1$", xlim=(-3, 3), ylim=(-3.5, 5.5))
axes[0].set_ylabel("$x_2$")
plt.show()

# %%
# How many independent points would show the same flaw? A pilot answers: rows two hundred steps
# apart hardly depend on each other. Among few points the largest scores outweigh all others, and
# random weights do not hold the level. This target can be sampled, and with
# ``Simulation(draw)`` the test simulates its null distribution instead, which is exact.


def draw(n, generator):
    x = generator.normal(size=n)
    return np.column_stack([x, x**2 - 1 + np.sqrt(VARIANCE) * generator.normal(size=n)])


pilot = langevin(2000, 0.08, False, rng)[::200]
settings = {"score": score, "null": Simulation(draw), "n_permutations": 99}
answer = power_analysis(goodness_of_fit_test, pilot, **settings, n_simulations=50, rng=0)
print(answer)
answer.plot()
plt.show()
