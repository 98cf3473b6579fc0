"""The command line: what it prints, where, and its exit codes."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meanmap
from meanmap import cli, experiments
from meanmap.experiments import Figure, Outcome, Table


@pytest.fixture
def typer() -> Any:
    pytest.importorskip("rich", reason="pip install 'meanmap[cli]'")
    return pytest.importorskip("typer", reason="pip install 'meanmap[cli]'")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Experiments that end at once, and how they were called."""
    made: list[Any] = []

    def run(name: str, **given: Any) -> Outcome:
        made.append((name, given))
        table = Table("Errors", ("filter", "error"), [("kernel", Figure(0.1, 0.004, 3))])
        return Outcome(name, f"The {name}", "A paper", {}, (table,), ("It holds.",))

    monkeypatch.setattr(experiments, "run", run)
    return made


def one_line(text: str) -> bool:
    return text.startswith("meanmap: ") and text.count("\n") == 1 and "Traceback" not in text


def test_without_a_name_it_lists(typer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["reproduce"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in experiments.names())
    assert cli.call(["reproduce", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(experiments.names())


def test_version(typer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["--version"]) == 0
    assert capsys.readouterr().out == f"meanmap {meanmap.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["reproduce", "--help"]])
def test_help(typer: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(arguments) == 0
    assert "reproduce" in capsys.readouterr().out


def test_reproduce(typer: Any, calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["reproduce", "circle", "series", "--quick", "--seed", "3", "--jobs", "2"]) == 0
    given = {"quick": True, "seed": 3, "n_jobs": 2}
    assert calls == [("circle", given), ("series", given)]
    out = capsys.readouterr().out
    assert "The circle" in out
    assert "0.1000 ± 0.0040" in out
    assert out.index("The circle") < out.index("The series")


def test_all(typer: Any, calls: list[Any]) -> None:
    assert cli.call(["reproduce", "all"]) == 0
    assert [name for name, _ in calls] == list(experiments.names())


def test_of_all_those_that_lack_a_package_are_left_out(
    typer: Any,
    calls: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    there = experiments.run

    def run(name: str, **options: Any) -> Any:
        if name == "genetics":
            raise ImportError("genetics needs msprime: pip install msprime")
        return there(name, **options)

    monkeypatch.setattr(experiments, "run", run)
    assert cli.call(["reproduce", "all", "--report", str(tmp_path / "page.html")]) == 0
    assert "genetics is left out: genetics needs msprime" in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "Not run: genetics. genetics needs msprime" in page and "The circle" in page
    # asked for by name it is an error
    assert cli.call(["reproduce", "genetics"]) == 1
    assert one_line(capsys.readouterr().err)


def test_json_is_all_there_is(
    typer: Any, calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["reproduce", "circle", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "circle"
    assert found["tables"][0]["rows"][0][1]["mean"] == 0.1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "identites"], "Did you mean 'identities'?"),
        (["reproduce", "circle", "xyzzy"], "There are: rotation"),
        (["reproduce", "--bogus"], "--bogus"),
        (["reproduce", "circle", "--seed", "x"], "--seed"),
        (["reproduce", "circle", "--seed", "-1"], "--seed"),
        (["reproduce", "circle", "--jobs", "0"], "--jobs"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_usage_is_one_line_and_1(
    typer: Any,
    calls: list[Any],
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.call(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err)
    assert said in err
    assert calls == []  # a wrong name ends it before anything has run


@pytest.mark.parametrize(
    "error",
    [
        ImportError("needs statsmodels:\n pip install 'meanmap[experiments]'"),
        KeyboardInterrupt(),
        OSError("no space"),
    ],
)
def test_failures_are_one_line_and_1(
    typer: Any,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*_: Any, **__: Any) -> Outcome:
        raise error

    monkeypatch.setattr(experiments, "run", run)
    assert cli.call(["reproduce", "series"]) == 1
    assert one_line(capsys.readouterr().err)


def test_without_typer_it_says_how_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "typer":
            raise ImportError("No module named 'typer'")
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SystemExit) as end:
        cli.main(["reproduce"])
    assert end.value.code == 1
    err = capsys.readouterr().err
    assert one_line(err)
    assert "pip install 'meanmap[cli]'" in err


def test_as_a_module(typer: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "meanmap.cli", "reproduce", "rotatoin", "--quick"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert "'rotation'" in done.stderr
