"""
Learn a tree from a table
=========================

Most tables come without a graph. ``KernelGraphicalModel()`` finds the tree whose edges have the
strongest dependence, of any shape and between columns of any kind. The model then predicts columns
from others, fills in missing values, and draws new rows.
"""

# %%
# 178 Italian wines of three growers: thirteen chemical measurements, and the grower, a label.

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from sklearn.datasets import load_wine

from meanmap import KernelGraphicalModel

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
GROWERS = {"A": BLUE, "B": ORANGE, "C": GREEN}

bunch = load_wine(as_frame=True)
wines = bunch.data.rename(columns=lambda name: name.split("/")[0].replace("_", " "))
wines["grower"] = np.array(list(GROWERS))[bunch.target]
rows = np.random.default_rng(0).permutation(len(wines))
train, test = wines.iloc[rows[:120]], wines.iloc[rows[120:]]

# %%
# The weight of an edge is its normalised HSIC, between 0 and 1; the tree has the largest total.
# The grower is a column like any other, and a hub: measurements that differ between growers are
# joined to it, and the phenols form a branch of their own.

model = KernelGraphicalModel().fit(train)
tree = model.graph_
strength = [tree.edges[edge]["weight"] for edge in tree.edges]
place = nx.kamada_kawai_layout(tree, weight=None)

fig, ax = plt.subplots(figsize=(10, 7), layout="constrained")
nx.draw_networkx_edges(tree, place, ax=ax, width=[9 * w for w in strength], edge_color="#c7d6e2")
nx.draw_networkx_labels(
    tree,
    place,
    {node: node.replace(" ", "\n") for node in tree},
    ax=ax,
    font_size=9,
    bbox={"facecolor": "white", "edgecolor": BLUE, "boxstyle": "round,pad=0.35"},
)
names = {edge: f"{tree.edges[edge]['weight']:.2f}" for edge in tree.edges}
nx.draw_networkx_edge_labels(tree, place, names, ax=ax, font_size=7, rotate=False)
ax.margins(0.1)
ax.set_axis_off()
plt.show()

# %%
# **Evidence** can be given at any node, and ``plot`` shows the beliefs at all others. A dark wine
# with few phenols is very likely from grower C, and this changes the beliefs along the branches.

fig, ax = plt.subplots(figsize=(10, 7), layout="constrained")
model.plot({"color intensity": 8.0, "total phenols": 1.5}, ax=ax)
plt.show()

# %%
# Many queries can be answered at once. Colour is far from the phenols in the tree, with a label
# between them; messages pass through it.

phenols = np.linspace(train["total phenols"].quantile(0.02), train["total phenols"].quantile(0.98))
given = {"total phenols": phenols}  # fifty questions at once
fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for ax, column in zip(axes[:2], ("flavanoids", "color intensity"), strict=True):
    belief = model.marginal(column, given)
    low, high = (side[:, 0] for side in belief.interval(0.9))
    ax.fill_between(phenols, low, high, color=GREY, alpha=0.3, linewidth=0, label="90%")
    ax.plot(phenols, belief.mean()[:, 0], color="black", label="mean")
    for grower, colour in GROWERS.items():
        some = test[test.grower == grower]
        ax.plot(some["total phenols"], some[column], ".", color=colour)
    ax.set(xlabel="total phenols", ylabel=column)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False, loc="upper left")
belief = model.marginal("grower", given)
for grower, colour in GROWERS.items():
    chance = np.clip(belief([grower])[:, 0], 0, 1)
    axes[2].plot(phenols, chance, color=colour, linewidth=2, label=f"grower {grower}")
axes[2].set(xlabel="total phenols", ylabel="probability", ylim=(0, 1.02))
axes[2].spines[["top", "right"]].set_visible(False)
axes[2].legend(frameon=False)
plt.show()

# %%
# **Missing values.** A third of the cells of held-out wines is removed and filled in again: numbers
# by their means given the rest of the row, labels by their modes. For comparison, the column's mean
# or most frequent label. A few of these wines have more magnesium or hue than any wine in the
# training set, and for two of them the measurements point to different growers. Both raise
# warnings, each printed once here.

rng = np.random.default_rng(1)
broken = test.astype(object).mask(rng.random(test.shape) < 1 / 3)
numbers = [column for column in wines if column != "grower"]
broken[numbers] = broken[numbers].astype(float)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    filled = model.impute(broken)
for message in sorted({str(warning.message) for warning in caught}):
    print(message)
error = {}
for column in numbers:
    gap = broken[column].isna().to_numpy()
    truth, spread = test[column].to_numpy()[gap], train[column].std()
    plain = np.sqrt(np.mean((train[column].mean() - truth) ** 2))
    error[column] = np.sqrt(np.mean((filled[column][gap] - truth) ** 2)) / spread, plain / spread
gap = broken["grower"].isna().to_numpy()
right = np.mean(filled["grower"][gap] == test["grower"].to_numpy()[gap])
usual = np.mean(train["grower"].mode()[0] == test["grower"].to_numpy()[gap])
print(f"grower: {right:.0%} of {gap.sum()} right, the most frequent one in {usual:.0%}")
ours, theirs = np.mean(list(error.values()), axis=0)
print(f"numbers: error {ours:.2f} standard deviations, that of the column's mean {theirs:.2f}")

order = sorted(error, key=lambda column: error[column][0], reverse=True)
fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for i, column in enumerate(order):
    ax.plot(error[column], [i, i], color="#c7d6e2", linewidth=4, zorder=0)
ax.plot([error[c][1] for c in order], range(len(order)), "o", color=GREY, label="column's mean")
ax.plot([error[c][0] for c in order], range(len(order)), "o", color=BLUE, label="the tree")
ax.set(yticks=range(len(order)), yticklabels=order, xlabel="error of imputed cells, in deviations")
ax.set_xlim(0, None)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower left")
plt.show()

# %%
# **Which tree?** ``score`` is the mean log density of held-out rows. A star around the grower
# assumes that all measurements are independent given the grower, as a naive Bayes classifier does;
# a graph without edges assumes that all columns are independent.

star = nx.star_graph(["grower", *numbers])
nothing = nx.empty_graph(list(wines))
for name, graph in {"learned": None, "star": star, "no edges": nothing}.items():
    score = KernelGraphicalModel(graph).fit(train).score(test)
    print(f"{name:>9}: {score:.2f}")
