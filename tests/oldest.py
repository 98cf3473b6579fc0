"""The oldest versions that pyproject.toml allows, as constraints: `python tests/oldest.py`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("test", "plot", "cli")


def oldest(project: dict) -> list[str]:
    """`name==1.2.*` for every `name>=1.2` of the package and the extras that tests use."""
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    found = {}
    for one in needed:
        match = re.match(r"([\w-]+)(?:\[.*\])?>=([\w.]+)", one)
        if match:
            found[match[1]] = match[2]
    return [f"{name}=={version}.*" for name, version in sorted(found.items())]


if __name__ == "__main__":
    with open(Path(__file__).parent.parent / "pyproject.toml", "rb") as file:
        print("\n".join(oldest(tomllib.load(file)["project"])))
