"""
Apply Bayes' rule to samples
============================

The likelihood :math:`P(Y \\mid X)` is learned once, from pairs. Priors come later, as samples, and
each one costs milliseconds. In a linear-Gaussian model the exact posterior is known, so we can see
how close each of the four ways to regularise the kernel Bayes' rule comes.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Gaussian

# %%
# In the data :math:`X \sim N(0, 2^2)` and :math:`Y = X + N(0, 1)`. The kernels are about as narrow
# as the narrowest prior below. The default method does not need this, but the others do: they blur
# a prior that is narrower than the kernel, and the scale learned for a straight line is wide.

rng = np.random.default_rng(0)
n, noise = 2000, 1.0
X = rng.normal(0, 2, size=(n, 1))
Y = X + rng.normal(0, noise, size=(n, 1))
model = ConditionalEmbedding(Gaussian(0.7), Gaussian(0.7)).fit(X, Y)

# %%
# The prior is *not* the distribution of :math:`X` in the data: :math:`N(1, 1)`.

prior = embed(rng.normal(1, 1, size=(n, 1)), kernel=model.kernel_x_)


def exact(mean, std, y):
    """The posterior's mean and standard deviation for a normal prior."""
    variance = 1 / (1 / std**2 + 1 / noise**2)
    return variance * (mean / std**2 + y / noise**2), np.sqrt(variance)


# %%
# ``posterior`` returns an operator: one object for all observations.

seen = np.linspace(-2, 4, 49)[:, None]
true_mean, true_std = exact(1, 1, seen[:, 0])
styles = {"nonnegative": "-", "importance": "-.", "squared": "--", "reweighted": ":"}

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, (method, style) in enumerate(styles.items()):
    answers = model.posterior(prior, method=method).given(seen)
    mean, std = answers.mean()[:, 0], answers.std()[:, 0]
    left.plot(seen[:, 0], mean, style, color=f"C{i}", linewidth=2, label=method)
    right.plot(seen[:, 0], std, style, color=f"C{i}", linewidth=2, label=method)
    errors = (np.sqrt(np.mean((a - b) ** 2)) for a, b in ((mean, true_mean), (std, true_std)))
    print(f"{method:11}  root mean square errors: mean {next(errors):.3f}, std {next(errors):.3f}")
left.plot(seen[:, 0], true_mean, color="black", linewidth=1, label="truth")
left.plot(
    seen[:, 0], 0.8 * seen[:, 0], color="grey", linewidth=1, label="with the data's own prior"
)
left.set(xlabel="observed y", ylabel="posterior mean of x")
left.legend(frameon=False)
right.axhline(true_std, color="black", linewidth=1, label="truth")
right.set(xlabel="observed y", ylabel="posterior standard deviation of x", ylim=(0, 1))
plt.show()

# %%
# Other priors need no new fit. Each posterior below is drawn as a function :math:`e(x)`, together
# with the exact posterior smoothed by the same kernel (a normal density smoothed by a Gaussian
# kernel is again normal).

sigma = model.kernel_x_.bandwidth
grid = np.linspace(-4, 5.5, 191)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (mean, std) in enumerate([(-1.5, 0.7), (1.0, 1.0), (2.5, 0.5)]):
    start = time.perf_counter()
    belief = model.posterior(rng.normal(mean, std, size=(n, 1))).given([0.5]).normalized()
    elapsed = time.perf_counter() - start
    m, s = exact(mean, std, 0.5)
    width = np.sqrt(s**2 + sigma**2)
    smooth = sigma / width * np.exp(-0.5 * ((grid - m) / width) ** 2)
    name = f"prior N({mean}, {std}²)".replace("-", "−")
    ax.plot(grid, belief(grid[:, None]), color=f"C{i}", linewidth=2, label=name)
    ax.plot(grid, smooth, "--", color="black", linewidth=1, label="truth" if i == 2 else None)
    print(f"{name}: mean {belief.mean()[0]:.2f}, truth {m:.2f}; {1e3 * elapsed:.0f} ms")
ax.set(xlabel="x", ylabel="posterior embedding at y = 0.5, e(x)")
ax.legend(frameon=False)
plt.show()

# %%
# To evaluate one function of the posterior for many observations, prepare it with ``functional``:
# each new :math:`y` then costs one inner product. Here the function is the indicator of :math:`X >
# 1`. Indicators lie outside the space of a Gaussian kernel, so these estimates are rougher than
# those of means.

posterior = model.posterior(prior)
exceeds = posterior.functional(lambda x: x[:, 0] > 1)
ys = rng.uniform(-2, 4, size=(20_000, 1))

start = time.perf_counter()
probabilities = exceeds(ys)
print(f"{len(ys):,} observations in {1e3 * (time.perf_counter() - start):.0f} ms")
print(f"P(X > 1 | y = 1) ≈ {exceeds([1.0]):.2f}, the truth is 0.50")
