"""Files of every format, and what their columns are taken for."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meanmap

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def samples(n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    one = pd.DataFrame({"a": rng.normal(size=n), "b": 3 * rng.normal(size=n)})
    other = pd.DataFrame({"a": rng.normal(0.8, 1, size=n), "b": 3 * rng.normal(size=n)})
    return one, other


def write(frame: Any, path: Path) -> None:
    kind = path.suffix
    if kind == ".csv":
        frame.to_csv(path, index=False)
    elif kind == ".tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif kind == ".txt":
        frame.to_csv(path, index=False, sep=";", decimal=",")
    elif kind == ".parquet":
        frame.to_parquet(path)
    elif kind == ".feather":
        frame.to_feather(path)
    elif kind == ".arrow":
        table = pa.Table.from_pandas(frame)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    elif kind == ".arrows":
        table = pa.Table.from_pandas(frame)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    elif kind == ".npz":
        np.savez(path, **{name: frame[name].to_numpy() for name in frame})
    else:
        np.save(path, frame.to_numpy())


KINDS = [".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".arrows", ".npz", ".npy"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["--no-stream", "--stream"])
def test_every_format_gives_pythons_answer(
    kind: str, way: str, run: Callable[..., Any], here: Path
) -> None:
    one, other = samples()
    write(one, here / f"one{kind}")
    write(other, here / f"other{kind}")
    found = run("two-sample", f"one{kind}", f"other{kind}", "--no-scale", way, "--json")
    assert found.code == 0, found.err
    assert found.err == ""
    if way == "--no-stream":
        expected = meanmap.two_sample_test(one.to_numpy(), other.to_numpy(), rng=0)
        assert found.json["pvalue"] == expected.pvalue
    else:
        both = np.concatenate([one.to_numpy(), other.to_numpy()])
        space = meanmap.spaces.Space(
            meanmap.kernels.default_kernel(both),
            meanmap.spaces.PivotedCholesky(1e-6, max_rank=500),
        ).fit(both)
        stream = meanmap.comparison.RunningTwoSampleTest(basis=space)
        expected = stream.partial_fit(one.to_numpy(), other.to_numpy()).result()
        assert found.json["pvalue"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert found.json["statistic"] == pytest.approx(expected.statistic, rel=1e-6)
    assert {source["rows"] for source in found.json["sources"]} == {60}


@pytest.mark.parametrize("kind", KINDS)
def test_standard_input_is_known_by_its_bytes(
    kind: str, run: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = samples()
    write(one, here / f"one{kind}")
    write(other, here / f"other{kind}")
    data = (here / f"other{kind}").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = run("two-sample", f"one{kind}", "-", "--json")
    assert found.code == 0, found.err
    again = run("two-sample", f"one{kind}", f"other{kind}", "--json")
    assert found.json["pvalue"] == again.json["pvalue"]
    assert found.json["sources"][1]["name"] == "standard input"


def test_kinds_are_inferred_and_shown(run: Callable[..., Any], here: Path) -> None:
    lines = [f"2024-01-{i % 28 + 1:02d},{i},{'xy'[i % 2]},{bool(i % 3)},{i % 4}" for i in range(40)]
    Path("t.csv").write_text("day,n,kind,flag,code\n" + "\n".join(lines) + "\n")
    every = ("--columns", "day,n,kind,flag,code")
    found = run("two-sample", "t.csv", "t.csv", "--labels", "code", *every)
    assert found.code == 0, found.err
    shown = "t.csv: 40 rows; day (date), n (number), kind (label), flag (label), code (label)"
    assert shown in found.out
    found = run("independence", "t.csv", "--x", "day", "--y", "n", "--json")
    assert found.json["sources"][0]["columns"] == {"day": "date", "n": "number"}


def test_dates_are_days(run: Callable[..., Any], here: Path) -> None:
    days = pd.date_range("2020-01-01", periods=50)
    frame = pd.DataFrame({"day": days, "value": np.arange(50.0)})
    frame.to_parquet("t.parquet")
    frame.to_csv("t.csv", index=False)
    both = [
        run(
            "condition",
            name,
            "--given",
            "day",
            "--predict",
            "value",
            "--at",
            "day=2020-01-20",
            "--json",
        ).json
        for name in ("t.parquet", "t.csv")
    ]
    assert both[0]["mean"]["value"] == pytest.approx(both[1]["mean"]["value"])
    assert abs(both[0]["mean"]["value"][0] - 19) < 1
    assert both[0]["given"]["day"] == [18281]  # days since 1970


def test_rows_with_gaps_are_left_out_and_told(run: Callable[..., Any], here: Path) -> None:
    one, other = samples()
    gaps = one.copy()
    gaps.loc[[3, 7], "a"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    other.to_csv("other.csv", index=False)
    found = run("two-sample", "gaps.csv", "other.csv", "--no-scale", "--json")
    assert found.code == 0
    words = "gaps.csv: 2 of 60 rows have missing values and are left out."
    assert found.err == f"meanmap: note: {words}\n"
    assert words in found.json["notes"]
    assert found.json["sizes"] == {"n": 58, "m": 60}
    expected = meanmap.two_sample_test(gaps.dropna().to_numpy(), other.to_numpy(), rng=0)
    assert found.json["pvalue"] == expected.pvalue
    quiet = run("two-sample", "gaps.csv", "other.csv", "--no-scale", "--json", "--quiet")
    assert quiet.err == ""
    streamed = run("two-sample", "gaps.csv", "other.csv", "--stream", "--json")
    assert words in streamed.json["notes"]
    assert streamed.json["sizes"] == {"n": 58, "m": 60}


def test_arrays_of_two_axes_are_columns_and_a_name(run: Callable[..., Any], here: Path) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    np.savez("t.npz", X=X, y=y)
    found = run("independence", "t.npz", "--x", "X", "--y", "y", "--no-scale", "--json")
    assert list(found.json["sources"][0]["columns"]) == ["X_0", "X_1", "X_2", "y"]
    assert found.json["pvalue"] == meanmap.independence_test(X, y[:, None], rng=0).pvalue
    frame = pd.DataFrame({"X": list(X), "y": y})
    frame.to_parquet("t.parquet")
    again = run("independence", "t.parquet", "--x", "X", "--y", "y", "--no-scale", "--json")
    assert again.json["pvalue"] == found.json["pvalue"]


def test_numbers_without_a_header_and_row_numbers(run: Callable[..., Any], here: Path) -> None:
    one, other = samples()
    np.savetxt("one.csv", one.to_numpy(), delimiter=",")
    np.savetxt("other.csv", other.to_numpy(), delimiter=",")
    found = run("two-sample", "one.csv", "other.csv", "--json")
    assert list(found.json["sources"][0]["columns"]) == ["x0", "x1"]
    one.to_csv("indexed.csv")  # with pandas' row numbers
    other.to_csv("plain.csv", index=False)
    found = run("two-sample", "indexed.csv", "plain.csv", "--json")
    assert list(found.json["sources"][0]["columns"]) == ["a", "b"]


def test_long_and_large_files_go_in_batches(
    run: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanmap.cli import comparing, readers, tables

    monkeypatch.setattr(readers, "BATCH", 100)
    monkeypatch.setattr(tables, "BATCH", 100)
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(-3, 3, 1000))  # sorted: the first batch is like no other
    frame = pd.DataFrame({"x": x, "y": np.sin(x) + 0.2 * rng.normal(size=1000)})
    frame.to_csv("t.csv", index=False)
    frame.to_parquet("t.parquet", row_group_size=70)
    query = ("--given", "x", "--predict", "y", "--at", "x=1.5", "--json")
    whole = run("condition", "t.csv", *query).json
    monkeypatch.setattr(tables, "LARGE", 100)
    for name in ("t.csv", "t.parquet"):
        found = run("condition", name, *query).json
        assert found["settings"]["rows"] == "in batches"
        assert found["sources"][0]["rows"] == 1000
        assert found["mean"]["y"] == pytest.approx(whole["mean"]["y"], abs=0.03)
        assert found["std"]["y"] == pytest.approx(whole["std"]["y"], abs=0.03)
        for q in ("0.05", "0.5", "0.95"):
            ends = [one["quantile"]["y"][q] for one in (found, whole)]
            assert ends[0] == pytest.approx(ends[1], abs=0.15)
        tested = run("independence", name, "--x", "x", "--y", "y", "--json").json
        assert tested["settings"]["rows"] == "in batches"
        assert tested["rejected"] and tested["sizes"] == {"n": 1000}
    shifted = run("shift", "t.csv", "t.parquet", "--json")
    assert shifted.json["kind"] == "no shift"
    monkeypatch.setattr(tables, "LARGE", 10**9)
    monkeypatch.setattr(comparing, "MANY", 500)
    found = run("two-sample", "t.csv", "t.parquet", "--json").json
    assert found["settings"]["rows"] == "in batches" and not found["rejected"]


def test_a_sample_of_a_file_is_random_whatever_drew_the_file(here: Path) -> None:
    from meanmap.cli.tables import Table

    x = np.random.default_rng(0).random(50_000)  # what a plain seed would draw again
    pd.DataFrame({"x": x}).to_csv("t.csv", index=False)
    found = Table.of("t.csv").sample(["x"], 2000, seed=0)
    assert len(found.frame) == 2000 and found.total == 50_000
    assert abs(found.frame["x"].mean() - 0.5) < 0.05  # seven standard errors


def test_a_file_that_does_not_fit_says_what_it_needs(
    run: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanmap.cli import tables

    monkeypatch.setattr(tables, "available_memory", lambda: 100)
    samples()[0].to_csv("t.csv", index=False)
    found = run("select", "t.csv", "--target", "a")
    found.failed("t.csv needs about", "kB of memory, and 100 bytes are free")
