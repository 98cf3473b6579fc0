"""The command line: `meanmap COMMAND`, or `python -m meanmap.cli COMMAND`.

Exit codes: 0, and 1 for a wrong argument or an optional package that is missing, with one line on
standard error that says what to do.
"""

# Without `from __future__ import annotations`: typer reads annotations, and typer is imported where
# it is needed, since it is optional.

import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import meanmap
from meanmap import experiments

FAILED = 1
INTERRUPTED = 130  # what newer versions of typer make of Ctrl-C


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and leave with its exit code."""
    sys.exit(call(arguments))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: its exit code."""
    try:
        app = application()
    except ImportError as error:
        return failed(
            f"the command line needs typer and rich ({error}): pip install 'meanmap[cli]'"
        )
    try:
        code = app(arguments, prog_name="meanmap", standalone_mode=False)
    except (ValueError, OSError, ImportError) as error:
        return failed(str(error))
    except KeyboardInterrupt:
        return failed("interrupted; nothing was written.")
    except Exception as error:
        # typer brings its own copy of click in some versions: a wrong usage is known by its method
        if hasattr(error, "format_message"):
            return failed(f"{error.format_message()} See meanmap --help.")
        if type(error).__name__ == "Abort":  # Ctrl-C, as click tells it
            return failed("interrupted; nothing was written.")
        raise
    if code == INTERRUPTED:
        return failed("interrupted; nothing was written.")
    return code if isinstance(code, int) else 0


def failed(message: str) -> int:
    """One line on standard error; the exit code."""
    print("meanmap: " + " ".join(message.split()), file=sys.stderr)
    return FAILED


def application() -> Callable[..., Any]:
    """The commands, as a typer application."""
    import rich.console
    import rich.table
    import typer

    app = typer.Typer(
        help=meanmap.__doc__,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
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

    @app.command()
    def reproduce(
        names: Annotated[
            list[str] | None, typer.Argument(help='Experiments, or "all"; none lists them.')
        ] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Half a minute or less each.")] = False,
        seed: Annotated[int, typer.Option(min=0, help="The same seed, the same figures.")] = 0,
        jobs: Annotated[
            int | None, typer.Option(help="Processes that share the runs; -1 is all cores.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="For programs: a list.")] = False,
    ) -> None:
        """Run experiments of the papers, the published figures beside ours.

        For example: meanmap reproduce identities --quick
        """
        if not names:
            list_experiments(as_json)
            return
        chosen = experiments.names() if names == ["all"] else experiments.known(names)
        if jobs == 0:
            raise ValueError("--jobs must not be 0: give a number of processes, or -1 for all.")
        console = rich.console.Console(highlight=False, soft_wrap=True)
        found = []
        for name in chosen:
            outcome = experiments.run(name, quick=quick, seed=seed, n_jobs=jobs)
            found.append(outcome)
            if not as_json:
                console.print(str(outcome), markup=False, end="\n\n")
        if as_json:
            print(json.dumps([outcome.to_dict() for outcome in found], indent=2))

    def list_experiments(as_json: bool) -> None:
        if as_json:
            print(json.dumps(experiments.EXPERIMENTS, indent=2))
            return
        table = rich.table.Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name in experiments.names():
            table.add_row(name, experiments.describe(name))
        console = rich.console.Console(highlight=False)
        console.print("Experiments: meanmap reproduce NAME... [--quick]")
        console.print(table)

    return app


if __name__ == "__main__":
    main()
