"""A page of the papers' experiments: published figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from meanmap.report import html, interactive
from meanmap.report.pages import footer
from meanmap_experiments.results import Cell, Claim, Figure, Outcome, Table, shown

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
    quoted = [claim.published for claim in outcome.verdict if claim.published is not None]
    own_words = [claim.text for claim in outcome.verdict if claim.published is None]
    return shown(quoted[0]) if quoted else "no figure", own_words[0] if own_words else "", ""


def own(row: Sequence[Cell]) -> Cell:
    """The first figure of a row."""
    return next((cell for cell in row[1:] if isinstance(cell, int | float | Figure)), None)


def ratio(ours: Cell, published: Cell) -> str:
    """Ours over the published figure, nothing where either is no number."""
    pair = [cell.mean if isinstance(cell, Figure) else cell for cell in (ours, published)]
    if not all(isinstance(value, int | float) for value in pair) or not pair[1]:
        return ""
    return f"{pair[0] / pair[1]:.2f}"  # type: ignore[operator]


def standing(judged: Outcome | Claim) -> str:
    """Whether a claim, or everything that an experiment claims, holds: a word of `STANDINGS`."""
    return {True: "holds", False: "fails", None: "figures"}[judged.holds]


def experiment(outcome: Outcome) -> list[str]:
    """All of one experiment."""
    title = f"{outcome.title} (quick)" if outcome.quick else outcome.title
    parts = [html.heading(title, 2, outcome.name), html.paragraph(outcome.citation, quiet=True)]
    if outcome.verdict:
        items = "\n".join(f"<li>{verdict_line(claim)}</li>" for claim in outcome.verdict)
        parts += [html.heading("Verdict", 3), f'<ul class="verdict">\n{items}\n</ul>']
    drawn = draw_outcome(outcome)
    if drawn is not None:
        words = f"{outcome.title}: {figure_in_words(drawn)}"
        parts.append(interactive.interactive_figure(drawn, words, f"e-{outcome.name}"))
    parts.append(html.heading("Numbers", 3))
    parts += map(figures, outcome.tables)
    if outcome.settings:
        parts.append(html.details("Settings", [html.html_pairs(outcome.settings)]))
    parts += [html.heading("Run it again", 3), html.command(reproduce_command(outcome))]
    return parts


def draw_outcome(found: Outcome) -> Any:
    """The picture of an experiment, or None if it has no picture."""
    if found.picture is None:
        return None
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    drawn = np.ravel(np.asarray(found.plot(), dtype=object))[0].figure
    plt.close(drawn)
    return drawn


def verdict_line(claim: Claim) -> str:
    if claim.holds is None:
        return escape(claim.text)
    style, mark = ("good", "✓") if claim.holds else ("bad", "✗")
    words = f'role="img" aria-label="{STANDINGS[standing(claim)]}"'
    return f'<span class="{style}" {words}>{mark}</span> {escape(claim.text)}'


def figures(table: Table) -> str:
    """A table with its published figures, and ours over them."""
    headings, cells = list(table.columns), [list(map(shown, row)) for row in table.cells]
    if table.published:
        headings.append("ours over published")
        for row, words, figure in zip(table.rows, cells, table.published, strict=True):
            words.append(ratio(own(row), figure))
    return html.html_table(headings, cells, table.title, range(1, len(headings)))


def reproduce_command(outcome: Outcome) -> str:
    options = ["--quick"] if outcome.quick else []
    options += [f"--seed {outcome.seed}"] if outcome.seed else []
    return f"make reproduce NAME={outcome.name}" + (
        f' ARGS="{" ".join(options)}"' if options else ""
    )


def figure_in_words(drawn: Any) -> str:
    """What a figure shows, from its titles and axes."""
    said = []
    for ax in drawn.axes:
        if ax.get_label() == "<colorbar>" or not (ax.get_xlabel() or ax.get_ylabel()):
            continue
        names = [name for name in (ax.get_ylabel(), ax.get_xlabel()) if name]
        title = f"{ax.get_title()}: " if ax.get_title() else ""
        said.append(title + " against ".join(names))
    return "; ".join(dict.fromkeys(said)) or "a picture"
