"""The package as a package: what importing it costs, its version, its names, its types."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module, resources

import pytest

import meanmap


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


def test_everything_is_imported_when_asked_for() -> None:
    loaded = run("import sys, meanmap; print('numpy' in sys.modules); meanmap.KernelPCA")
    assert loaded.split() == ["False"]  # else the command line could not answer Ctrl-C at once
    for package, names in meanmap._LATER.items():
        module = import_module(f"meanmap.{package}")
        assert "." in package or getattr(meanmap, package) is module
        for name in names:
            assert getattr(meanmap, name) is getattr(module, name)
            assert name in meanmap.__all__
        # what type checkers are told is what there is
        source = resources.files("meanmap").joinpath("__init__.py").read_text(encoding="utf-8")
        told = re.search(
            rf"    from meanmap\.{re.escape(package)} import \(?([^)]*?)\)?\n(?!        )", source
        )
        assert tuple(re.findall(r"\w+", told[1]) if told else ()) == names
    assert set(meanmap.__all__) <= set(dir(meanmap))
    with pytest.raises(AttributeError, match="no attribute 'KernelPCB'"):
        meanmap.KernelPCB  # noqa: B018


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
    for name in meanmap.__all__:
        value = getattr(meanmap, name)
        assert value.__doc__, f"{name} has no docstring"
    for module in (meanmap.kernels, meanmap.spaces):
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name} has no docstring"


def test_public_names_have_an_example() -> None:
    """In their docstrings, where the tests run them."""
    for module in (meanmap, meanmap.kernels, meanmap.spaces):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or inspect.isclass(value) and issubclass(value, Warning):
                continue
            assert ">>>" in value.__doc__, f"{module.__name__}.{name} has no example"


def test_public_contract() -> None:
    assert set(meanmap.__all__) >= {
        "ConditionalEmbedding",
        "ConditionalOperator",
        "Embedding",
        "JointEmbedding",
        "bayes_rule",
        "chain_rule",
        "embed",
        "kernels",
        "spaces",
        "sum_rule",
    }


def test_types_are_published() -> None:
    assert resources.files("meanmap").joinpath("py.typed").is_file()
