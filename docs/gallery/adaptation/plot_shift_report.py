"""
Find the kind of shift between training and test data
=====================================================

A model was trained on some rows and is used on others. Before choosing a remedy one should know
whether the rows differ at all, in which columns, and what kind of change would explain it.
``shift_report`` tests this and reports it in words. Here it compares measurements of breast tumours
(569 patients, 30 columns, two classes), split in four ways: at random, and by three biased rules.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from meanmap.report import shift_report

data = load_breast_cancer(as_frame=True)
chosen = ["mean radius", "mean texture", "mean smoothness", "mean symmetry", "radius error"]
rng = np.random.default_rng(0)
# neighbouring rows of the file are alike, which would cause a warning
order = np.random.default_rng(1).permutation(len(data.data))
table = data.data[chosen].iloc[order]
tumour = data.target.map({0: "malignant", 1: "benign"}).iloc[order]


def split(probability):
    """Every row goes to the test rows with its own probability."""
    test = rng.random(len(table)) < probability
    return table[~test], table[test], tumour[~test], tumour[test]


# %%
# **A random split.** Nothing differs, and the report says so, and what it cannot know.

train, test, y, _ = split(0.4)
print(shift_report(train, test, y, rng=0))

# %%
# **Split by a measurement.** Test rows are mostly those with a rough texture, as if they came from
# another hospital: P(x) differs. Weights on rows explain the shift, other proportions of the
# classes do not. With targets of test rows the report can also say that the relation between
# measurements and class shows no change.

rough = (table["mean texture"] - table["mean texture"].mean()) / table["mean texture"].std()
train, test, y, y_test = split(1 / (1 + np.exp(-2.0 * rough)))
report = shift_report(train, test, y, y_test, rng=0)
print(report)

# %%
# On the left are the columns by effect, on the right the column that differs most. Where the black
# curve, the witness function, is above 0, the test sample has more.

report.plot()
plt.show()

# %%
# **Split by class.** The test rows have more malignant tumours. All columns related to the class
# differ, which looks worse than it is: one number, the share of malignant tumours, explains it, and
# the rest could be chance. Weights on rows would explain it too, and so might another location and
# scale. Without targets of test rows the report cannot tell, but it estimates the share.

train, test, y, y_test = split(np.where(tumour == "malignant", 0.75, 0.3))
report = shift_report(train, test, y, rng=0)
print(report)
print(
    f"\ntrue share of malignant tumours among the test rows: {(y_test == 'malignant').mean():.0%}"
)

report.plot()
plt.show()

# %%
# **Another instrument.** In the test rows one column was measured in other units. Weights do not
# help, since no training row looks like the test rows, but a change of location and scale does.

train, test, y, _ = split(0.4)
report = shift_report(train, test.assign(**{"mean radius": 25.4 * test["mean radius"]}), y, rng=0)
print(report.kind)
print(report.verdict)
print(report.remedy)

# %%
# ``report.to_frame()`` returns the figures of the columns, ``report.to_html("shift.html")`` writes
# one page with everything, and a notebook displays the report.

with pd.option_context("display.width", 120, "display.max_columns", 10):
    print(report.to_frame()[["adjusted", "effect", "difference", "spread"]].round(3))
