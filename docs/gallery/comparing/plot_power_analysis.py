"""
Find the sample size that a test needs
======================================

A pilot study shows something, or nothing yet. How large must the real study be? Parts of the pilot,
drawn at several sizes, say how often a test rejects; a curve through that is read off at the power
one wants. Here the truth is known, so that the answer can be checked.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import two_sample_test
from meanmap.comparison import power_analysis

rng = np.random.default_rng(0)

# %%
# Two populations with the same mean, one of them with 1.5 times the standard deviation, and a pilot
# of 100 points from each.


def draw(n):
    return rng.normal(size=(n, 1)), 1.5 * rng.normal(size=(n, 1))


X, Y = draw(100)
print(f"the pilot itself: p = {two_sample_test(X, Y, 'median', rng=0).pvalue:.3f}")

# %%
# Options of the test are passed on. Here it is one kernel at the median distance.

plan = power_analysis(
    two_sample_test, X, Y, kernel="median", power=0.8, n_simulations=100, n_permutations=99, rng=0
)
print(plan)

# %%
# Now the truth, which a study does not have: fresh samples from both populations.


def true_power(n, runs):
    p = [
        two_sample_test(*draw(n), "median", n_permutations=99, rng=rng).pvalue for _ in range(runs)
    ]
    return np.mean(np.array(p) <= 0.05)


sizes = (20, 40, 80, 120)
powers = [true_power(n, 100) for n in sizes]
ax = plan.plot()
ax.plot(sizes, powers, "D", color="black", label="truth, 100 runs per size")
ax.legend(loc="lower right")
plt.show()

# %%
# This pilot happens to show a smaller effect than there is; the true answer is about 120 points,
# inside the interval. The interval is wide, and it should be: a pilot is one sample, and its own
# randomness is most of the uncertainty. Other pilots of the same size give other answers. The upper
# end is the safe choice.

for _ in range(4):
    other = power_analysis(
        two_sample_test,
        *draw(100),
        kernel="median",
        sizes=[25, 50],
        n_simulations=60,
        n_permutations=99,
        rng=rng,
    )
    low, high = other.interval
    print(f"another pilot: n = {other.size}, 90% interval {low:.0f} to {high:.0f}")
