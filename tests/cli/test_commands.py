"""Every command: Python's answer, its outputs, its exit codes, and the examples of its help."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meanmap
from meanmap.cli import working
from meanmap.cli.formats import DATA

pd = pytest.importorskip("pandas")

COMMANDS = (
    "two-sample",
    "independence",
    "dependence",
    "condition",
    "filter",
    "monitor",
    "shift",
    "select",
    "bench",
    "demo",
)
Caller = Callable[..., Any]


def shipped(name: str) -> Any:
    return pd.read_csv(DATA / f"{name}.csv")


def scaled(*frames: Any) -> list[np.ndarray]:
    """Columns divided by their standard deviation over all rows, as the command line does."""
    spread = np.concatenate([frame.to_numpy() for frame in frames]).std(axis=0)
    return [frame.to_numpy() / spread for frame in frames]


# --- Python's answers -----------------------------------------------------------------------------


def test_two_sample(run: Caller) -> None:
    one, other = shipped("before"), shipped("after")
    found = run("two-sample", "@before", "@after", "--columns", "load", "--json").json
    expected = meanmap.two_sample_test(one[["load"]].to_numpy(), other[["load"]].to_numpy(), rng=0)
    assert (found["statistic"], found["pvalue"]) == tuple(expected)
    assert found["rejected"] is True
    assert found["method"] == expected.method
    found = run("two-sample", "@before", "@after", "--columns", "speed,load", "--seed", 3, "--json")
    expected = meanmap.two_sample_test(
        *scaled(one[["speed", "load"]], other[["speed", "load"]]), rng=3
    )
    assert found.json["pvalue"] == expected.pvalue
    assert "divided by their standard deviations" in found.json["settings"]["columns"]
    found = run("two-sample", "@before", "@after", "--columns", "line", "--json").json
    labels = [frame["line"].to_numpy(dtype=str) for frame in (one, other)]
    assert found["pvalue"] == meanmap.two_sample_test(*labels, rng=0).pvalue


def test_labels_beside_numbers_count_as_much(run: Caller, here: Path) -> None:
    rng = np.random.default_rng(0)
    words = [rng.choice(["a", "b"], 150, p=[p, 1 - p]) for p in (0.3, 0.7)]
    for name, word in zip(("one.csv", "other.csv"), words, strict=True):
        pd.DataFrame({"x": 1000 * rng.normal(size=150), "word": word}).to_csv(name, index=False)
    assert run("two-sample", "one.csv", "other.csv", "--json").json["pvalue"] < 0.01


def test_independence(run: Caller) -> None:
    data = shipped("summer")
    x, y, z = (data[[c]].to_numpy() for c in ("ice_cream", "bathers", "temperature"))
    query = ("independence", "@summer", "--x", "ice_cream", "--y", "bathers", "--json")
    assert run(*query).json["pvalue"] == meanmap.independence_test(x, y, rng=0).pvalue
    found = run(*query, "--given", "temperature").json
    expected = meanmap.conditional_independence_test(x, y, z, rng=0)
    assert (found["statistic"], found["pvalue"]) == tuple(expected)
    assert found["rejected"] is False


def test_condition(run: Caller, here: Path) -> None:
    data = shipped("summer")
    model = meanmap.ConditionalEmbedding().fit(data[["temperature"]].to_numpy(), data["ice_cream"])
    expected = model.given(np.array([[25.0], [15.0]]))
    at = ("--at", "temperature=25", "--at", "temperature=15")
    query = ("condition", "@summer", "--given", "temperature", "--predict", "ice_cream")
    found = run(*query, *at, "--json").json
    assert found["mean"]["ice_cream"] == pytest.approx(expected.mean()[:, 0])
    std = expected.std()[:, 0]
    assert found["std"]["ice_cream"] == pytest.approx(std)
    assert 3 < std[1] < 7 < std[0] < 15  # the truth is 4.9 and 11.3
    for q in (0.05, 0.5, 0.95):
        ends = expected.quantile(q)[:, 0]
        assert found["quantile"]["ice_cream"][f"{q:g}"] == pytest.approx(ends)
    assert found["given"] == {"temperature": [25, 15]}
    pd.DataFrame({"temperature": [25.0, 15.0], "other": ["x", "y"]}).to_csv("at.csv", index=False)
    for ending in ("csv", "tsv", "parquet", "feather", "arrow", "npz"):
        done = run(*query, "--at", "at.csv", "--output", f"out.{ending}")
        assert done.code == 0, done.err
        assert f"Written: out.{ending}" in done.out
    read = pd.read_csv("out.csv")
    assert list(read)[:3] == ["temperature", "ice_cream mean", "ice_cream std"]
    assert read["ice_cream mean"].to_numpy() == pytest.approx(expected.mean()[:, 0])
    assert pd.read_parquet("out.parquet").equals(pd.read_feather("out.feather"))
    assert np.load("out.npz")["ice_cream std"] == pytest.approx(std)


@pytest.fixture
def counts(here: Path) -> np.ndarray:
    """A file of counts that rise with x, beside labels, and another to ask about."""
    rng = np.random.default_rng(0)
    x = rng.uniform(5, 20, 150)
    y = np.round(14 + 0.2 * (x - 12) + 1.3 * rng.normal(size=150))
    side = rng.choice(["n", "s"], 150)
    pd.DataFrame({"x": x, "side": side, "y": y}).to_csv("t.csv", index=False)
    asked = {"id": range(6), "x": [7, None, 12, 50, 9, 8], "side": ["n", "s", None, "s", "w", "n"]}
    pd.DataFrame(asked).to_csv("at.csv", index=False)
    return np.column_stack([x, y])


def test_condition_prints_the_numbers_of_python(run: Caller, counts: np.ndarray) -> None:
    model = meanmap.ConditionalEmbedding().fit(counts[:, :1], counts[:, 1])
    at = np.array([[12.0], [28.0]])
    beliefs = model.given(at)
    query = ("condition", "t.csv", "--given", "x", "--predict", "y", "--at", "x=12", "--at", "x=28")
    shown = run(*query).out
    found = run(*query, "--json").json
    run(*query, "--output", "out.csv", "--report", "page.html")
    table, page = pd.read_csv("out.csv"), Path("page.html").read_text(encoding="utf-8")
    figures = {"mean": beliefs.mean(), "std": beliefs.std()}
    figures |= {f"{q:g}": beliefs.quantile(q) for q in (0.05, 0.5, 0.95)}
    assert 1 < figures["std"][0, 0] < 2  # the truth is 1.3
    for name, expected in figures.items():
        nested = found[name] if name in found else {"y": found["quantile"]["y"][name]}
        assert nested["y"] == pytest.approx(expected[:, 0])
        assert table[f"y {name}"].to_numpy() == pytest.approx(expected[:, 0])
        for number in expected[:, 0]:
            assert f"{number:.4g}" in shown and f"{number:.4g}" in page


def test_the_picture_has_the_intervals_of_the_table(run: Caller, counts: np.ndarray) -> None:
    from matplotlib.figure import Figure

    from meanmap.cli.conditioning import condition
    from meanmap.cli.options import OutputOptions, TableOptions

    for given, at in ((["x"], ["x=12", "x=28", "x=45"]), (["x", "side"], ["at.csv"])):
        options = {"options": TableOptions(), "files": OutputOptions()}
        found = condition("t.csv", given, ["y"], at, **options)
        (answer,), columns = found.answers, found.columns
        ax = Figure().subplots()
        answer.pictures[0].draw([ax])
        drawn = [np.sort(path.vertices[:, 1]) for path in ax.collections[-1].get_paths()]
        ends = np.column_stack([columns["y 0.05"], columns["y 0.95"]])
        ends = ends[np.isfinite(ends).all(axis=1)]
        drawn = [one for one in drawn if np.isfinite(one).all() and len(one) == 2]
        assert len(drawn) == len(ends)
        assert np.array(drawn) == pytest.approx(ends)
        means = ax.lines[-1].get_ydata()
        assert np.asarray(means) == pytest.approx(columns["y mean"], nan_ok=True)


def test_rows_that_cannot_be_answered_keep_their_place(run: Caller, counts: np.ndarray) -> None:
    query = ("condition", "t.csv", "--given", "x,side", "--predict", "y", "--at", "at.csv")
    done = run(*query, "--output", "out.csv")
    assert "2 of 6 rows of --at have missing values; their answers are left blank." in done.err
    assert "1 of 6 rows of --at hold a side that t.csv never has ('w')" in done.err
    assert "There are 3 answers for 6 rows." in done.out
    table, asked = pd.read_csv("out.csv"), pd.read_csv("at.csv")
    assert table[["x", "side"]].equals(asked[["x", "side"]])
    answered = np.array([True, False, False, True, False, True])
    assert (table["y mean"].notna().to_numpy() == answered).all()
    found = run(*query, "--json").json
    assert [value is not None for value in found["std"]["y"]] == answered.tolist()
    assert len(found["notes"]) == 2
    alone = run(*query[:-1], "x=8,side=n", "--json").json
    assert found["mean"]["y"][5] == pytest.approx(alone["mean"]["y"][0])
    labels = run(
        "condition", "t.csv", "--given", "x", "--predict", "side", "--at", "at.csv", "--json"
    )
    assert labels.json["mode"]["side"][1] is None and labels.json["mode"]["side"][0] in ("n", "s")
    pd.DataFrame({"x": [None, None], "side": ["n", "s"]}).to_csv("none.csv", index=False)
    run(*query[:-1], "none.csv").failed("--at has no row to answer")


def test_wild_numbers_and_constant_columns_are_noted(run: Caller, here: Path) -> None:
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(2, 100, 2))
    for name, rows in (("one", one), ("other", other + [1, 0])):
        frame = pd.DataFrame(rows, columns=["a", "b"]).assign(c=3.0, d=rows[:, 0] > 0)
        frame.to_csv(f"{name}.csv", index=False)
    wild = pd.read_csv("one.csv")
    wild.loc[7, "a"] = 1e30
    wild.to_csv("wild.csv", index=False)
    query = ("--columns", "a,b,c", "--json")
    plain, found = (
        run("two-sample", name, "other.csv", *query) for name in ("one.csv", "wild.csv")
    )
    assert plain.json["pvalue"] == found.json["pvalue"] == 0.001
    words = "wild.csv: column 'a' holds 1e+30 in row 8"
    assert words in found.err and any(words in note for note in found.json["notes"])
    assert words not in plain.err
    constant = "Column 'c' of both samples is constant and has no part in the test."
    assert plain.json["notes"] == [constant]
    streamed = run("two-sample", "one.csv", "other.csv", *query, "--stream").json
    assert any("column 'c' holds 3 in every row" in note for note in streamed["notes"])
    alone = run("independence", "one.csv", "--x", "c", "--y", "a", "--json").json
    assert alone["pvalue"] == 1 and "All 100 rows of X are equal" in alone["notes"][0]
    shift = run("shift", "one.csv", "other.csv", "--columns", "a,b,c", "--json").json
    assert any("'c' is constant in both samples" in note for note in shift["notes"])
    asked = (
        "condition",
        "one.csv",
        "--given",
        "b,c",
        "--predict",
        "a",
        "--at",
        "b=1,c=3",
        "--json",
    )
    assert run(*asked).json["notes"] == ["column 'c' holds 3 in every row and has no effect."]
    wild["a"] = wild["a"].astype(object)
    for value in ("1.7e308", "1e160"):
        wild.loc[7, "a"] = value
        wild.to_csv("huge.csv", index=False)
        run("two-sample", "huge.csv", "other.csv", "--columns", "a,b").failed(
            "huge.csv: column 'a' holds", "in row 8, too large"
        )


def test_the_target_among_the_columns_is_refused(run: Caller) -> None:
    shift = ("shift", "@flowers-train", "@flowers-test", "--target", "species")
    run(*shift, "--columns", "length,species").failed("--columns: 'species' is the target")
    select = ("select", "@machine", "--target", "failed", "--features", "heat,failed")
    run(*select).failed("--features: 'failed' is the target")


def test_condition_on_several_and_of_labels(run: Caller) -> None:
    data = shipped("flowers-train")
    (X,) = scaled(data[["length", "width"]])
    spread = data[["length", "width"]].to_numpy().std(axis=0)
    model = meanmap.ConditionalEmbedding().fit(X, data["species"].to_numpy(dtype=str))
    at = np.array([[4.5, 1.4]])
    shares = np.maximum(model.given(at / spread)(np.array(["alba", "lutea", "rubra"])), 0)[0]
    query = ("condition", "@flowers-train", "--given", "length,width", "--predict", "species")
    found = run(*query, "--at", "length=4.5,width=1.4", "--json").json
    assert found["mode"] == {"species": ["lutea"]}
    probability = [found["probability"][label][0] for label in ("alba", "lutea", "rubra")]
    assert probability == pytest.approx(list(shares / shares.sum()))
    query = ("condition", "@flowers-train", "--given", "length,species", "--predict", "width,leaf")
    found = run(*query, "--at", "length=4.5,species=lutea", "--json").json
    assert abs(found["mean"]["width"][0] - 1.3) < 0.2
    assert abs(found["mean"]["leaf"][0] - 5.8) < 0.5


@pytest.mark.slow
def test_filter(run: Caller, here: Path) -> None:
    train, new = shipped("path-train"), shipped("path-new")
    spread = train.to_numpy().std(axis=0)
    hidden, seen = train.to_numpy()[:, :2] / spread[:2], train.to_numpy()[:, 2:] / spread[2:]
    model = meanmap.KernelBayesFilter(progress=False).fit(hidden, seen)
    expected = model.filter(new.to_numpy() / spread[2:])
    query = ("filter", "@path-train", "@path-new", "--state", "x,y", "--observe", "seen_x,seen_y")
    found = run(*query, "--json").json
    assert found["mean"]["x"] == pytest.approx(expected.mean[:, 0] * spread[0])
    assert found["std"]["y"] == pytest.approx(expected.std[:, 1] * spread[1])
    low, high = expected.interval(0.9)
    assert found["lower"]["y"] == pytest.approx(low[:, 1] * spread[1])
    assert found["upper"]["x"] == pytest.approx(high[:, 0] * spread[0])
    assert found["log_evidence"] == pytest.approx(float(expected.log_evidence.sum()))
    assert found["notes"] == ["4 of 60 steps were not observed."]
    smooth = run(*query, "--smooth", "--output", "out.csv", "--json").json
    assert smooth["kind"] == "smoothed" and smooth["log_evidence"] is None
    assert pd.read_csv("out.csv")["x mean"].to_list() == pytest.approx(smooth["mean"]["x"])
    # a file that has the states too tells how far off the answers are
    train.iloc[-40:].to_csv("known.csv", index=False)
    known = run("filter", "@path-train", "known.csv", *query[3:], "--json").json
    assert 0 < known["error"] < 0.6


def test_shift(run: Caller) -> None:
    train, test = shipped("flowers-train"), shipped("flowers-test")
    columns = ["length", "width", "leaf"]
    expected = meanmap.report.shift_report(
        train[columns],
        test[columns],
        train["species"].to_numpy(dtype=str),
        test["species"].to_numpy(dtype=str),
        rng=0,
    )
    query = ("shift", "@flowers-train", "@flowers-test", "--target", "species")
    found = run(*query, "--json").json
    assert found["kind"] == expected.kind
    assert found["verdict"] == expected.verdict
    assert found["pvalue"] == expected.overall.pvalue
    assert [c["name"] for c in found["columns"]] == [c.name for c in expected.columns]
    assert [c["effect"] for c in found["columns"]] == pytest.approx(
        [c.effect for c in expected.columns]
    )
    assert run(*query, "--exit-code").code == 3


def test_select(run: Caller) -> None:
    data = shipped("machine")
    X, y = data.drop(columns="failed"), data["failed"].to_numpy(dtype=str)
    expected = meanmap.HSICSelector(2, random_state=0, progress=False).fit(X.to_numpy(), y)
    found = run("select", "@machine", "--target", "failed", "--count", 2, "--json").json
    assert sorted(found["selected"]) == ["heat", "vibration"]
    order = sorted(found["ranking"], key=found["ranking"].get)
    kept = expected.get_support().tolist()
    scores = dict(zip(X, zip(kept, expected.scores_.tolist(), strict=True), strict=True))
    assert [scores[name] for name in order] == sorted(scores.values(), reverse=True)
    assert list(found["scores"].values()) == pytest.approx(expected.scores_.tolist())
    few = run("select", "@machine", "--target", "failed", "--features", "heat,gauge1", "--count", 1)
    assert "(1 of 2 columns)" in few.out


# --- outputs --------------------------------------------------------------------------------------

ASKED = [
    ("two-sample", "@before", "@after", "--columns", "load"),
    ("two-sample", "@before", "@after"),
    ("two-sample", "@before", "@after", "--stream"),
    ("independence", "@summer", "--x", "ice_cream", "--y", "bathers"),
    ("independence", "@summer", "--x", "ice_cream", "--y", "bathers", "--given", "temperature"),
    (
        "condition",
        "@summer",
        "--given",
        "temperature",
        "--predict",
        "ice_cream",
        "--at",
        "temperature=25",
    ),
    (
        "condition",
        "@flowers-train",
        "--given",
        "length,width",
        "--predict",
        "species",
        "--at",
        "@flowers-test",
    ),
    ("filter", "@path-train", "@path-new", "--state", "x,y", "--observe", "seen_x,seen_y"),
    ("shift", "@flowers-train", "@flowers-test", "--target", "species"),
    ("select", "@machine", "--target", "failed"),
    pytest.param(("demo",), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: " ".join(asked[:2]))
def test_pages_and_pictures(asked: tuple[str, ...], run: Caller, here: Path) -> None:
    ending = ("png", "svg", "pdf")[len(asked) % 3]
    done = run(*asked, "--report", "page.html", "--plot", f"picture.{ending}", "--quiet")
    assert done.code == 0, done.err
    assert done.err == ""
    assert "Written: page.html" in done.out
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    if asked[0] != "demo":
        assert shlex.join(["meanmap", *asked]) in page.replace("&#x27;", "'")
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert Path(f"picture.{ending}").read_bytes().startswith(magic)
    assert {path.name for path in here.iterdir()} == {"page.html", f"picture.{ending}"}
    # existing files are overwritten only with --force
    before = Path("page.html").read_bytes()
    done = run(*asked, "--report", "page.html")
    done.failed("page.html already exists", "--force")
    assert Path("page.html").read_bytes() == before


def test_force_writes_over(run: Caller, here: Path) -> None:
    Path("page.html").write_text("old")
    Path("picture.png").write_text("old")
    asked = ("two-sample", "@before", "@after", "--columns", "load", "--force")
    done = run(*asked, "--report", "page.html", "--plot", "picture.png", "--json")
    assert done.code == 0
    assert done.json["command"] == "meanmap two-sample @before @after --columns load"
    assert Path("picture.png").stat().st_size > 5000
    assert "<html" in Path("page.html").read_text(encoding="utf-8")


WATCHED = """
import sys
opened = []
sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name == "open" else None)
from meanmap import cli
assert cli.call(["two-sample", "@before", "@after", "--report", "page.html", "--quiet"]) == 0
print(*sorted(name for name in sys.modules if name.startswith("meanmap")))
print(*(name for name in opened if name.endswith(".csv")))
"""


@pytest.mark.slow
def test_a_page_loads_only_what_it_shows_and_opens_files_once(here: Path) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    *_, modules, opened = done.stdout.splitlines()
    assert "meanmap.plots.series" in modules.split()
    for package in ("adaptation", "dynamics", "graphical", "learning", "likelihood_free"):
        assert f"meanmap.{package}" not in modules.split()
    assert "meanmap_experiments" not in modules
    assert [Path(name).name for name in opened.split()] == ["before.csv", "after.csv"]


@pytest.mark.parametrize("asked", ASKED[:-1], ids=lambda asked: " ".join(asked[:2]))
def test_every_command_opens_and_reads_a_file_once(
    asked: tuple[str, ...], run: Caller, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read: list[Any] = []
    open_path, read_csv = Path.open, pd.read_csv

    def opening(path: Path, *rest: Any, **options: Any) -> Any:
        opened.append(path.name)
        return open_path(path, *rest, **options)

    def reading(*given: Any, **options: Any) -> Any:
        read.append(given)
        return read_csv(*given, **options)

    monkeypatch.setattr(Path, "open", opening)
    monkeypatch.setattr(pd, "read_csv", reading)
    assert run(*asked, "--report", "page.html", "--quiet").code == 0
    files = [f"{word[1:]}.csv" for word in asked if word.startswith("@")]
    assert [name for name in opened if name.endswith(".csv")] == files
    assert len(read) == len(files)


def test_exit_codes(run: Caller) -> None:
    asked = ("two-sample", "@before", "@after", "--columns", "load")
    assert run(*asked).code == 0
    assert run(*asked, "--exit-code").code == 3
    assert run(*asked, "--exit-code", "--json").code == 3
    assert run(*asked, "--exit-code", "--alpha", 0.0005).code == 0
    assert run("two-sample", "@before", "@before", "--exit-code").code == 0


def test_the_same_seed_gives_the_same_answer(run: Caller) -> None:
    asked = ("independence", "@summer", "--x", "ice_cream", "--y", "bathers", "--json")
    assert run(*asked).out == run(*asked).out


def test_notes_of_the_library_are_single_lines(run: Caller) -> None:
    asked = ("condition", "@summer", "--given", "temperature", "--predict", "ice_cream")
    done = run(*asked, "--at", "temperature=500")
    assert done.code == 0
    assert done.err.startswith("meanmap: note: ")
    assert "outside the data" in done.err
    assert done.err.count("\n") == 1
    assert "Warning" not in done.err and ".py" not in done.err
    assert run(*asked, "--at", "temperature=500", "--quiet").err == ""


# --- help -----------------------------------------------------------------------------------------


def examples(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in re.findall(r"^ +(meanmap .*)$", text, re.M)]


LONG = ("demo",)  # ten seconds and more


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in COMMANDS],
)
def test_the_examples_of_the_help_run(command: str, run: Caller, here: Path) -> None:
    if command == "bench":
        needs_source_tree()
    text = run(command, "--help").out
    found = examples(text)
    assert found, f"{command} --help shows no example"
    assert all(words[0] == command for words in found)
    for words in found:
        done = run(*words)
        assert done.code == 0, (words, done.err)
        assert done.out.strip()
    assert not list(here.iterdir())


def test_the_main_help_names_all_and_the_exit_codes(run: Caller) -> None:
    text = run("--help").out
    assert all(re.search(rf"^  {command} ", text, re.M) for command in COMMANDS)
    assert "3 the null hypothesis was rejected" in " ".join(text.split())
    assert examples(text) == [["two-sample", "@before", "@after"]]


def test_completion(run: Caller, start: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = "shellingham.detect_shell"
    monkeypatch.setattr(shell, lambda *_: ("bash", "/bin/bash"), raising=False)
    script = run("--show-completion").out
    assert "_MEANMAP_COMPLETE=complete_bash" in script
    process = start(
        environment={
            "_MEANMAP_COMPLETE": "complete_bash",
            "COMP_WORDS": "meanmap se",
            "COMP_CWORD": "1",
        }
    )
    out, _ = process.communicate(timeout=60)
    assert out.split() == ["select"]


# --- bench ----------------------------------------------------------------------------------------


def test_bench_needs_the_source_tree(
    run: Caller, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meanmap, "__file__", str(here / "lib" / "meanmap" / "__init__.py"))
    run("bench").failed("source tree", "repository")


def needs_source_tree() -> None:
    try:
        working.benchmarks()
    except ValueError as error:
        pytest.skip(str(error))


def test_bench_of_a_wrong_name(run: Caller) -> None:
    needs_source_tree()
    run("bench", "fitt", "--json").failed("no benchmark 'fitt'", "Did you mean 'fit'?")


def test_bench_answers(run: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import json

    row = {"work": "w", "peer_name": "p", "ratio": 2.0, "bar": "≥ 1×", "holds": True}
    found = {"machine": {}, "benchmarks": [{"name": "fit", "title": "fits", "rows": [row]}]}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "fit.json").write_text(json.dumps(found))
    monkeypatch.setattr(working, "benchmarks", lambda: tmp_path)
    script = "import sys; print('fit  fits' if '--list' in sys.argv else 'Written to fit.md')"
    (tmp_path / "run.py").write_text(script)
    (answer,) = run("bench", "fit", "--json").json
    assert answer["headline"] == "1 of 1 bars hold."
    assert answer["rows"] == [row]
