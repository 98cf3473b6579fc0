"""
Find the slow modes of a record: the Sun's cycle
================================================

How long is the Sun's cycle, how long does it keep its beat, and where in the cycle was the Sun in
a given year? ``TransferOperator`` reads this off a record: a pair of complex eigenvalues is a
cycle, their angle its period, their magnitude its memory, and the angle of the eigenfunction its
phase. The yearly numbers of sunspots from 1700 to 2008 come with statsmodels.
"""

import matplotlib.pyplot as plt
import numpy as np
from statsmodels.datasets import sunspots

from meanmap.dynamics import TransferOperator

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"

data = sunspots.load_pandas().data
years, numbers = data["YEAR"].to_numpy().astype(int), data["SUNACTIVITY"].to_numpy()

# %%
# One year's number does not say whether it rises or falls. The state is therefore that of three
# years, and the square root makes fluctuations at the maximum as large as those at the minimum. We
# learn from the years up to 1979. Everything else is chosen by the cross-validated score.

root = np.sqrt(numbers)
states, last = np.lib.stride_tricks.sliding_window_view(root, 3), years[2:]
train = last < 1980
model = TransferOperator().fit(states[train])
print(f"the process is {'' if model.reversible_ else 'not '}reversible in time")

# %%
# The leading pair of eigenvalues is the cycle, the second its harmonic. The bound on the eigenvalue
# gives one on the period.

value, bound = model.eigenvalues_[1], model.bounds()[1]
angle = abs(np.angle(value))
spread = np.arcsin(min(bound / abs(value), 1.0))
period = 2 * np.pi / np.array([angle, angle + spread, angle - spread])
print(f"period {period[0]:.1f} years (95%: {period[1]:.1f} to {period[2]:.1f})")
print(f"the beat is forgotten in about {model.timescales()[1]:.0f} years")

# %%
# Forecasts are expectations: they tend to the mean as the phase is forgotten.

ahead = model.forecast(states[train], 29)[:, -1]
held = last >= 1980
plain = root[years < 1980].mean()
for name, guess in {"forecast": ahead, "mean": plain}.items():
    error = np.sqrt(np.mean((guess - root[2:][held]) ** 2))
    print(f"{name:>8}, error of the root over 29 years: {error:.2f}")

# %%
# The phase of the cycle in every year is the angle of the eigenfunction.

function = model.eigenfunctions(states)[:, 1]
phase = np.angle(function if np.angle(value) > 0 else function.conj())

fig, axes = plt.subplots(
    1, 3, figsize=(14, 4), layout="constrained", gridspec_kw={"width_ratios": [2, 1.1, 1.6]}
)
recent = last > 1900
axes[0].plot(last[recent], states[recent, -1], color=GREY, label="root of the sunspot number")
axes[0].plot(last[held], ahead, "--", color=ORANGE, linewidth=2, label="forecast from 1979")
axes[0].axvline(1979.5, color="black", linewidth=0.8)
axes[0].set(xlabel="year", ylim=(0, 17))
axes[0].legend(frameon=False, loc="upper left", ncols=2)

model.plot(axes[1], color=BLUE)
axes[1].set_title(f"one cycle in {period[0]:.1f} years")

shown = (last >= 1850) & (last < 1950)
axes[2].scatter(last[shown], phase[shown], c=states[shown, -1], cmap="viridis", s=18)
axes[2].set(xlabel="year", ylabel="phase of the cycle", yticks=[-np.pi, 0, np.pi])
axes[2].set_yticklabels(["-π", "0", "π"])
axes[2].set_title("colour: the number of sunspots")
plt.show()
