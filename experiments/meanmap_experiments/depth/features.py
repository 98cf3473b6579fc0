"""Features of the patches of a picture: energies of filters, in the manner of Make3D.

Saxena, Chung and Ng (2005) describe a patch by 17 filters: the nine masks of Laws on the luminance
(texture), the averaging mask on both colour channels (haze), and edges in six directions (texture
gradients). The absolute and the squared response, averaged over the patch, are 34 numbers. A patch
alone says little about its depth, so those of its surroundings stand beside them: 8 × 34 + 1 = 273,
the number in the depth experiment of Song, Gretton, Bickson, Low and Guestrin (2011).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

__all__ = ["BLOCKS", "FILTERS", "NUMBER", "features"]

FILTERS = 17
ENERGIES = 2 * FILTERS

#: What the 34 numbers of each block are about, in order; after the last stands the constant 1.
BLOCKS = ("patch", "above", "below", "left", "right", "scale 3", "scale 9", "column")
NUMBER = len(BLOCKS) * ENERGIES + 1

# Level, edge and spot of Laws (1980): nine masks are the products of two of them.
LEVEL, EDGE, SPOT = (1, 2, 1), (-1, 0, 1), (-1, 2, -1)

# Edges of Nevatia and Babu (1980), for the first three of six directions; others mirror them.
STEP = [[-100, -100, 0, 100, 100]] * 5
STEP_30 = [
    [-100, 32, 100, 100, 100],
    [-100, -78, 92, 100, 100],
    [-100, -100, 0, 100, 100],
    [-100, -100, -92, 78, 100],
    [-100, -100, -100, -32, 100],
]
STEP_60 = [
    [100, 100, 100, 100, 100],
    [-32, 78, 100, 100, 100],
    [-100, -92, 0, 92, 100],
    [-100, -100, -100, -78, 32],
    [-100, -100, -100, -100, -100],
]


def masks() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The nine masks of Laws and the six of Nevatia and Babu; absolute values add up to one."""
    texture = [
        np.outer(down, across) for down in (LEVEL, EDGE, SPOT) for across in (LEVEL, EDGE, SPOT)
    ]
    first, second, third = np.array(STEP), np.array(STEP_30), np.array(STEP_60)
    edges = [first, second, third, first.T[::-1], third[:, ::-1], second[:, ::-1]]
    return [m / np.abs(m).sum() for m in texture], [m / np.abs(m).sum() for m in edges]


TEXTURE, EDGES = masks()


def features(image: np.ndarray, patch: int = 4) -> np.ndarray:
    """
    Features of every patch of a picture.

    Parameters
    ----------
    image : (height, width, 3) array of bytes, or of floats in [0, 1]
        Height and width are multiples of `patch`.
    patch : int
        Pixels along an edge of a patch.

    Returns
    -------
    (rows, columns, 273) array of float32
        Columns 0–33: the patch itself; 34–169: its neighbours above, below, left and right (at the
        border of the picture, the patch itself); 170–203: the filters made three times as wide,
        over 3 × 3 patches; 204–237: nine times as wide, over 9 × 9 patches; 238–271: the filters
        over the whole column of patches; 272: the constant 1.

        Within a block come the absolute responses of the 17 filters, then the squared ones: nine
        masks of Laws (LL, LE, LS, EL, ..., SS; the first letter is the vertical profile), blue and
        red difference, edges in steps of 30°. The square root of the mean absolute response and
        the fourth root of the mean square are given: energies of texture spread over decades, their
        roots do not, and both are in [0, 1], so that a linear kernel is not ruled by few patches.

    Examples
    --------
    >>> from meanmap_experiments import depth
    >>> image = depth.load("small").images[0]
    >>> image.shape, features(image).shape
    ((144, 116, 3), (36, 29, 273))
    """
    channels = luminance_and_colour(checked(image, patch))
    fine = energies(channels, patch, 1)
    blocks = [
        fine,
        *(neighbours(fine, axis, step) for axis, step in ((0, -1), (0, 1), (1, -1), (1, 1))),
        energies(channels, patch, 3),
        energies(channels, patch, 9),
        np.broadcast_to(fine.mean(axis=0, keepdims=True), fine.shape),
    ]
    rows, columns = fine.shape[:2]
    found = np.ones((rows, columns, NUMBER), dtype=np.float32)
    for number, block in enumerate(blocks):
        part = found[:, :, number * ENERGIES : (number + 1) * ENERGIES]
        np.sqrt(block, out=part)
        np.sqrt(part[:, :, FILTERS:], out=part[:, :, FILTERS:])
    return found


def checked(image: np.ndarray, patch: int) -> np.ndarray:
    """The picture as float32 in [0, 1]."""
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(
            f"expected a picture (height, width, 3), got an array of shape {image.shape}; "
            "of several pictures take one at a time"
        )
    if patch < 1 or image.shape[0] % patch or image.shape[1] % patch or not image.size:
        raise ValueError(
            f"height and width must be multiples of the patch ({patch} pixels), got "
            f"{image.shape[0]} × {image.shape[1]}; crop the picture or change `patch`"
        )
    if image.dtype == np.uint8:
        return image.astype(np.float32) / np.float32(255)
    image = image.astype(np.float32)
    # Written so that NaN is refused too.
    if not (image.min() >= 0 and image.max() <= 1):
        raise ValueError(
            "a picture of floats must have values in [0, 1], got some outside or NaN; "
            "divide by the largest value there can be, or pass bytes"
        )
    return image


def luminance_and_colour(image: np.ndarray) -> np.ndarray:
    """Luminance, blue and red difference (ITU-R BT.601), each in [0, 1]."""
    red, green, blue = np.moveaxis(image, 2, 0)
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    return np.stack([light, 0.5 + 0.564 * (blue - light), 0.5 + 0.713 * (red - light)])


def energies(channels: np.ndarray, patch: int, scale: int) -> np.ndarray:
    """Mean absolute and mean squared responses, (rows, columns, 34), at a scale.

    Filters `scale` times as wide are the filters on the mean of scale × scale pixels, with holes
    between their taps; means are over scale × scale patches, those that lie in the picture.
    """
    _, height, width = channels.shape
    rows, columns = height // patch, width // patch
    found = np.empty((ENERGIES, rows, columns), dtype=np.float32)
    for number, response in enumerate(responses(channels, scale)):
        blocks = response.reshape(rows, patch, columns, patch)
        np.abs(blocks).mean(axis=(1, 3), out=found[number])
        np.square(blocks).mean(axis=(1, 3), out=found[FILTERS + number])
    if scale > 1:
        inside = around(np.ones((1, rows, columns), dtype=np.float32), scale)
        # Sums that slide along may end a little below zero.
        found = np.maximum(around(found, scale) / inside, 0)
    return np.moveaxis(found, 0, 2)


def responses(channels: np.ndarray, scale: int) -> Iterator[np.ndarray]:
    """The 17 filtered pictures, one after the other."""
    if scale > 1:
        channels = ndimage.uniform_filter(channels, (1, scale, scale), mode="nearest")
    light, blue, red = channels
    for mask in TEXTURE:
        yield correlate(light, mask, scale)
    for channel in (blue, red):
        yield correlate(channel, TEXTURE[0], scale)
    for mask in EDGES:
        yield correlate(light, mask, scale)


def correlate(picture: np.ndarray, mask: np.ndarray, scale: int) -> np.ndarray:
    """Correlation with a mask whose taps are `scale` pixels apart; the border is repeated."""
    height, width = picture.shape
    padded = np.pad(picture, len(mask) // 2 * scale, mode="edge")
    total = np.zeros_like(picture)
    for (i, j), weight in np.ndenumerate(mask):
        if weight:
            part = padded[i * scale : i * scale + height, j * scale : j * scale + width]
            total += np.float32(weight) * part
    return total


def around(values: np.ndarray, size: int) -> np.ndarray:
    """The mean over size × size patches, zero beyond the border."""
    return ndimage.uniform_filter(values, (1, size, size), mode="constant")


def neighbours(values: np.ndarray, axis: int, step: int) -> np.ndarray:
    """What the next patch has, along an axis; at the border, the patch itself."""
    places = np.clip(np.arange(values.shape[axis]) + step, 0, values.shape[axis] - 1)
    return np.take(values, places, axis=axis)
