"""Bad input: one line on standard error that says what to do, 1, and no file left behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meanmap import cli

pd = pytest.importorskip("pandas")
Caller = Callable[..., Any]

GOOD = "a,b\n" + "".join(f"{i},{i * i % 7}\n" for i in range(20))


def two_sample(run: Caller, *more: str) -> Any:
    return run("two-sample", "good.csv", "bad.csv", *more)


@pytest.fixture(autouse=True)
def good(here: Path) -> None:
    Path("good.csv").write_text(GOOD)


def contents(kind: str) -> bytes:
    frame = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0)})
    path = Path(f"whole.{kind}")
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "feather":
        frame.to_feather(path)
    else:
        np.savez(path, a=frame["a"], b=frame["b"])
    data = path.read_bytes()
    path.unlink()
    return data


BAD = {
    "empty": (b"", "bad.csv is empty"),
    "blank": (b"\n\n  \n", "bad.csv is empty"),
    "no rows": (b"a,b\n", "has columns but no rows"),
    "one row": (b"a,b\n1,2\n", "1 rows; at least 2"),
    "binary": (bytes(range(256)) * 20, "is a binary file, but not Parquet, Arrow or npz"),
    "gzip": (b"\x1f\x8b\x08\0rest", "compressed with gzip"),
    "long line": (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 fields where the others have 2"),
    "long lines": (b"a,b\n1,2,3\n1,2,3\n", "more fields than the 2 of the first line"),
    "open quote": (b'a,b\n1,"2\n3,4\n5,6\n', "broken"),
    "twice": (b"a,b,a\n1,2,3\n", "columns appear twice: a"),
    "word": (b"a,b\n1,2\n2,x\n3,4\n5,6\n", "column 'b' holds 'x' in row 2, and numbers elsewhere"),
    "infinite": (b"a,b\n1,2\n2,inf\n3,4\n", "'b' holds an infinite number in row 2"),
    "all missing": (b"a,b\n1,\n2,\n", "column 'b' is empty"),
    "labels": (b"a,b\n1,u\n2,v\n3,u\n", "'b' is a number in good.csv and a label in bad.csv"),
    "columns": (b"a,c\n1,2\n2,3\n", "bad.csv lacks 'b'; good.csv lacks 'c'"),
    "half a Parquet": (b"PAR1" + bytes(50), "cannot be read as Parquet data"),
    "half an Arrow": (b"ARROW1" + bytes(50), "cannot be read as Arrow data"),
    "half an npz": (b"PK\x03\x04" + bytes(50), "cannot be read as npz data"),
    "half an npy": (b"\x93NUMPY\x01\x00", "cannot be read as npy data"),
}


@pytest.mark.parametrize("name", list(BAD))
@pytest.mark.parametrize("way", [(), ("--stream",), ("--json", "--report", "page.html")])
def test_broken_files(name: str, way: tuple[str, ...], run: Caller, here: Path) -> None:
    data, said = BAD[name]
    Path("bad.csv").write_bytes(data)
    if name == "one row" and "--stream" in way:
        said = "at least 2"
    two_sample(run, *way).failed(said)
    assert {path.name for path in here.iterdir()} == {"good.csv", "bad.csv"}


@pytest.mark.parametrize("kind", ["parquet", "feather", "npz"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_files_cut_short(kind: str, share: float, run: Caller) -> None:
    data = contents(kind)
    Path("bad.csv").write_bytes(data[: int(share * len(data))])
    two_sample(run).failed("bad.csv cannot be read as")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("two-sample good.csv god.csv", "no file god.csv. Did you mean good.csv?"),
        ("two-sample good.csv nowhere/at/all.csv", "no file nowhere/at/all.csv"),
        ("two-sample good.csv .", ". is a folder"),
        ("two-sample good.csv @befor", "no table @befor. Did you mean '@before'?"),
        ("two-sample good.csv @../cli/x", "no table @../cli/x"),
        ("two-sample - -", "standard input can be one of the files only"),
        ("two-sample good.csv", "name two tables or more, or one table and --groups"),
        ("two-sample", "Missing argument"),
        ("two-sample good.csv good.csv --columns aa", "no column 'aa' (--columns). Did you mean"),
        ("two-sample good.csv good.csv --columns ,", "name at least one column"),
        ("two-sample good.csv good.csv --labels z", "no column 'z' (--labels)"),
        ("two-sample good.csv good.csv --alpha 2", "--alpha must lie between 0 and 1"),
        ("two-sample good.csv good.csv --permutations 0", "--permutations"),
        ("two-sample good.csv good.csv --seed -1", "--seed"),
        ("two-sample good.csv good.csv --report page.txt", "must end in .html"),
        ("two-sample good.csv good.csv --plot page.doc", "must end in .png, .svg, .pdf"),
        ("two-sample good.csv good.csv --plot no/p.png", "there is no folder no"),
        ("two-sample good.csv good.csv --report good.html --plot good.html", "must end in .png"),
        ("independence good.csv --x a --y a", "column 'a' is named twice"),
        ("independence good.csv --x a --y c", "no column 'c' (--y). There are: a, b."),
        ("independence good.csv --x a", "Missing option"),
        ("independence @summer --x ice_cream --y bathers --given temperature --stream", "--stream"),
        ("condition good.csv --given a --predict a --at a=1", "both given and predicted"),
        ("condition good.csv --given a --predict b --at b=1", "'b' is not among --given"),
        ("condition good.csv --given a --predict b --at a=x", "a=x is not a number"),
        ("condition good.csv --given a --predict b --at a=inf", "a=inf is not a finite number"),
        ("condition good.csv --given a,b --predict c --at a=1", "no column 'c' (--predict)"),
        (
            "condition @summer --given temperature,bathers --predict ice_cream --at bathers=1",
            "lack",
        ),
        ("condition good.csv --given a --predict b --at nothing.csv", "no file nothing.csv"),
        ("condition good.csv --given a --predict b --at @summer", "no column 'a' (--at)"),
        ("condition good.csv --given a --predict b --at a=1 --quantiles x", "--quantiles"),
        ("condition good.csv --given a --predict b --at a=1 --quantiles 1.5", "--quantiles"),
        ("condition good.csv --given a --predict b --at a=1 --output o.xyz", "must end in .csv"),
        (
            "condition @flowers-train --given species --predict width --at species=viridis",
            "species is never 'viridis'",
        ),
        (
            "condition @flowers-train --given leaf --predict width,species --at leaf=5",
            "'species' is a label",
        ),
        ("filter good.csv good.csv --state a --observe a", "both state and observed"),
        ("filter @path-new @path-new --state seen_x --observe seen_y", "rows have missing values"),
        ("filter @before @after --state line,speed --observe load", "'line' is a label"),
        ("filter good.csv good.csv --state a --observe b --level 1", "--level"),
        ("shift good.csv @before", "different columns"),
        ("shift good.csv good.csv --target c", "no column 'c' (--target)"),
        ("shift good.csv good.csv --alpha 0", "--alpha"),
        ("select good.csv --target c", "no column 'c' (--target)"),
        ("select good.csv --target a --count many", "--count must be a whole number"),
        ("select good.csv --target a --count 9", "9"),
        ("select good.csv --target a --method magic", "magic"),
        ("select @before --target speed", "column 'line' must hold numbers"),
        ("reproduce circl --quick", "make reproduce NAME="),
        ("nonsense", "nonsense"),
    ],
)
def test_wrong_usage(arguments: str, said: str, run: Caller, here: Path) -> None:
    run(*arguments.split()).failed(said)
    assert {path.name for path in here.iterdir()} == {"good.csv"}


def test_text_where_numbers_are_needed(run: Caller) -> None:
    lines = [f"person {i},{i}" for i in range(40)]
    Path("names.csv").write_text("name,n\n" + "\n".join(lines) + "\n")
    done = run("independence", "names.csv", "--x", "name", "--y", "n")
    done.failed(
        "column 'name' looks like an ID or free text, such as 'person 0' in row 1", "--labels"
    )
    assert run("independence", "names.csv", "--x", "name", "--y", "n", "--labels", "name").code == 0


def test_a_word_in_a_later_batch_names_its_row(run: Caller, monkeypatch: Any) -> None:
    from meanmap.cli import tables

    monkeypatch.setattr(tables, "BATCH", 50)
    lines = [f"{7 * i % 200},{i % 5}" for i in range(200)]
    lines[130] = "oops,1"
    Path("bad.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    two_sample(run, "--stream").failed("column 'a' holds 'oops' in row 131, which is not a number")


def test_missing_packages_are_named(run: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    found = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "pandas":
            raise ImportError("No module named 'pandas'")
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    run("two-sample", "good.csv", "good.csv").failed("pip install 'meanmap[cli]'")


def test_a_bug_is_called_one(run: Caller, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    from meanmap.cli import comparing

    def broken(*_: Any) -> None:
        raise TypeError("of ours")

    monkeypatch.setattr(comparing, "shared_columns", broken)
    done = run("two-sample", "good.csv", "good.csv")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "meanmap: this is a bug: TypeError: of ours. Run with MEANMAP_DEBUG=1 for the traceback.\n"
    )
    monkeypatch.setenv("MEANMAP_DEBUG", "1")
    with pytest.raises(TypeError, match="of ours"):
        cli.call(["two-sample", "good.csv", "good.csv"])


# --- writing --------------------------------------------------------------------------------------

WRITING = ("two-sample", "@before", "@after", "--columns", "load", "--report", "page.html")


def test_a_full_disk(run: Caller, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = run(*WRITING, "--plot", "picture.png")
    done.failed("cannot write page.html: No space left on device. Nothing was written.")
    assert {path.name for path in here.iterdir()} == {"good.csv"}


@pytest.mark.slow
def test_a_file_that_may_not_grow(start: Caller, here: Path) -> None:
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    Path("page.html").write_text("old")
    process = start(*WRITING, "--force", cwd=here, preexec_fn=little)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out == ""
    assert err.count("\n") == 1 and "cannot write page.html: File too large" in err
    assert {path.name for path in here.iterdir()} == {"good.csv", "page.html"}
    assert Path("page.html").read_text() == "old"


def test_an_output_that_is_full(start: Caller, here: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as full:
        process = start(*WRITING[:5], "--json", cwd=here, stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == "meanmap: cannot write to standard output: No space left on device.\n"


@pytest.mark.slow
def test_a_reader_who_has_gone(start: Caller, here: Path) -> None:
    process = start("select", "@machine", "--target", "failed", cwd=here)
    process.stdout.close()  # as `| head -0` does
    err = process.stderr.read()
    assert process.wait(timeout=120) == 0
    assert err == ""


@pytest.mark.slow
def test_ctrl_c_in_mid_run(start: Caller, here: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("one.csv", "other.csv"):
        pd.DataFrame(rng.normal(size=(9000, 3)), columns=list("abc")).to_csv(name, index=False)
    before = {path.name for path in here.iterdir()}
    # minutes of work: a file that is read between two looks must not let it end by itself
    long = ("--permutations", "4000000", "--no-stream", "--report", "page.html")
    process = start("two-sample", "one.csv", "other.csv", *long, cwd=here)
    deadline = time.monotonic() + 30
    # the file is open once the work has begun: before, Python itself would be interrupted
    while time.monotonic() < deadline and process.poll() is None:
        if any("one.csv" in link for link in links(process.pid)):
            break
        time.sleep(0.001)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err == "meanmap: interrupted; nothing was written.\n"
    assert {path.name for path in here.iterdir()} == before


def links(process: int) -> list[str]:
    """The files that a process has open."""
    folder = Path(f"/proc/{process}/fd")
    if not folder.is_dir():
        pytest.skip("this system does not tell which files are open")
    found = []
    for one in folder.iterdir():
        try:
            found.append(os.readlink(one))
        except OSError:
            continue
    return found


def test_files_of_others_stay(run: Caller, here: Path) -> None:
    folder = here / "closed"
    folder.mkdir()
    (folder / "page.html").mkdir()
    run(*WRITING[:-1], "closed/page.html", "--force").failed("it is not a regular file")
    if os.geteuid():
        folder.chmod(0o500)
        run(*WRITING[:-1], "closed/other.html").failed("no permission")
        folder.chmod(0o700)


# --- anything at all ------------------------------------------------------------------------------

LIKE_TABLES = st.text(alphabet='ab01.,;\t\n"-x \0é', max_size=200).map(lambda text: text.encode())
MAGIC = st.sampled_from([b"", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"PK\x03\x04"])


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.one_of(LIKE_TABLES, st.builds(bytes.__add__, MAGIC, st.binary(max_size=200))))
def test_any_bytes_are_an_answer_or_one_line(data: bytes, run: Caller) -> None:
    Path("bad.csv").write_bytes(data)
    done = run("two-sample", "bad.csv", "bad.csv", "--permutations", "19", "--quiet")
    if done.code != 0:
        done.failed()


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(["parquet", "feather", "npz"]),
    at=st.floats(0, 1),
    byte=st.integers(0, 255),
)
def test_a_changed_byte_is_an_answer_or_one_line(
    kind: str, at: float, byte: int, run: Caller
) -> None:
    data = bytearray(contents(kind))
    data[int(at * (len(data) - 1))] = byte
    Path("bad.bin").write_bytes(data)
    done = run("two-sample", "bad.bin", "bad.bin", "--permutations", "19", "--quiet")
    if done.code != 0:
        done.failed()


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_binary_table_without_rows(kind: str, run: Caller) -> None:
    """There is no batch of rows to read."""
    empty = pd.DataFrame({"a": np.empty(0), "b": np.empty(0)})
    getattr(empty, f"to_{kind}")(f"bad.{kind}")
    run("two-sample", f"bad.{kind}", f"bad.{kind}").failed("has columns but no rows")
