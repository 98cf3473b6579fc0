"""
Use kernel PCA, CCA and dimension reduction
===========================================

Three tools that come with a space of functions: the components in which points vary most
(``KernelPCA``), what two views of the same objects have in common (``KernelCCA``), and the few
directions on which a target depends (``KernelDimensionReduction``).
"""

# %%
# **Denoising.** Handwritten digits of 8 × 8 pixels, with noise, are projected on the components of
# clean digits and mapped back by ``inverse_transform``. The number of components is chosen on
# held-out digits; the figures are root mean square errors.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cross_decomposition import CCA
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from meanmap.kernels import Delta, Gaussian
from meanmap.learning import KernelCCA, KernelDimensionReduction, KernelPCA

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

digits = load_digits()
rng = np.random.default_rng(0)
rows = rng.permutation(len(digits.data))
images = digits.data[rows] / 16
train, test = images[:1000], images[1000:]


def with_noise(pictures):
    return pictures + 0.35 * rng.normal(size=pictures.shape)


def error(pictures, truth):
    return np.sqrt(((pictures - truth) ** 2).mean())


def restored(model, pictures):
    return model.inverse_transform(model.transform(pictures))


def best(make, sizes):  # by training digits that are held out
    held = train[900:]
    noise = with_noise(held)
    errors = [error(restored(make(size).fit(train[:900]), noise), held) for size in sizes]
    return make(sizes[int(np.argmin(errors))]).fit(train)


noisy = with_noise(test[:10])
kernel = best(lambda size: KernelPCA(size, Gaussian("0.7*median")), [10, 20, 40, 80])
linear = best(PCA, [5, 10, 20, 40])
answers = [
    ("clean", test[:10]),
    ("with noise", noisy),
    (f"{kernel.n_components} kernel\ncomponents", restored(kernel, noisy)),
    (f"{linear.n_components} linear\ncomponents", restored(linear, noisy)),
]

fig, axes = plt.subplots(4, 10, figsize=(10, 4.6), layout="constrained")
for line, (name, pictures) in zip(axes, answers, strict=True):
    line[0].set_ylabel(
        f"{name}\n{error(pictures, test[:10]):.2f}", rotation=0, ha="right", va="center"
    )
    for ax, picture in zip(line, pictures, strict=True):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# **Matching halves.** The left half of a digit is one view, the right half the other. The most
# correlated functions of the two say which halves belong together. For 200 new left halves, where
# does the true right half rank among all 200? Linear canonical correlation analysis is the
# baseline. λ and the number of components are chosen on a part of the training digits.


def halves(pictures):
    grid = pictures.reshape(-1, 8, 8)
    return grid[:, :, :4].reshape(-1, 32), grid[:, :, 4:].reshape(-1, 32)


def ranks(model, left, right):
    f, g = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in model(left, right))
    alike = f @ g.T
    return (alike > np.diag(alike)[:, None]).sum(axis=1)


def steady(X):  # canonical correlation cannot have columns that are constant
    return X + 1e-3 * np.random.default_rng(1).normal(size=X.shape)


some = slice(0, 700), slice(700, 1000)
tried = {}
for size in (10, 20, 30):
    for share in (1e-4, 1e-3, 1e-2):
        part = KernelCCA(size, regularization=share).fit(*halves(train[some[0]]))
        tried["kernel", size, share] = ranks(part.transform, *halves(train[some[1]])).mean()
    left, right = halves(train[some[0]])
    part = CCA(size).fit(steady(left), steady(right))
    tried["linear", size, None] = ranks(part.transform, *halves(train[some[1]])).mean()

found = {}
for name in ("kernel", "linear"):
    _, size, share = min((key for key in tried if key[0] == name), key=tried.get)
    if name == "kernel":
        model = KernelCCA(size, regularization=share).fit(*halves(train))
    else:
        model = CCA(size).fit(*map(steady, halves(train)))
    found[name] = ranks(model.transform, *halves(test[:200]))
    print(
        f"{name}: {size} components, rank {np.median(found[name]) + 1:.0f} of 200 (median), "
        f"first {np.mean(found[name] == 0):.0%}"
    )

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
at = np.arange(1, 201)
for name, colour in (("kernel", BLUE), ("linear", ORANGE)):
    ax.plot(at, [(found[name] < k).mean() for k in at], color=colour, label=name)
ax.plot(at, at / 200, color=GREY, linestyle=":", label="by chance")
ax.set(xscale="log", xlabel="right halves shown, best first", ylabel="the true one is among them")
ax.legend()
plt.show()

# %%
# **Informative directions.** Twelve columns, and a class that depends on the product of two linear
# combinations of them. No linear method finds them, because the classes have equal means. The
# conditional covariance of the class given a projection does.

X = rng.normal(size=(400, 12))
mix = np.linalg.qr(rng.normal(size=(12, 2)))[0]
classes = (X @ mix).prod(axis=1) > 0
new = rng.normal(size=(400, 12))
colours = np.where((new @ mix).prod(axis=1) > 0, BLUE, ORANGE)

reduced = KernelDimensionReduction(2, Delta(), random_state=0).fit(X, classes)
plane = np.linalg.qr(reduced.components_.T)[0]
print(f"cosines of the angles to the true plane: {np.linalg.svd(plane.T @ mix)[1].round(3)}")

fisher = LinearDiscriminantAnalysis().fit(X, classes).transform(new)[:, 0]
views = [
    ("kernel dimension reduction", *reduced.transform(new).T),
    ("linear discriminant, and one column", fisher, new[:, 0]),
]
fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, (name, x, y) in zip(axes, views, strict=True):
    ax.scatter(x, y, c=colours, s=14)
    ax.set(title=name, xticks=[], yticks=[])
plt.show()
