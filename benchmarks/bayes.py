"""The posterior for a new prior and a new y, against the dense form of kernel Bayes' rule.

Fukumizu, Song and Gretton (2013), Figure 1 (its factor n left out, without which it does not equal
their operator): n = 2000 pairs in d = 2, the data of their section 5.1. The peer's Gram matrices
and the prior's mean on the sample are computed outside the clock; ours embeds the new prior inside
it, and both end with the n weights of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import scipy.linalg
import scipy.spatial.distance
from harness import Contestant, Row, child, imported, main, peer_threads, race, say

N, D = 2000, 2
LAMBDA, DELTA = 1e-3, 1e-4
PRIORS = 3  # different priors and observations, taken in turn


@dataclass(frozen=True)
class Data:
    """Pairs, and priors with an observation each."""

    X: np.ndarray
    Y: np.ndarray
    priors: list[np.ndarray]
    observations: np.ndarray
    bandwidths: tuple[float, float]


def data() -> Data:
    """Section 5.1: (X, Y) ~ N((0, 1), V) with V = AᵀA + 2I; priors N(shift, V_XX/2)."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2 * D, 2 * D))
    V = A.T @ A + 2 * np.eye(2 * D)
    mean = np.concatenate([np.zeros(D), np.ones(D)])
    pairs = rng.multivariate_normal(mean, V, size=N)
    X, Y = np.ascontiguousarray(pairs[:, :D]), np.ascontiguousarray(pairs[:, D:])
    shifts = rng.normal(scale=0.3, size=(PRIORS, D))
    priors = [rng.multivariate_normal(shift, V[:D, :D] / 2, size=N) for shift in shifts]
    return Data(X, Y, priors, Y[rng.choice(N, PRIORS)], (median(X), median(Y)))


def median(points: np.ndarray) -> float:
    """The median distance of pairs among the first 1000 points."""
    return float(np.median(scipy.spatial.distance.pdist(points[:1000])))


def gaussian(A: np.ndarray, B: np.ndarray, bandwidth: float) -> np.ndarray:
    """The peer's own Gram matrix."""
    squares = (A * A).sum(1)[:, None] + (B * B).sum(1)[None, :] - 2 * A @ B.T
    return np.exp(squares / (-2 * bandwidth**2))


class Dense:
    """Figure 1 with its Gram matrices at hand."""

    def __init__(self, sample: Data) -> None:
        sigma_x, sigma_y = sample.bandwidths
        self.Y, self.sigma_y = sample.Y, sigma_y
        self.G_X = gaussian(sample.X, sample.X, sigma_x)
        self.G_Y = gaussian(sample.Y, sample.Y, sigma_y)
        self.means = [gaussian(sample.X, U, sigma_x).mean(axis=1) for U in sample.priors]
        self.shifted = self.G_X + N * LAMBDA * np.eye(N)

    def k_Y(self, y: np.ndarray) -> np.ndarray:
        """The vector k_Y(y)."""
        difference = self.Y - y
        return np.exp(np.einsum("ij,ij->i", difference, difference) / (-2 * self.sigma_y**2))

    def mu(self, prior: int) -> np.ndarray:
        """Step 2, (G_X + nεI)⁻¹ m_Π."""
        return scipy.linalg.solve(
            self.shifted, self.means[prior], assume_a="pos", check_finite=False
        )

    def squared(self, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ΛG_Y, and (ΛG_Y)² + δI."""
        LG = mu[:, None] * self.G_Y
        M = LG @ LG
        M.flat[:: N + 1] += DELTA
        return LG, M

    def R(self, prior: int) -> np.ndarray:
        """Steps 2 and 3: R_X|Y = ΛG_Y ((ΛG_Y)² + δI)⁻¹ Λ."""
        mu = self.mu(prior)
        LG, M = self.squared(mu)
        return LG @ scipy.linalg.solve(M, np.diag(mu), overwrite_a=True, check_finite=False)

    def posterior(self, prior: int, y: np.ndarray) -> np.ndarray:
        """All of Figure 1: ρ = R_X|Y k_Y(y)."""
        return self.R(prior) @ self.k_Y(y)

    def posterior_at(self, prior: int, y: np.ndarray) -> np.ndarray:
        """The same ρ by one right-hand side, which the paper does not do: no R for the next y."""
        mu = self.mu(prior)
        LG, M = self.squared(mu)
        right = mu * self.k_Y(y)
        return LG @ scipy.linalg.solve(M, right, overwrite_a=True, check_finite=False)


class Ours:
    """The same through coordinates."""

    def __init__(self, sample: Data) -> None:
        from meanmap import ConditionalEmbedding
        from meanmap.kernels import Gaussian

        kernel_x, kernel_y = map(Gaussian, sample.bandwidths)
        self.model = ConditionalEmbedding(kernel_x, kernel_y, regularization=LAMBDA)
        self.model.fit(sample.X, sample.Y)

    def operator(self, prior: np.ndarray) -> Any:
        """P(X|Y) under a prior sample."""
        from meanmap import embed

        embedded = embed(prior, kernel=self.model.kernel_x_)
        return self.model.posterior(embedded, method="squared", regularization=DELTA)

    def posterior(self, prior: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The posterior's weights on the sample."""
        return self.operator(prior).given(y).weights


def run() -> list[Row]:
    sample = data()
    say("Gram matrices and fit")
    dense, ours = Dense(sample), Ours(sample)
    spaces = ours.model.space_x_, ours.model.space_y_
    say(f"ranks {spaces[0].rank_} and {spaces[1].rank_}; the same embedding?")
    agreement = 0.0
    for j, (prior, y) in enumerate(zip(sample.priors, sample.observations, strict=True)):
        rho = dense.posterior(j, y)
        difference = ours.posterior(prior, y) - rho
        error = difference @ dense.G_X @ difference / (rho @ dense.G_X @ rho)
        agreement = max(agreement, float(error) ** 0.5)
    same = agreement <= 1e-6
    note = f"same embedding to {agreement:.1e} in RKHS norm (≤ 1e-6), {PRIORS} priors"

    say("new prior and new y")
    turns = cycle(range(PRIORS))

    def mine() -> Any:
        j = next(turns)
        return ours.posterior(sample.priors[j], sample.observations[j])

    def by(form: Any) -> Any:
        j = next(turns)
        return form(j, sample.observations[j])

    threads = peer_threads()
    best = race(
        {
            "ours": Contestant(mine, calls=20),
            "dense": Contestant(lambda: by(dense.posterior), threads),
            "one": Contestant(lambda: by(dense.posterior_at), threads),
        },
        rounds=3,
    )
    new_prior = best["ours"].seconds

    say("same prior, new y")
    operator, R = ours.operator(sample.priors[0]), dense.R(0)
    queries = cycle(sample.Y[:200])
    mean_y = operator.functional(lambda x: x[:, 0])
    f_R = sample.X[:, 0] @ R
    same_prior = race(
        {
            "ours": Contestant(lambda: operator.given(next(queries)).weights, calls=20),
            "R": Contestant(lambda: R @ dense.k_Y(next(queries)), threads, calls=20),
            "functional": Contestant(lambda: mean_y(next(queries)), calls=20),
            "f_R": Contestant(lambda: f_R @ dense.k_Y(next(queries)), threads, calls=20),
        },
        rounds=20,
    )

    say("same prior, many y")
    many = sample.Y[:1000]
    batch = race(
        {
            "ours": Contestant(lambda: operator.given(many).weights),
            "R": Contestant(lambda: R @ gaussian(sample.Y, many, dense.sigma_y), threads),
        },
        rounds=5,
    )

    say("memory")
    memory = {name: child("bayes.py", name)[1] for name in JOBS}

    def row(work: str, peer: str, mine: float, theirs: Any, **more: Any) -> Row:
        return Row(work, peer, mine, theirs.seconds, peer_threads=theirs.threads, **more)

    return [
        row(
            f"new prior, new y (squared, n = {N}, d = {D})",
            "Figure 1, dense, Gram matrices given",
            new_prior,
            best["dense"],
            ours_memory=memory["ours"],
            peer_memory=memory["dense"],
            note=note,
            bar="≥ 100×, same to 1e-6",
            holds=best["dense"].seconds >= 100 * new_prior and same,
        ),
        row(
            "the same",
            "the same with one right-hand side instead of R",
            new_prior,
            best["one"],
        ),
        row(
            "same prior, new y",
            "R precomputed: k_Y(y), then R k_Y(y)",
            same_prior["ours"].seconds,
            same_prior["R"],
            bar="≥ 3×",
            holds=same_prior["R"].seconds >= 3 * same_prior["ours"].seconds,
        ),
        row(
            f"same prior, {len(many):,} new y at once",
            "R precomputed, one matrix product",
            batch["ours"].seconds,
            batch["R"],
        ),
        row(
            "same prior, new y, E[x₁ | y] by `functional`",
            "fᵀR precomputed (their section 4.1)",
            same_prior["functional"].seconds,
            same_prior["f_R"],
        ),
    ]


def ours_once() -> None:
    import meanmap  # noqa: F401

    imported()
    sample = data()
    Ours(sample).posterior(sample.priors[0], sample.observations[0])


def dense_once() -> None:
    imported()
    sample = data()
    Dense(sample).posterior(0, sample.observations[0])


JOBS = {"ours": ours_once, "dense": dense_once}

if __name__ == "__main__":
    main(__file__, "posterior for a new prior and a new y", run, JOBS)
