"""
Estimate a conditional distribution with two branches
=====================================================

A regression gives one number at each :math:`x`. A conditional embedding gives the whole
distribution :math:`P(Y \\mid x)`. Here it widens and then splits into two branches, so that the
mean is a value that never occurs.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from meanmap import ConditionalEmbedding
from meanmap.kernels import Gaussian

# %%
# The data have one branch up to :math:`x = 1` and two branches after it. The noise is largest
# around the fork.


def branch(x):
    return np.sqrt(np.maximum(x - 1, 0))


def noise(x):
    return 0.12 + 0.25 * np.exp(-0.5 * ((x - 1) / 0.3) ** 2)


rng = np.random.default_rng(0)
n = 3000
X = rng.uniform(-1, 3, size=(n, 1))
side = rng.choice([-1.0, 1.0], size=(n, 1))
Y = side * branch(X) + noise(X) * rng.normal(size=(n, 1))

# %%
# The kernel on :math:`Y` sets the resolution of the conditional distribution; a bandwidth of 0.2
# separates the branches. The kernel on :math:`X` sets how quickly the conditional may change. The
# regularisation is chosen by leave-one-out error.

model = ConditionalEmbedding(kernel_x=Gaussian(0.5), kernel_y=Gaussian(0.2)).fit(X, Y)
print(f"λ = {model.regularization_:.1e}, from {model.space_x_.rank_} coordinates of x")

# %%
# ``given`` takes many points at once and returns a batch of embeddings. Each has a mean, a standard
# deviation and a mode, and each is a function of :math:`y`: a smoothed version of the conditional
# density.

grid = np.linspace(-1, 3, 161)[:, None]
levels = np.linspace(-2.2, 2.2, 221)[:, None]
given = model.given(grid)

mean, std = given.mean()[:, 0], given.std()[:, 0]
mode = given[::4].mode()[:, 0]  # a search, so at every fourth point only
values = given(levels)  # one row for each x, one column for each y

# %%
# The mean is 0 throughout and the spread grows after the fork. Both are right, and neither shows
# the two branches. The embedding does, and its mode lies on one of them: the one that happens to
# have a few more points nearby.

truth = np.sqrt(branch(grid) ** 2 + noise(grid) ** 2)[:, 0]
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")

left.plot(X[:, 0], Y[:, 0], ".", color="grey", markersize=1.5, alpha=0.4)
left.fill_between(grid[:, 0], mean - std, mean + std, color="C0", alpha=0.3, linewidth=0)
left.plot(grid[:, 0], mean, color="C0", label="mean ± std")
left.plot(grid[:, 0], truth, "--", color="black", linewidth=1, label="true mean ± std")
left.plot(grid[:, 0], -truth, "--", color="black", linewidth=1)
left.plot(grid[:, 0], 0 * truth, "--", color="black", linewidth=1)
left.set(xlabel="x", ylabel="y", ylim=(-2.2, 2.2), title="moments")
left.legend(loc="upper left", frameon=False)

right.pcolormesh(grid[:, 0], levels[:, 0], values.T, cmap="cividis", shading="nearest")
for sign in (-1, 1):
    label = "true branches" if sign == 1 else None
    right.plot(grid[:, 0], sign * branch(grid[:, 0]), "--", color="white", linewidth=1, label=label)
right.plot(grid[::4, 0], mode, ".", color="C1", markersize=6, label="mode")
right.set(xlabel="x", title="the embedding of P(Y | x) as a function of y")
right.legend(loc="upper left", frameon=False, labelcolor="white")
plt.show()

# %%
# Probabilities of events are expectations of indicators:

for x in (1.5, 2.0, 2.5):
    above = model.expect(lambda y: y[:, 0] > 1, [x])
    exact = np.mean([norm.sf(1, sign * branch(x), noise(x)) for sign in (-1, 1)])
    print(f"P(Y > 1) at x = {x}: {above:.2f}, the truth is {exact:.2f}")
