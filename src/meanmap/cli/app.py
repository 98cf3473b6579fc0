"""The application: options that commands share, and how a command is made from a function."""

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
from meanmap.cli.options import PageOptions
from meanmap.cli.outputs import (
    as_json,
    check_outputs,
    json_text,
    picture_bytes,
    table_bytes,
    write_all,
)
from meanmap.report.answers import Answer

HELP = f"""{str(meanmap.__doc__).partition(chr(10))[0]}

Files are CSV, TSV, Excel, JSON, JSON lines, Parquet, Arrow, Feather or npz, also compressed, or
tables of databases (sqlite:///FILE?table=NAME); use - for standard input and @NAME for a table that
comes with meanmap.

\b
For example:
  meanmap two-sample @before @after
"""
EPILOG = (
    "Exit status: 0; 1 wrong usage, or data that cannot be read or written, with one line on "
    "standard error; 3 the null hypothesis was rejected or a monitor raised an alarm, and "
    "--exit-code was given; 130 interrupted."
)

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """What a command found, to be written and printed."""

    answers: Sequence[Answer]
    title: str = ""
    columns: Mapping[str, Any] | None = None
    exit_code: bool = False
    as_list: bool = False
    code: int = 0  # the exit status

    def finish(self, files: PageOptions, command: str) -> int:
        """Write the files, print the answers, return the exit status."""
        answers = [replace(answer, command=command) for answer in self.answers]
        contents: dict[Path, bytes] = {}
        for option, path in files.paths.items():
            if option == "--report":
                from meanmap.report.pages import answers_page

                contents[path] = answers_page(answers, self.title or answers[0].title).encode()
            elif option == "--plot":
                contents[path] = picture_bytes(answers, path)
            elif self.columns is not None:
                contents[path] = table_bytes(self.columns, path)
        write_all(contents, files.force)
        if files.json:
            found = [as_json(answer) for answer in answers]
            screen.say(json_text(found if self.as_list else found[0]))
        else:
            screen.say("\n\n".join(screen.answer_text(answer).rstrip("\n") for answer in answers))
            screen.list_written(contents)
        rejected = any(answer.values.get("rejected") for answer in answers)
        return REJECTED if self.exit_code and rejected else self.code


def as_command(
    function: Callable[..., Findings | int], arguments: Sequence[str]
) -> Callable[..., int]:
    """A function as typer takes it: option groups spelled out, findings written and printed."""
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for name, own in signature(function).parameters.items():
        if is_dataclass(own.annotation):
            groups[name] = own.annotation
            options = [(one.name, one.default, one.type) for one in fields(own.annotation)]
        else:
            options = [(name, own.default, own.annotation)]
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, default, kind in options
        ]

    @wraps(function)
    def command(**values: Any) -> int:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        files = values["files"]
        check_outputs(files.paths, files.force)
        found = function(**values)
        return found if isinstance(found, int) else found.finish(files, typed_command(arguments))

    command.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def typed_command(arguments: Sequence[str]) -> str:
    """The command as it was typed, without where its answer went."""
    valued, plain = {"--report", "--plot", "--output"}, {"--json", "--force", "--quiet", "-q"}
    kept, skip = [], False
    for word in arguments:
        if not skip and word not in plain and word.partition("=")[0] not in valued:
            kept.append(word)
        skip = not skip and word in valued
    return shlex.join(["meanmap", *kept])


def show_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        print(f"meanmap {meanmap.__version__}")
        raise typer.Exit


def show_help(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Without a command: help."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def build_application(arguments: Sequence[str] = ()) -> Any:
    """The typer application; `arguments` are what was typed."""
    from meanmap.cli import comparing, conditioning, following, reporting, tracking, working

    commands: dict[str, Callable[..., Findings | int]] = {
        "two-sample": comparing.two_sample,
        "independence": comparing.independence,
        "dependence": comparing.all_pairs,
        "condition": conditioning.condition,
        "filter": tracking.track,
        "monitor": following.monitor,
        "shift": reporting.shift,
        "select": reporting.select,
        "bench": working.bench,
        "demo": working.demo,
    }
    app = plain_typer()
    app.callback(invoke_without_command=True, help=HELP)(show_help)
    for name, function in commands.items():
        app.command(name)(as_command(function, arguments))
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    gone = {"hidden": True, "add_help_option": False, "context_settings": anything}
    app.command("reproduce", **gone)(say_where)
    return app


def say_where() -> None:
    """Refuse `reproduce`, which is gone, and say where it went."""
    raise ValueError(
        "the experiments are a package of their own, in the folder experiments of the source tree. "
        "Run `make reproduce NAME=…` there."
    )


def plain_typer() -> typer.Typer:
    """An application without commands, set up as ours are."""
    return typer.Typer(
        epilog=EPILOG,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )
