"""
Infer the middle of a chain from its ends
=========================================

A signal passes through six stages, each of which distorts it and adds noise. It is observed only
where it enters and where it leaves. What happened in between? A graphical model whose edges are
conditional embeddings learns this from recorded runs, without the equations. The equations are
known here, so a fine grid gives the exact answers for comparison.
"""

# %%
# Most stages are :math:`x' = 1.6 \sin x` plus noise. The fourth squares the signal, so its sign is
# lost: the end does not tell whether the signal was positive or negative before.

import time
import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from meanmap import KernelGraphicalModel, SettingWarning
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
NODES = [f"x{i}" for i in range(7)]
NOISE, START = 0.35, 1.2


def stage(i, x):
    return x**2 - 1.5 if i == 4 else 1.6 * np.sin(x)


rng = np.random.default_rng(0)
runs = {"x0": rng.normal(0, START, size=2000)}
for i, (before, node) in enumerate(zip(NODES, NODES[1:], strict=False), start=1):
    runs[node] = stage(i, runs[before]) + NOISE * rng.normal(size=2000)

# %%
# The graph is given, the rest is learned. Messages smooth evidence by the width of the nodes'
# kernels. The median distance is about as wide as a node's whole distribution and would blur
# everything; a third of it resolves details.

chain = nx.DiGraph(zip(NODES, NODES[1:], strict=False))
start = time.perf_counter()
model = KernelGraphicalModel(chain, kernel=Gaussian("0.3*median")).fit(runs)
print(f"fit: {time.perf_counter() - start:.2f} s")

# %%
# The exact beliefs are computed with the same messages, on a grid of 1,401 values.

grid = np.linspace(-6, 8, 1401)
width = grid[1] - grid[0]


def normal(x, mean, deviation):
    return np.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))


def exact(evidence):
    """The density of each node on the grid."""
    step = [None] + [normal(grid, stage(i, grid)[:, None], NOISE) for i in range(1, len(NODES))]
    seen = [np.ones_like(grid) for _ in NODES]
    for node, value in evidence.items():
        seen[NODES.index(node)] = (abs(grid - value) < width / 2) / width
    forward, backward = [normal(grid, 0, START) * seen[0]], [np.ones_like(grid)]
    for i in range(1, len(NODES)):
        forward.append(width * (forward[-1] @ step[i]) * seen[i])
    for i in range(len(NODES) - 1, 0, -1):
        backward.insert(0, width * (step[i] @ (backward[0] * seen[i])))
    beliefs = [f * b for f, b in zip(forward, backward, strict=True)]
    return {n: p / (width * p.sum()) for n, p in zip(NODES, beliefs, strict=True)}


def beliefs(fitted, evidence):
    """What a model says of the nodes that were not looked at, on the grid."""
    hidden = [node for node in NODES if node not in evidence]
    return {n: fitted.marginal(n, evidence).density(grid[:, None], 0.12) for n in hidden}


# %%
# Four sets of evidence. Without any, every node has its marginal distribution. The end alone leaves
# two possibilities for x3, one positive and one negative, and the nodes before it stay symmetric. A
# beginning at zero does not decide between them: with both ends known the middle has two modes. A
# beginning slightly above zero does: the signal was most likely positive when it was squared.

questions = {
    "nothing is known": {},
    "the end": {"x6": 1.2},
    "both ends, x0 = 0": {"x0": 0.0, "x6": 1.2},
    "both ends, x0 = 0.3": {"x0": 0.3, "x6": 1.2},
}
fig, axes = plt.subplots(4, 1, figsize=(9, 11), sharex=True, sharey=True, layout="constrained")
for ax, (title, evidence) in zip(axes, questions.items(), strict=True):
    found, truth = beliefs(model, evidence), exact(evidence)
    for i, node in enumerate(NODES):
        if node in evidence:
            ax.plot(i, evidence[node], "o", color=ORANGE, markersize=9, label="evidence")
            continue
        scale = 0.8 / max(truth[node].max(), found[node].max())
        at = i + scale * found[node]
        ax.fill_betweenx(grid, i, at, color=BLUE, alpha=0.5, linewidth=0, label="the model")
        there = truth[node] > 1e-3
        line = np.where(there, i + scale * truth[node], np.nan)
        ax.plot(line, grid, "--", color="black", linewidth=1, label="exact")
        ax.axvline(i, color=GREY, linewidth=0.5, zorder=0)
    ax.set(title=title, ylim=(-3.2, 4), xticks=range(len(NODES)), xticklabels=NODES)
    ax.spines[["top", "right"]].set_visible(False)
    apart = [width * abs(found[n] - truth[n]).sum() / 2 for n in found]
    print(f"{title:>19}: total variation from the exact beliefs at most {max(apart):.2f}")
handles, labels = axes[3].get_legend_handles_labels()
unique = dict(zip(labels, handles, strict=True))
fig.legend(unique.values(), unique, loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# Nothing is computed twice: messages are kept. A query of another node, or with a change of some
# evidence, reuses those that have not changed.

for text, node, evidence in (
    ("new evidence at the ends", "x3", {"x0": -0.4, "x6": 0.9}),
    ("another node", "x2", {"x0": -0.4, "x6": 0.9}),
    ("the same again", "x3", {"x0": -0.4, "x6": 0.9}),
):
    start = time.perf_counter()
    belief = model.marginal(node, evidence)
    print(f"{text:>25}: {1e3 * (time.perf_counter() - start):.2f} ms")

# %%
# The wider the kernels, the more they smooth the evidence where messages from both sides meet: here
# wide kernels leave mass near 0 and −1, where there should be almost none. Fitting the widest
# raises a warning that the kernel may be too wide.

fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
evidence = questions["both ends, x0 = 0.3"]
truth = exact(evidence)["x3"]
ax.plot(grid, truth, "--", color="black", linewidth=1.2, label="exact")
for share, alpha in ((0.3, 1.0), (1.0, 0.6), (2.0, 0.3)):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingWarning)
        other = KernelGraphicalModel(chain, kernel=Gaussian(f"{share}*median")).fit(runs)
    density = beliefs(other, evidence)["x3"]
    label = f"{share:.1f} × the median distance"
    ax.plot(grid, density, color=BLUE, alpha=alpha, linewidth=2, label=label)
ax.set(xlim=(-3, 3), xlabel="x3, given both ends", ylabel="density")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
plt.show()
