"""The files around the package agree with it: the conda recipe, the citation, the install page."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

import meanmap

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "conda" / "meta.yaml"
# Names that differ between the Python package index and conda.
CONDA_NAMES = {"matplotlib": "matplotlib-base", "torch": "pytorch", "flit_core": "flit-core"}

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="not a checkout of the repository")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def recipe_list(section: str) -> set[str]:
    """The requirements under a heading of the recipe, without spaces."""
    text = RECIPE.read_text(encoding="utf-8")
    block = re.search(rf"^  {section}:\n((?:    - .*\n)+)", text, flags=re.MULTILINE)
    assert block is not None
    return {line.strip("- ").replace(" ", "") for line in block[1].splitlines()}


def conda_names(requirements: list[str]) -> set[str]:
    pairs = (re.fullmatch(r"([\w-]+)(?:\[[^]]*\])?(.*)", line) for line in requirements)
    return {CONDA_NAMES.get(pair[1], pair[1]) + pair[2] for pair in pairs if pair}


def test_conda_recipe_has_the_requirements_of_the_package() -> None:
    settings = project()
    python = "python" + settings["project"]["requires-python"]
    assert recipe_list("run") == {python} | conda_names(settings["project"]["dependencies"])
    builders = conda_names(settings["build-system"]["requires"])
    assert recipe_list("host") == {python, "pip"} | builders
    extras = settings["project"]["optional-dependencies"]
    users = [line for name in ("plot", "cli", "torch", "dask", "convex") for line in extras[name]]
    assert recipe_list("run_constrained") == conda_names(users)
    (name,) = settings["project"]["scripts"]
    assert f"- {name} = {settings['project']['scripts'][name]}\n" in RECIPE.read_text("utf-8")


def test_wheel_asks_for_what_the_recipe_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = pytest.importorskip("flit_core.buildapi")
    monkeypatch.chdir(ROOT)
    wheel = build.build_wheel(str(tmp_path))
    (found,) = importlib.metadata.distributions(path=[str(tmp_path / wheel)])
    needed = [line.replace(" ", "") for line in found.requires or [] if "extra ==" not in line]
    assert {"python>=3.11"} | conda_names(needed) == recipe_list("run")
    assert found.version == meanmap.__version__


def test_one_version_everywhere() -> None:
    version = meanmap.__version__
    assert f'version = "{version}"' in RECIPE.read_text("utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    wheels = re.findall(r"meanmap-([\d.]+)-py3", (ROOT / "docs/installing.md").read_text("utf-8"))
    assert wheels and set(wheels) == {version}


def test_install_page_lists_the_extras() -> None:
    text = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
    developers = {"docs", "bench", "test", "lint"}
    assert listed == set(project()["project"]["optional-dependencies"]) - developers


def test_forms_can_be_read() -> None:
    yaml = pytest.importorskip("yaml")
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        names = [part["id"] for part in form["body"]]
        assert len(set(names)) == len(names)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert all({"type", "title", "authors"} <= set(entry) for entry in citation["references"])
