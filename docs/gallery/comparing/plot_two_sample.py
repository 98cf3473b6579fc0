"""
Test whether two samples differ, and see where
==============================================

A test of two samples that needs no idea of how they might differ. First two samples of numbers with
the same mean and variance, then two samples in the plane whose coordinates, one by one, have the
same distribution. The witness function says where the difference lies.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import two_sample_test

BLUE, ORANGE = "#0072b2", "#d55e00"
rng = np.random.default_rng(0)

# %%
# **Numbers.** One sample is normal, the other has two bumps. Both distributions have mean 0 and
# variance 1, so that a t test, which compares means, has nothing to find.

n = 300
X = rng.normal(size=(n, 1))
Y = 0.9 * rng.choice([-1.0, 1.0], size=(n, 1)) + np.sqrt(1 - 0.9**2) * rng.normal(size=(n, 1))

print(f"standard deviations: {X.std():.2f} and {Y.std():.2f}")
print(f"t test:          p = {stats.ttest_ind(X[:, 0], Y[:, 0]).pvalue:.3f}")
result = two_sample_test(X, Y, rng=0)
print(f"two_sample_test: p = {result.pvalue:.3f}")
print(f"\n{result}")

# %%
# The result draws itself. On the left is the statistic, beside what it would be if the two samples
# came from one distribution: points were exchanged between them 999 times. The statistic
# combines contrasts, from a difference in location to one in fine detail. On the right is the
# witness function of the one that stood out most: above 0 where X has more mass, below where Y has.

result.plot()
plt.show()

# %%
# **The plane.** Here X is the standard normal distribution. In Y half of the points are correlated
# at +0.8 and half at -0.8. In both, each coordinate is standard normal and the correlation is 0:
# tests of one coordinate at a time, and tests of means and covariances, cannot see the difference.

n = 1000
rho = 0.8
X = rng.normal(size=(n, 2))
first, noise = rng.normal(size=(2, n))
sign = np.repeat([-1.0, 1.0], n // 2)
Y = np.column_stack([first, sign * (rho * first + np.sqrt(1 - rho**2) * noise)])

for j in range(2):
    p = stats.ks_2samp(X[:, j], Y[:, j]).pvalue
    print(f"Kolmogorov-Smirnov, coordinate {j + 1}: p = {p:.3f}")
print(f"correlations: {np.corrcoef(X.T)[0, 1]:.2f} and {np.corrcoef(Y.T)[0, 1]:.2f}")
result = two_sample_test(X, Y, rng=0)
print(f"two_sample_test: p = {result.pvalue:.3f}")

# %%
# ``result.witness`` can be evaluated anywhere. X has more mass on the axes, Y in the centre and on
# the diagonals, which is what we put there.

side = np.linspace(-3.3, 3.3, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
witness = result.witness(grid).reshape(120, 120)
top = np.abs(witness).max()

fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, sample, colour, name in zip(axes, (X, Y), (BLUE, ORANGE), ("X", "Y"), strict=False):
    ax.plot(sample[:, 0], sample[:, 1], ".", color=colour, markersize=3, alpha=0.7)
    ax.set(title=f"sample {name}", xlabel="first coordinate", aspect="equal")
axes[0].set_ylabel("second coordinate")
levels = np.linspace(-top, top, 17)
drawn = axes[2].contourf(side, side, witness, levels=levels, cmap="RdBu")
bar = fig.colorbar(drawn, ax=axes[2], ticks=[-top, 0, top], shrink=0.85)
bar.ax.set_yticklabels(["more of Y", "0", "more of X"])
axes[2].set(title="witness function", xlabel="first coordinate", aspect="equal")
axes[2].set(xlim=(-3.3, 3.3), ylim=(-3.3, 3.3))
plt.show()

# %%
# Two samples that do share a distribution, for comparison. Under the null hypothesis a p-value is
# uniform: one in twenty lies below 0.05.

pvalues = [
    two_sample_test(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), rng=rng).pvalue
    for _ in range(100)
]
print(f"of 100 tests without a difference {np.sum(np.array(pvalues) <= 0.05)} reject at 5%")
