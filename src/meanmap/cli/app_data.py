"""Commands that read tables."""

# Without `from __future__ import annotations`: typer reads annotations.

from typing import Annotated, Any

import typer

from meanmap.cli import app as options
from meanmap.cli.app import (
    Alpha,
    Blocks,
    Columns,
    ExitCode,
    File,
    Force,
    Groups,
    InBatches,
    Json,
    Labels,
    Output,
    Permutations,
    Plot,
    Quiet,
    Report,
    Scale,
    Seed,
    Train,
    label_names,
    names,
    outputs,
    shown_progress,
)


def add(app: Any, finish: Any) -> None:
    """Add the commands to an application."""

    @app.command("two-sample")
    def two_sample(
        a: options.A,
        b: options.B,
        columns: Columns = None,
        label_columns: Labels = None,
        scale: Scale = True,
        alpha: Alpha = 0.05,
        exit_code: ExitCode = False,
        permutations: Permutations = 999,
        block_length: Blocks = None,
        groups: Groups = None,
        stream: InBatches = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """Test whether the rows of two files come from one distribution.

        \b
        For example:
          meanmap two-sample @before @after
          meanmap two-sample @before @after --columns load --json
          meanmap two-sample @before @after --block-length auto
        """
        from meanmap.cli.comparing import Testing
        from meanmap.cli.comparing import two_sample as work

        where = outputs(json, report, plot, force, quiet)
        progress = shown_progress(quiet)
        settings = Testing(
            label_names(label_columns), scale, alpha, permutations, seed, stream, progress,
            block_length, groups,
        )  # fmt: skip
        return finish([work(a, b, names(columns), settings)], where, exit_code=exit_code)

    @app.command()
    def independence(
        file: File,
        x: Annotated[list[str], typer.Option("--x", metavar="A,B", help="Columns.")],
        y: Annotated[list[str], typer.Option("--y", metavar="C", help="Other columns.")],
        given: Annotated[
            list[str] | None,
            typer.Option("--given", metavar="D", help="Columns that are known of each row."),
        ] = None,
        label_columns: Labels = None,
        scale: Scale = True,
        alpha: Alpha = 0.05,
        exit_code: ExitCode = False,
        permutations: Permutations = 999,
        block_length: Blocks = None,
        groups: Groups = None,
        stream: InBatches = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """Test whether columns depend on each other, by themselves or given others.

        \b
        For example:
          meanmap independence @summer --x ice_cream --y bathers
          meanmap independence @summer --x ice_cream --y bathers --given temperature
        """
        from meanmap.cli.comparing import Testing
        from meanmap.cli.comparing import independence as work

        where = outputs(json, report, plot, force, quiet)
        progress = shown_progress(quiet)
        settings = Testing(
            label_names(label_columns), scale, alpha, permutations, seed, stream, progress,
            block_length, groups,
        )  # fmt: skip
        found = work(file, x, y, names(given), settings)
        return finish([found], where, exit_code=exit_code)

    @app.command()
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
        quantiles: Annotated[
            str, typer.Option("--quantiles", metavar="Q,Q", help="Which ones, between 0 and 1.")
        ] = "0.05,0.5,0.95",
        label_columns: Labels = None,
        scale: Scale = True,
        stream: InBatches = None,
        output: Output = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """The distribution of columns given others: means, deviations, quantiles, probabilities.

        \b
        For example:
          meanmap condition @summer --given temperature --predict ice_cream --at temperature=25
          meanmap condition @flowers-train --given length,width --predict species --at @flowers-test
        """
        from meanmap.cli.conditioning import condition as work

        where = outputs(json, report, plot, force, quiet, output)
        try:
            levels = [float(q) for q in quantiles.split(",")]
        except ValueError:
            raise ValueError(f"--quantiles must be numbers, got {quantiles!r}.") from None
        found, columns = work(
            file,
            given,
            predict,
            at,
            quantiles=levels,
            labels=label_names(label_columns),
            scale=scale,
            seed=seed,
            stream=stream,
            progress=shown_progress(quiet),
        )
        return finish([found], where, columns=columns)

    @app.command("filter")
    def track(
        train: Train,
        new: Annotated[str, typer.Argument(metavar="NEW", help="A sequence of observations.")],
        state: Annotated[
            list[str], typer.Option("--state", metavar="A,B", help="Columns that are hidden later.")
        ],
        observe: Annotated[
            list[str], typer.Option("--observe", metavar="C,D", help="Columns that are seen.")
        ],
        level: Annotated[float, typer.Option("--level", help="Of the intervals.")] = 0.9,
        smooth: Annotated[
            bool, typer.Option("--smooth", help="Use later observations as well.")
        ] = False,
        scale: Scale = True,
        output: Output = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """Find hidden states step by step, learned from a sequence where they were seen.

        Rows follow one another in time. An empty field in NEW is a step that nobody observed.

        \b
        For example:
          meanmap filter @path-train @path-new --state x,y --observe seen_x,seen_y
        """
        from meanmap.cli.tracking import track as work

        where = outputs(json, report, plot, force, quiet, output)
        found, columns = work(
            train,
            new,
            state,
            observe,
            level=level,
            smooth=smooth,
            scale=scale,
            progress=shown_progress(quiet),
        )
        return finish([found], where, columns=columns)

    @app.command()
    def shift(
        train: Train,
        test: Annotated[str, typer.Argument(metavar="TEST", help="The table to compare.")],
        columns: Columns = None,
        target: Annotated[
            str | None, typer.Option("--target", metavar="Y", help="What is to be predicted.")
        ] = None,
        label_columns: Labels = None,
        alpha: Alpha = 0.05,
        exit_code: ExitCode = False,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """Tell which kind of shift there is from training to test rows, and what to try.

        \b
        For example:
          meanmap shift @flowers-train @flowers-test --target species
        """
        from meanmap.cli.reporting import shift as work

        where = outputs(json, report, plot, force, quiet)
        found = work(
            train,
            test,
            names(columns),
            target,
            labels=label_names(label_columns),
            alpha=alpha,
            seed=seed,
            progress=shown_progress(quiet),
        )
        return finish([found], where, exit_code=exit_code)

    @app.command()
    def select(
        file: File,
        target: Annotated[str, typer.Option("--target", metavar="Y", help="What depends.")],
        features: Annotated[
            list[str] | None,
            typer.Option("--features", metavar="A,B", help="Columns to choose from; else all."),
        ] = None,
        count: Annotated[
            str, typer.Option("--count", metavar="N", help="How many, or auto.")
        ] = "auto",
        method: Annotated[
            str, typer.Option("--method", help="backward, forward or lasso.")
        ] = "backward",
        label_columns: Labels = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> int:
        """Choose the columns on which a target depends most, in any way.

        \b
        For example:
          meanmap select @machine --target failed --count 2
        """
        from meanmap.cli.reporting import select as work

        where = outputs(json, report, plot, force, quiet)
        found = work(
            file,
            target,
            names(features),
            count=count,
            method=method,
            labels=label_names(label_columns),
            seed=seed,
            progress=shown_progress(quiet),
        )
        return finish([found], where)
