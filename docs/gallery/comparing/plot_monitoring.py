"""
Watch a stream for a change
===========================

A pump is watched by three sensors. After 900 rows the vibration becomes wider, and nothing else
changes. A monitor that knows 500 rows from before raises an alarm; its false alarms are 5,000 rows
apart in the mean. A sequential test, which may be looked at after every row, compares the pump with
its twin from the beginning.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from meanmap.monitoring import DriftMonitor, SequentialTwoSampleTest

rng = np.random.default_rng(0)


def pump(n: int, width: float = 1.0) -> pd.DataFrame:
    """Rows of a pump in one of two states."""
    state = np.where(rng.random(n) < 0.3, "idle", "busy")
    load = np.where(state == "busy", 5.0, 1.0) + rng.normal(size=n)
    return pd.DataFrame({"state": state, "load": load, "vibration": width * rng.normal(size=n)})


# %%
# The monitor. Columns may be numbers or labels.

monitor = DriftMonitor(pump(500), expected_run_length=5000)
for _ in range(9):
    monitor.update(pump(100))
found = monitor.update(pump(100, width=1.8))
print(found)

# %%
# When and where: the row that the change began with, by likelihood, and the score of each column
# since then, standard normal without drift.

alarm = found.alarms[0]
print(alarm.row, alarm.change, {name: round(score, 1) for name, score in alarm.columns.items()})
found.plot()
plt.show()

# %%
# The test. Evidence is wealth: 1 at the beginning, and its mean is 1 for ever if the pumps are
# alike. It passes 20 at any time with a probability of 5% at most.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for width, name in ((1.8, "a twin with wider vibration"), (1.0, "a twin that is alike")):
    test = SequentialTwoSampleTest()
    for _ in range(60):
        evidence = test.update(pump(5), pump(5, width))
    print(f"{name}: {evidence}")
    ax.plot(evidence.times, evidence.log_evalues / np.log(10), label=name)
ax.axhline(np.log10(20), linestyle="--", color="grey", label="enough at the 5% level")
ax.set(xlabel="pairs of rows", ylabel="log₁₀ of the e-value")
ax.legend()
plt.show()
