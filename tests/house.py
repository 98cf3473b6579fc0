"""The rules of the source tree that no linter knows, checked by `make lint`.

    python tests/house.py [rule ...]

| rule | what it refuses |
|---|---|
| private | `other._name` where the name belongs to another module of the package |
| types | `isinstance` on a concrete kernel or basis outside its package |
| names | two top-level functions or classes of one name |
| participles | functions named by a bare participle (`settled`, `placed`) |
| budgets | too many code lines in the core, a module or a function; too many parameters |

Code lines are those without docstrings and comments.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "meanmap"

#: The core, and how many code lines it may have.
CORE = [
    "arrays",
    "checks",
    "frames",
    "linalg",
    "kernels",
    "spaces",
    "decoding",
    "embeddings",
    "rules",
    "conditional",
]
CORE_LINES = 7760
NOT_CORE = ("kernels/domains/",)
MODULE_LINES = 400
FUNCTION_LINES = 50
#: What public functions may have of parameters, in the core and in the packages named here.
PARAMETERS = 8
FEW_PARAMETERS = ("comparison/",)

#: Irregular ones; words that end in "ed" and are no participles.
PARTICIPLES = frozenset(
    [
        "built",
        "chosen",
        "cut",
        "drawn",
        "felt",
        "found",
        "given",
        "held",
        "kept",
        "known",
        "left",
        "read",
        "sent",
        "shown",
        "split",
        "spread",
        "taken",
        "told",
        "written",
    ]
)
FINE = frozenset({"embed", "feed", "seed", "speed"})


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def code_lines(self) -> set[int]:
        """The lines that are neither docstrings, comments nor empty."""
        skipped: set[int] = set()
        holders = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
        for node in ast.walk(self.tree):
            if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                skipped.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        empty = {
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENDMARKER,
        }
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in empty:
                lines.update(range(token.start[0], token.end[0] + 1))
        return lines - skipped

    @cached_property
    def own_names(self) -> set[str]:
        """Every name that the module defines or assigns, attributes included."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
        return found

    def functions(self) -> Iterator[ast.FunctionDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))


def modules() -> list[Module]:
    """The files of the package, in order."""
    return [Module(path) for path in sorted(ROOT.rglob("*.py"))]


def private() -> Iterator[str]:
    """Attributes with an underscore of objects that another module defines."""
    for module in modules():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            if node.attr.startswith("__") or node.attr in module.own_names | {
                "_asdict",
                "_fields",
                "_replace",
            }:
                continue
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in ("self", "cls", "sys"):
                continue
            if isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super":
                continue
            yield f"{module.name}:{node.lineno}: {ast.unparse(node)} is private to another module"


def _classes(folder: str, root: str) -> set[str]:
    """The classes in a folder that derive from one, itself left out."""
    parents: dict[str, set[str]] = {}
    for module in modules():
        if module.name.startswith(folder):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    parents[node.name] = {ast.unparse(base) for base in node.bases}
    known = {root}
    while True:
        more = {name for name, bases in parents.items() if bases & known} - known
        if not more:
            return known - {root}
        known |= more


def types() -> Iterator[str]:
    """Questions by type about kernels and bases, outside their packages."""
    concrete = {
        "kernels/": _classes("kernels/", "Kernel"),
        "spaces/": _classes("spaces/", "Basis") | _classes("spaces/", "Coordinates"),
    }
    for module in modules():
        for node in ast.walk(module.tree):
            asked: ast.expr | None = None
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "isinstance",
                "issubclass",
            ):
                asked = node.args[1]
            elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
                asked = node.comparators[0]
            if asked is None:
                continue
            named = {n.id for n in ast.walk(asked) if isinstance(n, ast.Name)}
            named |= {n.attr for n in ast.walk(asked) if isinstance(n, ast.Attribute)}
            for folder, classes in concrete.items():
                for name in sorted(named & classes):
                    if not module.name.startswith(folder):
                        yield f"{module.name}:{node.lineno}: asks whether something is a {name}"


def _top_level() -> Iterator[tuple[Module, ast.FunctionDef | ast.ClassDef]]:
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield module, node


def names() -> Iterator[str]:
    """Functions and classes that have their name from another one."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, node in _top_level():
        if node.name not in ("__getattr__", "__dir__"):
            found[node.name].append(f"{module.name}:{node.lineno}")
    for name, places in sorted(found.items()):
        if len(places) > 1:
            yield f"{name} is defined in {', '.join(places)}"


def participles() -> Iterator[str]:
    """Top-level functions that are named by a bare participle."""
    for module, node in _top_level():
        word = node.name.strip("_")
        bare = isinstance(node, ast.FunctionDef) and "_" not in word and word not in FINE
        if bare and (word.endswith("ed") or word in PARTICIPLES):
            yield f"{module.name}:{node.lineno}: {node.name} is a participle"


def budgets() -> Iterator[str]:
    """What is too long."""
    total = 0
    for module in modules():
        size = len(module.code_lines)
        core = module.name.split("/")[0].removesuffix(".py") in CORE
        core = core and not module.name.startswith(NOT_CORE)
        total += size if core else 0
        if size > MODULE_LINES:
            yield f"{module.name} has {size} code lines, more than {MODULE_LINES}"
        for function in module.functions():
            span = range(function.lineno, (function.end_lineno or 0) + 1)
            length = len(module.code_lines.intersection(span))
            if length > FUNCTION_LINES:
                yield (
                    f"{module.name}:{function.lineno}: {function.name} has {length} code lines, "
                    f"more than {FUNCTION_LINES}"
                )
            given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
            number = sum(argument.arg not in ("self", "cls") for argument in given)
            counted = core or module.name.startswith(FEW_PARAMETERS)
            if counted and not function.name.startswith("_") and number > PARAMETERS:
                yield (
                    f"{module.name}:{function.lineno}: {function.name} has {number} parameters, "
                    f"more than {PARAMETERS}"
                )
    if total > CORE_LINES:
        yield f"the core has {total} code lines, more than {CORE_LINES}"


RULES: dict[str, Callable[[], Iterator[str]]] = {
    rule.__name__: rule for rule in (private, types, names, participles, budgets)
}


def main(asked: list[str]) -> int:
    """Print what breaks the rules; the number of places."""
    faults = 0
    for name in asked or RULES:
        broken = list(RULES[name]())
        for line in broken:
            print(line)
        if len(broken) > 10:
            print(f"{name}: {len(broken)} places")
        faults += len(broken)
    return faults


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
