"""The command line of the experiments: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meanmap_experiments as experiments
from meanmap_experiments import Claim, Figure, Outcome, Table, command


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Experiments that end at once, and how they were called."""
    made: list[Any] = []

    def run(name: str, **given: Any) -> Outcome:
        made.append((name, given))
        table = Table("Errors", ("filter", "error"), [("kernel", Figure(0.1, 0.004, 3))], (0.2,))
        return Outcome(name, f"The {name}", "A paper", {}, (table,), (Claim("It holds.", True),))

    monkeypatch.setattr(experiments, "run", run)
    return made


def one_line(text: str) -> bool:
    return text.startswith("meanmap: ") and text.count("\n") == 1 and "Traceback" not in text


def in_a_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-m", "meanmap_experiments", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        **options,
    )


def test_without_a_name_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.call([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in experiments.names())
    assert "make reproduce" in out
    assert command.call(["--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(experiments.names())


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.call(["--help"]) == 0
    assert "make reproduce" in capsys.readouterr().out


def test_reproduce(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.call(["circle", "series", "--quick", "--seed", "3", "--jobs", "2"]) == 0
    given = {"quick": True, "seed": 3, "n_jobs": 2}
    assert calls == [("circle", given), ("series", given)]
    out = capsys.readouterr().out
    assert "The circle" in out
    assert "0.1000 ± 0.0040" in out
    assert out.index("The circle") < out.index("The series")


def test_all(calls: list[Any]) -> None:
    assert command.call(["all"]) == 0
    assert [name for name, _ in calls] == list(experiments.names())


def test_of_all_those_that_lack_a_package_are_left_out(
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
    assert command.call(["all", "--report", str(tmp_path / "page.html")]) == 0
    assert "genetics is left out: genetics needs msprime" in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "Not run: genetics. genetics needs msprime" in page and "The circle" in page
    # asked for by name it is an error
    assert command.call(["genetics"]) == 1
    assert one_line(capsys.readouterr().err)


def test_json_is_all_there_is(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.call(["circle", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "circle"
    assert found["tables"][0]["rows"][0][1]["mean"] == 0.1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["identites"], "Did you mean 'identities'?"),
        (["circl", "--quick"], "Did you mean 'circle'?"),
        (["circle", "xyzzy"], "There are: rotation"),
        (["--bogus"], "--bogus"),
        (["circle", "--seed", "x"], "--seed"),
        (["circle", "--seed", "-1"], "--seed"),
        (["circle", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_usage_is_one_line_and_1(
    calls: list[Any], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.call(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err)
    assert said in err
    assert calls == []  # a wrong name ends it before anything has run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ImportError("needs statsmodels:\n pip install statsmodels"), 1),
        (KeyboardInterrupt(), 130),
        (OSError("no space"), 1),
    ],
)
def test_failures_are_one_line_and_their_code(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*_: Any, **__: Any) -> Outcome:
        raise error

    monkeypatch.setattr(experiments, "run", run)
    assert command.call(["series"]) == code
    assert one_line(capsys.readouterr().err)


def test_as_a_module() -> None:
    process = in_a_process("rotatoin", "--quick")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out == ""
    assert one_line(err)
    assert "'rotation'" in err


def test_a_reader_who_has_gone() -> None:
    process = in_a_process()
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `| head -0` does
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=120) == 0
    assert err == ""


def test_pages(
    calls: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.call(["all", "--report", "all.html"]) == 0
    page = Path("all.html").read_text(encoding="utf-8")
    assert all(f"The {name}" in page for name in experiments.names())
    capsys.readouterr()
    assert command.call(["circle", "series", "--plot", "two.png"]) == 1
    assert "--plot draws one" in capsys.readouterr().err
    assert command.call(["circle", "--plot", "one.png"]) == 1  # it has no picture
    assert {path.name for path in tmp_path.iterdir()} == {"all.html"}


@pytest.mark.slow
def test_a_page_and_a_picture_of_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["identities", "--quick", "--report", "page.html"]
    assert command.call([*asked, "--plot", "picture.png", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "Written: page.html" in out
    before = Path("page.html").read_bytes()
    assert before.startswith(b"<!DOCTYPE html>")
    assert b"make reproduce NAME=identities" in before
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    # existing files are kept unless --force is given
    assert command.call(asked) == 1
    err = capsys.readouterr().err
    assert "page.html already exists" in err and "--force" in err
    assert Path("page.html").read_bytes() == before
