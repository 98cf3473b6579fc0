"""The recipes of CONTRIBUTING.md, run from the text: what they say is all that it takes."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = {
    title: body for title, body in re.findall(r"^## Add (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)
}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run(title: str) -> dict[str, Any]:
    """Run the examples of a recipe by themselves; the names that they leave."""
    blocks = re.findall(r"^```pycon\n(.*?)^```", RECIPES[title], re.S | re.M)
    assert blocks, f"the recipe for {title} shows no code"
    names: dict[str, Any] = {}
    exec("import numpy as np", names)
    test = doctest.DocTestParser().get_doctest("".join(blocks), names, title, "CONTRIBUTING.md", 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    assert result.failed == 0, "".join(said)
    return test.globs


def test_there_is_a_recipe_for_each_kind_of_extension() -> None:
    kinds = {"a kernel", "a basis", "a method of Bayes' rule", "a statistical test", "a model"}
    assert kinds <= set(RECIPES)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_runs_as_it_is_written(title: str) -> None:
    assert run(title)
