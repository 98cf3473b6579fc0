"""
Recover probability tables from labels
======================================

Discrete variables need no special code. Under the delta kernel the coordinates of a label are a
one-hot vector: an embedding *is* the vector of probabilities, a joint embedding *is* the joint
table, and the rules are those of elementary probability, up to rounding.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Delta

# %%
# A joint table of causes and symptoms. The model is fitted to the cells of the table, weighted by
# their probabilities; a sample would work as well, and would give the table of frequencies.

causes = np.array(["cold", "flu", "hay fever"])
signs = np.array(["cough", "fever", "itch", "none"])
table = np.array([[0.20, 0.05, 0.02, 0.13], [0.07, 0.12, 0.00, 0.01], [0.02, 0.00, 0.28, 0.10]])

i, j = (index.ravel() for index in np.indices(table.shape))
model = ConditionalEmbedding(Delta(), Delta(), regularization=0)
model.fit(causes[i], signs[j], sample_weight=table.ravel())

# %%
# The operator of the model is :math:`P(\text{sign} \mid \text{cause})`.

conditional = table / table.sum(axis=1, keepdims=True)
print(f"largest error: {abs(model.operator_.matrix.T - conditional).max():.0e}")

# %%
# In spring, hay fever is more likely than in the data. The chain rule gives the joint table under
# the new prior, the sum rule the probabilities of the symptoms, and Bayes' rule the causes given
# each symptom.

spring = np.array([0.2, 0.1, 0.7])
prior = embed(causes, kernel=Delta(), weights=spring)
joint = model.joint(prior).operator()
posterior = model.posterior(prior, regularization=0)

exact = spring[:, None] * conditional
print(f"chain rule: {abs(joint - exact).max():.0e}")
print(f"sum rule:   {abs(model.push(prior).coordinates - exact.sum(axis=0)).max():.0e}")
print(f"Bayes:      {abs(posterior.matrix - exact / exact.sum(axis=0)).max():.0e}")
for cause, probability in zip(causes, posterior.given("cough").coordinates, strict=True):
    print(f"P({cause} | cough) = {probability:.3f}")

# %%
# The three operators, drawn as tables.

panels = {
    "P(sign | cause): the model": model.operator_.matrix.T,
    "P(cause, sign) in spring: chain rule": joint,
    "P(cause | sign) in spring: Bayes": posterior.matrix,
}
fig, axes = plt.subplots(1, 3, figsize=(11, 2.8), sharey=True, layout="constrained")
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    ax.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 0.55 else "black"
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour)
    ax.set_title(title, fontsize="medium")
    ax.set_xticks(range(len(signs)), signs)
    ax.set_yticks(range(len(causes)), causes)
plt.show()
