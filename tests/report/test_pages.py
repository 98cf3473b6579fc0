"""Pages in a real browser: nothing is loaded, figures answer, everybody can read them."""

from __future__ import annotations

import datetime
import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from meanmap.plots import sheets
from meanmap.report import html, interactive, pages
from meanmap.report.answers import Answer, AnswerTable, DataSource, Picture
from meanmap_experiments import Claim, Figure, Outcome, Table
from meanmap_experiments.pages import experiments_page, standing
from meanmap_experiments.results import Curves
from optional_packages import require

HOSTILE = "<script>alert(1)</script>\"'&$x_"
CLOUD = 5000
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]  # as root, and in small containers


def draw_lines(axes: list[Any]) -> None:
    ax = axes[0]
    ax.plot([1, 2, 3], [1.5, 0.25, 2.75], "o-", label="line")
    ax.plot([1, 2, 3], [0.5, 1.0, 0.75], "s--", label="other")
    ax.axhline(2.25, label="level")
    ax.set(xlabel="step", ylabel="error")
    ax.legend()


def draw_bars(axes: list[Any]) -> None:
    axes[0].bar(["a", "b <c>"], [1.0, 3.5], yerr=[0.5, 0.25], label="share")
    axes[0].set(ylabel="share of rows")
    points = np.random.default_rng(0).normal(size=(CLOUD, 2))
    axes[1].scatter(points[:, 0], points[:, 1], s=2, label="cloud")
    axes[1].hist(points[:, 0], 10, label="counts")
    axes[1].set(xlabel="x")


def answers() -> list[Answer]:
    columns = {"x": "number", HOSTILE: "label"}
    many = {f"column {i}": "number" for i in range(30)}
    first = Answer(
        "Two samples",
        f"They differ {HOSTILE}.",
        {"pvalue": 0.001, "names": [HOSTILE]},
        (AnswerTable(("field", "value"), (("pvalue", "0.001"), (HOSTILE, "1"))),),
        (Picture(draw_lines, f"Three lines {HOSTILE}"),),
        (DataSource("a.csv", 200, columns), DataSource("b.csv", 1, many)),
        {"kernel": "Gaussian", HOSTILE: HOSTILE},
        command=f"meanmap two-sample a.csv b.csv --x '{HOSTILE}'",
    )
    second = Answer("Bars", "Two panels.", {}, pictures=(Picture(draw_bars, "Bars.", 2),))
    return [first, second]


def outcomes() -> list[Outcome]:
    def made(name: str, verdict: Claim, picture: Any = None, published: Any = ()) -> Outcome:
        rows = (("kernel", Figure(0.2, 0.01, 4)), ("other", 3))
        table = Table("Errors", ("method", "error"), rows, published)
        return Outcome(
            name, f"Title {name}", "A paper", {"n": "10"}, (table,), (verdict,), picture=picture
        )

    figures = (Figure(0.5, 0.1, 3), Figure(0.25, 0.05, 3))
    curves = Curves("Curves", "size", "error", (("ours", (100.0, 200.0), figures),))
    return [
        made("one", Claim("0.2 at most: holds at every d.", True), curves, (0.4, None)),
        made("two", Claim("0.1 at most: does not hold at d = 2.", False)),
        made("three", Claim.quote('"it is worse than that" (no figures).')),
    ]


# --- without a browser ----------------------------------------------------------------------------


def test_the_same_answers_make_the_same_page() -> None:
    text = pages.answers_page(answers(), "Answers")
    assert text == pages.answers_page(answers(), "Answers")
    assert len(text) < 500_000
    assert experiments_page(outcomes()) == experiments_page(outcomes())


def test_nothing_is_loaded() -> None:
    for text in (
        pages.answers_page(answers(), "Answers"),
        experiments_page(outcomes()),
    ):
        assert "http://" not in text and "https://" not in text
        assert not re.search(r"(?:src|href)=\"(?!#|data:)", text)
        assert "default-src 'none'" in text and "unsafe-inline'; script" not in text
        assert "eval(" not in text and "innerHTML" not in text


def test_hostile_words_stay_words() -> None:
    text = pages.answers_page(answers(), f"Title {HOSTILE}")
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    # the page's own script and the data of two figures
    assert text.count("<script") == 3 and text.count("</script>") == 3
    drawing = Drawing()
    sheets(drawing).plot([1, 2], label="</script><script>alert(1)</script>")
    part = interactive.interactive_figure(drawing, "d", "f1")
    assert part.count("</script>") == 1
    assert data(part)["series"][0]["label"] == "</script><script>alert(1)</script>"


def test_one_answer_and_several() -> None:
    alone = pages.answers_page(answers()[:1], "Two samples")
    assert "<nav" not in alone and "<h2>Settings</h2>" in alone and "<h3" not in alone
    several = pages.answers_page(answers(), "All")
    assert '<a href="#answer-2">Bars</a>' in several and "<h3>Settings</h3>" in several
    assert "b.csv: 1 row, 30 columns" in several
    assert pages.answers_page([], "Nothing").count("<h1>") == 1


def test_long_answers_are_cut() -> None:
    rows = tuple((str(i), f"{i / 7:.3f}") for i in range(5000))
    table = AnswerTable(("step", "mean"), rows)
    answer = Answer("Long", "Many rows.", {"all": list(range(100_000))}, (table,))
    text = pages.answers_page([answer], "Long")
    assert "and 4,000 rows more." in text and 'class="wide tall" tabindex="0"' in text
    assert "as JSON" not in text and len(text) < 200_000


def test_tables_without_names_of_columns_have_names_of_rows() -> None:
    text = html.html_table(("", ""), [("pvalue", "0.1")])
    assert '<th scope="row">pvalue</th><td>0.1</td>' in text and "<thead>" not in text
    assert '<thead><tr><td></td><th scope="col">p</th></tr>' in html.html_table(
        ("", "p"), [("a", "b")]
    )


def test_published_figures_stand_beside_ours() -> None:
    text = experiments_page(outcomes())
    assert "ours over published" in text
    assert "<td>0.4</td><td>0.200 ± 0.010 (kernel)</td>" in text.replace("0.2000", "0.200")
    assert text.count('<td class="number">0.50</td>') == 2  # in the summary and in the table
    assert "it is worse than that" in text
    assert [standing(one) for one in outcomes()] == ["holds", "fails", "figures"]
    assert "make reproduce NAME=one" in text


@pytest.mark.parametrize(("holds", "kind"), [(True, "holds"), (False, "fails"), (None, "figures")])
def test_lines_of_verdicts_are_judged_by_their_value(holds: bool | None, kind: str) -> None:
    # whatever the words say
    assert standing(Claim("90% intervals hold 88%, worse than (not reached).", holds)) == kind


def data(part: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', part, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_values_and_places_of_all_kinds_of_artists() -> None:
    drawing = Drawing(figsize=(6, 4))
    left, right = sheets(drawing, 1, 2)
    left.errorbar([1.0, 2.0], [3.0, 4.0], [0.5, 1.0], label="bars")
    left.barh([1, 2], [5.0, 6.0], label="across")
    left.set(xlabel="size", ylabel="")
    mesh = right.pcolormesh(np.arange(3.0), np.arange(2.0), [[7.0, 8.0, 9.0], [1.0, 2.0, np.nan]])
    drawing.colorbar(mesh, ax=right, label="height")
    right.fill_between([0, 1], [0, 1], label="band")
    part = interactive.interactive_figure(drawing, "All kinds", "f1")
    series = {one["label"]: one for one in data(part)["series"]}
    assert series["bars"]["points"][1]["v"] == [2.0, 4.0, "3 to 5"]
    assert series["across"]["points"][0]["v"][:1] == [5.0] and "b" in series["across"]["points"][0]
    assert series[""]["points"][4]["v"] == [1.0, 1.0, "height: 2"]
    assert series["band"]["points"] == [] and series["band"]["ids"]
    for one in series.values():
        assert all(f'id="{name}"' in part for name in one["ids"])
        for point in one["points"]:
            assert 0 <= point["p"][0] <= 432 and 0 <= point["p"][1] <= 288


def test_places_are_where_matplotlib_draws() -> None:
    drawing = Drawing(figsize=(5, 4))
    ax = sheets(drawing)
    ax.plot([0.0, 1.0], [0.0, 1.0], "o", label="marks")
    part = interactive.interactive_figure(drawing, "d", "f1")
    drawn = [
        (float(x), float(y))
        for x, y in re.findall(r'<use x="([\d.]+)" y="([\d.]+)"[^>]* href="#f1-m', part)
    ]
    for point in data(part)["series"][0]["points"]:
        assert min(np.hypot(x - point["p"][0], y - point["p"][1]) for x, y in drawn) < 0.2


def test_large_clouds_are_pixels_and_thinned() -> None:
    drawing = Drawing()
    ax = sheets(drawing)
    points = np.random.default_rng(0).normal(size=(CLOUD, 2))
    artist = ax.scatter(points[:, 0], points[:, 1], label="cloud")
    ax.plot([0, 1], [0, 1], label="line")
    before = drawing.dpi
    part = interactive.interactive_figure(drawing, "d", "f1")
    cloud, *_ = (one for one in data(part)["series"] if one["label"] == "cloud")
    assert 0 < len(cloud["points"]) <= 1000
    assert re.search(rf'<image [^>]*id="{cloud["ids"][0]}"', part)
    assert len(part) < 300_000
    # the figure is as it was
    assert artist.get_gid() is None and not artist.get_rasterized() and drawing.dpi == before


def test_dates_are_dates() -> None:
    drawing = Drawing()
    ax = sheets(drawing)
    ax.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], [1, 2], label="days")
    part = interactive.interactive_figure(drawing, "d", "f1")
    assert data(part)["series"][0]["points"][0]["v"][0].startswith("2024")


def test_several_figures_do_not_clash() -> None:
    text = pages.answers_page([answers()[0], answers()[0]], "Twice")
    names = re.findall(r'\bid="([^"]*)"', text)
    assert len(names) == len(set(names))
    for name in {*re.findall(r'href="#([^"]+)"', text), *re.findall(r"url\(#([^)]+)\)", text)}:
        assert name in names


def test_a_name_that_cannot_be_one() -> None:
    with pytest.raises(ValueError, match="name: expected a letter"):
        interactive.interactive_figure(Drawing(), "d", "1 <b>")


def test_on_axes_without_a_record_series_have_names_only() -> None:
    drawing = Drawing()
    ax = drawing.subplots()
    ax.plot([1, 2], label="line")
    ax.legend()
    part = interactive.interactive_figure(drawing, "d", "f1")
    (series,) = data(part)["series"]
    assert series["label"] == "line" and series["points"] == [] and len(series["faded"]) == 2
    assert f'id="{series["ids"][0]}"' in part


def test_an_empty_figure_is_a_figure() -> None:
    assert "<svg" in interactive.interactive_figure(Drawing(), "Nothing", "f1")


def test_the_script_is_named_by_its_hash() -> None:
    text = html.html_page("t", [], interactive=True)
    assert re.search(r"script-src 'sha256-[\w+/]{43}='", text)
    assert "script-src" not in html.html_page("t", []) and "<script" not in html.html_page("t", [])


# --- in Chromium ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = require("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("pages are tested in Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


class Opened:
    """A page from the disk, and what it said and asked for."""

    def __init__(self, browser: Any, path: Any, text: str, **options: Any) -> None:
        path.write_text(text, encoding="utf-8")
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())


@pytest.fixture
def opened(browser: Any, tmp_path: Any) -> Iterator[Any]:
    pages_: list[Opened] = []

    def opener(text: str, **options: Any) -> Opened:
        pages_.append(Opened(browser, tmp_path / f"page{len(pages_)}.html", text, **options))
        return pages_[-1]

    yield opener
    for one in pages_:
        # whatever a test did: no errors, and nothing but the file itself and pictures inside it
        assert one.said == []
        assert [url for url in one.asked if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in one.asked if url.startswith("file:")]) == 1
        one.context.close()


@pytest.fixture(scope="module")
def answered() -> str:
    return pages.answers_page(answers(), "Answers")


@pytest.fixture(scope="module")
def reproduced() -> str:
    return experiments_page(outcomes())


def centre(page: Any, chart: str, series: int, point: int) -> tuple[float, float]:
    """Where a point of a chart is on the screen."""
    page.locator(chart).scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([chart, i, j]) => {
          const figure = document.querySelector(chart);
          const data = JSON.parse(figure.querySelector("script").textContent);
          const svg = figure.querySelector("svg");
          const place = new DOMPoint(...data.series[i].points[j].p);
          const at = place.matrixTransform(svg.getScreenCTM());
          return [at.x, at.y];
        }""",
        [chart, series, point],
    )
    return x, y


def test_figures_are_there_and_answer_to_the_mouse(opened: Any, answered: str) -> None:
    page = opened(answered).page
    assert page.locator("figure.chart svg").count() == 2
    tip = page.locator("#a1-1 .tip")
    assert not tip.is_visible()
    page.mouse.move(*centre(page, "#a1-1", 0, 1))
    assert tip.inner_text().split("\n") == ["line", "step: 2", "error: 0.25"]
    page.mouse.move(*centre(page, "#a1-1", 1, 2))
    assert tip.inner_text().split("\n") == ["other", "step: 3", "error: 0.75"]
    page.mouse.move(*centre(page, "#a2-1", 0, 1))
    said = page.locator("#a2-1 .tip").inner_text().split("\n")
    assert said == ["share", "x: b <c>", "share of rows: 3.5", "3.25 to 3.75"]
    assert not tip.is_visible()


def test_a_finger_is_enough(opened: Any, answered: str) -> None:
    page = opened(answered, has_touch=True, viewport={"width": 360, "height": 740}).page
    page.touchscreen.tap(*centre(page, "#a1-1", 0, 1))
    tip = page.locator("#a1-1 .tip")
    assert tip.inner_text().split("\n") == ["line", "step: 2", "error: 0.25"]
    box, frame = tip.bounding_box(), page.locator("#a1-1 .canvas").bounding_box()
    assert frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]


def test_zoom_and_reset(opened: Any, answered: str) -> None:
    page = opened(answered).page
    svg, canvas = page.locator("#a1-1 svg"), page.locator("#a1-1 .canvas")
    whole = svg.get_attribute("viewBox")

    def width() -> float:
        return float(svg.get_attribute("viewBox").split()[2])

    full = width()
    page.locator("#a1-1 [data-zoom=in]").click()
    assert width() < full
    before = svg.get_attribute("viewBox")
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 60, y + 20)
    page.mouse.up()
    assert svg.get_attribute("viewBox") != before and width() == float(before.split()[2])
    page.locator("#a1-1 [data-zoom=reset]").click()
    assert svg.get_attribute("viewBox") == whole
    # the wheel scrolls the page, until the chart is clicked
    page.mouse.move(x, y)
    page.mouse.wheel(0, -100)
    page.wait_for_timeout(50)
    assert width() == full
    page.locator("#a1-1 svg").click()
    page.mouse.wheel(0, -100)
    page.locator("#a1-1 .canvas.zoomed").wait_for()
    canvas.press("-")
    canvas.press("-")
    assert width() == full
    page.locator("#a1-1 [data-zoom=out]").click()
    assert svg.get_attribute("viewBox") == whole


def test_a_series_is_hidden_and_shown(opened: Any, answered: str) -> None:
    page = opened(answered).page
    button = page.locator('#a1-1 [data-series="line"]')
    drawn = page.locator("#a1-1-s0-0")
    assert button.get_attribute("aria-pressed") == "true" and drawn.is_visible()
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and not drawn.is_visible()
    page.mouse.move(*centre(page, "#a1-1", 0, 2))
    tip = page.locator("#a1-1 .tip")
    assert not tip.is_visible() or not tip.inner_text().startswith("line")
    button.click()
    assert drawn.is_visible()
    cloud = page.locator('#a2-1 [data-series="cloud"]')
    image = page.locator("#a2-1 image")
    assert image.count() == 1 and image.is_visible()
    cloud.click()
    assert not image.is_visible()


def test_the_keyboard_is_enough(opened: Any, answered: str) -> None:
    page = opened(answered).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#a1-1 [data-zoom=reset]").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "canvas"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    live = page.locator("#a1-1 [aria-live]")
    assert live.text_content() == "line, step: 1, error: 1.5"
    page.keyboard.press("ArrowRight")
    assert live.text_content() == "line, step: 2, error: 0.25"
    page.keyboard.press("ArrowDown")
    assert live.text_content() == "other, step: 2, error: 1"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert live.text_content() == "other, step: 3, error: 0.75"
    page.keyboard.press("ArrowDown")
    assert live.text_content() == "level, error: 2.25"
    assert page.locator("#a1-1 .tip").is_visible()
    page.keyboard.press("+")
    assert page.locator("#a1-1 .canvas.zoomed").count() == 1
    page.keyboard.press("0")
    assert page.locator("#a1-1 .canvas.zoomed").count() == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert not page.locator("#a1-1 .tip").is_visible()


def test_the_filter(opened: Any, reproduced: str) -> None:
    page = opened(reproduced).page
    rows, sections = page.locator("tr[data-standing]:visible"), page.locator("section:visible")
    assert rows.count() == sections.count() == 3
    page.get_by_role("button", name="not all holds (1)").click()
    assert rows.count() == sections.count() == 1
    assert sections.locator("h2").inner_text() == "Title two"
    pressed = page.locator('.filter [aria-pressed="true"]')
    assert pressed.count() == 1 and pressed.inner_text() == "not all holds (1)"
    assert page.locator("#shown").text_content() == "1 shown"
    page.get_by_role("button", name="all (3)", exact=True).click()
    assert rows.count() == sections.count() == 3
    page.locator('td a[href="#three"]').click()
    assert page.url.endswith("#three")


def test_the_button_copies(opened: Any, answered: str) -> None:
    page = opened(answered).page
    button = page.locator("button.copy").first
    button.click()
    page.locator("button.copy", has_text=re.compile("^(Copied|Marked: press Ctrl.C)$")).wait_for()
    page.locator("button.copy", has_text=re.compile("^Copy$")).wait_for()


@pytest.mark.parametrize("kind", ["answers", "experiments"])
def test_a_phone_does_not_scroll_sideways(opened: Any, request: Any, kind: str) -> None:
    text = request.getfixturevalue("answered" if kind == "answers" else "reproduced")
    page = opened(text, viewport={"width": 360, "height": 740}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.emulate_media(media="print")
    assert not page.locator("button").first.is_visible()


RATIOS = """() => {
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll("body *:not(svg *):not(script)")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [luminance(numbers(getComputedStyle(e).color)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    out.push([ratio, `${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`]);
  }
  return out;
}"""


@pytest.mark.parametrize("kind", ["answers", "experiments"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(opened: Any, request: Any, kind: str, scheme: str) -> None:
    text = request.getfixturevalue("answered" if kind == "answers" else "reproduced")
    page = opened(text, color_scheme=scheme).page
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert scheme == "light" or sum(map(int, re.findall(r"\d+", paper))) < 120
    ratios = page.evaluate(RATIOS)
    assert len(ratios) > 20
    assert [one for one in ratios if one[0] < 4.5] == []  # WCAG AA
    assert page.evaluate("getComputedStyle(document.querySelector('.canvas')).backgroundColor") == (
        "rgb(255, 255, 255)"
    )


@pytest.mark.parametrize("kind", ["answers", "experiments"])
def test_the_page_is_built_as_readers_aloud_need_it(opened: Any, request: Any, kind: str) -> None:
    text = request.getfixturevalue("answered" if kind == "answers" else "reproduced")
    page = opened(text).page
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("main").count() == 1 and page.locator("h1").count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
    unnamed = """() => [...document.querySelectorAll("svg, img, button")].filter((e) =>
      !(e.getAttribute("aria-label") || e.getAttribute("alt") || e.textContent.trim())).length"""
    assert page.evaluate(unnamed) == 0
    assert page.evaluate(
        "[...document.querySelectorAll('figure svg')].every(e => e.getAttribute('role') === 'img')"
    )
    tables = "[...document.querySelectorAll('table')].every(e => e.querySelector('th[scope]'))"
    assert page.evaluate(tables)


def test_without_scripts_the_pictures_are_there(opened: Any, answered: str) -> None:
    page = opened(answered, java_script_enabled=False).page
    assert page.locator("figure.chart svg").first.is_visible()
    assert page.locator("figure.chart svg > title").first.text_content().startswith("Three lines")
    assert page.locator("button:visible").count() == 0


@pytest.mark.slow
def test_a_script_in_the_data_would_not_run(browser: Any, tmp_path: Any) -> None:
    text = html.html_page("t", ["<script>document.title = 'broken'</script>"], interactive=True)
    one = Opened(browser, tmp_path / "page.html", text)
    assert one.page.title() == "t"
    assert any("Content Security Policy" in said for said in one.said)
    one.context.close()
