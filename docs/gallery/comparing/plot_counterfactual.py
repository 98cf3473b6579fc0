"""
Estimate what a treatment did to those who got it
=================================================

Those who get a treatment differ from those who do not: here they were worse off to begin with. The
counterfactual mean embedding asks what the treated *would have had* without treatment, as a whole
distribution. That shows effects that a difference of means cannot.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap import embed
from meanmap.comparison import counterfactual_effect

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)


def study(effect, n=800):
    """Severity x, who is treated (more likely if severe), the outcome, and without it."""
    x = rng.normal(size=(n, 1))
    treated = rng.random(n) < 1 / (1 + np.exp(-1.5 * x[:, 0]))
    without = 4 - x + 0.5 * rng.normal(size=(n, 1))
    return x, treated, np.where(treated[:, None], effect(without), without), without


# %%
# Three treatments: one does nothing, one adds 0.5 to every outcome, and one helps half of the
# patients by 1 and harms the other half by 1, so that nothing changes on average. Since this is a
# simulation, we also have what the treated would have had, which no study ever sees.


def coin(y):
    return y + rng.choice([-1.0, 1.0], size=y.shape)


treatments = {"nothing": lambda y: y, "plus a half": lambda y: y + 0.5, "plus or minus one": coin}
studies = {name: study(effect) for name, effect in treatments.items()}
found = {}
for name, (x, t, y, without) in studies.items():
    found[name] = counterfactual_effect(x[~t], y[~t], x[t], y[t], rng=0)
    naive = y[t].mean() - y[~t].mean()
    truth = (y[t] - without[t]).mean()
    print(
        f"{name:18} naive {naive:+.2f}, mean effect {found[name].mean_effect[0]:+.2f}, "
        f"truth {truth:+.2f}; p = {found[name].pvalue:.3f}"
    )

# %%
# The naive difference of means is wrong throughout: it blames the treatment for the severity of
# those who got it. With severity taken into account the mean effects are right, and the test finds
# the third treatment as well, which has a mean effect of about 0.
#
# Each result has the embeddings: ``counterfactual`` of what the treated would have had,
# ``treated`` of what they had, and their difference ``effect``, drawn below with the truth dashed.

grid = np.linspace(-0.5, 8, 200)[:, None]
fig, axes = plt.subplots(2, 3, figsize=(11, 5.6), sharex=True, sharey="row", layout="constrained")
for column, (name, (_, t, y, without)) in zip(axes.T, studies.items(), strict=True):
    result = found[name]
    kernel = result.treated.kernel
    exact = embed(without[t], kernel)
    top, bottom = column
    top.plot(grid, embed(y[~t], kernel)(grid), ":", color=GREY, label="controls")
    top.plot(grid, result.counterfactual(grid), color=BLUE, label="treated, without treatment")
    top.plot(grid, exact(grid), "--", color="black", linewidth=1, label="the same, true")
    top.plot(grid, result.treated(grid), color=ORANGE, label="treated")
    top.set_title(f"{name}: p = {result.pvalue:.3g}")
    values = result.effect(grid)
    bottom.plot(grid, values, color=ORANGE)
    bottom.plot(grid, (result.treated - exact)(grid), "--", color="black", linewidth=1)
    bottom.axhline(0, color=GREY, linewidth=0.8)
    bottom.set_xlabel("outcome")
axes[0, 0].set_ylabel("embedding")
axes[1, 0].set_ylabel("effect: more frequent above 0")
handles, labels = axes[0, 0].get_legend_handles_labels()
fig.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
plt.show()

# %%
# What this rests on: given the severity, who is treated must not depend on the outcome, and there
# must be controls as severe as the treated. No computation can check the first. The second shows
# in the weights of the controls, which sum to one: where a few of them carry most of the weight,
# there are too few comparable controls.

for name, result in found.items():
    weights = result.counterfactual.weights
    print(f"{name:18} effective number of controls {1 / np.sum(weights**2):.0f} of {len(weights)}")
