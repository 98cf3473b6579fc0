"""
Query any column given any others
=================================

*A clinic has a table with missing values. What do two measurements say about a third, and what are
the missing values likely to be?*

A regression predicts one column from fixed others. A graphical model predicts any column from any
others, whichever are missing. It is a graph with a node for each column, and for each edge the
distribution of one end given the other.
"""

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from meanmap import KernelGraphicalModel
from meanmap.graphical import chow_liu_tree

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# The data
# --------
#
# 442 patients with diabetes: age, sex, body mass index, blood pressure, six blood values, and how
# far the disease had progressed a year later. They come with scikit-learn.

bunch = load_diabetes(as_frame=True, scaled=False)
names = {
    "bp": "pressure", "s1": "cholesterol", "s2": "ldl", "s3": "hdl", "s4": "ratio",
    "s5": "triglycerides", "s6": "sugar",
}  # fmt: skip
patients = bunch.data.rename(columns=names).assign(progress=bunch.target)
patients["sex"] = patients["sex"].map({1.0: "a", 2.0: "b"})  # the data do not say which is which
order = rng.permutation(len(patients))
train, test = patients.iloc[order[:300]], patients.iloc[order[300:]]
print(train.head(3).to_string())

# %%
# The shortest code
# -----------------
#
# No graph is given, so one is learned: the tree whose edges have the most dependence.

model = KernelGraphicalModel().fit(train)
belief = model.marginal("progress", {"bmi": 35.0, "pressure": 110.0})
low, high = belief.interval(0.9)
print(f"progress {belief.mean()[0]:.0f}, 90% between {low[0]:.0f} and {high[0]:.0f}")
print(f"of all patients {train['progress'].mean():.0f}")
assert belief.mean()[0] > train["progress"].mean()

# %%
# Body mass index and blood pressure are the **evidence**, which reaches progress along the edges.
# Any other column can be queried, given any others; nothing is fitted again. For labels the answer
# is a probability. (Regularisation makes the total slightly less than one; ``normalized`` corrects
# that.)

chance = model.marginal("sex", {"hdl": 80.0}).normalized()(["a", "b"])
print(f"sex of a patient with much HDL: a {chance[0]:.0%}, b {chance[1]:.0%}")
assert abs(chance.sum() - 1) < 1e-9

# %%
# What the answer means
# ---------------------
#
# In a tree, two columns that are not neighbours depend on each other only through those between
# them. Here it is, with the strength of each edge (normalised HSIC, from 0 to 1), and with the
# belief at each node given the evidence.

tree = model.graph_
for a, b, strength in sorted(tree.edges.data("weight"), key=lambda edge: -edge[2]):
    print(f"{strength:.2f}  {a} - {b}")

fig, ax = plt.subplots(figsize=(10, 7), layout="constrained")
model.plot({"bmi": 35.0, "pressure": 110.0}, ax=ax)
plt.show()

# %%
# The strongest edges are chemistry: LDL is a part of cholesterol, "ratio" is cholesterol divided by
# HDL. Weak edges may only be there because a tree must have them. **An edge is not a cause.**
# Arrows in a given graph are an order of factors, not causal claims. The model describes
# associations among *observed* patients, not what would happen if someone changed a value.
#
# Is the graph any good?
# ----------------------
#
# Compare it with others on held-out patients. ``score`` is the mean log density of rows: higher is
# better. The alternatives are a star around progress, which is what a naive Bayes classifier
# assumes, and no edges at all.

star = nx.star_graph(["progress", *(name for name in patients if name != "progress")])
graphs = {"learned tree": None, "star": star, "no edges": nx.empty_graph(list(patients))}
scores = {
    name: KernelGraphicalModel(graph).fit(train).score(test) for name, graph in graphs.items()
}
for name, score in scores.items():
    print(f"{name:13} {score:.2f}")
assert scores["learned tree"] > scores["star"] > scores["no edges"]

# %%
# Missing values
# --------------
#
# A quarter of all cells of the new patients is removed. ``impute`` fills each by its mean given the
# rest of the row (a label by its mode). For comparison: the column's mean, and a linear regression
# of each column on all others, scikit-learn's ``IterativeImputer``. One of the new patients has
# less cholesterol than anyone in the training rows, and a warning says so.

numbers = [name for name in patients if name != "sex"]
holes = rng.random(test.shape) < 0.25
broken = test.astype(object).mask(holes)
broken[numbers] = broken[numbers].astype(float)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    filled = model.impute(broken)
for message in {str(warning.message) for warning in caught}:
    print(message)
assert test["cholesterol"].min() < train["cholesterol"].min()
linear = IterativeImputer(random_state=0).fit(train[numbers]).transform(broken[numbers])

error = {}
for column in numbers:
    gap, truth = broken[column].isna().to_numpy(), test[column].to_numpy()
    guesses = {
        "column's mean": np.full(len(test), train[column].mean()),
        "tree": filled[column],
        "linear": linear[:, numbers.index(column)],
    }
    error[column] = {
        name: np.sqrt(np.mean((guess - truth)[gap] ** 2)) / train[column].std()
        for name, guess in guesses.items()
    }
overall = {name: np.mean([error[c][name] for c in numbers]) for name in guesses}
for name, value in overall.items():
    print(f"{name:14} {value:.2f} standard deviations")
assert overall["tree"] < 0.9 * overall["column's mean"]

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
order = sorted(numbers, key=lambda column: -error[column]["tree"])
for name, marker, colour in (
    ("column's mean", "s", GREY),
    ("linear", "D", ORANGE),
    ("tree", "o", BLUE),
):
    ax.plot([error[c][name] for c in order], range(len(order)), marker, color=colour, label=name)
ax.set(yticks=range(len(order)), yticklabels=order, xlabel="error of filled gaps, in deviations")
ax.set_xlim(0, None)
ax.legend(frameon=False, loc="lower left")
plt.show()

# %%
# On this table linear regression does better: it uses all other columns, and their dependence is
# nearly linear; in the tree a column depends on most others only through its neighbours. The tree
# is useful if dependence is nonlinear, if columns are labels, or if you want the distribution and
# not only a mean. Compare on your data.

print("smallest error:", min(overall, key=overall.get))
assert overall["linear"] < overall["tree"]

# %%
# What goes wrong
# ---------------
#
# **A tree is always found,** even if the columns are independent. For shuffled columns the weights
# of its edges are near zero. Look at the weights before you look at the picture:

noise = train.apply(lambda column: rng.permutation(column.to_numpy()))
strongest = max(weight for *_, weight in chow_liu_tree(noise).edges.data("weight"))
print(f"strongest edge among shuffled columns: {strongest:.2f}")
assert strongest < 0.1

# %%
# **Evidence outside the data.** No one in the table has a body mass index of 80. The answer is
# then the distribution of all patients, with a warning:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.marginal("progress", {"bmi": 80.0})
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")
assert caught

# %%
# Evidence on several nodes may be plausible one by one and contradictory together. A warning says
# so if it reaches the queried node from different sides. ``log_density`` of a whole row says how
# typical the row is.
#
# **An unknown name** is an error, not a missing value:

try:
    model.marginal("progress", {"weight": 80.0})
except (KeyError, ValueError) as wrong:
    print(wrong)
else:
    raise AssertionError("an unknown node went unnoticed")

# %%
# Choices, when they matter
# -------------------------
#
# *The graph*: give your own if you know it, ``nx.Graph([("bmi", "progress"), ...])``. A node may
# have several parents (``nx.DiGraph``), but there must be no loops; for graphs with loops, such as
# the grid of a picture, use ``BeliefPropagation``. *The kernel*: its scales are learned, edge by
# edge. *λ* is chosen for each edge by leave-one-out.
#
# Read next: messages, hidden causes, exact tables and loops, in :doc:`/graphical`; what to do if
# future patients differ from those in the table, in :doc:`the next tutorial
# </auto_tutorials/plot_7_shift>`.
