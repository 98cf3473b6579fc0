"""
Generalise to a domain not seen in training
===========================================

Data often come from several *domains*: patients, instruments, places. A model for the next domain
should rely on what they have in common. :class:`~meanmap.InvariantComponents` finds components of
the kernel's space that are informative about the target and have the same distribution in all
domains (domain-invariant component analysis, Muandet, Balduzzi and Schölkopf 2013).
"""

# %%
# **Six instruments.** Each has its own offset in the second column, larger than anything else in
# the data; the class shows in the first.
# :func:`~meanmap.adaptation.distributional_variance` says how far apart the domains are, compared
# with what chance would give if their rows were shuffled.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from meanmap import InvariantComponents
from meanmap.adaptation import distributional_variance
from meanmap.kernels import Gaussian
from meanmap.learning import KernelPCA

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
MARKS = "o^sDvP"
rng = np.random.default_rng(0)
domains = np.repeat(np.arange(6), 80)
y = rng.integers(2, size=480)
offset = 2 * np.linspace(-2.5, 2.5, 6)[rng.permutation(6)]
X = np.stack([1.6 * y, offset[domains]], axis=1) + 0.5 * rng.normal(size=(480, 2))
kernel = Gaussian("median")
print(f"variance of the domains' embeddings: {distributional_variance(X, domains, kernel):.3f}")
shuffled = rng.permutation(domains)
print(f"of shuffled ones:                    {distributional_variance(X, shuffled, kernel):.3f}")

# %%
# Kernel principal components follow the offset. Invariant components need only the domain labels to
# leave it out, and with the classes the first component separates them.

new = domains == 5  # the domain not seen in training
models = {
    "kernel principal components": KernelPCA(2, kernel).fit(X[~new]),
    "invariant, without classes": InvariantComponents(2, kernel).fit(
        X[~new], domains=domains[~new]
    ),
    "invariant, by class": InvariantComponents(2, kernel, random_state=0).fit(
        X[~new], y[~new], domains=domains[~new]
    ),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, (title, model) in zip(axes, models.items(), strict=True):
    Z = model.transform(X)
    for domain in range(5):
        for label, colour in enumerate((BLUE, ORANGE)):
            rows = (domains == domain) & (y == label)
            ax.plot(*Z[rows].T, MARKS[domain], color=colour, markersize=3, alpha=0.6)
    for label, colour in enumerate((BLUE, ORANGE)):
        rows = new & (y == label)
        ax.plot(*Z[rows].T, "P", color=colour, markeredgecolor="black", markersize=6)
    vote = KNeighborsClassifier(10).fit(Z[~new], y[~new])
    ax.set_title(f"{title}\nnew domain right: {vote.score(Z[new], y[new]):.0%}", fontsize="medium")
    ax.set(xticks=[], yticks=[], xlabel="first component")
axes[0].set_ylabel("second component")
handles = [
    plt.Line2D([], [], linestyle="", marker="s", color=BLUE, label="first class"),
    plt.Line2D([], [], linestyle="", marker="s", color=ORANGE, label="second class"),
    plt.Line2D(
        [], [], linestyle="", marker="P", color="white", markeredgecolor="black", label="new domain"
    ),
]
fig.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# **How much invariance?** ``trade_off`` weights the variance between domains. ``"auto"`` leaves
# each training domain out in turn and takes the value for which ten nearest neighbours predict best
# there; without a given kernel, the bandwidth is chosen in the same way. ``held_out_`` records what
# was tried, and ``domain_share_`` says how much of the variance of each component lies between
# domains.

model = models["invariant, by class"]
tried = model.held_out_[np.argsort(model.held_out_[:, 1])]
shown = (tried[:, 1] > 0) & np.isfinite(tried[:, 1])
shares = []
for t in tried[shown, 1]:
    fitted = InvariantComponents(2, kernel, trade_off=t).fit(
        X[~new], y[~new], domains=domains[~new]
    )
    shares.append(fitted.domain_share_.max())

fig, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
ax.semilogx(tried[shown, 1], tried[shown, 2], "o-", color=BLUE, label="right in domains left out")
ax.semilogx(tried[shown, 1], shares, "s--", color=ORANGE, label="domain's share of a component")
ax.axvline(model.trade_off_, color=GREY, linestyle=":", label="taken")
ax.set(xlabel="trade-off", ylim=(-0.05, 1.05))
ax.legend(loc="center left", fontsize="small")
plt.show()
print(f"domain's share of the components: {np.round(model.domain_share_, 3)}")

# %%
# In a pipeline the domains are passed to the step that asks for them. With scikit-learn's metadata
# routing they are the groups of a search that leaves one domain out at a time.

import sklearn
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline

with sklearn.config_context(enable_metadata_routing=True):
    components = InvariantComponents(1, kernel).set_fit_request(domains="groups")
    search = GridSearchCV(
        make_pipeline(components, KNeighborsClassifier(10)),
        {"invariantcomponents__trade_off": [0.0, 1.0, 100.0]},
        cv=LeaveOneGroupOut(),
    )
    search.fit(X[~new], y[~new], groups=domains[~new])
    print(search.best_params_, f"{search.score(X[new], y[new]):.0%} right in the new domain")
