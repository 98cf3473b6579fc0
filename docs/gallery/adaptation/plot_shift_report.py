"""
Which shift is it?
==================

A model was trained on some rows and is used on others. Before a remedy is chosen one should know
whether the rows differ at all, in which columns, and what kind of change would explain it.
``shift_report`` tests that and says it in words. Here it looks at measurements of breast tumours
(569 patients, 30 columns, two classes), split in four ways: by chance, and by three biased rules.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from meanmap import shift_report

data = load_breast_cancer(as_frame=True)
chosen = ["mean radius", "mean texture", "mean smoothness", "mean symmetry", "radius error"]
rng = np.random.default_rng(0)
# neighbouring rows of the file are alike, of which a warning would tell
order = np.random.default_rng(1).permutation(len(data.data))
table = data.data[chosen].iloc[order]
tumour = data.target.map({0: "malignant", 1: "benign"}).iloc[order]


def split(probability):
    """Every row goes to the test rows with its own probability."""
    test = rng.random(len(table)) < probability
    return table[~test], table[test], tumour[~test], tumour[test]


# %%
# **By chance.** Nothing differs, and the report says so. It also says what it cannot know.

train, test, y, _ = split(0.4)
print(shift_report(train, test, y, rng=0))

# %%
# **By a measurement.** Test rows are mostly those with a rough texture, as if another hospital sent
# other patients: P(x) differs. Of the explanations that were tried weights on rows hold, and
# another mixture of the classes does not. With targets of test rows at hand the report can also say
# that the relation between measurements and class shows no change.

rough = (table["mean texture"] - table["mean texture"].mean()) / table["mean texture"].std()
train, test, y, y_test = split(1 / (1 + np.exp(-2.0 * rough)))
report = shift_report(train, test, y, y_test, rng=0)
print(report)

# %%
# On the left are the columns by how much they differ, on the right the one that differs most. Above
# 0 of the black curve, the witness function, the test sample has more.

report.plot()
plt.show()

# %%
# **By class.** The test rows have more malignant tumours. All columns that have to do with the
# class differ, which looks worse than it is: one number, the share of malignant tumours, explains
# it, and what is left could be chance. Weights on rows would explain it too, and so might another
# location and scale. Without targets of test rows the report cannot tell; it says what the share
# would be.

train, test, y, y_test = split(np.where(tumour == "malignant", 0.75, 0.3))
report = shift_report(train, test, y, rng=0)
print(report)
print(
    f"\ntrue share of malignant tumours among the test rows: {(y_test == 'malignant').mean():.0%}"
)

report.plot()
plt.show()

# %%
# **By another instrument.** The second half was measured in other units in one column. No weights
# help, since no training row looks like the test rows, but a change of location and scale does.

train, test, y, _ = split(0.4)
report = shift_report(train, test.assign(**{"mean radius": 25.4 * test["mean radius"]}), y, rng=0)
print(report.kind)
print(report.verdict)
print(report.remedy)

# %%
# ``report.to_frame()`` has the figures of the columns, ``report.to_html("shift.html")`` writes one
# page with everything that can be sent to a colleague, and in a notebook the report shows itself.

with pd.option_context("display.width", 120, "display.max_columns", 10):
    print(report.to_frame()[["adjusted", "effect", "difference", "spread"]].round(3))
