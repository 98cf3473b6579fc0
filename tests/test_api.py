"""Public names and signatures, as `data/api.txt` has them; what it takes to change them.

A name that comes is added by `python tests/test_api.py`. One that goes, or an argument that is
renamed, is deprecated first (`meanmap.deprecation`): the file's history is the contract's.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from meanmap.deprecation import deprecated, renamed_arguments

FILE = Path(__file__).parent / "data" / "api.txt"
MODULES = (
    "meanmap",
    "meanmap.adaptation",
    "meanmap.comparison",
    "meanmap.deprecation",
    "meanmap.density",
    "meanmap.dynamics",
    "meanmap.experiments",
    "meanmap.graphical",
    "meanmap.kernels",
    "meanmap.learning",
    "meanmap.likelihood_free",
    "meanmap.report",
    "meanmap.spaces",
    "meanmap.statistics",
    "meanmap.streams",
)


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
    """Whether the class, or one of ours that it derives from, says what the name is."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    return owner is not None and owner.__module__.partition(".")[0] == "meanmap"


def test_names_and_signatures_are_those_of_the_file() -> None:
    found, kept = set(listed()), set(FILE.read_text(encoding="utf-8").splitlines())
    gone, new = sorted(kept - found), sorted(found - kept)
    assert not gone, "public names or signatures changed:\n" + "\n".join(gone + ["now:"] + new)
    assert not new, "new public names; python tests/test_api.py lists them:\n" + "\n".join(new)


# --- the helper -----------------------------------------------------------------------------------


def test_a_deprecated_function_works_and_warns_where_it_is_called() -> None:
    @deprecated("use `b`", since="1.0", until="1.2")
    def a(x: int) -> int:
        """Twice."""
        return 2 * x

    with pytest.warns(
        FutureWarning, match="a is deprecated since 1.0.*removed in 1.2: use `b`"
    ) as w:
        assert a(3) == 6
    assert w[0].filename == __file__
    assert a.__doc__ == "Twice." and a.__name__ == "a"


def test_a_deprecated_class_stays_a_class() -> None:
    @deprecated("use `B`", since="1.0", until="1.2")
    class A:
        def __init__(self, x: int) -> None:
            self.x = x

    with pytest.warns(FutureWarning, match="A is deprecated"):
        assert A(3).x == 3
    assert isinstance(A, type)


def test_renamed_arguments() -> None:
    @renamed_arguments(since="1.0", until="1.2", seed="rng")
    def draw(n: int, rng: Any = None) -> tuple[int, Any]:
        return n, rng

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw(1, rng=2) == draw(1, 2) == (1, 2)
    with pytest.warns(FutureWarning, match="seed is called rng since 1.0"):
        assert draw(1, seed=2) == (1, 2)
    with pytest.raises(TypeError, match="both 'seed' and 'rng'"):
        draw(1, seed=2, rng=3)
    with pytest.raises(ValueError, match="no argument 'other'"):
        renamed_arguments(since="1.0", until="1.2", seed="other")(draw)


if __name__ == "__main__":
    FILE.write_text("\n".join(listed()) + "\n", encoding="utf-8")
    print(f"{FILE.name}: {len(listed())} names")
