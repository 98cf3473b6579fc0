"""Statistical tests against alibi-detect, dcor, hyppo, causal-learn and plain NumPy: time, memory.

Same data, same statistic: kernels and bandwidths are given to both sides. The peers run in an
environment of their own; what takes them more than a minute is timed at fewer permutations and
scaled (marked so). Plain NumPy is the Gram matrix times a matrix of signs, a column a permutation.
P-values are compared within three standard errors of their permutations. The last rows compare
single statistics, with the constant between the definitions.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contestant, Memory, Row, child, cores, environment, imported, main, race, say
from power import REQUIREMENTS
from scipy.spatial.distance import pdist

PEERS = "peers/statistical_tests.py"
B = 1_000
D_TWO, D_PAIRED = 10, 5
SMALL, LARGE, HUGE = 2_000, 20_000, 1_000_000  # a sample, of two
LANDMARKS, B_HUGE = 200, 500
PAIRED = (2_000, 5_000)
CONDITIONAL, ALONE = (1_000, 5_000), 20_000
MINUTES = 600  # what "minutes" may be, in seconds
SAME = 1e-10  # relative difference of statistics
AGREE = 1e-8  # the same in the table of definitions


# --- data -----------------------------------------------------------------------------------------


def two_samples(n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Normal points, the second sample a little shifted; the median distance of some."""
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(2, n, D_TWO))
    # a shift that shrinks with n keeps the p-value away from 0 and 1
    return X, Y + 1.3 / np.sqrt(n), median(np.concatenate([X[:500], Y[:500]]))


def pairs(n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """X, and Y that depends on it a little; one bandwidth, since hyppo takes one for both."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, D_PAIRED))
    Y = rng.normal(size=(n, D_PAIRED)) + 1.8 / np.sqrt(n) * X
    return X, Y, median(X[:1000])


def triples(n: int) -> dict[str, np.ndarray]:
    """X and Y independent given Z, and Y2 that is not."""
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(n, 1))
    X, Y = np.sin(Z) + 0.5 * rng.normal(size=(n, 1)), Z + 0.5 * rng.normal(size=(n, 1))
    return {"X": X, "Y": Y, "Y2": Y + 0.3 * X, "Z": Z}


def median(points: np.ndarray) -> float:
    return float(np.median(pdist(points)))


def write(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


# --- ours, and plain NumPy ------------------------------------------------------------------------


def ours_two(n: int) -> Callable[[], tuple[float, float]]:
    """The two-sample test, streaming."""
    from meanmap import two_sample_test
    from meanmap.kernels import Gaussian

    X, Y, sigma = two_samples(n)
    kernel = Gaussian(sigma)
    return lambda: tuple(two_sample_test(X, Y, kernel=kernel, n_permutations=B, rng=0))


def ours_huge(n: int) -> Callable[[], tuple[float, float]]:
    """The same from landmarks."""
    from meanmap import two_sample_test
    from meanmap.kernels import Gaussian
    from meanmap.spaces import Nystroem

    X, Y, sigma = two_samples(n)
    settings = {"basis": Nystroem(LANDMARKS, random_state=0), "n_permutations": B_HUGE, "rng": 0}
    return lambda: tuple(two_sample_test(X, Y, kernel=Gaussian(sigma), **settings))


def plain_two(n: int) -> Callable[[], tuple[float, float]]:
    """K @ signs: MMD², unbiased, of the sample and of B permutations at once."""
    X, Y, sigma = two_samples(n)

    def work() -> tuple[float, float]:
        Z, rng = np.concatenate([X, Y]), np.random.default_rng(0)
        norms = (Z * Z).sum(axis=1)
        K = np.exp((norms[:, None] + norms[None, :] - 2 * Z @ Z.T) / (-2 * sigma**2))
        np.fill_diagonal(K, 0)
        signs = np.repeat([1.0, -1.0], n)
        S = np.stack([signs, *(rng.permutation(signs) for _ in range(B))], axis=1)
        # with n = m: MMD²_U = (Σ_same / (n(n-1)) - Σ_other / n²), Σ_same ∓ Σ_other from sᵀKs, 1ᵀK1
        quadratic, total = np.einsum("ib,ib->b", S, K @ S), K.sum()
        same, other = (total + quadratic) / 2, (total - quadratic) / 2
        values = same / (n * (n - 1)) - other / n**2
        return float(values[0]), float(np.mean(values >= values[0] - 1e-12))

    return work


def ours_paired(n: int, kernel: str) -> Callable[[], tuple[float, float]]:
    """The independence test, V with energy kernels for dcor, U with Gaussians for hyppo."""
    from meanmap import independence_test
    from meanmap.kernels import Energy, Gaussian

    X, Y, sigma = pairs(n)
    k = Energy() if kernel == "energy" else Gaussian(sigma)
    estimator = "V" if kernel == "energy" else "U"
    settings: dict[str, Any] = {"n_permutations": B, "rng": 0, "estimator": estimator}
    return lambda: tuple(independence_test(X, Y, k, **settings))


def ours_conditional(n: int) -> Callable[[str], tuple[float, float]]:
    """The conditional test with a gamma null, as the peer's."""
    from meanmap import conditional_independence_test

    d = triples(n)
    return lambda y: tuple(conditional_independence_test(d["X"], d[y], d["Z"], null="gamma", rng=0))


# --- fresh interpreters ---------------------------------------------------------------------------


def once(prepare: Callable[..., Callable[..., tuple[float, float]]], *fixed: str) -> Any:
    """A job: prepare, do it once on the clock, report."""

    def job(n: str, *more: str) -> dict[str, Any]:
        if prepare is not plain_two:
            import meanmap  # noqa: F401
        imported()
        work = prepare(int(n), *more)
        start = time.perf_counter()
        statistic, pvalue = work(*fixed)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "statistic": float(statistic), "pvalue": float(pvalue)}

    return job


JOBS = {
    "ours_two": once(ours_two),
    "ours_huge": once(ours_huge),
    "plain_two": once(plain_two),
    "ours_paired": once(ours_paired),
    "ours_conditional": once(ours_conditional, "Y"),
}


class Peers:
    """The peers' environment, or why it is missing."""

    def __init__(self) -> None:
        self.python, self.missing = None, ""
        try:
            self.python = environment("tests", *REQUIREMENTS)
        except (OSError, subprocess.CalledProcessError) as error:
            self.missing = f"the peers could not be installed ({error})"
            say(self.missing)

    def best(self, job: str, arrays: dict[str, np.ndarray], *arguments: Any) -> Any:
        """A job with one thread and with all; the faster report, with its threads and memory."""
        if self.python is None:
            return None
        found = []
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), arrays)
            for threads in sorted({1, cores()}):
                report, memory = child(PEERS, job, name, *arguments, threads, python=self.python)
                say(f"{job}, {threads} threads: {report}, {memory}")
                found.append(({**report, "threads": threads}, memory))
        return min(found, key=lambda f: f[0]["seconds"])

    def statistics(self, arrays: dict[str, np.ndarray], sigma: float) -> dict[str, float] | None:
        """Single statistics on a small sample."""
        if self.python is None:
            return None
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), arrays)
            return child(PEERS, "statistics", name, sigma, python=self.python)[0]


# --- rows -----------------------------------------------------------------------------------------


def within(p: float, q: float, counts: tuple[int, int]) -> bool:
    """Whether two p-values differ by less than three standard errors of their permutations."""
    both = min(max((p + q) / 2, 1 / min(counts)), 1 - 1 / min(counts))
    error = np.sqrt(both * (1 - both) * sum(1 / c for c in counts))
    return abs(p - q) <= 3 * error + sum(1 / (1 + c) for c in counts)


def scaled(report: dict[str, Any]) -> str:
    """A remark where the peer was timed at fewer permutations."""
    few = report["permutations"]
    return "" if few == B else f"; peer scaled from {few} permutations"


def compare(
    work: str,
    name: str,
    ours: tuple[float, float, float],
    memory: Memory,
    peer: Any,
    expected: float,
    times: float,
    constant: str,
) -> Row:
    """Ours against a peer that permutes; `expected` is the peer's statistic from ours."""
    seconds, _, pvalue = ours
    if peer is None:
        bar = f"≥ {times:g}×, same statistic and p"
        return Row(work, f"{name} could not be run", seconds, ours_memory=memory, bar=bar)
    report, peer_memory = peer
    off = abs(report["statistic"] - expected) / abs(expected)
    p_same = within(pvalue, report["pvalue"], (B, report["permutations"]))
    note = f"statistic to {off:.1e} ({constant}); p {pvalue:.3f}, peer {report['pvalue']:.3f}"
    return Row(
        work,
        name,
        seconds,
        report["seconds"],
        peer_threads=report["threads"],
        ours_memory=memory,
        peer_memory=peer_memory,
        note=note + scaled(report),
        bar=f"≥ {times:g}×, statistic to {SAME:g}, p within Monte-Carlo error",
        holds=bool(report["seconds"] >= times * seconds and off <= SAME and p_same),
    )


def two_sample_rows(peers: Peers) -> list[Row]:
    """n = 2,000, 20,000 and a million."""
    n = SMALL
    say(f"two samples of {n:,}")
    X, Y, sigma = two_samples(n)
    works = {"ours": ours_two(n), "plain": plain_two(n)}
    values = {name: work() for name, work in works.items()}
    best = race({name: Contestant(work) for name, work in works.items()}, rounds=5)
    memory = {name: child("tests.py", f"{name}_two", n)[1] for name in works}
    ours = best["ours"].seconds, *values["ours"]
    alibi = peers.best("alibi", {"X": X, "Y": Y}, sigma, B)
    size = f"two-sample, n = m = {n:,}, d = {D_TWO}, B = {B:,}"
    name = "alibi-detect MMDDrift, given bandwidth"
    first = compare(size, name, ours, memory["ours"], alibi, ours[1], 500, "constant 1")
    off = abs(values["plain"][0] - ours[1]) / abs(ours[1])
    p_same = within(ours[2], values["plain"][1], (B, B))
    plain = best["plain"].seconds
    second = Row(
        size,
        "plain NumPy, K @ signs, float64",
        ours[0],
        plain,
        ours_memory=memory["ours"],
        peer_memory=memory["plain"],
        note=f"statistic to {off:.1e}; p {ours[2]:.3f}, peer {values['plain'][1]:.3f}",
        bar=f"≥ 3×, statistic to {SAME:g}, p within Monte-Carlo error",
        holds=bool(plain >= 3 * ours[0] and off <= SAME and p_same),
    )
    n = LARGE
    say(f"two samples of {n:,}")
    report, memory_large = child("tests.py", "ours_two", n)
    grown = plain * (n / SMALL) ** 2
    third = Row(
        f"two-sample, n = m = {n:,}, d = {D_TWO}, B = {B:,}",
        f"plain NumPy at {SMALL:,}, times {(n / SMALL) ** 2:g}",
        report["seconds"],
        grown,
        ours_memory=memory_large,
        note=f"p {report['pvalue']:.3f}; peer scaled by n²",
        bar="≥ 5×, < 1 GB",
        holds=bool(grown >= 5 * report["seconds"] and memory_large.peak < 1e9),
    )
    n = HUGE
    say(f"two samples of {n:,}")
    report, memory_huge = child("tests.py", "ours_huge", n)
    fourth = Row(
        f"two-sample, n = m = {n:,}, d = {D_TWO}, Nystroem({LANDMARKS}), B = {B_HUGE}",
        "the clock",
        report["seconds"],
        ours_memory=memory_huge,
        note=f"p {report['pvalue']:.3f}",
        bar=f"< {MINUTES} s, < 4 GB",
        holds=bool(report["seconds"] < MINUTES and memory_huge.peak < 4e9),
    )
    return [first, second, third, fourth]


def paired_rows(peers: Peers) -> list[Row]:
    """HSIC by permutation against dcor (energy kernels) and hyppo (Gaussians)."""
    from meanmap import hsic
    from meanmap.kernels import Gaussian

    rows = []
    for n in PAIRED:
        say(f"{n:,} pairs")
        X, Y, sigma = pairs(n)
        size = f"HSIC, n = {n:,}, d = {D_PAIRED}, B = {B:,}"
        works = {kernel: ours_paired(n, kernel) for kernel in ("energy", "gaussian")}
        values = {kernel: work() for kernel, work in works.items()}
        best = race({k: Contestant(work) for k, work in works.items()}, rounds=3, warm_up=0)
        memory = {k: child("tests.py", "ours_paired", n, k)[1] for k in works}
        ours = best["energy"].seconds, *values["energy"]
        dcor = peers.best("dcor", {"X": X, "Y": Y}, sigma, B)
        row = size + ", energy kernels"
        name, constant = "dcor distance_covariance_test", "dcor's is 4n HSIC, V"
        expected = 4 * n * ours[1]
        rows.append(compare(row, name, ours, memory["energy"], dcor, expected, 50, constant))
        ours = best["gaussian"].seconds, *values["gaussian"]
        hyppo = peers.best("hyppo", {"X": X, "Y": Y}, sigma, B)
        k = Gaussian(sigma)
        expected = ours[1] / np.sqrt(hsic(X, X, k, k) * hsic(Y, Y, k, k))
        row, name = size + ", Gaussian kernels", "hyppo Hsic, auto=False"
        constant = "hyppo's is HSIC / √(HSIC(X,X) HSIC(Y,Y)), U"
        rows.append(compare(row, name, ours, memory["gaussian"], hyppo, expected, 500, constant))
    return rows


def conditional_rows(peers: Peers) -> list[Row]:
    """KCI with both sides' defaults: they choose other bandwidths, so decisions are compared."""
    rows = []
    for n in CONDITIONAL:
        say(f"{n:,} triples")
        work = ours_conditional(n)
        pvalues = [work(y)[1] for y in ("Y", "Y2")]
        contest = {"ours": Contestant(lambda work=work: work("Y"))}
        seconds = race(contest, rounds=3, warm_up=0)["ours"].seconds
        memory = child("tests.py", "ours_conditional", n)[1]
        peer = peers.best("kci", triples(n))
        row = f"KCI, n = {n:,}, Z of one dimension"
        bar = "≥ 10×, same decisions"
        if peer is None:
            rows.append(Row(row, peers.missing, seconds, ours_memory=memory, bar=bar))
            continue
        report, peer_memory = peer
        theirs = report["pvalues"]
        same = [p <= 0.05 for p in pvalues] == [p <= 0.05 for p in theirs]
        texts = [" and ".join(f"{p:.3g}" for p in ps) for ps in (pvalues, theirs)]
        rows.append(
            Row(
                row,
                "causal-learn KCI_CInd, gamma",
                seconds,
                report["seconds"],
                peer_threads=report["threads"],
                ours_memory=memory,
                peer_memory=peer_memory,
                note=f"p independent and dependent {texts[0]}, peer {texts[1]}",
                bar=bar,
                holds=bool(report["seconds"] >= 10 * seconds and same),
            )
        )
    say(f"{ALONE:,} triples")
    report, memory = child("tests.py", "ours_conditional", ALONE)
    rows.append(
        Row(
            f"KCI, n = {ALONE:,}, Z of one dimension",
            "the clock",
            report["seconds"],
            ours_memory=memory,
            note=f"p {report['pvalue']:.3g}",
            bar="runs",
            holds=True,
        )
    )
    return rows


def agreement_rows(peers: Peers) -> list[Row]:
    """Single statistics: what a peer computes, in terms of ours."""
    from meanmap import hsic, mmd
    from meanmap.kernels import Energy, Gaussian

    rng = np.random.default_rng(4)
    X, W = rng.normal(size=(60, 3)), rng.normal(size=(45, 3)) + 0.3
    Y, sigma = X**2 + rng.normal(size=(60, 3)), 1.7
    theirs = peers.statistics({"X": X, "Y": Y, "W": W}, sigma)
    n, m = len(X), len(W)
    N, Z = n + m, np.concatenate([X, W])
    sides = np.repeat([[0.0], [1.0]], [n, m], axis=0)
    G, E = Gaussian(sigma), Energy()

    def U(A: np.ndarray, B: np.ndarray, k: Any) -> float:
        return hsic(A, B, k, k, "U")

    def correlation(A: np.ndarray, B: np.ndarray, k: Any) -> float:
        return U(A, B, k) / np.sqrt(U(A, A, k) * U(B, B, k))

    def shifted(A: np.ndarray, B: np.ndarray) -> float:
        return n * (n - 3) * U(A, B, G) + n / (n - 1)

    def scores(A: np.ndarray) -> np.ndarray:
        return (A - A.mean(axis=0)) / A.std(axis=0, ddof=1)

    c, V_G, V_E = 2 * n**2 * m**2 / N**4, mmd(X, W, G, "V"), mmd(X, W, E, "V")
    spread = np.sqrt(hsic(Z, Z, G, G, "V"))
    auto = shifted(X, Y) / np.sqrt(shifted(X, X) * shifted(Y, Y))
    energy_v, energy_n = (hsic(X, Y, E, E, e) for e in ("V", "normalized"))
    table = [
        ("alibi-detect MMDDrift", "MMD²_U", mmd(X, W, G, "U")),
        ("dcor energy_distance", "2 MMD²_V, energy kernel", 2 * V_E),
        ("dcor energy_test_statistic", "2nm/(n+m) MMD²_V, energy", 2 * n * m / N * V_E),
        ("dcor distance_covariance_sqr", "4 HSIC_V, energy", 4 * energy_v),
        ("dcor u_distance_covariance_sqr", "4 HSIC_U, energy", 4 * U(X, Y, E)),
        ("dcor distance_correlation_sqr", "HSIC normalized, energy", energy_n),
        ("hyppo Dcorr", "HSIC_U / √(HSIC_U(X,X) HSIC_U(Y,Y)), energy", correlation(X, Y, E)),
        ("hyppo Dcorr, bias=True", "√(HSIC normalized), energy", np.sqrt(energy_n)),
        ("hyppo Hsic", "HSIC_U / √(HSIC_U(X,X) HSIC_U(Y,Y))", correlation(X, Y, G)),
        ("hyppo Hsic, auto=False", "the same, each HSIC_U plus 1/((n-1)(n-3))", auto),
        (
            "hyppo Hsic, bias=True",
            "√(HSIC normalized)",
            np.sqrt(hsic(X, Y, G, G, "normalized")),
        ),
        (
            "hyppo MMD",
            "2n²m²/N⁴ times that of points and sides",
            c * correlation(Z, sides, G),
        ),
        (
            "hyppo MMD, bias=True",
            "2n²m²/N⁴ √(nm/N² MMD²_V / √HSIC_V(Z,Z)), Z pooled",
            c * np.sqrt(n * m / N**2 * V_G / spread),
        ),
        ("hyppo Energy, bias=True", "N²/(nm) MMD_V, energy", N**2 / (n * m) * np.sqrt(V_E)),
        (
            "causal-learn KCI_UInd",
            "n² HSIC_V of standardised columns",
            n**2 * hsic(scores(X), scores(Y), G, G, "V"),
        ),
    ]
    rows = []
    for name, formula, value in table:
        bar = f"the same to {AGREE:g}"
        if theirs is None:
            rows.append(Row(f"statistic: {formula}", peers.missing, None, bar=bar))
            continue
        off = abs(theirs[name] - value) / abs(value)
        note = f"{value:.10g}, peer {theirs[name]:.10g}: to {off:.1e}"
        work = f"statistic: {formula}"
        rows.append(Row(work, name, None, note=note, bar=bar, holds=bool(off <= AGREE)))
    return rows


def run() -> list[Row]:
    peers = Peers()
    parts = (two_sample_rows, paired_rows, conditional_rows, agreement_rows)
    return [row for part in parts for row in part(peers)]


if __name__ == "__main__":
    main(__file__, "statistical tests", run, JOBS)
