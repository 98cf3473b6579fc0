"""
Demand and prices, by an instrument
===================================

Prices are high when demand is high, so a regression of sales on prices sees a weak effect, or one
of the wrong sign. Something that moves prices and nothing else, the cost of fuel, tells them apart.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding
from meanmap.causal import InstrumentalRegression

rng = np.random.default_rng(0)
n = 3000
fuel, wish, noise = rng.normal(size=(3, n))  # `wish`, how much is wanted, is not in the table
price = 5 + 1.2 * fuel + 0.8 * wish + 0.3 * rng.normal(size=n)


def demand(p):
    """Sales fall with the price, and fastest around 5."""
    return 40 - 12 * np.tanh((p - 5) / 1.5)


sales = demand(price) + 6 * wish + noise

# %%
# The model knows price, sales and fuel. ``strength_`` says how much of the price fuel moves.

model = InstrumentalRegression(random_state=0).fit(price, sales, fuel)
print(model.strength_)

# %%
# The curve with its intervals, beside a plain regression, which is far too flat.

grid = np.linspace(2.5, 7.5, 60)
curve = model.effect(grid)
plain = ConditionalEmbedding().fit(price[:, None], sales).predict(grid[:, None])
fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
ax.plot(price, sales, ".", color="#8a8a8a", markersize=2, alpha=0.5, zorder=0)
curve.plot(ax)
ax.plot(grid, demand(grid), "--", color="black", label="the truth")
ax.plot(grid, plain, color="#d55e00", label="plain regression")
ax.set(xlabel="price", ylabel="sales", xlim=(2.5, 7.5))
ax.legend(fontsize="small")
plt.show()

# %%
# A weak instrument cannot do that, and says so.

weak = 5 + 0.05 * fuel + 0.8 * wish + 0.3 * rng.normal(size=n)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the figure in words
    found = InstrumentalRegression(random_state=0).fit(weak, demand(weak) + 6 * wish + noise, fuel)
print(found.strength_)
