"""Posteriors from simulators on the tasks of sbibm, by its protocol, beside published figures.

    python benchmarks/simulators.py                                  # all of it
    python benchmarks/simulators.py --tasks SIR --observations 3 --simulations 1000
    python benchmarks/simulators.py --draws folder                   # posteriors, kept as files
    python benchmarks/simulators.py --judge folder --device cuda     # and told from the references

A fit from the prior answers all observations; 10,000 draws of each posterior are told from the
reference by sbibm's classifier (`c2st.py`). Its accuracy is 0.5 if the posterior is exact. What is
computed is kept in `benchmarks/results/simulators.json`, a table in `simulators.md` beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sbibm_tasks import Task, tasks

HERE = Path(__file__).parent / "results"
DRAWS = 10_000
#: C2ST of NPE and of the best method, at 1,000 and 10,000 simulations (Lueckmann et al. 2021):
#: means over the ten observations of `main_paper.csv` in github.com/sbi-benchmark/results.
PUBLISHED = {
    "two moons": ((0.725, 0.606), (0.643, 0.554), ("SNPE", "SNPE")),
    "SLCP": ((0.975, 0.901), (0.921, 0.713), ("SNLE", "SNLE")),
    "SLCP distractors": ((0.982, 0.970), (0.978, 0.931), ("SNPE", "SNPE")),
    "Gaussian linear": ((0.694, 0.552), (0.628, 0.536), ("SNLE", "SNRE")),
    "Gaussian linear uniform": ((0.696, 0.553), (0.631, 0.527), ("SNPE", "SNPE")),
    "Gaussian mixture": ((0.731, 0.661), (0.697, 0.583), ("SNPE", "SNPE")),
    "Bernoulli GLM": ((0.863, 0.678), (0.634, 0.553), ("SNLE", "SNLE")),
    "Bernoulli GLM raw": ((0.900, 0.765), (0.870, 0.658), ("NLE", "SNPE")),
    "SIR": ((0.815, 0.680), (0.637, 0.561), ("SNRE", "SNPE")),
    "Lotka-Volterra": ((0.999, 0.997), (0.909, 0.738), ("SNLE", "SNLE")),
}
SIZES = (1000, 10_000)


def posterior_draws(task: Task, n: int, numbers: list[int]) -> tuple[list[np.ndarray], Any]:
    """Draws of posteriors after n simulations, and the seconds of one core that they took."""
    from meanmap import KernelABC

    model = KernelABC(task.simulator, task.prior, random_state=n, progress=False)
    simulate = time.process_time()
    task.simulator(np.repeat([task.truth(1)], n, axis=0), np.random.default_rng(0))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(n)
        fitted = time.process_time()
        found = [model.posterior(task.observation(i)).sample(DRAWS, rng=i) for i in numbers]
    end = time.process_time()
    seconds = {
        "fit": max(fitted - start - (start - simulate), 0.0),
        "answer": (end - fitted) / len(numbers),
    }
    return found, seconds


def store(task: Task, n: int, numbers: list[int], folder: Path) -> Path:
    """Draws of posteriors and of their references as a file, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task.name} {n}.npz"
    if not path.exists():
        draws, seconds = posterior_draws(task, n, numbers)
        reference = [task.reference(i) for i in numbers]
        np.savez(
            path,
            draws=np.stack(draws).astype(np.float32),
            reference=np.stack(reference).astype(np.float32),
            seconds=[seconds["fit"], seconds["answer"]],
        )
    return path


def judge(path: Path, device: str, most: int) -> dict[str, Any]:
    """The accuracies of the classifier on what a file has, of at most so many observations."""
    from c2st import accuracies

    with np.load(path) as data:
        pairs = list(zip(data["reference"], data["draws"], strict=True))[:most]
        fit, answer = data["seconds"].tolist()
    start = time.process_time()
    found = accuracies(pairs, device=device)
    return {
        "c2st": [round(float(a), 4) for a in found],
        "fit": round(fit, 2),
        "answer": round(answer, 2),
        "judging": round(time.process_time() - start, 1),
    }


def table(results: dict[str, Any]) -> str:
    """All results in Markdown, beside the published ones."""
    lines = [
        "| task | simulations | C2ST | observations | NPE | best published | fit | answer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in tasks():
        for k, n in enumerate(SIZES):
            found = results.get(f"{name} {n}")
            if found is None:
                continue
            a = np.array(found["c2st"])
            shown = f"{a.mean():.3f}"
            if len(a) > 1:
                shown += f" ± {a.std(ddof=1) / len(a) ** 0.5:.3f}"
            npe = best = "–"
            if name in PUBLISHED:
                own, least, method = PUBLISHED[name]
                npe, best = f"{own[k]:.3f}", f"{least[k]:.3f} ({method[k]})"
            fit, answer = (
                "–" if found.get(part) is None else f"{found[part]:.1f} s"
                for part in ("fit", "answer")
            )
            lines.append(
                f"| {name} | {n:,} | {shown} | {len(a)} | {npe} | {best} | {fit} | {answer} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    known = tasks()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="*", default=list(known), choices=list(known))
    parser.add_argument("--observations", type=int, default=10)
    parser.add_argument("--simulations", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--draws", type=Path, help="a folder: posteriors are drawn, not judged")
    parser.add_argument("--judge", type=Path, help="a folder whose draws are judged")
    parser.add_argument("--device", default="cpu", help="of PyTorch, for the classifiers")
    parser.add_argument("--keep", action="store_true", help="write results to benchmarks/results")
    options = parser.parse_args()
    numbers = list(range(1, options.observations + 1))
    folder = options.draws or options.judge or Path(tempfile.mkdtemp())
    for n in options.simulations:
        for name in options.tasks:
            path = folder / f"{name} {n}.npz"
            if options.judge is None:
                path = store(known[name], n, numbers, folder)
                print(f"{name}, {n:,} simulations: drawn", flush=True)
            if options.draws is None and path.exists():
                found = judge(path, options.device, options.observations)
                print(f"{name}, {n:,}: {np.mean(found['c2st']):.3f} {found}", flush=True)
                if options.keep:
                    keep(f"{name} {n}", found)


def keep(name: str, found: dict[str, Any]) -> None:
    """Add a result to those that are there."""
    path = HERE / "simulators.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results[name] = found
    path.write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "simulators.md").write_text(table(results))


if __name__ == "__main__":
    main()
