"""
Test for dependence beyond a common cause
=========================================

Ice cream and sunburn go together, and neither causes the other: the weather is behind both. A
test of independence finds the first; a test of *conditional* independence finds that nothing is
left once the weather is known. The page ends with the limits of such a test.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, conditional_independence_test, independence_test
from meanmap.kernels import Gaussian
from meanmap.statistics import hscic

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# The temperature Z drives both: X, ice cream, rises with it, Y, sunburn, does so too, and each has
# noise of its own. In a third variable, W, there is a direct influence of X as well.

n = 400
Z = rng.uniform(-2, 2, size=(n, 1))
X = np.sin(1.5 * Z) + 0.4 * rng.normal(size=(n, 1))
Y = np.tanh(2 * Z) + 0.4 * rng.normal(size=(n, 1))
W = Y + 0.4 * X

for name, other in {"Y": Y, "W": W}.items():
    plain = independence_test(X, other, rng=0)
    given = conditional_independence_test(X, other, Z, rng=0)
    print(f"X and {name}: p = {plain.pvalue:.3f}; given Z: p = {given.pvalue:.3f}")

# %%
# What the test looks at are residuals: what is left of X, and of Y, when the part that Z explains
# is taken away, in the kernels' feature spaces. Here is the simplest picture of that, for the
# variables themselves and colour for Z.


def residual(values):
    """What a kernel regression on Z leaves."""
    return values - ConditionalEmbedding().fit(Z, values).predict(Z)


fig, axes = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
shown = (
    (X, Y, "X and Y: dependent", "X", "Y"),
    (residual(X), residual(Y), "given Z: nothing is left", "residual of X", "residual of Y"),
    (residual(X), residual(W), "X and W: something is left", "residual of X", "residual of W"),
)
for ax, (a, b, title, across, up) in zip(axes, shown, strict=True):
    drawn = ax.scatter(a[:, 0], b[:, 0], c=Z[:, 0], s=8, cmap="cividis")
    ax.set(title=title, xlabel=across, ylabel=up)
fig.colorbar(drawn, ax=axes, label="Z", shrink=0.9)
plt.show()

# %%
# The result draws the null distribution, and the two directions in which the residuals go together
# most.

conditional_independence_test(X, W, Z, rng=0).plot()
plt.show()

# %%
# **Where does it depend?** Dependence given Z need not be the same for all z. Below, X acts on V
# where Z is positive only. ``hscic`` measures the dependence given Z = z, at every z; it is an
# estimate and not a test, and is never quite 0.

V = np.tanh(2 * Z) + np.where(Z > 0, 0.8 * (X - np.sin(1.5 * Z)), 0.0)
V = V + 0.2 * rng.normal(size=(n, 1))
at = np.linspace(-1.8, 1.8, 73)[:, None]

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
ax.plot(at[:, 0], hscic(X, V, Z, at=at), color=ORANGE, label="X and V, dependent for z > 0")
ax.plot(at[:, 0], hscic(X, Y, Z, at=at), color=BLUE, label="X and Y, independent given Z")
ax.axvline(0, color=GREY, linewidth=0.8)
ax.set(xlabel="z", ylabel="dependence given z", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
print(f"X and V given Z: p = {conditional_independence_test(X, V, Z, rng=0).pvalue:.3f}")

# %%
# **The limits.** No conditional test can hold its level against every null hypothesis (Shah and
# Peters 2020): if the regressions miss what X and Y owe to Z, the leftovers look like dependence.
# So make it hard. X and Y follow the same wave of Z, with independent noise: given Z nothing is
# left. But the faster the wave, the less of it can be learned from 150 points. A kernel on Z at
# the median distance is soon too wide; the default learns its width and follows further, until it
# cannot either. P-values are then small. But the test also compares what its regressions found with
# what near neighbours in Z share. Where they missed much it warns, ``result.learned`` is false, and
# the result claims no evidence.

kernels = {"median": Gaussian(), "default": None}
runs = 20
print("           " + "".join(f"{name:>19}" for name in kernels))
print("wave       " + "    p ≤ 5%  warned" * 2)
for wave in (1, 4, 16, 64):
    found = {name: [] for name in kernels}
    for _ in range(runs):
        z = rng.uniform(-2, 2, size=(150, 1))
        x, y = (np.sin(wave * z) + 0.3 * rng.normal(size=z.shape) for _ in range(2))
        for name, kernel in kernels.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # counted by `learned`
                result = conditional_independence_test(
                    x, y, z, (None, None, kernel), n_permutations=199, rng=rng
                )
            found[name].append((result.pvalue <= 0.05, not result.learned))
    shares = [np.mean(pairs, axis=0) for pairs in found.values()]
    print(f"sin({wave:2} z)  " + "".join(f"{small:10.0%}{warned:8.0%}" for small, warned in shares))
