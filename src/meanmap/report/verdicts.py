"""From figures to words: the kind of shift, the evidence for it, and what to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from meanmap.comparison.results import show_pvalue
from meanmap.report.explanations import ENOUGH, Explanation
from meanmap.report.findings import ColumnShift, DependenceShift, Finding

DISJOINT = 0.5  # share of test rows unlike all training rows beyond which weights do not help
NAMED = 3  # columns named in a sentence

MATCHING = "KernelMeanMatching().fit(train, X_test=test).weights_ as sample_weight"
TARGETS = "TargetShift().fit(train, y, X_test=test).weights_ as sample_weight"
LOCATION = "LocationScaleShift, which learns the change of location and scale"
LABELS = "collect labels for test rows"
IF_MATCHING = "KernelMeanMatching is for the case that P(y|x) is the same"
IF_TARGETS = "TargetShift is for the case that P(x|y) is the same"
IF_LOCATION = "LocationScaleShift is for the same things measured differently"


@dataclass(frozen=True, eq=False)
class Figures:
    """Everything a verdict is based on."""

    level: float
    overall: Finding  # the test of whole rows
    columns: tuple[ColumnShift, ...]
    targets: tuple[Finding, ...] = ()  # tests that use targets of test rows
    given_targets: Finding | None = None  # P(x|y), tested if P(y|x) differs
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
        """Explanations that hold and are about equally good, the best first; none if it fails."""
        best = sorted((one for one in self.explanations if one.is_tied), key=lambda e: e.behind)
        holding = [one for one in best if one.holds(self.level)]
        return holding if holding[:1] == best[:1] else []

    @property
    def differing(self) -> list[ColumnShift]:
        """Columns that differ by themselves, with the largest effect first."""
        return [column for column in self.columns if column.adjusted <= self.level]

    @property
    def relation_differs(self) -> bool:
        """Whether P(y|x) differs: by its own test, or with weights that make the rows alike."""
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
    """The verdict: the best explanation, unless others are about as good."""
    if not f.any_shift:
        return no_shift(f)
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
        return ambiguous_shift(f)
    if f.tied:
        return KINDS[f.tied[0].name][1](f)
    tried = f.explanation("weights on rows")
    if tried is None or math.isnan(tried.explained):
        return small_shift(f)
    return no_explanation(f)


def x_differs(f: Figures) -> bool:
    return f.overall.adjusted <= f.level or bool(f.differing)


# --- the kinds ------------------------------------------------------------------------------------


def no_shift(f: Figures) -> Verdict:
    tests = 1 + len(f.columns) + len(f.targets) - (len(f.columns) == 1)
    words = f"No shift was detected: the rows as a whole have p = {show_pvalue(f.overall.adjusted)}"
    if len(f.columns) > 1:
        words += f", and none of the {len(f.columns)} columns differs significantly"
    words += f" ({tests} test{'s' if tests > 1 else ''}, joint level {f.level:g}). "
    return Verdict("no shift", words + labels_say(f, False), "No remedy is needed.")


def covariate_shift(f: Figures) -> Verdict:
    words = f"Covariate shift: P(x) differs{in_columns(f)}. {by_rows(f)} {unlike_rows(f)}"
    return Verdict("covariate shift", words + labels_say(f), conclude(f"Try {MATCHING}"))


def target_shift(f: Figures) -> Verdict:
    found = f.explanation("weights on targets")
    words = f"Target shift: P(y) differs{in_columns(f, ', and with it x')}. "
    words += evidence_of_targets(f) if f.labelled else ""
    if found is not None:
        words += f"Weights on the targets alone {explanation_words(found)}. "
    if not f.labelled:
        words += (
            "This is the best explanation, not a proof: other changes of P(x) and P(y|x) could "
            "look the same, and only targets of test rows (y_test) would tell. "
        )
    return Verdict("target shift", words.strip(), conclude(f"Try {TARGETS}"))


def dependence_shift(f: Figures) -> Verdict:
    found = f.dependence
    assert found is not None
    words = (
        "Dependence shift: no column differs by itself, but the rows do "
        f"(p = {show_pvalue(f.overall.adjusted)}). The dependence between columns differs "
        f"(p = {show_pvalue(found.pvalue)} with equal marginal distributions){found.change}. "
        f"{by_rows(f)} {unlike_rows(f)}"
    )
    ok = f.explains("weights on rows")
    remedy = f"Try {MATCHING}" if ok else f"Weights do not correct it: {LABELS}"
    return Verdict("dependence shift", words + labels_say(f), conclude(remedy))


def location_scale(f: Figures) -> Verdict:
    found = f.explanation("location and scale")
    assert found is not None
    words = (
        f"Location-scale shift: P(x) differs{in_columns(f)}. {unlike_rows(f)}A change of location "
        f"and scale of the columns would {explanation_words(found)}, which weights on training "
        "rows do not. This is a remedy if the columns were measured differently (another unit, a "
        "sensor's calibration); if the measured things have changed, only labels help. "
    )
    remedy = f"Try {LOCATION}, or {LABELS} if the measurement has not changed"
    return Verdict("location-scale shift", words + labels_say(f), conclude(remedy))


def disjoint(f: Figures) -> Verdict:
    words = (
        f"Disjoint supports: {f.outside:.0%} of the test rows are unlike all training rows"
        f"{in_columns(f, '; P(x) differs')}. Weights on training rows cannot replace rows that are "
        f"missing, and nothing is known about y for those test rows. {by_rows(f)}"
    )
    return Verdict("disjoint supports", words.strip(), conclude(f"{LABELS}, where they differ"))


def concept_shift(f: Figures) -> Verdict:
    found, pairs = f.finding("P(y|x)"), f.finding("rows with targets")
    weighted, rows = f.explanation("weights on rows"), f"{f.labelled:,} labelled test rows"
    if f.differs("P(y|x)") and found is not None:
        words = f"Concept shift: P(y|x) differs (p = {show_pvalue(found.adjusted)}, {rows}). "
    elif f.relation_differs and weighted is not None:
        words = (
            "Concept shift: with training rows weighted to look like test rows "
            f"(p = {show_pvalue(weighted.pvalue)}), rows with their targets still differ "
            f"(p = {show_pvalue(weighted.with_targets)}, {rows}). "
        )
    else:  # P(x, y) differs and P(x) does not
        p = f" (p = {show_pvalue(pairs.adjusted)}, {rows})" if pairs is not None else ""
        words = f"Concept shift: rows with their targets differ{p}, but rows alone do not. "
    if f.given_targets is not None:
        words += f"P(x|y) {'differs' if f.given_targets.pvalue <= f.level else 'does not differ'} "
        words += f"(p = {show_pvalue(f.given_targets.pvalue)}). "
    if x_differs(f):
        words += f"P(x) differs too{in_columns(f)}. "
    words += "What was learned from training rows does not hold for test rows."
    remedy = f"No weights on training rows correct it: {LABELS}, and learn from them"
    return Verdict("concept shift", words, conclude(remedy))


def ambiguous_shift(f: Figures) -> Verdict:
    """Several explanations that are about equally good."""
    kinds = [KINDS[one.name][0] for one in f.tied]
    parts = "; ".join(f"{one.name} {explanation_words(one)}" for one in f.tied)
    words = (
        f"Cannot tell which shift: {', '.join(kinds[:-1])} or {kinds[-1]} would explain it about "
        f"equally well. P(x) differs{in_columns(f)}. {unlike_rows(f)}{conclude(parts)} "
    )
    if not f.labelled:
        words += "Targets of some test rows (y_test) would tell."
    choices = conclude("; ".join(KINDS[one.name][2] for one in f.tied))
    remedy = f"{conclude(LABELS + ' before you choose')} {choices}"
    return Verdict("cannot tell", words.strip(), remedy, tuple(kinds))


def small_shift(f: Figures) -> Verdict:
    words = (
        f"Cannot tell which shift: P(x) differs{in_columns(f)}, but the shift or the samples are "
        "too small to test explanations on half of the rows. "
    )
    remedy = f"Try {MATCHING}, and compare with no weights"
    return Verdict("cannot tell", words + labels_say(f), conclude(remedy))


def no_explanation(f: Figures) -> Verdict:
    best = max(f.explanations, key=lambda one: one.explained)
    words = (
        f"Unexplained shift: P(x) differs{in_columns(f)}, and none of the simple changes explains "
        f"it. {unlike_rows(f)}At best, {best.name} {explanation_words(best)}. "
    )
    tool = f"Try {KINDS[best.name][3]}, which helps in part; {LABELS} to check"
    remedy = tool if best.explained >= ENOUGH else LABELS
    return Verdict("unexplained shift", words + labels_say(f), conclude(remedy))


#: By explanation: the kind, its verdict, when to choose it, and the tool.
KINDS: dict[str, tuple[str, Callable[[Figures], Verdict], str, str]] = {
    "weights on rows": ("covariate shift", covariate_shift, IF_MATCHING, MATCHING),
    "weights on targets": ("target shift", target_shift, IF_TARGETS, TARGETS),
    "location and scale": ("location-scale shift", location_scale, IF_LOCATION, LOCATION),
}


# --- phrases --------------------------------------------------------------------------------------


def explanation_words(one: Explanation) -> str:
    """How much an explanation explains, whether the rest is significant, and what it found."""
    rest = "too few rows are left to test the rest"
    if not math.isnan(one.pvalue):
        rest = f"the rest has p = {show_pvalue(one.pvalue)}"
    words = f"explain {max(one.explained, 0.0):.0%} of the difference ({rest})"
    return f"{words}: {one.found}" if one.found else words


def in_columns(f: Figures, before: str = "") -> str:
    """The columns that differ most, and how."""
    named = [f"{column.name}{change_in_words(column)}" for column in f.differing[:NAMED]]
    more = len(f.differing) - len(named)
    rest = f" and {more} more columns" if more else ""
    return f"{before} in {', '.join(named)}{rest}" if named else ""


def change_in_words(column: ColumnShift) -> str:
    """How a column changed, in a few words."""
    if math.isnan(column.difference):
        return f" ({column.where})" if column.where else ""
    if abs(column.difference) >= 0.1:
        way = "higher" if column.difference > 0 else "lower"
        return f" (mean {abs(column.difference):.1f} standard deviations {way})"
    return f" (standard deviation × {column.spread:.2g})"


def by_rows(f: Figures) -> str:
    found = f.explanation("weights on rows")
    if found is None or math.isnan(found.explained):
        return ""
    size = f"their effective sample size is {found.effective_size:.0f} of {found.size} rows"
    return f"Weights on training rows {explanation_words(found)}; {size}."


def unlike_rows(f: Figures) -> str:
    if math.isnan(f.outside):
        return ""
    return f"{f.outside:.0%} of the test rows are unlike all training rows. "


def evidence_of_targets(f: Figures) -> str:
    found = [(name, f.finding(name)) for name in ("targets", "P(y|x)")]
    words = [f"{name} (p = {show_pvalue(one.adjusted)})" for name, one in found if one is not None]
    if f.given_targets is not None:
        words.append(f"P(x|y), which does not differ (p = {show_pvalue(f.given_targets.pvalue)})")
    return f"Tests on {f.labelled:,} labelled test rows: {', '.join(words)}. "


def labels_say(f: Figures, shift: bool = True) -> str:
    """What is known about P(y|x), which x alone cannot show."""
    found, weighted = f.finding("P(y|x)"), f.explanation("weights on rows")
    if found is not None:
        words = f"P(y|x) shows no difference on {f.labelled:,} labelled test rows "
        words += f"(p = {show_pvalue(found.adjusted)}"
        if weighted is not None and not math.isnan(weighted.with_targets):
            words += f", and {show_pvalue(weighted.with_targets)} for weighted rows with targets"
        return words + ")."
    if not shift:
        return (
            "Without targets of test rows (y_test) it is unknown whether P(y|x) differs: concept "
            "shift alone leaves no trace in x."
        )
    return (
        "Without targets of test rows (y_test), covariate and concept shift cannot be told apart: "
        "what is learned from training rows holds if P(y|x) is the same."
    )


def conclude(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
