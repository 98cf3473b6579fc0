"""
Smoking and birth weight
========================

Children of mothers who smoke weigh less at birth, and these mothers differ in age, schooling and
care. How much is left if such differences are taken out, and how does it depend on the number of
cigarettes? The table has 4,642 births (Cattaneo 2010), and comes with statsmodels.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels

from meanmap.causal import DoseResponse

folder = Path(statsmodels.__file__).parent / "treatment" / "tests" / "results"
births = pd.read_csv(folder / "cataneo2.csv")
smoking = births["msmoke"].rename("cigarettes")
labels = ["0 daily", "1-5 daily", "6-10 daily", "11+ daily"]
numbers = ["mage", "medu", "nprenatal", "monthslb"]
yes_or_no = ["mmarried", "alcohol", "mrace", "fbaby", "mhisp", "foreign", "prenatal1"]
frame = births[numbers].astype(float)
for name in yes_or_no:
    frame[name] = births[name].astype(str)
print(frame.head(3))

# %%
# The treatment is a label with four levels, and covariates are a frame of numbers and labels. With
# ``debiased=True`` weighted residuals of left-out rows are added: a doubly robust answer.

grams = births["bweight"].rename("grams")
model = DoseResponse(debiased=True, random_state=0).fit(smoking, grams, frame)
curve = model.effect(labels)
print(curve.to_frame().round(1))
print(curve.difference())

# %%
# The plain difference of means blames smoking for more than that. Linear regression, the classical
# answer, lies within the intervals.

X = np.column_stack([np.ones(len(frame)), births[numbers].to_numpy(float)])
X = np.column_stack([X, pd.get_dummies(frame[yes_or_no], drop_first=True).to_numpy(float)])
D = np.column_stack([smoking == label for label in labels[1:]]).astype(float)
linear = np.linalg.lstsq(np.column_stack([D, X]), births["bweight"], rcond=None)[0][:3]
plain = [births["bweight"][smoking == label].mean() for label in labels]
difference = curve.difference()
low, high = difference.interval()
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
at = np.arange(3)
ax.errorbar(
    at, difference.mean[1:], [difference.mean[1:] - low[1:], high[1:] - difference.mean[1:]],
    fmt="o", color="#0072b2", capsize=3, label="DoseResponse, 95% intervals",
)  # fmt: skip
ax.plot(at + 0.1, linear, "s", color="#d55e00", label="linear regression")
ax.plot(at + 0.2, np.array(plain[1:]) - plain[0], "^", color="#8a8a8a", label="difference of means")
ax.set_xticks(at + 0.1, labels[1:])
ax.set(xlabel="cigarettes", ylabel="grams, against no smoking")
ax.legend(fontsize="small")
plt.show()

# %%
# The mean is one number. The whole distributions say how many children would be light at birth,
# below 2,500 grams, if all mothers smoked like this.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
grid = np.linspace(1000, 5200, 300)[:, None]
for label, colour in ((labels[0], "#0072b2"), (labels[-1], "#d55e00")):
    law = model.distribution([label])
    light = float(law.expect(lambda grams: (grams[:, 0] < 2500).astype(float)))
    ax.plot(grid, law.density(grid), color=colour, label=f"{label}: {light:.1%} below 2,500 g")
ax.axvline(2500, color="#8a8a8a", linewidth=1)
ax.set(xlabel="grams", ylabel="density", yticks=[])
ax.legend(fontsize="small")
plt.show()

# %%
# Whether every kind of mother is among those of every level is a question that data can answer.

print(model.overlap(labels))
