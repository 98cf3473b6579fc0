"""
Adapt to distribution shift
===========================

*A model was good when it was fitted. Now the incoming rows are different. What can be done?*

That depends on what has changed. This tutorial finds out, corrects for two kinds of change,
measures how much the correction helps, and shows a third kind for which the only remedy is new
data.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from meanmap import KernelMeanMatching, TargetShift, conditional_two_sample_test
from meanmap.adaptation import Reweighted
from meanmap.report import shift_report

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# Covariate shift: P(x) has changed
# ----------------------------------
#
# Batteries live longer in the cold, up to a point. A straight line was fitted to batteries used
# mostly in cool places. Now they are sold in the south. The effect of temperature on a battery has
# not changed; the temperatures have. This is called **covariate shift**.


def life(temperature):  # in years
    return 6 - 0.006 * (temperature[:, 0] - 5) ** 2


X = rng.normal(12, 6, size=(400, 1))
y = life(X) + 0.3 * rng.normal(size=400)
T = rng.normal(24, 4, size=(400, 1))  # the new rows, without their y

# %%
# *Has anything changed, and what?* ``shift_report`` tests this and summarises it in words.

report = shift_report(X, T, y, rng=0)
print(report)
assert report.rows.pvalue < 0.01

# %%
# Read it to the end. Without outcomes for the new rows, several explanations may fit equally well:
# batteries at other temperatures, batteries with other lifetimes, or another thermometer. If the
# report cannot distinguish them, it says so. *You* know which it is: temperature affects lifetime
# and not the other way round, and the thermometer is the same. So this is covariate shift, whatever
# the headline says.
#
# Training rows that look like the new rows should count more. ``KernelMeanMatching`` finds weights
# under which the two samples look alike, and ``Reweighted`` fits any scikit-learn model with them.

plain = LinearRegression().fit(X, y)
weighted = Reweighted(LinearRegression(), KernelMeanMatching(random_state=0)).fit(X, y, X_test=T)
matching = weighted.weights_


def error(model):
    return np.sqrt(np.mean((model.predict(T) - life(T)) ** 2))


print(f"error in the south: {error(plain):.2f} years plain, {error(weighted):.2f} weighted")
print(f"the weighted rows say as much as {matching.effective_size_:.0f} of 400")
assert error(weighted) < 0.5 * error(plain)

grid = np.linspace(-5, 36, 100)[:, None]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(X, y, s=3 + 6 * matching.weights_, color=GREY, label="training rows, by weight")
ax.plot(T, np.full(400, -0.6), "|", color=ORANGE, label="where the new rows are")
ax.plot(grid, life(grid), ":", color="black", label="truth")
ax.plot(grid, plain.predict(grid), color=GREY, label="plain line")
ax.plot(grid, weighted.predict(grid), color=BLUE, label="weighted line")
ax.set(xlabel="temperature", ylabel="years", ylim=(-1, 9))
ax.legend(frameon=False, loc="lower left", ncols=2)
plt.show()

# %%
# **When it does not help.** Weights help a model that is too rigid to be right everywhere. A
# parabola can follow this curve without them. It has nothing to gain, and the weights add variance,
# because few rows count:

errors = {"plain": [], "weighted": []}
for _ in range(10):  # ten trainings, since one says little
    some = rng.normal(12, 6, size=(400, 1))
    lives = life(some) + 0.3 * rng.normal(size=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of some trainings only a few rows count, and it says so
        weights = KernelMeanMatching(random_state=0).fit(some, X_test=T).weights_
    for name, weight in (("plain", None), ("weighted", weights)):
        parabola = make_pipeline(PolynomialFeatures(2), LinearRegression())
        parabola.fit(some, lives, linearregression__sample_weight=weight)
        errors[name].append(error(parabola))
print({name: f"{np.mean(values):.3f}" for name, values in errors.items()})
assert np.mean(errors["weighted"]) > np.mean(errors["plain"])

# %%
# **When there is nothing to weight.** Hardly any training row was at 40 degrees, and no weight can
# change that. The library reports how little the weighted rows are worth:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    KernelMeanMatching(random_state=0).fit(X, X_test=rng.normal(40, 4, size=(400, 1)))
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")
assert any(warning.category.__name__ == "DataWarning" for warning in caught)

# %%
# Target shift: P(y) has changed
# ------------------------------
#
# A classifier of tumours was fitted in a hospital, where every third tumour is malignant. It is now
# used in a screening programme, where few are. What a malignant tumour looks like has not changed;
# how many there are has. This is called **target shift**, and it makes all of the classifier's
# probabilities too high.

data = load_breast_cancer()
features, malignant = data.data[:, :10], data.target == 0
rows = rng.permutation(len(malignant))
train, rest = rows[:284], rows[284:]
ill, well = rest[malignant[rest]], rest[~malignant[rest]]
screened = np.concatenate([ill[:15], well])  # a few malignant ones
shares = malignant[train].mean(), malignant[screened].mean()
print(f"malignant: {shares[0]:.0%} in training, {shares[1]:.0%} to come")

# %%
# The diagnoses of the new patients are unknown. Their measurements are a mixture of the two
# classes, and the mixture reveals the shares:

scaler = StandardScaler().fit(features[train])
A, B = scaler.transform(features[train]), scaler.transform(features[screened])
shift = TargetShift(random_state=0).fit(A, malignant[train], X_test=B)
low, high = shift.interval(0.9)[1]
print(f"estimated share {shift.proportions_[1]:.0%}, 90% between {low:.0%} and {high:.0%}")
assert low <= malignant[screened].mean() <= high

# %%
# ``adjust`` then corrects the probabilities of a classifier that was fitted earlier, by Bayes'
# rule.

classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
classifier.fit(features[train], malignant[train])
says = classifier.predict_proba(features[screened])
losses = {}
for name, table in (("as it is", says), ("adjusted", shift.adjust(says))):
    losses[name] = log_loss(malignant[screened], table)
    print(f"{name}: mean probability {table[:, 1].mean():.0%}, log loss {losses[name]:.3f}")
assert losses["adjusted"] < losses["as it is"]

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
shift.plot(ax)
true = malignant[screened].mean()
ax.plot([0.2, 1.2], [1 - true, true], "D", color=ORANGE, label="test, true")
ax.set(xlabel="malignant")
ax.legend(frameon=False)
plt.show()

# %%
# Concept shift: P(y given x) has changed
# ---------------------------------------
#
# A new kind of battery is less sensitive to heat. No weights on old rows can account for that.
# Without outcomes for the new rows, the change cannot even be *detected*: P(x) alone may look as
# before. As soon as some outcomes are available, test:

T_new = rng.normal(14, 6, size=(150, 1))
same = life(T_new) + 0.3 * rng.normal(size=150)
other = life(T_new) + 0.04 * (T_new[:, 0] - 12) + 0.3 * rng.normal(size=150)
for name, outcome in (("old kind", same), ("new kind", other)):
    test = conditional_two_sample_test(X, y[:, None], T_new, outcome[:, None], rng=0)
    print(f"{name}: p = {test.pvalue:.3f}")
    assert (test.pvalue < 0.05) == (name == "new kind")

# %%
# If the relation has changed, new rows are the only remedy. (A new *instrument*, with another gain
# and offset, is an intermediate case: ``LocationScaleShift``. And if you have data from several
# places and want a model for a new one, there is ``InvariantComponents``.)
#
# Choices, when they matter
# -------------------------
#
# The weights should be the ratio of the two densities, new to old. Here it is known. The textbook
# weights match the samples exactly and follow their noise; a ridge penalty keeps them smooth. The
# penalty and the bandwidth are chosen on held-out rows:

ratio = stats.norm.pdf(X, 24, 4)[:, 0] / stats.norm.pdf(X, 12, 6)[:, 0]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says that these weights rest on few rows
    rough = KernelMeanMatching(ridge=0.0, random_state=0).fit(X, X_test=T)
off = {
    name: np.mean(abs(m.weights_ - ratio)) for name, m in (("without", rough), ("with", matching))
}
print({name: f"mean error of a weight {value:.2f}" for name, value in off.items()})
assert off["with"] < off["without"]

# %%
# In summary: use ``shift_report`` before any remedy. Apply the remedy for the kind of shift that it
# names. Measure how much it helps on some labelled new rows, if you can get any. And if nothing has
# changed, do nothing: weights always cost some precision.
#
# Read next: the optimisation problems that are solved, and results on real data, in
# :doc:`/adaptation` and :doc:`/experiments`. The :doc:`last tutorial
# </auto_tutorials/plot_8_scale>` is about more rows.
