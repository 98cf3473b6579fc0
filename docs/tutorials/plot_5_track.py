"""
Track a hidden state
====================

*A pendulum swings behind a curtain. A camera measures how far left or right its bob is, with large
errors. Where is it, how fast does it move, and where will it be in half a second?*

What you want to know, the **state**, is the angle and the speed. What you get, the **observation**,
is one noisy number. Textbook filters need the equations of motion and of the camera. Here both are
learned, from one recording that was made without the curtain.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, DataWarning, KernelBayesFilter

BLUE, GREY = "#0072b2", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# The state is (angle, speed), ten times a second. Gusts of wind push the pendulum, and friction
# slows it. The camera measures the sine of the angle with an error of 0.2. The library knows none
# of this.


def swing(steps, wind=0.25, friction=0.15):
    angle, speed = rng.normal(0, 0.8), rng.normal(0, 1.5)
    states = []
    for _ in range(steps):
        for _ in range(10):  # small steps of 0.01 s
            speed += 0.01 * (-9.0 * np.sin(angle) - friction * speed)
            angle += 0.01 * speed
        speed += wind * rng.normal()
        states.append((angle, speed))
    states = np.array(states)
    return states, np.sin(states[:, :1]) + 0.2 * rng.normal(size=(steps, 1))


states, seen = swing(600)  # the recording: one minute
truth, new = swing(150)  # behind the curtain

# %%
# The shortest code
# -----------------

model = KernelBayesFilter(n_jobs=1, progress=False).fit(states, seen)
track = model.filter(new)
print(track)

# %%
# What the answer means
# ---------------------
#
# At every step the track has a distribution of the state given all observations *so far*:
# ``track.mean``, ``track.std``, ``track.interval(0.9)``. Between observations the belief is
# propagated with the learned dynamics; each observation then sharpens it. ``plot`` draws it
# together with the truth, if you have it.

fig, axes = plt.subplots(2, 1, figsize=(9, 5), layout="constrained", sharex=True)
track.plot(truth, ax=axes)
for ax, name in zip(axes, ("angle", "speed"), strict=True):
    ax.set_ylabel(name)
axes[1].set_xlabel("step (0.1 s)")
plt.show()

# %%
# Is it any good? Compare it with what is possible without dynamics: a regression from the
# observation to the state. One number cannot determine the speed, since the pendulum passes each
# place in both directions.


def errors(means):
    return np.sqrt(np.mean((means - truth) ** 2, axis=0))


regression = ConditionalEmbedding().fit(seen, states).predict(new)
print("root mean square errors  angle  speed")
for name, means in (("regression", regression), ("filter", track.mean)):
    print(f"{name:23}  {errors(means)[0]:.3f}  {errors(means)[1]:.3f}")
assert np.all(errors(track.mean) < [0.9, 0.6] * errors(regression))

# %%
# And are its intervals honest? Nine in ten of the true states should lie in the 90% intervals.

low, high = track.interval(0.9)
inside = np.mean((low <= truth) & (truth <= high), axis=0)
print(f"within 90% intervals: angle {inside[0]:.0%}, speed {inside[1]:.0%}")
assert np.all(inside > 0.85)

# %%
# They are conservative: a belief is smoothed by the kernel, which makes it a little wider than
# necessary.
#
# Prediction and smoothing
# ------------------------
#
# ``predict`` continues without observations. Here it predicts half a second ahead from every step,
# compared with the guess that nothing changes.

ahead = model.predict(new, steps=5, origin="every")  # row t is about t + 5
forecast = np.sqrt(np.mean((ahead.mean[:-5] - truth[5:]) ** 2, axis=0))
nothing = np.sqrt(np.mean((track.mean[:-5] - truth[5:]) ** 2, axis=0))
print(f"angle in half a second: error {forecast[0]:.2f}, if it stayed where it is {nothing[0]:.2f}")
assert forecast[0] < 0.7 * nothing[0]

# %%
# ``smooth`` also uses later observations, and is for looking back. Here its errors are about a
# quarter smaller. Several sequences are passed as a list and processed together:

several = [swing(150) for _ in range(6)]
paths = np.array([path for path, _ in several])
readings = [reading for _, reading in several]
found = {}
for name, record in (("filter", model.filter(readings)), ("smooth", model.smooth(readings))):
    found[name] = np.sqrt(np.mean((record.mean - paths) ** 2, axis=(0, 1)))
    print(f"{name}: angle {found[name][0]:.3f}, speed {found[name][1]:.3f}")
assert np.all(found["smooth"] < 0.85 * found["filter"])

# %%
# What goes wrong
# ---------------
#
# **Observations are missing.** A row of NaN is a step without an observation. The belief is
# propagated and widens, and narrows again when the camera is back.

broken = new.copy()
broken[60:70] = np.nan
gap = model.filter(broken)
with_camera, without = (record.std[65:70, 0].mean() for record in (track, gap))
print(f"angle ± {with_camera:.2f} with the camera, ± {without:.2f} without, late in the gap")
assert without > 1.2 * with_camera

fig, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
time = np.arange(50, 85)
low, high = (side[time, 0] for side in gap.interval(0.9))
ax.axvspan(60, 69, color=GREY, alpha=0.15, linewidth=0, label="not seen")
ax.fill_between(time, low, high, color=BLUE, alpha=0.2, linewidth=0, label="90% interval")
ax.plot(time, gap.mean[time, 0], color=BLUE, label="filter")
ax.plot(time, truth[time, 0], color="black", linewidth=1, label="truth")
ax.set(xlabel="step", ylabel="angle")
ax.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
plt.show()

# %%
# **New data unlike the recording.** A filter only knows the states that its recording visited. It
# has never seen a bob at position 3:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    lost = model.filter(np.vstack([new[:20], [[3.0]], new[21:30]]))
print(f"{caught[0].category.__name__}: {caught[0].message}")
print("support around it:", lost.support[18:23].round(2))
assert caught[0].category is DataWarning

# %%
# A different *motion* with similar observations is less obvious. ``log_evidence`` says how well
# each observation agrees with the previous ones. A pendulum played backwards looks the same; one in
# random order does not.

shuffled = model.filter(rng.permutation(new))
evidence = track.log_evidence.sum(), shuffled.log_evidence.sum()
print(f"evidence: {evidence[0]:.0f} in order, {evidence[1]:.0f} shuffled")
assert evidence[0] > evidence[1]

# %%
# Live
# ----
#
# For observations that arrive one at a time, ``start`` returns a stream. ``None`` is a step without
# an observation.

stream = model.start()
for observation in new[:30]:
    belief = stream.step(observation)
belief = stream.step(None)
print(f"angle now {belief.mean()[0]:+.2f} ± {belief.std()[0]:.2f}, truth {truth[30, 0]:+.2f}")
print(f"in 0.3 s  {stream.predict(steps=3).mean[-1, 0]:+.2f}, truth {truth[33, 0]:+.2f}")

# %%
# Choices, when they matter
# -------------------------
#
# ``fit`` has tried a few hundred settings (bandwidths and regularisations) on one half of the
# recording against the other, and kept the best; see ``validation_``. ``validation=None`` skips
# this, for a first look. A longer recording helps more than any setting. If a step must take
# microseconds, or sequences are endless, use ``AdditiveFilter``; if the state was never recorded,
# ``SpectralFilter`` forecasts observations alone.

print(model.validation_)
quick = KernelBayesFilter(validation=None).fit(states, seen).filter(new)
print(
    f"errors with the search {errors(track.mean).round(3)}, without {errors(quick.mean).round(3)}"
)

# %%
# Read next: controls, several sequences, rotations and labels as states, in :doc:`/filters`;
# variables in a graph instead of a sequence, in :doc:`the next tutorial
# </auto_tutorials/plot_6_graphs>`.
