"""A page of the papers' experiments: published figures beside ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from meanmap.experiments.results import Cell, Figure, Outcome, Table, shown
from meanmap.report import html, interactive, pictures
from meanmap.report.pages import footer

#: What lines of verdicts say of claims that were tried; the experiments share these words.
AGAINST = re.compile(r"does not hold|\(not reached\)|worse than|not below|Not so: (?!nowhere)")
FOR = re.compile(r"\bholds?\b|\(reached\)|better than|\bbelow it at every|Not so: nowhere")
NOTHING: Mapping[str, str] = {}
STANDINGS = {
    "holds": "holds",
    "fails": "not all holds",
    "figures": "figures only",
}

EXPLAINED = (
    "Every line of a verdict is computed from the figures. ✓ stands before a claim that holds, ✗ "
    "before one that does not, or before a rival that does better; other lines are figures only."
)


def experiments_page(outcomes: Sequence[Outcome], left_out: Mapping[str, str] = NOTHING) -> str:
    """One self-contained page of experiments: published figures, ours, pictures, verdicts.

    `left_out` has the names of those that could not be run, and why.
    """
    outcomes = list(outcomes)
    title = "The experiments of the papers, reproduced"
    parts = [html.paragraph(EXPLAINED), summary(outcomes)]
    parts += [html.paragraph(f"Not run: {name}. {why}") for name, why in left_out.items()]
    for outcome in outcomes:
        parts.append(f'<section data-standing="{standing(outcome)}">')
        parts += experiment(outcome)
        parts.append("</section>")
    return html.html_page(title, [*parts, footer()], interactive=True)


def summary(outcomes: Sequence[Outcome]) -> str:
    """A row an experiment with a link to it, and buttons that choose among them."""
    counts = {name: sum(standing(one) == name for one in outcomes) for name in STANDINGS}
    buttons = [("", f"all ({len(outcomes)})")]
    buttons += [(name, f"{words} ({counts[name]})") for name, words in STANDINGS.items()]
    shown_first = ' aria-pressed="true"'
    choices = "".join(
        f'<button type="button" data-show="{name}"{NOT_PRESSED if name else shown_first}>'
        f"{escape(words)}</button>"
        for name, words in buttons
    )
    head = "".join(
        f'<th scope="col"{html.NUMBER if words == "ratio" else ""}>{words}</th>'
        for words in ("experiment", "verdict", "published", "ours", "ratio")
    )
    rows = "\n".join(map(summary_row, outcomes))
    return (
        f'<div class="filter" role="group" aria-label="Show experiments" hidden>{choices}</div>\n'
        f'<div class="wide summary"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n'
        '</tbody></table></div>\n<p class="unseen" aria-live="polite" id="shown"></p>'
    )


NOT_PRESSED = ' aria-pressed="false"'


def summary_row(outcome: Outcome) -> str:
    published, ours, share = published_and_ours(outcome)
    kind = standing(outcome)
    style = {"holds": "good", "fails": "bad", "figures": "neither"}[kind]
    name = escape(outcome.name)
    return (
        f'<tr data-standing="{kind}"><td><a href="#{name}">{escape(outcome.title)}</a></td>'
        f'<td><span class="{style}">{STANDINGS[kind]}</span></td>'
        f"<td>{escape(published)}</td><td>{escape(ours)}</td>"
        f'<td class="number">{escape(share)}</td></tr>'
    )


def published_and_ours(outcome: Outcome) -> tuple[str, str, str]:
    """The published figure, ours and their ratio; the paper's words where it has no figure."""
    for table in outcome.tables:
        for row, figure in zip(table.rows, table.published, strict=False):
            ours = own(row)
            if figure is not None and ours is not None:
                return shown(figure), f"{shown(ours)} ({row[0]})", ratio(ours, figure)
    said = [line for line in outcome.verdict if line.startswith("Published:")]
    own_words = [line for line in outcome.verdict if not line.startswith("Published:")]
    published = said[0].removeprefix("Published:").strip() if said else "no figure"
    return published, own_words[0] if own_words else "", ""


def own(row: Sequence[Cell]) -> Cell:
    """The first figure of a row."""
    return next((cell for cell in row[1:] if isinstance(cell, int | float | Figure)), None)


def ratio(ours: Cell, published: Cell) -> str:
    """Ours over the published figure, nothing where either is no number."""
    pair = [cell.mean if isinstance(cell, Figure) else cell for cell in (ours, published)]
    if not all(isinstance(value, int | float) for value in pair) or not pair[1]:
        return ""
    return f"{pair[0] / pair[1]:.2f}"  # type: ignore[operator]


def standing(outcome: Outcome) -> str:
    """Whether everything that was claimed holds, by the words of the verdict."""
    said = [line_class(line) for line in outcome.verdict]
    return "fails" if "fails" in said else "holds" if "holds" in said else "figures"


def line_class(line: str) -> str:
    if line.startswith("Published:"):
        return "figures"
    return "fails" if AGAINST.search(line) else "holds" if FOR.search(line) else "figures"


def experiment(outcome: Outcome) -> list[str]:
    """All of one experiment."""
    title = f"{outcome.title} (quick)" if outcome.quick else outcome.title
    parts = [html.heading(title, 2, outcome.name), html.paragraph(outcome.citation, quiet=True)]
    if outcome.verdict:
        items = "\n".join(f"<li>{verdict_line(line)}</li>" for line in outcome.verdict)
        parts += [html.heading("Verdict", 3), f'<ul class="verdict">\n{items}\n</ul>']
    drawn = pictures.outcome(outcome)
    if drawn is not None:
        words = f"{outcome.title}: {pictures.figure_in_words(drawn)}"
        parts.append(interactive.interactive_figure(drawn, words, f"e-{outcome.name}"))
    parts.append(html.heading("Numbers", 3))
    parts += map(figures, outcome.tables)
    if outcome.settings:
        parts.append(html.details("Settings", [html.html_pairs(outcome.settings)]))
    parts += [html.heading("Run it again", 3), html.command(reproduce_command(outcome))]
    return parts


def verdict_line(line: str) -> str:
    kind = line_class(line)
    if kind == "figures":
        return escape(line)
    style, mark = ("good", "✓") if kind == "holds" else ("bad", "✗")
    words = f'role="img" aria-label="{STANDINGS[kind]}"'
    return f'<span class="{style}" {words}>{mark}</span> {escape(line)}'


def figures(table: Table) -> str:
    """A table with its published figures, and ours over them."""
    headings, cells = list(table.columns), [list(map(shown, row)) for row in table.cells]
    if table.published:
        headings.append("ours over published")
        for row, words, figure in zip(table.rows, cells, table.published, strict=True):
            words.append(ratio(own(row), figure))
    return html.html_table(headings, cells, table.title, range(1, len(headings)))


def reproduce_command(outcome: Outcome) -> str:
    words = ["meanmap reproduce", outcome.name]
    words += ["--quick"] if outcome.quick else []
    words += [f"--seed {outcome.seed}"] if outcome.seed else []
    return " ".join(words)
