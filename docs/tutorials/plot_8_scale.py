"""
Scale up
========

*It worked on a thousand rows. Now there are a million, and they do not fit into memory.*

Methods with kernels have a bad name here: as textbooks write them they need a table of all pairs
of rows, and a million rows have a trillion pairs. Here no such table is made, unless you ask for
it. This page shows what decides time and memory instead, how to choose it, and how to work on rows
that come in pieces.
"""

import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ApproximationWarning, ConditionalEmbedding, two_sample_test
from meanmap.kernels import Gaussian
from meanmap.spaces import Nystroem, PivotedCholesky, Space
from meanmap.streams import feed

BLUE = "#0072b2"

# %%
# The data
# --------
#
# A sensor network: three numbers from each station, and a value to be predicted. The function
# below can make as many rows as we like, a batch at a time, as a file or a database would give
# them.


def batch(seed, n):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, truth(X)[:, None] + 0.5 * rng.normal(size=(n, 1))


def truth(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


X_test = batch(999, 2000)[0]


def error(model):
    return np.sqrt(np.mean((model.predict(X_test)[:, 0] - truth(X_test)) ** 2))


# %%
# What decides the cost
# ---------------------
#
# The library gives every row *coordinates*: r numbers, such that the kernel of two rows is the
# product of their coordinates. All work is then done with r numbers a row, in n·r² operations. r
# is the **rank**. For smooth kernels and few columns it is small, whatever n, and it can be asked
# for beforehand:

X, Y = batch(0, 2000)
for width in (3.0, 1.5, 0.75):
    space = Space(Gaussian(width), PivotedCholesky(1e-6)).fit(X)
    print(f"bandwidth {width}: rank {space.rank_} of {len(X)} rows")
ranks = [Space(Gaussian(w), PivotedCholesky(1e-6)).fit(X).rank_ for w in (3.0, 0.75)]
assert ranks[0] < ranks[1] < len(X)

# %%
# So the width of the kernel, the number of columns and how exact you want to be decide the cost,
# more than the number of rows.
#
# The shortest code
# -----------------
#
# ``basis=`` says how coordinates are found. The default is exact to ten digits, and best up to
# some ten thousand rows. Beyond, take ``Nystroem(m)``: coordinates from m *landmarks*, rows drawn
# at random. Here are 30,000 rows; Y, a single column, has few coordinates of its own and need not
# be cut. The scales of the kernel are learned from a part of the rows, which takes about a second,
# however many there are. With so many rows λ may be tiny. The automatic choice can reach the
# smallest that it tries, and then warns that this is the edge; so we pass one.

X, Y = batch(1, 30_000)
on_y = PivotedCholesky(1e-6)
results = []
landmarks = (20, 50, 100, 200, 400)


def regression(m):
    basis = (Nystroem(m, random_state=0), on_y)
    return ConditionalEmbedding(basis=basis, regularization=1e-8)


for m in landmarks:
    results.append(error(regression(m).fit(X, Y)))
    print(f"{m:4} landmarks: error {results[-1]:.3f}")
assert results[-1] < 0.5 * results[0]

# %%
# More landmarks help until the noise in the data is all that is left. Then stop: where the curve
# is flat, more time buys nothing. More *rows* are what helps from there on.

sizes = (1000, 3000, 10_000, 30_000, 100_000)
errors = []
for n in sizes:
    errors.append(error(regression(200).fit(*batch(2, n))))
assert errors[-1] < 0.5 * errors[0]

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
axes[0].loglog(landmarks, results, "o-", color=BLUE)
axes[0].set_xticks(landmarks, [str(m) for m in landmarks], minor=False)
axes[0].set_xticks([], minor=True)
axes[0].set(xlabel="landmarks (30,000 rows)", ylabel="error")
axes[1].loglog(sizes, errors, "o-", color=BLUE)
axes[1].set(xlabel="rows (200 landmarks)")
plt.show()

# %%
# Rows that come in pieces
# ------------------------
#
# A model is a sum over rows, so that rows can be added later: ``partial_fit``. ``feed`` does that
# with any iterator, and saves the model every so often. If the run is interrupted, the same call
# goes on from the file.


def batches(count):
    for seed in range(count):
        yield batch(100 + seed, 20_000)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.npz"
    start = time.perf_counter()
    model = feed(regression(200), batches(10), save_to=path, progress=False)
    spent = time.perf_counter() - start
    size = path.stat().st_size / 1e6
print(f"200,000 rows in {spent:.1f} s, 20,000 in memory at a time, error {error(model):.3f}")
print(f"the model on disk: {size:.1f} MB")
assert error(model) < errors[2]
assert size < 20

# %%
# **The first batch decides** the scales, the landmarks and, if it is not given, λ. It should be
# typical, and not too small. If the data are sorted, by time or by place, shuffle, or draw a first
# batch from everywhere. What happens otherwise, with learned scales and with the median distance:

low, high = batch(7, 20_000), batch(8, 20_000)
corner = np.all(low[0] < -1, axis=1)  # the first file has one corner only
opposite = np.all(X_test > 0, axis=1)
right = error(regression(200).fit(*high))
print(f"a first batch from everywhere: error {right:.3f}")
wrong = {}
for kernel in (None, "median"):
    model = regression(200).set_params(kernel_x=kernel)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = model.fit(low[0][corner], low[1][corner]).partial_fit(*high)
        wrong[kernel] = error(model)
    covered = model.space_x_.support(X_test[opposite]).mean()
    print(f"from a corner, {kernel or 'learned'}: error {wrong[kernel]:.3f}, ", end="")
    print(f"support in the opposite corner {covered:.2f}")
print(f"{caught[-1].category.__name__}: {caught[-1].message}")
assert wrong[None] > 1.5 * right
assert wrong["median"] > 2 * errors[2]

# %%
# ``support`` near one is a place that the landmarks cover, near zero one that they do not. Wide
# learned scales reach from one corner to the other, and still do worse than scales and landmarks
# from everywhere.
#
# Tests
# -----
#
# Tests have the same two gears. Without a basis all pairs count, in tiles that are computed and
# forgotten: memory stays small, and time grows with the square of the rows. With one, time grows
# with the rows.

rng = np.random.default_rng(0)
A, B = rng.normal(size=(50_000, 3)), rng.normal(size=(50_000, 3))
B[:, 0] *= 1.05  # five per cent wider, in one column
start = time.perf_counter()
result = two_sample_test(A, B, basis=Nystroem(100, random_state=0), rng=0)
print(f"100,000 rows: p = {result.pvalue:.3f} in {time.perf_counter() - start:.1f} s")
assert result.pvalue <= 0.01

# %%
# What goes wrong
# ---------------
#
# **The default on too many rows and columns.** In ten columns nearly every row is a direction of
# its own. The default stops at 2,000 coordinates and says what is missing; name a basis instead of
# waiting. Here the cap is set lower, so that the page builds quickly:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    Space(Gaussian(1.0), PivotedCholesky(max_rank=300)).fit(rng.normal(size=(5000, 10)))
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert caught[0].category is ApproximationWarning

# %%
# **All cores at once.** Linear algebra uses every core by itself. Several processes that each do
# so are slower than one: set ``OPENBLAS_NUM_THREADS=1`` for each.
#
# Choices
# -------
#
# ==============================  ===========================================================
# you have                        take
# ==============================  ===========================================================
# up to 10,000 rows, few columns  the default
# 100,000 rows                    ``Nystroem(500)``; ``Nystroem(2000)`` in many columns
# a million rows in memory        ``Nystroem(500)`` to ``Nystroem(1000)``
# more than memory                the same, with ``feed``, or arrays and tables of Dask
# streams on several machines     ``RandomFourier(1000)``: the same coordinates everywhere
# a GPU                           tensors or CuPy arrays on it, no other change
# ==============================  ===========================================================
#
# Read next: measured times and memory for each of these, in :doc:`/scale`; merging, Dask and
# files, in :doc:`/streams`; bases in detail, in :doc:`/spaces`; GPUs, in :doc:`/accelerators`.
