"""The commands: what each takes, and who does the work."""

# Without `from __future__ import annotations`: typer reads annotations. What does the work is
# imported by the command itself, so that `meanmap --help` waits for none of it.

from collections.abc import Callable
from typing import Annotated, Any

import typer

from meanmap.cli import FAILED
from meanmap.cli.app import (
    A,
    Alpha,
    B,
    Columns,
    ExitCode,
    File,
    FileOptions,
    Findings,
    Force,
    InBatches,
    Json,
    Labels,
    Output,
    Plot,
    Quiet,
    Report,
    Scale,
    TestOptions,
    Train,
    label_names,
)

# --- commands that read tables --------------------------------------------------------------------


def two_sample(
    a: A, b: B, *, columns: Columns = None, options: TestOptions, files: FileOptions
) -> Findings:
    """Test whether the rows of two files come from one distribution.

    \b
    For example:
      meanmap two-sample @before @after
      meanmap two-sample @before @after --columns load --json
      meanmap two-sample @before @after --block-length auto
    """
    from meanmap.cli import comparing

    settings = test_settings(options, files)
    found = comparing.compare_tables(a, b, columns, settings)
    return Findings([found], exit_code=options.exit_code)


def independence(
    file: File,
    x: Annotated[list[str], typer.Option("--x", metavar="A,B", help="Columns.")],
    y: Annotated[list[str], typer.Option("--y", metavar="C", help="Other columns.")],
    *,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", metavar="D", help="Columns that are known of each row."),
    ] = None,
    options: TestOptions,
    files: FileOptions,
) -> Findings:
    """Test whether columns depend on each other, by themselves or given others.

    \b
    For example:
      meanmap independence @summer --x ice_cream --y bathers
      meanmap independence @summer --x ice_cream --y bathers --given temperature
    """
    from meanmap.cli import comparing

    settings = test_settings(options, files)
    found = comparing.relate_columns(file, x, y, given, settings)
    return Findings([found], exit_code=options.exit_code)


def condition(
    file: File,
    given: Annotated[
        list[str], typer.Option("--given", metavar="A,B", help="Columns that are known.")
    ],
    predict: Annotated[
        list[str],
        typer.Option("--predict", metavar="Y", help="Numbers, or one column of labels."),
    ],
    at: Annotated[
        list[str],
        typer.Option(
            "--at", metavar="QUERY", help='A point, "a=1,b=2", or a file; several of them.'
        ),
    ],
    *,
    quantiles: Annotated[
        str, typer.Option("--quantiles", metavar="Q,Q", help="Which ones, between 0 and 1.")
    ] = "0.05,0.5,0.95",
    labels: Labels = None,
    scale: Scale = True,
    stream: InBatches = None,
    output: Output = None,
    files: FileOptions,
) -> Findings:
    """The distribution of columns given others: means, deviations, quantiles, probabilities.

    \b
    For example:
      meanmap condition @summer --given temperature --predict ice_cream --at temperature=25
      meanmap condition @flowers-train --given length,width --predict species --at @flowers-test
    """
    from meanmap.cli.conditioning import condition_columns

    try:
        levels = [float(q) for q in quantiles.split(",")]
    except ValueError:
        raise ValueError(f"--quantiles must be numbers, got {quantiles!r}.") from None
    found, columns = condition_columns(
        file,
        given,
        predict,
        at,
        quantiles=levels,
        labels=label_names(labels),
        scale=scale,
        seed=files.seed,
        stream=stream,
        progress=files.progress,
    )
    return Findings([found], columns=columns)


def track(
    train: Train,
    new: Annotated[str, typer.Argument(metavar="NEW", help="A sequence of observations.")],
    state: Annotated[
        list[str], typer.Option("--state", metavar="A,B", help="Columns that are hidden later.")
    ],
    observe: Annotated[
        list[str], typer.Option("--observe", metavar="C,D", help="Columns that are seen.")
    ],
    *,
    level: Annotated[float, typer.Option("--level", help="Of the intervals.")] = 0.9,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Use later observations as well.")
    ] = False,
    scale: Scale = True,
    output: Output = None,
    files: FileOptions,
) -> Findings:
    """Find hidden states step by step, learned from a sequence where they were seen.

    Rows follow one another in time. An empty field in NEW is an unobserved step.

    \b
    For example:
      meanmap filter @path-train @path-new --state x,y --observe seen_x,seen_y
    """
    from meanmap.cli.tracking import track_states

    found, columns = track_states(
        train,
        new,
        state,
        observe,
        level=level,
        smooth=smooth,
        scale=scale,
        progress=files.progress,
    )
    return Findings([found], columns=columns)


def shift(
    train: Train,
    test: Annotated[str, typer.Argument(metavar="TEST", help="The table to compare.")],
    *,
    columns: Columns = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="Y", help="What is to be predicted.")
    ] = None,
    labels: Labels = None,
    alpha: Alpha = 0.05,
    exit_code: ExitCode = False,
    files: FileOptions,
) -> Findings:
    """Tell which kind of shift there is from training to test rows, and what to try.

    \b
    For example:
      meanmap shift @flowers-train @flowers-test --target species
    """
    from meanmap.cli.reporting import report_shift

    found = report_shift(
        train,
        test,
        columns,
        target,
        labels=label_names(labels),
        alpha=alpha,
        seed=files.seed,
        progress=files.progress,
    )
    return Findings([found], exit_code=exit_code)


def select(
    file: File,
    target: Annotated[str, typer.Option("--target", metavar="Y", help="What depends.")],
    *,
    features: Annotated[
        list[str] | None,
        typer.Option("--features", metavar="A,B", help="Columns to choose from; else all."),
    ] = None,
    count: Annotated[str, typer.Option("--count", metavar="N", help="How many, or auto.")] = "auto",
    method: Annotated[
        str, typer.Option("--method", help="auto, backward, forward or lasso.")
    ] = "auto",
    labels: Labels = None,
    files: FileOptions,
) -> Findings:
    """Choose the columns on which a target depends most, in any way.

    \b
    For example:
      meanmap select @machine --target failed --count 2
    """
    from meanmap.cli.reporting import select_columns

    found = select_columns(
        file,
        target,
        features,
        count=count,
        method=method,
        labels=label_names(labels),
        seed=files.seed,
        progress=files.progress,
    )
    return Findings([found])


def test_settings(options: TestOptions, files: FileOptions) -> Any:
    """The settings that both tests share."""
    from meanmap.cli.comparing import Testing

    return Testing(
        labels=label_names(options.labels),
        scale=options.scale,
        alpha=options.alpha,
        permutations=options.permutations,
        seed=files.seed,
        stream=options.stream,
        progress=files.progress,
        block_length=options.block_length,
        groups=options.groups,
    )


# --- commands that show the library at work -------------------------------------------------------


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks; none is all.")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="Say what there is.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Leave with 1 unless every bar holds.")
    ] = False,
    json: Json = False,
    report: Report = None,
    force: Force = False,
    quiet: Quiet = False,
) -> Findings | int:
    """Measure meanmap against its peers on this machine; needs the source tree.

    \b
    For example:
      meanmap bench --list
    """
    from meanmap.cli import working

    code, answers = working.run_benchmarks(names or [], listed, check, json)
    code = FAILED if code else 0
    if answers and (json or report is not None):
        return Findings(answers, "Benchmarks", as_list=True, code=code)
    return code


def demo(
    json: Json = False,
    report: Report = None,
    plot: Plot = None,
    force: Force = False,
    quiet: Quiet = False,
) -> Findings:
    """Show what meanmap does, with the truth beside every estimate; ten seconds.

    \b
    For example:
      meanmap demo
    """
    from meanmap.cli import working

    return Findings(working.demo_answers(), "A demonstration of meanmap", as_list=True)


#: The commands by name, in the order of the help.
COMMANDS: dict[str, Callable[..., Findings | int]] = {
    "two-sample": two_sample,
    "independence": independence,
    "condition": condition,
    "filter": track,
    "shift": shift,
    "select": select,
    "bench": bench,
    "demo": demo,
}
