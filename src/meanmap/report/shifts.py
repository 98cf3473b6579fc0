"""Shift reports: the kind of shift between training and test rows, and what to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.comparison import two_sample_test
from meanmap.comparison.corrections import holm
from meanmap.comparison.results import TestResult, probability, show_pvalue
from meanmap.frames import list_names
from meanmap.progress import progress_bar
from meanmap.report import findings, html, pictures
from meanmap.report.answers import Answer, AnswerTable, Picture
from meanmap.report.explanations import explanations, measure, share_outside
from meanmap.report.findings import ColumnShift, Finding
from meanmap.report.pages import answer_parts, answers_page
from meanmap.report.samples import (
    Samples,
    Targets,
    in_memory,
    pair_rows,
    read_samples,
    read_targets,
)
from meanmap.report.verdicts import Figures, verdict
from meanmap.statistics.weighted import relative_distance

SHOWN = 15  # columns in the text; the page has all of them
LABELLED = 10  # labelled test rows needed to compare targets
MOST_DRAWS = 20_000


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ShiftReport(Figures):
    """What `shift_report` found; `print` it, `.plot()` it, or save it with `.to_html(path)`.

    Attributes
    ----------
    kind : "no shift", "covariate shift", "target shift", "location-scale shift",
        "dependence shift", "disjoint supports", "concept shift", "unexplained shift" or
        "cannot tell"
    candidates : if the kind is "cannot tell", the kinds that explain the shift equally well
    verdict, remedy : in words, made from the figures below
    level : of all tests together
    sizes, used : numbers of training and test rows, and of those in use
    rows : the test of whole rows; its `.witness(x)` is positive where training has more
    overall : that test's p-values and name
    effect : of whole rows, from 0 (equal) to 1 (nothing in common)
    columns : one `ColumnShift` per column, with the largest effect first
    targets : tests that use targets of test rows
    given_targets : the test of P(x|y), made if P(y|x) differs, or None
    dependence : whether the dependence between columns differs, or None
    explanations : how much weights, targets, or location and scale explain, on held-out rows
    outside : the share of test rows that are unlike all training rows
    labelled : the number of test rows with targets
    extremes : the rows most typical of test alone and of training alone, in words
    notes : what else a reader should know

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.report import shift_report
    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.normal(size=(200, 2)), rng.normal(size=(150, 2)) + [1.0, 0.0]
    >>> report = shift_report(train, test, rng=0)
    >>> report.overall.pvalue < 0.05, report.columns[0].name
    (True, 'x0')
    """

    kind: str
    verdict: str
    remedy: str
    candidates: tuple[str, ...]
    sizes: tuple[int, int]
    used: tuple[int, int]
    rows: TestResult
    effect: float
    extremes: tuple[str, str]
    notes: tuple[str, ...]

    # --- words --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        lines = [self.title, "", self.verdict, self.remedy, ""]
        tests, tried = self.tests_table(), self.explanations_table()
        shown = len(tests.rows) - max(len(self.columns) - SHOWN, 0)
        lines += align_columns([tests.header, *tests.rows[:shown]])
        if shown < len(tests.rows):
            lines.append(f"… and {len(tests.rows) - shown} more columns with smaller effects")
        if tried.rows:
            lines += ["", *align_columns([tried.header, *tried.rows])]
        remarks = self.remarks()
        return "\n".join([*lines, "", *remarks] if remarks else lines)

    @property
    def title(self) -> str:
        """How many rows were compared, and the kind of shift."""
        n, m = self.sizes
        used = "" if self.used == self.sizes else f" ({self.used[0]:,} and {self.used[1]:,} used)"
        columns = f", {len(self.columns)} columns" if len(self.columns) > 1 else ""
        return f"Shift of {n:,} training rows to {m:,} test rows{used}{columns}: {self.kind}"

    def tests_table(self) -> AnswerTable:
        """The tests, with those that are significant marked."""
        found: list[tuple[Any, list[str]]] = []
        found.append((self.overall, [number_text(self.effect), "", "", ""]))
        found += [(one, [""] * 4) for one in self.targets]
        for column in self.columns:
            where = column.where if column.adjusted <= self.level else ""
            figures = number_text(column.difference, "+.2f"), number_text(column.spread)
            found.append((column, [number_text(column.effect), *figures, where]))
        rows = []
        for one, cells in found:
            star = " *" if one.adjusted <= self.level else ""
            rows.append((str(one.name), show_pvalue(one.adjusted) + star, *cells))
        return AnswerTable(
            ("", "p (Holm)", "effect", "mean, in sd", "sd ratio", "in the test sample"),
            tuple(rows),
            "Tests",
            f"Bold and *: significant at the {self.level:g} level for all tests together",
            tuple(i for i, (one, _) in enumerate(found) if one.adjusted <= self.level),
        )

    def explanations_table(self) -> AnswerTable:
        """What would explain the shift, with the explanations that hold marked."""
        holds = [one.holds(self.level) for one in self.explanations]
        rows = [
            (
                one.name,
                number_text(max(one.explained, 0.0), ".0%"),
                "" if math.isnan(one.pvalue) else show_pvalue(one.pvalue),
                f"{one.effective_size:.0f} of {one.size}",
                one.found if true else "",
            )
            for one, true in zip(self.explanations, holds, strict=True)
        ]
        return AnswerTable(
            ("explained by", "share", "p of the rest", "effective rows", "found"),
            tuple(rows),
            "What would explain the shift",
            "Each fitted on one half of the rows and tested on the other; bold: it holds",
            tuple(np.flatnonzero(holds).tolist()),
        )

    def remarks(self) -> list[str]:
        """Sentences that supplement the verdict."""
        out = []
        if not math.isnan(self.outside):
            out.append(f"Test rows unlike all training rows: {self.outside:.0%}.")
        found = self.dependence
        if found is not None:
            p = show_pvalue(found.pvalue)
            out.append(f"Test of equal dependence between columns: p = {p}{found.change}.")
        if not self.columns and any(self.extremes) and self.kind != "no shift":
            out.append(f"Most typical of the test sample alone: {self.extremes[0]}.")
            out.append(f"Most typical of the training sample alone: {self.extremes[1]}.")
        return [*out, *self.notes]

    # --- pictures, pages, frames --------------------------------------------------------------

    def plot(self, ax: Any = None) -> Any:
        """Columns by effect, and the column with the largest effect; without columns the test.

        Parameters
        ----------
        ax : one or two matplotlib axes, or None

        Returns
        -------
        the axes
        """
        if not self.columns:
            return self.rows.plot(ax)
        return pictures.draw_shift(self.columns, self.level, ax)

    def answer(self) -> Answer:
        """The report as pages and the command line show it."""
        words = "Columns by effect, and the one with the largest effect in both samples."
        return Answer(
            self.title,
            f"{self.verdict} {self.remedy}",
            report_values(self),
            tuple(table for table in (self.tests_table(), self.explanations_table()) if table.rows),
            (Picture(self.plot, words if self.columns else "The test of whole rows.", 2),),
            settings={"level": f"{self.level:g} for all tests together"},
            notes=tuple(self.remarks()),
        )

    def to_html(self, path: Any = None) -> str:
        """One self-contained page, with a picture if matplotlib is installed; written to a path."""
        text = answers_page([self.answer()], self.title)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        answer = replace(self.answer(), pictures=(), values={})
        return "\n".join([html.heading(self.title), *answer_parts(answer, 1, 3)])

    def to_frame(self) -> Any:
        """The columns' figures as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        rows = [figures_of(column, COLUMN) for column in self.columns]
        return pd.DataFrame(rows, columns=list(COLUMN)).set_index("name")


#: Figures for programs.
COLUMN = ("name", "pvalue", "adjusted", "effect", "difference", "spread", "where")
FINDING = ("name", "pvalue", "adjusted")
EXPLANATION = ("name", "explained", "pvalue", "effective_size", "found")


def figures_of(one: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def report_values(found: ShiftReport) -> dict[str, Any]:
    """The figures of a report, for programs."""
    return {
        **figures_of(found, ("kind", "candidates", "verdict", "remedy")),
        "statistic": found.rows.statistic,
        "pvalue": found.overall.pvalue,
        "adjusted": found.overall.adjusted,
        "rejected": found.kind != "no shift",
        "alpha": found.level,
        **figures_of(found, ("effect", "sizes", "used")),
        "columns": [figures_of(one, COLUMN) for one in found.columns],
        "targets": [figures_of(one, FINDING) for one in found.targets],
        "explanations": [
            {**figures_of(one, EXPLANATION), "holds": one.holds(found.level)}
            for one in found.explanations
        ],
        "outside": None if math.isnan(found.outside) else found.outside,
    }


def shift_report(
    train: Any,
    test: Any,
    y: Any = None,
    y_test: Any = None,
    *,
    kernel: Any = None,
    level: float = 0.05,
    rng: Any = None,
    max_samples: int | None = 2000,
    progress: bool | None = None,
) -> ShiftReport:
    """Compare training and test rows: the kind of shift, the columns that differ, what to try.

    The rows as a whole, every column and, if there are targets of test rows, the targets and P(y|x)
    are tested. P-values are corrected for all tests together (Holm): without any shift the verdict
    reads "no shift" with a probability of at least 1 - level. If something differs, changes that
    might explain it are fitted on one half of the rows and tested on the other: weights on rows
    (`KernelMeanMatching`), weights on targets (`TargetShift`), another location and scale of the
    columns. The best explanation names the verdict, unless others are as good up to chance: then
    the verdict is "cannot tell" and names them all. That is common without targets of test rows,
    since weights on rows can imitate other changes if the samples overlap. A target shift in which
    a class vanishes is not considered.

    Parameters
    ----------
    train, test : DataFrames, dicts of columns, arrays (n, d), or other points
        Tables must have the same columns. For Dask collections the report uses a random sample of
        the rows, drawn chunk by chunk; their targets are in chunks too. Numbers are standardised
        and labels become indicators, on both samples together. Other points (strings, graphs, …)
        need a kernel, and are compared as a whole.
    y : targets of training rows, classes or numbers, or None
    y_test : targets of test rows, with None or NaN for unlabelled rows, or None
        They are compared if at least 10 rows have one.
    kernel : Kernel, callable or None
        Of the rows as a whole; `kernels.Columns` sets one per column.
    level : float
        The probability of reporting a shift that did not happen. All tests are exact except that
        of P(y|x), whose level is approximate.
    rng : int, numpy Generator or None
    max_samples : int or None
        Rows of each sample in use, drawn at random; None uses all rows, and 20,000 of a Dask
        collection.
    progress : bool or None
        Show a progress bar; None shows one on a terminal after two seconds.

    Returns
    -------
    ShiftReport

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.report import shift_report
    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    >>> test[:, 1] += 1
    >>> report = shift_report(train, test, rng=0)
    >>> report.columns[0].name, round(report.columns[0].difference)
    ('x1', 1)
    >>> report.kind, sorted(report.candidates)
    ('cannot tell', ['covariate shift', 'location-scale shift'])
    """
    level, rng = probability(level, "level"), checks.random_generator(rng)
    if max_samples is not None:
        checks.whole(max_samples, "max_samples", 2, "Use 2000, or None for all rows.")
    train, y, n = in_memory(train, y, ("train", "y"), max_samples, rng)
    test, y_test, m = in_memory(test, y_test, ("test", "y_test"), max_samples, rng)
    samples, of_train, of_test = read_samples(train, test, kernel, max_samples, rng)
    targets = read_targets(y, y_test, samples.sizes, (of_train, of_test))
    samples = replace(samples, drawn_of=(n, m))
    compared = targets is not None and len(targets.labelled) >= LABELLED
    many = len(samples.fields) if len(samples.fields) > 1 else 0
    tests = 1 + many + (3 if compared else 0)
    draws = math.ceil(min(max(999, 2 * tests / level), MOST_DRAWS))
    with progress_bar(tests + 3, "shift", progress, "test") as done:
        rows, figures = run_tests(samples, targets if compared else None, level, draws, rng, done)
        if figures.any_shift:
            figures = with_explanations(figures, rows, samples, targets, draws, rng)
        done(3)
    return make_report(figures, rows, samples, reader_notes(samples, targets, compared))


def make_report(
    figures: Figures, rows: TestResult, samples: Samples, notes: tuple[str, ...]
) -> ShiftReport:
    """Put the report together."""
    kernel, pair = measure(samples), (samples.train, samples.test)
    return ShiftReport(
        **vars(figures),
        **vars(verdict(figures)),
        sizes=samples.whole,
        used=samples.used,
        rows=rows,
        effect=relative_distance(kernel, *pair),
        extremes=findings.extremes(kernel, *pair),
        notes=notes,
    )


def run_tests(
    samples: Samples,
    targets: Targets | None,
    level: float,
    draws: int,
    rng: np.random.Generator,
    done: Callable[[int], Any],
) -> tuple[TestResult, Figures]:
    """The test of whole rows, and the figures of all tests that share the level."""

    def two(X: Any, Y: Any, kernel: Any) -> TestResult:
        result = two_sample_test(X, Y, kernel, n_permutations=draws, rng=rng)
        done(1)
        return result

    rows = two(samples.train, samples.test, samples.kernel)
    alone = []
    # a single column is the rows themselves
    for column in samples.fields if len(samples.fields) > 1 else ():
        kernel = column.kernel if column.given else None
        alone.append(two(column.train, column.test, kernel).pvalue)
    labelled: dict[str, float] = {}
    if targets is not None:
        part = targets.field
        labelled["targets"] = two(part.train, part.test, targets.kernel).pvalue
        labelled["rows with targets"] = two(*pair_rows(samples, targets)).pvalue
        labelled["P(y|x)"] = findings.conditional_pvalue(samples, targets, draws, rng)
        done(1)
    adjusted = holm([rows.pvalue, *alone, *labelled.values()])
    cut = 1 + len(alone)
    trios = zip(labelled, labelled.values(), adjusted[cut:], strict=True)
    return rows, Figures(
        level,
        Finding("rows", rows.pvalue, adjusted[0]),
        describe_columns(samples, alone or [rows.pvalue], adjusted[1:cut] or adjusted[:1]),
        tuple(Finding(*trio) for trio in trios),
        labelled=0 if targets is None else len(targets.labelled),
    )


def describe_columns(
    samples: Samples, pvalues: list[float], adjusted: list[float]
) -> tuple[ColumnShift, ...]:
    """The columns, with the largest effect first."""
    if not samples.fields:
        return ()
    trios = zip(samples.fields, pvalues, adjusted, strict=True)
    columns = [findings.describe_column(*trio) for trio in trios]
    return tuple(sorted(columns, key=lambda c: -c.effect if c.effect == c.effect else 1.0))


def with_explanations(
    figures: Figures,
    rows: TestResult,
    samples: Samples,
    targets: Targets | None,
    draws: int,
    rng: np.random.Generator,
) -> Figures:
    """Add what is only computed if something differs."""
    differ = {column.name for column in figures.differing}
    figures = replace(
        figures,
        dependence=findings.dependence(samples.fields, differ, draws, rng),
        explanations=explanations(samples, targets, rows.kernel, rng),
        outside=share_outside(samples),
    )
    if targets is None or not figures.labelled or not figures.relation_differs:
        return figures
    p = findings.conditional_pvalue(samples, targets, draws, rng, reverse=True)
    return replace(figures, given_targets=Finding("P(x|y)", p, p))


def reader_notes(samples: Samples, targets: Targets | None, compared: bool) -> tuple[str, ...]:
    """What else a reader should know."""
    out = samples.words
    flat = [repr(field.name) for field in samples.fields if field.is_constant]
    if flat:
        many = len(flat) > 1
        words = f"Columns {list_names(flat)} are" if many else f"Column {flat[0]} is"
        out.append(f"{words} constant in both samples and cannot show a shift.")
    if targets is not None and len(targets.labelled):
        if not compared:
            out.append(
                f"{len(targets.labelled)} labelled test rows are too few to compare targets; "
                f"at least {LABELLED} are needed."
            )
        elif targets.classes:
            train, test = (set(part.tolist()) for part in (targets.field.train, targets.field.test))
            for words, classes in (
                ("No labelled test row has class", train - test),
                ("Test rows have a class that no training row has:", test - train),
            ):
                if classes:
                    out.append(f"{words} {', '.join(sorted(map(str, classes)))}.")
    if targets is not None and len(np.unique(targets.field.train)) < 2:
        out.append("All training rows have the same target, so target shift cannot be tested.")
    return tuple(out)


# --- tables in plain text -------------------------------------------------------------------------


def number_text(value: float, form: str = ".2f") -> str:
    """A number as text, empty for NaN."""
    return "" if math.isnan(value) else format(value, form)


def align_columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of text as aligned lines."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
