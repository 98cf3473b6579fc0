"""A mean embedding of 10⁵ points at 10⁵ others, against chunked torch float32.

Normal points in d = 3, Gaussian kernel at their median distance. Ours is `embed(X, kernel)(Q)` from
nothing, coordinates included; the peer is torch in an environment of its own, on the same cores and
the same files, with the best of several shapes of chunk. Values are compared with exact float64
sums at 1,000 of the points, relative to the largest. Most rows have no bar: `kernel.matmul`
itself, a narrow bandwidth, where coordinates cannot help, and pykeops, which computes every kernel
value as `kernel.matmul` does, on the processor.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Failure,
    Memory,
    Row,
    child,
    imported,
    interpreter,
    main,
    say,
    why,
)

N, D = 100_000, 3
CHECKED = 1_000
LIMIT = 300e6
ROUNDS = 3
TORCH = ("torch==2.13.0", "numpy")
PYKEOPS = ("pykeops==2.3", "numpy")
PRECISIONS = ("float64", "float32")


def write_data(folder: Path, narrow: float = 1.0) -> None:
    """Points, queries and bandwidth as files, which torch reads too."""
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(N, D)), rng.normal(size=(N, D))
    some = points[:1000]
    squares = ((some[:, None, :] - some[None, :, :]) ** 2).sum(axis=2)
    median = np.sqrt(np.median(squares[np.triu_indices(1000, 1)]))
    np.save(folder / "points.npy", points)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "bandwidth.npy", narrow * median)


def read_data(folder: str) -> tuple[np.ndarray, np.ndarray, float]:
    path = Path(folder)
    points, queries = np.load(path / "points.npy"), np.load(path / "queries.npy")
    return points, queries, float(np.load(path / "bandwidth.npy"))


class Truth:
    """Exact float64 sums at some of the queries, by differences."""

    def __init__(self, folder: Path) -> None:
        points, queries, bandwidth = read_data(str(folder))
        self.chosen = np.random.default_rng(1).choice(N, CHECKED, replace=False)
        self.values = np.array(
            [
                np.exp(((points - q) ** 2).sum(axis=1) / (-2 * bandwidth**2)).mean()
                for q in queries[self.chosen]
            ]
        )

    def error(self, path: Path) -> float:
        """The largest error of the values in a file, relative to the largest value."""
        values = np.load(path)[self.chosen]
        return float(abs(values - self.values).max() / self.values.max())


def embedding(points: np.ndarray, queries: np.ndarray, bandwidth: float) -> np.ndarray:
    """`embed(X)(Q)`, as a user would write it."""
    from meanmap import embed
    from meanmap.kernels import Gaussian

    return embed(points, kernel=Gaussian(bandwidth))(queries)


def blocked(points: np.ndarray, queries: np.ndarray, bandwidth: float) -> np.ndarray:
    """`kernel.matmul`: every kernel value, tile by tile."""
    from meanmap.kernels import Gaussian

    weights = np.full(len(points), 1 / len(points), dtype=points.dtype)
    return Gaussian(bandwidth).matmul(queries, points, weights)


def blocked_single(points: np.ndarray, queries: np.ndarray, bandwidth: float) -> np.ndarray:
    """The same in float32."""
    return blocked(points.astype(np.float32), queries.astype(np.float32), bandwidth)


def job(work: Any) -> Any:
    """The job of a fresh interpreter: read, compute, write, report."""

    def job(folder: str) -> dict[str, Any]:
        import meanmap

        imported()
        points, queries, bandwidth = read_data(folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", meanmap.ApproximationWarning)
            start = time.perf_counter()
            values = work(points, queries, bandwidth)
            seconds = time.perf_counter() - start
        np.save(Path(folder) / f"{work.__name__}.npy", values)
        return {"seconds": seconds, "warnings": [str(w.message) for w in caught]}

    return job


JOBS = {work.__name__: job(work) for work in (embedding, blocked, blocked_single)}


def best_of(runs: list[tuple[dict[str, Any], Memory]]) -> tuple[dict[str, Any], Memory]:
    """The fastest run, and the largest memory."""
    report = min((report for report, _ in runs), key=lambda r: r["seconds"])
    return report, max((memory for _, memory in runs), key=lambda m: m.peak)


def compare(folder: Path, names: dict[str, int], python: Path | None) -> dict[str, Any]:
    """Each of ours and torch, in fresh interpreters that take turns; `names` says how often."""
    runs: dict[str, list[Any]] = {name: [] for name in (*names, "torch")}
    for round_ in range(max(names.values())):
        for name, rounds in names.items():
            if round_ < rounds:
                runs[name].append(child("evaluate.py", name, folder))
                say(f"{name} {runs[name][-1][0]['seconds']:.2f} s, memory {runs[name][-1][1]}")
        if python is not None:
            done = child("peers/torch_sum.py", "sum", folder, N // 50, python=python)
            runs["torch"].append(done)
            say(f"torch {done[0]}, memory {done[1]}")
    return {name: best_of(done) for name, done in runs.items() if done}


def keops(folder: Path) -> tuple[dict[str, Any], str]:
    """pykeops in each precision, once, compiled before the clock starts; or why it is missing."""
    python, missing = interpreter("pykeops", *PYKEOPS)
    if python is None:
        return {}, missing
    found = {}
    try:
        for precision in PRECISIONS:
            done = child("peers/keops_sum.py", "sum", folder, precision, python=python)
            found[f"pykeops_{precision}"] = done
            say(f"pykeops {precision} {done[0]}, memory {done[1]}")
    except Failure as error:  # it needs a C++ compiler, too
        return {}, f"pykeops did not run: {why(error)}"
    return found, ""


def keops_rows(found: dict[str, Any], errors: dict[str, float], missing: str) -> list[Row]:
    """Every kernel value by us and by pykeops, and coordinates against pykeops."""
    pairs = {
        "`kernel.matmul`, float64": ("blocked", "float64"),
        "`kernel.matmul`, float32": ("blocked_single", "float32"),
        "`embed(X)(Q)`, float64": ("embedding", "float64"),
    }
    rows = []
    for work, (which, precision) in pairs.items():
        report, memory = found[which]
        note, name = f"error {errors[which]:.1e}", f"pykeops_{precision}"
        peer, peer_memory = found.get(name, ({}, None))
        rows.append(
            Row(
                work,
                missing or f"pykeops {peer['pykeops']} {precision}, on the processor",
                report["seconds"],
                peer.get("seconds"),
                ours_memory=memory,
                peer_memory=peer_memory,
                peer_threads=peer.get("threads"),
                note=note if missing else f"{note}, peer {errors[name]:.1e}",
            )
        )
    return rows


def run() -> list[Row]:
    python, missing = interpreter("torch", *TORCH)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        say("exact values")
        truth = Truth(folder)
        counts = {"embedding": ROUNDS, "blocked": 1, "blocked_single": 1}
        found = compare(folder, counts, python)
        say("pykeops")
        others, no_keops = keops(folder)
        found |= others
        errors = {name: truth.error(folder / f"{name}.npy") for name in found}
        say("a narrow bandwidth")
        write_data(folder, narrow=0.25)
        truth = Truth(folder)
        narrow = compare(folder, {"embedding": 1, "blocked": 1}, python)
        narrow_errors = {name: truth.error(folder / f"{name}.npy") for name in narrow}

    size = f"{N:,} × {N:,}, d = {D}"

    def row(work: str, which: str, runs: Any, off: dict[str, float], **more: Any) -> Row:
        report, memory = runs[which]
        note = f"error {off[which]:.1e}"
        if "torch" not in runs:
            more.pop("holds", None)  # not measured
            return Row(work, missing, report["seconds"], ours_memory=memory, note=note, **more)
        peer, peer_memory = runs["torch"]
        return Row(
            work,
            f"torch {peer['torch']} float32, chunks of {peer['chunk']}",
            report["seconds"],
            peer["seconds"],
            ours_memory=memory,
            peer_memory=peer_memory,
            peer_threads=peer["threads"],
            note=f"{note}, peer {off['torch']:.1e}",
            **more,
        )

    ours, memory = found["embedding"]
    exact = errors["embedding"] <= 1e-6
    faster = "torch" in found and ours["seconds"] < found["torch"][0]["seconds"]
    first = row(
        f"`embed(X)(Q)`, {size}",
        "embedding",
        found,
        errors,
        bar="faster than torch, to 1e-6",
        holds=faster and exact,
    )
    other = found.get("torch", (None, None))[1]
    second = Row(
        "peak memory of the same, interpreter and imports counted "
        f"({memory.imports / 1e6:.0f} MB after imports)",
        "torch, the same way" if other else missing,
        memory.peak,
        other.peak if other else None,
        unit="bytes",
        note=f"{memory.increment / 1e6:.0f} MB above imports",
        bar="< 300 MB",
        holds=memory.peak < LIMIT,
    )
    return [
        first,
        second,
        row("`kernel.matmul`, float64", "blocked", found, errors),
        row("`kernel.matmul`, float32", "blocked_single", found, errors),
        row("`embed(X)(Q)`, a quarter of the bandwidth", "embedding", narrow, narrow_errors),
        row("`kernel.matmul`, a quarter of the bandwidth", "blocked", narrow, narrow_errors),
        *keops_rows(found, errors, no_keops),
    ]


if __name__ == "__main__":
    main(__file__, "a mean embedding evaluated at many points", run, JOBS)
