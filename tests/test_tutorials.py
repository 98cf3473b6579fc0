"""The tutorials run, and what they claim holds; so do the examples of theory and contributing."""

import doctest
import re
import runpy
import warnings
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("plot_*.py"))
PAGES = [*sorted((DOCS / "theory").glob("*.md")), DOCS.parent / "CONTRIBUTING.md"]


def test_eight_in_order() -> None:
    assert [int(path.stem.split("_")[1]) for path in TUTORIALS] == list(range(1, 9))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_claims_are_checked(path: Path) -> None:
    """A page says nothing that it does not check: an assertion for every few printed lines."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\nassert ") + text.count("\n    assert ") >= 5
    assert "What goes wrong" in text or "When it does not help" in text
    assert "Read next" in text or "next tutorial" in text


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_links_lead_to_pages(path: Path) -> None:
    for target in re.findall(r":doc:`[^`]*?/([\w/]+)>?`", path.read_text(encoding="utf-8")):
        if target.startswith("auto_"):
            folder, name = target.split("/", 1)
            assert (DOCS / folder.removeprefix("auto_") / f"{name}.py").exists(), target
        else:
            assert (DOCS / f"{target}.md").exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs(path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    plt.switch_backend("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a page shows the warnings that it is about, and no others
        warnings.filterwarnings("ignore", message=".*Agg.*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # others' own
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            plt.close("all")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(
        str(path), module_relative=False, optionflags=options, encoding="utf-8"
    )
    assert failed == 0 and tried > 0
