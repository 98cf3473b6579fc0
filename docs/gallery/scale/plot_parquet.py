"""
Fit a model to Parquet files with Dask
======================================

A table stored in several Parquet files need not fit into memory. Dask reads it part by part, with
as many worker processes as you have; the model keeps only a small sum for each part, and its
predictions are written to Parquet files without ever being in one place. Without Dask the same
files are read batch by batch, and the answer is the same.
"""

import tempfile
from pathlib import Path

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from meanmap import ConditionalEmbedding
from meanmap.kernels import Gaussian
from meanmap.spaces import PivotedCholesky
from meanmap.streams import feed

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
INPUTS = ["hour", "temperature"]

# %%
# **The files.** Demand for electricity, which depends on the hour and the temperature: eight files
# of 2,500 rows. Worker processes also import this script when they start, so code that must run
# only once is under ``if __name__ == "__main__"``.


def truth(hour, temperature):
    """The demand that is expected: peaks in the morning and the evening, cold and hot days."""
    peaks = np.exp(-((hour - 8) ** 2) / 8) + 1.4 * np.exp(-((hour - 19) ** 2) / 10)
    return 20 + 6 * peaks + 0.012 * (temperature - 17) ** 2


def write(folder, files=8, rows=2500):
    for number in range(files):
        rng = np.random.default_rng(number)
        hour, temperature = rng.uniform(0, 24, rows), rng.uniform(-5, 35, rows)
        demand = truth(hour, temperature) + rng.normal(0, 1.5, rows)
        table = pd.DataFrame({"hour": hour, "temperature": temperature, "demand": demand})
        table.to_parquet(folder / f"day-{number}.parquet", index=False)


if __name__ == "__main__":
    place = tempfile.TemporaryDirectory()
    folder = Path(place.name)
    write(folder)
    print(sorted(path.name for path in folder.glob("*.parquet")))

# %%
# **With Dask.** Two worker processes read the files. A first pass draws a sample, on which the
# coordinates and λ are chosen; a second accumulates sums over all rows. ``predict`` on a collection
# is lazy: every worker writes the predictions of its own part to a file.


def by_workers(folder):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        table = dd.read_parquet(folder / "day-*.parquet")
        model = ConditionalEmbedding(Gaussian([2.0, 10.0]), basis=PivotedCholesky(1e-6))
        model.fit(table[INPUTS], table["demand"])
        table.assign(predicted=model.predict(table[INPUTS])).to_parquet(folder / "answers")
        print(f"{len(client.nthreads())} workers, {table.npartitions} parts")
    return model


if __name__ == "__main__":
    model = by_workers(folder)
    print(f"{model.space_x_.rank_} coordinates, λ = {model.regularization_:.1e}")
    print(sorted(path.name for path in (folder / "answers").glob("*.parquet")))

# %%
# **The output.** One of the parts is read back. The demand scatters by 1.5 around its expected
# value; the predictions should not.


def draw(part):
    expected = truth(part["hour"], part["temperature"])
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    left.plot(expected, part["demand"], ".", color=GREY, ms=2, alpha=0.5, label="demand")
    left.plot(expected, part["predicted"], ".", color=BLUE, ms=3, label="predicted")
    ends = [expected.min(), expected.max()]
    left.plot(ends, ends, "--", color=ORANGE, label="exactly as expected")
    left.set(xlabel="expected demand", ylabel="demand, and prediction")
    left.legend(markerscale=3, frameon=False)

    for (low, high), color in (((0, 2), BLUE), ((29, 31), GREEN)):
        some = part[part["temperature"].between(low, high)].sort_values("hour")
        right.plot(some["hour"], some["predicted"], ".", color=color, ms=5)
        hours = np.linspace(0, 24, 200)
        middle = (low + high) / 2
        right.plot(hours, truth(hours, middle), "--", color=color, label=f"at {middle:.0f} °C")
    right.set(xlabel="hour", ylabel="demand", xticks=range(0, 25, 6))
    right.legend(title="expected (dashed), predicted", frameon=False, loc="upper left")
    return float(np.sqrt(np.mean((part["predicted"] - expected) ** 2)))


if __name__ == "__main__":
    first = sorted((folder / "answers").glob("*.parquet"))[0]
    error = draw(pd.read_parquet(first))
    print(f"root mean squared error of the predictions: {error:.2f}")
    plt.show()

# %%
# **Without Dask.** :func:`~meanmap.streams.feed` takes batches from any iterator. With the same
# coordinates and the same λ, the model is the one that the workers computed, up to rounding. By
# default both would be chosen on the first batch.


def batches(folder):
    for path in sorted(folder.glob("day-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=2000):
            rows = batch.to_pandas()
            yield rows[INPUTS], rows["demand"]


if __name__ == "__main__":
    same = ConditionalEmbedding(
        regularization=model.regularization_, basis=(model.space_x_, model.space_y_)
    )
    stream = feed(same, batches(folder), progress=False)
    new = pd.DataFrame({"hour": [8.0, 13.0, 19.0], "temperature": [0.0, 20.0, 30.0]})
    answers = new.assign(workers=model.predict(new), batches=stream.predict(new))
    print(answers.round(2).to_string(index=False))
    gap = abs(model.predict(new) - stream.predict(new)).max()
    print("the two agree to 1e-8:", bool(gap < 1e-8))
    place.cleanup()
