"""Many tests on one table: one answer each, whatever was asked before."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from meanmap import conditional_independence_test
from meanmap.comparison import ConditionalIndependence
from meanmap.comparison.smoothers import Regressors


def people(n: int = 200, seed: int = 0) -> pd.DataFrame:
    """Numbers and labels that depend on age, and one column that depends on another's label."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, size=n)
    city = rng.choice(["Oslo", "Rome", "Lima"], n)
    pulse = np.cos(age / 10) + 0.5 * rng.normal(size=n)
    sport = np.where(np.cos(age / 10) + 0.5 * rng.normal(size=n) > 0, "yes", "no")
    rent = (city == "Oslo") * 2.0 + 0.3 * rng.normal(size=n)
    return pd.DataFrame({"age": age, "city": city, "pulse": pulse, "sport": sport, "rent": rent})


def test_it_is_the_test_of_its_columns() -> None:
    table = people()
    test = ConditionalIndependence(table, null="gamma")
    for i, j, given in (
        ("age", "pulse", ["sport"]),
        ("pulse", "sport", ["age"]),
        ("city", "rent", ["age", "sport"]),
    ):
        expected = conditional_independence_test(table[[i]], table[[j]], table[given], null="gamma")
        assert test(i, j, given).pvalue == pytest.approx(expected.pvalue, rel=1e-9)
        assert test(i, j, given).statistic == pytest.approx(expected.statistic, rel=1e-9)


def test_an_answer_does_not_depend_on_what_else_was_asked() -> None:
    table = people()
    one, other = ConditionalIndependence(table), ConditionalIndependence(table)
    asked = [("age", "pulse", ()), ("pulse", "sport", ["age", "city"]), ("rent", "age", ["city"])]
    first = [one.pvalue(*question) for question in asked]
    assert [other.pvalue(*question) for question in reversed(asked)] == first[::-1]
    assert one("sport", "pulse", ["city", "age"]).pvalue == first[1]
    assert one(3, 2, np.array([1, 0])).pvalue == first[1]
    another = ConditionalIndependence(table, random_state=1)
    assert not np.array_equal(another(*asked[1]).null.values, one(*asked[1]).null.values)


def test_answers() -> None:
    test = ConditionalIndependence(people(300))
    assert test.pvalue("pulse", "sport") == 0.001
    assert test.pvalue("pulse", "sport", ["age"]) > 0.05
    assert test.pvalue("city", "rent", ["age", "pulse"]) == 0.001
    assert test.pvalue("age", "rent", "city") > 0.05
    assert test.pvalue(["pulse", "sport"], "age", ["rent"]) == 0.001
    result = test("age", "pulse", ["city"])
    assert 0 < result.effect.value < 1 and result.sizes == {"n": 300}
    assert "rise together" in " ".join(result.notes) or "stands out" in " ".join(result.notes)
    assert "300 rows of 5 columns" in repr(test) and test.column_names[1] == "city"


def test_nothing_is_regressed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    smooth = Regressors.smooth

    def count(self: Regressors, targets: np.ndarray) -> object:
        made.append(targets.shape)
        return smooth(self, targets)

    monkeypatch.setattr(Regressors, "smooth", count)
    test = ConditionalIndependence(people())
    test.pvalue("age", "pulse", ["city"])
    assert len(made) == 2
    test.pvalue("age", "rent", ["city"])
    test.pvalue("pulse", "rent", ["city"])
    test.pvalue("rent", "pulse", ["city"])
    assert len(made) == 3


def test_codes_of_labels() -> None:
    table = people()
    codes = table.assign(city=table["city"].map({"Oslo": 7, "Rome": 1, "Lima": 4}))
    test = ConditionalIndependence(codes, labels=["city"], null="gamma")
    expected = ConditionalIndependence(table, null="gamma")
    for question in (("city", "rent", ["age"]), ("age", "rent", ["city"])):
        assert test(*question).pvalue == pytest.approx(expected(*question).pvalue, rel=1e-9)
    numbers = ConditionalIndependence(codes[["age", "city", "rent"]].to_numpy(), labels=[1])
    assert numbers.pvalue(1, 2, [0]) == 0.001


@pytest.mark.parametrize("kind", ["nan", "nullable"])
def test_missing_values(kind: str) -> None:
    table, rng = people(300), np.random.default_rng(1)
    holes = table.mask(rng.random(table.shape) < 0.1)
    if kind == "nullable":
        holes = holes.convert_dtypes()
    asked = "pulse", "sport", ["age"]
    test = ConditionalIndependence(holes, null="gamma")
    rows = holes[["pulse", "sport", "age"]].notna().all(axis=1)
    known = table[rows]
    expected = ConditionalIndependence(known, null="gamma")(*asked)
    assert test(*asked).pvalue == pytest.approx(expected.pvalue, rel=1e-9)
    assert test(*asked).sizes == {"n": int(rows.sum())}
    complete = ConditionalIndependence(holes, missing="complete", null="gamma")
    whole = table[holes.notna().all(axis=1)]
    expected = ConditionalIndependence(whole, null="gamma")(*asked)
    assert complete(*asked).pvalue == pytest.approx(expected.pvalue, rel=1e-9)
    assert complete("city", "rent").sizes == {"n": len(whole)}
    with pytest.raises(ValueError, match="missing values in"):
        ConditionalIndependence(holes, missing="error")


def test_what_cannot_depend() -> None:
    table = people(100).assign(flat=1.0, same="x")
    table["copy"] = table["city"]
    test = ConditionalIndependence(table)
    for question in (("flat", "age", ["city"]), ("age", "same", ()), ("copy", "age", ["city"])):
        result = test(*question)
        assert result.pvalue == 1.0 and result.notes
    assert test.pvalue("age", "pulse", ["flat", "same"]) == test.pvalue("age", "pulse", ["flat"])


def test_errors_say_what_to_do() -> None:
    table = people(30)
    test = ConditionalIndependence(table)
    empty = table.mask(table == table)
    cases = [
        (lambda: test("age", "weight"), "not a column of the table"),
        (lambda: test("age", 5), "not a column"),
        (lambda: test("age", "age"), "different columns"),
        (lambda: test("age", "city", ["age"]), "different columns"),
        (lambda: test([], "city"), "different columns"),
        (lambda: ConditionalIndependence(np.zeros(3)), "frame or an array"),
        (lambda: ConditionalIndependence(np.zeros((0, 3))), "empty"),
        (lambda: ConditionalIndependence(table, missing="impute"), "missing must be one of"),
        (lambda: ConditionalIndependence(table, null="split"), "null must be one of"),
        (lambda: ConditionalIndependence(table, labels=["height"]), "not a column"),
        (lambda: ConditionalIndependence(table.assign(age=np.inf)), "infinite"),
        (lambda: ConditionalIndependence(empty)("age", "city"), "at least 5 rows"),
        (lambda: ConditionalIndependence(table.assign(age=1j)), "numbers or labels"),
    ]
    for call, words in cases:
        with pytest.raises((ValueError, TypeError), match=words):
            call()
