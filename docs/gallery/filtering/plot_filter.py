"""
Track a point with unknown dynamics
===================================

A point moves along a curve with eight waves, disturbed by noise, and is observed with more noise:
the oscillation of Fukumizu, Song and Gretton (2013, section 5.3). ``KernelBayesFilter`` learns the
motion and the observations from one training sequence in which the states were recorded too.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import KernelBayesFilter
from meanmap_experiments.peers import extended_kalman
from meanmap_experiments.systems import OSCILLATION

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
states, observations = OSCILLATION.simulate(500, rng=0)
truth, seen = OSCILLATION.simulate(200, rng=1)

model = KernelBayesFilter(progress=False).fit(states, observations)
print(model.validation_)

# %%
# Filtering uses the observations up to each step; smoothing uses the later ones as well. For
# comparison, the extended Kalman filter of filterpy, if it is installed, is *given* the equations.


def error(means):
    return np.mean(np.sum((means - truth) ** 2, axis=1))


print(f"observations themselves: {error(seen):.3f}")
print(f"filtered:                {error(model.filter(seen).mean):.3f}")
print(f"smoothed:                {error(model.smooth(seen).mean):.3f}")
try:
    print(f"extended Kalman filter:  {error(extended_kalman(OSCILLATION, seen)):.3f}")
except ImportError as absent:
    print(absent)

# %%
# There are no observations during steps 30 to 34 and 52 to 57, marked by rows of NaN. The belief is
# moved on by the learned dynamics, and its interval widens. Smoothing also uses what was observed
# afterwards.

gaps = [range(30, 35), range(52, 58)]
broken = seen.copy()
broken[np.concatenate(gaps)] = np.nan
filtered, smoothed = model.filter(broken), model.smooth(broken)
low, high = filtered.interval(0.9)

fig = plt.figure(figsize=(10.5, 4.2), layout="constrained")
left, right = fig.subfigures(1, 2, width_ratios=(2, 3))
shown = np.arange(20, 65)

ax = left.subplots()
path = slice(36, 44)
ax.plot(*states.T, ".", color=GREY, markersize=3, alpha=0.5, label="training states")
ax.plot(*seen[path].T, "x", color="black", markersize=5, label="observed")
ax.plot(*truth[path].T, "o-", color=ORANGE, markersize=4, label="truth, steps 36 to 43")
ax.plot(*filtered.mean[path].T, "o-", color=BLUE, markersize=4, label="filtered")
ax.set(aspect="equal", ylim=(-1.9, 2.7), xlabel="first coordinate", ylabel="second coordinate")
ax.legend(frameon=False, loc="upper center", ncols=2, fontsize="small")

panels = right.subplots(2, 1, sharex=True)
for i, ax in enumerate(panels):
    for gap in gaps:
        ax.axvspan(gap[0] - 0.5, gap[-1] + 0.5, color=GREY, alpha=0.2, linewidth=0)
    band = low[shown, i], high[shown, i]
    ax.fill_between(shown, *band, color=BLUE, alpha=0.2, linewidth=0, label="90% interval")
    ax.plot(shown, broken[shown, i], ".", color=GREY, label="observed")
    ax.plot(shown, truth[shown, i], color=ORANGE, label="truth")
    ax.plot(shown, filtered.mean[shown, i], color=BLUE, label="filtered")
    ax.plot(shown, smoothed.mean[shown, i], "--", color=GREEN, label="smoothed")
    ax.set(ylabel=("first", "second")[i] + " coordinate", ylim=(-2, 2))
panels[0].set(title="shaded: unobserved")
panels[1].set(xlabel="step")
labels = panels[0].get_legend_handles_labels()
right.legend(*labels, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
for ax in fig.axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
