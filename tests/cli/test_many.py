"""Several tables, groups, pairs, and all pairs of columns."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meanmap import two_sample_test
from meanmap.comparison import dependence_matrix, k_sample_test

pd = pytest.importorskip("pandas")


@pytest.fixture
def tables(tmp_path):
    rng, paths = np.random.default_rng(0), {}
    for name, shift in (("a", 0.0), ("b", 0.0), ("c", 2.0)):
        paths[name] = str(tmp_path / f"{name}.csv")
        pd.DataFrame({"x": rng.normal(shift, 1.0, 40)}).to_csv(paths[name], index=False)
    return paths


def test_several_tables(run, tables):
    found = json.loads(run("two-sample", *tables.values(), "--json").out)
    result = k_sample_test({path: pd.read_csv(path) for path in tables.values()}, rng=0)
    assert found["pvalue"] == result.pvalue == 0.001
    assert found["pairs"] == result.pairs(rng=0).to_dict("records")


def test_groups_of_one_table(run, tables, tmp_path):
    parts = [pd.read_csv(path).assign(drug=name) for name, path in tables.items()]
    path = tmp_path / "all.csv"
    pd.concat(parts).to_csv(path, index=False)
    found = json.loads(run("two-sample", str(path), "--groups", "drug", "--json").out)
    assert found["sizes"] == {"n(a)": 40, "n(b)": 40, "n(c)": 40} and found["pvalue"] == 0.001


def test_pairs(run, tables):
    found = json.loads(run("two-sample", tables["a"], tables["c"], "--paired", "--json").out)
    X, Y = pd.read_csv(tables["a"]), pd.read_csv(tables["c"])
    result = two_sample_test(X, Y, null="paired", rng=0)
    assert found["pvalue"] == result.pvalue
    assert found["effect"]["value"] == pytest.approx(result.effect.value)


def test_a_matrix(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
    frame["c"] = frame["a"] ** 2
    path, page = tmp_path / "t.csv", tmp_path / "page.html"
    frame.to_csv(path, index=False)
    found = json.loads(run("dependence", str(path), "--json", "--report", str(page)).out)
    expected = dependence_matrix(pd.read_csv(path), n_permutations=1999, rng=0).to_frame()
    assert [p["pvalue"] for p in found["pairs"]] == expected["pvalue"].tolist()
    assert "<svg" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("a", "--groups"),
        ("abc --paired", "two tables"),
        ("abc --stream", "--stream"),
        ("ab --paired --block-length 3", "--block-length"),
    ],
)
def test_what_cannot_be_combined(run, tables, names, words):
    named, *options = names.split()
    found = run("two-sample", *(tables[name] for name in named), *options)
    assert found.code == 1 and words in found.err
