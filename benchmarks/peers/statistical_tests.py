"""The peers' two-sample and independence tests; runs in an environment of its own.

`--job study FILE RUNS SEED name=effect …` writes p-values for `power.py`, which has the data; the
other jobs are timed by `tests.py`. Every test is called as its documentation says, with its own
default kernel or bandwidth; what a peer calls its fast approximation is a test of its own here.
Randomness is seeded through NumPy's and torch's global generators, as some peers ignore the seed
they are given.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import imported, run_job
from power import ALTERNATIVES, B_SLOW, Alternative, B, write_store

Test = Callable[[np.ndarray, np.ndarray, int], float]


# --- two samples ----------------------------------------------------------------------------------


def hyppo_mmd(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """MMD with a Gaussian kernel at the median distance, permutations."""
    from hyppo.ksample import MMD

    return MMD().test(X, Y, reps=B, auto=False)[1]


def hyppo_mmd_chi2(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """The same with its fast approximation."""
    from hyppo.ksample import MMD

    return MMD().test(X, Y, auto=True)[1]


def hyppo_energy(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Energy distance, which is Dcorr of the points and their labels; permutations."""
    from hyppo.ksample import Energy

    return Energy().test(X, Y, reps=B, auto=False, random_state=seed)[1]


def hyppo_energy_chi2(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """The same with its fast approximation."""
    from hyppo.ksample import Energy

    return Energy().test(X, Y, auto=True)[1]


def hyppo_mgc_ksample(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Multiscale graph correlation of the points and their labels."""
    labels = np.repeat([[0.0], [1.0]], [len(X), len(Y)], axis=0)
    return hyppo_mgc(np.concatenate([X, Y]), labels, seed)


def hyppo_mean_embedding(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Differences of mean embeddings at random places, linear in n."""
    from hyppo.ksample import MeanEmbeddingTest

    return MeanEmbeddingTest().test(X, Y, random_state=seed)[1]


def hyppo_smooth_cf(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Differences of smoothed characteristic functions at random places, linear in n."""
    from hyppo.ksample import SmoothCFTest

    return SmoothCFTest().test(X, Y, random_state=seed)[1]


def alibi_mmd(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """MMD with a Gaussian kernel at the median of the reference sample; p = #/B, without the +1."""
    from alibi_detect.cd import MMDDrift

    detector = MMDDrift(X, backend="pytorch", n_permutations=B, device="cpu")
    return float(detector.predict(Y)["data"]["p_val"])


def alibi_lsdd(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Least-squares density difference; p = #/B, without the +1."""
    from alibi_detect.cd import LSDDDrift

    detector = LSDDDrift(X, backend="pytorch", n_permutations=B, device="cpu")
    return float(detector.predict(Y)["data"]["p_val"])


def dcor_energy(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Energy distance; counts permuted > observed, without ties."""
    import dcor

    return dcor.homogeneity.energy_test(X, Y, num_resamples=B, random_state=seed).pvalue


def scott(Z: np.ndarray, n: int, d: int) -> np.ndarray:
    """Scott's rule, one bandwidth a coordinate, for n points in d dimensions."""
    return np.maximum(Z.std(axis=0, ddof=1), 1e-12) * n ** (-1 / (d + 4))


def smoothing(Z: np.ndarray, h: np.ndarray) -> np.ndarray:
    """∫ N(u; x, H) N(u; y, H) du = N(x - y; 0, 2H) for all pairs, H = diag(h²)."""
    U = Z / h
    squares = ((U[:, None, :] - U[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-squares / 4) / np.prod(2 * np.sqrt(np.pi) * h)


def kde_two_sample(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """∫ (p̂ - q̂)² of two Parzen estimates, permutations (Song, Fukumizu and Gretton 2013, 2.2)."""
    Z, n, m = np.concatenate([X, Y]), len(X), len(Y)
    K = smoothing(Z, scott(Z, min(n, m), Z.shape[1]))
    weights = np.repeat([1 / n, -1 / m], [n, m])
    rng = np.random.default_rng(seed)
    W = np.stack([weights, *(rng.permutation(weights) for _ in range(B))])
    return exact_pvalue(np.einsum("bi,bi->b", W @ K, W))


# --- dependence -----------------------------------------------------------------------------------


def hyppo_hsic(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """HSIC, normalised; permutations, whose seed it ignores."""
    from hyppo.independence import Hsic

    return Hsic().test(X, Y, reps=B, auto=False, random_state=seed)[1]


def hyppo_hsic_chi2(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """The same with its fast approximation."""
    from hyppo.independence import Hsic

    return Hsic().test(X, Y, auto=True)[1]


def hyppo_dcorr(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Distance correlation, permutations."""
    from hyppo.independence import Dcorr

    return Dcorr().test(X, Y, reps=B, auto=False, random_state=seed)[1]


def hyppo_dcorr_chi2(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """The same with its fast approximation."""
    from hyppo.independence import Dcorr

    return Dcorr().test(X, Y, auto=True)[1]


def hyppo_mgc(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Multiscale graph correlation.

    `MGC().test(X, Y, reps=B, random_state=seed)` spends its time on ranks, variances and a quantile
    that permutations do not change. This takes the same permutations and the same functions of
    SciPy, what is constant outside the loop: the same p-value (`mgc_agrees`), ten times sooner.
    """
    from scipy.ndimage import label
    from scipy.spatial.distance import cdist
    from scipy.stats import _mgc, _stats, beta
    from sklearn.utils import check_random_state

    n = len(X)
    parts = _stats._transform_distance_matrix(cdist(X, X), cdist(Y, Y))
    C_x, R_x = parts["cent_distx"], parts["rank_distx"]
    C_y, R_y = parts["cent_disty"], parts["rank_disty"]
    v_x, v_y = (
        _stats._local_covariance(C, C.T, R, R.T).diagonal() for C, R in ((C_x, R_x), (C_y, R_y))
    )
    shape = (n - 1) * (n - 4) / 4 - 1 / 2
    threshold = 2 * beta.ppf(1 - 0.02 / (n - 1), shape, shape) - 1

    def statistic(order: np.ndarray) -> float:
        at = np.ix_(order, order)
        covariances = _stats._local_covariance(C_x, C_y[at].T, R_x, R_y[at].T)
        with np.errstate(all="ignore"):
            scores = np.minimum(covariances / np.sqrt(np.outer(v_x, v_y)), 1)
        scores[v_x <= 0], scores[:, v_y <= 0] = 0, 0
        if min(scores.shape) == 1:
            return scores[-1, -1]
        region = scores > max(threshold, scores[-1, -1])
        if region.any():
            labels = label(region)[0]
            region = labels == 1 + np.bincount(labels.ravel())[1:].argmax()
        return _mgc._smooth_mgc_map(region, scores)[0]

    seeds = check_random_state(seed).randint(np.iinfo(np.int32).max, size=B)
    observed = statistic(np.arange(n))
    null = np.array([statistic(check_random_state(s).permutation(n)) for s in seeds])
    # a label's distances tie exactly, and their sums to rounding, here as in hyppo
    return float((1 + (null >= observed).sum()) / (1 + B))


def mgc_agrees() -> None:
    """Fails unless `hyppo_mgc` gives hyppo's p-values."""
    from hyppo.independence import MGC

    for seed in range(3):
        for name in ("circle", "categorical", "blobs"):
            X, Y = ALTERNATIVES[name].generate(seed)
            if name == "categorical":
                X, Y = one_hot(X), one_hot(Y)
            if name == "blobs":
                X, Y = np.concatenate([X, Y]), np.repeat([[0.0], [1.0]], len(X), axis=0)
            theirs = MGC().test(X, Y, reps=B, random_state=seed)[1]
            assert abs(theirs - hyppo_mgc(X, Y, seed)) < 1.5 / B, (name, seed, theirs)


def hyppo_hhg(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Heller, Heller and Gorfine's test."""
    from hyppo.independence import HHG

    return HHG().test(X, Y, reps=B_SLOW, auto=False, random_state=seed)[1]


def dcor_dcov(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """Distance covariance; counts permuted > observed, without ties."""
    from dcor.independence import distance_covariance_test

    return distance_covariance_test(X, Y, num_resamples=B, random_state=seed).pvalue


def causal_kci(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """KCI without a condition: HSIC with a gamma null."""
    from causallearn.utils.KCI.KCI import KCI_UInd

    return float(KCI_UInd().compute_pvalue(X, Y)[0])


def causal_rit(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """The same on random Fourier features."""
    from causallearn.utils.RCIT.RCIT import RIT

    return float(np.squeeze(RIT().compute_pvalue(X, Y)[0]))


def causal_table(method: str, X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """χ² or G² of the table of two columns of labels."""
    from causallearn.utils.cit import CIT

    return float(CIT(np.column_stack([X.argmax(axis=1), Y.argmax(axis=1)]), method)(0, 1))


def kde_independence(X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """∫ (p̂_xy - p̂_x p̂_y)² of Parzen estimates, permutations (Rosenblatt's statistic)."""
    n, d = len(X), X.shape[1] + Y.shape[1]
    K, L = smoothing(X, scott(X, n, d)), smoothing(Y, scott(Y, n, d))
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    rng = np.random.default_rng(seed)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(B))]
    return exact_pvalue(np.array([np.vdot(K, L[np.ix_(o, o)]) / n**2 for o in orders]))


def exact_pvalue(statistics: np.ndarray) -> float:
    """(1 + #)/(1 + B), ties counted; the first statistic is the observed one."""
    observed, permuted = statistics[0], statistics[1:]
    tied = permuted >= observed - 1e-9 * abs(observed)
    return float((1 + tied.sum()) / (1 + len(permuted)))


TESTS: dict[str, dict[str, Test]] = {
    "two-sample": {
        "hyppo MMD": hyppo_mmd,
        "hyppo MMD, chi2": hyppo_mmd_chi2,
        "hyppo Energy": hyppo_energy,
        "hyppo Energy, chi2": hyppo_energy_chi2,
        "hyppo MGC": hyppo_mgc_ksample,
        "hyppo MeanEmbedding": hyppo_mean_embedding,
        "hyppo SmoothCF": hyppo_smooth_cf,
        "alibi-detect MMD": alibi_mmd,
        "alibi-detect LSDD": alibi_lsdd,
        "dcor energy": dcor_energy,
        "KDE L2": kde_two_sample,
    },
    "independence": {
        "hyppo Hsic": hyppo_hsic,
        "hyppo Hsic, chi2": hyppo_hsic_chi2,
        "hyppo Dcorr": hyppo_dcorr,
        "hyppo Dcorr, chi2": hyppo_dcorr_chi2,
        "hyppo MGC": hyppo_mgc,
        "hyppo HHG": hyppo_hhg,
        "dcor dcov": dcor_dcov,
        "causal-learn KCI": causal_kci,
        "causal-learn RIT": causal_rit,
        "KDE L2": kde_independence,
    },
    "labels": {
        "causal-learn chisq": functools.partial(causal_table, "chisq"),
        "causal-learn gsq": functools.partial(causal_table, "gsq"),
    },
}
SLOW = {"hyppo HHG"}
SLOW_RUNS, SLOW_GAP = 150, 0.1  # a slow test stops here if it is that far behind the best
# exact by construction, with ties counted: their level is not measured
EXACT = {"KDE L2"} | {f"hyppo {name}" for name in ("MMD", "Energy", "MGC", "Hsic", "Dcorr", "HHG")}
# permutations too, but with a bandwidth from one sample, or ties not counted; all others have
# approximate nulls, and cost so little that a factor here gives their level to any precision
ABOUT_EXACT = {"alibi-detect MMD", "alibi-detect LSDD", "dcor energy", "dcor dcov"}
NULL_FACTOR = 1


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Labels as the peers take them."""
    return (labels[:, None] == np.unique(labels)).astype(float)


def tests_for(alternative: Alternative) -> dict[str, Test]:
    """What can be run on an alternative."""
    labels = alternative.generate(0)[0].dtype.kind == "U"
    return TESTS[alternative.kind] | (TESTS["labels"] if labels else {})


def pvalues(task: tuple[str, float, str, str, range]) -> list[float]:
    """A peer's p-values for a range of seeds."""
    name, effect, peer, which, seeds = task
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    alternative = ALTERNATIVES[name]
    test, found = tests_for(alternative)[peer], []
    for seed in seeds:
        X, Y = alternative.generate(seed, effect) if which == "power" else alternative.null(seed)
        if X.dtype.kind == "U":
            X, Y = one_hot(X), one_hot(Y)
        np.random.seed(seed)  # noqa: NPY002  (the peers draw from it)
        torch.manual_seed(seed)
        found.append(float(test(X, Y, seed)))
    return found


def study(file: str, runs: str, seed: str, *settings: str) -> None:
    """P-values of every peer, on the alternatives named, with two processes."""
    first, last, pilot = int(seed), int(seed) + int(runs), int(seed) > 0
    with ProcessPoolExecutor(2) as pool:

        def several(name: str, effect: float, keys: list, first: int, last: int) -> dict:
            chunks = [range(i, min(i + 25, last)) for i in range(first, last, 25)]
            tasks = [(name, effect, *key, chunk) for key in keys for chunk in chunks]
            results = iter(pool.map(pvalues, tasks))
            return {key: np.concatenate([next(results) for _ in chunks]) for key in keys}

        found = {}
        for slow in (False, True):  # the slow ones last, so that the rest can be used before
            for setting in settings:
                name, text = setting.split("=")
                effect, start = float(text), time.perf_counter()
                peers = [p for p in tests_for(ALTERNATIVES[name]) if (p in SLOW) == slow]
                if not peers:
                    continue
                some = min(last, first + SLOW_RUNS) if slow else last
                new = several(name, effect, [(p, "power") for p in peers], first, some)
                if not (slow or pilot):
                    some_of = [(p, "null") for p in peers if p in ABOUT_EXACT]
                    rest = [(p, "null") for p in peers if p not in EXACT | ABOUT_EXACT]
                    new |= several(name, effect, some_of, first, last)
                    new |= several(name, effect, rest, first, NULL_FACTOR * last)
                old = found.setdefault(setting, {})
                known = [np.mean(p <= 0.05) for key, p in old.items() if key[1] == "power"]
                best = max(known, default=0)
                near = [k for k, p in new.items() if np.mean(p <= 0.05) > best - SLOW_GAP]
                if some < last and near:
                    more = several(name, effect, near, some, last)
                    new |= {k: np.concatenate([new[k], p]) for k, p in more.items()}
                old |= new
                write_store(Path(file), name, effect, old)
                took = time.perf_counter() - start
                print(f"… {setting}: {took:.0f} s", file=sys.stderr, flush=True)
                for (peer, which), p in new.items():
                    share = np.mean(p <= 0.05)
                    print(f"    {which} {share:.3f} {peer}", file=sys.stderr, flush=True)


# --- time and agreement, for tests.py -------------------------------------------------------------

PATIENCE = 60.0  # seconds; what takes longer is timed at fewer permutations and scaled
SHORT = 12.0  # how long the scaled ones may take


def load(folder: str, *names: str) -> list[np.ndarray]:
    """Data that `tests.py` wrote."""
    return [np.load(Path(folder) / f"{name}.npy") for name in names]


def timed(work: Callable[[int], tuple[float, float]], wanted: int) -> dict[str, Any]:
    """Seconds for the permutations wanted, scaled from fewer where that takes a minute or more.

    Two timings give what a permutation costs and what comes before the first.
    """

    def at(count: int) -> tuple[float, tuple[float, float]]:
        start = time.perf_counter()
        found = work(count)
        return time.perf_counter() - start, found

    at(2)  # compiles what is compiled
    few = 4
    before, found = at(few)
    many = wanted
    if before / few * wanted > PATIENCE:
        many = max(3 * few, min(wanted, int(SHORT / (before / few))))
    seconds, (statistic, pvalue) = at(many)
    each = max(seconds - before, 0.0) / (many - few)
    return {
        "seconds": seconds + each * (wanted - many),
        "permutations": many,
        "statistic": float(statistic),
        "pvalue": float(pvalue),
    }


def quiet(threads: int) -> None:
    """Threads as told, and no advice in between; what is imported by now is not the work."""
    from threadpoolctl import threadpool_limits

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
        sys.modules["torch"].manual_seed(0)
    threadpool_limits(threads)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    np.random.seed(0)  # noqa: NPY002
    imported()


def time_alibi(folder: str, sigma: str, wanted: str, threads: str) -> dict[str, Any]:
    """MMDDrift with a given bandwidth."""
    import torch  # noqa: F401  (alibi-detect loads it when it is first asked to)
    from alibi_detect.cd import MMDDrift

    quiet(int(threads))
    X, Y = load(folder, "X", "Y")
    width = np.array([float(sigma)])

    def work(count: int) -> tuple[float, float]:
        settings = {"backend": "pytorch", "n_permutations": count, "device": "cpu", "sigma": width}
        found = MMDDrift(X, configure_kernel_from_x_ref=False, **settings).predict(Y)["data"]
        return found["distance"], found["p_val"]

    return timed(work, int(wanted))


def time_dcor(folder: str, sigma: str, wanted: str, threads: str) -> dict[str, Any]:
    """The distance covariance test."""
    from dcor.independence import distance_covariance_test

    quiet(int(threads))
    X, Y = load(folder, "X", "Y")

    def work(count: int) -> tuple[float, float]:
        found = distance_covariance_test(X, Y, num_resamples=count, random_state=0)
        return found.statistic, found.pvalue

    return timed(work, int(wanted))


def time_hyppo(folder: str, sigma: str, wanted: str, threads: str) -> dict[str, Any]:
    """Hsic with given bandwidths; its statistic is that of `auto=True`."""
    from hyppo.independence import Hsic

    quiet(int(threads))
    X, Y = load(folder, "X", "Y")
    gamma = 1 / (2 * float(sigma) ** 2)
    statistic = Hsic(gamma=gamma).statistic(X, Y)

    def work(count: int) -> tuple[float, float]:
        return statistic, Hsic(gamma=gamma).test(X, Y, reps=count, auto=False)[1]

    return timed(work, int(wanted))


def time_kci(folder: str, threads: str) -> dict[str, Any]:
    """KCI with its defaults, of X and Y and of X and the dependent Y2, given Z."""
    from causallearn.utils.KCI.KCI import KCI_CInd

    quiet(int(threads))
    X, Y, Y2, Z = load(folder, "X", "Y", "Y2", "Z")
    KCI_CInd().compute_pvalue(X[:100], Y[:100], Z[:100])
    start = time.perf_counter()
    pvalues = [float(KCI_CInd().compute_pvalue(X, Y, Z)[0])]
    seconds = time.perf_counter() - start
    pvalues.append(float(KCI_CInd().compute_pvalue(X, Y2, Z)[0]))
    return {"seconds": seconds, "pvalues": pvalues}


def statistics(folder: str, sigma: str) -> dict[str, float]:
    """What the peers compute on one small sample, by name."""
    import dcor
    from alibi_detect.cd import MMDDrift
    from causallearn.utils.KCI.KCI import KCI_UInd
    from hyppo.independence import Dcorr, Hsic
    from hyppo.ksample import MMD, Energy

    quiet(1)
    X, Y, W = load(folder, "X", "Y", "W")
    width, gamma = float(sigma), 1 / (2 * float(sigma) ** 2)
    settings = {"backend": "pytorch", "n_permutations": 2, "device": "cpu"}
    drift = MMDDrift(X, sigma=np.array([width]), configure_kernel_from_x_ref=False, **settings)
    kci = KCI_UInd(est_width="manual", kwidthx=width, kwidthy=width)
    found = {
        "alibi-detect MMDDrift": drift.predict(W)["data"]["distance"],
        "dcor energy_distance": dcor.energy_distance(X, W),
        "dcor energy_test_statistic": dcor.homogeneity.energy_test_statistic(X, W),
        "dcor distance_covariance_sqr": dcor.distance_covariance_sqr(X, Y),
        "dcor u_distance_covariance_sqr": dcor.u_distance_covariance_sqr(X, Y),
        "dcor distance_correlation_sqr": dcor.distance_correlation_sqr(X, Y),
        "dcor u_distance_correlation_sqr": dcor.u_distance_correlation_sqr(X, Y),
        "hyppo Dcorr": Dcorr().statistic(X, Y),
        "hyppo Dcorr, bias=True": Dcorr(bias=True).statistic(X, Y),
        "hyppo Hsic": Hsic(gamma=gamma).statistic(X, Y),
        "hyppo Hsic, bias=True": Hsic(gamma=gamma, bias=True).statistic(X, Y),
        "hyppo Hsic, auto=False": Hsic(gamma=gamma).test(X, Y, reps=2, auto=False)[0],
        "hyppo MMD": MMD(gamma=gamma).statistic(X, W),
        "hyppo MMD, bias=True": MMD(gamma=gamma, bias=True).statistic(X, W),
        "hyppo Energy, bias=True": Energy(bias=True).statistic(X, W),
        "causal-learn KCI_UInd": kci.compute_pvalue(X, Y)[1],
    }
    return {name: float(value) for name, value in found.items()}


JOBS = {
    "study": study,
    "alibi": time_alibi,
    "dcor": time_dcor,
    "hyppo": time_hyppo,
    "kci": time_kci,
    "statistics": statistics,
    "check": mgc_agrees,
}

if __name__ == "__main__":
    run_job(JOBS[sys.argv[2]], sys.argv[3:])
