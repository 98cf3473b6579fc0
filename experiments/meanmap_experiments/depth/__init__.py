"""Rendered scenes with the true depth of every patch of their pictures.

The data of the depth experiment of Song, Gretton, Bickson, Low and Guestrin (2011), made anew:
there a laser measured the depth of photographs, here POV-Ray renders scenes and measures along its
own rays. `layout` draws the scenes, `world.pov` has the things in them, `scenes` calls the renderer
and `features` describes the patches; `prediction` is the experiment, of the methods in `methods`.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meanmap_experiments import rendering
from meanmap_experiments.depth.features import NUMBER, features

__all__ = [
    "PATCH",
    "SIZES",
    "Scenes",
    "Size",
    "ensure",
    "features",
    "folder_of",
    "load",
    "run",
]

FOLDER = Path(__file__).parent
PATCH = 4  # pixels along an edge of a patch
COMMAND = "python -m meanmap_experiments.depth.scenes"


class Size(NamedTuple):
    """How many scenes, and how many patches a picture has."""

    scenes: int
    rows: int
    columns: int


#: "small" has the first scenes of "full" in smaller pictures, and comes with the package.
SIZES = {"small": Size(24, 36, 29), "full": Size(72, 107, 86)}


class Scenes(NamedTuple):
    """What `load` returns; it unpacks to (images, depths).

    Attributes
    ----------
    images : (n, 4 rows, 4 columns, 3) array of bytes
        sRGB pictures, from the top left pixel.
    depths : (n, rows, columns) array of float32
        Metres along the viewing ray (not along the axis of the camera) through the middle of each
        patch, from the camera to the first surface; 80 where that is farther, or sky.
    """

    images: np.ndarray
    depths: np.ndarray

    def features(self, which: int | slice | None = None) -> np.ndarray:
        """Features of the patches of one picture, of some, or of all: (..., rows, columns, 273).

        All of "full" are 720 MB: better one picture, or a slice of pictures, at a time.

        Examples
        --------
        >>> load("small").features(0).shape
        (36, 29, 273)
        """
        chosen = self.images[slice(None) if which is None else which]
        if chosen.ndim == 3:
            return features(chosen, PATCH)
        found = np.empty((len(chosen), *self.depths.shape[1:], NUMBER), dtype=np.float32)
        for number, image in enumerate(chosen):
            found[number] = features(image, PATCH)
        return found


def load(size: str = "small", folder: str | Path | None = None) -> Scenes:
    """
    Pictures of scenes, and the depth of each patch.

    Parameters
    ----------
    size
        "small": 24 scenes of 36 × 29 patches, which come with the package. "full": 72 scenes of
        107 × 86 patches, which `python -m meanmap_experiments.depth.scenes` renders in some minutes
        (and `ensure` if they are not there yet).
    folder
        Where the files are, if not in the package or, for "full", where `folder_of` says.

    Examples
    --------
    >>> images, depths = load("small")
    >>> images.shape, depths.shape
    ((24, 144, 116, 3), (24, 36, 29))
    """
    if known(size) == "small":
        place = FOLDER if folder is None else Path(folder)
        remedy = (
            "Reinstall meanmap_experiments, or render the scenes again: "
            f'{COMMAND} --size small OUT, then load("small", folder=OUT).'
        )
        arrays = read(place, "small.npz", remedy)
        return Scenes(arrays["images"], arrays["depths"])
    place = folder_of(folder)
    named = f"{COMMAND} {place}" if folder is not None else COMMAND
    remedy = (
        f"The full set is not shipped: render it with `{named}`, which needs POV-Ray and keeps "
        'what is there and whole; or take load("small").'
    )
    parts = [read(place, file_of(number), remedy) for number in range(SIZES["full"].scenes)]
    return Scenes(np.stack([p["image"] for p in parts]), np.stack([p["depth"] for p in parts]))


def ensure(
    size: str = "full",
    folder: str | Path | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> Scenes:
    """
    The scenes, rendered first as far as they are not there.

    Parameters
    ----------
    size, folder
        As in `load`.
    jobs
        Scenes rendered at a time; as many as there are cores if None.
    progress
        Whether to show a progress bar; if None, only in a terminal.

    Examples
    --------
    >>> len(ensure("small").images)
    24
    """
    if known(size) == "full":
        # Here, so that `python -m meanmap_experiments.depth.scenes` does not find it imported.
        from meanmap_experiments.depth import scenes

        scenes.render_full(folder_of(folder), jobs=jobs, progress=progress)
    return load(size, folder)


def run(**options: Any) -> Any:
    """The experiment: see `meanmap_experiments.depth.prediction`."""
    from meanmap_experiments.depth import prediction

    return prediction.run(**options)


def folder_of(folder: str | Path | None = None) -> Path:
    """
    Where the full set is: a folder that is given, or `depth` in the folder of data.

    That is the environment variable MEANMAP_DATA, or else `meanmap` in the user's cache
    (XDG_CACHE_HOME, by default ~/.cache).
    """
    if folder is not None:
        return Path(folder)
    if given := os.environ.get("MEANMAP_DATA"):
        return Path(given).expanduser() / "depth"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "meanmap" / "depth"


def file_of(number: int) -> str:
    """The file of a scene of the full set."""
    return f"scene-{number:02d}.npz"


def known(size: str) -> str:
    if size not in SIZES:
        raise ValueError(f"size must be {' or '.join(map(repr, SIZES))}, got {size!r}")
    return size


def read(folder: Path, name: str, remedy: str) -> dict[str, np.ndarray]:
    """The arrays of a file, if its checksum is the one that was noted."""
    data = rendering.read_verified(folder, name, remedy)
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
