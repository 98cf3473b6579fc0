"""The depth experiment: its methods on small pictures, and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge

from meanmap.graphical.evidence import FieldEvidence
from meanmap.graphical.field import Wiring
from meanmap_experiments import Outcome, depth, mixtures
from meanmap_experiments.depth import methods, prediction
from meanmap_experiments.depth.methods import (
    ALONE,
    DISCRETE,
    KERNEL,
    METHODS,
    PAPER,
    PARTICLES,
    RIDGE,
    ROW,
    TEMPERED,
    TREES,
    Lesson,
    Looks,
    Scale,
    Setting,
    pictures,
    weaker,
)
from meanmap_experiments.depth.prediction import FULL, QUICK, Plan, halves, lessons, tries

TINY = Plan(
    size="small",
    tests=(2,),
    scale=Scale(samples=40, bins=10, particles=6, components=2, iterations=2),
    edges=(0.1,),
    looks=(0.5,),
    trusts=(0.2, 1.0),
    trusts_slow=(0.2,),
    powers=(0.25,),
    ridges=(0.3,),
    folds=2,
    validation=1,
    validation_slow=1,
)
TRAIN = np.arange(8)


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Potentials of particles and mixtures in a moment: how good they are is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixtures, "ROUNDS", 1)
        patch.setattr(methods, "FINE", 32)
        yield


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return Lesson("small", TRAIN, 0.1, 0.1, TINY.scale)


# --- what features say ----------------------------------------------------------------------------


def test_evidence_lies_on_straight_lines_between_places() -> None:
    places = np.linspace(0.0, 1.0, 3)
    logs = np.array([[0.0, 2.0, 4.0], [1.0, 1.0, -1.0]])
    looks = Looks(places, logs, trust=0.5)
    found = looks(np.array([1, 0]), np.array([[0.5, 0.75], [0.25, 9.0]]))
    assert_allclose(found, [[0.5, 0.0], [0.5, 2.0]])


def test_all_methods_are_told_what_kernel_belief_propagation_is(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "CELLS", 8192)  # so many that straight lines are near the curve
    looks, seconds = lesson.looks(12)
    assert seconds > 0
    potentials = lesson.model.potentials_
    known = FieldEvidence.of(potentials, lesson.evidence(12), 1.0)
    wiring = Wiring.of(potentials.field, known.hidden)
    seen = 0
    for kind, alone in enumerate(known.alone(wiring)):
        nodes = wiring.hidden[kind]
        if not len(nodes):
            continue
        x = np.ravel(potentials.nodes[kind].points)
        gap = abs(looks(nodes, np.tile(x, (len(nodes), 1))) - alone.logs)
        # but where a message reaches its least, in a corner
        assert np.quantile(gap, 0.95) < 1e-4
        seen += len(nodes)
    assert seen == lesson.rows * lesson.columns


def test_features_are_standardised_by_the_pictures_that_teach(lesson: Lesson) -> None:
    Z = lesson.standard(TRAIN).astype(float)
    varies = Z.std(axis=(0, 2)) > 1e-3
    assert_allclose(Z.mean(axis=(0, 2))[:, :-1][varies[:, :-1]], 0.0, atol=1e-3)
    assert_allclose(Z.std(axis=(0, 2))[varies], 1.0, atol=1e-3)
    assert_array_equal(Z[..., -1], 1.0)
    assert abs(lesson.standard(20).mean()) > 0.01


# --- methods --------------------------------------------------------------------------------------


def test_the_regression_is_a_ridge_regression_of_each_row(lesson: Lesson) -> None:
    i, lam, picture = 20, 0.3, 11
    X = lesson.standard(TRAIN)[:, i].reshape(-1, methods.pictures("small").features.shape[-1])
    y = lesson.depths[:, i].ravel()
    peer = Ridge(alpha=lam * len(X)).fit(X.astype(float), y)
    expected = peer.predict(lesson.standard(picture)[i].astype(float))
    found = lesson.answer(RIDGE, picture, Setting(ridge=lam)).depths
    assert_allclose(
        found[i], np.clip(expected, lesson.depths.min(), lesson.depths.max()), atol=1e-3
    )


def test_the_row_s_mean(lesson: Lesson) -> None:
    found = lesson.answer(ROW, 9).depths
    assert_allclose(found, np.repeat(lesson.depths.mean(axis=(0, 2))[:, None], 29, axis=1))


def test_the_sky_is_in_the_middle_of_a_bin(lesson: Lesson) -> None:
    bins = lesson.bins(30)
    assert len(bins) == 30
    assert_allclose(bins.centres[[0, -1]], [lesson.depths.min(), np.log(80)], rtol=1e-6)


def test_edges_to_the_power_of_nothing_are_none(lesson: Lesson) -> None:
    field = lesson.discrete.field
    assert all((t.potential.table == 1).all() for t in weaker(field, 0.0).templates)  # type: ignore[attr-defined]
    whole = lesson.answer(DISCRETE, 10, Setting(trust=0.2)).depths
    same = lesson.answer(TEMPERED, 10, Setting(trust=0.2, power=1.0)).depths
    assert_allclose(same, whole, atol=1e-10)
    bins, looks = lesson.discrete.bins, lesson.looks(10)[0]
    p = np.exp(field.everywhere(bins.centres, Looks(looks.places, looks.logs, 0.2)))
    alone = (p @ bins.centres / p.sum(axis=1)).reshape(whole.shape)
    found = lesson.answer(TEMPERED, 10, Setting(trust=0.2, power=0.0)).depths
    assert_allclose(found, alone, atol=1e-8)


def test_kernel_beliefs_are_those_of_the_library(lesson: Lesson) -> None:
    answer = lesson.answer(KERNEL, 10, Setting(trust=0.2))
    model = lesson.model.set_params(trust=0.2)
    with pytest.warns(UserWarning, match="has not converged"):
        found = model.run(lesson.evidence(10), TINY.scale.iterations)
    assert_array_equal(answer.depths, found.array("mean"))
    assert answer.seconds > 0
    assert model.potentials_.links[-1].regularization == 0.1


def test_every_method_answers_with_depths_that_there_are(lesson: Lesson) -> None:
    low, high = lesson.depths.min(), lesson.depths.max()
    for method in METHODS:
        assert lesson.learn(method) >= 0
        found = lesson.answer(method, 9, Setting(0.4, 0.2, 0.3)).depths
        assert found.shape == (36, 29)
        assert low - 0.3 <= found.min() and found.max() <= high + 0.3


# --- the experiment -------------------------------------------------------------------------------


def test_settings_are_chosen_without_the_pictures_they_are_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[int]] = []

    class Spy:
        data = pictures("small")

        def __init__(self, size: str, train: np.ndarray, *others: object) -> None:
            seen.append(set(train.tolist()))

        def answer(self, method: str, picture: int, setting: Setting) -> methods.Answer:
            assert picture not in seen[-1]
            seen[-1].add(int(picture))
            return methods.Answer(self.data.depths[picture], 0.0)

    monkeypatch.setattr(prediction, "Lesson", Spy)
    for half in (0, 1):
        prediction.taught.cache_clear()
        prediction.validated(TINY, 0, half, 1, (0.1, 0.5), tuple(tries(TINY, ALONE)[:1]))
        mine = set(halves(TINY, 0)[half].tolist())
        assert len(mine) == 12 and not mine & seen[-1]
    prediction.taught.cache_clear()
    assert set(np.concatenate(halves(TINY, 0)).tolist()) == set(range(24))


def test_every_method_chooses_from_the_same() -> None:
    for plan in (FULL, QUICK):
        for method in (*PAPER, TREES, ALONE, TEMPERED):
            tried = [setting for _, setting in tries(plan, method)]
            slow = method in prediction.SLOW
            assert {s.trust for s in tried} == set(plan.trusts_slow if slow else plan.trusts)
            assert {s.look for s in tried} == set(plan.looks)
        assert set(plan.trusts_slow) <= set(plan.trusts)
        together = [one for parts in lessons(plan).values() for part in parts for one in part]
        assert len(together) == len(set(together))
        assert set(together) == {t for m in METHODS if m != ROW for t in tries(plan, m)}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return depth.run(plan=TINY, seed=1)


@pytest.mark.slow
def test_the_experiment_runs(outcome: Outcome) -> None:
    assert outcome.name == "depth" and len(outcome.tables) == 3
    errors, seconds, chosen = outcome.tables
    assert errors.column("method") == METHODS
    assert all(0 < figure.mean < 3 for figure in errors.column("MAE of ln depth"))  # type: ignore[union-attr]
    natural, tens = (errors.column(f"MAE of {log} depth") for log in ("ln", "log₁₀"))
    assert_allclose(natural[0].mean, tens[0].mean * np.log(10))  # type: ignore[union-attr]
    assert errors.column("published")[0] == 0.145
    assert seconds.column("times kernel BP")[0] == 1
    assert set(chosen.column("for the first half")) <= {0.1, 0.5, 0.2, 1.0, 0.25, 0.3}
    assert json.loads(outcome.to_json())["name"] == "depth"


def test_the_verdict_follows_from_the_figures() -> None:
    good = {method: [0.1 + 0.1 * i, 0.11 + 0.1 * i] for i, method in enumerate(METHODS)}
    fast = {method: [40.0 if method in prediction.SLOW else 1.0] * 2 for method in METHODS}
    words = prediction.verdict(good, fast)
    assert sum("does not hold" in claim.text for claim in words) == 1  # mixtures are last here
    published = [claim for claim in words if claim.published is not None]
    assert sum(claim.holds is False for claim in published) == 1
    bad = {method: values[::-1] for method, values in zip(METHODS, reversed(good.values()))}  # noqa: B905
    slow = {method: [1.0 if method != KERNEL else 9.0] * 2 for method in METHODS}
    words = prediction.verdict(bad, slow)
    assert sum("does not hold" in claim.text for claim in words) == 7
    assert sum(claim.holds is False for claim in words if claim.published is not None) == 7


@pytest.mark.slow
def test_errors_honour_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "METHODS", (KERNEL, PARTICLES, RIDGE))
    chosen = dict.fromkeys(METHODS, Setting(0.2, 0.25, 0.3, 0.1, 0.5))
    first, again = (prediction.one_picture(TINY, 5, chosen, 3, False) for _ in range(2))
    assert first.errors == again.errors and not first.maps
    other = prediction.one_picture(TINY, 5, chosen, 4, False)
    assert other.errors[PARTICLES] != first.errors[PARTICLES]
    assert all(other.errors[m] == first.errors[m] for m in (KERNEL, RIDGE))  # nothing is drawn


@pytest.mark.slow
def test_the_picture_has_a_panel_a_method_and_a_point_a_method(outcome: Outcome) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    places = outcome.plot()
    titles = [place.get_title().split("\n")[0] for place in places]
    assert [title for title in titles if title] == ["picture", "true depth", *METHODS[:-1]]
    labels = {text.get_text() for text in places[-1].get_legend().get_texts()}
    assert labels == set(METHODS)
    ax = pyplot.subplots()[1]
    assert outcome.plot(ax) is ax and ax.get_xscale() == "log"
    pyplot.close("all")
