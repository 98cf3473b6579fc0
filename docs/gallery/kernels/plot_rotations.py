"""
Predict rotations from a sensor
===============================

Points need not be vectors. Here :math:`Y` is a rotation, a :math:`3 \\times 3` matrix under the
trace kernel :math:`\\mathrm{tr}(A^\\top B)`, and :math:`X` is what a sensor in the rotated body
measures. The conditional embedding predicts a matrix; its distance from a rotation says how much
the sensor leaves undetermined.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.transform import Rotation

from meanmap import ConditionalEmbedding
from meanmap.kernels import Trace

# %%
# A body with any heading and a tilt of at most 40° measures the directions of gravity and of the
# magnetic field in its own frame, with noise, through a sensor that saturates. The model knows
# nothing about gravity, magnetism or saturation.

rng = np.random.default_rng(0)
n = 1500
down, north = np.array([0.0, 0.0, -1.0]), np.array([0.8, 0.0, -0.6])


def rotations(size):
    angles = rng.uniform([-180, -40, -40], [180, 40, 40], size=(size, 3))
    return Rotation.from_euler("ZYX", angles, degrees=True).as_matrix()


def measure(R, fields):
    seen = np.concatenate([np.swapaxes(R, 1, 2) @ field for field in fields], axis=1)
    return np.tanh(2 * seen) + 0.05 * rng.normal(size=seen.shape)


R, R_test = rotations(n), rotations(500)
sensors = {"gravity and magnetic field": (down, north), "gravity alone": (down,)}

# %%
# ``Trace() + 1`` adds the constant function, which the trace kernel lacks. ``mean`` returns
# matrices, ``mode`` the rotations nearest to them.


def angle(A, B):
    cosine = (np.einsum("nij,nij->n", A, B) - 1) / 2
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


predicted, errors = {}, {}
for name, fields in sensors.items():
    model = ConditionalEmbedding(kernel_y=Trace() + 1).fit(measure(R, fields), R)
    answers = model.given(measure(R_test, fields))
    predicted[name] = answers.mean()
    errors[name] = angle(answers.mode(), R_test)
    print(f"{name}: median error {np.median(errors[name]):.1f}°")

# %%
# With both fields the rotation is found to within a few degrees. Gravity alone says nothing about
# the heading: the predicted matrix is the mean of all rotations that remain possible. Its first two
# rows, which the heading turns, vanish; the third, the vertical in the body's frame, is recovered.

fig = plt.figure(figsize=(10, 4), layout="constrained")
left, right = fig.subfigures(1, 2, width_ratios=(1, 1.3))

ax = left.subplots()
bins = np.linspace(0, 180, 37)
for colour, (name, values) in zip(("C0", "C1"), errors.items(), strict=True):
    ax.hist(values, bins, color=colour, alpha=0.6, label=name)
ax.set(xlabel="angle between prediction and truth, degrees", ylabel="test rotations")
ax.legend(frameon=False)

shown = {"truth": R_test[0]} | {f"given {name}": A[0] for name, A in predicted.items()}
for ax, (name, A) in zip(right.subplots(1, 3), shown.items(), strict=True):
    ax.imshow(A, cmap="PuOr", vmin=-1, vmax=1)
    for (row, column), value in np.ndenumerate(A):
        colour = "white" if abs(value) > 0.7 else "black"
        ax.text(
            column,
            row,
            f"{value:.1f}".replace("-0.0", "0.0"),
            ha="center",
            va="center",
            color=colour,
        )
    ax.set_title(name.replace(" and", "\nand"), fontsize="medium")
    ax.set(xticks=[], yticks=[])
plt.show()
