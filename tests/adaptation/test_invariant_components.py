"""Invariant components against dense algebra, their limits, scikit-learn's tools, bad input."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from meanmap import InvariantComponents, load, mmd, save
from meanmap.adaptation import distributional_variance
from meanmap.adaptation.domains import DomainProblem
from meanmap.kernels import Columns, Delta, Gaussian, Linear, NGrams
from meanmap.learning import KernelPCA
from meanmap.spaces import PivotedCholesky

EXACT = PivotedCholesky(1e-14)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three domains of different sizes, three classes, four columns."""
    rng = np.random.default_rng(0)
    domains = np.repeat([0, 1, 2], [15, 20, 25])
    y = rng.integers(3, size=60)
    X = rng.normal(size=(60, 4))
    X[:, 0] += 1.5 * domains
    X[:, 1] += y
    X[:, 2] *= 1 + domains
    return X, y, domains


def same_columns(ours: np.ndarray, theirs: np.ndarray, atol: float = 1e-6) -> None:
    """Equal but for scale and sign of each column."""
    a = ours / np.linalg.norm(ours, axis=0)
    b = theirs / np.linalg.norm(theirs, axis=0)
    assert_allclose(a * np.sign((a * b).sum(axis=0)), b, atol=atol)


# --- the distributional variance -----------------------------------------------------------------


def test_distributional_variance_is_the_dense_trace(data: Any) -> None:
    X, _, domains = data
    kernel = Gaussian(1.5)
    dense = float(np.trace(kernel(X) @ oracles.domain_coefficients(domains)))
    assert distributional_variance(X, domains, kernel) == pytest.approx(dense, rel=1e-12)
    samples = [X[domains == i] for i in range(3)]
    assert distributional_variance(samples, kernel=kernel) == pytest.approx(dense, rel=1e-12)
    assert distributional_variance(samples) == pytest.approx(distributional_variance(X, domains))
    two = domains < 2
    quarter = mmd(samples[0], samples[1], kernel, "V") / 4
    assert distributional_variance(X[two], domains[two], kernel) == pytest.approx(quarter)
    assert distributional_variance([X], kernel=kernel) == 0.0
    assert distributional_variance([X, X], kernel=kernel) == pytest.approx(0, abs=1e-12)


def test_distributional_variance_says_what_it_takes(data: Any) -> None:
    X, _, domains = data
    with pytest.raises(TypeError, match="list of samples"):
        distributional_variance(X)
    with pytest.raises(TypeError, match="list of samples"):
        distributional_variance([])
    with pytest.raises(ValueError, match="domains has 59"):
        distributional_variance(X, domains[:-1])
    with pytest.raises(ValueError, match=r"samples\[1\] has 3 features"):
        distributional_variance([X, X[:, :3]])


# --- against dense algebra -----------------------------------------------------------------------


@pytest.mark.parametrize("trade_off", [0.0, 1.0, 300.0])
@pytest.mark.parametrize(("complexity", "lam"), [(1.0, 1e-3), (0.0, 1e-2), (0.3, 1e-2)])
def test_unsupervised_is_the_papers_problem(
    data: Any, trade_off: float, complexity: float, lam: float
) -> None:
    X, _, domains = data
    K = oracles.centred_gram(Gaussian(2.0)(X))
    model = InvariantComponents(
        3, Gaussian(2.0), None, trade_off, lam, complexity=complexity, basis=EXACT
    )
    Z = model.fit_transform(X, domains=domains)
    dense = oracles.invariant_scores(K, domains, 3, trade_off, complexity, lam)
    same_columns(Z, dense)
    assert_allclose(model.transform(X), Z, atol=1e-8)


@pytest.mark.parametrize("relation", ["covariance", "inverse"])
@pytest.mark.parametrize("trade_off", [0.0, 1.0, 30.0])
def test_supervised_is_the_papers_problem(data: Any, relation: str, trade_off: float) -> None:
    X, y, domains = data
    K = oracles.centred_gram(Gaussian(2.0)(X))
    P = oracles.target_smoother(Delta()(y), 0.01)
    model = InvariantComponents(
        2,
        Gaussian(2.0),
        None,
        trade_off,
        1e-2,
        relation=relation,
        target_regularization=0.01,
        basis=EXACT,
    )
    Z = model.fit_transform(X, y, domains=domains)
    dense = oracles.invariant_scores(K, domains, 2, trade_off, 1.0, 1e-2, P, relation)
    same_columns(Z, dense, 1e-5)


def test_numbers_as_targets(data: Any) -> None:
    X, _, domains = data
    y = np.sin(X[:, 1]) + X[:, 2] / 5
    kernel_y = Gaussian(0.7)
    K = oracles.centred_gram(Gaussian(2.0)(X))
    P = oracles.target_smoother(kernel_y(y[:, None]), 0.05)
    model = InvariantComponents(
        3, Gaussian(2.0), kernel_y, 5.0, 1e-2, target_regularization=0.05, basis=EXACT
    )
    Z = model.fit_transform(X, y, domains=domains)
    dense = oracles.invariant_scores(K, domains, 3, 5.0, 1.0, 1e-2, P, "covariance")
    same_columns(Z, dense, 1e-4)
    chosen = InvariantComponents(3, Gaussian(2.0)).fit(X, y, domains=domains)
    assert chosen.target_kernel_ is not None
    assert chosen.held_out_ is not None


def test_scale_of_components(data: Any) -> None:
    """WᵀEW = I and WᵀAW is diagonal, with the eigenvalues on it."""
    X, _, domains = data
    t, lam = 20.0, 1e-3
    model = InvariantComponents(3, Gaussian(2.0), None, t, lam, basis=EXACT)
    Z = model.fit_transform(X, domains=domains)
    W, psi = model.components_.T, model.space_.transform(X) - model.mean_
    C = psi.T @ psi / len(X)
    means = np.stack([psi[domains == i].mean(axis=0) for i in range(3)])
    S = np.cov(means.T, bias=True)
    problem = DomainProblem(psi, domains)
    d, V = problem.axes
    E = t * S + np.eye(len(C)) + lam * (V / d) @ V.T
    assert_allclose(W.T @ E @ W, np.eye(3), atol=1e-5)
    assert_allclose(W.T @ C @ W, np.diag(model.eigenvalues_), atol=1e-9)
    assert_allclose(model.domain_share_, np.diag(W.T @ S @ W) / Z.var(axis=0), rtol=1e-6)


# --- limits --------------------------------------------------------------------------------------


def test_without_a_trade_off_it_is_kernel_principal_components(data: Any) -> None:
    X, _, domains = data
    theirs = KernelPCA(4, Gaussian(2.0)).fit(X)
    ours = InvariantComponents(4, Gaussian(2.0), trade_off=0.0).fit(X, domains=domains)
    new = np.random.default_rng(1).normal(size=(10, 4))
    assert_allclose(abs(ours.transform(new)), abs(theirs.transform(new)), atol=1e-6)
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    one = InvariantComponents(4, Gaussian(2.0)).fit(X, domains=np.zeros(60))
    assert_allclose(abs(one.transform(new)), abs(theirs.transform(new)), atol=1e-6)
    assert_allclose(one.domain_share_, 0, atol=1e-12)


def test_two_domains_are_transfer_component_analysis(data: Any) -> None:
    X, _, domains = data
    source = domains == 0
    K = oracles.centred_gram(Gaussian(2.0)(X))
    mu = 0.05
    dense = oracles.transfer_components(K, source, 3, mu)
    # Q = eeᵀ/4, and KLK + μI stands for 4KQK + n(μ/n)I
    ours = InvariantComponents(
        3, Gaussian(2.0), None, 4.0, mu / len(X), complexity=0.0, basis=EXACT
    )
    same_columns(ours.fit_transform(X, domains=source), dense)
    # as a limit, without leaving the norm out
    scale = 1e7
    limit = InvariantComponents(
        3, Gaussian(2.0), None, 4.0 * scale, mu / len(X) * scale, basis=EXACT
    )
    same_columns(limit.fit_transform(X, domains=source), dense, 1e-4)


def test_inverse_relation_alone_is_inverse_regression(data: Any) -> None:
    X, y, domains = data
    B = oracles.inverse_regression_directions(X, Delta()(y), 2, 0.01)
    ours = InvariantComponents(
        2,
        Linear(),
        None,
        0.0,
        0.0,
        relation="inverse",
        target_regularization=0.01,
    ).fit_transform(X, y, domains=domains)
    same_columns(ours, (X - X.mean(axis=0)) @ B, 1e-8)


def test_targets_that_tell_rows_apart_leave_the_unsupervised_problem(data: Any) -> None:
    """P = L(L + nεI)⁻¹ is the centring if every row has a class of its own and ε is small."""
    X, _, domains = data
    settings: dict[str, Any] = {"trade_off": 50.0, "basis": EXACT}
    free = InvariantComponents(3, Gaussian(2.0), **settings).fit_transform(X, domains=domains)
    for relation, lam in (("covariance", 0.0), ("inverse", 1e-3)):
        own = InvariantComponents(
            3,
            Gaussian(2.0),
            Delta(),
            regularization=lam,
            relation=relation,
            target_regularization=1e-10,
            **settings,
        ).fit_transform(X, np.arange(60), domains=domains)
        if relation == "inverse":
            free = InvariantComponents(
                3, Gaussian(2.0), regularization=lam, **settings
            ).fit_transform(X, domains=domains)
        same_columns(own, free, 1e-4)


def test_more_weight_leaves_less_between_domains(data: Any) -> None:
    X, y, domains = data
    for target in (None, y):
        shares = []
        for t in (0.0, 1.0, 10.0, 1e2, 1e4, 1e8, np.inf):
            model = InvariantComponents(2, Gaussian(2.0), trade_off=t).fit(
                X, target, domains=domains
            )
            Z = model.transform(X)
            means = np.stack([Z[domains == i].mean(axis=0) for i in range(3)])
            shares.append(means.var(axis=0).sum() / Z.var(axis=0).sum())
        assert shares[-1] < 1e-12
        assert shares[-2] < 1e-4
        assert shares[0] > shares[3] > shares[5]
        nearly = InvariantComponents(2, Gaussian(2.0), trade_off=1e12).fit(
            X, target, domains=domains
        )
        assert_allclose(abs(nearly.transform(X)), abs(Z), atol=1e-4)


def test_components_beyond_the_classes_vary_most(data: Any) -> None:
    X, y, domains = data
    model = InvariantComponents(4, Gaussian(2.0), trade_off=10.0).fit(X, y > 0, domains=domains)
    assert (model.eigenvalues_ > 0).tolist() == [True, False, False, False]
    first = InvariantComponents(1, Gaussian(2.0), trade_off=10.0).fit(X, y > 0, domains=domains)
    assert_allclose(model.transform(X)[:, :1], first.transform(X), atol=1e-9)
    spread = model.transform(X)[:, 1:].var(axis=0)
    assert (np.diff(spread) < 0).all()
    free = InvariantComponents(1, Gaussian(2.0), trade_off=10.0).fit(X, domains=domains)
    assert spread[0] <= free.eigenvalues_[0] + 1e-12


# --- the trade-off by itself ---------------------------------------------------------------------


def shifted(rng: np.random.Generator, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes in one column, an offset of the domain in another that hides them."""
    domains = np.repeat(np.arange(6), n)
    y = rng.integers(2, size=6 * n)
    offset = np.linspace(-4, 4, 6)[domains]
    noise = 0.4 * rng.normal(size=(2, 6 * n))
    return np.stack([1.5 * y + noise[0], offset + noise[1]], axis=1), y, domains


@pytest.mark.slow
def test_auto_by_domains_left_out() -> None:
    rng = np.random.default_rng(3)
    X, y, domains = shifted(rng)
    # three columns of the offset for one of the classes: units do not make one count for more
    X = np.hstack([X, X[:, 1:] + 0.4 * rng.normal(size=(len(X), 2))])
    model = InvariantComponents(1, random_state=0, supervised=False).fit(X, y, domains=domains)
    assert model.held_out_ is not None
    assert model.held_out_.shape == (24, 3)
    best = model.held_out_[:, 2].argmax()
    none = model.held_out_[model.held_out_[:, 1] == 0, 2].max()
    assert model.held_out_[best, 2] > 0.9 > 0.7 > none  # principal components see the offset
    assert model.trade_off_ > 0
    assert model.domain_share_[0] < 0.1
    again = InvariantComponents(1, random_state=0, supervised=False).fit(X, y, domains=domains)
    assert_allclose(again.components_, model.components_)
    fixed = InvariantComponents(1, Gaussian(2.0), estimator=RidgeClassifier())
    scores = fixed.fit(X, y, domains=domains).held_out_
    assert scores is not None
    assert scores.shape == (8, 3)


def test_auto_without_targets_makes_up_for_chance() -> None:
    X, _, domains = shifted(np.random.default_rng(4))
    model = InvariantComponents(2, Gaussian(2.0)).fit(X, domains=domains)
    psi = model.space_.transform(X) - model.mean_
    largest = np.linalg.eigvalsh(psi.T @ psi / len(psi))[-1]
    assert model.trade_off_ == pytest.approx(60 / largest)
    assert model.held_out_ is None
    assert model.domain_share_.max() < 0.1
    plain = InvariantComponents(2, Gaussian(2.0), trade_off=0).fit(X, domains=domains)
    assert plain.domain_share_.max() > 0.8


def test_auto_on_many_rows_and_domains() -> None:
    rng = np.random.default_rng(5)
    domains = np.repeat(np.arange(12), 200)
    y = rng.integers(2, size=2400)
    X = np.stack([1.5 * y, rng.normal(size=12)[domains]], axis=1) + 0.5 * rng.normal(size=(2400, 2))
    model = InvariantComponents(
        1, Gaussian(2.0), basis=PivotedCholesky(1e-6), random_state=0, estimator=RidgeClassifier()
    ).fit(X, y, domains=domains)
    assert abs(np.corrcoef(model.transform(X)[:, 0], y)[0, 1]) > 0.7


# --- kinds of points -----------------------------------------------------------------------------


def test_strings_and_frames() -> None:
    rng = np.random.default_rng(6)
    y = np.array(["yes", "no"])[rng.integers(2, size=60)]
    domains = np.repeat(["a", "b", "c"], 20)
    text = [
        "".join(rng.choice(list("ab" if label == "yes" else "cd"), 6)) + where * 3
        for label, where in zip(y, np.repeat(["x", "y", "z"], 20), strict=True)
    ]
    model = InvariantComponents(1, NGrams(2), trade_off=1e3).fit(text, y, domains=domains)
    Z = model.transform(text)[:, 0]
    assert abs(np.corrcoef(Z, y == "yes")[0, 1]) > 0.9
    assert model.domains_.tolist() == ["a", "b", "c"]
    frame = pd.DataFrame({"size": rng.normal(size=60), "colour": y})
    mixed = InvariantComponents(1, Columns(), trade_off=1.0).fit(frame, y, domains=domains)
    assert mixed.transform(frame[:5]).shape == (5, 1)
    assert distributional_variance(text, domains, NGrams(2)) > 0


# --- scikit-learn --------------------------------------------------------------------------------


class WithDomains(InvariantComponents):
    """Domains made up where a check gives none."""

    def fit(self, X: Any, y: Any = None, *, domains: Any = None) -> Any:
        return super().fit(X, y, domains=self._some(X, domains))

    def fit_transform(self, X: Any, y: Any = None, *, domains: Any = None) -> np.ndarray:
        return super().fit_transform(X, y, domains=self._some(X, domains))

    @staticmethod
    def _some(X: Any, domains: Any) -> Any:
        if domains is not None:
            return domains
        return np.arange(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))) % 3


@parametrize_with_checks(
    [WithDomains(1), WithDomains(1, supervised=False), WithDomains(1, trade_off=1.0)]
)
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_pipelines_and_names(data: Any) -> None:
    X, y, domains = data
    model = InvariantComponents(2, trade_off=1.0)
    before = {**model.get_params()}
    pipeline = make_pipeline(StandardScaler(), model, KNeighborsClassifier(3))
    pipeline.fit(X, y, invariantcomponents__domains=domains)
    assert pipeline.predict(X).shape == (60,)
    assert list(pipeline[:-1].get_feature_names_out()) == [
        "invariantcomponents0",
        "invariantcomponents1",
    ]
    assert clone(model).get_params() == before
    assert repr(InvariantComponents(3)) == "InvariantComponents(n_components=3)"
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = InvariantComponents(2, trade_off=1.0).fit(frame, y, domains=pd.Series(domains))
    assert list(named.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        named.transform(frame.rename(columns={"a": "z"}))


def test_metadata_routing() -> None:
    X, y, domains = shifted(np.random.default_rng(7), 25)
    with sklearn.config_context(enable_metadata_routing=True):
        model = InvariantComponents(1, Gaussian(2.0), trade_off=1.0, supervised=False)
        pipeline = make_pipeline(model.set_fit_request(domains="groups"), KNeighborsClassifier(5))
        grid = {"invariantcomponents__trade_off": [0.0, 1e3]}
        search = GridSearchCV(pipeline, grid, cv=LeaveOneGroupOut(), error_score="raise")
        search.fit(X, y, groups=domains)
        assert search.best_params_ == {"invariantcomponents__trade_off": 1e3}
        assert search.best_score_ > 0.85
        assert search.best_estimator_[0].domains_.tolist() == list(range(6))
        scores = cross_val_score(
            make_pipeline(model.set_fit_request(domains=True), KNeighborsClassifier(5)),
            X,
            y,
            cv=LeaveOneGroupOut(),
            params={"groups": domains, "domains": domains},
            error_score="raise",
        )
        assert scores.shape == (6,)
        unset = make_pipeline(InvariantComponents(1), KNeighborsClassifier(5))
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="domains"):
            unset.fit(X, y, domains=domains)


def test_saved_and_loaded(data: Any, tmp_path: Path) -> None:
    X, y, domains = data
    model = InvariantComponents(2, random_state=0).fit(X, y, domains=domains)
    save(model, tmp_path / "model.npz")
    assert_allclose(load(tmp_path / "model.npz").transform(X), model.transform(X), rtol=1e-12)


# --- bad input -----------------------------------------------------------------------------------


def test_domains_with_one_point(data: Any) -> None:
    X, y, _ = data
    alone = np.arange(60)
    model = InvariantComponents(2, Gaussian(2.0), trade_off=1.0).fit(X, y, domains=alone)
    assert np.isfinite(model.transform(X)).all()
    some = np.r_[np.zeros(30), np.ones(29), 2]
    chosen = InvariantComponents(2, random_state=0).fit(X, y, domains=some)
    assert np.isfinite(chosen.transform(X)).all()
    # every row its own domain: S = C, so that nothing varies that does not differ
    with pytest.raises(ValueError, match="alike in all domains"):
        InvariantComponents(2, Gaussian(2.0), trade_off=np.inf).fit(X, domains=alone)


def test_constant_columns(data: Any) -> None:
    X, y, domains = data
    padded = np.hstack([X, np.ones((60, 2))])
    settings: dict[str, Any] = {"kernel": Linear(), "trade_off": 2.0}
    ours = InvariantComponents(2, **settings).fit(padded, y, domains=domains)
    plain = InvariantComponents(2, **settings).fit(X, y, domains=domains)
    assert_allclose(ours.transform(padded), plain.transform(X), atol=1e-9)
    with pytest.raises(ValueError, match="rows of X are the same"):
        InvariantComponents(1).fit(np.ones((60, 2)), domains=domains)
    with pytest.raises(ValueError, match="varies in 2 direction"):
        InvariantComponents(3, Linear(), trade_off=1.0).fit(X[:, :2], domains=domains)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"trade_off": -1.0}, "trade_off must be a number"),
        ({"trade_off": "best"}, "trade_off must be one of 'auto'"),
        ({"trade_off": np.nan}, "trade_off must be a number"),
        ({"regularization": -1.0}, "regularization must be a number"),
        ({"complexity": -1.0}, "complexity must be a number"),
        ({"complexity": 0.0, "regularization": 0.0}, "without any bound"),
        ({"target_regularization": 0}, "must be positive, got 0"),
        ({"relation": "both"}, "relation must be one of"),
        ({"supervised": "yes"}, "supervised must be True, False or None"),
        ({"basis": 3}, "basis: expected"),
    ],
)
def test_bad_settings(data: Any, settings: dict[str, Any], message: str) -> None:
    X, y, domains = data
    with pytest.raises((TypeError, ValueError), match=message):
        InvariantComponents(**settings).fit(X, y, domains=domains)


def test_the_printed_problem_may_have_no_solution() -> None:
    rng = np.random.default_rng(28)
    domains, y = np.repeat(np.arange(4), 10), rng.integers(2, size=40)
    X = rng.normal(size=(40, 2))
    X[:, 0] += 2 * rng.normal(size=4)[domains]
    settings: dict[str, Any] = {"trade_off": np.inf, "regularization": 1e-4}
    with pytest.raises(ValueError, match="has no solution for trade_off=inf"):
        InvariantComponents(1, Gaussian(1.0), relation="inverse", **settings).fit(
            X, y, domains=domains
        )
    InvariantComponents(1, Gaussian(1.0), **settings).fit(X, y, domains=domains)


def test_bad_data(data: Any) -> None:
    X, y, domains = data
    model = InvariantComponents(2, trade_off=1.0)
    with pytest.raises(ValueError, match="needs the domain of every row"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        InvariantComponents(supervised=True).fit(X, domains=domains)
    with pytest.raises(ValueError, match="domains has 59"):
        model.fit(X, y, domains=domains[:-1])
    with pytest.raises(ValueError, match="one label per row"):
        model.fit(X, y, domains=np.zeros((60, 2)))
    with pytest.raises(ValueError, match="missing labels in 1 rows"):
        model.fit(X, y, domains=np.where(np.arange(60) == 3, np.nan, domains))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1], domains=domains)
    with pytest.raises(ValueError, match="y is constant"):
        model.fit(X, np.zeros(60), domains=domains)
    with pytest.raises(ValueError, match="minimum of 2"):
        model.fit(X[:1], domains=[0])
    assert not hasattr(model, "components_")
    model.fit(X, y, domains=domains)
    with pytest.raises(ValueError, match="3 features"):
        model.transform(X[:, :3])
