"""The files that people have: spreadsheets, JSON, databases, encodings, dates and currencies."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optional_packages import require

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
Caller = Callable[..., Any]


def people(n: int = 60, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    return pd.DataFrame(
        {
            "customer_id": rng.permutation(np.arange(5000, 5000 + n)),
            "name": [f"Müller, Ann {i}" for i in range(n)],
            "joined": pd.date_range("2023-01-05", periods=n, freq="37h").strftime("%Y-%m-%d"),
            "age": age,
            "city": rng.choice(["Köln", "Zürich"], n),
            "income": (100 * age + rng.normal(0, 300, n)).round(2),
        }
    )


def kinds(run: Caller, *files: str) -> dict[str, str]:
    """The columns in use, by their kinds."""
    found = run("two-sample", *files, "--permutations", "19", "--json")
    assert found.code == 0, found.err
    return dict(found.json["sources"][0]["columns"])


USED = {"age": "number", "city": "label", "income": "number"}
LEFT_OUT = (
    "columns left out: customer_id (ID), name (free text), joined (date). "
    "Use --columns to name those to use."
)


# --- columns that are left out --------------------------------------------------------------------


def test_ids_dates_and_free_text_are_left_out_with_a_line(run: Caller, here: Path) -> None:
    people().to_csv("t.csv", index=False)
    found = run("two-sample", "t.csv", "t.csv", "--json")
    assert dict(found.json["sources"][0]["columns"]) == USED
    assert found.err == f"meanmap: note: {LEFT_OUT}\n"
    assert LEFT_OUT in found.json["notes"]
    named = run("two-sample", "t.csv", "t.csv", "--columns", "joined,age,name", "--json")
    columns = {"joined": "date", "age": "number", "name": "label"}
    assert dict(named.json["sources"][0]["columns"]) == columns and named.err == ""
    less = ("--exclude", "customer_id,name,joined,city")
    fewer = run("two-sample", "t.csv", "t.csv", *less, "--json")
    assert list(fewer.json["sources"][0]["columns"]) == ["age", "income"] and fewer.err == ""
    for command in (("dependence", "t.csv"), ("shift", "t.csv", "t.csv")):
        assert LEFT_OUT in run(*command, "--json").json["notes"]
    chosen = run("select", "t.csv", "--target", "income", "--exclude", "city")
    assert chosen.code == 0 and "customer_id (ID)" in chosen.err
    run("two-sample", "t.csv", "t.csv", "--exclude", "nme").failed("'nme' (--exclude)", "'name'")
    only = ("--columns", "income", "--exclude", "income")
    run("two-sample", "t.csv", "t.csv", *only).failed("no column 'income'")


def test_row_numbers_and_named_ids_are_ids(here: Path) -> None:
    from meanmap.cli.tables import Table

    n = 40
    frame = pd.DataFrame(
        {
            "case": np.arange(1, n + 1),
            "userId": np.tile(np.arange(n // 2), 2) * 7 + 1000,
            "valid": np.arange(n) * 3 % 41,
            "price index": np.arange(n) % 13,
            "t": np.arange(n) / 2,
            "species_id": np.arange(n) % 3,
        }
    )
    frame.to_csv("t.csv", index=False)
    found = Table.of("t.csv").left_out(list(frame))
    assert found == {"case": "ID"}
    frame["userId"] = np.arange(n) * 7 % 331
    frame.to_csv("t.csv", index=False)
    assert Table.of("t.csv").left_out(list(frame)) == {"case": "ID", "userId": "ID"}


def test_a_table_without_a_column_of_use(run: Caller, here: Path) -> None:
    people()[["customer_id", "name"]].to_csv("t.csv", index=False)
    run("two-sample", "t.csv", "t.csv", "--quiet").failed("t.csv has no column to use")
    people()[["customer_id", "age"]].to_csv("t.csv", index=False)
    run("dependence", "t.csv", "--quiet").failed("t.csv has one column to use, 'age'")


# --- formats --------------------------------------------------------------------------------------


def write_as(kind: str, frame: Any) -> str:
    """A file of a kind; its name."""
    text = frame.to_csv(index=False)
    name = f"t.{kind}"
    if kind == "xlsx":
        require("openpyxl")
        frame.to_excel(name, index=False)
    elif kind in ("json", "jsonl"):
        frame.to_json(name, orient="records", lines=kind == "jsonl", force_ascii=False)
    elif kind == "columns.json":
        frame.to_json(name)
    elif kind == "db":
        with sqlite3.connect(name) as base:
            frame.to_sql("people", base, index=False)
        base.close()
        name = f"sqlite:///{name}?table=people"
    elif kind == "duckdb":
        with require("duckdb").connect(name) as base:
            base.register("given", frame)
            base.execute("CREATE TABLE people AS SELECT * FROM given")
        name = f"duckdb:///{name}?query=SELECT * FROM people WHERE age > 0"
    elif kind == "csv.zip":
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("t.csv", text)
    else:
        codecs: dict[str, Callable[[bytes], Any]] = {
            "csv.gz": gzip.compress,
            "csv.bz2": bz2.compress,
            "csv.xz": lzma.compress,
            "csv.zst": lambda data: pa.compress(data, "zstd", asbytes=True),
        }
        Path(name).write_bytes(codecs[kind](text.encode()))
    return name


FORMATS = ["xlsx", "json", "jsonl", "columns.json", "db", "duckdb"]
FORMATS += ["csv.gz", "csv.bz2", "csv.zst", "csv.xz", "csv.zip"]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_the_same_table(kind: str, run: Caller, here: Path) -> None:
    frame = people()
    frame.to_csv("plain.csv", index=False)
    name = write_as(kind, frame)
    query = ("--given", "age,city", "--predict", "income", "--at", "age=40,city=Köln", "--json")
    found, plain = (run("condition", one, *query) for one in (name, "plain.csv"))
    assert found.code == 0, found.err
    assert found.json["mean"] == plain.json["mean"]
    assert kinds(run, name, name) == USED


@pytest.mark.parametrize("kind", ["jsonl", "db", "json", "xlsx", "csv.gz"])
def test_every_format_is_read_in_batches(
    kind: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanmap.cli import tables

    monkeypatch.setattr(tables, "BATCH", 25)
    frame = people(90)
    name = write_as(kind, frame)
    parts = list(tables.Table.of(name).batches(["age", "city"]))
    assert [part.total for part in parts] == [25, 25, 25, 15]
    assert np.concatenate([part.frame["age"] for part in parts]).tolist() == frame["age"].tolist()


def test_objects_without_a_key_have_a_missing_value(here: Path, monkeypatch: Any) -> None:
    from meanmap.cli import tables

    monkeypatch.setattr(tables, "BATCH", 2)
    Path("t.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 2, "b": 3}\n\n{"b": 5, "c": 1}\n')
    parts = list(tables.Table.of("t.jsonl").batches(["a", "b"], {"a": "number", "b": "number"}))
    assert [part.dropped for part in parts] == [0, 1]


def test_sheets_are_named(run: Caller, here: Path) -> None:
    require("openpyxl")
    with pd.ExcelWriter("t.xlsx") as book:
        people(30).to_excel(book, sheet_name="first", index=False)
        people(40).to_excel(book, sheet_name="second", index=False, startrow=2, startcol=1)
    found = run("dependence", "t.xlsx", "--sheet", "second", "--permutations", "19", "--json")
    assert found.json["sources"][0]["rows"] == 40
    first = run("dependence", "t.xlsx", "--permutations", "19", "--json")
    assert first.json["sources"][0]["rows"] == 30
    assert "the first of the sheets first, second is read; see --sheet" in first.err
    wrong = run("dependence", "t.xlsx", "--sheet", "secnd")
    wrong.failed("no sheet 'secnd' (--sheet). Did you mean 'second'?")


def test_excel_without_its_package_names_it(
    run: Caller, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise ImportError("`Import openpyxl` failed. Use pip or conda to install it.")

    with zipfile.ZipFile("t.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    monkeypatch.setattr(pd, "ExcelFile", absent)
    run("dependence", "t.xlsx").failed("t.xlsx: ", "openpyxl", "pip install 'meanmap[cli]'")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("t.json", b'[{"a": 1', "t.json cannot be read as JSON data"),
        ("t.json", b"[" * 5000, "t.json cannot be read as JSON data"),
        ("t.jsonl", b'{"a": 1}\n{"a": }\n', "t.jsonl cannot be read as JSON lines data"),
        ("t.xlsx", b"PK\x03\x04" + bytes(50), "t.xlsx cannot be read as Excel data"),
        ("t.xls", b"\xd0\xcf\x11\xe0" + bytes(600), "t.xls"),
        ("t.db", b"SQLite format 3\0" + bytes(100), "t.db cannot be read as SQLite data"),
        ("t.csv.zst", b"(\xb5/\xfd" + bytes(20), "t.csv.zst is compressed with zstd"),
        ("t.csv.xz", b"\xfd7zXZ" + bytes(20), "t.csv.xz is compressed with xz"),
        ("t.gz", gzip.compress(gzip.compress(b"a,b\n1,2\n")), "t.gz is compressed with gzip"),
        ("t.gz", gzip.compress(b""), "t.gz is empty"),
        ("t.json", b"[]", "t.json has columns but no rows"),
    ],
)
def test_broken_files_name_their_format(
    name: str, data: bytes, said: str, run: Caller, here: Path
) -> None:
    Path(name).write_bytes(data)
    run("dependence", name).failed(said)
    assert [path.name for path in here.iterdir()] == [name]


def test_databases_are_asked_for_a_table(run: Caller, here: Path) -> None:
    write_as("db", people())
    whole = kinds(run, "t.db", "sqlite:///t.db")  # its only table
    assert whole == USED
    with sqlite3.connect("t.db") as base:
        people(30).to_sql('odd "name"', base, index=False)
    base.close()
    run("dependence", "t.db").failed('sqlite:///t.db?table=NAME. There are: odd "name", people')
    found = run("dependence", 'sqlite:///t.db?table=odd "name"', "--permutations", "19", "--json")
    assert found.json["sources"][0]["rows"] == 30
    run("dependence", "sqlite:///t.db?table=peple").failed("Did you mean 'people'?")
    run("dependence", "sqlite:///t.db?query=SELECT age, wage FROM people").failed("wage")
    run("dependence", "sqlite:///t.db?query=DROP TABLE people").failed("t.db")
    assert run("dependence", "sqlite:///t.db?table=people", "--permutations", "19").code == 0
    run("dependence", "sqlite:///no.db?table=t").failed("no file no.db")
    people().to_csv("t.csv", index=False)
    run("dependence", "sqlite:///t.csv?table=t").failed("t.csv is not a database")


# --- encodings ------------------------------------------------------------------------------------


def test_an_encoding_is_found_and_named(run: Caller, here: Path) -> None:
    frame = people()
    for name, encoding in (("l.csv", "latin-1"), ("w.csv", "utf-16"), ("u.csv", "utf-8-sig")):
        frame.to_csv(name, index=False, encoding=encoding)
        query = ("--given", "city", "--predict", "age", "--at", "city=Zürich")
        found = run("condition", name, *query, "--json")
        assert found.code == 0, found.err
        said = "l.csv is not in UTF-8 and is read as cp1252 (Western European)." in found.err
        assert said == (name == "l.csv")
        given = run("condition", name, *query, "--encoding", encoding, "--json")
        assert given.json["mean"] == found.json["mean"] and given.err == ""
    run("dependence", "l.csv", "--encoding", "utf-8").failed("l.csv is not text in utf-8")
    run("dependence", "l.csv", "--encoding", "utf8x").failed("no encoding 'utf8x'")
    # the first letter that is not ASCII is far behind what is looked at to find the separator
    lines = "a,b\n" + "1,plain\n2,other\n" * 20_000 + "3,Köln\n"
    Path("late.csv").write_bytes(lines.encode("latin-1"))
    assert "is read as cp1252" in run("dependence", "late.csv", "--permutations", "1").err


# --- numbers and dates ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "values", "kind"),
    [
        ("$1,234.50|($3.25)|-$7|12", [1234.5, -3.25, -7, 12], "number"),
        ("1.234,50 €|3,25 €|-7 €|1.000 €", [1234.5, 3.25, -7, 1000], "number, decimal commas"),
        ("1,5|2,25|1.000|7", [1.5, 2.25, 1000, 7], "number, decimal commas"),
        ("1,500|2,250|10|7", [1500, 2250, 10, 7], "number"),
        ("1 234,5|2\u00a0000,5|3|4", [1234.5, 2000.5, 3, 4], "number, decimal commas"),
        ("12 %|7.5%|−3 %|0%", [12, 7.5, -3, 0], "number"),
        ("CHF 1'200|EUR 5|USD 7.5|1", [1200, 5, 7.5, 1], "number"),
    ],
)
def test_amounts(cells: str, values: list[float], kind: str) -> None:
    from meanmap.cli.kinds import convert_column, kind_of

    column = pd.Series(cells.split("|"))
    assert kind_of("t", column, "a") == kind
    assert convert_column("t", column, kind, "a", 0).tolist() == values


@pytest.mark.parametrize(
    "cells", ["1,5|2.5|1.234,5|1,234.5", "1.2.3|4.5.6", "BMW 320|VW 3", "12,34,56|1"]
)
def test_what_is_not_an_amount(cells: str) -> None:
    from meanmap.cli.kinds import kind_of

    try:
        assert not kind_of("t", pd.Series(cells.split("|")), "a").startswith("number")
    except ValueError as error:  # numbers beside what is not
        assert "and numbers elsewhere" in str(error)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("%Y-%m-%d", "date"),
        ("%Y-%m-%dT%H:%M:%S", "date"),
        ("%d.%m.%Y", "date, %d.%m.%Y"),
        ("%d/%m/%Y", "date, %d/%m/%Y"),
        ("%m/%d/%Y %I:%M %p", "date, %m/%d/%Y %I:%M %p"),
        ("%d-%b-%Y", "date, %d-%b-%Y"),
        ("%B %d, %Y", "date, %B %d, %Y"),
        ("%Y%m%d", "date, %Y%m%d"),
    ],
)
def test_dates(form: str, kind: str) -> None:
    from meanmap.cli.kinds import convert_column, kind_of

    times = pd.Series(pd.date_range("2024-01-05", periods=30, freq="D"))
    text = times.dt.strftime(form)
    text = text.astype(int) if form == "%Y%m%d" else text
    assert kind_of("t", text, "day") == kind
    days = convert_column("t", text, kind, "day", 0)
    assert days.tolist() == [19727.0 + i for i in range(30)]


def test_a_date_that_could_be_another_is_noted(run: Caller, here: Path) -> None:
    rows = "".join(f"0{i % 9 + 1}/0{i % 7 + 1}/2024,{i}\n" for i in range(20))
    Path("t.csv").write_text("day,n\n" + rows)
    asked = ("independence", "t.csv", "--x", "day", "--y", "n", "--permutations", "19")
    assert "are read as month/day; they could be day/month" in run(*asked).err
    Path("t.csv").write_text("day,n\n" + rows + "25/01/2024,3\n")
    assert "month/day" not in run(*asked).err
    bad = "".join(f"2024-01-{i + 1:02d},{i}\n" for i in range(20)) + "2024-02-31,3\n"
    Path("t.csv").write_text("day,n\n" + bad)
    at = ("--given", "n", "--predict", "day", "--at", "n=3")
    run("condition", "t.csv", *at).failed("'day' looks like an ID or free text")


def test_what_means_missing(run: Caller, here: Path) -> None:
    frame = people().astype({"income": object, "age": object})
    frame.loc[[3, 4], "income"] = "-"
    frame.loc[7, "age"] = -999
    frame.to_csv("t.csv", index=False)
    run("dependence", "t.csv").failed("column 'income' holds '-' in row 4", "--na")
    asked = ("dependence", "t.csv", "--permutations", "19", "--json")
    found = run(*asked, "--na", "-,-999").json
    assert "t.csv: 3 of 60 rows have missing values and are left out." in found["notes"]
    frame.to_json("t.json", orient="records")
    again = run("dependence", "t.json", *asked[2:], "--na", "-", "--na", "-999").json
    assert again["pairs"] == found["pairs"]


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("a;b\n1,234;2\n", ","),
        ("a\tb\n1,234\t2\n", "."),
        ("a\tb\n1,23\t2\n", ","),
        ("a;b\n1,234;2.5\n", "."),
        ("a;b\n1,5;31.12.2024\n", ","),
        ("a,b\n1,5\n", "."),
    ],
)
def test_the_decimal_sign(text: str, decimal: str) -> None:
    from meanmap.cli.readers import decimal_of, separator_of

    assert decimal_of(text, separator_of("t.csv", text.splitlines()[0])) == decimal


# --- rows of --at ---------------------------------------------------------------------------------


def test_rows_come_back_in_order_with_their_ids(run: Caller, here: Path) -> None:
    people().to_csv("t.csv", index=False)
    asked = pd.DataFrame(
        {
            "client": ["c9", "c1", "c5", "c3"],
            "age": [40, None, 30, 50],
            "seen": ["31.01.2024", "01.02.2024", None, "05.02.2024"],
            "city": ["Köln", None, "Bern", "Zürich"],
        }
    )
    asked.to_csv("at.csv", index=False)
    query = ("condition", "t.csv", "--given", "age,city", "--predict", "income", "--at")
    assert run(*query, "at.csv", "--output", "out.csv").code == 0
    out = pd.read_csv("out.csv")
    assert list(out)[:4] == ["client", "seen", "age", "city"]
    assert out["client"].tolist() == ["c9", "c1", "c5", "c3"]
    assert out["seen"].fillna("").tolist() == ["2024-01-31", "2024-02-01", "", "2024-02-05"]
    marks = ["", "age, city missing", "unknown city", ""]
    assert out["note"].fillna("").tolist() == marks
    assert out["income mean"].notna().tolist() == [True, False, False, True]
    found = run(*query, "at.csv", "--json").json
    assert found["row_notes"] == marks and found["ids"]["client"] == ["c9", "c1", "c5", "c3"]
    asked.set_index("client").to_csv("indexed.csv", index_label="")
    shown = run(*query, "indexed.csv", "--at", "age=33,city=Köln", "--json").json
    assert shown["ids"]["row"] == ["c9", "c1", "c5", "c3", ""]


def test_dates_are_shown_as_dates(run: Caller, here: Path) -> None:
    frame = people()
    frame["joined"] = pd.to_datetime(frame["joined"]).dt.strftime("%d.%m.%Y")
    frame.to_csv("t.csv", index=False)
    query = ("condition", "t.csv", "--given", "joined", "--predict", "age", "--at")
    done = run(*query, "joined=05.02.2023", "--output", "out.csv")
    assert "Given joined = 2023-02-05: age is" in done.out
    assert "joined (date, %d.%m.%Y)" in done.out
    assert pd.read_csv("out.csv")["joined"].tolist() == ["2023-02-05"]
    iso = run(*query, "joined=2023-02-05", "--json").json
    assert iso["given"] == {"joined": [19393]}
    run(*query, "joined=31.02.2023").failed("is not a date such as 2024-12-31")


# --- filters --------------------------------------------------------------------------------------


def test_filters_take_labels_and_show_dates(run: Caller, here: Path) -> None:
    import meanmap

    rng = np.random.default_rng(1)
    n = 240
    light = np.where(np.sin(np.arange(n) / 12) > 0, "day", "night")
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=n, freq="h"), "light": light})
    frame["heat"] = (5.0 * (light == "day") + rng.normal(0, 1.5, n)).round(2)
    frame[:200].to_csv("train.csv", index=False)
    frame.loc[210, "heat"] = None
    frame[200:].to_csv("new.csv", index=False)
    query = ("filter", "train.csv", "new.csv", "--state", "light", "--observe", "heat")
    done = run(*query, "--output", "out.csv", "--plot", "f.png", "--json")
    assert done.code == 0, done.err
    model = meanmap.KernelBayesFilter(progress=False)
    model.fit(light[:200], frame["heat"][:200].to_numpy()[:, None])
    expected = model.filter(frame["heat"][200:].to_numpy()[:, None])
    assert done.json["mode"]["light"] == list(expected.mode)
    assert done.json["error"] < 0.2
    out = pd.read_csv("out.csv")
    assert list(out)[:3] == ["step", "when", "light mode"] and len(out) == 40
    assert out["when"][0] == "2024-01-09 08:00:00"
    assert "1 of 40 steps were not observed." in done.json["notes"]
    other = run("filter", "train.csv", "new.csv", "--state", "heat", "--observe", "light", "--json")
    assert other.code == 0 and len(other.json["mean"]["heat"]) == 40


# --- what is asked is done ------------------------------------------------------------------------


def test_permutations_that_are_asked_for_are_run(
    run: Caller, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanmap.cli import comparing

    monkeypatch.setattr(comparing, "MANY", 50)
    people().to_csv("t.csv", index=False)
    asked = ("two-sample", "t.csv", "t.csv", "--columns", "age,income", "--json")
    assert run(*asked).json["settings"]["permutations"] == "replaced by moments"
    found = run(*asked, "--permutations", "999").json
    assert found["settings"]["permutations"] == "999" and "999 draws" in found["method"]
    run(*asked, "--permutations", "9", "--stream").failed("--stream cannot be combined with --perm")
    few = run("dependence", "t.csv", "--permutations", "19", "--json").json
    assert any("use --permutations 61 or --fdr" in note for note in few["notes"])


def test_ranks_follow_scores_which_are_explained(run: Caller) -> None:
    found = run("select", "@machine", "--target", "failed", "--count", "2")
    rows = [line.split() for line in found.out.splitlines() if line[:4].strip().isdigit()]
    assert [row[0] for row in rows] == [str(i) for i in range(1, 11)]
    scores = [float(row[2]) for row in rows]
    assert scores[2:] == sorted(scores[2:], reverse=True) and min(scores) < 0
    words = "A score is by how much the error on rows left out grows without the column; below"
    assert words in " ".join(found.out.split())
    assert "rank" in found.out and "choice" in found.out


def test_a_stream_with_decimal_commas(run: Caller, here: Path, monkeypatch: Any) -> None:
    import sys

    frame = people(200)[["age", "income"]] / 1000
    frame.to_csv("known.csv", index=False, sep=";", decimal=",")
    lines = frame.to_csv(index=False, sep=";", decimal=",").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    found = run("monitor", "known.csv", "--batch", "20", "--json")
    assert found.code == 0, found.err
    assert '"drift_detected": true' not in found.out
