"""Sums where the points live: the same answers as on the host, in tiles of a device's size.

Where there is no CUDA device torch's arrays on the host stand in for one: what is special about a
device here is the size of tiles, who holds the sums, and which library does the arithmetic. Fused
kernels need the real thing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from array_libraries import INSTALLED, Library, host, library
from meanmap import (
    ApproximationWarning,
    ConditionalEmbedding,
    SettingWarning,
    arrays,
    embed,
    fused,
    hsic,
    independence_test,
    mmd,
    two_sample_test,
)
from meanmap.arrays import in_blocks
from meanmap.comparison import Block, Groups, Wild
from meanmap.kernels import Energy, Gaussian, Laplace, Matern
from meanmap.statistics import tiles
from optional_packages import require

DEVICES = [name for name in ("torch-cuda", "cupy") if name in INSTALLED]


@pytest.fixture(params=DEVICES or ["torch"])
def there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A library whose arrays count as an accelerator's, with small tiles."""
    found = library(request.param)
    if request.param == "torch":
        monkeypatch.setattr(arrays, "HOSTS", frozenset())
    for module in (arrays, tiles):
        monkeypatch.setattr(module, "DEVICE_SIDE", 300)
    assert arrays.on_accelerator(found.asarray(np.zeros((2, 1))))
    yield found


def samples(n: int, m: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, d)), 1.1 * rng.normal(size=(m, d))


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("kernel", [Gaussian(), Laplace(1.0), Matern(1.5, 2.0), Energy()])
def test_mmd_and_hsic(there: Library, kernel: Any, estimator: str) -> None:
    X, Y = samples(700, 650)
    A, B = there.asarray(X), there.asarray(Y)
    assert_allclose(mmd(A, B, kernel, estimator), mmd(X, Y, kernel, estimator), rtol=1e-9)
    Y = Y[: len(X) - 50]
    X = X[: len(Y)]
    A, B = there.asarray(X), there.asarray(Y)
    truth = hsic(X, Y, kernel, kernel, estimator)
    assert_allclose(hsic(A, B, kernel, kernel, estimator), truth, rtol=1e-9, atol=1e-12)


NULLS = {
    "permutation": {},
    "full": {"kernel": Gaussian()},
    "block": {"null": Block(5)},
    "wild": {"null": Wild(4)},
    "gamma": {"kernel": Gaussian()},
    "spectral": {"kernel": Gaussian(), "n_permutations": 50},
}


@pytest.mark.parametrize("null", NULLS)
def test_two_samples(there: Library, null: str) -> None:
    X, Y = samples(620, 650, 2)
    options = {"null": null, "rng": 3, "n_permutations": 199} | NULLS[null]
    truth = two_sample_test(X, Y, **options)
    found = two_sample_test(there.asarray(X), there.asarray(Y), **options)
    assert found.pvalue == pytest.approx(truth.pvalue, rel=1e-9)
    assert found.statistic == pytest.approx(truth.statistic, rel=1e-8)
    assert found.kernel == truth.kernel


def test_groups_of_all_sizes(there: Library) -> None:
    X, Y = samples(350, 400, 1)
    groups = np.random.default_rng(0).integers(60, size=350), 60 + np.arange(400) // 7
    truth = two_sample_test(X, Y, null=Groups(groups), rng=0)
    found = two_sample_test(there.asarray(X), there.asarray(Y), null=Groups(groups), rng=0)
    assert found.pvalue == truth.pvalue


@pytest.mark.parametrize("null", ["permutation", "gamma", "full"])
def test_dependence(there: Library, null: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(653, 2))
    Y = X[:, :1] ** 2 + 8 * rng.normal(size=(653, 1))
    options = {"null": null, "rng": 3, "n_permutations": 99}
    if null != "permutation":
        options |= {"kernel": (Gaussian(), Laplace())}
    truth = independence_test(X, Y, **options)
    found = independence_test(there.asarray(X), there.asarray(Y), **options)
    assert found.pvalue == pytest.approx(truth.pvalue, rel=1e-9)
    assert found.statistic == pytest.approx(truth.statistic, rel=1e-8)


def test_labels_stay_on_the_host_beside_points_that_do_not(there: Library) -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(900, 2)), rng.choice(list("ab"), size=900)
    truth = independence_test(X, y, rng=0)
    assert independence_test(there.asarray(X), y, rng=0).pvalue == truth.pvalue


def test_single_precision_exchanges_single_points(there: Library) -> None:
    """0 and 1 go through half precision in two parts, which lose next to nothing."""
    X, Y = samples(750, 800)
    truth = two_sample_test(X, Y, Gaussian(1.0), "full", 99, rng=0)
    parts = (there.asarray(part.astype(np.float32)) for part in (X, Y))
    found = two_sample_test(*parts, Gaussian(1.0), "full", 99, rng=0)
    assert found.pvalue == truth.pvalue
    assert found.statistic == pytest.approx(truth.statistic, abs=1e-7)


def test_a_witness_answers_where_it_is_asked(there: Library) -> None:
    X, Y = samples(600, 700, 1)
    found = two_sample_test(there.asarray(X), there.asarray(Y), rng=0)
    truth = two_sample_test(X, Y, rng=0)
    at = np.linspace(-2, 2, 9)[:, None]
    answer = found.witness(there.asarray(at))
    assert there.owns(answer)
    assert_allclose(host(answer), truth.witness(at), atol=1e-10)
    found.plot()


def test_sums_over_tiles(there: Library) -> None:
    X, Y = samples(1700, 1400)
    e = embed(there.asarray(X), Gaussian(1.0))
    assert there.owns(e(there.asarray(Y)))
    assert_allclose(host(e(there.asarray(Y))), embed(X, Gaussian(1.0))(Y), rtol=1e-9)
    V = np.random.default_rng(0).normal(size=(1400, 7))
    product = Matern(2.5, 1.0).matmul(*(there.asarray(part) for part in (X, Y, V)))
    assert_allclose(host(product), Matern(2.5, 1.0)(X, Y) @ V, rtol=1e-8, atol=1e-10)


def test_blocks_are_halved_when_memory_runs_out() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    sizes = []

    def work(size: int) -> int:
        sizes.append(size)
        if size > 1000:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return size

    with pytest.warns(SettingWarning, match="blocks of 512 rows"):
        assert in_blocks(work, 2048) == 512
    assert sizes == [2048, 1024, 512]

    def never(size: int) -> None:
        raise OutOfMemoryError("CUDA out of memory")

    with pytest.warns(SettingWarning, match="ran out of memory"), pytest.raises(OutOfMemoryError):
        in_blocks(never, 1024)
    with pytest.raises(ZeroDivisionError):
        in_blocks(lambda size: 1 // 0, 1024)


def test_a_device_that_is_full(there: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that fails half-way is begun again, and counts nothing twice."""

    class OutOfMemoryError(RuntimeError):
        pass

    for module in (arrays, tiles):  # tiles that can be halved twice
        monkeypatch.setattr(module, "DEVICE_SIDE", 600)
    X, Y = samples(1400, 1300)
    truth = mmd(X, Y, Gaussian(1.0))
    plain, calls = tiles.total, []

    def crowded(tile: Any, axis: Any = None) -> Any:
        calls.append(tile.shape[0])
        if len(calls) in (3, 5):
            raise OutOfMemoryError("out of memory")
        return plain(tile, axis)

    monkeypatch.setattr(tiles, "total", crowded)
    with pytest.warns(SettingWarning, match="ran out of memory"):
        found = mmd(there.asarray(X), there.asarray(Y), Gaussian(1.0))
    assert found == pytest.approx(truth, rel=1e-9)


needs_triton = pytest.mark.skipif(
    not fused.is_installed(), reason="triton is not installed, or there is no CUDA device for it"
)


@needs_triton
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 3, 10, 33])
@pytest.mark.parametrize(
    "kernel", [Gaussian(1.3), Laplace(0.8), Matern(0.5, 1.1), Matern(1.5, 2.0), Matern(2.5, 0.7)]
)
def test_fused_kernels(kernel: Any, d: int, dtype: Any) -> None:
    X, Y = samples(2300, 2100, d)
    X[:50] = Y[:50]  # distance 0, where roots magnify rounding
    kernel = kernel.set_params(bandwidth=kernel.bandwidth * d**0.5)
    there, V = library("torch-cuda"), np.random.default_rng(1).normal(size=(2100, 3))
    A, B, W = (there.asarray(part.astype(dtype)) for part in (X, Y, V))
    assert fused.fits(A, B)
    truth = kernel(X, Y)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    assert_allclose(host(kernel(A, B)), truth, atol=tolerance)
    assert_allclose(host(kernel.matmul(A, B, W)), truth @ V, atol=100 * tolerance)
    assert_allclose(host(kernel.matmul(A, B, W[:, 0])), truth @ V[:, 0], atol=100 * tolerance)
    again = kernel.matmul(A, B, W)
    assert np.array_equal(host(again), host(kernel.matmul(A, B, W)))


@pytest.mark.parametrize("kernel", [Gaussian(1.3), Laplace(0.8), Matern(2.5, 0.7)])
@needs_triton
def test_fused_sums_over_labels(kernel: Any) -> None:
    X, _ = samples(2500, 5, 4)
    there, rng = library("torch-cuda"), np.random.default_rng(0)
    points, labels = there.asarray(X.astype(np.float32)), rng.integers(2, size=(2500, 24))
    found, _ = tiles.labelled_gram(
        tiles.Family([kernel]), points, there.asarray(labels.astype(np.uint8))
    )
    truth = np.sum(labels * (kernel(X) @ labels), axis=0)
    assert_allclose(found[0], truth, rtol=5e-7)


def test_halves_keep_22_bits() -> None:
    torch = require("torch")
    rng = np.random.default_rng(0)
    tile = torch.asarray((50 * rng.normal(size=(70, 90)) ** 3).astype(np.float32))
    tile /= tile.abs().max()
    both = fused.halves(tile)
    back = both[:, :90].double() + both[:, 90:].double() / fused.BITS
    assert float((back - tile.double()).abs().max()) < 2e-7


def test_two_devices_meet_on_that_of_the_model() -> None:
    there = library("torch-cuda")
    X, Y = samples(60, 60, 2)
    model = ConditionalEmbedding().fit(there.asarray(X), there.asarray(Y))
    near = library("torch").asarray(X[:5])
    assert there.owns(model.predict(near))
    assert_allclose(host(model.predict(near)), host(model.predict(there.asarray(X[:5]))))
    assert mmd(there.asarray(X), library("torch").asarray(Y)) == pytest.approx(mmd(X, Y))


def test_products_cut_to_ten_bits_are_told() -> None:
    there = library("torch-cuda")
    torch = sys.modules["torch"]
    X = there.asarray(samples(20, 20, 2)[0].astype(np.float32))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with pytest.warns(ApproximationWarning, match="allow_tf32 = False"):
            mmd(X, X + 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mmd(X.double(), X.double() + 1.0)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_jax_with_cut_products_on_a_device_is_told() -> None:
    there = library("jax")
    jax = sys.modules["jax"]
    X = there.asarray(samples(20, 20, 2)[0].astype(np.float32))
    if next(iter(X.devices())).platform == "cpu":
        pytest.skip("jax finds no accelerator, and on the CPU it keeps every bit")
    with (
        jax.default_matmul_precision("default"),
        pytest.warns(ApproximationWarning, match="matmul_precision"),
    ):
        mmd(X, X + 1.0)


JAX = """
import warnings
warnings.simplefilter("error")
import jax, jax.numpy as jnp, numpy as np
from meanmap import ConditionalEmbedding, embed, two_sample_test
jax.config.update("jax_default_matmul_precision", "highest")
rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(60, 2)))
Y = X[:, :1] + 0.3 * jnp.asarray(rng.normal(size=(60, 1)))
e = embed(X)
assert e.norm().dtype == e(X).dtype == e.mode().dtype == jnp.float32
assert embed(jnp.arange(6).reshape(3, 2)).mean().dtype == jnp.float32
found = ConditionalEmbedding().fit(X, Y)
assert found.predict(X).dtype == jnp.float32
assert found.posterior(e).given(Y[:3]).mean().dtype == jnp.float32
wide = ConditionalEmbedding().fit(np.asarray(X, dtype=float), np.asarray(Y, dtype=float))
assert abs(np.asarray(found.predict(X)) - wide.predict(np.asarray(X, dtype=float))).max() < 1e-3
assert two_sample_test(X, X + 1.0, rng=0).pvalue < 0.01
"""


@pytest.mark.slow
def test_jax_as_it_comes_works_in_single_precision_without_a_word() -> None:
    library("jax")
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", JAX],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
