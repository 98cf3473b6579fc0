"""Discrete variables under the delta kernel: the operators *are* the probability tables.

With one-hot coordinates and no regularisation every rule must give the exact table, however the
table was handed over: as a sample with exactly these counts, or as one weighted point per cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from meanmap import ConditionalEmbedding, bayes_rule, chain_rule, embed, sum_rule
from meanmap.kernels import Delta
from meanmap.spaces import PivotedCholesky
from oracles.kernels import delta
from oracles.linalg import Array
from oracles.tables import (
    counts_to_sample,
    table_bayes,
    table_chain,
    table_conditional,
    table_marginals,
    table_sum,
    table_to_cells,
)

EXACT = 1e-10
MINIMUM = 0.01  # of every marginal

settings.register_profile(
    "tables",
    max_examples=50,
    deadline=None,  # a first call compiles and imports; its time says nothing
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = settings.get_profile("tables")


@dataclass
class Table:
    """A table P(x, y), a prior pi(x), and both as the points and weights that stand for them."""

    P: Array
    prior: Array
    x: Array
    y: Array
    w: Array | None
    prior_x: Array
    prior_w: Array | None
    names_x: Array = field(init=False)
    names_y: Array = field(init=False)

    def __post_init__(self) -> None:
        self.names_x, self.names_y = (np.arange(size) for size in self.P.shape)

    def fit(self, **options) -> ConditionalEmbedding:
        model = ConditionalEmbedding(Delta(), Delta(), regularization=0, **options)
        return model.fit(self.x, self.y, sample_weight=self.w)

    def embed_prior(self, **options):
        return embed(self.prior_x, kernel=Delta(), weights=self.prior_w, **options)


def at_least(values: Array, draw_from: Array) -> Array:
    """Counts with every marginal at least one per cent of the total: what lacks is added."""
    counts = values.copy()
    sx, sy = counts.shape
    while True:
        short = max(1, int(np.ceil(MINIMUM * counts.sum())))
        rows = np.flatnonzero(counts.sum(axis=1) < short)
        columns = np.flatnonzero(counts.sum(axis=0) < short)
        if not len(rows) and not len(columns):
            return counts
        for row in rows:
            counts[row, draw_from[row] % sy] += 1
        for column in columns:
            counts[draw_from[column] % sx, column] += 1


def mixed(cells: Array) -> Array:
    """A table with every marginal at least one per cent: a little of a diagonal is mixed in."""
    sx, sy = cells.shape
    size = max(sx, sy)
    diagonal = np.zeros((sx, sy))
    np.add.at(diagonal, (np.arange(size) % sx, np.arange(size) % sy), 1 / size)
    total = cells.sum()
    share = 0.87 if total > 0 else 0.0  # 0.13 / 12 states > 0.01
    return share * (cells / (total or 1.0)) + (1 - share) * diagonal


SIZES = st.tuples(st.integers(2, 12), st.integers(2, 12))


@st.composite
def sampled_tables(draw) -> Table:
    """A table of counts as a sample, and a prior of counts as a sample; the order is shuffled."""
    shape = draw(SIZES)
    # No fill: many cells zero, or all different, are both worth seeing.
    counts = draw(arrays(np.int64, shape, elements=st.integers(0, 12)))
    counts = at_least(counts, draw(arrays(np.int64, max(shape), elements=st.integers(0, 11))))
    prior = draw(arrays(np.int64, shape[0], elements=st.integers(1, 90 // shape[0])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x, y = counts_to_sample(counts, rng)
    prior_x = rng.permutation(np.repeat(np.arange(shape[0]), prior))
    return Table(counts / counts.sum(), prior / prior.sum(), x, y, None, prior_x, None)


@st.composite
def weighted_tables(draw) -> Table:
    """A table as weighted cells, in any order and on any scale, and a prior as weighted states."""
    shape = draw(SIZES)
    unit = st.floats(0, 1)
    P = mixed(draw(arrays(float, shape, elements=unit)))
    pi = draw(arrays(float, shape[0], elements=unit))
    pi = mixed(pi[:, None]).ravel()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x, y, w = table_to_cells(P)
    order = rng.permutation(len(x))
    x, y, w = x[order], y[order], w[order]
    scale = draw(st.sampled_from([1.0, 1e-3, 250.0]))  # sample weights are scaled to sum to one
    states = rng.permutation(shape[0])
    return Table(P, pi, x, y, scale * w, states, pi[states])


TABLES = st.one_of(sampled_tables(), weighted_tables())


def exact(actual: Array, expected: Array) -> None:
    assert_allclose(actual, expected, rtol=0, atol=EXACT)


def every_pair(t: Table) -> tuple[Array, Array]:
    x, y = np.indices(t.P.shape)
    return x.ravel(), y.ravel()


@given(TABLES)
@settings(PROFILE)
def test_the_tables_are_what_they_claim(t):
    marginals = np.concatenate(table_marginals(t.P))
    assert marginals.min() >= MINIMUM * (1 - 1e-12)
    assert t.prior.min() >= MINIMUM * (1 - 1e-12)
    assert t.P.sum() == pytest.approx(1.0) and t.prior.sum() == pytest.approx(1.0)


@given(TABLES)
@settings(PROFILE)
def test_marginals_and_joint(t):
    P_x, P_y = table_marginals(t.P)
    w = None if t.w is None else t.w / t.w.sum()
    for points, names, truth in ((t.x, t.names_x, P_x), (t.y, t.names_y, P_y)):
        marginal = embed(points, kernel=Delta(), weights=w)
        exact(marginal(names), truth)
        exact(marginal.coordinates, truth)
        exact(marginal.norm(), np.sqrt(truth @ truth))
    joint = embed((t.x, t.y), kernel=Delta() @ Delta(), weights=w)
    exact(joint.operator(), t.P)
    exact(joint(every_pair(t)), t.P.ravel())
    exact(joint.operator(centered=True), t.P - np.outer(P_x, P_y))
    exact(joint.norm(centered=True), np.linalg.norm(t.P - np.outer(P_x, P_y)))
    exact(joint.marginal(0)(t.names_x), P_x)
    exact(joint.marginal(1)(t.names_y), P_y)


@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
@given(t=TABLES)
@settings(PROFILE)
def test_conditional(centered, t):
    truth = table_conditional(t.P)
    model = t.fit(centered=centered)
    answers = model.given(t.names_x)
    exact(answers.coordinates, truth)
    exact(answers(t.names_y), truth)
    exact(answers.mass, 1.0)
    if not centered:
        exact(model.operator_.matrix, truth.T)
    exact(model.given(t.names_x[1])(t.names_y), truth[1])


@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
@given(t=TABLES)
@settings(PROFILE)
def test_sum_rule(centered, t):
    truth = table_sum(t.P, t.prior)
    model, prior = t.fit(centered=centered), t.embed_prior()
    for marginal in (sum_rule(model, prior), model.push(prior), sum_rule(model, prior, form="a")):
        exact(marginal(t.names_y), truth)
        exact(marginal.coordinates, truth)
    exact(sum_rule(model, prior, form="b").operator(), np.diag(truth))


@pytest.mark.parametrize("form", ["a", "b"])
@given(t=TABLES)
@settings(PROFILE)
def test_chain_rule(form, t):
    truth = table_chain(t.P, t.prior)
    joint = chain_rule(t.fit(), t.embed_prior(), form=form)
    exact(joint.operator(), truth)
    exact(joint(every_pair(t)), truth.ravel())
    exact(joint.marginal(0)(t.names_x), t.prior)
    exact(joint.marginal(1)(t.names_y), truth.sum(axis=0))


BAYES = [
    ("squared", "a"),
    ("squared", "b"),
    ("nonnegative", "b"),
    ("importance", "b"),
    ("reweighted", "b"),
]


@pytest.mark.parametrize(("method", "form"), BAYES)
@given(t=TABLES)
@settings(PROFILE)
def test_bayes_rule(method, form, t):
    truth = table_bayes(t.P, t.prior)  # columns are posteriors
    posterior = bayes_rule(t.fit(), t.embed_prior(), method, regularization=0, form=form)
    answers = posterior.given(t.names_y)
    exact(answers.coordinates, truth.T)
    exact(answers(t.names_x), truth.T)
    # the weights on the atoms, gathered state by state, are the posterior once more
    exact(answers.weights @ delta(posterior.atoms, t.names_x), truth.T)
    exact(posterior.given(t.names_y[-1])(t.names_x), truth[:, -1])
    if method != "reweighted":
        exact(posterior.matrix, truth)


@pytest.mark.parametrize(("method", "form"), BAYES)
@given(t=TABLES)
@settings(PROFILE, max_examples=20)
def test_bayes_rule_with_a_prior_on_some_states_only(method, form, t):
    """A prior that rules states out; observations it makes impossible are not asked about."""
    prior = np.where(np.arange(len(t.prior)) % 2 == 0, t.prior, 0.0)
    prior /= prior.sum()
    Q_y = table_sum(t.P, prior)
    seen = np.flatnonzero(Q_y >= MINIMUM)
    assume(len(seen))
    Q = table_chain(t.P, prior)
    states = np.flatnonzero(prior)
    embedded = embed(states, kernel=Delta(), weights=prior[states])
    posterior = bayes_rule(t.fit(), embedded, method, regularization=0, form=form)
    exact(posterior.given(seen)(t.names_x), (Q[:, seen] / Q_y[seen]).T)


@given(TABLES)
@settings(PROFILE, max_examples=20)
def test_pivoted_cholesky_gives_the_same_tables(t):
    """Another basis: coordinates are other numbers, the functions are the same."""
    model = t.fit(basis=PivotedCholesky(tol=1e-14))
    prior = t.embed_prior(basis=PivotedCholesky(tol=1e-14))
    exact(model.given(t.names_x)(t.names_y), table_conditional(t.P))
    exact(model.push(prior)(t.names_y), table_sum(t.P, t.prior))
    for form in ("a", "b"):
        joint = model.joint(prior, form=form)
        exact(joint(every_pair(t)), table_chain(t.P, t.prior).ravel())
    for method, form in BAYES:
        posterior = model.posterior(prior, method, 0, form)
        exact(posterior.given(t.names_y)(t.names_x), table_bayes(t.P, t.prior).T)


@given(sampled_tables())
@settings(PROFILE, max_examples=20)
def test_a_sample_and_its_weighted_cells_are_the_same(t):
    """Counts as repeated points and as weights, labels as words: nothing but names changes."""
    words_x = np.array([f"state {i:02d}" for i in t.names_x])
    words_y = np.array([f"sign {i:02d}" for i in t.names_y])
    x, y, w = table_to_cells(t.P)
    model = t.fit()
    other = ConditionalEmbedding(Delta(), Delta(), regularization=0)
    other.fit(words_x[x], words_y[y], sample_weight=w)
    exact(other.operator_.matrix, model.operator_.matrix)
    prior = embed(words_x, kernel=Delta(), weights=t.prior)
    exact(other.joint(prior).operator(), model.joint(t.prior_x).operator())  # a plain sample too
    for method, form in BAYES:
        exact(
            other.posterior(prior, method, 0, form).given(words_y).coordinates,
            model.posterior(t.embed_prior(), method, 0, form).given(t.names_y).coordinates,
        )
