"""The package as a package: what importing it costs, its version, its names, its types."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from importlib import resources

import pytest

import meanmap
from public import PACKAGES, public_names


def run(code: str) -> str:
    """The output of a fresh interpreter that sees the same packages."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    return done.stdout


def test_importing_is_light() -> None:
    """Neither torch, dask nor matplotlib: they are extras, and slow to import."""
    heavy = ["torch", "dask", "distributed", "matplotlib", "cupy", "jax", "cvxpy"]
    loaded = run(
        "import sys, meanmap, meanmap.kernels, meanmap.spaces\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ).split()
    assert "meanmap" in loaded
    assert not set(heavy) & set(loaded)


NAMES = [
    "embed",
    "Embedding",
    "ConditionalEmbedding",
    "ConditionalOperator",
    "sum_rule",
    "chain_rule",
    "bayes_rule",
    "mmd",
    "hsic",
    "two_sample_test",
    "independence_test",
    "conditional_independence_test",
    "joint_independence_test",
    "conditional_two_sample_test",
    "goodness_of_fit_test",
    "KernelBayesFilter",
    "AdditiveFilter",
    "SpectralFilter",
    "KernelGraphicalModel",
    "BeliefPropagation",
    "KernelABC",
    "SupportMeasureClassifier",
    "SupportMeasureRegressor",
    "HSICSelector",
    "HSICClustering",
    "ColoredUnfolding",
    "EmbeddingDensity",
    "KernelMeanMatching",
    "TargetShift",
    "LocationScaleShift",
    "InvariantComponents",
    "kernels",
    "spaces",
    "save",
    "load",
]
WARNINGS = ["ApproximationWarning", "DataWarning", "SettingWarning"]


def test_the_top_level_has_the_names_of_the_contract() -> None:
    assert len(NAMES) == 35
    assert sorted(meanmap.__all__) == sorted([*NAMES, *WARNINGS])


def test_names_are_imported_when_asked_for() -> None:
    loaded = run(
        "import sys, meanmap\n"
        "print([name for name in sys.modules if name.startswith('meanmap.')])\n"
        "meanmap.learning.KernelPCA, meanmap.embed\n"
        "from meanmap import *\n"
        "print(embed is meanmap.embeddings.embed, kernels is meanmap.kernels)"
    )
    assert loaded.splitlines() == ["[]", "True True"]
    for name in meanmap.__all__:
        value = getattr(meanmap, name)
        home = meanmap if inspect.ismodule(value) else sys.modules[value.__module__]
        assert getattr(home, name) is value
    with pytest.raises(AttributeError, match="no attribute 'KernelPCB'"):
        meanmap.KernelPCB  # noqa: B018


def test_completion_shows_public_names_and_packages_alone() -> None:
    shown = set(dir(meanmap))
    packages = shown - set(meanmap.__all__) - {"__version__"}
    assert shown >= set(meanmap.__all__)
    assert packages >= {*PACKAGES, "conditional", "embeddings", "streams"}
    for name in packages:
        assert inspect.ismodule(getattr(meanmap, name))
        assert getattr(meanmap, name).__all__


def test_using_numpy_does_not_import_torch() -> None:
    loaded = run(
        "import sys, numpy as np, meanmap\n"
        "X = np.random.default_rng(0).normal(size=(20, 2))\n"
        "model = meanmap.ConditionalEmbedding().fit(X, X)\n"
        "model.posterior(meanmap.embed(X)).given(X).mode()\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    assert loaded.split() == ["False", "False"]


def test_importing_prints_and_warns_nothing() -> None:
    assert run("import warnings; warnings.simplefilter('error'); import meanmap") == ""


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|[abrc]+\d+)?", meanmap.__version__)
    try:
        installed = importlib.metadata.version("meanmap")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("meanmap is not installed here: pip install -e . to compare versions")
    assert installed == meanmap.__version__


def test_public_names_exist_and_are_documented() -> None:
    for name, value in public_names().items():
        assert value.__doc__, f"{name} has no docstring"
    for module in (meanmap.kernels, meanmap.spaces):
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name} has no docstring"


def test_public_names_have_an_example() -> None:
    """In their docstrings, where the tests run them."""
    shown = list(public_names().items())
    for module in (meanmap.kernels, meanmap.spaces):
        shown += [(f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__]
    for name, value in shown:
        if inspect.ismodule(value) or inspect.isclass(value) and issubclass(value, Warning):
            continue
        assert ">>>" in value.__doc__, f"{name} has no example"


def test_types_are_published() -> None:
    assert resources.files("meanmap").joinpath("py.typed").is_file()
