"""Filters learned from recordings of different lengths, against regression and other filters.

`python benchmarks/filter_recordings.py short [--seeds 3] [--first 0] [--systems NAME …]`
    Recordings of 50, 100 and 200 steps: the root mean squared error of the default filter over that
    of regression of the state on its observation (`ConditionalEmbedding`), and the coverage of its
    90% intervals. The camera: 100 and 200 frames that are next to each other, tested on 1,800
    others; mean distances of rotations.

`python benchmarks/filter_recordings.py weighting [--runs 30] [--lengths T …]`
    The two systems of Xu, Chen, Doucet and Gretton (2022): mean squared errors of the default
    filter on 200 steps after the recording, of theirs, and of the extended Kalman filter that is
    given the equations. Theirs is `method="importance"` as they print it: Gaussian kernels of half
    the median distance, δ = 1e-4 (amid the three that they try), ε by leave-one-out, and no
    validation.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from filter_accuracy import LENGTH, LEVEL, TESTS, extended, systems, xu_systems

STEPS = (50, 100, 200)
FRAMES = (100, 200)
NOISES = (1e-3, 1e-2, 1e-1)
AFTER = 200


# --- short recordings -----------------------------------------------------------------------------


def short_recording(system: Any, steps: int, seed: int) -> tuple[float, float]:
    """The filter's error over that of regression, and its coverage."""
    from meanmap import ConditionalEmbedding, KernelBayesFilter

    rng = np.random.default_rng(seed)
    states, observations = system.recording(steps, rng)
    truth, y = system.simulate(TESTS, LENGTH, rng)
    scale = truth.std(axis=(0, 1))
    regression = ConditionalEmbedding().fit(np.concatenate(observations), np.concatenate(states))
    plain = np.stack([regression.predict(one) for one in y])
    track = KernelBayesFilter(progress=False).fit(states, observations).filter(list(y))
    low, high = track.interval(LEVEL)
    errors = [np.sqrt((((mean - truth) / scale) ** 2).mean()) for mean in (track.mean, plain)]
    return errors[0] / errors[1], float(((low <= truth) & (truth <= high)).mean())


def few_frames(start: int, frames: int, noise: float) -> tuple[float, float]:
    """Mean distances of the filter and of regression, from some frames of the camera."""
    from meanmap import ConditionalEmbedding, KernelBayesFilter
    from meanmap.kernels.domains.matrices import nearest_rotations
    from meanmap_experiments.camera import load

    R, pictures = load("room")
    rng = np.random.default_rng((start, 2009))
    pictures = pictures + np.sqrt(noise) * rng.normal(size=pictures.shape)
    train, test = slice(start, start + frames), slice(1800, 3600)
    regression = ConditionalEmbedding().fit(pictures[train], R[train])
    track = KernelBayesFilter(progress=False).fit(R[train], pictures[train])
    found = track.filter(pictures[test], beliefs=False).mean, regression.predict(pictures[test])
    gaps = [nearest_rotations(mean) - R[test] for mean in found]
    first, second = (float(np.sqrt((gap**2).sum(axis=(1, 2))).mean()) for gap in gaps)
    return first, second


def short(options: argparse.Namespace) -> None:
    """Print the table of short recordings."""
    seeds = range(options.first, options.first + options.seeds)
    known = systems()
    print("system     steps  error over that of regression: mean, largest;  coverage")
    for name in options.systems:
        for steps in STEPS:
            runs = np.array([short_recording(known[name], steps, seed) for seed in seeds])
            ratio, inside = runs.T
            print(
                f"{name:10} {steps:5}   {ratio.mean():.2f} {ratio.max():.2f}   {inside.mean():.2f}",
                flush=True,
            )
    print("camera     frames  noise  filter  regression  ratio: mean, largest")
    for frames in FRAMES:
        for noise in NOISES:
            starts = [(150 + 310 * seed) % 1600 for seed in seeds]
            runs = np.array([few_frames(start, frames, noise) for start in starts])
            ratio = runs[:, 0] / runs[:, 1]
            means = runs.mean(axis=0)
            print(
                f"camera     {frames:5}  {noise:g}  {means[0]:.3f}  {means[1]:.3f}  "
                f"{ratio.mean():.2f} {ratio.max():.2f}",
                flush=True,
            )


# --- importance weighting -------------------------------------------------------------------------


def weighting_run(system: Any, steps: int, seed: int) -> list[float]:
    """Mean squared errors of the default filter, of theirs, and of the extended Kalman filter."""
    from meanmap import KernelBayesFilter
    from meanmap.kernels import Gaussian

    states, observations = system.simulate(1, steps + AFTER, np.random.default_rng(seed))
    s, o = states[0], observations[0]
    half = Gaussian("0.5*median")
    theirs = KernelBayesFilter(
        half,
        half,
        method="importance",
        initial="uniform",
        posterior_regularization=1e-4,
        validation=None,
    )
    means = []
    for model in (KernelBayesFilter(progress=False), theirs):
        means.append(model.fit(s[:steps], o[:steps]).filter(o[steps:], beliefs=False).mean)
    means.append(extended(system, o[None, steps:])[0][0])
    return [float(((mean - s[steps:]) ** 2).sum(axis=1).mean()) for mean in means]


def weighting(options: argparse.Namespace) -> None:
    """Print the table of importance weighting."""
    print("system        steps   default          theirs           EKF    (standard errors)")
    for name, system in xu_systems().items():
        for steps in options.lengths:
            seeds = range(options.first, options.first + options.runs)
            runs = np.array([weighting_run(system, steps, seed) for seed in seeds])
            errors = runs.std(axis=0, ddof=1) / len(runs) ** 0.5
            pairs = zip(runs.mean(axis=0), errors, strict=True)
            cells = "   ".join(f"{mean:.4f} ({error:.4f})" for mean, error in pairs)
            print(f"{name:13} {steps:5}   {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", choices=["short", "weighting"])
    parser.add_argument("--systems", nargs="*", default=list(systems())[:9])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--lengths", type=int, nargs="+", default=[100, 300, 500, 700, 900])
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        {"short": short, "weighting": weighting}[options.table](options)


if __name__ == "__main__":
    main()
