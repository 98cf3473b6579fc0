"""Hostile names and cells, numeric headers, interrupts: nothing is misread and nothing gets out."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
Caller = Callable[..., Any]

ROWS = "".join(f"{i},{i * i % 7}\n" for i in range(20))


@pytest.fixture(autouse=True)
def good(here: Path) -> None:
    Path("good.csv").write_text("a,b\n" + ROWS)


# --- headers --------------------------------------------------------------------------------------


def test_a_header_longer_than_any_buffer(run: Caller) -> None:
    names = [f"c{i}" for i in range(15_000)]  # cut anywhere, the last name is that of another
    assert len(",".join(names)) > 1 << 16
    row = ",".join(map(str, range(15_000)))
    Path("wide.csv").write_text("\n".join([",".join(names), *[row] * 5]) + "\n")
    done = run("two-sample", "wide.csv", "wide.csv", "--columns", names[-1], "--json")
    assert done.code == 0, done.err
    assert list(done.json["sources"][0]["columns"]) == [names[-1]]


def test_a_header_with_a_line_break_in_quotes(run: Caller) -> None:
    Path("t.csv").write_text('"first\nname",b\n' + ROWS)
    found = run("two-sample", "t.csv", "t.csv", "--json").json
    assert list(found["sources"][0]["columns"]) == ["first\nname", "b"]


def test_a_first_line_of_numbers_is_data_unless_told_otherwise(run: Caller) -> None:
    Path("years.csv").write_text("2019,2020\n" + ROWS)
    query = ("two-sample", "years.csv", "years.csv", "--json")
    found = run(*query)
    assert list(found.json["sources"][0]["columns"]) == ["x0", "x1"]
    assert found.json["sources"][0]["rows"] == 21
    assert found.err == (
        "meanmap: note: years.csv: the first line (2019, 2020) holds numbers only and is read as "
        "data; the columns are named x0, x1. Use --header if it holds their names.\n"
    )
    named = run(*query, "--header")
    assert named.json["sources"][0] == {
        "name": "years.csv",
        "rows": 20,
        "columns": {"2019": "number", "2020": "number"},
    }
    assert named.err == ""
    assert run(*query, "--no-header").err == ""
    assert run(*query, "--no-header").json["sources"] == found.json["sources"]


def test_a_first_line_with_a_word_is_a_header_unless_told_otherwise(run: Caller) -> None:
    Path("city.csv").write_text("oslo,3.5\n" + "rome,1\noslo,2\n" * 10)
    query = ("two-sample", "city.csv", "city.csv", "--json")
    found = run(*query)
    assert list(found.json["sources"][0]["columns"]) == ["oslo", "3.5"]
    assert found.err == (
        "meanmap: note: city.csv: the first line (oslo, 3.5) is read as the names of the columns, "
        "though '3.5' is a number. Use --no-header if it is data.\n"
    )
    assert run(*query, "--header").err == ""
    data = run(*query, "--no-header")
    assert data.json["sources"][0] == {
        "name": "city.csv",
        "rows": 21,
        "columns": {"x0": "label", "x1": "number"},
    }


def test_decimal_commas_are_numbers_in_the_first_line_too(run: Caller) -> None:
    Path("t.csv").write_text("1,5;2,5\n" + "3,5;4,5\n5,5;1,5\n" * 10)
    found = run("two-sample", "t.csv", "t.csv", "--json").json
    assert found["sources"][0]["columns"] == {"x0": "number", "x1": "number"}
    assert found["sources"][0]["rows"] == 21


@pytest.mark.parametrize(
    "arguments",
    [
        "independence years.csv --x 2019 --y 2020",
        "condition years.csv --given 2019 --predict 2020 --at 2019=3",
        "condition good.csv --given a --predict b --at at.csv",
        "filter years.csv years.csv --state 2019 --observe 2020",
        "shift years.csv years.csv",
        "select years.csv --target 2019",
    ],
)
def test_every_command_takes_the_option(arguments: str, run: Caller) -> None:
    Path("years.csv").write_text("2019,2020\n" + ROWS)
    Path("at.csv").write_text("a\n3\n")
    done = run(*arguments.split(), "--header", "--quiet")
    assert done.code == 0, done.err


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", ["9" * 400, "-" + "9" * 400, "9" * 400 + ".5", "9" * 100])
@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_a_number_of_400_digits(digits: str, way: str, run: Caller) -> None:
    Path("bad.csv").write_text("a,b\n" + ROWS + f"{digits},1\n")
    done = run("two-sample", "good.csv", "bad.csv", way)
    done.failed("bad.csv: column 'a' holds", "in row 21, too large to compute with")
    assert len(done.err) < 300


def test_a_number_of_400_digits_in_a_query(run: Caller) -> None:
    query = ("condition", "good.csv", "--given", "a", "--predict", "b", "--at")
    run(*query, f"a={'9' * 400}").failed("--at: a=9999", "is not a finite number")


def test_points_that_are_none(run: Caller) -> None:
    query = ("condition", "good.csv", "--given", "a", "--predict", "b", "--at")
    run(*query, "a=1.csv").failed("--at: a=1.csv is not a number, and a holds numbers")
    run(*query, "a=0,a=1").failed("--at: 'a=0,a=1' gives 'a' twice", "--at a=1")
    run(*query, "a=0,1").failed("--at: '1' in 'a=0,1' is not of the form name=value")
    run(*query, "=3").failed("--at: '' is not among --given")
    run(*query, "a=").failed("--at: a= is not a number")
    Path("a=1.csv").write_text("a\n3\n")
    run(*query, "a=1.csv").failed("--at: 'a=1.csv' is a file and a point", "./a=1.csv")
    assert run(*query, "./a=1.csv", "--json").json["given"] == {"a": [3]}


ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e"


@pytest.fixture
def hostile(here: Path) -> str:
    rng = np.random.default_rng(0)
    name = f"a{ESCAPES}"
    cells = rng.choice([f"x{ESCAPES}", "y"], 40)
    pd.DataFrame({name: cells, "b": rng.normal(size=40)}).to_csv("bad.csv", index=False)
    return name


@pytest.mark.parametrize(
    "arguments",
    [
        ("two-sample", "bad.csv", "bad.csv"),
        ("condition", "bad.csv", "--given", "b", "--predict", "NAME", "--at", "b=1"),
        ("condition", "bad.csv", "--given", "b", "--predict", "NAME", "--at", "b=1", "--json"),
        ("independence", "bad.csv", "--x", "NAME", "--y", "b"),
        ("independence", "bad.csv", "--x", "NAME", "--y", "NAME"),
        ("independence", "bad.csv", "--x", "c", "--y", "b"),
        ("select", "bad.csv", "--target", "b"),
        ("shift", "bad.csv", "bad.csv"),
        ("filter", "bad.csv", "bad.csv", "--state", "NAME", "--observe", "b"),
    ],
)
def test_escape_sequences_are_shown_and_not_obeyed(
    arguments: tuple[str, ...], hostile: str, run: Caller
) -> None:
    done = run(*(word.replace("NAME", hostile) for word in arguments))
    shown = done.out + done.err
    assert shown.strip()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    if "--json" in arguments:
        assert done.json["title"].startswith(hostile)
    elif hostile in arguments or "two-sample" in arguments:
        assert r"\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e" in "".join(shown.split("\n"))


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_cells_are_not_formulas(ending: str, run: Caller) -> None:
    rng = np.random.default_rng(0)
    cells = [*FORMULAS, "plain", "a=b", "-3"] * 5
    table = {"=name()": cells, "b": rng.normal(size=45)}
    pd.DataFrame(table).to_parquet("t.parquet")
    pd.DataFrame({"=name()": cells[:9]}).to_parquet("at.parquet")
    query = ("--given", "=name()", "--predict", "b", "--at", "at.parquet")
    for name in (f"out.{ending}", "out.parquet"):
        done = run("condition", "t.parquet", *query, "--output", name)
        assert done.code == 0, done.err
    found = pd.read_csv(f"out.{ending}", sep="\t" if ending == "tsv" else ",", dtype=str)
    assert list(found)[:2] == ["'=name()", "b mean"]
    assert found["'=name()"].to_list() == [*(f"'{one}" for one in FORMULAS), "plain", "a=b", "-3"]
    numbers = pd.read_parquet("out.parquet")
    assert numbers["=name()"].to_list() == cells[:9]  # formats without formulas keep every cell
    written = found["b mean"].astype(float).to_numpy()
    assert written == pytest.approx(numbers["b mean"].to_numpy())
    assert not found["b mean"].str.startswith("'").any() and (written < 0).any()


# --- interrupts -----------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupter())
from meanmap.cli import main
main(["two-sample", "good.csv", "good.csv", "--report", "page.html"])
"""


@pytest.mark.parametrize(
    "module",
    ["meanmap.cli.screen", "numpy", "sklearn", "typer", "meanmap.comparison", "matplotlib.figure"],
)
def test_ctrl_c_during_imports(module: str, here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr == "meanmap: interrupted; nothing was written.\n"
    assert {path.name for path in here.iterdir()} == {"good.csv"}


def test_an_ignored_interrupt_stays_ignored(here: Path) -> None:
    code = INTERRUPTED.format(module="numpy")
    code = code.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr


# --- narrow terminals -----------------------------------------------------------------------------


def on_terminal(columns: int, *arguments: str) -> str:
    """What a terminal of so many columns shows."""
    main, side = pty.openpty()
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "meanmap.cli", *arguments],
        stdout=side,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    os.close(side)
    parts = []
    try:
        while part := os.read(main, 65536):
            parts.append(part)
    except OSError:  # Linux: the other end was closed
        pass
    os.close(main)
    assert process.wait(timeout=120) == 0
    text = b"".join(parts).decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize(
    "arguments",
    [
        "two-sample @before @after",
        "condition @summer --given temperature --predict ice_cream --at temperature=25",
        "shift @flowers-train @flowers-test --target species",
    ],
)
def test_nothing_is_cut_off_on_79_columns(arguments: str, run: Caller) -> None:
    shown = on_terminal(79, *arguments.split(), "--quiet")
    assert max(map(len, shown.splitlines())) <= 79
    found = run(*arguments.split(), "--json", "--quiet").json
    assert " ".join(found["headline"].split()) in " ".join(shown.split())
    assert "…" not in shown
    if "statistic" in found and "method" in found:
        assert found["method"].replace(" ", "") in "".join(shown.split())


def test_the_list_of_commands_is_not_cut_off(start: Caller) -> None:
    process = start("--help", environment={"COLUMNS": "79"})
    out, _ = process.communicate(timeout=120)
    assert "..." not in out.partition("Commands:")[2]
    assert max(map(len, out.splitlines())) <= 79
