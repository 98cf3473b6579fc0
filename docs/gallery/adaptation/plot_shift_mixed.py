"""
Correct shifts in strings and mixed tables
==========================================

Methods for distribution shift do not need vectors: they see points through a kernel. Each is shown
here with another kind of points and compared with the truth: sequencing reads, patient records with
numbers and categories, machines in several plants, and an instrument whose drift depends on the
string that is measured.
"""

# %%
# **Strings, covariate shift.** Reads of 24 letters, each with its own share of G and C. The shares
# are low in training and high where the model is used. How well a read is amplified first rises and
# then falls with that share, and a model that is linear in letter counts cannot follow it
# everywhere. The kernel compares letter counts, to the fourth power, so that weights need not be
# linear in them; the true density ratio is a ratio of beta-binomial probabilities.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import betabinom
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from meanmap import InvariantComponents, KernelMeanMatching, LocationScaleShift, TargetShift
from meanmap.adaptation import Reweighted
from meanmap.kernels import Columns, Delta, Gaussian, NGrams

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
rng = np.random.default_rng(0)
LENGTH = 24


def reads(n, a, b):
    share = rng.beta(a, b, n)[:, None]
    strong, weak = rng.choice(list("GC"), (n, LENGTH)), rng.choice(list("AT"), (n, LENGTH))
    return np.array(
        ["".join(row) for row in np.where(rng.random((n, LENGTH)) < share, strong, weak)]
    )


def counted(strings):
    return np.array([s.count("G") + s.count("C") for s in strings])


def amplified(strings):
    return 1 - 6 * (counted(strings) / LENGTH - 0.45) ** 2 + 0.1 * rng.normal(size=len(strings))


train, test = reads(500, 3, 5), reads(500, 6, 4)
y, unseen = amplified(train), amplified(test)
alike = NGrams(1)
matching = KernelMeanMatching(alike * alike * alike * alike, random_state=0)
linear = make_pipeline(CountVectorizer(analyzer="char"), Ridge())
weighted = Reweighted(linear, matching).fit(train, y, X_test=test)
plain = linear.fit(train, y)
weights = weighted.weights_.weights_
error = {name: ((m.predict(test) - unseen) ** 2).mean() ** 0.5 for name, m in
         {"plain": plain, "weighted": weighted}.items()}  # fmt: skip
print(f"error on the new reads: plain {error['plain']:.3f}, weighted {error['weighted']:.3f}")
print(f"{weighted.weights_.effective_size_:.0f} of 500 reads count")

letters = np.arange(LENGTH + 1)
ratio = betabinom.pmf(letters, LENGTH, 6, 4) / betabinom.pmf(letters, LENGTH, 3, 5)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(
    counted(train), weights, "o", color=BLUE, markersize=4, alpha=0.5, label="weight of a read"
)
left.plot(letters, ratio, color="black", label="true ratio")
left.set(xlabel="G and C among 24 letters", ylabel="weight", ylim=(-0.3, 1.2 * weights.max()))
left.legend(frameon=False, loc="upper left")
right.plot(counted(train) - 0.15, y, ".", color=GREY, alpha=0.5, label="training")
right.plot(counted(test) + 0.15, unseen, ".", color=GREEN, alpha=0.5, label="new")
for model, colour, style, name in ((plain, GREY, "--", "plain"), (weighted, BLUE, "-", "weighted")):
    curve = pd.Series(model.predict(test)).groupby(counted(test)).mean()
    right.plot(curve.index, curve, style, color=colour, linewidth=2.5, label=f"line, {name}")
right.set(xlabel="G and C among 24 letters", ylabel="amplification")
right.legend(frameon=False, loc="lower center")
plt.show()

# %%
# **A table with numbers and categories, target shift.** Patient records: age, a marker and a
# symptom. In the clinic where the records were labelled, 15% are ill; in the emergency ward many
# more are. For a data frame the kernel is chosen column by column. ``TargetShift`` estimates the
# share from records without a diagnosis, with an interval, and adjusts the probabilities of a
# classifier that was fitted in the clinic.

SYMPTOMS = ["none", "fever", "cough"]


def patients(n, ill):
    sick = rng.random(n) < ill
    likely = np.where(sick[:, None], [0.2, 0.5, 0.3], [0.7, 0.1, 0.2]).cumsum(axis=1)
    records = pd.DataFrame(
        {
            "age": rng.normal(np.where(sick, 62, 50), 14),
            "marker": rng.gamma(2.0, np.where(sick, 1.5, 0.8)),
            "symptom": np.array(SYMPTOMS)[(rng.random(n)[:, None] > likely).sum(axis=1)],
        }
    )
    return records, np.where(sick, "ill", "well")


clinic, diagnosis = patients(800, 0.15)
encoded = make_column_transformer(
    (StandardScaler(), ["age", "marker"]), (OneHotEncoder(), ["symptom"])
)
classifier = make_pipeline(encoded, LogisticRegression()).fit(clinic, diagnosis)
shares, found, right_before, right_after = (0.1, 0.3, 0.5, 0.7, 0.9), [], [], []
for share in shares:
    ward, hidden = patients(600, share)
    shift = TargetShift(random_state=0).fit(clinic, diagnosis, X_test=ward)
    found.append((shift.proportions_[0], *shift.interval(0.95)[0], (hidden == "ill").mean()))
    probabilities = classifier.predict_proba(ward)
    right_before.append((classifier.predict(ward) == hidden).mean())
    adjusted = shift.adjust(probabilities)
    right_after.append((shift.classes_[adjusted.argmax(axis=1)] == hidden).mean())
found = np.array(found)
print("kernel:", shift.kernel_x_)
for row in found:
    print(f"ill {row[3]:.2f}: found {row[0]:.2f}, 95% between {row[1]:.2f} and {row[2]:.2f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
bars = np.abs(found[:, 1:3].T - found[:, 0])
left.errorbar(found[:, 3], found[:, 0], bars, fmt="o", color=BLUE, capsize=3, label="found, 95%")
left.plot([0, 1], [0, 1], color="black", linewidth=0.8, label="truth")
left.axhline(0.15, color=GREY, linestyle="--", label="in the clinic")
left.set(xlabel="share of ill patients in the ward", ylabel="estimate without a diagnosis")
left.legend(frameon=False)
right.plot(shares, right_before, "s--", color=GREY, label="classifier of the clinic")
right.plot(shares, right_after, "o-", color=BLUE, label="adjusted")
right.set(xlabel="share of ill patients in the ward", ylabel="right", ylim=(0.4, 1))
right.legend(frameon=False, loc="lower left")
plt.show()

# %%
# **Domains with mixed columns.** Machines in eight plants. A worn bearing vibrates more and sounds
# different; temperature and humidity depend only on the plant, and so does the brand of grease. Two
# components should be informative about wear and have the same distribution in all plants. Each
# plant in turn is left out of training. The baselines are kernel principal components, the special
# case without targets or a trade-off, and nearest neighbours in all columns.
#
# The kernel of a table is a product over its columns. Adding one to each factor gives a space with
# functions that ignore a column, which is what is needed here.

PLANTS, EACH = 8, 50
plant = np.repeat(np.arange(PLANTS), EACH)
n = len(plant)
worn = rng.random(n) < 0.5
sound = np.where(worn[:, None], [0.15, 0.35, 0.5], [0.6, 0.3, 0.1]).cumsum(axis=1)
machines = pd.DataFrame(
    {
        "vibration": 1.5 * worn + rng.normal(size=n),
        "sound": np.array(["hum", "hiss", "rattle"])[(rng.random(n)[:, None] > sound).sum(axis=1)],
        "temperature": 40 + 8 * rng.normal(size=PLANTS)[plant] + 2 * rng.normal(size=n),
        "humidity": 60 + 15 * rng.normal(size=PLANTS)[plant] + 4 * rng.normal(size=n),
        "grease": np.where(rng.random(n) < 0.8, rng.choice(list("abc"), PLANTS)[plant], "a"),
    }
)
kernel = Columns(
    {
        "vibration": Gaussian() + 1,
        "sound": Delta() + 1,
        "temperature": Gaussian() + 1,
        "humidity": Gaussian() + 1,
        "grease": Delta() + 1,
    }
)
columns = make_column_transformer(
    (StandardScaler(), ["vibration", "temperature", "humidity"]),
    (OneHotEncoder(handle_unknown="ignore"), ["sound", "grease"]),
)
scores = {"kernel principal components": [], "all columns": [], "invariant components": []}
for new in range(PLANTS):
    seen = plant != new
    principal = InvariantComponents(2, kernel, trade_off=0.0, supervised=False)
    model = InvariantComponents(2, kernel, random_state=0)
    ways = [columns.fit(machines[seen]).transform(machines)]
    for way in (principal, model):
        Z = way.fit(machines[seen], worn[seen], domains=plant[seen]).transform(machines)
        ways.append(Z / Z[seen].std())
    for name, rows in zip(scores, (ways[1], ways[0], ways[2]), strict=True):
        vote = KNeighborsClassifier(15).fit(rows[seen], worn[seen])
        scores[name].append(vote.score(rows[~seen], worn[~seen]))
Z = ways[2]
for name, values in scores.items():
    print(f"{name:27} {np.mean(values):.3f} right on average, {min(values):.3f} in the worst plant")
for name, way in (("principal", principal), ("invariant", model)):
    print(f"variance between plants, {name} components: {way.domain_share_.round(3)}")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for label, colour, mark in ((True, ORANGE, "^"), (False, BLUE, "o")):
    rows = (worn == label) & (plant == new)
    rest = (worn == label) & (plant != new)
    name = "worn" if label else "not worn"
    left.plot(*Z[rest].T, mark, color=colour, markersize=3, alpha=0.25)
    left.plot(*Z[rows].T, mark, color=colour, markersize=6, label=f"{name}, plant not seen")
left.set(xlabel="first component", ylabel="second component", ylim=(-1.3, 3.2))
left.legend(frameon=False, loc="upper left")
place = np.arange(PLANTS)
for i, (name, colour) in enumerate(zip(scores, (ORANGE, GREY, BLUE), strict=True)):
    right.bar(place + 0.27 * (i - 1), scores[name], 0.25, color=colour, label=name)
right.set(xlabel="plant left out", ylabel="right", ylim=(0, 1.35), yticks=np.linspace(0, 1, 6))
right.legend(frameon=False, loc="upper left", fontsize="small")
plt.show()

# %%
# **A drift that depends on a string.** Gains and offsets apply to numbers, so
# ``LocationScaleShift`` needs numeric rows, but they can depend on anything with a kernel. Here the
# targets are reads again: each has two readings, one that grows with G and C and one that grows
# with A. The new instrument has a gain that grows with the share of G and C. Which read belongs to
# a new reading is unknown. At both ends, where reads are rare, the estimate is rough.


def measured(strings):
    a = np.array([s.count("A") for s in strings]) / LENGTH
    clean = np.stack([4 * counted(strings) / LENGTH, 5 * a], axis=1)
    return clean + 0.5 * rng.normal(size=clean.shape)


def gain(strings):
    return 0.8 + 0.8 * counted(strings)[:, None] / LENGTH * np.array([1.0, 0.5])


old, later = reads(600, 3, 3), reads(600, 3, 3)
X, T = measured(old), measured(later) * gain(later) + 0.4
drift = LocationScaleShift(kernel_y=NGrams(1), target_shift=False, random_state=0)
drift.fit(X, old, X_test=T)
print(f"distance of embeddings: {drift.distance_before_:.3f} before, {drift.distance_:.3f} after")
there, truth = drift.X_new_, X * gain(old) + 0.4
for name, rows in (("untouched", X), ("moved", there)):
    print(f"{name:9} readings are off by {abs(rows - truth).mean() / T.std():.3f} deviations")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(*T.T, ".", color=GREY, alpha=0.5, label="new instrument")
left.plot(*X.T, ".", color=ORANGE, alpha=0.5, label="old")
left.plot(*there.T, ".", color=BLUE, alpha=0.5, label="old, moved")
left.set(xlabel="first reading", ylabel="second reading", ylim=(-1.7, 6))
left.legend(frameon=False, loc="upper right")
for j, (colour, mark) in enumerate(((BLUE, "o"), (ORANGE, "^"))):
    middle = pd.Series(there[:, j] - X[:, j]).groupby(counted(old)).mean()
    true = pd.Series(truth[:, j] - X[:, j]).groupby(counted(old)).mean()
    right.plot(middle.index, middle, mark, color=colour, label=f"reading {j + 1}, found")
    right.plot(true.index, true, color=colour, label=f"reading {j + 1}, truth")
right.set(xlabel="G and C among 24 letters", ylabel="how far readings move")
right.legend(frameon=False)
plt.show()
