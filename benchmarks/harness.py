"""Timing, memory and tables for the benchmarks.

Imports the standard library only, so that a peer's script can use it from an environment of its
own. Times are the best of several turns, ours and the peer's taken alternately, after a warm-up.
Memory is the peak resident size of a fresh interpreter, beside its size after its imports.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE / ".envs"
RESULTS = HERE / "results"

Job = Callable[..., dict[str, Any] | None]


# --- time -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """Something to time.

    `threads` are the numbers of BLAS threads to try (None: the default), `calls` how often it is
    called in a row when its turn comes.
    """

    work: Callable[[], Any]
    threads: tuple[int | None, ...] = (None,)
    calls: int = 1


@dataclass(frozen=True)
class Timing:
    """The best time of a contestant, in seconds, and the number of threads that gave it."""

    seconds: float
    threads: int | None


def show_threads(threads: int | None) -> str:
    """The number of threads as a remark; nothing for the default, which `machine` describes."""
    return "" if threads is None else f" ({threads} thread{'s' if threads > 1 else ''})"


def peer_threads() -> tuple[int, ...]:
    """One thread and all of them: a threaded BLAS may lose on small matrices, so peers get both."""
    return tuple(sorted({1, cores()}))


@contextlib.contextmanager
def blas_threads(limit: int | None) -> Iterator[None]:
    """Hold every BLAS to a number of threads; None leaves the default."""
    if limit is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=limit, user_api="blas"):
        yield


def race(contestants: Mapping[str, Contestant], rounds: int, warm_up: int = 1) -> dict[str, Timing]:
    """The best time of each contestant over rounds in which they take turns.

    The fastest of the calls of a turn counts, so that short work is seen with its own data in the
    cache, as it would be in a loop.
    """
    entries = [(name, c, t) for name, c in contestants.items() for t in c.threads]
    best: dict[tuple[str, int | None], float] = {}
    for turn in range(warm_up + rounds):
        for name, contestant, threads in entries:
            with blas_threads(threads):
                for _ in range(contestant.calls):
                    start = time.perf_counter()
                    contestant.work()
                    seconds = time.perf_counter() - start
                    if turn >= warm_up:
                        key = name, threads
                        best[key] = min(seconds, best.get(key, seconds))
    return {
        name: min(
            (Timing(best[name, t], t) for t in contestants[name].threads), key=lambda x: x.seconds
        )
        for name in contestants
    }


# --- memory ---------------------------------------------------------------------------------------

_baseline: int | None = None


def _status(field: str) -> int | None:
    """A size from /proc in bytes, or None on systems without /proc."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(field + ":")]
    return 1024 * int(found[0]) if found else None


def resident() -> int:
    """The resident size of this process now, in bytes."""
    size = _status("VmRSS")
    if size is None:
        import psutil

        size = psutil.Process().memory_info().rss
    return int(size)


def peak() -> int:
    """The largest resident size that this process ever had, in bytes.

    On Linux from /proc: `getrusage` starts a child's peak at the size of its parent.
    """
    size = _status("VmHWM")
    if size is None:
        import resource

        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size *= 1 if sys.platform == "darwin" else 1024
    return int(size)


def imported() -> None:
    """Call when a job has imported what it needs: its memory is reported relative to this."""
    global _baseline
    _baseline = resident()


@dataclass(frozen=True)
class Memory:
    """The peak of a fresh interpreter, and its size after its imports, in bytes.

    Without `imports` the importing was the work.
    """

    peak: int
    imports: int | None = None

    @property
    def increment(self) -> int:
        """What the work itself added."""
        return self.peak - (self.imports or 0)

    def __str__(self) -> str:
        added = "" if self.imports is None else f" (+{show_bytes(self.increment)})"
        return f"{show_bytes(self.peak)}{added}"


# --- fresh interpreters ---------------------------------------------------------------------------


def child(
    script: str | Path, job: str, *arguments: Any, python: str | Path = sys.executable
) -> tuple[dict[str, Any], Memory]:
    """Run a job of a script in a fresh interpreter; what it reports, and its memory."""
    command = [str(python), str(HERE / script), "--job", job, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return report, Memory(report.pop("peak"), report.pop("imports"))


def run_job(job: Job, arguments: Sequence[str]) -> None:
    """The other end of `child`: do the work and print what it reports."""
    report = dict(job(*arguments) or {})
    size = peak()
    print(json.dumps({**report, "peak": size, "imports": _baseline or size}))


def environment(name: str, *requirements: str) -> Path:
    """The interpreter of a peer's own environment, made on first use under `.envs/`."""
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, wanted = folder / "installed.txt", "\n".join(requirements) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"installing {', '.join(requirements)} in an environment of its own")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", *requirements]
    subprocess.run(pip, check=True)
    stamp.write_text(wanted)
    return python


Failure = (OSError, subprocess.CalledProcessError)


def why(error: Exception) -> str:
    """A reason for a table's cell: no command lines, no paths; those are among the messages."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit status {error.returncode}, its messages are on stderr"
    return getattr(error, "strerror", None) or type(error).__name__


def interpreter(name: str, *requirements: str) -> tuple[Path | None, str]:
    """The interpreter of a peer's environment, or None and why it is missing."""
    try:
        return environment(name, *requirements), ""
    except Failure as error:
        missing = f"{name} not installed: {why(error)}"
        say(missing)
        return None, missing


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a table: ours against a peer, in seconds or bytes.

    `holds` is None where there is no bar, and where the peer could not be run.
    """

    work: str
    peer_name: str
    ours: float | None
    peer: float | None = None
    unit: str = "s"
    inverse: bool = False  # the bar bounds ours/peer rather than asking for peer/ours
    ours_memory: Memory | None = None
    peer_memory: Memory | None = None
    peer_threads: int | None = None
    note: str = ""
    bar: str = ""
    holds: bool | None = None

    @property
    def ratio(self) -> float | None:
        """How many times ours is faster (or smaller); `inverse`, how many times the peer is."""
        if self.ours is None or self.peer is None:
            return None
        return self.ours / self.peer if self.inverse else self.peer / self.ours

    def cells(self) -> list[str]:
        """The line's cells, as text."""
        show = show_seconds if self.unit == "s" else show_bytes
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}×"
        if self.inverse and ratio:
            ratio += " of the peer's"
        peer = f"{'' if self.peer is None else show(self.peer)}{show_threads(self.peer_threads)}"
        memory = " / ".join(str(m) for m in (self.ours_memory, self.peer_memory) if m is not None)
        unknown = "not measured" if self.bar else ""
        holds = {None: unknown, True: "yes", False: "**no**"}[self.holds]
        ours = "" if self.ours is None else show(self.ours)
        bar = [self.bar, holds]
        return [self.work, ours, peer, self.peer_name, ratio, memory, self.note, *bar]


COLUMNS = ["work", "ours", "peer", "the peer is", "ratio", "memory ours / peer", "checked"]
COLUMNS += ["bar", "holds"]


@dataclass(frozen=True)
class Report:
    """What a benchmark found."""

    name: str
    title: str
    rows: list[Row]
    seconds: float

    def markdown(self) -> str:
        """The report as a Markdown section."""
        lines = [f"## {self.name}: {self.title}", ""]
        lines += [line(COLUMNS), line(["---"] * len(COLUMNS))]
        lines += [line(row.cells()) for row in self.rows]
        return "\n".join([*lines, "", f"Took {self.seconds:.0f} s.", ""])

    def data(self) -> dict[str, Any]:
        """The report for JSON."""
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        return {"name": self.name, "title": self.title, "seconds": self.seconds, "rows": rows}


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def show_seconds(seconds: float) -> str:
    """Three digits and a unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def show_bytes(size: float) -> str:
    """Megabytes (10⁶ bytes)."""
    return f"{size / 1e6:.0f} MB"


def say(text: str) -> None:
    """Progress, on stderr so that results can be piped."""
    print(f"… {text}", file=sys.stderr, flush=True)


def main(file: str, title: str, run: Callable[[], list[Row]], jobs: Mapping[str, Job]) -> None:
    """The command line of a benchmark: its table, or (for `child`) one of its jobs."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=Path, help="write the report here as well")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(jobs[options.job[0]], options.job[1:])
        return
    start = time.perf_counter()
    rows = run()
    report = Report(Path(file).stem, title, rows, time.perf_counter() - start)
    print(report.markdown())
    if options.json:
        text = json.dumps({**report.data(), "markdown": report.markdown()}, indent=1)
        options.json.write_text(text)


# --- the machine ----------------------------------------------------------------------------------


def cores() -> int:
    """The processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def processor() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                return text.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Where the figures were measured: hardware, versions, threads, how busy it was."""
    import numpy  # noqa: F401  (loads its BLAS, which is what is asked about)
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    names = ("meanmap", "numpy", "scipy", "scikit-learn")
    blas = {
        f"{lib['internal_api']} {lib['version']}, {lib['num_threads']} threads"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    memory = pages * os.sysconf("SC_PAGE_SIZE") if pages else 0
    return {
        "processor": processor(),
        "cores": cores(),
        "memory": f"{memory / 2**30:.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in names),
        "blas": "; ".join(sorted(blas)),
        "load before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%d"),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "from a checkout" if name == "meanmap" else "(not installed)"
