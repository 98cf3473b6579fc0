"""The rules of the source tree that no linter knows, checked by `make lint`.

    python tests/house.py [rule ...]

| rule | what it refuses |
|---|---|
| private | `other._name` where the name belongs to another module of the package |
| types | `isinstance` on a concrete kernel or basis outside its package |
| names | two top-level functions or classes of one name |
| participles | functions named by a bare participle (`settled`, `placed`) |
| budgets | too many code lines (core, cli and report, module, function), parameters |
| voice | phrases that are not plain English, in comments, strings and pages |

Code lines are those without docstrings and comments.
"""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
ROOT = TREE / "src" / "meanmap"

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
CORE_LINES = 7896
#: What is for people, and how many code lines it may have.
FOR_PEOPLE = ("cli/", "report/")
FOR_PEOPLE_LINES = 4180
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


#: Where prose is read, and which files are left out: what a build writes, this table, its test.
PROSE = ["src", "docs", "tests", "experiments", "benchmarks"]
PROSE += ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
NOT_PROSE = ("docs/_build/", "docs/auto_", "benchmarks/.", "tests/house.py", "tests/test_house.py")

_PER = (
    "batch bin block capability case cell class column component domain edge experiment feature "
    "file fold group kernel kind label line method model node paper part peer picture point prior "
    "process query question row run sample sequence side split step task test unit variable way"
)

#: What not to write, and what to write instead. Words are separated by single spaces.
VOICE: dict[str, str] = {
    r"(?<!\bthere )\b(is|are|was|were) no "
    r"(?!longer|more|less|worse|need|reason|such|\w+er\b)[a-z]\w+": "'is not a …', 'there is no …'",
    r"\b(is|are|was|were) (?-i:none)\b(?! of)": "what it is instead",
    r"\b(one|two|three)"
    r"(?-i:( (?!of|in|to|for|as|is|and|or|on|by|at|has|with|from|per)[a-z]+){0,2} an? "
    rf"({'|'.join(_PER.split())}))\b": "'one per row'",
    r"\b(nobody|somebody|anybody)\b": "who it is, or 'unobserved', 'unknown'",
    r"\bmend(s|ed|ing)?\b": "'fix', 'repair', 'restore'",
    r"\b(is|are|was|were|be|been) told\b(?! apart| from)": "'is reported', 'is given', 'knows'",
    r"\bleaves? with (\d|status|a status|an exit)": "'exits with status'",
    r"\bwrit(e|es|ten|ing) over\b": "'overwrite'",
    r"\bnot above 0\.": "'significant at the 0.05 level'",
    r"\bif nothing is there\b": "'under the null hypothesis'",
    r"\banswers? in (kind|the caller's)": "'returns arrays of the caller's type'",
    r"\bhardly repeats?\b": "'looks like an ID or free text'",
    r"\berrors? in words\b": "'a readable error message'",
    r"\b(its|their|and) kin\b": "'and related methods'",
    r"\bwithout a word\b": "'silently'",
    r"\bto be reckoned with\b": "'to be expected'",
    r"\b(a|an|the) (\w+ )?of ours\b": "'of this library'",
    r"\brows to come\b": "'new rows'",
    r"\bwhat came\b": "'what was given'",
}
#: Places where such a phrase is meant: a file, and a part of the phrase.
ALLOWED: list[tuple[str, str]] = []


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
            if isinstance(owner, ast.Name) and owner.id in ("self", "cls", "sys", "os"):
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
    total = for_people = 0
    for module in modules():
        size = len(module.code_lines)
        for_people += size if module.name.startswith(FOR_PEOPLE) else 0
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
    if for_people > FOR_PEOPLE_LINES:
        yield f"cli and report have {for_people} code lines, more than {FOR_PEOPLE_LINES}"


def _python_prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of comments and string literals, with their numbers."""
    strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#%")
        elif token.type in strings:
            yield from enumerate(token.string.split("\n"), token.start[0])


def _prose_files() -> Iterator[Path]:
    for name in PROSE:
        path = TREE / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            inside = file.relative_to(TREE).as_posix()
            if file.suffix in (".py", ".md", ".rst") and not inside.startswith(NOT_PROSE):
                yield file


def voice() -> Iterator[str]:
    """Phrases that are not plain English; those that run over the end of a line too."""
    patterns = {re.compile(wrong, re.IGNORECASE): right for wrong, right in VOICE.items()}
    for path in _prose_files():
        name, text = path.relative_to(TREE).as_posix(), path.read_text(encoding="utf-8")
        python = path.suffix == ".py"
        lines = _python_prose(text) if python else enumerate(text.split("\n"), 1)
        words = [
            (number, word.strip("\"'") if python else word)
            for number, line in lines
            for word in re.sub(r"`[^`]*`", "`code`", line).split()
        ]
        starts = list(itertools.accumulate((len(word) + 1 for _, word in words), initial=0))
        joined = " ".join(word for _, word in words)
        for pattern, right in patterns.items():
            for match in pattern.finditer(joined):
                if not any(name == file and part in match[0] for file, part in ALLOWED):
                    number = words[bisect.bisect_right(starts, match.start()) - 1][0]
                    yield f"{name}:{number}: {match[0]!r}; write {right}"


RULES: dict[str, Callable[[], Iterator[str]]] = {
    rule.__name__: rule for rule in (private, types, names, participles, budgets, voice)
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
