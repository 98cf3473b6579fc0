"""The limits at which a detector without drift alarms once in so many rows, by simulation.

A reference is a sample itself: its mean and its covariance are not those of the stream. So the
reference is resampled (as it was drawn from the unknown law), the detector centred and whitened on
the copy, and streams drawn from the reference as it is: run lengths then vary as those of new rows.
"""

from __future__ import annotations

import numpy as np

from meanmap.monitoring.detector import Detector, Whitening, weighted_means

COPIES = 16  # of the reference
TOGETHER = 16  # streams per copy
STEPS = 4_000_000  # rows that are simulated, and more for …
FEW = 2000  # … expected run lengths below this, which are simulated as they are
CHUNK = 64
EACH, LEAST = 4, 50  # a score alone exceeds its limit so much more rarely, if so many chunks do
BLOCK = 16  # chunks, more rows than any score remembers


def find_limits(
    detector: Detector, raw: np.ndarray, run_length: float, rng: np.random.Generator
) -> np.ndarray:
    """A limit for each score, by rate and component: one of them is exceeded after so many rows."""
    direct = run_length <= FEW
    chunk = max(1, int(run_length) // 50) if direct else CHUNK
    length = 5 * run_length if direct else STEPS / (COPIES * TOGETHER)
    maxima = np.concatenate(
        [simulate_maxima(detector, raw, int(length / chunk), chunk, rng) for _ in range(COPIES)], 1
    )
    # alone each is exceeded as rarely as any other, whatever its distribution
    chunks = maxima.shape[0] * maxima.shape[1]
    share = max(chunk / (EACH * run_length), LEAST / chunks)
    alone = np.quantile(maxima, 1 - share, axis=(0, 1))
    together = (maxima / alone).max(axis=(2, 3))
    if direct:
        return alone * _direct(together, run_length / chunk)
    return alone * _by_tail(together, run_length)


def simulate_maxima(
    detector: Detector, raw: np.ndarray, chunks: int, size: int, rng: np.random.Generator
) -> np.ndarray:
    """The largest scores of each chunk of rows (chunks, streams, rates, components).

    The streams share one copy of the reference.
    """
    n = len(raw)
    counts = rng.multinomial(n, np.full(n, 1 / n)).astype(float)
    whitening = Whitening.of(raw, detector.components, counts)
    rows = whitening.apply(raw).astype(np.float32)
    means = [np.zeros((TOGETHER, rows.shape[1]), np.float32) for _ in detector.rates]
    shape = chunks, TOGETHER, len(detector.rates), len(detector.components)
    maxima = np.empty(shape, np.float32)
    for t in range(chunks):
        drawn = rows[rng.integers(n, size=(size, TOGETHER))]
        for i, rate in enumerate(detector.rates):
            found, means[i] = weighted_means(drawn, rate, means[i])
            maxima[t, :, i] = whitening.scores(found, rate).max(axis=0)
    return maxima


def _direct(maxima: np.ndarray, run_length: float) -> float:
    """From the times at which streams first exceed a score: chunks watched per alarm."""
    highest = np.maximum.accumulate(maxima, axis=0)
    low, high = float(maxima.min()), float(maxima.max())
    for _ in range(60):
        middle = (low + high) / 2
        chunks = np.sum(highest <= middle, axis=0)
        alarms = np.sum(chunks < len(maxima))
        watched = np.sum(np.minimum(chunks + 0.5, len(maxima)))
        low, high = (middle, high) if watched < run_length * alarms else (low, middle)
    return high


def _by_tail(maxima: np.ndarray, run_length: float) -> float:
    """From the largest scores of blocks, by a curve through the log of the hazard."""
    maxima = maxima[BLOCK : len(maxima) - len(maxima) % BLOCK]  # the first have no past
    tops = np.sort(maxima.reshape(-1, BLOCK, maxima.shape[1]).max(axis=1).ravel())
    below = (np.arange(len(tops)) + 0.5) / len(tops)
    hazard = -np.log(below) / (BLOCK * CHUNK)  # alarms per row
    upper = np.arange(len(tops) // 2, len(tops) - 20)
    weights = np.sqrt(len(tops) - upper)
    fit = np.polynomial.Polynomial.fit(np.log(hazard[upper]), tops[upper], 2, w=weights)
    return float(fit(np.log(1 / run_length)))
