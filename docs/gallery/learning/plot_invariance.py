"""
Make a classifier invariant to small movements
==============================================

A picture that is turned or moved a little still shows the same thing. One way to teach this is to
train on many moved copies. Another is to treat each example *as* the distribution of its copies, a
bag: :class:`~meanmap.SupportMeasureClassifier` then has as many examples as there are pictures,
however many copies represent each.
"""

# %%
# Sixty digits, each turned by up to 15° and moved by up to one pixel (of eight); the test digits
# are turned and moved in the same way.

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from meanmap import SupportMeasureClassifier
from meanmap.kernels import Expected, Gaussian, Normal

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)


def moved(image):
    angle = np.deg2rad(rng.uniform(-15, 15))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = np.full(2, 3.5)
    shift = centre - turn @ centre + rng.uniform(-1, 1, size=2)
    return affine_transform(image.reshape(8, 8), turn, shift, order=1).ravel()


order = rng.permutation(len(images))
chosen, held = order[:60], order[60:560]
X, y = images[chosen], labels[chosen]
test, truth = np.array([moved(image) for image in images[held]]), labels[held]
copies = np.array([[moved(image) for _ in range(64)] for image in X])

fig, axes = plt.subplots(3, 9, figsize=(9, 3.2), layout="constrained")
for row, digit in zip(axes, (3, 6, 9), strict=True):
    first = np.flatnonzero(y == digit)[0]
    for ax, picture in zip(row, [X[first], *copies[first]], strict=False):
        ax.imshow(picture.reshape(8, 8), cmap="Greys")
        ax.set(xticks=[], yticks=[])
    for side in row[0].spines.values():
        side.set(color=ORANGE, linewidth=2)
axes[0, 0].set_title("picture", fontsize="medium")
axes[0, 4].set_title("moved copies", fontsize="medium")
plt.show()

# %%
# Bags of copies are compared by the mean of the kernel over all pairs (``level2="linear"``).
# Bandwidth and cost are the same for all; embeddings are closer to each other than points are, so
# the cost of errors must be higher to have an effect.

width = Gaussian().resolve(X).bandwidth / 2
kernel = Gaussian(width)
sizes = (1, 2, 4, 8, 16, 32, 64)
right, seconds = {"copies": [], "bags": []}, {"copies": [], "bags": []}
for size in sizes:
    bags = list(copies[:, :size])
    start = time.perf_counter()
    flat = np.concatenate(bags)
    svm = SVC(C=100, gamma=1 / (2 * width**2)).fit(flat, np.repeat(y, size))
    right["copies"].append(svm.score(test, truth))
    seconds["copies"].append(time.perf_counter() - start)
    start = time.perf_counter()
    model = SupportMeasureClassifier(kernel, "linear", C=1e4).fit(bags, y)
    right["bags"].append(model.score(test, truth))
    seconds["bags"].append(time.perf_counter() - start)
plain = SVC(C=100, gamma=1 / (2 * width**2)).fit(X, y).score(test, truth)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
names = {"copies": "SVM on all copies", "bags": "a bag a picture"}
for (name, label), colour in zip(names.items(), (GREY, BLUE), strict=True):
    axes[0].plot(sizes, right[name], "o-", color=colour, label=label)
    axes[1].plot(sizes, seconds[name], "o-", color=colour, label=label)
axes[0].axhline(plain, color=ORANGE, linestyle="--", label="pictures as they are")
axes[0].set(xscale="log", xlabel="copies of a picture", ylabel="moved digits right")
axes[1].set(xscale="log", yscale="log", xlabel="copies of a picture", ylabel="seconds")
for ax in axes:
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylim(top=1.0)
axes[0].legend(frameon=False, loc="upper left")
plt.show()
for size, *scores in zip(sizes, right["copies"], right["bags"], strict=True):
    print(f"{size:3d} copies: {scores[0]:.3f} on all copies, {scores[1]:.3f} by bags")

# %%
# Both gain from copies, and a support vector machine trained on all of them gains more: it selects
# the copies it needs near the boundary, while the copies in a bag all count equally. A bag costs
# less when there are many copies.
#
# **Distributions without copies.** A normal distribution around each picture needs no copies at
# all, because the expectation of the kernel has a closed form: (i) with the mean and variance of
# the copies for each pixel, or (ii) with one variance s² everywhere. The second is simply an SVM
# with a wider kernel, variance σ² + 2s² in place of σ², up to a factor.

by_pixel = [Normal(bag.mean(axis=0), bag.var(axis=0)) for bag in copies]
spread = float(copies.var(axis=1).mean())
around = [Normal(x, spread) for x in X]
for name, examples in {"by pixel": by_pixel, "one variance": around}.items():
    model = SupportMeasureClassifier(kernel, "linear", C=1e4).fit(examples, y)
    print(f"{name:>12}: {model.score(test, truth):.3f} right")

wider = np.sqrt(width**2 + 2 * spread)
factor = (width / wider) ** 64
gap = abs(Expected(kernel)(around) - factor * Gaussian(wider)(X)).max() / factor
print(f"largest difference to the wider kernel: {gap:.0e}")

# %%
# Noise that is the same in every direction describes pictures poorly: a shift changes many pixels
# together. Bags keep this structure; independent pixels do not.
