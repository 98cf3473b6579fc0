"""Every statistic and null, where the data lie far from the origin or come in other units.

MMD, HSIC and related statistics are distances between distributions: moving all points changes none
of them, and other units change none of the default kernels' p-values. The shifts and scales used
here are exact, so that results can be compared with those at the origin.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from meanmap import (
    conditional_independence_test,
    conditional_two_sample_test,
    goodness_of_fit_test,
    hsic,
    independence_test,
    joint_independence_test,
    mmd,
    two_sample_test,
)
from meanmap.comparison import (
    Block,
    Full,
    Permutation,
    RunningIndependenceTest,
    RunningTwoSampleTest,
    Sequential,
    Wild,
    counterfactual_effect,
)
from meanmap.kernels import (
    Energy,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from meanmap.spaces import Explicit, PivotedCholesky, RandomFourier
from meanmap.statistics import compress, conditional_mmd, hscic, joint_hsic, stein_discrepancy

OFFSETS = (300.0, -1e5, 1e8)
UNITS = (1e-9, 1e9)
WIDE = (200.0, 1e4, 1e6)
# kernels whose distances stay the same when all points move
KERNELS = {
    "linear": Linear(),
    "linear with a constant": Linear() + 1,
    "scaled linear": 3.0 * Linear(),
    "linear and Gaussian": Linear() + Gaussian(1.0),
    "median": Gaussian(),
    "narrow": Gaussian(0.2),
    "wide": Gaussian(200.0),
    "very wide": Gaussian(1e5),
    "Laplace": Laplace(1.0),
    "Matérn": Matern(1.5, 2.0),
    "rational quadratic": RationalQuadratic(1.0, 2.0),
    "energy": Energy(),
}
SWEPT = ("linear", "linear and Gaussian", "median", "narrow", "wide", "very wide", "energy")
TWO_SAMPLE: dict[str, dict[str, Any]] = {
    "permutation": {},
    "permutation, V": {"estimator": "V"},
    "bins": {"null": Permutation(20)},
    "full": {"null": "full"},
    "block": {"null": Block(2)},
    "wild": {"null": Wild(2)},
    "gamma": {"null": "gamma"},
    "spectral": {"null": "spectral"},
    "sequential": {"null": Sequential()},
    "linear": {"estimator": "linear"},
    "blocks": {"estimator": "block"},
    "incomplete": {"estimator": "incomplete"},
    "normal": {"estimator": "block", "null": "normal"},
}
INDEPENDENCE: dict[str, dict[str, Any]] = {
    "permutation": {},
    "permutation, V": {"estimator": "V"},
    "bins": {"null": Permutation(15)},
    "full": {"null": "full"},
    "full, without memory": {"null": Full(max_memory=100), "n_permutations": 20},
    "block": {"null": Block(2)},
    "wild": {"null": Wild(2)},
    "gamma": {"null": "gamma"},
    "spectral": {"null": "spectral"},
    "sequential": {"null": Sequential()},
}


def pair(n: int = 30, effect: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in two columns that depend on each other, unless `effect` is 0."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, n, 2))
    return x, effect * x + 0.5 * noise


def same(found: Any, expected: Any, apart: float = 0.011) -> None:
    """One statistic and one p-value, up to what the data themselves lost by being moved."""
    assert_allclose(found.statistic, expected.statistic, rtol=1e-4)
    assert_allclose(found.pvalue, expected.pvalue, rtol=1e-3, atol=apart)


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kernel", SWEPT)
@pytest.mark.parametrize("settings", TWO_SAMPLE)
def test_two_samples_far_away(settings: str, kernel: str, offset: float) -> None:
    x, y = pair()
    for Y in (y, y + 1.5):
        arguments = {"kernel": KERNELS[kernel], "n_permutations": 99, "rng": 0}
        arguments |= TWO_SAMPLE[settings]
        here = two_sample_test(x, Y, **arguments)
        same(two_sample_test(x + offset, Y + offset, **arguments), here)
    if "narrow" not in kernel and settings not in ("linear", "normal"):
        assert here.pvalue <= 0.02


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kernel", SWEPT)
@pytest.mark.parametrize("settings", INDEPENDENCE)
def test_independence_far_away(settings: str, kernel: str, offset: float) -> None:
    k = KERNELS[kernel]
    for effect in (0.0, 1.0):
        x, y = pair(effect=effect)
        arguments = {"kernel": k, "n_permutations": 99, "rng": 0}
        arguments |= INDEPENDENCE[settings]
        here = independence_test(x, y, **arguments)
        # the limit's draws are others as soon as one eigenvalue more is told from 0
        apart = 0.15 if settings == "spectral" else 0.011
        same(independence_test(x + offset, y - offset, **arguments), here, apart)
    if "narrow" not in kernel:
        assert here.pvalue <= 0.05


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("basis", [PivotedCholesky(1e-12), Explicit(), RandomFourier(50, 0)])
def test_in_coordinates_far_away(basis: Any, offset: float) -> None:
    x, y = pair()
    k: Kernel = Linear() if isinstance(basis, Explicit) else Gaussian(2.0)
    same(
        two_sample_test(x + offset, y + 1.5 + offset, k, basis=basis, rng=0),
        two_sample_test(x, y + 1.5, k, basis=basis, rng=0),
    )
    same(
        independence_test(x + offset, y + offset, k, basis=basis, rng=0),
        independence_test(x, y, k, basis=basis, rng=0),
    )


@pytest.mark.parametrize("change", [*OFFSETS, *UNITS])
def test_default_kernels_in_other_places_and_units(change: float) -> None:
    x, y = pair()
    move: Callable[[np.ndarray], np.ndarray]
    move = (lambda v: change * v) if change in UNITS else (lambda v: change + v)
    for test, samples in (
        (two_sample_test, (x, y + 1.5)),
        (independence_test, (x, y)),
        (joint_independence_test, (x, y, x[::-1])),
        (conditional_independence_test, (x, y, x[::-1])),
        (conditional_two_sample_test, (x[:20], y[:20], x[20:], y[20:] + 2)),
        (counterfactual_effect, (x[:20], y[:20], x[20:], y[20:] + 2)),
    ):
        here = test(*samples, n_permutations=199, rng=0)
        there = test(*map(move, samples), n_permutations=199, rng=0)
        assert here.pvalue <= 0.05
        assert_allclose(there.pvalue, here.pvalue, atol=0.006)


@pytest.mark.parametrize("bandwidth", WIDE)
@pytest.mark.parametrize("settings", TWO_SAMPLE)
def test_two_samples_with_a_wide_kernel_as_with_a_linear_one(
    settings: str, bandwidth: float
) -> None:
    # exp(-‖x - x'‖²/2σ²) goes to 1 - ‖x - x'‖²/2σ², whose distances are those of ⟨x, x'⟩/σ²
    x, y = pair()
    arguments = {"n_permutations": 99, "rng": 0} | TWO_SAMPLE[settings]
    linear = two_sample_test(x, y + 1.5, Linear(), **arguments)
    wide = two_sample_test(x, y + 1.5, Gaussian(bandwidth), **arguments)
    assert_allclose(wide.statistic * bandwidth**2, linear.statistic, rtol=0.01)
    assert_allclose(wide.pvalue, linear.pvalue, rtol=0.1, atol=0.01)


@pytest.mark.parametrize("bandwidth", WIDE)
@pytest.mark.parametrize("settings", INDEPENDENCE)
def test_independence_with_a_wide_kernel_as_with_a_linear_one(
    settings: str, bandwidth: float
) -> None:
    x, y = pair()
    arguments = {"n_permutations": 99, "rng": 0} | INDEPENDENCE[settings]
    k = Gaussian(bandwidth)
    linear = independence_test(x, y, Linear(), **arguments)
    wide = independence_test(x, y, k, **arguments)
    assert_allclose(wide.statistic * bandwidth**4, linear.statistic, rtol=0.01)
    assert_allclose(wide.pvalue, linear.pvalue, rtol=0.1, atol=0.01)


@pytest.mark.parametrize("bandwidth", WIDE)
def test_conditional_tests_with_a_wide_kernel(bandwidth: float) -> None:
    x, y = pair(80)
    k, z = Gaussian(bandwidth), np.random.default_rng(1).normal(size=(80, 1))
    assert conditional_independence_test(x, y, z, (k, k, None), rng=0).pvalue <= 0.005
    halves = x[:40], y[:40], x[40:], y[40:] + 2
    assert conditional_two_sample_test(*halves, (None, k), rng=0).pvalue <= 0.005
    assert counterfactual_effect(*halves, (None, k), rng=0).pvalue <= 0.005


@pytest.mark.parametrize("offset", [0.0, *OFFSETS])
@pytest.mark.parametrize("kernel", ["linear", "median", "wide", "very wide", "energy"])
def test_running_tests_far_away(kernel: str, offset: float) -> None:
    x, y = pair(100)
    k = KERNELS[kernel]
    two = RunningTwoSampleTest(k).partial_fit(x + offset, y + 1.5 + offset).result()
    one = RunningIndependenceTest(k).partial_fit(x + offset, y + offset).result()
    assert_allclose(two.statistic, mmd(x, y + 1.5, k, "V"), rtol=1e-4)
    assert_allclose(one.statistic, hsic(x, y, k, k, "V"), rtol=1e-4)
    assert max(two.pvalue, one.pvalue) < 1e-4


@pytest.mark.parametrize("offset", [0.0, 300.0, -1e5])
@pytest.mark.parametrize("memory", [None, 100])
def test_joint_independence_far_away(offset: float, memory: int | None) -> None:
    # not the same as at the origin: with linear kernels E xyz sees pairs through the others' means
    x, y = (part[:, :1] for part in pair(60))
    z = x + np.random.default_rng(1).normal(size=(60, 1))
    parts = [part + offset for part in (x, y, z)]
    exact = [[Fraction(float(v)) for v in part[:, 0]] for part in parts]
    product = sum(a * b * c for a, b, c in zip(*exact, strict=True)) / 60
    means = [sum(part) / 60 for part in exact]
    expected = float((product - means[0] * means[1] * means[2]) ** 2)
    linear = [Linear()] * 3
    null = Full(max_memory=memory)
    found = joint_independence_test(*parts, kernel=linear, null=null, rng=0, n_permutations=99)
    assert_allclose(found.statistic, expected, rtol=1e-4)
    assert_allclose(joint_hsic(*parts, kernels=linear), expected, rtol=1e-4)
    assert offset == 0 or found.pvalue <= 0.01


@pytest.mark.parametrize("bandwidth", WIDE)
def test_joint_independence_with_a_wide_kernel(bandwidth: float) -> None:
    x, y = pair(30)
    z = np.random.default_rng(1).normal(size=(30, 1))
    parts, k = (x, y, z), Gaussian(bandwidth)
    found = joint_independence_test(*parts, kernel=k, rng=0, n_permutations=99)
    pairs = sum(hsic(parts[i], parts[j], k, k, "V") for i, j in ((0, 1), (0, 2), (1, 2)))
    assert_allclose(found.statistic, pairs, rtol=0.01)  # what all three share is of higher order
    basis = PivotedCholesky(1e-14)
    landmarks = joint_independence_test(*parts, kernel=k, rng=0, basis=basis)
    assert found.pvalue <= 0.01 and (landmarks.pvalue <= 0.01 or bandwidth > 200)


@pytest.mark.parametrize("offset", [300.0, -1e5])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_goodness_of_fit_far_away(offset: float, unit: float) -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    there = unit * (x + offset)
    for law in (stats.norm(offset * unit, unit), stats.norm((offset + 1) * unit, unit)):
        mean = law.mean() / unit - offset
        for null in ("wild", "spectral"):
            here = goodness_of_fit_test(x, stats.norm(mean, 1), null=null, rng=0)
            found = goodness_of_fit_test(there, law, null=null, rng=0)
            same(found, here)
    assert found.pvalue <= 0.01
    assert_allclose(
        stein_discrepancy(there, law) * unit**2, stein_discrepancy(x, stats.norm(1, 1)), rtol=1e-6
    )


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_statistics_far_away(kernel: str, offset: float) -> None:
    x, y = pair(60)
    k = KERNELS[kernel].resolve(x)
    for estimator in ("U", "V", "linear", "block", "incomplete"):
        expected = mmd(x, y + 1.5, k, estimator)
        assert_allclose(
            mmd(x + offset, y + 1.5 + offset, k, estimator), expected, rtol=1e-4, atol=1e-15
        )
    for estimator in ("U", "V", "normalized"):
        expected = hsic(x, y, k, k, estimator)
        assert_allclose(hsic(x + offset, y - offset, k, k, estimator), expected, rtol=1e-4)
    few, there = compress(x, 10, k, rng=0), compress(x + offset, 10, k, rng=0)
    if np.array_equal(few.indices, there.indices):
        assert_allclose(there.mmd, few.mmd, rtol=1e-3, atol=1e-15)


@pytest.mark.parametrize("kernel", KERNELS)
def test_conditional_statistics_far_away(kernel: str) -> None:
    x, y = pair(60)
    z, k = np.random.default_rng(1).normal(size=(60, 1)), KERNELS[kernel].resolve(x)

    def both(offset: float) -> list[float]:
        X, Y = x + offset, y + offset
        halves = z[:30], Y[:30], z[30:], Y[30:] + 1
        return [hscic(X, Y, z, None, k, k), conditional_mmd(*halves, None, None, k)]

    # 1 - k is 1e-10 under the very wide kernel, known to six digits, and sums cancel
    precision = 1e-2 if kernel == "very wide" else 1e-3
    for offset in OFFSETS[1:]:
        assert_allclose(both(offset), both(OFFSETS[0]), rtol=precision)
    # weights of a conditional embedding need not sum to one, so that the mean plays a part
    assert_allclose(both(0.0), both(OFFSETS[0]), rtol=1.0)


@pytest.mark.parametrize("degree", [2, 3])
def test_polynomial_kernels_far_away(degree: int) -> None:
    x, y = pair()
    k = Polynomial(degree)
    for offset in (0.0, 30.0, 300.0):
        assert two_sample_test(x + offset, y + 1.5 + offset, k, rng=0).pvalue <= 0.005
        for null in ("permutation", "full", Wild(1), "gamma"):  # the rows are independent
            found = independence_test(x + offset, y + offset, k, null, rng=0)
            assert found.pvalue <= 0.01


# --- nothing to find ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e5 + 0.1])
@pytest.mark.parametrize("kernel", SWEPT)
def test_rounding_of_a_constant_is_no_effect(kernel: str, value: float) -> None:
    constant, k = np.full((30, 2), value), KERNELS[kernel]
    y = pair(30)[1]
    for settings in TWO_SAMPLE.values():
        settings = {"n_permutations": 99} | settings
        found = two_sample_test(constant, constant[:20], k, rng=0, **settings)
        assert found.pvalue == 1.0
    for settings in INDEPENDENCE.values():
        settings = {"n_permutations": 99} | settings
        assert independence_test(constant, y, k, rng=0, **settings).pvalue == 1.0
    assert hsic(constant, y, k, k, "normalized") == 0.0
    assert conditional_independence_test(constant, y, y[::-1], (k, k, None), rng=0).pvalue == 1.0


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e5 + 0.3])
def test_ties_are_ties_far_away(offset: float) -> None:
    # four points a sample, two of a kind: 70 exchanges with few distinct values
    X, Y = (np.array([[0.0], [0.0], [1.0], [1.0]]) + offset for _ in range(2))
    for kernel in (Linear(), Gaussian(1.0), Gaussian(1e4), Energy()):
        assert two_sample_test(X, Y, kernel, rng=0).pvalue == 1.0
        counts = two_sample_test(X, Y + np.array([[0], [0], [0], [1]]), kernel, rng=0)
        assert counts.pvalue * 70 == pytest.approx(round(counts.pvalue * 70))
