"""Who is on which track: the pieces, and a run on reduced sizes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanmap_experiments as experiments
from meanmap import AdditiveFilter
from meanmap.kernels import Chordal, Linear, Trace
from meanmap_experiments import Figure, identities
from meanmap_experiments.identities import (
    ADDITIVE,
    ALONE,
    CHORDAL,
    EXACT,
    LEARNED,
    OBJECTWISE,
    Plan,
)
from meanmap_experiments.systems import Identities

SMALL = Plan(
    objects=(3, 4), sizes=(100, 200), runs=2, tests=3, length=20, tuning=100, particles=300
)


def test_right_counts_objects() -> None:
    truth = np.eye(3)[[[0, 1, 2], [1, 0, 2]]]
    assert identities.right(truth[None], truth[None]) == 1
    swapped = np.eye(3)[[[1, 0, 2], [1, 0, 2]]]
    assert identities.right(swapped, truth) == pytest.approx(4 / 6)


def test_assignment_never_puts_two_objects_on_one_track() -> None:
    """Both objects look most like track 0; the second is surer of it."""
    mean = np.array([[0.6, 0.9], [0.4, 0.1]])
    truth = np.eye(2)[[1, 0]]
    assert identities.right(mean[None], truth[None]) == 1


def test_an_object_at_a_time_and_back() -> None:
    states, sightings = Identities(4).simulate(6, rng=0, runs=2)
    tracks, scores = identities.prepared(OBJECTWISE, states, sightings)
    assert len(tracks) == 8
    assert_array_equal(tracks[1], states[0, :, :, 1])  # the second object of the first run
    assert_array_equal(scores[5], sightings.reshape(states.shape)[1, :, :, 1])

    class Echo:
        """A filter that believes the scores it sees."""

        def fit(self, *_: object) -> Echo:
            return self

        def filter(self, observations: list[np.ndarray], beliefs: bool) -> Echo:
            self.mean = np.stack(observations)
            return self

    means = identities.learned_means(OBJECTWISE, Echo(), (states, sightings), sightings, 4)
    assert_allclose(means, sightings.reshape(states.shape))


@pytest.fixture(scope="module")
def outcome() -> experiments.Outcome:
    return identities.run(seed=1, plan=SMALL, progress=False)


def test_a_small_run(outcome: experiments.Outcome) -> None:
    assert [table.title[-9:] for table in outcome.tables] == ["3 objects", "4 objects"]
    for table in outcome.tables:
        assert table.headings == ("method", "100 steps", "200 steps")
        by_method = {row[0]: row[1:] for row in table.rows}
        assert set(by_method) >= {*LEARNED, EXACT, ALONE}
        for method in LEARNED:
            for figure in by_method[method]:
                assert isinstance(figure, Figure)
                assert figure.runs == SMALL.runs
                assert 0 <= figure.mean <= 1
        exact, alone = by_method[EXACT][0], by_method[ALONE][0]
        assert exact.mean > alone.mean  # type: ignore[union-attr]
        # one object at a time, from 200 steps, is far above what guessing has
        assert by_method[OBJECTWISE][1].mean > 0.6  # type: ignore[union-attr]


def test_the_same_seed_gives_the_same_figures() -> None:
    models = {ADDITIVE: AdditiveFilter(Trace(), Linear(), regularization=0.1)}
    first, again, other = (
        identities.one_run(SMALL, 3, np.random.SeedSequence(seed), models) for seed in (2, 2, 3)
    )
    assert first == again
    assert first != other


def test_settings_are_chosen_once_and_fixed() -> None:
    seed = np.random.SeedSequence(0)
    model = identities.chosen(SMALL, 3, CHORDAL, seed)
    assert isinstance(model.kernel_state, Chordal)
    assert model.validation is None
    for name in ("regularization", "posterior_regularization", "power"):
        assert isinstance(getattr(model, name), float)


def test_it_reads_and_draws(outcome: experiments.Outcome) -> None:
    assert "an object at a time" in repr(outcome)
    assert outcome.to_json()
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    outcome.plot()
    pyplot.close("all")


@pytest.mark.slow
def test_quick() -> None:
    outcome = experiments.run("identities", quick=True, progress=False)
    for table in outcome.tables:
        figures = {row[0]: row[1:] for row in table.rows}
        best = figures[OBJECTWISE][-1].mean  # type: ignore[union-attr]
        assert best > 0.7
        assert best > figures[ALONE][0].mean + 0.1  # type: ignore[union-attr]
        assert best < figures[EXACT][0].mean + 0.02  # type: ignore[union-attr]
