"""
Graphical models
================

*A clinic has a table with gaps. What do two measurements say of a third, and what may stand in the
gaps?*

A regression answers one question: this column from those. A graphical model answers all of them,
from any columns to any others, with whatever is missing. It is a graph, with a node for each
column, and for each edge what one end says of the other.
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
# Body mass index and blood pressure are the **evidence**. What it says of progress travels along
# the edges. Any other column could have been asked for, given any others; nothing is fitted again.
# Labels are nodes as well, whose answer is a probability. (Regularisation takes a little of the
# total away; ``normalized`` puts it back.)

chance = model.marginal("sex", {"hdl": 80.0}).normalized()(["a", "b"])
print(f"sex of a patient with much HDL: a {chance[0]:.0%}, b {chance[1]:.0%}")
assert abs(chance.sum() - 1) < 1e-9

# %%
# What the answer means
# ---------------------
#
# A tree says: two columns that are not neighbours have to do with each other only through those
# between them. Here it is, with the strength of each edge (normalised HSIC, from 0 to 1), and with
# what is believed at each node after the evidence.

tree = model.graph_
for a, b, strength in sorted(tree.edges.data("weight"), key=lambda edge: -edge[2]):
    print(f"{strength:.2f}  {a} - {b}")

fig, ax = plt.subplots(figsize=(10, 7), layout="constrained")
model.plot({"bmi": 35.0, "pressure": 110.0}, ax=ax)
plt.show()

# %%
# The strongest edges are chemistry: LDL is a part of cholesterol, "ratio" is cholesterol by HDL.
# The weak ones may be there because a tree must have them. **An edge is no cause.** Arrows that
# you give are read as an order of factors, never as "makes". The model knows what goes with what
# among patients who were *seen*, not what would happen if one changed a value.
#
# Is the graph any good?
# ----------------------
#
# Compare it with others on patients that it has not seen. ``score`` is the mean log density of
# rows: higher is better. Rivals are a star around progress, which is what a naive classifier
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
# Gaps
# ----
#
# A quarter of all cells of the new patients is lost. ``impute`` fills each by its mean given what
# is left of the row (a label by its mode). Beside it: the column's mean, and a linear regression
# for each column on all others, scikit-learn's ``IterativeImputer``. One of the new patients has
# less cholesterol than anybody in the training rows, and a warning says so.

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
# On this table the linear rival is ahead: it uses all other columns, and these depend on each
# other in nearly straight lines; in the tree a column hears of most others only through its
# neighbours. Where dependence bends, where columns are labels, or where you want the distribution
# and not only a mean, the tree has what the rival has not. Know what your data are like, and
# compare.

print("in front:", min(overall, key=overall.get))
assert overall["linear"] < overall["tree"]

# %%
# What goes wrong
# ---------------
#
# **A tree is always found,** whether there is one or not. Shuffle the columns, and its edges still
# have weights, near zero. Look at them before you look at the picture:

noise = train.apply(lambda column: rng.permutation(column.to_numpy()))
strongest = max(weight for *_, weight in chow_liu_tree(noise).edges.data("weight"))
print(f"strongest edge among shuffled columns: {strongest:.2f}")
assert strongest < 0.1

# %%
# **Evidence outside the data.** Nobody in the table has a body mass index of 80. The answer is
# then that of all patients, with a warning:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.marginal("progress", {"bmi": 80.0})
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")
assert caught

# %%
# Evidence on several nodes that is possible one by one and impossible together is noticed where it
# reaches the node that you ask about from different sides. Ask ``log_density`` of a whole row, if
# you want to know how usual it is.
#
# **A name that is none** is told apart from a missing value:

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
# *The graph*: draw it yourself if you know better; ``nx.Graph([("bmi", "progress"), ...])``.
# Several parents of a node are allowed (``nx.DiGraph``), loops are not; for graphs with loops,
# such as the grid of a picture, there is ``BeliefPropagation``. *The kernel*: narrower than the
# default for sharp dependence and many rows. *λ* is chosen for each edge by leaving rows out.
#
# Read next: what a message is, hidden causes, exact tables and loops, in :doc:`/graphical`; what
# to do when the patients to come are others than those in the table, in :doc:`the next tutorial
# </auto_tutorials/plot_7_shift>`.
