"""
Infer the rewiring rate of a network
====================================

Points may be networkx graphs. The Weisfeiler–Lehman kernel compares them by the neighbourhoods of
their nodes. A small-world network is a ring whose edges have been rewired with some probability;
here that probability is inferred from the network, with a prior, from simulations alone.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import WeisfeilerLehman

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# A node's label is the number of triangles that it is in; ``label=None`` would take its degree.
# One iteration joins it with the labels of the neighbours.

kernel = WeisfeilerLehman(iterations=1)


def network(p):
    graph = nx.watts_strogatz_graph(60, 6, p, seed=int(rng.integers(1 << 31)))
    nx.set_node_attributes(graph, nx.triangles(graph), "label")
    return graph


def networks(probabilities):
    return [network(p) for p in probabilities]


# %%
# **Embed and compare.** Samples of networks with the same rewiring rate are close to each other;
# the distance grows with the difference of the rates. Every one of these has 60 nodes and 180
# edges.

reference = embed(networks(np.full(150, 0.2)), kernel=kernel)
for p in (0.2, 0.3, 0.6):
    other = embed(networks(np.full(150, p)), kernel=kernel)
    print(f"0.2 and {p}: distance {reference.distance(other):.3f}")

# %%
# **Condition.** The rewiring probability given a network is learned from simulated pairs.
# ``given`` returns a distribution, which has intervals.

rates = rng.uniform(0, 1, size=(600, 1))
graphs = networks(rates[:, 0])
inverse = ConditionalEmbedding(kernel_x=kernel).fit(graphs, rates)

truth = np.linspace(0.02, 0.98, 49)
answers = inverse.given(networks(truth))
low, high = answers.interval(0.9)
inside = (low[:, 0] <= truth) & (truth <= high[:, 0])
print(f"{inside.mean():.0%} of the 90% intervals hold the truth")

# %%
# **Bayes.** The other way round, the model :math:`P(\text{network} \mid \text{rate})` is combined
# with a prior that the simulations did not use: rates near 0.2. One object gives the posterior
# for every network.

model = ConditionalEmbedding(kernel_y=kernel).fit(rates, graphs)
prior = embed(rng.beta(4, 16, size=(600, 1)), kernel=model.kernel_x_)
posterior = model.posterior(prior)
unsure = network(0.3)
flat, informed = inverse.given(unsure), posterior.given(unsure)
for name, belief in (("uniform prior", flat), ("prior near 0.2", informed)):
    print(f"{name}: mean {belief.mean()[0]:.2f}, standard deviation {belief.std()[0]:.2f}")

# %%
# Left: a ring and two rewired ones. Middle: inferred rates of 49 fresh networks,
# with 90% intervals. Right: one network made with rate 0.3, under both priors.

fig = plt.figure(figsize=(12, 4), layout="constrained")
left, right = fig.subfigures(1, 2, width_ratios=(0.45, 2))
for ax, p in zip(left.subplots(3, 1), (0.0, 0.2, 1.0), strict=True):
    graph = network(p)
    place = nx.circular_layout(graph)
    nx.draw_networkx_edges(graph, place, ax=ax, edge_color=GREY, width=0.6)
    nx.draw_networkx_nodes(graph, place, ax=ax, node_color=BLUE, node_size=4)
    ax.set_title(f"rate {p}", fontsize="medium")
    ax.set_aspect("equal")
    ax.axis("off")

middle, ax = right.subplots(1, 2)
mean = answers.mean()[:, 0]
middle.plot([0, 1], [0, 1], "--", color="black", linewidth=1, label="truth")
error = np.maximum([mean - low[:, 0], high[:, 0] - mean], 0)
middle.errorbar(
    truth, mean, error, fmt="o", color=BLUE, markersize=3, linewidth=1, label="inferred"
)
middle.set(xlabel="rate of the network", ylabel="inferred rate, 90% interval")
middle.legend(frameon=False)

grid = np.linspace(0, 0.8, 201)[:, None]
ax.plot(grid, prior.density(grid), ":", color=GREY, linewidth=2, label="prior near 0.2")
ax.plot(
    grid,
    flat.density(grid),
    "--",
    color=BLUE,
    linewidth=2,
    label="posterior, uniform prior",
)
ax.plot(
    grid,
    informed.density(grid),
    color=ORANGE,
    linewidth=2,
    label="posterior, prior near 0.2",
)
ax.axvline(0.3, color="black", linewidth=1, label="truth")
ax.set(xlabel="rate", ylabel="density", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
