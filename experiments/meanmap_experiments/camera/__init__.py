"""Frames of a camera that turns in a rendered room, and the rotation of the camera in each.

The data of the camera experiment of Song, Huang, Smola and Fukumizu (2009) and of Fukumizu, Song
and Gretton (2013), made anew: `room.pov` is the scene, `frames` the path and the renderer.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meanmap_experiments import rendering
from meanmap_experiments.rendering import CHECKSUMS, checksums, sha256

__all__ = ["CHECKSUMS", "Frames", "checksums", "load", "run", "sha256"]

VARIANTS = ("room", "uniform")
SIDE = 20  # pixels along an edge of a frame
FOLDER = Path(__file__).parent


class Frames(NamedTuple):
    """What `load` returns; it unpacks to (rotations, frames)."""

    rotations: np.ndarray
    frames: np.ndarray


def load(variant: str = "room", folder: str | Path | None = None) -> Frames:
    """
    The 3,600 rotations of the camera and the frames it sees.

    A rotation maps camera to world: its columns are the camera's right, up and viewing direction
    in the coordinates of the room (x to the right, y up, z ahead: left-handed, as in POV-Ray, and
    the determinant is +1). With the identity the camera stands upright and looks along z, at the
    blue wall; yaw turns it to the right, towards the green wall.

    Parameters
    ----------
    variant
        "room": any yaw, pitch within 30° of the horizon, no roll. "uniform": anchor rotations
        uniform on SO(3), upside down as often as not.
    folder
        Where the files are, if not those of the package: one that
        `python -m meanmap_experiments.camera.frames` has written.

    Returns
    -------
    Frames
        `rotations` (3600, 3, 3) and `frames` (3600, 1200) in [0, 1]: rows of 20 × 20 × 3, from the
        top left pixel to the bottom right one, red, green and blue.

    Examples
    --------
    >>> rotations, frames = load("room")
    >>> rotations.shape, frames.shape
    ((3600, 3, 3), (3600, 1200))
    """
    if variant not in VARIANTS:
        expected = " or ".join(map(repr, VARIANTS))
        raise ValueError(f"variant must be {expected}, got {variant!r}")
    data = read_verified(FOLDER if folder is None else Path(folder), f"{variant}.npz")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        rotations, frames = arrays["rotations"], arrays["frames"]
    return Frames(rotations, frames.reshape(len(frames), -1) / 255.0)


def run(**options: Any) -> Any:
    """The experiment: see `meanmap_experiments.camera.tracking`."""
    from meanmap_experiments.camera import tracking

    return tracking.run(**options)


def save(folder: Path, variant: str, rotations: np.ndarray, frames: np.ndarray) -> None:
    """Write a file that `load` reads, frames (n, 20, 20, 3) as bytes, and note its checksum."""
    rendering.save_arrays(folder, f"{variant}.npz", {"rotations": rotations, "frames": frames})


def read_verified(folder: Path, name: str) -> bytes:
    """The bytes of a file, if they are those whose checksum was noted."""
    remedy = (
        "Reinstall meanmap_experiments, or render the frames again: "
        "python -m meanmap_experiments.camera.frames OUT, then load(variant, folder=OUT)."
    )
    return rendering.read_verified(folder, name, remedy)
