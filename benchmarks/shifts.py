"""Training and test that differ: weights, proportions and components, against adapt and skada.

adapt (cvxopt behind it) and skada run in environments of their own on the same rows, with the same
Gaussian kernel and their own bounds. For the textbook programme ours gets adapt's bound and slack,
and both objectives are computed here. Rows without a bar say what weights and proportions are worth
on the same splits of real data.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, child, environment, main, say

ADAPT = ("adapt==0.4.5", "cvxopt", "numpy")
SKADA = ("skada==0.6.0", "numpy")
MATCHED, LARGE, TARGETS = 3000, 100_000, 5000
DOMAINS, EACH = 20, 500
BIASED, PROPORTIONED = 10, 5  # splits of breast cancer and of digits, of each kind

Environments = dict[str, Path | str]  # by peer: its interpreter, or what went wrong


def gaussians(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows nearer to one side and narrower, and the ratio of densities."""
    rng = np.random.default_rng(seed)
    X, T = rng.normal(size=(n, d)), rng.normal(0.5, 0.7, size=(n, d))
    logs = (X**2 - ((X - 0.5) / 0.7) ** 2).sum(axis=1) / 2 - d * np.log(0.7)
    return X, T, np.exp(logs)


def classes(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Five clouds in ten columns, other shares in test; the shares of the test rows."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1, size=(5, 10))
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    y, of_test = rng.integers(5, size=n), rng.choice(5, size=n, p=shares)
    X, T = (centres[c] + rng.normal(size=(n, 10)) for c in (y, of_test))
    return X, y, T, np.bincount(of_test, minlength=5) / n


def timed(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The best time, and what was found."""
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            start = time.perf_counter()
            found = work()
            seconds.append(time.perf_counter() - start)
    return min(seconds), found


def save_split(folder: Path, i: int, X: Any, y: Any, T: Any, gamma: float) -> None:
    """A split where the peers look for it."""
    np.savez(folder / f"split_{i}.npz", X=X, y=y, T=T, gamma=gamma)


def of_peer(
    python: Path | str, method: str, folder: Path, count: int
) -> tuple[list[float], list[np.ndarray]] | str:
    """Seconds and answers of every split, or why they are missing."""
    if isinstance(python, str):
        return python
    say(method)
    try:
        report, _ = child("peers/shifts_corrected.py", method, folder, count, python=python)
    except subprocess.CalledProcessError as error:
        return f"it failed (exit status {error.returncode})"
    return report["seconds"], [np.load(folder / f"{method}_{i}.npy") for i in range(count)]


def matching_rows(environments: Environments, folder: Path) -> list[Row]:
    """The textbook programme, and ours as it is meant."""
    from meanmap import KernelMeanMatching
    from meanmap.kernels import Gaussian

    X, T, ratio = gaussians(MATCHED, 2)
    kernel = Gaussian().resolve(np.vstack([X, T]))
    slack = (MATCHED**0.5 - 1) / MATCHED**0.5  # as adapt and skada choose it
    K, kappa = kernel(X), MATCHED * kernel(X, T).mean(axis=1)

    def described(beta: np.ndarray) -> str:
        value = beta @ K @ beta / 2 - kappa @ beta
        return f"objective {value:.7g}, {np.corrcoef(beta, ratio)[0, 1]:.2f} with the true ratio"

    def objective(beta: np.ndarray) -> float:
        return float(beta @ K @ beta / 2 - kappa @ beta)

    say(f"textbook, n = {MATCHED:,}")
    book = KernelMeanMatching(kernel, 0, 1000.0, slack)
    ours, fitted = timed(lambda: book.fit(X, X_test=T), 3)
    save_split(folder, 0, X, np.zeros(MATCHED, dtype=int), T, 1 / (2 * kernel.bandwidth**2))
    work = f"kernel mean matching, ρ = 0, n = {MATCHED:,}"
    rows = []
    for peer, method in (("adapt", "with_adapt"), ("skada", "matched")):
        found = of_peer(environments[peer], method, folder, 1)
        bar = "≥ 50×, objective no higher" if peer == "adapt" else ""
        note = f"ours: {described(fitted.weights_)}"
        if isinstance(found, str):
            rows.append(Row(work, peer, ours, note=f"{note}; {found}", bar=bar))
            continue
        (seconds,), (beta,) = found
        lower = objective(fitted.weights_) <= objective(beta)
        rows.append(
            Row(
                work,
                peer,
                ours,
                seconds,
                note=f"{note}; {peer}'s: {described(beta)}",
                bar=bar,
                holds=bool(seconds >= 50 * ours and lower) if bar else None,
            )
        )
    say("with a ridge")
    ours, fitted = timed(lambda: KernelMeanMatching(random_state=0).fit(X, X_test=T), 3)
    work = f"the same, kernel and ρ chosen on rows held out, n = {MATCHED:,}"
    rows.append(Row(work, "", ours, note=described(fitted.weights_)))
    say(f"n = {LARGE:,}")
    X, T, ratio = gaussians(LARGE, 3)
    ours, fitted = timed(lambda: KernelMeanMatching(random_state=0).fit(X, X_test=T), 1)
    note = f"{np.corrcoef(fitted.weights_, ratio)[0, 1]:.2f} with the true ratio"
    work = f"the same, n = {LARGE:,} against as many"
    return [*rows, Row(work, "", ours, note=note, bar="≤ 60 s", holds=ours <= 60)]


def target_rows(environments: Environments, folder: Path) -> list[Row]:
    """Shares of classes."""
    from meanmap import TargetShift

    def error(weights: np.ndarray, y: np.ndarray, shares: np.ndarray) -> str:
        found = np.bincount(y, weights=weights, minlength=5)
        return f"L1 error of shares {abs(found / found.sum() - shares).sum():.3f}"

    say(f"target shift, n = {TARGETS:,}")
    X, y, T, shares = classes(TARGETS)
    ours, fitted = timed(lambda: TargetShift(random_state=0).fit(X, y, X_test=T), 2)
    note = error(fitted.weights_, y, shares)
    work = f"target shift, five classes, n = {TARGETS:,}"
    rows = [Row(work, "", ours, note=note, bar="≤ 10 s", holds=ours <= 10)]
    X, y, T, shares = classes(1000)
    ours, fitted = timed(lambda: TargetShift(random_state=0).fit(X, y, X_test=T), 2)
    save_split(folder, 0, X, y, T, 1 / (2 * fitted.kernel_x_.bandwidth**2))
    found = of_peer(environments["skada"], "proportioned", folder, 1)
    work, note = "the same, n = 1,000", f"ours: {error(fitted.weights_, y, shares)}"
    if isinstance(found, str):
        return [*rows, Row(work, "skada", ours, note=f"{note}; {found}")]
    (seconds,), (beta,) = found
    note += f"; skada's: {error(beta, y, shares)}"
    return [*rows, Row(work, "skada", ours, seconds, note=note)]


def mean_and_error(values: np.ndarray) -> str:
    """The mean and its standard error."""
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def compared(
    work: str, peer: str, measure: str, plain: np.ndarray, ours: list[Any], found: Any, part: slice
) -> Row:
    """A row on the same splits: seconds of one, and errors of both beside those of neither."""
    seconds, errors = (np.array(values)[part] for values in ours)
    note = f"{measure}: without {mean_and_error(plain[part])}, ours {mean_and_error(errors)}"
    if isinstance(found, str):
        return Row(work, peer, seconds.mean(), note=f"{note}; {found}")
    theirs, of_peer_ = (np.array(values)[part] for values in found)
    note += f", {peer}'s {mean_and_error(of_peer_)}"
    note += f"; {peer}'s less ours {mean_and_error(of_peer_ - errors)}"
    return Row(work, peer, seconds.mean(), theirs.mean(), note=note)


def biased_rows(environments: Environments, folder: Path) -> list[Row]:
    """Breast cancer, biased: what a classifier gains or loses by the weights."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    from meanmap import KernelMeanMatching
    from meanmap.kernels import Gaussian
    from meanmap_experiments.shifted_samples import BIASES, breast_cancer_split

    say("breast cancer")
    splits, plain, ours = [], [], ([], [])

    def error(i: int, weights: np.ndarray) -> float:
        X, y, T, z, model = splits[i]
        # C was chosen for weights of mean 1; a class without weight would be refused
        weights = np.maximum(weights / weights.mean(), 1e-6)
        return 1 - float(model.fit(X, y, sample_weight=weights).score(T, z))

    for j, bias in enumerate(BIASES):
        for k in range(BIASED):
            i, rng = len(splits), np.random.default_rng([j, k])
            X, y, T, z, _ = breast_cancer_split(bias, rng)
            while np.bincount(y, minlength=2).min() < 5:
                X, y, T, z, _ = breast_cancer_split(bias, rng)
            grid = GridSearchCV(SVC(), {"C": [0.01, 0.1, 1.0, 10.0]}, cv=5).fit(X, y)
            splits.append((X, y, T, z, grid.best_estimator_))
            width = Gaussian().resolve(np.vstack([X, T])).bandwidth
            save_split(folder, i, X, y, T, 1 / (2 * width**2))
            matching = KernelMeanMatching(random_state=0)
            seconds, fitted = timed(lambda m=matching, X=X, T=T: m.fit(X, X_test=T), 1)
            plain.append(error(i, np.ones(len(X))))
            ours[0].append(seconds)
            ours[1].append(error(i, fitted.weights_))
    rows = []
    for peer, method in (("adapt", "with_adapt"), ("skada", "matched")):
        found = of_peer(environments[peer], method, folder, len(splits))
        if not isinstance(found, str):
            found = found[0], [error(i, w) for i, w in enumerate(found[1])]
        for j, bias in enumerate(BIASES):
            part = slice(j * BIASED, (j + 1) * BIASED)
            work = f"breast cancer biased by {bias}, {BIASED} splits, one of them"
            measure = "test error of an SVC"
            rows.append(compared(work, peer, measure, np.array(plain), ours, found, part))
    return rows


def digits_rows(environments: Environments, folder: Path) -> list[Row]:
    """Digits in other proportions."""
    from meanmap import TargetShift
    from meanmap.kernels import Gaussian
    from meanmap_experiments.shifted_samples import SHIFTS, digits_split

    say("digits")
    labels, shares, plain, ours = [], [], [], ([], [])

    def error(i: int, weights: np.ndarray) -> float:
        found = np.bincount(labels[i], weights=weights, minlength=10)
        return float(abs(found / found.sum() - shares[i]).sum())

    for j, shift in enumerate(SHIFTS):
        for k in range(PROPORTIONED):
            i = len(labels)
            X, y, T, _, p = digits_split(shift, np.random.default_rng([j, k]))
            labels.append(y)
            shares.append(p)
            width = Gaussian().resolve(np.vstack([X, T])).bandwidth
            save_split(folder, i, X, y, T, 1 / (2 * width**2))
            model = TargetShift(random_state=0)
            seconds, fitted = timed(lambda m=model, X=X, y=y, T=T: m.fit(X, y, X_test=T), 1)
            plain.append(error(i, np.ones(len(y))))
            ours[0].append(seconds)
            ours[1].append(error(i, fitted.weights_))
    found = of_peer(environments["skada"], "proportioned", folder, len(labels))
    if not isinstance(found, str):
        found = found[0], [error(i, w) for i, w in enumerate(found[1])]
    rows = []
    for j, shift in enumerate(SHIFTS):
        part = slice(j * PROPORTIONED, (j + 1) * PROPORTIONED)
        work = f"digits, {shift}, {PROPORTIONED} splits, one of them"
        measure = "L1 error of shares"
        rows.append(compared(work, "skada", measure, np.array(plain), ours, found, part))
    return rows


def component_rows() -> list[Row]:
    """Invariant components of many domains."""
    from meanmap import InvariantComponents

    rng = np.random.default_rng(0)
    domains = np.repeat(np.arange(DOMAINS), EACH)
    y = rng.integers(2, size=len(domains))
    X = rng.normal(size=(len(domains), 5))
    X[:, :2] += 1.2 * y[:, None]
    X[:, 2:4] += 3 * rng.normal(size=(DOMAINS, 2))[domains]
    rows = []
    for name, model in (
        ("settings chosen by domains left out", InvariantComponents(2, random_state=0)),
        ("settings given", InvariantComponents(2, trade_off=1.0, random_state=0)),
    ):
        say(f"components, {name}")
        ours, _ = timed(lambda model=model: model.fit(X, y, domains=domains), 2)
        work = f"invariant components, {DOMAINS} domains × {EACH} rows, {name}"
        rows.append(Row(work, "", ours, bar="≤ 30 s", holds=ours <= 30))
    return rows


def run() -> list[Row]:
    environments: Environments = {}
    for name, requirements in (("adapt", ADAPT), ("skada", SKADA)):
        try:
            environments[name] = environment(name, *requirements)
        except (OSError, subprocess.CalledProcessError) as error:
            environments[name] = f"{name} could not be installed ({error})"
            say(str(environments[name]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *matching_rows(environments, folder),
            *target_rows(environments, folder),
            *biased_rows(environments, folder),
            *digits_rows(environments, folder),
            *component_rows(),
        ]


if __name__ == "__main__":
    main(__file__, "training and test that differ", run, {})
