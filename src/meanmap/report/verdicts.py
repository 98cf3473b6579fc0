"""From figures to words: which shift it looks like, on what evidence, and what to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from meanmap.comparison.results import show_pvalue
from meanmap.report.explanations import ENOUGH, Explanation
from meanmap.report.findings import ColumnShift, DependenceShift, Finding

DISJOINT = 0.5  # share of test rows unlike all training rows, above which weights are no remedy
NAMED = 3  # columns that a sentence names

MATCHING = "KernelMeanMatching().fit(train, X_test=test).weights_ as sample_weight"
TARGETS = "TargetShift().fit(train, y, X_test=test).weights_ as sample_weight"
LOCATION = "LocationScaleShift, which learns the change of location and scale"
LABELS = "collect labels of test rows"


@dataclass(frozen=True, eq=False)
class Figures:
    """All that a verdict rests on."""

    level: float
    overall: Finding  # the test of whole rows
    columns: tuple[ColumnShift, ...]
    targets: tuple[Finding, ...] = ()  # tests that need targets of test rows
    given_targets: Finding | None = None  # P(x|y), tested where P(y|x) differs
    dependence: DependenceShift | None = None
    explanations: tuple[Explanation, ...] = ()
    outside: float = math.nan
    labelled: int = 0

    def finding(self, name: str) -> Finding | None:
        return next((one for one in self.targets if one.name == name), None)

    def differs(self, name: str) -> bool:
        """Whether a test with targets rejects, after the correction."""
        found = self.finding(name)
        return found is not None and found.adjusted <= self.level

    def explanation(self, name: str) -> Explanation | None:
        return next((one for one in self.explanations if one.name == name), None)

    def explains(self, name: str) -> bool:
        found = self.explanation(name)
        return found is not None and found.holds(self.level)

    @property
    def tied(self) -> list[Explanation]:
        """Explanations that cannot be told apart, the best first; none if even that fails."""
        best = sorted((one for one in self.explanations if one.is_tied), key=lambda e: e.behind)
        return best if best and best[0].holds(self.level) else []

    @property
    def differing(self) -> list[ColumnShift]:
        """Columns that differ by themselves, the largest effect first."""
        return [column for column in self.columns if column.adjusted <= self.level]

    @property
    def relation_differs(self) -> bool:
        """Whether P(y|x) differs: by its own test, or where weights make the rows alike."""
        found = self.explanation("weights on rows")
        if self.differs("P(y|x)"):
            return True
        return found is not None and found.pvalue > self.level >= found.with_targets

    @property
    def any_shift(self) -> bool:
        return bool(
            self.overall.adjusted <= self.level
            or self.differing
            or any(one.adjusted <= self.level for one in self.targets)
        )


@dataclass(frozen=True)
class Verdict:
    """A kind of shift, in words, and what to try."""

    kind: str
    verdict: str
    remedy: str
    candidates: tuple[str, ...] = ()


def verdict(f: Figures) -> Verdict:
    """The verdict: the best explanation, unless others explain the shift as well."""
    if not f.any_shift:
        return none(f)
    if f.relation_differs:
        given = f.given_targets
        same = given is not None and given.pvalue > f.level and f.differs("targets")
        return target_shift(f) if same else concept_shift(f)
    if f.labelled and not x_differs(f):
        return target_shift(f) if f.differs("targets") else concept_shift(f)
    if f.outside > DISJOINT:
        return location_scale(f) if f.explains("location and scale") else disjoint(f)
    if not f.differing and f.dependence is not None and f.dependence.pvalue <= f.level:
        return dependence_shift(f)
    if f.labelled and f.explains("weights on rows"):  # and P(y|x) is the same
        return covariate_shift(f)
    if len(f.tied) > 1:
        return tie(f)
    if f.tied:
        return KINDS[f.tied[0].name][1](f)
    tried = f.explanation("weights on rows")
    if tried is None or math.isnan(tried.explained):
        return slight(f)
    return no_explanation(f)


def x_differs(f: Figures) -> bool:
    return f.overall.adjusted <= f.level or bool(f.differing)


# --- the kinds ------------------------------------------------------------------------------------


def none(f: Figures) -> Verdict:
    tests = 1 + len(f.columns) + len(f.targets) - (len(f.columns) == 1)
    words = f"No shift is seen: the rows as a whole have p = {finding_pvalue(f.overall)}"
    if len(f.columns) > 1:
        words += f", and none of {len(f.columns)} columns differs"
    words += f" ({tests} test{'s' if tests > 1 else ''}, level {f.level:.0%} for all together). "
    words += labels_say(f, "P(y|x)")
    return Verdict("no shift", words.strip(), "None is needed for what was seen.")


def covariate_shift(f: Figures) -> Verdict:
    words = f"Covariate shift: P(x) differs{in_columns(f)}. {by_rows(f)} {rest(f)}"
    return Verdict("covariate shift", words + labels_say(f), conclude(f"Try {MATCHING}"))


def target_shift(f: Figures) -> Verdict:
    found = f.explanation("weights on targets")
    words = f"Target shift: P(y) differs{in_columns(f, ', and with it x')}. "
    if f.labelled:
        words += evidence_of_targets(f)
    if found is not None:
        words += (
            f"Weights on the targets alone explain {share(found)} of the difference of the rows"
            f"{rest_in_words(found)}"
        )
        words += f": {found.found}. " if found.found else ". "
    if f.labelled:
        return Verdict("target shift", words.strip(), conclude(f"Try {TARGETS}"))
    words += (
        "This is the best explanation and no proof: other changes of P(x) and P(y|x) could look "
        "like it, and only targets of test rows (y_test) tell. "
    )
    return Verdict("target shift", words.strip(), conclude(f"Try {TARGETS}"))


def dependence_shift(f: Figures) -> Verdict:
    found = f.dependence
    assert found is not None
    words = (
        "Dependence shift: no column differs by itself, yet the rows do "
        f"(p = {finding_pvalue(f.overall)}); how columns go together differs "
        f"(p = {show_pvalue(found.pvalue)} with all columns brought to one distribution)"
    )
    if found.pair is not None:
        a, b = found.correlations
        words += (
            f", most in the rank correlation of {found.pair[0]} and {found.pair[1]}: "
            f"{a:.2f} → {b:.2f}"
        )
    words += f". {by_rows(f)} {rest(f)}"
    ok = f.explains("weights on rows")
    remedy = f"Try {MATCHING}" if ok else f"Weights do not mend it: {LABELS}"
    return Verdict("dependence shift", words + labels_say(f), conclude(remedy))


def location_scale(f: Figures) -> Verdict:
    found = f.explanation("location and scale")
    assert found is not None
    words = f"Location-scale shift: P(x) differs{in_columns(f)}. {rest(f)}"
    words += (
        f"Another location and scale of the columns explain {share(found)} of the difference"
        f"{rest_in_words(found)}, which weights on training rows do not. It is a repair if those "
        "columns were measured otherwise (a unit, a sensor's calibration); if the things measured "
        "have changed, only labels help. "
    )
    remedy = f"Try {LOCATION}, or {LABELS} if the measurement has not changed"
    return Verdict("location-scale shift", words + labels_say(f), conclude(remedy))


def disjoint(f: Figures) -> Verdict:
    words = (
        f"Disjoint supports: {f.outside:.0%} of the test rows are unlike all training rows"
        f"{in_columns(f, '; P(x) differs')}. No weights on training rows make up for rows that are "
        f"not there, and what y does among those test rows cannot be told. {by_rows(f)}"
    )
    return Verdict("disjoint supports", words.strip(), conclude(f"{LABELS}, where they differ"))


def concept_shift(f: Figures) -> Verdict:
    found, pairs = f.finding("P(y|x)"), f.finding("rows with targets")
    weighted, rows = f.explanation("weights on rows"), f"{f.labelled:,} labelled test rows"
    if f.differs("P(y|x)") and found is not None:
        words = f"Concept shift: P(y|x) differs (p = {finding_pvalue(found)}, {rows}). "
    elif f.relation_differs and weighted is not None:
        words = (
            "Concept shift: with training rows weighted to look like test rows "
            f"(p = {show_pvalue(weighted.pvalue)}), rows with their targets still differ "
            f"(p = {show_pvalue(weighted.with_targets)}, {rows}). "
        )
    else:  # P(x, y) differs and P(x) does not
        p = f" (p = {finding_pvalue(pairs)}, {rows})" if pairs is not None else ""
        words = f"Concept shift: rows with their targets differ{p}, and rows alone do not. "
    if f.given_targets is not None:
        words += f"P(x|y) {'differs' if f.given_targets.pvalue <= f.level else 'does not differ'} "
        words += f"(p = {show_pvalue(f.given_targets.pvalue)}). "
    if x_differs(f):
        words += f"P(x) differs too{in_columns(f)}. "
    words += "The relation that was learned from training rows does not hold for test rows."
    remedy = f"No weights on training rows mend it: {LABELS}, and learn from them"
    return Verdict("concept shift", words, conclude(remedy))


def tie(f: Figures) -> Verdict:
    """Several explanations that cannot be told apart."""
    kinds = [KINDS[one.name][0] for one in f.tied]
    parts = []
    for one in f.tied:
        found = f": {one.found}" if one.found else ""
        parts.append(
            f"{one.name} explain {share(one)} of the difference{rest_in_words(one)}{found}"
        )
    words = (
        f"Cannot tell which shift: {alternatives(kinds)} would explain it about equally well. P(x) "
        f"differs{in_columns(f)}. {rest(f)}{conclude('; '.join(parts))} "
    )
    if not f.labelled:
        words += "Targets of some test rows (y_test) would tell."
    remedy = "; ".join(f"{KINDS[one.name][2]}" for one in f.tied)
    remedy = f"{LABELS} before you choose. {conclude(remedy)[:-1]}"
    return Verdict("cannot tell", words.strip(), conclude(remedy), tuple(kinds))


def slight(f: Figures) -> Verdict:
    words = (
        f"Cannot tell which shift: P(x) differs{in_columns(f)}, but the shift is too slight or the "
        "samples are too small for halves of the rows to tell what would explain it. "
    )
    remedy = f"Try {MATCHING}, and compare with no weights"
    return Verdict("cannot tell", words + labels_say(f), conclude(remedy))


def no_explanation(f: Figures) -> Verdict:
    best = max(f.explanations, key=lambda one: one.explained)
    words = (
        f"A shift that none of the simple changes explains: P(x) differs{in_columns(f)}. {rest(f)}"
        f"Best are {best.name}, with {share(best)} of the difference{rest_in_words(best)}. "
    )
    partly = best.explained >= ENOUGH
    tool = KINDS[best.name][3]
    remedy = f"Try {tool}, which helps in part; {LABELS} to check" if partly else LABELS
    return Verdict("unexplained shift", words + labels_say(f), conclude(remedy))


#: By explanation: the kind, its verdict, when to choose it, and the tool.
KINDS: dict[str, tuple[str, Callable[[Figures], Verdict], str, str]] = {
    "weights on rows": (
        "covariate shift",
        covariate_shift,
        "KernelMeanMatching is for a P(y|x) that is the same",
        MATCHING,
    ),
    "weights on targets": (
        "target shift",
        target_shift,
        "TargetShift is for a P(x|y) that is the same",
        TARGETS,
    ),
    "location and scale": (
        "location-scale shift",
        location_scale,
        "LocationScaleShift is for the same things measured otherwise",
        LOCATION,
    ),
}


# --- phrases --------------------------------------------------------------------------------------


def finding_pvalue(finding: Finding) -> str:
    return show_pvalue(finding.adjusted)


def share(found: Explanation) -> str:
    return f"{max(found.explained, 0.0):.0%}"


def rest_in_words(found: Explanation) -> str:
    if math.isnan(found.pvalue):
        return " (too few rows are left to test the rest)"
    return f" (what is left: p = {show_pvalue(found.pvalue)})"


def in_columns(f: Figures, before: str = "") -> str:
    """The columns that differ most, with what a person would say of them."""
    found = f.differing
    if not found:
        return ""
    named = [f"{column.name}{change_in_words(column)}" for column in found[:NAMED]]
    more = len(found) - len(named)
    return f"{before} in {', '.join(named)}" + (f" and {more} more columns" if more else "")


def change_in_words(column: ColumnShift) -> str:
    """What a column did, in a few words."""
    if math.isnan(column.difference):
        return f" ({column.where})" if column.where else ""
    if abs(column.difference) >= 0.1:
        way = "higher" if column.difference > 0 else "lower"
        return f" (mean {abs(column.difference):.1f} deviations {way})"
    return f" (deviation × {column.spread:.2g})"


def by_rows(f: Figures) -> str:
    found = f.explanation("weights on rows")
    if found is None or math.isnan(found.explained):
        return ""
    return (
        f"Weights on training rows explain {share(found)} of the difference{rest_in_words(found)} "
        f"and rest on about {found.effective_size:.0f} of {found.size} rows."
    )


def rest(f: Figures) -> str:
    if math.isnan(f.outside):
        return ""
    return f"{f.outside:.0%} of the test rows are unlike all training rows. "


def evidence_of_targets(f: Figures) -> str:
    words = []
    for name in ("targets", "P(y|x)"):
        found = f.finding(name)
        if found is not None:
            words.append(f"{name}: p = {finding_pvalue(found)}")
    if f.given_targets is not None:
        words.append(f"P(x|y), which does not differ: p = {show_pvalue(f.given_targets.pvalue)}")
    return f"On {f.labelled:,} labelled test rows: {', '.join(words)}. "


def labels_say(f: Figures, about: str = "") -> str:
    """What is known of P(y|x), which x alone cannot tell."""
    found = f.finding("P(y|x)")
    if found is not None:
        weighted = f.explanation("weights on rows")
        words = f"P(y|x) shows no difference on {f.labelled:,} labelled test rows "
        words += f"(p = {finding_pvalue(found)}"
        if weighted is not None and not math.isnan(weighted.with_targets):
            words += f", and {show_pvalue(weighted.with_targets)} for weighted rows with targets"
        return words + ")."
    if about:
        return (
            "Whether P(y|x) differs cannot be told without targets of test rows (y_test): concept "
            "shift alone leaves no trace in x."
        )
    return (
        "Covariate and concept shift cannot be told apart without targets of test rows (y_test): "
        "what is learned from training rows holds if P(y|x) is the same."
    )


def alternatives(words: list[str]) -> str:
    """Words in a row: a, b or c."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def conclude(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
