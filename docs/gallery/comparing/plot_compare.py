"""
See where two samples differ
============================

Two samples with the same mean and the same variance, from different distributions. Their
embeddings are points of one space: the distance between them says *that* the samples differ,
and their difference, read as a function, says *where*. Gretton and co-workers call it the
witness function.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import embed

# %%
# One sample is Gaussian; the other a mixture of two narrow bumps with the same first two moments.

rng = np.random.default_rng(0)
n = 1000
gaussian = rng.normal(size=(n, 1))
signs = rng.choice([-1.0, 1.0], size=(n, 1))
bumps = 0.9 * signs + np.sqrt(1 - 0.9**2) * rng.normal(size=(n, 1))

# %%
# Embed both with one kernel. The bandwidth comes from the first sample, and ``p.kernel`` carries
# it over to the second.

p = embed(gaussian)
q = embed(bumps, kernel=p.kernel)
print(p.kernel)
print(f"distance between the samples:         {p.distance(q):.3f}")

# %%
# For scale: the distance between two samples that *do* share a distribution.

again = embed(rng.normal(size=(n, 1)), kernel=p.kernel)
print(f"distance between equal distributions: {p.distance(again):.3f}")

# %%
# An embedding is a function, and so is a difference of two. It is positive where the Gaussian has
# more mass, negative where the bumps have.

witness = p - q
grid = np.linspace(-3, 3, 300)[:, None]

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
bins = np.linspace(-3, 3, 41)
top.hist(gaussian[:, 0], bins, density=True, alpha=0.5, label="Gaussian")
top.hist(bumps[:, 0], bins, density=True, alpha=0.5, label="two bumps")
top.set_ylabel("density")
top.legend(frameon=False)

values = witness(grid)
bottom.plot(grid[:, 0], values, color="black")
bottom.fill_between(grid[:, 0], values, 0, where=values > 0, alpha=0.5, color="C0")
bottom.fill_between(grid[:, 0], values, 0, where=values < 0, alpha=0.5, color="C1")
bottom.axhline(0, color="grey", linewidth=0.5)
bottom.set_xlabel("x")
bottom.set_ylabel("witness")
plt.show()
