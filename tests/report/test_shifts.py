"""The kind of shift: named correctly where it is clear, and reported as unclear otherwise."""

from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pandas as pd
import pytest

from meanmap.comparison.corrections import holm
from meanmap.kernels import Columns, Gaussian, Laplace, NGrams
from meanmap.report import ShiftReport, html, shift_report
from meanmap.report.explanations import Explanation
from meanmap.report.findings import bumps
from meanmap.report.verdicts import Figures, Finding, Verdict, verdict
from meanmap.statistics.weighted import distance_and_influence, squared_distance

matplotlib.use("Agg")


def normal(seed: int, n: int = 160, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d))


def labelled_rows(n: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, two deviations apart in the first column and one in the second."""
    y = (rng.random(n) < share).astype(int)
    return y[:, None] * [2.0, 1.0, 0.0] + rng.normal(size=(n, 3)), y


# --- the kinds ------------------------------------------------------------------------------------


def test_no_shift_is_called_none() -> None:
    report = shift_report(*normal(0), rng=0)
    assert report.kind == "no shift"
    assert report.explanations == () and report.dependence is None
    assert "No remedy is needed" in report.remedy
    assert "y_test" in report.verdict  # what x alone cannot tell


@pytest.fixture(scope="module")
def covariate() -> ShiftReport:
    train, test = normal(1)
    test[:, 1] += 1.0
    return shift_report(train, test, (train[:, 0] > 0).astype(int), rng=0)


def test_a_mean_that_moves_may_be_covariate_or_location_scale_shift(covariate: ShiftReport) -> None:
    assert covariate.kind == "cannot tell"
    assert set(covariate.candidates) == {"covariate shift", "location-scale shift"}
    first = covariate.columns[0]
    assert first.name == "x1" and first.adjusted <= 0.05
    assert first.difference == pytest.approx(1.0, abs=0.25)
    assert all(column.adjusted > 0.05 for column in covariate.columns[1:])
    assert "KernelMeanMatching is for" in covariate.remedy
    assert "LocationScaleShift is for" in covariate.remedy
    assert "(y_test) would tell" in covariate.verdict and "x1" in covariate.verdict
    at, witness = first.witness
    assert at[np.argmax(witness)] > 1 > at[np.argmin(witness)]  # more above, less below
    by_name = {one.name: one for one in covariate.explanations}
    assert not by_name["weights on targets"].holds(0.05)  # y knows nothing of x1


@pytest.mark.slow
def test_groups_in_other_shares_are_a_covariate_shift() -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])  # no location and scale does that
    train, test = (
        centres[rng.choice(3, size=400, p=p)] + 0.7 * rng.normal(size=(400, 2))
        for p in ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5])
    )
    y = (np.sin(3 * train[:, 0]) + 0.3 * rng.normal(size=400) > 0).astype(int)
    report = shift_report(train, test, y, rng=0)
    assert report.kind == "covariate shift" and report.candidates == ()
    assert "KernelMeanMatching" in report.remedy
    assert "cannot be told apart" in report.verdict  # from concept shift, that is
    by_name = {one.name: one for one in report.explanations}
    assert by_name["weights on rows"].behind == 0
    assert by_name["location and scale"].behind > 2.33


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_class_that_would_vanish_is_no_target_shift(seed: int) -> None:
    rng = np.random.default_rng(seed)
    train, test = rng.normal(size=(2, 400, 2))
    test[:, 0] += 1.5
    y = (train[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int)  # follows the column that moves
    report = shift_report(train, test, y, rng=0)
    by_name = {one.name: one for one in report.explanations}
    assert by_name["weights on targets"].at_edge and not by_name["weights on targets"].holds(0.05)
    assert report.kind != "target shift" and "target shift" not in report.candidates


@pytest.mark.slow
def test_another_gain_is_a_location_scale_shift() -> None:
    rng = np.random.default_rng(3)
    train, test = rng.gamma(2.0, size=(2, 400, 4))
    report = shift_report(train, 3 * test + 4, rng=0)
    assert report.kind == "location-scale shift"


@pytest.mark.slow
def test_other_proportions_of_classes_may_be_a_target_shift() -> None:
    rng = np.random.default_rng(22)
    (train, y), (test, hidden) = labelled_rows(240, 0.3, rng), labelled_rows(240, 0.7, rng)
    report = shift_report(train, test, np.where(y, "sick", "well"), rng=0)
    assert report.kind == "cannot tell"  # weights on rows explain it too
    assert set(report.candidates) >= {"target shift", "covariate shift"}
    assert "TargetShift is for" in report.remedy and "sick" in report.verdict
    known = shift_report(train, test, y, hidden, rng=0)  # labels turn the reading into a finding
    assert known.kind == "target shift"
    assert "P(x|y), which does not differ" in known.verdict


@pytest.mark.slow
def test_target_shift_of_numbers() -> None:
    rng = np.random.default_rng(3)
    y, hidden = rng.normal(size=200), rng.normal(0.9, 0.7, size=200)
    train, test = (
        np.column_stack([v + 0.4 * rng.normal(size=200), v**2 + 0.4 * rng.normal(size=200)])
        for v in (y, hidden)
    )
    report = shift_report(train, test, y, rng=0)
    assert "target shift" in report.candidates
    assert "location-scale shift" not in report.candidates
    assert "mean target" in report.verdict


def test_columns_that_only_go_together_otherwise() -> None:
    train, test = normal(4)
    test[:, 2] = 0.9 * test[:, 0] + np.sqrt(1 - 0.81) * test[:, 2]
    report = shift_report(train, test, rng=0)
    assert report.kind == "dependence shift"
    assert report.dependence is not None and report.dependence.pair == ("x0", "x2")
    assert report.dependence.correlations[1] > 0.8
    assert "x0 and x2" in report.verdict
    assert all(column.adjusted > 0.05 for column in report.columns)


def test_disjoint_supports() -> None:
    rng = np.random.default_rng(5)
    train = rng.normal(size=(200, 2))
    sides = rng.choice([-6.0, 6.0], size=(200, 1))  # no location and scale makes one bump of two
    report = shift_report(train, sides + 0.5 * rng.normal(size=(200, 2)), rng=0)
    assert report.kind == "disjoint supports"
    assert report.outside > 0.9
    assert "Collect labels" in report.remedy


def test_another_unit_is_a_change_of_location_and_scale() -> None:
    train, test = normal(6)
    report = shift_report(train + 10, 2.54 * (test + 10), rng=0)
    assert report.kind == "location-scale shift"
    assert report.outside > 0.5
    assert "LocationScaleShift" in report.remedy and "calibration" in report.verdict


def test_concept_shift_needs_targets_of_test_rows() -> None:
    rng = np.random.default_rng(7)
    train, test = normal(7)
    y, hidden = (
        sign * part[:, 0] + 0.3 * rng.normal(size=160) for sign, part in ((1, train), (-1, test))
    )
    assert shift_report(train, test, y, rng=0).kind == "no shift"
    few = np.full(160, np.nan)
    few[:80] = hidden[:80]
    report = shift_report(train, test, y, few, rng=0)
    assert report.kind == "concept shift"
    assert "80 labelled test rows" in report.verdict
    assert "No weights" in report.remedy
    same = shift_report(train, test, y, test[:, 0] + 0.3 * rng.normal(size=160), rng=0)
    assert same.kind == "no shift" and "P(y|x) shows no difference" in same.verdict


@pytest.mark.slow
def test_concept_shift_is_seen_beside_a_covariate_shift() -> None:
    rng = np.random.default_rng(23)
    train, test = normal(23)
    test[:, 0] += 0.8
    y, hidden = (
        sign * part[:, 0] + 0.3 * rng.normal(size=160) for sign, part in ((1, train), (-1, test))
    )
    report = shift_report(train, test, y, hidden, rng=0)
    assert report.kind == "concept shift"
    assert "P(x) differs too in x0" in report.verdict


@pytest.mark.slow
def test_covariate_shift_with_targets_says_that_the_relation_holds() -> None:
    rng = np.random.default_rng(8)
    train, test = normal(8)
    test[:, 0] += 0.8
    y, hidden = (np.sin(part[:, 0]) + 0.3 * rng.normal(size=160) for part in (train, test))
    report = shift_report(train, test, y, hidden, rng=0)
    assert report.kind == "covariate shift"
    assert "P(y|x) shows no difference" in report.verdict


# --- level ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_shift_keeps_the_level() -> None:
    rng = np.random.default_rng(9)
    runs, level = 120, 0.2
    seen = 0
    for _ in range(runs):
        # few rows, ties, and columns that depend on each other
        train, test = (rng.normal(size=(n, 1)) + rng.normal(size=(n, 3)) for n in (25, 18))
        report = shift_report(np.round(train, 1), np.round(test, 1), level=level, rng=rng)
        seen += report.kind != "no shift"
    # expected at most 24; above 48 by chance with a probability below 1e-6
    assert seen <= 48


def test_places_are_said_in_plain_numbers() -> None:
    at = np.linspace(0, 700, 200)
    assert bumps(at, np.exp(-(((at - 440) / 100) ** 2)) - 0.1).startswith("more around 440 (")
    near = 1000 + at / 7000  # as many digits as tell the ends apart
    words = bumps(near, np.exp(-(((near - 1000.05) / 0.01) ** 2)))
    assert words.startswith("more around 1000.0") and words.count("1000.0") == 3


def test_holm_is_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_many_columns_can_still_reject() -> None:
    rng = np.random.default_rng(10)
    train, test = rng.normal(size=(39, 40)), rng.normal(size=(39, 40))
    test[:, 17] += 4
    report = shift_report(train, test, rng=0)
    assert report.columns[0].name == "x17" and report.columns[0].adjusted <= 0.05
    assert "more columns with smaller effects" in str(report)


# --- kinds of points ------------------------------------------------------------------------------


def mixed(n: int, rng: np.random.Generator, oslo: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, size=n),
            "city": pd.Categorical(rng.choice(["Oslo", "Rome"], size=n, p=[oslo, 1 - oslo])),
            "smokes": rng.random(n) < 0.3,
        }
    )


def test_mixed_frames_by_name() -> None:
    rng = np.random.default_rng(11)
    train, test = mixed(39, rng, 0.3), mixed(120, rng, 0.9)
    report = shift_report(train, test[["smokes", "city", "age"]], rng=0)
    assert [column.name for column in report.columns if column.adjusted <= 0.05] == ["city"]
    assert "more Oslo (" in report.columns[0].where
    assert np.isnan(report.columns[0].difference)
    frame = report.to_frame()
    assert list(frame.index) == [column.name for column in report.columns]
    assert frame.loc["city", "adjusted"] <= 0.05
    chosen = shift_report(
        train, test, kernel=Columns({"age": Laplace(), "city": None, "smokes": None})
    )
    assert chosen.columns[0].name == "city"


def test_strings_are_compared_as_a_whole() -> None:
    rng = np.random.default_rng(12)
    train, test = (
        ["".join(rng.choice(list("acgt"), size=12, p=p)) for _ in range(60)]
        for p in ([0.25] * 4, [0.55, 0.15, 0.15, 0.15])
    )
    report = shift_report(train, test, kernel=NGrams(2), rng=0)
    assert report.kind != "no shift" and report.columns == ()
    assert report.extremes[0].count("a") > report.extremes[1].count("a")
    assert report.extremes[0] in str(report)
    assert len(report.to_frame()) == 0
    assert '<figure class="chart"' in report.to_html()


def test_labels_alone_and_dicts() -> None:
    rng = np.random.default_rng(13)
    train, test = rng.choice(["a", "b"], 39), rng.choice(["a", "b", "c"], 80)
    report = shift_report(train, test, rng=0)
    assert report.columns[0].name == "value" and report.kind != "no shift"
    again = shift_report({"v": train}, {"v": test}, rng=0)
    assert again.overall == report.overall


def test_a_kernel_of_ones_own() -> None:
    train, test = normal(14, 39, 2)
    report = shift_report(train, test + [1.5, 0], kernel=Gaussian(1.0), rng=0)
    assert report.rows.kernel == Gaussian(1.0)
    assert report.columns[0].name == "x0"


def test_scale_of_columns_does_not_matter() -> None:
    train, test = normal(15, 36)
    test[:, 2] += 2
    units = np.array([1e6, 1.0, 1e-6])
    small, large = (
        shift_report(train, test, rng=0),
        shift_report(train * units, test * units, rng=0),
    )
    assert small.kind == large.kind
    assert [c.name for c in small.columns] == [c.name for c in large.columns]


def test_constant_columns_and_few_rows() -> None:
    train, test = normal(16, 30)
    train[:, 0] = test[:, 0] = 7.0
    report = shift_report(train, test + [0, 1.5, 0], rng=0)  # too few rows for halves
    assert report.explanations == () and report.kind == "cannot tell"
    assert "too small" in report.verdict
    constant = next(column for column in report.columns if column.name == "x0")
    assert constant.adjusted == 1 and constant.effect == 0


def test_seed_and_max_samples() -> None:
    train, test = normal(17, 300)
    test[:, 0] += 1
    one, two = (shift_report(train, test, max_samples=45, rng=3) for _ in range(2))
    assert one.explanations and str(one) == str(two)
    assert one.used == (45, 45) and one.sizes == (300, 300)
    assert "45 and 45 used" in str(one)


# --- bad input ------------------------------------------------------------------------------------


def test_columns_that_differ_are_named() -> None:
    train = pd.DataFrame({"age": [1.0, 2.0, 3.0], "city": list("aba")})
    with pytest.raises(ValueError, match="same columns: test lacks 'city'; train lacks 'town'"):
        shift_report(train, train.rename(columns={"city": "town"}))
    with pytest.raises(ValueError, match="test lacks 'x2'"):
        shift_report(np.zeros((4, 3)), np.zeros((4, 2)))


def test_one_point_is_no_sample() -> None:
    with pytest.raises(ValueError, match="test: expected at least 2 points, got 1"):
        shift_report(np.zeros((4, 3)), np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1, 0]}, "y has 3 targets, but train has 12 rows"),
        ({"y": [0, 1] * 6, "y_test": [0, 1]}, "y_test has 2 targets, but test has 12 rows.*None"),
        ({"y_test": [0, 1] * 6}, "y_test was given without y"),
        ({"y": ["a", "b"] * 6, "y_test": [0, 1] * 6}, "y holds classes like"),
        ({"y": np.zeros((12, 2))}, "one target per row"),
        ({"level": 1.5}, "level must lie strictly between 0 and 1"),
        ({"max_samples": 1}, "max_samples must be a whole number ≥ 2"),
        ({"kernel": 3}, "kernel: expected a kernel"),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        shift_report(np.zeros((12, 2)), np.zeros((12, 2)), **arguments)


def test_missing_values_name_their_column() -> None:
    train = pd.DataFrame({"age": [1.0, np.nan, 3.0], "city": list("aba")})
    with pytest.raises(ValueError, match=r"train\['age'\] contains NaN"):
        shift_report(train, train)
    with pytest.raises(ValueError, match="2D array"):
        shift_report(np.zeros((5, 2, 2, 2)), np.zeros((5, 2, 2, 2)))


def test_classes_that_one_domain_lacks_are_said() -> None:
    rng = np.random.default_rng(18)
    train, test = normal(18, 39)
    y, y_test = rng.choice(["a", "b", "c"], 39), rng.choice(["a", "b", "new"], 39).astype(object)
    y_test[::3] = None
    report = shift_report(train, test, y, y_test, rng=0)
    assert "No labelled test row has class c." in report.notes
    assert any("no training row has: new" in note for note in report.notes)
    few = shift_report(train, test, y, [*"abc", *[None] * 36], rng=0)
    assert any("too few to compare" in note for note in few.notes)
    one = shift_report(train, test + 1, ["a"] * 39, rng=0)
    assert any("the same target" in note for note in one.notes)


# --- text, picture, page --------------------------------------------------------------------------


class Page(HTMLParser):
    """Whether tags close, and what a page loads from elsewhere."""

    ALONE = {"meta", "img", "!doctype"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in self.ALONE:
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_the_page_stands_alone(tmp_path, covariate: ShiftReport) -> None:
    text = covariate.to_html(tmp_path / "shift.html")
    assert (tmp_path / "shift.html").read_text(encoding="utf-8") == text
    page = parsed(text)
    assert "http:" not in text and "https:" not in text
    assert text.count("<script") == 2  # that of the page, which its policy names, and the values
    assert page.sources and all(
        source.startswith(("#", "data:image/png")) for source in page.sources
    )
    assert '<figure class="chart"' in text
    words = " ".join(page.words)
    assert covariate.verdict in words and covariate.remedy in words and "x1" in words
    assert "prefers-color-scheme: dark" in text
    assert parsed(covariate._repr_html_()).sources == []


def test_names_are_escaped() -> None:
    train, test = normal(19, 36, 2)
    names = ["<script>alert(1)</script>", "a & $b$"]
    frames = [pd.DataFrame(part, columns=names) for part in (train, test + [2, 0])]
    text = shift_report(*frames, rng=0).to_html()
    parsed(text)
    assert "<script>alert" not in text and text.count("<script") == 2
    assert "&lt;script&gt;" in text and "a &amp; $b$" in text


def test_parts_of_a_page() -> None:
    text = html.html_page(
        "a < b", [html.heading("x"), html.code("1 < 2"), html.html_table(["n"], [["<"]])]
    )
    assert parsed(text).words.count("a < b") == 2
    assert html.code("1 < 2") == "<pre><code>1 &lt; 2</code></pre>"


def test_the_picture(covariate: ShiftReport) -> None:
    import matplotlib.pyplot as plt

    places = covariate.plot()
    assert len(places) == 2
    assert [t.get_text() for t in places[0].get_yticklabels()][0] == "x1"
    assert "x1" in places[1].get_title()
    single = plt.subplots()[1]
    covariate.plot(single)
    assert len(single.patches) == len(covariate.columns)
    plt.close("all")


def test_the_picture_of_labels_and_names_with_dollars() -> None:
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(20)
    train, test = mixed(36, rng, 0.2), mixed(36, rng, 0.9)
    report = shift_report(
        train.rename(columns={"city": "$x_"}), test.rename(columns={"city": "$x_"})
    )
    places = report.plot()
    places[0].figure.canvas.draw()
    assert {t.get_text() for t in places[1].get_xticklabels()} == {"Oslo", "Rome"}
    plt.close("all")


def test_the_text(covariate: ShiftReport) -> None:
    text = str(covariate)
    assert text == repr(covariate)
    assert text.splitlines()[0].endswith("3 columns: cannot tell")
    for words in (covariate.verdict, covariate.remedy, "p (Holm)", "weights on rows", "rows"):
        assert words in text


# --- what verdicts rest on ------------------------------------------------------------------------


def test_verdicts_follow_the_figures() -> None:
    quiet, loud = Finding("rows", 0.4, 0.4), Finding("rows", 0.001, 0.001)
    assert verdict(Figures(0.05, quiet, ())).kind == "no shift"
    assert verdict(Figures(0.5, quiet, ())).kind == "cannot tell"
    assert verdict(Figures(0.05, loud, (), outside=0.9)).kind == "disjoint supports"
    concept = (Finding("P(y|x)", 0.001, 0.003),)
    assert verdict(Figures(0.05, quiet, (), concept, labelled=20)).kind == "concept shift"


def test_the_best_explanation_gives_the_name_and_ties_are_called_ties() -> None:
    rows = Explanation("weights on rows", 0.7, 0.5, 100.0, 200)
    targets = Explanation("weights on targets", 0.9, 0.5, 100.0, 200, "sick 20% → 60%")
    moved = Explanation("location and scale", 0.6, 0.5, 200.0, 200)

    def found(*explanations: Explanation) -> Verdict:
        loud = Finding("rows", 0.001, 0.001)
        return verdict(Figures(0.05, loud, (), explanations=explanations, outside=0.01))

    one = found(replace(rows, behind=3.0), targets, replace(moved, behind=5.0))
    assert one.kind == "target shift" and "sick 20% → 60%" in one.verdict and one.candidates == ()
    two = found(replace(rows, behind=1.0), targets, replace(moved, behind=5.0))
    assert two.kind == "cannot tell"
    assert two.candidates == ("target shift", "covariate shift")  # the best first
    assert two.verdict.startswith("Cannot tell which shift: target shift or covariate shift would")
    edge = found(rows, replace(targets, at_edge=True, behind=1.0), replace(moved, behind=5.0))
    assert edge.kind == "covariate shift"
    poor = found(replace(rows, explained=0.3), replace(moved, explained=0.2, behind=1.0))
    assert poor.kind == "unexplained shift"


def test_influences_are_derivatives_of_the_distance() -> None:
    rng = np.random.default_rng(24)
    X, Y, kernel = rng.normal(size=(7, 2)), rng.normal(size=(5, 2)), Gaussian(1.0)
    w = rng.uniform(0.5, 1.5, size=7)
    w /= w.sum()
    K, L, M = kernel(X), kernel(Y), kernel(X, Y)

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        a, b = a / a.sum(), b / b.sum()
        return float(a @ K @ a + b @ L @ b - 2 * a @ M @ b)

    _, at_rows, at_test = distance_and_influence(kernel, X, Y, w)
    v, step = np.full(5, 0.2), 1e-6
    for i in range(7):  # the weight of one row grows, as if it were drawn more often
        more = w * (1 + step * (np.arange(7) == i))
        assert (distance(more, v) - distance(w, v)) / step == pytest.approx(
            at_rows[i] / 7, abs=1e-5
        )
    for i in range(5):
        more = v * (1 + step * (np.arange(5) == i))
        assert (distance(w, more) - distance(w, v)) / step == pytest.approx(
            at_test[i] / 5, abs=1e-5
        )


def test_weighted_distance_is_that_of_repeated_rows() -> None:
    rng = np.random.default_rng(21)
    X, Y, kernel = rng.normal(size=(6, 2)), rng.normal(size=(5, 2)), Gaussian(1.0)
    w = np.array([1, 2, 1, 3, 1, 2]) / 10
    K, L, M = kernel(X), kernel(Y), kernel(X, Y)
    within = sum(w[i] * w[j] * K[i, j] for i in range(6) for j in range(6) if i != j)
    within /= sum(w[i] * w[j] for i in range(6) for j in range(6) if i != j)
    other = (L.sum() - np.trace(L)) / 20
    expected = within + other - 2 * float(w @ M.mean(axis=1))
    assert squared_distance(kernel, X, Y, w) == pytest.approx(expected, rel=1e-12)


def test_a_number_far_from_few_values_is_not_a_share() -> None:
    train = np.array([0.0, 1.0] * 20 + [1e30])[:, None]
    report = shift_report(train, np.array([0.0, 1.0, 1.0, 1.0] * 10)[:, None], rng=0)
    assert "more 1" in report.columns[0].where
