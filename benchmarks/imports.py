"""The time of `import meanmap`, against `import sklearn.base, scipy.linalg`.

In fresh interpreters, taken alternately, the files warm in the system's cache; the clock runs
inside the interpreter, around the import statement alone.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from harness import HERE, Memory, Row, main

ROUNDS = 10
OURS, PEER = "import meanmap", "import sklearn.base, scipy.linalg"
HEAVY = ("torch", "dask", "matplotlib")  # extras that `import meanmap` must leave alone

# everything that measures is imported inside, after the clock has stopped
PROGRAM = """
import time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
import json, sys
sys.path.insert(0, {here!r})
from harness import peak
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps([seconds, heavy, peak()]))
"""


def once(statement: str) -> tuple[float, list[str], Memory]:
    """Seconds, extras that came along, memory."""
    program = PROGRAM.format(statement=statement, here=str(HERE), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{statement} failed:\n{done.stderr}")
    seconds, heavy, top = json.loads(done.stdout)
    return seconds, heavy, Memory(top)


def run() -> list[Row]:
    first = {statement: once(statement) for statement in (OURS, PEER)}  # warms the cache
    times: dict[str, list[float]] = {OURS: [], PEER: []}
    for _ in range(ROUNDS):
        for statement in times:
            times[statement].append(once(statement)[0])
    ours, peer = (statistics.median(times[statement]) for statement in (OURS, PEER))
    heavy = first[OURS][1]
    least = min(times[OURS]) / min(times[PEER])
    return [
        Row(
            f"`{OURS}`, median of {ROUNDS}",
            f"`{PEER}`",
            ours,
            peer,
            inverse=True,
            ours_memory=first[OURS][2],
            peer_memory=first[PEER][2],
            note=f"{least:.2f}× by the minima; {', '.join(heavy) or 'no extra'} imported",
            bar=f"< 1.5×, none of {', '.join(HEAVY)}",
            holds=ours < 1.5 * peer and not heavy,
        )
    ]


if __name__ == "__main__":
    main(__file__, "the time of an import", run, {})
