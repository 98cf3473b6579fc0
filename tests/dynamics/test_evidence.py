"""How likely observations were, against the exact evidence of a linear Gaussian model."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap import AdditiveFilter, KernelBayesFilter, SpectralFilter

FILTERS = [KernelBayesFilter, AdditiveFilter, SpectralFilter]
RHO = 0.95


def autoregression(T: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States of variance one with correlation ρ from step to step, and noisy observations."""
    rng = np.random.default_rng(seed)
    s = np.empty(T)
    s[0] = rng.normal()
    for t in range(1, T):
        s[t] = RHO * s[t - 1] + np.sqrt(1 - RHO**2) * rng.normal()
    return s[:, None], (s + noise * rng.normal(size=T))[:, None]


def exact(observations: np.ndarray, noise: float) -> np.ndarray:
    """log p(o_t | o_1..t-1) - log p(o_t), by the Kalman filter; NaN is missing."""
    m, P, found = 0.0, 1.0, []
    for o in observations[:, 0]:
        S, whole = P + noise**2, 1 + noise**2
        seen = not np.isnan(o)
        ratio = -(np.log(S) + (o - m) ** 2 / S) / 2 + (np.log(whole) + o**2 / whole) / 2
        found.append(ratio if seen else 0.0)
        if seen:
            m, P = m + P / S * (o - m), P - P**2 / S
        m, P = RHO * m, RHO**2 * P + 1 - RHO**2
    return np.array(found)


@cache
def fitted(kind: Any, noise: float, scale: float = 1.0, shift: float = 0.0) -> Any:
    states, observations = autoregression(1000, noise, 0)
    given = (shift + scale * observations,)
    return kind(validation=None).fit(*given if kind is SpectralFilter else (states, *given))


@pytest.mark.parametrize("noise", [0.1, 0.3])
@pytest.mark.parametrize("kind", FILTERS)
def test_the_sum_is_near_the_exact_evidence(kind: Any, noise: float) -> None:
    for seed in (1, 2):
        _, test = autoregression(1000, noise, seed)
        found = fitted(kind, noise).filter(test).log_evidence
        assert_allclose(found.sum(), exact(test, noise).sum(), rtol=0.2)


def test_noise_as_large_as_the_signal() -> None:
    """The other two filters forecast less well here, and their evidence is less."""
    _, test = autoregression(1000, 1.0, 1)
    found = fitted(KernelBayesFilter, 1.0).filter(test).log_evidence
    assert_allclose(found.sum(), exact(test, 1.0).sum(), rtol=0.2)


@pytest.mark.parametrize("kind", FILTERS)
def test_single_steps_follow_the_exact_ones(kind: Any) -> None:
    _, test = autoregression(500, 0.3, 3)
    found, truth = fitted(kind, 0.3).filter(test).log_evidence, exact(test, 0.3)
    assert np.corrcoef(found, truth)[0, 1] > 0.8


@pytest.mark.parametrize("kind", FILTERS)
def test_units_do_not_matter(kind: Any) -> None:
    _, test = autoregression(300, 0.3, 1)
    plain = fitted(kind, 0.3).filter(test).log_evidence
    other = fitted(kind, 0.3, 1000.0, 5e4).filter(5e4 + 1000 * test).log_evidence
    assert_allclose(other, plain, atol=1e-2)


@pytest.mark.parametrize("far", [10.0, 40.0, -1e4])
@pytest.mark.parametrize("kind", FILTERS)
def test_an_outlier_is_very_unlikely(kind: Any, far: float) -> None:
    _, test = autoregression(60, 0.3, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = fitted(kind, 0.3).filter(test).log_evidence
        test[30] = far
        found = fitted(kind, 0.3).filter(test).log_evidence
    assert found[30] < -20
    assert_allclose(found[:30], plain[:30], atol=1e-9)  # later ones know of it
    assert found[31:].sum() > plain[31:].sum() - 15


@pytest.mark.parametrize("kind", FILTERS)
def test_after_a_gap_less_is_expected(kind: Any) -> None:
    _, test = autoregression(400, 0.3, 4)
    test[np.arange(400) % 40 >= 20] = np.nan  # every observation after a gap says little
    found, truth = fitted(kind, 0.3).filter(test).log_evidence, exact(test, 0.3)
    assert (found[np.isnan(test[:, 0])] == 0).all()
    after = np.arange(40, 400, 40)
    assert found[after].min() > -3 and found[after].max() < 3
    assert_allclose(found.sum(), truth.sum(), rtol=0.25)


@pytest.mark.parametrize("kind", FILTERS)
def test_a_stream_adds_up_what_a_track_has(kind: Any) -> None:
    _, test = autoregression(40, 0.3, 5)
    test[[0, 7, 8, 20]] = np.nan
    model = fitted(kind, 0.3)
    stream = model.start()
    for row in test:
        stream.step(row)
    assert_allclose(stream.log_evidence, model.filter(test).log_evidence.sum(), atol=1e-8)


@pytest.mark.parametrize("kind", FILTERS)
def test_unrelated_observations_have_evidence_near_nothing(kind: Any) -> None:
    rng = np.random.default_rng(0)
    states, seen, test = rng.normal(size=(3, 500, 1))
    model = kind(validation=None).fit(*((seen,) if kind is SpectralFilter else (states, seen)))
    assert abs(model.filter(test).log_evidence.mean()) < 0.1


@pytest.mark.parametrize("kind", [KernelBayesFilter, AdditiveFilter])
def test_correlated_noise_in_several_columns(kind: Any) -> None:
    """The second column has nothing but the noise of the first, which it takes away."""
    rng = np.random.default_rng(0)

    def run(T: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        s, _ = autoregression(T, 0.0, seed)
        e = rng.normal(size=(T, 1))
        return s, np.hstack([s + e + 0.3 * rng.normal(size=(T, 1)), e])

    model = kind(validation=None).fit(*run(800, 0))
    _, test = run(800, 1)
    alone = kind(validation=None).fit(*(part[:, :1] for part in run(800, 0)))
    assert model.filter(test).log_evidence.sum() > alone.filter(test[:, :1]).log_evidence.sum() + 50
