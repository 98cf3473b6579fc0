"""What one CUDA device does, beside its measured ceilings: `python benchmarks/gpu/bars.py`.

Prints a Markdown table a piece of work, and writes all of them to `results/gpu.md`. Times are the
best of a few rounds after a warm-up, which compiles; memory is the peak that torch allocated on the
device.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import RESULTS, line, say, show_seconds

COLUMNS = ["work", "seconds", "peak memory", "checked", "bar", "holds"]


def timed(work: Callable[[], Any], rounds: int = 3) -> tuple[float, int, Any]:
    """The best time, the peak of the device's memory, and what was found."""
    best, found = np.inf, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(rounds + 1):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            found = work()
            torch.cuda.synchronize()
            if turn:
                best = min(best, time.perf_counter() - start)
    return best, torch.cuda.max_memory_allocated(), found


def row(
    work: str, seconds: float, memory: int, note: str = "", bar: str = "", holds: bool | None = None
) -> list[str]:
    """A line of the table."""
    verdict = "" if holds is None else "yes" if holds else "**no**"
    return [work, show_seconds(seconds), f"{memory / 1e9:.2f} GB", note, bar, verdict]


def rate(dtype: torch.dtype, n: int = 8192, rounds: int = 10) -> float:
    """Operations a second of a product of n × n matrices of random numbers."""
    A, B = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    seconds, _, _ = timed(lambda: [A @ B for _ in range(rounds)], 3)
    return 2 * n**3 * rounds / seconds


def ceilings() -> list[list[str]]:
    """Matrix products and a copy."""
    rows = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = rate(dtype, rounds=10 if dtype.itemsize == 2 else 2)
        name = str(dtype).split(".")[1]
        text = f"{value / 1e12:.0f} TFLOP/s"
        rows.append([f"product of 8192 × 8192 matrices, {name}", text, "", "", "", ""])
    A = torch.empty(1 << 30, device="cuda")
    B = torch.empty_like(A)
    seconds, _, _ = timed(lambda: B.copy_(A))
    text = f"{2 * A.numel() * 4 / seconds / 1e12:.2f} TB/s"
    return [*rows, ["copy of 4 GiB, read and written", text, "", "", "", ""]]


def two_samples(n: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Ten columns, one of which is a little wider in the second sample."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, n, 10))
    Y[:, 0] *= 1 + 0.7 * n**-0.5
    return X.astype(dtype), Y.astype(dtype)


def tests() -> list[list[str]]:
    """Exact two-sample tests of 100,000 points against as many, 1,000 permutations."""
    from meanmap import two_sample_test
    from meanmap.kernels import Gaussian, Laplace, Matern

    X, Y = two_samples(5000)
    x, y = (torch.asarray(part, device="cuda") for part in (X, Y))
    wide = [torch.asarray(part) for part in two_samples(100_000)]
    ceiling = rate(torch.float16)
    rows = []
    cases = [
        ("bins, one Gaussian", {"kernel": Gaussian()}),
        ("single points, one Gaussian", {"kernel": Gaussian(), "null": "full"}),
        ("bins, the default collection", {}),
        ("bins, one Laplace", {"kernel": Laplace()}),
        ("bins, one Matérn 3/2", {"kernel": Matern()}),
    ]
    for dtype in (torch.float32, torch.float64):
        for name, options in cases:
            if dtype == torch.float64 and "Matérn" in name:
                continue
            say(f"two samples, {name}, {dtype}")
            options = {"rng": 0, "n_permutations": 1000} | options
            truth = two_sample_test(X.astype(np.float64), Y.astype(np.float64), **options)
            found = two_sample_test(x.to(dtype), y.to(dtype), **options)
            same = found.pvalue == truth.pvalue
            A, B = (part.to("cuda", dtype) for part in wide)
            seconds, memory, result = timed(partial(two_sample_test, A, B, **options), 2)
            note = (
                f"p = {result.pvalue:.3f}; at n = 5,000 p = {found.pvalue:.3f}, NumPy's "
                f"{truth.pvalue:.3f}"
            )
            of = str(dtype).split(".")[1]
            holds = bool(same and seconds <= 3 and memory < 8e9)
            bar = "≤ 3 s, < 8 GB, the same p at n = 5,000"
            work = f"two-sample test, n = m = 100,000, d = 10, B = 1,000, {name}, {of}"
            rows.append(row(work, seconds, memory, note, bar, holds))
    return [*rows, product_row(wide, ceiling)]


def product_row(wide: list[torch.Tensor], ceiling: float) -> list[str]:
    """The Gram matrix times 1,000 columns of 0 and 1, as the test by single points takes it."""
    from meanmap.kernels import Gaussian
    from meanmap.statistics.tiles import Family, labelled_gram

    say("Gram × labels")
    points = torch.cat([part.cuda() for part in wide])
    family = Family([Gaussian().resolve(points)])
    generator = torch.Generator("cuda").manual_seed(0)
    labels = torch.randint(
        0, 2, (len(points), 1000), device="cuda", dtype=torch.uint8, generator=generator
    )
    seconds, memory, _ = timed(lambda: labelled_gram(family, points, labels), 2)
    n = len(points)
    operations = 2 * 2 * (n * (n + 1) / 2) * 1000  # two halves, the upper half of the matrix
    share = operations / seconds / ceiling
    note = (
        f"{operations / seconds / 1e12:.0f} TFLOP/s in half precision, two products a tile; "
        f"ceiling {ceiling / 1e12:.0f}: {share:.0%}"
    )
    work = "upper half of the Gram matrix of 200,000 × 1,000 columns of 0 and 1"
    return row(work, seconds, memory, note, "≥ 60% of the ceiling", share >= 0.6)


def conditional() -> list[list[str]]:
    """A conditional embedding of a million rows."""
    from meanmap import ConditionalEmbedding
    from meanmap.kernels import Gaussian
    from meanmap.spaces import Nystroem

    rng = torch.Generator("cuda").manual_seed(0)
    n, rows = 1_000_000, []
    wide: tuple[float, float] | None = None  # seconds and error in double precision
    for dtype in (torch.float64, torch.float32):
        X = torch.randn(n, 10, device="cuda", generator=rng, dtype=dtype)
        noise = 0.1 * torch.randn(n, 1, device="cuda", generator=rng, dtype=dtype)
        Y = torch.sin(X[:, :1] + X[:, 1:2]) + noise
        new = torch.randn(100_000, 10, device="cuda", generator=rng, dtype=dtype)
        truth = torch.sin(new[:, 0] + new[:, 1])

        def work(X: Any = X, Y: Any = Y, new: Any = new) -> Any:
            basis = Nystroem(4096, random_state=0), Nystroem(100, random_state=0)
            model = ConditionalEmbedding(Gaussian(4.0), Gaussian(1.0), 1e-6, basis=basis)
            return model.fit(X, Y).predict(new)

        name = str(dtype).split(".")[1]
        say(f"conditional embedding, {name}")
        seconds, memory, found = timed(work, 1)
        error = float(((found[:, 0] - truth) ** 2).mean() ** 0.5)
        what = f"fit of 1,000,000 rows, d = 10, 4,096 landmarks, and 100,000 predictions, {name}"
        note = f"root mean squared error {error:.4f} (the noise has 0.1, the signal 0.7); "
        note += f"raw torch, the Gram matrix and its square: {show_seconds(raw_moments(X))}"
        bar, holds = "≤ 5 s", seconds <= 5
        if wide is not None:
            bar += ", an error ≤ 1.05 × and a speed ≥ 1.5 × that in float64"
            holds = holds and error <= 1.05 * wide[1] and wide[0] >= 1.5 * seconds
        wide = seconds, error
        rows.append(row(what, seconds, memory, note, bar, holds))
    return rows


def raw_gram(A: torch.Tensor, B: torch.Tensor, bandwidth: float) -> torch.Tensor:
    """A Gaussian Gram matrix in the fewest operations that torch has."""
    squares = torch.addmm((B * B).sum(1), A, B.T, alpha=-2.0).add_((A * A).sum(1)[:, None])
    return squares.mul_(-0.5 / bandwidth**2).exp_()


def raw_moments(X: torch.Tensor, landmarks: int = 4096, step: int = 8192) -> float:
    """Seconds of `Σ k(P, x) k(x, P)` over all rows in torch, the least that any fit computes."""

    def work() -> Any:
        total = X.new_zeros(landmarks, landmarks)
        for block in X.split(step):
            gram = raw_gram(block, X[:landmarks], 4.0)
            total.addmm_(gram.T, gram)
        return total

    return timed(work, 1)[0]


def small() -> list[list[str]]:
    """Statistics and tests of 10,000 points, where launches and the host's work count."""
    from meanmap import (
        conditional_independence_test,
        hsic,
        independence_test,
        mmd,
        two_sample_test,
    )

    X, Y = two_samples(10_000)
    half = slice(0, 5000)
    Z = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    cases: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], float]] = {
        "mmd, n = m = 10,000": (mmd, (X, Y), 4e-3),
        "hsic, n = 10,000": (hsic, (X, Y), 8e-3),
        "two_sample_test, median, n = m = 10,000, B = 1,000": (
            partial(two_sample_test, kernel="median", n_permutations=1000, rng=0),
            (X, Y),
            0.02,
        ),
        "independence_test, n = 10,000": (partial(independence_test, rng=0), (X, Y), 0.06),
        "conditional_independence_test, n = 5,000": (
            partial(conditional_independence_test, rng=0),
            (X[half, :1], Y[half, :1], Z),
            0.06,
        ),
    }
    rows = []
    for name, (call, arrays, limit) in cases.items():
        say(name)
        there = [torch.asarray(part, device="cuda") for part in arrays]
        found = call(*there)
        truth = call(*(part.astype(np.float64) for part in arrays))
        value, wanted = (getattr(each, "pvalue", each) for each in (found, truth))
        seconds, memory, _ = timed(partial(call, *there), 5)
        both = torch.cat(there[:2]) if "n = m" in name else there[0]
        ceiling = timed(lambda b=both: float(raw_gram(b, b, 4.0).sum()), 3)[0]
        ceiling *= 1 if "n = m" in name else 2
        note = f"{float(value):.5g}, NumPy's in float64 {float(wanted):.5g}; raw torch, the sum of "
        note += f"the Gram matrices: {show_seconds(ceiling)}"
        bar = f"≤ {show_seconds(limit)}"
        work = f"{name}, float32"
        rows.append(row(work, seconds, memory, note, bar, seconds <= limit))
    return rows


def filters() -> list[list[str]]:
    """A thousand filters side by side."""
    from filters import simulated

    from meanmap import KernelBayesFilter

    states, observations = simulated(1000, seed=0)
    _, new = simulated(1000, seed=1, runs=1000)
    settings = {"regularization": 1e-3, "posterior_regularization": 1e-3, "power": 1.0}
    rows = []
    for dtype in (torch.float32, torch.float64):
        data = [torch.asarray(part, device="cuda", dtype=dtype) for part in (states, observations)]
        many = [torch.asarray(part, device="cuda", dtype=dtype) for part in new]
        name = str(dtype).split(".")[1]
        say(f"filters, {name}")
        ours = KernelBayesFilter(**settings, validation=None).fit(*data)
        few = ours.filter(many[:2], beliefs=False).mean
        host = KernelBayesFilter(**settings, validation=None).fit(states, observations)
        truth = host.filter(list(new[:2]), beliefs=False).mean
        gap = float(abs(few.cpu().numpy() - truth).max())
        seconds, memory, _ = timed(lambda m=many, o=ours: o.filter(m, beliefs=False), 1)
        work = f"1,000 filters × 1,000 steps, T = 1,000, {name}"
        ranks = ours.transition_.space_x_.rank_, len(states)
        ceiling = raw_steps(*ranks, dtype)
        note = f"means as NumPy's to {gap:.1e}; raw torch, the products of matrices alone: "
        note += show_seconds(ceiling)
        rows.append(row(work, seconds, memory, note, "≤ 1.5 s", seconds <= 1.5))
    return rows


def raw_steps(rank: int, n: int, dtype: torch.dtype, steps: int = 1000, b: int = 1000) -> float:
    """Seconds of the products that b filters need: the transition, a density ratio, an update."""
    C, ratio, psi = (
        torch.randn(*s, device="cuda", dtype=dtype) for s in ((rank,) * 2, (rank, n), (n, rank))
    )
    C, ratio, psi = C / rank, ratio / n, psi / n

    def work() -> Any:
        m = torch.ones(b, rank, device="cuda", dtype=dtype)
        for _ in range(steps):
            m = ((m @ C) @ ratio) @ psi
        return m

    return timed(work, 1)[0]


def grids() -> list[list[str]]:
    """Belief propagation on a grid."""
    from loopy import COLUMNS as ACROSS
    from loopy import ROWS as DOWN
    from loopy import fields, grid

    from meanmap import BeliefPropagation
    from meanmap.graphical.evidence import FieldEvidence
    from meanmap.graphical.field import Wiring
    from meanmap.graphical.passing import Passing
    from meanmap.graphical.schedules import synchronous

    data = fields(31, np.random.default_rng(0))
    rows = []
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).split(".")[1]
        say(f"belief propagation, {name}")
        there = torch.asarray(data, device="cuda", dtype=dtype)
        model = BeliefPropagation(grid(), max_samples=500, random_state=0).fit(there[1:])

        def likelihood(value: Any) -> Any:
            return lambda x: torch.exp(-0.5 * (x[:, 0] - value) ** 2)

        evidence = {node: likelihood(there[(0, *node)]) for node in model.nodes_}
        known = FieldEvidence.of(model.potentials_, evidence, 1.0)
        wiring = Wiring.of(model.potentials_.field, known.hidden)
        passing = Passing(model.potentials_, wiring, known.alone(wiring))
        steps = synchronous(passing, passing.start(), 0.0)
        for _ in range(5):
            next(steps)
        seconds, memory, (_, moved) = timed(partial(next, steps), 10)
        work = f"an iteration, {DOWN} × {ACROSS} nodes, 500 samples, {name}"
        note = f"messages move by {moved:.1e} of their size"
        rows.append(row(work, seconds, memory, note, "≤ 20 ms", seconds <= 0.02))
    return rows


WORK = {
    "ceilings": ceilings,
    "tests": tests,
    "conditional": conditional,
    "small": small,
    "filters": filters,
    "grids": grids,
}


def main() -> int:
    """Print the tables; 1 unless every bar holds."""
    parser = argparse.ArgumentParser(description="meanmap on one CUDA device")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(WORK)}")
    names = parser.parse_args().names or list(WORK)
    if not torch.cuda.is_available():
        print("torch finds no CUDA device; these benchmarks need one.", file=sys.stderr)
        return 1
    head = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    sections, missed = [head], 0
    for name in names:
        found = WORK[name]()
        table = [line(COLUMNS), line(["---"] * len(COLUMNS)), *map(line, found)]
        sections.append("\n".join([f"## {WORK[name].__doc__}", "", *table]))
        print(sections[-1], "\n", flush=True)
        missed += sum("**no**" in cells for cells in found)
        if names == list(WORK):
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "gpu.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
