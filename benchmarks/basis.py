"""Which basis for how many rows: seconds, memory, rank and error of a conditional embedding.

Every fit runs in an interpreter of its own, whose peak memory is measured and which may not have
more than 6 GB or 60 seconds. Kernels and λ are chosen as by default. The table goes to
`results/basis.md`.
"""

from __future__ import annotations

import argparse
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import HERE, RESULTS, child, imported, line, machine, peak, run_job, say

SIZES = (1_000, 10_000, 100_000, 1_000_000)
DIMENSIONS = (2, 10)
BASES = (
    "default",
    "PivotedCholesky(1e-6)",
    "Nystroem(500)",
    "Nystroem(1000)",
    "Nystroem(2000)",
    "RandomFourier(1000)",
)
LANDMARKS = ("Nystroem(500)", "Nystroem(1000)", "Nystroem(2000)")  # what a million rows get
MOST_MEMORY, MOST_SECONDS = 6 * 10**9, 60
ALARM = -14  # the exit status of a process that SIGALRM ends


def rows(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers, and what is to be predicted of them, without noise."""
    X = np.random.default_rng([seed, d]).normal(size=(n, d))
    return X, np.sin(X[:, 0] + X[:, 1])


def basis_of(name: str) -> Any:
    """The basis of X beside that of Y, which has one column and a small rank."""
    from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier

    if name == "default":
        return None
    kind, argument = name.rstrip(")").split("(")
    if kind == "PivotedCholesky":
        return PivotedCholesky(float(argument)), PivotedCholesky(1e-6)
    made = {"Nystroem": Nystroem, "RandomFourier": RandomFourier}[kind]
    return made(int(argument), random_state=0), PivotedCholesky(1e-6)


def best(work: Callable[[], Any], most: int = 3) -> float:
    """The least seconds of some turns, or of one that takes long: others may use the machine."""
    turns: list[float] = []
    while len(turns) < most and sum(turns) < 5:
        start = time.perf_counter()
        work()
        turns.append(time.perf_counter() - start)
    return min(turns)


def fit(name: str, n: str, d: str) -> dict[str, Any]:
    """One fit: how long, which rank, and how far from the truth at new rows."""
    import resource
    import signal

    from sklearn.base import clone

    from meanmap import ConditionalEmbedding

    X, f = rows(int(n), int(d), 0)
    y = f + 0.1 * np.random.default_rng(2).normal(size=len(f))
    new, truth = rows(2000, int(d), 1)
    model = ConditionalEmbedding(basis=basis_of(name))
    ConditionalEmbedding().fit(X[:50], y[:50])  # what is imported late
    imported()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    signal.alarm(MOST_SECONDS)  # ends this interpreter
    warnings.simplefilter("ignore")  # of a rank that was capped, which the table says
    try:
        first = best(lambda: model.fit(X, y), 1)
    except MemoryError:
        return {"missing": "needs more than 6 GB"}
    memory, found = peak(), model.predict(new)
    again = best(lambda: clone(model).fit(X, y)) if first < 5 else first
    return {
        "seconds": min(first, again),
        "memory": memory,  # of the first turn: later ones have two models
        "predict": best(lambda: model.predict(new)) / len(new),
        "rank": model.space_x_.rank_,
        "error": float(np.mean((found - truth) ** 2) ** 0.5),
    }


def cells(name: str, n: int, d: int) -> list[str]:
    """One line of the table."""
    head = [f"{n:,}", f"`{name}`" if "(" in name else name]
    try:
        found, _ = child("basis.py", "fit", name, n, d)
    except subprocess.CalledProcessError as error:
        if error.returncode != ALARM:
            raise
        found = {"missing": f"takes more than {MOST_SECONDS} s"}
    if "missing" in found:
        return [*head, "", "", "", "", found["missing"]]
    seconds, memory = found["seconds"], found["memory"] / 1e9
    figures = [f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s", f"{memory:.2f} GB"]
    figures += [f"{found['rank']:,}", f"{1e6 * found['predict']:.0f} µs", f"{found['error']:.4f}"]
    return [*head, *figures]


def tables() -> Iterator[str]:
    """A table a dimension."""
    header = ["rows", "basis", "fit", "memory, peak", "rank", "a prediction", "error"]
    for d in DIMENSIONS:
        yield f"\nd = {d}\n"
        yield line(header)
        yield line(["---"] * len(header))
        for n in SIZES:
            names = LANDMARKS if n > 100_000 else BASES
            for name in (one for one in names if n > 1000 or one != "Nystroem(2000)"):
                say(f"{name}, {n:,} rows, d = {d}")
                yield line(cells(name, n, d))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(fit, options.job[1:])
        return
    about = "\n".join(f"- {key}: {value}" for key, value in machine().items())
    text = (
        "# Which basis for how many rows\n\n"
        "`ConditionalEmbedding` of y = sin(x₁ + x₂) + 0.1 ε at normal x, kernels and λ by default; "
        "error: root mean square at 2,000 new rows, against the truth.\n\n"
        f"{about}\n"
    )
    text += "\n".join(tables()) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (HERE / "results" / "basis.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
