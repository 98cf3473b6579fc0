"""
Reweight training rows for covariate or target shift
====================================================

Training rows were collected in one way, and the model is used on rows collected in another. If the
distribution of y given x is unchanged, ``KernelMeanMatching`` weights the training rows; if that of
x given y is unchanged, ``TargetShift`` does, and estimates the frequency of each class.
"""

# %%
# **A line through a curve.** Training rows lie around 0, test rows around 1. A line cannot follow
# the curve everywhere; with weights, it follows the curve where it is needed. The weights estimate
# the ratio of the densities, which is known here.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meanmap import KernelMeanMatching, TargetShift
from meanmap.adaptation import Reweighted

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

rng = np.random.default_rng(0)
X, T = rng.normal(0, 0.6, size=(300, 1)), rng.normal(0.8, 0.35, size=(300, 1))


def curve(x):
    return x[:, 0] ** 3 - x[:, 0]


y = curve(X) + 0.2 * rng.normal(size=300)
line = Reweighted(LinearRegression(), KernelMeanMatching(random_state=0)).fit(X, y, X_test=T)
plain = LinearRegression().fit(X, y)
matching = line.weights_
print(
    f"{matching.effective_size_:.0f} of 300 rows count, distance to the test rows "
    f"{matching.distance_before_:.2f} before and {matching.distance_:.2f} after"
)

grid = np.linspace(-1.6, 1.8, 200)[:, None]
ratio = np.exp((grid / 0.6) ** 2 / 2 - ((grid - 0.8) / 0.35) ** 2 / 2)[:, 0] * 0.6 / 0.35

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.scatter(X, y, s=4 + 12 * matching.weights_, color=GREY, label="training, by weight")
left.plot(T, np.full(300, -2.1), "|", color=ORANGE, label="where test rows lie")
left.plot(grid, curve(grid), color="black", linewidth=1, linestyle=":", label="truth")
left.plot(grid, plain.predict(grid), color=GREY, label="plain")
left.plot(grid, line.predict(grid), color=BLUE, label="weighted")
left.set(ylim=(-2.3, 3.5), xlabel="x", ylabel="y")
left.legend(loc="upper left")
right.plot(grid, ratio, color="black", linewidth=1, linestyle=":", label="ratio of densities")
right.plot(grid, matching.weights(grid), color=BLUE, label="weights")
right.set(xlabel="x", ylabel="weight")
right.legend(loc="upper left")
plt.show()

# %%
# **How frequent is each digit?** The digits 0 to 9 are equally frequent in training. A machine at a
# toll booth sees mostly 1, 2 and 5, without labels. The shares are estimated from the pictures,
# with intervals, and ``adjust`` corrects a classifier for them. This requires calibrated
# probabilities: a classifier that is unsure of everything would follow the shares too far.

digits = load_digits()
order = rng.permutation(len(digits.data))
train, rest = order[:500], order[500:]
frequent = np.array([1, 12, 10, 1, 1, 8, 1, 1, 1, 1.0])
chance = frequent[digits.target[rest]]
test = rng.choice(rest, 500, p=chance / chance.sum())
images, labels = digits.data, digits.target

shift = TargetShift(random_state=0).fit(images[train], labels[train], X_test=images[test])
true = np.bincount(labels[test], minlength=10) / len(test)

model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
says = model.fit(images[train], labels[train]).predict_proba(images[test])
for name, table in (("as it is", says), ("adjusted", shift.adjust(says))):
    right = shift.classes_[table.argmax(axis=1)] == labels[test]
    loss = log_loss(labels[test], table, labels=shift.classes_)
    print(f"{name}: {right.mean():.1%} of the test digits right, log loss {loss:.3f}")

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
shift.plot(ax)
ax.plot(np.arange(10) + 0.2, true, "D", color=ORANGE, markersize=5, label="test, true")
ax.legend(frameon=False)
ax.set(xlabel="digit")
plt.show()
