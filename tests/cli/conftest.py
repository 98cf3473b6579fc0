"""The command line, called and listened to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from meanmap import cli


@dataclass
class Run:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as strict JSON, which knows no NaN."""

        def never(word: str) -> None:
            raise AssertionError(f"{word} is not valid JSON")

        return json.loads(self.out, parse_constant=never)

    def failed(self, *said: str) -> None:
        """It ended with one line on standard error, nothing on standard output, and 1."""
        assert self.code == 1
        assert self.out == ""
        assert self.err.startswith("meanmap: ")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        assert "this is a bug" not in self.err
        for words in said:
            assert words in self.err


@pytest.fixture(autouse=True)
def needs_the_extra() -> None:
    for name in ("typer", "rich", "pandas", "pyarrow"):
        pytest.importorskip(name, reason="pip install 'meanmap[cli]'")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Call the command line in this process."""

    def call(*arguments: Any) -> Run:
        capsys.readouterr()
        code = cli.call([str(word) for word in arguments])
        return Run(code, *capsys.readouterr())

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start the command line in a process of its own."""

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        prepare = options.pop("preexec_fn", None)

        def listen() -> None:
            # jobs in the background of a shell ignore Ctrl-C, and so would what they start
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        paths = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, "-m", "meanmap.cli", *map(str, arguments)],
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=listen if os.name == "posix" else None,
            env={**os.environ, "PYTHONPATH": paths, **options.pop("environment", {})},
            **options,
        )

    return begin


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
