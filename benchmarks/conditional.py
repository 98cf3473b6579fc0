"""Distributions of y given x, by default, against six peers, on known laws and real tables.

Every method gives a distribution at each test point: normal, or quantiles. From it come the root
mean squared error of the mean (against the true mean where it is known), the CRPS, the log score
(minus the mean log density: small is good), coverage and width of the 90% interval, and seconds.
All are in units of y's standard deviation in the sample.

    python benchmarks/conditional.py                        # ours anew, peers not on file yet
    python benchmarks/conditional.py --methods ours         # ours only; peers from the file
    python benchmarks/conditional.py --quick                # one seed, no large samples
    python benchmarks/conditional.py --methods report       # nothing anew: the tables again
    python benchmarks/conditional.py --methods report --page    # and those of docs/distributions.md

How it is measured. The CRPS is twice the mean pinball loss at the levels (i - ½)/99, for everybody
but normals, which have a closed form (for normals the two differ by about 0.01%). The density of
a method that gives quantiles is the slope of the distribution function that runs straight between
them, neighbours a thousandth of a standard deviation apart at least; beyond the last quantile on
each side it falls exponentially, at the rate that the outermost twentieth of the quantiles shows.
Where `ConditionalEmbedding` has a density of its own, that counts for ours. Rounded and discrete
targets have no log score. Seconds are the processor's, on one thread, so that a busy machine does
not count; an answer is the mean, 99 quantiles and an interval at each row.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from conditional_laws import FOLDS, LAWS, MEANS, TABLES, Law, Table, Task
from conditional_methods import ENDS, LEVELS, OURS, PEERS, crps_of_quantiles, ours, warm_up
from harness import HERE, RESULTS, Report, Row, line, say

SIZES, SEEDS = (200, 1_000, 5_000), range(5)
ON_FILE = RESULTS / "conditional.json"
PAGE = HERE.parent / "docs" / "distributions.md"
MARKS = (
    "<!-- figures: python benchmarks/conditional.py --methods report --page -->",
    "<!-- end of figures -->",
)
CACHE = Path(os.environ.get("MEANMAP_CONDITIONAL_CACHE", HERE / ".cache" / "conditional"))
TASKS: dict[str, Law | Table] = {**LAWS, **TABLES}
FIGURES = ("rmse", "crps", "log_score", "coverage", "width", "fit_seconds", "answer_seconds")


# --- cells: one method on one sample --------------------------------------------------------------


class Cell(NamedTuple):
    """A law with n rows, or a table (n = 0); the seed or the fold."""

    task: str
    n: int
    seed: int

    def key(self, method: str) -> str:
        return "|".join([self.task, str(self.n), method])

    def __str__(self) -> str:
        return f"{show_place(self.task, self.n)}, {'seed' if self.n else 'fold'} {self.seed}"


def show_place(task: str, n: int) -> str:
    return f"{task}, n = {n:,}" if n else task


def truth_figures(task: Task) -> dict[str, float]:
    """What the true law itself scores, and the width of its interval."""
    law = task.truth
    values = np.stack([law.ppf(q) for q in LEVELS], axis=1)
    low, high = law.ppf(ENDS[0]), law.ppf(ENDS[1])
    density = law.logpmf if task.discrete else law.logpdf
    return {
        "rmse": 0.0,
        "crps": crps_of_quantiles(values, LEVELS, task.y_test),
        "log_score": float(-np.mean(density(task.y_test))),
        "coverage": float(np.mean((low <= task.y_test) & (task.y_test <= high))),
        "width": float(np.mean(high - low)),
    }


def measure(method: str, cell: Cell) -> dict[str, float]:
    """Every figure of a method on a sample, in units of the sample's standard deviation."""
    task = TASKS[cell.task].task(*cell)
    unit = float(task.y.std())
    if method == "truth":
        return in_units(truth_figures(task), unit, task.discrete)
    fit = PEERS.get(method, ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm_up(method)
        start = time.process_time()
        fitted = fit(task.X, task.y, cell.seed)
        middle = time.process_time()
        answer = fitted.answer(task.X_test)
        mean, values = answer.mean(), answer.ppf(np.concatenate([LEVELS, ENDS]))
        end = time.process_time()
        own = fitted.own(task.X_test, task.y_test) if fitted.own else {}
    target = task.y_test if task.truth is None else task.truth.mean()
    low, high = values[:, -2:].T
    found = {
        "rmse": float(np.sqrt(np.mean((mean - target) ** 2))),
        "crps": answer.crps(task.y_test),
        "log_score": answer.log_score(task.y_test, unit),
        "coverage": float(np.mean((low <= task.y_test) & (task.y_test <= high))),
        "width": float(np.mean(high - low)),
        "fit_seconds": middle - start,
        "answer_seconds": end - middle,
    }
    if "log_score" in own:
        own["log_score_of_quantiles"] = found["log_score"]
    return in_units(found | own, unit, task.discrete)


def in_units(found: dict[str, float], unit: float, discrete: bool) -> dict[str, float]:
    """Figures in units of y's standard deviation; no log score without a density."""
    for name in ("rmse", "crps", "width", "crps_of_model"):
        if name in found:
            found[name] /= unit
    for name in ("log_score", "log_score_of_quantiles"):
        if discrete:
            found.pop(name, None)
        elif name in found:
            found[name] -= math.log(unit)
    return found


# --- what is on file ------------------------------------------------------------------------------

Figures = dict[str, dict[int, dict[str, float]]]  # by Cell.key, then by seed


def cell_file(cache: Path, method: str, cell: Cell) -> Path:
    name = f"{cell.task}-{cell.n}-{cell.seed}".replace(" ", "_")
    return cache / method.replace(" ", "_") / f"{name}.json"


def stored_cells(cache: Path) -> Figures:
    """What is on file: the figures that come with the repository, and above them the cache's."""
    found: Figures = {}
    if ON_FILE.exists():
        for key, columns in json.loads(ON_FILE.read_text(encoding="utf-8")).items():
            seeds = columns.pop("seeds")
            rows = zip(*columns.values(), strict=True)
            found[key] = {
                s: {
                    name: value
                    for name, value in zip(columns, row, strict=True)
                    if value is not None
                }
                for s, row in zip(seeds, rows, strict=True)
            }
    for path in sorted(cache.glob("*/*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(stored["key"], {})[stored["seed"]] = stored["figures"]
    return found


def write_figures(found: Figures, path: Path = ON_FILE) -> None:
    """One line for each law, size and method: a list over seeds for each figure, four digits."""
    lines = []
    for key in sorted(found):
        seeds = sorted(found[key])
        columns: dict[str, Any] = {"seeds": seeds}
        for name in FIGURES:
            values = [found[key][s].get(name) for s in seeds]
            columns[name] = [None if v is None else float(f"{v:.4g}") for v in values]
        lines.append(f"{json.dumps(key)}: {json.dumps(columns)}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def compute(method: str, label: str, cell: Cell, cache: Path) -> dict[str, float]:
    """Measure and keep."""
    found = measure(method, cell)
    path = cell_file(cache, label, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"key": cell.key(label), "seed": cell.seed, "figures": found})
    path.write_text(text, encoding="utf-8")
    return found


def run_cells(
    work: Iterable[tuple[str, str, Cell]], cache: Path, processes: int
) -> dict[tuple[str, Cell], dict[str, float]]:
    """All cells, with a line of progress for each; one that fails is reported and left out."""
    jobs, done = list(work), {}
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of the new interpreters: the processor's seconds are one thread's
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh) as pool:
        futures = {pool.submit(compute, *job, cache): job for job in jobs}
        for i, future in enumerate(as_completed(futures), 1):
            _, label, cell = futures[future]
            place = f"{i}/{len(jobs)} {label}: {cell}"
            if error := future.exception():
                say(f"{place}: failed, {type(error).__name__}: {error}")
                continue
            done[label, cell] = found = future.result()
            seconds = found.get("fit_seconds", 0.0)
            scores = f"CRPS {found['crps']:.4f}, coverage {found['coverage']:.3f}"
            say(f"{place}: {scores}, {seconds:.1f} s")
    return done


# --- the report -----------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Ours beside everybody on a law of one size or on a table: means over common seeds."""

    task: str
    n: int
    seeds: int
    figures: Mapping[str, Mapping[str, float]]  # by method

    def best(self, figure: str, among: Iterable[str] = tuple(PEERS)) -> tuple[str, float]:
        found = [(self.figures.get(m, {}).get(figure, math.nan), m) for m in among]
        known = [pair for pair in found if not math.isnan(pair[0])]
        value, name = min(known, default=(math.nan, "none"))
        return name, value

    def ours(self, figure: str) -> float:
        return self.figures["ours"].get(figure, math.nan)

    def ratio(self, figure: str, among: Iterable[str] = tuple(PEERS)) -> float:
        return self.ours(figure) / self.best(figure, among)[1]

    def over_truth(self, figure: str) -> float:
        return self.ours(figure) / self.figures.get("truth", {}).get(figure, math.nan)

    @property
    def covers(self) -> bool:
        """Whether coverage is between 87 and 93%; discrete laws may cover as much as the truth."""
        top = max(0.93, self.figures.get("truth", {}).get("coverage", 0.0) + 0.03 * self.discrete)
        return 0.87 <= self.ours("coverage") <= top

    @property
    def discrete(self) -> bool:
        return isinstance(TASKS[self.task], Law) and TASKS[self.task].discrete


def comparisons(found: Figures, label: str, cells: Iterable[Cell]) -> list[Comparison]:
    """Of every law and size that ours was run on, over the seeds that all have who have any."""
    groups: dict[tuple[str, int], set[int]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.n), set()).add(cell.seed)
    table = []
    for (task, n), seeds in groups.items():
        keys = {m: Cell(task, n, 0).key(m) for m in ("truth", *PEERS)}
        keys["ours"] = Cell(task, n, 0).key(label)
        have = {m: seeds & set(found[key]) for m, key in keys.items() if key in found}
        have = {m: some for m, some in have.items() if some}
        common = set.intersection(*have.values()) if "ours" in have else set()
        if not common:
            continue
        figures = {m: average([found[keys[m]][s] for s in sorted(common)]) for m in have}
        table.append(Comparison(task, n, len(common), figures))
    return table


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    return {
        k: float(np.mean([row[k] for row in rows])) for k in rows[0] if all(k in r for r in rows)
    }


def geometric(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def show(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def fixed(value: float, digits: int = 2) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def bold(text: str, wrong: bool) -> str:
    return f"**{text}**" if wrong and text else text


HEAD = ["law or table", "n", "seeds", "CRPS", "best peer", "its CRPS", "ratio", "over truth"]
HEAD += ["rmse ratio", "log score less best peer's", "coverage", "width over truth", "fit, s"]
HEAD += ["answer, s", "best peer's fit, s"]


def main_table(table: list[Comparison]) -> list[str]:
    """Ours and the best peer, one line for each law and size; bold is outside the bars."""
    lines = [line(HEAD), line(["---"] * len(HEAD))]
    for row in table:
        name, crps = row.best("crps")
        peer = row.figures.get(name, {})
        width = row.over_truth("width")
        known = row.task in LAWS and row.n >= 1_000
        cells = [
            row.task,
            str(row.n or ""),
            str(row.seeds),
            show(row.ours("crps"), 4),
            name,
            show(crps, 4),
            bold(fixed(row.ratio("crps")), row.ratio("crps") > 1.1),
            fixed(row.over_truth("crps")),
            fixed(row.ratio("rmse")),
            fixed(row.ours("log_score") - row.best("log_score")[1]),
            bold(fixed(row.ours("coverage"), 3), known and not row.covers),
            bold(fixed(width), known and width > 1.15),
            show(row.ours("fit_seconds"), 2),
            show(row.ours("answer_seconds"), 2),
            show(peer.get("fit_seconds", math.nan), 2),
        ]
        lines.append(line(cells))
    return lines


def peers_table(table: list[Comparison]) -> list[str]:
    """Everybody's CRPS over the best of all methods', ours included: 1.00 won."""
    names = ["ours", *PEERS]
    lines = [line(["law or table", "n", *names]), line(["---"] * (len(names) + 2))]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for row in table:
        best = row.best("crps", names)[1]
        values = [row.figures.get(m, {}).get("crps", math.nan) / best for m in names]
        for name, value in zip(names, values, strict=True):
            ratios[name] += [] if any(map(math.isnan, values)) else [value]
        shown = [bold(fixed(value), value == 1.0) for value in values]
        lines.append(line([row.task, str(row.n or ""), *shown]))
    total = [fixed(geometric(ratios[name])) for name in names]
    return [*lines, line(["geometric mean where all are known", "", *total])]


class Bar(NamedTuple):
    """A promise: what was found, and whether it holds."""

    text: str
    found: str
    bar: str
    holds: bool | None


def bars(table: list[Comparison]) -> list[Bar]:
    """The totals: CRPS, coverage and width, the mean's error, time."""
    return [*score_bars(table), *interval_bars(table), *mean_bars(table), *time_bars(table)]


def score_bars(table: list[Comparison]) -> list[Bar]:
    ratios = {show_place(row.task, row.n): row.ratio("crps") for row in table}
    ratios = {where: ratio for where, ratio in ratios.items() if not math.isnan(ratio)}
    if not ratios:
        return []
    mean, (where, worst) = geometric(ratios.values()), max(ratios.items(), key=lambda kv: kv[1])
    above = sum(ratio > 1.1 for ratio in ratios.values())
    text = "CRPS, ours over the best peer's"
    return [
        Bar(f"{text}: geometric mean", f"{mean:.3f}", "≤ 1.00", mean <= 1),
        Bar(f"{text}: worst", f"{worst:.3f} ({where})", "≤ 1.10", worst <= 1.1),
        Bar(f"{text}: above 1.10", f"{above} of {len(ratios)}", "", None),
    ]


def interval_bars(table: list[Comparison]) -> list[Bar]:
    large = [row for row in table if row.n >= 1_000 and "truth" in row.figures]
    if not large:
        return []
    wrong = [
        f"{show_place(row.task, row.n)}: {row.ours('coverage'):.3f}"
        for row in large
        if not row.covers
    ]
    share = float(np.mean([row.over_truth("width") <= 1.15 for row in large]))
    text = "laws with n ≥ 1,000"
    return [
        Bar(
            f"{text}: coverage of the 90% interval outside .87 to .93",
            f"{len(wrong)} of {len(large)}{': ' if wrong else ''}{'; '.join(wrong)}",
            "none",
            not wrong,
        ),
        Bar(f"{text}: intervals ≤ 1.15 × the true width", f"{share:.0%}", "≥ 80%", share >= 0.8),
    ]


def mean_bars(table: list[Comparison]) -> list[Bar]:
    found = []
    for row in table:
        ratio = row.ratio("rmse", ("GP", "kernel ridge"))
        if row.task in MEANS and not math.isnan(ratio):
            text = f"rmse over the better of GP and kernel ridge: {show_place(row.task, row.n)}"
            found.append(Bar(text, f"{ratio:.2f}", "≤ 1.1", ratio <= 1.1))
    return found


def time_bars(table: list[Comparison]) -> list[Bar]:
    found = []
    for n, peer, most in ((1_000, "GP", 0.1), (5_000, "kernel ridge", 1.0)):
        rows = [row for row in table if row.n == n and peer in row.figures]
        times = [row.ours("fit_seconds") / row.figures[peer]["fit_seconds"] for row in rows]
        if times:
            mean = geometric(times)
            text = f"seconds of a fit over those of {peer}, n = {n:,}: geometric mean (worst)"
            found.append(Bar(text, f"{mean:.2g} ({max(times):.2g})", f"≤ {most:g}", mean <= most))
    return found


def markdown(table: list[Comparison], label: str) -> str:
    """The whole report."""
    say_holds = {None: "", True: "yes", False: "**no**"}
    lines = [f"# Distributions of y given x: {label} and six peers", ""]
    lines += [
        "Figures in units of y's standard deviation in the sample, means over seeds or folds.",
        "",
    ]
    lines += ["## Bars", "", line(["", "found", "bar", "holds"]), line(["---"] * 4)]
    lines += [line([b.text, b.found, b.bar, say_holds[b.holds]]) for b in bars(table)]
    lines += ["", "## Ours and the best peer", "", *main_table(table)]
    lines += ["", "## CRPS over the best of all", "", *peers_table(table), ""]
    return "\n".join(lines)


# --- the documentation ----------------------------------------------------------------------------


def methods_table(table: list[Comparison]) -> list[str]:
    """A line for each method: CRPS over the best of all, how often best, coverage, seconds."""
    names = ["ours", *PEERS]
    rows = [row for row in table if all("crps" in row.figures.get(m, {}) for m in names)]
    groups = [(f"laws, n = {n:,}", [r for r in rows if r.n == n]) for n in sorted(SIZES)]
    groups.append(("tables", [row for row in rows if not row.n]))
    groups = [(text, some) for text, some in groups if some]
    head = ["method", *(f"{text} ({len(some)})" for text, some in groups)]
    head += ["best of all", "90% interval covers", "fit at n = 1,000, s"]
    lines = [line(head), line(["---"] * len(head))]
    for name in names:
        first = sum(row.best("crps", names)[0] == name for row in rows)
        ratios = [
            [r.figures[name]["crps"] / r.best("crps", names)[1] for r in s] for _, s in groups
        ]
        large = [row for row in rows if row.n != 200]
        covered = [row.figures[name]["coverage"] for row in large]
        seconds = [row.figures[name]["fit_seconds"] for row in rows if row.n == 1_000]
        cells = ["`ConditionalEmbedding()`" if name == "ours" else name]
        cells += [fixed(geometric(some)) for some in ratios]
        cells += [f"{first} of {len(rows)}"]
        cells += [f"{min(covered):.0%} to {max(covered):.0%}" if covered else ""]
        lines.append(line([*cells, show(geometric(seconds), 2)]))
    return lines


def places_table(table: list[Comparison]) -> list[str]:
    """Ours over the best peer, which is named, on every law by size and on every table."""
    sizes = sorted({row.n for row in table if row.n})
    head = ["law or table", *(f"n = {n:,}" for n in sizes)]
    lines = [line(head), line(["---"] * len(head))]
    by_place = {(row.task, row.n): row for row in table}
    laws = [task for task in LAWS if any(row.task == task for row in table)]
    for task in laws:
        rows = [by_place.get((task, n)) for n in sizes]
        lines.append(line([task, *(beside_best(row) for row in rows)]))
    tables = [row for row in table if not row.n]
    if tables:
        head = ["table", "CRPS", "90% interval covers"]
        lines += ["", line(head), line(["---"] * len(head))]
        lines += [
            line([row.task, beside_best(row), f"{row.ours('coverage'):.0%}"]) for row in tables
        ]
    return lines


def beside_best(row: Comparison | None) -> str:
    ratio = math.nan if row is None else row.ratio("crps")
    if row is None or math.isnan(ratio):
        return ""
    return bold(f"{ratio:.2f}", ratio < 1) + f" {row.best('crps')[0]}"


def page_tables(table: list[Comparison]) -> str:
    """What the page of the documentation shows of the figures."""
    ratios = [row.ratio("crps") for row in table if not math.isnan(row.ratio("crps"))]
    lower = sum(ratio < 1 for ratio in ratios)
    near = sum(1 <= ratio <= 1.05 for ratio in ratios)
    lines = [
        f"Of {len(ratios)} comparisons, the default has a lower CRPS than every peer in {lower}, "
        f"is within 5% of the best one in {near} more, and behind by more in "
        f"{len(ratios) - lower - near}; the geometric mean of the ratio is "
        f"{geometric(ratios):.2f}, the worst {max(ratios, default=math.nan):.2f}.",
        "",
        "CRPS over that of the best method of all, geometric means:",
        "",
        *methods_table(table),
        "",
        "CRPS of the default over that of the best peer, which is named (bold: below all peers):",
        "",
        *places_table(table),
    ]
    return "\n".join(lines)


def write_page(table: list[Comparison], path: Path = PAGE) -> None:
    """Put the tables between the marks of the page."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    text = f"{before}{MARKS[0]}\n\n{page_tables(table)}\n\n{MARKS[1]}{after}"
    path.write_text(text, encoding="utf-8")


# --- the command line -----------------------------------------------------------------------------


def wanted_cells(tasks: Iterable[str], sizes: Iterable[int], seeds: Iterable[int]) -> list[Cell]:
    """Small samples of all laws first, then tables, then large samples; seeds outermost."""
    tasks, sizes, seeds = list(tasks), sorted(sizes), list(seeds)
    laws, tables = ([t for t in tasks if t in kind] for kind in (LAWS, TABLES))
    small, large = ([n for n in sizes if (n <= 1_000) == side] for side in (True, False))
    cells = []
    for some in (seeds[:2], seeds[2:]):
        cells += [Cell(task, n, seed) for n in small for seed in some for task in laws]
        cells += [Cell(task, 0, seed) for seed in some for task in tables]
        cells += [Cell(task, n, seed) for n in large for seed in some for task in laws]
    return cells


QUICK_TABLES = ("diabetes", "engel", "cancer", "Boston", "mcycle", "salaries", "attenu", "faithful")


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    methods = [OURS, "peers", "report", "truth", *PEERS]
    add("--methods", nargs="+", choices=methods, default=[OURS, "peers"])
    add("--laws", nargs="+", choices=list(TASKS), help="laws and tables, all by default")
    add("--sizes", nargs="+", type=int, default=list(SIZES))
    add("--seeds", nargs="+", type=int, default=list(SEEDS), help="of laws; folds of tables")
    add("--quick", action="store_true", help="n = 200 and 1,000, small tables, one seed")
    add("--again", action="store_true", help="peers again, whatever is on file")
    add("--keep", action="store_true", help="ours only where it is not on file")
    add("--label", default=OURS, help="the name under which ours is kept, and reported")
    add("--cache", type=Path, default=CACHE, help="folder of single cells")
    add("--processes", type=int, default=1)
    add("--write", action="store_true", help=f"keep all figures in {ON_FILE.name}")
    add("--page", action="store_true", help=f"write the tables of docs/{PAGE.name}")
    add("--json", type=Path, help="a quick run, its bars written here as well")
    return parser.parse_args(arguments)


def work_for(options: argparse.Namespace, cells: list[Cell], found: Figures) -> list[tuple]:
    """What is to be computed: method, label, cell."""
    methods = set(options.methods) - {"report"}
    if "peers" in methods:
        methods |= {"truth", *PEERS}
    work = []
    for cell in cells:
        for method in ("truth", *PEERS, OURS):
            label = options.label if method == OURS else method
            known = cell.seed in found.get(cell.key(label), {})
            anew = not options.keep if method == OURS else options.again
            impossible = method == "truth" and cell.task in TABLES
            if method in methods and not impossible and (anew or not known):
                work.append((method, label, cell))
    return work


def main(arguments: list[str] | None = None) -> None:
    options = options_of(arguments)
    start = time.perf_counter()
    if options.quick or options.json:
        options.sizes, options.seeds = [200, 1_000], [0]
        options.laws = options.laws or [*LAWS, *QUICK_TABLES]
    cells = wanted_cells(options.laws or TASKS, options.sizes, options.seeds)
    cells = [cell for cell in cells if cell.n or cell.seed < FOLDS]
    found = stored_cells(options.cache)
    done = run_cells(work_for(options, cells, found), options.cache, options.processes)
    for (label, cell), figures in done.items():
        found.setdefault(cell.key(label), {})[cell.seed] = figures
    table = comparisons(found, options.label, cells)
    text = markdown(table, options.label)
    print(text)
    if options.write:
        kept = {
            key: rows for key, rows in found.items() if key.split("|")[2] in (OURS, "truth", *PEERS)
        }
        write_figures(kept)
        (RESULTS / "conditional_distributions.md").write_text(text, encoding="utf-8")
    if options.page:
        write_page(table)
    if options.json:
        title = (__doc__ or "").splitlines()[0]
        rows = [Row(b.text, "", None, note=b.found, bar=b.bar, holds=b.holds) for b in bars(table)]
        report = Report("conditional", title, rows, time.perf_counter() - start)
        data = json.dumps({**report.data(), "markdown": report.markdown()}, indent=1)
        options.json.write_text(data, encoding="utf-8")


if __name__ == "__main__":
    main()
