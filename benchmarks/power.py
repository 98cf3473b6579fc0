"""Power of the tests with their default settings, against the peers', on eight alternatives.

500 runs of each alternative, the same data for everybody: run i draws its data from seed i. Sizes
and effects were chosen by a pilot (`--pilot`, other seeds) on the peers alone, so that the best of
them has 50 to 80 % power at α = 0.05. The peers' p-values are kept in `results/power_peers.npz`,
since their loops take most of an hour; with them the power under the null hypothesis (the same data
permuted), because a test that does not hold its level has no power to compare.

    python benchmarks/power.py                     # ours against the p-values on file
    python benchmarks/power.py --peers [name …]    # the peers again, in an environment of their own
    python benchmarks/power.py --pilot name effect [effect …]
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import HERE, RESULTS, environment, line, say

ALPHA = 0.05
RUNS = 500
B, B_SLOW = 199, 99  # the peers' permutations; fewer for hyppo's HHG, whose loop takes seconds
PILOT_RUNS, PILOT_SEED = 100, 1_000_000
STORE = RESULTS / "power_peers.npz"
REQUIREMENTS = (
    "hyppo==0.5.2",
    "dcor==0.7",
    "alibi-detect==0.13.0",
    "causal-learn==0.1.4.8",
    "torch==2.13.0",
    "threadpoolctl",
)
Sample = tuple[np.ndarray, np.ndarray]


# --- the alternatives -----------------------------------------------------------------------------
# `normal`, `random`, `integers` and `permutation` of a Generator give the same numbers in the
# peers' NumPy and in ours; the fingerprint in the store makes sure.


def mean(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """N(0, I) against N(δ/√5 (1, …, 1), I) in five dimensions."""
    return rng.normal(size=(n, 5)), rng.normal(size=(n, 5)) + effect / np.sqrt(5)


def variance(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """N(0, I) against N(0, s²I) in two dimensions."""
    return rng.normal(size=(n, 2)), effect * rng.normal(size=(n, 2))


def blobs(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """A 3 × 3 grid (five deviations apart) of Gaussians, round against correlated by ρ."""
    centres = 5 * rng.integers(3, size=(2, n, 2))
    noise = rng.normal(size=(2, n, 2))
    noise[1, :, 1] = effect * noise[1, :, 0] + np.sqrt(1 - effect**2) * noise[1, :, 1]
    X, Y = centres + noise
    return X, Y


def sparse_mean(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """N(0, I) against N(δ e₁, I) in fifty dimensions: one coordinate moves."""
    X, Y = rng.normal(size=(2, n, 50))
    Y[:, 0] += effect
    return X, Y


def checkerboard(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """A 4 × 4 checkerboard with contrast c (densities 1 + c and 1 - c) against its quarter turn.

    The turn exchanges the colours and leaves both marginals uniform.
    """
    cells = 4
    parts = []
    for dark in (0, 1):
        points = rng.random(size=(n, 2))
        colour = np.floor(cells * points).sum(axis=1) % 2
        # a point on the wrong colour moves to the next cell with probability c
        moves = (colour != dark) & (rng.random(size=n) < effect)
        points[:, 0] = (points[:, 0] + moves / cells) % 1
        parts.append(2 * points - 1)
    return parts[0], parts[1]


def sinusoid(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """The density ∝ 1 + a sin(2x) sin(2y) on [-π, π]²: dependence at one frequency."""
    frequency, found = 2, np.empty((0, 2))
    while len(found) < n:
        points = np.pi * (2 * rng.random(size=(4 * n, 2)) - 1)
        waves = np.sin(frequency * points).prod(axis=1)
        found = np.concatenate([found, points[2 * rng.random(size=4 * n) < 1 + effect * waves]])
    return found[:n, :1], found[:n, 1:]


def circle(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """The unit circle with Gaussian noise of deviation σ on both coordinates."""
    angle = 2 * np.pi * rng.random(size=n)
    noise = effect * rng.normal(size=(2, n, 1))
    return np.cos(angle)[:, None] + noise[0], np.sin(angle)[:, None] + noise[1]


def categorical(rng: np.random.Generator, n: int, effect: float) -> Sample:
    """Labels, X of six kinds and Y of four: with probability ε Y follows X, else it is free."""
    x = np.searchsorted(np.cumsum([0.3, 0.2, 0.15, 0.15, 0.1]), rng.random(size=n))
    y = np.searchsorted(np.cumsum([0.4, 0.3, 0.2]), rng.random(size=n))
    follows = rng.random(size=n) < effect
    y = np.where(follows, x % 4, y)
    return np.array(list("abcdef"))[x], np.array(list("ABCD"))[y]


@dataclass(frozen=True)
class Alternative:
    """How to draw the samples of a run, their size, and how large the effect is."""

    draw: Callable[[np.random.Generator, int, float], Sample]
    kind: str  # "two-sample" or "independence"
    n: int
    effect: float

    def generate(self, seed: int, effect: float | None = None) -> Sample:
        """The data of a run."""
        effect = self.effect if effect is None else effect
        return self.draw(np.random.default_rng(seed), self.n, effect)

    def null(self, seed: int) -> Sample:
        """The same data with the effect destroyed: pooled and dealt again, or paired at random."""
        X, Y = self.generate(seed)
        rng = np.random.default_rng([seed, 1])
        if self.kind == "independence":
            return X, Y[rng.permutation(len(Y))]
        pool = np.concatenate([X, Y])[rng.permutation(len(X) + len(Y))]
        return pool[: len(X)], pool[len(X) :]

    def fingerprint(self) -> str:
        """A hash of the data of some runs, so that different data are never compared."""
        digest = hashlib.sha256()
        for seed in (0, 1, RUNS - 1):
            for part in (*self.generate(seed), *self.null(seed)):
                digest.update((part.round(9) if part.dtype == float else part).tobytes())
        return digest.hexdigest()[:16]


ALTERNATIVES = {
    "mean": Alternative(mean, "two-sample", 100, 0.45),
    "variance": Alternative(variance, "two-sample", 100, 1.3),
    "blobs": Alternative(blobs, "two-sample", 120, 0.95),
    "sparse mean": Alternative(sparse_mean, "two-sample", 100, 0.75),
    "checkerboard": Alternative(checkerboard, "two-sample", 100, 0.53),
    "sinusoid": Alternative(sinusoid, "independence", 150, 1.0),
    "circle": Alternative(circle, "independence", 100, 0.32),
    "categorical": Alternative(categorical, "independence", 100, 0.23),
}


def alternatives() -> dict[str, tuple[Callable[[int], Sample], str]]:
    """By name: `generate(seed) -> (X, Y)` and "two-sample" or "independence"."""
    return {name: (a.generate, a.kind) for name, a in ALTERNATIVES.items()}


# --- the peers' p-values --------------------------------------------------------------------------


def read_store(file: Path) -> tuple[dict[str, Any], dict[tuple[str, str, str], np.ndarray]]:
    """What the p-values were computed on, by alternative; the p-values by (name, peer, which)."""
    if not file.exists():
        return {}, {}
    with np.load(file) as held:
        about = json.loads(str(held["about"]))
        keys = [key for key in held.files if key != "about"]
        values = {tuple(key.split("|")): held[key] for key in keys}
    return about, values  # type: ignore[return-value]


def write_store(
    file: Path, name: str, effect: float, found: dict[tuple[str, str], np.ndarray]
) -> None:
    """Add an alternative's p-values; what is there of other data goes."""
    about, values = read_store(file)
    alternative = ALTERNATIVES[name]
    now = {"n": alternative.n, "effect": effect, "data": alternative.fingerprint()}
    if about.get(name) != now:
        about[name], values = now, {key: p for key, p in values.items() if key[0] != name}
    values |= {(name, peer, which): p for (peer, which), p in found.items()}
    arrays = {"|".join(key): p for key, p in values.items()}
    file.parent.mkdir(exist_ok=True)
    np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def run_peers(file: Path, runs: int, seed: int, settings: dict[str, float]) -> None:
    """The peers' study in their own environment, quietly beside other work."""
    python = environment("tests", *REQUIREMENTS)
    words = [f"{name}={effect!r}" for name, effect in settings.items()]
    script = str(HERE / "peers" / "statistical_tests.py")
    command = [str(python), script, "--job", "study", str(file), str(runs), str(seed), *words]
    single = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    subprocess.run(command, check=True, env=os.environ | single, preexec_fn=lambda: os.nice(10))


# --- ours -----------------------------------------------------------------------------------------


def our_pvalue(name: str, which: str, seed: int) -> float:
    """Ours with default settings."""
    import meanmap

    alternative = ALTERNATIVES[name]
    X, Y = alternative.generate(seed) if which == "power" else alternative.null(seed)
    two = alternative.kind == "two-sample"
    test = meanmap.two_sample_test if two else meanmap.independence_test
    return float(test(X, Y, rng=seed).pvalue)


def one_thread() -> None:
    """Two processes with a thread each do more than one with two."""
    from threadpoolctl import threadpool_limits

    import meanmap  # noqa: F401  (loads the libraries to be held)

    threadpool_limits(1)


def run_ours(names: list[str], runs: int, which: str = "power") -> dict[str, np.ndarray]:
    """Our p-values, with two processes."""
    found = {}
    with ProcessPoolExecutor(2, initializer=one_thread) as pool:
        for name in names:
            start = time.perf_counter()
            work = functools.partial(our_pvalue, name, which)
            found[name] = np.array(list(pool.map(work, range(runs), chunksize=10)))
            say(f"{name}, {which}: {time.perf_counter() - start:.1f} s")
    return found


# --- the table ------------------------------------------------------------------------------------


def level_bound(runs: int) -> float:
    """The upper end of the 99.9 % binomial interval of a level of α."""
    from scipy.stats import binom

    return float(binom.ppf(0.9995, runs, ALPHA)) / runs


def compare(name: str, ours: np.ndarray | None, our_level: float | None) -> Iterator[list[str]]:
    """The lines of an alternative: peers by power, then ours against the best of them."""
    about, values = read_store(STORE)
    alternative = ALTERNATIVES[name]
    known = {"n": alternative.n, "effect": alternative.effect, "data": alternative.fingerprint()}
    if about.get(name) != known:
        raise SystemExit(
            f"{STORE.name} was computed on other data for {name!r} ({about.get(name)}, here "
            f"{known}); run `python benchmarks/power.py --peers {name!r}`."
        )
    powers, levels, rejects = {}, {}, {}
    for (_, peer, which), p in ((k, p) for k, p in values.items() if k[0] == name):
        if which == "power":
            powers[peer], rejects[peer] = np.mean(p <= ALPHA), p <= ALPHA
        else:
            levels[peer] = np.mean(p <= ALPHA), len(p)
    holds = {p for p in powers if p not in levels or levels[p][0] <= level_bound(levels[p][1])}
    best = max(holds, key=lambda p: powers[p])
    for peer in sorted(powers, key=lambda p: -powers[p]):
        level = f"{100 * levels[peer][0]:.1f}" if peer in levels else ""
        remark = "best peer" if peer == best else "" if peer in holds else "level not held"
        yield [name, peer, f"{100 * powers[peer]:.1f}", level, "", "", remark]
    if ours is None:
        return
    runs = min(len(ours), len(rejects[best]))
    difference = (ours[:runs] <= ALPHA).astype(float) - rejects[best][:runs]
    gap, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))
    verdict = "ahead by two standard errors" if gap > 2 * error else "within 5 points"
    if gap < -0.05:
        verdict = "**behind**"
    level = "" if our_level is None else f"{100 * our_level:.1f}"
    power = f"**{100 * np.mean(ours <= ALPHA):.1f}**"
    yield [name, "**meanmap**", power, level, f"{100 * gap:+.1f}", f"{100 * error:.1f}", verdict]


def table(names: list[str], runs: int, ours: bool, null: bool) -> str:
    """Every peer and ours, in per cent."""
    found = run_ours(names, runs) if ours else {}
    levels = run_ours(names, runs, "null") if ours and null else {}
    columns = ["alternative", "test", "power", "level", "ours - best peer", "paired SE", "verdict"]
    lines = [line(columns), line(["---"] * len(columns))]
    verdicts = []
    for name in names:
        level = float(np.mean(levels[name] <= ALPHA)) if name in levels else None
        rows = list(compare(name, found.get(name), level))
        lines += [line(row) for row in rows]
        verdicts.append(rows[-1][-1])
    if ours:
        good = sum(v != "**behind**" for v in verdicts)
        ahead = sum(v.startswith("ahead") for v in verdicts)
        lines += ["", f"Within 5 points of the best peer on {good} of {len(names)} (bar: all), "]
        lines[-1] += f"ahead by two standard errors on {ahead} (bar: 3)."
    return "\n".join(lines)


def settings_text() -> str:
    """What was drawn, for the head of the table."""
    lines = []
    for name, a in ALTERNATIVES.items():
        words = (a.draw.__doc__ or "").splitlines()[0]
        lines.append(f"- **{name}** ({a.kind}, n = {a.n}, effect {a.effect:g}): {words}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="power against the peers' tests")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(ALTERNATIVES)}")
    parser.add_argument("--peers", action="store_true", help="compute the peers' p-values again")
    parser.add_argument("--only-peers", action="store_true", help="the peers' power, on file")
    parser.add_argument("--null", action="store_true", help="our level on the same data as well")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--pilot", nargs="+", metavar=("name", "effect"), help="try effect sizes")
    options = parser.parse_args()
    if options.pilot:
        name, *effects = options.pilot
        with tempfile.TemporaryDirectory() as folder:
            for effect in effects:  # the figures are printed, and not kept
                scratch = Path(folder) / "pilot.npz"
                run_peers(scratch, PILOT_RUNS, PILOT_SEED, {name: float(effect)})
        return
    names = options.names or list(ALTERNATIVES)
    if options.peers:
        run_peers(STORE, options.runs, 0, {name: ALTERNATIVES[name].effect for name in names})
    ours = not (options.peers or options.only_peers)
    text = table(names, options.runs, ours, options.null)
    head = f"{options.runs} paired runs, α = {ALPHA:g}; the peers take {B} permutations, "
    head += f"hyppo's HHG {B_SLOW}. In per cent.\n\n{settings_text()}"
    text = f"# Power\n\n{head}\n\n{text}\n"
    print(text)
    if ours and names == list(ALTERNATIVES):
        (RESULTS / "power.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
