"""Records of experiments and their registry."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types

import numpy as np
import pytest

import meanmap_experiments as experiments
from meanmap_experiments import Claim, Curves, Figure, Outcome, Table
from meanmap_experiments.runs import each


def outcome(**changes: object) -> Outcome:
    rows = (("kernel", Figure(0.1, 0.004, 30)), ("Kalman", Figure(0.55, 0.02, 30)))
    values = {
        "name": "camera",
        "title": "A camera",
        "citation": "Song et al. (2009)",
        "settings": {"noise": "0.1"},
        "tables": (Table("Errors", ("filter", "error"), rows, published=(0.146, None)),),
        "verdict": (Claim("It holds.", True),),
    }
    return Outcome(**(values | changes))  # type: ignore[arg-type]


# --- figures --------------------------------------------------------------------------------------


def test_figure_of_runs() -> None:
    values = [1.0, 2.0, 4.0]
    figure = Figure.of(values)
    assert figure.mean == pytest.approx(7 / 3)
    assert figure.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))
    assert figure.runs == 3


def test_one_run_has_no_standard_error() -> None:
    figure = Figure.of([0.25])
    assert math.isnan(figure.standard_error)
    assert str(figure) == "0.25"
    assert figure.to_dict() == {"mean": 0.25, "standard_error": None, "runs": 1}


def test_no_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        Figure.of([])


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(0.12345, 0.00678, 5), "0.1235 ± 0.0068"),
        (Figure(123.4, 21.0, 5), "123 ± 21"),
        (Figure(1234.0, 210.0, 5), "1234 ± 210"),
        (Figure(0.5, 0.0, 5), "0.500 ± 0.000"),
        (Figure(math.nan, math.nan, 5), "–"),
    ],
)
def test_figures_read_well(figure: Figure, text: str) -> None:
    assert str(figure) == repr(figure) == text


# --- tables ---------------------------------------------------------------------------------------


def test_columns_are_aligned() -> None:
    rows = [("a", 1, 0.5, Figure(0.1, 0.01, 4)), ("longer", 200, None, Figure(10.0, 0.1, 4))]
    table = Table("Title", ("name", "n", "x", "figure"), rows, published=("3", None))
    title, *lines = str(table).splitlines()
    assert title == "Title"
    assert lines[0].split() == ["name", "n", "x", "figure", "published"]
    starts = {
        line.index(cell) for line, cell in zip(lines[1:], ("0.100 ±", "10.00 ±"), strict=True)
    }
    assert starts == {lines[0].index("figure")}
    ends = {
        line.index(cell) + len(cell) for line, cell in zip(lines, (" n", " 1", "200"), strict=True)
    }
    assert len(ends) == 1  # numbers stand to the right
    assert "–" in lines[2]
    assert table.column("published") == ("3", None)
    assert table.column("n") == (1, 200)


def test_a_table_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells under 2"):
        Table("T", ("a", "b"), [("x",)])
    with pytest.raises(ValueError, match="1 published figures for 2 rows"):
        Table("T", ("a",), [("x",), ("y",)], published=(1.0,))


def test_records_are_immutable() -> None:
    table = outcome().tables[0]
    for record, name in ((Figure(1, 1, 1), "mean"), (table, "rows"), (outcome(), "seed")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)
    assert isinstance(Table("T", ["a"], [["x"]]).rows[0], tuple)  # type: ignore[arg-type,list-item]


# --- outcomes -------------------------------------------------------------------------------------


def test_outcome_reads_well() -> None:
    text = repr(outcome(seconds=1.25, quick=True, seed=3))
    for part in ("A camera (quick)", "Song et al. (2009)", "0.1000 ± 0.0040", "0.146"):
        assert part in text
    assert "- It holds." in text
    assert text.endswith("seed 3, 1.2 s")


def test_json_round_trip() -> None:
    found = json.loads(outcome().to_json())
    assert found["seconds"] is None  # NaN is not valid JSON
    assert found["tables"][0]["columns"] == ["filter", "error", "published"]
    assert found["tables"][0]["rows"] == [
        ["kernel", {"mean": 0.1, "standard_error": 0.004, "runs": 30}, 0.146],
        ["Kalman", {"mean": 0.55, "standard_error": 0.02, "runs": 30}, None],
    ]
    assert found["settings"] == {"noise": "0.1"}
    assert found["verdict"] == [
        {"text": "It holds.", "holds": True, "ours": None, "published": None}
    ]


def test_an_outcome_holds_if_no_claim_fails() -> None:
    held, failed, figures = Claim("a", True), Claim("b", False), Claim("c", ours=0.1)
    assert outcome(verdict=[held, figures]).holds is True
    assert outcome(verdict=[held, failed, figures]).holds is False
    assert outcome(verdict=[figures]).holds is None and outcome(verdict=[]).holds is None
    assert Claim.quote("it is worse").holds is None
    assert Claim("d", ours=Figure(0.5, 0.1, 3)).to_dict()["ours"]["mean"] == 0.5


def test_no_picture() -> None:
    with pytest.raises(TypeError, match="no picture"):
        outcome().plot()


def test_picture() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    level = ("exact", (0.0,), (Figure(0.9, 0.01, 3),))
    curve = ("kernel", (1.0, 2.0), (Figure(0.5, 0.1, 3), Figure(0.7, 0.1, 3)))
    picture = Curves("Title", "n", "error", (curve, level), logx=True, logy=True)
    ax = pyplot.subplots()[1]
    assert outcome(picture=picture).plot(ax) is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["exact", "kernel"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert picture() is not ax
    pyplot.close("all")


# --- registry -------------------------------------------------------------------------------------


def test_names() -> None:
    assert set(experiments.names()) >= {"rotation", "circle", "camera", "identities", "series"}
    for name in experiments.names():
        assert experiments.describe(name)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="no experiment 'identites'. Did you mean 'identities'"):
        experiments.run("identites")
    with pytest.raises(ValueError, match="There are: rotation, circle"):
        experiments.describe("xyzzy")


def test_run_hands_everything_on_and_takes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def run(**given: object) -> Outcome:
        seen.update(given)
        return outcome()

    module = types.SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "meanmap_experiments.circle", module)
    found = experiments.run("circle", quick=True, seed=7, n_jobs=2, progress=False)
    assert seen == {"quick": True, "seed": 7, "n_jobs": 2, "progress": False}
    assert found.seconds >= 0


def test_each_keeps_the_order() -> None:
    assert each(math.hypot, [(3, 4), (5, 12), (8, 15)], "test", progress=False) == [5, 13, 17]


@pytest.mark.slow
def test_each_in_two_processes() -> None:
    assert each(math.hypot, [(3, 4), (5, 12)], "test", n_jobs=2, progress=False) == [5, 13]
