"""
Find out which kind of shift happened
=====================================

A model was trained on some rows and is used on others. Before choosing a remedy, one should know
whether the rows differ at all, in which columns, and what kind of change explains it.
``shift_report`` tests this and summarises it in words. Here it looks at measurements of breast
tumours (569 patients, 30 columns, two classes), split in four ways: at random, and by three biased
rules.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from meanmap.report import shift_report

data = load_breast_cancer(as_frame=True)
chosen = ["mean radius", "mean texture", "mean smoothness", "mean symmetry", "radius error"]
rng = np.random.default_rng(0)
# neighbouring rows of the file are similar, which would cause a warning
order = np.random.default_rng(1).permutation(len(data.data))
table = data.data[chosen].iloc[order]
tumour = data.target.map({0: "malignant", 1: "benign"}).iloc[order]


def split(probability):
    """Every row goes to the test rows with its own probability."""
    test = rng.random(len(table)) < probability
    return table[~test], table[test], tumour[~test], tumour[test]


# %%
# **At random.** Nothing differs, and the report says so. It also says what it cannot know.

train, test, y, _ = split(0.4)
print(shift_report(train, test, y, rng=0))

# %%
# **By a measurement.** Most test rows have a rough texture, as if another hospital sent different
# patients: P(x) differs. Of the explanations that were tried, weights on rows fit, and another
# mixture of the classes does not. With targets for the test rows, the report can also say that the
# relation between measurements and class shows no change.

rough = (table["mean texture"] - table["mean texture"].mean()) / table["mean texture"].std()
train, test, y, y_test = split(1 / (1 + np.exp(-2.0 * rough)))
report = shift_report(train, test, y, y_test, rng=0)
print(report)

# %%
# On the left are the columns, ordered by how much they differ; on the right the one that differs
# most. Where the black curve, the witness function, is above 0, the test sample has more mass.

report.plot()
plt.show()

# %%
# **By class.** The test rows have more malignant tumours. All columns related to the class differ,
# which looks worse than it is: one number, the share of malignant tumours, explains it, and what
# remains could be chance. Weights on rows would explain it too, and so might a change of location
# and scale. Without targets for the test rows the report cannot distinguish these; it says what the
# share would be.

train, test, y, y_test = split(np.where(tumour == "malignant", 0.75, 0.3))
report = shift_report(train, test, y, rng=0)
print(report)
print(
    f"\ntrue share of malignant tumours among the test rows: {(y_test == 'malignant').mean():.0%}"
)

report.plot()
plt.show()

# %%
# **By another instrument.** One column of the second half was measured in other units. Weights
# cannot help, because no training row looks like the test rows, but a change of location and scale
# does.

train, test, y, _ = split(0.4)
report = shift_report(train, test.assign(**{"mean radius": 25.4 * test["mean radius"]}), y, rng=0)
print(report.kind)
print(report.verdict)
print(report.remedy)

# %%
# ``report.to_frame()`` returns the figures for the columns, ``report.to_html("shift.html")`` writes
# a single page to send to a colleague, and in a notebook the report displays itself.

with pd.option_context("display.width", 120, "display.max_columns", 10):
    print(report.to_frame()[["adjusted", "effect", "difference", "spread"]].round(3))
