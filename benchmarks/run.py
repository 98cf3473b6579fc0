"""Every benchmark, or those named: `python benchmarks/run.py [--list] [--check] [name …]`.

Each runs in an interpreter of its own. Tables go to standard output and, with the raw numbers and a
picture of the ratios, to `results/` as Markdown, JSON and PNG.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import HERE, RESULTS, machine, say

NAMES = [
    "bayes",
    "cholesky",
    "evaluate",
    "imports",
    "fit",
    "conditional",
    "decode",
    "tests",
    "filters",
    "inference",
    "trees",
    "loopy",
    "selection",
    "thinning",
    "shifts",
    "scale",
]


def summary(name: str) -> str:
    """The first line of a benchmark's docstring, without importing it."""
    tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").splitlines()[0]


def run(name: str) -> dict[str, Any]:
    """One benchmark in a fresh interpreter: its report, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        say(f"{name}: {summary(name)}")
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(path)]
        done = subprocess.run(command)
        if done.returncode or not path.exists():
            text = f"## {name}: {summary(name)}\n\nFailed: exit status {done.returncode}.\n"
            return {"name": name, "rows": [], "failed": True, "markdown": text}
        return json.loads(path.read_text(encoding="utf-8"))


def write(host: dict[str, Any], reports: list[dict[str, Any]], stem: str) -> Path:
    """The results as Markdown and JSON; the Markdown's path."""
    RESULTS.mkdir(exist_ok=True)
    about = "\n".join(f"- {key}: {value}" for key, value in host.items())
    text = "\n".join(["# Benchmarks", "", about, "", *[r["markdown"] for r in reports]])
    path = RESULTS / f"{stem}.md"
    path.write_text(text, encoding="utf-8")
    rows = [{k: v for k, v in r.items() if k != "markdown"} for r in reports]
    data = json.dumps({"machine": host, "benchmarks": rows}, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(data, encoding="utf-8")
    return path


def cut(text: str, length: int) -> str:
    """Text of so many letters at most."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def picture(reports: list[dict[str, Any]], path: Path) -> bool:
    """How many times the peers' time ours is, a bar a row; whether there was anything to draw."""
    rows = [
        (report["name"], row)
        for report in reports
        for row in report["rows"]
        if row["ratio"] and row["peer_name"] and row["unit"] == "s" and not row["inverse"]
    ]
    if not rows:
        return False
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = {True: "#0072b2", False: "#d55e00", None: "#8a8a8a"}
    fig, ax = plt.subplots(figsize=(9, 0.8 + 0.27 * len(rows)), layout="constrained")
    for i, (_, row) in enumerate(rows):
        ax.barh(i, row["ratio"] - 1, left=1, color=colours[row["holds"]], height=0.7)
        ax.text(max(row["ratio"], 1) * 1.08, i, f"{row['ratio']:.3g}×", va="center", fontsize=7)
    ax.set_yticks(range(len(rows)))
    ax.set_yticklabels(
        [f"{name}: {cut(row['work'], 52)} · {cut(row['peer_name'], 40)}" for name, row in rows],
        fontsize=7,
    )
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.axvline(1, color="black", linewidth=0.8)
    ax.margins(x=0.12, y=0.01)
    ax.set_xlabel("times as fast as the peer (log scale)")
    names = {True: "bar holds", False: "bar does not hold", None: "no bar"}
    ax.legend(
        [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()],
        names.values(),
        loc="lower right",
        fontsize=7,
    )
    fig.savefig(path, dpi=110)
    plt.close(fig)
    return True


def main() -> int:
    """Run, print, write; the exit status."""
    parser = argparse.ArgumentParser(description="meanmap against its peers, on this machine")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless every bar holds")
    options = parser.parse_args()
    if options.list:
        for name in NAMES:
            print(f"{name:11} {summary(name)}")
        return 0
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    chosen = [name for name in NAMES if name in options.names or not options.names]
    host = machine()
    for key, value in host.items():
        print(f"- {key}: {value}")
    print(flush=True)
    reports = []
    for name in chosen:
        reports.append(run(name))
        # after each, so that a long run that is stopped leaves what it has
        path = write(host, reports, "latest" if chosen == NAMES else "-".join(chosen))
        picture(reports, path.with_suffix(".png"))
    broken = [r["name"] for r in reports if r.get("failed")]
    bars = [row for r in reports for row in r["rows"] if row["bar"]]
    missed = [row["work"] for row in bars if row["holds"] is False]
    unknown = [row["work"] for row in bars if row["holds"] is None]
    print(f"Bars: {len(bars)}; hold: {len(bars) - len(missed) - len(unknown)}.")
    for heading, works in (("Does not hold", missed), ("Not measured", unknown)):
        for work in works:
            print(f"{heading}: {work}")
    print(f"Written to {path.relative_to(HERE.parent)}, .json and .png.")
    return 1 if broken or (options.check and (missed or unknown)) else 0


if __name__ == "__main__":
    sys.exit(main())
