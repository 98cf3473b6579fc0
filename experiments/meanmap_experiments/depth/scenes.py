"""The renderer of the scenes: `python -m meanmap_experiments.depth.scenes [OUT]`.

POV-Ray draws a picture with four pixels along the edge of a patch, and before that sends a ray
through the middle of each patch to note where it ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meanmap.progress import progress_bar
from meanmap_experiments.depth import FOLDER, PATCH, SIZES, Scenes, file_of, folder_of, layout
from meanmap_experiments.rendering import (
    INSTALL,
    checksums,
    find_povray,
    read_picture,
    run_povray,
    save_arrays,
    sha256,
)

__all__ = ["INSTALL", "Taken", "main", "render", "render_full", "render_small", "take"]

# Antialiasing on a grid of up to 3 × 3 rays a pixel, without jitter: the same bytes every time.
QUALITY = ("+A0.15", "+AM1", "+R3", "-J")


class Taken(NamedTuple):
    """A picture (4 rows, 4 columns, 3) as bytes, and depths (rows, columns) in metres."""

    image: np.ndarray
    depth: np.ndarray


def render(number: int, rows: int, columns: int) -> Taken:
    """The scene of a number in a picture of rows × columns patches; needs POV-Ray."""
    return take(layout.text(layout.scene(number), rows, columns, TABLE), rows, columns)


TABLE = "depth.txt"


def take(text: str, rows: int, columns: int) -> Taken:
    """What POV-Ray makes of a scene's text (see `layout.text`): picture and depths."""
    program = find_povray()
    height, width = PATCH * rows, PATCH * columns
    with tempfile.TemporaryDirectory() as scratch:
        # All files in the working folder: some installations of POV-Ray may use no other.
        folder = Path(scratch)
        shutil.copy(FOLDER / "world.pov", folder)
        (folder / "scene.pov").write_text(text, encoding="ascii")
        picture = [f"+W{width}", f"+H{height}", "+FP", "File_Gamma=sRGB", "+Oscene.ppm"]
        run_povray(program, folder, ["+Iscene.pov", *picture, *QUALITY])
        image = read_picture(folder / "scene.ppm", height, width)
        depth = np.loadtxt(folder / TABLE, dtype=np.float32, ndmin=2)
    if depth.shape != (rows, columns):
        raise RuntimeError(
            f"expected POV-Ray to measure {rows} × {columns} depths, it measured {depth.shape}. "
            f"{INSTALL}"
        )
    return Taken(image, depth)


def render_full(folder: Path, jobs: int | None = None, progress: bool | None = None) -> int:
    """Render the full set into a folder, what is there and whole kept; how many were rendered."""
    total, rows, columns = SIZES["full"]
    recipes = [recipe(number, rows, columns) for number in range(total)]
    missing = [number for number in range(total) if not kept(folder, number, recipes[number])]
    if not missing:
        return 0
    find_povray()  # before a folder is made
    folder.mkdir(parents=True, exist_ok=True)
    with (
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
        progress_bar(total, "scenes", progress, unit="scene") as advance,
    ):
        advance(total - len(missing))
        tasks = [pool.submit(render, number, rows, columns) for number in missing]
        try:
            # Saved in order, by one thread: the list of checksums is one file.
            for number, task in zip(missing, tasks, strict=True):
                arrays = task.result()._asdict() | {"recipe": np.array([recipes[number]])}
                save_arrays(folder, file_of(number), arrays)
                advance(1)
        finally:
            pool.shutdown(cancel_futures=True)
    return len(missing)


def recipe(number: int, rows: int, columns: int) -> str:
    """A digest of all that makes a scene's picture, so that one of another version is not kept."""
    made = layout.text(layout.scene(number), rows, columns, TABLE)
    world = (FOLDER / "world.pov").read_text(encoding="ascii")
    return sha256("\n".join([made, world, *QUALITY, str(PATCH)]).encode())


def kept(folder: Path, number: int, expected: str) -> bool:
    """Whether the file of a scene is there, whole, and of this version."""
    path, noted = folder / file_of(number), checksums(folder).get(file_of(number))
    if noted is None or not path.is_file() or sha256(path.read_bytes()) != noted:
        return False
    with np.load(path, allow_pickle=False) as arrays:
        return bool(arrays["recipe"].item() == expected)


def render_small(folder: Path, jobs: int | None = None, progress: bool | None = None) -> Scenes:
    """Render the small set, which comes with the package, into a folder."""
    total, rows, columns = SIZES["small"]
    find_povray()
    with (
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
        progress_bar(total, "scenes", progress, unit="scene") as advance,
    ):
        parts = []
        for part in pool.map(lambda number: render(number, rows, columns), range(total)):
            parts.append(part)
            advance(1)
    made = Scenes(np.stack([p.image for p in parts]), np.stack([p.depth for p in parts]))
    folder.mkdir(parents=True, exist_ok=True)
    save_arrays(folder, "small.npz", made._asdict())
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Render the scenes, as far as they are not there."""
    parser = argparse.ArgumentParser(
        prog="python -m meanmap_experiments.depth.scenes",
        description="Render the scenes of the depth experiment with POV-Ray. What an earlier run "
        "has left is kept.",
    )
    parser.add_argument(
        "out",
        type=Path,
        nargs="?",
        metavar="OUT",
        help=f"folder to write to (MEANMAP_DATA/depth, else the user's cache: {folder_of()})",
    )
    parser.add_argument("--size", choices=SIZES, default="full", help="full, if none is named")
    parser.add_argument("--jobs", type=int, metavar="J", help="processes (as many as cores)")
    given = parser.parse_args(arguments)
    if given.size == "small" and given.out is None:
        parser.error("--size small needs OUT, a folder to write to")
    try:
        if given.size == "small":
            count = len(render_small(given.out, given.jobs, progress=True).images)
        else:
            count = render_full(folder_of(given.out), given.jobs, progress=True)
    except RuntimeError as error:
        parser.exit(1, f"\n{error}\n")
    print(f"{folder_of(given.out)}: {count} scenes rendered, {SIZES[given.size].scenes} there")


if __name__ == "__main__":
    main()
