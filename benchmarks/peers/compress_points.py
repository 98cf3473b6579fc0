"""goodpoints' Compress++ with kernel thinning; runs in goodpoints' own environment.

`compress_points.py --job compress FOLDER BANDWIDTH G TURNS`: reads points.npy; reports the best
seconds, and the indices of every turn.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from goodpoints.compress import compresspp_kt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import imported, run_job


def compress(folder: str, bandwidth: str, g: str, turns: str) -> dict[str, Any]:
    """As many times as asked, each with a seed of its own."""
    X = np.load(Path(folder) / "points.npy")
    parameter = np.array([2 * float(bandwidth) ** 2])  # exp(-r²/parameter)
    imported()
    seconds, indices = [], []
    for seed in range(int(turns)):
        start = time.perf_counter()
        found = compresspp_kt(X, b"gaussian", parameter, g=int(g), seed=seed)
        seconds.append(time.perf_counter() - start)
        indices.append([int(i) for i in found])
    return {"seconds": min(seconds), "indices": indices}


if __name__ == "__main__":
    arguments = sys.argv[sys.argv.index("--job") + 1 :]
    run_job({"compress": compress}[arguments[0]], arguments[1:])
