"""
Evaluating and improving a policy
=================================

A pendulum is to be swung up by a motor that is too weak to lift it in one go. Nobody wrote down
how it moves; there are 1,500 transitions, each from a random state under a random torque. The
conditional embedding of the next state given state and torque is the transition operator of a
Markov decision process. With it a policy is evaluated by solving one linear system.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding
from meanmap.kernels import Gaussian

rng = np.random.default_rng(0)
torques, gamma = np.array([-5.0, 0.0, 5.0]), 0.9


def step(angle, speed, torque):  # the truth: to draw the sample from, and to judge by
    for _ in range(10):
        speed = speed + 0.02 * (10 * np.sin(angle) + torque - 0.2 * speed)
        angle = angle + 0.02 * speed
    return angle, speed + 0.2 * rng.normal(size=np.shape(speed))


def state(angle, speed):  # on a cylinder: an angle has no beginning
    return np.stack([np.cos(angle), np.sin(angle), speed / 4], axis=-1)


def reward(s):  # the height, 1 if upright and -1 if hanging
    return s[:, 0]


angle, speed = rng.uniform(-np.pi, np.pi, 1500), rng.uniform(-8, 8, 1500)
torque = rng.choice(torques, 1500)
now, later = state(angle, speed), state(*step(angle, speed, torque))
model = ConditionalEmbedding(Gaussian("0.5*median") @ Gaussian(5.0), Gaussian("0.5*median"))
model.fit((now, torque[:, None]), later)

# %%
# What a policy expects of the next step is a weighted sum over the sample's next states. On those
# states :math:`V = r + \\gamma P V` is therefore a linear system, and the torque that promises most
# is the better policy. A few rounds are enough.


def both(s, torque):
    return s, np.broadcast_to(torque, len(s))[:, None]


moves = np.stack([model.weights(both(later, a)) for a in torques])
rows, choice, values = np.arange(1500), np.ones(1500, dtype=int), []
for _ in range(6):
    P = moves[choice, rows]
    values.append(np.linalg.solve(np.eye(1500) - gamma * P, reward(later)))
    choice = np.argmax(moves @ values[-1], axis=0)
    print(f"value of the policy, on average over the sample's states: {values[-1].mean():.2f}")


def promise(V):
    """The expected value of the next state, for any states and every torque."""
    expected = model.functional(lambda atoms: V)
    return lambda s: np.stack([expected(both(s, a)) for a in torques])


# %%
# Monte Carlo needs the pendulum itself: mean returns of 10 runs from each of 60 states.


def returns(angle, speed, policy, steps=60):
    total, path = 0.0, []
    for t in range(steps):
        s = state(angle, speed)
        path.append((angle, speed))
        total = total + gamma**t * reward(s)
        angle, speed = step(angle, speed, torques[policy(s)])
    return total, np.array(path)


q = promise(values[-1])
policies = {
    "no torque": (values[0], lambda s: np.ones(len(s), dtype=int)),
    "improved": (values[-1], lambda s: np.argmax(q(s), axis=0)),
}
start = rng.uniform(-np.pi, np.pi, 60), rng.uniform(-6, 6, 60)
s = state(*start)
fig, (left, right) = plt.subplots(
    1, 2, figsize=(10.5, 4), layout="constrained", width_ratios=(2, 3)
)
for colour, (name, (V, policy)) in zip(("#8a8a8a", "#0072b2"), policies.items(), strict=True):
    played = returns(*np.repeat(start, 10, axis=1), policy)[0].reshape(60, 10).mean(axis=1)
    learned = reward(s) + gamma * promise(V)(s)[policy(s), np.arange(60)]
    left.plot(played, learned, "o", color=colour, markersize=4, label=name)
    r = np.corrcoef(played, learned)[0, 1]
    print(f"{name}: mean return {played.mean():.1f}, predicted {learned.mean():.1f}; r = {r:.2f}")
left.plot([-10, 10], [-10, 10], color="black", linewidth=0.8)
left.set(xlabel="mean return, played", ylabel="value, from the sample", title="policy evaluation")
left.legend(frameon=False)

# %%
# The values of the improved policy are in the right order and too low: of the narrow ridge on which
# the pendulum can be kept upright a kernel sees a blurred picture. For choosing a torque the order
# is enough. From hanging at rest the pendulum swings back and forth, and up.

angles, speeds = np.meshgrid(np.linspace(-np.pi, np.pi, 61), np.linspace(-8, 8, 61))
grid = state(angles.ravel(), speeds.ravel())
V = (reward(grid) + gamma * q(grid).max(axis=0)).reshape(angles.shape)
drawn = right.pcolormesh(angles, speeds, V, cmap="viridis", shading="gouraud")
fig.colorbar(drawn, ax=right, label="value")
path = returns(np.array([np.pi]), np.zeros(1), policies["improved"][1])[1][:, :, 0]
wrapped = (path[:, 0] + np.pi) % (2 * np.pi) - np.pi
right.plot(wrapped, path[:, 1], "o", color="white", markersize=4, markeredgecolor="black")
for t in range(0, 16, 3):
    right.annotate(str(t), (wrapped[t], path[t, 1]), (5, 3), textcoords="offset points", color="w")
right.set(xlabel="angle from upright", ylabel="speed", title="its value, and steps from hanging")
plt.show()
