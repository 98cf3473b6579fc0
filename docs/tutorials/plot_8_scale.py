"""
Scale up to millions of rows
============================

*It worked on a thousand rows. Now there are a million, and they do not fit into memory.*

Kernel methods have a bad reputation here: the textbook versions need a table of all pairs of rows,
and a million rows have a trillion pairs. Here no such table is made unless you ask for it. This
tutorial shows what determines time and memory instead, how to choose it, and how to work on rows
that arrive in batches.
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
# A sensor network: three numbers from each station, and a value to predict. The function below can
# generate as many rows as we like, one batch at a time, as a file or a database would.


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
# inner product of their coordinates. All computations then use r numbers per row and take n·r²
# operations. r is the **rank**. For smooth kernels and few columns it is small, whatever n is, and
# it can be computed in advance:

X, Y = batch(0, 2000)
for width in (3.0, 1.5, 0.75):
    space = Space(Gaussian(width), PivotedCholesky(1e-6)).fit(X)
    print(f"bandwidth {width}: rank {space.rank_} of {len(X)} rows")
ranks = [Space(Gaussian(w), PivotedCholesky(1e-6)).fit(X).rank_ for w in (3.0, 0.75)]
assert ranks[0] < ranks[1] < len(X)

# %%
# So the cost depends on the width of the kernel, the number of columns and the accuracy you want,
# more than on the number of rows.
#
# The shortest code
# -----------------
#
# ``basis=`` says how coordinates are found. The default is accurate to ten digits, and is best up
# to about ten thousand rows. Beyond that, use ``Nystroem(m)``: coordinates from m *landmarks*, rows
# drawn at random. Here are 30,000 rows; Y, a single column, has few coordinates of its own and need
# not be reduced. The scales of the kernel are learned from some of the rows, which takes about a
# second however many there are. With so many rows λ may be tiny. The automatic choice can reach the
# smallest value that it tries, and then warns, so we pass a value.

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
# More landmarks help until only the noise in the data is left. Then stop: where the curve is flat,
# more time gains nothing. From there on, only more *rows* help.

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
# Rows that arrive in batches
# ---------------------------
#
# A model is a sum over rows, so rows can be added later with ``partial_fit``. ``feed`` does this
# with any iterator, and saves the model at intervals. If the run is interrupted, the same call
# continues from the file.


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
# **The first batch determines** the scales, the landmarks and, if it is not given, λ. It should be
# typical, and not too small. If the data are sorted, by time or by place, shuffle them, or draw the
# first batch from everywhere. This is what happens otherwise, with learned scales and with the
# median distance:

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
# Where ``support`` is near one, the landmarks cover the place; where it is near zero, they do not.
# Wide learned scales reach from one corner to the other, and still do worse than scales and
# landmarks from everywhere.
#
# Tests
# -----
#
# Tests offer the same choice. Without a basis all pairs are used, in tiles that are computed and
# discarded: memory stays small, and time grows with the square of the number of rows. With a basis,
# time grows linearly.

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
# **The default on too many rows and columns.** In ten columns nearly every row is a new direction.
# The default stops at 2,000 coordinates and reports what is missing; choose a basis instead of
# waiting. Here the limit is set lower, so that the page builds quickly:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    Space(Gaussian(1.0), PivotedCholesky(max_rank=300)).fit(rng.normal(size=(5000, 10)))
print(f"{caught[0].category.__name__}: {caught[0].message}")
assert caught[0].category is ApproximationWarning

# %%
# **All cores at once.** Linear algebra already uses every core. Several processes that each do so
# are slower than one: set ``OPENBLAS_NUM_THREADS=1`` for each.
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
# Read next: measured times and memory for each of these, in :doc:`/scale`; merging, Dask and files,
# in :doc:`/streams`; bases in detail, in :doc:`/spaces`; GPUs, in :doc:`/accelerators`.
