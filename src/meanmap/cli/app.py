"""The commands and their options, as typer reads them."""

# Without `from __future__ import annotations`: typer reads annotations.

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import meanmap
from meanmap.cli import REJECTED, screen
from meanmap.cli.outputs import Outputs, as_json, json_text, picture_bytes, table_bytes
from meanmap.cli.tables import split_names
from meanmap.report.answers import Answer

HELP = f"""{meanmap.__doc__}

Files are CSV, TSV, Parquet, Arrow, Feather or npz, - for standard input, or @NAME for a table that
comes with meanmap.

\b
For example:
  meanmap two-sample @before @after
"""
EPILOG = (
    "Exit codes: 0; 1 wrong usage, or data that cannot be read or written, with one line on "
    "standard error; 3 the null hypothesis was rejected and --exit-code was given."
)

# --- options that commands share ------------------------------------------------------------------

A = Annotated[str, typer.Argument(metavar="A", help="A table.")]
B = Annotated[str, typer.Argument(metavar="B", help="Another, with the same columns.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A table.")]
Train = Annotated[str, typer.Argument(metavar="TRAIN", help="The table to learn from.")]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", metavar="A,B", help="Columns in use; else all.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--labels", metavar="A,B", help="Columns to take for labels, also numbers."),
]
Scale = Annotated[
    bool,
    typer.Option(
        "--scale/--no-scale", help="Divide several number columns by their standard deviations."
    ),
]
Alpha = Annotated[float, typer.Option("--alpha", help="Reject where the p-value is not above it.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Leave with 3 where it is rejected.")]
Permutations = Annotated[int, typer.Option("--permutations", min=1, help="How many are drawn.")]
InBatches = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream", help="Read in batches, or at once; else as size and rows demand."
    ),
]
Blocks = Annotated[
    str | None,
    typer.Option(
        "--block-length",
        metavar="N|auto",
        help="For rows in order of time: keep N of them together, or as many as the data ask for.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="E", help="Column of clusters: their rows stay together."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON and nothing else.")]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="PAGE.html", help="Write a page with it all.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Write a picture: png, svg or pdf.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Write the table: csv, tsv, parquet, … npz."),
]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same answer.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress bars.")]


class Finish:
    """What is the same at the end of every command; `arguments` are what was typed."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.command = typed_command(arguments)

    def __call__(
        self,
        answers: Sequence[Answer],
        where: Outputs,
        title: str = "",
        columns: Mapping[str, Any] | None = None,
        exit_code: bool = False,
        as_list: bool = False,
    ) -> int:
        """Write the files, print the answers; the exit code."""
        answers = [replace(answer, command=self.command) for answer in answers]
        contents: dict[Path | None, bytes] = {}
        if where.report is not None:
            from meanmap.report.pages import answers_page

            contents[where.report] = answers_page(answers, title or answers[0].title).encode()
        if where.plot is not None:
            contents[where.plot] = picture_bytes(answers, where.plot)
        if where.output is not None and columns is not None:
            contents[where.output] = table_bytes(columns, where.output)
        where.write(contents)
        if where.as_json:
            found = [as_json(answer) for answer in answers]
            screen.say(json_text(found if as_list else found[0]))
        else:
            screen.say("\n\n".join(screen.answer_text(answer).rstrip("\n") for answer in answers))
            for path in contents:
                screen.say(f"Written: {path}")
        rejected = any(answer.values.get("rejected") for answer in answers)
        return REJECTED if exit_code and rejected else 0


def typed_command(arguments: Sequence[str]) -> str:
    """The command as it was typed, without where its answer went."""
    valued, plain = {"--report", "--plot", "--output"}, {"--json", "--force", "--quiet", "-q"}
    kept, skip = [], False
    for word in arguments:
        if not skip and word not in plain and word.partition("=")[0] not in valued:
            kept.append(word)
        skip = not skip and word in valued
    return shlex.join(["meanmap", *kept])


def names(given: Sequence[str] | None) -> list[str] | None:
    """An option that may be given several times, each time with names between commas."""
    return None if given is None else list(given)


def label_names(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(name for words in given or () for name in split_names(words))


def shown_progress(quiet: bool) -> bool | None:
    return False if quiet else None


def build_application(arguments: Sequence[str] = ()) -> Any:
    """The typer application."""
    from meanmap.cli import app_data, app_work

    app = typer.Typer(
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )

    def show_version(asked: bool) -> None:
        if asked:
            print(f"meanmap {meanmap.__version__}")
            raise typer.Exit

    @app.callback(invoke_without_command=True)
    def start(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it.")
        ] = False,
    ) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    finish = Finish(arguments)
    app_data.add(app, finish)
    app_work.add(app, finish)
    return app


def outputs(
    json: bool,
    report: Path | None,
    plot: Path | None,
    force: bool,
    quiet: bool,
    output: Path | None = None,
) -> Outputs:
    """Where to write, checked before the work."""
    where = Outputs(json, report, plot, output, force, quiet)
    where.check()
    return where
