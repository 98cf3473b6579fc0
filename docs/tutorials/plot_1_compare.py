"""
Compare samples
===============

*A machine was serviced over the weekend. Are the parts that it makes still the same?*

You have measured some parts from before and some from after. You do not know what may have
changed: a mean, a spread, how two measures go together. This page shows how to ask whether
anything has, where, and how many parts you should have measured.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import embed, mmd, two_sample_test
from meanmap.comparison import Block, power_analysis
from meanmap.kernels import Gaussian, Linear

rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# Each part has a length and a width, in hundredths of a millimetre off the target. One part is one
# row. We make the data up, so that the truth is known: before the service length and width had
# nothing to do with each other; since then a part that is too long is also too wide.


def parts(n, correlation):
    return rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n)


before, after = parts(400, 0.0), parts(300, 0.6)

# %%
# The usual tests look at one column at a time. They find nothing, and rightly so: neither column
# has changed.

for column, name in enumerate(["length", "width"]):
    means = stats.ttest_ind(before[:, column], after[:, column]).pvalue
    shapes = stats.ks_2samp(before[:, column], after[:, column]).pvalue
    print(f"{name}: t-test p = {means:.2f}, Kolmogorov-Smirnov p = {shapes:.2f}")
    assert min(means, shapes) > 0.05

# %%
# The shortest code
# -----------------

result = two_sample_test(before, after, rng=0)
print(result)
assert result.pvalue <= 0.01

# %%
# What the answer means
# ---------------------
#
# *If nothing had changed*, it would not matter which parts are called "before" and which "after".
# So the test exchanges them at random, 999 times, and counts how often the two groups differ as
# much as they do in fact. That share is the **p-value**. It is never 0, since what you observed
# counts as one of the arrangements: with 999 exchanges the least is 0.001.
#
# A small p-value says: this would be a rare accident if nothing had changed. It does *not* say how
# large the change is, nor that it matters to you.
#
# Where is the change? The **witness** is a function on the plane. It is positive where the first
# sample has more points than the second, and negative where it has fewer. ``plot`` draws it,
# beside the statistics of the 999 exchanges.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
result.plot(axes)
axes[1].set(xlabel="length", ylabel="width")
plt.show()

# %%
# There are too few parts now that are long and narrow, or short and wide: length and width have
# become coupled. We can ask the witness that directly.

long_and_narrow, long_and_wide = result.witness([[1.5, -1.5], [1.5, 1.5]])
print(f"long and narrow {long_and_narrow:+.3f}, long and wide {long_and_wide:+.3f}")
assert long_and_narrow > 0 > long_and_wide

# %%
# How large is it?
# ----------------
#
# A p-value shrinks when you measure more, whatever the change. A *distance* does not. To measure
# one, each sample becomes a point in a space, its **embedding**: the average of its rows'
# features. What the features are is decided by a *kernel*, a function that says how similar two
# rows are. The squared distance between two embeddings is called MMD, for maximum mean
# discrepancy. ``mmd`` estimates it without bias, so that it is zero on average if nothing has
# changed, and then half of the time below.

kernel = embed(before).kernel  # one for all: a Gaussian with a bandwidth for each column
changed = mmd(before, after, kernel)
unchanged = [mmd(before, parts(300, 0.0), kernel) for _ in range(20)]
print(f"after the service:   {changed:.4f}")
print(f"20 samples without:  {min(unchanged):.4f} to {max(unchanged):.4f}")
assert changed > max(unchanged)

# %%
# The range of the second line is what chance alone makes. It shrinks as samples grow, the first
# number stays.
#
# What goes wrong
# ---------------
#
# **Too few points.** No evidence is not evidence of no change. With 25 parts of each kind this
# change is usually missed:

few = two_sample_test(before[:25], after[:25], rng=0)
print(f"25 parts each: p = {few.pvalue:.2f}")
assert few.pvalue > 0.05

# %%
# How many would have been enough? ``power_analysis`` takes what you have as a pilot, tests parts
# of it of several sizes, and reads off the size at which the test finds the change in 80% of
# cases.

plan = power_analysis(two_sample_test, before, after, n_simulations=60, rng=0)
low, high = plan.interval
print(f"about {plan.size:.0f} parts of each kind (90% interval {low:.0f} to {high:.0f})")
assert 25 < plan.size < 400

# %%
# A pilot is one sample, and its own randomness is most of that interval. (The truth is about 100,
# by simulation from the model that made the data.)
#
# **Rows that belong together.** Exchanging rows at random is fair only if they are independent.
# Parts measured minute by minute drift together, and a plain test then finds a "change" far too
# often. For such rows keep blocks of them together: ``null="block"``. How long they are is chosen
# from the data, or given, ``null=Block(40)``. For several measurements of each part there is
# ``null=Groups(labels)``.
# Here is a slow drift, cut in the middle, with no change in it at all:


def drift(n=400, memory=0.95):
    noise = rng.normal(size=(n, 1))
    for t in range(1, n):
        noise[t] += memory * noise[t - 1]
    return noise


plain, blocks, runs = 0, 0, 40
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for seed in range(runs):
        series = drift()
        options = {"kernel": "median", "n_permutations": 199, "rng": seed}
        plain += two_sample_test(series[:200], series[200:], **options).rejects()
        options |= {"null": Block(40)}
        blocks += two_sample_test(series[:200], series[200:], **options).rejects()
print(f"false alarms in {runs} runs at level 5%: {plain} plain, {blocks} with blocks of 40")
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert plain > runs / 2 > blocks
assert len(caught) >= plain  # every false alarm of the plain test came with this warning

# %%
# The plain test notices that neighbouring rows are alike, and says so: take it seriously.
#
# The memory here is 1/(1 - 0.95) = 20 rows, and 400 rows hold ten blocks of 40: a compromise, and
# the level is only approximate. With ``null="block"`` a warning says that the series is
# short for its memory.
#
# **A kernel that cannot see it.** ``Linear`` compares means and nothing else. With it this change
# does not exist, and no number of parts would help:

blind = two_sample_test(before, after, Linear(), rng=0)
print(f"linear kernel: p = {blind.pvalue:.2f}")
assert blind.pvalue > 0.05

# %%
# **Missing values** are refused, with the remedy, rather than guessed at:

broken = before.copy()
broken[3, 0] = np.nan
try:
    two_sample_test(broken, after)
except ValueError as error:
    print(error)
else:
    raise AssertionError("a NaN went unnoticed")

# %%
# Choices, when they matter
# -------------------------
#
# By default the test tries a few kernels, wide and narrow ones, and treats the exchanged data in
# the same way, so that the level stays exact. If you know the scale of the change you can name
# one. A wide kernel sees shifts, a narrow one sees fine structure:

for bandwidth in ("0.1*median", "median", "3*median"):
    one = two_sample_test(before, after, Gaussian(bandwidth), rng=0)
    print(f"Gaussian({bandwidth!r}): p = {one.pvalue:.3f}")

# %%
# More exchanges give finer p-values, at a price that is small here: ``n_permutations=9999``.

fine = two_sample_test(before, after, n_permutations=9999, rng=0)
print(f"p = {fine.pvalue:.4f}")
assert fine.pvalue < 0.001

# %%
# If you test many things, correct for it: of a hundred tests of true null hypotheses about five
# come out below 5%. :doc:`/tests` says more about all tests and their nulls; :doc:`/calibration`
# has their measured false alarms and power. The :doc:`next tutorial
# </auto_tutorials/plot_2_dependence>` asks whether two columns depend on each other.
