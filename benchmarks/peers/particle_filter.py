"""The bootstrap filter of `particles` on (b): seconds a step and the error, as JSON."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import particles
from particles import distributions as dists
from particles import state_space_models as ssm


def transition(x: np.ndarray) -> np.ndarray:
    """The oscillation of Fukumizu, Song and Gretton (2013, 5.3), θ the angle of the state."""
    theta = np.arctan2(x[:, 1], x[:, 0]) + 0.4
    radius = 1 + 0.4 * np.sin(8 * theta)
    return np.stack([radius * np.cos(theta), radius * np.sin(theta)], axis=1)


def noise(mean: np.ndarray) -> object:
    return dists.MvNormal(loc=mean, cov=0.04 * np.eye(2))


class Oscillation(ssm.StateSpaceModel):
    """The true model."""

    def PX0(self):
        return dists.MvNormal(loc=np.zeros(2), cov=0.5 * np.eye(2))

    def PX(self, t, xp):
        return noise(transition(xp))

    def PY(self, t, xp, x):
        return noise(x)


def main() -> None:
    data = np.load(sys.argv[1])
    number, best = int(sys.argv[2]), float("inf")
    for turn in range(4):
        np.random.seed(turn)  # noqa: NPY002
        feynman = ssm.Bootstrap(ssm=Oscillation(), data=data["observations"])
        smc = particles.SMC(fk=feynman, N=number)
        means, begun = [], time.perf_counter()
        for _ in range(len(data["observations"])):
            next(smc)
            means.append(smc.W @ smc.X)
        best = min(best, (time.perf_counter() - begun) / len(means))
    error = float(((np.stack(means) - data["truth"]) ** 2).sum(axis=1).mean())
    print(json.dumps({"seconds": best, "error": error}))


if __name__ == "__main__":
    main()
