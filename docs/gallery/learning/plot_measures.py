"""
Classify and regress on whole samples
=====================================

Sometimes an example is not a point but a whole sample: the cells of a patient, the words of a text,
the pixels of a picture. :class:`~meanmap.SupportMeasureClassifier` learns from such bags, of any
sizes, and :class:`~meanmap.learning.DistributionRidge` predicts a number for each.
"""

# %%
# **Groups that differ only in shape.** Every bag here has mean zero and the same covariance. In one
# class the points form a cluster, in the other a ring; neither mean nor covariance separates them.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from meanmap import SupportMeasureClassifier
from meanmap.kernels import Gaussian, Normal, Weighted
from meanmap.learning import DistributionRidge
from meanmap.spaces import PivotedCholesky

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

rng = np.random.default_rng(0)


def group(ring):
    size = rng.integers(15, 60)
    if not ring:
        return rng.normal(size=(size, 2))
    angle, radius = rng.uniform(0, 2 * np.pi, size), 2**0.5 + 0.3 * rng.normal(size=size)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * radius[:, None]


kinds = np.arange(200) % 2
bags = [group(kind) for kind in kinds]

fig, axes = plt.subplots(2, 5, figsize=(9, 3.8), layout="constrained", sharex=True, sharey=True)
for kind, row in enumerate(axes):
    for bag, ax in zip(bags[kind::2], row, strict=False):
        ax.plot(*bag.T, ".", color=(BLUE, ORANGE)[kind])
        ax.set(xticks=[], yticks=[], title=f"{len(bag)} points", aspect="equal")
    row[0].set_ylabel(("cluster", "ring")[kind])
plt.show()

# %%
# A model is fitted to a list of bags and their classes, and evaluated on others.

train, test, y_train, y_test = train_test_split(bags, kinds, random_state=0)
model = SupportMeasureClassifier().fit(train, y_train)
print(f"support measures: {model.score(test, y_test):.2f} right")


def moments(some):
    return np.array([np.r_[x.mean(axis=0), np.cov(x.T)[np.triu_indices(2)]] for x in some])


scaler = StandardScaler().fit(moments(train))
svm = SVC(C=10).fit(scaler.transform(moments(train)), y_train)
print(f"SVM on means and covariances: {svm.score(scaler.transform(moments(test)), y_test):.2f}")

# %%
# Bags are compared at two levels. A Gaussian kernel between points makes each bag an embedding, and
# embeddings are compared in turn: by a Gaussian of their distance (``level2="gaussian"``), or by
# their inner product (``level2="linear"``). The fitted model can also be applied to distributions
# that are not samples, such as normal ones.

shapes = {
    "a cluster": Normal([0.0, 0.0], 1.0),
    "a narrow one": Normal([0.0, 0.0], 0.2),
    "a mixture of eight": Weighted(
        [Normal(2**0.5 * np.array([np.cos(a), np.sin(a)]), 0.1) for a in np.arange(8) * np.pi / 4]
    ),
}
for name, value in zip(shapes, model.decision_function(list(shapes.values())), strict=True):
    print(f"{name:>20}: {value:+.2f} ({('cluster', 'ring')[int(value > 0)]})")

# %%
# **Pictures as bags of positions.** A digit is described by where its ink is: a bag of pixel
# positions, each weighted by how dark the pixel is. All digits share one grid of positions, which
# is compared only once.

images, labels = load_digits(return_X_y=True)
grid = np.stack(np.divmod(np.arange(64), 8), axis=1).astype(float)
digits = [Weighted(grid, image / image.sum()) for image in images]
train, test, y_train, y_test = train_test_split(digits, labels, train_size=800, random_state=0)

start = time.perf_counter()
pixels = SupportMeasureClassifier(Gaussian(1.0), C=10.0).fit(train, y_train)
print(f"digits as places: {pixels.score(test, y_test):.3f} right")
print(f"{time.perf_counter() - start:.1f} s for {len(digits)} pictures")

embedded = Gaussian(1.0)(grid)
fig, axes = plt.subplots(2, 6, figsize=(9, 3.3), layout="constrained")
for i, (top, bottom) in enumerate(axes.T):
    top.imshow(images[i].reshape(8, 8), cmap="Greys")
    bottom.imshow((digits[i].weights @ embedded).reshape(8, 8), cmap="Greys")
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("picture")
axes[1, 0].set_ylabel("embedding")
plt.show()

# %%
# **A number from a sample.** Points are drawn from an elongated normal distribution rotated by some
# angle; the target is the entropy of the first coordinate. Ridge regression on embeddings chooses
# its regularisation by leave-one-out over bags. The formula for a normal distribution uses more
# knowledge and still does worse: a variance estimated from 20 points is uncertain, while the other
# bags show which values are usual.


def turned(angle, size):
    c, s = np.cos(angle), np.sin(angle)
    return (rng.normal(size=(size, 2)) * [2.0, 0.5]) @ np.array([[c, s], [-s, c]])


def entropy(variance):
    return np.log(2 * np.pi * np.e * variance) / 2


angles = rng.uniform(0, np.pi, size=300)
samples = [turned(angle, 20) for angle in angles]
truth = entropy(4 * np.cos(angles) ** 2 + np.sin(angles) ** 2 / 4)
ridge = DistributionRidge().fit(samples[:200], truth[:200])
guess = ridge.predict(samples[200:])
formula = np.array([entropy(x[:, 0].var(ddof=1)) for x in samples[200:]])
for name, values in {"ridge": guess, "formula": formula}.items():
    print(f"{name}: error {np.sqrt(np.mean((values - truth[200:]) ** 2)):.3f}")

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
line = np.linspace(0, np.pi, 200)
ax.plot(line, entropy(4 * np.cos(line) ** 2 + np.sin(line) ** 2 / 4), color="black", label="truth")
ax.plot(angles[200:], formula, "x", color=GREY, label="formula, 20 points each")
ax.plot(angles[200:], guess, "o", color=BLUE, markersize=4, label="ridge on embeddings")
ax.set(xlabel="angle", ylabel="entropy of the first coordinate")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# **Many bags.** Every point of a bag is compared with every point of every other bag. With a
# ``point_basis`` embeddings are described by a few of the points, to the given tolerance, and bags
# become vectors. The answers are the same, in a fraction of the time.

many = [group(kind) for kind in np.arange(400) % 2]
for name, basis in {"every pair of points": None, "a point basis": PivotedCholesky(1e-8)}.items():
    start = time.perf_counter()
    model = SupportMeasureClassifier(point_basis=basis).fit(many, np.arange(400) % 2)
    right = model.score(bags, kinds)
    print(f"{name:>20}: {time.perf_counter() - start:5.2f} s, {right:.2f} right")
