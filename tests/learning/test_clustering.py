"""Clustering by dependence against every labelling, k-means, rings and orders; bad input."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_clusterer
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from meanmap import HSICClustering, hsic, load, save
from meanmap.kernels import Delta, Gaussian, Linear, Precomputed
from meanmap.learning.cluster_search import BySize, Plain, ascend, sums
from meanmap.learning.label_kernels import heat, label_features
from meanmap.spaces import Nystroem
from optional_packages import require

TREE = nx.DiGraph([("root", "left"), ("root", 2), ("left", 0), ("left", 1)])
STRUCTURES: dict[str, Any] = {
    "none": None,
    "chain": "chain",
    "ring": "ring",
    "kernel": Gaussian(1.0),
    "matrix": np.array([[2.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 1.0]]),
    "path": nx.path_graph(3),
    "tree": TREE,
}


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def blobs(n: int, k: int, seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    return 6 * rng.normal(size=(k, d))[y] + rng.normal(size=(n, d)), y


def circle(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return X + 0.1 * rng.normal(size=(n, 2)), angle


# --- the best there is ----------------------------------------------------------------------------


@pytest.mark.parametrize("normalized", [True, False], ids=["normalized", "plain"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_no_labelling_is_better(name: str, normalized: bool) -> None:
    X = np.random.default_rng(3).normal(size=(7, 2))
    for kernel in (Gaussian(1.0), Linear()):
        model = HSICClustering(
            3, kernel, STRUCTURES[name], normalized=normalized, n_init=30, random_state=0
        ).fit(X)
        F = label_features(STRUCTURES[name], 3)
        assert_allclose(model.label_kernel_, F @ F.T)
        best = oracles.best_label_dependence(kernel(X), F, normalized)
        assert model.objective_ == pytest.approx(best, rel=1e-7)
        dense = oracles.label_dependence(kernel(X), model.labels_, F, normalized)
        assert model.objective_ == pytest.approx(dense, rel=1e-7)


def test_two_labels() -> None:
    for seed in range(3):
        X = np.random.default_rng(seed).normal(size=(7, 2))
        model = HSICClustering(2, Gaussian(1.0), n_init=20, random_state=0).fit(X)
        best = oracles.best_label_dependence(Gaussian(1.0)(X), np.eye(2), True)
        assert model.objective_ == pytest.approx(best, rel=1e-7)


def test_plain_objective_is_hsic_of_points_and_labels() -> None:
    X, _ = blobs(60, 3, 1)
    model = HSICClustering(3, Gaussian(2.0), Delta(), normalized=False, random_state=0).fit(X)
    expected = hsic(X, model.labels_, Gaussian(2.0), Delta(), "V")
    assert model.objective_ == pytest.approx(expected, rel=1e-8)


def test_linear_kernel_is_k_means() -> None:
    for seed in range(3):
        X, _ = blobs(200, 4, seed, d=3)
        ours = HSICClustering(4, Linear(), random_state=0).fit(X)
        theirs = KMeans(4, n_init=10, random_state=0).fit(X)
        total = np.sum((X - X.mean(axis=0)) ** 2)
        assert ours.objective_ == pytest.approx((total - theirs.inertia_) / 200, rel=1e-9)
        assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0


def test_from_the_labels_of_k_means_nothing_is_lost() -> None:
    """Single moves find what Lloyd's steps cannot."""
    X = np.random.default_rng(0).normal(size=(150, 2))
    Z, w = X - X.mean(axis=0), np.full(150, 1 / 150)
    for seed in range(5):
        labels = KMeans(6, n_init=1, init="random", random_state=seed).fit(X).labels_
        found = ascend(Z, w, labels.astype(np.int64), BySize(np.eye(6)), 100)
        assert found.history[-1] >= found.history[0]


# --- sweeps and moves -----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 5), by_size=st.booleans())
def test_gains_are_exact_and_the_objective_never_falls(seed: int, k: int, by_size: bool) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(15, 3))
    w = rng.uniform(0.2, 1, size=15)
    w /= w.sum()
    Z -= w @ Z
    objective = (BySize if by_size else Plain)(rng.normal(size=(k, 4)))
    labels = rng.permutation(np.arange(15) % k)
    S, W = sums(Z, w, labels, k)
    gains = objective.gains(Z, w, labels, S, W)
    before = objective.value(S, W)
    for i in range(15):
        for c in range(k):
            moved = labels.copy()
            moved[i] = c
            change = objective.value(*sums(Z, w, moved, k)) - before
            assert gains[i, c] == pytest.approx(change, rel=1e-9, abs=1e-12)
    found = ascend(Z, w, labels, objective, 200)
    assert found.converged
    history = np.array(found.history)
    assert (np.diff(history) >= -1e-12 * abs(history[-1])).all()


@pytest.mark.parametrize("structure", [None, "chain", "ring"])
@pytest.mark.parametrize("normalized", [True, False])
def test_history_prediction_and_score(structure: Any, normalized: bool) -> None:
    X, _ = blobs(120, 5, 2)
    model = HSICClustering(5, None, structure, normalized=normalized, random_state=0).fit(X)
    assert (np.diff(model.history_) >= -1e-12).all()
    assert len(model.history_) == model.n_iter_ + 1
    assert model.history_[-1] == model.objective_
    assert model.score(X) == pytest.approx(model.objective_, rel=1e-6)
    assert_array_equal(model.predict(X), model.labels_)


def test_weights_are_repetition() -> None:
    X, _ = blobs(60, 3, 4)
    w = np.random.default_rng(0).integers(0, 4, size=60)
    kernel = Gaussian(3.0)
    weighted = HSICClustering(3, kernel, random_state=0).fit(X, sample_weight=w)
    repeated = HSICClustering(3, kernel, random_state=0).fit(np.repeat(X, w, axis=0))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-8)
    assert adjusted_rand_score(np.repeat(weighted.labels_, w), repeated.labels_) == 1.0
    assert weighted.labels_.shape == (60,)
    assert_array_equal(weighted.labels_, weighted.predict(X))


def test_fewer_coordinates_give_the_same_clusters() -> None:
    X, y = blobs(2500, 4, 9, d=5)
    model = HSICClustering(4, Gaussian(), basis=Nystroem(60, random_state=0), random_state=0)
    assert model.fit(X).space_.rank_ == 60
    default = HSICClustering(4, Gaussian("2*median"), n_init=2, random_state=0).fit(X)
    assert default.space_.residual_ < 1e-5
    assert adjusted_rand_score(y, model.labels_) > 0.95
    assert adjusted_rand_score(default.labels_, model.labels_) > 0.95


# --- what it is for -------------------------------------------------------------------------------


def test_a_ring_around_a_ring() -> None:
    rng = np.random.default_rng(0)
    turn, y = rng.uniform(0, 2 * np.pi, 200), np.arange(200) % 2
    X = np.where(y == 0, 1.0, 4.0)[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    X += 0.2 * rng.normal(size=X.shape)
    ours = HSICClustering(2, Gaussian("0.4*median"), random_state=0).fit(X)
    assert adjusted_rand_score(y, ours.labels_) == 1.0
    theirs = KMeans(2, n_init=10, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, theirs) < 0.2


def test_ring_labels_go_round() -> None:
    X, angle = circle(200, 1)
    model = HSICClustering(10, None, "ring", random_state=0).fit(X)
    named = np.exp(2j * np.pi * model.labels_ / 10)
    truth = np.exp(1j * angle)
    assert max(abs(np.mean(named * truth)), abs(np.mean(named * truth.conj()))) > 0.95
    assert np.bincount(model.labels_, minlength=10).min() >= 10


def test_chain_labels_follow_a_curve() -> None:
    rng = np.random.default_rng(2)
    t = rng.uniform(0, 1, 200)
    X = np.stack([3 * t, np.sin(4 * t)], axis=1) + 0.05 * rng.normal(size=(200, 2))
    model = HSICClustering(8, None, "chain", random_state=0).fit(X)
    assert abs(np.corrcoef(model.labels_, t)[0, 1]) > 0.95
    assert len(set(model.labels_)) == 8


def test_tree_labels_put_near_clusters_under_one_branch() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [12.0, 0.0], [15.0, 0.0]])
    y = np.arange(120) % 4
    X = centres[y] + 0.3 * rng.normal(size=(120, 2))
    tree = nx.DiGraph([("r", "a"), ("r", "b"), ("a", 0), ("b", 2), ("a", 1), ("b", 3)])
    model = HSICClustering(4, Linear(), tree, random_state=0).fit(X)
    leaves = [node for node in tree.nodes if tree.out_degree(node) == 0]
    assert adjusted_rand_score(y, model.labels_) == 1.0
    branch = np.array([leaves[label] in (0, 1) for label in model.labels_])
    assert len(set(branch[y < 2])) == 1
    assert branch[y < 2][0] != branch[y >= 2][0]


def test_points_that_are_no_vectors() -> None:
    X, y = blobs(40, 2, 6)
    gram = Precomputed(Gaussian(3.0)(X))
    model = HSICClustering(2, gram, random_state=0).fit(np.arange(40))
    direct = HSICClustering(2, Gaussian(3.0), random_state=0).fit(X)
    assert adjusted_rand_score(model.labels_, direct.labels_) == 1.0
    assert not hasattr(model, "n_features_in_")
    words = ["sun"] * 5 + ["rain"] * 4 + ["snow"] * 3
    found = HSICClustering(3, random_state=0).fit(words)
    assert adjusted_rand_score(words, found.labels_) == 1.0
    assert found.predict(["snow"])[0] == found.labels_[-1]


# --- similarities of labels -----------------------------------------------------------------------


def label_gram(structure: Any, k: int) -> np.ndarray:
    F = label_features(structure, k)
    return F @ F.T


def test_label_kernels() -> None:
    assert_array_equal(label_gram(None, 3), np.eye(3))
    assert_allclose(label_gram(Delta(), 3), np.eye(3))
    assert_allclose(label_gram(Gaussian(2.0), 4), Gaussian(2.0)(np.arange(4.0)[:, None]))
    assert_allclose(label_gram("ring", 6), label_gram(nx.cycle_graph(6), 6))
    assert_allclose(label_gram("chain", 6), label_gram(nx.path_graph(6), 6))
    ring = label_gram("ring", 8)
    assert_allclose(ring, np.roll(ring, (1, 1), axis=(0, 1)), atol=1e-12)
    assert (np.diff(ring[0, :5]) < 0).all()
    assert_allclose(label_gram("chain", 5).sum(axis=1), 1.0)  # heat is not lost
    assert_array_equal(label_gram(TREE, 3), [[1, 0, 0], [0, 2, 1], [0, 1, 2]])
    assert_array_equal(heat(np.zeros((3, 3))), np.eye(3))
    assert_array_equal(label_gram("ring", 1), [[1.0]])
    assert_allclose(label_gram("ring", 2), label_gram("chain", 2))


def test_a_tree_adds_up_the_scatter_of_its_branches() -> None:
    X, y = blobs(60, 3, 7)
    Z = (X - X.mean(axis=0)) / 60
    F = label_features(TREE, 3)  # leaves: 2, 0, 1; the last two under one branch
    found = BySize(F).value(*sums(Z * 60, np.full(60, 1 / 60), y, 3))
    expected = 0.0
    for members in ([0], [1, 2], [1], [2]):
        there = np.isin(y, members)
        expected += 60 * np.sum(Z[there].sum(axis=0) ** 2) / there.mean() / 60
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (np.eye(4), r"expected a matrix of shape \(3, 3\)"),
        (np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]]), "not symmetric"),
        (np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]), "not positive semi-definite"),
        (np.full((3, 3), np.nan), "NaN"),
        ("circle", "must be one of 'chain', 'ring'"),
        (nx.path_graph(5), "has 5 nodes, but n_clusters=3"),
        (nx.DiGraph([(0, 1), (1, 2)]), "has 1 leaves"),
        (nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "rooted tree"),
        (nx.Graph([(0, 1, {"weight": -1.0}), (1, 2)]), "negative or not finite"),
        (7, "label_kernel: got 7"),
    ],
)
def test_bad_label_kernels(structure: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        HSICClustering(3, label_kernel=structure).fit(np.random.default_rng(0).normal(size=(9, 2)))


# --- bad input, and scikit-learn's manners --------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number ≥ 1"),
        ({"n_clusters": 2.5}, "n_clusters must be a whole number"),
        ({"n_clusters": 10}, "n_samples=9 should be >= n_clusters=10"),
        ({"n_init": 0}, "n_init must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HSICClustering(**settings).fit(np.random.default_rng(0).normal(size=(9, 2)))


def test_fewer_distinct_points_than_labels() -> None:
    X = np.repeat([[0.0], [1.0], [5.0]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 3 of n_clusters=5 labels are used"):
        model = HSICClustering(5, Linear(), random_state=0).fit(X)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 4), model.labels_) == 1.0
    with pytest.warns(ConvergenceWarning, match="only 1 of n_clusters=2"):
        HSICClustering(2, Linear(), random_state=0).fit(np.ones((5, 2)))


def test_not_converged_is_said() -> None:
    X = np.random.default_rng(0).normal(size=(400, 2))
    model = HSICClustering(8, Linear(), n_init=1, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="after max_iter=1 sweeps"):
        model.fit(X)
    stopped = HSICClustering(8, Linear(), n_init=1, tol=0.5, random_state=0).fit(X)
    assert stopped.n_iter_ == 1


def test_bad_points() -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(ValueError, match="NaN"):
        HSICClustering(2).fit(np.where(X > 1, np.nan, X))
    with pytest.raises(ValueError, match="2D array"):
        HSICClustering(2).fit(X[:, 0])
    with pytest.raises(ValueError, match="must not be negative"):
        HSICClustering(2).fit(X, sample_weight=-np.ones(9))
    model = HSICClustering(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :1])


def test_manners(tmp_path: Path) -> None:
    X, _ = blobs(60, 3, 5)
    frame = pd.DataFrame(X, columns=["height", "weight"])
    model = HSICClustering(3, Gaussian(), nx.path_graph(3), random_state=0)
    assert is_clusterer(model)
    assert repr(HSICClustering(3)) == "HSICClustering(n_clusters=3)"
    labels = model.fit_predict(frame)
    assert_array_equal(model.feature_names_in_, ["height", "weight"])
    assert_array_equal(labels, clone(model).fit(frame).labels_)
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.objective_ == model.objective_
    pipeline = make_pipeline(StandardScaler(), HSICClustering(3, random_state=0))
    assert pipeline.fit_predict(X).shape == (60,)
    search = GridSearchCV(HSICClustering(random_state=0), {"n_clusters": [1, 3]}, cv=3).fit(X)
    assert search.best_params_ == {"n_clusters": 3}
    torch = require("torch")
    tensors = HSICClustering(3, Gaussian(), random_state=0).fit(torch.tensor(X))
    assert isinstance(tensors.labels_, np.ndarray)
    assert_array_equal(
        tensors.labels_, HSICClustering(3, Gaussian(), random_state=0).fit(X).labels_
    )


# --- the default bandwidth ------------------------------------------------------------------------


def two_blobs(sizes: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), 2))
    X[: sizes[0], 0] += 7
    return X, np.repeat([0, 1], sizes)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_a_small_cluster_far_away_is_found(seed: int, unit: float) -> None:
    X, y = two_blobs((20, 280), seed)
    labels = HSICClustering(2, random_state=0).fit(unit * X).labels_
    assert adjusted_rand_score(y, labels) > 0.9


def test_a_ring_and_what_is_in_it_are_told_without_a_bandwidth() -> None:
    rng = np.random.default_rng(0)
    turn, radius = rng.uniform(0, 2 * np.pi, 200), np.repeat([1.0, 4.0], 100)
    X = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    X += 0.1 * rng.normal(size=X.shape)
    labels = HSICClustering(2, random_state=0).fit(X).labels_
    assert adjusted_rand_score(radius, labels) > 0.9
