"""Automatic choices and quantiles: what they cost beside one fit.

Peers of this package have no such functions; the yardstick is our own fit, and a number of seconds.
"""

from __future__ import annotations

import numpy as np
from harness import Contestant, Row, main, race

from meanmap import ConditionalEmbedding
from meanmap.kernels import Gaussian


def run() -> list[Row]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    Y = np.sin(X[:, :1]) + 0.3 * rng.normal(size=(2000, 1))

    def fit(regularization: float | str, kernel: Gaussian | None = None) -> ConditionalEmbedding:
        return ConditionalEmbedding(kernel, regularization=regularization).fit(X, Y)

    times = race(
        {
            "fixed": Contestant(lambda: fit(1e-4)),
            "auto": Contestant(lambda: fit("auto")),
            "loo": Contestant(lambda: fit("auto", Gaussian("loo"))),
        },
        rounds=3,
    )
    fixed, auto, loo = (times[name].seconds for name in ("fixed", "auto", "loo"))
    posterior = fit(1e-3).posterior(X[:1000] * 0.5).given(Y[0])
    one = ConditionalEmbedding(regularization=1e-3).fit(Y[:1000], X[:1000]).given(Y[0])
    q = rng.uniform(size=10_000)

    def quantiles() -> None:
        one.normalized().quantile(q)  # a fresh belief: nothing is cached

    seconds = race({"quantiles": Contestant(quantiles)}, rounds=5)["quantiles"].seconds
    assert np.isfinite(posterior.quantile(0.5)).all()
    return [
        Row(
            "λ by leave-one-out over 28 values and fit, n = 2,000, d = 5",
            "one fit with λ given",
            auto,
            fixed,
            inverse=True,
            bar="≤ 2 fits' time",
            holds=auto <= 2 * fixed,
        ),
        Row(
            "bandwidth and λ by leave-one-out and fit, 7 × 28 values",
            "one fit with λ given",
            loo,
            fixed,
            inverse=True,
            bar="≤ 10 fits",
            holds=loo <= 10 * fixed,
        ),
        Row(
            "10,000 quantiles of one posterior, n = 1,000, 5 coordinates",
            "the bar",
            seconds,
            0.1,
            inverse=True,
            bar="≤ 0.1 s",
            holds=seconds <= 0.1,
        ),
    ]


if __name__ == "__main__":
    main(__file__, "what automatic choices and quantiles cost", run, {})
