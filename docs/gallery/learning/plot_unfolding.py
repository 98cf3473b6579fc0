"""
Draw a map guided by class labels
=================================

:class:`~meanmap.ColoredUnfolding` lays points out in the plane. It preserves the distances between
neighbours as well as it can; apart from that, it places points so that their positions depend as
much as possible on *side information*: a class, a number, anything with a kernel. Without side
information it is maximum variance unfolding.
"""

# %%
# **A Swiss roll.** A sheet of paper, rolled up in space, is unrolled: three dimensions become the
# two of the sheet. With ``refine=True`` a final optimisation is done in the plane, which suits a
# sheet.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.neighbors import KNeighborsClassifier

from meanmap import ColoredUnfolding
from meanmap.kernels import Delta

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]
MARKS = "o^sDv"
rng = np.random.default_rng(0)
along, across = 1.5 * np.pi * (1 + 2 * rng.uniform(size=1000)), 21 * rng.uniform(size=1000)
roll = np.stack([along * np.cos(along), across, along * np.sin(along)], axis=1)
sheet = ColoredUnfolding(stiffness=5.0, refine=True, random_state=0).fit(roll)
print(f"status: {sheet.status_}; distances of neighbours are off by {sheet.stress_:.1%}")

fig, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
left.scatter(roll[:, 0], roll[:, 2], c=along, cmap="cividis", s=4)
left.set(title="rolled up, seen from the side", aspect="equal", xticks=[], yticks=[])
drawn = right.scatter(*sheet.embedding_.T, c=along, cmap="cividis", s=4)
right.set(title="unfolded", aspect="equal", xticks=[], yticks=[])
fig.colorbar(drawn, ax=right, label="along the sheet")
plt.show()

# %%
# **Digits.** Pictures of 8 × 8 pixels cannot be laid out in a plane without distortion. Side
# information says what the plane should show: here five of the digits, by their class. Two thirds
# of them are unfolded. The others are placed between their neighbours afterwards, without using
# their class, so they are a fair test of whether the map is better.

X, y = load_digits(n_class=5, return_X_y=True)
order = rng.permutation(len(y))
known, held = order[:600], order[600:]
maps = {
    "principal components": PCA(2).fit(X[known]),
    "without colours": ColoredUnfolding(stiffness=0.1, random_state=0).fit(X[known]),
    "coloured": ColoredUnfolding(2, 10, Delta(), stiffness=0.1, random_state=0).fit(
        X[known], y[known]
    ),
}

fig, axes = plt.subplots(1, 3, figsize=(8, 3.2), layout="constrained")
for ax, (title, model) in zip(axes, maps.items(), strict=True):
    places, new = model.transform(X[known]), model.transform(X[held])
    vote = KNeighborsClassifier(5).fit(places, y[known])
    trust = trustworthiness(X[known], places, n_neighbors=10)
    for digit in range(5):
        ax.plot(
            *new[y[held] == digit].T,
            MARKS[digit],
            color=COLOURS[digit],
            markersize=3,
            alpha=0.7,
            label=digit,
        )
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{title}\nneighbours right: {vote.score(new, y[held]):.1%}", fontsize="medium")
    print(f"{title:>20}: {vote.score(new, y[held]):.3f} held out, trustworthiness {trust:.3f}")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# **How good is the solution?** The map comes from a semidefinite programme. Each solution is
# checked by the dual bound, so ``gap_`` says how far it can be from the optimum; if that is more
# than ``tol``, a warning gives the status of the solver.

for title in ("without colours", "coloured"):
    model = maps[title]
    print(f"{title}: {model.status_}, gap {model.gap_:.1e}, {model.n_iter_} steps")
