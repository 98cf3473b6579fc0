"""
Find dependence
===============

*An oven bakes tiles, and some crack. Which of the things that we write down have to do with it?*

Correlation answers that for straight lines. This page finds dependence of any shape, draws it,
asks whether it remains once something else is known, and shows where such tests mislead.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from meanmap import conditional_independence_test, hsic, independence_test

rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# 400 batches, made up so that we know the truth. Both a cold and a hot oven crack tiles. Clay from
# the quarry holds more water in wet weather, and wet weather also makes the drying room humid.
# Only the water in the clay cracks tiles; the air does not. The shift is a label and means
# nothing.

n = 400
oven = rng.normal(1100, 25, size=n)  # degrees
rain = rng.gamma(2.0, 1.0, size=n)
water = 8 + 1.5 * rain + rng.normal(0, 0.8, size=n)  # per cent
humidity = 40 + 12 * rain + rng.normal(0, 8, size=n)  # per cent
cracked = 2 + ((oven - 1100) / 25) ** 2 + 0.4 * (water - 11) + rng.normal(0, 0.8, size=n)
shift = rng.choice(["early", "late", "night"], size=n)
batches = pd.DataFrame(
    {"oven": oven, "water": water, "humidity": humidity, "shift": shift, "cracked": cracked}
)
print(batches.round(1).head(3))

# %%
# The shortest code
# -----------------

cracks = batches[["cracked"]]
correlation = stats.pearsonr(oven, cracked)
result = independence_test(batches[["oven"]], cracks, rng=0)
print(f"correlation {correlation.statistic:+.2f}, p = {correlation.pvalue:.2f}")
print(result)
assert correlation.pvalue > 0.05
assert result.pvalue < 0.01

# %%
# What the answer means
# ---------------------
#
# Two variables are **independent** if knowing one says nothing of the other. Then it would not
# matter which oven temperature stands beside which batch. So the test puts the column in other
# orders, about a thousand, and counts how often the two go together as much as they do in fact: the
# p-value. The statistic is called HSIC. It is zero only for independent variables, whatever the
# shape.
#
# The test draws what it found: where do the two occur together more often (positive) or less often
# (negative) than if they were independent?

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
result.plot(axes)
axes[1].set(xlabel="oven, degrees", ylabel="cracked, per cent")
plt.show()

# %%
# Few cracks in the middle, many at both ends: a valley, whose best straight line is flat.
#
# All columns
# -----------
#
# Labels are taken as labels; nothing has to be encoded. With four tests one should ask for more
# than 5% each. Holm's rule sorts the p-values, and multiplies the smallest by four, the next by
# three.

pvalues = {
    name: independence_test(batches[[name]], cracks, rng=0).pvalue
    for name in ("oven", "water", "humidity", "shift")
}
adjusted, worst = {}, 0.0
for left, name in zip(range(4, 0, -1), sorted(pvalues, key=pvalues.get), strict=True):
    worst = adjusted[name] = max(worst, min(1.0, left * pvalues[name]))
    print(f"{name:9} p = {pvalues[name]:.3f}, adjusted {adjusted[name]:.3f}")
assert all(adjusted[name] < 0.05 for name in ("oven", "water", "humidity"))
assert adjusted["shift"] > 0.05

# %%
# Humidity too? It depends on cracks, there is no doubt about that. But we made it so that air
# cracks nothing.
#
# Depends, or only goes along?
# ----------------------------
#
# Rain is behind both water and humidity. The question is whether humidity says anything of cracks
# *once the water is known*. That is a test of conditional independence.


def beyond(x, known):
    return conditional_independence_test(batches[[x]], cracks, batches[[known]], rng=0).pvalue


print(f"humidity, once water is known: p = {beyond('humidity', 'water'):.3f}")
print(f"water, once humidity is known: p = {beyond('water', 'humidity'):.3f}")
assert beyond("humidity", "water") > 0.05
assert beyond("water", "humidity") < 0.05

# %%
# Humidity adds nothing to water, water adds something to humidity. So dry the clay, not the air.
# This is an answer about *these* columns. If something that was not recorded is behind them, no
# test can know.
#
# What goes wrong
# ---------------
#
# **Rows that follow each other.** Two slow series that have nothing to do with each other look
# dependent to a test that shuffles single rows. Keep blocks of rows together, longer than the
# memory of the series. ``null="wild"`` does so, and chooses the length from the data:


def slow(n=400, memory=0.95):
    x = rng.normal(size=(n, 1))
    for t in range(1, n):
        x[t] += memory * x[t - 1]
    return x


plain, blocks, runs = 0, 0, 40
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for seed in range(runs):
        u, v = slow(), slow()
        plain += independence_test(u, v, ("median", None), n_permutations=199, rng=seed).rejects()
        blocks += independence_test(u, v, null="wild", n_permutations=199, rng=seed).rejects()
print(f"false alarms in {runs} runs at level 5%: {plain} plain, {blocks} with blocks")
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert plain > runs / 2 > blocks
assert sum("look ordered" in str(warning.message) for warning in caught) >= plain

# %%
# Every false alarm of the plain test came with a warning that its rows look ordered. With blocks
# two of 40 runs may reject at a level of 5%. Such a null is approximate, and better the longer the
# series are.
#
# **Conditional tests promise less.** No such test is right for every possible distribution
# (Shah and Peters proved it in 2020). It has to learn what x and y owe to z. Where that is
# intricate and points are few, what was not learned looks like dependence:

z = rng.uniform(-3, 3, size=(80, 1))
x, y = (np.sin(20 * z) + 0.2 * rng.normal(size=z.shape) for _ in range(2))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    intricate = conditional_independence_test(x, y, z, rng=0)
print(f"80 points of a function with nineteen waves: p = {intricate.pvalue:.3f}")
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert intricate.pvalue < 0.05  # and yet x and y have only z in common
assert not intricate.learned  # the test has noticed that its regressions missed something

# %%
# So take the warning seriously, and even without one read a rejection as "dependent given z, *or* z
# acts in a way that these points do not show".
#
# **Statistics are not percentages.** HSIC depends on kernels and units, and has no natural scale.
# To compare pairs take the normalised form, between 0 and 1.

for name in ("oven", "water", "humidity"):
    share = hsic(batches[[name]], cracks, estimator="normalized")
    print(f"{name:9} normalised HSIC {share:.3f}")

# %%
# **A constant column** depends on nothing:

print(f"p = {independence_test(np.ones((n, 1)), cracks, rng=0).pvalue:.2f}")

# %%
# Choices, when they matter
# -------------------------
#
# By default several kernels are tried, and the p-value accounts for that. Name one for a special
# purpose, or for points that are not numbers: ``kernel=(for_x, for_y)``. Three variables or
# more at once are ``joint_independence_test``. Which *few* of many columns matter is a job for
# ``HSICSelector``.
#
# Read next: all tests, in :doc:`/tests`; columns chosen by dependence, in :doc:`/learning`; and,
# now that we know that the oven matters, how to predict from it: :doc:`the next tutorial
# </auto_tutorials/plot_3_predict>`.
