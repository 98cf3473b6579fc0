"""Write the oldest versions that both pyproject.toml allow, as constraints for pip.

python tests/oldest_versions.py
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("test", "plot", "cli")


def oldest(project: dict, experiments: dict) -> list[str]:
    """`name==1.2.*` for every `name>=1.2` of both packages and the extras that tests use."""
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    found = {}
    for one in [*needed, *experiments["dependencies"]]:
        match = re.match(r"([\w-]+)(?:\[.*\])?>=([\w.]+)", one)
        if match:
            found[match[1]] = match[2]
    return [f"{name}=={version}.*" for name, version in sorted(found.items())]


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    texts = [(root / part / "pyproject.toml").read_text() for part in ("", "experiments")]
    print("\n".join(oldest(*(tomllib.loads(text)["project"] for text in texts))))
