"""The scenes of the depth experiment: whole, plausible, and measured as geometry says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

import meanmap
import meanmap_experiments
from meanmap_experiments import depth
from meanmap_experiments.depth import layout, scenes
from meanmap_experiments.depth.features import BLOCKS, EDGES, NUMBER, TEXTURE
from meanmap_experiments.rendering import CHECKSUMS, checksums, save_arrays, sha256

needs_povray = pytest.mark.skipif(
    shutil.which("povray") is None, reason=f"no povray. {scenes.INSTALL}"
)


@pytest.fixture(scope="module")
def small():
    return depth.load("small")


@pytest.fixture
def copied(tmp_path):
    for name in (CHECKSUMS, "small.npz"):
        shutil.copy(depth.FOLDER / name, tmp_path)
    return tmp_path


# --- files ----------------------------------------------------------------------------------------


def test_the_shipped_scenes_have_their_shapes(small):
    images, depths = small
    count, rows, columns = depth.SIZES["small"]
    assert images.shape == (count, 4 * rows, 4 * columns, 3)
    assert images.dtype == np.uint8
    assert depths.shape == (count, rows, columns)
    assert depths.dtype == np.float32


def test_the_shipped_file_is_small_and_noted():
    file = depth.FOLDER / "small.npz"
    assert file.stat().st_size < 3_000_000
    assert checksums(depth.FOLDER)["small.npz"] == sha256(file.read_bytes())


def test_a_copy_loads_as_the_package_does(small, copied):
    for here, there in zip(depth.load("small", copied), small, strict=True):
        np.testing.assert_array_equal(here, there)


def test_one_changed_bit_is_refused(copied):
    file = copied / "small.npz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="damaged") as error:
        depth.load("small", copied)
    expected, came = checksums(copied)["small.npz"], sha256(bytes(data))
    for part in (expected, came, "Reinstall", "depth.scenes --size small"):
        assert part in str(error.value)


def test_an_unknown_size_is_refused():
    for call in (depth.load, depth.ensure):
        with pytest.raises(ValueError, match="'small' or 'full', got 'medium'"):
            call("medium")


def test_a_missing_full_set_names_the_command(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="scene-00.npz") as error:
        depth.load("full", tmp_path)
    assert f"python -m meanmap_experiments.depth.scenes {tmp_path}`" in str(error.value)
    monkeypatch.setenv("MEANMAP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"python -m meanmap_experiments.depth.scenes`"):
        depth.load("full")


def test_where_the_full_set_is(tmp_path, monkeypatch):
    monkeypatch.setenv("MEANMAP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert depth.folder_of(tmp_path) == tmp_path
    assert depth.folder_of() == tmp_path / "data" / "depth"
    monkeypatch.delenv("MEANMAP_DATA")
    assert depth.folder_of() == tmp_path / "cache" / "meanmap" / "depth"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert depth.folder_of() == tmp_path / ".cache" / "meanmap" / "depth"


def pretended(number, rows, columns):
    """A picture that needs no renderer, and tells which scene it is of."""
    pretended.calls.append(number)
    image = np.full((4 * rows, 4 * columns, 3), number, np.uint8)
    return scenes.Taken(image, np.full((rows, columns), 1.0 + number, np.float32))


@pytest.fixture
def renderer(monkeypatch):
    """The full set, of five scenes of 3 × 2 patches, that are not rendered."""
    pretended.calls = []
    monkeypatch.setitem(depth.SIZES, "full", depth.Size(5, 3, 2))
    monkeypatch.setattr(scenes, "render", pretended)
    monkeypatch.setattr(scenes, "find_povray", lambda: "povray")
    return pretended


def test_only_what_is_missing_damaged_or_outdated_is_rendered(tmp_path, renderer):
    made = depth.ensure("full", tmp_path, jobs=2, progress=False)
    assert sorted(renderer.calls) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(made.images[:, 0, 0, 0], range(5))
    np.testing.assert_array_equal(made.depths[:, 0, 0], np.arange(5) + 1.0)
    before = (tmp_path / CHECKSUMS).read_text()

    renderer.calls.clear()
    depth.ensure("full", tmp_path, progress=False)
    assert not renderer.calls

    (tmp_path / depth.file_of(1)).unlink()
    (tmp_path / depth.file_of(2)).write_bytes(b"torn")
    old = {"image": made.images[4], "depth": made.depths[4], "recipe": np.array(["another"])}
    save_arrays(tmp_path, depth.file_of(4), old)
    depth.ensure("full", tmp_path, jobs=1, progress=False)
    assert renderer.calls == [1, 2, 4]
    assert (tmp_path / CHECKSUMS).read_text() == before  # the same bytes again


def test_an_interrupted_run_leaves_what_it_has_done(tmp_path, renderer, monkeypatch):
    def failing(number, rows, columns):
        if number == 3:
            raise RuntimeError("POV-Ray stopped")
        return pretended(number, rows, columns)

    monkeypatch.setattr(scenes, "render", failing)
    with pytest.raises(RuntimeError, match="stopped"):
        depth.ensure("full", tmp_path, jobs=1, progress=False)
    assert sorted(checksums(tmp_path)) == [depth.file_of(n) for n in range(3)]
    monkeypatch.setattr(scenes, "render", renderer)
    renderer.calls.clear()
    depth.ensure("full", tmp_path, jobs=1, progress=False)
    assert renderer.calls == [3, 4]


# --- scenes ---------------------------------------------------------------------------------------


def test_every_scene_of_the_full_set_is_another_and_the_same_again():
    texts = [layout.text(layout.scene(n), 107, 86, "t") for n in range(depth.SIZES["full"].scenes)]
    assert len(set(texts)) == len(texts)
    again = [layout.text(layout.scene(n), 107, 86, "t") for n in range(5)]
    assert again == texts[:5]
    kinds = [layout.scene(n).kind for n in range(depth.SIZES["full"].scenes)]
    assert min(kinds.count(kind) for kind in layout.KINDS) >= 9
    assert all(text.isascii() for text in texts)


def test_the_shipped_scenes_are_plausible(small):
    images, depths = small
    assert images.std(axis=(1, 2, 3)).min() > 15  # none is blank
    assert depths.min() > 1  # the camera is in nothing
    assert depths.max() == layout.RANGE
    sky = (depths == layout.RANGE).mean(axis=(1, 2))
    assert sky.max() < 0.6
    assert 0.05 < sky.mean() < 0.4
    assert (np.quantile(depths, 0.9, axis=(1, 2)) / depths.min(axis=(1, 2))).min() > 2
    # The ground is below: farther upwards, on the average.
    rows = np.log(depths).mean(axis=(0, 2))
    assert rows[0] - rows[-1] > 1
    # In the bottom row nearly everything is nearer than 10 m.
    assert np.mean(depths[:, -1] < 10) > 0.95


def test_depth_can_be_learned_from_features_but_not_to_the_end(small):
    """Ridge regression by row, each third of the scenes left out: 0.66 by row alone, 0.54 so."""
    log_depths, described = np.log(small.depths), small.features()
    described[..., :-1] -= described.mean(axis=(0, 1, 2))[:-1]
    described[..., :-1] /= described.std(axis=(0, 1, 2))[:-1]
    by_row, errors, rest = [], [], []
    for third in range(3):
        held = np.arange(len(log_depths)) % 3 == third
        apart = log_depths - log_depths[~held].mean(axis=(0, 2))[:, None]
        by_row.append(apart[held])
        for row in range(apart.shape[1]):
            x = described[~held, row].reshape(-1, NUMBER).astype(float)
            y = apart[~held, row].ravel()
            weights = np.linalg.solve(x.T @ x + 1000 * np.eye(NUMBER), x.T @ y)
            errors.append(apart[held, row] - described[held, row] @ weights)
            rest.append(y - x @ weights)
    assert np.abs(errors).mean() < 0.9 * np.abs(by_row).mean()
    assert np.std(errors) > 0.3  # what one patch leaves open
    assert np.std(rest) > 0.2  # in the training scenes too


# --- features -------------------------------------------------------------------------------------


def test_features_have_their_shape_and_range(small):
    found = small.features(3)
    assert found.shape == (36, 29, NUMBER) == (36, 29, 273)
    assert found.dtype == np.float32
    assert found.min() >= 0
    assert found.max() <= 1
    np.testing.assert_array_equal(found[..., -1], 1)
    np.testing.assert_array_equal(found, small.features(3))
    np.testing.assert_array_equal(found, small.features(slice(2, 5))[1])
    floats = depth.features(small.images[3] / 255.0)
    np.testing.assert_allclose(found, floats, atol=1e-3)


def test_features_are_the_energies_of_the_filters(small):
    """The first block by plain convolution, the others from it."""
    image = small.images[5] / 255.0
    found = small.features(5).astype(float)
    light = image @ [0.299, 0.587, 0.114]
    for number, mask in [(0, TEXTURE[0]), (4, TEXTURE[4]), (8, TEXTURE[8]), (12, EDGES[1])]:
        response = ndimage.correlate(light, mask, mode="nearest").reshape(36, 4, 29, 4)
        absolute, square = np.abs(response).mean(axis=(1, 3)), np.square(response).mean(axis=(1, 3))
        np.testing.assert_allclose(found[..., number] ** 2, absolute, atol=1e-6)
        np.testing.assert_allclose(found[..., 17 + number] ** 4, square, atol=1e-6)
    blocks = {name: found[..., 34 * i : 34 * i + 34] for i, name in enumerate(BLOCKS)}
    patch = blocks["patch"]
    np.testing.assert_array_equal(blocks["above"][1:], patch[:-1])
    np.testing.assert_array_equal(blocks["below"][:-1], patch[1:])
    np.testing.assert_array_equal(blocks["left"][:, 1:], patch[:, :-1])
    np.testing.assert_array_equal(blocks["right"][:, :-1], patch[:, 1:])
    np.testing.assert_array_equal(blocks["above"][0], patch[0])
    column = (patch[..., :17] ** 2).mean(axis=0, keepdims=True)
    np.testing.assert_allclose(
        blocks["column"][..., :17] ** 2, np.broadcast_to(column, (36, 29, 17)), atol=1e-6
    )
    for scale in (3, 9):
        # LL at a scale, far from the border: means of means, weights 1 2 1 with holes.
        smooth = ndimage.uniform_filter(light, scale)
        weights = np.zeros(2 * scale + 1)
        weights[[0, scale, 2 * scale]] = 0.25, 0.5, 0.25
        smooth = ndimage.correlate1d(ndimage.correlate1d(smooth, weights, 0), weights, 1)
        block = smooth.reshape(36, 4, 29, 4).mean(axis=(1, 3))
        wide = ndimage.uniform_filter(block, scale)[12:-12, 10:-10]
        came = blocks[f"scale {scale}"][..., 0][12:-12, 10:-10] ** 2
        np.testing.assert_allclose(came, wide, atol=1e-5)


def test_the_filters_see_what_they_are_for():
    rows, columns = np.mgrid[:80, :80]
    flat = np.full((80, 80, 3), 0.5)
    texture = [n for n in range(17) if n not in (0, 9, 10)]
    assert depth.features(flat)[..., texture].max() < 1e-3
    across = np.repeat((columns % 8 < 4)[..., None], 3, axis=2).astype(float)
    down = np.repeat((rows % 8 < 4)[..., None], 3, axis=2).astype(float)
    for stripes, strong, weak in ((across, 1, 3), (down, 3, 1)):
        middle = depth.features(stripes)[10, 10]
        assert middle[strong] > 0.3 > 100 * middle[weak]  # LE and EL
    blue = flat.copy()
    blue[:, :40, 2] = 0.9
    found = depth.features(blue)[10]
    assert found[3, 9] > found[15, 9] + 0.05  # blue difference
    # Edges: the mask of each direction answers most to a step in that direction.
    for number, mask in enumerate(EDGES):
        step = np.kron(np.sign(mask), np.ones((16, 16)))
        picture = np.repeat(np.clip(0.5 + 0.5 * step, 0, 1)[..., None], 3, axis=2)
        strength = depth.features(picture)[8:12, 8:12, 11:17].mean(axis=(0, 1))
        assert np.argmax(strength) == number


@pytest.mark.parametrize(
    "image, message",
    [
        (np.zeros((8, 8)), "height, width, 3"),
        (np.zeros((2, 8, 8, 3)), "one at a time"),
        (np.zeros((9, 8, 3)), "multiples of the patch"),
        (np.zeros((0, 8, 3)), "multiples of the patch"),
        (np.full((8, 8, 3), 255.0), r"in \[0, 1\]"),
        (np.full((8, 8, 3), np.nan), r"in \[0, 1\]"),
    ],
)
def test_what_is_no_picture_is_refused(image, message):
    with pytest.raises(ValueError, match=message):
        depth.features(image)


# --- rendering ------------------------------------------------------------------------------------

HEIGHT, YAW, PITCH = 1.7, 9.0, -6.0
ROWS, COLUMNS = 24, 19


def cast(place, size, angle):
    """The lengths of rays to the ground, or to a box on it, whichever is nearer: (24, 19)."""
    half = np.tan(np.radians(layout.FIELD / 2))
    up = (1 - 2 * (np.arange(ROWS) + 0.5) / ROWS) * half
    right = (2 * (np.arange(COLUMNS) + 0.5) / COLUMNS - 1) * half * COLUMNS / ROWS
    up, right = np.meshgrid(up, right, indexing="ij")
    p, y = np.radians(PITCH), np.radians(YAW)
    ahead = np.array([np.sin(y) * np.cos(p), np.sin(p), np.cos(y) * np.cos(p)])
    upward = np.array([-np.sin(y) * np.sin(p), np.cos(p), -np.cos(y) * np.sin(p)])
    sideways = np.array([np.cos(y), 0, -np.sin(y)])
    rays = right[..., None] * sideways + up[..., None] * upward + ahead
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    eye = np.array([0, HEIGHT, 0])
    with np.errstate(divide="ignore"):
        ground = np.where(rays[..., 1] < 0, -HEIGHT / rays[..., 1], np.inf)
        # The box's own axes: turned by `angle` from z towards x, as yaw is.
        a = np.radians(angle)
        axes = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
        start, way = axes @ (eye - place), rays @ axes.T
        corner = np.array([size[0] / 2, 0, size[2] / 2])
        low = (np.array([-1, 0, -1]) * corner - start) / way
        high = (np.array([1, 0, 1]) * corner + [0, size[1], 0] - start) / way
    enter, leave = np.minimum(low, high).max(axis=-1), np.maximum(low, high).min(axis=-1)
    box = np.where((enter <= leave) & (enter > 0), enter, np.inf)
    return np.minimum(ground, layout.RANGE), box


@needs_povray
def test_depths_are_those_of_geometry():
    """The ground and a box, askew, from a camera that is turned and tilted."""
    place, size, angle = np.array([0.9, 0, 6.5]), (2.0, 2.6, 1.2), 33.0
    made = layout.Scene(np.random.default_rng(0), "test", HEIGHT, YAW, PITCH)
    made.call("Sun", 200, 40, (1, 1, 1))
    made.call("Sky", (0.1, 0.1, 1), (0.1, 0.1, 1), (1, 1, 1), 0, 0)
    made.call("Ground", 0, (0.1, 0.6, 0.1), (0, 0, 0), 1, 0)
    made.call("Block", tuple(place), size, angle, 0, (0.9, 0.1, 0.1), (0, 0, 0), 1)
    image, depths = scenes.take(layout.text(made, ROWS, COLUMNS, scenes.TABLE), ROWS, COLUMNS)
    ground, box = cast(place, size, angle)
    np.testing.assert_allclose(depths, np.minimum(ground, box), rtol=1e-5, atol=6e-4)
    hit = box < ground
    assert 20 < hit.sum() < 200
    assert (ground[0] == layout.RANGE).all()
    # The picture shows it in the same patches: the box red, the ground green, the sky blue.
    middle = image.reshape(ROWS, 4, COLUMNS, 4, 3)[:, 1:3, :, 1:3].mean(axis=(1, 3))
    inside = ndimage.binary_erosion(hit)
    outside = ~ndimage.binary_dilation(hit)
    far = ground == layout.RANGE
    far_inside = far & np.roll(far, -2, axis=0)
    assert (middle[inside].argmax(axis=-1) == 0).all()
    assert (middle[outside & ~far].argmax(axis=-1) == 1).mean() > 0.95
    assert (middle[outside & far_inside].argmax(axis=-1) == 2).all()


@needs_povray
def test_a_scene_rendered_again_is_the_shipped_one(small):
    """One build repeats itself to the bit; another may round otherwise, at edges above all."""
    for number in (3, 13):
        once = scenes.render(number, 36, 29)
        gap = np.abs(once.image.astype(int) - small.images[number])
        assert gap.mean() < 1
        apart = np.abs(np.log(once.depth / small.depths[number]))
        assert np.mean(apart > 0.001) < 0.01
    again = scenes.render(number, 36, 29)
    np.testing.assert_array_equal(once.image, again.image)
    np.testing.assert_array_equal(once.depth, again.depth)


def test_without_povray_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(RuntimeError, match="apt-get install povray.*brew install povray"):
        depth.ensure("full", out)
    for options in ([], ["--size", "small"]):
        with pytest.raises(SystemExit, match="1"):
            scenes.main([*options, str(out)])
        assert "apt-get install povray" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_explains_itself():
    command = [sys.executable, "-m", "meanmap_experiments.depth.scenes", "--help"]
    packages = (meanmap, meanmap_experiments)
    source = os.pathsep.join(str(Path(one.__file__).parents[1]) for one in packages)
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": source}
    )
    assert "MEANMAP_DATA" in done.stdout
    assert not done.stderr  # no warning that the module was imported before it was run
