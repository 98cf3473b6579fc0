"""`meanmap monitor`: rows as they come, from files that grow and from pipes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")

Caller = Callable[..., Any]


def rows(seed: int, n: int, shift: float = 0.0) -> Any:
    rng = np.random.default_rng(seed)
    state = rng.choice(["on", "off"], n)
    return pd.DataFrame({"a": rng.normal(shift, 1, n), "b": rng.normal(size=n), "state": state})


@pytest.fixture
def files(here: Path) -> Path:
    rows(0, 300).to_csv("known.csv", index=False)
    pd.concat([rows(1, 60), rows(2, 60, 3.0)]).to_csv("stream.csv", index=False)
    return here


ASKED = ("monitor", "known.csv", "--run-length", "500", "--batch", "40")


def test_a_line_per_batch_and_per_alarm(files: Path, run: Caller) -> None:
    done = run(*ASKED, "--follow", "stream.csv", "--exit-code")
    assert done.code == 3
    lines = done.out.splitlines()
    assert [line for line in lines if line.startswith("row 40: score")]
    assert any("Drift in 'a': alarm at row 6" in line for line in lines)
    calm = run(*ASKED, "--follow", "known.csv")
    assert calm.code == 0


def test_json_lines_and_the_first_alarm(files: Path, run: Caller) -> None:
    done = run(*ASKED, "--follow", "stream.csv", "--json", "--stop", "--exit-code")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["rows"] for one in found][0] == 40
    assert found[-1]["drift_detected"] and not any(one["drift_detected"] for one in found[:-1])
    assert found[-1]["alarms"][0]["changed"] == ["a"]
    assert done.code == 3


def test_columns_and_missing_values(files: Path, run: Caller) -> None:
    stream = rows(3, 80)
    stream.loc[5, "b"] = np.nan
    stream[["state", "b", "a"]].to_csv("holes.csv", index=False)
    done = run(*ASKED, "--follow", "holes.csv", "--columns", "b,state")
    assert "row 39: score" in done.out and "1 left out: missing values" in done.out


def test_the_page_is_written_again(files: Path, run: Caller) -> None:
    done = run(*ASKED, "--follow", "stream.csv", "--report", "page.html")
    assert done.code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "stream.csv beside known.csv" in page and "alarm at row" in page
    again = run(*ASKED, "--follow", "stream.csv", "--report", "page.html")
    again.failed("already exists")


def test_a_pipe_gets_the_same_lines(files: Path, run: Caller, start: Caller) -> None:
    expected = run(*ASKED, "--follow", "stream.csv").out
    with open("stream.csv") as stream:
        process = start(*ASKED, stdin=stream)
        out, err = process.communicate(timeout=60)
    assert out == expected, err


def test_a_growing_file_is_followed(files: Path, start: Caller) -> None:
    text = Path("stream.csv").read_text().splitlines(keepends=True)
    Path("growing.csv").write_text("".join(text[:30]))
    process = start(*ASKED, "--follow", "growing.csv", "--wait", "4", "--json", "--exit-code")
    first = json.loads(process.stdout.readline())
    assert first["rows"] == 29
    with open("growing.csv", "a") as stream:
        stream.write("".join(text[30:90])[:-3])  # the last line is not complete yet
        stream.flush()
        time.sleep(0.5)
        stream.write("".join(text[30:90])[-3:])
    out, _ = process.communicate(timeout=60)
    assert json.loads(out.splitlines()[-1])["rows"] == 89
    assert process.returncode == 3


def test_streams_that_do_not_fit(files: Path, run: Caller, monkeypatch: Any) -> None:
    Path("other.csv").write_text("a,c\n1,2\n")
    run(*ASKED, "--follow", "other.csv").failed("has no column 'b'")
    run(*ASKED, "--follow", "other.csv", "--wait", "0.1").failed("has no column 'b'")
    Path("text.csv").write_text("a,b,state\n1,2,on\n1,many,on\n")
    run(*ASKED, "--follow", "text.csv").failed("'many' in row 2, which is not a number")
    Path("ragged.csv").write_text("a,b,state\n1,2\n")
    run(*ASKED, "--follow", "ragged.csv", "--wait", "0.1").failed("row 1 has 2 fields")
    run("monitor", "ragged.csv").failed("ragged.csv")
    Path("empty.csv").write_text("a,b,state\n")
    done = run(*ASKED, "--follow", "empty.csv", "--wait", "0.1")
    assert done.code == 0 and done.out == ""
