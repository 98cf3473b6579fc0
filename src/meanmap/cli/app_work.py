"""Commands that show the library at work."""

# Without `from __future__ import annotations`: typer reads annotations.

import json as encoding
from typing import Annotated, Any

import typer

from meanmap.cli import FAILED, screen
from meanmap.cli.app import Force, Json, Plot, Quiet, Report, Seed, outputs


def add(app: Any, finish: Any) -> None:
    """Add the commands to an application."""

    @app.command()
    def reproduce(
        names: Annotated[
            list[str] | None, typer.Argument(help='Experiments, or "all"; none lists them.')
        ] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Half a minute or less each.")] = False,
        jobs: Annotated[
            int | None, typer.Option("--jobs", help="Processes that share the runs; -1 all cores.")
        ] = None,
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        seed: Seed = 0,
        quiet: Quiet = False,
    ) -> None:
        """Run experiments of the papers, the published figures beside ours.

        \b
        For example:
          meanmap reproduce
          meanmap reproduce identities --quick
        """
        from meanmap.cli import working

        where = outputs(json, report, plot, force, quiet)
        if not names:
            list_experiments(json)
            return
        chosen = working.experiment_names(names, jobs)
        if plot is not None and len(chosen) > 1:
            raise ValueError("--plot draws one experiment. Name one, or use --report for all.")
        found, left_out = [], {}
        runs = working.reproduce(chosen, quick, seed, jobs, quiet, some=names == ["all"])
        for name, outcome, reason in runs:
            if outcome is None:
                left_out[name] = reason
                continue
            found.append(outcome)
            if not json and report is None:
                screen.say(f"{outcome}\n")
        contents = working.experiment_files(found, left_out, where)
        where.write(contents)
        if json:
            screen.say(encoding.dumps([outcome.to_dict() for outcome in found], indent=2))
            return
        if report is not None:
            for outcome in found:
                screen.say(f"{outcome}\n")
        for path in contents:
            screen.say(f"Written: {path}")

    def list_experiments(as_json: bool) -> None:
        from meanmap import experiments

        if as_json:
            screen.say(encoding.dumps(experiments.EXPERIMENTS, indent=2))
            return
        width = max(map(len, experiments.names()))
        lines = [f"{name:<{width}}  {experiments.describe(name)}" for name in experiments.names()]
        screen.say("\n".join(["Experiments: meanmap reproduce NAME... [--quick]", *lines]))

    @app.command()
    def bench(
        names: Annotated[list[str] | None, typer.Argument(help="Benchmarks; none is all.")] = None,
        listed: Annotated[bool, typer.Option("--list", help="Say what there is.")] = False,
        check: Annotated[
            bool, typer.Option("--check", help="Leave with 1 unless every bar holds.")
        ] = False,
        json: Json = False,
        report: Report = None,
        force: Force = False,
        quiet: Quiet = False,
    ) -> int:
        """Measure meanmap against its peers on this machine; needs the source tree.

        \b
        For example:
          meanmap bench --list
        """
        from meanmap.cli import working

        where = outputs(json, report, None, force, quiet)
        code, answers = working.bench(names or [], listed, check, json)
        if answers and (json or report is not None):
            finish(answers, where, "Benchmarks", as_list=True)
        return FAILED if code else 0

    @app.command()
    def demo(
        json: Json = False,
        report: Report = None,
        plot: Plot = None,
        force: Force = False,
        quiet: Quiet = False,
    ) -> int:
        """Show what meanmap does, with the truth beside every estimate; ten seconds.

        \b
        For example:
          meanmap demo
        """
        from meanmap.cli import working

        where = outputs(json, report, plot, force, quiet)
        return finish(working.demo(), where, "A demonstration of meanmap", as_list=True)
