"""Which kernels a test tries by itself: whitened ones, and their weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from meanmap import independence_test, two_sample_test
from meanmap.comparison import candidates
from meanmap.comparison.candidates import Candidates, paired_weights, whiten
from meanmap.kernels import Delta, Energy, Gaussian, Linear
from meanmap.kernels.domains.whitened import Whitened


def zero_sum(rng: np.random.Generator, n: int) -> np.ndarray:
    a = rng.normal(size=n)
    return a - a.mean()


@pytest.mark.parametrize("kernel", [Gaussian(1.2), Energy(), Linear()], ids=str)
def test_whitening_is_the_inner_product_with_the_regularised_inverse(kernel: Gaussian) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ np.diag([3.0, 0.5])
    found = whiten(kernel, X, rng)
    K, n = kernel(X), len(X)
    centring = np.eye(n) - 1 / n
    s, U = np.linalg.eigh(centring @ K @ centring / n)  # variances along the eigenfunctions
    ridge = candidates.SHARE * s.sum()
    strong = s > candidates.SHARE * ridge
    gain = np.where(strong, s / (s + ridge), 0.0)
    for _ in range(5):
        a = zero_sum(rng, n)
        # Σ s/(1 + s/λ) over strong directions, plain s over the weak ones
        expected = a @ K @ a - np.sum(gain * n * s * (U.T @ a) ** 2)
        assert_allclose(a @ found(X) @ a, expected, rtol=1e-8)
    assert np.linalg.eigvalsh(found(X)).min() > -1e-9
    assert_allclose(found.diagonal(X), np.diag(found(X)), rtol=1e-12)


def test_whitened_labels_are_pearsons_chi_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a delta kernel and λ → 0, MMD is χ² of the table over (n + m), times λ."""
    monkeypatch.setattr(candidates, "SHARE", 1e-9)
    rng = np.random.default_rng(1)
    X = rng.choice(list("abcd"), 50, p=[0.5, 0.3, 0.15, 0.05])
    Y = rng.choice(list("abcd"), 70, p=[0.3, 0.3, 0.3, 0.1])
    pooled = np.concatenate([X, Y])
    kernel = whiten(Delta(), pooled, rng)
    a = np.repeat([1 / 50, -1 / 70], [50, 70])
    shares = np.unique(pooled, return_counts=True)[1] / 120
    ridge = 1e-9 * (1 - np.sum(shares**2))
    table = [[np.sum(part == label) for label in "abcd"] for part in (X, Y)]
    chi2 = stats.chi2_contingency(table, correction=False).statistic
    # the kernel is λ times that of the inner product, and χ² is ‖·‖² / (1/n + 1/m)
    assert_allclose(a @ kernel(pooled) @ a / ridge / (1 / 50 + 1 / 70), chi2, rtol=1e-4)


@pytest.mark.parametrize("n", [5, 40, 100])
def test_labels_that_never_repeat_have_equal_variances(n: int) -> None:
    rng = np.random.default_rng(n)
    labels = np.array([f"person {i}" for i in range(n)])
    kernel, a = whiten(Delta(), labels, rng), zero_sum(rng, n)
    s, ridge = 1 / n, candidates.SHARE * (1 - 1 / n)
    assert_allclose(a @ kernel(labels) @ a, a @ a * ridge / (s + ridge), rtol=1e-12)


def test_landmarks_stand_for_many_points() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1500, 2))
    some, all_ = whiten(Gaussian(1.5), X, rng), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "LANDMARKS", 1500)
        all_ = whiten(Gaussian(1.5), X, rng)
    assert len(some.landmarks) == 200 and len(all_.landmarks) == 1500
    a = zero_sum(rng, 1500)
    assert_allclose(a @ some(X) @ a, a @ all_(X) @ a, rtol=1e-3)


@pytest.mark.parametrize("points", [np.ones((9, 2)), np.arange(2.0)[:, None]])
def test_there_may_be_nothing_to_whiten(points: np.ndarray) -> None:
    kernel = whiten(Gaussian(1.0), points, np.random.default_rng(0))
    assert np.isfinite(kernel(points)).all()


def test_the_choice_does_not_know_the_labels() -> None:
    """Exchanging the samples changes the sign of the witness and nothing else."""
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(20, 2)), rng.normal(0.3, 1.0, size=(20, 2))
    one, other = two_sample_test(X, Y, rng=0), two_sample_test(Y, X, rng=0)
    assert_allclose(one.statistic, other.statistic, rtol=0.2)
    assert_allclose(one.witness(X), -other.witness(X), atol=1e-12)


def test_what_is_tried_by_default() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 2))
    paired = Candidates.of(None, X, False, "X")
    kinds = [type(k) for k in paired.resolve(X, rng, True)]
    assert kinds == [Energy, Gaussian, Whitened, Gaussian]
    labels = Candidates.of(None, list("abab"), False, "X")
    assert [type(k) for k in labels.resolve(np.array(list("abab")), rng)] == [Whitened]
    assert np.count_nonzero(paired_weights(paired, paired).reshape(4, 4)) == 4
    assert paired_weights(paired, labels).shape == (4,)
    # one null has one kernel, and the median is then plain
    assert isinstance(two_sample_test(X, X + 1, null="gamma").kernel, Gaussian)
    result = independence_test(X, X[:, 0] > 0, (None, Delta()), rng=0, n_permutations=99)
    assert "4 HSICs combined" in result.method
