"""`two-sample` and `independence`: tests of tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from meanmap.cli.outputs import plain_values
from meanmap.cli.tables import (
    Coding,
    Table,
    TableRows,
    constants,
    print_notes,
    same_kinds,
    shared_columns,
    skipped_rows_note,
    two_tables,
)
from meanmap.progress import progress_bar
from meanmap.report.answers import Answer, DataSource, Picture

MANY = 20_000  # rows from which on sums over batches are tested: the others' time grows with n²
RANK = 500  # coordinates at most
OPTIONS = "use --block-length auto or --groups, and take out a trend first"
SAMPLE = 5_000  # rows that a space is fitted to, drawn from the whole file


@dataclass(frozen=True)
class Testing:
    """Settings that the tests share."""

    __test__ = False  # not a test of pytest's

    labels: tuple[str, ...] = ()
    scale: bool = True
    alpha: float = 0.05
    permutations: int = 999
    seed: int = 0
    stream: bool | None = None
    progress: bool | None = None
    block_length: str | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"--alpha must lie between 0 and 1, got {self.alpha:g}. Try 0.05.")
        if self.block_length is not None and self.groups is not None:
            raise ValueError("--block-length and --groups do not go together. Leave one out.")
        if self.block_length not in (None, "auto") and not str(self.block_length).isdecimal():
            raise ValueError(
                f"--block-length must be a whole number or auto, got {self.block_length!r}."
            )
        if self.stream and self.together:
            raise ValueError(f"--stream does not go with {self.together}. Leave one of them out.")

    @property
    def together(self) -> str:
        """The option that says which rows stay together, if there is one."""
        given = {"--block-length": self.block_length, "--groups": self.groups}
        return next((name for name, value in given.items() if value is not None), "")

    @property
    def in_batches(self) -> bool:
        """Whether a large table may be tested by sums over batches of its rows."""
        return self.stream is None and not self.together

    def null(self, groups: Any) -> Any:
        """How a test finds its null distribution, given the groups of the rows."""
        from meanmap.comparison import Block, Groups, Permutation

        if self.groups is not None:
            return Groups(groups, progress=self.progress)
        if self.block_length is None:
            return Permutation(progress=self.progress)
        length = "auto" if self.block_length == "auto" else int(self.block_length)
        return Block(length, progress=self.progress)

    @property
    def level(self) -> str:
        """The level of the test, in words."""
        return f"{self.alpha:g}"

    def in_words(self, codings: Sequence[Coding], streamed: bool) -> dict[str, str]:
        """The settings by name, as a page shows them."""
        shown = {
            "level": self.level,
            "seed": str(self.seed),
            "permutations": "by moments" if streamed else str(self.permutations),
            "columns": " | ".join(dict.fromkeys(map(str, codings))),
        }
        if streamed:
            shown["rows"] = "in batches"
        if self.block_length is not None:
            shown["block length"] = self.block_length
        if self.groups is not None:
            shown["groups"] = self.groups
        return shown


def compare_tables(a: str, b: str, columns: Sequence[str] | None, settings: Testing) -> Answer:
    """Do the rows of two files come from one distribution?"""
    from meanmap.comparison import two_sample_test

    tables = two_tables(a, b, settings.labels)
    if columns is None:
        names = shared_columns(*tables)
    else:
        names = tables[0].named(columns, "--columns")
        tables[1].named(columns, "--columns")
    title = f"Do {tables[0].name} and {tables[1].name} come from one distribution?"
    if settings.stream or (settings.in_batches and any(table.large for table in tables)):
        return streamed_two_sample(tables, names, settings, title)
    names, clusters = without_groups(names, tables, settings.groups)
    rows = [table.rows([*names, *clusters]) for table in tables]
    for one in rows:
        one.enough(2)
    same_kinds(*rows)
    if settings.in_batches and sum(len(one.frame) for one in rows) > MANY:
        return streamed_two_sample(tables, names, settings, title)
    coding = Coding.of(rows, names, settings.scale)
    with no_warning_of_order():
        result = two_sample_test(
            coding.named(rows[0]),
            coding.named(rows[1]),
            null=settings.null(tuple(groups_of(one, clusters) for one in rows)),
            n_permutations=settings.permutations,
            rng=settings.seed,
        )
    gaps = [words for one in rows for words in (one.gap, *one.far)]
    claim = differ(tables)
    found = answer(title, claim, result, [one.source for one in rows], gaps, settings, [coding])
    return with_pictures(found, result, sides_of(tables), named_axes([coding], rows[0]))


def relate_columns(
    name: str,
    x: Sequence[str],
    y: Sequence[str],
    given: Sequence[str] | None,
    settings: Testing,
) -> Answer:
    """Do columns of a file depend on each other, given others or by themselves?"""
    from meanmap.comparison import conditional_independence_test, independence_test

    table = Table.of(name, settings.labels)
    sides = disjoint_sides(table, {"--x": x, "--y": y, "--given": given})
    names = [column for side in sides for column in side]
    words = [", ".join(side) for side in sides]
    title = f"Do {words[0]} and {words[1]} depend on each other"
    title += f", given {words[2]}?" if given is not None else "?"
    if given is not None and settings.together:
        raise ValueError(f"{settings.together} does not go with --given. Leave one of them out.")
    if given is None and (settings.stream or (settings.in_batches and table.large)):
        return streamed_independence(table, sides, settings, title)
    if settings.stream:
        raise ValueError("--stream does not go with --given. Leave one of them out.")
    left, clusters = without_groups(names, [table], settings.groups)
    if left != names:
        raise ValueError(f"column {clusters[0]!r} is tested and cannot be --groups as well.")
    rows = table.rows([*names, *clusters])
    rows.enough(5)
    if given is None and settings.in_batches and len(rows.frame) > MANY:
        return streamed_independence(table, sides, settings, title)
    codings = [Coding.of([rows], side, settings.scale) for side in sides]
    first, second, *known = [coding.named(rows) for coding in codings]
    drawn: dict[str, Any] = {"n_permutations": settings.permutations, "rng": settings.seed}
    if known:
        result = conditional_independence_test(first, second, known[0], **drawn)
    else:
        null = settings.null(groups_of(rows, clusters))
        with no_warning_of_order():
            result = independence_test(first, second, null=null, **drawn)
    claim = depend(words)
    found = answer(title, claim, result, [rows.source], [rows.gap, *rows.far], settings, codings)
    along = [] if known else named_axes(codings, rows)
    return with_pictures(found, result, f"{words[0]} and {words[1]}", along)


def disjoint_sides(table: Table, options: Mapping[str, Sequence[str] | None]) -> list[list[str]]:
    """The columns that each option names, none of them twice."""
    sides = [table.named(asked, option) for option, asked in options.items() if asked is not None]
    for i, side in enumerate(sides):
        for other in sides[i + 1 :]:
            both = [column for column in side if column in other]
            if both:
                raise ValueError(f"column {both[0]!r} is named twice. Name it on one side only.")
    return sides


# --- rows in batches ------------------------------------------------------------------------------


def streamed_two_sample(
    tables: Sequence[Table], names: list[str], settings: Testing, title: str
) -> Answer:
    """The test in sums over batches; coordinates are those of a sample of both files."""
    from meanmap.comparison import RunningTwoSampleTest
    from meanmap.kernels import as_kernel

    samples = [table.sample(names, SAMPLE // 2, settings.seed) for table in tables]
    same_kinds(*samples)
    coding = Coding.of(samples, names, settings.scale)
    pooled = coding(stack_rows(samples))
    test = RunningTwoSampleTest(basis=space(as_kernel(None, pooled, "rows"), pooled))
    kinds = samples[0].kinds
    pairs = zip_longest(*(table.batches(names, kinds) for table in tables))
    with progress_bar(None, "batches", settings.progress, "batch") as done:
        for pair in pairs:
            test.partial_fit(*(coded_points(rows, coding) for rows in pair))
            done(1)
    sources = [one.source for one in samples]
    gaps = [skipped_rows_note(table, one.total) for table, one in zip(tables, samples, strict=True)]
    gaps += [*(words for one in samples for words in one.far), *constants(samples, names)]
    result = test.result()
    found = answer(title, differ(tables), result, sources, gaps, settings, [coding], True)
    return with_pictures(found, result, sides_of(tables), [])


def streamed_independence(
    table: Table, sides: Sequence[list[str]], settings: Testing, title: str
) -> Answer:
    """The same for pairs."""
    from meanmap.comparison import RunningIndependenceTest
    from meanmap.kernels import as_kernel

    names = [column for side in sides for column in side]
    sample = table.sample(names, SAMPLE, settings.seed)
    sample.enough(5)
    codings = [Coding.of([sample], side, settings.scale) for side in sides]
    points = [coding(sample) for coding in codings]
    spaces = tuple(space(as_kernel(None, part, "rows"), part) for part in points)
    test = RunningIndependenceTest(basis=spaces)
    with progress_bar(None, "batches", settings.progress, "batch") as done:
        for rows in table.batches(names, sample.kinds):
            if len(rows.frame):
                test.partial_fit(*(coding(rows) for coding in codings))
            done(1)
    result = test.result()
    gaps = [skipped_rows_note(table, sample.total), *sample.far, *constants([sample], names)]
    words = [", ".join(side) for side in sides]
    claim = depend(words)
    found = answer(title, claim, result, [sample.source], gaps, settings, codings, True)
    return with_pictures(found, result, f"{words[0]} and {words[1]}", [])


def space(kernel: Any, points: Any) -> Any:
    """Coordinates on a sample."""
    from meanmap.spaces import PivotedCholesky, Space

    return Space(kernel, PivotedCholesky(1e-6, max_rank=RANK)).fit(points)


def coded_points(rows: TableRows | None, coding: Coding) -> Any:
    return None if rows is None or not len(rows.frame) else coding(rows)


def stack_rows(samples: Sequence[TableRows]) -> TableRows:
    """Rows of two tables under one another."""
    import pandas as pd

    frame = pd.concat([one.frame for one in samples], ignore_index=True)
    return TableRows("both files", frame, samples[0].kinds, len(frame))


# --- the answer -----------------------------------------------------------------------------------


def without_groups(
    names: list[str], tables: Sequence[Table], groups: str | None
) -> tuple[list[str], list[str]]:
    """The columns to test, and that of the groups, which is none of them."""
    if groups is None:
        return names, []
    for table in tables:
        found = table.named([groups], "--groups")
    left = [name for name in names if name not in found]
    if not left:
        raise ValueError("--groups names the only column to test. Name other columns.")
    return left, found


def groups_of(rows: TableRows, columns: Sequence[str]) -> Any:
    """The groups of the rows."""
    return rows.frame[columns[0]].to_numpy(dtype=str) if columns else None


@contextmanager
def no_warning_of_order() -> Iterator[None]:
    """Without the test's own warning, whose remedies are Python's: the answer has a note."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Rows look ordered")
        yield


def sides_of(tables: Sequence[Table]) -> str:
    return f"{tables[0].name} (X) and {tables[1].name} (Y)"


def differ(tables: Sequence[Table]) -> str:
    return f"{tables[0].name} and {tables[1].name} come from different distributions"


def depend(words: Sequence[str]) -> str:
    given = f" given {words[2]}" if len(words) > 2 else ""
    return f"{words[0]} and {words[1]} depend on each other{given}"


def answer(
    title: str,
    claim: str,
    result: Any,
    sources: Sequence[DataSource],
    gaps: Sequence[str],
    settings: Testing,
    codings: Sequence[Coding],
    streamed: bool = False,
) -> Answer:
    """A test's result in words and numbers."""
    from meanmap.comparison.ordering import BLOCKS
    from meanmap.comparison.results import show_pvalue

    rejected = result.rejects(settings.alpha)
    p, level = show_pvalue(result.pvalue), settings.level
    headline = (
        f"There is evidence that {claim}: p = {p}, not above {level}."
        if rejected
        else f"There is no evidence that {claim}: p = {p}, above {level}."
    )
    kernels = result.kernel if isinstance(result.kernel, tuple) else (result.kernel,)
    ordered = [words.replace(BLOCKS, OPTIONS) for words in result.notes if BLOCKS in words]
    notes = [words for words in result.notes if BLOCKS not in words]
    notes += [*(print_notes(ordered) if rejected else ordered), *print_notes(gaps)]
    values: dict[str, Any] = {
        "statistic": result.statistic,
        "pvalue": result.pvalue,
        "rejected": rejected,
        "alpha": settings.alpha,
        "method": result.method,
        "hypothesis": result.hypothesis,
        "sizes": dict(result.sizes),
        "kernel": [repr(kernel) for kernel in kernels],
        "notes": notes,
    }
    rows = (
        ("statistic", f"{result.statistic:.4g}"),
        ("p-value", p),
        ("rows used", ", ".join(f"{size:,}" for size in result.sizes.values())),
        ("method", result.method),
        ("kernel" if len(kernels) == 1 else "kernels", ", ".join(map(repr, kernels))),
        *(("note", words) for words in notes),
    )
    shown = settings.in_words(codings, streamed)
    return Answer(title, headline, plain_values(values), ("", ""), rows, (), tuple(sources), shown)


def with_pictures(found: Answer, result: Any, what: str, axes_names: Sequence[str]) -> Answer:
    """The answer with the picture of the null distribution and, where there is one, the witness."""
    from dataclasses import replace

    panels = 2 if getattr(result.explanation, "plot", None) is not None else 1
    words = f"The statistic among those expected if nothing is there: p = {result.pvalue:.3g}"
    words += f"; and the witness of {what}." if panels > 1 else f", for {what}."

    def draw(axes: list[Any]) -> Any:
        places = result.plot(axes)
        if panels > 1 and axes_names:
            places[1].set_xlabel(axes_names[0])
            if len(axes_names) > 1:
                places[1].set_ylabel(axes_names[1])
        return places

    return replace(found, pictures=(Picture(draw, words, panels),))


def named_axes(codings: Sequence[Coding], rows: TableRows) -> list[str]:
    """What stands along the axes of a witness of one or two numbers; nothing for other points."""
    columns = [column for coding in codings for column in coding.columns]
    if len(columns) > 2 or any(rows.kinds[column] == "label" for column in columns):
        return []
    scaled = any(coding.scale is not None for coding in codings)
    return [f"{column} / standard deviation" if scaled else column for column in columns]
