"""
Correct for a recalibrated instrument
=====================================

A classifier was trained on measurements from one instrument. The new instrument has different gains
and offsets, which also depend on the kind of sample, and none of its measurements are labelled.
:class:`~meanmap.LocationScaleShift` finds a gain and an offset for every feature and class such
that the transformed old rows have the kernel embedding of the new ones. The classifier is then
retrained on the old rows as the new instrument would have measured them.
"""

# %%
# **Wines, measured twice.** Half of the wines keep their 13 chemical measurements and their
# cultivar. The other half is measured by the new instrument: each feature has its own gain and
# offset, which differ somewhat between cultivars.

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meanmap import LocationScaleShift

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
wine = load_wine()
deviation = wine.data.std(axis=0)


def measured_twice(seed):
    """Old rows with classes, new rows with theirs (to judge by), gains and offsets by class."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(wine.target))
    old, new = order[:89], order[89:]
    gain = np.exp(0.3 * rng.normal(size=13) + 0.2 * rng.normal(size=(3, 13)))
    offset = (0.7 * rng.normal(size=13) + 0.3 * rng.normal(size=(3, 13))) * deviation
    y, hidden = wine.target[old], wine.target[new]
    middle = wine.data.mean(axis=0)
    T = middle + (wine.data[new] - middle) * gain[hidden] + offset[hidden]
    return wine.data[old], y, T, hidden, gain, offset + middle * (1 - gain)


X, y, T, hidden, gain, offset = measured_twice(100)
shift = LocationScaleShift(random_state=0).fit(X, y, X_test=T)
print(f"distance of embeddings: {shift.distance_before_:.3f} before, {shift.distance_:.3f} after")
print(f"converged: {shift.converged_}, {shift.n_iter_} steps")
print("shares of the cultivars:", shift.proportions_.round(2), "estimated without labels,")
print("                        ", (np.bincount(hidden) / len(hidden)).round(2), "in truth")

# %%
# Two of the features, before and after. The ellipses show the new rows of each cultivar, which the
# method does not know.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharex=True, sharey=True)
columns = [6, 9]  # flavanoids and colour intensity
for ax, rows, title in zip(axes, (X, shift.X_new_), ("as measured", "moved"), strict=True):
    for k, (colour, mark) in enumerate(zip((BLUE, ORANGE, GREEN), "o^s", strict=True)):
        part = T[hidden == k][:, columns]
        values, axis = np.linalg.eigh(np.cov(part.T))
        turn = np.linspace(0, 2 * np.pi, 100)
        ring = 2 * np.stack([np.cos(turn), np.sin(turn)], 1) * np.sqrt(values) @ axis.T
        ax.plot(*(part.mean(axis=0) + ring).T, color=colour)
        ax.plot(*rows[y == k][:, columns].T, mark, color=colour, ms=4, alpha=0.7, label=f"{k}")
    ax.set(title=f"old rows, {title}", xlabel="flavanoids")
axes[0].set(ylabel="colour intensity")
axes[0].legend(title="cultivar", frameon=False)
plt.show()

# %%
# **Does it help?** Six splits, each with its own gains and offsets. The baselines are the unchanged
# rows and two methods that do not use classes: matching the mean and standard deviation of each
# feature, and CORAL, which matches the covariance. The last column is the accuracy with the true
# recalibration.


def root(C, power):
    """A power of a covariance matrix, a little of the identity added as CORAL does."""
    values, vectors = scipy.linalg.eigh(C + 1e-3 * np.eye(len(C)))
    return (vectors * values**power) @ vectors.T


def coral(X, T):
    """Old rows with mean and covariance of the new ones (Sun, Feng and Saenko 2016)."""
    s, t = (rows / T.std(axis=0) for rows in (X, T))
    there = (s - s.mean(axis=0)) @ root(np.cov(s.T), -0.5) @ root(np.cov(t.T), 0.5)
    return (there + t.mean(axis=0)) * T.std(axis=0)


def moments(X, T):
    return (X - X.mean(axis=0)) / X.std(axis=0) * T.std(axis=0) + T.mean(axis=0)


table = []
for seed in range(100, 106):
    X, y, T, hidden, gain, offset = measured_twice(seed)
    shift = LocationScaleShift(n_init=2, random_state=0).fit(X, y, X_test=T)
    ways = {
        "untouched": X,
        "moments": moments(X, T),
        "CORAL": coral(X, T),
        "moved": shift.X_new_,
        "truth": X * gain[y] + offset[y],
    }
    model = make_pipeline(StandardScaler(), LogisticRegression())
    table.append([model.fit(rows, y).score(T, hidden) for rows in ways.values()])
table = np.array(table)
print("split  " + "  ".join(f"{name:>9}" for name in ways))
for seed, row in zip(range(100, 106), table, strict=True):
    print(f"{seed:>5}  " + "  ".join(f"{value:>9.3f}" for value in row))
print(" mean  " + "  ".join(f"{value:>9.3f}" for value in table.mean(axis=0)))

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(table.T, ".-", color=GREY, linewidth=0.8, alpha=0.6)
ax.plot(table.mean(axis=0), "o", color=BLUE, markersize=9, label="mean of the splits")
ax.set_xticks(range(len(ways)), list(ways))
ax.set(ylabel="right among new rows")
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
# **Estimated gains.** Gains of the last split, estimated without labels from the new instrument,
# plotted against the true ones. There are 78 numbers to find from 89 rows: single gains are rough,
# especially for a rare class, but together they move the rows to the right place.

fig, ax = plt.subplots(figsize=(4.4, 4), layout="constrained")
for k, (colour, mark) in enumerate(zip((BLUE, ORANGE, GREEN), "o^s", strict=True)):
    ax.plot(gain[k], shift.scale_[k], mark, color=colour, label=f"cultivar {k}")
ends = [min(gain.min(), shift.scale_.min()), max(gain.max(), shift.scale_.max())]
ax.plot(ends, ends, color=GREY, linewidth=1)
ax.set(xlabel="true gain", ylabel="gain found")
ax.legend(frameon=False)
plt.show()
