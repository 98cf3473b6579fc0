"""Colored unfolding against the paper's programme entry by entry, classical scaling and rolls."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.manifold import trustworthiness
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import oracles
from meanmap import ColoredUnfolding, hsic, load, save
from meanmap.kernels import Delta, Gaussian, Linear, NGrams
from meanmap.learning.neighbour_graph import Distinct, NeighbourGraph, reconstruction_weights
from meanmap.learning.unfolding_programme import UnfoldingProgramme

convex = pytest.mark.needs("cvxpy")
SOLVERS = [pytest.param("cvxpy", marks=convex), "factors"]


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def roll(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t, h = 1.5 * np.pi * (1 + 2 * rng.uniform(size=n)), 21 * rng.uniform(size=n)
    return np.stack([t * np.cos(t), h, t * np.sin(t)], axis=1), t


def small(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 3))
    return X, X[:, 0] + 0.3 * rng.normal(size=12)


def gram(model: ColoredUnfolding) -> np.ndarray:
    return model.factors_ @ model.factors_.T


# --- the programme --------------------------------------------------------------------------------


@convex  # the oracle needs it too
@pytest.mark.parametrize("coloured", [True, False], ids=["coloured", "plain"])
@pytest.mark.parametrize("solver", ["cvxpy", "factors"])
@pytest.mark.parametrize("stiffness", [10.0, None])
def test_the_papers_programme(coloured: bool, solver: str, stiffness: float | None) -> None:
    X, y = small()
    tol = 1e-6 if solver == "cvxpy" else 1e-4 if stiffness else 1e-3
    model = ColoredUnfolding(
        2, 4, Gaussian(1.0), stiffness=stiffness, solver=solver, tol=tol, max_iter=20000
    )
    model.fit(X, y if coloured else None)
    assert model.status_ == "optimal"
    assert model.gap_ <= tol
    L = Gaussian(1.0)(y[:, None]) if coloured else np.eye(12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # centred matrices have no interior, which costs digits
        K, value = oracles.colored_unfolding(X, L, model.edges_, stiffness)
    assert model.objective_ == pytest.approx(value / 144, rel=1e-4 if solver == "cvxpy" else 2e-3)
    assert_allclose(gram(model).sum(axis=1), 0, atol=1e-9)
    assert np.linalg.eigvalsh(gram(model))[0] > -1e-9
    if solver == "cvxpy":  # where the optimum is flat K is known less well than its value
        assert_allclose(gram(model), K, atol=0.05 * np.trace(K) / 12)


def test_all_distances_kept_is_classical_scaling() -> None:
    X, y = small()
    for side in (None, y):  # side information has no say where all distances are fixed
        model = ColoredUnfolding(3, 11, stiffness=None, solver="factors", tol=1e-6).fit(X, side)
        centred = X - X.mean(axis=0)
        assert_allclose(gram(model), centred @ centred.T, atol=1e-4)
        assert model.stress_ < 1e-5
        auto = ColoredUnfolding(3, 11, stiffness=None).fit(X, side)
        assert_allclose(gram(auto), centred @ centred.T, atol=1e-2)


@convex
def test_distances_are_kept_the_better_the_stiffer() -> None:
    X, y = small()
    stress = [
        ColoredUnfolding(11, 4, stiffness=s, solver="cvxpy").fit(X, y).stress_
        for s in (1.0, 10.0, 100.0, None)
    ]
    assert stress == sorted(stress, reverse=True)
    assert stress[-1] < 1e-4 < 0.01 < stress[0]


def test_objective_is_hsic() -> None:
    X, y = small()
    model = ColoredUnfolding(2, 4, Gaussian(1.0)).fit(X, y)
    expected = hsic(model.factors_, y[:, None], Linear(), Gaussian(1.0), "V")
    assert model.objective_ == pytest.approx(expected, rel=1e-8)
    plain = ColoredUnfolding(2, 4).fit(X)
    assert plain.objective_ == pytest.approx(np.sum(plain.factors_**2) / 144, rel=1e-8)


@convex  # to more digits than factors give
def test_smooth_maps_with_all_eigenvectors_are_all_maps() -> None:
    X, y = small()
    full = ColoredUnfolding(2, 4, method="full", tol=1e-7).fit(X, y)
    smooth = ColoredUnfolding(
        2, 4, method="laplacian", n_eigenvectors=11, refine=False, tol=1e-7
    ).fit(X, y)
    assert_allclose(gram(full), gram(smooth), atol=1e-6)
    assert_allclose(full.embedding_, smooth.embedding_, atol=1e-6)
    values = [
        ColoredUnfolding(2, 4, method="laplacian", n_eigenvectors=m).fit(X, y).objective_
        for m in (2, 5, 11)
    ]
    assert values == sorted(values)


@pytest.mark.slow
@convex
def test_solvers_agree_in_the_middle() -> None:
    """What factors find has a certificate, and is what interior points find."""
    X, t = roll(45, 3)
    answers = [
        ColoredUnfolding(2, 6, solver=solver, tol=1e-4, max_iter=n, random_state=0).fit(X, t)
        for solver, n in (("cvxpy", None), ("factors", 20000))
    ]
    assert [model.status_ for model in answers] == ["optimal", "optimal"]
    one, other = (model.objective_ for model in answers)
    assert one == pytest.approx(other, rel=2e-3)


@convex
def test_certificates_bound_the_optimum() -> None:
    rng = np.random.default_rng(0)
    b = np.linalg.qr(rng.normal(size=(30, 5)))[0]
    C = b[:5].T @ b[:5]
    programme = UnfoldingProgramme(C, b, rng.uniform(0.5, 1, size=30), 5.0)
    best = programme.solve("cvxpy", 1e-8, None, np.random.RandomState(0))
    assert best.status == "optimal"
    worse = programme.certify(0.9 * best.factor, np.zeros(30), "optimal", 1e-8, 1)
    assert worse.status == "optimal_inaccurate"
    assert worse.gap > 0.01


# --- what it is for -------------------------------------------------------------------------------


def test_a_roll_is_unrolled() -> None:
    X, t = roll(1000, 0)
    model = ColoredUnfolding(stiffness=5.0, refine=True, random_state=0).fit(X, t)
    assert model.method_ == "laplacian"
    assert model.status_ == "optimal"
    assert abs(np.corrcoef(model.embedding_[:, 0], t)[0, 1]) > 0.97
    assert model.stress_ < 0.15
    plain = ColoredUnfolding(random_state=0).fit(X)
    assert trustworthiness(X, plain.embedding_, n_neighbors=6) > 0.99
    again = ColoredUnfolding(stiffness=5.0, refine=True, random_state=0).fit_transform(X, t)
    assert_array_equal(again, model.embedding_)
    rough = ColoredUnfolding(stiffness=5.0, random_state=0).fit(X, t)
    assert rough.stress_ > model.stress_


def test_colours_pull_classes_apart() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 5))
    y = np.where(X[:, 4] + 0.3 * rng.normal(size=90) > 0, "up", "down")
    scores = []
    for side in (None, y):
        Y = ColoredUnfolding(1, 5, random_state=0).fit_transform(X, side)
        scores.append(abs(np.corrcoef(Y[:, 0], y == "up")[0, 1]))
    assert scores[1] > 0.7 > 0.5 > scores[0]


def test_side_information_of_any_kind() -> None:
    X, _ = small()
    words = ["aab", "aabb", "aab", "abab"] * 3
    for kernel, y in (
        (NGrams(2), words),
        (Delta(), np.arange(12) % 3),
        (None, np.random.default_rng(0).normal(size=(12, 2))),
        (None, (np.arange(12.0)[:, None], np.array(list("abcabcabcabc")))),
    ):
        model = ColoredUnfolding(2, 4, kernel).fit(X, y)
        assert model.embedding_.shape == (12, 2)
        assert model.objective_ > 0


def test_new_points_lie_between_their_neighbours() -> None:
    X, t = roll(1200, 2)
    model = ColoredUnfolding(random_state=0).fit(X[:1000], t[:1000])
    assert_allclose(model.transform(X[:1000]), model.embedding_, atol=1e-9)
    new = model.transform(X[1000:])
    line = np.polyfit(model.embedding_[:, 0], t[:1000], 3)
    assert np.corrcoef(np.polyval(line, new[:, 0]), t[1000:])[0, 1] > 0.97
    near, w = reconstruction_weights(X[:1000], X[1000:], 6)
    assert_allclose(w.sum(axis=1), 1)
    assert_allclose(np.einsum("nk,nkd->nd", w, X[near]), X[1000:], atol=2.0)


# --- neighbours -----------------------------------------------------------------------------------


def test_repeated_rows_share_a_place() -> None:
    X, y = small()
    twice, both = np.concatenate([X, X[:5]]), np.concatenate([y, y[:5] + 1])
    model = ColoredUnfolding(2, 4).fit(twice, both)
    assert_array_equal(model.embedding_[:5], model.embedding_[12:])
    assert len(np.unique(model.edges_)) == 12
    assert_allclose(model.embedding_.mean(axis=0), 0, atol=1e-9)
    expected = hsic(model.factors_, both[:, None], Linear(), model.kernel_, "V")
    assert model.objective_ == pytest.approx(expected, rel=1e-7)
    some = Distinct.of(twice)
    assert_array_equal(some.rows[some.place], twice)
    assert_array_equal(some.rows, X)


def test_parts_are_joined_and_it_is_said() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(10, 2)), rng.normal(size=(10, 2)) + 50, [[100.0, 0]] * 1])
    X = np.concatenate([X, X[-1:] + rng.normal(size=(6, 2))])
    with pytest.warns(UserWarning, match=r"falls into 3 parts.*joined by 2 edges.*n_neighbors"):
        model = ColoredUnfolding(2, 3).fit(X)
    assert model.status_ == "optimal"
    gaps = np.linalg.norm(X[model.edges_[:, 0]] - X[model.edges_[:, 1]], axis=1)
    assert (gaps > 20).sum() == 2


def test_eigenvectors_of_large_and_small_graphs() -> None:
    X, _ = roll(1100, 1)
    graph = NeighbourGraph.of(X, 8)
    s, Q = graph.smooth(6, np.random.RandomState(0))
    D = graph.differences
    L = (D.T @ D).toarray()
    truth = np.linalg.eigvalsh(L)
    assert_allclose(s, truth[1:7], rtol=1e-6)
    assert_allclose(L @ Q, Q * s, atol=1e-8)


# --- bad input, and scikit-learn's manners --------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number ≥ 1"),
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"n_eigenvectors": 0}, "n_eigenvectors must be"),
        ({"method": "fast"}, "method must be one of"),
        ({"solver": "scs"}, "solver must be one of"),
        ({"stiffness": -1.0}, "stiffness must be positive"),
        ({"stiffness": None, "method": "laplacian"}, "smooth maps cannot"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ColoredUnfolding(**settings).fit(*small())


def test_bad_data() -> None:
    X, y = small()
    unknown = y.copy()
    unknown[[3, 7]] = np.nan
    with pytest.raises(ValueError, match=r"y has no value in 2 of 12 rows.*row 3.*transform"):
        ColoredUnfolding(2, 4).fit(X, unknown)
    words = np.array(["a", None] * 6, dtype=object)
    with pytest.raises(ValueError, match="y has no value in 6 of 12 rows"):
        ColoredUnfolding(2, 4, Delta()).fit(X, words)
    with pytest.raises(ValueError, match="y has no value in 2"):
        ColoredUnfolding(2, 4).fit(X, pd.Series(unknown))
    with pytest.raises(ValueError, match="the same for all rows"):
        ColoredUnfolding(2, 4).fit(X, np.ones(12))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ColoredUnfolding(2, 4).fit(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        ColoredUnfolding(2, 4).fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="distinct rows"):
        ColoredUnfolding(2, 4).fit(np.ones((12, 2)), y)
    with pytest.raises(ValueError, match="at least 3 points, got n_samples=2"):
        ColoredUnfolding().fit(X[:2])
    model = ColoredUnfolding(2, 4).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.transform(X[:, :2])


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_programme_not_solved_is_never_silent(solver: str) -> None:
    X, y = small()
    model = ColoredUnfolding(2, 4, solver=solver, max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"status 'user_limit', a relative gap of"):
        model.fit(X, y)
    assert model.status_ == "user_limit"
    assert model.gap_ > 1e-3


@convex
def test_no_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import cvxpy

    def fail(*_: Any, **__: Any) -> None:
        raise cvxpy.SolverError("no")

    X, y = small()
    monkeypatch.setattr(cvxpy.Problem, "get_problem_data", fail)
    with pytest.raises(RuntimeError, match="no answer.*solver_error"):
        ColoredUnfolding(2, 4, solver="cvxpy").fit(X, y)
    assert ColoredUnfolding(2, 4).fit(X, y).status_ == "optimal"  # by factors then


def test_without_cvxpy(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = small()
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"pip install 'meanmap\[convex\]'"):
        ColoredUnfolding(2, 4, solver="cvxpy").fit(X, y)


def test_manners(tmp_path: Path) -> None:
    X, y = small()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = ColoredUnfolding(2, 4, random_state=0)
    assert repr(model) == "ColoredUnfolding(n_neighbors=4, random_state=0)"
    Y = model.fit_transform(frame, pd.Series(y))
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert_array_equal(model.get_feature_names_out(), ["coloredunfolding0", "coloredunfolding1"])
    assert_array_equal(clone(model).fit(frame, y).embedding_, Y)
    save(model, tmp_path / "map.npz")
    assert_array_equal(load(tmp_path / "map.npz").transform(frame), model.transform(frame))
    classes = np.where(y > 0, "up", "down")
    pipeline = make_pipeline(ColoredUnfolding(2, 3, solver="factors"), KNeighborsClassifier(1)).fit(
        X, classes
    )
    assert pipeline.score(X, classes) == 1.0
    grid = {"coloredunfolding__n_neighbors": [3, 4]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, classes)
    assert search.best_score_ > 0
    assert_allclose(  # no more neighbours than there are
        ColoredUnfolding(2, 50, random_state=0).fit(X, y).embedding_,
        ColoredUnfolding(2, 11, random_state=0).fit(X, y).embedding_,
    )
    wide = ColoredUnfolding(15, 4).fit(X)
    assert wide.embedding_.shape == (12, 15)
