"""`two-sample` and `independence`: tests of tables."""

# Without `from __future__ import annotations`: typer reads annotations.

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli.app import Findings
from meanmap.cli.options import Columns, File, FileOptions, MatrixOptions, TestOptions
from meanmap.cli.tables import (
    Coding,
    Table,
    TableRows,
    answer_table,
    data_notes,
    open_tables,
    print_notes,
    same_kinds,
    shared_columns,
)
from meanmap.exceptions import record, warn
from meanmap.progress import progress_bar
from meanmap.report.answers import Answer, AnswerTable, Picture

DRAWS = 999  # permutations by default
MANY = 20_000  # rows beyond which sums over batches are tested: other tests take time of order n²
RANK = 500  # coordinates at most
OPTIONS = "use --block-length auto or --groups, and take out a trend first"
SAMPLE = 5_000  # rows that a space is fitted to, drawn from the whole file


def two_sample(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="A B", help="Tables with the same columns, or one with --groups."),
    ],
    *,
    columns: Columns = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="Row i of A belongs to row i of B.")
    ] = False,
    options: TestOptions,
    files: FileOptions,
) -> Findings:
    """Test whether tables, or groups of rows, differ.

    Three tables or more: one test, then all pairs. One table and --groups: the same for its
    groups. Two tables and --groups: groups are clusters, which are permuted whole.

    \b
    For example:
      meanmap two-sample @before @after
      meanmap two-sample @before @after --columns load --json
      meanmap two-sample @before @after --block-length auto
      meanmap two-sample @flowers-train --groups species
    """
    from meanmap.comparison import two_sample_test

    opened = open_tables(tables, options)
    if paired or len(opened) != 2:
        options = read_whole([table.name for table in opened], paired, options)
    names = shared_columns(opened, columns, [options.groups or ""])
    names, clusters = without_groups(names, opened, options.groups)
    rows, streamed = test_rows(opened, [*names, *clusters], 2, options, files.seed)
    same_kinds(*rows)
    if paired and any(one.dropped for one in rows):
        raise ValueError("--paired needs complete rows; some have missing values. Fill them in.")
    coding = Coding.of(rows, names, options.scale)
    settings = test_settings(options, files.seed, [coding], streamed)
    if len(opened) != 2:
        return several_samples(rows, coding, clusters, settings, options, files)
    if streamed:
        result = two_sample_in_batches(opened, rows, coding, files.progress)
    else:
        points = [coding.named(one) for one in rows]
        both = tuple(groups_of(one, clusters) for one in rows)
        result = run_test(two_sample_test, points, options, files, both, paired)
    first, second = (table.name for table in opened)
    return test_findings(
        f"Do {first} and {second} come from the same distribution?",
        f"{first} and {second} come from different distributions",
        f"{first} (X) and {second} (Y)", result, rows, [coding], settings, options,
    )  # fmt: skip


def read_whole(names: Sequence[str], paired: bool, options: TestOptions) -> TestOptions:
    """Options of a test of pairs, or of other than two tables, which is not in batches."""
    number = len(names)
    if number == 1 and options.groups is None:
        raise ValueError(
            "name two tables or more, or one table and --groups with the column that says which "
            "rows to compare."
        )
    if paired and number != 2:
        raise ValueError(f"--paired is for two tables, got {number}.")
    if number > 2 and len(set(names)) < number:
        raise ValueError("two tables have the same name. Rename one of them.")
    refused = "--stream" if options.stream else options.together
    if refused and (number, refused) != (1, "--groups"):
        words = "--paired" if paired else f"{number} table{'s' if number > 1 else ''}"
        raise ValueError(f"{refused} cannot be combined with {words}. Leave it out.")
    return replace(options, stream=False)


def several_samples(
    rows: Sequence[TableRows],
    coding: Coding,
    by: Sequence[str],
    settings: dict[str, str],
    options: TestOptions,
    files: FileOptions,
) -> Findings:
    """Compare several tables, or the groups of one, and then all pairs."""
    from meanmap.comparison import k_sample_test

    groups = groups_of(rows[0], by)
    what = f"the groups of {by[0]} in {rows[0].name}" if by else ", ".join(r.name for r in rows)
    samples = coding.named(rows[0]) if by else {one.name: coding.named(one) for one in rows}
    plain = replace(options, groups=None)
    result = run_test(k_sample_test, [samples, groups], plain, files, None)
    found = test_findings(
        f"Do {what} come from the same distribution?",
        f"{what} do not all come from the same distribution",
        what, result, rows, [coding], settings, options,
    )  # fmt: skip
    pairs = result.pairs(rng=files.seed)
    table = replace(answer_table(dict(pairs.items())), title="All pairs, corrected by Holm")
    (answer,) = found.answers
    values = {**answer.values, "pairs": pairs.to_dict("records")}
    return replace(found, answers=[replace(answer, values=values, tables=(*answer.tables, table))])


def independence(
    file: File,
    x: Annotated[list[str], typer.Option(metavar="A,B", help="Columns.")],
    y: Annotated[list[str], typer.Option(metavar="C", help="Other columns.")],
    *,
    given: Annotated[
        list[str] | None, typer.Option(metavar="D", help="Columns to condition on.")
    ] = None,
    options: TestOptions,
    files: FileOptions,
) -> Findings:
    """Test whether columns are (conditionally) independent.

    \b
    For example:
      meanmap independence @summer --x ice_cream --y bathers
      meanmap independence @summer --x ice_cream --y bathers --given temperature
    """
    from meanmap.comparison import conditional_independence_test, independence_test

    table = Table.of(file, options)
    sides = disjoint_sides(table, {"--x": x, "--y": y, "--given": given})
    names = [column for side in sides for column in side]
    if given is not None:
        refused = "--stream" if options.stream else options.together
        if refused:
            raise ValueError(f"{refused} cannot be combined with --given. Leave one of them out.")
        options = replace(options, stream=False)
    left, clusters = without_groups(names, [table], options.groups)
    if left != names:
        raise ValueError(f"column {clusters[0]!r} is tested and cannot be --groups as well.")
    (rows,), streamed = test_rows([table], [*names, *clusters], 5, options, files.seed)
    codings = [Coding.of([rows], side, options.scale) for side in sides]
    if streamed:
        result = independence_in_batches(table, rows, codings, files.progress)
    else:
        points = [coding.named(rows) for coding in codings]
        test = independence_test if given is None else conditional_independence_test
        result = run_test(test, points, options, files, groups=groups_of(rows, clusters))
    settings = test_settings(options, files.seed, codings, streamed)
    words = [", ".join(side) for side in sides]
    both = f"{words[0]} and {words[1]}"
    return test_findings(
        f"Do {both} depend on each other{f', given {words[2]}' if given else ''}?",
        f"{both} depend on each other{f' given {words[2]}' if given else ''}",
        both, result, [rows], codings, settings, options,
    )  # fmt: skip


def all_pairs(
    file: File, *, columns: Columns = None, options: MatrixOptions, files: FileOptions
) -> Findings:
    """Test which columns of a table depend on each other.

    \b
    For example:
      meanmap dependence @summer
      meanmap dependence @summer --fdr
    """
    from meanmap.comparison import dependence_matrix

    table = Table.of(file, options)
    names = table.chosen(columns, "--columns")
    if len(names) < 2:
        raise ValueError(f"{table.name} has one column to use, {names[0]!r}; two are needed.")
    rows = table.sample(names, SAMPLE, files.seed)
    rows.enough(5)
    types = {name: str if kind == "label" else float for name, kind in rows.kinds.items()}
    correction, draws = "fdr" if options.fdr else "holm", options.permutations
    found = dependence_matrix(rows.frame.astype(types), None, correction, draws, files.seed)
    pairs, every = found.pairs(options.alpha), found.to_frame()
    caption = "Kernel distance correlation of all pairs; * significant after the correction."
    used = f"{len(rows.frame):,} of {rows.total:,} rows, drawn at random, are used."
    few = [used] if len(rows.frame) + rows.dropped < rows.total else []
    need = int(len(every) / options.alpha) + 1
    if draws < need and not options.fdr:
        words = f"{draws:,} permutations cannot reach the {options.alpha:g} level after Holm's "
        few.append(f"{words}correction of {len(every)} pairs: use --permutations {need} or --fdr.")
    answer = Answer(
        f"Which columns of {table.name} depend on each other?",
        found.sentence(options.alpha),
        {**found.to_dict(), "rejected": bool(pairs), "alpha": options.alpha},
        (answer_table(dict(every.items())),),
        (Picture(lambda axes: found.plot(axes[0], options.alpha), caption),),
        (rows.source,),
        {"seed": str(files.seed), "permutations": str(draws), "correction": correction},
        tuple(data_notes([rows], list(rows.kinds), few)),
    )
    return Findings([answer], exit_code=options.exit_code)


# --- rows -----------------------------------------------------------------------------------------


def test_rows(
    tables: Sequence[Table], names: list[str], least: int, options: TestOptions, seed: int
) -> tuple[list[TableRows], bool]:
    """All rows, or a sample of tables that are tested in batches, and whether they are."""
    streamed = options.stream or (options.may_stream and any(table.large for table in tables))
    rows = [] if streamed else [table.rows(names) for table in tables]
    if streamed or (options.may_stream and sum(len(one.frame) for one in rows) > MANY):
        streamed = True
        rows = [table.sample(names, SAMPLE // len(tables), seed) for table in tables]
    for one in rows:
        one.enough(least)
    return rows, bool(streamed)


def disjoint_sides(table: Table, options: Mapping[str, Sequence[str] | None]) -> list[list[str]]:
    """The columns that each option names, none of them twice."""
    sides = [table.named(asked, option) for option, asked in options.items() if asked is not None]
    for column, times in Counter(column for side in sides for column in side).items():
        if times > 1:
            raise ValueError(f"column {column!r} is named twice. Name it on one side only.")
    return sides


def without_groups(
    names: list[str], tables: Sequence[Table], groups: str | None
) -> tuple[list[str], list[str]]:
    """The columns to test, and the column of the groups, which is not one of them."""
    if groups is None:
        return names, []
    for table in tables:
        found = table.named([groups], "--groups")
        table.labels += found
    left = [name for name in names if name not in found]
    if not left:
        raise ValueError("--groups names the only column to test. Name other columns.")
    return left, found


def groups_of(rows: TableRows, columns: Sequence[str]) -> Any:
    """The groups of the rows."""
    return rows.frame[columns[0]].to_numpy(dtype=str) if columns else None


# --- tests ----------------------------------------------------------------------------------------


def run_test(
    test: Any,
    points: Sequence[Any],
    options: TestOptions,
    files: FileOptions,
    groups: Any,
    paired: bool = False,
) -> Any:
    """Run a test of the library on all rows."""
    from meanmap.comparison import Block, Groups, PairedRows, Permutation

    settings: dict[str, Any] = {"n_permutations": options.permutations or DRAWS, "rng": files.seed}
    if paired:
        settings["null"] = PairedRows()
    elif options.groups is not None:
        settings["null"] = Groups(groups, progress=files.progress)
    elif options.block_length is not None:
        length = "auto" if options.block_length == "auto" else int(options.block_length)
        settings["null"] = Block(length, progress=files.progress)
    elif len(points) == 2:
        settings["null"] = Permutation(progress=files.progress)
    with record() as found:
        result = test(*points, **settings)
    for warning in found:
        # the remedies of that warning are Python's; the answer has a note with ours
        if not str(warning).startswith("Rows look ordered"):
            warn(warning, type(warning))
    return result


def two_sample_in_batches(
    tables: Sequence[Table], samples: Sequence[TableRows], coding: Coding, progress: bool | None
) -> Any:
    """The test by sums over batches, in coordinates fitted to a sample of both files."""
    from meanmap.comparison import RunningTwoSampleTest

    def points(rows: TableRows | None) -> Any:
        return None if rows is None or not len(rows.frame) else coding(rows)

    test = RunningTwoSampleTest(basis=space_of(np.concatenate([coding(s) for s in samples])))
    pairs = zip_longest(*(table.batches(coding.columns, samples[0].kinds) for table in tables))
    return feed_test(test, (map(points, pair) for pair in pairs), progress)


def independence_in_batches(
    table: Table, sample: TableRows, codings: Sequence[Coding], progress: bool | None
) -> Any:
    """The same for pairs of columns."""
    from meanmap.comparison import RunningIndependenceTest

    names = [column for coding in codings for column in coding.columns]
    test = RunningIndependenceTest(basis=tuple(space_of(coding(sample)) for coding in codings))
    batches = (rows for rows in table.batches(names, sample.kinds) if len(rows.frame))
    return feed_test(test, ((coding(rows) for coding in codings) for rows in batches), progress)


def feed_test(test: Any, batches: Iterable[Iterable[Any]], progress: bool | None) -> Any:
    """Feed batches to a running test and return its result."""
    with progress_bar(None, "batches", progress, "batch") as done:
        for batch in batches:
            test.partial_fit(*batch)
            done(1)
    return test.result()


def space_of(points: Any) -> Any:
    """Coordinates fitted to a sample."""
    from meanmap.kernels.defaults import as_kernel
    from meanmap.spaces import PivotedCholesky, Space

    kernel = as_kernel(None, points, "rows")
    return Space(kernel, PivotedCholesky(1e-6, max_rank=RANK)).fit(points)


# --- the answer -----------------------------------------------------------------------------------


def test_settings(
    options: TestOptions, seed: int, codings: Sequence[Coding], streamed: bool
) -> dict[str, str]:
    """The settings of a test, as a page shows them."""
    shown = {
        "level": f"{options.alpha:g}",
        "seed": str(seed),
        "permutations": "replaced by moments" if streamed else str(options.permutations or DRAWS),
        "columns": " | ".join(dict.fromkeys(map(str, codings))),
        "rows": "in batches" if streamed else "",
        "block length": options.block_length or "",
        "groups": options.groups or "",
    }
    return {name: words for name, words in shown.items() if words}


def test_findings(
    title: str,
    claim: str,
    compared: str,
    result: Any,
    rows: Sequence[TableRows],
    codings: Sequence[Coding],
    settings: dict[str, str],
    options: TestOptions,
) -> Findings:
    """A test's result in words, numbers and pictures."""
    from meanmap.comparison.ordering import BLOCKS
    from meanmap.comparison.results import show_pvalue

    rejected, p = result.rejects(options.alpha), show_pvalue(result.pvalue)
    seen = "There is evidence" if rejected else "There is no evidence"
    verdict = "significant" if rejected else "not significant"
    kernels = result.kernel if isinstance(result.kernel, tuple) else (result.kernel,)
    kernels = tuple(kernel for kernel in kernels if kernel is not None)
    ordered = [words.replace(BLOCKS, OPTIONS) for words in result.notes if BLOCKS in words]
    notes = [words for words in result.notes if BLOCKS not in words]
    notes += print_notes(ordered) if rejected else ordered
    # of constant columns the test itself has notes, unless it is in batches
    columns = [column for coding in codings for column in coding.columns]
    notes += data_notes(rows, columns if "rows" in settings else ())
    values = {**result.to_dict(), "rejected": rejected, "alpha": options.alpha, "notes": notes}
    shown = [result.effect] if "effect" in values else []
    cells = (
        ("statistic", f"{result.statistic:.4g}"),
        ("p-value", p),
        *((effect.name, str(effect).partition(" = ")[2]) for effect in shown),
        ("rows used", ", ".join(f"{size:,}" for size in result.sizes.values())),
        ("method", result.method),
    )
    if kernels:
        cells += ((f"kernel{'s' * (len(kernels) > 1)}", ", ".join(map(repr, kernels))),)
    by_column: Any = result.columns() if getattr(result.explanation, "columns", None) else {}
    tables = [AnswerTable(("", ""), cells)]
    if len(by_column) > len(codings):
        values["columns"] = {str(name): one.to_dict() for name, one in by_column.items()}
        frame = by_column.to_frame().reset_index()
        tables.append(replace(answer_table(dict(frame.items())), title="Effect by column"))
    answer = Answer(
        title,
        f"{seen} that {claim}: p = {p}, {verdict} at the {options.alpha:g} level.",
        values,
        tuple(tables),
        (test_picture(result, compared, witness_axes(codings, rows[0])),),
        tuple(one.source for one in rows),
        settings,
        tuple(notes),
    )
    return Findings([answer], exit_code=options.exit_code)


def test_picture(result: Any, compared: str, axes_names: Sequence[str]) -> Picture:
    """The null distribution and, if there is one, the witness function."""
    panels = 2 if getattr(result.explanation, "plot", None) is not None else 1
    words = f"The statistic and its distribution under the null hypothesis: p = {result.pvalue:.3g}"
    words += f"; the witness function of {compared}." if panels > 1 else f", for {compared}."

    def draw(axes: list[Any]) -> Any:
        places = result.plot(axes)
        if panels > 1:
            for set_label, name in zip(("set_xlabel", "set_ylabel"), axes_names, strict=False):
                getattr(places[1], set_label)(name)
        return places

    return Picture(draw, words, panels)


def witness_axes(codings: Sequence[Coding], rows: TableRows) -> list[str]:
    """The axes of a witness function of one or two numbers; nothing for other points."""
    columns = [column for coding in codings for column in coding.columns]
    if len(columns) > 2 or any(rows.kinds[column] == "label" for column in columns):
        return []
    scaled = any(coding.scale is not None for coding in codings)
    return [f"{column} / standard deviation" if scaled else column for column in columns]
