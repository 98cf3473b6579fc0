"""
Infer the parameters of a simulator
===================================

A population grows and crashes according to the Ricker map, and is counted with noise. The
likelihood of the counts has no closed form, but simulating them takes a few lines.
:class:`~meanmap.KernelABC` draws parameters from the prior, simulates counts for each, and learns
the distribution of the parameters given the counts. One fit then answers every new series.
"""

# %%
# The simulator takes all draws at once: rows of parameters in, rows of counts out. The parameters
# are logarithms, so they have no bounds for a posterior to run into.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import KernelABC


def ricker(theta, rng, steps=60):
    log_r, noise, scale = theta[:, 0], *np.exp(theta[:, 1:].T)
    size = np.ones(len(theta))
    counts = []
    for _ in range(steps):
        size = size * np.exp(log_r - size + noise * rng.normal(size=len(theta)))
        counts.append(rng.poisson(scale * size))
    return np.stack(counts[10:], axis=1)


prior = {
    "log growth": stats.norm(3.5, 0.5),
    "log noise": stats.norm(-1.2, 0.4),
    "log scale": stats.norm(2.3, 0.3),
}

# %%
# An observed series. Two series with the same parameters soon diverge, so they are not compared
# count by count but by summaries: how large the counts are, how often they are zero, how fast they
# grow, how growth depends on size, and how much variation that leaves unexplained.

truth = np.array([3.8, np.log(0.3), np.log(10.0)])
counted = ricker(truth[None], np.random.default_rng(1))
again = ricker(truth[None], np.random.default_rng(2))

fig, ax = plt.subplots(figsize=(8, 2.6), layout="constrained")
ax.plot(counted[0], "o-", markersize=3, linewidth=1, color="#d55e00", label="counted")
ax.plot(again[0], linewidth=1, color="#8a8a8a", label="the same parameters again", zorder=0)
ax.set(xlabel="year", ylabel="count")
ax.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
plt.show()


def summary(counts):
    logs = np.log1p(counts)
    growth = np.diff(logs, axis=1)
    size = counts[:, :-1] - counts[:, :-1].mean(axis=1, keepdims=True)
    slope = (size * growth).mean(axis=1) / ((size**2).mean(axis=1) + 1e-9)
    rest = growth - growth.mean(axis=1, keepdims=True) - slope[:, None] * size
    columns = [
        np.log1p(counts.mean(axis=1)),
        (counts == 0).mean(axis=1),
        np.log(counts.std(axis=1) + 0.1),
        np.median(logs, axis=1),
        np.quantile(logs, 0.9, axis=1),
        np.quantile(growth, 0.9, axis=1),
        growth.std(axis=1),
        slope,
        rest.std(axis=1),
    ]
    return np.column_stack(columns)


NAMES = ("mean", "zeros", "spread", "median", "peaks", "growth", "swing", "slope", "rest")
model = KernelABC(ricker, prior, summary=summary, random_state=0).fit(3000)

# %%
# The posterior of the three parameters. Dark bars hold 90% of it, the contours hold 50% and 90% of
# each pair, and the truth is orange. Growth and scale trade off: a faster-growing population
# crashes more deeply, and is smaller on average.

seen = summary(counted)[0]
posterior = model.posterior(seen)
for name, row in posterior.summary().items():
    spread = f"{row['mean']:5.2f} ± {row['std']:.2f}"
    print(f"{name:>10}: {spread}, 90% {row['low']:5.2f} to {row['high']:5.2f}")
posterior.plot(truth=truth)
plt.show()

# %%
# Can it be trusted? Simulation-based calibration draws new parameters, simulates, and counts how
# often intervals contain the truth: curves within the grey band are as good as chance allows. And
# could the model have produced these counts at all? Data simulated from the posterior should look
# like them.

calibration = model.calibrate(300)
print(calibration)
check = model.check(seen)
print(check)

fig = plt.figure(figsize=(10, 4.2), layout="constrained")
left, right = fig.subplots(1, 2, width_ratios=(2, 3))
calibration.plot(left)
check.plot(right)
right.set_xticks(range(len(NAMES)), NAMES, fontsize="small")
right.set(xlabel="summary")
plt.show()

# %%
# A second round simulates near this posterior: draws from the prior that lie in a box around it.
# Weights correct for this restriction, so the model still answers every other observation, as the
# last line shows for a series with parameters (3, −1.5, 2).

model.refine(seen, 1000)
refined = model.posterior(seen)
fig, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
samples = {
    "prior": (model.theta_[:3000], "#8a8a8a"),
    "3,000 simulations": (posterior.sample(4000, rng=0), "#0072b2"),
    "and 1,000 in a second round": (refined.sample(4000, rng=0), "#009e73"),
}
for i, ax in enumerate(axes):
    for name, (draws, colour) in samples.items():
        style = {"histtype": "step", "density": True, "linewidth": 1.5}
        ax.hist(draws[:, i], 40, color=colour, label=name, **style)
    ax.axvline(truth[i], color="#d55e00", label="truth")
    ax.set(xlabel=list(prior)[i], yticks=[])
fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
plt.show()

print(f"first round:   {posterior}")
print(f"second round:  {refined}")
elsewhere = ricker(np.array([[3.0, -1.5, 2.0]]), np.random.default_rng(3))
print(f"another series: {model.posterior(summary(elsewhere)[0])}")

# sphinx_gallery_thumbnail_number = 2
