"""Probability as linear algebra: kernel embeddings of distributions and their rules.

The public names are those that `__init__.pyi` lists, which type checkers and editors read as well.
Each is imported when it is first asked for.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

#: Where each public name is defined.
_HOMES = {
    alias.name: node.module or ""
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = [
    name for name, home in _HOMES.items() if home != __name__ or name in ("kernels", "spaces")
]


def __getattr__(name: str) -> Any:
    """A public name, once it is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == __name__:
        return import_module(f"{home}.{name}")
    globals()[name] = found = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
