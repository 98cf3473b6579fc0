"""A sample thinned so that its embedding hardly moves: kernel halving, splitting, swapping.

Dwivedi and Mackey (2024, Kernel thinning), with the recursion of Shetty, Dwivedi and Mackey (2022,
Distribution compression in near-linear time) where there are many points.
"""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Points, count, spans, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL

WHOLE = 4096  # points that are halved at once, at most
START = 128  # points of the first blocks, at least
FAILURE = 0.5  # δ: the guarantee holds but with this probability, which costs a logarithm
HELD = 1 << 22  # inner products in memory at a time
MOST = 6  # rounds after which all halves are kept, and the best taken
PASSES = 3  # over the points to be swapped
CHOICE = 8192  # points that a swap chooses from, at most


def thin_sample(
    kernel: Kernel, points: Points, weights: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of n points, with repetition, whose plain average is near to the weighted one.

    `weights` are not negative and sum to one. From a sequence of n·2ʳ points r times every second
    one goes. Up to `WHOLE` points that is kernel thinning; more are halved in blocks, four blocks
    merged before the next halving. At last points are swapped for better ones.
    """
    parts = 1 << max(0, int(n - 1).bit_length() - 10)
    more = -(-n // parts) * parts  # can be shared out among blocks of a moderate length
    order = sequence(weights, more, rng)
    rounds = (len(order) // more).bit_length() - 1
    last = min(rounds, MOST, max(0, (WHOLE // more).bit_length() - 1))
    order = compress_order(kernel, points, order, rounds - last, rng)
    coresets = split_order(kernel, points, order, last, rng)[:, :n]
    choice = _choice(order, coresets, np.flatnonzero(weights > 0), rng)
    values = to_numpy(kernel.gram_times(take(points, choice), points, weights)).astype(np.float64)
    place = np.searchsorted(choice, coresets)
    best = _nearest(kernel, take(points, choice), values, place)
    return choice[swap_points(kernel, take(points, choice), values, best)]


def sequence(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n·2ʳ points in order, each as often as its weight says up to one: systematic resampling.

    Equal weights of n·2ʳ points give each once; else at least twice as long as there are points, so
    that rounding a weight matters little.
    """
    size = len(weights)
    rounds = int(np.ceil(np.log2(size / n) - 1e-12))
    if n << rounds != size or np.ptp(weights) > 1e-12 / size:
        rounds += 1
    length = n << rounds
    edges = np.cumsum(weights)
    at = (np.arange(length) + rng.random()) / length * edges[-1]
    return np.minimum(np.searchsorted(edges, at, side="right"), size - 1)


def compress_order(
    kernel: Kernel, points: Points, order: np.ndarray, rounds: int, rng: np.random.Generator
) -> np.ndarray:
    """2^-rounds of a sequence: blocks are merged by four, then halved, and so on."""
    if rounds == 0:
        return order
    size = len(order)
    blocks = 1
    # as many blocks as the rounds will merge, of an even length
    while blocks < 4**rounds and size % (4 * blocks) == 0 and size >= 2 * START * blocks:
        blocks *= 2
    part = order.reshape(blocks, -1)
    for turn in range(rounds):
        if turn:
            merged = 4 if len(part) % 4 == 0 else 2 if len(part) % 2 == 0 else 1
            while merged > 1 and merged * part.shape[1] > WHOLE and part.shape[1] % 2 == 0:
                merged //= 2
            part = part.reshape(len(part) // merged, -1)
        left, right = halve(kernel, points, part, rng, FAILURE / size)
        # either half by the toss of a coin, so that no error is passed on twice
        part = np.where(rng.random(len(part))[:, None] < 0.5, left, right)
    return part.ravel()


def split_order(
    kernel: Kernel, points: Points, order: np.ndarray, rounds: int, rng: np.random.Generator
) -> np.ndarray:
    """2^rounds coresets, one per row, by halving both halves every time (Algorithm 1a)."""
    part = order[None, :]
    for turn in range(rounds):
        failure = FAILURE / len(order) * 2**turn / rounds
        left, right = halve(kernel, points, part, rng, failure)
        part = np.stack([left, right], axis=1).reshape(2 * len(part), -1)
    return part


def halve(
    kernel: Kernel, points: Points, blocks: np.ndarray, rng: np.random.Generator, failure: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of every block (row), of which each pair of neighbours has one point in each."""
    pairs = blocks.shape[1] // 2
    uniform = rng.random((len(blocks), pairs))
    signs = np.empty((len(blocks), pairs))
    for some in spans(len(blocks), max(1, HELD // pairs**2)):
        F = np.stack([differences(kernel, take(points, block)) for block in blocks[some]])
        signs[some] = walk(F, uniform[some], failure)
    first, second = blocks[:, 0::2], blocks[:, 1::2]
    stays = signs > 0
    return np.where(stays, first, second), np.where(stays, second, first)


def differences(kernel: Kernel, points: Points) -> np.ndarray:
    """`⟨fᵢ, fⱼ⟩` of fᵢ = k(x₂ᵢ, ·) - k(x₂ᵢ₊₁, ·)."""
    size = count(points)
    compare = kernel.against(points)
    F = np.empty((size // 2, size // 2))
    for rows in spans(size, 512):
        K = to_numpy(compare(take(points, rows), ALL, None)).astype(np.float64)
        across = K[:, 0::2] - K[:, 1::2]
        F[rows.start // 2 : rows.stop // 2] = across[0::2] - across[1::2]
    return F


def walk(F: np.ndarray, uniform: np.ndarray, failure: float) -> np.ndarray:
    """Signs ±1 that keep `‖Σ εᵢ fᵢ‖` small, for every F of a batch: the self-balancing walk.

    Dwivedi and Mackey's kernel halving (2024, Algorithm 2): -1 is the likelier the more fᵢ points
    along the sum so far, and sure beyond the threshold a, which follows a bound σ of the sum.
    """
    signs = np.zeros(uniform.shape)
    variance = np.zeros(len(F))  # σ²
    logarithm = 2 * np.log(2 / failure)
    for i in range(uniform.shape[1]):
        b = np.maximum(F[:, i, i], 0.0)  # ‖fᵢ‖²
        a = np.maximum(np.sqrt(b * variance * logarithm), b)
        safe = np.where(a > 0, a, 1.0)  # equal points: either
        growth = 1 + (b - 2 * safe) * variance / safe**2
        variance = variance + b * np.maximum(growth, 0.0)
        alpha = np.einsum("bj,bj->b", F[:, i, :i], signs[:, :i])
        signs[:, i] = np.where(uniform[:, i] <= (1 - alpha / safe) / 2, 1.0, -1.0)
    return signs


def _choice(
    order: np.ndarray, coresets: np.ndarray, others: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The points that swaps choose from: those left after halving, and others up to `CHOICE`."""
    kept = np.unique(coresets)
    more = np.setdiff1d(order, kept)
    rest = np.setdiff1d(others, order)
    drawn = [rng.permutation(part) for part in (more, rest)]
    room = max(0, CHOICE - len(kept))
    return np.sort(np.concatenate([kept, *drawn])[: len(kept) + room])


def _nearest(
    kernel: Kernel, points: Points, values: np.ndarray, coresets: np.ndarray
) -> np.ndarray:
    """The coreset (row) whose average is nearest to the embedding with these values."""
    if len(coresets) == 1:
        return coresets[0]
    m = coresets.shape[1]
    far = []
    for row in coresets:
        own = take(points, row)
        inside = to_numpy(kernel.gram_times(own, own, np.full(m, 1 / m))).mean()
        far.append(inside - 2 * values[row].mean())
    return coresets[int(np.argmin(far))]


def swap_points(
    kernel: Kernel, points: Points, values: np.ndarray, coreset: np.ndarray
) -> np.ndarray:
    """Each point in turn exchanged for the one that brings the average nearest (Algorithm 1b).

    In the place of xᵢ that is the z with the least `Σ_{j≠i} k(z, xⱼ) + k(z, z)/2 - m e(z)`;
    `values` are e at the points. Until a pass changes nothing, or `PASSES` of them are done.
    """
    m, chosen = len(coreset), coreset.copy()
    compare = kernel.against(points)

    def row(i: int) -> np.ndarray:
        return to_numpy(compare(take(points, np.array([i])), ALL, None))[0].astype(np.float64)

    own = take(points, chosen)
    taken = to_numpy(kernel.gram_times(points, own, np.ones(m))).astype(np.float64)
    constant = to_numpy(kernel.squared_norms(points)).astype(np.float64) / 2 - m * values
    for _ in range(PASSES):
        before = chosen.copy()
        for i in range(m):
            without = taken - row(chosen[i])
            cost = without + constant
            z = int(np.argmin(cost))
            # a swap has to gain more than rounding
            if cost[z] < cost[chosen[i]] - 1e-12 * m:
                chosen[i] = z
                taken = without + row(z)
        if (chosen == before).all():
            break
    return chosen
