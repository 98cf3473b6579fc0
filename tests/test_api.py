"""Public names and signatures, as `data/api.txt` has them.

`python tests/test_api.py` writes the file, whose history is that of the contract.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from meanmap.kernels import Gaussian, Kernel, Radial
from meanmap.protocols import INTERNAL_NAMES, internal_names
from meanmap.spaces import Coordinates

FILE = Path(__file__).parent / "data" / "api.txt"
MODULES = (
    "meanmap",
    "meanmap.adaptation",
    "meanmap.causal",
    "meanmap.causal_discovery",
    "meanmap.comparison",
    "meanmap.conditional",
    "meanmap.density",
    "meanmap.dynamics",
    "meanmap.embeddings",
    "meanmap.graphical",
    "meanmap.kernels",
    "meanmap.learning",
    "meanmap.likelihood_free",
    "meanmap.monitoring",
    "meanmap.report",
    "meanmap.spaces",
    "meanmap.statistics",
    "meanmap.streams",
)

#: Classes that users derive from: what they may define is listed too.
EXTENDED = (Kernel, Radial, Coordinates)


def public(module: Any) -> list[str]:
    """The names that a module shows."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        if callable(value) and type(value).__name__ != "TypeVar"
    )


def signature(value: Any) -> str:
    """Arguments and defaults, without annotations, which are written in many ways."""
    if inspect.isclass(value) and issubclass(value, Warning):
        return ""
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in given.parameters.values()]
    text = str(given.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def listed() -> list[str]:
    """A line for each public name, and for each public method of a class."""
    lines = []
    for name in MODULES:
        module = importlib.import_module(name)
        for word in public(module):
            value = getattr(module, word)
            if inspect.ismodule(value):
                lines.append(f"{name}.{word} (module)")
                continue
            if not inspect.isclass(value):
                called = signature(value) if callable(value) else ""
                lines.append(f"{name}.{word}{called}")
                continue
            if name == "meanmap" and value.__module__.partition(".")[0] != "meanmap":
                continue
            lines.append(f"{name}.{word}{signature(value)}")
            # methods stand under the module that is nearest to the class
            if name == "meanmap" and any(
                word in getattr(importlib.import_module(m), "__all__", ()) for m in MODULES[1:]
            ):
                continue
            for method, member in inspect.getmembers_static(value):
                routed = re.fullmatch(r"set_\w+_request", method)  # scikit-learn makes these
                if method.startswith("_") or routed or not _ours(value, method):
                    continue
                if isinstance(member, property) or not callable(getattr(value, method, None)):
                    lines.append(f"{name}.{word}.{method}")
                else:
                    lines.append(f"{name}.{word}.{method}{signature(getattr(value, method))}")
    return lines


def _ours(cls: type, name: str) -> bool:
    """Whether the name is for users, and defined by the class or by one of ours above it."""
    if name in internal_names(cls) and cls not in EXTENDED:
        return False
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    return owner is not None and owner.__module__.partition(".")[0] == "meanmap"


def test_names_and_signatures_are_those_of_the_file() -> None:
    found, kept = set(listed()), set(FILE.read_text(encoding="utf-8").splitlines())
    gone, new = sorted(kept - found), sorted(found - kept)
    assert not gone, "public names or signatures changed:\n" + "\n".join(gone + ["now:"] + new)
    assert not new, "new public names; python tests/test_api.py lists them:\n" + "\n".join(new)


def test_internal_names_exist_and_are_not_completed() -> None:
    """No name stays in the table when its method is gone."""
    classes = {
        base.__name__: base
        for name in MODULES
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value)
        for base in value.__mro__
    }
    for name, names in INTERNAL_NAMES.items():
        cls = classes[name]
        known = {*dir(cls), *inspect.signature(cls).parameters}
        known |= {field for base in cls.__mro__ for field in getattr(base, "__annotations__", ())}
        assert names <= known, f"{name}: {sorted(names - known)}"
    shown = set(dir(Gaussian(1.0)))
    assert {"resolve", "bandwidth", "get_params", "gram_matrix"} <= shown
    assert not shown & INTERNAL_NAMES["Kernel"]


if __name__ == "__main__":
    FILE.write_text("\n".join(listed()) + "\n", encoding="utf-8")
    print(f"{FILE.name}: {len(listed())} names")
