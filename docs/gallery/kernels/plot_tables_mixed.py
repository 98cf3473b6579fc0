"""
Work with tables of numbers and categories
==========================================

A row of a data frame is a point like any other. ``Columns`` multiplies one kernel per column, by
default a Gaussian for numbers and a delta kernel for categories. Rows can then be embedded,
compared, conditioned on and inferred.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Gaussian

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# Simulated flats: the rent grows with the area, at a rate that depends on the district, and a
# balcony costs extra.

RATES = {"centre": 24.0, "harbour": 18.0, "hills": 13.0}


def market(n, districts=(0.4, 0.35, 0.25), area=60):
    flats = pd.DataFrame(
        {
            "area": rng.normal(area, 15, n).clip(20, 110),
            "district": rng.choice(list(RATES), n, p=districts),
            "balcony": rng.random(n) < 0.5,
        }
    )
    rent = 200 + flats.area * flats.district.map(RATES) + 150 * flats.balcony
    return flats, (rent + rng.normal(0, 80, n)).to_numpy()[:, None]


flats, rent = market(1500)
print(flats.head(3))

# %%
# **Embed and compare.** Without a given kernel, ``embed`` chooses one for every column. Two samples
# from one market are close to each other; a market with more flats in the hills, or with smaller
# flats, is not.

now = embed(flats)
print(now.kernel)
for name, other in {
    "the same": market(1500)[0],
    "more in the hills": market(1500, districts=(0.25, 0.35, 0.4))[0],
    "smaller": market(1500, area=50)[0],
}.items():
    print(f"{name:18} distance {now.distance(embed(other, kernel=now.kernel)):.3f}")

# %%
# **Condition.** The distribution of the rent given a row. Without a given kernel, scales are
# learned for numbers and labels alike; here all columns share one. The kernel on rents is narrow,
# so that details of their distribution count when we apply Bayes' rule below.

model = ConditionalEmbedding(kernel_y=Gaussian("0.25*median")).fit(flats, rent)
print(model.kernel_x_)
wanted = pd.DataFrame({"area": [70.0], "district": ["harbour"], "balcony": [True]})
answer = model.given(wanted)
low, high = answer.interval(0.9)
print(f"rent {answer.mean()[0, 0]:.0f}; the truth is {200 + 70 * 18 + 150:.0f}")
print(f"90% between {low[0, 0]:.0f} and {high[0, 0]:.0f}; the truth is ± {1.645 * 80:.0f}")

# %%
# **Bayes.** What kind of flat costs 1,200? The prior is a portfolio that differs from the market:
# mostly in the hills. The posterior is a distribution over rows. Its expectations are compared with
# the truth, computed from a million simulated flats.

portfolio = (0.1, 0.2, 0.7)
prior = embed(market(1500, districts=portfolio)[0], kernel=model.kernel_x_)
belief = model.posterior(prior).given([1200.0]).normalized()
print(f"the row nearest to the belief: {belief.mode()}")

many, rents = market(1_000_000, districts=portfolio)
near = many[abs(rents[:, 0] - 1200) < 15]

# A row is a tuple of columns, in the kernel's order: area, district, balcony.
estimate = {
    **{d: belief.expect(lambda row, d=d: row[1] == d) for d in RATES},
    "balcony": belief.expect(lambda row: row[2]),
}
truth = {
    **{d: (near.district == d).mean() for d in RATES},
    "balcony": near.balcony.mean(),
}
before = dict(zip(RATES, portfolio, strict=True)) | {"balcony": 0.5}

# %%
# Left: rents of flats with a balcony, with 90% intervals. Right: what a rent of 1,200 says about
# the flat.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
areas = np.linspace(30, 95, 40)
for colour, style, district in zip((BLUE, ORANGE, GREY), ("-", "--", ":"), RATES, strict=True):
    rows = pd.DataFrame({"area": areas, "district": district, "balcony": True})
    answers = model.given(rows)
    low, high = answers.interval(0.9)
    left.fill_between(areas, low[:, 0], high[:, 0], color=colour, alpha=0.2)
    left.plot(areas, answers.mean()[:, 0], style, color=colour, linewidth=2, label=district)
    left.plot(areas, 350 + areas * RATES[district], color="black", linewidth=0.8)
left.plot([], [], color="black", linewidth=0.8, label="truth")
left.set(xlabel="area, m²", ylabel="rent, with 90% interval")
left.legend(frameon=False)

place = np.arange(len(estimate))
right.bar(place - 0.2, before.values(), width=0.36, color=GREY, label="prior")
right.bar(place + 0.2, estimate.values(), width=0.36, color=BLUE, label="posterior at rent 1,200")
right.plot(place + 0.2, truth.values(), "D", color="black", label="exact posterior")
right.set_xticks(place, ["in centre", "in harbour", "in hills", "with balcony"])
right.set(ylabel="probability", ylim=(0, 1))
right.legend(frameon=False)
plt.show()
