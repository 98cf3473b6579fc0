"""A single wild number does not wipe out its column; a column that never varies is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanmap as mm
from meanmap.kernels import Delta, Gaussian, Laplace
from meanmap.kernels.bandwidths import median_distance
from meanmap.statistics.columns import column_moments, far_cells

N = 120
WILD = [1e6, 1e20, 1e36, 1e74]


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(2, N, 2))
    y = one[:, :1] + 0.3 * rng.normal(size=(N, 1))
    return (
        pd.DataFrame(one, columns=["a", "b"]),
        pd.DataFrame(other + [1, 0], columns=["a", "b"]),
        y,
    )


def with_cell(table: pd.DataFrame, value: float) -> pd.DataFrame:
    out = table.copy()
    out.loc[7, "a"] = value
    return out


@pytest.mark.slow
@pytest.mark.parametrize("value", [1e20, 1e74])
def test_one_wild_number_does_not_hide_a_column(data: Any, value: float) -> None:
    one, other, y = data
    wild = with_cell(one, value)
    assert mm.two_sample_test(wild, other, rng=0).pvalue <= 0.002
    assert mm.independence_test(wild, y, rng=0).pvalue <= 0.002
    report = mm.report.shift_report(wild, other, rng=0)
    assert report.overall.pvalue <= 0.01
    assert report.columns[0].name == "a" and abs(report.columns[0].difference) < 2
    model = mm.ConditionalEmbedding().fit(wild, y)
    assert np.corrcoef(model.predict(one)[:, 0], y[:, 0])[0, 1] > 0.9
    assert_array_equal(mm.HSICSelector(1).fit(wild, y[:, 0]).support_, [True, False])
    direction = (
        mm.learning.KernelDimensionReduction(1, method="gradient").fit(wild, y[:, 0]).components_[0]
    )
    assert abs(direction[0]) > 3 * abs(direction[1])


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0)], ids=repr)
@pytest.mark.parametrize("value", WILD)
def test_distances_of_other_rows_are_exact(data: Any, kernel: Any, value: float) -> None:
    table = data[0].to_numpy() + 1e3
    expected = kernel(table)
    wild = with_cell(data[0] + 1e3, value).to_numpy()
    others = np.delete(np.arange(N), 7)
    assert_allclose(
        kernel(wild)[np.ix_(others, others)], expected[np.ix_(others, others)], atol=1e-7
    )
    assert median_distance(wild) == pytest.approx(median_distance(table), rel=0.05)


@pytest.mark.parametrize("value", [1e160, -1.7e308])
def test_numbers_that_overflow_are_refused_by_cell(data: Any, value: float) -> None:
    one, other, y = data
    wild = with_cell(one, value)
    for ask in (
        lambda: mm.two_sample_test(wild, other),
        lambda: mm.independence_test(wild, y),
        lambda: mm.ConditionalEmbedding().fit(wild, y),
        lambda: mm.embed(one)(wild),
    ):
        with pytest.raises(ValueError, match=r"row 7, column 'a'.*at most 1e\+75"):
            ask()
    with pytest.raises(ValueError, match="row 7, column 0"):
        mm.embed(wild.to_numpy())
    with pytest.raises(ValueError, match=r"in 1 of 120 rows \(the first is row 7, column 'a'\)"):
        mm.embed(with_cell(one, np.nan))
    with pytest.raises(ValueError, match=r"train\['a'\].*\(row 7\)"):
        mm.report.shift_report(wild, other)


def test_moments_without_far_numbers() -> None:
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=500), rng.exponential(size=500), np.zeros(500)])
    table[3, 2] = 1.0  # many ties and one other value: nothing is far
    assert not far_cells(table).any()
    assert_array_equal(column_moments(table)[0], table.mean(axis=0))
    assert_array_equal(column_moments(table)[1], table.std(axis=0))
    wild = table.copy()
    wild[[4, 9], 0] = 9.97e36  # as a file may write missing numbers
    found = column_moments(wild)
    rest = np.delete(table[:, 0], [4, 9])
    assert found[0][0] == pytest.approx(rest.mean()) and found[1][0] == pytest.approx(rest.std())
    assert_array_equal(np.argwhere(far_cells(wild)), [[4, 0], [9, 0]])


def test_a_constant_column_is_reported(data: Any) -> None:
    one, other, y = data
    first, second = one.assign(c=3.0), other.assign(c=3.0)
    found = mm.two_sample_test(first, second, rng=0)
    assert "Column 'c' of both samples is constant" in " ".join(found.notes)
    assert "Column 'c' of both samples is constant" in " ".join(repr(found).split())
    assert not mm.two_sample_test(one, other, rng=0).notes
    assert not mm.two_sample_test(one.assign(c=3.0), other.assign(c=4.0), rng=0).notes
    arrays = mm.two_sample_test(first.to_numpy(), second.to_numpy(), rng=0)
    assert "Column 2 of both samples is constant" in " ".join(arrays.notes)
    found = mm.independence_test(first, y, rng=0)
    assert found.notes == ("Column 'c' of X is constant and has no part in the test.",)
    mixed = first.assign(d="dry", e=np.where(one["a"] > 0, "x", "y"))
    found = mm.independence_test(mixed, y, rng=0)
    assert "Columns 'c', 'd' of X are constant and have no part" in " ".join(found.notes)
    report = mm.report.shift_report(first, second, rng=0)
    assert "Column 'c' is constant in both samples" in " ".join(report.notes)


def test_a_variable_that_never_varies_is_reported(data: Any) -> None:
    y = data[2]
    words = "All 120 rows of X are equal"
    found = mm.independence_test(np.full((N, 1), 2.0), y, rng=0)
    assert found.pvalue == 1.0 and words in " ".join(found.notes)
    labels = mm.independence_test(np.full(N, "a"), y, (Delta(), None), rng=0)
    assert words in " ".join(labels.notes)
    assert "All 120 rows of Y" in " ".join(mm.independence_test(y, 0 * y, null="gamma").notes)
    same = mm.two_sample_test(np.ones((9, 2)), np.ones((8, 2)), rng=0)
    assert "All 17 rows of both samples are equal" in " ".join(same.notes)
    joint = mm.joint_independence_test(y, y**2, 0 * y, rng=0)
    assert "rows of variable 3 are equal" in " ".join(joint.notes)
