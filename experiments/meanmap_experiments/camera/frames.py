"""The path of the camera, and the renderer: `python -m meanmap_experiments.camera.frames OUT`.

The camera stays in one place and turns from one random anchor rotation to the next, 20 frames from
each of 180 anchors. POV-Ray takes pictures of 100 × 100 pixels, which are averaged to 20 × 20.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation, Slerp
from tqdm import tqdm

from meanmap_experiments.camera import FOLDER, SIDE, VARIANTS, load, save
from meanmap_experiments.rendering import INSTALL, find_povray, read_picture, run_povray

__all__ = ["INSTALL", "load", "look", "main", "path", "render"]

ANCHORS = 180
STEPS = 20  # frames from one anchor to the next
PITCH = np.pi / 6  # the most that the camera looks up or down, in "room"
FIELD = 60  # degrees of the field of view
PICTURE = 100  # pixels along an edge of what POV-Ray renders
SEED = 2009
CHUNK = 30  # frames rendered by one process


# --- the path -------------------------------------------------------------------------------------


def path(variant: str = "room", seed: int = SEED) -> np.ndarray:
    """
    The rotations of the camera, (3600, 3, 3), columns right, up, ahead.

    "room" turns evenly in yaw and pitch, along the shorter arc of yaw, so that the camera never
    rolls; "uniform" along geodesics of SO(3). The last anchor turns towards one more, which the
    path does not reach.

    Examples
    --------
    >>> path("room").shape
    (3600, 3, 3)
    """
    rng = np.random.default_rng(seed)
    anchors = np.arange(ANCHORS + 1)
    times = np.arange(ANCHORS * STEPS) / STEPS
    if variant == "uniform":
        # A normal vector in four dimensions has the direction of a uniform unit quaternion.
        quaternions = rng.standard_normal((len(anchors), 4))
        return Slerp(anchors, Rotation.from_quat(quaternions))(times).as_matrix()
    yaw = np.unwrap(rng.uniform(-np.pi, np.pi, len(anchors)))  # steps of at most half a turn
    pitch = rng.uniform(-PITCH, PITCH, len(anchors))
    return look(np.interp(times, anchors, yaw), np.interp(times, anchors, pitch))


def look(yaw: np.ndarray, pitch: np.ndarray) -> np.ndarray:
    """
    Rotations of an upright camera, yaw to the right from z, pitch upwards from the horizon.

    Examples
    --------
    >>> ahead = look(np.array([np.pi / 2]), np.array([0.0]))[0, :, 2]
    >>> np.allclose(ahead, [1, 0, 0])  # a quarter turn to the right: along x
    True
    """
    zero = np.zeros_like(yaw)
    right = [np.cos(yaw), zero, -np.sin(yaw)]
    up = [-np.sin(yaw) * np.sin(pitch), np.cos(pitch), -np.cos(yaw) * np.sin(pitch)]
    ahead = [np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)]
    return np.stack([np.stack(axis, axis=-1) for axis in (right, up, ahead)], axis=-1)


# --- the renderer ---------------------------------------------------------------------------------


def render(
    rotations: np.ndarray, jobs: int | None = None, advance: Callable[[int], object] | None = None
) -> np.ndarray:
    """
    What the camera sees, (n, 20, 20, 3) as bytes; needs POV-Ray.

    The light between the walls is gathered once and shared by all frames, so a frame does not
    depend on which others are rendered with it.

    Parameters
    ----------
    rotations
        (n, 3, 3), columns right, up, ahead.
    jobs
        Processes at a time; as many as there are cores if None.
    advance
        Called with a number of frames when they are done, from several threads.
    """
    program = find_povray()
    jobs = jobs or os.cpu_count() or 1
    size = max(1, min(CHUNK, -(-len(rotations) // jobs)))
    parts = [rotations[start : start + size] for start in range(0, len(rotations), size)]
    with tempfile.TemporaryDirectory() as scratch:
        # All files in the working folder: some installations of POV-Ray may read no other.
        folder = Path(scratch)
        shutil.copy(FOLDER / "room.pov", folder)
        (folder / "gather.pov").write_text('#declare Gather = 1;\n#include "room.pov"\n')
        radiosity = "Radiosity_File_Name=radiosity"
        picture = ["+W240", "+H120", "+FP", "+Ogather.ppm"]
        run_povray(program, folder, ["+Igather.pov", *picture, radiosity, "Radiosity_To_File=on"])

        def take(number: int) -> np.ndarray:
            part, name = parts[number], f"part{number}"
            (folder / f"{name}.pov").write_text(turning(part))
            # From frame 1001, so that every number has four digits.
            span = ["+KFI1001", f"+KFF{1000 + len(part)}"]
            picture = [f"+W{PICTURE}", f"+H{PICTURE}", "+FP", "File_Gamma=sRGB", f"+O{name}-.ppm"]
            options = [*picture, *span, radiosity, "Radiosity_From_File=on"]
            run_povray(program, folder, [f"+I{name}.pov", *options])
            files = (folder / f"{name}-{1001 + i}.ppm" for i in range(len(part)))
            frames = [shrink(read_picture(file, PICTURE, PICTURE)) for file in files]
            if advance is not None:
                advance(len(part))
            return np.stack(frames)

        with ThreadPoolExecutor(jobs) as pool:
            return np.concatenate(list(pool.map(take, range(len(parts)))))


def turning(rotations: np.ndarray) -> str:
    """A scene for POV-Ray: the room, seen with one rotation a frame."""

    def vector(v: np.ndarray) -> str:
        return "<" + ", ".join(f"{c:.17g}" for c in v) + ">"

    rows = ("{" + ", ".join(vector(axis) for axis in r.T) + "}" for r in rotations)
    return "\n".join(
        [
            "#declare Gather = 0;",
            f"#declare Field = {FIELD};",
            f"#declare Axes = array[{len(rotations)}][3] {{",
            ",\n".join(rows),
            "}",
            "#declare Frame = frame_number - 1001;",
            "#declare Right = Axes[Frame][0];",
            "#declare Up = Axes[Frame][1];",
            "#declare Ahead = Axes[Frame][2];",
            '#include "room.pov"\n',
        ]
    )


def shrink(picture: np.ndarray) -> np.ndarray:
    """The mean of each block of 5 × 5 pixels."""
    block = PICTURE // SIDE
    blocks = picture.reshape(SIDE, block, SIDE, block, 3)
    return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Render the frames again; with `--only N`, N of them, compared with those of the package."""
    parser = argparse.ArgumentParser(
        prog="python -m meanmap_experiments.camera.frames",
        description="Render the frames of the camera experiment with POV-Ray.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--variant", choices=VARIANTS, help="both, if none is named")
    parser.add_argument(
        "--only", type=int, metavar="N", help="N frames, drawn at random with a fixed seed"
    )
    parser.add_argument("--jobs", type=int, metavar="J", help="processes (as many as cores)")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for variant in [given.variant] if given.variant else VARIANTS:
        rotations = path(variant)
        chosen = sample(len(rotations), given.only)
        with tqdm(total=len(chosen), desc=variant, unit="frame") as bar:
            try:
                frames = render(rotations[chosen], given.jobs, bar.update)
            except RuntimeError as error:
                parser.exit(1, f"\n{error}\n")
        name = variant if given.only is None else f"{variant}-{len(chosen)}"
        save(given.out, name, rotations[chosen], frames)
        print(f"{given.out / name}.npz written: {len(frames)} frames")
        if given.only is not None:
            shipped = load(variant).frames[chosen]
            gap = np.abs(frames.reshape(shipped.shape) - 255 * shipped)
            print(f"difference from the package's, of 255: mean {gap.mean():.3f}, most {gap.max()}")


def sample(total: int, only: int | None = None, seed: int = SEED) -> np.ndarray:
    """Which frames to render: all, or some drawn at random, in order."""
    if only is None:
        return np.arange(total)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(total, size=min(max(only, 1), total), replace=False))


if __name__ == "__main__":
    main()
