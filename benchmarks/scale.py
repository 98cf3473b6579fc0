"""More rows than memory: a million at once, ten million in batches, and the same by Dask's workers.

Rows are made as they are needed, from seeds, so that nothing is read from a disk. Every job runs in
an interpreter of its own, whose peak memory is measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, child, imported, main, say

D, BATCH = 10, 100_000
AT_ONCE, LANDMARKS = 1_000_000, 1000
STREAMED, FEWER = 10_000_000, 500


def batch(number: int, rows: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Some rows, always the same of a number."""
    rng = np.random.default_rng([7, number])
    X = rng.normal(size=(rows, D))
    return X, np.sin(X[:, :1] + X[:, 1:2]) + 0.1 * rng.normal(size=(rows, 1))


def model(landmarks: int) -> Any:
    """A conditional whose spaces are fitted to the first batch."""
    from meanmap import ConditionalEmbedding
    from meanmap.kernels import Gaussian
    from meanmap.spaces import Nystroem, Space

    X, Y = batch(0, 20_000)
    bases = (
        Space(Gaussian(4.0), Nystroem(landmarks, random_state=0)).fit(X),
        Space(Gaussian(1.0), Nystroem(50, random_state=0)).fit(Y),
    )
    return ConditionalEmbedding(Gaussian(4.0), Gaussian(1.0), 1e-4, basis=bases)


def answers(fitted: Any) -> np.ndarray:
    """Predictions at new rows."""
    return fitted.predict(batch(10**6, 1000)[0])


def at_once() -> dict[str, Any]:
    """A million rows and a hundred thousand predictions."""
    from meanmap import ConditionalEmbedding
    from meanmap.kernels import Gaussian
    from meanmap.spaces import Nystroem

    parts = [batch(i) for i in range(AT_ONCE // BATCH)]
    X, Y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    new, _ = batch(10**6)
    imported()
    start = time.perf_counter()
    bases = Nystroem(LANDMARKS, random_state=0), Nystroem(50, random_state=0)
    fitted = ConditionalEmbedding(Gaussian(4.0), Gaussian(1.0), 1e-6, basis=bases).fit(X, Y)
    found = fitted.predict(new)
    seconds = time.perf_counter() - start
    error = float(np.mean((found[:, 0] - np.sin(new[:, 0] + new[:, 1])) ** 2) ** 0.5)
    return {"seconds": seconds, "error": error}


def streamed(rows: str, path: str) -> dict[str, Any]:
    """Batch after batch; the time of each tenth."""
    from meanmap.streams import feed

    numbers = range(int(rows) // BATCH)
    seconds: list[float] = []

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in numbers:
            seconds.append(time.perf_counter())
            yield batch(number)

    start = model(FEWER)
    imported()
    found = feed(start, batches(), progress=False)
    seconds.append(time.perf_counter())
    np.save(path, answers(found))
    return {"times": seconds}


def chunked(rows: str, path: str, kill: str) -> dict[str, Any]:
    """The same by two worker processes, one of which may be killed on its way."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    count = int(rows) // BATCH
    pairs = [dask.delayed(batch, pure=True)(number) for number in range(count)]
    X, Y = (
        da.concatenate([da.from_delayed(pair[i], (BATCH, width), dtype=float) for pair in pairs])
        for i, width in ((0, D), (1, 1))
    )
    start = model(FEWER)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        imported()
        began = time.perf_counter()
        if kill == "yes":
            victim = next(iter(cluster.workers.values())).pid
            _later(5.0, victim)
        start.fit(X, Y)
        seconds = time.perf_counter() - began
    np.save(path, answers(start))
    return {"seconds": seconds}


def _later(seconds: float, process: int) -> None:
    """Kill a process in a while."""
    import threading

    timer = threading.Timer(seconds, os.kill, (process, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def run() -> list[Row]:
    rows = []
    say(f"{AT_ONCE:,} rows at once")
    found, memory = child("scale.py", "at_once")
    holds = found["seconds"] <= 180 and memory.peak <= 4e9
    note = f"root mean squared error {found['error']:.3f} (the signal has 0.7)"
    work = f"conditional embedding, n = 10⁶, d = {D}, {LANDMARKS:,} landmarks, 10⁵ predictions"
    rows.append(
        Row(
            work,
            "",
            found["seconds"],
            ours_memory=memory,
            note=note,
            bar="≤ 180 s, ≤ 4 GB",
            holds=bool(holds),
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        rows += stream_rows(Path(folder))
    return rows


def stream_rows(folder: Path) -> list[Row]:
    say(f"{STREAMED:,} rows in batches")
    found, memory = child("scale.py", "streamed", STREAMED, folder / "stream.npy")
    times = np.diff(found["times"])
    tenths = [float(part.sum()) for part in np.array_split(times[1:], 10)]
    first, last = np.mean(tenths[:5]), np.mean(tenths[5:])
    drift = abs(last / first - 1)
    total, truth = float(times.sum()), np.load(folder / "stream.npy")
    work = f"{STREAMED:,} rows by `partial_fit`, {FEWER} landmarks"
    rows = [
        Row(
            work,
            "",
            total,
            ours_memory=memory,
            note=f"the second half takes {last / first - 1:+.1%} of the first half's time",
            bar="< 1 GB, linear within 10%",
            holds=bool(memory.peak < 1e9 and drift <= 0.1),
        )
    ]
    for kill in ("no", "yes"):
        name = "Dask, 2 worker processes" + (", one killed after 5 s" if kill == "yes" else "")
        say(name)
        try:
            found, _ = child("scale.py", "chunked", STREAMED, folder / "dask.npy", kill)
        except subprocess.CalledProcessError as error:
            rows.append(Row(f"the same, {name}", "", None, note=f"failed: {error.returncode}"))
            continue
        gap = float(abs(np.load(folder / "dask.npy") - truth).max())
        holds = gap <= 1e-10 and (kill == "yes" or found["seconds"] <= 1.25 * total)
        rows.append(
            Row(
                f"the same, {name}",
                "ours in one process",
                found["seconds"],
                total,
                note=f"same predictions to {gap:.0e}; the sample's pass included",
                bar="same to 1e-10" + ("" if kill == "yes" else ", overhead < 25%"),
                holds=bool(holds),
            )
        )
    return rows


JOBS = {"at_once": at_once, "streamed": streamed, "chunked": chunked}

if __name__ == "__main__":
    main(__file__, "more rows than memory", run, JOBS)
