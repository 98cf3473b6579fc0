"""
Apply Bayes' rule without densities
===================================

*A meter reads 0.7. How much lead is in the water?*

A laboratory has tested the meter on samples of known content, which shows how readings depend on
contents. You want to go back from a reading to the content, and you know something that the
laboratory does not: what the water is like where you live. Bayes' rule combines the two. Usually it
needs formulas for both; here two samples are enough.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from meanmap import ConditionalEmbedding, KernelABC, embed
from meanmap.kernels import Delta

BLUE, ORANGE = "#0072b2", "#d55e00"
rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# The meter saturates: between 0 and 4 units its reading rises, above that it hardly does, and it is
# noisy. The library does not know this. It gets 1,500 pairs of content and reading, with contents
# spread evenly, because the laboratory chose them.


def read(content):
    return 1 - np.exp(-content) + 0.07 * rng.normal(size=content.shape)


content = rng.uniform(0, 6, size=(1500, 1))
reading = read(content)

# %%
# Your knowledge is also a list of contents: those found in 1,000 houses of your town. That is the
# **prior**. In the old town the pipes are made of lead.

new_town = rng.gamma(4.0, 0.15, size=(1000, 1))  # around 0.6
old_town = rng.gamma(9.0, 0.2, size=(1000, 1))  # around 1.8

# %%
# The shortest code
# -----------------

model = ConditionalEmbedding().fit(content, reading)
posterior = model.posterior(embed(old_town))
belief = posterior.given([0.7])
low, high = belief.interval(0.9)
print(f"reading 0.7, old town: {belief.mean()[0]:.2f}, 90% between {low[0]:.2f} and {high[0]:.2f}")

# %%
# What the answer means
# ---------------------
#
# Three distributions are involved. The **likelihood** P(reading | content) was learned once, from
# the laboratory's pairs. The **prior** came later, as a sample. The **posterior** P(content |
# reading) under that prior is one object for all readings; ``given`` evaluates it at one of them.
# Another prior costs milliseconds and no new fit.
#
# We know how the data were made, so the exact answer can be computed on a fine grid and compared,
# for readings that are usual in each town.

grid = np.linspace(0.001, 6, 3000)


def exact(y, shape, scale):
    weight = stats.gamma.pdf(grid, shape, scale=scale) * stats.norm.pdf(y, 1 - np.exp(-grid), 0.07)
    mean = np.sum(grid * weight) / np.sum(weight)
    return mean, np.sqrt(np.sum((grid - mean) ** 2 * weight) / np.sum(weight))


fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
worst = {}
for name, prior, law, colour in (
    ("old town", old_town, (9.0, 0.2), ORANGE),
    ("new town", new_town, (4.0, 0.15), BLUE),
):
    seen = np.linspace(*np.quantile(read(prior), [0.05, 0.95]), 15)
    answers = model.posterior(embed(prior)).given(seen[:, None])
    truth = np.array([exact(y, *law) for y in seen])
    ax.plot(seen, answers.mean()[:, 0], color=colour, label=name)
    ax.plot(seen, truth[:, 0], "--", color="black", linewidth=1)
    low, high = (side[:, 0] for side in answers.interval(0.9))
    ax.fill_between(seen, low, high, color=colour, alpha=0.15, linewidth=0)
    worst[name] = max(abs(answers.mean()[:, 0] - truth[:, 0]))
ax.plot([], [], "--", color="black", linewidth=1, label="exact mean")
ax.set(xlabel="reading", ylabel="content", ylim=(0, None))
ax.legend(frameon=False, loc="upper left")
plt.show()
print({name: round(float(value), 2) for name, value in worst.items()})
assert max(worst.values()) < 0.25

# %%
# The same reading means different contents in the two towns. Where the meter is saturated, above
# 0.9, the reading says little, and the answer stays near what is usual in the town.
#
# Without a prior of your own, a conditional learned in the other direction, from reading to
# content, silently uses the contents that the laboratory chose as its prior:

naive = ConditionalEmbedding().fit(reading, content).given([0.9]).mean()[0]
ours = posterior.given([0.9]).mean()[0]
truth = exact(0.9, 9.0, 0.2)[0]
print(f"reading 0.9: {naive:.2f} by regression, {ours:.2f} by Bayes' rule, {truth:.2f} in truth")
assert abs(ours - truth) < abs(naive - truth)

# %%
# With labels it is the rule from school
# --------------------------------------
#
# The same calls on labels give tables of probabilities, exactly. A test detects 90% of those who
# are ill and gives a false alarm for 5% of those who are well. It was tried on equal numbers of
# both. One person in a hundred is ill.

ill = np.repeat(["ill", "well"], 1000)
alarm = np.concatenate([np.arange(1000) < 900, np.arange(1000) < 50])
test = ConditionalEmbedding(Delta(), Delta(), regularization=0).fit(ill, alarm)
people = embed(np.array(["ill", "well"]), kernel=Delta(), weights=[0.01, 0.99])
chance = test.posterior(people, regularization=0).given(True)(["ill"])[0]
print(f"P(ill | alarm) = {chance:.3f}; by hand {0.9 * 0.01 / (0.9 * 0.01 + 0.05 * 0.99):.3f}")
assert abs(chance - 0.009 / 0.0585) < 1e-9

# %%
# What goes wrong
# ---------------
#
# **Prior and reading contradict each other.** A reading of 0.97 in the new town hardly ever
# happens. The answer rests on very few points, and the library warns:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.posterior(embed(new_town)).given([0.97])
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")
assert any(warning.category.__name__ == "DataWarning" for warning in caught)

# %%
# **The prior extends beyond the laboratory's data.** If contents in your town reached 20, the
# pairs, which go up to 6, could not say how the meter reads there. ``support`` of the prior's
# points shows this in advance:

far = rng.gamma(9.0, 1.5, size=(500, 1))
covered = model.space_x_.support(far) > 0.5
print(f"{covered.mean():.0%} of such a prior is covered by the laboratory's samples")
assert covered.mean() < 0.5

# %%
# **A prior that is narrower than the kernel.** Suppose that you know the content to ±0.1. A
# Gaussian at the median distance of the laboratory's contents is more than ten times as wide, and
# the older forms of the rule blur the prior by that much. The default detects that such a prior
# leaves few of the pairs, draws its own readings for contents from the prior, and learns from
# those:

narrow = rng.normal(1.0, 0.1, size=(1000, 1))
spreads = {}
for name, method in (("the default", None), ("importance", "importance")):
    spreads[name] = model.posterior(embed(narrow), method).given([0.63]).std()[0]
    print(f"{name}: posterior ± {spreads[name]:.2f} (at most 0.10 in truth)")
assert 0.08 < spreads["the default"] < 0.11 < spreads["importance"]

# %%
# It warns if the prior lies outside the pairs.
#
# If you have a simulator
# -----------------------
#
# Suppose that there are no pairs, but a program that produces a reading from a content.
# ``KernelABC`` draws contents from the prior, runs the program, and does the rest. It is the better
# tool for this: it can repeat simulations, calibrates its intervals, and can simulate more where it
# matters.


def simulator(theta, generator):
    return 1 - np.exp(-theta) + 0.07 * generator.normal(size=theta.shape)


abc = KernelABC(simulator, {"content": stats.gamma(9.0, scale=0.2)}, random_state=0).fit(1500)
simulated = abc.posterior([0.7])
mean, spread = exact(0.7, 9.0, 0.2)
print(simulated)
print(f"exact: {mean:.3f} ± {spread:.3f}")
assert abs(simulated.mean()[0] - mean) < 0.1

# %%
# Choices, when they matter
# -------------------------
#
# The default weights the training pairs (``method="nonnegative"``), or simulates pairs if the prior
# leaves few of them (``method="simulated"``). There are three more ways to stabilise the rule; the
# papers' own is ``"squared"``. The argument ``regularization=`` of ``posterior`` is a second
# constant, δ, chosen from the data. Kernels are learned from the pairs unless you give them; if you
# do, both should be narrow enough for the finest detail that you want to resolve.
#
# Read next: the rules and their constants, in :doc:`/rules`; simulators, in
# :doc:`/likelihood_free`; repeated application of Bayes' rule as observations arrive, in :doc:`the
# next tutorial </auto_tutorials/plot_5_track>`.
