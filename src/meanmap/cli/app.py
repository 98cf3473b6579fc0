"""The application: options that commands share, and how a command is made of a function."""

# Without `from __future__ import annotations`: typer reads annotations.

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, signature
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
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same answer.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress bars.")]


# --- groups of options ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FileOptions:
    """What most commands take: where the answer goes, the seed, and how much is said."""

    json: Json = False
    report: Report = None
    plot: Plot = None
    force: Force = False
    seed: Seed = 0
    quiet: Quiet = False

    @property
    def progress(self) -> bool | None:
        """Whether to show progress bars; None for where there is a terminal."""
        return False if self.quiet else None

    @property
    def outputs(self) -> Outputs:
        return Outputs.of(vars(self))


@dataclass(frozen=True)
class TestOptions:
    """What the tests take."""

    __test__ = False  # not a test of pytest's

    labels: Labels = None
    scale: Scale = True
    alpha: Alpha = 0.05
    exit_code: ExitCode = False
    permutations: Permutations = 999
    block_length: Blocks = None
    groups: Groups = None
    stream: InBatches = None


# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """What a command found, to be written and printed."""

    answers: Sequence[Answer]
    title: str = ""
    columns: Mapping[str, Any] | None = None
    exit_code: bool = False
    as_list: bool = False
    code: int = 0  # to leave with

    def finish(self, where: Outputs, command: str) -> int:
        """Write the files, print the answers; the exit code. `command` is what was typed."""
        answers = [replace(answer, command=command) for answer in self.answers]
        contents: dict[Path | None, bytes] = {}
        if where.report is not None:
            from meanmap.report.pages import answers_page

            contents[where.report] = answers_page(answers, self.title or answers[0].title).encode()
        if where.plot is not None:
            contents[where.plot] = picture_bytes(answers, where.plot)
        if where.output is not None and self.columns is not None:
            contents[where.output] = table_bytes(self.columns, where.output)
        where.write(contents)
        if where.as_json:
            found = [as_json(answer) for answer in answers]
            screen.say(json_text(found if self.as_list else found[0]))
        else:
            screen.say("\n\n".join(screen.answer_text(answer).rstrip("\n") for answer in answers))
            for path in contents:
                screen.say(f"Written: {path}")
        rejected = any(answer.values.get("rejected") for answer in answers)
        return REJECTED if self.exit_code and rejected else self.code


def as_command(
    function: Callable[..., Findings | int], arguments: Sequence[str]
) -> Callable[..., int]:
    """A function as typer takes it: groups of options spelled out, findings written and printed."""
    own = signature(function).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in own.items() if is_dataclass(one.annotation)
    }
    parameters: list[Parameter] = []
    for name, one in own.items():
        parameters += options_of(groups[name]) if name in groups else [one]

    @wraps(function)
    def command(**values: Any) -> int:
        where = Outputs.of(values)
        where.check()
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        found = function(**values)
        if isinstance(found, int):
            return found
        return found.finish(where, typed_command(arguments))

    plain = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = signature(function).replace(parameters=plain)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def options_of(group: Any) -> list[Parameter]:
    """The fields of a group as parameters of a function."""
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(group)
    ]


def typed_command(arguments: Sequence[str]) -> str:
    """The command as it was typed, without where its answer went."""
    valued, plain = {"--report", "--plot", "--output"}, {"--json", "--force", "--quiet", "-q"}
    kept, skip = [], False
    for word in arguments:
        if not skip and word not in plain and word.partition("=")[0] not in valued:
            kept.append(word)
        skip = not skip and word in valued
    return shlex.join(["meanmap", *kept])


def label_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """An option that may be given several times, each time with names between commas."""
    return tuple(name for words in given or () for name in split_names(words))


def show_version(asked: bool) -> None:
    """Print the version, and leave."""
    if asked:
        print(f"meanmap {meanmap.__version__}")
        raise typer.Exit


def show_help(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Without a command: help."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def build_application(arguments: Sequence[str] = ()) -> Any:
    """The typer application; `arguments` are what was typed."""
    from meanmap.cli.commands import COMMANDS

    app = plain_typer()
    app.callback(invoke_without_command=True, help=HELP)(show_help)
    for name, function in COMMANDS.items():
        app.command(name)(as_command(function, arguments))
    for name in MOVED:
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name, hidden=True, add_help_option=False, context_settings=anything)(say_where)
    return app


#: Commands that are gone, and where to find them.
MOVED = {
    "reproduce": "the experiments of the papers are a package of their own, in the folder "
    "experiments of the source tree. Run `make reproduce NAME=…` there."
}


def say_where(context: typer.Context) -> None:
    """Refuse a command that is gone, and say where it went."""
    raise ValueError(MOVED[context.info_name or ""])


def plain_typer() -> typer.Typer:
    """An application without commands, with the look that ours have."""
    return typer.Typer(
        epilog=EPILOG,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )
