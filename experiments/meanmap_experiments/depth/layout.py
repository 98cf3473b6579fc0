"""Random scenes, as text for POV-Ray: streets, parks, courts and rooms, of things in world.pov.

A scene is a camera at (0, height, 0) that looks along z, give or take a turn, and what stands
around it. Everything is drawn from the scene's number: layout, colours, light, haze and the camera.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["FIELD", "KINDS", "RANGE", "Scene", "scene", "text"]

FIELD = 60.0  # degrees, the vertical field of view
RANGE = 80.0  # metres: what is farther, or the sky, has this depth, as beyond a laser's reach
SEED = 2013

Colour = tuple[float, float, float]

#: Leaves and grass, bricks and plaster, wood, stone: sRGB, each varied a little when it is used.
GREENS: list[Colour] = [(0.24, 0.36, 0.13), (0.33, 0.42, 0.16), (0.16, 0.29, 0.15)]
AUTUMN: list[Colour] = [(0.55, 0.40, 0.12), (0.50, 0.27, 0.11), (0.42, 0.40, 0.14)]
BRICKS: list[Colour] = [(0.55, 0.27, 0.20), (0.62, 0.42, 0.31), (0.45, 0.33, 0.29)]
PLASTERS: list[Colour] = [
    (0.83, 0.79, 0.70),
    (0.78, 0.66, 0.48),
    (0.70, 0.72, 0.73),
    (0.80, 0.62, 0.55),
    (0.62, 0.70, 0.66),
    (0.88, 0.86, 0.83),
]
WOODS: list[Colour] = [(0.45, 0.31, 0.20), (0.60, 0.45, 0.30), (0.35, 0.25, 0.19)]
STONES: list[Colour] = [(0.55, 0.54, 0.52), (0.66, 0.62, 0.56), (0.43, 0.43, 0.45)]
EARTHS: list[Colour] = [(0.50, 0.42, 0.30), (0.58, 0.50, 0.38), (0.44, 0.38, 0.30)]
PAINTS: list[Colour] = [
    (0.65, 0.12, 0.10),
    (0.12, 0.22, 0.45),
    (0.80, 0.80, 0.80),
    (0.15, 0.15, 0.16),
    (0.55, 0.57, 0.58),
    (0.20, 0.38, 0.25),
    (0.75, 0.60, 0.15),
]


#: Colours of the sky, low and high, and of clouds; their cover; sun, daylight, ambient light.
MOODS: dict[str, tuple[Colour, Colour, Colour, float, float, float, Colour]] = {
    "fair": (
        *((0.72, 0.82, 0.92), (0.28, 0.47, 0.78), (1.0, 1.0, 1.0)),
        *(0.38, 1.5, 0.3, (0.75, 0.9, 1.15)),
    ),
    "cloudy": (
        *((0.78, 0.83, 0.88), (0.42, 0.56, 0.75), (0.93, 0.93, 0.94)),
        *(0.6, 1.2, 0.4, (0.9, 0.95, 1.05)),
    ),
    "overcast": (
        *((0.82, 0.83, 0.84), (0.66, 0.68, 0.71), (0.75, 0.76, 0.78)),
        *(0.7, 0.3, 0.8, (1.1, 1.1, 1.15)),
    ),
    "late": (
        *((0.92, 0.74, 0.55), (0.38, 0.43, 0.62), (0.85, 0.62, 0.52)),
        *(0.45, 1.6, 0.25, (0.8, 0.75, 0.85)),
    ),
}


@dataclass
class Scene:
    """A scene that is being put together: its dice, its camera, and lines of POV-Ray."""

    rng: np.random.Generator
    kind: str
    height: float
    yaw: float
    pitch: float
    ambient: Colour = (1.0, 1.0, 1.0)
    lines: list[str] = field(default_factory=list)
    taken: list[tuple[float, float, float]] = field(default_factory=list)  # circles: x, z, radius

    def call(self, macro: str, *values: object) -> None:
        """A line that calls a macro of world.pov."""
        self.lines.append(f"{macro}({', '.join(map(literal, values))})")

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """A whole number, `high` included."""
        return int(self.rng.integers(low, high + 1))

    def colour(self, palette: Sequence[Colour], spread: float = 0.07) -> Colour:
        """One of the palette, lighter or darker and a little off."""
        chosen = np.array(palette[int(self.rng.integers(len(palette)))])
        light = self.rng.uniform(1 - 3 * spread, 1 + 2 * spread)
        red, green, blue = np.clip(
            chosen * light * self.rng.uniform(1 - spread, 1 + spread, 3), 0, 1
        )
        return float(red), float(green), float(blue)

    def place(
        self, x: tuple[float, float], z: tuple[float, float], radius: float, tries: int = 30
    ) -> tuple[float, float] | None:
        """A free spot for something round, none of it within 2 m of the camera; None if full.

        Spots are even in log-distance, so that there is something near as well as far.
        """
        for _ in range(tries):
            spot_z = float(np.exp(self.rng.uniform(*np.log(z))))
            spot_x = self.uniform(*x)
            if np.hypot(spot_x, spot_z) < radius + 2.0:
                continue
            if all(np.hypot(spot_x - a, spot_z - b) > radius + r for a, b, r in self.taken):
                self.taken.append((spot_x, spot_z, radius))
                return spot_x, spot_z
        return None

    def occupied(self, x: float, z: float, radius: float) -> None:
        self.taken.append((x, z, radius))


# --- the whole ------------------------------------------------------------------------------------


def scene(number: int) -> Scene:
    """
    The scene of a number: what is where, before it is drawn.

    Examples
    --------
    >>> scene(3).kind == scene(3).kind and scene(3).lines == scene(3).lines
    True
    """
    rng = np.random.default_rng([SEED, number])
    # In turn, so that any run of numbers has streets, parks, courts and rooms in fair shares.
    kind = ORDER[number % len(ORDER)]
    made = Scene(
        rng,
        kind,
        height=float(np.exp(rng.uniform(np.log(1.2), np.log(2.6)))),
        yaw=float(rng.uniform(-14, 14)),
        pitch=float(np.clip(rng.normal(-1, 5), -11, 9)),
    )
    if kind == "room":
        made.height = min(made.height, 1.8)
        made.pitch *= 0.7
    KINDS[kind](made)
    return made


def text(made: Scene, rows: int, columns: int, table: str) -> str:
    """What POV-Ray renders: the scene in a picture of so many patches, and the depth of each."""
    head = {
        "Eye_Height": made.height,
        "Yaw": made.yaw,
        "Pitch": made.pitch,
        "Field": FIELD,
        "Rows": rows,
        "Columns": columns,
        "Ambient": made.ambient,
    }
    lines = [f"#declare {name} = {literal(value)};" for name, value in head.items()]
    lines += ['#include "world.pov"', *made.lines, f'Survey("{table}", {RANGE:g})', ""]
    return "\n".join(lines)


def literal(value: object) -> str:
    """A number or a vector as POV-Ray reads it, to six digits."""
    if isinstance(value, (tuple, list, np.ndarray)):
        return "<" + ", ".join(map(literal, value)) + ">"
    return f"{float(value):.6g}"  # type: ignore[arg-type]


# --- outdoors -------------------------------------------------------------------------------------


def weather(made: Scene) -> None:
    """Sky, sun and haze: fair, cloudy, overcast or late in the day."""
    mood = made.rng.choice(["fair", "cloudy", "overcast", "late"], p=[0.35, 0.25, 0.25, 0.15])
    low, high, cloud, cover, sun, daylight, made.ambient = MOODS[str(mood)]
    made.call("Sky", low, high, cloud, cover * made.uniform(0.75, 1.2), made.uniform(0, 20))
    elevation = made.uniform(9, 20) if mood == "late" else made.uniform(28, 62)
    warm = (1.0, 0.72, 0.45) if mood == "late" else (1.0, 0.96, 0.88)
    brightness = sun * made.uniform(0.85, 1.15)
    made.call("Sun", made.uniform(60, 300), elevation, tuple(brightness * c for c in warm))
    made.call("Daylight", tuple(daylight * c for c in made.ambient))
    if made.chance(0.85):
        distance = float(np.exp(made.rng.uniform(np.log(50), np.log(600))))
        made.call(
            "Haze",
            tuple(0.5 * (a + b) for a, b in zip(low, (0.8, 0.82, 0.85), strict=True)),
            distance,
        )


def wall_colours(made: Scene) -> tuple[int, Colour, Colour, float]:
    """A wall's kind (see Wall_Pigment in world.pov), its two colours and the size of its grain."""
    kind = int(made.rng.choice([0, 1, 2, 3, 4], p=[0.35, 0.3, 0.12, 0.18, 0.05]))
    palette = {0: PLASTERS, 1: BRICKS, 2: WOODS + PLASTERS, 3: STONES, 4: STONES}[kind]
    other = made.colour(STONES if kind else PLASTERS)
    return kind, made.colour(palette), other, float(np.exp(made.rng.uniform(-0.3, 0.7)))


def building(
    made: Scene, x: float, z: float, size: tuple[float, float, float], angle: float = 0.0
) -> None:
    """A building whose foot has its middle at (x, z)."""
    roof = made.uniform(1.5, 4) if size[1] < 9 and made.chance(0.6) else 0.0
    tile = made.colour(BRICKS + STONES) if roof else made.colour(STONES)
    glass = made.colour([(0.22, 0.27, 0.33), (0.14, 0.17, 0.20), (0.35, 0.42, 0.50)])
    bays = (made.uniform(1.7, 4.2), made.uniform(2.7, 3.7), made.uniform(0.35, 0.75))
    made.call("Building", (x, 0, z), size, angle, *wall_colours(made), *bays, glass, roof, tile)


def greenery(made: Scene, x: float, z: float, height: float, leaves: Sequence[Colour]) -> None:
    """A tree: mostly broad, else a fir."""
    spread, bark = height * made.uniform(0.24, 0.42), made.colour(WOODS)
    leaf, other = made.colour(leaves), made.colour(leaves)
    if made.chance(0.78):
        made.call("Tree", (x, 0, z), height, spread, bark, leaf, other, made.number(1, 10**6))
    else:
        dark = [tuple(0.75 * c for c in made.colour(GREENS)) for _ in range(2)]
        made.call("Fir", (x, 0, z), height, 0.8 * spread, bark, *dark)


def leaves_of_the_year(made: Scene) -> list[Colour]:
    return AUTUMN + GREENS[:1] if made.chance(0.25) else GREENS


def lawn(made: Scene) -> None:
    made.call(
        "Ground",
        1,
        made.colour(GREENS),
        made.colour(GREENS + EARTHS),
        made.uniform(0.5, 1.5),
        made.uniform(0, 9),
    )


def hard_ground(made: Scene) -> None:
    kind = int(made.rng.choice([0, 2, 3, 5], p=[0.35, 0.4, 0.15, 0.1]))
    palette = EARTHS if kind == 3 else STONES + EARTHS[:1]
    size = made.uniform(0.6, 2.2)
    made.call("Ground", kind, made.colour(palette), made.colour(STONES), size, made.uniform(0, 9))


def crate(made: Scene, x: float, z: float, side: float) -> None:
    size = tuple(side * made.rng.uniform(0.6, 1.3, 3))
    colours = (made.colour(WOODS + STONES + PAINTS), made.colour(STONES))
    kind = int(made.rng.choice([0, 2, 2, 3]))
    made.call("Block", (x, 0, z), size, made.uniform(0, 90), kind, *colours, made.uniform(0.4, 1))


def clutter(
    made: Scene, x: tuple[float, float], z: tuple[float, float], count: int, kinds: Iterable[str]
) -> None:
    """Trees, bushes, crates, cars and posts, wherever there is room."""
    choices, leaves = list(kinds), leaves_of_the_year(made)
    for _ in range(count):
        kind = choices[int(made.rng.integers(len(choices)))]
        radius = {"tree": 1.6, "bush": 1.0, "crate": 1.0, "car": 2.3, "post": 0.3}[kind]
        spot = made.place(x, z, radius)
        if spot is None:
            continue
        at = (spot[0], 0.0, spot[1])
        if kind == "tree":
            greenery(made, *spot, made.uniform(3.5, 11), leaves)
        elif kind == "bush":
            colours = (made.colour(leaves), made.colour(leaves))
            made.call("Bush", at, made.uniform(0.6, 1.5), *colours, made.number(1, 10**6))
        elif kind == "crate":
            crate(made, *spot, made.uniform(0.5, 1.6))
        elif kind == "car":
            made.call("Car", at, made.uniform(0, 360), made.colour(PAINTS))
        else:
            arm = made.uniform(0.6, 1.5) * made.number(0, 1)
            made.call("Post", at, made.uniform(2, 7), 0.07, arm, made.colour(STONES + PAINTS[3:4]))


def skyline(made: Scene) -> None:
    """Buildings and woods far off, so that the horizon is rarely bare."""
    leaves = GREENS
    for _ in range(made.number(2, 9)):
        z = made.uniform(50, 110)
        x = made.uniform(-0.6, 0.6) * z
        if made.chance(0.45):
            size = (made.uniform(8, 25), made.uniform(5, 24), made.uniform(8, 16))
            building(made, x, z + 12, size, made.uniform(-30, 30))
        else:
            greenery(made, x, z, made.uniform(7, 16), leaves)


def street(made: Scene) -> None:
    """A road with pavements, and rows of buildings on both sides or on one."""
    weather(made)
    hard_ground(made)
    road, pavement = made.uniform(5, 9), made.uniform(1.5, 4)
    middle = made.uniform(-0.6, 0.6) * road  # the camera is on the road, or on a pavement
    made.call(
        "Strip",
        (middle, 0, -20),
        road,
        220,
        0.01,
        0,
        0,
        made.colour([(0.33, 0.33, 0.35), (0.42, 0.41, 0.40)]),
        (0, 0, 0),
        made.uniform(0.6, 1.5),
    )
    stone, joint, size = made.colour(STONES), made.colour(STONES), made.uniform(0.7, 1.6)
    end = made.uniform(25, 75) if made.chance(0.6) else 130.0
    leaves, planted = leaves_of_the_year(made), made.chance(0.6)
    sides = [-1, 1] if made.chance(0.8) else [int(made.rng.choice([-1, 1]))]
    for side in (-1, 1):
        kerb = middle + side * (road / 2 + pavement / 2)
        made.call("Strip", (kerb, 0, -20), pavement, 220, 0.14, 0, 2, stone, joint, size)
        front = middle + side * (road / 2 + pavement)
        if side in sides:
            z = made.uniform(-12, -4)
            while z < min(end, 100):
                length, depth = made.uniform(6, 18), made.uniform(8, 12)
                back = made.uniform(0, 2.5) * made.number(0, 1)
                size3 = (depth, made.uniform(3.5, 17), length)
                building(made, front + side * (back + depth / 2), z + length / 2, size3)
                z += length + made.uniform(1, 7) * made.chance(0.35)
        else:
            reach = (middle + side * (road / 2 + pavement + 1), middle + side * 30)
            clutter(made, (min(reach), max(reach)), (4, 60), made.number(8, 16), ["tree", "bush"])
        kerbside = middle + side * (road / 2 - 1.1)
        z = made.uniform(5, 14)
        while z < end and made.chance(0.75):
            if abs(kerbside) > 1.6 or z > 7:
                made.call(
                    "Car",
                    (kerbside, 0, z),
                    made.uniform(-4, 4) + 180 * made.number(0, 1),
                    made.colour(PAINTS),
                )
            z += made.uniform(5.5, 16)
        edge = middle + side * (road / 2 + 0.5)
        for z in np.arange(made.uniform(5, 12), min(end, 90), made.uniform(7, 15)):
            if abs(edge) < 1.5 and z < 6:
                continue
            if planted and made.chance(0.7):
                greenery(made, edge, float(z), made.uniform(3.5, 7.5), leaves)
            elif made.chance(0.5):
                made.call("Post", (edge, 0.1, z), made.uniform(4, 7), 0.07, 1.2, (0.25, 0.26, 0.28))
    if end < 100:
        building(
            made,
            middle + made.uniform(-4, 4),
            end + 7,
            (made.uniform(14, 40), made.uniform(5, 16), 12),
            made.uniform(-12, 12),
        )
    else:
        skyline(made)


def park(made: Scene) -> None:
    """Grass or earth with trees; perhaps a path, a fence, a house."""
    weather(made)
    lawn(made) if made.chance(0.8) else hard_ground(made)
    if made.chance(0.6):
        bent = made.uniform(-25, 25)
        made.call(
            "Strip",
            (made.uniform(-2, 2), 0, -3),
            made.uniform(1.2, 3),
            140,
            0.02,
            bent,
            int(made.rng.choice([0, 2, 3])),
            made.colour(EARTHS + STONES),
            made.colour(STONES),
            made.uniform(0.6, 1.5),
        )
    if made.chance(0.45):
        z, angle = made.uniform(7, 28), made.uniform(-25, 25)
        if made.chance(0.5):
            made.call(
                "Fence",
                (0, 0, z),
                60,
                made.uniform(0.9, 1.6),
                angle,
                made.colour(WOODS + PLASTERS[-1:]),
            )
        else:
            size = (70.0, made.uniform(0.6, 1.9), 0.4)
            made.call("Block", (0, 0, z), size, angle, *wall_colours(made))
    if made.chance(0.6):
        z = made.uniform(16, 55)
        x = made.uniform(-0.45, 0.45) * z
        width = made.uniform(8, 18)
        building(made, x, z + 5, (width, made.uniform(3.5, 9), 9), made.uniform(-40, 40))
        made.occupied(x, z + 5, 0.7 * width)
    clutter(made, (-4, 4), (4.5, 14), made.number(1, 3), ["tree", "bush", "crate", "post"])
    clutter(made, (-10, 10), (6, 22), made.number(2, 6), ["tree", "tree", "bush"])
    clutter(made, (-32, 32), (14, 80), made.number(8, 25), ["tree", "tree", "tree", "bush"])
    skyline(made)


def court(made: Scene) -> None:
    """A building or a wall across the view, askew; something in front of it."""
    weather(made)
    hard_ground(made) if made.chance(0.75) else lawn(made)
    z, angle = float(np.exp(made.rng.uniform(np.log(7), np.log(32)))), made.uniform(-45, 45)
    if made.chance(0.7):
        size = (made.uniform(10, 45), made.uniform(3.5, 14), made.uniform(8, 12))
        # The middle of the front at x, z.
        x, turn = made.uniform(-0.25, 0.25) * z, np.radians(angle)
        foot = (x + np.sin(turn) * size[2] / 2, z + np.cos(turn) * size[2] / 2)
        building(made, *foot, size, angle)
    else:
        made.call(
            "Block", (0, 0, z), (80.0, made.uniform(1.2, 4.5), 0.5), angle, *wall_colours(made)
        )
        skyline(made)
    if made.chance(0.65):  # a wing beside the camera
        side, near = int(made.rng.choice([-1, 1])), made.uniform(2.2, 7)
        length, depth = made.uniform(8, 20), made.uniform(6, 10)
        start = made.uniform(-4, 6)
        building(
            made,
            side * (near + depth / 2),
            start + length / 2,
            (depth, made.uniform(3, 12), length),
        )
        made.occupied(side * (near + depth / 2), start + length / 2, 0.6 * length)
    if made.chance(0.5):
        skyline(made)
    clutter(
        made,
        (-2.5, 2.5),
        (4, max(5.0, 0.7 * z)),
        made.number(1, 3),
        ["crate", "crate", "bush", "post"],
    )
    kinds = ["tree", "crate", "car", "bush", "post", "crate"]
    clutter(made, (-0.5 * z, 0.5 * z), (5, max(6.0, 0.85 * z)), made.number(3, 9), kinds)
    clutter(made, (-35, 35), (z, 80), made.number(4, 12), ["tree", "tree", "car"])


# --- indoors --------------------------------------------------------------------------------------


def room(made: Scene) -> None:
    """A corridor, a room or a hall, with doors, furniture and pillars."""
    width = float(np.exp(made.rng.uniform(np.log(2.6), np.log(12))))
    height = made.uniform(2.5, 3.3) + 0.15 * max(0.0, width - 4)
    end = made.uniform(5, 12) + made.uniform(0, 25) * made.chance(0.5)
    left = -width * made.uniform(0.3, 0.7)
    left = float(np.clip(left, -width + 0.9, -0.9))
    right = left + width
    warm = made.uniform(0, 1)
    tint = (1.0, 0.97 - 0.08 * warm, 0.95 - 0.25 * warm)
    made.ambient = (1.0 * tint[0], 1.0 * tint[1], 1.0 * tint[2])
    made.call(
        "Ground",
        int(made.rng.choice([0, 2, 4, 5])),
        made.colour(WOODS + STONES),
        made.colour(STONES + PLASTERS),
        made.uniform(0.5, 1.3),
        0,
    )
    kind, colour, other, grain = wall_colours(made)
    kind = kind if made.chance(0.4) else 0
    panel = made.uniform(1.8, 3.5)
    made.call(
        "Room",
        left,
        right,
        -4,
        end,
        height,
        kind,
        colour if kind else made.colour(PLASTERS),
        other,
        grain,
        made.colour(PLASTERS[-1:]),
        panel,
    )
    for z in np.arange(-1.0, end, max(3.0, end / 4)):
        shine = 0.55 * made.uniform(0.5, 1.3)
        made.call("Lamp", ((left + right) / 2, height - 0.3, z + 1), tuple(shine * c for c in tint))
    # Doors in both walls, and a door or a bright window at the end.
    for side, wall in ((1, left), (-1, right)):
        z = made.uniform(1.5, 5)
        while z < end - 1.5:
            door = (0.06, 2.05, 0.95)
            made.call(
                "Block",
                (wall + side * 0.02, 0, z),
                door,
                0,
                0,
                made.colour(WOODS + PAINTS[4:5]),
                (0, 0, 0),
                1,
            )
            z += made.uniform(2.2, 7)
    pale = made.colour([(0.85, 0.9, 0.95), (0.5, 0.38, 0.28), (0.3, 0.3, 0.32)])
    at = (made.uniform(left + 0.8, right - 0.8), 0, end)
    made.call("Block", at, (made.uniform(0.9, 1.5), 2.1, 0.06), 0, 0, pale, (0, 0, 0), 1)
    if width > 5.5 and made.chance(0.7):
        gap = made.uniform(3, 5)
        for z in np.arange(made.uniform(3, 5), end - 1, gap):
            for x in (left + width / 4, right - width / 4):
                if np.hypot(x, z) > 1.8:
                    made.call("Block", (x, 0, z), (0.4, height, 0.4), 0, kind, colour, other, grain)
                    made.occupied(x, float(z), 0.5)
    for _ in range(made.number(3, 9)):
        spot = made.place((left + 0.5, right - 0.5), (2.2, end - 0.6), 0.6)
        if spot is None:
            continue
        if made.chance(0.35):
            size = (made.uniform(0.8, 1.6), made.uniform(0.6, 0.8), made.uniform(0.6, 0.9))
            made.call(
                "Table",
                (spot[0], 0, spot[1]),
                size,
                90 * made.number(0, 1),
                made.colour(WOODS + PAINTS),
            )
        elif made.chance(0.5):
            # A cupboard or a shelf at the nearer wall.
            x = left + 0.25 if spot[0] < (left + right) / 2 else right - 0.25
            size = (0.45, made.uniform(0.8, 2.1), made.uniform(0.6, 1.6))
            if abs(x) > 1.0 or spot[1] > 3:
                made.call(
                    "Block",
                    (x, 0, spot[1]),
                    size,
                    0,
                    2,
                    made.colour(WOODS + PLASTERS),
                    (0, 0, 0),
                    made.uniform(1, 2.5),
                )
        else:
            crate(made, *spot, made.uniform(0.35, 0.8))


KINDS: dict[str, Callable[[Scene], None]] = {
    "street": street,
    "park": park,
    "court": court,
    "room": room,
}
ORDER = ("street", "park", "court", "room", "street", "park", "court")
