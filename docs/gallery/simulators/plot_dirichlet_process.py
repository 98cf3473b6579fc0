r"""
A prior over distributions, without a density
=============================================

A Dirichlet process :math:`F \sim DP(\alpha, G)` is a random *distribution*: it has no density
that could be written down, but it is easy to sample by breaking a stick. Kernel inference needs
only samples of a prior (Fukumizu, Song and Gretton 2013, section 4.1). Here the exact posterior is
known: it is another Dirichlet process, and is compared with what was learned from samples alone.
"""

# %%
# A stick of length one is broken again and again: each time a share Beta(1, α) of what is left
# becomes the weight of an atom, whose place is drawn from :math:`G`. What we keep of a draw are
# functionals of it: its distribution function on a grid, its mean and its median.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import KernelABC
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
alpha, G = 5.0, stats.norm(0, 1.2)
grid = np.linspace(-2.8, 2.8, 25)


def sticks(alpha, places, rng):
    """Weights of the atoms at `places` (n, atoms), the last one being all that is left."""
    share = rng.beta(1, alpha, size=places.shape)
    share[:, -1] = 1.0
    left = np.cumprod(1 - share[:, :-1], axis=1)
    return share * np.column_stack([np.ones(len(places)), left])


def functionals(places, weights):
    """F on the grid, the mean and the median of every draw."""
    order = np.argsort(places, axis=1)
    places, weights = (np.take_along_axis(a, order, axis=1) for a in (places, weights))
    F = np.einsum("na,nat->nt", weights, places[:, :, None] <= grid)
    middle = (np.cumsum(weights, axis=1) < 0.5).sum(axis=1)
    median = np.take_along_axis(places, middle[:, None], axis=1)
    return np.column_stack([F.clip(0, 1), (weights * places).sum(axis=1), median])


def process(n, rng, atoms=100):
    places = G.rvs(size=(n, atoms), random_state=rng)
    return functionals(places, sticks(alpha, places, rng))


# %%
# The simulator draws forty observations from :math:`F` and gives how many lie below each point of
# the grid. With a prior function and a simulator the fit is one line.


def observe(theta, rng, n=40):
    F = theta[:, : len(grid)]
    ends = np.column_stack([np.zeros(len(F)), F, np.ones(len(F))])
    counts = rng.multinomial(n, np.diff(ends, axis=1))
    return np.cumsum(counts, axis=1)[:, :-1] / n


model = KernelABC(observe, process, kernel_y=Gaussian(), random_state=0).fit(4000)

# %%
# Now there are data, from a distribution with two humps.

rng = np.random.default_rng(3)
first = rng.random(40) < 0.6
data = np.where(first, rng.normal(-1, 0.4, size=40), rng.normal(1.2, 0.5, size=40))
below = (data[:, None] <= grid).mean(axis=0)
posterior = model.posterior(below)

# %%
# The exact posterior is :math:`DP\big(\alpha + n,\ (\alpha G + \sum_i \delta_{x_i})/(\alpha +
# n)\big)`. Its mean is a weighted mean of :math:`G` and the data's distribution function, and the
# value at one point has a Beta distribution.

total = alpha + len(data)
exact = (alpha * G.cdf(grid) + len(data) * below) / total
mean = posterior.mean()[: len(grid)]
low, high = posterior.interval(0.9)
print(f"largest error of the mean of F: {abs(mean - exact).max():.3f}")
ends = stats.beta(total * exact, total * (1 - exact)).ppf([[0.05], [0.95]])
errors = [abs(a[: len(grid)] - b).max() for a, b in zip((low, high), ends, strict=True)]
print(f"of the ends of 90% intervals:   {max(errors):.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
left.plot(grid, model.theta_[:12, : len(grid)].T, color=GREY, linewidth=1, alpha=0.7)
left.plot(grid, G.cdf(grid), color="black", linewidth=2, label="G, the mean of all")
left.set(title="draws of the prior", xlabel="t", ylabel="F(t)")
left.legend(frameon=False, loc="upper left")
band = low[: len(grid)], high[: len(grid)]
right.fill_between(grid, *band, color=BLUE, alpha=0.25, linewidth=0, label="90% interval")
right.plot(grid, mean, color=BLUE, linewidth=2, label="mean")
right.plot(grid, exact, "--", color="black", linewidth=1.2, label="exact")
right.plot(grid, ends.T, "--", color="black", linewidth=0.8)
right.plot(data, np.full(len(data), -0.04), "|", color=ORANGE, label="data")
right.set(title="the posterior, given 40 observations", xlabel="t")
right.legend(frameon=False, loc="upper left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Functionals that are not linear in :math:`F`, such as the median, have no formula even here.
# Draws of the exact posterior stand in for one: sticks again, with places that are data points or,
# five times in forty-five, from :math:`G`. Its median jumps from data point to data point; our
# simulator told how many lie in each cell of the grid, not where, so that ours is smoother.

shape = (4000, 300)
new = rng.random(shape) < alpha / total
places = np.where(new, G.rvs(size=shape, random_state=rng), rng.choice(data, size=shape))
draws = functionals(places, sticks(total, places, rng))
ours = posterior.sample(4000, rng=0)

fig, axes = plt.subplots(1, 2, figsize=(10, 3), sharey=True, layout="constrained")
for ax, column, name in zip(axes, (-2, -1), ("mean", "median"), strict=True):
    ax.ecdf(ours[:, column], color=BLUE, linewidth=2, label="posterior")
    ax.ecdf(draws[:, column], color="black", linestyle="--", linewidth=1.2, label="exact")
    ax.set(xlabel=f"{name} of F", xlim=np.quantile(draws[:, column], [0.001, 0.999]))
    ax.spines[["top", "right"]].set_visible(False)
    middle, truth = ours[:, column].mean(), draws[:, column].mean()
    spread, true = ours[:, column].std(), draws[:, column].std()
    print(f"{name:>6}: {middle:.2f} ± {spread:.2f}, exact {truth:.2f} ± {true:.2f}")
axes[0].set(ylabel="posterior probability below")
axes[0].legend(frameon=False)
plt.show()
