"""Support measures: the data of the experiment, how settings are chosen, and a small run."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap.kernels import Expected, Gaussian, Weighted
from meanmap_experiments import Outcome, bag_methods, groups, measures

matplotlib.use("Agg")
SMALL = measures.Plan(
    digits=100, folds=2, runs=1, bags=16, sizes=(8, 14), pictures=24, copies=2, tests=40,
    samples=(10, 20),
)  # fmt: skip


def test_pictures_are_bags_on_one_grid() -> None:
    images = groups.table("digits")[0][:5]
    bags = groups.pixel_bags(images)
    assert all(bag.points is bags[0].points for bag in bags)
    assert_allclose([bag.weights.sum() for bag in bags], 1.0)
    assert_allclose(bags[2].weights @ bags[2].points, [
        (images[2] / images[2].sum()) @ np.repeat(np.arange(8), 8),
        (images[2] / images[2].sum()) @ np.tile(np.arange(8), 8),
    ])  # fmt: skip


def test_jitter_moves_pictures_a_little() -> None:
    rng = np.random.default_rng(0)
    images = groups.table("digits")[0][:3]
    still = groups.jittered(images, 2, rng, (0.0, 0.0))
    assert_allclose(still[:, 0], images, atol=1e-12)
    moved = groups.jittered(images, 4, rng, (15.0, 1.0))
    assert moved.shape == (3, 4, 64)
    assert 0 < abs(moved - images[:, None]).mean() < 3


def test_groups_differ_in_what_they_should() -> None:
    rng = np.random.default_rng(1)
    bags, classes = groups.shuffled(40, rng, (75, 105)).train
    off = [abs(np.corrcoef(bag.T)[np.triu_indices(13, 1)]).mean() for bag in bags]
    assert np.mean(np.array(off)[classes == 1]) < np.mean(np.array(off)[classes == 0]) - 0.1
    bags, classes = groups.two_modes(40, rng, (400, 401)).train
    for kind in (0, 1):
        rows = np.concatenate([bag for bag, c in zip(bags, classes, strict=True) if c == kind])
        assert_allclose(rows.mean(axis=0), 0, atol=0.07)
        assert_allclose(np.cov(rows.T), np.eye(3), atol=0.1)
    both = groups.composed(30, rng, (40, 60))
    first, second = ({tuple(row) for bag in b for row in bag} for b, _ in (both.train, both.test))
    assert not first & second  # no patient is learned from and judged by
    assert both.fold is not None
    apart = [
        {
            tuple(row)
            for bag, f in zip(both.train[0], both.fold, strict=True)
            if f == i
            for row in bag
        }
        for i in range(3)
    ]
    assert not apart[0] & apart[1] and not apart[1] & apart[2]
    bags, entropy = groups.entropies(20, 5000, rng).train
    assert_allclose(np.log(2 * np.pi * np.e * np.var([b[:, 0] for b in bags], axis=1)) / 2,
                    entropy, atol=0.08)  # fmt: skip


def test_what_stands_for_a_bag() -> None:
    rng = np.random.default_rng(2)
    plain = rng.normal(size=(7, 2))
    means = bag_methods.represented(bag_methods.MEANS, [plain])
    assert_allclose(means[0], plain.mean(axis=0))
    moments = bag_methods.represented(bag_methods.MOMENTS, [plain, Weighted(plain, np.ones(7))])
    assert_allclose(moments[0, 2:], np.cov(plain.T, bias=True)[np.triu_indices(2)])
    assert_allclose(moments[0], moments[1])
    sums = bag_methods.represented(bag_methods.SETS, [plain])
    k = Gaussian(1.0)
    assert_allclose(Expected(k)(sums)[0, 0], k(plain).sum())


def test_settings_are_chosen_in_folds() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    X[:, 0] += 5 * y
    fold = bag_methods.folded(y, 0)
    assert_array_equal(np.bincount(fold), [20, 20, 20])
    levels = bag_methods.second_levels(bag_methods.LINEAR, X)
    right, level, cost = bag_methods.chosen(levels, X, y, fold)
    assert right > 0.9 and level in levels and cost in bag_methods.COSTS
    wrong = bag_methods.Held(X, 1 - y, fold)  # judged by others, which are mislabelled
    assert bag_methods.chosen(levels, X, y, fold, wrong)[0] < 0.4


@pytest.fixture(scope="module")
def small() -> Outcome:
    return measures.run(plan=SMALL, seed=1)


def test_the_experiment_runs(small: Outcome) -> None:
    assert small.name == "measures" and len(small.tables) == 4
    accuracy = small.tables[0]
    assert accuracy.column("method") == (
        *bag_methods.OURS, *bag_methods.PEERS, bag_methods.PIXELS
    )  # fmt: skip
    for task in measures.CLASSES:
        found = [f for f in accuracy.column(task) if f is not None]
        assert len(found) == (6 if task == measures.DIGITS else 5)
        assert all(0 <= figure.mean <= 1 for figure in found)  # type: ignore[union-attr]
    assert small.tables[1].column("training") == tuple(measures.JITTER)
    assert small.tables[2].headings == ("method", "m = 10", "m = 20")
    assert len(small.verdict) == 4 + 2 * 4 + 3
    assert json.loads(small.to_json())["name"] == "measures"


def test_it_beats_guessing_where_means_do_not(small: Outcome) -> None:
    digits = dict(zip(small.tables[0].column("method"), small.tables[0].column(measures.DIGITS),
                      strict=True))  # fmt: skip
    linear, means = digits[bag_methods.LINEAR], digits[bag_methods.MEANS]
    assert linear.mean > means.mean + 0.2  # type: ignore[union-attr]
    errors = dict(zip(small.tables[2].column("method"), small.tables[2].column("m = 20"),
                      strict=True))  # fmt: skip
    assert errors[measures.RIDGE].mean < errors[measures.MEAN].mean  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore")  # as within a run: few bags, some far from the others
def test_the_experiment_honours_its_seed() -> None:
    for task in (measures.MODES, "regression"):
        first, again = (measures.one_run(task, SMALL, 0, 1) for _ in range(2))
        assert first == again
    assert measures.one_run("regression", SMALL, 0, 2) != first


def test_the_picture_has_a_bar_a_method(small: Outcome) -> None:
    ax = small.plot()
    assert len(ax.patches) == 4 * 5
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        *bag_methods.OURS, *bag_methods.PEERS
    ]  # fmt: skip
