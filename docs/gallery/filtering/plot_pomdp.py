"""
Act on a belief when the state is hidden
========================================

A robot in a ring-shaped corridor wants to reach its dock. Its sensors are noisy and, worse,
ambiguous: the pattern on the wall repeats three times, and a dim lamp says little about which of
the three is in view. The current reading does not determine the position; the history of readings
and actions does. ``KernelBayesFilter`` learns motion, sensors and the effect of actions from a
recording of random movement, and the robot acts on its belief: a partially observed Markov decision
process (POMDP).
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, KernelBayesFilter
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)


def moved(position, action):  # the truth: slippery wheels
    return position + 0.25 * action + 0.08 * rng.normal(size=np.shape(position))


def felt(position):
    wall = np.cos(3 * position), np.sin(3 * position)
    clear = np.stack([*wall, 0.5 * np.cos(position - 2)], axis=-1)
    return clear + 0.3 * rng.normal(size=clear.shape)


def on_ring(position):
    return np.stack([np.cos(position), np.sin(position)], axis=-1)


# %%
# The training data are 600 steps of random movement with known positions (recorded by a camera).
# ``controls`` holds the actions: row t acts between step t and step t + 1.

actions = np.repeat(rng.choice([-1.0, 0.0, 1.0], 150), 4)
position = [rng.uniform(-np.pi, np.pi)]
for action in actions[:-1]:
    position.append(moved(position[-1], action))
position = np.array(position)
states, readings = on_ring(position), felt(position)
model = KernelBayesFilter(Gaussian(0.3), progress=False).fit(states, readings, actions[:, None])
glance = ConditionalEmbedding(Gaussian("loo")).fit(readings, states)  # the last reading alone
print(model.validation_)

# %%
# Both robots move towards the dock, at angle 0, from the mean of what they believe. One uses its
# filter, a live stream that takes each reading together with the action before it; the other uses
# its last reading only.


def journey(x, filtering, steps=60):
    stream, action, places, beliefs = model.start(), [0.0], [], []
    for _ in range(steps):
        reading = felt(x)
        belief = stream.step(reading, action) if filtering else glance.given(reading)
        places.append(x)
        beliefs.append(belief)
        angle = np.arctan2(*belief.mean()[::-1])
        action = [0.0 if abs(angle) < 0.15 else -np.sign(angle)]
        x = moved(x, action[0])
    return np.angle(np.exp(1j * np.array(places))), beliefs


away = {}
starts = np.linspace(-np.pi, np.pi, 12, endpoint=False)
for name, filtering in (("acting on the last reading", False), ("acting on the belief", True)):
    away[name] = np.abs([journey(x, filtering)[0] for x in starts])
    docked = np.mean(away[name][:, 20:] < 0.3)
    print(f"{name:26}  docked in {docked:.0%} of the steps from step 20 on")

# %%
# One journey: the belief starts in several places, and movement rules out all but one.

places, beliefs = journey(3.0, True)
ring = np.linspace(-np.pi, np.pi, 121)
density = np.array([belief(on_ring(ring)) for belief in beliefs]).T

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
left.pcolormesh(np.arange(60), ring, density, cmap="Blues", vmin=0, shading="nearest")
left.plot(places, ".", color=ORANGE, markersize=5, label="where the robot is")
left.axhline(0, color=GREY, linewidth=0.8)
left.set(title="the belief", xlabel="step", ylabel="angle on the ring; the dock is at 0")
left.legend(frameon=False, loc="upper right")
for colour, (name, distance) in zip((GREY, BLUE), away.items(), strict=True):
    right.plot(distance.T, color=colour, linewidth=0.6, alpha=0.5)
    right.plot(distance.mean(axis=0), color=colour, linewidth=2.5, label=name)
right.set(title="distance from the dock, 12 journeys", xlabel="step", ylim=(0, np.pi))
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
plt.show()
