"""
Test whether images depend on words
===================================

A test of independence needs only a kernel for each variable. Here one variable is an image and the
other a string: handwritten digits and their English names. The test does not know that there are
ten classes, nor that the strings are numbers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from meanmap import independence_test
from meanmap.kernels import NGrams

BLUE, GREY = "#0072b2", "#8a8a8a"
rng = np.random.default_rng(0)
names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])

digits = load_digits()
rows = rng.permutation(len(digits.data))[:300]
images, words = digits.data[rows], names[digits.target[rows]]

# %%
# Images are compared as vectors of 64 pixels, and strings by the letters and pairs of letters that
# they share.

letters = NGrams(1) + NGrams(2)
result = independence_test(images, words, (None, letters), rng=0)
print(result)

# %%
# Forty images are enough. With shuffled words there is no dependence to find, and ten shuffles give
# ten p-values between 0 and 1.

few = independence_test(images[:40], words[:40], (None, letters), rng=0)
print(f"40 images and their words: p = {few.pvalue:.3f}")
shuffled = [
    independence_test(images[:40], rng.permutation(words[:40]), (None, letters), rng=rng).pvalue
    for _ in range(10)
]
print("and shuffled words:        p =", *(f"{p:.2f}" for p in sorted(shuffled)))

# %%
# **Which word goes with which image?** The witness function takes an image and a word. Averaged
# over the images of each digit it becomes a table, whose diagonal stands out. The values off the
# diagonal need care. Some of them reflect similar images, such as nines and threes. But many
# reflect similar *words*, which the kernel sees as letters: sevens go with "five", which shares
# "ve", and ones with "nine", which shares "ne". That says nothing about how sevens and fives look.

table = np.zeros((10, 10))
for i in range(10):
    of_digit = images[words == names[i]]
    for j, word in enumerate(names):
        table[i, j] = result.witness(of_digit, np.repeat(word, len(of_digit))).mean()
likeness = letters(names) / 2  # 1 for a word with itself

fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
top = np.abs(table).max()
shown = (
    (table, {"cmap": "RdBu_r", "vmin": -top, "vmax": top}, "witness: images (rows) and words"),
    (likeness, {"cmap": "Greys", "vmin": 0, "vmax": 1}, "likeness of the words"),
)
for ax, (values, style, title) in zip(axes, shown, strict=True):
    drawn = ax.imshow(values, **style)
    ax.set_xticks(range(10), names, rotation=60)
    ax.set_yticks(range(10), names)
    ax.set_title(title)
    fig.colorbar(drawn, ax=ax, shrink=0.8)
plt.show()

off = ~np.eye(10, dtype=bool)
r = np.corrcoef(table[off], likeness[off])[0, 1]
print(f"correlation of the two tables off their diagonals: {r:.2f}")

# %%
# Could the kernel miss a difference? It compares counts of letters, so two words with equal counts,
# such as anagrams when single letters are counted, are the same word to it. For ten given words
# this is easy to check: if their Gram matrix is nonsingular, no two distributions on them have the
# same embedding.

for name, kernel in {"letters": NGrams(1), "letters and pairs": letters}.items():
    least = np.linalg.eigvalsh(kernel(names))[0]
    print(f"{name:18} least eigenvalue {least:.2f}")
print("listen, silent, by letters:", NGrams(1)(["listen", "silent"])[0, 1].round(2))

# %%
# **The image of a word**, as far as letters go: the sum of all images, each weighted by how much
# more its own name resembles the word than names do on average. Negative values are drawn white.
# For the ten names the result resembles the digit, with a shadow of the digits that share letters
# with it. Words outside the data get an image too: that of "seventeen" is a seven, that of "fix" a
# six, because the kernel only sees letters.


def image_of(word):
    weights = letters([word], words)[0]
    return (weights - weights.mean()) @ images


asked = [*names, "seventeen", "fix"]
fig, axes = plt.subplots(2, 6, figsize=(10, 3.9), layout="constrained")
for ax, word in zip(axes.flat, asked, strict=True):
    ax.imshow(image_of(word).reshape(8, 8), cmap="Greys", vmin=0)
    ax.set_title(word, color="black" if word in names else BLUE)
    ax.set_axis_off()
plt.show()
