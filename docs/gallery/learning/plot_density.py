"""
Estimate a density from an embedding
====================================

An embedding identifies a distribution, but it is not a density. :class:`~meanmap.EmbeddingDensity`
finds one: among the mixtures of many candidate Gaussians whose embedding is close enough, the one
with the largest entropy.
"""

# %%
# The eruptions of the Old Faithful geyser are a classic example for density estimation: how long an
# eruption lasts, and the waiting time until the next.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

from meanmap import ConditionalEmbedding, EmbeddingDensity
from meanmap.kernels import Gaussian
from meanmap_experiments.geyser import eruptions

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

X = eruptions()
model = EmbeddingDensity(random_state=0).fit(X)
print(f"distance of embeddings {model.distance_:.4f}, {len(model.proportions_)} components")
ax = model.plot()
ax.set(xlabel="lasted (minutes)", ylabel="wait for the next (minutes)")
plt.show()

# %%
# **How close is close enough?** A small :math:`\epsilon` follows every point of the sample; with a
# large one the entropy dominates. By default :math:`\epsilon` and the bandwidth of the candidates
# are chosen to maximise the likelihood of held-out points.

rng = np.random.default_rng(0)
y = np.concatenate([rng.normal(-2, 0.3, 60), rng.gamma(2, 0.8, 90)])[:, None]
x = np.linspace(-4, 7, 500)
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.hist(y[:, 0], bins=40, density=True, color=GREY, alpha=0.35)
chosen = EmbeddingDensity(random_state=0).fit(y)
for epsilon, colour, line in ((chosen.distance_, BLUE, "-"), (0.12, ORANGE, "--")):
    fitted = EmbeddingDensity(bandwidth=chosen.bandwidth_, epsilon=epsilon).fit(y)
    label = f"ε = {epsilon:.3f}" + (" (chosen)" if line == "-" else "")
    ax.plot(x, np.exp(fitted.score_samples(x[:, None])), line, color=colour, label=label)
close = EmbeddingDensity(bandwidth=0.12, epsilon=0.02).fit(y)
values = np.exp(close.score_samples(x[:, None]))
ax.plot(x, values, ":", color=GREEN, label="ε = 0.020, narrow candidates")
ax.set(xlabel="y", ylabel="density", yticks=[])
ax.spines[["top", "right", "left"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# **Comparison.** A kernel density estimate has one width for peaks and tails; candidates of several
# widths share the work, which helps with long tails. These data have none: two Gaussians are almost
# the truth, and a mixture of two is hard to beat. Three splits, with every method tuned on its
# training rows; with the quadratic regulariser most proportions are 0.


def kernel_density(rows):
    folds = KFold(5, shuffle=True, random_state=0)
    grid = {"bandwidth": np.geomspace(0.05, 0.6, 15)}
    return GridSearchCV(KernelDensity(), grid, cv=folds).fit(rows)


def mixture(rows):
    fits = (GaussianMixture(k, random_state=0).fit(rows) for k in range(1, 7))
    return min(fits, key=lambda fit: fit.bic(rows))


Z = (X - X.mean(axis=0)) / X.std(axis=0)
methods = {
    "EmbeddingDensity": EmbeddingDensity(random_state=0).fit,
    "the same, quadratic": EmbeddingDensity(regularizer="quadratic", random_state=0).fit,
    "KernelDensity": lambda rows: kernel_density(rows).best_estimator_,
    "GaussianMixture": mixture,
}
held = {name: [] for name in methods}
sizes = {name: [] for name in methods}
for seed in range(3):
    order = np.random.default_rng(seed).permutation(len(Z))
    for name, fit in methods.items():
        fitted = fit(Z[order[70:]])
        held[name].append(fitted.score_samples(Z[order[:70]]).mean())
        proportions = getattr(fitted, "proportions_", getattr(fitted, "weights_", order[70:]))
        sizes[name].append(len(proportions))
for name, values in held.items():
    print(
        f"{name:>20}: {np.mean(values):.3f} a row held out, {np.mean(sizes[name]):3.0f} components"
    )

# %%
# **A conditional density.** Some weights of a conditional embedding are negative, which a mixture
# cannot have. This is not a problem: the optimisation matches the embedding, not the weights. Here
# it gives the waiting time after eruptions of three durations; three minutes is a rare one.

lasted, wait = X[:, :1], X[:, 1:]
given = ConditionalEmbedding(kernel_x=Gaussian(0.4), kernel_y=Gaussian(6.0)).fit(lasted, wait)
t = np.linspace(40, 100, 400)[:, None]
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for minutes, colour, line in ((2.0, BLUE, "-"), (3.0, ORANGE, "--"), (4.5, GREEN, "-.")):
    at = given.given([minutes])
    density = EmbeddingDensity(random_state=0).fit(at)
    share = abs(np.minimum(at.weights, 0).sum()) / abs(at.weights).sum()
    label = f"after {minutes:g} minutes ({share:.0%} of the weight negative)"
    ax.plot(t, np.exp(density.score_samples(t)), line, color=colour, label=label)
ax.plot(wait, np.zeros(len(wait)), "|", color=GREY, alpha=0.5)
ax.set(xlabel="wait (minutes)", ylabel="density", yticks=[])
ax.set_ylim(top=0.14)
ax.spines[["top", "right", "left"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
plt.show()
