"""
See how many coordinates a kernel needs
=======================================

A :class:`~meanmap.spaces.Space` gives a kernel coordinates, :math:`k(x, x') \\approx \\psi(x)
\\cdot \\psi(x')`, as many as the tolerance requires. All the rules then work on vectors and
matrices of that size, whatever the size of the sample.
"""

import matplotlib.pyplot as plt
import numpy as np

from meanmap.kernels import Gaussian, Matern, Polynomial
from meanmap.spaces import PivotedCholesky, Space

# %%
# ``tol`` bounds the part of the kernel's trace that is left unexplained on the sample. For smooth
# kernels the rank grows slowly as ``tol`` decreases, and stays far below the size of the sample; it
# is larger in more dimensions and for less smooth kernels.

rng = np.random.default_rng(0)
n = 3000
tolerances = np.logspace(-1, -12, 12)
cases = {
    "Gaussian, d = 1": (Gaussian(), 1),
    "Gaussian, d = 2": (Gaussian(), 2),
    "Gaussian, d = 3": (Gaussian(), 3),
    "Matérn 5/2, d = 1": (Matern(2.5), 1),
}

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (name, (kernel, d)) in enumerate(cases.items()):
    X = rng.normal(size=(n, d))
    ranks = [Space(kernel, PivotedCholesky(tol=tol)).fit(X).rank_ for tol in tolerances]
    ax.loglog(tolerances, ranks, "o-", color=f"C{i}", markersize=4)
    ax.annotate(name, (tolerances[-1], ranks[-1]), (6, -3), textcoords="offset points")
ax.set(xlabel="tolerance", ylabel="rank", xlim=(0.2, 1e-16), ylim=(3, 2000))
ax.set_title(f"coordinates for {n:,} points")
plt.show()

# %%
# On the sample the kernel is exact to about the tolerance. At new points the typical error is about
# the square root of it or less, and much larger only at the few points that lie outside the sample.

X, new = rng.normal(size=(n, 2)), rng.normal(size=(1000, 2))
errors = {
    "sample, root mean square": [],
    "new points, root mean square": [],
    "new points, largest": [],
}
for tol in tolerances:
    space = Space(Gaussian(), PivotedCholesky(tol=tol)).fit(X)
    old_gap, new_gap = (
        space.transform(points) @ space.transform(points).T - space.kernel_(points)
        for points in (X[:1000], new)
    )
    values = (np.sqrt(np.mean(old_gap**2)), np.sqrt(np.mean(new_gap**2)), abs(new_gap).max())
    for name, value in zip(errors, values, strict=True):
        errors[name].append(value)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, values), style in zip(errors.items(), ("o-C0", "s-C1", "^:C1"), strict=True):
    ax.loglog(tolerances, values, style, markersize=4, label=name)
ax.loglog(tolerances, np.sqrt(tolerances), "--", color="black", linewidth=1, label="√tolerance")
ax.loglog(tolerances, tolerances, ":", color="black", linewidth=1, label="tolerance")
ax.set(xlabel="tolerance", ylabel="error of k(x, x')", title="Gaussian, d = 2")
ax.invert_xaxis()
ax.legend(frameon=False, loc="lower left")
plt.show()

# %%
# A fitted space reports the rank and error it has reached, and how far a point is from the data it
# was fitted to: the share of :math:`k(x, x)` that the coordinates explain.

space = Space(Gaussian(0.5)).fit(rng.normal(size=(n, 1)))
print(space)
for x in (0.0, 4.0, 6.0):
    print(f"support of x = {x}: {space.support([x]):.3f}")

# %%
# Kernels with finitely many features, such as those on labels or polynomial kernels, use these
# features instead: no tolerance, no error.

print(Space(Polynomial(degree=3)).fit(rng.normal(size=(n, 2))))
