"""The record that axes keep of what is drawn on them."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import plots
from meanmap.plots import sheet
from meanmap.plots.sheet import Mark


@pytest.fixture
def ax() -> Any:
    return plots.sheets(Figure())


def only(ax: Any) -> Mark:
    (mark,) = ax.marks
    return mark


def test_lines_and_clouds(ax: Any) -> None:
    ax.plot([1, 2, 3], [4.0, np.nan, 6.0], "o", [7, 8], label="two lines")
    ax.plot([], [])
    ax.scatter([1.0, 2.0], [3.0, 4.0])
    first, second, cloud = ax.marks
    assert_array_equal(first.points, [[1, 4], [2, np.nan], [3, 6]])
    assert_array_equal(second.points, [[0, 7], [1, 8]])
    assert_array_equal(cloud.points, [[1, 3], [2, 4]])
    assert (first.count, second.count, cloud.count) == (3, 0, 2)  # each line is a single path
    assert first.label == "two lines" and cloud.label == ""
    assert [mark.order for mark in ax.marks] == [sheet.LINES, sheet.LINES, sheet.AREAS]


def test_a_name_may_come_later(ax: Any) -> None:
    (line,) = ax.plot([1, 2])
    assert only(ax).label == ""
    line.set_label("late")
    assert only(ax).label == "late"


def test_levels(ax: Any) -> None:
    ax.axhline(2.0, label="across")
    ax.axvline(3.0, ymin=0.5)
    across, up = ax.marks
    assert (across.level, up.level) == ("y", "x")
    assert_array_equal(across.boxes, [[0, 2, 1, 2]])
    assert_array_equal(up.boxes, [[3, 0.5, 3, 1]])
    assert_array_equal(up.points, [[3, 0.75]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"yerr": 0.5}, ["2.5 to 3.5", "3.5 to 4.5"]),
        ({"yerr": [[0.5, 1.0], [1.0, 2.0]]}, ["2.5 to 4", "3 to 6"]),
        ({"xerr": [0.25, np.nan]}, ["0.75 to 1.25", ""]),
        ({}, []),
    ],
)
def test_error_bars(ax: Any, given: dict[str, Any], words: list[str]) -> None:
    ax.errorbar([1.0, 2.0], [3.0, 4.0], label="bars", **given)
    assert only(ax).remarks == words and only(ax).label == "bars"
    assert_array_equal(only(ax).points, [[1, 3], [2, 4]])


def test_error_bars_alone_have_no_points(ax: Any) -> None:
    ax.errorbar([1.0, 2.0], [3.0, 4.0], 0.5, fmt="none")
    assert len(only(ax).points) == 0 and only(ax).artists


def test_bars(ax: Any) -> None:
    ax.bar(["a", "b"], [1.0, 3.0], 0.5, yerr=[0.5, 0.25], label="share")
    mark = only(ax)  # the whiskers are a part of it
    assert mark.label == "share" and mark.remarks == ["0.5 to 1.5", "2.75 to 3.25"]
    assert ax.words["x"] == {0.0: "a", 1.0: "b"}
    assert_array_equal(mark.boxes, [[-0.25, 0, 0.25, 1], [0.75, 0, 1.25, 3]])
    assert_array_equal(mark.points, [[0, 1], [1, 3]])
    assert len(mark.artists) == 3  # two bars and their whiskers


def test_bars_to_the_right_on_others(ax: Any) -> None:
    ax.barh([1, 2], [5.0, 6.0], left=[10.0, 20.0], align="edge")
    mark = only(ax)
    assert mark.along == 1 and mark.values is not None
    assert_array_equal(np.column_stack(mark.values), [[5, 1.4], [6, 2.4]])
    assert_allclose(mark.boxes, [[10, 1, 15, 1.8], [20, 2, 26, 2.8]])
    assert_allclose(mark.points, [[15, 1.4], [26, 2.4]])


@pytest.mark.parametrize("orientation", ["vertical", "horizontal"])
def test_bars_stand_where_matplotlib_draws_them(ax: Any, orientation: str) -> None:
    rng = np.random.default_rng(0)
    ax.hist(rng.normal(size=100), 7, label="counts", orientation=orientation)
    mark = only(ax)
    assert mark.label == "counts" and len(mark.spans) == 7 and mark.boxes is not None
    for patch, box in zip(mark.artists, mark.boxes, strict=True):
        assert_allclose(patch.get_bbox().extents, box, atol=1e-12)


def test_cells(ax: Any) -> None:
    ax.pcolormesh(np.arange(3.0), np.arange(2.0), [[7.0, 8.0, 9.0], [1.0, 2.0, np.nan]])
    ax.imshow([[1.0, 2.0], [3.0, 4.0]])
    ax.imshow(np.zeros((2, 2, 3)))  # colours, not numbers
    mesh, image = ax.marks
    assert_array_equal(mesh.points, [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]])
    assert_array_equal(mesh.heights, [7, 8, 9, 1, 2, np.nan])
    assert_array_equal(image.points, [[0, 0], [1, 0], [0, 1], [1, 1]])
    assert_array_equal(image.heights, [1, 2, 3, 4])


def test_words_at_ticks(ax: Any) -> None:
    ax.set_yticks([0, 1], ["one\ntwo", r"\$3"])
    assert ax.words["y"] == {0.0: "one two", 1.0: "$3"}
    ax.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], [1, 2])
    assert list(ax.words["x"].values()) == ["2024-01-01", "2024-01-03"]
    assert np.diff(only(ax).points[:, 0]) == 2


def test_twins_keep_a_record_and_clearing_ends_it(ax: Any) -> None:
    twin = ax.twinx()
    twin.plot([1, 2])
    assert len(twin.marks) == 1 and ax.marks == []
    twin.clear()
    assert twin.marks == [] and twin.words == {"x": {}, "y": {}}


def test_what_is_not_in_units_of_the_axes_is_not_recorded(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], transform=ax.transAxes)
    assert ax.marks == []


def test_figures_can_be_pickled(ax: Any) -> None:
    ax.bar(["a"], [1.0])
    again = pickle.loads(pickle.dumps(ax.figure))
    assert len(again.axes[0].marks) == 1


def test_new_axes_keep_a_record() -> None:
    import matplotlib.pyplot as plt

    made = [plots.axes(), *plots.panels(None, 2), *plots.stacked_axes(None, 2)]
    assert all(isinstance(one, sheet.Sheet) for one in made)
    plt.close("all")
