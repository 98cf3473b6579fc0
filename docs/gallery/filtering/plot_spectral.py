"""
Forecast a system whose state was never recorded
================================================

A pendulum swings behind a screen, and only its height to one side is measured, with noise. A single
measurement does not say whether it is on its way up or down, and the training data do not either.
``SpectralFilter`` learns from the measurements alone: its belief is the distribution of the next
ones, and a window of several measurements is enough to distinguish the two directions.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, SpectralFilter

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)
phase = np.cumsum(rng.normal(0.5, 0.05, size=1000))
observations = np.sin(phase)[:, None] + 0.15 * rng.normal(size=(1000, 1))
train, test = observations[:600], observations[600:]

# %%
# Bandwidth, number of states, regularisation and window are chosen by training on one half of the
# sequence and predicting each next observation of the other half.

model = SpectralFilter(grid={"window": [1, 2, 3]}, progress=False).fit(train)
print(model.validation_)
track = model.filter(test)

# %%
# Row t of the track is about observation t + 1. For comparison: the best prediction from the last
# observation alone, and the part of the error that is measurement noise.

alone = ConditionalEmbedding().fit(train[:-1], train[1:]).predict(test[:-1])
print(f"last observation alone: {np.mean((alone - test[1:]) ** 2):.3f}")
print(f"SpectralFilter:         {np.mean((track.mean[:-1] - test[1:]) ** 2):.3f}")
print(f"measurement noise:      {0.15**2:.3f}")

# %%
# Forecasts further ahead: the phase becomes less certain with each step.

start, ahead = 60, 25
forecast = model.predict(test[:start], ahead)
low, high = forecast.interval(0.9)

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10.5, 3.8), layout="constrained", width_ratios=(3, 2)
)
times = np.arange(start - 35, start + ahead)
left.plot(times, test[times, 0], "o", color=GREY, markersize=4, label="measured")
next_ones = np.arange(start, start + ahead)
left.fill_between(
    next_ones, low[:, 0], high[:, 0], color=BLUE, alpha=0.2, lw=0, label="90% interval"
)
left.plot(next_ones, forecast.mean[:, 0], color=BLUE, label="mean of the forecast")
left.axvline(start - 0.5, color=GREY, lw=0.8)
left.set(title="forecast of the next 25 measurements", xlabel="step", ylim=(-1.6, 2.3))
left.legend(frameon=False, loc="upper left", ncols=3)

shown = slice(60, 400)
right.plot(test[1:][shown, 0], alone[shown, 0], ".", color=ORANGE, label="last observation alone")
right.plot(test[1:][shown, 0], track.mean[:-1][shown, 0], ".", color=BLUE, label="SpectralFilter")
right.plot([-1.3, 1.3], [-1.3, 1.3], color=GREY, lw=0.8)
right.set(title="one step ahead", xlabel="measured", ylabel="predicted", ylim=(-1.4, 2.1))
right.legend(frameon=False, loc="upper left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
