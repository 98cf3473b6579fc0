"""
A posterior from a simulator
============================

A population grows and crashes by the Ricker map, and is counted with noise. Nobody can write the
likelihood of the counts; simulating them is one line. :class:`~meanmap.KernelABC` draws parameters
from the prior, simulates counts for each, and learns the distribution of the parameters given the
counts. One fit then answers every new series.
"""

# %%
# The simulator takes all draws at once. What is kept of a series are a few summaries of it: the
# logarithm of its mean, how often it is zero, its spread, and how it follows itself.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import KernelABC


def ricker(theta, rng, steps=60):
    log_r, noise, scale = theta.T
    size = np.ones(len(theta))
    counts = []
    for _ in range(steps):
        size = size * np.exp(log_r - size + noise * rng.normal(size=len(theta)))
        counts.append(rng.poisson(scale * size))
    return np.stack(counts[10:], axis=1)


def summary(counts):
    x = np.sqrt(counts)
    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1)) + 1e-3
    follows = [(centred[:, k:] * centred[:, :-k]).mean(axis=1) / spread**2 for k in (1, 2, 3)]
    zeros, top = (counts == 0).mean(axis=1), np.quantile(x, 0.9, axis=1)
    return np.column_stack([np.log1p(counts.mean(axis=1)), zeros, np.log(spread), top, *follows])


prior = {
    "log r": stats.uniform(2, 3),
    "noise": stats.uniform(0.05, 0.75),
    "scale": stats.uniform(4, 16),
}
model = KernelABC(ricker, prior, summary=summary, random_state=0).fit(4000)

# %%
# A series that somebody counted, and the posterior of the three parameters behind it: the cross is
# the truth.

truth = np.array([3.8, 0.3, 10.0])
counted = ricker(truth[None], np.random.default_rng(5))
posterior = model.posterior(summary(counted)[0])
for name, row in posterior.summary().items():
    print(f"{name:>6}: {row['mean']:.2f} ± {row['std']:.2f}, 90% {row['low']:.2f} to {row['high']:.2f}")
posterior.plot(truth=truth)
plt.show()

# %%
# Is it to be trusted? Simulation-based calibration draws new parameters, simulates, and asks how
# often the intervals hold the truth. Curves inside the grey band are as good as chance allows.

calibration = model.calibrate(300)
print(calibration)
calibration.plot()
plt.show()

# %%
# And can the model have made these counts at all? Draws from the posterior, simulated again, should
# look like them.

check = model.check(summary(counted)[0])
print(check)
