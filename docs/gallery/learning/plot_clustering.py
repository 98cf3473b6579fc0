"""
Cluster with labels on a ring or a chain
========================================

Clustering gives every point a label, and usually the number of a cluster means nothing. Here it
does: :class:`~meanmap.HSICClustering` finds the labels that depend most on the points, and a *label
kernel* says which labels are similar. Labels on a ring then follow data that form a loop, and
labels on a chain follow data from one end to the other.
"""

# %%
# **First, without order.** With a linear kernel the labels are those of k-means. A Gaussian kernel
# separates a ring from the ring inside it, which k-means cuts in halves.

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.cluster import KMeans

from meanmap import HSICClustering
from meanmap.kernels import Gaussian, Linear

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
rng = np.random.default_rng(0)
turn = rng.uniform(0, 2 * np.pi, 300)
radius = np.where(np.arange(300) % 2, 1.0, 4.0)
X = radius[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
X += 0.2 * rng.normal(size=X.shape)

means = KMeans(2, n_init=10, random_state=0).fit(X)
linear = HSICClustering(2, Linear(), random_state=0).fit(X)
gaussian = HSICClustering(2, Gaussian("0.4*median"), random_state=0).fit(X)
between = np.sum((X - X.mean(axis=0)) ** 2) - means.inertia_
print(f"scatter between clusters: k-means {between:.6f}, dependence {300 * linear.objective_:.6f}")

fig, axes = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
for ax, model, title in zip(axes, (means, gaussian), ("k-means", "Gaussian kernel"), strict=True):
    for label, colour, mark in ((0, BLUE, "o"), (1, ORANGE, "^")):
        ax.plot(*X[model.labels_ == label].T, mark, color=colour, markersize=3)
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])
plt.show()

# %%
# **Labels on a ring.** An object, here a cloud of bright points in space, is viewed from all sides
# at unrecorded angles. With ``label_kernel="ring"`` label 0 is similar to labels 1 and 11, and
# least similar to label 6, so clusters of similar views get neighbouring labels. The kernel is
# narrow: it compares a view with its neighbours and not with the view from behind, which may look
# similar.

cloud = rng.normal(size=(25, 3)) * [0.35, 0.3, 0.35]
light = rng.uniform(0.3, 1.0, size=25)


def view(angle):
    x = np.cos(angle) * cloud[:, 0] + np.sin(angle) * cloud[:, 2]
    z = np.cos(angle) * cloud[:, 2] - np.sin(angle) * cloud[:, 0]
    canvas = np.zeros((24, 24))
    at = [np.clip((p + 1) * 12, 0, 23).astype(int) for p in (cloud[:, 1], x)]
    np.add.at(canvas, tuple(at), light * (1.5 + z))
    return gaussian_filter(canvas, 1.5)


angles = rng.uniform(0, 2 * np.pi, 400)
views = np.array([view(angle) for angle in angles])
pictures = views.reshape(400, -1) + 0.005 * rng.normal(size=(400, 24 * 24))
model = HSICClustering(12, Gaussian("0.4*median"), "ring", n_init=20, random_state=0).fit(pictures)

fig = plt.figure(figsize=(7, 4.6), layout="constrained")
top, bottom = fig.subfigures(2, 1, height_ratios=(1, 1.6))
for label, ax in enumerate(top.subplots(2, 6).ravel()):
    ax.imshow(views[model.labels_ == label].mean(axis=0), cmap="cividis")
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"label {label}", fontsize="x-small", pad=2)
ax = bottom.subplots()
ax.plot(np.degrees(angles), model.labels_, ".", color=BLUE)
ax.set(xlabel="true angle (degrees), unknown to the method", ylabel="label", xlim=(0, 360))
ax.set_xticks(range(0, 361, 60))
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **Labels on a chain, and how they are found.** Along a curve with two ends the labels form a
# chain. Every sweep increases the objective, whatever the start; the best of ``n_init`` starts is
# kept.

t = rng.uniform(0, 1, 300)
curve = np.stack([3 * t, np.sin(5 * t)], axis=1) + 0.05 * rng.normal(size=(300, 2))
model = HSICClustering(8, None, "chain", random_state=0).fit(curve)

fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
drawn = left.scatter(*curve.T, c=model.labels_, cmap="cividis", s=8)
fig.colorbar(drawn, ax=left, label="label")
left.set(title="labels along a curve", xticks=[], yticks=[])
right.plot(model.history_, "o-", color=BLUE)
right.set(xlabel="sweep", ylabel="dependence", title="the objective never falls")
right.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# New points get the label that increases the dependence most. Any graph or similarity matrix can
# replace the chain: ``networkx.grid_2d_graph`` for labels on a sheet, or a directed tree whose
# leaves are labels for nested clusters.

print(model.predict([[0.0, 0.0], [1.5, 0.6], [3.0, -1.0]]))
