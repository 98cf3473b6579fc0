"""
Predict distributions
=====================

*A customer asks when a parcel will arrive. What can we promise, and keep nine times out of ten?*

A regression predicts a mean. A promise needs more: the spread, which is larger on some routes and
at some hours than at others, and the chance of being late. This tutorial predicts the whole
distribution of one variable given others, checks it on rows that the model has not seen, and shows
when not to trust it.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from meanmap import ConditionalEmbedding, DataWarning
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# 1,500 deliveries: distance in kilometres, hour of the day, and minutes until the parcel arrived.
# In the late afternoon some trips get stuck on the bridge, which costs an extra half hour, and most
# do not. The data are simulated, so we know the truth.


def deliveries(distance, hour):
    stuck = rng.random(len(hour)) < 0.6 * np.exp(-(((hour - 17) / 1.5) ** 2))
    usual = 10 + 3 * distance
    return usual + rng.normal(0, 1 + 0.4 * distance) + np.where(stuck, 30, 0)


n = 1500
X = np.column_stack([rng.uniform(0, 10, size=n), rng.uniform(8, 20, size=n)])
minutes = deliveries(*X.T)
X_train, X_test, y_train, y_test = train_test_split(X, minutes, test_size=500, random_state=0)

# %%
# The shortest code
# -----------------
#
# The model is a scikit-learn estimator with ``fit`` and ``predict``. It learns how much each column
# matters. Y is a column here; a 1-D Y works as well.

model = ConditionalEmbedding().fit(X_train, y_train[:, None])
parcel = model.given([5.0, 17.0])  # five kilometres, at five in the afternoon
low, high = parcel.interval(0.9)
print(f"mean {parcel.mean()[0]:.0f} minutes, 90% between {low[0]:.0f} and {high[0]:.0f}")
late = parcel.expect(lambda y: y[:, 0] > 45)
print(f"chance of more than 45 minutes: {late:.0%}; the truth is 60%")
assert abs(late - 0.6) < 0.1

# %%
# What the answer means
# ---------------------
#
# ``model.given(x)`` is a distribution. Its mean comes from weights on the training outcomes, which
# say how much each of them counts at x. The spread, quantiles, densities and samples come from the
# residuals of rows near x, each computed by a mean that was fitted without that row. Here is the
# prediction for five kilometres, hour by hour. In the afternoon the distribution has two peaks, and
# its mean is a time at which hardly any parcel arrives.

hours = np.linspace(8, 20, 25)
route = np.column_stack([np.full(25, 5.0), hours])
answers = model.given(route)
grid = np.linspace(5, 80, 150)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
low, high = (side[:, 0] for side in answers.interval(0.9))
near = abs(X_train[:, 0] - 5) < 1
left.plot(
    X_train[near, 1], y_train[near], ".", color=GREY, markersize=4, label="training, 4 to 6 km"
)
left.fill_between(hours, low, high, color=BLUE, alpha=0.2, linewidth=0, label="90% interval")
left.plot(hours, answers.mean()[:, 0], color=BLUE, label="mean")
left.set(xlabel="hour of the day", ylabel="minutes", ylim=(0, 95), title="five kilometres")
left.legend(frameon=False, loc="upper left")
for hour, colour in ((10.0, ORANGE), (17.0, BLUE)):
    density = model.given([5.0, hour]).density(grid[:, None])
    right.plot(grid, density, color=colour, label=f"{hour:.0f} o'clock")
right.set(xlabel="minutes", ylabel="density", title="two humps at five in the afternoon")
right.legend(frameon=False)
plt.show()

# %%
# Is it honest?
# -------------
#
# Never trust an interval before you have checked its coverage. Of 500 deliveries that the model has
# not seen, nine in ten should lie within their intervals.

low, high = (side[:, 0] for side in model.given(X_test).interval(0.9))
inside = (low <= y_test) & (y_test <= high)
busy = abs(X_test[:, 1] - 17) < 1.5
print(f"within the 90% interval: {inside.mean():.0%}; in the rush hour {inside[busy].mean():.0%}")
assert 0.87 < inside.mean() < 0.93

# %%
# That coverage was measured, not guaranteed. For a guarantee that holds whatever the model, use
# rows that it has not seen: ``calibrate`` widens or narrows intervals until they are right for
# those rows, and they then hold on average for new rows of the same kind.

half = np.arange(len(X_test)) < 250
calibrated = model.calibrate(X_test[half], y_test[half][:, None])
low, high = (side[:, 0] for side in calibrated.interval(X_test[~half], 0.9))
new = y_test[~half]
print(f"calibrated on 250 rows, of the other 250: {np.mean((low <= new) & (new <= high)):.0%}")
assert 0.84 < np.mean((low <= new) & (new <= high)) < 0.96

# %%
# And the mean? ``score`` returns R², as for any regression. Part of the remaining error is noise
# that cannot be predicted; the best possible predictor, which knows how the data were made, shows
# how much.

stuck = 0.6 * np.exp(-(((X_test[:, 1] - 17) / 1.5) ** 2))
best = 10 + 3 * X_test[:, 0] + 30 * stuck
possible = 1 - np.mean((y_test - best) ** 2) / np.var(y_test)
reached = 1 - np.mean((y_test - model.predict(X_test)[:, 0]) ** 2) / np.var(y_test)
print(f"R² {reached:.3f}, of {possible:.3f} that are possible")
assert reached > possible - 0.05

# %%
# What should we promise? The time by which nine parcels in ten have arrived. It is a quantile, and
# it depends on the hour.

promises = model.given(route).quantile(0.9)[:, 0]
for i in (4, 18):
    print(f"at {hours[i]:.0f} o'clock promise {promises[i]:.0f} minutes")
assert promises[18] > promises[4] + 15

# %%
# What goes wrong
# ---------------
#
# **Far from the data** there is nothing to learn from. For a village 40 kilometres away the model
# returns the answer for an average parcel, with a warning:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.given([40.0, 12.0])
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert caught[0].category is DataWarning

# %%
# ``support`` gives the same information as a number, before you query the model: one where the
# training rows cover a place, and zero where they do not.

print(model.space_x_.support([[5.0, 12.0], [40.0, 12.0]]).round(3))

# %%
# **Units.** A kernel says how similar two rows are. The default learns a scale for every column, so
# kilometres and metres give the same answer. ``Gaussian()`` has one width for all columns, so their
# units must be comparable: with the distance in metres, the hour no longer counts. Watch what
# happens to the error:


def error(kernel, scale=1.0):
    rescaled = ConditionalEmbedding(kernel).fit(X_train * [scale, 1], y_train[:, None])
    return np.sqrt(np.mean((rescaled.predict(X_test * [scale, 1])[:, 0] - y_test) ** 2))


print(f"kilometres, default:        {error(None):.2f} minutes")
print(f"metres, default:            {error(None, 1000):.2f}")
print(f"kilometres, one bandwidth:  {error(Gaussian()):.2f}")
print(f"metres, one bandwidth:      {error(Gaussian(), 1000):.2f}")
assert abs(error(None, 1000) - error(None)) < 1e-6
assert error(Gaussian(), 1000) > 1.1 * error(Gaussian())

# %%
# Choices, when they matter
# -------------------------
#
# Two things determine how smooth an answer is: the scales of the kernel on X, one per column, and
# the **regularisation** λ, which keeps the fit from following noise. Both are learned, from the
# likelihood of the data and from leave-one-out errors. ``relevance`` is the spread of a column
# divided by its scale. For comparison, choices by hand, with all scales smaller or larger than the
# learned ones:

print(f"chosen: {model.kernel_x_}, λ {model.regularization_:.1e}")
print(model.relevance())
lambdas = 10.0 ** np.arange(-8, 1)
errors = {}
for times in (0.25, 1.0, 4.0):
    errors[times] = []
    for lam in lambdas:
        tried = ConditionalEmbedding(model.kernel_x_.rescaled(times), regularization=lam)
        tried.fit(X_train, y_train[:, None])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # a narrow kernel leaves holes
            predicted = tried.predict(X_test)[:, 0]
        errors[times].append(np.sqrt(np.mean((predicted - y_test) ** 2)))

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (times, found), style in zip(errors.items(), ("--", "-", ":"), strict=True):
    ax.semilogx(lambdas, found, style, color=BLUE, label=f"{times:g} × the learned scales")
ax.plot(model.regularization_, error(None), "o", color=ORANGE, label="chosen by itself")
ax.axhline(
    np.sqrt(np.mean((y_test - best) ** 2)), color=GREY, linewidth=1, label="the best possible"
)
ax.set(xlabel="λ", ylabel="error on new rows, minutes", ylim=(8, 20))
ax.legend(frameon=False)
plt.show()
assert error(None) < 1.03 * min(map(min, errors.values()))

# %%
# A λ that is too small follows noise, one that is too large flattens everything, and with good
# scales a wide range of λ works. ``ConditionalEmbedding("median")`` takes the median distance and
# learns nothing. The kernel on **Y** matters little for means, intervals and densities of numbers.
#
# Read next: how the default works, what is guaranteed, and where other methods are better, in
# :doc:`/distributions`; labels, tables and other points, in :doc:`/kernels`; and how to reverse a
# prediction, from effects to causes, in :doc:`the next tutorial </auto_tutorials/plot_4_bayes>`.
