"""
Select the features on which a target depends
=============================================

A few of many columns matter, in ways that are not known in advance: a curve, a ring, or two columns
that are informative only together. :class:`~meanmap.HSICSelector` measures how much the target
depends on *sets* of columns, using the Hilbert-Schmidt independence criterion, and keeps the set on
which it depends most. It is a scikit-learn selector and works in pipelines.
"""

# %%
# **Exclusive or.** The class is the sign of the product of two columns. Neither is informative
# alone, and the hundred other columns are noise.

import time
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, mutual_info_classif
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from meanmap import HSICSelector
from meanmap.kernels import Gaussian, NGrams

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 102))
y = (X[:, 40] * X[:, 70] > 0).astype(int)

start = time.perf_counter()
selector = HSICSelector(n_features_to_select=2, method="backward").fit(X, y)
print(f"backward: {selector.get_support(indices=True)}, {time.perf_counter() - start:.1f} s")
forest = RandomForestClassifier(random_state=0).fit(X, y)
print("forest's importances:", np.sort(np.argsort(forest.feature_importances_)[-2:]))
information = mutual_info_classif(X, y, random_state=0)
print("mutual information:  ", np.sort(np.argsort(information)[-2:]))

# %%
# Backward elimination starts with all columns and removes a tenth of them at a time: those whose
# removal leaves the most dependence. The width of the kernel follows the number of remaining
# columns. If the initial width is kept to the end, all pairs of columns look alike, and the two are
# lost.

scaled = X / X.std(axis=0)
fixed = Gaussian(Gaussian("0.7*median").resolve(scaled).bandwidth)
stuck = HSICSelector(n_features_to_select=2, kernel=fixed, method="backward").fit(X, y)
print("with a fixed bandwidth:", stuck.get_support(indices=True))

fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
selector.plot(axes[0])
axes[0].set_title("dependence of what is left")
for label, colour, mark in ((0, BLUE, "o"), (1, ORANGE, "^")):
    of = y == label
    axes[1].plot(*selector.transform(X)[of].T, mark, color=colour, markersize=4, alpha=0.7)
axes[1].set(title="the two that were found", xlabel="column 40", ylabel="column 70")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# HSIC is largest with two columns. ``n_features_to_select="auto"`` instead asks how many columns
# predict held-out rows best, and agrees.

found = HSICSelector(n_features_to_select="auto").fit(X, y)
print("auto:", found.get_support(indices=True))

# %%
# **Three methods.** ``"backward"`` sees what columns say together. ``"forward"`` starts with no
# columns and is fast when few of many are wanted, but cannot see an exclusive or until it has one
# half of it. ``"lasso"``, the HSIC lasso of Yamada and others, judges columns one at a time and
# keeps only one of several redundant ones. The target here combines a curve, a square and a line,
# and column 3 is present twice.

X = rng.normal(size=(500, 60))
X[:, 9] = X[:, 3] + 0.05 * rng.normal(size=500)
y = 1.5 * np.sin(2 * X[:, 3]) + X[:, 20] ** 2 + X[:, 50] + 0.3 * rng.normal(size=500)
for method in ("backward", "forward", "lasso"):
    start = time.perf_counter()
    found = HSICSelector(3, method=method, random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    best = np.argsort(found.ranking_)[:3]
    print(
        f"{method:>8}: {best}, best first; scores {found.scores_[best].round(4)}, {seconds:.1f} s"
    )

# %%
# The first two methods take column 3 and its copy, because they measure the information in a set
# rather than what a column adds to it. The lasso ignores the copy.
#
# **Digits.** Which of the 64 pixels distinguish the ten digits? The scaler, the selector and a
# support vector machine form one model, judged by cross-validation and compared with other ways to
# select pixels.

digits, labels = load_digits(return_X_y=True)
digits, rest, labels, rest_labels = train_test_split(
    digits, labels, train_size=400, random_state=0, stratify=labels
)
sizes = [2, 4, 8, 16, 32]
informative = partial(mutual_info_classif, random_state=0)
ways = {
    "HSIC, backward": lambda k: HSICSelector(k, method="backward", random_state=0),
    "mutual information": lambda k: SelectKBest(informative, k=k),
}
start = time.perf_counter()
order = HSICSelector(8, random_state=0).fit(digits, labels)
print(f"one fit: {time.perf_counter() - start:.1f} s")
scores = {
    name: [
        cross_val_score(
            make_pipeline(StandardScaler(), way(k), SVC(C=10)), digits, labels, cv=3
        ).mean()
        for k in sizes
    ]
    for name, way in ways.items()
}
for name, values in scores.items():
    print(f"{name:>20}:", *(f"{value:.3f}" for value in values))

fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
drawn = axes[0].imshow(order.ranking_.reshape(8, 8), cmap="cividis_r")
for place in order.get_support(indices=True):
    axes[0].text(place % 8, place // 8, "×", color="white", ha="center", va="center")
axes[0].set(title="ranks of pixels (×: the best eight)", xticks=[], yticks=[])
fig.colorbar(drawn, ax=axes[0], label="rank")
for (name, values), colour, mark in zip(scores.items(), (BLUE, ORANGE), "os", strict=True):
    axes[1].plot(sizes, values, marker=mark, color=colour, label=name)
axes[1].set(xlabel="pixels", ylabel="accuracy", title="ten digits", xscale="log")
axes[1].set_xticks(sizes, sizes)
axes[1].minorticks_off()
axes[1].spines[["top", "right"]].set_visible(False)
axes[1].legend(frameon=False, loc="lower right")
plt.show()

# %%
# **Any target that has a kernel.** The target may be text, a graph or an image: a kernel on it is
# enough. Here two of thirty columns determine how a string is made.

X = rng.normal(size=(300, 32))


def written(a, b):
    unit = "ab" if a > 0 else "ba"
    return "".join(unit + ("c" if rng.random() < (0.8 if b > 0 else 0.1) else "") for _ in range(6))


texts = [written(a, b) for a, b in X[:, [5, 25]]]
print(texts[:3])
found = HSICSelector(2, target_kernel=NGrams(3)).fit(X, texts)
print("columns that decide:", found.get_support(indices=True))
