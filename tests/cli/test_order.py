"""Rows in order of time, and clusters of rows, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from meanmap import independence_test, two_sample_test
from meanmap.comparison import Block, Groups

Caller = Callable[..., Any]


def drifting(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 3, n)
    x, y = (t + 0.3 * rng.normal(size=n) for _ in range(2))
    return pd.DataFrame({"x": x, "y": y, "id": [f"p{i // 4}" for i in range(n)]})


def test_drifting_columns_do_not_depend_without_a_word(run: Caller, here: Path) -> None:
    drifting().to_csv(here / "drift.csv", index=False)
    found = run("independence", "drift.csv", "--x", "x", "--y", "y")
    assert "Rows look ordered" in found.out and "--block-length auto" in found.out
    assert found.err.count("Rows look ordered") == 1 and "null=" not in found.out + found.err
    mixed = drifting().sample(frac=1.0, random_state=0)
    mixed.to_csv(here / "mixed.csv", index=False)
    assert "ordered" not in run("independence", "mixed.csv", "--x", "x", "--y", "y").out


def test_blocks_and_groups_are_those_of_python(run: Caller, here: Path) -> None:
    table = drifting()
    table.to_csv(here / "drift.csv", index=False)
    table[:60].to_csv(here / "a.csv", index=False)
    table[60:].to_csv(here / "b.csv", index=False)
    x, y = table[["x"]].to_numpy(), table[["y"]].to_numpy()
    groups = table["id"].to_numpy(dtype=str)
    for options, settings in (
        (("--block-length", "12"), {"null": Block(12)}),
        (("--block-length", "auto"), {"null": "block"}),
        (("--groups", "id"), {"null": Groups(groups)}),
    ):
        asked = ("independence", "drift.csv", "--x", "x", "--y", "y", "--json", *options)
        found, truth = run(*asked).json, independence_test(x, y, rng=0, **settings)
        assert (found["pvalue"], found["method"]) == (truth.pvalue, truth.method)
        if "--groups" in options:
            settings = {"null": Groups((groups[:60], groups[60:]))}
        asked = ("two-sample", "a.csv", "b.csv", "--columns", "x", "--json", *options)
        found, truth = run(*asked).json, two_sample_test(x[:60], x[60:], rng=0, **settings)
        assert (found["pvalue"], found["method"]) == (truth.pvalue, truth.method)
    # the column of groups is not compared
    everything = run("two-sample", "a.csv", "b.csv", "--groups", "id")
    assert everything.code == 0 and "labels as indicators" not in everything.out


def test_options_that_do_not_go_together(run: Caller, here: Path) -> None:
    drifting().to_csv(here / "drift.csv", index=False)
    asked = ("independence", "drift.csv", "--x", "x", "--y", "y")
    run(*asked, "--block-length", "long").failed("--block-length must be a whole number or auto")
    run(*asked, "--block-length", "5", "--groups", "id").failed(
        "--block-length and --groups cannot be combined"
    )
    run(*asked, "--block-length", "5", "--stream").failed(
        "--stream cannot be combined with --block-length"
    )
    run(*asked, "--groups", "x").failed("'x' is tested")
    run(*asked, "--groups", "nothing").failed("no column 'nothing'")
    conditional = ("independence", "drift.csv", "--x", "x", "--y", "y", "--given", "id")
    run(*conditional, "--block-length", "5").failed(
        "--block-length cannot be combined with --given"
    )
