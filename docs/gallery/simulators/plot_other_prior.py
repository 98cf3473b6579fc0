"""
Change the prior without new simulations
========================================

Simulations were drawn from one prior. What would the posterior have been under another? Kernel
Bayes' rule answers from the same simulations. A small clinical trial, in which the exact posterior
is known for every normal prior, shows how well.
"""

# %%
# Twenty patients are treated and twenty are not; we observe the difference of the two means,
# :math:`N(\theta, 0.1)`. The prior used for simulation is wider than any prior considered later.
# The kernel on the effect is about as narrow as the narrowest prior below.

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import KernelABC
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"


def trial(effect, rng, patients=20):
    treated = rng.normal(effect, 1.0, size=(len(effect), patients))
    control = rng.normal(0.0, 1.0, size=(len(effect), patients))
    return treated.mean(axis=1) - control.mean(axis=1)


wide = stats.norm(0, 1)
model = KernelABC(trial, {"effect": wide}, kernel_x=Gaussian(0.4), random_state=0).fit(5000)
seen, error = [0.4], np.sqrt(2 / 20)


def exact(prior):
    """The posterior for a normal prior."""
    m, s = prior.stats()[0], prior.std()
    variance = 1 / (1 / s**2 + 1 / error**2)
    return stats.norm(variance * (m / s**2 + seen[0] / error**2), np.sqrt(variance))


# %%
# The trial found 0.4. ``posterior(y)`` is the posterior under the prior that was simulated from,
# and ``posterior(y, prior=...)`` that under another one: a SciPy distribution, as here, a function,
# a sample or an embedding.

beliefs = {
    "as simulated": (wide, GREY),
    "a sceptic": (stats.norm(0, 0.25), BLUE),
    "an optimist": (stats.norm(0.7, 0.3), GREEN),
    "a doubter": (stats.norm(-0.5, 0.5), ORANGE),
}
grid = np.linspace(-1.5, 1.6, 311)
fig, axes = plt.subplots(1, 4, figsize=(11, 3), sharex=True, sharey=True, layout="constrained")
for ax, (name, (prior, colour)) in zip(axes, beliefs.items(), strict=True):
    start = time.perf_counter()
    posterior = model.posterior(seen, prior=None if prior is wide else {"effect": prior})
    mean, helps = posterior.mean()[0], posterior.share(0, np.inf)
    elapsed = 1e3 * (time.perf_counter() - start)
    truth = exact(prior)
    print(
        f"{name:>12}: mean {mean:.2f} (exact {truth.mean():.2f}), it helps with probability "
        f"{helps:.2f} ({truth.sf(0):.2f}); {elapsed:.0f} ms"
    )
    ax.fill_between(grid, posterior.density(grid[:, None]), color=colour, alpha=0.5, linewidth=0)
    ax.plot(grid, prior.pdf(grid), ":", color="black", linewidth=1.5)
    ax.plot(grid, truth.pdf(grid), "--", color="black", linewidth=1.2)
    ax.set(title=name, xlabel="effect", yticks=[])
    ax.spines[["top", "right", "left"]].set_visible(False)
handles = axes[0].collections + axes[0].lines
labels = ("posterior", "prior", "exact posterior")
fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# It is therefore cheap to ask how much the conclusion depends on the prior. Its mean moves from −1
# to 1, and its width from narrow to wide; no simulation is run. At the left end of the first panel,
# prior and trial contradict each other: the observation lies three standard deviations from what
# the prior predicts. Few simulations agree with both, and the answer is least exact there.

means = np.linspace(-1, 1, 9)
fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
start = time.perf_counter()
for ax, width in zip(axes, (0.3, 0.5, 0.8), strict=True):
    priors = [stats.norm(m, width) for m in means]
    answers = [model.posterior(seen, prior=prior) for prior in priors]
    low, middle, high = (np.array([a.quantile(q)[0] for a in answers]) for q in (0.05, 0.5, 0.95))
    ax.fill_between(means, low, high, color=BLUE, alpha=0.25, linewidth=0, label="90% interval")
    ax.plot(means, middle, color=BLUE, linewidth=2, label="median")
    for q in (0.05, 0.5, 0.95):
        limits = [exact(prior).ppf(q) for prior in priors]
        ax.plot(
            means, limits, "--", color="black", linewidth=1, label="exact" if q == 0.5 else None
        )
    ax.axhline(0, color=GREY, linewidth=1)
    ax.set(title=f"standard deviation {width}", xlabel="mean of the prior")
print(f"{3 * len(means)} priors in {time.perf_counter() - start:.1f} s")
axes[0].set(ylabel="effect, given the trial")
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
# Another prior can only reweight what was simulated. If it contradicts the observation, reaches
# beyond the draws, or is so narrow that it contains few draws, simulate from it instead.
