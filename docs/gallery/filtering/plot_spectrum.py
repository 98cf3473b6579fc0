"""
Estimate the slow modes of a process
====================================

The operator that takes a function of the state to its expected value a moment later has eigenvalues
that say how fast the process forgets, and eigenfunctions that say what it forgets last. Here a
particle hops between two wells, and the slow mode is which well it is in.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap.dynamics import TransferOperator

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"

# %%
# A particle in the potential :math:`V(x) = (x^2 - 1)^2`, driven by noise and observed every 0.5
# units of time.

rng = np.random.default_rng(0)
step, every, strength = 0.01, 50, 0.7
walkers = rng.choice([-1.0, 1.0], size=60)
path = [walkers]
for noise in rng.normal(size=(200 * every, len(walkers))):
    force = -4 * walkers * (walkers**2 - 1)
    walkers = walkers + step * force + strength * np.sqrt(2 * step) * noise
    path.append(walkers)
seen = np.array(path[::every])

# %%
# One fit to the paths of all particles. The width of the kernel, the regularisation and whether the
# process is reversible are chosen by cross-validation; five eigenvalues are asked for.

lag = step * every
paths = [seen[:, [i]] for i in range(seen.shape[1])]
model = TransferOperator(rank=5).fit(paths)

# %%
# The exact answer, from the same process on a fine grid: the transition matrix of one step, to the
# power of 50.

grid = np.linspace(-2.2, 2.2, 401)
drift = grid + step * -4 * grid * (grid**2 - 1)
width = strength * np.sqrt(2 * step)
P = np.exp(-0.5 * ((grid[None, :] - drift[:, None]) / width) ** 2)
P /= P.sum(axis=1, keepdims=True)
values, functions = np.linalg.eig(np.linalg.matrix_power(P, every))
order = np.argsort(-abs(values))[:5]
exact, functions = values[order].real, functions[:, order].real

print("eigenvalue  ± 95%   exact   timescale   exact")
rows = zip(model.eigenvalues_.real, model.bounds(), exact, model.timescales(lag), strict=True)
for value, bound, true, time in rows:
    scale = -lag / np.log(true) if true < 1 - 1e-9 else np.inf
    print(f"{value:10.3f}  {bound:.3f}  {true:6.3f}  {time:10.2f}  {scale:6.2f}")

# %%
# The first eigenvalue is one, with a constant eigenfunction: probability is conserved. The second
# eigenfunction separates the wells. It is the slow one; the later modes, within the wells, decay
# before the particle hops.

inside = abs(grid) < 1.8
estimate = model.eigenfunctions(grid[inside][:, None]).real
density = np.exp(-((grid**2 - 1) ** 2) / strength**2)[inside]

fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
axes[0].plot(np.arange(len(seen)) * lag, seen[:, 0], color=BLUE, linewidth=1)
axes[0].set(xlabel="time", ylabel="position of one particle")

place = np.arange(5)
axes[1].bar(
    place, model.eigenvalues_.real, yerr=model.bounds(), color=BLUE, capsize=3, label="estimate"
)
axes[1].plot(place, exact, "D", color="black", label="exact")
axes[1].set_xticks(place, [str(i + 1) for i in place])
axes[1].set(xlabel="mode", ylabel=f"eigenvalue over {lag} units of time")
axes[1].legend(frameon=False)

for i, (colour, style) in enumerate(zip((GREY, BLUE, ORANGE), (":", "-", "--"), strict=True)):
    f = functions[inside, i] / np.sqrt(np.average(functions[inside, i] ** 2, weights=density))
    sign = np.sign(np.average(f * estimate[:, i], weights=density))
    axes[2].plot(grid[inside], f, color="black", linewidth=0.8)
    axes[2].plot(
        grid[inside], sign * estimate[:, i], style, color=colour, linewidth=2, label=f"mode {i + 1}"
    )
axes[2].plot([], [], color="black", linewidth=0.8, label="exact")
axes[2].set(xlabel="position", ylabel="eigenfunction", ylim=(-2.5, 4))
axes[2].legend(frameon=False, ncols=2)
plt.show()
