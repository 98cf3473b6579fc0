"""Links in the pages lead somewhere: files exist, headings too; outside addresses are well formed.

Nothing is fetched. What Sphinx resolves (classes, equations) is checked by `make docs`.
"""

import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "reference").glob("*.md")),
    *sorted((DOCS / "theory").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
SCRIPTS = sorted([*(DOCS / "gallery").rglob("*.py"), *(DOCS / "tutorials").glob("*.py")])
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def prose(path: Path) -> str:
    """The text without code, in which brackets mean other things."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^(```|~~~).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def slug(heading: str) -> str:
    """The anchor of a heading, as MyST (and GitHub) makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = re.sub(r"\{\w+\}`~?([^`]*)`|`([^`]*)`|\$|\*", lambda m: m[1] or m[2] or "", plain)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    for included in re.findall(r"^```\{include\} (\S+)", text, flags=re.MULTILINE):
        other = path.parent / included
        text += other.read_text(encoding="utf-8") if other.exists() else ""
    text = re.sub(r"^```(?!\{).*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = {slug(h) for h in re.findall(r"^#{1,6} +(.+?)\s*$", text, flags=re.MULTILINE)}
    found |= set(re.findall(r"^\(([\w-]+)\)=\s*$", text, flags=re.MULTILINE))
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def made(path: Path) -> Path:
    """The source of a page that a build makes from a script."""
    for kind in ("gallery", "tutorials"):
        folder = DOCS / f"auto_{kind}"
        if path.is_relative_to(folder):
            source = DOCS / kind / path.relative_to(folder)
            name = path.name.removesuffix(".html").removesuffix(".rst").removesuffix(".md")
            return source.with_name("GALLERY_HEADER.rst" if name == "index" else f"{name}.py")
    return path


def links(path: Path) -> list[str]:
    return LINK.findall(prose(path))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    broken = []
    for target in links(path):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        where, _, anchor = target.partition("#")
        page = made((path.parent / where).resolve()) if where else path
        if not page.exists() and page.with_suffix(".md").exists():
            page = page.with_suffix(".md")
        if not page.exists():
            broken.append(f"{target}: there is no {where}")
        elif anchor and page.suffix == ".md" and anchor not in anchors(page):
            broken.append(f"{target}: {page.name} has no heading or label #{anchor}")
    assert broken == []


def outside() -> set[tuple[str, str]]:
    """Every address that leaves the documentation, and who has it."""
    found = set()
    for path in [*PAGES, *SCRIPTS]:
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"\bhttps?:[^\s<>\"'`\])]*", text):
            found.add((str(path.relative_to(ROOT)), address.rstrip(".,;:")))
    return found


def test_outside_links_are_well_formed() -> None:
    for page, address in outside():
        parts = urlsplit(address)
        assert parts.scheme == "https", f"{page}: {address} is not https"
        assert re.fullmatch(r"[a-z0-9.-]+\.[a-z]{2,}", parts.netloc), f"{page}: {address}"
        assert "//" not in parts.path and " " not in parts.path, f"{page}: {address}"


def test_every_page_is_in_the_contents() -> None:
    listed = set()
    for block in re.findall(
        r"```\{toctree\}(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        lines = (line.strip() for line in block.splitlines())
        entries = [line for line in lines if line[:1] not in ("", ":")]
        listed |= {re.sub(r".*<(.+)>", r"\1", entry) for entry in entries}  # `Title <page>`
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("*.md")}
    pages |= {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("theory/*")}
    expected = pages - {"index"} | {"auto_tutorials/index", "auto_gallery/index"}
    assert listed == expected


def test_scripts_name_pages_that_exist() -> None:
    for path in SCRIPTS:
        for target in re.findall(r":doc:`(?:[^`<]*<)?/?([\w/]+)>?`", path.read_text("utf-8")):
            page = made(DOCS / target)
            assert page.exists() or (DOCS / f"{target}.md").exists(), f"{path.name}: {target}"


def test_what_a_build_makes_is_not_kept() -> None:
    """Pages of the galleries are made from scripts; git ignores them."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "docs/auto_gallery", "docs/auto_tutorials", "docs/_build"]
    kept = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert kept.stdout == ""
