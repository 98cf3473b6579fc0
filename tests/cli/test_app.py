"""The command line: what it prints, where, and its exit codes."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from typing import Any

import pytest

import meanmap
from meanmap import cli
from meanmap.cli import working


@pytest.fixture
def typer() -> Any:
    pytest.importorskip("rich", reason="pip install 'meanmap[cli]'")
    return pytest.importorskip("typer", reason="pip install 'meanmap[cli]'")


def one_line(text: str) -> bool:
    return text.startswith("meanmap: ") and text.count("\n") == 1 and "Traceback" not in text


def test_version(typer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["--version"]) == 0
    assert capsys.readouterr().out == f"meanmap {meanmap.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["select", "--help"]])
def test_help(typer: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(arguments) == 0
    out = capsys.readouterr().out
    assert "select" in out and "reproduce" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--bogus"], "--bogus"),
        (["select", "@machine", "--target", "failed", "--seed", "x"], "--seed"),
        (["select", "@machine", "--target", "failed", "--seed", "-1"], "--seed"),
        (["nonsense"], "nonsense"),
        # gone, whatever else is typed
        (["reproduce"], "make reproduce NAME="),
        (["reproduce", "circle", "--quick"], "make reproduce NAME="),
        (["reproduce", "--help"], "make reproduce NAME="),
    ],
)
def test_bad_usage_is_one_line_and_1(
    typer: Any, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err)
    assert said in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ImportError("needs matplotlib:\n pip install 'meanmap[plot]'"), 1),
        (KeyboardInterrupt(), 130),
        (OSError("no space"), 1),
    ],
)
def test_failures_are_one_line_and_their_code(
    typer: Any,
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answers() -> Any:
        raise error

    monkeypatch.setattr(working, "demo_answers", answers)
    assert cli.call(["demo"]) == code
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
        cli.main(["demo"])
    assert end.value.code == 1
    err = capsys.readouterr().err
    assert one_line(err)
    assert "pip install 'meanmap[cli]'" in err


def test_as_a_module(typer: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "meanmap.cli", "selct", "@machine"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert "selct" in done.stderr
