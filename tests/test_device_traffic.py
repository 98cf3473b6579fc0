"""How many operations, and copies to and from the host, calls take where arrays are a device's.

On an accelerator every operation is a launch, of microseconds however small its arrays are, and
every copy waits for all launches before it. Torch counts both on the host, where its arrays stand
in for a device's. A bound that fails says that a call goes back and forth more than it did: profile
it before the bound is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from meanmap import (
    ConditionalEmbedding,
    KernelBayesFilter,
    arrays,
    embed,
    hsic,
    independence_test,
    mmd,
    two_sample_test,
)
from meanmap.decoding import quantiles
from meanmap.kernels import Gaussian
from meanmap.spaces import Nystroem
from optional_packages import require

#: What torch calls a copy to the host, one of a single number, and one of a host's array.
TO_HOST, OF_NUMBERS, FROM_HOST = "detach", "_local_scalar_dense", "lift_fresh"


class Traffic(NamedTuple):
    """Of a call: all operations, copies to the host, single numbers read, copies from the host."""

    operations: int
    to_host: int
    numbers: int
    from_host: int


def traffic(work: Callable[[], Any]) -> Traffic:
    """What a call takes."""
    require("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: Counter[str] = Counter()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            calls[function.overloadpacket.__name__] += 1
            return function(*args, **(kwargs or {}))

    with Counting():
        work()
    found = (calls[name] for name in (TO_HOST, OF_NUMBERS, FROM_HOST))
    return Traffic(sum(calls.values()), *found)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's arrays on the host count as an accelerator's."""
    require("torch")
    monkeypatch.setattr(arrays, "HOSTS", frozenset())


def tensor(values: np.ndarray) -> Any:
    return require("torch").asarray(values.astype(np.float32))


def sample(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


X, Y = sample(200), sample(200, seed=1)
CALLS: dict[str, tuple[Callable[[Any, Any], Any], Traffic]] = {
    "mmd": (mmd, Traffic(160, 14, 6, 11)),
    "hsic": (hsic, Traffic(310, 33, 7, 24)),
    "two-sample test": (
        lambda x, y: two_sample_test(x, y, "median", n_permutations=99, rng=0),
        Traffic(80, 14, 4, 6),
    ),
    "two-sample test, contrasts": (
        lambda x, y: two_sample_test(x, y, n_permutations=99, rng=0),
        Traffic(24, 12, 3, 2),
    ),
    "independence test": (
        lambda x, y: independence_test(x, y, kernel="median", n_permutations=99, rng=0),
        Traffic(380, 44, 7, 30),
    ),
    "embedding": (
        lambda x, y: embed(x, kernel=Gaussian(1.0))(y),
        Traffic(45, 3, 4, 5),
    ),
    "conditional mean": (
        lambda x, y: (
            ConditionalEmbedding(
                Gaussian(2.0), Gaussian(1.0), 1e-3, basis=(Nystroem(50, random_state=0),) * 2
            )
            .fit(x, y)
            .predict(y)
        ),
        Traffic(460, 38, 14, 20),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_calls_stay_on_the_device(name: str) -> None:
    work, most = CALLS[name]
    x, y = tensor(X), tensor(Y)
    work(x, y)  # what is computed once is not counted
    found = traffic(lambda: work(x, y))
    assert all(a <= b for a, b in zip(found, most, strict=True)), (found, most)


def test_more_points_take_no_more_operations() -> None:
    """Tiles are as large as a device's memory, not as a core's cache."""
    few, many = (
        traffic(lambda n=n: mmd(tensor(sample(n)), tensor(sample(n, seed=1)), Gaussian(1.0)))
        for n in (100, 1000)
    )
    assert many == few


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sequences", [2, 20])
def test_steps_of_filters(sequences: int) -> None:
    """A step takes as many operations for many sequences as for few, and no copies at all.

    Variances of beliefs whose weights are negative were once found on the host, step by step.
    """
    angle = np.cumsum(np.random.default_rng(0).normal(0.3, 0.1, size=300))
    states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    seen = states + 0.3 * sample(300, 2)
    settings = {"regularization": 1e-3, "posterior_regularization": 1e-3, "power": 1.0}
    model = KernelBayesFilter(**settings, validation=None)
    model.fit(tensor(states[:200]), tensor(seen[:200]))
    parts = [tensor(seen[i : i + 60]) for i in range(sequences)]

    def run(length: int) -> Traffic:
        return traffic(lambda: model.filter([part[:length] for part in parts], beliefs=False))

    run(5)
    short, long = run(20), run(60)
    assert long.to_host == short.to_host and long.from_host <= short.from_host + 2
    assert long.operations - short.operations <= 50 * 40
    assert long.numbers - short.numbers <= 3 * 40


def test_variances_of_weights_that_swing_are_the_same_on_a_device() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 2))
    weights = rng.normal(1 / 50, 0.05, size=(8, 50))
    weights /= weights.sum(axis=1, keepdims=True)
    first, second = weights @ values, weights @ values**2 - 2.0  # all negative: found anew
    truth = quantiles.variance(first, second, weights, values)
    torch = require("torch")
    found = quantiles.variance(*map(torch.asarray, (first, second, weights, values)))
    np.testing.assert_allclose(found.numpy(), truth, rtol=1e-12)
    assert (
        traffic(
            lambda: quantiles.variance(*map(torch.asarray, (first, second, weights, values)))
        ).to_host
        <= 2
    )
