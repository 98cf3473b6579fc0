"""Hostile values at every public entry point: a right answer or an error from meanmap.

`make fuzz` runs 20,000 cases from a seed that it prints, half of them with several hostile values
at once; the tests run a few from a fixed one. A case that fails prints a line for `kept.py`, which
keeps it as a test, and `MEANMAP_FUZZ_CASE` runs it alone (with "several" as its argument and twist
if there were several):

    MEANMAP_FUZZ_CASE="mmd, X, huge entries, 3" pytest tests/fuzz -k alone
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzz.entries import ENTRIES, EXCUSED
from fuzz.hostile import FORMS, twists, values, wears
from fuzz.kept import KEPT, KEPT_VALUES, KNOWN
from fuzz.outcomes import Fault, flat, judge, judge_several, line, outcome, same
from fuzz.questions import QUESTIONS, UNASKED, every_name
from fuzz.relations import RELATIONS
from public import public_names

CASES = int(os.environ.get("MEANMAP_FUZZ_CASES", "640"))
SEED = int(os.environ.get("MEANMAP_FUZZ_SEED", "0"))
SEVERAL = max(2, CASES // 2 // len(ENTRIES))  # cases of an entry with several hostile arguments
EACH = max(2, CASES // 2 // len(ENTRIES))  # cases with one
DRAWN = max(1, EACH // 4)  # of them, arrays that Hypothesis makes up by itself

FUZZ = settings(
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)


@st.composite
def cases(draw: Any, name: str) -> tuple[str, str, str, int]:
    """An argument of an entry, a twist of it, and a seed."""
    good = ENTRIES[name].good
    argument = draw(st.sampled_from(sorted(good)))
    forms = [form for form in FORMS if wears(FORMS[form], good[argument])]
    forms = [form for form in forms if form not in ENTRIES[name].without]
    twist = draw(st.sampled_from([*twists(good[argument]), *forms]))
    return name, argument, twist, draw(st.integers(0, 2**31 - 1))


def run(case: tuple[str, str, str, int]) -> str:
    """The outcome of a case; a fault says how to have it again."""
    try:
        return judge_several(case[0], case[3]) if case[1] == "several" else judge(*case)
    except Fault as fault:
        again = ", ".join(map(str, case))
        raise AssertionError(
            f"{fault}\n\nkeep it in tests/fuzz/kept.py as\n{line(*case)}\nand have it again with\n"
            f'    MEANMAP_FUZZ_CASE="{again}" pytest tests/fuzz -k alone'
        ) from fault


@pytest.mark.parametrize("name", ENTRIES)
def test_catalogue(name: str) -> None:
    @seed(SEED)
    @settings(FUZZ, max_examples=EACH - DRAWN)
    @given(case=cases(name))
    def each(case: tuple[str, str, str, int]) -> None:
        run(case)

    each()


@pytest.mark.parametrize("name", ENTRIES)
def test_several(name: str) -> None:
    for number in range(SEVERAL):
        run((name, "several", "several", SEED % 2**31 * 1000 + number))


RELATED = [
    pytest.param(name, relation, marks=[pytest.mark.slow] if question.slow else [])
    for name, question in QUESTIONS.items()
    for relation in RELATIONS
    if question.holds(relation)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "relation"), RELATED, ids=lambda value: value)
def test_related(name: str, relation: str) -> None:
    plain, changed = QUESTIONS[name].both_answers(relation, SEED)
    same(flat(changed), flat(plain), QUESTIONS[name].rtol)


def test_every_public_name_is_asked_or_excused() -> None:
    asked = {name for question in QUESTIONS.values() for name in question.names}
    assert asked.isdisjoint(UNASKED)
    assert asked | set(UNASKED) == every_name()
    kinds = {kind for kind, _ in RELATIONS.values()}
    assert all(set(question.without) <= kinds for question in QUESTIONS.values())


@pytest.mark.parametrize("name", ENTRIES)
def test_drawn(name: str) -> None:
    good = ENTRIES[name].good

    @seed(SEED)
    @settings(FUZZ, max_examples=DRAWN)
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        argument = data.draw(st.sampled_from(sorted(good)), label="argument")
        value = data.draw(values(good[argument]), label="value")
        try:
            outcome(name, argument, value)
        except Fault as fault:
            if not any(place in str(fault) for place in KNOWN):
                raise

    each()


@pytest.mark.parametrize("case", KEPT, ids=lambda case: "-".join(map(str, case)))
def test_kept(case: tuple[str, str, str, int]) -> None:
    run(case)


@pytest.mark.parametrize("place", range(len(KEPT_VALUES)))
def test_kept_values(place: int) -> None:
    outcome(*KEPT_VALUES[place])


@pytest.mark.skipif("MEANMAP_FUZZ_CASE" not in os.environ, reason="no case is named")
def test_alone() -> None:
    name, argument, twist, number = os.environ["MEANMAP_FUZZ_CASE"].rsplit(", ", 3)
    print(run((name, argument, twist, int(number))))


@pytest.mark.parametrize("name", ENTRIES)
def test_good_values_are_answered(name: str) -> None:
    argument, good = next(iter(ENTRIES[name].good.items()))
    state, found = outcome(name, argument, good)
    assert state == "answered", found


def public() -> set[str]:
    """Every public callable that takes values of users."""
    from meanmap import comparison, kernels, spaces, streams

    modules: dict[str, Any] = {"kernels": kernels, "spaces": spaces}
    names = {f"{of}.{name}" for of, module in modules.items() for name in module.__all__}
    running = {name for name in comparison.__all__ if name.startswith("Running")}
    names |= {f"comparison.{name}" for name in running}
    names |= {
        f"streams.{name}"
        for name, value in vars(streams).items()
        if name in ("RunningEmbedding", "feed") and (inspect.isclass(value) or callable(value))
    }
    made = {"Product", "Scaled", "Sum", "Whitened"}  # by operators and by spaces
    return names | {f"kernels.{name}" for name in made} | set(public_names())


def test_every_public_name_is_registered_or_excused() -> None:
    covered = {name for entry in ENTRIES.values() for name in entry.names}
    assert covered.isdisjoint(EXCUSED)
    assert covered | set(EXCUSED) == public()


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that answers NaN, warns, hangs on to an argument or dies inside is caught."""
    from fuzz import outcomes
    from fuzz.entries import Entry

    def dies(v: Any) -> Any:
        return [][len(v.x)]

    def spoils(v: Any) -> Any:
        v.x[0] = 7.0
        return 1.0

    bad = {
        "NaN": lambda v: np.nan,
        "overflow": lambda v: np.float64(1e300) * np.array([1e300]),
        "IndexError": dies,
        "modified": spoils,
        "ValueError": lambda v: np.zeros(2) + np.zeros(3),
    }
    for text, call in bad.items():
        entry = Entry((), call, {"x": np.ones(2)}, 1e-10)
        monkeypatch.setitem(outcomes.ENTRIES, "bad", entry)
        with pytest.raises(Fault, match=text):
            outcome("bad", "x", np.ones(2))
